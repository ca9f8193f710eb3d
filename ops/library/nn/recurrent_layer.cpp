#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/recurrent.hpp>
#include <troupe/ops/families/accumulator.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <array>

#include <fmt/format.h>

// Whole recurrent layers as one op each way. lstm, gru and rnn (controlflow/recurrent.hpp) use
// them.

namespace troupe {
namespace {

RecurrentCell cell_of(const Attrs& attrs) {
  const std::string& name = attrs.get<std::string>("cell");
  if (name == "lstm") return RecurrentCell::lstm;
  if (name == "gru") return RecurrentCell::gru;
  if (name == "tanh") return RecurrentCell::tanh;
  if (name == "relu") return RecurrentCell::relu;
  throw Error(Code::invalid_argument,
              fmt::format("cell '{}' is none of lstm, gru, tanh, relu", name));
}
bool has_cell(RecurrentCell c) { return c == RecurrentCell::lstm; }
bool keeps(RecurrentCell c) { return c == RecurrentCell::lstm || c == RecurrentCell::gru; }

// The indices of inputs and outputs; -1: there is none.
struct Forward {
  static constexpr int projected = 0, recurrent = 1, bias = 2, h0 = 3;
  int c0, lengths, c, gates, kept;
  Forward(RecurrentCell cell, int inputs) {
    const int states = has_cell(cell) ? 2 : 1;
    c0 = has_cell(cell) ? 4 : -1;
    lengths = inputs > 3 + states ? 3 + states : -1;
    c = has_cell(cell) ? 2 : -1;
    gates = 1 + states;
    kept = keeps(cell) ? 2 + states : -1;
  }
  static int most(RecurrentCell cell) { return has_cell(cell) ? 6 : 5; }
};
struct Backward {
  static constexpr int recurrent = 0, h0 = 1;
  int c0 = -1, y, gates, kept = -1, dy, dh, dc = -1, lengths;
  Backward(RecurrentCell cell, int inputs) {
    int next = 2;
    if (has_cell(cell)) c0 = next++;
    y = next++;
    gates = next++;
    if (keeps(cell)) kept = next++;
    dy = next++;
    dh = next++;
    if (has_cell(cell)) dc = next++;
    lengths = inputs > next ? next : -1;
  }
  static int most(RecurrentCell cell) {
    return has_cell(cell) ? 10 : cell == RecurrentCell::gru ? 8 : 7;
  }
};

void require_count(const Inference& c, int most) {
  c.require(c.inputs() == most || c.inputs() == most - 1,
            fmt::format("takes {} inputs, or {} with lengths, not {}", most - 1, most, c.inputs()));
}

/// The sizes of a layer, as far as its shapes are known; throws if they contradict each other.
class RecurrentExtents {
 public:
  explicit RecurrentExtents(RecurrentCell cell) : gates_(gates_of(cell)) {}
  void sequence(const char* what, const Shape& s, bool of_gates) {
    learn(what, s, {&time_, &batch_, &units_}, 3, of_gates);
  }
  void state(const char* what, const Shape& s) { learn(what, s, {&batch_, &units_}, 2); }
  void weights(const Shape& s) { learn("recurrent", s, {&units_, &units_}, 2, true); }
  void bias(const Shape& s) { learn("bias", s, {&units_}, 1, true); }
  void lengths(const Shape& s) { learn("lengths", s, {&batch_}, 1); }

  Shape sequence(bool of_gates = false) const {
    return {time_, batch_, of_gates ? all_units() : units_};
  }
  Shape state() const { return {batch_, units_}; }
  Shape weights() const { return {units_, all_units()}; }
  Shape bias() const { return {all_units()}; }
  std::int64_t time() const { return time_; }
  std::int64_t batch() const { return batch_; }
  std::int64_t units() const { return units_; }

 private:
  std::int64_t all_units() const { return units_ < 0 ? kAny : units_ * gates_; }
  void learn(const char* what, const Shape& s, std::array<std::int64_t*, 3> to, int rank,
             bool of_gates = false) {
    if (!s.has_rank()) return;
    auto fail = [&](const std::string& why) {
      throw Error(Code::invalid_argument, fmt::format("'{}' is {}: {}", what, s.text(), why));
    };
    if (s.rank() != rank) fail(fmt::format("it must have {} axes", rank));
    for (int i = 0; i < rank; ++i) {
      std::int64_t extent = s[i];
      if (extent < 0) continue;
      if (of_gates && i == rank - 1) {
        if (extent % gates_ != 0)
          fail(fmt::format("extent {} is no multiple of the {} gates", extent, gates_));
        extent /= gates_;
      }
      std::int64_t& known = *to[static_cast<std::size_t>(i)];
      if (known >= 0 && known != extent)
        fail(fmt::format("its axis {} makes {} {}, other inputs {}", i, extent,
                         &known == &time_    ? "steps"
                         : &known == &batch_ ? "examples"
                                             : "units",
                         known));
      known = extent;
    }
  }
  std::int64_t gates_, time_ = kAny, batch_ = kAny, units_ = kAny;
};

template <class ShapeOf>
RecurrentExtents forward_extents(RecurrentCell cell, const Forward& at, ShapeOf shape) {
  RecurrentExtents e(cell);
  e.weights(shape(at.recurrent));
  e.sequence("projected", shape(at.projected), true);
  e.bias(shape(at.bias));
  e.state("h0", shape(at.h0));
  if (at.c0 >= 0) e.state("c0", shape(at.c0));
  if (at.lengths >= 0) e.lengths(shape(at.lengths));
  return e;
}
template <class ShapeOf>
RecurrentExtents backward_extents(RecurrentCell cell, const Backward& at, ShapeOf shape) {
  RecurrentExtents e(cell);
  e.weights(shape(at.recurrent));
  e.state("h0", shape(at.h0));
  if (at.c0 >= 0) e.state("c0", shape(at.c0));
  e.sequence("y", shape(at.y), false);
  e.sequence("gates", shape(at.gates), true);
  if (at.kept >= 0) e.sequence("kept", shape(at.kept), false);
  e.sequence("dy", shape(at.dy), false);
  e.state("dh", shape(at.dh));
  if (at.dc >= 0) e.state("dc", shape(at.dc));
  if (at.lengths >= 0) e.lengths(shape(at.lengths));
  return e;
}

void require_dtypes(const Inference& c, int lengths, int kept) {
  c.require_floating(0);
  for (int i = 1; i < c.inputs(); ++i) {
    if (i == lengths) c.require_index(i, "lengths");
    else if (i == kept) c.require_dtype(i, accumulator_dtype(c.dtype(0)), "the saved values");
    else c.require_same_dtype(0, i);
  }
}

class RecurrentKernel final : public Kernel {
 public:
  explicit RecurrentKernel(const Attrs& attrs)
      : cell_(cell_of(attrs)), reverse_(attrs.get<bool>("reverse")) {}

  void run(KernelContext& c) override {
    const Forward at(cell_, c.inputs());
    const RecurrentExtents e =
        forward_extents(cell_, at, [&](int i) -> const Shape& { return c.input(i).shape(); });
    RecurrentArgs a{cell_,
                    reverse_,
                    e.time(),
                    e.batch(),
                    e.units(),
                    c.input(at.projected),
                    c.input(at.recurrent),
                    c.input(at.bias),
                    c.input(at.h0),
                    {},
                    {},
                    {},
                    {},
                    {},
                    {},
                    {},
                    &weights_,
                    c.input(at.recurrent).content()};
    if (at.c0 >= 0) a.c0 = c.input(at.c0);
    if (at.lengths >= 0) a.lengths = c.input(at.lengths);
    const DType type = a.projected.dtype;
    Tensor y = c.allocate(type, e.sequence()), h = c.allocate(type, e.state()), last, kept;
    a.y = View(y), a.h = View(h);
    if (at.c >= 0) last = c.allocate(type, e.state()), a.c = View(last);
    if (at.kept >= 0) kept = c.allocate(accumulator_dtype(type), e.sequence()), a.kept = View(kept);
    Tensor gates = c.allocate_over(at.projected, type, e.sequence(true));
    a.gates = View(gates);
    c.primitives().recurrent(c.stream(), a);
    c.set(0, std::move(y));
    c.set(1, std::move(h));
    if (at.c >= 0) c.set(at.c, std::move(last));
    c.set(at.gates, std::move(gates));
    if (at.kept >= 0) c.set(at.kept, std::move(kept));
  }

 private:
  RecurrentCell cell_;
  bool reverse_;
  RepackedSlot weights_;
};

}  // namespace

TROUPE_OP(RecurrentLayer) {
  op.doc(
      "An LSTM, GRU or plain recurrent layer over time, of projected inputs; past an example's "
      "length its state stays and its output is zero.");
  op.inputs(4, 6);
  op.attr<std::string>("cell");
  op.attr<bool>("reverse", false);
  op.infer([](Inference& c) {
    const RecurrentCell cell = cell_of(c.attrs());
    require_count(c, Forward::most(cell));
    const Forward at(cell, c.inputs());
    require_dtypes(c, at.lengths, -1);
    const RecurrentExtents e =
        forward_extents(cell, at, [&](int i) -> const Shape& { return c.shape(i); });
    c.output(c.dtype(0), e.sequence());
    c.output(c.dtype(0), e.state());
    if (at.c >= 0) c.output(c.dtype(0), e.state());
    c.output(c.dtype(0), e.sequence(true));
    if (at.kept >= 0) c.output(accumulator_dtype(c.dtype(0)), e.sequence());
  });
  op.gradient([](Gradient& g) {
    const Forward at(cell_of(g.attrs()), g.inputs());
    if (g.has_dy(at.gates) || (at.kept >= 0 && g.has_dy(at.kept)))
      throw Error(Code::unimplemented,
                  "the values that a recurrent layer saves for its gradient have no gradient");
    std::vector<Operand> operands;
    operands.reserve(10);
    operands.push_back(g.x(at.recurrent));
    operands.push_back(g.x(at.h0));
    if (at.c0 >= 0) operands.push_back(g.x(at.c0));
    operands.push_back(g.y(0));
    operands.push_back(g.y(at.gates));
    if (at.kept >= 0) operands.push_back(g.y(at.kept));
    operands.push_back(g.dy(0));
    operands.push_back(g.dy(1));
    if (at.c >= 0) operands.push_back(g.dy(at.c));
    if (at.lengths >= 0) operands.push_back(g.x(at.lengths));
    Exprs d = bind_op("RecurrentLayerGradient", operands, g.attrs(), operands[0].site());
    for (int i = 0; i < static_cast<int>(d.size()); ++i)  // in the order of the inputs
      if (g.needs(i)) g.set(i, d[static_cast<std::size_t>(i)]);
  });
  op.calls({Primitive::recurrent});
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return std::make_unique<RecurrentKernel>(s.attrs);
  });
}

TROUPE_OP(RecurrentLayerGradient) {
  op.doc(
      "The gradients of RecurrentLayer with respect to its inputs but lengths, from the inputs, "
      "the outputs, and the cotangents of outputs and last state.");
  op.inputs(6, 10);
  op.attr<std::string>("cell");
  op.attr<bool>("reverse", false);
  op.infer([](Inference& c) {
    const RecurrentCell cell = cell_of(c.attrs());
    require_count(c, Backward::most(cell));
    const Backward at(cell, c.inputs());
    require_dtypes(c, at.lengths, at.kept);
    const RecurrentExtents e =
        backward_extents(cell, at, [&](int i) -> const Shape& { return c.shape(i); });
    for (const Shape& s : {e.sequence(true), e.weights(), e.bias(), e.state()})
      c.output(c.dtype(0), s);
    if (at.c0 >= 0) c.output(c.dtype(0), e.state());
  });
  op.gradient([](Gradient&) {
    throw Error(Code::unimplemented,
                "a fused recurrent layer has no second derivative; build the layer without .fused, "
                "as a loop, which has");
  });
  op.calls({Primitive::recurrent_gradient});
  op.run([](KernelContext& c, const Attrs& attrs) {
    const RecurrentCell cell = cell_of(attrs);
    const Backward at(cell, c.inputs());
    const RecurrentExtents e =
        backward_extents(cell, at, [&](int i) -> const Shape& { return c.input(i).shape(); });
    RecurrentGradientArgs g{cell,
                            attrs.get<bool>("reverse"),
                            e.time(),
                            e.batch(),
                            e.units(),
                            c.input(at.recurrent),
                            c.input(at.h0),
                            {},
                            {},
                            c.input(at.y),
                            c.input(at.gates),
                            {},
                            c.input(at.dy),
                            c.input(at.dh),
                            {},
                            {},
                            {},
                            {},
                            {},
                            {}};
    if (at.c0 >= 0) g.c0 = c.input(at.c0), g.dc = c.input(at.dc);
    if (at.lengths >= 0) g.lengths = c.input(at.lengths);
    if (at.kept >= 0) g.kept = c.input(at.kept);
    const DType type = g.recurrent.dtype;
    Tensor dweights = c.allocate(type, e.weights()), dbias = c.allocate(type, e.bias()),
           dh0 = c.allocate(type, e.state()), dc0;
    g.drecurrent = View(dweights), g.dbias = View(dbias), g.dh0 = View(dh0);
    if (at.c0 >= 0) dc0 = c.allocate(type, e.state()), g.dc0 = View(dc0);
    Tensor dprojected = c.allocate_over(at.gates, type, e.sequence(true));
    g.dprojected = View(dprojected);
    c.primitives().recurrent_gradient(c.stream(), g);
    c.set(0, std::move(dprojected));
    c.set(1, std::move(dweights));
    c.set(2, std::move(dbias));
    c.set(3, std::move(dh0));
    if (at.c0 >= 0) c.set(4, std::move(dc0));
  });
}

}  // namespace troupe
