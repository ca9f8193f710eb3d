// troupe checkpoint: lists, shows, verifies and exports the checkpoints of a training.
#include <troupe/apps/verbs/verbs.hpp>

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/apps/verbs/terminal.hpp>
#include <troupe/cluster/training/checkpoint_folder.hpp>
#include <troupe/ops/format/json_text.hpp>

namespace troupe::verbs {
namespace {

std::string time_text(std::int64_t seconds) {
  if (seconds <= 0) return "-";
  const std::time_t at = seconds;
  std::tm utc{};
  gmtime_r(&at, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%SZ", &utc);
  return text;
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

// The entry of the step asked for, or the newest.
CheckpointFolder::Entry entry_of(const CheckpointFolder& folder, const CheckpointFlags& flags) {
  const std::vector<CheckpointFolder::Entry> all = folder.entries();
  if (all.empty())
    throw std::runtime_error(printable(
        fmt::format("'{}' has no checkpoint: no file is named step-N.safetensors", flags.folder)));
  if (flags.step < 0) return all.back();
  for (const CheckpointFolder::Entry& e : all)
    if (e.step == flags.step) return e;
  std::vector<std::string> steps;
  for (const CheckpointFolder::Entry& e : all) steps.push_back(std::to_string(e.step));
  throw std::runtime_error(
      printable(fmt::format("'{}' has no checkpoint of step {}; there are {}", flags.folder,
                            flags.step, fmt::join(steps, ", "))));
}

int list(const CheckpointFolder& folder, const CheckpointFlags& flags) {
  nlohmann::json rows = nlohmann::json::array();
  if (!flags.json) fmt::print("{:>12}  {:>10}  {:20}  {}\n", "step", "size", "written", "metric");
  for (const CheckpointFolder::Entry& e : folder.entries()) {
    if (flags.json) {
      rows.push_back({{"step", e.step}, {"path", e.path}, {"bytes", e.bytes}, {"time", e.time}});
      if (e.metric) rows.back()["metric"] = *e.metric;
      continue;
    }
    fmt::print("{:>12}  {:>10}  {:20}  {}\n", e.step, bytes_text(e.bytes), time_text(e.time),
               e.metric ? fmt::format("{:g}", *e.metric) : "-");
  }
  if (flags.json) fmt::print("{}\n", json_text(rows));
  return 0;
}

int show(const CheckpointFolder& folder, const CheckpointFlags& flags) {
  const TensorFileHead head = read_safetensors_head(entry_of(folder, flags).path);
  if (flags.json) {
    nlohmann::json out{{"metadata", head.metadata}, {"variables", nlohmann::json::array()}};
    for (const auto& t : head.tensors)
      out["variables"].push_back(
          {{"name", t.name}, {"dtype", name_of(t.dtype)}, {"shape", t.shape.text()}});
    fmt::print("{}\n", json_text(out));
    return 0;
  }
  for (const auto& [name, value] : head.metadata)
    fmt::print("{} = {}\n", printable(name), printable(value));
  std::vector<TensorFileHead::Entry> sorted = head.tensors;
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  for (const auto& t : sorted)
    fmt::print("{}{}  {}\n", name_of(t.dtype), t.shape.text(), printable(t.name));
  return 0;
}

// All checkpoints, or the one that was named.
int verify(const CheckpointFolder& folder, const CheckpointFlags& flags) {
  std::vector<std::int64_t> steps = folder.steps();
  if (flags.step >= 0 || steps.empty()) steps = {entry_of(folder, flags).step};
  int status = 0;
  for (const std::int64_t step : steps) try {
      fmt::print("step {}: {} variables, whole\n", step, folder.read(step).tensors.size());
    } catch (const Error& error) {
      fmt::print("step {}: {}\n", step, printable(error.what()));
      status = 1;
    }
  return status;
}

int export_to(const CheckpointFolder& folder, const CheckpointFlags& flags) {
  if (flags.to.empty())
    throw Misuse("'export' needs a file to write: troupe checkpoint export DIR --to FILE");
  const CheckpointFolder::Entry e = entry_of(folder, flags);
  TensorFile file = folder.read(e.step);
  NamedTensors chosen;
  for (auto& [name, value] : file.tensors)
    if (flags.only.empty() ||
        std::any_of(flags.only.begin(), flags.only.end(), [&n = name](const std::string& only) {
          return n == only || n.starts_with(only + "/");
        }))
      chosen.emplace_back(name, value);
  if (chosen.empty())
    throw std::runtime_error(printable(
        fmt::format("the checkpoint of step {} has no variable named {}; 'troupe checkpoint show "
                    "{}' lists them",
                    e.step, fmt::join(flags.only, ", "), flags.folder)));
  save_safetensors(flags.to, chosen, file.metadata);
  fmt::print("{} variables of step {} in {}\n", chosen.size(), e.step, printable(flags.to));
  return 0;
}

}  // namespace

int checkpoint(const CheckpointFlags& flags) {
  try {
    const CheckpointFolder folder(flags.folder, false);
    if (flags.action == "list") return list(folder, flags);
    if (flags.action == "show") return show(folder, flags);
    if (flags.action == "verify") return verify(folder, flags);
    return export_to(folder, flags);
  } catch (const Error& error) {
    if (error.code() == Code::not_found) throw Misuse(printable(error.what()));
    throw std::runtime_error(printable(error.what()));
  }
}

}  // namespace troupe::verbs
