// Recurrent layers whose loop over time is in the graph: as many steps as the sequence has, each
// example as many as its own length. With `fused` a layer is one op instead, which is faster, but
// has no second derivative, and runs on one device that holds all that its gradient needs.
//
//   // x: [time, batch, features]
//   auto [outputs, last] = lstm(x, {wx, wh, b}, {.lengths = lengths});
//   auto [same, last] = lstm(x, {wx, wh, b}, {.lengths = lengths, .fused = true});
//   auto [top, states] = lstm_layers(x, {{wx1, wh1, b1}, {wx2, wh2, b2}}, {.fused = true});
//   auto [states, h] = dynamic_rnn([&](Expr h, Expr x) { return tanh(matmul(h, w) + x); }, x, h0);
//
// Time is the leading axis, the batch the next one; both may be unknown until the graph runs (for
// no steps at all, the batch must be known). Past an example's length its state stays as it is and
// its output is zero; so the last state is that after its last element. With `reverse` time is
// walked from the end: an example's first element is then the one before its length, the last state
// that at time 0, and outputs stand where their elements do.
//
// The parts that depend on the input alone are computed for all steps at once, before the loop: one
// product [time * batch, features] x [features, n * units].
//
// Errors: arguments of the wrong shape throw invalid_argument while building, naming the function,
// the argument and the user's line.
#pragma once

#include <troupe/controlflow/functional.hpp>

namespace troupe {

struct RnnOptions {
  std::string name = {};
  // [batch], i32 or i64: how many elements of each example count; none: all. More than there are:
  // all
  Expr lengths = {};
  bool reverse = false;
  int parallel_iterations = 32;
  bool fused = false;  // lstm, gru, rnn: one op for all steps
};

/// The activation of a plain recurrent layer.
enum class RnnActivation : std::uint8_t { tanh, relu };

/// A layer over time: outputs [time, batch, units] and the state after the last step.
template <class State>
struct RnnResult {
  Expr outputs;
  State state;
};

/// The weights of a layer with n gates: input [features, n * units], recurrent [units, n * units],
/// bias [n * units]. `units` must be known while the graph is built, from any of them.
struct RecurrentWeights {
  Operand input, recurrent, bias;
};

/// The state of an LSTM: its output h and its cell c, each [batch, units].
struct LstmState {
  Expr h, c;
  auto members() { return std::tie(h, c); }
};

/// One step of an LSTM (Hochreiter and Schmidhuber, 1997, with the forget gate of Gers et al.,
/// 2000). x: [batch, features]. The gates stand in the order input, forget, candidate, output:
///   i, f, g, o = x W + h R + b;  c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')
LstmState lstm_cell(Operand x, const LstmState& state, const RecurrentWeights& weights);
/// One step of an LSTM from x W + b, [batch, 4 * units].
LstmState lstm_cell(Operand projected, const LstmState& state, Operand recurrent);

/// One step of a gated recurrent unit (Cho et al., 2014), whose reset gate acts on the product.
/// x: [batch, features], h: [batch, units]. The gates stand in the order reset, update, candidate:
///   h' = z h + (1 - z) tanh(x W_n + b_n + r (h R_n)),  with r and z sigmoids of x W + h R + b
Expr gru_cell(Operand x, Operand h, const RecurrentWeights& weights);
/// One step of a gated recurrent unit from x W + b, [batch, 3 * units].
Expr gru_cell(Operand projected, Operand h, Operand recurrent);

/// One step of a plain recurrent layer (Elman, 1990): h' = activation(x W + h R + b). x: [batch,
/// features], h: [batch, units].
Expr rnn_cell(Operand x, Operand h, const RecurrentWeights& weights,
              RnnActivation activation = RnnActivation::tanh);

/// An LSTM over x [time, batch, features]. The state starts as zeros if none is given.
RnnResult<LstmState> lstm(Operand x, const RecurrentWeights& weights,
                          const RnnOptions& options = {},
                          std::source_location at = std::source_location::current());
RnnResult<LstmState> lstm(Operand x, const RecurrentWeights& weights, const LstmState& initial,
                          const RnnOptions& options = {},
                          std::source_location at = std::source_location::current());

/// A gated recurrent unit over x [time, batch, features]; its state [batch, units] starts as zeros
/// if none is given.
RnnResult<Expr> gru(Operand x, const RecurrentWeights& weights, const RnnOptions& options = {},
                    std::source_location at = std::source_location::current());
RnnResult<Expr> gru(Operand x, const RecurrentWeights& weights, Expr initial,
                    const RnnOptions& options = {},
                    std::source_location at = std::source_location::current());

/// A plain recurrent layer over x [time, batch, features]; its state [batch, units] starts as zeros
/// if none is given.
RnnResult<Expr> rnn(Operand x, const RecurrentWeights& weights,
                    RnnActivation activation = RnnActivation::tanh, const RnnOptions& options = {},
                    std::source_location at = std::source_location::current());
RnnResult<Expr> rnn(Operand x, const RecurrentWeights& weights, Expr initial,
                    RnnActivation activation = RnnActivation::tanh, const RnnOptions& options = {},
                    std::source_location at = std::source_location::current());

/// Both directions over x: outputs [time, batch, 2 * units], those of `forward` first; the last
/// states of both.
RnnResult<std::vector<LstmState>> bidirectional_lstm(
    Operand x, const RecurrentWeights& forward, const RecurrentWeights& backward,
    const RnnOptions& options = {}, std::source_location at = std::source_location::current());
RnnResult<Exprs> bidirectional_gru(Operand x, const RecurrentWeights& forward,
                                   const RecurrentWeights& backward, const RnnOptions& options = {},
                                   std::source_location at = std::source_location::current());

/// Layers on layers: each reads the outputs of the one below. Returns the outputs of the last, and
/// the last states of all.
RnnResult<std::vector<LstmState>> lstm_layers(
    Operand x, const std::vector<RecurrentWeights>& layers, const RnnOptions& options = {},
    std::source_location at = std::source_location::current());
RnnResult<Exprs> gru_layers(Operand x, const std::vector<RecurrentWeights>& layers,
                            const RnnOptions& options = {},
                            std::source_location at = std::source_location::current());

namespace detail {
/// `cell`: (state..., element...) to (state...); yields (last state..., outputs).
Exprs dynamic_rnn(const Operands& elements, const Operands& initial, const LoopBody& cell,
                  const RnnOptions& options, const char* what, const Site& at);
}  // namespace detail

/// state = cell(state, element) over axis 0 of x, each [time, batch, ...]; the output of the layer
/// is the first part of its state.
template <class Cell, class X, class State>
RnnResult<detail::Built<State>> dynamic_rnn(
    Cell cell, const X& x, const State& initial, const RnnOptions& options = {},
    std::source_location at = std::source_location::current()) {
  using S = detail::Built<State>;
  using E = detail::Built<X>;
  if constexpr (!detail::require_step<detail::StepOf::dynamic_rnn, Cell, X, State>()) {
    return detail::never_made<RnnResult<S>>();
  } else {
    const detail::Operands first = detail::flattened(initial, at);
    const auto states = static_cast<std::ptrdiff_t>(first.size());
    Exprs all = detail::dynamic_rnn(
        detail::flattened(x, at), first,
        [&](const Exprs& v) {
          return detail::flattened(cell(detail::built<S>(Exprs(v.begin(), v.begin() + states)),
                                        detail::built<E>(Exprs(v.begin() + states, v.end()))),
                                   at);
        },
        options, "dynamic_rnn", at);
    return {all.back(), detail::built<S>(Exprs(all.begin(), all.end() - 1))};
  }
}

}  // namespace troupe
