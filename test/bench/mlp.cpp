// A training step of a 784-512-512-10 perceptron, batch 64, f32: forward, cross-entropy, backward
// and an SGD update, against eager torch with its fused SGD, on one thread and on two.
//
// Both sides start from the same weights and take the same batches; the losses of the first steps
// must agree to 1e-3, or the benchmark ends with an error. The loss is fetched every step on both
// sides.
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/pattern.hpp>
#include <troupe/test/bench/training.hpp>

#include <cmath>

namespace {

using namespace troupe;
constexpr int kRepetitions = 11;
constexpr int kSteps = 40;
constexpr int kBatches = 8;
constexpr std::int64_t kBatch = 64;
constexpr std::int64_t kWidths[] = {784, 512, 512, 10};
constexpr double kRate = 0.05;

class Trainer {
 public:
  explicit Trainer(int workers) : engine_(bench::with_workers(workers)) {
    Expr x = graph_.input("x", DType::f32, {kBatch, kWidths[0]}),
         t = graph_.input("t", DType::i64, {kBatch});
    Expr h = x;
    for (int i = 0; i < 3; ++i) {
      const std::string layer = "layer" + std::to_string(i);
      weights_.push_back(bench::variable(graph_, layer + "/w", weight(i)));
      weights_.push_back(
          bench::variable(graph_, layer + "/b", Tensor::zeros(DType::f32, {kWidths[i + 1]})));
      h = matmul(h, weights_[weights_.size() - 2]) + weights_.back();
      if (i < 2) h = relu(h);
    }
    Expr loss = mean(cross_entropy(h, t));
    Expr train = Sgd({.learning_rate = kRate}).minimize(loss, weights_);
    step_ = engine_.compile(graph_, {x, t}, {loss, train});
    for (int i = 0; i < kBatches; ++i) {
      const auto seed = static_cast<std::uint32_t>(i);
      xs_.push_back(bench::pattern({kBatch, kWidths[0]}, 2, 100 + seed));
      ts_.push_back(bench::labels(kBatch, 10, 200 + seed));
    }
    reset();
  }

  void reset() {
    for (int i = 0; i < 3; ++i) {
      engine_.set(weights_[static_cast<std::size_t>(2 * i)], weight(i));
      engine_.set(weights_[static_cast<std::size_t>(2 * i + 1)],
                  Tensor::zeros(DType::f32, {kWidths[i + 1]}));
    }
  }

  /// ns a step; the losses go to `losses`.
  double steps(int count, std::vector<float>* losses = nullptr) {
    return bench::timed_steps(count, losses, [this](std::size_t i) {
      return step_({xs_[i % kBatches], ts_[i % kBatches]})[0].item<float>();
    });
  }
  std::string explain() const { return step_.explain(); }

 private:
  static Tensor weight(int i) {
    const auto rows = kWidths[i], columns = kWidths[i + 1];
    return bench::pattern({rows, columns}, 2 * std::sqrt(3.0 / static_cast<double>(rows)),
                          static_cast<std::uint32_t>(i + 1));
  }

  Graph graph_;
  Engine engine_;
  std::vector<Variable> weights_;
  Function step_;
  std::vector<Tensor> xs_, ts_;
};

void measure(int threads) {
  Trainer trainer(threads);
  bench::Peer torch("torch", "mlp_torch.py", {std::to_string(threads)}, threads);
  bench::Comparison c{.name = bench::step_name("mlp", threads),
                      .unit = "ns a step",
                      .peer = {},
                      .budget = 0.8,
                      .threads = threads,
                      .note = "784-512-512-10, batch 64, SGD; loss fetched every step"};
  torch.describe(c, "torch eager, fused SGD");
  bench::compare_losses(trainer, torch, {.steps = kSteps, .tolerance = 1e-3}, c);
  bench::measure_steps(trainer, torch, {.repetitions = kRepetitions, .steps = kSteps, .warm_up = 4},
                       c);
}

}  // namespace

int main(int argc, char** argv) { bench::run_training<Trainer>(argc, argv, measure); }
