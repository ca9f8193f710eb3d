#include <troupe/cluster/training/checkpoint_folder.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBefore = "step-", kBehind = ".safetensors";
constexpr const char *kStep = "troupe.step", *kTime = "troupe.time", *kMetric = "troupe.metric";

std::int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

const std::string& value_of(const std::map<std::string, std::string>& metadata, const char* name) {
  static const std::string none;
  const auto found = metadata.find(name);
  return found == metadata.end() ? none : found->second;
}

}  // namespace

CheckpointFolder::CheckpointFolder(fs::path folder, bool makes) : folder_(std::move(folder)) {
  std::error_code error;
  if (makes) fs::create_directories(folder_, error);
  else if (!fs::is_directory(folder_, error))
    throw Error(Code::not_found,
                fmt::format("there is no folder of checkpoints '{}'", folder_.string()));
  if (error)
    throw Error(Code::failed_precondition,
                fmt::format("the folder of checkpoints '{}' cannot be made: {}; name another",
                            folder_.string(), error.message()));
}

std::string CheckpointFolder::path(std::int64_t step) const {
  return (folder_ / fmt::format("{}{}{}", kBefore, step, kBehind)).string();
}

std::vector<std::int64_t> CheckpointFolder::steps() const {
  std::vector<std::int64_t> all;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kBefore) || !name.ends_with(kBehind)) continue;
    const std::string number =
        name.substr(kBefore.size(), name.size() - kBefore.size() - kBehind.size());
    if (!number.empty() && number.size() < 19 &&
        std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; }))
      all.push_back(std::stoll(number));
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<CheckpointFolder::Entry> CheckpointFolder::entries() const {
  std::vector<Entry> all;
  for (const std::int64_t step : steps()) {
    Entry e;
    e.step = step;
    e.path = path(step);
    std::error_code gone;
    e.bytes = fs::file_size(e.path, gone);
    if (gone) continue;
    try {
      const TensorFileHead head = read_safetensors_head(e.path);
      e.time = std::atoll(value_of(head.metadata, kTime).c_str());
      if (const std::string& metric = value_of(head.metadata, kMetric); !metric.empty())
        e.metric = std::strtod(metric.c_str(), nullptr);
    } catch (const Error&) {  // `read` says why
    }
    all.push_back(std::move(e));
  }
  return all;
}

TensorFile CheckpointFolder::read(std::int64_t step) const {
  TensorFile file = load_safetensors(path(step));
  if (!file.is_checked)
    throw Error(Code::data_loss,
                fmt::format("'{}' has no checksum, so its values may be damaged", path(step)));
  if (const std::string& said = value_of(file.metadata, kStep); said != std::to_string(step))
    throw Error(Code::data_loss,
                fmt::format("'{}' is no checkpoint of step {}: its metadata '{}' is '{}'",
                            path(step), step, kStep, said));
  return file;
}

void CheckpointFolder::write(std::int64_t step, const NamedTensors& values,
                             std::optional<double> metric) const {
  std::map<std::string, std::string> metadata{{kStep, std::to_string(step)},
                                              {kTime, std::to_string(seconds_now())}};
  if (metric) metadata[kMetric] = fmt::format("{}", *metric);
  save_safetensors(path(step), values, metadata);
}

void CheckpointFolder::prune(const CheckpointPolicy& policy, std::int64_t written) const {
  const std::vector<Entry> all = entries();
  const std::vector<bool> stays = detail::kept_by(policy, all, written);
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::error_code ignored;
    if (!stays[i]) fs::remove(all[i].path, ignored);
  }
}

std::vector<bool> detail::kept_by(const CheckpointPolicy& policy,
                                  const std::vector<CheckpointFolder::Entry>& all,
                                  std::int64_t written) {
  std::vector<bool> stays(all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    stays[i] = all[i].step == written ||
               i + static_cast<std::size_t>(std::max(1, policy.newest)) >= all.size();
  if (policy.best) {
    std::size_t best = all.size();
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].metric && !std::isnan(*all[i].metric) &&
          (best == all.size() || *all[i].metric < *all[best].metric))
        best = i;
    if (best < all.size()) stays[best] = true;
  }
  if (policy.span.count() > 0) {
    const std::int64_t span = std::chrono::seconds(policy.span).count();
    std::set<std::int64_t> spans;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (spans.insert(all[i].time / span).second) stays[i] = true;
  }
  return stays;
}

}  // namespace troupe
