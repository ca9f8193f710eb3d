// The activity of a device, for snapshots, metrics and traces: counts of its memory and queues, and
// the work that a stream times. A stream that times work has TimedStream as a second base.
//
//   for (const QueueActivity& q : device.counters().queues) ...   // depth, launches, copies, busy
//
//   auto* const timed = dynamic_cast<TimedStream*>(&stream);
//   timed->time(true);
//   timed->label({.node = 7, .run = 3});                          // of the work that follows
//   ... enqueue ...
//   for (const TimedWork& w : timed->take_timed()) ...            // work that has ended
//
// Threads: `Device::counters` any; a timed stream is used by one thread at a time, as every stream.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// Counts of one queue of a device since it was made.
struct QueueActivity {
  struct Copies {
    std::uint64_t count = 0, bytes = 0;
  };
  std::string name;            // `compute`, `copy 0`
  std::uint64_t enqueued = 0;  // pieces of work: launches and copies
  std::uint64_t depth = 0;     // pieces of work that were enqueued and are not known to have ended
  std::uint64_t events = 0;    // points that were recorded and are not known to have passed
  std::uint64_t launches = 0;  // calls of kernels and libraries
  std::uint64_t graphs = 0;    // launches of graphs, each of which replays several launches
  std::uint64_t replayed = 0;  // launches that a graph made
  Copies to_device = {}, from_device = {}, from_peer = {};
  // time in which the queue had work, from the enqueuing call to when its end was seen; of a pool
  // of threads: on average
  std::uint64_t busy_ns = 0;
};

/// Counts of a device: its memory, in bytes, and its queues.
struct DeviceCounters {
  std::uint64_t in_use = 0;    // handed out now
  std::uint64_t peak = 0;      // the most that was ever handed out at once
  std::uint64_t reserved = 0;  // taken from the device or the system: in use, or kept for reuse
  std::uint64_t free = 0;      // can still be handed out, as far as is known
  std::uint64_t limit = 0;     // 0: none
  std::uint64_t swapped = 0;   // in the host's memory now, moved there from the device
  std::vector<QueueActivity> queues;  // the compute queue is the first
};

namespace detail {

/// The firing that enqueued work.
struct WorkLabel {
  std::int32_t node = -1;  // the program's; -1: none in particular
  std::uint64_t run = 0;
  std::int64_t tag = 0;  // the iteration
};

/// A piece of work as the device has timed it.
struct TimedWork {
  const char* name = "";  // `matmul`, `copy_to_host`, `graph`; a literal
  std::int64_t launches = 1;
  bool is_copy = false;  // between the device and other memory
  WorkLabel label;
  std::int64_t begin_ns = 0, length_ns = 0;  // on the steady clock, within `clock_error_ns`
};

class TimedStream {
 public:
  virtual ~TimedStream();
  /// Begins or ends the timing of work. Beginning it takes some microseconds.
  virtual void time(bool on) = 0;
  virtual void label(const WorkLabel& label) = 0;
  /// Returns the work that has ended and was not returned before, in order. Never blocks. Work
  /// that is still timed after `time(false)` is returned too.
  virtual std::vector<TimedWork> take_timed() = 0;
  /// How far the device's clock, as the stream reads it, may be from the steady clock.
  virtual std::int64_t clock_error_ns() const = 0;
};

}  // namespace detail

}  // namespace troupe
