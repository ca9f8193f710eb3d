#include <troupe/ops/graph/host_kernel.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/transfer.hpp>

namespace troupe {
namespace {

// The device of kernels that others lack; never destroyed, as plans of engines of static lifetime
// may still run.
Device& host_device() {
  static Device* const device = make_cpu_device().release();
  return *device;
}

// A firing whose inputs are on their way to the host.
struct AwayFromDevice {
  std::vector<Value> inputs, outputs;
  std::vector<std::pair<std::size_t, Tensor>> copies;  // input, and where its elements come to
  Device* device;
  const RunInfo* run;
  std::uint64_t tag;
  Completion completion;
};

class HostKernel final : public Kernel {
 public:
  explicit HostKernel(std::unique_ptr<Kernel> inner) : inner_(std::move(inner)) {}

  void run(KernelContext& c) override {
    const auto is_away = [](const Value& v) {
      return v.kind() == Value::Kind::tensor && !v.tensor().is_on_host();
    };
    std::span<Value> inputs = c.all_inputs();
    if (std::none_of(inputs.begin(), inputs.end(), is_away)) {
      compute(inputs, c.all_outputs(), c.device(), c.stream(), c.run(), c.tag());
      return;
    }
    auto away = std::make_shared<AwayFromDevice>();
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (is_away(inputs[i])) away->copies.emplace_back(i, copy_of(c, inputs[i].tensor()));
    for (Value& v : inputs) away->inputs.push_back(std::move(v));
    away->outputs.resize(c.all_outputs().size());
    away->device = &c.device();
    away->run = &c.run();
    away->tag = c.tag();
    away->completion = c.defer();
    c.stream().record()->then([this, away](const Status& status) {
      if (!status.ok()) return away->completion.fail(status);
      away->device->run_on_host([this, away] { go_on(*away); });
    });
  }

 private:
  // A scalar in the memory of a device is no inline scalar: it comes back as a vector of one.
  // Zeros, because a copy behind work that failed is skipped, and indices are read then.
  static Tensor copy_of(KernelContext& c, const Tensor& on_device) {
    const Shape shape = on_device.shape().is_scalar() ? Shape{1} : on_device.shape();
    Tensor host = c.device().host_empty(on_device.dtype(), shape);
    const View to(host);
    if (to.bytes() > 0) std::memset(to.data, 0, to.bytes());
    c.device().copy_to_host(c.stream(), on_device, to);
    return host;
  }

  void go_on(AwayFromDevice& away) {
    try {
      for (const auto& [i, copy] : away.copies)
        away.inputs[i] = copy.reshaped(away.inputs[i].tensor().shape());
      const auto stream = away.device->compute_stream();
      compute(away.inputs, away.outputs, *away.device, *stream, *away.run, away.tag);
    } catch (...) {
      away.completion.fail(Status::from_current_exception());
      return;
    }
    away.completion.fulfil(away.outputs);
  }

  void compute(std::span<Value> inputs, std::span<Value> outputs, Device& device, Stream& stream,
               const RunInfo& run, std::uint64_t tag) {
    const auto host_stream = host_device().compute_stream();
    KernelContext c(inputs, outputs, host_device(), *host_stream, run);
    c.set_tag(tag);
    inner_->run(c);
    for (Value& v : outputs)
      if (v.kind() == Value::Kind::tensor) copy_to_device(v.tensor(), device, stream);
  }

  const std::unique_ptr<Kernel> inner_;
};

}  // namespace

bool runs_on_host(const OpDef& op, const Device& device, DType dtype) {
  return std::any_of(op.primitives.begin(), op.primitives.end(),
                     [&](Primitive p) { return !device.primitives().has(p, dtype); });
}

std::unique_ptr<Kernel> make_host_kernel(const OpDef& op, const KernelSetup& setup) {
  const KernelSetup on_host{setup.op,           setup.attrs,        setup.input_types,
                            setup.input_shapes, setup.output_types, setup.output_shapes,
                            host_device(),      setup.origin,       setup.state};
  return std::make_unique<HostKernel>(op.kernel(on_host));
}

}  // namespace troupe
