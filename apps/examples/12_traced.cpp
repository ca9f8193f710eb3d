// A training, run twice: first each op runs as C++ reaches it, then the training step is staged
// into a graph by wrapping one lambda in `function`. The losses are equal, bit for bit.
//
// The model is a network of two layers that separates two spirals of points. A second training, of
// a sampler that takes ten leapfrog steps (traced/sampler.hpp), runs both ways too.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include <troupe/apps/examples/traced/sampler.hpp>
#include <troupe/troupe.hpp>

using namespace troupe;

namespace {

constexpr std::int64_t kPoints = 64, kUnits = 24;
constexpr int kSteps = 400, kSamplerSteps = 40;

// Points of two arms that wind around each other, and the arm of each.
std::pair<Tensor, Tensor> spirals() {
  std::vector<float> points, arms;
  for (std::int64_t i = 0; i < kPoints; ++i) {
    const double turn = 2.5 * static_cast<double>(i) / kPoints, arm = static_cast<double>(i % 2);
    const double angle = 3.14159265 * (turn + arm);
    points.push_back(static_cast<float>(turn * std::cos(angle)));
    points.push_back(static_cast<float>(turn * std::sin(angle)));
    arms.push_back(static_cast<float>(arm));
  }
  return {Tensor::of<float>(points, {kPoints, 2}), Tensor::of<float>(arms, {kPoints, 1})};
}

struct Network {
  Variable w1, b1, w2, b2;
  // `name`: so that each training has weights of its own; they start alike.
  Network(Eager& e, const std::string& name)
      : w1(e.variable(name + "/w1", normal(e, {2, kUnits}, 1.0))),
        b1(e.variable(name + "/b1", Tensor::zeros(DType::f32, {kUnits}))),
        w2(e.variable(name + "/w2", normal(e, {kUnits, 1}, 0.5))),
        b2(e.variable(name + "/b2", Tensor::zeros(DType::f32, {1}))) {}

  Expr operator()(const Expr& x) const { return matmul(tanh(matmul(x, w1) + b1), w2) + b2; }
  std::vector<Variable> variables() const { return {w1, b1, w2, b2}; }

 private:
  static Tensor normal(Eager&, const Shape& shape, double deviation) {
    return Initializer::normal(0, deviation, 5).make("weights", DType::f32, shape);
  }
};

// Trains the sampler on chains that go on from where they were; returns the loss of each step.
std::vector<float> train_sampler(Eager& e, bool is_staged) {
  constexpr std::int64_t kChains = 32;
  const sampling::Sampler sampler(e, is_staged ? "staged" : "eager");
  const auto step = [&](Expr x, Expr v, Expr chance) {
    GradientTape tape;
    const sampling::Moved moved = sampler.move(x, v);
    Expr loss = sampling::jump_loss(x, v, moved);
    Adam({.learning_rate = 0.01})
        .apply(tape.gradient(loss, sampler.variables()), sampler.variables());
    Expr is_taken = expand_dims(chance < sampling::acceptance(x, v, moved), 1);
    return std::pair(where(is_taken, moved.x, x), loss);
  };
  const auto staged = function("sampler", step);
  Eager draws;  // its own, so that both trainings draw the same
  draws.set_seed(3);
  std::vector<float> losses;
  Expr x = e.constant(draws.random_normal({kChains, 2}).value());
  for (int i = 0; i < kSamplerSteps; ++i) {
    const Expr v = e.constant(draws.random_normal({kChains, 2}).value());
    const Expr chance = e.constant(draws.random_uniform({kChains}).value());
    const auto [next, loss] = is_staged ? staged(x, v, chance) : step(x, v, chance);
    x = next;
    losses.push_back(loss.value().item<float>());
  }
  return losses;
}

double mean_of(const std::vector<float>& losses, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += static_cast<double>(losses[i]);
  return sum / static_cast<double>(end - begin);
}

}  // namespace

int main() {
  Engine engine({.workers = 1});
  Eager e(engine);
  const auto [points, arms] = spirals();
  const Expr x = e.constant(points), y = e.constant(arms);

  std::vector<float> losses[2];
  double seconds[2];
  for (const bool is_staged : {false, true}) {
    const Network network(e, is_staged ? "staged" : "eager");
    const auto step = [&](Expr in, Expr wanted) {
      GradientTape tape;
      Expr loss = mean(binary_cross_entropy(network(in), wanted));
      Adam({.learning_rate = 0.02})
          .apply(tape.gradient(loss, network.variables()), network.variables());
      return loss;
    };
    const auto staged = function("step", step);  // the one line that stages it

    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kSteps; ++i) {
      const Expr loss = is_staged ? staged(x, y) : step(x, y);
      losses[is_staged].push_back(loss.value().item<float>());
    }
    seconds[is_staged] =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%-7s loss %.4f, after %d steps %.4f; %.0f us a step\n",
                is_staged ? "staged:" : "eager:", static_cast<double>(losses[is_staged].front()),
                kSteps, static_cast<double>(losses[is_staged].back()),
                1e6 * seconds[is_staged] / kSteps);
    if (is_staged)
      std::printf("traced %d time, as %s\n", staged.traces(), staged.signatures()[0].c_str());
  }
  const bool are_equal = losses[0] == losses[1];
  std::printf("the losses are %s\n", are_equal ? "equal, bit for bit" : "different");

  const std::vector<float> sampled = train_sampler(e, true);
  const bool is_same_sampler = train_sampler(e, false) == sampled;
  const double first = mean_of(sampled, 0, 10), last = mean_of(sampled, kSamplerSteps - 10, 40);
  std::printf("sampler: loss %.3f, after %d steps %.3f; eager and staged %s\n", first,
              kSamplerSteps, last, is_same_sampler ? "agree, bit for bit" : "differ");
  const bool is_learnt = losses[1].back() < 0.5f * losses[1].front() && last < first;
  return are_equal && is_same_sampler && is_learnt ? 0 : 1;
}
