// Measures the cost of inspection: a chain of one-element operations, a loop of scalars and a
// training step of an LSTM on a node that serves inspections. The node is measured without
// requests, with a client that asks for everything once a second, as the page does, while the
// standing queries that Troupe has run over its events, and while it is traced, against an engine
// that serves no inspections.
//
// Rows `_thread_cpu` are by the processor time of the thread that computes: the time taken from it,
// whatever else the machine does. Clients, the server and its JSON cost nothing there, and the
// watcher is in the process. Rows `_wall` are by the wall clock, and the watcher asks over HTTP:
// they include all costs, and on a machine of few cores the clients' as well. Ours and the peer
// alternate, in pieces of a tenth of a second and of a second.
//
// Counters and the flight recorder are always on and in both: their cost is measured in
// instructions, before and after (RESULTS.md).
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/actors/events/direct_run.hpp>
#include <troupe/actors/events/engine_events.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/cluster/inspect/event_feed.hpp>
#include <troupe/cluster/inspect/inspection_json.hpp>
#include <troupe/cluster/inspect/inspection_server.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/sim/in_process.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/controlflow/recurrent.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/bench.hpp>
#include <troupe/test/bench/pattern.hpp>

namespace {

using namespace troupe;
constexpr int kRepetitions = 11;
constexpr double kPiece = 1e8;  // ns of a repetition
constexpr int kWallRepetitions = 7;
constexpr double kWallPiece = 1e9;  // with one question in each, as there is one a second

EngineOptions one_worker() {
  EngineOptions o;
  o.workers = 1;
  return o;
}

double clock_ns(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}
/// Processor time of the calling thread, which computes in the place of the one worker: it answers
/// inspections too, and what others do on the machine is not in it.
double thread_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }
/// Processor time of all other threads of this process: the server, the node, and its clients.
double beside_ns() { return clock_ns(CLOCK_PROCESS_CPUTIME_ID) - thread_ns(); }

/// A program, and one run of it.
struct Workload {
  const char* name;
  const char* unit;
  double per_run;  // runs a unit
  Function f;
  std::vector<Tensor> feeds;
  /// ns a unit, by that clock, over so many of them.
  double run(double (*clock)() = thread_ns, double piece = kPiece) const {
    const double start = clock();
    int runs = 0;
    do {
      f(feeds);
      ++runs;
    } while (clock() - start < piece);
    return (clock() - start) / runs / per_run;
  }
};

/// The three of them on one engine.
struct Programs {
  Graph chain, loop, lstm;
  std::vector<Workload> all;
  explicit Programs(Engine& engine) {
    CompileOptions plain;
    plain.optimize = false;
    Expr x = chain.input("x", DType::f32, {1}), a = chain.input("a", DType::f32, {1}),
         b = chain.input("b", DType::f32, {1}), y = x;
    for (int i = 0; i < 1000; ++i) y = i % 2 == 0 ? y * a : y + b;
    all.push_back(
        {"firing",
         "ns an op",
         1000,
         engine.compile(chain, {x, a, b}, {y}, plain),
         {Tensor::of<float>({1}), Tensor::of<float>({0.999f}), Tensor::of<float>({0.5f})}});
    Expr n = loop.input("n", DType::f32, Shape{});
    Expr last = while_loop([&](Expr i) { return i < n; }, [](Expr i) { return i + 1.0; },
                           loop.constant(0.f));
    all.push_back({"loop",
                   "ns an iteration",
                   100'000,
                   // the cost of counting and drawing firings, which a resident loop has once
                   engine.compile(loop, {n}, {last}, {.resident_loops = false}),
                   {Tensor::scalar(100'000.f)}});
    constexpr std::int64_t kTime = 50, kBatch = 32, kFeatures = 128, kUnits = 256;
    Expr in = lstm.input("x", DType::f32, {kTime, kBatch, kFeatures}),
         target = lstm.input("target", DType::f32, {kTime, kBatch, kUnits});
    const std::vector<Variable> weights = {
        lstm.variable("input", bench::pattern({kFeatures, 4 * kUnits}, 0.1, 1)),
        lstm.variable("recurrent", bench::pattern({kUnits, 4 * kUnits}, 0.1, 2)),
        lstm.variable("bias", bench::pattern({4 * kUnits}, 0.1, 3))};
    auto [outputs, state] = troupe::lstm(in, {weights[0], weights[1], weights[2]});
    Expr loss = mean(square(outputs - target));
    all.push_back({"lstm",
                   "ns a step",
                   1,
                   engine.compile(lstm, {in, target},
                                  {loss, Sgd({.learning_rate = 0.1}).minimize(loss, weights)}),
                   {bench::pattern({kTime, kBatch, kFeatures}, 2, 100),
                    bench::pattern({kTime, kBatch, kUnits}, 1, 200)}});
    for (const Workload& w : all) w.run();
  }
};

/// Asks a node for what its page asks it for: its state, the counters of the plan that is shown and
/// events, at once when it is turned on and then each second, over one connection. Ends the program
/// if it gets no answer: an unserved request costs nothing.
class Watcher {
 public:
  /// `plan`: which of the node's, in the order in which they were made.
  Watcher(const std::string& url, std::size_t plan)
      : http_(url), plan_(plan), thread_([this] { watch(); }) {}
  ~Watcher() {
    {
      std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  void turn(bool on) {
    {
      std::lock_guard lock(mutex_);
      is_on_ = on;
    }
    changed_.notify_one();
  }
  int rounds() const { return rounds_.load(); }

 private:
  void watch() {
    http_.set_keep_alive(true);
    http_.set_read_timeout(60);
    std::unique_lock lock(mutex_);
    while (!is_over_) {
      if (!is_on_) {
        changed_.wait(lock, [&] { return is_on_ || is_over_; });
        continue;
      }
      const auto next = std::chrono::steady_clock::now() + std::chrono::seconds(1);
      lock.unlock();
      ask();
      lock.lock();
      changed_.wait_until(lock, next, [&] { return !is_on_ || is_over_; });
    }
  }
  void ask() {
    const nlohmann::json state = get("/api/state");
    const std::string id = state["plans"].at(plan_)["id"];
    if (!has_plan_) get("/api/plan?id=" + id), has_plan_ = true;
    seq_ = get("/api/counters?plan=" + id + "&since=" + std::to_string(seq_))["seq"];
    if (since_ == 0) since_ = state["time_ns"].get<std::int64_t>() - 10'000'000'000;
    since_ = get("/api/events?limit=20000&since=" + std::to_string(since_))["asked_ns"];
    ++rounds_;
  }
  nlohmann::json get(const std::string& path) {
    const auto answer = http_.Get(path);
    if (answer && answer->status == 200) return nlohmann::json::parse(answer->body);
    std::fprintf(stderr, "inspect_cost: %s is not answered\n", path.c_str());
    std::abort();
  }

  httplib::Client http_;
  const std::size_t plan_;
  bool has_plan_ = false;
  std::uint64_t seq_ = 0;
  std::int64_t since_ = 0;
  std::atomic<int> rounds_{0};
  std::mutex mutex_;  // guards is_on_ and is_over_
  std::condition_variable changed_;
  bool is_on_ = false, is_over_ = false;
  std::thread thread_;
};

/// Runs all standing queries over the node's events, on a thread of its own, for as long as it
/// lives.
class Queries {
 public:
  explicit Queries(const ClusterNode& node) : feed_(node, {}), thread_([this] { run(); }) {}
  ~Queries() {
    is_over_.store(true);
    thread_.join();
  }
  Queries(const Queries&) = delete;
  Queries& operator=(const Queries&) = delete;
  std::uint64_t taken() const { return taken_.load(); }

 private:
  void run() {
    std::vector<std::unique_ptr<events::DirectRun>> runs;
    for (const events::StandingQuery& q : events::standing_queries())
      runs.push_back(std::make_unique<events::DirectRun>(
          events::standing_query(q.name, 1'000'000'000), [](std::size_t, const events::Batch&) {}));
    Subscription mine = feed_.subscribe();
    while (!is_over_.load()) {
      for (const events::Batch& batch : feed_.take(mine)) {
        taken_ += batch.size();
        for (const auto& each : runs) each->feed("engine", batch);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  EventFeed feed_;
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

enum class Mode { served, watched, queried, traced };
constexpr Mode kModes[] = {Mode::served, Mode::watched, Mode::queried, Mode::traced};

const char* name_of(Mode mode) {
  constexpr const char* kNames[] = {"served", "watched", "queried", "traced"};
  return kNames[static_cast<int>(mode)];
}

bench::Comparison comparison(const Workload& w, const std::string& how, double budget) {
  return {.name = std::string("inspect_cost_") + w.name + "_" + how,
          .unit = w.unit,
          .peer = "an engine that nobody can ask",
          .budget = budget};
}

}  // namespace

int main() {
  std::signal(SIGPIPE, SIG_IGN);  // a server that hangs up is asked over another connection
  Engine plain(one_worker());
  Programs of_plain(plain);
  InProcessNetwork network;
  NodeOptions o;
  o.name = "a";
  o.engine = one_worker();
  o.transport = [&](PeerInfo self) { return network.make_transport(std::move(self)); };
  ClusterNode node(std::move(o));
  Programs of_node(node.engine());
  const InspectionServer server(node, {});
  for (const Mode mode : kModes) {
    std::optional<Queries> queries;
    if (mode == Mode::queried) queries.emplace(node);
    std::atomic<bool> is_over{false};
    std::thread watcher([&] {
      using namespace std::chrono;
      std::int64_t told = 0;
      while (mode == Mode::watched && !is_over.load()) {
        const ClusterReport state = node.inspect();
        state_json("a", state);
        for (const PlanSnapshot& p : state.at(0).report.engine.plans) {
          CounterCache cache(
              node.inspect({.kind = NodeQuestion::Kind::plan, .plan = p.name}).at(0).report.plan);
          cache.update(node.inspect({.kind = NodeQuestion::Kind::counters, .plan = p.name}));
          cache.changes(0);
        }
        const std::int64_t asked = epoch_ns();
        events_json(node.inspect({.kind = NodeQuestion::Kind::events, .since_ns = told}), asked,
                    told, INT64_MAX, 20'000);
        told = asked;
        for (int i = 0; i < 100 && !is_over.load(); ++i)
          std::this_thread::sleep_for(milliseconds(10));
      }
    });
    for (std::size_t w = 0; w < of_node.all.size(); ++w) {
      const std::string how = name_of(mode);
      bench::Comparison c =
          comparison(of_node.all[w], how + "_thread_cpu", mode == Mode::traced ? 1.10 : 1.03);
      for (int i = 0; i < kRepetitions; ++i) {
        // a trace ends by itself
        if (mode == Mode::traced) node.inspect({.kind = NodeQuestion::Kind::trace_on});
        c.ours.push_back(of_node.all[w].run());
        c.theirs.push_back(of_plain.all[w].run());
      }
      c.print();
    }
    if (mode == Mode::traced) node.inspect({.kind = NodeQuestion::Kind::trace_off});
    is_over.store(true);
    watcher.join();
  }
  for (const Mode mode : kModes) {
    std::optional<Queries> queries;
    if (mode == Mode::queried) queries.emplace(node);
    for (std::size_t w = 0; w < of_node.all.size(); ++w) {
      const std::string how = name_of(mode);
      std::optional<Watcher> watcher;
      if (mode == Mode::watched) watcher.emplace(server.address(), w);
      bench::Comparison c =
          comparison(of_node.all[w], how + "_wall", mode == Mode::traced ? 1.10 : 1.03);
      double beside = 0, took = 0;
      for (int i = 0; i < kWallRepetitions; ++i) {
        if (mode == Mode::traced) node.inspect({.kind = NodeQuestion::Kind::trace_on});
        if (watcher) watcher->turn(true);
        const double began = bench::now_ns(), began_beside = beside_ns();
        c.ours.push_back(of_node.all[w].run(bench::now_ns, kWallPiece));
        beside += beside_ns() - began_beside;
        took += bench::now_ns() - began;
        if (watcher) watcher->turn(false);
        c.theirs.push_back(of_plain.all[w].run(bench::now_ns, kWallPiece));
      }
      c.also = {{"cores_beside", beside / took}};
      if (watcher) c.also.emplace_back("rounds", watcher->rounds());
      if (queries) c.also.emplace_back("events", static_cast<double>(queries->taken()));
      c.print();
    }
    if (mode == Mode::traced) node.inspect({.kind = NodeQuestion::Kind::trace_off});
  }
}
