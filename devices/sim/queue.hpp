// One stream's work: a queue, its status, and the thread (or the test) that runs it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <troupe/devices/device.hpp>

namespace troupe::sim {

class SimEvent final : public Event {
 public:
  bool is_done() const override { return done_.load(std::memory_order_acquire); }
  void then(std::function<void(const Status&)> done) override;
  void pass(const Status& status);

 private:
  std::mutex mutex_;                // guards callbacks_, and the moment of passing
  std::atomic<bool> done_{false};   // publishes status_
  Status status_;
  std::vector<std::function<void(const Status&)>> callbacks_;
};

class Queue {
 public:
  Queue(const SimOptions& options, std::uint64_t index);
  /// Runs what is queued, then ends the thread.
  ~Queue();

  /// Skipped while the status is an unreported error. With a fault, that takes the status's place.
  void enqueue(std::function<void()> work, std::shared_ptr<Fault> fault = nullptr, std::int64_t origin = 0);
  /// Runs whatever the status (freeing memory).
  void enqueue_always(std::function<void()> work);
  std::shared_ptr<Event> record();
  void wait(std::shared_ptr<Event> event);
  /// Runs, or waits for, what is queued. Manual: up to an event that has not passed; false then.
  bool drain();
  /// `drain`, then throws and clears the status.
  void synchronize();
  bool step();
  bool manual() const { return manual_; }

 private:
  enum class Kind : std::uint8_t { work, always, record, wait };
  struct Item {
    Kind kind;
    std::function<void()> work;
    std::shared_ptr<SimEvent> event;  // record
    struct Gate {
      std::atomic<bool> open{false};  // publishes status
      Status status;
    };
    std::shared_ptr<Gate> gate;       // wait
    std::shared_ptr<Fault> fault;     // work
    std::int64_t origin = 0;
  };

  void push(Item item);
  bool is_ready(const Item& item) const { return item.kind != Kind::wait || item.gate->open.load(std::memory_order_acquire); }
  void live();
  void delay();
  void run(Item& item);
  Status take_status();

  const bool manual_;
  const std::uint32_t max_delay_us_;
  std::mt19937_64 random_;  // of whoever runs the work

  struct Signal {
    std::mutex mutex;  // guards the members below
    std::condition_variable changed;
  };
  std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();  // shared with callbacks of events
  std::deque<Item> items_;
  bool running_ = false;  // an item was taken and is not done
  bool stopping_ = false;
  Status status_;
  std::thread thread_;
};

}  // namespace troupe::sim
