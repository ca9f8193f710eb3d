// A training step of ResNet-18 on images of 64x64, batch 8, f32 (He et al., 2015): forward with
// normalisation over the batch and its running averages, cross-entropy over 10 classes, backward
// and an SGD update, against eager torch with its fused SGD, on one thread and on two.
//
// Both sides start from the same weights and take the same batches; the losses of the first steps
// must agree to 1e-2: normalised over eight items of 2x2 positions, rounding grows from step to
// step.
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/pattern.hpp>
#include <troupe/test/bench/training.hpp>

#include <cmath>
#include <functional>

namespace {

using namespace troupe;
constexpr int kRepetitions = 5, kSteps = 2, kCompared = 3, kBatches = 2;
constexpr std::int64_t kBatch = 8, kSide = 64, kClasses = 10;
constexpr double kRate = 0.01, kMomentum = 0.1;

class Trainer {
 public:
  explicit Trainer(int workers) : engine_(bench::with_workers(workers)) {
    Expr x = graph_.input("x", DType::f32, {kBatch, kSide, kSide, 3}),
         t = graph_.input("t", DType::i64, {kBatch});
    Expr h = max_pool(relu(normalized(convolved(x, 64, 7, 2))), {3, 3},
                      {.strides = {2, 2}, .padding = Padding::of({1, 1})});
    for (const std::int64_t channels : {64, 128, 256, 512})
      for (int block = 0; block < 2; ++block)
        h = residual(h, channels, channels > 64 && block == 0 ? 2 : 1);
    Variable w = weight({512, kClasses}, 512),
             b = parameter([] { return Tensor::zeros(DType::f32, {kClasses}); });
    Expr loss = mean(cross_entropy(matmul(global_avg_pool(h), w) + b, t));
    averages_.push_back(Sgd({.learning_rate = kRate}).minimize(loss, weights_));
    step_ = engine_.compile(graph_, {x, t}, {loss, group(averages_)});
    for (std::uint32_t i = 0; i < kBatches; ++i) {
      xs_.push_back(bench::pattern({kBatch, kSide, kSide, 3}, 2, 100 + i));
      ts_.push_back(bench::labels(kBatch, kClasses, 200 + i));
    }
    reset();
  }

  void reset() {
    for (std::size_t i = 0; i < weights_.size(); ++i) engine_.set(weights_[i], starts_[i]());
  }

  /// ns a step; the losses go to `losses`.
  double steps(int count, std::vector<float>* losses = nullptr) {
    return bench::timed_steps(count, losses, [this](std::size_t i) {
      return step_({xs_[i % kBatches], ts_[i % kBatches]})[0].item<float>();
    });
  }
  std::string explain() const { return step_.explain(); }

 private:
  Variable parameter(std::function<Tensor()> start) {
    weights_.push_back(bench::variable(graph_, "w" + std::to_string(weights_.size()), start()));
    starts_.push_back(std::move(start));
    return weights_.back();
  }
  // `inputs` is what one output element sums up.
  Variable weight(const Shape& shape, std::int64_t inputs) {
    return parameter([shape, scale = 2 * std::sqrt(3.0 / static_cast<double>(inputs)),
                      seed = static_cast<std::uint32_t>(weights_.size() + 1)] {
      return bench::pattern(shape, scale, seed);
    });
  }
  Expr convolved(const Expr& x, std::int64_t filters, std::int64_t size, std::int64_t stride) {
    const std::int64_t channels = x.shape()[3], around = size / 2;
    return conv(x, weight({size, size, channels, filters}, size * size * channels),
                {.strides = {stride, stride}, .padding = Padding::of({around, around})});
  }
  Expr normalized(const Expr& x) {
    const std::int64_t channels = x.shape()[3];
    Variable scale = parameter([=] { return bench::ones({channels}); }),
             bias = parameter([=] { return Tensor::zeros(DType::f32, {channels}); });
    Exprs y = batch_norm(x, scale, bias);
    const double count = static_cast<double>(x.shape().elements() / channels),
                 to_sample = count / (count - 1);
    keep_average(y[1], 1, 0);
    keep_average(y[2], to_sample, 1);
    return y[0];
  }
  void keep_average(const Expr& now, double factor, int start) {
    Variable v =
        graph_.variable("average" + std::to_string(averages_.size()),
                        start ? bench::ones(now.shape()) : Tensor::zeros(DType::f32, now.shape()));
    averages_.push_back(v.assign((1 - kMomentum) * v.read() + (kMomentum * factor) * now));
  }
  Expr residual(const Expr& x, std::int64_t channels, std::int64_t stride) {
    Expr h = relu(normalized(convolved(x, channels, 3, stride)));
    h = normalized(convolved(h, channels, 3, 1));
    return relu(h + (stride == 1 ? x : normalized(convolved(x, channels, 1, stride))));
  }

  Graph graph_;
  Engine engine_;
  std::vector<Variable> weights_;
  std::vector<std::function<Tensor()>> starts_;
  std::vector<Expr> averages_;
  Function step_;
  std::vector<Tensor> xs_, ts_;
};

void measure(int threads) {
  Trainer trainer(threads);
  bench::Peer torch("torch", "resnet_torch.py", {std::to_string(threads)}, threads);
  bench::Comparison c{.name = bench::step_name("resnet", threads),
                      .unit = "ns a step",
                      .peer = {},
                      .budget = 1.0,
                      .threads = threads,
                      .note = "ResNet-18, 64x64, batch 8, SGD; loss fetched every step"};
  torch.describe(c, "torch eager, channels last, fused SGD");
  bench::compare_losses(trainer, torch, {.steps = kCompared, .tolerance = 1e-2}, c);
  bench::measure_steps(trainer, torch, {.repetitions = kRepetitions, .steps = kSteps, .warm_up = 1},
                       c);
}

}  // namespace

int main(int argc, char** argv) { bench::run_training<Trainer>(argc, argv, measure); }
