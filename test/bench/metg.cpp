// METG(50%) of Task Bench: the time of the smallest tasks at which half of the cores' peak is
// reached, against OpenMPI and StarPU. Rows of 2 and 8 tasks, each row a step of an in-graph loop;
// patterns stencil_1d, nearest 5, spread 5 and fft (metg_task.hpp); one worker and two; a device a
// column and one device for all.
//
//   metg                                  # all
//   metg quick                            # stencil_1d of width 2, three sweeps
//   metg nearest_5 fft                    # these patterns
//   metg trace [us] [pattern] [width]     # where the time of a step goes; tasks of 1 µs
//   metg profile WORKERS columns|one US   # ours alone, for a profiler
//
// A sweep doubles or halves the tasks until it crosses 50 %, then halves the interval, and
// interpolates. The peak is the rate of the same tasks in as many threads without an engine, in the
// same sweep. Each size is compiled anew, because an engine learns what its kernels take. Budgets:
// issue figures for stencil_1d of width 2; twice stencil_1d's for the others on one worker.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include <sched.h>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/test/bench/metg_task.hpp>
#include <troupe/test/bench/peer.hpp>

namespace troupe {
namespace {

using bench::Pattern;
using bench::TaskGrid;

/// When and where a task ran; written by the task, read after the run.
struct Stamp {
  double began_ns = 0, ended_ns = 0;
  int worker = -1;
};
/// By column, in the order of steps: empty unless a trace is on. A column's tasks follow one
/// another, so each vector has one writer at a time.
std::vector<std::vector<Stamp>> stamps;

double mean_of(KernelContext& c) {
  double sum = 0;
  for (int i = 0; i < c.inputs(); ++i) sum += c.input(i).at(0);
  return sum / c.inputs();
}

}  // namespace

TROUPE_OP(MetgTask) {
  op.doc("A task of the benchmark metg: a chain of multiply-adds from the mean of its inputs.");
  op.inputs(1, 8);
  op.attr<std::int64_t>("iterations");
  op.attr<std::int64_t>("column");
  op.infer([](Inference& c) { c.output(DType::f64, Shape{}); });
  op.run([](KernelContext& c, const Attrs& attrs) {
    const auto iterations = attrs.get<std::int64_t>("iterations");
    if (stamps.empty()) {
      c.set(0, Tensor::scalar(bench::task(mean_of(c), iterations)));
      return;
    }
    Stamp stamp{bench::now_ns(), 0, Worker::current() ? Worker::current()->index() : -1};
    c.set(0, Tensor::scalar(bench::task(mean_of(c), iterations)));
    stamp.ended_ns = bench::now_ns();
    stamps[static_cast<std::size_t>(attrs.get<std::int64_t>("column"))].push_back(stamp);
  });
}

namespace {

constexpr int kSweeps = 5, kQuickSweeps = 3;
constexpr double kLongest = 400'000, kFirst = 2'000;  // ns a task: the largest, and the first tried

enum class Devices { column, one };

/// The time of a run of so many steps, and the sum of its last row.
struct Outcome {
  double ns = 0, sum = 0;
};

/// One side of the comparison.
class Side {
 public:
  virtual ~Side() = default;
  /// The next runs are of this grid, with tasks of so many iterations.
  virtual void prepare(const TaskGrid& grid, std::int64_t iterations) = 0;
  virtual Outcome run(int steps) = 0;
};

class Ours final : public Side {
 public:
  Ours(Engine& engine, Devices devices) : engine_(engine), devices_(devices) {}

  void prepare(const TaskGrid& grid, std::int64_t iterations) override {
    period_ = bench::period(grid);
    Graph g;
    const Expr limit = g.input("limit", DType::i32, {});
    std::vector<Expr> initial{g.constant(0)};
    for (int c = 0; c < grid.width; ++c) initial.push_back(g.constant(bench::seed_of(c)));
    const auto last = while_loop([&](std::vector<Expr> v) { return v[0] < limit; },
                                 [&](std::vector<Expr> v) {
                                   std::vector<Expr> row(v.begin() + 1, v.end());
                                   for (int step = 0; step < period_; ++step)
                                     row = next_row(g, grid, step, row, iterations);
                                   row.insert(row.begin(), v[0] + 1);
                                   return row;
                                 },
                                 initial);
    Expr sum = last[1];
    for (int c = 1; c < grid.width; ++c) sum = sum + last[static_cast<std::size_t>(c) + 1];
    run_ = engine_.compile(g, {limit}, {sum});
    for (int i = 0; i < 3; ++i) run(30);  // its kernels are timed
  }
  Outcome run(int steps) override {
    const double start = bench::now_ns();
    const std::vector<Tensor> out = run_({Tensor::scalar<std::int32_t>(steps / period_)});
    return {bench::now_ns() - start, out[0].item<double>()};
  }

 private:
  std::vector<Expr> next_row(Graph& g, const TaskGrid& grid, int step, const std::vector<Expr>& row,
                             std::int64_t iterations) const {
    std::vector<Expr> next;
    for (int c = 0; c < grid.width; ++c) {
      const auto where = g.on_device("cpu:" + std::to_string(devices_ == Devices::column ? c : 0));
      std::vector<Operand> inputs;
      for (const int from : bench::needs(grid, step, c))
        inputs.emplace_back(row[static_cast<std::size_t>(from)]);
      next.push_back(bind1("MetgTask", inputs,
                           {{"iterations", iterations}, {"column", std::int64_t{c}}},
                           Site(std::source_location::current())));
    }
    return next;
  }

  Engine& engine_;
  const Devices devices_;
  int period_ = 1;
  Function run_;
};

class Theirs final : public Side {
 public:
  explicit Theirs(bench::Peer& peer) : peer_(peer) {}
  void prepare(const TaskGrid& grid, std::int64_t iterations) override {
    grid_ = grid;
    iterations_ = iterations;
  }
  Outcome run(int steps) override {
    const std::vector<double> answer =
        peer_.ask(std::string("run ") + bench::kPatternNames[static_cast<int>(grid_.pattern)] +
                  ' ' + std::to_string(grid_.width) + ' ' + std::to_string(steps) + ' ' +
                  std::to_string(iterations_));
    return {answer[0], answer.at(1)};
  }

 private:
  bench::Peer& peer_;
  TaskGrid grid_;
  std::int64_t iterations_ = 1;
};

/// ns of one iteration of a task, in each of so many threads at once: the least of some tries.
double peak_ns(int threads) {
  constexpr int kTries = 9;
  constexpr std::int64_t kIterations = 100'000;
  double least = 1e9;
  for (int i = 0; i < kTries; ++i) {
    std::vector<double> took(static_cast<std::size_t>(threads));
    const auto measure = [&took](std::size_t t) {
      volatile double sink = bench::task(1.5, kIterations / 10);  // it has a core
      const double start = bench::now_ns();
      sink = bench::task(sink, kIterations);
      took[t] = bench::now_ns() - start;
    };
    std::vector<std::thread> others;
    for (std::size_t t = 1; t < took.size(); ++t) others.emplace_back(measure, t);
    measure(0);
    for (std::thread& other : others) other.join();
    least = std::min(least, *std::max_element(took.begin(), took.end()) / kIterations);
  }
  return least;
}

void check(Side& side, const TaskGrid& grid) {
  constexpr int kSteps = 36, kIterations = 7;
  side.prepare(grid, kIterations);
  const double sum = side.run(kSteps).sum,
               expected = bench::expected_sum(grid, kSteps, kIterations);
  if (std::abs(sum - expected) <= 1e-9 * std::abs(expected)) return;
  std::fprintf(stderr, "metg: a last row sums up to %.17g where %.17g was expected\n", sum,
               expected);
  std::exit(1);
}

/// One measured size: core time a task, and the part of it at the peak.
struct Size {
  double granularity_ns = 0, efficiency = 0;
};

Size measure(Side& side, const TaskGrid& grid, int threads, double peak, double task_ns) {
  constexpr int kRuns = 3;
  constexpr double kRunNs = 10e6;
  const auto iterations =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(std::lround(task_ns / peak)));
  const int cores = std::min(threads, grid.width);
  // a multiple of every period
  const int steps =
      static_cast<int>(std::clamp(kRunNs * cores / (2 * task_ns * grid.width), 10.0, 2000.0)) * 6;
  side.prepare(grid, iterations);
  std::vector<double> took;
  for (int i = 0; i < kRuns; ++i) took.push_back(side.run(steps).ns);
  const double granularity =
      bench::median(took) * cores / (static_cast<double>(steps) * grid.width);
  return {granularity, peak * static_cast<double>(iterations) / granularity};
}

/// METG(50%) in µs.
double sweep(Side& side, const TaskGrid& grid, int threads) {
  constexpr double kClose = 1.3;  // the last interval's ratio
  const double peak = peak_ns(std::min(threads, grid.width));
  double below = 0, above = 0;  // ns a task: under half of the peak, and above
  Size under, over;
  double task_ns = kFirst;
  while (below == 0 || above == 0 || above / below > kClose) {
    const Size size = measure(side, grid, threads, peak, task_ns);
    if (size.efficiency < 0.5) below = task_ns, under = size;
    else above = task_ns, over = size;
    if (above == 0) {
      if (below >= kLongest) return below * 1e-3;
      task_ns = below * 2;
    } else if (below == 0) {
      if (above <= peak) return over.granularity_ns * 1e-3;
      task_ns = above / 2;
    } else {
      task_ns = std::sqrt(below * above);
    }
  }
  const double part = (0.5 - under.efficiency) / (over.efficiency - under.efficiency);
  return (under.granularity_ns + part * (over.granularity_ns - under.granularity_ns)) * 1e-3;
}

/// The peers for a number of threads.
struct Opponents {
  explicit Opponents([[maybe_unused]] int threads) {
#ifdef TROUPE_PEER_OPENMPI
    all.push_back(std::make_unique<bench::Peer>(
        "OpenMPI",
        bench::Command{{TROUPE_MPIRUN, "-np", std::to_string(threads), TROUPE_PEER_OPENMPI}}));
#else
    all.push_back(std::make_unique<bench::Peer>("OpenMPI", bench::Command{}));
#endif
#ifdef TROUPE_PEER_STARPU
    all.push_back(std::make_unique<bench::Peer>(
        "StarPU", bench::Command{{TROUPE_PEER_STARPU, std::to_string(threads)}}));
#else
    all.push_back(std::make_unique<bench::Peer>("StarPU", bench::Command{}));
#endif
  }
  std::vector<std::unique_ptr<bench::Peer>> all;
};

constexpr const char* name_of(Devices devices) {
  return devices == Devices::column ? "columns" : "one_device";
}

class Benchmark {
 public:
  explicit Benchmark(int sweeps) : sweeps_(sweeps) {}

  void run(const std::vector<Pattern>& patterns, const std::vector<int>& widths) {
    for (const int threads : {1, 2}) {
      EngineOptions options;
      options.workers = threads;
      Engine engine(options);
      Opponents opponents(threads);
      for (const auto& peer : opponents.all)
        if (!peer->is_here()) missing_.insert(peer->label(""));
      for (const Pattern pattern : patterns)
        for (const int width : widths) compare(engine, opponents, {pattern, width}, threads);
    }
    if (missing_.empty()) return;
    std::fprintf(stderr, "metg: skipped peers: %zu", missing_.size());
    for (const std::string& name : missing_) std::fprintf(stderr, ", %s", name.c_str());
    std::fprintf(stderr, "; scripts/setup --peers installs them\n");
  }

 private:
  void compare(Engine& engine, Opponents& opponents, const TaskGrid& grid, int threads) {
    std::map<const bench::Peer*, std::vector<double>> theirs;
    std::map<Devices, std::vector<double>> ours;
    bench::Comparison c{.name = {}, .unit = "us", .peer = {}, .threads = threads};
    for (int i = 0; i < sweeps_; ++i) {
      for (const Devices devices : {Devices::column, Devices::one}) {
        Ours side(engine, devices);
        if (i == 0) check(side, grid);
        ours[devices].push_back(sweep(side, grid, threads));
      }
      for (const auto& peer : opponents.all) {
        if (!peer->is_here()) continue;
        Theirs side(*peer);
        if (i == 0) check(side, grid);
        theirs[peer.get()].push_back(sweep(side, grid, threads));
      }
    }
    for (const Devices devices : {Devices::column, Devices::one})
      for (const auto& peer : opponents.all) {
        c.name = std::string(bench::kPatternNames[static_cast<int>(grid.pattern)]) + "_" +
                 std::to_string(grid.width) + "_" + name_of(devices);
        c.ours = ours[devices];
        c.theirs = theirs[peer.get()];
        c.peer = peer->label(peer->name());
        c.peer_version = peer->version();
        c.budget_value = budget(grid, devices, threads, bench::median(c.ours));
        c.print();
      }
  }

  /// µs; 0: none.
  double budget(const TaskGrid& grid, Devices devices, int threads, double value) {
    const bool is_first = grid.pattern == Pattern::stencil_1d && grid.width == 2;
    if (is_first && threads == 1) stencil_[devices] = value;
    if (is_first && threads == 1) return devices == Devices::one ? 0.15 : 0;
    if (is_first) return devices == Devices::column ? 1 : 2;
    return threads == 1 && stencil_.contains(devices) ? 2 * stencil_[devices] : 0;
  }

  const int sweeps_;
  std::map<Devices, double> stencil_;  // its METG of width 2 on one worker
  std::set<std::string> missing_;
};

// ---- the trace

/// Shares of the workers' time, in ns a step, and how often something happens in one.
struct Account {
  double step = 0, workers = 0;  // by the clock, and summed over the workers
  double kernels = 0, engine = 0, hand_over = 0, spinning = 0, parked = 0, waking = 0;
  double jobs = 0, offers = 0, steals = 0, searches = 0, finds = 0, parks = 0, wakes = 0;
};

class Trace {
 public:
  Trace(const TaskGrid& grid, double task_ns, int workers) : grid_(grid), workers_(workers) {
    peak_ = peak_ns(std::min(workers, grid.width));
    iterations_ = std::max<std::int64_t>(1, std::lround(task_ns / peak_));
  }

  /// In words, with the waits of single tasks.
  void print(Devices devices) {
    Engine engine(options(workers_));
    Ours side(engine, devices);
    side.prepare(grid_, iterations_);
    const Account a = account(engine, side, engine_alone(devices));
    std::printf("%s, width %d, %s, %d workers, tasks of %.0f ns: %.0f ns a step\n",
                bench::kPatternNames[static_cast<int>(grid_.pattern)], grid_.width,
                name_of(devices), workers_, task_time(), a.step);
    const auto line = [&a](const char* what, double ns) {
      std::printf("  %-42s %8.0f ns  %5.1f %%\n", what, ns, 100 * ns / a.workers);
    };
    line("kernels", a.kernels);
    line("engine, as much as on one worker", a.engine);
    line("hand-over: engine beyond that", a.hand_over);
    line("spinning", a.spinning);
    line("parked", a.parked);
    line("waking up", a.waking);
    std::printf(
        "  jobs %.3f, offers %.3f, steals %.3f, searches %.3f of which %.3f find work, "
        "parks %.4f, wake-ups %.4f\n",
        a.jobs, a.offers, a.steals, a.searches, a.finds, a.parks, a.wakes);
    print_stamps(side);
  }

  /// As a line of the benchmark.
  void print_line(Devices devices) {
    bench::Comparison c{.name = std::string("where_a_step_goes_") + name_of(devices),
                        .unit = "ns a step",
                        .peer = "none",
                        .threads = workers_};
    Engine engine(options(workers_));
    Ours side(engine, devices);
    side.prepare(grid_, iterations_);
    const Account a = account(engine, side, engine_alone(devices));
    c.ours = {a.step};
    c.also = {{"task_ns", task_time()},   {"kernels", a.kernels},   {"engine", a.engine},
              {"hand_over", a.hand_over}, {"spinning", a.spinning}, {"parked", a.parked},
              {"waking", a.waking},       {"jobs", a.jobs},         {"offers", a.offers},
              {"steals", a.steals},       {"searches", a.searches}, {"finds", a.finds},
              {"parks", a.parks},         {"wakes", a.wakes}};
    c.print();
  }

 private:
  static constexpr int kSteps = 6000, kRuns = 9;

  static EngineOptions options(int workers) {
    EngineOptions options;
    options.workers = workers;
    return options;
  }
  double task_time() const { return peak_ * static_cast<double>(iterations_); }

  /// By the pool's counters over some runs; what no counter names is the engine's.
  Account account(Engine& engine, Ours& side, double engine_alone) const {
    for (int i = 0; i < 5; ++i) side.run(kSteps);
    const PoolCounters before = engine.impl().pool()->counters();
    double wall = 0;
    for (int i = 0; i < kRuns; ++i) wall += side.run(kSteps).ns;
    const PoolCounters after = engine.impl().pool()->counters();
    const auto each = [&](std::uint64_t PoolCounters::*counter) {
      return static_cast<double>(after.*counter - before.*counter) / (kSteps * kRuns);
    };
    Account a;
    a.step = wall / (kSteps * kRuns);
    a.workers = a.step * workers_;
    a.kernels = task_time() * grid_.width;
    a.spinning = each(&PoolCounters::search_ns);
    a.parked = each(&PoolCounters::sleep_ns);
    a.waking = each(&PoolCounters::wake_ns);
    const double left = a.workers - a.kernels - a.spinning - a.parked - a.waking;
    a.engine = std::min(left, engine_alone);
    a.hand_over = left - a.engine;
    a.jobs = each(&PoolCounters::jobs);
    a.offers = each(&PoolCounters::offers);
    a.steals = each(&PoolCounters::steals);
    a.searches = each(&PoolCounters::searches);
    a.finds = each(&PoolCounters::finds);
    a.parks = each(&PoolCounters::parks);
    a.wakes = each(&PoolCounters::wakes);
    return a;
  }

  /// ns a step of one worker, beside its kernels.
  double engine_alone(Devices devices) const {
    Engine engine(options(1));
    Ours side(engine, devices);
    side.prepare(grid_, iterations_);
    side.run(kSteps);
    std::vector<double> took;
    for (int i = 0; i < kRuns; ++i) took.push_back(side.run(kSteps).ns / kSteps);
    return std::max(0.0, bench::median(took) - task_time() * grid_.width);
  }

  /// How long after the last of its needs a task began, by whether that ran on another worker.
  void print_stamps(Ours& side) const {
    stamps.resize(static_cast<std::size_t>(grid_.width));
    for (auto& column : stamps) column.reserve(kSteps);
    side.run(kSteps);
    std::vector<double> same, other;
    int moves = 0;
    for (int step = 1; step < kSteps; ++step)
      for (int c = 0; c < grid_.width; ++c) {
        const Stamp& s = at(c, step);
        moves += s.worker != at(c, step - 1).worker;
        const Stamp* last = nullptr;
        for (const int from : bench::needs(grid_, step, c))
          if (const Stamp& f = at(from, step - 1); !last || f.ended_ns > last->ended_ns) last = &f;
        (last->worker == s.worker ? same : other).push_back(s.began_ns - last->ended_ns);
      }
    std::printf("  %.1f %% of the tasks run on another worker than their column's last\n",
                100.0 * moves / (kSteps * grid_.width));
    print_waits("needs ended on the same worker:", same);
    print_waits("needs ended on another:", other);
    stamps.clear();
  }
  static const Stamp& at(int column, int step) {
    return stamps[static_cast<std::size_t>(column)][static_cast<std::size_t>(step)];
  }
  static void print_waits(const char* what, std::vector<double>& waits) {
    if (waits.empty()) return;
    std::sort(waits.begin(), waits.end());
    const auto quantile = [&](double q) {
      return waits[static_cast<std::size_t>(q * static_cast<double>(waits.size() - 1))];
    };
    std::printf("  %-32s %6zu began after %.0f, %.0f, %.0f, %.0f ns (10, 50, 90, 99 %%)\n", what,
                waits.size(), quantile(0.1), quantile(0.5), quantile(0.9), quantile(0.99));
  }

  const TaskGrid grid_;
  const int workers_;
  double peak_ = 0;  // ns of an iteration
  std::int64_t iterations_ = 1;
};

/// Tasks of 1 µs on two workers.
void print_trace_lines() {
  Trace trace({Pattern::stencil_1d, 2}, 1000, 2);
  for (const Devices devices : {Devices::column, Devices::one}) trace.print_line(devices);
}

void profile(int workers, const std::string& devices, double task_us) {
  EngineOptions options;
  options.workers = workers;
  Engine engine(options);
  Ours side(engine, devices == "columns" ? Devices::column : Devices::one);
  const TaskGrid grid{Pattern::stencil_1d, 2};
  const double peak = peak_ns(workers);
  side.prepare(grid, std::max<std::int64_t>(1, std::lround(task_us * 1e3 / peak)));
  for (int i = 0; i < 200; ++i) {
    const double ns = side.run(12'000).ns / 12'000;
    if (i % 20 == 0) std::printf("%.0f ns a step\n", ns);
  }
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  using namespace troupe;
  const std::vector<std::string> asked(argv + 1, argv + argc);
  std::vector<Pattern> patterns;
  if (asked.size() > 3 && asked[0] == "profile") {
    profile(std::atoi(argv[2]), asked[2], std::atof(argv[4]));
    return 0;
  }
  if (!asked.empty() && asked[0] == "trace") {
    const double us = asked.size() > 1 ? std::atof(argv[2]) : 1;
    const Pattern pattern = asked.size() > 2
                                ? bench::pattern_named(asked[2]).value_or(Pattern::stencil_1d)
                                : Pattern::stencil_1d;
    const int width = asked.size() > 3 ? std::atoi(argv[4]) : 2;
    Trace trace({pattern, width}, us * 1000, 2);
    for (const Devices devices : {Devices::column, Devices::one}) trace.print(devices);
    return 0;
  }
  if (asked == std::vector<std::string>{"quick"}) {
    Benchmark(kQuickSweeps).run({Pattern::stencil_1d}, {2});
    print_trace_lines();
    return 0;
  }
  for (const std::string& name : asked) {
    const auto pattern = bench::pattern_named(name);
    if (!pattern) {
      std::fprintf(stderr,
                   "metg: there is no pattern '%s'; there are stencil_1d, nearest_5, "
                   "spread_5 and fft, or quick, trace, profile\n",
                   name.c_str());
      return 1;
    }
    patterns.push_back(*pattern);
  }
  if (patterns.empty())
    patterns = {Pattern::stencil_1d, Pattern::nearest, Pattern::spread, Pattern::fft};
  Benchmark(kSweeps).run(patterns, {2, 8});
  print_trace_lines();
}
