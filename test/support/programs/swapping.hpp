// A simulated device that swaps out nearly all that lists hold, at once, though it would not have
// to.
#pragma once

#include <atomic>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/swap.hpp>

namespace troupe::test {

inline void swap_everything(EngineOptions& o) {
  o.default_device = "sim:0";
  o.sim.memory_limit = 1 << 30;
  o.swap = {.threshold = 1, .fill_level = 0, .keep_level = 0, .prefetch = 2, .all_lists = true};
}

/// Copies to the host and back by all engines that were counted: what was to swap is seen to have.
struct Swapped {
  std::atomic<std::uint64_t> out{0}, in{0};
  void count(Engine& engine) {
    const SwapCounters c = engine.device("sim:0").swapper()->counters();
    out += c.out;
    in += c.in;
  }
};
inline Swapped& swapped() {
  static Swapped all;
  return all;
}

}  // namespace troupe::test
