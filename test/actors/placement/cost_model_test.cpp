// Not under tsan: it makes plans on one thread.
// The cost model: where nodes go that nothing constrains, and what a run is predicted to take.
#include <chrono>
#include <random>
#include <set>

#include <boost/test/unit_test.hpp>

#include <troupe/actors/placement/forecast.hpp>
#include <troupe/test/support/placed.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe {

TROUPE_OP(TestSlowly) {
  op.doc("Takes a millisecond, which its shape does not show.");
  op.inputs(1);
  op.infer([](Inference& c) { c.output(c.input(0).dtype, c.input(0).shape); });
  op.run([](KernelContext& c) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
    while (std::chrono::steady_clock::now() < end) {}
    c.set(0, c.input(0));
  });
}

}  // namespace troupe

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(cost_model_test)

namespace {

using namespace placed;

Forecast forecast_of(const Placed& placed, const PlacementOptions& options) {
  std::vector<std::string> names = devices_to_choose_from(options);
  std::vector<std::int32_t> device;
  for (const std::string& d : placed.device) {
    auto it = std::find(names.begin(), names.end(), d);
    if (it == names.end()) it = names.insert(it, d);
    device.push_back(static_cast<std::int32_t>(it - names.begin()));
  }
  const CostModel model(options.costs, names);
  return Forecaster(placed.program, model, 0).run(device);
}

}  // namespace

BOOST_AUTO_TEST_CASE(two_heavy_branches_go_to_two_nodes) {
  Graph g;
  Expr x = g.input("x", DType::f32, {512, 512}), y = g.input("y", DType::f32, {512, 512});
  Expr both = sum(chain(x, 4)) + sum(chain(y, 4));
  PlacementOptions o = three_nodes(Placement::automatic);
  const Placed placed = place(lowered(g, {x, y}, {both}), o);
  const Devices products = devices_of(placed, "MatMul");
  const std::set<std::string> used(products.begin(), products.end());
  BOOST_TEST(used.size() == 2u);
  for (const std::string& d : used) BOOST_TEST(products.count(d) == 4u);
  o.policy = Placement::constraints;
  const double alone = forecast_of(place(lowered(g, {x, y}, {both}), o), o).ns,
               spread = forecast_of(placed, o).ns;
  BOOST_TEST(spread < 0.7 * alone);
  o.policy = Placement::automatic;
  o.costs.between_nodes.latency_ns = 1e9;  // if the way takes longer than the work, nothing moves
  is(devices_of(place(lowered(g, {x, y}, {both}), o), "MatMul"), {kA, kA, kA, kA, kA, kA, kA, kA},
     "far apart");
}

BOOST_AUTO_TEST_CASE(a_huge_edge_is_not_cut) {
  Graph g;
  Expr x = g.input("x", DType::f32, {4096, 4096});
  Expr huge = exp(x);
  Expr a = sum(tanh(transpose(huge))), b = sum(sin(transpose(huge)));
  const Placed placed = place(lowered(g, {x}, {a, b}), three_nodes(Placement::automatic));
  std::set<std::string> used(placed.device.begin(), placed.device.end());
  BOOST_TEST(used.size() == 1u);
}

/// Two operations that are nothing by their shapes, and may go anywhere.
struct TwoOfEqualShape {
  Graph g;
  PlacementOptions options = three_nodes(Placement::automatic);
  Program program = [this] {
    Expr x = g.input("x", DType::f32, {4});
    return lowered(g, {x}, {exp(x), tanh(x)});
  }();
  void took(const std::string& device, double ns) {
    for (const Node& n : program.graph.nodes()) options.measured[{n.origin, device}] = ns;
  }
};

BOOST_AUTO_TEST_CASE(measured_costs_override_costs_from_shapes) {
  TwoOfEqualShape two;
  is(devices_of(place(two.program, two.options), "Tanh"), {kA}, "by its shape it is nothing");
  two.took(kA, 1e7);
  const Placed placed = place(two.program, two.options);
  BOOST_TEST(devices_of(placed, "Tanh") != devices_of(placed, "Exp"));
}

// As fast as it was seen to be there; elsewhere, in proportion.
BOOST_AUTO_TEST_CASE(each_device_is_as_fast_as_it_was_measured) {
  TwoOfEqualShape two;
  two.took(kA, 1e7);
  two.took(kB, 1e9);
  const Placed placed = place(two.program, two.options);
  Devices both = devices_of(placed, "Exp");
  both.merge(devices_of(placed, "Tanh"));
  is(both, {kA, kC}, "b is slow");
}

BOOST_AUTO_TEST_CASE(each_link_is_as_fast_as_it_was_measured) {
  Graph g;
  Expr x = g.input("x", DType::f32, {512, 512}), y = g.input("y", DType::f32, {512, 512});
  const Program program = lowered(g, {x, y}, {sum(chain(x, 4)) + sum(chain(y, 4))});
  PlacementOptions o = three_nodes(Placement::automatic);
  const auto other_than_a = [&] {
    Devices products = devices_of(place(program, o), "MatMul");
    products.erase(kA);
    return std::set<std::string>(products.begin(), products.end());
  };
  BOOST_TEST((other_than_a() == std::set{kB}));
  o.costs.links = {{"a", "b", {.latency_ns = 1e9, .bytes_per_ns = 1}}};
  BOOST_TEST((other_than_a() == std::set{kC}));
  o.costs.links.push_back({"c", "a", {.latency_ns = 1e9, .bytes_per_ns = 1}});
  BOOST_TEST(other_than_a().empty());
}

BOOST_AUTO_TEST_CASE(a_plan_that_ran_teaches_the_next) {
  EngineOptions o;
  o.workers = 2;
  o.placement = Placement::automatic;
  o.devices = {"cpu:0", "cpu:1"};
  Engine engine(o);
  Graph g;
  Expr x = g.input("x", DType::f32, {2}), y = g.input("y", DType::f32, {2});
  const auto slowly = [](const Expr& e) {
    return e.reader().bind(find_op("TestSlowly"), std::vector<Expr>{e}, {},
                           std::source_location::current())[0];
  };
  const std::vector<Expr> fetches{slowly(x), slowly(y)};
  Function before = engine.compile(g, {x, y}, fetches);
  BOOST_TEST(!says(before.explain(), {"cpu:1"}));
  before({Tensor::of<float>({1, 2}), Tensor::of<float>({3, 4})});
  Function after = engine.compile(g, {x, y}, fetches);
  BOOST_TEST(says(after.explain(), {"\ncpu:1 "}), after.explain());
  BOOST_TEST(after({Tensor::of<float>({1, 2}), Tensor::of<float>({3, 4})})[1].at(1) == 4);
}

BOOST_AUTO_TEST_CASE(a_loop_stays_together_but_for_what_is_constrained) {
  Graph g;
  Expr x = g.input("x", DType::f32, {256, 256}), y = g.input("y", DType::f32, {256, 256});
  const auto loop = [&](const Expr& start, const char* there) {
    return while_loop([](Expr i, Expr) { return i < 100; },
                      [&](Expr i, Expr v) {
                        Expr next = matmul(v, v);
                        if (there) {
                          auto d = g.on_device(there);
                          next = exp(next);
                        }
                        return std::tuple{i + 1, next};
                      },
                      std::tuple{g.constant(0), start});
  };
  auto [i, p] = loop(x, nullptr);
  auto [j, q] = loop(y, "/node:c");
  const Placed placed = place(lowered(g, {x, y}, {p, q}), three_nodes(Placement::automatic));
  is(devices_of(placed, "Exp"), {kC}, "as constrained");
  const Devices products = devices_of(placed, "MatMul");
  BOOST_TEST((*products.begin() != *products.rbegin()), "two loops on one device");
}

BOOST_AUTO_TEST_CASE(memory_is_kept_to) {
  Graph g;
  std::vector<Variable> weights;
  Expr total = g.constant(0.f);
  for (int i = 0; i < 4; ++i) {
    weights.push_back(
        g.variable("w" + std::to_string(i), DType::f32, {1024, 1024}, Initializer::constant(0)));
    total = total + sum(exp(transpose(weights.back().read())));
  }
  // States are where they are declared: 16 MiB, with what they are worked with.
  PlacementOptions o = three_nodes(Placement::automatic);
  o.costs.device.memory_bytes = 10 << 20;
  const std::string why =
      refusal([&] { place(lowered(g, {}, {total}), o); }, Code::resource_exhausted);
  BOOST_TEST(says(why, {"does not fit into the memory of its devices",
                        "/node:a/cpu:0 would hold 20.0 MiB of 10.0 MiB", "4.0 MiB of it by"}),
             why);

  Graph h;
  Expr x = h.input("x", DType::f32, {1024, 1024});
  std::vector<Expr> parts;
  for (int i = 0; i < 4; ++i) parts.push_back(exp(x + static_cast<double>(i)));
  o.costs.device.memory_bytes = 0;
  o.costs.between_nodes.latency_ns = 1e9;
  BOOST_TEST(forecast_of(place(lowered(h, {x}, parts), o), o).devices[0].peak_bytes >= 16 << 20);
  o.costs.between_nodes = {.latency_ns = 1e9, .bytes_per_ns = 1};
  // for fetches that stay on their device until the run ends
  o.costs.device.memory_bytes = 14 << 20;
  const Placed placed = place(lowered(h, {x}, parts), o);
  for (const Forecast::OnDevice& d : forecast_of(placed, o).devices)
    BOOST_TEST(d.peak_bytes <= 14 << 20);
}

// Random graphs of products and pointwise nodes: constraints hold, and the default is never
// predicted to be better.
BOOST_AUTO_TEST_CASE(never_predicted_to_be_worse_than_the_default) {
  int moved = 0;
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    std::minstd_rand random(seed);
    const auto draw = [&](int below) {
      return static_cast<int>(random() % static_cast<unsigned>(below));
    };
    Graph g;
    std::vector<Expr> values{g.input("x", DType::f32, {128, 128})};
    std::map<std::uint64_t, std::string> constrained;
    for (int n = 0; n < 25; ++n) {
      const std::string there =
          draw(6) == 0 ? std::string("/node:") + static_cast<char>('a' + draw(3)) : std::string();
      auto scope = g.on_device(there);
      const Expr &a = values[static_cast<std::size_t>(draw(static_cast<int>(values.size())))],
                 &b = values[static_cast<std::size_t>(draw(static_cast<int>(values.size())))];
      values.push_back(draw(3) ? matmul(a, b) : a + b);
      if (!there.empty()) constrained[g.node(values.back().edge().node).origin] = there + "/cpu:0";
    }
    PlacementOptions o = three_nodes(Placement::automatic);
    o.costs.between_nodes = {.latency_ns = 1e3 * (1 + draw(100)),
                             .bytes_per_ns = 1 + draw(4) * 1.0};
    const Program program = lowered(g, {values[0]}, {values.back(), values[12]});
    const Placed placed = place(program, o);
    PlacementOptions plain = o;
    plain.policy = Placement::constraints;
    const Placed at_default = place(program, plain);
    BOOST_TEST(forecast_of(placed, o).ns <= forecast_of(at_default, o).ns * (1 + 1e-9),
               "seed " << seed);
    moved += placed.device != at_default.device;
    for (std::int32_t id = 0; id < placed.program.graph.size(); ++id) {
      auto it = constrained.find(placed.program.graph.node(id).origin);
      if (it != constrained.end())
        BOOST_TEST(placed.device[static_cast<std::size_t>(id)] == it->second, "seed " << seed);
    }
  }
  BOOST_TEST(moved > 20);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
