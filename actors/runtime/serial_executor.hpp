// SerialExecutor: runs jobs in order on a thread of its own, so that they may wait and read disks.
//
//   SerialExecutor jobs(64);
//   if (!jobs.post([] { ... })) refuse("too many wait");
//   jobs.post([] { ... }, SerialExecutor::Rank::first);   // before those that are not first
//   jobs.end();                                           // after the job that runs
//
// Threads: any posts; a job may post. A job must not throw, nor end the executor.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace troupe {

class SerialExecutor {
 public:
  using Job = std::function<void()>;
  /// Jobs of the rank `first` run before those of the rank `usual`, each in the order of `post`.
  enum class Rank { first, usual };

  /// `most_waiting`: jobs that wait, at most.
  explicit SerialExecutor(std::size_t most_waiting);
  ~SerialExecutor() { end(); }
  SerialExecutor(const SerialExecutor&) = delete;
  SerialExecutor& operator=(const SerialExecutor&) = delete;

  /// Returns false, and drops the job, if too many wait, or after `end`.
  bool post(Job job, Rank rank = Rank::usual);
  /// Waits for the job that runs, and drops those that wait.
  void end();

 private:
  void work();
  std::deque<Job>& waiting(Rank rank) { return rank == Rank::first ? first_ : usual_; }

  const std::size_t most_waiting_;
  std::mutex mutex_;  // guards all below; changed_ signals their changes
  std::condition_variable changed_;
  std::deque<Job> first_, usual_;
  bool is_ending_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace troupe
