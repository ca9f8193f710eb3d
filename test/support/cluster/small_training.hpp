// A small training for tests: two layers, of which one has its weights beside a replica, so that a
// lost node takes a variable with it. Rows and noise follow from the step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/cluster/training/training.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/collectives/collectives.hpp>

namespace troupe::test {

inline constexpr int kTrainingReplicas = 3;

inline TrainingProgram small_network(Graph& g, const collective::Group& group) {
  constexpr std::int64_t kRows = 4, kFeatures = 6;
  TrainingProgram p;
  Variable w1 = g.variable("w1", DType::f32, {kFeatures, 5}, Initializer::normal(0, 0.3));
  Variable w2 = [&] {
    const auto there = g.on_device(group.device(1));
    return g.variable("w2", DType::f32, {5, 1}, Initializer::normal(0, 0.3));
  }();
  Exprs losses, slopes1, slopes2;
  for (int r = 0; r < group.size(); ++r) {
    const auto there = g.on_device(group.device(r));
    p.feeds.push_back(g.input("x" + std::to_string(r), DType::f32, {kRows, kFeatures}));
    const Expr x = p.feeds.back() + g.random_normal({kRows, kFeatures}) * 0.01;
    const Expr a = w1.read(), b = w2.read();
    losses.push_back(mean(square(matmul(tanh(matmul(x, a)), b) - 1.0)));
    const Exprs slope = gradients(losses.back(), {a, b});
    slopes1.push_back(slope[0]);
    slopes2.push_back(slope[1]);
  }
  using collective::Combine;
  const Expr slope1 = collective::reduce(group, slopes1, 0, Combine::mean),
             slope2 = collective::reduce(group, slopes2, 1, Combine::mean);
  p.fetches = {collective::reduce(group, losses, 0, Combine::mean),
               Adam({.learning_rate = 0.02}).apply({slope1, slope2}, {w1, w2})};
  return p;
}

inline std::vector<Tensor> small_rows(std::int64_t step) {
  std::vector<Tensor> all;
  for (int r = 0; r < kTrainingReplicas; ++r) {
    Tensor t = Tensor::zeros(DType::f32, Shape{4, 6});
    for (std::int64_t i = 0; i < t.elements(); ++i)
      t.mutable_data<float>()[i] =
          static_cast<float>((step * 31 + r * 7 + i * 13) % 17) / 17.0f - 0.5f;
    all.push_back(std::move(t));
  }
  return all;
}

}  // namespace troupe::test
