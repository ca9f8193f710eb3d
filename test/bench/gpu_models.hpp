// Models that a GPU trains in test/bench/gpu.cpp, each also in scripts/peers/gpu_torch.py, with the
// same starting weights, batches and update.
//
//   Training t(lstm({.batch = 64}), "gpu:0", DType::f32);
//   std::vector<float> losses = t.steps(3);
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <troupe/autodiff/optimizer.hpp>
#include <troupe/controlflow/recurrent.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/pattern.hpp>
#include <troupe/test/bench/training.hpp>

namespace troupe::bench {

/// A graph with its loss, and the values that a training begins with.
struct Model {
  std::string name;     // `lstm_512`
  std::string request;  // the peer's words for the same model: `lstm 100 64 512`
  Graph graph;
  std::vector<Expr> inputs;
  std::vector<Tensor> batch;
  std::vector<Variable> weights;
  std::vector<Tensor> starts;
  Expr loss;
  double rate = 0.05;

  Expr input(const Tensor& value) {
    batch.push_back(value);
    inputs.push_back(graph.input(fmt::format("x{}", inputs.size()), value.dtype(), value.shape()));
    return inputs.back();
  }
  Expr parameter(Tensor start) {
    weights.push_back(variable(graph, fmt::format("w{}", weights.size()), start));
    starts.push_back(std::move(start));
    return weights.back().read();
  }
  /// Seeded by its place among the parameters; `summed` elements go into one of a result.
  Expr weight(const Shape& shape, std::int64_t summed) {
    return parameter(pattern(shape, 2 * std::sqrt(3.0 / static_cast<double>(summed)),
                             static_cast<std::uint32_t>(weights.size() + 1)));
  }
  Expr zeros(std::int64_t n) { return parameter(Tensor::zeros(DType::f32, {n})); }
};
using ModelPtr = std::unique_ptr<Model>;

inline ModelPtr mlp(std::int64_t batch, std::int64_t width) {
  auto m = std::make_unique<Model>();
  m->name = fmt::format("mlp_{}", width);
  m->request = fmt::format("mlp {} {}", batch, width);
  Expr h = m->input(pattern({batch, width}, 2, 100)), t = m->input(labels(batch, 10, 200));
  for (const std::int64_t out : {width, width, std::int64_t{10}}) {
    const std::int64_t in = h.shape()[1];
    const Expr w = m->weight({in, out}, in);
    h = matmul(h, w) + m->zeros(out);
    if (out != 10) h = relu(h);
  }
  m->loss = mean(cross_entropy(h, t));
  return m;
}

inline ModelPtr lstm_layer(std::int64_t time, std::int64_t batch, std::int64_t units) {
  auto m = std::make_unique<Model>();
  m->name = fmt::format("lstm_{}", units);
  m->request = fmt::format("lstm {} {} {}", time, batch, units);
  m->rate = 0.5;
  Expr x = m->input(pattern({time, batch, units}, 2, 100)),
       target = m->input(pattern({time, batch, units}, 1, 200));
  const Expr w = m->weight({units, 4 * units}, units), r = m->weight({units, 4 * units}, units),
             b = m->zeros(4 * units);
  auto [outputs, last] = lstm(x, {w, r, b}, {.fused = true});
  m->loss = mean(square(outputs - target));
  return m;
}

inline ModelPtr transformer_layer(std::int64_t batch, std::int64_t positions, std::int64_t width,
                                  std::int64_t depth) {
  auto m = std::make_unique<Model>();
  m->name = fmt::format("transformer_{}", width);
  m->request = fmt::format("transformer {} {} {} {}", batch, positions, width, depth);
  m->rate = 0.1;
  Expr x = m->input(pattern({batch, positions, width}, 2, 100)),
       target = m->input(pattern({batch, positions, width}, 2, 200));
  const auto norm = [&](const Expr& of) {
    const Expr scale = m->parameter(ones({width}));
    return layer_norm(of, scale, m->zeros(width));
  };
  const auto dense = [&](const Expr& of, std::int64_t in, std::int64_t out) {
    const Expr w = m->weight({in, out}, in);
    return matmul(of, w) + m->zeros(out);
  };
  const std::int64_t heads = width / depth;
  Exprs parts = split(
      transpose(reshape(dense(norm(x), width, 3 * width), {batch, positions, 3, heads, depth}),
                {2, 0, 3, 1, 4}),
      {1, 1, 1});
  for (Expr& part : parts) part = squeeze(part, 0);
  const Expr seen = reshape(transpose(attention(parts[0], parts[1], parts[2]), {0, 2, 1, 3}),
                            {batch, positions, width});
  const Expr h = x + dense(seen, width, width);
  const Expr wide = gelu(dense(norm(h), width, 4 * width));
  m->loss = mean(square(h + dense(wide, 4 * width, width) - target));
  return m;
}

/// ResNet-50 (He et al., 2015), or fewer blocks and channels: `width` of the first stage.
inline ModelPtr resnet(std::int64_t batch, std::int64_t side, std::int64_t width,
                       const std::vector<int>& blocks) {
  auto m = std::make_unique<Model>();
  m->name = fmt::format("resnet_{}", width);
  m->request = fmt::format("resnet {} {} {}", batch, side, width);
  for (int n : blocks) m->request += fmt::format(" {}", n);
  m->rate = 0.01;
  Expr h = m->input(pattern({batch, side, side, 3}, 2, 100)), t = m->input(labels(batch, 10, 200));
  const auto normalized = [&](const Expr& x, std::int64_t filters, std::int64_t size,
                              std::int64_t stride) {
    const std::int64_t channels = x.shape()[3], around = size / 2;
    const Expr y = conv(x, m->weight({size, size, channels, filters}, size * size * channels),
                        {.strides = {stride, stride}, .padding = Padding::of({around, around})});
    const Expr scale = m->parameter(ones({filters}));
    return batch_norm(y, scale, m->zeros(filters))[0];
  };
  h = max_pool(relu(normalized(h, width, 7, 2)), {3, 3},
               {.strides = {2, 2}, .padding = Padding::of({1, 1})});
  std::int64_t channels = width;
  for (std::size_t stage = 0; stage < blocks.size(); ++stage, channels *= 2)
    for (int block = 0; block < blocks[stage]; ++block) {
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      Expr inner = relu(normalized(h, channels, 1, 1));
      inner = relu(normalized(inner, channels, 3, stride));
      inner = normalized(inner, 4 * channels, 1, 1);
      h = relu(inner + (block == 0 ? normalized(h, 4 * channels, 1, stride) : h));
    }
  h = global_avg_pool(h);
  const std::int64_t features = h.shape()[1];
  const Expr w = m->weight({features, 10}, features);
  m->loss = mean(cross_entropy(matmul(h, w) + m->zeros(10), t));
  return m;
}

/// One engine that trains a model on a device. `dtype`: f32, or the dtype of mixed precision.
class Training {
 public:
  Training(ModelPtr model, const std::string& device, DType dtype, EngineOptions options = {})
      : model_(std::move(model)), engine_(placed(std::move(options), device)) {
    CompileOptions compile;
    if (dtype != DType::f32) compile.mixed_precision = dtype;
    const Expr step = Sgd({.learning_rate = model_->rate}).minimize(model_->loss, model_->weights);
    step_ = engine_.compile(model_->graph, model_->inputs, {model_->loss, step}, compile);
    reset();
  }
  void reset() {
    for (std::size_t i = 0; i < model_->weights.size(); ++i)
      engine_.set(model_->weights[i], model_->starts[i]);
  }
  /// Makes `count` steps and returns the loss of each, which is fetched at every step.
  std::vector<float> steps(int count) {
    std::vector<float> losses;
    for (int i = 0; i < count; ++i) losses.push_back(step_(model_->batch)[0].item<float>());
    return losses;
  }
  std::vector<Tensor> weights() {
    std::vector<Tensor> all;
    for (const Variable& v : model_->weights) all.push_back(engine_.get(v));
    return all;
  }
  const Model& model() const { return *model_; }
  Engine& engine() { return engine_; }

 private:
  static EngineOptions placed(EngineOptions options, const std::string& device) {
    options.default_device = device;
    return options;
  }
  const ModelPtr model_;
  Engine engine_;
  Function step_;
};

}  // namespace troupe::bench
