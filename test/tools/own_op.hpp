// An op of a user's own, known to the programs that include this, once each, and to no others.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>

#include <troupe/op.hpp>

namespace troupe {

/// How often kernels of TestWhere have run in this process.
inline std::atomic<int> times_where{0};

TROUPE_OP(TestWhere) {
  op.doc("The process that runs it.");
  op.inputs(1);
  op.side_effect();
  op.infer([](Inference& c) { c.output(DType::i64, Shape{}); });
  op.run([](KernelContext& c) {
    ++times_where;
    c.set(0, Tensor::scalar<std::int64_t>(getpid()));
  });
}

}  // namespace troupe
