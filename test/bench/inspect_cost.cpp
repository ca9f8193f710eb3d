// What being looked at costs: a chain of one-element operations, a loop of scalars and a training step of an LSTM on a node that
// serves inspections, while nobody asks, while somebody asks for everything once a second, as the page does, and while it is traced,
// against an engine that nobody can ask. By processor time; ours and the peer alternate in pieces of a tenth of a second.
//
// What is always on (counters, flight recorder) is in both: its cost is told by instructions, before and after (README.md).
#include <atomic>
#include <ctime>
#include <thread>

#include <troupe/actors/engine_impl.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/cluster/in_process.hpp>
#include <troupe/cluster/inspection_json.hpp>
#include <troupe/cluster/inspection_server.hpp>
#include <troupe/cluster/node.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/controlflow/recurrent.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/bench.hpp>
#include <troupe/test/bench/pattern.hpp>

namespace {

using namespace troupe;
constexpr int kRepetitions = 11;
constexpr double kPiece = 1e8;  // ns of a repetition

EngineOptions one_worker() {
  EngineOptions o;
  o.workers = 1;
  return o;
}

/// Processor time of the calling thread, which computes in the place of the one worker: it answers inspections too, and what others
/// do on the machine is not in it.
double thread_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

/// A program, and one run of it.
struct Workload {
  const char* name;
  const char* unit;
  double per_run;  // of the unit
  Function f;
  std::vector<Tensor> feeds;
  /// ns a unit, over a tenth of a second.
  double run() const {
    const double start = thread_ns();
    int runs = 0;
    do {
      f(feeds);
      ++runs;
    } while (thread_ns() - start < kPiece);
    return (thread_ns() - start) / runs / per_run;
  }
};

/// The three of them on one engine.
struct Programs {
  Graph chain, loop, lstm;
  std::vector<Workload> all;
  explicit Programs(Engine& engine) {
    CompileOptions plain;
    plain.optimize = false;
    Expr x = chain.input("x", DType::f32, {1}), a = chain.input("a", DType::f32, {1}), b = chain.input("b", DType::f32, {1}), y = x;
    for (int i = 0; i < 1000; ++i) y = i % 2 == 0 ? y * a : y + b;
    all.push_back({"firing", "ns an op", 1000, engine.compile(chain, {x, a, b}, {y}, plain), {Tensor::of<float>({1}), Tensor::of<float>({0.999f}), Tensor::of<float>({0.5f})}});
    Expr n = loop.input("n", DType::f32, Shape{});
    Expr last = while_loop([&](Expr i) { return i < n; }, [](Expr i) { return i + 1.0; }, loop.constant(0.f));
    all.push_back({"loop", "ns an iteration", 100'000, engine.compile(loop, {n}, {last}), {Tensor::scalar(100'000.f)}});
    constexpr std::int64_t kTime = 50, kBatch = 32, kFeatures = 128, kUnits = 256;
    Expr in = lstm.input("x", DType::f32, {kTime, kBatch, kFeatures}), target = lstm.input("target", DType::f32, {kTime, kBatch, kUnits});
    const std::vector<Variable> weights = {lstm.variable("input", bench::pattern({kFeatures, 4 * kUnits}, 0.1, 1)), lstm.variable("recurrent", bench::pattern({kUnits, 4 * kUnits}, 0.1, 2)),
                                           lstm.variable("bias", bench::pattern({4 * kUnits}, 0.1, 3))};
    auto [outputs, state] = troupe::lstm(in, {weights[0], weights[1], weights[2]});
    Expr loss = mean(square(outputs - target));
    all.push_back({"lstm", "ns a step", 1, engine.compile(lstm, {in, target}, {loss, Sgd({.learning_rate = 0.1}).minimize(loss, weights)}),
                   {bench::pattern({kTime, kBatch, kFeatures}, 2, 100), bench::pattern({kTime, kBatch, kUnits}, 1, 200)}});
    for (const Workload& w : all) w.run();
  }
};

}  // namespace

int main() {
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
  enum class Mode { served, watched, traced };
  for (const Mode mode : {Mode::served, Mode::watched, Mode::traced}) {
    std::atomic<bool> is_over{false};
    std::thread watcher([&] {
      using namespace std::chrono;
      std::int64_t told = 0;
      while (mode == Mode::watched && !is_over.load()) {
        const ClusterReport state = node.inspect();
        state_json("a", state);
        for (const PlanSnapshot& p : state.at(0).report.engine.plans) {
          CounterCache cache(node.inspect({.what = NodeQuestion::What::plan, .plan = p.name}).at(0).report.plan);
          cache.update(node.inspect({.what = NodeQuestion::What::counters, .plan = p.name}));
          cache.changes(0);
        }
        const std::int64_t asked = epoch_ns();
        events_json(node.inspect({.what = NodeQuestion::What::events, .since_ns = told}), asked, told, INT64_MAX, 20'000);
        told = asked;
        for (int i = 0; i < 100 && !is_over.load(); ++i) std::this_thread::sleep_for(milliseconds(10));
      }
    });
    for (std::size_t w = 0; w < of_node.all.size(); ++w) {
      const char* how = mode == Mode::served ? "served" : mode == Mode::watched ? "watched" : "traced";
      bench::Comparison c{.name = std::string("inspect_cost_") + of_node.all[w].name + "_" + how, .unit = of_node.all[w].unit, .peer = "an engine that nobody can ask",
                          .budget = mode == Mode::traced ? 1.10 : 1.03};
      for (int i = 0; i < kRepetitions; ++i) {
        if (mode == Mode::traced) node.inspect({.what = NodeQuestion::What::trace_on});  // a trace ends by itself
        c.ours.push_back(of_node.all[w].run());
        c.theirs.push_back(of_plain.all[w].run());
      }
      c.print();
    }
    if (mode == Mode::traced) node.inspect({.what = NodeQuestion::What::trace_off});
    is_over.store(true);
    watcher.join();
  }
}
