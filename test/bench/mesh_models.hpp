// Models with named dimensions for the benchmark of meshes: a training step of each, on one device,
// over devices of one process, or over nodes, by its layout alone.
//
//   Trainer on_one(Model::mlp(), engine, std::nullopt);
//   Trainer cut(Model::mlp(), engine, Partitioning{mesh, Layout("batch:p")});
//   on_one.steps(3);                                            // ns a step
//
// scripts/peers/mesh_jax.py trains the same models.
#pragma once

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <troupe/autodiff/optimizer.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/mesh/functions.hpp>
#include <troupe/test/bench/pattern.hpp>
#include <troupe/test/bench/training.hpp>

namespace troupe::bench::meshed {

using mesh::Dim;
using mesh::Dims;

inline Shape shape_of(const Dims& dims) {
  Shape shape;
  for (const Dim& d : dims) shape.push_back(d.size);
  return shape;
}

/// A model's graph, while it is built: inputs with their batch, weights with their start.
class Builder {
 public:
  std::string prefix;  // begins the names of variables: one engine arranges a variable once
  Graph graph;
  Exprs inputs;
  std::vector<Tensor> batch;
  std::vector<Variable> variables;
  std::vector<Tensor> starts;

  Expr input(const std::string& name, const Dims& dims, Tensor value) {
    inputs.push_back(graph.input(name, value.dtype(), value.shape()));
    batch.push_back(std::move(value));
    return mesh::named(inputs.back(), dims);
  }
  /// `fan_in`: numbers that a result is a sum of; 0: it starts as zeros.
  Expr weight(const std::string& name, const Dims& dims, std::int64_t fan_in) {
    const auto seed = static_cast<std::uint32_t>(variables.size() + 1);
    starts.push_back(fan_in == 0 ? Tensor::zeros(DType::f32, shape_of(dims))
                                 : pattern(shape_of(dims),
                                           2 * std::sqrt(3.0 / static_cast<double>(fan_in)), seed));
    variables.push_back(variable(graph, prefix + name, starts.back()));
    return mesh::named(variables.back().read(), dims);
  }
};

struct Model {
  std::string name;
  std::string data, split;  // layouts over the mesh axis `p`: by data, by model
  double rate;
  std::function<Expr(Builder&)> loss;

  /// 784-2048-2048-10, batch 256. By model: the first product by columns, the second by rows.
  static Model mlp() {
    return {"mlp", "batch:p", "first:p", 0.01, [](Builder& b) {
              const Dim batch{"batch", 256}, in{"in", 784}, first{"first", 2048},
                  second{"second", 2048}, out{"out", 10};
              const Expr x = b.input("x", {batch, in}, pattern({256, 784}, 2, 100)),
                         t = b.input("t", {batch}, labels(256, 10, 200));
              const Expr h =
                  relu(mesh::einsum({x, b.weight("w1", {in, first}, 784)}, {batch, first}) +
                       b.weight("b1", {first}, 0));
              const Expr y =
                  relu(mesh::einsum({h, b.weight("w2", {first, second}, 2048)}, {batch, second}) +
                       b.weight("b2", {second}, 0));
              return mean(cross_entropy(
                  mesh::einsum({y, b.weight("w3", {second, out}, 2048)}, {batch, out}), t));
            }};
  }

  /// A Transformer block: width 256, 8 heads, 64 positions, batch 16. By model: heads and the inner
  /// layer. `layers` of them in a row.
  static Model block(int layers = 1) {
    return {"block", "batch:p", "heads:p;inner:p", 0.01, [layers](Builder& b) {
              const Dim batch{"batch", 16}, length{"length", 64}, width{"width", 256};
              const Dims dims{batch, length, width};
              Expr x = b.input("x", dims, pattern(shape_of(dims), 2, 100));
              const Expr target = b.input("target", dims, pattern(shape_of(dims), 2, 200));
              for (int layer = 0; layer < layers; ++layer) x = block_of(b, x, layer);
              return mean(square(x - target));
            }};
  }

 private:
  static Expr block_of(Builder& b, const Expr& x, int layer) {
    const Dim batch{"batch", 16}, length{"length", 64}, width{"width", 256}, heads{"heads", 8},
        depth{"depth", 32}, inner{"inner", 1024};
    const Dims dims{batch, length, width}, of_heads{batch, heads, length, depth};
    const std::string at = "layer" + std::to_string(layer) + "/";
    const auto normal = [&](const Expr& e) {
      const Expr scale = b.graph.constant(ones({width.size})),
                 bias = b.graph.constant(Tensor::zeros(DType::f32, {width.size}));
      return layer_norm(e, scale, bias);
    };
    const Expr h = normal(x);
    Exprs parts;
    for (const char* name : {"q", "k", "v"})
      parts.push_back(
          mesh::einsum({h, b.weight(at + name, {width, heads, depth}, width.size)}, of_heads));
    const Expr seen = attention(parts[0], parts[1], parts[2]);
    const Expr y =
        x + mesh::einsum({seen, b.weight(at + "o", {heads, depth, width}, width.size)}, dims);
    const Expr wide = relu(mesh::einsum(
        {normal(y), b.weight(at + "f1", {width, inner}, width.size)}, {batch, length, inner}));
    return y + mesh::einsum({wide, b.weight(at + "f2", {inner, width}, inner.size)}, dims);
  }
};

inline mesh::Partitioning cut(const std::vector<std::string>& devices, const std::string& layout) {
  return {mesh::Mesh("p:" + std::to_string(devices.size()), devices), mesh::Layout(layout)};
}

class Trainer {
 public:
  /// `skip_passes` {"instances"} copies nodes to the devices.
  Trainer(const Model& model, Engine& engine, const std::optional<mesh::Partitioning>& p,
          std::vector<std::string> skip_passes = {})
      : engine_(engine) {
    builder_.prefix = model.name + (p ? "/" + p->layout.text() : "") + "/";
    const Expr loss = model.loss(builder_);
    const Expr train = Sgd({.learning_rate = model.rate}).minimize(loss, builder_.variables);
    CompileOptions options;
    options.mesh = p;
    options.skip_passes = std::move(skip_passes);
    step_ = engine_.compile(builder_.graph, builder_.inputs, {loss, train}, options);
    reset();
  }
  void reset() {
    for (std::size_t i = 0; i < builder_.variables.size(); ++i)
      engine_.set(builder_.variables[i], builder_.starts[i]);
  }
  /// ns a step; the losses go to `losses`.
  double steps(int count, std::vector<float>* losses = nullptr) {
    return timed_steps(count, losses,
                       [this](std::size_t) { return step_(builder_.batch)[0].item<float>(); });
  }
  /// Elements of all weights.
  std::int64_t weights() const {
    std::int64_t n = 0;
    for (const Tensor& t : builder_.starts) n += t.elements();
    return n;
  }
  /// Bytes of a step's feeds.
  std::int64_t fed_bytes() const {
    std::int64_t n = 0;
    for (const Tensor& t : builder_.batch) n += t.bytes();
    return n;
  }
  std::string explain() const { return step_.explain(); }

 private:
  Engine& engine_;
  Builder builder_;
  Function step_;
};

}  // namespace troupe::bench::meshed
