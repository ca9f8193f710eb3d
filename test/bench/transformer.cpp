// A training step of one transformer layer (normalisation first, gelu, no dropout), f32: forward,
// mean squared error to a target, backward and an SGD update, against eager torch's
// nn.TransformerEncoderLayer with its fused SGD, on one thread and on two.
//
//   transformer [256 | 512] [profile WORKERS STEPS]
//
// Both sides start from the same weights and take the same batches; the losses of the first steps
// must agree to 1e-4.
//
// `least_core_ns` is what the step's products would take at the measured multiply-add peak of a
// core, all else for nothing, and `least_ratio` that of the peer's processor time: no step in f32
// takes less, on however many cores.
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/pattern.hpp>
#include <troupe/test/bench/peak.hpp>
#include <troupe/test/bench/training.hpp>

#include <cmath>

namespace {

using namespace troupe;
constexpr int kRepetitions = 7, kSteps = 4, kCompared = 10, kBatches = 2;
constexpr std::int64_t kDepth = 64;  // features of a head
constexpr double kRate = 0.1;

struct Size {
  std::int64_t width, positions, batch;
};
constexpr Size kSmall{256, 64, 8}, kLarge{512, 512, 2};

/// Floating-point operations of the products of a step: 12 width² weights forward and for both
/// gradients, two products of attention forward and four backward.
double flops(const Size& s) {
  const auto width = static_cast<double>(s.width), positions = static_cast<double>(s.positions),
             batch = static_cast<double>(s.batch);
  return 2 * 3 * 12 * width * width * positions * batch +
         2 * (2 + 4) * positions * positions * width * batch;
}

template <const Size& size>
class Trainer {
 public:
  explicit Trainer(int workers) : engine_(bench::with_workers(workers)) {
    const Shape shape{size.batch, size.positions, size.width};
    Expr x = graph_.input("x", DType::f32, shape),
         target = graph_.input("target", DType::f32, shape);
    for (int i = 0; i < 12; ++i)
      weights_.push_back(bench::variable(graph_, "w" + std::to_string(i), start(i)));
    Expr loss = mean(square(layer(x) - target));
    step_ = engine_.compile(graph_, {x, target},
                            {loss, Sgd({.learning_rate = kRate}).minimize(loss, weights_)});
    for (std::uint32_t i = 0; i < kBatches; ++i) {
      xs_.push_back(bench::pattern(shape, 2, 100 + i));
      targets_.push_back(bench::pattern(shape, 2, 200 + i));
    }
    reset();
  }

  void reset() {
    for (int i = 0; i < 12; ++i) engine_.set(weights_[static_cast<std::size_t>(i)], start(i));
  }

  /// ns a step; the losses go to `losses`.
  double steps(int count, std::vector<float>* losses = nullptr) {
    return bench::timed_steps(count, losses, [this](std::size_t i) {
      return step_({xs_[i % kBatches], targets_[i % kBatches]})[0].template item<float>();
    });
  }
  std::string explain() const { return step_.explain(); }

 private:
  Expr layer(const Expr& x) const {
    const auto& w = weights_;
    const std::int64_t heads = size.width / kDepth;
    Expr in = matmul(layer_norm(x, w[0], w[1]), w[2]) + w[3];
    Exprs parts = split(
        transpose(reshape(in, {size.batch, size.positions, 3, heads, kDepth}), {2, 0, 3, 1, 4}),
        {1, 1, 1});
    for (Expr& part : parts) part = squeeze(part, 0);
    Expr seen = reshape(transpose(attention(parts[0], parts[1], parts[2]), {0, 2, 1, 3}),
                        {size.batch, size.positions, size.width});
    Expr h = x + (matmul(seen, w[4]) + w[5]);
    return h + (matmul(gelu(matmul(layer_norm(h, w[6], w[7]), w[8]) + w[9]), w[10]) + w[11]);
  }
  // In turn: a normalisation, queries keys and values, the heads' mixture; a normalisation, the two
  // products of the perceptron.
  static Tensor start(int i) {
    const std::int64_t d = size.width;
    const Shape shapes[] = {{d}, {d}, {d, 3 * d}, {3 * d}, {d, d},     {d},
                            {d}, {d}, {d, 4 * d}, {4 * d}, {4 * d, d}, {d}};
    if (i == 0 || i == 6) return bench::ones(shapes[i]);
    if (shapes[i].rank() == 1) return Tensor::zeros(DType::f32, shapes[i]);
    return bench::pattern(shapes[i], 2 * std::sqrt(3.0 / static_cast<double>(shapes[i][0])),
                          static_cast<std::uint32_t>(i + 1));
  }

  Graph graph_;
  Engine engine_;
  std::vector<Variable> weights_;
  Function step_;
  std::vector<Tensor> xs_, targets_;
};

template <const Size& size>
void measure(int threads) {
  auto text = [](std::int64_t n) { return std::to_string(n); };
  Trainer<size> trainer(threads);
  bench::Peer torch("torch", "transformer_torch.py",
                    {text(threads), text(size.width), text(size.positions), text(size.batch)},
                    threads);
  bench::Comparison c{.name = bench::step_name("transformer_" + text(size.width), threads),
                      .unit = "ns a step",
                      .peer = {},
                      .budget = 0.8,
                      .threads = threads,
                      .note = "sequence " + text(size.positions) + ", batch " + text(size.batch) +
                              ", heads of 64, SGD; loss fetched every step"};
  torch.describe(c, "torch nn.TransformerEncoderLayer, fused SGD");
  const double peak = bench::peak_gflops();
  c.also.push_back({"peak_gflops", peak});
  bench::compare_losses(trainer, torch, {.steps = kCompared, .tolerance = 1e-4}, c);
  bench::measure_steps(
      trainer, torch,
      {.repetitions = kRepetitions, .steps = kSteps, .warm_up = 1, .least_ns = flops(size) / peak},
      c);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  const int skip = only == "256" || only == "512";
  if (only != "512")
    bench::run_training<Trainer<kSmall>>(argc - skip, argv + skip, measure<kSmall>);
  if (only != "256")
    bench::run_training<Trainer<kLarge>>(argc - skip, argv + skip, measure<kLarge>);
}
