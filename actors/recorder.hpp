// The flight recorder: the last events of a partition, always on.
//
//   recorder.add({Event::Kind::turn, began, ticks() - began, ...});
//   for (const RecordedEvent& e : recorder.since(0)) ...            // on the system's clock, oldest first
//
// What is recorded always: turns, tokens of cut edges, kernels of 20 µs and more, waits, copies, failures. While it traces, firings too:
// as many a turn as take a sixteenth of its time, so that a loop of scalars is thinned out and a model's kernels are all there. Then the
// ring grows, for as long as all recorders of the process together take no more than kGrowth events; after that the latest are kept.
//
// Threads: the partition's turn writes and reads; nothing here is shared but how much the process's recorders have grown. Times are the
// processor's ticks, which cost a third of a clock read; they become nanoseconds when somebody asks, by a TickClock.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>
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

/// What the clocks and the ticks showed at one time, and how long a tick is.
class TickClock {
 public:
  /// Now. A thread may be put aside between two looks, so the closest of a few counts.
  static TickClock now() {
    static const Look first = look();  // of this process
    TickClock c;
    c.at_ = look();
    if (c.at_.ticks > first.ticks) c.ns_a_tick_ = static_cast<double>(c.at_.steady_ns - first.steady_ns) / static_cast<double>(c.at_.ticks - first.ticks);
    return c;
  }
  std::int64_t nanoseconds(std::uint64_t length) const { return static_cast<std::int64_t>(static_cast<double>(length) * ns_a_tick_); }
  /// Of the Unix epoch, at a moment of the ticks and of the steady clock.
  std::int64_t at_ticks(std::uint64_t t) const { return at_.system_ns - (t > at_.ticks ? -nanoseconds(t - at_.ticks) : nanoseconds(at_.ticks - t)); }
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
      l.system_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
      l.width = ticks() - began;
      l.ticks = began + l.width / 2;
      if (l.width < best.width) best = l;
    }
    return best;
  }

  Look at_;
  double ns_a_tick_ = 1.0;
};

class FlightRecorder {
 public:
  static constexpr std::size_t kAlways = 512;  // events that are kept, unless it traces

  struct Event {
    RecordedEvent::Kind kind = RecordedEvent::Kind::turn;
    bool is_ns = false;  // begin and length are nanoseconds of the steady clock, not ticks
    std::int32_t node = -1;
    std::uint64_t begin = 0, length = 0;
    std::uint64_t run = 0;
    std::int64_t tag = 0;
    std::uint64_t flow = 0;
  };

  FlightRecorder() { TickClock::now(); }
  ~FlightRecorder() { give_back(); }
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  void add(const Event& e) {
    if (ring_.size() == size_ && traces_ && count_ == size_) grow();
    if (ring_.size() < size_) {
      if (ring_.capacity() < size_) ring_.reserve(size_);  // all at once: then no firing allocates
      ring_.push_back(e);
    } else {
      ring_[count_ % size_] = e;
    }
    ++count_;
  }
  /// What began at or after `since_ns` of the Unix epoch, the oldest first.
  std::vector<RecordedEvent> since(std::int64_t since_ns, const TickClock& clock = TickClock::now()) const {
    std::vector<RecordedEvent> all;
    all.reserve(ring_.size());
    for (std::uint64_t i = count_ - ring_.size(); i < count_; ++i) {
      const Event& e = ring_[i % size_];
      const std::int64_t begin = e.is_ns ? clock.at_steady(static_cast<std::int64_t>(e.begin)) : clock.at_ticks(e.begin);
      if (begin < since_ns) continue;
      all.push_back({e.kind, e.node, begin, e.is_ns ? static_cast<std::int64_t>(e.length) : clock.nanoseconds(e.length), e.run, e.tag, e.flow});
    }
    return all;
  }
  /// Events that were written over.
  std::uint64_t dropped() const { return count_ - ring_.size(); }
  /// Firings that were not drawn.
  std::uint64_t thinned() const { return thinned_; }

  // ---- tracing

  bool traces() const { return traces_; }
  void trace(bool on) {
    if (on == traces_) return;
    traces_ = on;
    size_ = on ? kTraced : kAlways;
    give_back();
    ring_ = {};
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
  static constexpr std::size_t kTraced = 1 << 15;
  static constexpr std::size_t kGrowth = 1 << 19;  // events, of all recorders: 28 MB
  static constexpr std::uint64_t kCost = 300;  // ticks that drawing one takes, with the caches that it takes from others
  static constexpr std::uint64_t kAtFirst = 64;

  /// Twice as many events, if the others have left so many: it has not been written over yet.
  void grow() {
    std::size_t grown = growth().load(std::memory_order_relaxed);
    do
      if (grown + size_ > kGrowth) return;
    while (!growth().compare_exchange_weak(grown, grown + size_, std::memory_order_relaxed));
    grown_ += size_;
    size_ *= 2;
  }
  void give_back() { growth().fetch_sub(std::exchange(grown_, 0), std::memory_order_relaxed); }
  /// By how many events the recorders of the process have grown; publishes nothing.
  static std::atomic<std::size_t>& growth() {
    static std::atomic<std::size_t> all{0};
    return all;
  }

  std::vector<Event> ring_;
  std::size_t grown_ = 0;
  std::size_t size_ = kAlways;
  std::uint64_t count_ = 0, thinned_ = 0;
  std::uint64_t left_ = kAtFirst, allowed_ = kAtFirst;  // firings of this turn that may still be drawn, and that could be
  bool traces_ = false;
};

}  // namespace troupe
