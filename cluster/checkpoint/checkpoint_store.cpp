#include <troupe/cluster/checkpoint/checkpoint_store.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/format/crc64.hpp>

namespace troupe {
namespace {

constexpr const char* kEpochFile = "epoch";
constexpr std::size_t kMostTrainings = 4096, kMostInName = 256;

void require_training_name(const std::string& training) {
  if (!is_training_name(training))
    throw Error(Code::invalid_argument,
                fmt::format("'{}' is no name of a training: use up to 64 letters, digits, '-', "
                            "'_' and '.', and no '.' first",
                            training));
}

// An epoch can be followed by another, and its file has one line.
void require_sense(const Fence& fence) {
  require_training_name(fence.training);
  if (fence.epoch == 0 || fence.epoch == UINT64_MAX)
    throw Error(Code::invalid_argument,
                fmt::format("training '{}': {} is no epoch of a driver; use a number from 1 to "
                            "2^64 - 2",
                            fence.training, fence.epoch));
  if (fence.driver.size() > kMostInName || fence.driver.find('\n') != std::string::npos)
    throw Error(Code::invalid_argument,
                fmt::format("training '{}': use a driver's name of one line of up to {} bytes",
                            fence.training, kMostInName));
}

void require_epoch(const Fence& fence, const CheckpointId& id) {
  if (id.epoch > fence.epoch)
    throw Error(Code::invalid_argument,
                fmt::format("'{}' is of a later epoch than {}, its driver's", manifest_name(id),
                            fence.epoch));
}

// An epoch and its driver on a line, and the line's checksum on the next.
std::string epoch_text(const Fence& fence) {
  const std::string line = fmt::format("{} {}\n", fence.epoch, fence.driver);
  return fmt::format("{}{:016x}\n", line, crc64(line.data(), line.size()));
}

// False for a text that is damaged.
bool read_epoch(const std::string& text, Fence& fence) {
  const std::size_t end = text.find('\n'), space = text.find(' ');
  if (end == std::string::npos || space == std::string::npos || space > end) return false;
  Fence read{fence.training, 0, text.substr(space + 1, end - space - 1)};
  for (std::size_t i = 0; i < space; ++i) {
    if (text[i] < '0' || text[i] > '9') return false;
    read.epoch = read.epoch * 10 + static_cast<std::uint64_t>(text[i] - '0');
  }
  if (epoch_text(read) != text) return false;
  fence = std::move(read);
  return true;
}

}  // namespace

CheckpointStore::CheckpointStore(Disk& disk, std::string folder, std::string node)
    : disk_(disk), folder_(std::move(folder)), node_(std::move(node)) {
  if (!has_folder()) return;
  disk_.make_folder(folder_);
  for (const std::string& training : disk_.names(folder_)) {
    if (!is_training_name(training)) continue;
    Fence fence{training, 0, {}};
    bool is_known = false;
    try {
      is_known = read_epoch(read_text(disk_, path(training, kEpochFile)), fence);
    } catch (const Error&) {  // a damaged or missing epoch follows from the files, as below
    }
    for (const std::string& file : disk_.names(path(training, {}))) {
      bool is_manifest = false;
      const auto id = checkpoint_of_name(file, is_manifest);
      if (!id || id->epoch == UINT64_MAX) continue;
      is_known = true;
      if (id->epoch > fence.epoch) fence = {training, id->epoch, {}};
    }
    if (is_known) fences_[training] = fence;
  }
}

std::string CheckpointStore::path(const std::string& training, const std::string& file) const {
  return file.empty() ? fmt::format("{}/{}", folder_, training)
                      : fmt::format("{}/{}/{}", folder_, training, file);
}

void CheckpointStore::require_folder() const {
  if (!has_folder())
    throw Error(Code::failed_precondition,
                fmt::format("node '{}' keeps no checkpoints; start it with a folder for them "
                            "(troupe node --state DIR, NodeOptions::state)",
                            node_));
}

std::map<std::string, Fence> CheckpointStore::fences() const {
  std::lock_guard lock(mutex_);
  return fences_;
}

// The lock is held.
void CheckpointStore::refuse_if_older(const Fence& fence) const {
  const auto last = fences_.find(fence.training);
  if (last == fences_.end() || fence.epoch > last->second.epoch) return;
  if (fence.epoch == last->second.epoch && fence.driver == last->second.driver) return;
  throw Error(
      Code::failed_precondition,
      fmt::format("training '{}': driver '{}' is of epoch {}, and node '{}' has accepted {} of "
                  "epoch {}; at most one driver acts at a time, so end this one",
                  fence.training, fence.driver, fence.epoch, node_,
                  last->second.driver.empty() ? std::string("another driver")
                                              : fmt::format("driver '{}'", last->second.driver),
                  last->second.epoch));
}

void CheckpointStore::claim(const Fence& fence) {
  require_sense(fence);
  std::lock_guard lock(mutex_);
  refuse_if_older(fence);
  const auto last = fences_.find(fence.training);
  if (last != fences_.end() && last->second.epoch == fence.epoch) return;
  if (last == fences_.end() && fences_.size() >= kMostTrainings)
    throw Error(Code::resource_exhausted,
                fmt::format("node '{}' knows {} trainings already; remove folders of those that "
                            "have ended, and start it again",
                            node_, fences_.size()));
  fences_[fence.training] = fence;  // first: a full disk does not keep an earlier driver acting
  if (!has_folder()) return;
  disk_.make_folder(path(fence.training, {}));
  write_text(disk_, path(fence.training, kEpochFile), epoch_text(fence));
}

void CheckpointStore::check(const Fence& fence) const {
  std::lock_guard lock(mutex_);
  refuse_if_older(fence);
}

void CheckpointStore::require_driver(const Fence& fence) const {
  require_training_name(fence.training);
  std::lock_guard lock(mutex_);
  refuse_if_older(fence);
  if (!fences_.contains(fence.training))
    throw Error(Code::failed_precondition,
                fmt::format("training '{}': node '{}' has accepted no driver; claim it first",
                            fence.training, node_));
}

ShardSums CheckpointStore::write(const Fence& fence, const std::string& file,
                                 const NamedTensors& values) {
  require_folder();
  require_driver(fence);
  bool is_manifest = true;
  const auto id = checkpoint_of_name(file, is_manifest);
  if (!id || is_manifest)
    throw Error(Code::invalid_argument, fmt::format("'{}' is no name of a shard", file));
  require_epoch(fence, *id);
  disk_.make_folder(path(fence.training, {}));
  return write_shard(disk_, path(fence.training, file), tensor_image(file, values, {}));
}

void CheckpointStore::commit(const Fence& fence, const CheckpointId& id,
                             const std::string& manifest) {
  require_folder();
  require_driver(fence);
  require_epoch(fence, id);
  disk_.make_folder(path(fence.training, {}));
  write_text(disk_, path(fence.training, manifest_name(id)), manifest);
}

std::size_t CheckpointStore::keep_only(const Fence& fence, const std::vector<CheckpointId>& stay) {
  require_folder();
  require_driver(fence);
  if (stay.empty()) return 0;
  const CheckpointId last = *std::max_element(stay.begin(), stay.end());
  // Manifests first: none is left whose shards are not.
  std::vector<std::string> gone;
  for (const std::string& file : disk_.names(path(fence.training, {}))) {
    bool is_manifest = false;
    const auto id = checkpoint_of_name(file, is_manifest);
    if (!id || *id > last || std::find(stay.begin(), stay.end(), *id) != stay.end()) continue;
    gone.insert(is_manifest ? gone.begin() : gone.end(), file);
  }
  for (const std::string& file : gone) disk_.remove(path(fence.training, file));
  return gone.size();
}

std::vector<CheckpointId> CheckpointStore::checkpoints(const std::string& training) const {
  std::vector<CheckpointId> all;
  if (!has_folder() || !is_training_name(training)) return all;
  for (const std::string& file : disk_.names(path(training, {}))) {
    bool is_manifest = false;
    const auto id = checkpoint_of_name(file, is_manifest);
    if (id && is_manifest) all.push_back(*id);
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::string CheckpointStore::manifest(const std::string& training, const CheckpointId& id) const {
  require_folder();
  require_training_name(training);
  return read_text(disk_, path(training, manifest_name(id)));
}

std::unique_ptr<ReadableFile> CheckpointStore::open(const std::string& training,
                                                    const std::string& file) const {
  require_folder();
  bool is_manifest = true;
  if (!is_training_name(training) || !checkpoint_of_name(file, is_manifest) || is_manifest)
    throw Error(Code::invalid_argument, fmt::format("'{}' is no name of a shard", file));
  return disk_.open(path(training, file));
}

}  // namespace troupe
