// Peers that are authorized and do not keep to the protocol: what they say too much is dropped,
// counted and logged, and values are what they would have been; what makes no sense ends their
// session; nothing crashes, and every run ends.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>

#include <troupe/test/support/cluster/faulty.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/test/support/programs/random_programs.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(faulty_peer_test)

namespace {

using namespace std::chrono_literals;

Nodes::Wrap all_repeat(std::uint64_t seed) {
  return [seed](const std::string& name,
                std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
    return std::make_unique<FaultyTransport>(
        std::move(inner),
        [repeater = std::make_shared<Repeater>(seed + static_cast<std::uint64_t>(name[0]))](
            auto&&... said) { (*repeater)(std::forward<decltype(said)>(said)...); });
  };
}

std::uint64_t refused_so_far = 0;

class Repeating final : public World {
 public:
  Repeating(int count, const EngineOptions& engine, Between between)
      : nodes_(count, Nodes::scattered(count, engine), between, {}, all_repeat(engine.seed)) {}
  ~Repeating() {
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      refused_so_far += nodes_[i].run_counters().refused;
  }
  Engine& engine() override { return nodes_.engine(); }
  bool step() override { return nodes_.step(); }

 private:
  Nodes nodes_;
};

// A loop over three nodes in one over two.
Expr nested(Graph& g) {
  auto [i, t] = while_loop(
      [](Expr n, Expr) { return n < 6; },
      [&](Expr n, Expr v) {
        auto [k, u] = while_loop([](Expr m, Expr) { return m < 5; },
                                 [&](Expr m, Expr w) {
                                   Expr next = m + 1, half;
                                   {
                                     auto d = g.on_device("/node:b/cpu:0");
                                     half = w * 0.5;
                                   }
                                   auto d = g.on_device("/node:c/cpu:0");
                                   return std::tuple{next, half + 1.0};
                                 },
                                 std::tuple{g.constant(0), v}, {.parallel_iterations = 2});
        auto d = g.on_device("/node:b/cpu:0");
        return std::tuple{n + 1, u * 2.0};
      },
      std::tuple{g.constant(0), g.ones(DType::f32, {2})}, {.parallel_iterations = 2});
  return t * 1.0;
}

double expected_of_nested() {
  double v = 1;
  for (int i = 0; i < 6; ++i) {
    for (int k = 0; k < 5; ++k) v = v * 0.5 + 1.0;
    v *= 2.0;
  }
  return v;
}

}  // namespace

BOOST_AUTO_TEST_CASE(repeated_messages_change_nothing) {
  std::uint64_t refused = 0;
  std::vector<std::string> log;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Nodes nodes(3, stepped_partitions(seed), Between::simulation, {}, all_repeat(seed));
    Graph g;
    Function f = nodes.engine().compile(g, {}, {nested(g)});
    const double expected = expected_of_nested();
    for (int round = 0; round < 3; ++round)
      compare(f({}), {{expected, expected}}, "seed " + std::to_string(seed));
    for (std::size_t i = 0; i < 3; ++i) refused += nodes[i].run_counters().refused;
    for (std::string& line : nodes.log()) log.push_back(std::move(line));
  }
  BOOST_TEST_MESSAGE(refused << " refused; " << log.size() << " lines");
  const auto is_said = [&](const std::string& what) {
    return std::any_of(log.begin(), log.end(), [&](const std::string& line) {
      return line.find(what) != std::string::npos;
    });
  };
  // Seen to happen, each of them; and there is less in the log than there is to say.
  for (const char* what :
       {"that had come", "that it was not granted", "for an iteration that is done",
        "a grant of iteration", "faulty_peer_test.cpp"})
    BOOST_TEST(is_said(what), what);
  BOOST_TEST(log.size() * 2 < refused);
}

// A failed allocation, for example. The sender is in the middle of a turn, and its other messages
// for that node are gone.
BOOST_AUTO_TEST_CASE(message_that_cannot_be_sent_fails_its_run_alone) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      // messages of tokens that b still sends before one fails; below 0: none does
      const auto left = std::make_shared<std::atomic<int>>(-1);
      const Nodes::Wrap wrap = [left](
                                   const std::string& name,
                                   std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
        return std::make_unique<FaultyTransport>(
            std::move(inner),
            [=](Peer to, Lane lane, Message message, const FaultyTransport::Send& send) {
              if (name == "b" && *left >= 0 && as<RunTokens>(message) && (*left)-- == 0)
                throw Error(Code::resource_exhausted, "no memory to send it");
              send(to, lane, std::move(message));
            });
      };
      Nodes nodes(3, stepped_partitions(seed), Between::simulation, {}, wrap);
      Graph g;
      Function f = nodes.engine().compile(g, {}, {nested(g)});
      const double expected = expected_of_nested();
      compare(f({}), {{expected, expected}}, "before");
      *left = static_cast<int>(seed % 12);
      const std::string why = refusal([&] { f({}); }, Code::resource_exhausted);
      BOOST_TEST(why.find("so the run was cancelled: no memory to send it") != std::string::npos,
                 why);
      compare(f({}), {{expected, expected}}, "after");
    }
}

BOOST_AUTO_TEST_CASE(repeated_messages_of_calls_change_nothing) {
  std::uint64_t refused = 0;
  std::vector<std::string> log;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Nodes nodes(3, stepped_partitions(seed), Between::simulation, {}, all_repeat(seed));
    Graph g;
    const ValueSpec count{DType::i64, Shape{}};
    GraphFunction<Expr(Expr)> tree(g, "tree", {count}, {count});
    tree.define([&](Expr n) {
      return cond(
          n == 0, [&] { return n + 1; },
          [&] {
            Expr less = [&] {
              auto d = g.on_device("/node:b/cpu:0");
              return n - 1;
            }();
            auto [i, sum] = while_loop([](Expr k, Expr) { return k < 2; },
                                       [&](Expr k, Expr s) {
                                         Expr more = tree(less);
                                         auto d = g.on_device("/node:c/cpu:0");
                                         return std::tuple{k + 1, s + more};
                                       },
                                       std::tuple{g.constant(0), g.constant(std::int64_t{0})});
            return sum;
          });
    });
    Function f = nodes.engine().compile(g, {}, {tree(4)});
    for (int round = 0; round < 3; ++round) compare(f({}), {{16}}, "seed " + std::to_string(seed));
    for (std::size_t i = 0; i < 3; ++i) refused += nodes[i].run_counters().refused;
    for (std::string& line : nodes.log()) log.push_back(std::move(line));
  }
  BOOST_TEST_MESSAGE(refused << " refused; " << log.size() << " lines");
  const auto is_said = [&](const std::string& what) {
    return std::any_of(log.begin(), log.end(), [&](const std::string& line) {
      return line.find(what) != std::string::npos;
    });
  };
  for (const char* what : {"that had come", "for a call that has ended",
                           "for a call that was not made", "faulty_peer_test.cpp"})
    BOOST_TEST(is_said(what), what);
}

BOOST_AUTO_TEST_CASE(values_are_the_oracles) {
  refused_so_far = 0;
  const auto repeating = [](int count, Between between = Between::handles) {
    return [=](const EngineOptions& engine) {
      return std::make_unique<Repeating>(count, engine, between);
    };
  };
  const std::vector<Way> ways{
      {.name = "two nodes that repeat",
       .is_deterministic = true,
       .in_flight = true,
       .seed = 1,
       .world = repeating(2)},
      {.name = "three nodes that repeat, a simulated network",
       .is_deterministic = true,
       .in_flight = true,
       .seed = 2,
       .world = repeating(3, Between::simulation)},
      {.name = "three nodes that repeat, threads",
       .workers = 1,
       .granularity = Granularity::automatic,
       .seed = 3,
       .world = repeating(3)},
  };
  // The way with threads is due for one of three programs, and TSan runs no other.
  Seeds s = seeds(100);
  s.count = std::max<std::uint64_t>(s.count, 3);
  compare_values(ways, s, {});
  BOOST_TEST(refused_so_far > 0u);
}

// Bytes of any message turned over, but for programs (fuzz/programs.cpp has those): sessions end
// and runs fail, or hang until they are cancelled, for a token that is lost is not distinguished
// from one that is late. Nothing else happens, and what is of one node alone goes on.
BOOST_AUTO_TEST_CASE(nonsense_ends_sessions_and_nothing_else) {
  const auto [first, count] = seeds(300);
  std::uint64_t done = 0, failed = 0, cancelled = 0, refused = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      const auto dice = std::make_shared<std::minstd_rand>(seed);
      bool is_wrong = false;
      const auto garble = [&, dice](Peer peer, Lane lane, Message m,
                                    const FaultyTransport::Send& send) {
        if (is_wrong && !as<MakePlan>(m) && (*dice)() % 20 == 0 && !m.head.empty())
          m.head[(*dice)() % m.head.size()] ^= std::byte(1 << (*dice)() % 8);
        send(peer, lane, std::move(m));
      };
      Nodes nodes(3, stepped_partitions(seed), Between::simulation, {},
                  [&](const std::string& name,
                      std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
                    return name == "b" ? std::make_unique<FaultyTransport>(std::move(inner), garble)
                                       : std::move(inner);
                  });
      Graph g;
      Function f = nodes.engine().compile(g, {}, {nested(g)});
      is_wrong = true;
      for (int round = 0; round < 3; ++round) {
        try {
          RunHandle run = f.start({});
          const Time until = nodes.network().now() + 60s;
          while (!run.is_done() && nodes.network().now() < until) nodes.step();
          if (!run.is_done()) {
            ++cancelled;
            run.cancel();
          }
          run.wait().ok() ? ++done : ++failed;
        } catch (const Error&) {  // there is no node b any more
          ++failed;
        }
      }
      Graph alone;
      compare(nodes.engine().run(alone, {}, {alone.constant(2.f) * alone.ones(DType::f32, {2})}),
              {{2, 2}}, "goes on");
      for (std::size_t i = 0; i < 3; ++i) refused += nodes[i].run_counters().refused;
    }
  }
  BOOST_TEST_MESSAGE(done << " done, " << failed << " failed, " << cancelled << " cancelled; "
                          << refused << " refused");
  if (count >= 20) BOOST_TEST((done > 0 && failed > 0 && refused > 0));
}

// c sends b more tokens than b keeps for a run that a has not begun there: a's way to b is slow.
BOOST_AUTO_TEST_CASE(early_messages_are_bounded_for_each_peer) {
  for (const EarlyLimits& limits : {EarlyLimits{.messages = 4}, EarlyLimits{.bytes = 1000}}) {
    Nodes nodes(3, stepped_partitions(1), Between::simulation, {}, {}, limits);
    Graph g;
    Expr x = g.input("x", DType::f32, {64});
    std::vector<Expr> there, sums;
    {
      auto d = g.on_device("/node:c/cpu:0");
      for (int i = 0; i < 8; ++i) there.push_back(x * (i + 1.0));
    }
    {
      auto d = g.on_device("/node:b/cpu:0");
      for (Expr& e : there) sums.push_back(sum(e));
    }
    Function f = nodes.engine().compile(g, {x}, sums, {.optimize = false});
    nodes.network().slow_down("a", "b", 1s, 0);
    const Status status = f.start({Tensor::zeros(DType::f32, {64})}).wait();
    BOOST_TEST((status.code() == Code::unavailable), status.message());
    const std::vector<std::string> log = nodes.log();
    BOOST_REQUIRE(!log.empty());
    BOOST_TEST(says(log[0],
                    {"node 'c'", "for runs that have not begun on node 'b'", "NodeOptions::early"}),
               log[0]);
    BOOST_TEST(nodes[1].run_counters().early > 0u);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
