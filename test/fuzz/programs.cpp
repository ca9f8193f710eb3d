// libFuzzer: placed programs, and parts of them. A readable program is written, and must then read
// as the same program. The planner plans or refuses it without reading anything that is not there.
// Instruments: cluster/protocol/program_codec.cpp cluster/protocol/archive.cpp
// cluster/transport/pack_scan.cpp actors/frames/frames.cpp actors/plan/plan.cpp
// actors/plan/plan_calls.cpp
#include <troupe/actors/plan/pass_order.hpp>
#include <troupe/actors/plan/plan_part.hpp>
#include <troupe/cluster/protocol/program_codec.hpp>
#include <troupe/test/fuzz/input.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {
namespace {

Placed placed(const Graph& g, const std::vector<Edge>& feeds, const std::vector<Edge>& fetches) {
  return place(optimize(g, feeds, fetches, {.optimize = true}),
               {.default_device = "cpu:0",
                .here = "a",
                .scatter = {"/node:a/cpu:0", "/node:b/cpu:0"},
                .seed = 3});
}

// Partitions without kernels, which would take what memory a program says.
struct NoDevices final : DeviceFinder {
  explicit NoDevices(std::string n) : name(std::move(n)) {}
  Device* find(const std::string&) override { return nullptr; }
  std::string node() const override { return name; }
  const std::string name;
};

Plan plan_on(const std::string& node, const Placed& placed) {
  NoDevices devices(node);
  StateStore states;
  return make_plan(Placed(placed), devices, states);
}

void write_seed(const Placed& p) {
  MessageWriter w;
  write(w, p);
  seed(bytes_as_input(w.take()));
}

void seed_of(const Placed& p) {
  write_seed(p);
  const Plan whole = plan_on("a", p);
  if (const auto b = std::find(whole.nodes.begin(), whole.nodes.end(), "b"); b != whole.nodes.end())
    write_seed(PlanParts(whole, p).of(static_cast<std::int32_t>(b - whole.nodes.begin())));
}

Placed read_placed(Message& m) {
  MessageReader r(m);
  Placed p;
  read(r, p, "b");
  r.end();
  return p;
}

}  // namespace
}  // namespace troupe::test

using namespace troupe;
using namespace troupe::test;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  {
    Graph g;
    Expr x = g.input("x", DType::f32, {2});
    Expr y = matmul(reshape(x, {1, 2}), g.constant(Tensor::of<float>({1, 2, 3, 4}, {2, 2}))) + 1.0;
    seed_of(placed(g, {x.edge()}, {y.edge()}));
  }
  {
    Graph g;
    Expr x = g.input("x", DType::f32, {2});
    Variable v = g.variable("v", Tensor::of<float>({1, 2}));
    auto [n, s] = while_loop(
        [](Expr i, Expr) { return i < 5; },
        [&](Expr i, Expr t) {
          return std::tuple{
              i + 1, tanh(t * x) + cond(
                                       i < 2, [&] { return t * 0.25; }, [&] { return v - 1.5; })};
        },
        std::tuple{g.constant(0), x});
    seed_of(placed(g, {x.edge()}, {s.edge(), n.edge()}));
  }
  {
    Graph g;
    Expr x = g.input("x", DType::f32, {3, 4});
    Expr y = softmax(x * g.random_uniform({3, 4}));
    seed_of(placed(g, {x.edge()}, {concat({y, x}, 0).edge(), sum(y, {0}).edge()}));
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  Message m = Input(data, size).message();
  try {
    const Placed first = read_placed(m);
    MessageWriter w;
    write(w, first);
    Message again = w.take();
    const Placed second = read_placed(again);
    if (second.program.graph.text() != first.program.graph.text() || second.device != first.device)
      std::abort();
    plan_on("b", second);
  } catch (const Error&) {}
  return 0;
}
