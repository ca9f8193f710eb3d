#include <troupe/devices/cuda/runtime/queue.hpp>

#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include <troupe/devices/base/spin.hpp>
#include <troupe/devices/cuda/runtime/call.hpp>
#include <troupe/devices/cuda/runtime/memory.hpp>

namespace troupe::cuda {

// ---- the device's failure

Status DeviceState::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void DeviceState::fail(Status status) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return;
  failure_ = Status(status.code(), fmt::format("{}: {}", name_, status.message()));
  has_failed_.store(true, std::memory_order_release);
}

// ---- events

PointEvent::~PointEvent() { queue_->give_back(event_); }

// Does not poll: the caller may hold a lock that a callback wants.
bool PointEvent::is_done() const { return done_.load(std::memory_order_acquire); }

void PointEvent::then(std::function<void(const Status&)> done) {
  {
    const std::lock_guard lock(mutex_);
    if (!done_.load(std::memory_order_relaxed)) {
      callbacks_.push_back(std::move(done));
      return;
    }
  }
  done(status_);
}

void PointEvent::pass(const Status& status) {
  std::vector<std::function<void(const Status&)>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    status_ = status;
    done_.store(true, std::memory_order_release);
    callbacks.swap(callbacks_);
  }
  for (auto& callback : callbacks) callback(status_);
}

// ---- the queue

std::shared_ptr<Queue> Queue::make(std::shared_ptr<DeviceState> device, Priority priority) {
  std::shared_ptr<Queue> queue(new Queue(std::move(device)));
  queue->start(priority);
  return queue;
}

void Queue::start(Priority priority) {
  const OnDevice on(device());
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for stream priorities");
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                     priority == Priority::high ? greatest : least),
        "making a stream");
  void* word = nullptr;
  check(cudaHostAlloc(&word, sizeof *word_, cudaHostAllocPortable), "allocating pinned memory");
  word_ = static_cast<std::uint32_t*>(word);
  *word_ = 0;
  write_value_ = find_write_value();
  void* records = nullptr;
  check(cudaMallocAsync(&records, kRecords * sizeof(IndexRecord), stream_),
        "allocating GPU memory");
  records_ = static_cast<IndexRecord*>(records);
  check(cudaMemsetAsync(records, 0xFF, kRecords * sizeof(IndexRecord), stream_),
        "clearing GPU memory");
  for (std::size_t i = kRecords; i-- > 0;) free_slots_.push_back(i);
  watcher_ = std::thread([this] { watch(); });
}

void Queue::close() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  while (poll()) {}
}

Queue::~Queue() {
  try {
    const OnDevice on(device());
    cudaFreeAsync(records_, stream_);
    cudaStreamSynchronize(stream_);
    stretches_.reset();
    for (cudaEvent_t event : free_events_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
    cudaFreeHost(word_);
  } catch (...) {  // a failed device
  }
}

void Queue::check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();
  if (device_->has_failed()) device_->failure().throw_if_error();
  Status status = status_of(error, doing);
  if (!is_sticky(error)) status.throw_if_error();
  device_->fail(std::move(status));
  device_->failure().throw_if_error();
}

void Queue::flush_held() {
  const OnDevice on(device());
  std::vector<HeldFailure> failures;
  {
    const auto lock = stretches_->lock();
    failures = stretches_->flush();
  }
  report(failures);
}

void Queue::report(const std::vector<HeldFailure>& failures) {
  for (const HeldFailure& f : failures) {
    Status status = device_->has_failed() ? device_->failure()
                                          : status_of(f.error, "a launch of a repeated stretch");
    if (is_sticky(f.error)) device_->fail(status);
    if (f.origin.fault) {
      f.origin.fault->report(std::move(status), f.origin.node);
      continue;
    }
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = std::move(status);
  }
}

namespace {

struct Fill {
  void* to;
  std::uint64_t bytes;
  std::int64_t value;  // 64 bits, so that there is no gap

  static cudaError_t issue(const unsigned char* bytes, cudaStream_t stream) {
    Fill fill;
    std::memcpy(&fill, bytes, sizeof fill);
    return cudaMemsetAsync(fill.to, static_cast<int>(fill.value), fill.bytes, stream);
  }
};

}  // namespace

void Queue::set(void* to, int value, std::size_t bytes) {
  const Fill fill{to, bytes, value};
  if (stretches_ && stretches_->are_held()) {
    check(stretches_->take(
              {&Fill::issue, reinterpret_cast<const unsigned char*>(&fill), sizeof fill}),
          "filling memory");
    return;
  }
  check(cudaMemsetAsync(to, value, bytes, stream()), "filling memory");
}

cudaEvent_t Queue::take_event() {
  if (!free_events_.empty()) {
    cudaEvent_t event = free_events_.back();
    free_events_.pop_back();
    return event;
  }
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
        "making an event");
  return event;
}

void Queue::give_back(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  free_events_.push_back(event);
}

std::shared_ptr<PointEvent> Queue::add_point(bool takes_status) {
  const OnDevice on(device());
  std::shared_ptr<PointEvent> event;
  {
    // No call is taken between the start of what is held and the point: its index records would
    // belong to the point, and its kernel lie behind it.
    std::unique_lock<std::mutex> held;
    if (stretches_) {
      held = stretches_->lock();
      report(stretches_->flush());
    }
    const std::lock_guard lock(mutex_);
    event = std::make_shared<PointEvent>(shared_from_this(), take_event());
    Point point{++last_,
                event,
                takes_status,
                meter_.add_event(),
                std::exchange(failure_, Status()),
                std::move(kept_),
                std::move(landings_),
                std::move(checks_),
                {}};
    kept_.clear(), landings_.clear(), checks_.clear();
    kept_bytes_ = 0;
    cudaError_t error = cudaSuccess;
    if (!point.checks.empty()) {
      const auto bytes = static_cast<std::int64_t>(kRecords * sizeof(IndexRecord));
      point.records =
          Tensor::on_buffer(Buffer::allocate(pinned_memory(), static_cast<std::size_t>(bytes)), 0,
                            nullptr, DType::u8, Shape{bytes});
      error = cudaMemcpyAsync(point.records.raw_mutable(), records_,
                              static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, stream_);
    }
    if (error == cudaSuccess) error = cudaEventRecord(event->handle(), stream_);
    if (error == cudaSuccess && write_value_) error = write_value_(stream_, word_, point.number);
    if (error != cudaSuccess) {
      cudaGetLastError();
      // The stream will not reach the point: it passes with the failure, behind those before it.
      device_->fail(status_of(error, "recording an event"));
    }
    points_.push_back(std::move(point));
  }
  changed_.notify_one();
  return event;
}

void Queue::wait(const PointEvent& event) {
  if (event.is_done()) return;
  const OnDevice on(device());
  check(cudaStreamWaitEvent(stream(), event.handle(), 0), "waiting for another stream");
}

bool Queue::is_reached(const Point& point) const {
  if (device_->has_failed()) return true;
  if (!write_value_) return cudaEventQuery(point.event->handle()) != cudaErrorNotReady;
  const std::uint32_t word = std::atomic_ref(*word_).load(std::memory_order_acquire);
  return static_cast<std::int32_t>(word - point.number) >= 0;
}

bool Queue::poll() {
  bool any = false;
  for (;;) {
    if (is_passing_.exchange(true, std::memory_order_acquire)) return any;
    Point point{};
    {
      const std::lock_guard lock(mutex_);
      if (points_.empty() || !is_reached(points_.front())) {
        is_passing_.store(false, std::memory_order_release);
        return any;
      }
      point = std::move(points_.front());
      points_.pop_front();
    }
    pass(point);
    any = true;
    is_passing_.store(false, std::memory_order_release);
  }
}

// The words of the index records that its kernels wrote, or the device's failure.
Status Queue::look_at(const Point& point) {
  if (device_->has_failed()) return device_->failure();
  Status first;
  for (const Checked& checked : point.checks) {
    const IndexRecord record = static_cast<const IndexRecord*>(point.records.raw())[checked.slot];
    if (record.is_set()) {
      const Status status(Code::out_of_range,
                          fmt::format("index {} at position {} is outside [{}, {})", record.index(),
                                      record.position(), checked.first, checked.bound));
      if (checked.origin.fault) checked.origin.fault->report(status, checked.origin.node);
      else if (first.ok()) first = status;
    }
  }
  const std::lock_guard lock(mutex_);
  for (const Checked& checked : point.checks) {
    const IndexRecord record = static_cast<const IndexRecord*>(point.records.raw())[checked.slot];
    if (record.is_set())
      cudaMemsetAsync(&records_[checked.slot], 0xFF, sizeof(IndexRecord), stream_);
  }
  // The last first, so that the like of this work takes the same ones.
  for (auto it = point.checks.rbegin(); it != point.checks.rend(); ++it)
    free_slots_.push_back(it->slot);
  return first;
}

void Queue::pass(Point& point) {
  meter_.pass(point.enqueued);
  meter_.pass_event();
  if (status_.ok()) status_ = std::move(point.failure);
  try {
    const OnDevice on(device());
    const Status status = look_at(point);
    if (status_.ok()) status_ = status;
  } catch (...) {
    if (status_.ok()) status_ = Status::from_current_exception();
  }
  if (!device_->has_failed())
    for (const Landing& landing : point.landings)
      std::memcpy(landing.to, landing.staged.raw(), landing.bytes);
  point.landings.clear();
  point.kept.clear();
  point.event->pass(point.takes_status ? std::exchange(status_, Status()) : Status());
}

void Queue::watch() {
  using Clock = std::chrono::steady_clock;
  constexpr auto kSpin = std::chrono::microseconds(50);
  for (;;) {
    std::shared_ptr<PointEvent> event;
    std::uint32_t number = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_stopping_ || !points_.empty(); });
      if (points_.empty()) return;
      event = points_.front().event;
      number = points_.front().number;
    }
    const auto is_oldest = [&] {
      const std::lock_guard lock(mutex_);
      return !points_.empty() && points_.front().number == number;
    };
    for (const auto end = Clock::now() + kSpin; !poll() && is_oldest() && Clock::now() < end;)
      pause_core();
    while (is_oldest()) {
      cudaError_t error = cudaSuccess;
      try {
        const OnDevice on(device());
        error = cudaEventSynchronize(event->handle());
      } catch (const Error& e) { device_->fail(Status(e)); }
      if (error != cudaSuccess) {
        cudaGetLastError();
        device_->fail(status_of(error, "work on the GPU"));
      }
      if (!poll()) std::this_thread::yield();  // another thread passes it
    }
  }
}

void Queue::synchronize() {
  const auto event = record();
  std::mutex mutex;  // guards is_done
  std::condition_variable changed;
  bool is_done = false;
  Status status;
  event->then([&](const Status& s) {
    const std::lock_guard lock(mutex);
    status = s;
    is_done = true;
    changed.notify_all();
  });
  for (int i = 0; i < 1000 && !event->is_done(); ++i) pause_core();
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return is_done; });
  lock.unlock();
  status.throw_if_error();
}

// ---- objects that points own

void Queue::keep(Tensor tensor) {
  constexpr std::size_t kMost = std::size_t{64} << 20;
  bool is_much = false;
  {
    const std::lock_guard lock(mutex_);
    kept_bytes_ += tensor.bytes();
    kept_.push_back(std::move(tensor));
    is_much = kept_bytes_ > kMost || kept_.size() > kRecords;
  }
  if (is_much) mark();
}

void Queue::land(Tensor staged, void* to, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  landings_.push_back({std::move(staged), to, bytes});
}

Queue::Check Queue::begin_check() {
  for (bool is_marked = false;; is_marked = true) {
    {
      const std::lock_guard lock(mutex_);
      if (!free_slots_.empty()) {
        Check check;
        check.slot_ = free_slots_.back();
        check.record_ = &records_[check.slot_];
        free_slots_.pop_back();
        return check;
      }
    }
    // All index records are in use, which takes a thousand checks without an event between them.
    if (device_->has_failed()) device_->failure().throw_if_error();
    if (!is_marked) mark();
    if (!poll()) std::this_thread::yield();
  }
}

void Queue::end_check(const Check& check, std::int64_t bound, Origin origin, std::int64_t first) {
  const std::lock_guard lock(mutex_);
  checks_.push_back({check.slot_, first, bound, std::move(origin)});
}

}  // namespace troupe::cuda
