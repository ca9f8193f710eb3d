#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

TROUPE_OP(Input) {
  op.doc("A value given at every run.");
  op.inputs(0);
  op.attr<DType>("dtype");
  op.attr<Shape>("shape");
  op.side_effect();  // its value comes from outside: never folded, never merged
  op.infer(
      [](Inference& c) { c.output(c.attrs().get<DType>("dtype"), c.attrs().get<Shape>("shape")); });
  op.run([](KernelContext&) { throw Error(Code::invalid_argument, "this input was not fed"); });
}

}  // namespace troupe
