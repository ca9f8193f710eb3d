#include <troupe/devices/sim/sim_device.hpp>

#include <algorithm>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/device/algebra.hpp>
#include <troupe/devices/device/attention.hpp>
#include <troupe/devices/device/axis_indexing.hpp>
#include <troupe/devices/device/channel_sums.hpp>
#include <troupe/devices/device/ctc.hpp>
#include <troupe/devices/device/recurrent.hpp>
#include <troupe/devices/device/registry.hpp>
#include <troupe/devices/device/row_norm.hpp>
#include <troupe/devices/device/swap.hpp>
#include <troupe/devices/device/window.hpp>
#include <troupe/devices/sim/queue.hpp>

namespace troupe {
namespace sim {
namespace {

constexpr int kPattern = 0xFF;

// Blocks of host memory, poisoned when new, returned in the compute stream's order.
class SimMemory final : public MemorySource {
 public:
  SimMemory(Queue& compute, bool poisons) : compute_(compute), poisons_(poisons) {}
  void* get(std::size_t bytes) override {
    void* memory = host_->get(bytes);
    if (memory && poisons_) std::memset(memory, kPattern, bytes);
    return memory;
  }
  std::uint64_t available() const override { return host_->available(); }
  void put(void* memory, std::size_t bytes) noexcept override {
    compute_.enqueue_always([host = host_, memory, bytes] { host->put(memory, bytes); });
  }

 private:
  Queue& compute_;
  const bool poisons_;
  std::shared_ptr<MemorySource> host_ = make_host_memory();
};

// The caching allocator, with freed blocks poisoned in the compute stream's order, and a list of
// live ones.
class SimAllocator final : public Allocator {
 public:
  SimAllocator(Queue& compute, std::uint64_t limit, bool poisons)
      : compute_(compute), poisons_(poisons),
        cache_(make_caching_allocator(std::make_unique<SimMemory>(compute, poisons), limit)) {}

  void* allocate(std::size_t bytes) override {
    void* memory = cache_->allocate(bytes);
    std::lock_guard lock(mutex_);
    live_[static_cast<const std::byte*>(memory)] = bytes;
    return memory;
  }
  void deallocate(void* memory, std::size_t bytes) noexcept override {
    {
      std::lock_guard lock(mutex_);
      live_.erase(static_cast<const std::byte*>(memory));
    }
    if (poisons_)
      compute_.enqueue_always([memory, bytes] { std::memset(memory, kPattern, bytes); });
    cache_->deallocate(memory, bytes);
  }
  bool has_room(std::size_t bytes) const override { return cache_->has_room(bytes); }
  AllocatorCounters counters() const override { return cache_->counters(); }
  std::uint64_t available() const override { return cache_->available(); }

  bool owns(const void* data, std::size_t bytes) const {
    auto p = static_cast<const std::byte*>(data);
    std::lock_guard lock(mutex_);
    auto it = live_.upper_bound(p);
    if (it == live_.begin()) return false;
    --it;
    return p + bytes <= it->first + it->second;
  }

 private:
  Queue& compute_;
  const bool poisons_;
  std::unique_ptr<Allocator> cache_;
  mutable std::mutex mutex_;  // guards live_
  std::map<const std::byte*, std::size_t> live_;
};

class SimStream final : public Stream {
 public:
  SimStream(Device& device, std::shared_ptr<Queue> queue)
      : device_(device), queue_(std::move(queue)) {}
  Device& device() override { return device_; }
  std::shared_ptr<Event> record() override { return queue_->record(); }
  std::shared_ptr<Event> mark() override { return queue_->mark(); }
  void wait(const std::shared_ptr<Event>& event) override { queue_->wait(event); }
  void synchronize() override { queue_->synchronize(); }
  void attribute(std::shared_ptr<Fault> fault, std::int64_t origin) override {
    fault_ = std::move(fault);
    origin_ = origin;
  }
  void enqueue(Queue::Cost cost, std::function<void()> work) {
    queue_->enqueue(cost, std::move(work), fault_, origin_);
  }
  Queue& queue() { return *queue_; }

 private:
  Device& device_;
  std::shared_ptr<Queue> queue_;
  std::shared_ptr<Fault> fault_;  // fault of the work that is enqueued now
  std::int64_t origin_ = 0;
};

void enqueue(Stream& stream, Queue::Cost cost, std::function<void()> work) {
  static_cast<SimStream&>(stream).enqueue(cost, std::move(work));
}

// The stream that the CPU's primitives get when the work runs.
class Now final : public Stream {
 public:
  Device& device() override { throw Error(Code::internal, "work in progress has no device"); }
  std::shared_ptr<Event> record() override { return nullptr; }
  void wait(const std::shared_ptr<Event>&) override {}
  void synchronize() override {}
};

class SimPrimitives final : public Primitives {
 public:
  SimPrimitives(const SimAllocator& memory, const SimSpeed& speed)
      : memory_(memory), speed_(speed) {}

  void copy(Stream& s, ConstView in, View out) const override {
    later(s, "copy", {&in}, {&out}, [=, this] { cpu_.copy(now_, in, out); });
  }
  void fill(Stream& s, const Tensor& scalar, View out) const override {
    later(s, "fill", {}, {&out}, [=, this] { cpu_.fill(now_, scalar, out); });
  }
  void pointwise(Stream& s, const ScalarProgram& program, std::span<const ConstView> in,
                 std::span<const View> out) const override {
    std::vector<ConstView> inputs(in.begin(), in.end());
    std::vector<View> outputs(out.begin(), out.end());
    std::size_t bytes = 0;
    for (const ConstView& v : in) check("pointwise", v), bytes += v.bytes();
    for (const View& v : out) check("pointwise", v), bytes += v.bytes();
    enqueue(s, cost("pointwise", bytes),
            [=, this, p = &program] { cpu_.pointwise(now_, *p, inputs, outputs); });
  }
  void pointwise_rows(Stream& s, const ScalarProgram& program, std::int64_t rows,
                      std::int64_t columns, std::span<const ConstRowsView> in,
                      std::span<const RowsView> out) const override {
    std::vector<ConstRowsView> inputs(in.begin(), in.end());
    std::vector<RowsView> outputs(out.begin(), out.end());
    std::size_t bytes = 0;
    auto row_bytes = [&](std::int64_t step, DType dtype) {
      return static_cast<std::size_t>((step ? rows : 1) * columns) * size_of(dtype);
    };
    for (const ConstRowsView& v : in)
      check("pointwise_rows", v.of), bytes += row_bytes(v.step, v.of.dtype);
    for (const RowsView& v : out)
      check("pointwise_rows", v.of), bytes += row_bytes(v.step, v.of.dtype);
    enqueue(s, cost("pointwise_rows", bytes), [=, this, p = &program] {
      cpu_.pointwise_rows(now_, *p, rows, columns, inputs, outputs);
    });
  }
  void reduce(Stream& s, Reduction how, ConstView in, View out, std::uint32_t axes) const override {
    later(s, "reduce", {&in}, {&out}, [=, this] { cpu_.reduce(now_, how, in, out, axes); });
  }
  void pointwise_reduce(Stream& s, const PointwiseReduceArgs& a) const override {
    std::vector<ConstView> inputs(a.in.begin(), a.in.end());
    std::vector<View> results(a.results.begin(), a.results.end());
    std::size_t bytes = a.out.bytes();
    check("pointwise_reduce", a.out);
    for (const ConstView& v : inputs) check("pointwise_reduce", v), bytes += v.bytes();
    for (const View& v : results)
      if (v.data) check("pointwise_reduce", v), bytes += v.bytes();
    enqueue(s, cost("pointwise_reduce", bytes), [=, this, mine = a]() mutable {
      mine.in = inputs;
      mine.results = results;
      cpu_.pointwise_reduce(now_, mine);
    });
  }
  void matmul(Stream& s, const MatmulArgs& m) const override {
    const Shape& a = m.a.shape;
    const double products = static_cast<double>(m.out.elements()) *
                            static_cast<double>(a[a.rank() - (m.transpose_a ? 2 : 1)]);
    MatmulArgs mine = m;
    mine.kept = nullptr;  // its kernel may be gone by then
    later(
        s, "matmul", {&m.a, &m.b}, {&m.out}, [=, this] { cpu_.matmul(now_, mine); }, 2 * products);
  }
  void transpose(Stream& s, ConstView in, View out,
                 std::span<const std::int64_t> permutation) const override {
    std::vector<std::int64_t> order(permutation.begin(), permutation.end());
    later(s, "transpose", {&in}, {&out}, [=, this] { cpu_.transpose(now_, in, out, order); });
  }
  void copy_block(Stream& s, ConstView in, const Block& from, View out, const Block& to,
                  const Shape& extents) const override {
    later(s, "copy_block", {&in}, {&out},
          [=, this] { cpu_.copy_block(now_, in, from, out, to, extents); });
  }
  void gather(Stream& s, ConstView params, ConstView indices, int axis, View out) const override {
    later(s, "gather", {&params, &indices}, {&out},
          [=, this] { cpu_.gather(now_, params, indices, axis, out); });
  }
  void scatter(Stream& s, Scatter how, ConstView indices, ConstView updates,
               View out) const override {
    later(s, "scatter", {&indices, &updates}, {&out},
          [=, this] { cpu_.scatter(now_, how, indices, updates, out); });
  }
  void softmax(Stream& s, ConstView in, View out, bool log) const override {
    later(s, "softmax", {&in}, {&out}, [=, this] { cpu_.softmax(now_, in, out, log); });
  }
  void cross_entropy(Stream& s, ConstView logits, ConstView labels, View loss) const override {
    later(s, "cross_entropy", {&logits, &labels}, {&loss},
          [=, this] { cpu_.cross_entropy(now_, logits, labels, loss); });
  }
  void cross_entropy_gradient(Stream& s, ConstView logits, ConstView labels, ConstView scale,
                              View out) const override {
    later(s, "cross_entropy_gradient", {&logits, &labels, &scale}, {&out},
          [=, this] { cpu_.cross_entropy_gradient(now_, logits, labels, scale, out); });
  }
  void one_hot(Stream& s, ConstView indices, const Tensor& on, const Tensor& off,
               View out) const override {
    later(s, "one_hot", {&indices}, {&out},
          [=, this] { cpu_.one_hot(now_, indices, on, off, out); });
  }
  void range(Stream& s, double start, double step, View out) const override {
    later(s, "range", {}, {&out}, [=, this] { cpu_.range(now_, start, step, out); });
  }
  void random(Stream& s, Random how, const RandomKey& key, View out) const override {
    later(s, "random", {}, {&out}, [=, this] { cpu_.random(now_, how, key, out); });
  }
  void convolve(Stream& s, const ConvolveArgs& c) const override {
    const double products = static_cast<double>(c.batch * c.windows.outputs() * c.windows.taps()) *
                            static_cast<double>(c.channels / c.groups) *
                            static_cast<double>(c.filters);
    ConvolveArgs mine = c;
    mine.kept = nullptr;  // its kernel may be gone by then
    later(
        s, "convolve", {&c.a, &c.b}, {&c.out}, [=, this] { cpu_.convolve(now_, mine); },
        2 * products);
  }
  void pool(Stream& s, const PoolArgs& p) const override {
    later(s, "pool", {&p.x, &p.other}, {&p.out}, [=, this] { cpu_.pool(now_, p); });
  }
  void scan(Stream& s, const ScanArgs& a) const override {
    later(s, "scan", {&a.x, &a.a}, {&a.out}, [=, this] { cpu_.scan(now_, a); });
  }
  void sort(Stream& s, const SortArgs& a) const override {
    later(s, "sort", {&a.x}, {&a.values, &a.indices}, [=, this] { cpu_.sort(now_, a); });
  }
  void along(Stream& s, const AlongArgs& a) const override {
    later(s, "along", {&a.x, &a.indices}, {&a.out}, [=, this] { cpu_.along(now_, a); });
  }
  void search(Stream& s, const SearchArgs& a) const override {
    later(s, "search", {&a.sorted, &a.values}, {&a.out}, [=, this] { cpu_.search(now_, a); });
  }
  void algebra(Stream& s, const AlgebraArgs& a) const override {
    const double cube =
        static_cast<double>(a.batch * a.m * a.n) * static_cast<double>(std::min(a.m, a.n));
    later(
        s, "algebra", {&a.a, &a.b}, {&a.out[0], &a.out[1], &a.out[2]},
        [=, this] { cpu_.algebra(now_, a); }, cube);
  }
  void attention(Stream& s, const AttentionArgs& a) const override {
    later(
        s, "attention", {&a.q, &a.k, &a.v, &a.mask}, {&a.y, &a.log_sum},
        [=, this] { cpu_.attention(now_, a); }, 2 * products(a));
  }
  void attention_gradient(Stream& s, const AttentionGradientArgs& a) const override {
    later(
        s, "attention_gradient", {&a.of.q, &a.of.k, &a.of.v, &a.of.mask, &a.y, &a.log_sum, &a.dy},
        {&a.dq, &a.dk, &a.dv, &a.dmask}, [=, this] { cpu_.attention_gradient(now_, a); },
        (a.dmask.data ? 7 : 5) * products(a.of));
  }
  void row_norm(Stream& s, const RowNormArgs& a) const override {
    later(s, "row_norm", {&a.x, &a.scale, &a.bias}, {&a.y, &a.mean, &a.rstd},
          [=, this] { cpu_.row_norm(now_, a); });
  }
  void row_norm_gradient(Stream& s, const RowNormGradientArgs& a) const override {
    later(s, "row_norm_gradient", {&a.x, &a.scale, &a.mean, &a.rstd, &a.dy},
          {&a.dx, &a.dscale, &a.dbias}, [=, this] { cpu_.row_norm_gradient(now_, a); });
  }
  void channel_sums(Stream& s, const ChannelSumsArgs& a) const override {
    later(s, "channel_sums", {&a.x, &a.dy, &a.mean}, {&a.first, &a.second},
          [=, this] { cpu_.channel_sums(now_, a); });
  }
  void ctc(Stream& s, const CtcArgs& a) const override {
    later(s, "ctc",
          {&a.log_probabilities, &a.labels, &a.time_lengths, &a.label_lengths, &a.direction},
          {&a.loss, &a.gradient}, [=, this] { cpu_.ctc(now_, a); });
  }
  void recurrent(Stream& s, const RecurrentArgs& a) const override {
    RecurrentArgs mine = a;
    mine.slot = nullptr;  // its kernel may be gone by then
    later(
        s, "recurrent", {&a.projected, &a.recurrent, &a.bias, &a.h0, &a.c0, &a.lengths},
        {&a.y, &a.h, &a.c, &a.gates, &a.kept}, [=, this] { cpu_.recurrent(now_, mine); },
        2 * products(a));
  }
  void recurrent_gradient(Stream& s, const RecurrentGradientArgs& g) const override {
    later(
        s, "recurrent_gradient",
        {&g.recurrent, &g.h0, &g.c0, &g.lengths, &g.y, &g.gates, &g.kept, &g.dy, &g.dh, &g.dc},
        {&g.dprojected, &g.drecurrent, &g.dbias, &g.dh0, &g.dc0},
        [=, this] { cpu_.recurrent_gradient(now_, g); }, 4 * products(g));
  }

 private:
  template <class Args>
  requires requires(const Args& a) { a.cell; }
  static double products(const Args& a) {
    return static_cast<double>(a.time * a.batch) * static_cast<double>(a.units) *
           static_cast<double>(a.units * gates_of(a.cell));
  }
  static double products(const AttentionArgs& a) {
    return static_cast<double>(a.batch * a.heads * a.queries) *
           static_cast<double>(a.keys * (a.depth + a.width));
  }
  template <class V>
  void check(const char* op, const V& v) const {
    if constexpr (std::is_same_v<V, ConstView>) {
      if (v.is_inline()) return;
    }
    const void* data;
    if constexpr (std::is_same_v<V, ConstView>) data = v.data();
    else data = v.data;
    if (!data) return;  // not there
    if (v.elements() && !memory_.owns(data, v.bytes()))
      throw Error(Code::internal, fmt::format("{}: {}{} does not lie in this device's memory", op,
                                              name_of(v.dtype), v.shape.text()));
  }
  Queue::Cost cost(const char* op, std::size_t bytes, double flops = 0) const {
    return {op, speed_.launch_ns + static_cast<double>(bytes) / speed_.bytes_per_ns +
                    flops / speed_.flops_per_ns};
  }
  template <class F>
  void later(Stream& s, const char* op, std::initializer_list<const ConstView*> in,
             std::initializer_list<const View*> out, F work, double flops = 0) const {
    std::size_t bytes = 0;
    for (const ConstView* v : in) check(op, *v), bytes += v->bytes();
    for (const View* v : out) check(op, *v), bytes += v->bytes();
    enqueue(s, cost(op, bytes, flops), std::move(work));
  }

  const SimAllocator& memory_;
  const SimSpeed speed_;
  cpu::CpuPrimitives cpu_{nullptr};
  mutable Now now_;
};

class SimDevice final : public Device {
 public:
  explicit SimDevice(const SimOptions& options)
      : options_(options), trace_(options.is_traced ? std::make_shared<Trace>() : nullptr),
        compute_(std::make_shared<Queue>(options, 0, "compute", trace_)),
        allocator_(
            std::make_unique<SimAllocator>(*compute_, options.memory_limit, options.poisons)),
        primitives_(*allocator_, options.speed) {
    if (options.memory_limit && options.swap.is_on)
      swapper_ = std::make_unique<Swapper>(*this, options.swap);
  }
  ~SimDevice() override {
    drain();             // their work uses the primitives
    swapper_.reset();    // whose handles are of this device's streams
    allocator_.reset();  // whose blocks are returned in the queue's order, before it ends
  }

  const std::string& name() const override { return options_.name; }
  const std::string& kind() const override { return kind_; }
  bool is_synchronous() const override { return false; }
  Allocator& allocator() override { return *allocator_; }
  const Primitives& primitives() const override { return primitives_; }
  Swapper* swapper() override { return swapper_.get(); }
  std::unique_ptr<Stream> make_stream() override {
    std::uint64_t index = streams_.fetch_add(1, std::memory_order_relaxed);
    return std::make_unique<SimStream>(*this, index == 0 ? compute_ : make_queue(index, "stream"));
  }
  std::unique_ptr<Stream> compute_stream() override {
    return std::make_unique<SimStream>(*this, compute_);
  }
  std::unique_ptr<Stream> copy_stream() override {
    const std::lock_guard lock(mutex_);
    copies_.push_back(make_queue(kFirstCopy + copies_.size(), "copies"));
    return std::make_unique<SimStream>(*this, copies_.back());
  }
  void copy_from_host(Stream& s, const Tensor& host, View on_device) override {
    ConstView from(host);
    enqueue(s, cost("copy_from_host", from.bytes(), QueueMeter::Work::to_device),
            [from, on_device, keep = host] { move(from.data(), on_device.data, from.bytes()); });
  }
  void copy_to_host(Stream& s, ConstView on_device, View host) override {
    enqueue(s, cost("copy_to_host", host.bytes(), QueueMeter::Work::from_device),
            [on_device, host] { move(on_device.data(), host.data, on_device.bytes()); });
  }

  DeviceCounters counters() override {
    DeviceCounters now = Device::counters();
    now.queues.push_back(compute_->activity());
    const std::lock_guard lock(mutex_);
    for (const auto& copies : copies_) now.queues.push_back(copies->activity());
    return now;
  }

  const Queue& compute() const { return *compute_; }
  const std::shared_ptr<Trace>& trace() const { return trace_; }

 private:
  // first seed of copy streams: the other streams' seeds stay as they were
  static constexpr std::uint64_t kFirstCopy = 1000;

  static void move(const void* from, void* to, std::size_t bytes) {
    if (bytes) std::memcpy(to, from, bytes);
  }
  Queue::Cost cost(const char* what, std::size_t bytes, QueueMeter::Work kind) const {
    return {
        what,
        options_.speed.launch_ns + static_cast<double>(bytes) / options_.speed.copy_bytes_per_ns,
        kind, bytes};
  }
  std::shared_ptr<Queue> make_queue(std::uint64_t index, const char* what) {
    return std::make_shared<Queue>(options_, index, fmt::format("{} {}", what, index), trace_);
  }
  // Copies and compute wait for each other's events: with threads each drains by itself, by hand
  // they take turns.
  void drain() {
    for (bool goes_on = options_.manual; goes_on;) {
      goes_on = compute_->step();
      for (const auto& copies : copies_) goes_on = copies->step() || goes_on;
    }
    compute_->drain();
    for (const auto& copies : copies_) copies->drain();
  }

  SimOptions options_;
  std::string kind_ = "sim";
  std::atomic<std::uint64_t> streams_{0};  // counts; publishes nothing
  std::shared_ptr<Trace> trace_;
  std::shared_ptr<Queue> compute_;
  std::unique_ptr<SimAllocator> allocator_;
  SimPrimitives primitives_;
  std::mutex mutex_;  // guards copies_, which are all made before the device is drained
  std::vector<std::shared_ptr<Queue>> copies_;
  std::unique_ptr<Swapper> swapper_;
};

SimDevice& simulated(Device& device) {
  auto* mine = dynamic_cast<SimDevice*>(&device);
  if (!mine) throw Error(Code::invalid_argument, device.name() + " is no simulated device");
  return *mine;
}

const RegisterDeviceKind kSimKind({
    .name = "sim",
    .devices = "simulated sim:N",
    .has = [](std::int32_t) { return true; },
    .make =
        [](const std::string& name, std::int32_t index, const DeviceSetup& setup) {
          SimOptions options = setup.sim;
          options.name = name;
          options.seed = setup.seed + static_cast<std::uint64_t>(index);
          options.swap = setup.swap;
          return make_sim_device(options);
        },
    .memory = [](const DeviceSetup& setup) { return setup.sim.memory_limit; },
});

}  // namespace
}  // namespace sim

std::vector<SimSpan> trace_of(Device& device) {
  const auto& trace = sim::simulated(device).trace();
  if (!trace) throw Error(Code::invalid_argument, device.name() + " keeps no trace");
  std::lock_guard lock(trace->mutex);
  return trace->spans;
}

double virtual_time(Device& device) { return sim::simulated(device).compute().now(); }

namespace detail {

std::unique_ptr<Device> make_sim_device(const SimOptions& options) {
  return std::make_unique<sim::SimDevice>(options);
}

}  // namespace detail

bool step(Stream& stream) {
  auto* mine = dynamic_cast<sim::SimStream*>(&stream);
  if (!mine || !mine->queue().manual())
    throw Error(Code::invalid_argument, "only a stream of a manual simulated device is stepped");
  return mine->queue().step();
}

}  // namespace troupe
