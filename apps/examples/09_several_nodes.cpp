// One program over two nodes: a loop that spans both, a variable that lives on the other one, an
// error that comes from there. The nodes of this example are in one process; started by `troupe
// node`, the other may as well be another process:
//
//   troupe node --name worker --listen tcp://127.0.0.1:7117
#include <chrono>
#include <cstdio>

#include <troupe/cluster.hpp>
#include <troupe/troupe.hpp>

using namespace troupe;

int main() {
  auto tcp = [](PeerInfo self) {
    self.address = "tcp://127.0.0.1:0";  // any port that is free
    return make_zeromq_transport(std::move(self));
  };
  ClusterNode worker({.name = "worker", .transport = tcp});
  ClusterNode here({.name = "here", .transport = tcp, .join = {worker.address()}});
  here.wait_for({"worker"}, std::chrono::seconds(30));

  // Powers of a matrix on the worker, until their sum, which this node looks at, is above the
  // limit.
  Graph g;
  Expr limit = g.input("limit", DType::f32, {});
  Variable growth;
  {
    auto there = g.on_device("/node:worker/cpu:0");
    growth = g.variable("growth", Tensor::of<float>({1, 1, 1, 0}, {2, 2}));
  }
  auto [steps, power] = while_loop([&](Expr, Expr p) { return sum(p) <= limit; },
                                   [&](Expr n, Expr p) {
                                     Expr next = n + 1;
                                     auto there = g.on_device("/node:worker/cpu:0");
                                     return std::tuple{next, matmul(p, growth)};
                                   },
                                   std::tuple{g.constant(1), growth.read()}, {.name = "grow"});
  const Function grow = here.engine().compile(g, {limit}, {steps, power});
  // the placement, the transfers between the nodes and their predicted durations
  std::puts(grow.explain().c_str());
  std::vector<Tensor> out = grow({Tensor::scalar(1000.f)});
  std::printf("after %d steps: %s\n", out[0].item<int>(), out[1].text().c_str());
  if (out[0].item<int>() != 14 || out[1].at(0) != 610) return 1;

  // Errors on the other node are reported here, with the node, the operation and this line.
  Expr picked;
  {
    auto there = g.on_device("/node:worker/cpu:0");
    picked = gather(growth.read(), cast(limit, DType::i64));
  }
  try {
    here.engine().run(g, {{limit, Tensor::scalar(7.f)}}, {picked});
    return 1;
  } catch (const Error& e) { std::printf("refused, as it should be: %s\n", e.what()); }
  return 0;
}
