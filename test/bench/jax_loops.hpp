// A loop of small tensors here and the same loop compiled by JAX, forward and with a gradient.
//
//   SmallLoop loop{.name = "hmc", .peer = {"hmc", "1", "10"}, .iterations = 20, .budget = 1};
//   loop.compare(engine, g, inputs, values, loss, {eps});
#pragma once

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/autodiff/gradients.hpp>
#include <troupe/test/bench/peer.hpp>

namespace troupe::bench {

inline EngineOptions one_worker() {
  EngineOptions options;
  options.workers = 1;
  return options;
}

struct SmallLoop {
  std::string name;
  std::vector<std::string> peer;  // arguments of scripts/peers/loops_jax.py
  int iterations = 0;
  double budget = 0;  // bounds both ratios

  /// Prints two lines: `loss` alone, and `loss` with its gradients.
  void compare(Engine& engine, const Graph& g, const std::vector<Expr>& inputs,
               const std::vector<Tensor>& values, const Expr& loss,
               const std::vector<Expr>& of) const {
    std::vector<Expr> both{loss};
    for (const Expr& d : gradients(loss, of)) both.push_back(d);
    CompileOptions lowering, interpreting;
    lowering.resident_loops = false;
    interpreting.compiled_loops = false;
    Peer jax("JAX", "loops_jax.py", peer);
    for (const bool has_gradient : {false, true}) {
      const std::vector<Expr> fetches = has_gradient ? both : std::vector<Expr>{loss};
      const Function f = engine.compile(g, inputs, fetches);
      const Function interpreted = engine.compile(g, inputs, fetches, interpreting);
      const Function lowered = engine.compile(g, inputs, fetches, lowering);
      Comparison c{.name = name + (has_gradient ? "_grad" : ""), .unit = "us a call", .peer = {}};
      jax.describe(c, "JAX, jit");
      c.budget = budget;
      const std::string request = (has_gradient ? "grad " : "run ") + std::to_string(iterations);
      std::vector<double> by_interpreter, in_nodes;
      for (int i = 0; i < 3; ++i) time(f, values), time(interpreted, values), time(lowered, values);
      if (jax.is_here()) jax.ask(request);
      for (int i = 0; i < kRepetitions; ++i) {
        c.ours.push_back(time(f, values));
        by_interpreter.push_back(time(interpreted, values));
        in_nodes.push_back(time(lowered, values));
        if (!jax.is_here()) continue;
        const std::vector<double> answer = jax.ask(request);
        c.theirs.push_back(answer[0] / 1e3);
        if (i == 0) check(f(values), answer);
      }
      c.also = {{"interpreted", median(by_interpreter)},
                {"lowered", median(in_nodes)},
                {"iterations", static_cast<double>(iterations)}};
      c.print();
    }
  }

 private:
  static constexpr int kRepetitions = 21;

  static double time(const Function& f, const std::vector<Tensor>& values) {
    f(values);  // the other side's run has filled the caches
    const double start = now_ns();
    f(values);
    return (now_ns() - start) / 1e3;
  }
  // Their answers are sums, after the time.
  void check(const std::vector<Tensor>& ours, const std::vector<double>& theirs) const {
    for (std::size_t i = 0; i < ours.size(); ++i) {
      double sum = 0;
      for (std::int64_t k = 0; k < ours[i].elements(); ++k) sum += ours[i].at(k);
      if (std::abs(sum - theirs[i + 1]) <= 1e-3 * (1 + std::abs(sum))) continue;
      std::fprintf(stderr, "%s: result %zu sums to %g, JAX's to %g\n", name.c_str(), i, sum,
                   theirs[i + 1]);
      std::exit(1);
    }
  }
};

}  // namespace troupe::bench
