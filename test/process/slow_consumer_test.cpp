// Not under asan and tsan: it watches processes of the binary that other suites run in one process.
// A producer that is faster than its consumer, on two nodes that are processes: what waits between
// them, and what that takes of the producer's memory.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>

#include <troupe/cluster/node/node.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/test/support/cluster/processes.hpp>
#include <troupe/test/support/share.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(slow_consumer_test)

namespace {

constexpr std::uint64_t kMiB = 1 << 20, kToken = kMiB;
constexpr int kTokens = 512, kWindow = 16;
const std::string kB = "/node:b/cpu:0", kC = "/node:c/cpu:0";

/// The most that a process ever had in memory.
std::uint64_t most_resident(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) << 10;
  return 0;
}

/// Returns the bytes of shared slabs that are resident in a process.
std::uint64_t slabs_resident(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/smaps");
  std::uint64_t all = 0;
  bool is_slab = false;
  for (std::string line; std::getline(in, line);) {
    if (const auto name = line.find("memfd:"); name != std::string::npos)
      is_slab = line.compare(name, 17, "memfd:troupe slab") == 0;
    else if (line.find('-') < line.find(' ')) is_slab = false;
    else if (is_slab && line.starts_with("Rss:")) all += std::stoull(line.substr(4)) << 10;
  }
  return all;
}

/// b makes a token an iteration, and c uses it when it has got a ticket, which the test gives it.
class Job {
 public:
  explicit Job(std::uint64_t limit) : a_(NodeProcesses::make_a(options(limit), {c_.address})) {
    a_->wait_for({"b", "c"}, std::chrono::seconds(60));
    Queue tickets = [&] {
      auto d = graph_.on_device(kC);
      return graph_.fifo_queue("tickets", {{DType::f32, Shape{}}}, kTokens);
    }();
    Expr ticket = graph_.input("ticket", DType::f32, Shape{});
    give_ = a_->engine().compile(graph_, {ticket}, {tickets.enqueue({ticket})});
    auto here = graph_.on_device(kB);
    Expr x = graph_.ones(DType::f32, {512, 512});
    auto [n, s] = while_loop([](Expr i, Expr) { return i < kTokens; },
                             [&](Expr i, Expr t) {
                               Expr token = x * cast(i, DType::f32), next = i + 1;
                               auto there = graph_.on_device(kC);
                               return std::tuple{next, t + sum(token * tickets.dequeue()[0])};
                             },
                             std::tuple{graph_.constant(0), graph_.constant(0.f)},
                             {.parallel_iterations = kWindow});
    job_ = a_->engine().compile(graph_, {}, {s});
    before_ = most_resident(b_.process.pid());
    run_ = job_.start({});
  }

  void let_pass(int tokens) {
    for (int i = 0; i < tokens; ++i) give_({Tensor::scalar(1.f)});
    passed_ += tokens;
  }
  float result() { return run_.get()[0].item<float>(); }

  struct Look {
    std::int64_t ahead = -1;    // tokens that b has sent and for which c has had no ticket
    bool is_held_back = false;  // b has another, for which there is no room
    std::uint64_t most = 0;     // bytes of tensors that b had at once
  };
  Look look() const {
    Look l;
    const ClusterReport now = a_->inspect({}, kPatience, "b");
    BOOST_REQUIRE(now.at(0).has_answered);
    for (const DeviceSnapshot& m : now[0].report.engine.devices) l.most += m.peak;
    for (const RunSnapshot& run : now[0].report.engine.runs)
      for (const PartitionSnapshot& p : run.partitions)
        for (const RunPart& part : p.runs)
          for (const Wait& w : part.waits)
            l.is_held_back |= w.kind == Wait::Kind::grant && w.what.starts_with("Mul");
    for (const RunSnapshot& run : now[0].report.engine.runs)
      for (const NodeAnswer& answer :
           a_->inspect({.kind = NodeQuestion::Kind::counters, .plan = run.plan}, kPatience, "b"))
        for (const PartitionSnapshot& p : answer.report.partitions)
          for (const EdgeCounters& e : p.edges)
            if (e.sent > 0 && e.bytes == e.sent * kToken)
              l.ahead = static_cast<std::int64_t>(e.sent) - passed_;
    return l;
  }
  /// Once b is so far ahead, and has the next one if that is `held`; it must never be further than
  /// by one more, which is that of the oldest iteration.
  void expect_ahead(std::int64_t tokens, std::int64_t one_more, bool is_held) const {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    Look l;
    while ((l.ahead < tokens || l.is_held_back != is_held) && l.ahead <= tokens + one_more &&
           std::chrono::steady_clock::now() < end)
      l = look();
    BOOST_TEST(l.ahead >= tokens, l.ahead << " tokens are on their way, " << passed_ << " passed");
    BOOST_TEST(l.ahead <= tokens + one_more,
               l.ahead << " tokens are on their way, " << passed_ << " passed");
    BOOST_TEST(l.is_held_back == is_held);
  }
  /// They share a host: tensors lie in memory that both have.
  void expect_slabs() const {
    BOOST_TEST(slabs_resident(b_.process.pid()) >= kToken);
    BOOST_TEST(slabs_resident(c_.process.pid()) >= kToken);
  }
  std::uint64_t grown() const { return most_resident(b_.process.pid()) - before_; }

 private:
  static constexpr auto kPatience = std::chrono::seconds(60);
  static EngineOptions options(std::uint64_t limit) {
    EngineOptions o;
    o.edges.bytes = limit;
    return o;
  }
  Folder of_b_, of_c_;
  NodeProcess b_{of_b_, "b"}, c_{of_c_, "c", {"--join", b_.address}};
  std::unique_ptr<ClusterNode> a_;
  Graph graph_;
  Function give_, job_;
  RunHandle run_;
  int passed_ = 0;
  std::uint64_t before_ = 0;
};

}  // namespace

// As many large tokens may be in flight as the limit has room for, and the token of the oldest
// iteration. Without the limit, as many are in flight as iterations may be open. b holds at most so
// many, wherever they wait.
BOOST_AUTO_TEST_CASE(slow_consumer_bounds_tokens_in_flight_and_producer_memory,
                     *boost::unit_test::label("stock_zmq")) {
  struct {
    std::uint64_t limit;
    std::int64_t tokens;
  } const cases[] = {{3 * kToken, 3}, {7 * kToken / 2, 3}, {std::uint64_t{1} << 30, kWindow}};
  for (const auto& [limit, tokens] : cases) BOOST_TEST_CONTEXT("limit " << limit) {
      const bool binds = tokens < kWindow;
      Job job(limit);
      int passed = 0;
      for (const int to : {0, 1, 20, kTokens / 2}) {
        job.let_pass(to - passed);
        passed = to;
        job.expect_ahead(tokens, binds, binds);
      }
      job.expect_slabs();
      const std::uint64_t tensors = job.look().most;
      job.let_pass(kTokens - passed);
      BOOST_TEST(job.result() == 512.f * 512.f * kTokens * (kTokens - 1) / 2,
                 boost::test_tools::tolerance(1e-5f));
      BOOST_TEST(tensors <= (kWindow + 4) * kToken);
      BOOST_TEST_MESSAGE(tensors / kMiB << " MiB of tensors, " << job.grown() / kMiB
                                        << " MiB of memory");
      // an eighth of what went over it
      if (kShare == 1) BOOST_TEST(job.grown() < 2 * kWindow * kToken + 32 * kMiB);
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
