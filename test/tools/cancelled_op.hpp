// Ops of a user's own by which a test sees what the end of a run is to kernels, on other nodes too,
// known to the programs that include this, once each, and to no others.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include <troupe/op.hpp>

namespace troupe {

/// Kernels of TestUntilCancelled in this process that have begun, and that have seen that their run
/// is over.
inline std::atomic<std::int64_t> until_cancelled_began{0}, until_cancelled_saw{0};

TROUPE_OP(TestUntilCancelled) {
  op.doc("Runs until its run is cancelled.");
  op.inputs(1);
  op.side_effect();
  op.infer([](Inference& c) { c.output(DType::f32, Shape{}); });
  op.run([](KernelContext& c) {
    ++until_cancelled_began;
    while (!c.run().cancelled.load(std::memory_order_acquire)) std::this_thread::yield();
    ++until_cancelled_saw;
    until_cancelled_saw.notify_all();
    c.set(0, Tensor::scalar(0.f));
  });
}

TROUPE_OP(TestCancellations) {
  op.doc(
      "How many of those have begun in the process that runs it, and how many have seen their "
      "run's end.");
  op.inputs(1);
  op.side_effect();
  op.infer([](Inference& c) { c.output(DType::i64, Shape{2}); });
  op.run([](KernelContext& c) {
    c.set(0, Tensor::of<std::int64_t>({until_cancelled_began.load(), until_cancelled_saw.load()}));
  });
}

TROUPE_OP(TestFantasia) {
  op.doc("Fails.");
  op.inputs(1);
  op.side_effect();
  op.infer([](Inference& c) { c.output(DType::f32, Shape{}); });
  op.run([](KernelContext&) { throw Error(Code::aborted, "fantasia!"); });
}

}  // namespace troupe
