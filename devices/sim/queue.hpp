// One stream's work: a queue, its status, and the thread (or the test) that runs it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <troupe/devices/device/queue_meter.hpp>
#include <troupe/devices/sim/sim_device.hpp>

namespace troupe::sim {

// The spans of work that ran, by the virtual clock.
struct Trace {
  std::mutex mutex;  // guards spans
  std::vector<SimSpan> spans;
};

class SimEvent final : public Event {
 public:
  bool is_done() const override { return done_.load(std::memory_order_acquire); }
  void then(std::function<void(const Status&)> done) override;
  void pass(const Status& status, double now);
  /// The virtual time at which it passed; once it has.
  double time() const { return time_; }

 private:
  std::mutex mutex_;               // guards callbacks_, and the moment of passing
  std::atomic<bool> done_{false};  // publishes status_ and time_
  Status status_;
  double time_ = 0;
  std::vector<std::function<void(const Status&)>> callbacks_;
};

class Queue {
 public:
  Queue(const SimOptions& options, std::uint64_t index, std::string name,
        std::shared_ptr<Trace> trace);
  /// Runs the queued work, then ends the thread.
  ~Queue();

  /// The name of a piece of work, its duration on the virtual clock, and what it counts as.
  struct Cost {
    const char* what;
    double nanoseconds;
    QueueMeter::Work kind = QueueMeter::Work::launch;
    std::size_t bytes = 0;  // moved by a copy
  };
  /// The work is skipped while the status is an unreported error. A fault, if given, replaces the
  /// status.
  void enqueue(Cost cost, std::function<void()> work, std::shared_ptr<Fault> fault = nullptr,
               std::int64_t origin = 0);
  /// Runs whatever the status (freeing memory).
  void enqueue_always(std::function<void()> work);
  std::shared_ptr<Event> record();
  std::shared_ptr<Event> mark();
  void wait(std::shared_ptr<Event> event);
  /// Runs the queued work, or waits for it. Manual: up to an event that has not passed; false then.
  bool drain();
  /// `drain`, then throws and clears the status.
  void synchronize();
  bool step();
  bool manual() const { return manual_; }
  /// The virtual time that its work has got to.
  double now() const;
  /// On the real clock.
  QueueActivity activity() const;

 private:
  enum class Kind : std::uint8_t { work, always, record, mark, wait };
  struct Item {
    Kind kind;
    std::function<void()> work = {};
    std::shared_ptr<SimEvent> event = {};  // record, mark
    struct Gate {
      std::atomic<bool> open{false};  // publishes status and time
      Status status;
      double time = 0;
    };
    std::shared_ptr<Gate> gate = {};    // wait
    std::shared_ptr<Fault> fault = {};  // work
    std::int64_t origin = 0;
    Cost cost = {};  // work
  };

  void push(Item item);
  bool is_ready(const Item& item) const {
    return item.kind != Kind::wait || item.gate->open.load(std::memory_order_acquire);
  }
  void live();
  void delay();
  void run(Item& item);
  void run_counted(Item& item);
  Status take_status();

  const bool manual_;
  const std::uint32_t max_delay_us_;
  std::mt19937_64 random_;  // used by the thread that runs the work
  const std::string name_;
  const std::shared_ptr<Trace> trace_;  // null: not traced
  QueueMeter meter_;

  struct Signal {
    std::mutex mutex;  // guards the members below
    std::condition_variable changed;
  };
  std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();  // shared with callbacks of events
  std::deque<Item> items_;
  bool running_ = false;  // an item was taken and is not done
  bool stopping_ = false;
  Status status_;
  double clock_ = 0;
  std::thread thread_;
};

}  // namespace troupe::sim
