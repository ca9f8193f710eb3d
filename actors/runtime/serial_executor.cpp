#include <troupe/actors/runtime/serial_executor.hpp>

#include <utility>

#include <troupe/devices/base/signals.hpp>

namespace troupe {

SerialExecutor::SerialExecutor(std::size_t most_waiting)
    : most_waiting_(most_waiting), thread_([this] { work(); }) {}

bool SerialExecutor::post(Job job, Rank rank) {
  std::lock_guard lock(mutex_);
  if (is_ending_ || first_.size() + usual_.size() >= most_waiting_) return false;
  waiting(rank).push_back(std::move(job));
  changed_.notify_one();
  return true;
}

void SerialExecutor::end() {
  {
    std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  // Dropped jobs are destroyed with nothing locked.
  std::deque<Job> first, usual;
  std::lock_guard lock(mutex_);
  first.swap(first_);
  usual.swap(usual_);
}

void SerialExecutor::work() {
  SignalsBlocked::for_good();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !first_.empty() || !usual_.empty() || is_ending_; });
    if (is_ending_) return;
    std::deque<Job>& jobs = waiting(first_.empty() ? Rank::usual : Rank::first);
    Job job = std::move(jobs.front());
    jobs.pop_front();
    lock.unlock();
    job();
    job = nullptr;  // destroys what it holds with nothing locked
    lock.lock();
  }
}

}  // namespace troupe
