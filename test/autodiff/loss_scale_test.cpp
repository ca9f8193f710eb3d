// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Loss scaling and mixed precision: a step that overflows changes nothing, the scale finds its
// value, and a network stored in few bits learns.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/autodiff/loss_scale.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(loss_scale_test)

BOOST_AUTO_TEST_CASE(a_step_that_overflows_changes_nothing_but_the_scale) {
  Graph g;
  Expr x = g.input("x", DType::f32, {});
  Variable w = g.variable("w", Tensor::scalar(1.0f));
  LossScale scale(g, "scale", {.initial = 8, .interval = 3, .most = 16});
  Expr step = scale.minimize(Adam({.learning_rate = 0.1}), w * x, {w});
  Engine engine({.workers = 1});
  Function f = engine.compile(g, {x}, {step});
  auto stands = [&](const char* name) { return engine.get(name).at(0); };
  auto run = [&](float v) { return f({Tensor::scalar(v)})[0].at(0) != 0; };
  BOOST_TEST(run(1));
  const double w1 = stands("w"), m1 = stands("w/adam/m");
  BOOST_TEST(w1 < 1);
  for (float bad : {INFINITY, std::nanf("")}) {
    BOOST_TEST(!run(bad));
    BOOST_TEST(stands("w") == w1);
    BOOST_TEST(stands("w/adam/m") == m1);
    BOOST_TEST(stands("w/adam/step") == 1);
    BOOST_TEST(stands("scale/good_steps") == 0);
  }
  BOOST_TEST(stands("scale/scale") == 2);
  // Three good ones in a row and it grows, but not above the most.
  for (int i = 0; i < 12; ++i) BOOST_TEST(run(1));
  BOOST_TEST(stands("scale/scale") == 16);
  BOOST_TEST(stands("w/adam/step") == 13);
  // The gradient is that of the loss, not of what it was scaled to.
  BOOST_TEST(std::abs(stands("w/adam/m") - (1 - std::pow(0.9, 13))) < 1e-6);
  const std::string said =
      refusal([&] { LossScale(g, "wrong", {.backoff = 2}); }, Code::invalid_argument);
  BOOST_TEST(said.find("LossScale 'wrong' at") == 0, said);
  BOOST_TEST(said.find("loss_scale_test.cpp") != std::string::npos, said);
}

// The losses of two layers that learn to tell signs apart.
std::vector<double> learned(std::optional<DType> low, bool scaled, std::string* plan = nullptr) {
  Graph g;
  Expr x = g.input("x", DType::f32, {16, 8}), y = g.input("y", DType::i64, {16});
  std::vector<float> data(16 * 8), weights(8 * 32), more(32 * 2);
  std::vector<std::int64_t> labels(16);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = std::sin(static_cast<float>(i * i));
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = data[8 * i] > 0;
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = 0.3f * std::sin(static_cast<float>(7 * i + 1));
  for (std::size_t i = 0; i < more.size(); ++i)
    more[i] = 0.3f * std::cos(static_cast<float>(5 * i));
  Variable a = g.variable("a", Tensor::of(weights, {8, 32})),
           b = g.variable("b", Tensor::of(std::vector<float>(32, 0), {32})),
           c = g.variable("c", Tensor::of(more, {32, 2}));
  Expr loss = mean(cross_entropy(matmul(relu(matmul(x, a) + b), c), y));
  Expr step = scaled ? LossScale(g, "scale").minimize(Sgd({.learning_rate = 0.5}), loss, {a, b, c})
                     : Sgd({.learning_rate = 0.5}).minimize(loss, {a, b, c});
  Engine engine({.workers = 1});
  Function f = engine.compile(g, {x, y}, {loss, step}, {.mixed_precision = low});
  if (plan) *plan = f.explain();
  std::vector<double> losses;
  for (int i = 0; i < 60; ++i)
    losses.push_back(f({Tensor::of(data, {16, 8}), Tensor::of(labels, {16})})[0].at(0));
  BOOST_TEST((engine.get("a").dtype() == DType::f32));
  return losses;
}

BOOST_AUTO_TEST_CASE(products_are_stored_in_few_bits_and_learn_alike) {
  const std::vector<double> full = learned({}, false);
  BOOST_TEST(full.back() < 0.2 * full.front());
  for (auto [low, scaled, near] : {std::tuple{DType::bf16, false, 0.05},
                                   {DType::bf16, true, 0.05},
                                   {DType::f16, true, 0.02}}) {
    std::string plan;
    const std::vector<double> losses = learned(low, scaled, &plan);
    BOOST_TEST(losses.front() != full.front());  // it is another arithmetic
    for (std::size_t i = 0; i < losses.size(); ++i)
      BOOST_TEST(std::abs(losses[i] - full[i]) < near * std::max(0.2, full[i]),
                 "step " << i << ": " << losses[i] << ", not " << full[i]);
    BOOST_TEST(plan.find("mixed_precision") != std::string::npos);
    // the hidden layer
    BOOST_TEST(plan.find(std::string(name_of(low)) + "[16, 32]") != std::string::npos, plan);
  }
  Graph g;
  Expr x = g.input("x", DType::f32, {2});
  Engine engine({.workers = 1});
  const std::string said =
      refusal([&] { engine.compile(g, {x}, {x * 2.0}, {.mixed_precision = DType::i8}); },
              Code::invalid_argument);
  BOOST_TEST(said.find("f16 or bf16, not i8") != std::string::npos, said);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
