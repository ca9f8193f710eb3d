// Inspection: collects the partitions' answers to one request.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include <troupe/actors/observe/snapshot.hpp>

namespace troupe {

/// Threads: any. `on_complete` is called once, by the thread of the last answer, without the lock.
class Inspection {
 public:
  explicit Inspection(std::size_t partitions, std::function<void()> on_complete = {})
      : answers_(partitions), missing_(partitions), on_complete_(std::move(on_complete)) {}

  void answer(std::size_t partition, PartitionSnapshot snapshot) {
    std::function<void()> complete;
    {
      std::lock_guard lock(mutex_);
      if (answers_[partition].has_answered) return;
      answers_[partition] = std::move(snapshot);
      answers_[partition].has_answered = true;
      if (--missing_ > 0) return;
      complete = std::move(on_complete_);
      answered_.notify_all();
    }
    if (complete) complete();
  }
  bool is_complete() const {
    std::lock_guard lock(mutex_);
    return missing_ == 0;
  }
  void wait(std::chrono::nanoseconds patience) {
    std::unique_lock lock(mutex_);
    answered_.wait_for(lock, patience, [&] { return missing_ == 0; });
  }
  /// Returns the answers so far; an entry without one has `has_answered` false.
  std::vector<PartitionSnapshot> answers() const {
    std::lock_guard lock(mutex_);
    return answers_;
  }

 private:
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable answered_;
  std::vector<PartitionSnapshot> answers_;
  std::size_t missing_;
  std::function<void()> on_complete_;
};

}  // namespace troupe
