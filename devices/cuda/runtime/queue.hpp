// One CUDA stream as a queue of work: its points, and the host's work when they are
// passed.
//
// Protocol. Work is enqueued by any thread. `record` takes the next number under `mutex_`, enqueues
// the write of that number to a word of pinned memory (where the driver offers it, else a CUDA
// event alone), and appends a point. A point owns what was enqueued before it and ends with it:
// sources of copies, results that are still to be copied to pageable memory, and index records to
// look at. A thread that finds the word at or beyond the number of the oldest point passes it: it
// does these, sets the event's flag, and calls its callbacks. Two kinds of threads look: idle
// workers and the deterministic engine (`poll`), and the queue's watcher, which spins 50 µs and
// then sleeps in the driver on the point's event, so that a point is passed when no other thread
// looks.
//
// Invariants
// 1. Points pass in order, one at a time: `is_passing_` makes one thread the passer; `mutex_` is
//    not held while callbacks run, so that these may enqueue, record and wait.
// 2. An event's flag is set after everything its point owns is done: a thread that sees it sees the
// data.
// 3. A kernel that checks indices has its index record reserved before the launch and listed after
//    it, so that the point which reads the record lies behind the kernel.
// 4. After a sticky error every point passes with that error, and nothing is enqueued any more.
// 5. Launches that are held (stretches.hpp) are started before a point is recorded, and before the
//    stream is used by another call: `stream` and `add_point` start them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include <troupe/devices/cuda/kernels/kernels.hpp>
#include <troupe/devices/cuda/runtime/stretches.hpp>
#include <troupe/devices/cuda/runtime/write_value.hpp>
#include <troupe/devices/device/device.hpp>
#include <troupe/devices/device/queue_meter.hpp>

namespace troupe::cuda {

class Queue;

/// The state that the queues of one device share: its index, its name, and its failure, if it has
/// failed.
class DeviceState {
 public:
  DeviceState(int index, std::string name) : index_(index), name_(std::move(name)) {}
  int index() const { return index_; }
  const std::string& name() const { return name_; }
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  /// Ok, or the sticky error that it failed with.
  Status failure() const;
  void fail(Status status);

 private:
  const int index_;
  const std::string name_;
  std::atomic<bool> has_failed_{false};  // publishes failure_
  mutable std::mutex mutex_;             // guards failure_
  Status failure_;
};

class PointEvent final : public Event {
 public:
  PointEvent(std::shared_ptr<Queue> queue, cudaEvent_t event)
      : queue_(std::move(queue)), event_(event) {}
  ~PointEvent() override;
  bool is_done() const override;
  void then(std::function<void(const Status&)> done) override;

  cudaEvent_t handle() const { return event_; }
  /// Sets the flag and calls the callbacks.
  void pass(const Status& status);

 private:
  const std::shared_ptr<Queue> queue_;
  const cudaEvent_t event_;
  std::mutex mutex_;               // guards callbacks_, and the moment of passing
  std::atomic<bool> done_{false};  // publishes status_, and what the point has done
  Status status_;
  std::vector<std::function<void(const Status&)>> callbacks_;
};

class Queue : public std::enable_shared_from_this<Queue> {
 public:
  enum class Priority : std::uint8_t { normal, high };
  static std::shared_ptr<Queue> make(std::shared_ptr<DeviceState> device, Priority priority);
  ~Queue();
  /// Ends the watcher; the enqueued work has ended before. For the device's owner: a queue itself
  /// lives as long as its events.
  void close();

  int device() const { return device_->index(); }
  /// The stream, behind what is held: for a call that is made at once.
  cudaStream_t stream() {
    flush();
    return stream_;
  }
  /// The stream, for launches, which may be held, and for reading.
  cudaStream_t handle() const { return stream_; }
  /// Throws as cuda::check does, and remembers a sticky error as the device's.
  void check(cudaError_t error, const char* doing);

  std::shared_ptr<PointEvent> record() { return add_point(true); }
  /// Leaves the queue's status to the next event recorded.
  std::shared_ptr<PointEvent> mark() { return add_point(false); }
  void wait(const PointEvent& event);
  void synchronize();
  /// Passes points that are reached. Returns true if it passed one.
  bool poll();
  /// Counts the work of this queue, by those that enqueue it.
  /// Launches of threads that hold them become graphs when they repeat. Before the first one.
  void make_stretches() { stretches_ = std::make_unique<Stretches>(device(), stream_, meter_); }
  /// Null: launches are made at once.
  Stretches* stretches() const { return stretches_.get(); }
  /// Starts what is held. Errors go to the origins of the calls, or to the next point.
  void flush() {
    if (stretches_ && stretches_->has_any()) flush_held();
  }
  /// Fills bytes of device memory.
  void set(void* to, int value, std::size_t bytes);
  QueueMeter& meter() { return meter_; }
  const QueueMeter& meter() const { return meter_; }

  /// Keeps a tensor until the next point has passed.
  void keep(Tensor tensor);
  /// When the next point passes, copies `bytes` from `staged` to `to`, which must stay until then.
  void land(Tensor staged, void* to, std::size_t bytes);

  /// An index record for a kernel that checks indices against `bound`.
  class Check {
   public:
    IndexRecord* record() const { return record_; }

   private:
    friend class Queue;
    IndexRecord* record_ = nullptr;
    std::size_t slot_ = 0;
  };
  Check begin_check();
  /// After the launch. Indices are in [first, bound).
  void end_check(const Check& check, std::int64_t bound, Origin origin, std::int64_t first = 0);

 private:
  static constexpr std::size_t kRecords = 1024;
  struct Landing {
    Tensor staged;
    void* to;
    std::size_t bytes;
  };
  struct Checked {
    std::size_t slot;
    std::int64_t first, bound;
    Origin origin;
  };
  struct Point {
    std::uint32_t number;
    std::shared_ptr<PointEvent> event;
    bool takes_status;
    std::uint64_t enqueued;  // pieces of work, by the meter
    Status failure;          // why held work without a fault could not be started
    std::vector<Tensor> kept;
    std::vector<Landing> landings;
    std::vector<Checked> checks;
    Tensor records;  // pinned: the words of all index records, as they were at this point
  };

  explicit Queue(std::shared_ptr<DeviceState> device) : device_(std::move(device)) {}
  std::shared_ptr<PointEvent> add_point(bool takes_status);
  void start(Priority priority);
  void flush_held();
  void report(const std::vector<HeldFailure>& failures);
  void watch();
  bool is_reached(const Point& point) const;
  void pass(Point& point);
  Status look_at(const Point& point);
  cudaEvent_t take_event();
  void give_back(cudaEvent_t event);
  friend class PointEvent;

  const std::shared_ptr<DeviceState> device_;
  cudaStream_t stream_ = nullptr;
  std::uint32_t* word_ = nullptr;  // pinned; the number of the last point reached
  WriteValue write_value_;         // null: events are polled
  QueueMeter meter_;
  std::unique_ptr<Stretches> stretches_;

  std::mutex mutex_;  // guards the members below, and the order of numbers in the stream
  std::condition_variable changed_;
  std::deque<Point> points_;
  std::uint32_t last_ = 0;
  std::vector<Tensor> kept_;
  std::size_t kept_bytes_ = 0;
  std::vector<Landing> landings_;
  std::vector<Checked> checks_;
  std::vector<std::size_t> free_slots_;
  IndexRecord* records_ = nullptr;  // device memory
  std::vector<cudaEvent_t> free_events_;
  Status failure_;  // why held work could not be started, for the next point
  bool is_stopping_ = false;

  std::atomic<bool> is_passing_{false};  // a thread passes points
  Status status_;                        // work without a fault; the passer's
  std::thread watcher_;
};

}  // namespace troupe::cuda
