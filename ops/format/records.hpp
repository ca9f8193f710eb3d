// The records of a training, step by step: in files for TensorBoard, in memory for the node's web
// page.
//
//   Records records("runs/1");                       // tensorboard --logdir runs
//   records.scalar("loss", step, loss);
//   records.histogram("weights/w1", step, w1);
//   records.text("sample", step, "In the beginning");
//   records.progress({.step = step, .steps = 2000, .loss = loss});  // the first line of the page
//
// Tags may have '/': the part before the last one groups curves. Steps of a tag usually rise, but
// need not. Any thread may call anything.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <troupe/devices/tensor/tensor.hpp>

namespace troupe {

struct TrainingRecord;
namespace detail {

class EventFile;

}  // namespace detail

/// How far a training is. A number that is not finite is shown as unknown.
struct TrainingProgress {
  std::int64_t step = 0;   // steps that are done
  std::int64_t steps = 0;  // steps in all; 0: unknown
  double loss = std::numeric_limits<double>::quiet_NaN();
  double validation = std::numeric_limits<double>::quiet_NaN();
  double rate = 0;   // units a second; 0: unknown
  std::string unit;  // "characters", if `rate` counts these
};

class Records {
 public:
  using Clock = std::function<std::int64_t()>;  // nanoseconds since the Unix epoch

  /// In memory only.
  Records();
  /// Also as a TensorBoard event file in that folder, which is made if need be. Throws
  /// failed_precondition.
  explicit Records(const std::string& folder, Clock clock = {});
  ~Records();
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

  // All throw invalid_argument for an empty tag or one of another kind, resource_exhausted
  // for more than kMostTags of them or a full disk, failed_precondition if the file cannot be
  // written.
  void scalar(std::string_view tag, std::int64_t step, double value);
  /// Records the element of a tensor of one element, on the host.
  void scalar(std::string_view tag, std::int64_t step, const Tensor& value);
  /// Counts the finite elements of a real tensor on the host, in kBuckets buckets of one width.
  void histogram(std::string_view tag, std::int64_t step, const Tensor& values);
  void text(std::string_view tag, std::int64_t step, std::string_view text);

  /// Replaces the earlier progress. It is kept in memory only: no event file has such a record.
  void progress(TrainingProgress progress);

  /// JSON: [{"name", "kind": "scalar"|"text"|"histogram", "points": [[step, wall_ns, value], ...]},
  /// ...], of steps above `since`. A histogram's value is {"min", "max", "limits", "counts"}; NaN
  /// and infinities are null. After `progress`, whatever `since` is, one more entry of name and
  /// kind "progress" has one point, of value {"steps", "loss", "validation", "rate", "unit",
  /// "began_step", "began_ns"}; the last two are of the first call. `most` limits the bytes, names
  /// aside. Each tag gets an equal share: a curve leaves out points in between, the other kinds
  /// leave out the first ones. 0: no limit.
  std::string json(std::int64_t since = -1, std::size_t most = 0) const;
  /// Returns the path of the event file; empty without one.
  std::string path() const;

  static constexpr std::size_t kMostTags = 1000;  // in memory
  // points of a tag in memory; at that number every other one is dropped, but the last
  static constexpr std::size_t kMostPoints = 1024;
  static constexpr std::size_t kMostTexts = 32;   // the last texts or histograms of a tag are kept
  static constexpr std::size_t kMostText = 4096;  // bytes of a text in memory
  static constexpr int kBuckets = 30;

 private:
  struct Series;
  void add(TrainingRecord record);
  Clock clock_;
  std::unique_ptr<detail::EventFile> file_;  // null: memory only
  mutable std::mutex mutex_;                 // guards series_, progress and writes to the file
  std::map<std::string, Series, std::less<>> series_;
  // The first and the last call of `progress`; guarded by mutex_.
  std::optional<std::pair<std::int64_t, std::int64_t>> began_;  // its step and wall_ns
  std::pair<std::int64_t, TrainingProgress> progress_;          // wall_ns, and the progress
};

}  // namespace troupe
