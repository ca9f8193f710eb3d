// Rows X of the control-flow cases over nodes, and that every row is a test that runs over nodes.
//
//   TROUPE_OVER_PROCESSES=1 test_cluster --run_test=cases_test  # only over processes
//
// Some cases run within this process alone, because they need facilities that processes lack:
// - tokens_of_nodes_that_are_over (X13): that c dies with its tokens on their way, which steps and
//   a virtual clock see to. Over processes runs are given up
//   (runs_that_are_given_up_leave_nothing), say things twice (tokens_that_come_again_are_dropped),
//   and die (process/node_process_test), wherever they happen to be.
// - other_node_ends_a_run_before_its_caller_does (X14): steps, and a transport
//   that is listened to. Its consequence is tested over processes, too: an element that is enqueued
//   then is not taken by the run that was cancelled (cancelled_while_waiting_or_too_late).
// - every_row_runs_over_nodes: it reads these files.
#include <boost/test/unit_test.hpp>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include <troupe/test/support/cluster/faulty.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/source_dir.hpp>
#include <troupe/test/tools/cancelled_op.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {
namespace {

using namespace std::chrono_literals;

const std::string kB = "/node:b/cpu:0", kC = "/node:c/cpu:0";

Expr bound(const char* op, const Expr& x) {
  return x.reader().bind(find_op(op), std::vector<Expr>{x}, {}, std::source_location::current())[0];
}

EngineOptions unoptimised(int workers = 1) {
  EngineOptions o;
  o.workers = workers;
  o.optimize = false;
  return o;
}

/// A user's program that is a node (tools/own_node): it has the ops of cancelled_op.hpp.
class OwnNode {
 public:
  OwnNode(const std::string& name, const std::string& join, const std::string& fault)
      : process_(folder_.path(),
                 {"/usr/bin/setpriv", "--pdeathsig", "KILL",
                  (fs::canonical("/proc/self/exe").parent_path() / "tools" / "own_node").string(),
                  name, join, fault}) {
    BOOST_REQUIRE(process_.read_until("\n"));
  }
  ~OwnNode() {
    process_.interrupt(SIGTERM);
    const Outcome o = process_.finish();
    BOOST_TEST(o.code == 0, o.error);
  }

 private:
  Folder folder_;
  Process process_;
};

// programs that nodes b and c run if they are processes; the last sends its messages twice
enum class Of { troupe, own_program, faulty_program };

/// a, which this program runs on, b and c: of this process or, where that is asked for, one each.
class Three {
 public:
  explicit Three(const EngineOptions& engine, Of whose = Of::troupe) {
    if (!is_over_processes()) {
      Nodes::Wrap wrap;
      if (whose == Of::faulty_program)
        wrap = [](const std::string& name,
                  std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
          if (name == "a") return inner;
          return std::make_unique<FaultyTransport>(
              std::move(inner),
              [repeater = std::make_shared<Repeater>(1)](Peer peer, Lane lane, Message m,
                                                         const FaultyTransport::Send& send) {
                (*repeater)(peer, lane, std::move(m), send);
              });
        };
      nodes_ = std::make_unique<Nodes>(3, engine, Between::handles, SimulationOptions(),
                                       std::move(wrap));
    } else if (whose == Of::troupe) {
      here_ = NodeProcesses::all().join(engine);
    } else {
      here_ = NodeProcesses::make_a(engine);
      for (const char* name : {"b", "c"})
        own_.push_back(std::make_unique<OwnNode>(name, here_->address(),
                                                 whose == Of::faulty_program ? "repeats" : ""));
      here_->wait_for({"b", "c"}, 60s);
    }
  }
  Engine& engine() { return node().engine(); }
  ClusterNode& node() { return nodes_ ? (*nodes_)[0] : *here_; }

 private:
  std::unique_ptr<Nodes> nodes_;
  std::vector<std::unique_ptr<OwnNode>> own_;
  std::unique_ptr<ClusterNode> here_;  // leaves first
};

/// How many kernels of TestUntilCancelled have begun on b, and how many have seen that their run is
/// over: since it was made.
class OnB {
 public:
  explicit OnB(Engine& engine) {
    Expr x = graph_.input("x", DType::f32, Shape{});
    auto d = graph_.on_device(kB);
    ask_ = engine.compile(graph_, {x}, {bound("TestCancellations", x)});
    before_ = asked();
  }
  std::int64_t began() const { return since(0); }
  std::int64_t saw() const { return since(1); }

 private:
  Tensor asked() const { return ask_({Tensor::scalar(0.f)})[0]; }
  std::int64_t since(std::int64_t i) const {
    return static_cast<std::int64_t>(asked().at(i) - before_.at(i));
  }
  Graph graph_;
  Function ask_;
  Tensor before_;
};

/// 2 x + 1: the product on c, the sum on b.
Function by_c_and_b(Engine& engine, Graph& g) {
  Expr x = g.input("x", DType::f32, Shape{}), y;
  {
    auto d = g.on_device(kC);
    y = x * 2.0;
  }
  {
    auto d = g.on_device(kB);
    y = y + 1.0;
  }
  return engine.compile(g, {x}, {y});
}

constexpr const char* kEverywhere[]{"run_all_configurations(", "on_engines(",      "all_settings()",
                                    "cluster_settings()",      "prints(",          "all_places()",
                                    "gradients_everywhere(",   "fails_everywhere("};
constexpr const char* kThree = "Three nodes(";

Queue queue_on(Graph& g, const std::string& device, const std::string& name) {
  auto d = g.on_device(device);
  return g.fifo_queue(name, {{DType::f32, Shape{}}}, 4);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cases_test)

BOOST_AUTO_TEST_CASE(self_add) {  // X1
  Three nodes(Nodes::scattered(3, unoptimised()));
  Graph g;
  Expr v = g.input("v", DType::f32, Shape{}), sum = v;
  for (int i = 0; i < 10; ++i) sum = sum + sum;
  compare(nodes.engine().run(g, {{v, Tensor::scalar(1.f)}}, {sum}), {{1024}}, "over nodes");
}

BOOST_AUTO_TEST_CASE(random_tree) {  // X2
  Three nodes(Nodes::scattered(3, unoptimised()));
  Graph g;
  Expr a = g.input("a", DType::f32, Shape{});
  std::vector<Expr> left(4096, a);
  std::mt19937 choice(7);
  while (left.size() > 1) {
    for (std::size_t i = 0; i < 2; ++i)
      std::swap(left[choice() % (left.size() - i)], left[left.size() - 1 - i]);
    Expr sum = left[left.size() - 1] + left[left.size() - 2];
    left.pop_back();
    left.back() = sum;
  }
  compare(nodes.engine().run(g, {{a, Tensor::scalar(1.f)}}, {left[0]}), {{4096}}, "over nodes");
}

BOOST_AUTO_TEST_CASE(abort_while_the_last_of_four_values_is_awaited) {  // X4
  Three nodes(unoptimised());
  Engine& engine = nodes.engine();
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{}), sum;
  std::vector<Queue> queues;
  for (int i = 0; i < 4; ++i) {
    queues.push_back(queue_on(g, kB, "q" + std::to_string(i)));
    Expr value = queues.back().dequeue()[0];
    auto d = g.on_device(kC);
    sum = sum.is_empty() ? value * 1.0 : sum + value;
  }
  Function wait = engine.compile(g, {}, {sum});
  auto put = [&](int i, float value) {
    engine.run(g, {{x, Tensor::scalar(value)}}, {queues[static_cast<std::size_t>(i)].enqueue({x})});
  };
  RunHandle run = wait.start({});
  for (int i = 0; i < 3; ++i) put(i, 1);
  run.cancel();
  BOOST_TEST((run.wait().code() == Code::cancelled));
  for (int i = 0; i < 4; ++i) put(i, 10);
  float expected = 10;
  for (int i = 0; i < 3; ++i) {
    const auto left =
        engine.run(g, {}, {queues[static_cast<std::size_t>(i)].size()})[0].item<std::int64_t>();
    BOOST_TEST((left == 1 || left == 2));
    expected += left == 1 ? 10 : 1;
  }
  compare(wait({}), {{expected}}, "the next run");
}

BOOST_AUTO_TEST_CASE(a_dequeue_from_an_empty_queue_times_out) {  // X6
  Three nodes(unoptimised());
  Engine& engine = nodes.engine();
  Graph g;
  Queue q = queue_on(g, kB, "empty");
  Expr out = q.dequeue()[0] * 1.0, x = g.input("x", DType::f32, Shape{}), in = q.enqueue({x});
  for (const auto timeout : {100ms, 20ms}) {
    const std::string why =
        refusal([&] { engine.run(g, {}, {out}, {.timeout = timeout}); }, Code::deadline_exceeded);
    BOOST_TEST(says(why, {"time-out"}), why);
  }
  engine.run(g, {{x, Tensor::scalar(3.f)}}, {in});
  compare(engine.run(g, {}, {out}), {{3}}, "after it");
}

BOOST_AUTO_TEST_CASE(an_op_sees_that_its_run_has_timed_out) {  // X7
  Three nodes(unoptimised(), Of::own_program);
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{}), y;
  {
    auto d = g.on_device(kB);
    y = bound("TestUntilCancelled", x);
  }
  const OnB kernels(nodes.engine());
  for (auto timeout = 100ms; kernels.began() == 0; timeout *= 2)  // until it has begun in time
    refusal(
        [&] {
          nodes.engine().run(g, {{x, Tensor::scalar(1.f)}}, {y}, {.timeout = timeout});
        },
        Code::deadline_exceeded);
  while (kernels.saw() == 0) std::this_thread::yield();
  compare(nodes.engine().run(g, {{x, Tensor::scalar(1.f)}}, {x + 1.0}), {{2}}, "after it");
}

// The cases of the row are pending, aborted, and used again. Producers and consumers that are first
// are in `loss_test` (late_tokens_are_dropped, and early ones); a token that comes twice is in
// `faulty_peer_test`.
BOOST_AUTO_TEST_CASE(runs_that_are_given_up_leave_nothing) {  // X13
  Three nodes(unoptimised());
  Graph g;
  Function f = by_c_and_b(nodes.engine(), g);
  int given_up = 0;
  for (int run = 0; run < 100; ++run) {
    RunHandle h = f.start({Tensor::scalar(5.f)});
    for (int look = 0; look < 5 * run && !h.is_done(); ++look) std::this_thread::yield();
    h.cancel();
    given_up += h.wait().code() == Code::cancelled;
    compare(f({Tensor::scalar(1.f)}), {{3}}, "then used");
  }
  BOOST_TEST(given_up > 0);
}

// Each token is taken once, however often it comes, and none that no run can ask for; a counts what
// it did not take.
BOOST_AUTO_TEST_CASE(tokens_that_come_again_are_dropped) {  // X13
  Three nodes(unoptimised(), Of::faulty_program);
  Graph g;
  Expr limit = g.input("limit", DType::i32, Shape{});
  auto [n, s] = while_loop([&](Expr i, Expr) { return i < limit; },
                           [&](Expr i, Expr t) {
                             Expr next = i + 1, u;
                             {
                               auto d = g.on_device(kB);
                               u = t + 1.0;
                             }
                             auto d = g.on_device(kC);
                             return std::tuple{next, u * 2.0 - t};
                           },
                           std::tuple{g.constant(0), g.constant(0.f)}, {.parallel_iterations = 4});
  Function f = nodes.engine().compile(g, {limit}, {n, s * 1.0});
  for (const int iterations : {1, 10, 100})
    compare(f({Tensor::scalar<std::int32_t>(iterations)}),
            {{static_cast<double>(iterations)}, {2.0 * iterations}}, "each token once");
  BOOST_TEST(nodes.node().run_counters().refused > 0u);
}

BOOST_AUTO_TEST_CASE(tokens_of_nodes_that_are_over) {  // X13
  if (is_over_processes()) return;
  Nodes nodes(3, stepped(), Between::simulation);
  Graph g;
  Function f = by_c_and_b(nodes.engine(), g);
  for (int run = 0; run < 20; ++run) {  // pending, and given up
    RunHandle h = f.start({Tensor::scalar(1.f)});
    for (int step = 0; step < 5 * run && !h.is_done(); ++step) nodes.step();
    h.cancel();
    h.wait();
    compare(f({Tensor::scalar(1.f)}), {{3}}, "then used");
  }
  // c starts again in the midst: what its earlier life sent is no run's any more.
  RunHandle h = f.start({Tensor::scalar(1.f)});
  for (int step = 0; step < 10; ++step) nodes.step();
  nodes.network().kill("c");
  nodes.remove(2);
  nodes.add("c", stepped());
  h.wait();
  BOOST_TEST(nodes.until(30s, [&] { return nodes.agree(); }));
  compare(f({Tensor::scalar(2.f)}), {{5}}, "with the new one");
}

BOOST_AUTO_TEST_CASE(cancelled_while_waiting_or_too_late) {  // X14
  Three nodes(unoptimised());
  Graph g;
  Queue q = queue_on(g, kB, "fruit");
  Expr x = g.input("x", DType::f32, Shape{}), in = q.enqueue({x}), out = q.dequeue()[0] * 1.0;
  Function take = nodes.engine().compile(g, {}, {out});
  RunHandle waiting = take.start({});
  waiting.cancel();
  BOOST_TEST((waiting.wait().code() == Code::cancelled));
  constexpr float kPeach = 7;
  nodes.engine().run(g, {{x, Tensor::scalar(kPeach)}}, {in});
  RunHandle late = take.start({});
  BOOST_TEST(late.wait().ok());
  late.cancel();
  compare(late.get(), {{kPeach}}, "it had come");
}

// Anything that the caller begins then comes after it, so that the run that has ended does not take
// it.
BOOST_AUTO_TEST_CASE(other_node_ends_a_run_before_its_caller_does) {
  if (is_over_processes()) return;
  RunHandle waiting;
  int abandoned = 0, too_late = 0;
  const auto listens = [&](const std::string&,
                           std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
    return std::make_unique<FaultyTransport>(
        std::move(inner),
        [&](Peer peer, Lane lane, Message message, const FaultyTransport::Send& send) {
          if (as<AbandonRun>(message)) {
            ++abandoned;
            too_late += waiting.is_done();
          }
          send(peer, lane, std::move(message));
        });
  };
  EngineOptions engine = unoptimised();
  engine.deterministic = true;
  Nodes nodes(2, engine, Between::handles, {}, listens);
  Graph g;
  Queue q = queue_on(g, kB, "fruit");
  Expr x = g.input("x", DType::f32, Shape{}), in = q.enqueue({x}), out = q.dequeue()[0] * 1.0;
  Function take = nodes.engine().compile(g, {}, {out});
  waiting = take.start({});
  for (int i = 0; i < 5000; ++i) nodes.step();
  BOOST_TEST(!waiting.is_done());
  waiting.cancel();
  BOOST_TEST((waiting.wait().code() == Code::cancelled));
  BOOST_TEST(abandoned > 0);
  BOOST_TEST(too_late == 0);
  nodes.engine().run(g, {{x, Tensor::scalar(5.f)}}, {in});
  compare(take({}), {{5}}, "the next takes it");
  waiting = {};
}

BOOST_AUTO_TEST_CASE(the_first_error_is_the_run_s_and_the_other_node_is_cancelled) {  // X16
  // one of b's workers answers while the other is held
  Three nodes(unoptimised(2), Of::own_program);
  Engine& engine = nodes.engine();
  Graph g;
  Queue q = queue_on(g, kC, "go on");
  Expr x = g.input("x", DType::f32, Shape{}), go_on = q.enqueue({x}), long_one, failing;
  {
    auto d = g.on_device(kB);
    long_one = bound("TestUntilCancelled", x);
  }
  {
    auto d = g.on_device(kC);
    failing = bound("TestFantasia", q.dequeue()[0]);
  }
  const OnB kernels(engine);
  RunHandle run = engine.start(g, {{x, Tensor::scalar(1.f)}}, {long_one, failing});
  while (kernels.began() == 0) std::this_thread::yield();
  BOOST_TEST(!run.is_done());
  BOOST_TEST(kernels.saw() == 0);
  engine.run(g, {{x, Tensor::scalar(1.f)}}, {go_on});
  const std::string why = refusal([&] { run.get(); }, Code::aborted);
  BOOST_TEST(says(why, {"node 'c': TestFantasia", "cases_test.cpp", "fantasia!"}), why);
  while (kernels.saw() == 0) std::this_thread::yield();
  BOOST_TEST(kernels.saw() == 1);
  compare(engine.run(g, {{x, Tensor::scalar(1.f)}}, {x + 1.0}), {{2}}, "after it");
}

BOOST_AUTO_TEST_CASE(the_largest_eigenvalue_a_step_a_call) {  // X19
  Three nodes(unoptimised());
  Graph g;
  Variable x;
  {
    auto d = g.on_device(kC);
    x = g.variable("x", Tensor::of<float>({1, 0.5f}, Shape{2, 1}));
  }
  Expr a = g.constant(Tensor::of<float>({3, 2, -1, 0}, Shape{2, 2})), y;
  {
    auto d = g.on_device(kB);
    y = matmul(a, x);
  }
  Expr value = sqrt(sum(square(y)) / sum(square(x.read()))),
       next = x.assign(y / sqrt(sum(square(y))));
  Function step = nodes.engine().compile(g, {}, {value, next});
  float last = 0, now = 1;
  int steps = 0;
  for (; std::abs(now - last) >= 1e-10f && steps < 1000; ++steps) {
    last = now;
    now = step({})[0].item<float>();
  }
  BOOST_TEST(steps < 1000);
  BOOST_TEST(std::abs(now - 2) < 0.01f);
}

// A row is named behind its test case, which is one of cluster/, or whose program goes everywhere.
// So it goes over processes where these are asked for, or is a case of three nodes here.
BOOST_AUTO_TEST_CASE(every_row_runs_over_nodes) {
  if (is_over_processes()) return;
  const std::string rows =
      "P1 P2 P3 P4 P5 P6 P7 P8 P16 C1 C2 C3 C6 C11 C15 C17 C18 C24 C28 C29 C32 C36 W1 W2 W3 W5 W7 "
      "W8 W9 W15 W17 W18 W19 W21 W22 W26 W28 W30 W32 "
      "W33 G1 G2 G4 G5 G6 G7 G9 G11 G14 G18 G19 G20 G22 G26 G33 G34 G37 G40 G41 G46 T1 T2 T4 T5 T6 "
      "T7 T8 T9 T10 T12 T13 T14 T15 T23 F1 F2 F7 F9 "
      "X1 X2 X4 X6 X7 X13 X14 X16 X19";
  const std::set<std::string> while_built{"P16", "W9"};  // refused before anything is placed
  std::set<std::string> found = while_built, over_processes = while_built;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::filesystem::path(kSourceDir) / "test")) {
    if (!entry.path().string().ends_with("_test.cpp")) continue;
    std::ostringstream read;
    read << std::ifstream(entry.path()).rdbuf();
    const std::string text = read.str(), start = "BOOST_AUTO_TEST_CASE(";
    for (std::size_t at = text.find(start); at != std::string::npos;) {
      const std::size_t next = text.find(start, at + 1);
      const std::string one = text.substr(at, next == std::string::npos ? next : next - at),
                        head = one.substr(0, one.find('\n'));
      at = next;
      const bool is_everywhere =
          std::any_of(std::begin(kEverywhere), std::end(kEverywhere),
                      [&](const char* way) { return one.find(way) != std::string::npos; });
      const bool is_over_nodes =
                     entry.path().string().find("/test/cluster/") != std::string::npos ||
                     is_everywhere,
                 is_over_three = entry.path().filename() == "cases_test.cpp" &&
                                 one.find(kThree) != std::string::npos;
      // words that are a letter of a row and a number
      for (std::size_t i = 0; is_over_nodes && i < head.size(); ++i) {
        const auto is_digit = [&](std::size_t k) {
          return k < head.size() && std::isdigit(static_cast<unsigned char>(head[k]));
        };
        const bool begins = i == 0 || !(std::isalnum(static_cast<unsigned char>(head[i - 1])) ||
                                        head[i - 1] == '_');
        if (!begins || std::string_view("PCWGTFX").find(head[i]) == std::string_view::npos ||
            !is_digit(i + 1))
          continue;
        std::string name(1, head[i]);
        for (std::size_t k = i + 1; is_digit(k); ++k) name += head[k];
        found.insert(name);
        if ((is_everywhere && entry.path().parent_path().filename() == "controlflow") ||
            is_over_three)
          over_processes.insert(name);
      }
    }
  }
  std::istringstream all(rows);
  for (std::string row; all >> row;) {
    BOOST_TEST(found.contains(row), row << " does not run over nodes");
    BOOST_TEST(over_processes.contains(row), row << " does not run over processes");
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
