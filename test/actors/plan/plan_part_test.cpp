// Not under tsan: it makes plans on one thread.
// Parts of plans: what one node is sent of a program makes the partitions that the whole program
// makes for it.
//
//   TROUPE_SEED=7 test_cluster --run_test=plan_part_test/random_programs*     # one program
#include <map>
#include <set>

#include <troupe/actors/plan/pass_order.hpp>
#include <troupe/actors/plan/plan_part.hpp>
#include <troupe/cluster/protocol/messages.hpp>
#include <troupe/cluster/protocol/program_codec.hpp>
#include <troupe/controlflow/function.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/test/support/cluster/finder.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/programs/random_programs.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(plan_part_test, TROUPE_ONE_THREAD)

namespace {

Plan plan_on(const std::string& node, Placed placed, Finder& finder) {
  StateStore states;
  finder.name = node;
  return make_plan(std::move(placed), finder, states);
}

Message message_for(const std::string& node, const Placed& part) {
  MessageWriter w;
  write(w, part, node);
  return w.take();
}

Placed read_on(const std::string& node, Message m) {
  MessageReader r(m);
  Placed placed;
  read(r, placed, node);
  r.end();
  return placed;
}

Placed placed_of(const Graph& g, const std::vector<Expr>& feeds, const std::vector<Expr>& fetches,
                 const std::vector<std::string>& scatter = {}, std::uint64_t seed = 0) {
  std::vector<Edge> in, out;
  for (const Expr& e : feeds) in.push_back(e.edge());
  for (const Expr& e : fetches) out.push_back(e.edge());
  return place(optimize(g, in, out, {.optimize = true}),
               {.default_device = "cpu:0", .here = "n0", .scatter = scatter, .seed = seed});
}

/// A program as its owner, n0, has planned it, and as its parts are on the other nodes.
class Divided {
 public:
  explicit Divided(Placed placed)
      : placed_(std::move(placed)), whole_(plan_on("n0", Placed(placed_), finder_)),
        parts_(whole_, placed_) {}

  const Plan& whole() const { return whole_; }
  std::int32_t index_of(const std::string& node) const {
    return static_cast<std::int32_t>(std::find(whole_.nodes.begin(), whole_.nodes.end(), node) -
                                     whole_.nodes.begin());
  }
  Placed part(const std::string& node) const {
    return parts_.is_divisible() ? parts_.of(index_of(node)) : placed_;
  }
  Message message(const std::string& node) const { return message_for(node, part(node)); }

  /// Checks that a node's partitions are those of the whole plan; false: it has been sent all of
  /// it.
  bool check(const std::string& node) {
    BOOST_TEST_CONTEXT(node) {
      const std::int32_t index = index_of(node);
      Finder there(node);
      const Plan plan = plan_on(node, read_on(node, message(node)), there);
      BOOST_TEST(fingerprints(plan).at(static_cast<std::size_t>(plan.here)) ==
                 fingerprints(whole_).at(static_cast<std::size_t>(index)));
      BOOST_TEST(plan.nodes == whole_.nodes, boost::test_tools::per_element());
      BOOST_TEST(plan.here == index);
      std::size_t here = 0;
      for (const PartitionPlan& mine : plan.partitions) {
        if (mine.node != plan.here) continue;
        ++here;
        const PartitionPlan& same = whole_.partitions.at(static_cast<std::size_t>(mine.number));
        BOOST_TEST(mine.name == same.name);
        BOOST_TEST(mine.frames.size() == same.frames.size());
        BOOST_TEST(mine.constants.size() == same.constants.size());
        for (std::size_t f = 0; f < std::min(mine.frames.size(), same.frames.size()); ++f) {
          BOOST_TEST(mine.frames[f].awaited == same.frames[f].awaited,
                     boost::test_tools::per_element());
          BOOST_TEST(mine.frames[f].edges_out == same.frames[f].edges_out,
                     boost::test_tools::per_element());
          BOOST_TEST(mine.frames[f].granted == same.frames[f].granted,
                     boost::test_tools::per_element());
          for (std::size_t n = 0; n < mine.frames[f].nodes.size(); ++n)
            BOOST_TEST(plan.program.graph.describe(mine.frames[f].nodes[n].source) ==
                       whole_.program.graph.describe(same.frames[f].nodes.at(n).source));
        }
        check_tables(mine, same);
        for (std::size_t r = 0; r < mine.receives.size(); ++r)
          BOOST_TEST(plan.program.graph.describe(mine.receives[r].source) ==
                     whole_.program.graph.describe(same.receives.at(r).source));
      }
      const auto of_whole = std::count_if(whole_.partitions.begin(), whole_.partitions.end(),
                                          [&](const PartitionPlan& p) { return p.node == index; });
      BOOST_TEST(here == static_cast<std::size_t>(of_whole));
      return plan.is_part();
    }
    return false;
  }
  /// All but the owner; how many had a part only.
  int check_all() {
    int parts = 0;
    for (const std::string& node : std::vector<std::string>(whole_.nodes))
      if (node != "n0") parts += check(node);
    return parts;
  }

 private:
  static void check_tables(const PartitionPlan& mine, const PartitionPlan& same) {
    const auto is_range = [](const TargetRange& a, const TargetRange& b) {
      return a.first == b.first && a.last == b.last;
    };
    const auto is_target = [](const Target& a, const Target& b) { return a == b; };
    const auto are = [](const auto& a, const auto& b, auto equal) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
    };
    BOOST_TEST(are(mine.targets, same.targets, is_target));
    BOOST_TEST(mine.output_targets == same.output_targets, boost::test_tools::per_element());
    BOOST_TEST(are(mine.held, same.held, [](const Held& a, const Held& b) {
      return a.slot == b.slot && a.constant == b.constant && a.invariant == b.invariant;
    }));
    BOOST_TEST(are(mine.feeds, same.feeds, [&](const auto& a, const auto& b) {
      return a.index == b.index && is_range(a.targets, b.targets);
    }));
    BOOST_TEST(are(mine.exits, same.exits, [&](const auto& a, const auto& b) {
      return is_range(a.targets, b.targets) && a.ordinal == b.ordinal;
    }));
    BOOST_TEST(are(mine.loops, same.loops, [&](const auto& a, const auto& b) {
      return is_range(a.targets, b.targets) && is_range(a.index_targets, b.index_targets) &&
             a.frame == b.frame;
    }));
    BOOST_TEST(are(mine.enters, same.enters, [&](const auto& a, const auto& b) {
      return a.frame == b.frame && a.invariant == b.invariant && is_range(a.targets, b.targets) &&
             is_range(a.index_targets, b.index_targets);
    }));
    BOOST_TEST(are(mine.frames, same.frames, [&](const FramePlan& a, const FramePlan& b) {
      const bool forwards = are(a.forwards, b.forwards, [&](const auto& x, const auto& y) {
        return x.invariant == y.invariant && is_target(x.target, y.target);
      });
      const bool nodes = are(a.nodes, b.nodes, [&](const PlanNode& x, const PlanNode& y) {
        return x.kind == y.kind && x.first_input == y.first_input && x.awaited == y.awaited &&
               x.first_held == y.first_held && x.held == y.held &&
               x.first_output == y.first_output && x.has_only == y.has_only &&
               is_target(x.only, y.only);
      });
      return forwards && nodes && are(a.invariant_targets, b.invariant_targets, is_range) &&
             a.steady == b.steady && a.roots == b.roots && a.exits == b.exits &&
             a.edges_in == b.edges_in && a.known == b.known &&
             are(a.senders, b.senders,
                 [](const auto& x, const auto& y) {
                   return x.receive == y.receive && x.window == y.window;
                 }) &&
             a.has_predicate == b.has_predicate && a.told == b.told;
    }));
  }

  Finder finder_{"n0"};
  const Placed placed_;
  const Plan whole_;
  const PlanParts parts_;
};

/// A chain over as many nodes, four devices of each.
Placed chain_over(Graph& g, int nodes) {
  Expr x = g.input("x", DType::f32, {4}), y = x;
  for (int n = 0; n < nodes; ++n)
    for (int d = 0; d < 4; ++d) {
      auto there = g.on_device("/node:n" + std::to_string(n) + "/cpu:" + std::to_string(d));
      y = tanh(y);
    }
  return placed_of(g, {x}, {y});
}

std::string why_not(const Divided& of, const std::string& node,
                    const std::function<void(Placed&, PlanPart&)>& spoil) {
  Placed placed = of.part(node);
  auto part = std::make_shared<PlanPart>(*placed.part);
  spoil(placed, *part);
  placed.part = part;
  Finder finder(node);
  return refusal([&] { plan_on(node, read_on(node, message_for(node, placed)), finder); },
                 Code::data_loss);
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(random_programs_are_divided_into_parts) {
  const std::vector<std::string> scatter = {"/node:n0/cpu:0", "/node:n1/cpu:0", "/node:n1/cpu:1",
                                            "/node:n2/cpu:0", "/node:n3/cpu:0", "/node:n3/cpu:1"};
  const Seeds s = seeds(600);
  int parts = 0;
  for (std::uint64_t seed = s.first; seed < s.first + s.count; ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      const Recipe r = random_recipe(seed);
      Graph g;
      Kitchen k(r, g, Devices::none);
      parts += Divided(placed_of(g, k.inputs(), k.fetches(), scatter, seed)).check_all();
    }
  // each program has three nodes that could have a part
  if (s.count >= 50) BOOST_TEST(parts > static_cast<int>(s.count));
}

BOOST_AUTO_TEST_CASE(a_part_is_as_large_as_its_node_and_not_as_the_whole) {
  std::uint64_t bytes[2];
  for (int i = 0; i < 2; ++i) {
    const int nodes = i == 0 ? 10 : 80;
    Graph g;
    Divided chain(chain_over(g, nodes));
    BOOST_TEST(chain.check_all() == nodes - 1);
    const Placed part = chain.part("n5");
    BOOST_TEST(part.program.graph.size() == 5);  // its four, and the sender to the first
    BOOST_TEST(part.program.graph.node(0).op->name == "Elsewhere");
    BOOST_TEST(says(part.program.graph.describe(0), "Tanh '"));
    BOOST_TEST(part.part->partitions.size() == 6u);
    BOOST_TEST(part.part->outs.size() == 1u);
    MessageWriter names;
    names(part.part->nodes);
    bytes[i] = bytes_of(chain.message("n5")) - bytes_of(names.take());
  }
  BOOST_TEST(bytes[1] <= bytes[0] + 40);  // numbers that take a byte more
}

BOOST_AUTO_TEST_CASE(parts_contain_every_kind_of_cut_edge) {
  Graph g;
  Expr x = g.input("x", DType::f32, {}), unused = g.input("unused", DType::f32, {3}),
       flag = g.input("flag", DType::boolean, {});
  const auto on = [&g](int node, auto make) {
    auto there = g.on_device("/node:n" + std::to_string(node) + "/cpu:0");
    return make();
  };
  // Two loops, each with both nodes' operations in it, behind each other; a third is n3's alone.
  auto [n, y] = while_loop(
      [](Expr i, Expr) { return i < 5; },
      [&](Expr i, Expr t) {
        return std::tuple{i + 1, on(1, [&] { return tanh(t); }) + on(2, [&] { return t * x; })};
      },
      std::tuple{g.constant(0), x});
  Expr z = on(3, [&] {
    return std::get<1>(while_loop([](Expr i, Expr) { return i < 3; },
                                  [&](Expr i, Expr t) {
                                    return std::tuple{i + 1, exp(t)};
                                  },
                                  std::tuple{g.constant(0), y}));
  });
  Expr after = on(1, [&] {
    auto then = g.after({z});  // waits for what leaves a loop elsewhere, and does not take it
    return sin(x);
  });
  Expr chosen = cond(
      flag, [&] { return on(2, [&] { return y * 3.0; }); },
      [&] { return g.constant(Tensor::of<float>({7}, {})); });
  Expr both = on(1, [&] { return chosen + z; });
  Divided program(placed_of(g, {x, unused, flag}, {both, after, n, x, chosen}));
  BOOST_TEST(program.check_all() == 3);
  // part of a loop of other nodes
  BOOST_TEST(program.part("n3").program.graph.text().find("Tanh") == std::string::npos);
  BOOST_TEST((program.part("n3").program.feeds[1] == Edge{-1, 0}));
}

// The deciding partition sends the predicate of a loop once to each of the others, whether they use
// its value or only its decision, and to none as one of its targets.
BOOST_AUTO_TEST_CASE(the_partition_that_decides_a_loop_sends_the_predicate) {
  Graph g;
  Expr x = g.input("x", DType::f32, {});
  const auto on = [&g](int node, auto make) {
    auto there = g.on_device("/node:n" + std::to_string(node) + "/cpu:0");
    return make();
  };
  auto [n, y, z] = while_loop(
      [](Expr i, Expr, Expr) { return i < 5; },
      [&](Expr i, Expr t, Expr u) {
        return std::tuple{i + 1, on(1, [&] { return tanh(t); }), on(2, [&] { return sin(u); })};
      },
      std::tuple{g.constant(0), x, x});
  Divided program(placed_of(g, {x}, {n, y, z}));
  std::multiset<std::string> told;
  for (const PartitionPlan& p : program.whole().partitions)
    for (const FramePlan& f : p.frames) {
      for (const std::int32_t send : f.told)
        told.insert(fmt::format(
            "{} to {}", p.name,
            program.whole()
                .partitions
                .at(static_cast<std::size_t>(p.sends.at(static_cast<std::size_t>(send)).partition))
                .name));
      for (const PlanNode& node : f.nodes)
        for (std::int32_t o = 0; o < node.outputs; ++o) {
          const std::int32_t* const range = p.output_targets.data() + node.first_output + 2 * o;
          const auto goes_to = [&](Destination where) {
            return std::count_if(p.targets.begin() + range[0], p.targets.begin() + range[1],
                                 [&](const Target& t) { return t.is(where); });
          };
          if (goes_to(Destination::predicate) > 0) BOOST_TEST(goes_to(Destination::send) == 0);
        }
    }
  BOOST_TEST(told == (std::multiset<std::string>{"/node:n0/cpu:0 to /node:n1/cpu:0",
                                                 "/node:n0/cpu:0 to /node:n2/cpu:0"}),
             boost::test_tools::per_element());
  BOOST_TEST(program.check_all() == 2);
}

// Inputs and constants are no tokens of their nodes'; a fed fetch is the first partition's,
// wherever that is.
BOOST_AUTO_TEST_CASE(nodes_that_have_an_input_or_a_constant_only) {
  Graph g;
  const auto on = [&g](int node, auto make) {
    auto there = g.on_device("/node:n" + std::to_string(node) + "/cpu:0");
    return make();
  };
  Expr fed = g.input("fed", DType::f32, {}), taken = g.input("taken", DType::f32, {});
  Expr seven = on(3, [&] { return g.constant(Tensor::of<float>({7, 8}, {2})); });
  Expr kept = on(1, [&] { return g.constant(Tensor::of<float>({1, 2}, {2})); });
  Expr sum = on(0, [&] { return taken * seven; });
  Expr way = cond(
      taken > 0.0, [&] { return on(2, [&] { return tanh(kept); }); }, [&] { return kept; });
  Placed placed = placed_of(g, {fed, taken}, {fed, sum, seven, way});
  placed.device[0] = "/node:n1/cpu:0", placed.device[1] = "/node:n4/cpu:0";
  Divided program(std::move(placed));
  BOOST_TEST(program.whole().partitions[0].name == "/node:n1/cpu:0");
  BOOST_TEST(program.check_all() == 4);
  BOOST_TEST((program.part("n1").program.fetches[0] != Edge{-1, 0}));
  BOOST_TEST((program.part("n2").program.fetches[0] == Edge{-1, 0}));
}

BOOST_AUTO_TEST_CASE(a_node_that_checks_everything_gets_everything) {
  Graph g;
  Expr x = g.input("x", DType::f32, {});
  GraphFunction<Expr(Expr)> half(g, "half", {{DType::f32, {}}}, {{DType::f32, {}}});
  half.define([&](Expr v) {
    return cond(
        v < 1.0,
        [&] {
          auto here = g.on_device("/node:n0");
          return sin(v);
        },
        [&] {
          auto there = g.on_device("/node:n1");
          return tanh(half(v * 0.5)) + half(v - 1.0);
        });
  });
  Divided with_calls(placed_of(g, {x}, {half(x)}));
  BOOST_TEST(with_calls.whole().nodes.size() == 2u);
  BOOST_TEST(with_calls.check_all() == 0);
}

// The actors that may end a wait at a queue are found in the whole program; a part carries the
// result.
BOOST_AUTO_TEST_CASE(nodes_that_end_waits_at_queues_come_with_the_part) {
  Graph g;
  const auto on = [&g](int node, auto make) {
    auto there = g.on_device("/node:n" + std::to_string(node) + "/cpu:0");
    return make();
  };
  const auto queue = [&](const std::string& name) {
    return on(1, [&] { return g.fifo_queue(name, {{DType::f32, {}}}, 4); });
  };
  Expr x = g.input("x", DType::f32, {});
  Queue filled = queue("filled"), twice = queue("twice"), in_vain = queue("in_vain");
  Expr first = on(1, [&] { return tanh(filled.dequeue()[0]); });
  Expr put = on(1, [&] { return filled.enqueue({x}); });
  Expr waits = on(1, [&] { return in_vain.dequeue()[0]; });
  Expr round = on(2, [&] { return exp(waits); });
  Expr too_late = on(1, [&] { return in_vain.enqueue({round}); });  // by way of another node
  Expr looped = std::get<1>(
      while_loop([](Expr i, Expr) { return i < 3; },
                 [&](Expr i, Expr t) {
                   return on(1, [&] { return std::tuple{i + 1, t + twice.dequeue()[0]}; });
                 },
                 std::tuple{g.constant(0), x}));
  Expr more = on(1, [&] { return twice.enqueue({x}); });
  Expr other = on(3, [&] { return tanh(x); });
  Divided program(placed_of(g, {x}, {first, put, round, too_late, looped, more, other}));
  BOOST_TEST(program.check_all() == 3);
  const Placed part = program.part("n1");
  const std::vector<std::string> all = {"queue 'filled'", "queue 'in_vain'", "queue 'twice'"};
  BOOST_TEST(part.part->queues.filled == all, boost::test_tools::per_element());
  BOOST_TEST(part.part->queues.emptied == all, boost::test_tools::per_element());
  BOOST_TEST(program.part("n3").part->waits.empty());
  std::map<std::string, std::set<std::string>> ends;  // by the queue and what is done to it
  const Graph& there = part.program.graph;
  const auto does = [&](std::int32_t id) {
    const Node& n = there.node(id);
    return n.op->name + " " + there.states()[static_cast<std::size_t>(n.state)].name;
  };
  for (const PlanPart::Wait& w : part.part->waits)
    for (auto& of = ends[does(w.node)]; const std::int32_t id : w.ended_by)
      of.insert(id < 0 ? "another" : does(id));
  BOOST_TEST(ends.size() == 6u);
  BOOST_TEST((ends["Dequeue filled"] == std::set<std::string>{"Enqueue filled"}));
  BOOST_TEST((ends["Enqueue filled"] == std::set<std::string>{"Dequeue filled"}));
  BOOST_TEST(ends["Dequeue in_vain"].empty());
  BOOST_TEST((ends["Enqueue in_vain"] == std::set<std::string>{"Dequeue in_vain"}));
  BOOST_TEST((ends["Dequeue twice"] == std::set<std::string>{"Enqueue twice"}));
  for (const std::int32_t node : {-1, 0, 90}) {
    const std::string why =
        why_not(program, "n1", [&](Placed&, PlanPart& p) { p.waits[0].node = node; });
    BOOST_TEST(says(why, "lists the producers of queues"), why);
  }
  const std::string why =
      why_not(program, "n1", [&](Placed&, PlanPart& p) { p.waits[0].ended_by = {90}; });
  BOOST_TEST(says(why, "lists the producers of queues"), why);
}

BOOST_AUTO_TEST_CASE(parts_that_are_none_are_refused) {
  Graph g;
  Divided chain(chain_over(g, 4));
  const auto because = [&](const std::string& what,
                           const std::function<void(Placed&, PlanPart&)>& spoil) {
    const std::string why = why_not(chain, "n2", spoil);
    BOOST_TEST(says(why, what), why);
  };
  because("in no order", [](Placed&, PlanPart& p) { std::swap(p.numbers[0], p.numbers[1]); });
  because("in no order", [](Placed&, PlanPart& p) { p.numbers.pop_back(); });
  because("in no order", [](Placed&, PlanPart& p) { p.numbers[0] = -4; });
  because("in no order",
          [](Placed&, PlanPart& p) { p.partitions[1].number = p.partitions[0].number; });
  because("for nowhere", [](Placed&, PlanPart& p) { p.outs[0].partition = 1; });  // its own
  because("for nowhere", [](Placed&, PlanPart& p) { p.outs[0].partition = 70; });
  because("for nowhere", [](Placed&, PlanPart& p) { p.outs[0].node = -1; });
  because("for nowhere", [](Placed&, PlanPart& p) { p.outs[0].output = 9; });
  because("partitions that it does not name", [](Placed&, PlanPart& p) {
    p.partitions.erase(p.partitions.begin() + 2), p.outs.clear();
  });
  because("more edges than other ends", [](Placed&, PlanPart& p) { p.receives.pop_back(); });
  because("fewer edges than other ends", [](Placed&, PlanPart& p) { p.sends.push_back(0); });
  because("a node of Elsewhere that is none",
          [](Placed& placed, PlanPart&) { placed.device[0] = "/node:n2/cpu:0"; });
  {
    Graph loops;
    Expr x = loops.input("x", DType::f32, {});
    Expr y = std::get<1>(while_loop([](Expr i, Expr) { return i < 5; },
                                    [&](Expr i, Expr t) {
                                      auto there = loops.on_device("/node:n1");
                                      return std::tuple{i + 1, tanh(t)};
                                    },
                                    std::tuple{loops.constant(0), x}));
    Divided loop(placed_of(loops, {x}, {y}));
    const std::string why = why_not(loop, "n1", [](Placed& placed, PlanPart& p) {
      for (std::int32_t id = 0; id < placed.program.graph.size(); ++id)
        if (placed.program.graph.node(id).op->name == "Tanh") p.outs.push_back({id, 0, 0});
    });
    BOOST_TEST(says(why, "from inside of a loop"), why);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
