// A training step of an LSTM, 50 steps of time, batch 32, 128 features to 256 units, f32: forward, mean
// squared error to a target, backward and an SGD update of the four weights, against eager torch's
// nn.LSTM with its fused SGD, on one thread and on two. Neither side differentiates its input.
//
// Both sides start from the same weights and take the same batches; the losses of the first steps must
// agree to 1e-4, or the benchmark ends with an error. The loss is fetched every step on both sides.
#include <troupe/actors/engine.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/controlflow/recurrent.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/pattern.hpp>
#include <troupe/test/bench/training.hpp>

#include <cmath>
#include <cstring>
#include <ctime>

namespace {

using namespace troupe;
constexpr int kRepetitions = 15;
constexpr int kSteps = 5, kCompared = 20;
constexpr int kBatches = 4;
constexpr std::int64_t kTime = 50, kBatch = 32, kFeatures = 128, kUnits = 256;
constexpr double kRate = 0.5;

EngineOptions with_workers(int workers) {
  EngineOptions options;
  options.workers = workers;
  return options;
}

class Trainer {
 public:
  explicit Trainer(int workers) : engine_(with_workers(workers)) {
    Expr x = graph_.input("x", DType::f32, {kTime, kBatch, kFeatures}), target = graph_.input("target", DType::f32, {kTime, kBatch, kUnits});
    weights_ = {graph_.variable("input", start(0)), graph_.variable("recurrent", start(1)),
                // torch has two biases that are added up; each takes the whole gradient.
                graph_.variable("bias_input", start(2)), graph_.variable("bias_recurrent", start(3))};
    auto [outputs, last] = lstm(x, {weights_[0], weights_[1], weights_[2] + weights_[3]});
    Expr loss = mean(square(outputs - target));
    step_ = engine_.compile(graph_, {x, target}, {loss, Sgd({.learning_rate = kRate}).minimize(loss, weights_)});
    for (std::uint32_t i = 0; i < kBatches; ++i) {
      xs_.push_back(bench::pattern({kTime, kBatch, kFeatures}, 2, 100 + i));
      targets_.push_back(bench::pattern({kTime, kBatch, kUnits}, 1, 200 + i));
    }
  }

  void reset() {
    for (int i = 0; i < 4; ++i) engine_.set(weights_[static_cast<std::size_t>(i)], start(i));
  }

  /// ns a step; the losses go to `losses`.
  double steps(int count, std::vector<float>* losses = nullptr) {
    const double begin = bench::now_ns();
    for (int i = 0; i < count; ++i) {
      const auto batch = static_cast<std::size_t>(i % kBatches);
      const float loss = step_({xs_[batch], targets_[batch]})[0].item<float>();
      if (losses) losses->push_back(loss);
    }
    return (bench::now_ns() - begin) / count;
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
  bench::Comparison c{.name = "lstm_step_" + std::to_string(threads) + (threads == 1 ? "_thread" : "_threads"), .unit = "ns a step",
                      .peer = {}, .budget = 0.6, .threads = threads, .note = "T 50, batch 32, 128-256, SGD; loss fetched every step"};
  torch.describe(c, "torch nn.LSTM (oneDNN), fused SGD");
  bench::compare_losses(trainer, torch, {.steps = kCompared, .tolerance = 1e-4}, c);
  bench::measure_steps(trainer, torch, {.repetitions = kRepetitions, .steps = kSteps, .warm_up = 1}, c);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 3 && std::strcmp(argv[1], "profile") == 0) {  // ours alone, for a profiler: profile <workers> <steps>
    Trainer trainer(std::atoi(argv[2]));
    trainer.steps(2);
    std::vector<double> walls, cores;  // on a busy machine, the time of the cores says more
    for (int i = 0; i < std::atoi(argv[3]); ++i) {
      const std::clock_t before = std::clock();
      walls.push_back(trainer.steps(1));
      cores.push_back(static_cast<double>(std::clock() - before) * 1e9 / CLOCKS_PER_SEC);
    }
    std::printf("%s%.0f ns a step at best, %.0f of the cores; medians %.0f, %.0f\n", trainer.explain().c_str(), *std::min_element(walls.begin(), walls.end()),
                *std::min_element(cores.begin(), cores.end()), bench::median(walls), bench::median(cores));
    return 0;
  }
  for (const int threads : {1, 2}) measure(threads);
}
