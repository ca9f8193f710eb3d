// The checkpoints of a training: a folder with a file `step-N.safetensors` for each.
//
//   CheckpointFolder folder("checkpoints");            // made if it is not there
//   folder.write(40, values, 0.31);                    // whole or not at all
//   for (std::int64_t step : folder.steps()) ...       // oldest first
//   TensorFile file = folder.read(40);                 // its checksum is verified
//   folder.prune({.newest = 3, .best = true, .span = std::chrono::hours(6)});
//
// A file has every variable as a tensor, and in its metadata `troupe.step`, `troupe.time` (seconds
// since 1970) and, if one was given, `troupe.metric`. Any tool for safetensors reads it.
//
// Threads: one at a time. Others may add and remove files: a file that is gone is not there.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <troupe/ops/format/safetensors.hpp>

namespace troupe {

/// Rules for the checkpoints to keep: a checkpoint stays if any rule names it.
struct CheckpointPolicy {
  int newest = 3;              // so many of the newest
  bool best = false;           // the one with the least metric
  std::chrono::hours span{0};  // the first of each such span since 1970; 0: none for that
};

class CheckpointFolder {
 public:
  struct Entry {
    std::int64_t step = 0;
    std::string path;
    std::uint64_t bytes = 0;
    std::int64_t time = 0;         // seconds since 1970; 0: not known
    std::optional<double> metric;  // lower is better
  };

  /// Throws not_found for a folder that is not there, unless it `makes` it; failed_precondition if
  /// it cannot be made.
  explicit CheckpointFolder(std::filesystem::path folder, bool makes = true);

  std::string path(std::int64_t step) const;
  /// Steps with a file, oldest first.
  std::vector<std::int64_t> steps() const;
  /// Reads the head of each file, oldest first. A file whose head cannot be read has its step,
  /// path and size alone.
  std::vector<Entry> entries() const;
  /// Throws as load_safetensors, and data_loss for a file that has no checksum, or is of another
  /// step than its name says.
  TensorFile read(std::int64_t step) const;
  /// Throws as save_safetensors.
  void write(std::int64_t step, const NamedTensors& values,
             std::optional<double> metric = {}) const;
  /// Removes what no rule keeps, but not the checkpoint of `written`, nor a file that cannot be
  /// removed.
  void prune(const CheckpointPolicy& policy, std::int64_t written = -1) const;

 private:
  const std::filesystem::path folder_;
};

namespace detail {

/// Returns for each entry, oldest first, whether a rule keeps it. `written`: a step that stays.
std::vector<bool> kept_by(const CheckpointPolicy& policy,
                          const std::vector<CheckpointFolder::Entry>& all, std::int64_t written);

}  // namespace detail

}  // namespace troupe
