// A training step of an LSTM, 50 steps of time, batch 32, 128 features to 256 units, f32: forward, mean
// squared error to a target, backward and an SGD update of the four weights, against eager torch's
// nn.LSTM with its fused SGD, on one thread and on two. Neither side differentiates its input.
//
// Both sides start from the same weights and take the same batches; the losses of the first steps must
// agree to 1e-4, or the benchmark ends with an error. The loss is fetched every step on both sides.
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/controlflow/recurrent.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/pattern.hpp>
#include <troupe/test/bench/training.hpp>

#include <cmath>

namespace {

using namespace troupe;
constexpr int kRepetitions = 15;
constexpr int kSteps = 5, kCompared = 20;
constexpr int kBatches = 4;
constexpr std::int64_t kTime = 50, kBatch = 32, kFeatures = 128, kUnits = 256;
constexpr double kRate = 0.5;

class Trainer {
 public:
  explicit Trainer(int workers) : engine_(bench::with_workers(workers)) {
    Expr x = graph_.input("x", DType::f32, {kTime, kBatch, kFeatures}), target = graph_.input("target", DType::f32, {kTime, kBatch, kUnits});
    weights_ = {bench::variable(graph_, "input", start(0)), bench::variable(graph_, "recurrent", start(1)),
                // torch has two biases that are added up; each takes the whole gradient.
                bench::variable(graph_, "bias_input", start(2)), bench::variable(graph_, "bias_recurrent", start(3))};
    auto [outputs, last] = lstm(x, {weights_[0], weights_[1], weights_[2] + weights_[3]});
    Expr loss = mean(square(outputs - target));
    step_ = engine_.compile(graph_, {x, target}, {loss, Sgd({.learning_rate = kRate}).minimize(loss, weights_)});
    for (std::uint32_t i = 0; i < kBatches; ++i) {
      xs_.push_back(bench::pattern({kTime, kBatch, kFeatures}, 2, 100 + i));
      targets_.push_back(bench::pattern({kTime, kBatch, kUnits}, 1, 200 + i));
    }
    reset();
  }

  void reset() {
    for (int i = 0; i < 4; ++i) engine_.set(weights_[static_cast<std::size_t>(i)], start(i));
  }

  /// ns a step; the losses go to `losses`.
  double steps(int count, std::vector<float>* losses = nullptr) {
    return bench::timed_steps(count, losses, [this](std::size_t i) { return step_({xs_[i % kBatches], targets_[i % kBatches]})[0].item<float>(); });
  }
  std::string explain() const { return step_.explain(); }

 private:
  static Tensor start(int i) {
    const double scale = 2 / std::sqrt(static_cast<double>(kUnits));
    const Shape shapes[] = {{kFeatures, 4 * kUnits}, {kUnits, 4 * kUnits}, {4 * kUnits}, {4 * kUnits}};
    return bench::pattern(shapes[i], scale, static_cast<std::uint32_t>(i + 1));
  }

  Graph graph_;
  Engine engine_;
  std::vector<Variable> weights_;
  Function step_;
  std::vector<Tensor> xs_, targets_;
};

void measure(int threads) {
  Trainer trainer(threads);
  bench::Peer torch("torch", "lstm_torch.py", {std::to_string(threads)}, threads);
  bench::Comparison c{.name = bench::step_name("lstm", threads), .unit = "ns a step",
                      .peer = {}, .budget = 0.5, .threads = threads, .note = "T 50, batch 32, 128-256, SGD; loss fetched every step"};
  torch.describe(c, "torch nn.LSTM (oneDNN), fused SGD");
  bench::compare_losses(trainer, torch, {.steps = kCompared, .tolerance = 1e-4}, c);
  bench::measure_steps(trainer, torch, {.repetitions = kRepetitions, .steps = kSteps, .warm_up = 1}, c);
}

}  // namespace

int main(int argc, char** argv) { bench::run_training<Trainer>(argc, argv, measure); }
