// Two nodes, connected over TCP, that work until standard input ends: for tests that look at nodes from outside. A run of a's alone has
// ended (a/1), one over both goes on (a/2), and another of the first one's plan, of a tenth of its iterations, has ended (a/3). Prints where
// each serves inspections, a's first.
#include <chrono>
#include <cstdio>
#include <tuple>

#include <troupe/cluster/inspection_server.hpp>
#include <troupe/cluster/node.hpp>
#include <troupe/cluster/zeromq.hpp>
#include <troupe/troupe.hpp>

int main() {
  using namespace troupe;
  const auto tcp = [](PeerInfo self) {
    self.address = "tcp://127.0.0.1:0";
    return make_zeromq_transport(std::move(self));
  };
  ClusterNode b({.name = "b", .transport = tcp});
  ClusterNode a({.name = "a", .transport = tcp, .join = {b.address()}});
  a.wait_for({"b"}, std::chrono::seconds(60));
  InspectionServer of_a(a, {}), of_b(b, {});

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
  const Function here = a.engine().compile(g, {n, x}, {alone}), both = a.engine().compile(g, {n, x}, {over_both});
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
