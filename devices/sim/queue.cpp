#include <troupe/devices/sim/queue.hpp>

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

void SimEvent::pass(const Status& status) {
  std::vector<std::function<void(const Status&)>> callbacks;
  {
    std::lock_guard lock(mutex_);
    status_ = status;
    done_.store(true, std::memory_order_release);
    callbacks.swap(callbacks_);
  }
  for (auto& callback : callbacks) callback(status_);
}

Queue::Queue(const SimOptions& options, std::uint64_t index)
    : manual_(options.manual), max_delay_us_(options.max_delay_us), random_(options.seed * 1000003 + index) {
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

void Queue::enqueue(std::function<void()> work, std::shared_ptr<Fault> fault, std::int64_t origin) {
  push({Kind::work, std::move(work), nullptr, nullptr, std::move(fault), origin});
}
void Queue::enqueue_always(std::function<void()> work) { push({Kind::always, std::move(work), nullptr, nullptr, nullptr, 0}); }

std::shared_ptr<Event> Queue::record() {
  auto event = std::make_shared<SimEvent>();
  push({Kind::record, nullptr, event, nullptr, nullptr, 0});
  return event;
}

void Queue::wait(std::shared_ptr<Event> event) {
  auto gate = std::make_shared<Item::Gate>();
  push({Kind::wait, nullptr, nullptr, gate, nullptr, 0});
  event->then([signal = signal_, gate](const Status& status) {
    // Under the mutex, or the runner could look, miss it, and sleep.
    std::lock_guard lock(signal->mutex);
    gate->status = status;
    gate->open.store(true, std::memory_order_release);
    signal->changed.notify_all();
  });
}

Status Queue::take_status() {
  std::lock_guard lock(signal_->mutex);
  return std::exchange(status_, Status());
}

void Queue::run(Item& item) {
  Status failed;
  switch (item.kind) {
    case Kind::record: return item.event->pass(take_status());
    case Kind::wait: failed = item.gate->status; break;
    case Kind::work: {
      if (item.fault && item.fault->is_set()) return;
      std::unique_lock lock(signal_->mutex);
      if (!status_.ok()) return;
    }
      [[fallthrough]];
    case Kind::always:
      try {
        item.work();
      } catch (...) {
        failed = Status::from_current_exception();
      }
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
      signal_->changed.wait(lock, [&] { return (!items_.empty() && is_ready(items_.front())) || (stopping_ && items_.empty()); });
      if (items_.empty()) return;
      item = std::move(items_.front());
      items_.pop_front();
      running_ = true;
    }
    delay();
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
  if (!drain()) throw Error(Code::failed_precondition, "the stream waits for an event that nothing has passed yet");
  take_status().throw_if_error();
}

}  // namespace troupe::sim
