#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/ctc.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <fmt/format.h>

namespace troupe {

/// -log p(labels | log_probabilities) of each sequence, summed over all alignments with blanks,
/// which are class 0 (Graves et al., 2006). log_probabilities: [batch, time, classes], as
/// log_softmax makes them; labels: i32 or i64 [batch, most], each in [1, classes); lengths of both:
/// [batch]. Result: [batch]; +inf, with no gradient, where labels do not fit into their time. There
/// are kernels for the first and second derivatives, but none for the third.
TROUPE_DSL(Expr ctc_loss(Operand log_probabilities, Operand labels, Operand time_lengths,
                         Operand label_lengths))
Expr ctc_loss(Operand log_probabilities, Operand labels, Operand time_lengths,
              Operand label_lengths) {
  Composite c("ctc_loss", {log_probabilities, labels, time_lengths, label_lengths});
  return cast(bind1("CtcLoss", {widened_half(c[0]), c[1], c[2], c[3]}), c[0].dtype());
}

namespace {

void check_shapes(const Shape& x, const Shape& labels, const Shape& times, const Shape& lengths) {
  auto rank = [](const Shape& s, int wanted, const char* what) {
    if (s.has_rank() && s.rank() != wanted)
      throw Error(Code::invalid_argument,
                  fmt::format("{} must have {} axes, not shape {}", what, wanted, s.text()));
  };
  rank(x, 3, "log_probabilities");
  if (x.has_rank() && x[2] == 0)
    throw Error(Code::invalid_argument, "log_probabilities need at least the class of the blank");
  rank(labels, 2, "labels");
  rank(times, 1, "time_lengths");
  rank(lengths, 1, "label_lengths");
  for (const Shape* s : {&labels, &times, &lengths})
    if (x.has_rank() && s->has_rank() && x[0] >= 0 && (*s)[0] >= 0 && x[0] != (*s)[0])
      throw Error(
          Code::invalid_argument,
          fmt::format("log_probabilities {} and {} differ in their batch", x.text(), s->text()));
}

void require_ctc(const Inference& c) {
  c.require(
      c.dtype(0) == DType::f32 || c.dtype(0) == DType::f64,
      std::string("log_probabilities are f32 or f64, not ") + std::string(name_of(c.dtype(0))));
  c.require_index(1, "labels");
  c.require_index(2, "time_lengths");
  c.require_index(3, "label_lengths");
  check_shapes(c.shape(0), c.shape(1), c.shape(2), c.shape(3));
}

CtcArgs ctc_args(KernelContext& c) {
  const Tensor &x = c.input(0), &labels = c.input(1);
  check_shapes(x.shape(), labels.shape(), c.input(2).shape(), c.input(3).shape());
  return {x,  labels,       c.input(2),   c.input(3),   {},
          {}, x.shape()[0], x.shape()[1], x.shape()[2], labels.shape()[1]};
}

}  // namespace

TROUPE_OP(CtcLoss) {
  op.doc(
      "Connectionist temporal classification; the second output is the gradient with respect to "
      "the first input.");
  op.inputs(4);
  op.infer([](Inference& c) {
    require_ctc(c);
    c.output(c.dtype(0), Shape{c.shape(0).has_rank() ? c.shape(0)[0] : kAny});
    c.output(c.dtype(0), c.shape(0));
  });
  op.gradient([](Gradient& g) {
    Expr dx;
    if (g.has_dy(0)) dx = g.y(1) * expand_dims(expand_dims(g.dy(0), -1), -1);
    // The loss is a scalar for each item: its second derivative by x is symmetric, and is applied
    // to dy.
    if (g.has_dy(1)) {
      Expr bent = bind1("CtcLossCurvature", {g.x(0), g.x(1), g.x(2), g.x(3), g.dy(1)});
      dx = dx.is_empty() ? bent : dx + bent;
    }
    if (!dx.is_empty()) g.set(0, dx);
  });
  op.calls({Primitive::ctc});
  op.run([](KernelContext& c) {
    CtcArgs a = ctc_args(c);
    Tensor loss = c.allocate(a.log_probabilities.dtype, {a.batch}),
           gradient = c.allocate(a.log_probabilities.dtype, a.log_probabilities.shape);
    a.loss = View(loss);
    a.gradient = View(gradient);
    c.primitives().ctc(c.stream(), a);
    c.set(0, std::move(loss));
    c.set(1, std::move(gradient));
  });
}

TROUPE_OP(CtcLossCurvature) {
  op.doc(
      "The derivative of CtcLoss's gradient along the last input, a direction of the first's "
      "shape.");
  op.inputs(5);
  op.infer([](Inference& c) {
    require_ctc(c);
    c.require_same_dtype(0, 4);
    c.require(c.shape(0).is_compatible(c.shape(4)),
              "the direction is of shape " + c.shape(4).text() + ", not " + c.shape(0).text());
    c.output(c.dtype(0), c.shape(0).merge(c.shape(4)));
  });
  op.gradient(
      [](Gradient&) { throw Error(Code::unimplemented, "ctc_loss has no third derivative"); });
  op.calls({Primitive::ctc});
  op.run([](KernelContext& c) {
    CtcArgs a = ctc_args(c);
    if (c.input(4).shape() != c.input(0).shape())
      throw Error(Code::invalid_argument, "the direction is of shape " + c.input(4).shape().text() +
                                              ", not " + c.input(0).shape().text());
    Tensor bent = c.allocate(a.log_probabilities.dtype, a.log_probabilities.shape);
    a.gradient = View(bent);
    a.direction = c.input(4);
    c.primitives().ctc(c.stream(), a);
    c.set(0, std::move(bent));
  });
}

}  // namespace troupe
