#include <troupe/ops/families/host_inputs.hpp>

#include <algorithm>

namespace troupe::detail {
namespace {

// A firing that waits for its integers.
struct Waiting {
  std::vector<Value> inputs, outputs;
  // input and its elements, of rank 1 if the input is a scalar
  std::vector<std::pair<int, Tensor>> copies;
  Device* device;
  const RunInfo* run;
  std::uint64_t tag;
  Completion completion;
};

class HostInputs final : public Kernel {
 public:
  HostInputs(std::vector<int> which, std::function<void(KernelContext&)> body)
      : which_(std::move(which)), body_(std::move(body)) {}

  void run(KernelContext& c) override {
    bool all_here = std::all_of(which_.begin(), which_.end(),
                                [&](int i) { return i >= c.inputs() || c.input(i).is_on_host(); });
    if (all_here) body_(c);
    else copy_first(c);
  }

 private:
  void copy_first(KernelContext& c) {
    auto waiting = std::make_shared<Waiting>();
    waiting->device = &c.device();
    waiting->run = &c.run();
    waiting->tag = c.tag();
    waiting->outputs.resize(c.all_outputs().size());
    for (int i : which_) {
      if (i >= c.inputs() || c.input(i).is_on_host()) continue;
      // Zeros: a copy behind work that failed is skipped.
      Shape shape = c.input(i).shape();
      waiting->copies.emplace_back(
          i, Tensor::zeros(c.input(i).dtype(), shape.is_scalar() ? Shape{1} : shape));
      c.device().copy_to_host(c.stream(), c.input(i), View(waiting->copies.back().second));
    }
    for (Value& v : c.all_inputs()) waiting->inputs.push_back(std::move(v));
    waiting->completion = c.defer();
    c.stream().record()->then([this, waiting](const Status& status) {
      if (status.ok()) go_on(*waiting);
      else waiting->completion.fail(status);
    });
  }

  void go_on(Waiting& w) {
    try {
      for (auto& [i, copy] : w.copies)
        w.inputs[static_cast<std::size_t>(i)] =
            copy.reshaped(w.inputs[static_cast<std::size_t>(i)].tensor().shape());
      auto stream = w.device->compute_stream();
      KernelContext c(w.inputs, w.outputs, *w.device, *stream, *w.run);
      c.set_tag(w.tag);
      body_(c);
    } catch (...) {
      w.completion.fail(Status::from_current_exception());
      return;
    }
    w.completion.fulfil(w.outputs);
  }

  const std::vector<int> which_;
  const std::function<void(KernelContext&)> body_;
};

}  // namespace

std::unique_ptr<Kernel> with_host_inputs(std::vector<int> which,
                                         std::function<void(KernelContext&)> body) {
  return std::make_unique<HostInputs>(std::move(which), std::move(body));
}

std::vector<std::int64_t> integers_of(const Tensor& t) {
  if (t.dtype() == DType::i64) return t.to_vector<std::int64_t>();
  std::vector<std::int32_t> narrow = t.to_vector<std::int32_t>();
  return {narrow.begin(), narrow.end()};
}

std::int64_t integer_of(const Tensor& t) {
  return t.dtype() == DType::i64 ? t.item<std::int64_t>() : t.item<std::int32_t>();
}

}  // namespace troupe::detail
