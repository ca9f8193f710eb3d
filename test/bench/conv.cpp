// A training step of a convolutional network on images of MNIST's size, batch 64, f32: two 3x3
// convolutions with 32 and 64 filters, each followed by relu and 2x2 max pooling, then 3136-128-10;
// cross-entropy, backward and an SGD update, against eager torch with its fused SGD, on one thread
// and on two.
//
// Both sides start from the same weights and take the same batches; the losses of the first steps
// must agree to 1e-3.
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/pattern.hpp>
#include <troupe/test/bench/training.hpp>

#include <cmath>

namespace {

using namespace troupe;
constexpr int kRepetitions = 9;
constexpr int kSteps = 10;
constexpr int kBatches = 8;
constexpr std::int64_t kBatch = 64;
constexpr double kRate = 0.01;

class Trainer {
 public:
  explicit Trainer(int workers) : engine_(bench::with_workers(workers)) {
    Expr x = graph_.input("x", DType::f32, {kBatch, 28, 28, 1}),
         t = graph_.input("t", DType::i64, {kBatch});
    for (int i = 0; i < 4; ++i) {
      const std::string layer = "layer" + std::to_string(i);
      weights_.push_back(bench::variable(graph_, layer + "/w", weight(i)));
      weights_.push_back(bench::variable(graph_, layer + "/b", bias(i)));
    }
    Expr h = x;
    for (std::size_t i = 0; i < 2; ++i)
      h = max_pool(
          relu(conv(h, weights_[2 * i], {.padding = Padding::same()}) + weights_[2 * i + 1]),
          {2, 2});
    h = reshape(h, {kBatch, 3136});
    h = relu(matmul(h, weights_[4]) + weights_[5]);
    h = matmul(h, weights_[6]) + weights_[7];
    Expr loss = mean(cross_entropy(h, t));
    Expr train = Sgd({.learning_rate = kRate}).minimize(loss, weights_);
    step_ = engine_.compile(graph_, {x, t}, {loss, train});
    for (int i = 0; i < kBatches; ++i) {
      const auto seed = static_cast<std::uint32_t>(i);
      xs_.push_back(bench::pattern({kBatch, 28, 28, 1}, 2, 100 + seed));
      ts_.push_back(bench::labels(kBatch, 10, 200 + seed));
    }
    reset();
  }

  void reset() {
    for (int i = 0; i < 4; ++i) {
      engine_.set(weights_[static_cast<std::size_t>(2 * i)], weight(i));
      engine_.set(weights_[static_cast<std::size_t>(2 * i + 1)], bias(i));
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
  static Shape shape(int i) {
    return std::vector<Shape>{
        {3, 3, 1, 32}, {3, 3, 32, 64}, {3136, 128}, {128, 10}}[static_cast<std::size_t>(i)];
  }
  static Tensor weight(int i) {
    const Shape s = shape(i);
    const std::int64_t outputs = s[s.rank() - 1], inputs = s.elements() / outputs;
    return bench::pattern(s, 2 * std::sqrt(3.0 / static_cast<double>(inputs)),
                          static_cast<std::uint32_t>(i + 1));
  }
  static Tensor bias(int i) { return Tensor::zeros(DType::f32, {shape(i)[shape(i).rank() - 1]}); }

  Graph graph_;
  Engine engine_;
  std::vector<Variable> weights_;
  Function step_;
  std::vector<Tensor> xs_, ts_;
};

void measure(int threads) {
  Trainer trainer(threads);
  bench::Peer torch("torch", "conv_torch.py", {std::to_string(threads)}, threads);
  bench::Comparison c{
      .name = bench::step_name("conv", threads),
      .unit = "ns a step",
      .peer = {},
      .budget = 1.0,
      .threads = threads,
      .note = "28x28, 3x3x32, 3x3x64, 3136-128-10, batch 64, SGD; loss fetched every step"};
  torch.describe(c, "torch eager, channels last, fused SGD");
  bench::compare_losses(trainer, torch, {.steps = kSteps, .tolerance = 1e-3}, c);
  bench::measure_steps(trainer, torch, {.repetitions = kRepetitions, .steps = kSteps, .warm_up = 2},
                       c);
}

}  // namespace

int main(int argc, char** argv) { bench::run_training<Trainer>(argc, argv, measure); }
