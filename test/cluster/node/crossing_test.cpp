// Traffic between nodes: how many messages, how often, how large, and in which type.
#include <boost/test/unit_test.hpp>

#include <troupe/actors/executor/loop_report.hpp>
#include <troupe/test/support/cluster/faulty.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(crossing_test)

namespace {

using namespace std::chrono_literals;

const std::string kA = "/node:a/cpu:0", kB = "/node:b/cpu:0", kC = "/node:c/cpu:0";

/// The cut edges of a's first plan, as all nodes' ends together have counted them.
std::vector<EdgeCounters> counted_edges(Nodes& nodes) {
  std::map<std::pair<std::int32_t, std::int32_t>, EdgeCounters> edges;
  for (const NodeAnswer& answer :
       nodes[0].inspect({.kind = NodeQuestion::Kind::counters, .plan = {"a", 1, 1}})) {
    BOOST_TEST(answer.has_answered, answer.why);
    for (const PartitionSnapshot& partition : answer.report.partitions)
      for (const EdgeCounters& e : partition.edges) {
        EdgeCounters& both = edges[{e.to, e.receive}];
        both.to = e.to, both.receive = e.receive;
        both.sent += e.sent, both.bytes += e.bytes, both.received += e.received;
      }
  }
  std::vector<EdgeCounters> all;
  for (const auto& [end, e] : edges) all.push_back(e);
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(constants_are_copied_to_their_users) {
  Nodes nodes(3);
  Graph g;
  Expr x = g.input("x", DType::f32, {2}),
       big = g.constant(Tensor::of<float>(std::vector<float>(1 << 18, 0.5f), {1 << 18}));
  Expr y, z;
  {
    auto there = g.on_device(kB);
    y = x * sum(big * sum(x));
  }
  {
    auto there = g.on_device(kC);
    z = x + 1.0;
  }
  compare(nodes.engine().run(g, {{x, Tensor::of<float>({1, 2})}}, {y, z}, {}),
          {{393216, 786432}, {2, 3}}, "values");
  BOOST_TEST(nodes[1].counters().bytes_in > 1u << 20);
  BOOST_TEST(nodes[2].counters().bytes_in < 1u << 16);
}

// A value is sent once to a device, however many use it there: counted by the bytes.
BOOST_AUTO_TEST_CASE(a_value_crosses_once) {
  Nodes nodes(2);
  Graph g;
  Expr x = g.input("x", DType::f32, {1 << 16}), y = exp(x);
  std::vector<Expr> sums;
  for (int i = 0; i < 4; ++i) {
    auto there = g.on_device(kB);
    sums.push_back(sum(y * (i + 1.0)));
  }
  Function f = nodes.engine().compile(g, {x}, sums, {.optimize = false});
  const Tensor feed = Tensor::zeros(DType::f32, {1 << 16});
  f({feed});
  const std::uint64_t before = nodes[1].counters().bytes_in;
  f({feed});
  BOOST_TEST(nodes[1].counters().bytes_in - before >= 1u << 18);
  BOOST_TEST(nodes[1].counters().bytes_in - before < (1u << 18) + 4096);
}

// Partitions of one node share a value's bytes on the way, of large values and of small ones.
BOOST_AUTO_TEST_CASE(a_value_crosses_once_for_all_devices_of_a_node) {
  for (const std::int64_t n : {std::int64_t{1} << 10, std::int64_t{1} << 16}) {
    Nodes nodes(2);
    Graph g;
    Expr x = g.input("x", DType::f32, {n}), y = exp(x);
    std::vector<Expr> sums;
    for (int i = 0; i < 3; ++i) {
      auto there = g.on_device("/node:b/cpu:" + std::to_string(i));
      sums.push_back(sum(y * (i + 1.0)));
    }
    Function f = nodes.engine().compile(g, {x}, sums, {.optimize = false});
    const Tensor feed = Tensor::zeros(DType::f32, {n});
    f({feed});
    const std::uint64_t before = nodes[1].counters().bytes_in;
    const std::vector<Tensor> got = f({feed});
    for (int i = 0; i < 3; ++i)
      BOOST_TEST(got[static_cast<std::size_t>(i)].item<float>() ==
                 static_cast<float>(n) * static_cast<float>(i + 1));
    const auto bytes = static_cast<std::uint64_t>(n) * sizeof(float);
    BOOST_TEST(nodes[1].counters().bytes_in - before >= bytes);
    BOOST_TEST(nodes[1].counters().bytes_in - before < bytes + 4096);
  }
}

// A predicate crosses once, too: it decides whether b goes on, and where its Switches send tokens.
BOOST_AUTO_TEST_CASE(a_predicate_crosses_once) {
  for (const bool is_used : {false, true}) {
    // by sender and iteration; of a deterministic engine: one thread
    std::map<std::pair<std::string, std::int64_t>, int> tokens;
    Nodes nodes(
        2, stepped(), Between::handles, {},
        [&](const std::string& name,
            std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
          return std::make_unique<FaultyTransport>(
              std::move(inner),
              [&tokens, name](Peer peer, Lane lane, Message m, const FaultyTransport::Send& send) {
                if (const auto said = as<RunTokens>(m))
                  for (const RunToken& token : said->tokens)
                    for (std::int32_t i = 0; i < token.times; ++i)
                      ++tokens[{name, token.path.depth == 1 ? token.path.number[0] + i : -1}];
                send(peer, lane, std::move(m));
              });
        });
    Graph g;
    Expr x = g.input("x", DType::f32, {2});
    auto [n, t] =
        while_loop([](Expr i, Expr) { return i < 5; },
                   [&](Expr i, Expr v) {
                     // passes merge it with the predicate's node
                     Expr next = i + 1, more = i < 5;
                     auto d = g.on_device(kB);
                     Expr sum = v + 1.0;
                     return std::tuple{next, is_used ? sum + cast(more, DType::f32) : sum};
                   },
                   std::tuple{g.constant(0), x * 1.0});
    Function f = nodes.engine().compile(g, {x}, {t * 1.0});
    const double expected = is_used ? 10 : 5;
    compare(f({Tensor::zeros(DType::f32, {2})}), {{expected, expected}}, "values");
    for (std::int64_t i = 0; i < 5; ++i)
      BOOST_TEST((tokens[{"a", i}]) == (is_used ? 2 : 1), "iteration " << i);
    BOOST_TEST((tokens[{"a", 5}]) >= 1);
  }
}

// Tokens and grants of a turn go together: one message each way, however narrow the window.
BOOST_AUTO_TEST_CASE(an_iteration_takes_two_messages) {
  constexpr int kIterations = 100;
  for (const auto& [window, ahead] : {std::pair{1, 0}, {2, 0}, {8, 0}, {32, 0}, {1, 16}, {8, 64}}) {
    std::uint64_t messages = 0, tokens = 0, grants = 0;
    EngineOptions o = stepped();
    o.edges.ahead = ahead;
    Nodes nodes(
        2, o, Between::handles, {},
        [&](const std::string&, std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
          return std::make_unique<FaultyTransport>(
              std::move(inner),
              [&](Peer peer, Lane lane, Message m, const FaultyTransport::Send& send) {
                if (const auto said = as<RunTokens>(m))
                  ++messages, tokens += said->tokens.size(), grants += said->grants.size();
                send(peer, lane, std::move(m));
              });
        });
    Graph g;
    Expr limit = g.input("limit", DType::i32, {});
    const auto last = while_loop([&](std::vector<Expr> v) { return v[0] < limit; },
                                 [&](std::vector<Expr> v) {
                                   auto d = g.on_device(kB);
                                   return std::vector<Expr>{v[0] + 1};
                                 },
                                 std::vector<Expr>{g.constant(0)}, {.parallel_iterations = window});
    Function f = nodes.engine().compile(g, {limit}, {last});
    BOOST_TEST(f({Tensor::scalar<std::int32_t>(kIterations)})[0].item<std::int32_t>() ==
               kIterations);
    BOOST_TEST_MESSAGE("window " << window << ", " << ahead << " ahead: " << messages
                                 << " messages, " << tokens << " tokens, " << grants << " grants");
    BOOST_TEST(messages <= 2u * kIterations + 8);
    BOOST_TEST(tokens >= 2u * kIterations);
    BOOST_TEST(grants >= static_cast<std::uint64_t>(kIterations / std::max(window, ahead)));
  }
}

// The run's owner has no part in a loop between others: what it says and hears does not grow with
// the iterations.
BOOST_AUTO_TEST_CASE(no_iteration_goes_by_the_owner_of_the_run) {
  Nodes nodes(3, stepped());
  Graph g;
  Expr limit = g.input("limit", DType::i32, {}), last;
  {
    auto all = g.on_device(kB);
    const auto out = while_loop([&](std::vector<Expr> v) { return v[0] < limit; },
                                [&](std::vector<Expr> v) {
                                  auto d = g.on_device(kC);
                                  return std::vector<Expr>{v[0] + 1};
                                },
                                std::vector<Expr>{g.constant(0)});
    last = out[0] * 1;
  }
  Function f = nodes.engine().compile(g, {limit}, {last}, {.optimize = false});
  const auto count = [&](ClusterNode& node) {
    return node.counters().messages_in + node.counters().messages_out;
  };
  const auto takes = [&](int iterations) {
    const std::uint64_t a = count(nodes[0]), b = count(nodes[1]);
    BOOST_TEST(f({Tensor::scalar<std::int32_t>(iterations)})[0].item<std::int32_t>() == iterations);
    while (nodes.step()) {}
    return std::pair{count(nodes[0]) - a, count(nodes[1]) - b};
  };
  takes(10);
  const auto few = takes(100), many = takes(1000);
  BOOST_TEST(many.first == few.first);
  BOOST_TEST(many.second - few.second >= 2 * 900u);  // there and back
}

// So many edges hold tokens of an iteration back that those of one edge are not joined while they
// wait, but when a grant lets them go.
BOOST_AUTO_TEST_CASE(token_that_waits_for_many_grants_counts_once) {
  constexpr int kIterations = 100;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    EngineOptions o = stepped(seed);
    o.edges.ahead = 0;
    Nodes nodes(7, o, Between::handles);
    Graph g;
    Expr limit = g.input("limit", DType::i32, {});
    const std::vector<Expr> last =
        while_loop([&](std::vector<Expr> v) { return v[0] < limit; },
                   [&](std::vector<Expr> v) {
                     v[0] = v[0] + 1;
                     for (std::size_t i = 1; i < v.size(); ++i) {
                       auto d = g.on_device(fmt::format("/node:{}/cpu:0", "abcdefg"[i]));
                       v[i] = v[i] + 1;
                     }
                     return v;
                   },
                   std::vector<Expr>(7, g.constant(0)), {.parallel_iterations = 8});
    Function f = nodes.engine().compile(g, {limit}, last, {.optimize = false});
    for (const Tensor& t : f({Tensor::scalar<std::int32_t>(kIterations)}))
      BOOST_TEST(t.item<std::int32_t>() == kIterations);
    std::size_t predicates = 0;
    for (const EdgeCounters& e : counted_edges(nodes)) {
      BOOST_TEST(e.sent == e.received, "edge " << e.receive << " to " << e.to << ", seed " << seed);
      predicates += e.received == kIterations + 1u;
    }
    BOOST_TEST(predicates == 6u);
  }
}

// A value that is equal for consecutive iterations goes as one token, and a grant replaces those
// before it: for a loop whose iterations do not wait for each other, and for one in a loop, whose
// executions are not taken for one another.
BOOST_AUTO_TEST_CASE(iterations_with_equal_tokens_share_one) {
  constexpr int kIterations = 600;
  for (const bool is_nested : {false, true})
    for (const auto& [window, ahead] :
         {std::pair{1, 0}, {3, 0}, {32, 0}, {1, 16}, {3, 64}, {3, 1024}}) {
      const int reach = std::max(window, ahead);
      std::uint64_t tokens = 0, iterations = 0, grants = 0;
      EngineOptions o = stepped();
      o.edges.ahead = ahead;
      Nodes nodes(
          2, o, Between::handles, {},
          [&](const std::string& name,
              std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
            return std::make_unique<FaultyTransport>(
                std::move(inner),
                [&, name](Peer peer, Lane lane, Message m, const FaultyTransport::Send& send) {
                  if (const auto said = as<RunTokens>(m)) {
                    if (name == "a") tokens += said->tokens.size();
                    for (const RunToken& token : said->tokens)
                      iterations += name == "a" ? static_cast<std::uint64_t>(token.times) : 0;
                    // so many do not wait for more, or for the turn's end
                    for (const RunToken& token : said->tokens)
                      BOOST_TEST(token.times <=
                                 std::min(std::max(reach, is_nested ? 2 : 1), 256 + window));
                    grants += said->grants.size();
                  }
                  send(peer, lane, std::move(m));
                });
          });
      Graph g;
      Expr limit = g.input("limit", DType::i32, {});
      const auto inner = [&](std::vector<Expr> initial) {
        return while_loop([&](std::vector<Expr> v) { return v[0] < limit; },
                          [&](std::vector<Expr> v) {
                            Expr next = v[0] + 1;
                            auto d = g.on_device(kB);
                            return std::vector<Expr>{next, v[1] + 1};
                          },
                          std::move(initial), {.parallel_iterations = window});
      };
      std::vector<Expr> last;
      if (is_nested)
        last =
            while_loop([&](std::vector<Expr> v) { return v[0] < 3; },
                       [&](std::vector<Expr> v) {
                         return std::vector<Expr>{v[0] + 1, inner({g.constant(0), v[1]})[1]};
                       },
                       std::vector<Expr>{g.constant(0), g.constant(0)}, {.parallel_iterations = 2});
      else last = inner({g.constant(0), g.constant(0)});
      Function f = nodes.engine().compile(g, {limit}, {last[1]}, {.optimize = false});
      const int executions = is_nested ? 3 : 1;
      BOOST_TEST(f({Tensor::scalar<std::int32_t>(kIterations)})[0].item<std::int32_t>() ==
                 executions * kIterations);
      BOOST_TEST_MESSAGE("window " << window << ", " << ahead << " ahead: " << tokens
                                   << " tokens for " << iterations << " iterations, " << grants
                                   << " grants");
      BOOST_TEST(iterations >= static_cast<std::uint64_t>(executions * kIterations));
      if (reach == 1) BOOST_TEST(tokens >= iterations - 2);
      else
        BOOST_TEST(tokens <=
                   iterations / static_cast<std::uint64_t>(std::min(reach, 256)) * 3 / 2 + 40);
      if (reach <= kIterations)
        BOOST_TEST(grants >= static_cast<std::uint64_t>(kIterations / reach));
      // However many go as one, each counts. The last iteration of the outer loop makes no inner
      // one: a dead token says so.
      const auto live = static_cast<std::uint64_t>(executions * (kIterations + 1));
      const std::vector<EdgeCounters> edges = counted_edges(nodes);
      const bool is_counted = std::any_of(edges.begin(), edges.end(), [&](const EdgeCounters& e) {
        return e.bytes == live * size_of(DType::boolean) && e.sent == live + is_nested;
      });
      BOOST_TEST(is_counted, "the predicate's tokens, and their bytes");
    }
}

BOOST_AUTO_TEST_CASE(an_edge_between_nodes_holds_no_more_bytes_than_it_may) {
  constexpr std::uint64_t kToken = 64 * 64 * sizeof(float);
  constexpr int kIterations = 100;
  for (const auto& [between, is_sent_from_there] :
       {std::pair{Between::handles, false}, {Between::simulation, false}, {Between::handles, true}})
    for (const std::uint64_t limit : {std::uint64_t{1}, 5 * kToken / 2, std::uint64_t{1} << 30}) {
      EngineOptions o = stepped_partitions(3);
      o.edges.bytes = limit;
      Nodes nodes(2, o, between);
      Graph g;
      Expr x = g.ones(DType::f32, {64, 64});
      const auto on = [&](bool is_there, auto make) {
        auto d = g.on_device(is_there ? kB : kA);
        return make();
      };
      auto [n, s] = while_loop(
          [&](Expr i, Expr) { return on(is_sent_from_there, [&] { return i < kIterations; }); },
          [&](Expr i, Expr t) {
            Expr next = on(is_sent_from_there, [&] { return i + 1; });
            Expr y = on(is_sent_from_there, [&] { return x * cast(i, DType::f32); });
            return std::tuple{next, on(!is_sent_from_there, [&] { return t + sum(y); })};
          },
          std::tuple{g.constant(0), g.constant(0.f)}, {.parallel_iterations = 16});
      Function f = nodes.engine().compile(g, {}, {n, s});
      BOOST_TEST(f({})[1].at(0) == 64.0 * 64 * kIterations * (kIterations - 1) / 2,
                 boost::test_tools::tolerance(1e-6));
      std::uint64_t held = 0, most = 0;
      for (const LoopReport& r : f.loops()) {
        BOOST_TEST((r.held_by_bytes == 0 || r.device == (is_sent_from_there ? kB : kA)));
        held += r.held_by_bytes, most = std::max(most, r.most_bytes_on_way);
      }
      BOOST_TEST_CONTEXT("limit " << limit << (is_sent_from_there ? ", from there" : "")
                                  << (between == Between::handles ? "" : ", a simulated network")) {
        BOOST_TEST((held > 0) == (limit < 16 * kToken));       // it was seen to bind
        BOOST_TEST(most <= std::max(limit, kToken) + kToken);  // besides the oldest iteration's
        BOOST_TEST(most >= std::min(limit, 16 * kToken) / kToken * kToken);
      }
    }
}

BOOST_AUTO_TEST_CASE(edges_between_nodes_may_be_narrowed) {
  EngineOptions narrow;
  narrow.edges.as_bf16 = true;
  Nodes nodes(2, narrow);
  Graph g;
  Expr x = g.input("x", DType::f32, {4}), y = x * 1.0 + 0.0;
  Expr z;
  {
    auto there = g.on_device(kB);
    z = exp(y) * 0.0 + y;
  }
  auto [n, s] = while_loop([](Expr i, Expr) { return i < 5; },
                           [&](Expr i, Expr v) {
                             Expr half = v * 0.5;
                             auto d = g.on_device(kB);
                             return std::tuple{i + 1, half + 1.0};
                           },
                           std::tuple{g.constant(0), y});
  // A value that steers a loop is not rounded: bf16 has no 257.
  auto [steps, sum] = while_loop([](Expr i, Expr) { return i < 300.0; },
                                 [&](Expr i, Expr v) {
                                   auto d = g.on_device(kB);
                                   return std::tuple{i + 1.0, v + 0.0};
                                 },
                                 std::tuple{troupe::sum(y) * 0.0, y});
  compare(nodes.engine().run(g, {{x, Tensor::of<float>({1, 1, 1, 1})}}, {steps}), {{300}},
          "a scalar goes as it is");
  Function f = nodes.engine().compile(g, {x}, {z, s, y}, {.optimize = false});
  const std::string text = f.explain();
  BOOST_TEST(says(text, {"bf16[4], 8 B (rounded)"}), text);
  const std::vector<Tensor> out = f({Tensor::of<float>({1, 1.00390625f, 3.14159265f, -1e30f})});
  compare({out[2]}, {{1, 1.00390625, 3.14159274, -1e30}}, "what stays is as it was");
  for (int i = 0; i < 4; ++i)
    BOOST_TEST(std::abs(out[0].at(i) - out[2].at(i)) <= std::abs(out[2].at(i)) / 256);
  BOOST_TEST(out[0].at(1) != out[2].at(1));  // which has one digit too many
  BOOST_TEST(out[1].at(0) == 1.96875, boost::test_tools::tolerance(0.02));
}

BOOST_AUTO_TEST_CASE(one_edge_between_nodes_may_be_narrowed) {
  Nodes nodes(2);
  Graph g;
  Expr x = g.input("x", DType::f32, {3}), y = x * 1.0 + 0.0, lossy, whole;
  {
    auto there = g.on_device(kB);
    lossy = edge_as_bf16(y) * 2.0;
    whole = (y + 1.0) * 2.0;
  }
  auto [n, s] = while_loop([](Expr i, Expr) { return i < 3; },
                           [&](Expr i, Expr v) {
                             Expr half = edge_as_bf16(v * 0.5);
                             auto d = g.on_device(kB);
                             return std::tuple{i + 1, half + 0.00390625};
                           },
                           std::tuple{g.constant(0), y});
  Function f = nodes.engine().compile(g, {x}, {lossy, whole, s}, {.optimize = false});
  const std::vector<Tensor> out = f({Tensor::of<float>({1, 1.00390625f, 2.0f})});
  compare({out[0]}, {{2, 2, 4}},
          "to the nearest, ties to even, on its way there, and whole on its way back");
  compare({out[1]}, {{4, 4.0078125, 6}}, "the other edge of it is as it was");
  // From 1: 1/2, + 2^-8; half of that, 0.251953125, is a number of bf16; + 2^-8, half of that
  // 0.1279296875, + 2^-8. The way back is not narrowed.
  compare({out[2]}, {{0.1318359375, 0.1318359375, 0.255859375}}, "of each iteration");
}

// Its increments were lost: what comes behind the first iteration is another value than the loop
// began with.
BOOST_AUTO_TEST_CASE(loop_with_a_narrowed_first_value_continues_in_full_precision) {
  Nodes nodes(2);
  Graph g;
  Expr x = g.input("x", DType::f32, {1}), y = edge_as_bf16(x * 1.0);
  auto [n, s] = while_loop([](Expr i, Expr) { return i < 3; },
                           [&](Expr i, Expr v) {
                             Expr more = v + 0.00390625;
                             auto d = g.on_device(kB);
                             return std::tuple{i + 1, more * 1.0};
                           },
                           std::tuple{g.constant(0), y});
  for (const bool optimize : {false, true})
    compare(
        nodes.engine().compile(g, {x}, {s * 1.0}, {.optimize = optimize})({Tensor::of<float>({1})}),
        {{1.01171875}}, "whole");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
