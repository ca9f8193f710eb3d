// The flight recorder: the last events of a partition, always on.
//
//   recorder.add({Event::Kind::turn, began, ticks() - began, ...});
//   for (const RecordedEvent& e : recorder.since(0)) ...            // on the system's clock, oldest first
//
// What is recorded always: turns, tokens of cut edges, kernels of 20 µs and more. While it traces, firings too: as many a turn as
// take a sixteenth of its time, so that a loop of scalars is thinned out and a model's kernels are all there.
//
// Threads: the partition's turn writes and reads; nothing here is shared. Times are the processor's ticks, which cost a third
// of a clock read; they become nanoseconds when somebody asks.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include <troupe/actors/snapshot.hpp>

namespace troupe {

inline std::int64_t steady_ns() { return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

inline std::uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<std::uint64_t>(steady_ns());
#endif
}

class FlightRecorder {
 public:
  struct Event {
    RecordedEvent::Kind kind = RecordedEvent::Kind::turn;
    bool is_ns = false;  // begin and length are nanoseconds of the steady clock, not ticks
    std::int32_t node = -1;
    std::uint64_t begin = 0, length = 0;
    std::uint64_t run = 0;
    std::int64_t tag = 0;
    std::uint64_t flow = 0;
  };

  void add(const Event& e) {
    if (ring_.size() < size_) {
      if (ring_.capacity() < size_) ring_.reserve(size_);  // all at once: then no firing allocates
      ring_.push_back(e);
    } else {
      ring_[count_ % size_] = e;
    }
    ++count_;
  }
  /// What began at or after `since_ns` of the Unix epoch.
  std::vector<RecordedEvent> since(std::int64_t since_ns) const {
    const std::int64_t steady = steady_ns();
    const std::uint64_t now = ticks();
    const auto system = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    const double ns_a_tick = now > made_ticks_ ? static_cast<double>(steady - made_ns_) / static_cast<double>(now - made_ticks_) : 1.0;
    std::vector<RecordedEvent> all;
    for (std::uint64_t i = count_ - ring_.size(); i < count_; ++i) {
      const Event& e = ring_[i % size_];
      const std::int64_t ago = e.is_ns ? steady - static_cast<std::int64_t>(e.begin) : static_cast<std::int64_t>(static_cast<double>(now - e.begin) * ns_a_tick);
      if (system - ago < since_ns) continue;
      all.push_back({e.kind, e.node, system - ago, e.is_ns ? static_cast<std::int64_t>(e.length) : static_cast<std::int64_t>(static_cast<double>(e.length) * ns_a_tick), e.run, e.tag, e.flow});
    }
    return all;
  }
  /// Events that were written over, or never drawn.
  std::uint64_t dropped() const { return count_ - ring_.size() + thinned_; }

  // ---- tracing

  bool traces() const { return traces_; }
  void trace(bool on) {
    if (on == traces_) return;
    traces_ = on;
    size_ = on ? kTraced : kAlways;
    ring_.clear();
    ring_.reserve(size_);
    count_ = thinned_ = 0;
    left_ = allowed_ = kAtFirst;
  }
  /// May one more firing of this turn be drawn? Once it may not, none after it may.
  bool draws() { return left_ > 0 ? --left_, true : false; }
  /// A turn of so many firings has ended.
  void turn_took(std::uint64_t length, std::uint64_t fired) {
    const std::uint64_t drawn = allowed_ - left_;
    thinned_ += fired > drawn ? fired - drawn : 0;
    left_ = allowed_ = 2 + length / (16 * kCost);
  }

 private:
  static constexpr std::size_t kAlways = 512, kTraced = 1 << 15;
  static constexpr std::uint64_t kCost = 300;  // ticks that drawing one takes, with the caches that it takes from others
  static constexpr std::uint64_t kAtFirst = 64;

  std::vector<Event> ring_;
  std::size_t size_ = kAlways;
  std::uint64_t count_ = 0, thinned_ = 0;
  std::uint64_t left_ = kAtFirst, allowed_ = kAtFirst;  // firings of this turn that may still be drawn, and that could be
  bool traces_ = false;
  const std::int64_t made_ns_ = steady_ns();
  const std::uint64_t made_ticks_ = ticks();
};

}  // namespace troupe
