// The Transformer (Vaswani et al., NeurIPS 2017) as a language model: each position sees those
// before it. Normalisation comes before each part, and the table of symbols is also the output's.
//
// Its dimensions have names for a layout over a mesh: batch, length, width, heads, depth, inner and
// vocabulary. Under "batch:rows;heads:cols;inner:cols;vocabulary:cols", say, rows of the mesh share
// a batch, and columns share the model.
//
//   Graph g;
//   TransformerModel model(g, {.symbols = 72, .context = 64, .hidden = 128, .layers = 2,
//                              .heads = 4});
//   Expr losses = model.losses(symbols, labels);           // i32 [batch, context] both
//   Expr step = Adam().minimize(sum(losses), model.variables());
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <troupe/apps/examples/char_lm/trainer.hpp>

namespace troupe::char_lm {

class TransformerModel {
 public:
  TransformerModel(Graph& g, const ModelOptions& o)
      : graph_(g),
        options_(o), length_{"length", o.context}, width_{"width", o.hidden}, heads_{"heads",
                                                                                     o.heads},
        depth_{"depth", o.hidden / o.heads}, inner_{"inner", kWiden * o.hidden}, vocabulary_{
                                                                                     "vocabulary",
                                                                                     o.symbols} {
    const double spread = 1 / std::sqrt(static_cast<double>(o.hidden));
    // Small rows, so that no symbol predicts itself at first: the table is the output's, too.
    table_ = add("embedding", {vocabulary_, width_}, 0.02);
    positions_ = add("positions", {length_, width_}, 0.02);
    // Sums of many parts begin small (Radford et al., 2019).
    const double part = spread / std::sqrt(2.0 * static_cast<double>(o.layers));
    for (std::int64_t i = 1; i <= o.layers; ++i) {
      const std::string at = fmt::format("layer{}", i);
      Layer l;
      l.normal = add_normal(at + "/normal1");
      for (const char* name : {"query", "key", "value"})
        l.projections.push_back(
            add(fmt::format("{}/{}", at, name), {width_, heads_, depth_}, spread));
      l.mixed = add(at + "/mixed", {heads_, depth_, width_}, part);
      l.normal2 = add_normal(at + "/normal2");
      l.in = add(at + "/in", {width_, inner_}, spread);
      l.in_bias = add(at + "/in_bias", {inner_}, 0);
      l.out = add(at + "/out", {inner_, width_}, part / std::sqrt(static_cast<double>(kWiden)));
      layers_.push_back(std::move(l));
    }
    last_ = add_normal("normal");
  }

  /// symbols: i32 [rows, context]; result: [rows, context, symbols]. `rows`: the dimension of the
  /// first axis.
  Expr logits(const Expr& symbols, const mesh::Dim& rows) const {
    const mesh::Dims dims{rows, length_, width_};
    Expr x = gather(read(table_), mesh::named(symbols, {rows, length_})) +
             mesh::aligned(read(positions_), dims);
    for (const Layer& l : layers_) {
      x = x + attended(l, normal(x, l.normal), rows);
      const Expr wide = mesh::einsum({normal(x, l.normal2), read(l.in)}, {rows, length_, inner_}) +
                        read(l.in_bias);
      x = x + mesh::einsum({gelu(wide), read(l.out)}, dims);
    }
    return mesh::einsum({normal(x, last_), read(table_)}, {rows, length_, vocabulary_});
  }
  /// labels: i32 [rows, context], -1 where a position does not count; result: of that shape, in
  /// nats.
  Expr losses(const Expr& symbols, const Expr& labels, const mesh::Dim& rows) const {
    const Expr wanted = mesh::named(labels, {rows, length_});
    return cross_entropy(logits(symbols, rows), maximum(wanted, 0)) * cast(wanted >= 0, DType::f32);
  }

  std::vector<Variable> variables() const { return variables_; }

 private:
  static constexpr std::int64_t kWiden = 4;  // the inner layer, in widths

  struct Weight {
    Variable variable;
    mesh::Dims dims;
  };
  struct Normal {
    Weight scale, bias;
  };
  struct Layer {
    Normal normal, normal2;
    std::vector<Weight> projections;
    Weight mixed, in, in_bias, out;
  };

  Weight add(const std::string& name, const mesh::Dims& dims, double deviation) {
    return add(name, dims,
               deviation == 0 ? Initializer::constant(0)
                              : Initializer::normal(0, deviation, options_.seed));
  }
  Weight add(const std::string& name, const mesh::Dims& dims, const Initializer& start) {
    Shape shape;
    for (const mesh::Dim& d : dims) shape.push_back(d.size);
    variables_.push_back(graph_.variable(name, DType::f32, shape, start));
    return {variables_.back(), dims};
  }
  Normal add_normal(const std::string& name) {
    return {add(name + "/scale", {width_}, Initializer::constant(1)),
            add(name + "/bias", {width_}, 0.0)};
  }
  static Expr read(const Weight& w) { return mesh::named(w.variable.read(), w.dims); }
  static Expr normal(const Expr& x, const Normal& n) {
    return layer_norm(x, read(n.scale), read(n.bias));
  }

  Expr attended(const Layer& l, const Expr& x, const mesh::Dim& rows) const {
    const mesh::Dims of_heads{rows, heads_, length_, depth_};
    Exprs parts;
    for (const Weight& w : l.projections) parts.push_back(mesh::einsum({x, read(w)}, of_heads));
    const Expr seen = attention(parts[0], parts[1], parts[2], true);
    return mesh::einsum({seen, read(l.mixed)}, {rows, length_, width_});
  }

  Graph& graph_;
  const ModelOptions options_;
  const mesh::Dim length_, width_, heads_, depth_, inner_, vocabulary_;
  std::vector<Variable> variables_;
  Weight table_, positions_;
  std::vector<Layer> layers_;
  Normal last_;
};

}  // namespace troupe::char_lm
