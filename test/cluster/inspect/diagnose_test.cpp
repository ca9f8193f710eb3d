// Every hang names its culprit: the actor, the edge, the iteration, the node and the user's line,
// within two seconds of the virtual clock; a busy machine takes longer by the real one. A node that
// is merely slow is not accused.
#include <boost/test/unit_test.hpp>

#include <condition_variable>
#include <mutex>

#include <fmt/format.h>

#include <troupe/ops/graph/actor_node.hpp>
#include <troupe/test/support/cluster/counting.hpp>
#include <troupe/test/support/cluster/faulty.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/share.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(diagnose_test)

namespace {

using namespace std::chrono_literals;

std::string texts(const std::vector<Diagnosis>& all) {
  std::string out;
  for (const Diagnosis& v : all) out += v.text + "\n";
  return out;
}

/// Expected parts of a verdict; an empty field is not checked.
struct Said {
  Diagnosis::Kind kind;
  std::string device, actor, edge, tag;  // the actor's prefix and the tag's suffix
  std::vector<std::string> text;
};

void check(const Diagnosis& v, const Said& said) {
  BOOST_TEST((v.kind == said.kind), v.text);
  BOOST_TEST(v.device == said.device, v.text);
  BOOST_TEST(v.edge == said.edge, v.text);
  BOOST_TEST(v.tag.ends_with(said.tag), v.text);
  if (!said.tag.empty()) BOOST_TEST(v.tag.starts_with("iteration "), v.tag);
  if (!said.actor.empty()) {
    BOOST_TEST(v.actor.starts_with(said.actor), v.actor);
    // the user's line
    BOOST_TEST(v.actor.find(" (diagnose_test.cpp:") != std::string::npos, v.actor);
    BOOST_TEST(v.node >= 0);
  }
  for (const std::string& part : said.text)
    BOOST_TEST(v.text.find(part) != std::string::npos, v.text);
}

/// The verdict of the first node, which has two seconds for it.
Diagnosis verdict_of(Nodes& nodes, const Said& said) {
  const Time began = nodes.network().now();
  const std::vector<Diagnosis> all = nodes[0].diagnose();
  BOOST_TEST((nodes.network().now() - began <= 2s));
  BOOST_REQUIRE_MESSAGE(all.size() == 1u, texts(all));
  check(all[0], said);
  return all[0];
}

/// A loop of a's whose body is b's: a token there and one back in each iteration.
struct ToAndFro {
  Graph g;
  Expr last;
  explicit ToAndFro(int iterations, int window = 32,
                    const Tensor& seed = Tensor::zeros(DType::f32, {2}),
                    const std::string& other = "b") {
    auto here = g.on_device("/node:a/cpu:0");
    auto [n, s] = while_loop([&](Expr i, Expr) { return i < iterations; },
                             [&](Expr i, Expr v) {
                               Expr w;
                               {
                                 auto there = g.on_device("/node:" + other + "/cpu:0");
                                 w = g.named(v + 1.0, "there");
                               }
                               return std::tuple{i + 1, g.named(w * 0.5, "back")};
                             },
                             std::tuple{g.constant(0), g.constant(seed)},
                             {.name = "fro", .parallel_iterations = window});
    last = s;
  }
};

/// Grants nothing beyond the first iteration window: credit that is too small for what depends on
/// itself.
std::unique_ptr<Transport> mean(std::unique_ptr<Transport> inner) {
  return std::make_unique<FaultyTransport>(
      std::move(inner),
      [](Peer peer, Lane lane, Message message, const FaultyTransport::Send& send) {
        auto said = as<RunTokens>(message);
        if (!said) return send(peer, lane, std::move(message));
        said->grants.clear();
        if (!said->tokens.empty()) send(peer, lane, written(*said));
      });
}

// Holds a user's actor in its own code.
struct Stuck : NodeActor {
  static std::mutex mutex;  // guards the two flags
  static std::condition_variable changed;
  static bool is_in, may_go;
  void receive(std::span<const Tensor>, std::span<Tensor> out) override {
    std::unique_lock lock(mutex);
    is_in = true;
    changed.notify_all();
    changed.wait(lock, [] { return may_go; });
    out[0] = Tensor::scalar(std::int64_t{1});
  }
  static void let(bool go) {
    std::lock_guard lock(mutex);
    may_go = go;
    if (!go) is_in = false;
    changed.notify_all();
  }
  static void wait_until_in() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [] { return is_in; });
  }
};
std::mutex Stuck::mutex;
std::condition_variable Stuck::changed;
bool Stuck::is_in = false, Stuck::may_go = false;

}  // namespace

// A run cannot begin without its feeds: a call without one fails at once and names it.
BOOST_AUTO_TEST_CASE(a_missing_feed, *boost::unit_test::label("one_thread")) {
  Nodes nodes(2, stepped(1), Between::simulation);
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{});
  Expr z = g.input("z", DType::f32, Shape{});
  auto there = g.on_device("/node:b/cpu:0");
  Expr y = x * z;
  Function f = nodes.engine().compile(g, {x, z}, {y});
  const std::string forgotten =
      refusal([&] { nodes.engine().compile(g, {x}, {y}); }, Code::invalid_argument);
  for (const char* part : {"Input 'z' (diagnose_test.cpp:"})
    BOOST_TEST(forgotten.find(part) != std::string::npos, forgotten);
  const std::string few = refusal([&] { f.start({Tensor::scalar(1.0f)}); }, Code::invalid_argument);
  for (const char* part : {"takes 2 feeds, not 1", "Input 'z' (diagnose_test.cpp:"})
    BOOST_TEST(few.find(part) != std::string::npos, few);
  BOOST_TEST(nodes[0].diagnose().empty());
}

BOOST_AUTO_TEST_CASE(a_dequeue_from_an_empty_queue_without_producer,
                     *boost::unit_test::label("one_thread")) {
  for (const std::uint64_t seed : todays_seeds(10)) {
    Nodes nodes(2, stepped(seed), Between::simulation);
    Graph g;
    Queue q = [&] {
      auto there = g.on_device("/node:b/cpu:0");
      return g.fifo_queue("jobs", {{DType::i64, Shape{}}}, 8);
    }();
    Expr x = g.input("x", DType::i64, Shape{});
    Expr put = [&] {
      auto there = g.on_device("/node:b/cpu:0");
      return q.enqueue({x});
    }();
    auto here = g.on_device("/node:a/cpu:0");
    Expr last = while_loop([](Expr i) { return i < 100; },
                           [&](Expr i) {
                             auto there = g.on_device("/node:b/cpu:0");
                             return i + q.dequeue()[0];
                           },
                           g.constant(std::int64_t{0}), {.name = "sums"});
    for (std::int64_t n : {1, 2}) nodes.engine().run(g, {{x, Tensor::scalar(n)}}, {put});
    RunHandle run = nodes.engine().compile(g, {}, {last}).start({});
    for (int i = 0; i < 5000; ++i) nodes.step();
    verdict_of(nodes, {Diagnosis::Kind::waiting,
                       "/node:b/cpu:0",
                       "Dequeue '",
                       "",
                       "iteration 2 of loop 'sums/1'",
                       {"has waited", "at queue 'jobs'"}});
    end(nodes, run);
  }
}

BOOST_AUTO_TEST_CASE(a_credit_that_is_too_small_for_a_cycle,
                     *boost::unit_test::label("one_thread")) {
  for (const std::uint64_t seed : todays_seeds(10)) {
    EngineOptions o = stepped(seed);
    o.edges.ahead = seed % 2 ? 0 : 16;
    Nodes nodes(2, o, Between::simulation, {},
                [](const std::string& name, std::unique_ptr<Transport> inner) {
                  return name == "b" ? mean(std::move(inner)) : std::move(inner);
                });
    ToAndFro p(1000, 4);
    Function f = nodes.engine().compile(p.g, {}, {p.last});
    RunHandle run = f.start({}, {.timeout = 1s});
    for (int i = 0; i < 5000; ++i) nodes.step();
    const Diagnosis v = verdict_of(
        nodes, {Diagnosis::Kind::waiting,
                "/node:a/cpu:0",
                "",
                "/node:a/cpu:0 -> /node:b/cpu:0",
                seed % 2 ? "iteration 4 of loop 'fro/1'" : "iteration 16 of loop 'fro/1'",
                {"/node:a/cpu:0 keeps ",
                 "because /node:b/cpu:0 has no room for it, and /node:b/cpu:0 waits for ",
                 "(diagnose_test.cpp:", "from /node:a/cpu:0"}});
    nodes.engine().advance_time(2s);
    while (!run.is_done()) nodes.step();
    const std::string error = run.wait().message();  // a time-out says the same
    BOOST_TEST(error.find("the run's time-out has passed: " + v.text) != std::string::npos, error);
  }
}

// As a process that is stopped looks from here, and one that is dead before that is known. The real
// ones: test/apps.
BOOST_AUTO_TEST_CASE(a_process_that_has_stopped, *boost::unit_test::label("one_thread")) {
  for (const std::uint64_t seed : todays_seeds(10)) {
    Nodes nodes(2, stepped(seed), Between::simulation);
    ToAndFro p(1'000'000, 4);
    RunHandle run = nodes.engine().compile(p.g, {}, {p.last}).start({});
    for (int i = 0; i < 5000; ++i) nodes.step();
    nodes.network().partition({"b"});
    nodes.until(100ms, [] { return false; });
    const Diagnosis v = verdict_of(
        nodes, {Diagnosis::Kind::silence,
                "b",
                "",
                "/node:b/cpu:0 -> /node:a/cpu:0",
                " of loop 'fro/1'",
                {"node 'b' takes part and does not answer: no answer within 0.3 s", " for ",
                 "; /node:a/cpu:0 waits for ", "(diagnose_test.cpp:", "from /node:b/cpu:0"}});
    BOOST_TEST(v.actor.starts_with("Add '"), v.actor);
    nodes.network().heal();
    end(nodes, run);
  }
}

// Its caller is answered when the time is up, and not after a silent peer's patience too.
BOOST_AUTO_TEST_CASE(a_time_out_beside_a_peer_that_has_stopped,
                     *boost::unit_test::label("one_thread")) {  // H3
  for (const std::uint64_t seed : todays_seeds(10)) {
    for (const auto timeout : {10ms, 50ms, 200ms, 3000ms}) {
      Nodes nodes(2, stepped(seed), Between::simulation);
      ToAndFro p(1'000'000, 4);
      RunHandle run = nodes.engine().compile(p.g, {}, {p.last}).start({}, {.timeout = timeout});
      for (int i = 0; i < 2000; ++i) nodes.step();
      nodes.network().partition({"b"});
      std::chrono::milliseconds passed{};
      for (; passed < timeout + 40ms && !run.is_done(); passed += 5ms) {
        nodes.engine().advance_time(5ms);
        while (nodes.engine().take_step()) {}  // the network's time stands still
      }
      BOOST_TEST(run.is_done(), timeout.count());
      BOOST_TEST((passed >= timeout), passed.count());
      nodes.network().heal();
      if (!run.is_done()) end(nodes, run);
      const std::string error = run.wait().message();
      BOOST_TEST(error.find("the run's time-out has passed: ") == 0u, error);
      BOOST_TEST(error.find("node 'b' takes part and does not answer") != std::string::npos, error);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_peer_that_is_dead, *boost::unit_test::label("one_thread")) {
  for (const std::uint64_t seed : todays_seeds(10)) {
    Nodes nodes(2, stepped(seed), Between::simulation);
    ToAndFro p(1'000'000, 4);
    RunHandle run = nodes.engine().compile(p.g, {}, {p.last}).start({});
    for (int i = 0; i < 5000; ++i) nodes.step();
    nodes.network().kill("b");
    nodes.until(100ms, [] { return false; });
    const Diagnosis v = verdict_of(nodes, {Diagnosis::Kind::silence,
                                           "b",
                                           "",
                                           "/node:b/cpu:0 -> /node:a/cpu:0",
                                           " of loop 'fro/1'",
                                           {"node 'b' takes part and does not answer"}});
    BOOST_TEST(v.actor.starts_with("Add '"), v.actor);
    // Then it is known, and the run ends by itself, with an error that says as much.
    BOOST_REQUIRE(nodes.until(nodes[0].detection_bound(2) + 1s, [&] { return run.is_done(); }));
    const std::string error = run.wait().message();
    for (const char* part : {"'b'", "awaited from it: Add '", "(diagnose_test.cpp:"})
      BOOST_TEST(error.find(part) != std::string::npos, error);
  }
}

BOOST_AUTO_TEST_CASE(a_predicate_that_never_turns_false, *boost::unit_test::label("one_thread")) {
  for (const std::uint64_t seed : todays_seeds(3)) {
    Nodes nodes(2, stepped(seed), Between::simulation);
    Graph g;
    auto there = g.on_device("/node:b/cpu:0");
    Expr last = while_loop([](Expr i) { return i >= 0; }, [](Expr i) { return maximum(i, 1); },
                           g.constant(0), {.name = "forever"});
    RunHandle run = nodes.engine().compile(g, {}, {last}).start({});
    for (int i = 0; i < 5000; ++i) nodes.step();
    const Time began = nodes.network().now();
    const std::vector<Diagnosis> all = nodes[0].diagnose();
    BOOST_TEST((nodes.network().now() - began <= 2s));
    BOOST_REQUIRE_MESSAGE(all.size() == 1u, texts(all));
    BOOST_TEST(all[0].tag.starts_with("iteration "), all[0].tag);
    BOOST_TEST(all[0].tag.ends_with(" of loop 'forever/1'"), all[0].tag);
    check(all[0], {Diagnosis::Kind::loop,
                   "/node:b/cpu:0",
                   "GreaterEqual '",
                   "",
                   all[0].tag,
                   {"goes on: GreaterEqual '"}});
    end(nodes, run);
  }
}

// On the real clock, because user code cannot be stepped. Once on its own thread, and once on the
// only worker of its node, which then answers no request.
BOOST_AUTO_TEST_CASE(a_user_s_actor_stuck_in_its_own_code) {
  for (const bool blocks : {true, false}) {
    Stuck::let(false);
    const std::string name = fmt::format("oracle of diagnose_test, {}", blocks);
    register_actor(name, [] { return std::make_unique<Stuck>(); }, {.blocks = blocks});
    EngineOptions one;
    one.workers = 1;
    Nodes nodes(2, one);
    Graph g;
    auto there = g.on_device("/node:b/cpu:0");
    Expr y = g.named(actor_node<Stuck>(g, name, {g.constant(std::int64_t{1})},
                                       {{DType::i64, Shape{}}}, {.blocks = blocks})[0],
                     "ask");
    RunHandle run = nodes.engine().compile(g, {}, {y}).start({});
    Stuck::wait_until_in();
    const auto began = std::chrono::steady_clock::now();
    std::vector<Diagnosis> all;
    // A node that answers late twice is taken for silent.
    while ((all.empty() || all[0].kind == Diagnosis::Kind::silence) &&
           std::chrono::steady_clock::now() - began < 100s)
      all = nodes[0].diagnose();
    BOOST_TEST((std::chrono::steady_clock::now() - began < 100s));  // the last look has ended, too
    BOOST_TEST(all.size() == 1u, texts(all));
    if (!all.empty())
      check(all[0], {Diagnosis::Kind::waiting,
                     "/node:b/cpu:0",
                     "Actor 'ask'",
                     "",
                     "",
                     {fmt::format("for an answer of actor '{}'", name)}});
    Stuck::let(true);
    BOOST_TEST(run.get()[0].item<std::int64_t>() == 1);
  }
}

// ---- beside a run that gets on

/// A run that takes from a node's queue to which nothing is enqueued.
struct Taker {
  Graph g;
  Expr taken;
  explicit Taker(const std::string& node) {
    auto there = g.on_device("/node:" + node + "/cpu:0");
    Queue q = g.fifo_queue("jobs", {{DType::i64, Shape{}}}, 8);
    taken = g.named(q.dequeue()[0], "take");
  }
};

/// Exactly the run with this plan is named, whatever other actors are busy, in look after look.
void only(Nodes& nodes, const std::string& plan, const Said& said) {
  for (int look = 0; look < 5; ++look) {
    BOOST_TEST(verdict_of(nodes, said).plan.text() == plan);
    nodes.until(200ms, [] { return false; });
  }
}

BOOST_AUTO_TEST_CASE(a_queue_without_producer_beside_a_busy_run_on_one_node,
                     *boost::unit_test::label("one_thread")) {
  for (const std::uint64_t seed : todays_seeds(5)) {
    Nodes nodes(1, stepped(seed), Between::simulation);
    Counting busy;
    Taker hung("a");
    RunHandle gets_on = nodes.engine().compile(busy.g, {}, {busy.last}).start({});
    RunHandle hangs = nodes.engine().compile(hung.g, {}, {hung.taken}).start({});
    for (int i = 0; i < 1000; ++i) nodes.step();
    only(
        nodes, "a/2",
        {Diagnosis::Kind::waiting, "/node:a/cpu:0", "Dequeue 'take'", "", "", {"at queue 'jobs'"}});
    end(nodes, hangs);
    BOOST_TEST(nodes[0].diagnose().empty());
    end(nodes, gets_on);
  }
}

BOOST_AUTO_TEST_CASE(a_queue_without_producer_beside_busy_runs_on_several_nodes,
                     *boost::unit_test::label("one_thread")) {
  for (const std::uint64_t seed : todays_seeds(5)) {
    Nodes nodes(3, stepped(seed), Between::simulation);
    nodes.network().slow_down("a", "c", 90ms, 0);
    ToAndFro busy(1'000'000, 4), slow(1'000'000, 1, Tensor::zeros(DType::f32, {2}), "c");
    Taker hung("b");
    RunHandle gets_on = nodes.engine().compile(busy.g, {}, {busy.last}).start({}),
              is_slow = nodes.engine().compile(slow.g, {}, {slow.last}).start({});
    RunHandle hangs = nodes.engine().compile(hung.g, {}, {hung.taken}).start({});
    for (int i = 0; i < 5000; ++i) nodes.step();
    only(
        nodes, "a/3",
        {Diagnosis::Kind::waiting, "/node:b/cpu:0", "Dequeue 'take'", "", "", {"at queue 'jobs'"}});
    end(nodes, hangs);
    for (int look = 0; look < 5; ++look) BOOST_TEST(nodes[0].diagnose().empty());
    end(nodes, gets_on);
    end(nodes, is_slow);
  }
}

BOOST_AUTO_TEST_CASE(a_process_that_has_stopped_beside_a_busy_run,
                     *boost::unit_test::label("one_thread")) {
  for (const std::uint64_t seed : todays_seeds(5)) {
    Nodes nodes(3, stepped(seed), Between::simulation);
    ToAndFro busy(1'000'000, 4, Tensor::zeros(DType::f32, {2}), "c"), cut_off(1'000'000, 4);
    RunHandle gets_on = nodes.engine().compile(busy.g, {}, {busy.last}).start({}),
              hangs = nodes.engine().compile(cut_off.g, {}, {cut_off.last}).start({});
    for (int i = 0; i < 5000; ++i) nodes.step();
    nodes.network().partition({"b"});
    nodes.until(100ms, [] { return false; });
    BOOST_TEST(verdict_of(nodes, {Diagnosis::Kind::silence,
                                  "b",
                                  "",
                                  "/node:b/cpu:0 -> /node:a/cpu:0",
                                  " of loop 'fro/1'",
                                  {"node 'b' takes part and does not answer"}})
                   .plan.text() == "a/2");
    nodes.network().heal();
    end(nodes, hangs);
    end(nodes, gets_on);
  }
}

BOOST_AUTO_TEST_CASE(a_credit_that_is_too_small_beside_a_busy_run,
                     *boost::unit_test::label("one_thread")) {
  for (const std::uint64_t seed : todays_seeds(5)) {
    Nodes nodes(3, keeping_pace(stepped(seed)), Between::simulation, {},
                [](const std::string& name, std::unique_ptr<Transport> inner) {
                  return name == "b" ? mean(std::move(inner)) : std::move(inner);
                });
    ToAndFro busy(1'000'000, 4, Tensor::zeros(DType::f32, {2}), "c"), starved(1000, 4);
    RunHandle gets_on = nodes.engine().compile(busy.g, {}, {busy.last}).start({}),
              hangs = nodes.engine().compile(starved.g, {}, {starved.last}).start({});
    for (int i = 0; i < 5000; ++i) nodes.step();
    only(nodes, "a/2",
         {Diagnosis::Kind::waiting,
          "/node:a/cpu:0",
          "",
          "/node:a/cpu:0 -> /node:b/cpu:0",
          "iteration 4 of loop 'fro/1'",
          {"because /node:b/cpu:0 has no room for it"}});
    end(nodes, hangs);
    end(nodes, gets_on);
  }
}

BOOST_AUTO_TEST_CASE(a_predicate_that_never_turns_false_beside_a_busy_run,
                     *boost::unit_test::label("one_thread")) {
  Nodes nodes(2, stepped(1), Between::simulation);
  ToAndFro busy(1'000'000, 4);
  Graph g;
  auto there = g.on_device("/node:b/cpu:0");
  Expr last = while_loop([](Expr i) { return i >= 0; }, [](Expr i) { return maximum(i, 1); },
                         g.constant(0), {.name = "forever"});
  RunHandle gets_on = nodes.engine().compile(busy.g, {}, {busy.last}).start({}),
            hangs = nodes.engine().compile(g, {}, {last}).start({});
  for (int i = 0; i < 5000; ++i) nodes.step();
  const Time began = nodes.network().now();
  const std::vector<Diagnosis> all = nodes[0].diagnose();
  BOOST_TEST((nodes.network().now() - began <= 2s));
  BOOST_REQUIRE_MESSAGE(all.size() == 1u, texts(all));
  BOOST_TEST(all[0].plan.text() == "a/2");
  BOOST_TEST(all[0].actor.starts_with("GreaterEqual '"), all[0].actor);
  end(nodes, hangs);
  end(nodes, gets_on);
}

// ---- runs that are merely slow

/// A run over a and b of which each is asked in its turn.
RunSnapshot over_two(PartitionSnapshot a, PartitionSnapshot b) {
  RunSnapshot run;
  run.run = 1, run.number = 1, run.owner = 7, run.plan = {"a", 1}, run.is_whole = true;
  a.device = "/node:a/cpu:0", b.device = "/node:b/cpu:0";
  run.partitions = {std::move(a), std::move(b)};
  return run;
}

PartitionSnapshot waits_for(const std::string& other, std::uint64_t sent, std::uint64_t received) {
  PartitionSnapshot p;
  p.has_answered = true;
  Wait w;
  w.kind = Wait::Kind::token, w.what = "Add 'x' (a.cpp:1)", w.tag = "iteration 3 of loop 'w'",
  w.from = other, w.node = 1;
  RunPart part;
  part.run = 1, part.fired = 5, part.sent = sent, part.received = received, part.waits = {w};
  p.runs = {part};
  return p;
}

// Nodes answer one after the other: b, which could not at first, has sent what a waited for when it
// was asked.
BOOST_AUTO_TEST_CASE(a_token_that_was_sent_between_two_answers,
                     *boost::unit_test::label("one_thread")) {
  const PartitionSnapshot a = waits_for("/node:b/cpu:0", 4, 4),
                          b = waits_for("/node:a/cpu:0", 5, 4);
  PartitionSnapshot computes, late;
  computes.busy_with = "MatMul 'm' (a.cpp:2)";
  // it has left its kernel
  BOOST_TEST(
      find_hangs({over_two(a, computes)}, {over_two(a, waits_for("/node:a/cpu:0", 4, 4))}).empty());
  BOOST_TEST(find_hangs({over_two(a, computes)}, {over_two(a, b)}).empty());
  BOOST_TEST(find_hangs({over_two(a, late)}, {over_two(a, b)}).empty());
  BOOST_TEST(!find_hangs({over_two(a, b)}, {over_two(a, b)}).empty());  // runs that never progress
}

// For such a run, a third look decides: it comes as long after the first in which both answered as
// the first two are apart.
BOOST_AUTO_TEST_CASE(a_run_left_open_by_two_looks_is_judged_by_two_more,
                     *boost::unit_test::label("one_thread")) {
  const PartitionSnapshot a = waits_for("/node:b/cpu:0", 4, 4),
                          b = waits_for("/node:a/cpu:0", 5, 4),
                          has_sent = waits_for("/node:a/cpu:0", 6, 4), late;
  for (const bool gets_on : {false, true}) {
    HangDetector looks(400ms);
    looks.add({over_two(a, late)}, 0ms, 0ms);
    looks.add({over_two(a, b)}, 400ms, 450ms);
    BOOST_TEST(looks.verdicts().empty(), texts(looks.verdicts()));
    BOOST_TEST(looks.wants_more());
    for (const auto at : {550ms, 650ms, 750ms}) {  // too close
      looks.add({over_two(a, b)}, at, at);
      BOOST_TEST(looks.verdicts().empty(), texts(looks.verdicts()));
      BOOST_TEST(looks.wants_more());
    }
    looks.add({over_two(a, gets_on ? has_sent : b)}, 850ms, 850ms);
    BOOST_TEST(looks.verdicts().empty() == gets_on, texts(looks.verdicts()));
    BOOST_TEST(!looks.wants_more());
  }
  // One of them is late again and again: nothing is known, and that is said in time.
  HangDetector looks(400ms);
  looks.add({over_two(a, late)}, 0ms, 0ms);
  std::chrono::nanoseconds at = 400ms;
  for (int i = 0; looks.wants_more(); ++i, at += looks.pause())
    looks.add({over_two(a, i % 2 ? late : b)}, at, at);
  BOOST_TEST(looks.verdicts().empty(), texts(looks.verdicts()));
  BOOST_TEST((at <= 2s));
}

// Loop conditions are recorded from the first question on. The numbers of a slow loop come with a
// later look, and are judged by two looks that have them.
BOOST_AUTO_TEST_CASE(a_slow_loop_is_judged_by_looks_that_have_seen_its_numbers,
                     *boost::unit_test::label("one_thread")) {
  const auto look = [](std::int64_t iteration, std::int64_t seen, double step) {
    Comparison c{Comparison::Relation::ge,
                 Comparison::Course::exact,
                 false,
                 0x1p31,
                 seen,
                 100 + step * static_cast<double>(seen),
                 0,
                 step,
                 0,
                 seen >= 0};
    OpenLoop loop{"slow",    "", "GreaterEqual 'g' (a.cpp:3)",
                  3,         1,  iteration,
                  iteration, 32, {{{Decision::Term::Kind::compares, 0}}, {c}}};
    RunSnapshot run;
    run.run = 1, run.plan = {"a", 1};
    PartitionSnapshot& p = run.partitions.emplace_back();
    p.device = "/node:a/cpu:0", p.has_answered = true;
    RunPart& part = p.runs.emplace_back();
    part.fired = static_cast<std::uint64_t>(iteration), part.loops = {loop};
    return std::vector<RunSnapshot>{run};
  };
  for (const double step : {1.0, -1.0}) {  // away from 0, and towards it
    HangDetector looks(400ms);
    looks.add(look(7, -1, step), 0ms, 0ms);
    std::int64_t iteration = 10;
    std::chrono::nanoseconds at = 400ms;
    for (; looks.wants_more(); at += looks.pause(), ++iteration) {
      BOOST_TEST(looks.verdicts().empty(), texts(looks.verdicts()));
      looks.add(look(iteration, iteration - 1, step), at, at);
    }
    BOOST_TEST((at <= 1600ms));
    BOOST_TEST(looks.verdicts().empty() == (step < 0), texts(looks.verdicts()));
  }
  // Never seen: that is said in time.
  HangDetector looks(400ms);
  std::chrono::nanoseconds at{};
  for (std::int64_t i = 1; looks.wants_more(); ++i, at += looks.pause())
    looks.add(look(i, -1, 1), at, at);
  BOOST_TEST(looks.verdicts().empty(), texts(looks.verdicts()));
  BOOST_TEST((at <= 2s));
}

// A partition of two runs is in a kernel of the other one: that it leaves it says nothing of this
// one, which is judged when it has answered.
BOOST_AUTO_TEST_CASE(queue_without_producer_is_named_beside_running_kernels,
                     *boost::unit_test::label("one_thread")) {
  PartitionSnapshot computes, takes;
  computes.busy_with = "MatMul 'm' (a.cpp:2)", computes.is_busy_for_another = true;
  takes.has_answered = true;
  Wait w;
  w.what = "Dequeue 'take' (a.cpp:9)", w.state = "queue 'jobs'", w.for_so_long = 5s;
  takes.runs.emplace_back().waits = {w};
  const auto look = [](PartitionSnapshot p) {
    RunSnapshot run;
    run.run = 1, run.plan = {"a", 1};
    p.device = "/node:a/cpu:0";
    run.partitions = {p};
    return std::vector<RunSnapshot>{run};
  };
  HangDetector looks(400ms);
  looks.add(look(computes), 0ms, 0ms);
  looks.add(look(takes), 400ms, 400ms);
  BOOST_TEST(looks.verdicts().empty());
  BOOST_TEST(looks.wants_more());
  looks.add(look(takes), 800ms, 800ms);
  BOOST_REQUIRE(looks.verdicts().size() == 1u);
  BOOST_TEST(looks.verdicts()[0].actor == w.what);
  BOOST_TEST(!looks.wants_more());
  // In a kernel of its own it has got on.
  computes.is_busy_for_another = false;
  std::set<RunId> withheld;
  BOOST_TEST(find_hangs(look(computes), look(takes), &withheld).empty());
  BOOST_TEST(withheld.empty());
}

// A partition whose worker is occupied by a user's actor of another run is not named.
BOOST_AUTO_TEST_CASE(a_wait_for_a_held_worker, *boost::unit_test::label("one_thread")) {
  const RunSnapshot waits = over_two(waits_for("/node:b/cpu:0", 4, 4), {});
  RunSnapshot holds = over_two({}, {});
  holds.run = holds.number = 2, holds.plan = {"a", 2};
  holds.partitions.erase(holds.partitions.begin());
  Wait w;
  w.what = "Actor 'ask' (a.cpp:9)", w.state = "actor 'stuck'", w.for_so_long = 5s, w.node = 2,
  w.holds_worker = true;
  holds.partitions[0].runs.emplace_back().waits = {w};
  const std::vector<Diagnosis> all = find_hangs({waits, holds}, {waits, holds});
  BOOST_REQUIRE_MESSAGE(all.size() == 1u, texts(all));
  BOOST_TEST(all[0].actor == "Actor 'ask' (a.cpp:9)");
  const std::vector<Diagnosis> unknown = find_hangs({waits}, {waits});
  BOOST_REQUIRE_MESSAGE(unknown.size() == 1u, texts(unknown));
  BOOST_TEST((unknown[0].kind == Diagnosis::Kind::no_turn));

  // A wait at a queue occupies no worker, and neither does an actor that has a thread of its own:
  // both are named.
  RunSnapshot elsewhere = holds;
  elsewhere.partitions[0].has_answered = true;
  Wait& waiting = elsewhere.partitions[0].runs[0].waits[0];
  waiting.holds_worker = false;
  BOOST_TEST(find_hangs({waits, elsewhere}, {waits, elsewhere}).size() == 2u);
  waiting.what = "Dequeue 'take' (a.cpp:9)", waiting.state = "queue 'jobs'";
  const std::vector<Diagnosis> both = find_hangs({waits, elsewhere}, {waits, elsewhere});
  BOOST_REQUIRE_MESSAGE(both.size() == 2u, texts(both));
  BOOST_TEST((both[0].kind == Diagnosis::Kind::no_turn));
  BOOST_TEST(both[1].actor == "Dequeue 'take' (a.cpp:9)");
}

// A kernel takes a worker of its own node, and none of another's.
BOOST_AUTO_TEST_CASE(a_wait_for_a_worker_beside_a_kernel, *boost::unit_test::label("one_thread")) {
  const RunSnapshot waits = over_two(waits_for("/node:b/cpu:0", 4, 4), {});  // b has had no turn
  for (const std::string node : {"a", "b"}) {
    RunSnapshot computes;
    computes.run = 2, computes.plan = {"a", 2};
    PartitionSnapshot& p = computes.partitions.emplace_back();
    p.device = "/node:" + node + "/cpu:1";
    p.busy_with = "MatMul 'm' (a.cpp:2)";
    BOOST_TEST(find_hangs({waits, computes}, {waits, computes}).empty() == (node == "b"), node);
  }
}

// Looks close to each other only withdraw suspicions of actors that have had a turn, and accuse
// none: an actor that does not fire meanwhile may be slow.
BOOST_AUTO_TEST_CASE(further_looks_only_take_back, *boost::unit_test::label("one_thread")) {
  const auto is = [](std::uint64_t run, Diagnosis::Kind kind, const std::string& device) {
    Diagnosis v;
    v.run = run, v.plan = {"a", run}, v.id = {0, 0, v.plan, run}, v.kind = kind, v.device = device,
    v.text = fmt::format("{} {}", run, device);
    return v;
  };
  using enum Diagnosis::Kind;
  const std::vector<Diagnosis> first = {
      is(1, no_turn, "/node:a/cpu:0"), is(1, no_turn, "/node:b/cpu:0"),
      is(2, waiting, "/node:b/cpu:0"), is(3, loop, "/node:a/cpu:0")};
  BOOST_TEST(texts(keep_what_still_stands(first, first)) == texts(first));
  BOOST_TEST(texts(keep_what_still_stands(first, {})) == "2 /node:b/cpu:0\n3 /node:a/cpu:0\n");
  // The run on b got on, and one that was not named before fired nothing for a moment; so did that
  // on a, though it had its turn.
  const std::vector<Diagnosis> later = {
      is(1, waiting, "/node:a/cpu:0"), is(1, no_turn, "/node:b/cpu:0"),
      is(4, waiting, "/node:b/cpu:0"), is(4, no_turn, "/node:a/cpu:0")};
  BOOST_TEST(texts(keep_what_still_stands(first, later)) ==
             "1 /node:b/cpu:0\n2 /node:b/cpu:0\n3 /node:a/cpu:0\n");
  BOOST_TEST(keep_what_still_stands({}, later).empty());
}

// Ten minutes, under sanitizers one, of a run that takes a fifth of a second an iteration, for the
// network is slow.
BOOST_AUTO_TEST_CASE(ten_minutes_of_a_slow_network, *boost::unit_test::label("one_thread")) {
  Nodes nodes(2, stepped(1), Between::simulation);
  nodes.network().slow_down("a", "b", 90ms, 0);
  ToAndFro p(1'000'000, 1);
  RunHandle run = nodes.engine().compile(p.g, {}, {p.last}).start({});
  const Time end_of_it = nodes.network().now() + (kShare == 1 ? 10min : 1min);
  for (int looks = 0; nodes.network().now() < end_of_it; ++looks) {
    const std::vector<Diagnosis> all = nodes[0].diagnose();
    BOOST_REQUIRE_MESSAGE(all.empty(), fmt::format("look {}: {}", looks, texts(all)));
    nodes.until(5s, [] { return false; });
  }
  BOOST_TEST(!run.is_done());
  end(nodes, run);
}

// A token of 32 MB over a link of 20 MB/s: for 1.6 s no actor fires.
BOOST_AUTO_TEST_CASE(a_large_token_on_a_slow_link, *boost::unit_test::label("one_thread")) {
  for (const std::uint64_t seed : todays_seeds(3)) {
    Nodes nodes(2, stepped(seed), Between::simulation);
    nodes.network().slow_down("a", "b", 1ms, 50);
    ToAndFro p(1000, 1, Tensor::zeros(DType::f32, {8 << 20}));
    RunHandle run = nodes.engine().compile(p.g, {}, {p.last}).start({});
    for (int look = 0; look < 20; ++look) {
      const std::vector<Diagnosis> all = nodes[0].diagnose();
      BOOST_TEST(all.empty(), fmt::format("seed {}, look {}: {}", seed, look, texts(all)));
      nodes.until(100ms, [] { return false; });
    }
    end(nodes, run);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
