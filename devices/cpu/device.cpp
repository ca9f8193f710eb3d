// The host as a device: streams run their work before the call returns.
#include <troupe/devices/device/device.hpp>

#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/device/registry.hpp>

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
  explicit CpuDevice(const CpuOptions& options) : name_(options.name), primitives_(options.pool) {}
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

 private:
  std::string name_;
  std::string kind_ = "cpu";
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
