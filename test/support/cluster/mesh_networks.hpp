// Programs for tests of meshes: a network of two layers, and devices that wait for a queue.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/cluster/meshes.hpp>

namespace troupe::test::meshes {

// The loss and one training step of two layers. Dimensions: batch, in, hidden, out.
struct TwoLayers {
  struct Sizes {
    std::int64_t rows, in, hidden, out;
  };
  Graph g;
  Expr x, t, loss, step;
  Variable a, b, v;

  TwoLayers(const Sizes& s, const Optimizer& optimizer) {
    const Dim batch{"batch", s.rows}, in{"in", s.in}, hidden{"hidden", s.hidden}, out{"out", s.out};
    x = g.input("x", DType::f64, {s.rows, s.in});
    t = g.input("t", DType::f64, {s.rows, s.out});
    a = g.variable("a", DType::f64, {s.in, s.hidden}, Initializer::normal(0, 0.5, 1));
    b = g.variable("b", DType::f64, {s.hidden}, Initializer::constant(0.1));
    v = g.variable("v", DType::f64, {s.hidden, s.out}, Initializer::normal(0, 0.5, 2));
    const Expr h =
        tanh(mesh::einsum({mesh::named(x, {batch, in}), mesh::named(a.read(), {in, hidden})},
                          {batch, hidden}) +
             mesh::named(b.read(), {hidden}));
    const Expr y = mesh::einsum({h, mesh::named(v.read(), {hidden, out})}, {batch, out});
    loss = mean(squared_difference(y, mesh::named(t, {batch, out})));
    step = optimizer.minimize(loss, {a, b, v});
  }

  Function compile(Engine& engine, const std::optional<Partitioning>& p,
                   std::vector<std::string> skipped = {}) {
    CompileOptions options;
    options.mesh = p;
    options.skip_passes = std::move(skipped);
    return engine.compile(g, {x, t}, {loss, step}, options);
  }
};

// Returns the losses of so many steps.
inline std::vector<double> losses_of(const Function& step, int steps, const Tensor& x,
                                     const Tensor& t) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(step({x, t})[0].at(0));
  return losses;
}

// Four devices wait for their pieces of an element that is not in the queue.
struct Waiting {
  Graph g;
  Expr given, put, total;
  Waiting() {
    const Dim batch{"batch", 4};
    const Queue queue = g.fifo_queue("q", {{DType::f64, Shape{4}}}, 4);
    given = g.input("given", DType::f64, {4});
    put = queue.enqueue({given});
    total = mesh::sum(mesh::named(queue.dequeue()[0], {batch}) * 2.0, {batch});
  }
  Function compile(Engine& engine, const Partitioning& p) {
    CompileOptions options;
    options.mesh = p;
    return engine.compile(g, {}, {total}, options);
  }
  /// Requires that an element ends the wait of `take`.
  void check_goes_on(Engine& engine, const Function& take) {
    engine.run(g, {{given, counted({4})}}, {put});
    BOOST_TEST(take({})[0].at(0) == 12);
  }
};

// Requires that members end when their run is cancelled or late, and that later runs go on.
inline void check_cancelled_members_end(Engine& engine, const Partitioning& p) {
  Waiting w;
  const Function take = w.compile(engine, p);
  for (int i = 0; i < 3; ++i) {
    RunHandle waits = take.start({}, {});
    waits.cancel();
    BOOST_TEST((waits.wait().code() == Code::cancelled));
  }
  BOOST_CHECK_EXCEPTION(take({}, {.timeout = std::chrono::milliseconds(1)}), Error,
                        [](const Error& e) { return e.code() == Code::deadline_exceeded; });
  w.check_goes_on(engine, take);
}

// The collectives in the sub-graphs of loops and branches alone.
inline Counts counts_inside(const mesh::detail::SpmdProgram& spmd) {
  Counts counts;
  BOOST_TEST(!spmd.flows.empty());
  for (const auto& [id, flow] : spmd.flows)
    for (const auto& sub : flow.subs)
      for (const auto& [op, n] : counts_of(*sub)) counts[op] += n;
  return counts;
}

// States of a scan over five steps, h' = step(h, x, w): its gradients, and the states.
template <class Step>
BuildMesh scan_of(const Dim& batch, const Dim& in, const Dim& out, const Tensor& x, Step step) {
  return [=](Graph& g) {
    MeshCase c;
    const Expr xs = input(c, g, "x", x, {{"time", 5}, batch, in});
    const Expr w = input(c, g, "w", counted({4, 4}, 0.05, -0.3), {in, out});
    const Expr h0 = input(c, g, "h", counted({batch.size, in.size}, 0), {batch, in});
    const Expr states = scan([&](Expr h, Expr at) { return step(h, at, w); }, xs, h0);
    c.fetches = gradients(sum(states * states), {xs, w});
    c.fetches.push_back(states);
    return c;
  };
}

}  // namespace troupe::test::meshes
