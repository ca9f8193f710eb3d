// The window model: embeddings of the last n characters, side by side, through hidden layers to a
// softmax over the next one (Bengio et al., A Neural Probabilistic Language Model, JMLR 2003).
//
//   Graph g;
//   WindowModel model(g, {.symbols = 72, .context = 16, .embedding = 24, .hidden = 512,
//                         .layers = 2});
//   Expr loss = mean(cross_entropy(model.logits(contexts), labels));
//   Expr step = Adam().minimize(loss, model.variables());
#pragma once

#include <cmath>
#include <vector>

#include <fmt/format.h>

#include <troupe/apps/examples/char_lm/trainer.hpp>

namespace troupe::char_lm {

class WindowModel {
 public:
  WindowModel(Graph& g, const ModelOptions& o) : options_(o) {
    embedding_ = g.variable("embedding", DType::f32, {o.symbols, o.embedding},
                            Initializer::normal(0, 0.5, o.seed));
    std::int64_t in = o.context * o.embedding;
    for (std::int64_t i = 1; i <= o.layers; ++i) {
      add_layer(g, fmt::format("hidden{}", i), in, o.hidden,
                std::sqrt(2.0 / static_cast<double>(in)));
      in = o.hidden;
    }
    add_layer(g, "output", in, o.symbols, 0.5 / std::sqrt(static_cast<double>(in)));
  }

  /// contexts: [rows, context], i32; result: [rows, symbols].
  Expr logits(const Expr& contexts) const {
    Expr x = reshape(gather(embedding_, contexts), {kAny, options_.context * options_.embedding});
    for (std::size_t i = 0; i + 1 < layers_.size(); ++i)
      x = relu(matmul(x, layers_[i].weight) + layers_[i].bias);
    return matmul(x, layers_.back().weight) + layers_.back().bias;
  }

  std::vector<Variable> variables() const {
    std::vector<Variable> all{embedding_};
    for (const Layer& l : layers_) all.insert(all.end(), {l.weight, l.bias});
    return all;
  }

 private:
  struct Layer {
    Variable weight, bias;
  };
  void add_layer(Graph& g, const std::string& name, std::int64_t in, std::int64_t out,
                 double deviation) {
    layers_.push_back({g.variable(name + "/weight", DType::f32, {in, out},
                                  Initializer::normal(0, deviation, options_.seed)),
                       g.variable(name + "/bias", DType::f32, {out}, Initializer::constant(0))});
  }
  ModelOptions options_;
  Variable embedding_;
  std::vector<Layer> layers_;
};

}  // namespace troupe::char_lm
