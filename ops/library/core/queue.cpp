#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/specs_attr.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe::detail {

std::shared_ptr<const AttrObject> make_specs_attr(std::vector<ValueSpec> specs) {
  return std::make_shared<SpecsAttr>(std::move(specs));
}

namespace {

// A queue's answer to one firing.
QueueState::Done finish(Completion completion) {
  auto right = std::make_shared<Completion>(std::move(completion));
  return [right](Status status, std::vector<Value> element) {
    if (status.ok()) right->fulfil(element);
    else right->fail(std::move(status));
  };
}

QueueState& queue_of(const Ref<State>& state) { return static_cast<QueueState&>(*state); }

}  // namespace

TROUPE_OP(Enqueue) {
  op.doc("Puts one element into a queue, waiting while it is full; yields the queue's size.");
  op.inputs(1, -1);
  op.takes_strings();
  op.effect(Effect::enqueue);
  op.not_differentiable();
  op.infer([](Inference& c) { c.output(DType::i64, Shape{}); });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return make_kernel([state = s.state](KernelContext& c) {
      std::vector<Value> element;
      for (Value& v : c.all_inputs()) element.push_back(std::move(v));
      QueueState& queue = queue_of(state);
      auto done = finish(c.defer());
      queue.enqueue(c.run(), std::move(element), [done, state](Status status, std::vector<Value>) {
        done(std::move(status), {Tensor::scalar(queue_of(state).size())});
      });
    });
  });
}

TROUPE_OP(Dequeue) {
  op.doc("Takes one element out of a queue, waiting while there is none.");
  op.inputs(0);
  op.attr<std::shared_ptr<const AttrObject>>("components");
  op.effect(Effect::dequeue);
  op.not_differentiable();
  op.infer([](Inference& c) {
    auto object = c.attrs().get<std::shared_ptr<const AttrObject>>("components");
    for (const ValueSpec& s : static_cast<const SpecsAttr&>(*object).specs)
      c.output(s.dtype, s.shape);
  });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return make_kernel([state = s.state](KernelContext& c) {
      queue_of(state).dequeue(c.run(), finish(c.defer()));
    });
  });
}

TROUPE_OP(QueueSize) {
  op.doc("How many elements are in a queue.");
  op.inputs(0);
  op.effect(Effect::read);
  op.not_differentiable();
  op.infer([](Inference& c) { c.output(DType::i64, Shape{}); });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return make_kernel(
        [state = s.state](KernelContext& c) { c.set(0, Tensor::scalar(queue_of(state).size())); });
  });
}

TROUPE_OP(QueueClose) {
  op.doc("Closes a queue: no more enqueues, dequeues drain it; yields its size.");
  op.inputs(0);
  op.effect(Effect::write);
  op.not_differentiable();
  op.infer([](Inference& c) { c.output(DType::i64, Shape{}); });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return make_kernel([state = s.state](KernelContext& c) {
      queue_of(state).close();
      c.set(0, Tensor::scalar(queue_of(state).size()));
    });
  });
}

}  // namespace troupe::detail
