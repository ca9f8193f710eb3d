#include <troupe/actors/run.hpp>

#include <thread>

namespace troupe {

bool Run::settle(Status status) {
  std::uint32_t open = kOpen;
  if (!outcome_.compare_exchange_strong(open, kSettling, std::memory_order_acq_rel)) return false;
  status_ = std::move(status);
  if (!status_.ok()) info_.cancelled.store(true, std::memory_order_seq_cst);
  outcome_.store(kSettled, std::memory_order_release);
  outcome_.notify_all();
  return true;
}

bool Run::fail(Status status) { return settle(std::move(status)); }

void Run::leave() {
  if (partitions_left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  settle(Status());
  if (on_drained) on_drained(*this);
}

void Run::wait() const {
  // A parked thread takes 22 µs to come back; most small runs end before that.
  constexpr int kSpins = 4000;
  for (int i = 0; i < kSpins; ++i) {
    if (is_settled()) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  for (std::uint32_t seen = outcome_.load(std::memory_order_acquire); seen != kSettled;
       seen = outcome_.load(std::memory_order_acquire))
    outcome_.wait(seen, std::memory_order_acquire);
}

}  // namespace troupe
