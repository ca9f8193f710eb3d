#include <troupe/actors/runtime/deadlines.hpp>

#include <troupe/devices/base/signals.hpp>

namespace troupe {

void Deadlines::add(Clock::time_point due, std::uint64_t id) {
  std::lock_guard lock(mutex_);
  if (is_stopped_) return;
  pending_.emplace(due, id);
  if (!thread_.joinable()) thread_ = std::thread([this] { live(); });
  else if (due < wakes_at_) changed_.notify_one();
}

void Deadlines::remove(Clock::time_point due, std::uint64_t id) {
  std::lock_guard lock(mutex_);
  pending_.erase({due, id});
}

void Deadlines::stop() {
  {
    std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();  // is_stopped_ keeps it from being started again
}

void Deadlines::live() {
  SignalsBlocked::for_good();
  std::unique_lock lock(mutex_);
  while (!is_stopped_) {
    if (pending_.empty()) {
      wakes_at_ = Clock::time_point::max();
      changed_.wait(lock);
      continue;
    }
    const auto [due, id] = *pending_.begin();
    if (Clock::now() < due) {
      wakes_at_ = due;
      changed_.wait_until(lock, due);
      continue;
    }
    pending_.erase(pending_.begin());
    lock.unlock();
    expire_(id);
    lock.lock();
  }
}

}  // namespace troupe
