// Clocks of the process: nanoseconds of the steady clock and of the system clock, and processor
// ticks. A tick costs a third of a clock read; TickClock converts ticks to nanoseconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace troupe {

/// Returns nanoseconds since the Unix epoch.
inline std::int64_t epoch_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Returns `epoch_ns` as of the kernel's last tick, at most 10 ms ago: a fifth of a clock read.
inline std::int64_t coarse_epoch_ns() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME_COARSE, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

inline std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline std::uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<std::uint64_t>(steady_ns());
#endif
}

/// Readings of both clocks and the ticks at one time, and the length of a tick.
class TickClock {
 public:
  /// Reads the clocks. The thread may be suspended between two readings, so the closest of a few
  /// readings is used.
  static TickClock now() {
    static const Look first = look();  // the process's first reading
    TickClock c;
    c.at_ = look();
    if (c.at_.ticks > first.ticks)
      c.ns_a_tick_ = static_cast<double>(c.at_.steady_ns - first.steady_ns) /
                     static_cast<double>(c.at_.ticks - first.ticks);
    return c;
  }
  std::int64_t nanoseconds(std::uint64_t length) const {
    return static_cast<std::int64_t>(static_cast<double>(length) * ns_a_tick_);
  }
  std::uint64_t ticks_of(std::int64_t ns) const {
    return static_cast<std::uint64_t>(static_cast<double>(ns) / ns_a_tick_);
  }
  /// Both return ns since the Unix epoch, at a time in ticks or by the steady clock.
  std::int64_t at_ticks(std::uint64_t t) const {
    return at_.system_ns -
           (t > at_.ticks ? -nanoseconds(t - at_.ticks) : nanoseconds(at_.ticks - t));
  }
  std::int64_t at_steady(std::int64_t ns) const { return at_.system_ns - (at_.steady_ns - ns); }

 private:
  struct Look {
    std::uint64_t ticks = 0, width = ~std::uint64_t{0};
    std::int64_t steady_ns = 0, system_ns = 0;
  };
  static Look look() {
    Look best;
    for (int i = 0; i < 5; ++i) {
      Look l;
      const std::uint64_t began = ticks();
      l.steady_ns = troupe::steady_ns();
      l.system_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
      l.width = ticks() - began;
      l.ticks = began + l.width / 2;
      if (l.width < best.width) best = l;
    }
    return best;
  }

  Look at_;
  double ns_a_tick_ = 1.0;
};

}  // namespace troupe
