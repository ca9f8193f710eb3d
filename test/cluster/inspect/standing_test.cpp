// The last report of a partition stands while it computes a kernel of another run.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/reader.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe {

TROUPE_OP(TestStays) {
  op.doc("In its kernel until its run is cancelled, where it is told to stay.");
  op.inputs(1, -1);
  op.takes_lists();
  op.side_effect();
  op.infer([](Inference& c) { c.output(DType::f32, Shape{}); });
  op.run([](KernelContext& c) {
    while (c.input(0).at(0) != 0 && !c.run().cancelled.load(std::memory_order_acquire))
      std::this_thread::yield();
    c.set(0, Tensor::scalar(0.f));
  });
}

}  // namespace troupe

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(standing_test)

using namespace std::chrono_literals;

// On the real clock, and in one partition: at every look the partition is in a kernel of the other
// run, and its last report stands. The report does not stand once the queue was filled, which that
// partition cannot report either.
BOOST_AUTO_TEST_CASE(a_queue_without_producer_beside_a_kernel_of_the_same_plan) {
  EngineOptions two;
  two.workers = 2;
  Nodes nodes(1, two);
  Graph g;
  Queue jobs = g.fifo_queue("jobs", {{DType::f32, Shape{}}}, 8);
  Expr stays = g.input("stays", DType::boolean, Shape{}), x = g.input("x", DType::f32, Shape{});
  Expr put = jobs.enqueue({x});
  Expr gate = stays.reader().bind(find_op("TestStays"), std::vector<Expr>{stays}, {},
                                  std::source_location::current())[0];
  Function f = nodes.engine().compile(g, {stays}, {gate, g.named(jobs.dequeue()[0], "take")});
  // Some partition of some run is at that, as far as is known.
  const auto is_seen = [&](const auto& what) {
    const EngineSnapshot s = nodes.engine().snapshot();
    return std::any_of(s.runs.begin(), s.runs.end(), [&](const RunSnapshot& run) {
      return std::any_of(run.partitions.begin(), run.partitions.end(), what);
    });
  };
  RunHandle hanging = f.start({Tensor::scalar(false)});
  while (!is_seen([](const PartitionSnapshot& p) {
    return !p.runs.empty() && !p.runs[0].waits.empty() &&
           p.runs[0].waits[0].state == "queue 'jobs'";
  })) {}
  RunHandle computes = f.start({Tensor::scalar(true)});
  while (
      !is_seen([](const PartitionSnapshot& p) { return p.busy_with.starts_with("TestStays"); })) {}
  const auto began = std::chrono::steady_clock::now();
  std::vector<Diagnosis> all;
  while (all.empty() && std::chrono::steady_clock::now() - began < 100s) all = nodes[0].diagnose();
  BOOST_REQUIRE(all.size() == 1u);
  BOOST_TEST((all[0].kind == Diagnosis::Kind::waiting), all[0].text);
  BOOST_TEST(all[0].actor.starts_with("Dequeue 'take' (standing_test.cpp:"), all[0].actor);
  for (const char* part : {"on /node:a/cpu:0 has waited for ", "at queue 'jobs'"})
    BOOST_TEST(all[0].text.find(part) != std::string::npos, all[0].text);
  nodes.engine().run(g, {{x, Tensor::scalar(3.0f)}}, {put});
  BOOST_TEST(nodes[0].diagnose().empty());
  computes.cancel();
  BOOST_TEST(hanging.get()[1].at(0) == 3.0);
}

namespace {

/// A run whose other partition has sent what it had to, and has left, while the one here waits at
/// an empty queue; then one of the same plan that stays in a kernel here.
struct LeftBehind {
  Nodes nodes;
  Graph g;
  Expr x, put;
  RunHandle hanging, computes;

  explicit LeftBehind(const char* far, const RunOptions& options = {}) : nodes(2, two_workers()) {
    Queue jobs = g.fifo_queue("jobs", {{DType::f32, Shape{}}}, 8);
    Expr stays = g.input("stays", DType::boolean, Shape{}), sum;
    x = g.input("x", DType::f32, Shape{});
    {
      auto there = g.on_device(far);
      sum = g.named(x + x, "sum");
    }
    auto here = g.on_device(kHere);
    put = jobs.enqueue({x});
    Expr gate = stays.reader().bind(find_op("TestStays"), std::vector<Expr>{stays}, {},
                                    std::source_location::current())[0];
    Function f = nodes.engine().compile(
        g, {stays, x}, {gate, g.named(jobs.dequeue()[0], "take"), g.named(sum * 3.0, "got")});
    hanging = f.start({Tensor::scalar(false), Tensor::scalar(1.0f)}, options);
    while (!hanging.is_done() && !is_seen([](const PartitionSnapshot& p, const RunSnapshot& run) {
      return is_at_queue(p) && all_others_have_left(run);
    })) {}
    computes = f.start({Tensor::scalar(true), Tensor::scalar(1.0f)});
    while (!is_seen([](const PartitionSnapshot& p, const RunSnapshot&) {
      return p.busy_with.starts_with("TestStays");
    })) {}
  }
  ~LeftBehind() {
    hanging.cancel();
    computes.cancel();
  }

 private:
  static constexpr const char* kHere = "/node:a/cpu:0";

  static EngineOptions two_workers() {
    EngineOptions two;
    two.workers = 2;
    return two;
  }
  static bool is_at_queue(const PartitionSnapshot& p) {
    return p.runs.size() == 1 && p.runs[0].ready == 0 && p.runs[0].waits.size() == 1 &&
           p.runs[0].waits[0].state == "queue 'jobs'";
  }
  static bool all_others_have_left(const RunSnapshot& run) {
    const auto has_left = [](const PartitionSnapshot& p) {
      return p.device == kHere || (p.has_answered && p.runs.size() == 1 && p.runs[0].sent == 1 &&
                                   p.runs[0].waits.empty());
    };
    return run.partitions.size() == 2 && run.other_nodes.empty() &&
           std::all_of(run.partitions.begin(), run.partitions.end(), has_left);
  }
  /// A look at the partition here in some run, as far as is known.
  template <class What>
  bool is_seen(What what) {
    const EngineSnapshot s = nodes.engine().snapshot();
    return std::any_of(s.runs.begin(), s.runs.end(), [&](const RunSnapshot& run) {
      return std::any_of(
          run.partitions.begin(), run.partitions.end(),
          [&](const PartitionSnapshot& p) { return p.device == kHere && what(p, run); });
    });
  }
};

}  // namespace

// On this node, and from another: the work of partitions that have left the run stays known.
BOOST_AUTO_TEST_CASE(a_queue_without_producer_in_a_run_that_others_have_left) {
  for (const char* far : {"/node:a/cpu:1", "/node:b/cpu:0"}) {
    LeftBehind b(far);
    const auto began = std::chrono::steady_clock::now();
    std::vector<Diagnosis> all;
    // A node that answers late twice is taken for silent.
    while ((all.empty() || all[0].kind == Diagnosis::Kind::silence) &&
           std::chrono::steady_clock::now() - began < 100s)
      all = b.nodes[0].diagnose();
    BOOST_REQUIRE_MESSAGE(all.size() == 1u, far << ": " << all.size() << " verdicts");
    BOOST_TEST((all[0].kind == Diagnosis::Kind::waiting), all[0].text);
    BOOST_TEST(all[0].actor.starts_with("Dequeue 'take' (standing_test.cpp:"), all[0].actor);
    b.nodes.engine().run(b.g, {{b.x, Tensor::scalar(3.0f)}}, {b.put});
    all = b.nodes[0].diagnose();
    BOOST_TEST((all.empty() || all[0].kind == Diagnosis::Kind::silence));
    b.computes.cancel();
    BOOST_TEST(b.hanging.get()[1].at(0) == 3.0);
  }
}

// Its time is up while the partition is in the other run's kernel.
BOOST_AUTO_TEST_CASE(a_time_out_names_the_wait_of_a_run_that_others_have_left) {
  for (const char* far : {"/node:a/cpu:1", "/node:b/cpu:0"}) {
    LeftBehind b(far, {.timeout = 3s});
    const Status status = b.hanging.wait();
    BOOST_TEST((status.code() == Code::deadline_exceeded), status.message());
    BOOST_TEST(status.message().find(
                   "the run's time-out has passed: Dequeue 'take' (standing_test.cpp:") !=
                   std::string::npos,
               status.message());
    BOOST_TEST(status.message().find("TestStays") == std::string::npos, status.message());
  }
}

// A node's report on a run may be older than its leaving the run, of which the owner was notified.
BOOST_AUTO_TEST_CASE(the_owner_knows_the_totals_of_nodes_that_have_left) {
  const auto part = [](const std::string& device, std::uint64_t sent, std::uint64_t received) {
    PartitionSnapshot p;
    p.device = device, p.has_answered = true;
    p.runs.resize(1);
    p.runs[0].run = 1, p.runs[0].sent = sent, p.runs[0].received = received;
    return p;
  };
  const auto node = [](const std::string& name, std::vector<PartitionSnapshot> partitions,
                       std::vector<std::string> others) {
    NodeAnswer a;
    a.member.name = name, a.has_answered = true;
    RunSnapshot run;
    run.run = 1, run.owner = 7, run.number = 1, run.plan = {"a", 1}, run.is_owned = name == "a";
    run.partitions = std::move(partitions), run.other_nodes = std::move(others);
    a.report.engine.runs = {run};
    return a;
  };
  const auto sums = [](const ClusterReport& report) {
    const std::vector<RunSnapshot> runs = joined_runs(report);
    BOOST_REQUIRE(runs.size() == 1u);
    std::uint64_t sent = 0, received = 0;
    for (const PartitionSnapshot& p : runs[0].partitions)
      for (const RunPart& r : p.runs) sent += r.sent, received += r.received;
    return std::tuple{runs[0].partitions.size(), sent, received, runs[0].is_whole,
                      runs[0].silent.size()};
  };
  const PartitionSnapshot a = part("/node:a/cpu:0", 1, 4), b = part("/node:b/cpu:0", 3, 1),
                          left = part("/node:b/cpu:0", 4, 1);
  NodeAnswer away = node("b", {}, {});
  away.report.engine.runs.clear();
  using Sums = std::tuple<std::size_t, std::uint64_t, std::uint64_t, bool, std::size_t>;
  BOOST_TEST((sums({node("a", {a}, {"b"}), node("b", {b}, {"a"})}) == Sums{2, 4, 5, true, 0}));
  // it has left, or has not begun
  BOOST_TEST((sums({node("a", {a}, {"b"}), away}) == Sums{1, 1, 4, false, 0}));
  BOOST_TEST((sums({node("a", {a, left}, {}), away}) == Sums{2, 5, 5, true, 0}));
  BOOST_TEST((sums({node("a", {a, left}, {}), node("b", {b}, {"a"})}) == Sums{2, 5, 5, true, 0}));
  // which is not b's to say
  BOOST_TEST((sums({node("a", {a}, {"b"}), node("b", {b, part("/node:a/cpu:0", 9, 9)}, {})}) ==
              Sums{2, 4, 5, true, 0}));
  away.has_answered = false;
  // no partition waits for it any more
  BOOST_TEST((sums({node("a", {a, left}, {}), away}) == Sums{2, 5, 5, true, 0}));
}

// The turn in which a partition leaves counts too.
BOOST_AUTO_TEST_CASE(a_node_that_has_left_a_run_reports_its_firings) {
  Graph g;
  Queue jobs = g.fifo_queue("jobs", {{DType::f32, Shape{}}}, 2);
  Expr x = g.input("x", DType::f32, Shape{}), taken = jobs.dequeue()[0], far;
  {
    auto there = g.on_device("cpu:1");
    far = exp(sin(cos(x)));
  }
  Engine engine({.optimize = false, .deterministic = true});
  RunHandle run = engine.compile(g, {x}, {taken, far}).start({Tensor::scalar(1.f)});
  while (engine.take_step()) {}
  const EngineSnapshot s = engine.snapshot();
  BOOST_REQUIRE(s.runs.size() == 1u);
  const std::vector<PartitionSnapshot>& all = s.runs[0].partitions;
  const auto left = std::find_if(all.begin(), all.end(),
                                 [](const PartitionSnapshot& p) { return p.device == "cpu:1"; });
  BOOST_REQUIRE((left != all.end() && left->runs.size() == 1u));
  BOOST_TEST(left->runs[0].fired == 3u);
  run.cancel();
  while (engine.take_step()) {}
}

// Its earlier report waits for nothing any more: a run whose time is up does not name it.
BOOST_AUTO_TEST_CASE(a_part_that_was_left_since_is_not_added_to_a_run) {
  const auto waits = [](const std::string& device, const std::string& what) {
    PartitionSnapshot p;
    p.device = device, p.has_answered = true;
    p.runs.resize(1);
    p.runs[0].waits.resize(1);
    p.runs[0].waits[0].what = what;
    return p;
  };
  RunSnapshot run, part;
  PartitionSnapshot left = waits("/node:b/cpu:0", "");
  left.runs[0].waits.clear();
  run.partitions = {waits("/node:a/cpu:0", "Dequeue 'take'"), left};
  run.other_nodes = {"c"};
  part.partitions = {waits("/node:b/cpu:0", "Dequeue 'stale'")};
  part.other_nodes = {"a", "c"};
  add_part(run, part);
  BOOST_TEST(run.partitions.size() == 2u);
  BOOST_TEST((run.other_nodes == std::vector<std::string>{"c"}));
  part.partitions = {waits("/node:c/cpu:0", "Dequeue 'late'")};
  part.other_nodes = {"a"};
  add_part(run, part);
  BOOST_TEST(run.partitions.size() == 3u);
  BOOST_TEST(run.other_nodes.empty());
  const std::vector<std::string> causes = diagnose(run);
  BOOST_TEST(causes.size() == 2u);
  for (const std::string& cause : causes)
    BOOST_TEST(cause.find("stale") == std::string::npos, cause);
}

// The transport's thread runs short kernels itself. It does not run a kernel that was short on
// another shape, or on shorter lists, because no peer would be heard until that has ended.
BOOST_AUTO_TEST_CASE(kernel_that_takes_longer_on_other_shapes_delays_no_other_run) {
  EngineOptions two;
  two.workers = 2;
  for (const bool goes_through_lists : {false, true}) {
    Nodes nodes(2, two);
    Graph g, h;
    Expr stays = g.input("stays", DType::f32, {goes_through_lists ? 1 : kAny}),
         x = h.input("x", DType::f32, {2}), gate, more;
    {
      auto there = g.on_device("/node:b/cpu:0");
      std::vector<Expr> inputs{stays};
      if (goes_through_lists) inputs.resize(3, list_empty(g, {DType::f32, Shape{}}));
      gate =
          stays.reader().bind(find_op("TestStays"), inputs, {}, std::source_location::current())[0];
    }
    {
      auto there = h.on_device("/node:b/cpu:0");
      more = x + 1.0;
    }
    Function f = nodes.engine().compile(g, {stays}, {gate}),
             other = nodes.engine().compile(h, {x}, {more});
    for (int call = 0; call < 10; ++call) f({Tensor::zeros(DType::f32, {1})});
    other({Tensor::zeros(DType::f32, {2})});
    RunHandle computes =
        f.start({goes_through_lists ? Tensor::of<float>({1}) : Tensor::of<float>({1, 1})});
    const auto is_there = [&] {
      const EngineSnapshot s = nodes[1].engine().snapshot();
      return std::any_of(s.runs.begin(), s.runs.end(), [](const RunSnapshot& run) {
        return std::any_of(
            run.partitions.begin(), run.partitions.end(),
            [](const PartitionSnapshot& p) { return p.busy_with.starts_with("TestStays"); });
      });
    };
    while (!is_there()) {}
    RunHandle heard = other.start({Tensor::zeros(DType::f32, {2})});
    for (const auto end = std::chrono::steady_clock::now() + 100s;
         !heard.is_done() && std::chrono::steady_clock::now() < end;)
      std::this_thread::yield();
    BOOST_TEST(heard.is_done());
    computes.cancel();
    BOOST_TEST(heard.wait().ok());
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
