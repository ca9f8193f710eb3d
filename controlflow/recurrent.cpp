#include <troupe/controlflow/recurrent.hpp>

#include <optional>

#include <fmt/format.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/functions.hpp>

namespace troupe {

namespace {

[[noreturn]] void refuse_layer(const char* what, const std::string& name, const Site& at,
                               const std::string& why) {
  throw Error(Code::invalid_argument,
              name.empty() ? fmt::format("{} ({}): {}", what, at.text(), why)
                           : fmt::format("{} '{}' ({}): {}", what, name, at.text(), why));
}

Shape shape_of_operand(const Operand& o) {
  return o.is_expr() ? o.expr().shape() : o.literal().shape();
}

// x, whose extent along `axis` is that of `other` along `of`: where one is not known yet they are
// compared when it runs, lest 1 be taken for all.
Operand matched(const char* function, const char* what, const Operand& x, int axis,
                const Operand& other, int of, const Site& at) {
  const Shape a = shape_of_operand(x), b = shape_of_operand(other);
  if (!a.has_rank() || !b.has_rank() || (a[axis] >= 0 && b[of] >= 0)) return x;
  const Attrs attrs{{"function", std::string(function)},
                    {"what", std::string(what)},
                    {"axis", std::int64_t{axis}},
                    {"of", std::int64_t{of}}};
  const Operand both[] = {x, other};
  return Operand(bind1("MatchExtents", both, attrs, at), at);
}

// The layer that an error is about, and its known sizes.
class Layer {
 public:
  /// Nodes that are bound while it lives carry the user's line `at`.
  Layer(const char* what, std::string name, const Site& at, std::int64_t gates,
        const Operands& operands)
      : what_(what), name_(std::move(name)), at_(at), gates_(gates) {
    Reader* reader = reader_of(operands);
    if (!reader) return;
    at_ = reader->current().site_for(at);
    here_.emplace(*reader, at_);
  }

  [[noreturn]] void refused(const std::string& why) const { refuse_layer(what_, name_, at_, why); }

  /// Throws unless the argument has so many axes, as far as is known.
  void require_rank(const char* argument, const Operand& o, int rank, const char* axes) const {
    if (Shape s = shape_of_operand(o); s.has_rank() && s.rank() != rank)
      refused(fmt::format("'{}' must be {}, not {}", argument, axes, s.text()));
  }
  /// `extent` of the argument's axis is `per` for each unit.
  void learn(const char* argument, const Operand& o, int axis, std::int64_t per) {
    Shape s = shape_of_operand(o);
    if (!s.has_rank() || s[axis] < 0) return;
    if (s[axis] % per != 0)
      refused(fmt::format("'{}' is {}: extent {} of axis {} is no multiple of the {} gates",
                          argument, s.text(), s[axis], axis, per));
    if (units_ >= 0 && units_ != s[axis] / per)
      refused(fmt::format("'{}' is {}, which makes {} units, but '{}' makes {}", argument, s.text(),
                          s[axis] / per, told_by_, units_));
    units_ = s[axis] / per;
    told_by_ = argument;
  }
  void learn_state(const char* argument, const Operand& o) {
    require_rank(argument, o, 2, "[batch, units]");
    learn(argument, o, 1, 1);
  }
  void learn_recurrent(const Operand& o) {
    require_rank("recurrent", o, 2, of_gates("units, ").c_str());
    learn("recurrent", o, 0, 1);
    learn("recurrent", o, 1, gates_);
  }
  void learn_weights(const RecurrentWeights& w) {
    learn_recurrent(w.recurrent);
    require_rank("input", w.input, 2, of_gates("features, ").c_str());
    learn("input", w.input, 1, gates_);
    require_rank("bias", w.bias, 1, of_gates("").c_str());
    learn("bias", w.bias, 0, gates_);
  }
  /// Returns the weights; columns that are not known yet are compared when the program runs.
  RecurrentWeights matched(RecurrentWeights w) const {
    w.input =
        troupe::matched(what_, "the number of columns of 'input'", w.input, 1, w.recurrent, 1, at_);
    w.bias = troupe::matched(what_, "the length of 'bias'", w.bias, 0, w.recurrent, 1, at_);
    return w;
  }
  /// x's features are the input weights' rows.
  void require_features(const Operand& x, const RecurrentWeights& w) const {
    Shape s = shape_of_operand(x), rows = shape_of_operand(w.input);
    if (!s.has_rank() || !rows.has_rank() || s[s.rank() - 1] < 0 || rows[0] < 0 ||
        s[s.rank() - 1] == rows[0])
      return;
    refused(fmt::format("'x' is {}: {} features, but 'input' is {}", s.text(), s[s.rank() - 1],
                        rows.text()));
  }
  std::int64_t units() const {
    if (units_ < 0) refused("the number of units is not known; give 'recurrent' a known shape");
    return units_;
  }
  /// Axes that end with the units of all gates.
  std::string of_gates(const char* before) const {
    return gates_ == 1 ? fmt::format("[{}units]", before)
                       : fmt::format("[{}{} * units]", before, gates_);
  }
  std::vector<std::int64_t> pieces() const {
    return std::vector<std::int64_t>(static_cast<std::size_t>(gates_), units());
  }

 private:
  const char* what_;
  std::string name_;
  Site at_;
  std::int64_t gates_;
  std::int64_t units_ = -1;
  const char* told_by_ = "";
  std::optional<Reader::AtSite> here_;
};

LstmState lstm_step(const Expr& gates, const LstmState& state, const Operand& recurrent,
                    const std::vector<std::int64_t>& pieces) {
  Exprs g = split(gates + matmul(state.h, recurrent), pieces, -1);
  Expr c = sigmoid(g[1]) * state.c + sigmoid(g[0]) * tanh(g[2]);
  return {sigmoid(g[3]) * tanh(c), c};
}

Expr gru_step(const Expr& gates, const Expr& h, const Operand& recurrent,
              const std::vector<std::int64_t>& pieces) {
  Exprs in = split(gates, pieces, -1), kept = split(matmul(h, recurrent), pieces, -1);
  Expr reset = sigmoid(in[0] + kept[0]), update = sigmoid(in[1] + kept[1]);
  return update * h + (1.0 - update) * tanh(in[2] + reset * kept[2]);
}

Expr rnn_step(const Expr& projected, const Expr& h, const Operand& recurrent,
              RnnActivation activation) {
  Expr sums = projected + matmul(h, recurrent);
  return activation == RnnActivation::tanh ? tanh(sums) : relu(sums);
}

// Zeros [batch, units] for gates [time, batch, n * units], whose batch may be unknown and time
// zero: the sum over none of the steps.
Expr first_state(const Expr& gates, std::int64_t units) {
  return zeros_like(sum(slice(gates, {0, 0, 0}, {0, -1, units}), {0}));
}

}  // namespace

LstmState lstm_cell(Operand x, const LstmState& state, const RecurrentWeights& weights) {
  Layer layer("lstm_cell", {}, x.site(), 4, {x, state.h, weights.recurrent});
  layer.require_rank("x", x, 2, "[batch, features]");
  layer.learn_weights(weights);
  layer.require_features(x, weights);
  const RecurrentWeights w = layer.matched(weights);
  return lstm_cell(matmul(x, w.input) + w.bias, state, w.recurrent);
}

LstmState lstm_cell(Operand projected, const LstmState& state, Operand recurrent) {
  Layer layer("lstm_cell", {}, projected.site(), 4, {projected, state.h, recurrent});
  layer.learn_recurrent(recurrent);
  layer.require_rank("projected", projected, 2, "[batch, 4 * units]");
  layer.learn("projected", projected, 1, 4);
  layer.learn_state("state.h", state.h);
  layer.learn_state("state.c", state.c);
  return lstm_step(identity(projected), state, recurrent, layer.pieces());
}

Expr gru_cell(Operand x, Operand h, const RecurrentWeights& weights) {
  Layer layer("gru_cell", {}, x.site(), 3, {x, h, weights.recurrent});
  layer.require_rank("x", x, 2, "[batch, features]");
  layer.learn_weights(weights);
  layer.require_features(x, weights);
  const RecurrentWeights w = layer.matched(weights);
  return gru_cell(matmul(x, w.input) + w.bias, h, w.recurrent);
}

Expr gru_cell(Operand projected, Operand h, Operand recurrent) {
  Layer layer("gru_cell", {}, projected.site(), 3, {projected, h, recurrent});
  layer.learn_recurrent(recurrent);
  layer.require_rank("projected", projected, 2, "[batch, 3 * units]");
  layer.learn("projected", projected, 1, 3);
  layer.learn_state("h", h);
  return gru_step(identity(projected), identity(h), recurrent, layer.pieces());
}

Expr rnn_cell(Operand x, Operand h, const RecurrentWeights& weights, RnnActivation activation) {
  Layer layer("rnn_cell", {}, x.site(), 1, {x, h, weights.recurrent});
  layer.require_rank("x", x, 2, "[batch, features]");
  layer.learn_weights(weights);
  layer.require_features(x, weights);
  layer.learn_state("h", h);
  const RecurrentWeights w = layer.matched(weights);
  return rnn_step(matmul(x, w.input) + w.bias, identity(h), w.recurrent, activation);
}

namespace {

template <class Fail>
void require_lengths(const Expr& lengths, Fail fail) {
  const ValueSpec spec = lengths.spec();
  if ((spec.dtype != DType::i32 && spec.dtype != DType::i64) ||
      (spec.shape.has_rank() && spec.shape.rank() != 1))
    fail("'lengths' must be i32 or i64, [batch], not " + spec.text());
}

// The layer as one op: the states after the last step, then the outputs. `initial`: as many as the
// cell has, or none, for zeros.
Exprs fused_layer(const Layer& layer, const char* cell, const Operand& x, const RecurrentWeights& w,
                  Exprs initial, std::size_t states, const RnnOptions& options, const Site& at) {
  Expr projected = matmul(x, w.input);
  while (initial.size() < states) initial.push_back(first_state(projected, layer.units()));
  Operands operands{Operand(projected, at), w.recurrent, w.bias};
  for (const Expr& e : initial) operands.emplace_back(e, at);
  if (!options.lengths.is_empty()) {
    require_lengths(options.lengths, [&](const std::string& why) { layer.refused(why); });
    operands.emplace_back(options.lengths, at);
  }
  const Exprs made = bind_op("RecurrentLayer", operands,
                             Attrs{{"cell", std::string(cell)}, {"reverse", options.reverse}}, at);
  Exprs all(made.begin() + 1, made.begin() + 1 + static_cast<std::ptrdiff_t>(states));
  all.push_back(made[0]);
  return all;
}

RnnResult<LstmState> lstm_layer(const Operand& x, const RecurrentWeights& weights,
                                const LstmState* initial, const RnnOptions& options,
                                const Site& at) {
  Layer layer("lstm", options.name, at, 4, {x, weights.input, weights.recurrent});
  layer.require_rank("x", x, 3, "[time, batch, features]");
  layer.learn_weights(weights);
  layer.require_features(x, weights);
  const RecurrentWeights w = layer.matched(weights);
  if (initial)
    layer.learn_state("initial.h", initial->h), layer.learn_state("initial.c", initial->c);
  if (options.fused) {
    Exprs all = fused_layer(layer, "lstm", x, w, initial ? Exprs{initial->h, initial->c} : Exprs{},
                            2, options, at);
    return {all[2], {all[0], all[1]}};
  }
  const auto pieces = layer.pieces();
  Expr gates = matmul(x, w.input) + w.bias;
  LstmState first =
      initial ? *initial
              : LstmState{first_state(gates, layer.units()), first_state(gates, layer.units())};
  Exprs all = detail::dynamic_rnn(
      {Operand(gates, at)}, flattened(first, at),
      [&](const Exprs& v) {
        return flattened(lstm_step(v[2], {v[0], v[1]}, w.recurrent, pieces), at);
      },
      options, "lstm", at);
  return {all[2], {all[0], all[1]}};
}

RnnResult<Expr> gru_layer(const Operand& x, const RecurrentWeights& weights, const Expr* initial,
                          const RnnOptions& options, const Site& at) {
  Layer layer("gru", options.name, at, 3, {x, weights.input, weights.recurrent});
  layer.require_rank("x", x, 3, "[time, batch, features]");
  layer.learn_weights(weights);
  layer.require_features(x, weights);
  const RecurrentWeights w = layer.matched(weights);
  if (initial) layer.learn_state("initial", *initial);
  if (options.fused) {
    Exprs all =
        fused_layer(layer, "gru", x, w, initial ? Exprs{*initial} : Exprs{}, 1, options, at);
    return {all[1], all[0]};
  }
  const auto pieces = layer.pieces();
  Expr gates = matmul(x, w.input) + w.bias;
  Exprs all = detail::dynamic_rnn(
      {Operand(gates, at)}, {Operand(initial ? *initial : first_state(gates, layer.units()), at)},
      [&](const Exprs& v) {
        return Operands{Operand(gru_step(v[1], v[0], w.recurrent, pieces), at)};
      },
      options, "gru", at);
  return {all[1], all[0]};
}

RnnResult<Expr> rnn_layer(const Operand& x, const RecurrentWeights& weights, const Expr* initial,
                          RnnActivation activation, const RnnOptions& options, const Site& at) {
  Layer layer("rnn", options.name, at, 1, {x, weights.input, weights.recurrent});
  layer.require_rank("x", x, 3, "[time, batch, features]");
  layer.learn_weights(weights);
  layer.require_features(x, weights);
  const RecurrentWeights w = layer.matched(weights);
  if (initial) layer.learn_state("initial", *initial);
  Exprs all;
  if (options.fused) {
    all = fused_layer(layer, activation == RnnActivation::tanh ? "tanh" : "relu", x, w,
                      initial ? Exprs{*initial} : Exprs{}, 1, options, at);
  } else {
    Expr projected = matmul(x, w.input) + w.bias;
    all = detail::dynamic_rnn(
        {Operand(projected, at)},
        {Operand(initial ? *initial : first_state(projected, layer.units()), at)},
        [&](const Exprs& v) {
          return Operands{Operand(rnn_step(v[1], v[0], w.recurrent, activation), at)};
        },
        options, "rnn", at);
  }
  return {all[1], all[0]};
}

// `layer(x, weights, options)`, forwards and backwards.
template <class State, class Layer>
RnnResult<std::vector<State>> both_ways(Layer layer, const char* what, const Operand& x,
                                        const RecurrentWeights& forward,
                                        const RecurrentWeights& backward, const RnnOptions& options,
                                        const Site& at) {
  if (options.reverse)
    refuse_layer(what, options.name, at, "it goes both ways: leave 'reverse' out");
  RnnOptions there = options, back = options;
  back.reverse = true;
  if (!options.name.empty()) there.name += "_forward", back.name += "_backward";
  auto a = layer(x, forward, there);
  auto b = layer(x, backward, back);
  const Reader::AtSite here(a.outputs.reader(), at);
  return {concat({a.outputs, b.outputs}, 2), {a.state, b.state}};
}

template <class State, class Layer>
RnnResult<std::vector<State>> stacked(Layer layer, const char* what, Operand x,
                                      const std::vector<RecurrentWeights>& layers,
                                      const RnnOptions& options, const Site& at) {
  if (layers.empty()) refuse_layer(what, options.name, at, "there is no layer");
  RnnResult<std::vector<State>> all;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    RnnOptions mine = options;
    if (!options.name.empty()) mine.name += fmt::format("_{}", i + 1);
    auto made = layer(i == 0 ? x : Operand(all.outputs, at), layers[i], mine);
    all.outputs = made.outputs;
    all.state.push_back(made.state);
  }
  return all;
}

}  // namespace

RnnResult<LstmState> lstm(Operand x, const RecurrentWeights& weights, const RnnOptions& options,
                          std::source_location at) {
  return lstm_layer(x, weights, nullptr, options, at);
}
RnnResult<LstmState> lstm(Operand x, const RecurrentWeights& weights, const LstmState& initial,
                          const RnnOptions& options, std::source_location at) {
  return lstm_layer(x, weights, &initial, options, at);
}
RnnResult<Expr> gru(Operand x, const RecurrentWeights& weights, const RnnOptions& options,
                    std::source_location at) {
  return gru_layer(x, weights, nullptr, options, at);
}
RnnResult<Expr> gru(Operand x, const RecurrentWeights& weights, Expr initial,
                    const RnnOptions& options, std::source_location at) {
  return gru_layer(x, weights, &initial, options, at);
}

RnnResult<Expr> rnn(Operand x, const RecurrentWeights& weights, RnnActivation activation,
                    const RnnOptions& options, std::source_location at) {
  return rnn_layer(x, weights, nullptr, activation, options, at);
}
RnnResult<Expr> rnn(Operand x, const RecurrentWeights& weights, Expr initial,
                    RnnActivation activation, const RnnOptions& options, std::source_location at) {
  return rnn_layer(x, weights, &initial, activation, options, at);
}

RnnResult<std::vector<LstmState>> bidirectional_lstm(Operand x, const RecurrentWeights& forward,
                                                     const RecurrentWeights& backward,
                                                     const RnnOptions& options,
                                                     std::source_location at) {
  auto layer = [&](const Operand& in, const RecurrentWeights& w, const RnnOptions& o) {
    return lstm_layer(in, w, nullptr, o, at);
  };
  return both_ways<LstmState>(layer, "bidirectional_lstm", x, forward, backward, options, at);
}
RnnResult<Exprs> bidirectional_gru(Operand x, const RecurrentWeights& forward,
                                   const RecurrentWeights& backward, const RnnOptions& options,
                                   std::source_location at) {
  auto layer = [&](const Operand& in, const RecurrentWeights& w, const RnnOptions& o) {
    return gru_layer(in, w, nullptr, o, at);
  };
  return both_ways<Expr>(layer, "bidirectional_gru", x, forward, backward, options, at);
}

RnnResult<std::vector<LstmState>> lstm_layers(Operand x,
                                              const std::vector<RecurrentWeights>& layers,
                                              const RnnOptions& options, std::source_location at) {
  auto layer = [&](const Operand& in, const RecurrentWeights& w, const RnnOptions& o) {
    return lstm_layer(in, w, nullptr, o, at);
  };
  return stacked<LstmState>(layer, "lstm_layers", x, layers, options, at);
}
RnnResult<Exprs> gru_layers(Operand x, const std::vector<RecurrentWeights>& layers,
                            const RnnOptions& options, std::source_location at) {
  auto layer = [&](const Operand& in, const RecurrentWeights& w, const RnnOptions& o) {
    return gru_layer(in, w, nullptr, o, at);
  };
  return stacked<Expr>(layer, "gru_layers", x, layers, options, at);
}

namespace detail {
namespace {

// mask [batch] for values of `rank` axes.
Expr aligned(Expr mask, int rank) {
  for (int axis = 1; axis < rank; ++axis) mask = expand_dims(mask, axis);
  return mask;
}

}  // namespace

Exprs dynamic_rnn(const Operands& elements, const Operands& initial, const LoopBody& cell,
                  const RnnOptions& options, const char* what, const Site& at) {
  auto fail = [&](const std::string& why) { refuse_layer(what, options.name, at, why); };
  if (initial.empty()) fail("there is no state");
  const ScanOptions scanning{.name = options.name,
                             .parallel_iterations = options.parallel_iterations,
                             .reverse = options.reverse};
  const auto states = initial.size();
  auto checked = [&](const Exprs& v) {
    Operands next = cell(v);
    if (next.size() != states)
      fail(fmt::format("the cell yields {} values for a state of {}", next.size(), states));
    return next;
  };
  if (options.lengths.is_empty()) {
    return scan(
        elements, initial,
        [&](const Exprs& v) {
          Operands next = checked(v);
          next.push_back(next[0]);
          return next;
        },
        states, scanning, what, at);
  }

  require_lengths(options.lengths, fail);
  const ValueSpec spec = options.lengths.spec();
  for (const Operand& x : elements)
    if (Shape s = shape_of_operand(x); spec.shape.has_rank() && spec.shape[0] >= 0 &&
                                       s.has_rank() && s.rank() >= 2 && s[1] >= 0 &&
                                       s[1] != spec.shape[0])
      fail(fmt::format("'lengths' is {}, for elements {} of a batch of {}", spec.text(), s.text(),
                       s[1]));
  for (const Operand& x : elements)
    if (Shape s = shape_of_operand(x); s.has_rank() && s.rank() < 2)
      fail("an element must be [time, batch, ...], not " + s.text());
  if (elements.empty()) fail("there are no elements to go over");
  for (const Operand& s : initial)
    if (!shape_of_operand(s).has_rank() || shape_of_operand(s).rank() < 1)
      fail("with 'lengths' each part of the state must be [batch, ...] of a known rank");
  // The time is one more part of the state.
  Expr lengths, start;
  {
    const Reader::AtSite here(options.lengths.reader(), at);
    lengths =
        cast(matched(what, "the batch", Operand(options.lengths, at), 0, elements[0], 1, at).expr(),
             DType::i64);
    start = options.reverse ? reshape(slice(shape_of(elements[0]), {0}, {1}), Shape{}) - 1
                            : lengths.reader().constant(std::int64_t{0});
  }
  Operands first = initial;
  first.emplace_back(start, at);
  Exprs all = scan(
      elements, first,
      [&](const Exprs& v) {
        const Expr t = v[states];
        Exprs arguments(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(states));
        arguments.insert(arguments.end(), v.begin() + static_cast<std::ptrdiff_t>(states) + 1,
                         v.end());
        const Operands made = checked(arguments);
        const Reader::AtSite here(t.reader(), at);
        const Expr counts = t < lengths;  // [batch]
        Operands next;
        for (std::size_t k = 0; k < states; ++k)
          next.emplace_back(where(aligned(counts, v[k].shape().rank()), made[k], v[k]), at);
        next.emplace_back(options.reverse ? t - 1 : t + 1, at);
        next.emplace_back(where(aligned(counts, v[0].shape().rank()), made[0], 0.0), at);
        return next;
      },
      states + 1, scanning, what, at);
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(states));
  return all;
}

}  // namespace detail
}  // namespace troupe
