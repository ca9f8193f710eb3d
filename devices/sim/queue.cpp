#include <troupe/devices/sim/queue.hpp>

#include <algorithm>
#include <chrono>

namespace troupe::sim {

void SimEvent::then(std::function<void(const Status&)> done) {
  {
    std::lock_guard lock(mutex_);
    if (!is_done()) {
      callbacks_.push_back(std::move(done));
      return;
    }
  }
  done(status_);
}

void SimEvent::pass(const Status& status, double now) {
  std::vector<std::function<void(const Status&)>> callbacks;
  {
    std::lock_guard lock(mutex_);
    status_ = status;
    time_ = now;
    done_.store(true, std::memory_order_release);
    callbacks.swap(callbacks_);
  }
  for (auto& callback : callbacks) callback(status_);
}

Queue::Queue(const SimOptions& options, std::uint64_t index, std::string name,
             std::shared_ptr<Trace> trace)
    : manual_(options.manual), max_delay_us_(options.max_delay_us),
      random_(options.seed * 1000003 + index), name_(std::move(name)), trace_(std::move(trace)) {
  if (!manual_) thread_ = std::thread([this] { live(); });
}

Queue::~Queue() {
  if (manual_) {
    while (step()) {}
    return;
  }
  {
    std::lock_guard lock(signal_->mutex);
    stopping_ = true;
  }
  signal_->changed.notify_all();
  thread_.join();
}

void Queue::push(Item item) {
  {
    std::lock_guard lock(signal_->mutex);
    items_.push_back(std::move(item));
  }
  signal_->changed.notify_all();
}

void Queue::enqueue(Cost cost, std::function<void()> work, std::shared_ptr<Fault> fault,
                    std::int64_t origin) {
  meter_.add(cost.kind, cost.bytes);
  push({.kind = Kind::work,
        .work = std::move(work),
        .fault = std::move(fault),
        .origin = origin,
        .cost = cost});
}
void Queue::enqueue_always(std::function<void()> work) {
  push({.kind = Kind::always, .work = std::move(work)});
}

std::shared_ptr<Event> Queue::record() {
  auto event = std::make_shared<SimEvent>();
  meter_.add_event();
  push({.kind = Kind::record, .event = event});
  return event;
}

std::shared_ptr<Event> Queue::mark() {
  auto event = std::make_shared<SimEvent>();
  meter_.add_event();
  push({.kind = Kind::mark, .event = event});
  return event;
}

void Queue::wait(std::shared_ptr<Event> event) {
  auto gate = std::make_shared<Item::Gate>();
  push({.kind = Kind::wait, .gate = gate});
  // Its own callback: the event is there. Another kind of device has no virtual time.
  event->then([signal = signal_, gate,
               here = dynamic_cast<const SimEvent*>(event.get())](const Status& status) {
    const double time = here ? here->time() : 0;
    // Under the mutex, or the runner could look, miss it, and sleep.
    std::lock_guard lock(signal->mutex);
    gate->status = status;
    gate->time = time;
    gate->open.store(true, std::memory_order_release);
    signal->changed.notify_all();
  });
}

double Queue::now() const {
  std::lock_guard lock(signal_->mutex);
  return clock_;
}

QueueActivity Queue::activity() const {
  QueueActivity now = meter_.read();
  now.name = name_;
  return now;
}

Status Queue::take_status() {
  std::lock_guard lock(signal_->mutex);
  return std::exchange(status_, Status());
}

void Queue::run(Item& item) {
  run_counted(item);
  if (item.kind == Kind::work) meter_.pass_one();
}

void Queue::run_counted(Item& item) {
  Status failed;
  switch (item.kind) {
    case Kind::record:
    case Kind::mark:
      meter_.pass_event();
      return item.event->pass(item.kind == Kind::record ? take_status() : Status(), now());
    case Kind::wait: {
      failed = item.gate->status;
      std::lock_guard lock(signal_->mutex);
      clock_ = std::max(clock_, item.gate->time);
      break;
    }
    case Kind::work: {
      if (item.fault && item.fault->is_set()) return;
      std::unique_lock lock(signal_->mutex);
      if (!status_.ok()) return;
      const double begin = clock_;
      clock_ += item.cost.nanoseconds;
      if (trace_) {
        std::lock_guard trace_lock(trace_->mutex);
        trace_->spans.push_back({name_, item.cost.what, begin, clock_});
      }
    }
      [[fallthrough]];
    case Kind::always: try { item.work();
      } catch (...) { failed = Status::from_current_exception(); }
      if (item.fault && !failed.ok()) {
        item.fault->report(std::move(failed), item.origin);
        return;
      }
  }
  std::lock_guard lock(signal_->mutex);
  if (status_.ok()) status_ = failed;
}

bool Queue::step() {
  Item item;
  {
    std::lock_guard lock(signal_->mutex);
    if (items_.empty() || !is_ready(items_.front())) return false;
    item = std::move(items_.front());
    items_.pop_front();
  }
  run(item);
  return true;
}

void Queue::delay() {
  if (max_delay_us_ == 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(random_() % (max_delay_us_ + 1)));
}

void Queue::live() {
  for (;;) {
    Item item;
    {
      std::unique_lock lock(signal_->mutex);
      signal_->changed.wait(lock, [&] {
        return (!items_.empty() && is_ready(items_.front())) || (stopping_ && items_.empty());
      });
      if (items_.empty()) return;
      item = std::move(items_.front());
      items_.pop_front();
      running_ = true;
    }
    if (item.kind == Kind::work) delay();
    run(item);
    item = Item();
    {
      std::lock_guard lock(signal_->mutex);
      running_ = false;
    }
    signal_->changed.notify_all();
  }
}

bool Queue::drain() {
  if (manual_) {
    while (step()) {}
    std::lock_guard lock(signal_->mutex);
    return items_.empty();
  }
  std::unique_lock lock(signal_->mutex);
  signal_->changed.wait(lock, [&] { return items_.empty() && !running_; });
  return true;
}

void Queue::synchronize() {
  if (!drain())
    throw Error(Code::failed_precondition,
                "the stream waits for an event that nothing has passed yet");
  take_status().throw_if_error();
}

}  // namespace troupe::sim
