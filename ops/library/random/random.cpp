#include <cstdint>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

namespace {

void define_random(OpBuilder& op, Random kind, const char* doc) {
  op.doc(doc);
  op.inputs(0);
  op.attr<Shape>("shape");
  op.attr<DType>("dtype", DType::f32);
  op.random();
  op.not_differentiable();
  op.infer([kind](Inference& c) {
    DType t = c.attrs().get<DType>("dtype");
    c.require(is_floating(t) || (kind == Random::uniform && is_integer(t)),
              std::string(name_of(t)) + " cannot be drawn so");
    c.require(c.attrs().get<Shape>("shape").is_known(), "the shape must be known in full");
    c.output(t, c.attrs().get<Shape>("shape"));
  });
  op.calls({Primitive::random});
  op.kernel([kind](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return make_kernel([kind, origin = s.origin, shape = s.attrs.get<Shape>("shape"),
                        dtype = s.attrs.get<DType>("dtype")](KernelContext& c) {
      Tensor out = c.allocate(dtype, shape);
      c.primitives().random(c.stream(), kind,
                            RandomKey{c.run().seed, origin, c.run().step, c.tag()}, View(out));
      c.set(0, std::move(out));
    });
  });
}

}  // namespace

TROUPE_OP(RandomUniform) {
  define_random(op, Random::uniform,
                "Uniform draws: [0, 1) for floating dtypes, all bits for integers.");
}
TROUPE_OP(RandomNormal) {
  define_random(op, Random::normal, "Normal draws of mean 0 and standard deviation 1.");
}
TROUPE_OP(TruncatedNormal) {
  define_random(op, Random::truncated_normal,
                "Normal draws, redrawn outside two standard deviations.");
}

}  // namespace troupe
