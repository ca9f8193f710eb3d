// Two nodes, connected over TCP, that work until standard input ends: for tests that look at nodes
// from outside. b has trained, and serves the records of it. A run of a's alone has ended (a/1),
// one over both goes on (a/2), and another of the first one's plan, of a tenth of its iterations,
// has ended (a/3). Prints where each serves inspections, a's first.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <tuple>
#include <vector>

#include <troupe/cluster.hpp>
#include <troupe/troupe.hpp>

using namespace troupe;

// A line is fitted to points of another; what the training comes to is recorded every step.
static void train(Engine& engine, Records& records) {
  Graph g;
  Expr x = g.input("x", DType::f32, {64, 8}), y = g.input("y", DType::f32, {64, 1});
  Variable w = g.variable("w", DType::f32, {8, 1}, Initializer::constant(0));
  const Expr loss = mean(square(matmul(x, w) - y));
  const Function step =
      engine.compile(g, {x, y}, {loss, Sgd({.learning_rate = 0.2}).minimize(loss, {w})});
  Graph data;
  const Expr points = data.random_normal({64, 8});
  const std::vector<Tensor> drawn = engine.compile(
      data, {},
      {points,
       matmul(points, data.constant(Tensor::of<float>({-4, -3, -2, -1, 1, 2, 3, 4}, {8, 1})))})({});
  for (std::int64_t i = 0; i < 12; ++i) {
    const double now = step(drawn)[0].at(0);
    records.scalar("fit/loss", i, now);
    records.progress({.step = i, .steps = 16, .loss = now, .rate = 64, .unit = "points"});
    records.histogram("fit/w", i, engine.get(w));
  }
  records.text("fit/end", 11, "w is " + engine.get(w).text() + " <b>now</b>");
}

int main() {
  const auto tcp = [](PeerInfo self) {
    self.address = "tcp://127.0.0.1:0";
    return make_zeromq_transport(std::move(self));
  };
  ClusterNode b({.name = "b", .transport = tcp});
  ClusterNode a({.name = "a", .transport = tcp, .join = {b.address()}});
  a.wait_for({"b"}, std::chrono::seconds(60));
  Records records;
  train(b.engine(), records);
  InspectionServer of_a(a, {}), of_b(b, {});
  of_b.serve(records);

  Graph g;
  Expr n = g.input("n", DType::i64, Shape{}), x = g.input("x", DType::f32, {192, 192});
  const auto loop = [&](const char* name, const char* device) {
    auto [count, last] = while_loop([&](Expr i, Expr) { return i < n; },
                                    [&](Expr i, Expr v) {
                                      Expr next = i + 1, product = g.named(matmul(v, x), "product");
                                      auto there = g.on_device(device);
                                      return std::tuple{next, product + 1.0};
                                    },
                                    std::tuple{g.constant(std::int64_t{0}), x}, {.name = name});
    return last;
  };
  const Expr alone = loop("alone", "/node:a/cpu:0"), over_both = loop("both", "/node:b/cpu:0");
  const Function here = a.engine().compile(g, {n, x}, {alone}),
                 both = a.engine().compile(g, {n, x}, {over_both});
  const Tensor zeros = Tensor::zeros(DType::f32, {192, 192});
  here({Tensor::scalar(std::int64_t{200}), zeros});
  RunHandle run = both.start({Tensor::scalar(std::int64_t{1} << 40), zeros});
  here({Tensor::scalar(std::int64_t{20}), zeros});

  std::printf("%s\n%s\n", of_a.address().c_str(), of_b.address().c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) {}
  run.cancel();
  run.wait();
  return 0;
}
