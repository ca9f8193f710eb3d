// The host as a device: streams run their work before the call returns.
#include <troupe/devices/device/device.hpp>

#include <algorithm>
#include <chrono>
#include <mutex>

#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/device/registry.hpp>
#include <troupe/devices/threads/worker_pool.hpp>

namespace troupe::detail {
namespace {

class PassedEvent final : public Event {
 public:
  bool is_done() const override { return true; }
  void then(std::function<void(const Status&)> done) override { done(Status()); }
};

class CpuStream final : public Stream {
 public:
  explicit CpuStream(Device& device) : device_(device) {}
  Device& device() override { return device_; }
  std::shared_ptr<Event> record() override {
    static const auto passed = std::make_shared<PassedEvent>();
    return passed;
  }
  /// An event of another device may lie ahead: the caller's order is the stream's, so it has to be
  /// waited for.
  void wait(const std::shared_ptr<Event>& event) override {
    if (!event->is_done())
      throw Error(Code::internal,
                  "a synchronous stream cannot wait for an event ahead; use Event::then");
  }
  void synchronize() override {}

 private:
  Device& device_;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuOptions& options)
      : name_(options.name), pool_(options.pool), primitives_(options.pool) {
    if (pool_) idle_before_ns_ = idle_ns(pool_->counters());
  }
  const std::string& name() const override { return name_; }
  const std::string& kind() const override { return kind_; }
  bool is_synchronous() const override { return true; }
  Allocator& allocator() override { return host_allocator(); }
  const Primitives& primitives() const override { return primitives_; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CpuStream>(*this); }
  void copy_from_host(Stream& stream, const Tensor& host, View on_device) override {
    primitives_.copy(stream, host, on_device);
  }
  void copy_to_host(Stream& stream, ConstView on_device, View host) override {
    primitives_.copy(stream, on_device, host);
  }
  // The workers are its queue, which all CPU devices of a pool share: their jobs, and the time, on
  // average, in which one neither sleeps nor searches. Kernels return with their work done, so that
  // none is under way.
  DeviceCounters counters() override {
    DeviceCounters now = Device::counters();
    if (!pool_) return now;
    const PoolCounters pool = pool_->counters();
    QueueActivity& workers = now.queues.emplace_back();
    workers.name = "workers";
    workers.enqueued = workers.launches = pool.jobs;
    const auto size = static_cast<std::uint64_t>(std::max(1, pool_->size())),
               all = size * static_cast<std::uint64_t>((Clock::now() - made_) /
                                                       std::chrono::nanoseconds(1)),
               idle = idle_ns(pool) - idle_before_ns_;
    // The counts are of several moments: what was returned does not fall.
    const std::lock_guard lock(mutex_);
    workers.busy_ns = busy_ns_ = std::max(busy_ns_, all > idle ? (all - idle) / size : 0);
    return now;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static std::uint64_t idle_ns(const PoolCounters& pool) { return pool.sleep_ns + pool.search_ns; }

  std::string name_;
  std::string kind_ = "cpu";
  WorkerPool* const pool_;
  const Clock::time_point made_ = Clock::now();
  std::uint64_t idle_before_ns_ = 0;
  std::mutex mutex_;           // guards busy_ns_
  std::uint64_t busy_ns_ = 0;  // as it was last returned
  cpu::CpuPrimitives primitives_;
};

const RegisterDeviceKind kCpuKind({
    .name = "cpu",
    .devices = "cpu:0 to cpu:99, which share its cores",
    .has = [](std::int32_t index) { return index < 100; },
    .make =
        [](const std::string& name, std::int32_t, const DeviceSetup& setup) {
          return make_cpu_device({.pool = setup.pool, .name = name});
        },
    .is_host = true,
});

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace troupe::detail
