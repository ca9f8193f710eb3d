// The LSTM model: embeddings through layers of long short-term memory (Hochreiter and Schmidhuber,
// Neural Computation, 1997) to a softmax over the next character. The loop over time is inside the
// graph, and as long as the symbols it is given.
//
//   Graph g;
//   LstmModel model(g, {.symbols = 72, .embedding = 32, .hidden = 256, .layers = 1});
//   auto [outputs, states] = model.read(symbols, lengths, model.zero_states(rows));
//   Expr losses = model.losses(outputs, labels);
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <troupe/apps/examples/char_lm/trainer.hpp>

namespace troupe::char_lm {

/// States, wherever they go in or come out, are h and c [rows, hidden] of the first layer, then of
/// the next.
class LstmModel {
 public:
  LstmModel(Graph& g, const ModelOptions& o) : options_(o), graph_(g) {
    embedding_ = g.variable("embedding", DType::f32, {o.symbols, o.embedding},
                            Initializer::normal(0, 0.5, o.seed));
    std::int64_t in = o.embedding;
    for (std::int64_t i = 1; i <= o.layers; ++i) {
      add_layer(fmt::format("lstm{}", i), in);
      in = o.hidden;
    }
    weight_ = g.variable("output/weight", DType::f32, {in, o.symbols},
                         Initializer::normal(0, 0.5 / std::sqrt(static_cast<double>(in)), o.seed));
    bias_ = g.variable("output/bias", DType::f32, {o.symbols}, Initializer::constant(0));
  }

  /// symbols: [time, rows]; lengths: [rows], or empty if all count. Outputs [time, rows, hidden],
  /// and the states after them.
  std::pair<Expr, Exprs> read(const Expr& symbols, const Expr& lengths, const Exprs& states) const {
    Expr x = gather(embedding_, symbols);
    Exprs last;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Layer& l = layers_[i];
      auto [outputs, state] =
          lstm(x, {l.input, l.recurrent, l.bias}, {states[2 * i], states[2 * i + 1]},
               {.name = l.name, .lengths = lengths});
      x = outputs;
      last.insert(last.end(), {state.h, state.c});
    }
    return {x, last};
  }

  Expr logits(const Expr& outputs) const { return matmul(outputs, weight_) + bias_; }

  /// outputs [time, rows, hidden], labels [time, rows], -1 where there is none; one number each,
  /// zero for those.
  Expr losses(const Expr& outputs, const Expr& labels) const {
    Expr flat = reshape(labels, {kAny});
    return cross_entropy(logits(reshape(outputs, {kAny, options_.hidden})), maximum(flat, 0)) *
           cast(flat >= 0, DType::f32);
  }

  Exprs zero_states(std::int64_t rows) const {
    return Exprs(2 * layers_.size(), graph_.zeros(DType::f32, {rows, options_.hidden}));
  }
  /// Variables for states that outlive a run: zero at first.
  std::vector<Variable> state_variables(std::int64_t rows) const {
    std::vector<Variable> all;
    for (const Layer& l : layers_)
      for (const char* part : {"h", "c"})
        all.push_back(graph_.variable(fmt::format("{}/{}", l.name, part), DType::f32,
                                      {rows, options_.hidden}, Initializer::constant(0)));
    return all;
  }

  /// The variables that are learnt.
  std::vector<Variable> variables() const {
    std::vector<Variable> all{embedding_};
    for (const Layer& l : layers_) all.insert(all.end(), {l.input, l.recurrent, l.bias});
    all.insert(all.end(), {weight_, bias_});
    return all;
  }

 private:
  struct Layer {
    std::string name;
    Variable input, recurrent, bias;
  };
  // Forget gates start open (Jozefowicz et al., ICML 2015); gates stand in the order of
  // <troupe/controlflow/recurrent.hpp>.
  void add_layer(const std::string& name, std::int64_t in) {
    const std::int64_t hidden = options_.hidden;
    auto weight = [&](const char* part, std::int64_t rows) {
      return graph_.variable(fmt::format("{}/{}", name, part), DType::f32, {rows, 4 * hidden},
                             Initializer::glorot(rows, hidden, options_.seed));
    };
    Tensor bias = Tensor::zeros(DType::f32, {4 * hidden});
    std::fill_n(bias.mutable_data<float>() + hidden, hidden, 1.f);
    layers_.push_back({name, weight("input", in), weight("recurrent", hidden),
                       graph_.variable(name + "/bias", bias)});
  }
  ModelOptions options_;
  Graph& graph_;
  Variable embedding_;
  std::vector<Layer> layers_;
  Variable weight_, bias_;
};

}  // namespace troupe::char_lm
