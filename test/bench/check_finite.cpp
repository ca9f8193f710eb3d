// The cost of CompileOptions::check_finite: a training step of the perceptron of mlp.cpp and one of
// an LSTM of 50 steps of time, with and without it, in turn, on one worker.
#include <troupe/actors/engine/engine.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/controlflow/recurrent.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/bench.hpp>
#include <troupe/test/bench/pattern.hpp>

#include <cmath>

namespace {

using namespace troupe;
constexpr int kRepetitions = 15;

void compare(const char* name, int steps, const Function& on, const Function& off,
             const std::vector<Tensor>& feeds) {
  bench::Comparison c{.name = name,
                      .unit = "ns a step",
                      .peer = "the step without check_finite",
                      .peer_version = "same build",
                      .budget = 1.3};
  const auto time = [&](const Function& f) {
    const double start = bench::now_ns();
    for (int i = 0; i < steps; ++i) f(feeds);
    return (bench::now_ns() - start) / steps;
  };
  for (int i = 0; i < 2; ++i) time(on), time(off);
  for (int i = 0; i < kRepetitions; ++i) {
    c.ours.push_back(time(on));
    c.theirs.push_back(time(off));
  }
  c.print();
}

void measure(Engine& engine, const char* name, int steps, Graph& g, const std::vector<Expr>& inputs,
             const std::vector<Expr>& fetches, const std::vector<Tensor>& feeds) {
  CompileOptions watched;
  watched.check_finite = true;
  compare(name, steps, engine.compile(g, inputs, fetches, watched),
          engine.compile(g, inputs, fetches), feeds);
}

Variable weight(Graph& g, const std::string& name, const Shape& shape) {
  const double rows = static_cast<double>(shape[0]);
  return g.variable(name, bench::pattern(shape, 2 * std::sqrt(3.0 / rows), 7));
}

void mlp(Engine& engine) {
  Graph g;
  constexpr std::int64_t kWidths[] = {784, 512, 512, 10};
  Expr x = g.input("x", DType::f32, {64, 784}), t = g.input("t", DType::i64, {64});
  std::vector<Variable> weights;
  Expr h = x;
  for (int i = 0; i < 3; ++i) {
    const std::string layer = "layer" + std::to_string(i);
    weights.push_back(weight(g, layer + "/w", {kWidths[i], kWidths[i + 1]}));
    weights.push_back(g.variable(layer + "/b", Tensor::zeros(DType::f32, {kWidths[i + 1]})));
    h = matmul(h, weights[weights.size() - 2]) + weights.back();
    if (i < 2) h = relu(h);
  }
  Expr loss = mean(cross_entropy(h, t));
  Expr step = Sgd({.learning_rate = 0.01}).minimize(loss, weights);
  measure(engine, "check_finite_mlp", 20, g, {x, t}, {loss, step},
          {bench::pattern({64, 784}, 2, 100), bench::labels(64, 10, 200)});
}

void lstm_step(Engine& engine, bool fused) {
  Graph g;
  constexpr std::int64_t kTime = 50, kBatch = 32, kFeatures = 128, kUnits = 256;
  Expr x = g.input("x", DType::f32, {kTime, kBatch, kFeatures}),
       target = g.input("target", DType::f32, {kTime, kBatch, kUnits});
  std::vector<Variable> weights{weight(g, "input", {kFeatures, 4 * kUnits}),
                                weight(g, "recurrent", {kUnits, 4 * kUnits}),
                                g.variable("bias", Tensor::zeros(DType::f32, {4 * kUnits}))};
  auto [outputs, last] = lstm(x, {weights[0], weights[1], weights[2]}, {.fused = fused});
  Expr loss = mean(square(outputs - target));
  measure(engine, fused ? "check_finite_lstm_fused" : "check_finite_lstm", 3, g, {x, target},
          {loss, Sgd({.learning_rate = 0.1}).minimize(loss, weights)},
          {bench::pattern({kTime, kBatch, kFeatures}, 2, 100),
           bench::pattern({kTime, kBatch, kUnits}, 1, 200)});
}

}  // namespace

int main() {
  EngineOptions one;
  one.workers = 1;
  Engine engine(one);
  mlp(engine);
  lstm_step(engine, false);
  lstm_step(engine, true);
}
