// A GPU as a device: `gpu:0` is the first that CUDA shows. The library of this folder is a plug-in
// (devices/device/plugin.hpp).
#include <troupe/devices/device/device.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include <troupe/devices/cuda/examine.hpp>
#include <troupe/devices/cuda/primitives.hpp>
#include <troupe/devices/cuda/runtime/call.hpp>
#include <troupe/devices/cuda/runtime/memory.hpp>
#include <troupe/devices/cuda/stream.hpp>
#include <troupe/devices/device/choices.hpp>
#include <troupe/devices/device/plugin.hpp>
#include <troupe/devices/device/registry.hpp>
#include <troupe/devices/device/swap.hpp>
#include <troupe/devices/threads/worker_pool.hpp>

namespace troupe::cuda {
namespace {

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index), "asking for a GPU's properties");
  return properties;
}

// Nine tenths of the free memory, unless the user sets a limit.
std::uint64_t limit_of(std::uint64_t wanted) {
  if (wanted) return wanted;
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free GPU memory");
  return free / 10 * 9;
}

bool is_asked_for(const char* variable, const char* as) {
  const char* const value = std::getenv(variable);
  return value && std::strcmp(value, as) == 0;
}

class CudaDevice final : public Device, public ChoosingDevice {
 public:
  CudaDevice(const std::string& name, int index, const DeviceSetup& setup)
      : name_(name), pool_(setup.pool), state_(std::make_shared<DeviceState>(index, name)) {
    const OnDevice on(index);
    const cudaDeviceProp properties = properties_of(index);
    compute_ = Queue::make(state_, Queue::Priority::normal);
    if (setup.gpu.graphs && !is_asked_for("TROUPE_GPU_GRAPHS", "0")) compute_->make_stretches();
    allocator_ = make_device_memory(*compute_, limit_of(setup.gpu.memory_limit),
                                    setup.gpu.poisons || is_asked_for("TROUPE_GPU_POISON", "1"));
    primitives_ = std::make_unique<CudaPrimitives>(
        *this, index, properties.multiProcessorCount,
        ProgramCacheOptions{.folder = setup.gpu.cache_folder,
                            .architecture = properties.major * 10 + properties.minor},
        setup.gpu.tf32, properties.name);
    if (setup.swap.is_on) swapper_ = std::make_unique<Swapper>(*this, setup.swap);
  }
  ~CudaDevice() override {
    swapper_.reset();  // whose handles are of this device's queues
    for (const auto& copies : copies_) end(*copies);
    end(*compute_);
    primitives_.reset();
    allocator_.reset();  // whose blocks are returned in the compute queue's order
    const std::lock_guard lock(mutex_);
    copies_.clear();
  }

  const std::string& name() const override { return name_; }
  const std::string& kind() const override {
    static const std::string kind = "gpu";
    return kind;
  }
  bool is_synchronous() const override { return false; }
  Allocator& allocator() override { return *allocator_; }
  const Primitives& primitives() const override { return *primitives_; }
  Swapper* swapper() override { return swapper_.get(); }
  Allocator& host_memory() override { return pinned_memory(); }

  // The first is a handle on the compute queue.
  std::unique_ptr<Stream> make_stream() override {
    if (is_first_.exchange(false, std::memory_order_relaxed)) return compute_stream();
    return copy_stream();
  }
  std::unique_ptr<Stream> compute_stream() override {
    return std::make_unique<CudaStream>(*this, compute_);
  }
  std::unique_ptr<Stream> copy_stream() override {
    const std::lock_guard lock(mutex_);
    copies_.push_back(Queue::make(state_, Queue::Priority::high));
    if (copies_.size() <= polled_.size())
      polled_[copies_.size() - 1].store(copies_.back().get(), std::memory_order_release);
    return std::make_unique<CudaStream>(*this, copies_.back());
  }

  void copy_from_host(Stream& s, const Tensor& host, View on_device) override {
    CudaStream& stream = CudaStream::of(s);
    const ConstView from(host);
    if (stream.skips() || from.bytes() == 0) return;
    const OnDevice on(state_->index());
    Tensor source = host;
    if (from.is_inline() || !is_pinned(from.data(), from.bytes())) {
      // The runtime would copy pageable memory while the caller waits.
      source = host_bytes(from.bytes());
      std::memcpy(source.raw_mutable(), from.data(), from.bytes());
    }
    TimedPiece piece(stream, "copy_from_host", true);
    stream.queue().check(cudaMemcpyAsync(on_device.data, source.raw(), from.bytes(),
                                         cudaMemcpyHostToDevice, stream.queue().stream()),
                         "a copy to the GPU");
    piece.enqueued();
    stream.queue().meter().add(QueueMeter::Work::to_device, from.bytes());
    stream.queue().keep(std::move(source));
  }
  void copy_to_host(Stream& s, ConstView on_device, View host) override {
    CudaStream& stream = CudaStream::of(s);
    if (stream.skips() || on_device.bytes() == 0) return;
    if (on_device.is_inline()) {
      std::memcpy(host.data, on_device.data(), on_device.bytes());
      return;
    }
    const OnDevice on(state_->index());
    const bool is_direct = is_pinned(host.data, on_device.bytes());
    Tensor staged = is_direct ? Tensor() : host_bytes(on_device.bytes());
    TimedPiece piece(stream, "copy_to_host", true);
    stream.queue().check(
        cudaMemcpyAsync(is_direct ? host.data : staged.raw_mutable(), on_device.data(),
                        on_device.bytes(), cudaMemcpyDeviceToHost, stream.queue().stream()),
        "a copy from the GPU");
    piece.enqueued();
    stream.queue().meter().add(QueueMeter::Work::from_device, on_device.bytes());
    if (!is_direct) stream.queue().land(std::move(staged), host.data, on_device.bytes());
  }
  bool copy_from_peer(Stream& s, ConstView on_peer, Device& peer, View on_device) override {
    auto* const other = dynamic_cast<CudaDevice*>(&peer);
    if (!other) return false;
    CudaStream& stream = CudaStream::of(s);
    if (stream.skips() || on_peer.bytes() == 0) return true;
    stream.queue().wait(*other->compute_->mark());
    const OnDevice on(state_->index());
    TimedPiece piece(stream, "copy_from_peer", true);
    stream.queue().check(
        cudaMemcpyPeerAsync(on_device.data, state_->index(), on_peer.data(), other->state_->index(),
                            on_peer.bytes(), stream.queue().stream()),
        "a copy from another GPU");
    piece.enqueued();
    stream.queue().meter().add(QueueMeter::Work::from_peer, on_peer.bytes());
    // The source is reused in the other's order, behind the copy.
    other->compute_->wait(*stream.queue().mark());
    return true;
  }
  bool poll() override {
    bool any = compute_->poll();
    for (const auto& entry : polled_)
      if (Queue* const copies = entry.load(std::memory_order_acquire)) any = copies->poll() || any;
    return any;
  }
  std::string choice(Primitive p) const override {
    if (p != Primitive::convolve) return {};
    const OnDevice on(state_->index());
    Dnn& dnn = primitives_->dnn();
    const std::string version = dnn.version(), problem = dnn.problem();
    if (version.empty())
      return fmt::format("as products with columns, for cuDNN cannot be used: {}", problem);
    const DnnCounters forms = dnn.counters();
    return fmt::format("by cuDNN {}; {} plans made, {} read from files, {} forms without an engine",
                       version, forms.planned, forms.from_files, forms.without_engine);
  }
  DeviceCounters counters() override {
    DeviceCounters now = Device::counters();
    now.queues.push_back(compute_->meter().read());
    now.queues.back().name = "compute";
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      now.queues.push_back(copies_[i]->meter().read());
      now.queues.back().name = fmt::format("copy {}", i);
    }
    return now;
  }
  void run_on_host(std::function<void()> work) override {
    if (!pool_) return work();
    auto* const job = new std::function<void()>(std::move(work));
    pool_->submit_elsewhere({[](void* f, Worker&) {
                               const std::unique_ptr<std::function<void()>> own(
                                   static_cast<std::function<void()>*>(f));
                               (*own)();
                             },
                             job});
  }

 private:
  static Tensor host_bytes(std::size_t bytes) {
    return Tensor::on_buffer(Buffer::allocate(pinned_memory(), bytes), 0, nullptr, DType::u8,
                             Shape{static_cast<std::int64_t>(bytes)});
  }
  static void end(Queue& queue) {
    try {
      queue.synchronize();
    } catch (...) {  // a failed device, or an error that no event reports
    }
    queue.close();
  }

  const std::string name_;
  WorkerPool* const pool_;
  const std::shared_ptr<DeviceState> state_;
  std::shared_ptr<Queue> compute_;
  std::atomic<bool> is_first_{true};  // publishes nothing
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<CudaPrimitives> primitives_;
  mutable std::mutex mutex_;  // guards copies_
  std::vector<std::shared_ptr<Queue>> copies_;
  // the first of them; an entry is written once, and publishes the queue
  std::array<std::atomic<Queue*>, 8> polled_{};
  std::unique_ptr<Swapper> swapper_;
};

int count_devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  if (error == cudaErrorInsufficientDriver)
    throw Error(Code::failed_precondition,
                "finds an NVIDIA driver that is older than CUDA 13; install driver 580 or newer");
  if (error == cudaSuccess || error == cudaErrorNoDevice)
    throw Error(Code::not_found,
                "finds a driver and no GPU; look at `nvidia-smi` and CUDA_VISIBLE_DEVICES");
  status_of(error, "looks for GPUs, which").throw_if_error();
  return 0;
}

void register_gpu() {
  const int count = count_devices();
  register_device_kind(
      {.name = "gpu",
       .devices = count == 1 ? "gpu:0" : fmt::format("gpu:0 to gpu:{}", count - 1),
       .has =
           [](std::int32_t index) {
             int there = 0;
             return cudaGetDeviceCount(&there) == cudaSuccess && index < there;
           },
       .make = [](const std::string& name, std::int32_t index, const DeviceSetup& setup)
           -> std::unique_ptr<Device> { return std::make_unique<CudaDevice>(name, index, setup); },
       .memory =
           [](const DeviceSetup& setup) {
             if (setup.gpu.memory_limit) return setup.gpu.memory_limit;
             return static_cast<std::uint64_t>(properties_of(0).totalGlobalMem / 10 * 9);
           }});
}

}  // namespace
}  // namespace troupe::cuda

extern "C" [[gnu::visibility("default")]] const troupe::DevicePlugin* troupe_device_plugin() {
  static const troupe::DevicePlugin plugin{.abi = troupe::kDevicePluginAbi,
                                           .name = "gpu",
                                           .load = troupe::cuda::register_gpu,
                                           .examine = troupe::cuda::examine};
  return &plugin;
}
