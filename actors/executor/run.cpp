#include <troupe/actors/executor/run.hpp>

#include <chrono>
#include <thread>

namespace troupe::detail {

bool Run::settle(Status status) {
  std::uint32_t open = kOpen;
  if (!outcome_.compare_exchange_strong(open, kSettling, std::memory_order_acq_rel)) return false;
  status_ = std::move(status);
  if (!status_.ok()) {
    info_.cancelled.store(true, std::memory_order_seq_cst);
    try {
      if (on_failed) on_failed(*this);
    } catch (...) {  // without memory to notify the others the caller is answered all the same
    }
  }
  outcome_.store(kSettled, std::memory_order_release);
  outcome_.notify_all();
  return true;
}

bool Run::fail(Status status) { return settle(std::move(status)); }

void Run::leave() {
  if (left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (on_drained) on_drained(*this);
  settle(Status());
}

void Run::has_done(std::int32_t partition, const RunTotals& all) {
  Place& place = places_[static_cast<std::size_t>(partition)];
  place.done = all;
  place.is_done.store(true, std::memory_order_release);
}

std::optional<RunTotals> Run::done_by(std::size_t partition) const {
  const Place& place = places_[partition];
  if (!place.is_done.load(std::memory_order_acquire)) return std::nullopt;
  return place.done;
}

std::uint64_t Run::fired() const {
  std::uint64_t sum = 0;
  for (std::size_t p = 0; p < places_.size(); ++p)
    if (const std::optional<RunTotals> done = done_by(p)) sum += done->fired;
  return sum;
}

void Run::wait() const {
  // A parked thread takes 22 to 70 µs to come back, as long as a small run takes altogether: a
  // chain of 1,000 one-element ops lost up to twice its time to that while this spun for 40 µs
  // only.
  constexpr auto kSpin = std::chrono::microseconds(120);
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (is_settled()) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    std::this_thread::yield();  // the kernel may have woken the worker on this very core
  } while (std::chrono::steady_clock::now() < deadline);
  for (std::uint32_t seen = outcome_.load(std::memory_order_acquire); seen != kSettled;
       seen = outcome_.load(std::memory_order_acquire))
    outcome_.wait(seen, std::memory_order_acquire);
}

}  // namespace troupe::detail
