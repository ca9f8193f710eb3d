// FlightRecorder: keeps the last events of a partition; always on.
//
//   recorder.add({Event::Kind::turn, began, ticks() - began, ...});
//   for (const RecordedEvent& e : recorder.since(0)) ...   // on the system's clock, oldest first
//
// Always recorded: turns, tokens of cut edges (the first of a run-length token), kernels of 20 µs
// and more, waits, copies, failures. Turns in quick succession are one event of up to a millisecond
// or two. While the recorder traces, each turn is one event, and firings are recorded too. Their
// recording may take a sixteenth of a turn's time: a loop of scalars is thinned out, and a model's
// kernels are complete. The ring then grows until all recorders of the process have grown by
// kGrowth events; after that the latest events are kept. While a client watches, which means that
// it requests events repeatedly, the ring has room for the events between two requests.
//
// Threads: the partition's turn writes and reads; only the growth of the process's recorders is
// shared. Times are the processor's ticks, which cost a third of a clock read. A TickClock converts
// them to nanoseconds on a request.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <troupe/actors/observe/snapshot.hpp>
#include <troupe/actors/runtime/clock.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

/// Names the user of a trace: a run, by its number; or a node, by its incarnation and the number
/// that it gave the trace.
struct Tracer {
  std::uint64_t number = 0;
  std::optional<std::uint64_t> node = {};  // none: a run of this engine. A peer may send any number
  friend bool operator==(const Tracer&, const Tracer&) = default;
};

class FlightRecorder {
 public:
  // events that are kept, unless the recorder traces or is watched
  static constexpr std::size_t kAlways = 512;
  // events that are kept while it is watched: 20,000 a second between two requests
  static constexpr std::size_t kWatched = 1 << 14;

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
      ring_[place_of(count_)] = e;
    }
    ++count_;
  }
  /// Records a turn. It is merged into the last turn if both are of one run and close together.
  void add_turn(std::uint64_t begin, std::uint64_t length, std::uint64_t run, std::int64_t fired) {
    if (watched_until_ != 0 && begin > watched_until_) keep_less();
    if (Event* last = traces_ || ring_.empty() ? nullptr : &ring_[place_of(count_ - 1)];
        last && last->kind == RecordedEvent::Kind::turn && last->run == run) {
      const std::uint64_t both = begin + length - last->begin;
      if (begin - (last->begin + last->length) <= kSoon && both <= kLongTurn) {
        last->length = both;
        last->tag += fired;
        return;
      }
    }
    add({RecordedEvent::Kind::turn, false, -1, begin, length, run, fired, 0});
  }
  /// Returns the events that ended at or after `since_ns` of the Unix epoch, in order of their end.
  std::vector<RecordedEvent> since(std::int64_t since_ns,
                                   const TickClock& clock = TickClock::now()) const {
    std::vector<RecordedEvent> all;
    all.reserve(ring_.size());
    for (std::uint64_t i = count_ - ring_.size(); i < count_; ++i) {
      const Event& e = ring_[place_of(i)];
      const std::int64_t begin = begin_of(e, clock),
                         length = e.is_ns ? static_cast<std::int64_t>(e.length)
                                          : clock.nanoseconds(e.length);
      if (begin + length < since_ns) continue;
      all.push_back({e.kind, e.node, begin, length, e.run, e.tag, e.flow});
    }
    return all;
  }
  /// Returns the time, in ns of the Unix epoch, since which no event is missing; 0: none was
  /// overwritten.
  std::int64_t whole_since(const TickClock& clock) const {
    return dropped() == 0 || ring_.empty()
               ? 0
               : begin_of(ring_[place_of(count_ - ring_.size())], clock);
  }
  /// Returns the events that were overwritten.
  std::uint64_t dropped() const { return count_ - ring_.size(); }
  /// Returns the firings that were not recorded.
  std::uint64_t thinned() const { return thinned_; }

  /// Enlarges the ring for a client that requests events repeatedly, until some seconds after the
  /// last request.
  void watch(const TickClock& clock) {
    constexpr std::int64_t kFor = 10'000'000'000;  // ns; requests may be late
    if (traces_) return;
    watched_until_ = ticks() + clock.ticks_of(kFor);
    if (size_ == kAlways && grow_by(kWatched - kAlways, kGrowth / 2)) resize(kWatched);
  }

  // ---- tracing

  bool traces() const { return traces_; }
  /// Adds or removes a tracer. The recorder traces while it has tracers. A node's trace ends at
  /// `until` at the latest, because the node may be gone; by the clock of `expire`.
  void trace(bool on, const Tracer& who = {}, std::uint64_t until = kForEver) {
    std::erase_if(tracers_, [&](const Tracing& t) { return t.who == who; });
    if (on) {
      const auto of_node = [](const Tracing& t) { return t.who.node.has_value(); };
      if (std::count_if(tracers_.begin(), tracers_.end(), of_node) >= kMostOfNodes)
        tracers_.erase(std::find_if(tracers_.begin(), tracers_.end(), of_node));
      tracers_.push_back({who, who.node ? until : kForEver});
    }
    begin_or_end();
  }
  void expire(std::uint64_t now) {
    std::erase_if(tracers_, [&](const Tracing& t) { return now > t.until; });
    begin_or_end();
  }
  /// Returns true if one more firing of this turn may be recorded. After false the rest of the turn
  /// returns false too.
  bool draws() { return left_ > 0 ? --left_, true : false; }
  /// Ends a turn and sets the budget of the next one.
  void turn_took(std::uint64_t length, std::uint64_t fired) {
    const std::uint64_t drawn = allowed_ - left_;
    thinned_ += fired > drawn ? fired - drawn : 0;
    left_ = allowed_ = 2 + length / (16 * kCost);
  }

 private:
  static constexpr std::uint64_t kForEver = ~std::uint64_t{0};
  static constexpr std::ptrdiff_t kMostOfNodes = 32;  // traces of nodes; one more ends the oldest
  static constexpr std::size_t kTraced = 1 << 15;
  static constexpr std::size_t kGrowth = 1 << 19;  // events of all recorders: 28 MB
  // ticks to record a firing, including the cost of evicted cache lines
  static constexpr std::uint64_t kCost = 300;
  static constexpr std::uint64_t kAtFirst = 64;
  // ticks: some 25 µs and 2 ms
  static constexpr std::uint64_t kSoon = 1 << 16, kLongTurn = 1 << 22;

  /// Doubles the ring if the growth limit allows it. No event has been overwritten yet.
  void grow() {
    if (grow_by(size_, kGrowth)) size_ *= 2;
  }
  /// Reserves growth by `events`. False if all recorders would then have grown by more than `most`.
  bool grow_by(std::size_t events, std::size_t most) {
    std::size_t grown = growth().load(std::memory_order_relaxed);
    do
      if (grown + events > most) return false;
    while (!growth().compare_exchange_weak(grown, grown + events, std::memory_order_relaxed));
    grown_ += events;
    return true;
  }
  void begin_or_end() {
    if (traces_ == !tracers_.empty()) return;
    traces_ = !traces_;
    size_ = traces_ ? kTraced : kAlways;
    give_back();
    ring_ = {};
    ring_.reserve(size_);
    count_ = first_ = thinned_ = watched_until_ = 0;
    left_ = allowed_ = kAtFirst;
  }
  void keep_less() {
    watched_until_ = 0;
    if (size_ == kAlways) return;
    resize(kAlways);
    give_back();
  }
  /// Keeps the latest events, as many as fit.
  void resize(std::size_t size) {
    std::vector<Event> kept;
    kept.reserve(size);
    for (std::uint64_t i = count_ - std::min(ring_.size(), size); i < count_; ++i)
      kept.push_back(ring_[place_of(i)]);
    ring_ = std::move(kept);
    size_ = size;
    first_ = count_ - ring_.size();
  }
  std::size_t place_of(std::uint64_t event) const { return (event - first_) & (size_ - 1); }
  static std::int64_t begin_of(const Event& e, const TickClock& clock) {
    return e.is_ns ? clock.at_steady(static_cast<std::int64_t>(e.begin)) : clock.at_ticks(e.begin);
  }
  void give_back() { growth().fetch_sub(std::exchange(grown_, 0), std::memory_order_relaxed); }
  /// Counts the events by which the recorders of the process have grown; publishes nothing.
  static std::atomic<std::size_t>& growth() {
    static std::atomic<std::size_t> all{0};
    return all;
  }

  std::vector<Event> ring_;
  std::size_t grown_ = 0;
  std::size_t size_ = kAlways;  // a power of two
  std::uint64_t count_ = 0, thinned_ = 0;
  // the number of the event that was at the ring's beginning before any was overwritten
  std::uint64_t first_ = 0;
  std::uint64_t watched_until_ = 0;  // ticks; 0: not watched
  // firings of this turn: those that may still be recorded, and the budget
  std::uint64_t left_ = kAtFirst, allowed_ = kAtFirst;
  struct Tracing {
    Tracer who;
    std::uint64_t until;
  };
  std::vector<Tracing> tracers_;
  bool traces_ = false;  // true if tracers_ is not empty
};

}  // namespace troupe
