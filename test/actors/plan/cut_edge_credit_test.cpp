// Not under tsan: it makes plans on one thread.
// Iteration windows of cut edges: which may be ahead of what `parallel_iterations` says, and that
// both ends come to the same.
#include <map>
#include <set>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <troupe/actors/placement/placement.hpp>
#include <troupe/actors/plan/pass_order.hpp>
#include <troupe/test/support/cluster/finder.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/programs/random_programs.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(cut_edge_credit_test, TROUPE_ONE_THREAD)

namespace {

Plan plan_of(const Graph& g, const std::vector<Expr>& feeds, const std::vector<Expr>& fetches,
             std::int32_t ahead, const std::vector<std::string>& scatter = {},
             std::uint64_t seed = 0) {
  std::vector<Edge> in, out;
  for (const Expr& e : feeds) in.push_back(e.edge());
  for (const Expr& e : fetches) out.push_back(e.edge());
  PlacementOptions o{.default_device = "cpu:0", .here = "a", .scatter = scatter, .seed = seed};
  o.edges.ahead = ahead;
  Finder finder("a");
  StateStore states;
  return make_plan(place(optimize(g, in, out, {.optimize = true}), o), finder, states);
}

using Windows = std::map<std::string, std::set<std::int32_t>>;  // by loop

/// Checks that the sender begins with the credit that the receiver grants, in the loops around an
/// edge, too.
void check_grants(const Plan& plan) {
  for (std::size_t p = 0; p < plan.partitions.size(); ++p)
    for (const FramePlan& frame : plan.partitions[p].frames)
      for (const FramePlan::Sender& s : frame.senders) {
        const PartitionPlan::Receive& r =
            plan.partitions[p].receives.at(static_cast<std::size_t>(s.receive));
        const PartitionPlan& sender = plan.partitions.at(static_cast<std::size_t>(r.partition));
        std::int32_t same = sender.sends.at(static_cast<std::size_t>(r.send)).frame;
        while (sender.frames.at(static_cast<std::size_t>(same)).depth > frame.depth)
          same = sender.frames[static_cast<std::size_t>(same)].parent;
        const FramePlan& there = sender.frames[static_cast<std::size_t>(same)];
        BOOST_TEST(there.name == frame.name);
        BOOST_REQUIRE(there.granted.size() == there.edges_out.size());
        for (std::size_t e = 0; e < there.edges_out.size(); ++e)
          if (sender.sends.at(static_cast<std::size_t>(there.edges_out[e])).partition ==
              static_cast<std::int32_t>(p))
            BOOST_TEST(there.granted[e] == s.window - 1);
      }
}

/// Returns the iteration windows of the edges from one node to another, in loops; checks that their
/// senders have equal ones.
Windows windows(const Plan& plan, const std::string& from, const std::string& to) {
  const auto node_of = [&](std::int32_t partition) {
    return plan.nodes.at(
        static_cast<std::size_t>(plan.partitions.at(static_cast<std::size_t>(partition)).node));
  };
  Windows found;
  for (std::size_t p = 0; p < plan.partitions.size(); ++p)
    for (const PartitionPlan::Receive& r : plan.partitions[p].receives) {
      const FramePlan& frame = plan.partitions[p].frames.at(static_cast<std::size_t>(r.frame));
      if (frame.depth == 0 || frame.function || node_of(r.partition) != from ||
          node_of(static_cast<std::int32_t>(p)) != to)
        continue;
      found[frame.name.substr(0, frame.name.find('/'))].insert(r.window);
      BOOST_TEST(plan.partitions[static_cast<std::size_t>(r.partition)]
                     .sends.at(static_cast<std::size_t>(r.send))
                     .window == r.window);
    }
  return found;
}

/// A loop of a's with a predicate that is broadcast to b in each iteration, and `sent`, made of an
/// iteration's number, which it uses.
template <class Sent>
Windows windows_to_b(int parallel_iterations, std::int32_t ahead, Sent sent) {
  Graph g;
  auto here = g.on_device("/node:a/cpu:0");
  std::vector<Expr> feeds{g.input("x", DType::f32, {kAny}),
                          g.input("y", DType::f32, Shape::unknown())};
  auto [n, s] = while_loop([](Expr i, Expr) { return i < 9; },
                           [&](Expr i, Expr v) {
                             Expr next = i + 1, what = sent(g, i, feeds);
                             auto there = g.on_device("/node:b/cpu:0");
                             return std::tuple{next, v + sum(what)};
                           },
                           std::tuple{g.constant(0), g.constant(0.f)},
                           {.name = "loop", .parallel_iterations = parallel_iterations});
  return windows(plan_of(g, feeds, {s}, ahead), "a", "b");
}

}  // namespace

BOOST_AUTO_TEST_CASE(edges_of_small_values_may_run_ahead) {
  const auto is = [](const Windows& found, std::int32_t expected, const char* what) {
    BOOST_TEST_CONTEXT(what) BOOST_TEST((found == Windows{{"loop", {expected}}}));
  };
  const auto of = [](std::int64_t elements) {
    return [elements](Graph& g, Expr i, const std::vector<Expr>&) {
      return g.ones(DType::f32, {elements}) * cast(i, DType::f32);
    };
  };
  const auto scalar = [](Graph&, Expr i, const std::vector<Expr>&) { return cast(i, DType::f32); };
  is(windows_to_b(1, 256, scalar), 256, "a scalar");
  is(windows_to_b(1, 0, scalar), 1, "nobody wants it");
  is(windows_to_b(300, 256, scalar), 300, "more are open");
  is(windows_to_b(1, 256, of(16)), 256, "64 B");
  is(windows_to_b(1, 256, of(17)), 1, "68 B, and for all edges between the two");
  is(windows_to_b(
         4, 256,
         [](Graph&, Expr i, const std::vector<Expr>& x) { return x[0] * cast(i, DType::f32); }),
     4, "of unknown extent");
  is(windows_to_b(
         4, 256,
         [](Graph&, Expr i, const std::vector<Expr>& x) { return x[1] * cast(i, DType::f32); }),
     4, "of unknown rank");
  is(windows_to_b(1, 1 << 20, scalar), 1 << 16, "more than there may be");
}

// Each two devices by themselves, and each direction.
BOOST_AUTO_TEST_CASE(large_values_of_other_edges_do_not_shrink_a_window) {
  Graph g;
  auto here = g.on_device("/node:a/cpu:0");
  auto [n, s, t] = while_loop(
      [](Expr i, Expr, Expr) { return i < 9; },
      [&](Expr i, Expr v, Expr w) {
        Expr next = i + 1, large = g.ones(DType::f32, {40, 40}) * cast(i, DType::f32), x, y;
        {
          auto there = g.on_device("/node:b/cpu:0");
          x = v + sum(large);
        }
        auto there = g.on_device("/node:c/cpu:0");
        y = w + x;
        return std::tuple{next, x, y};
      },
      std::tuple{g.constant(0), g.constant(0.f), g.constant(0.f)},
      {.name = "loop", .parallel_iterations = 2});
  const Plan plan = plan_of(g, {}, {s, t}, 100);
  BOOST_TEST((windows(plan, "a", "b") == Windows{{"loop", {2}}}));
  BOOST_TEST((windows(plan, "b", "c") == Windows{{"loop", {100}}}));
  BOOST_TEST((windows(plan, "a", "c") == Windows{{"loop", {100}}}));
}

// Executions of the inner loop multiply what waits, so the outer one keeps its iteration window.
BOOST_AUTO_TEST_CASE(only_innermost_loops_are_ahead) {
  Graph g;
  auto here = g.on_device("/node:a/cpu:0");
  auto [n, s] = while_loop([](Expr i, Expr) { return i < 9; },
                           [&](Expr i, Expr v) {
                             auto [m, w] = while_loop([](Expr k, Expr) { return k < 5; },
                                                      [&](Expr k, Expr u) {
                                                        Expr next = k + 1;
                                                        auto there = g.on_device("/node:b/cpu:0");
                                                        return std::tuple{next, u + 1.0};
                                                      },
                                                      std::tuple{g.constant(0), v},
                                                      {.name = "inner", .parallel_iterations = 3});
                             return std::tuple{i + 1, w};
                           },
                           std::tuple{g.constant(0), g.constant(0.f)},
                           {.name = "outer", .parallel_iterations = 2});
  const Plan plan = plan_of(g, {}, {s}, 256);
  BOOST_TEST((windows(plan, "a", "b") == Windows{{"outer", {2}}, {"inner", {256}}}));
  check_grants(plan);
}

BOOST_AUTO_TEST_CASE(both_ends_agree_on_random_programs) {
  const Seeds s = seeds(200);
  const std::vector<std::string> nodes{"a", "b", "c"};
  std::vector<std::string> devices;
  for (const std::string& n : nodes) devices.push_back("/node:" + n + "/cpu:0");
  std::size_t ahead = 0, held_back = 0;
  for (std::uint64_t seed = s.first; seed < s.first + s.count; ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      const Recipe r = random_recipe(seed);
      Graph g;
      Kitchen k(r, g, Devices::none);
      const Plan plan = plan_of(g, k.inputs(), k.fetches(), 64, devices, seed);
      check_grants(plan);
      for (const std::string& from : nodes)
        for (const std::string& to : nodes)
          if (from != to)
            for (const auto& [loop, found] : windows(plan, from, to))
              (found.contains(64) ? ahead : held_back) += 1;
    }
  BOOST_TEST_MESSAGE(ahead << " times ahead, " << held_back << " times not");
  if (s.count >= 20) BOOST_TEST((ahead > 0 && held_back > 0));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
