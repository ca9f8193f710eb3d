// Nanoseconds an operation where nothing but the engine costs anything: a chain of one-element
// multiplications and additions, unfused, against onnxruntime (its graph optimisations off) and
// torch (eager), on one thread each.
//
// Every run is fed another input, and every result is compared, bit for bit with a plain C++ loop
// and to 1e-6 with the peer's. `ns an op` is the time of a whole run, from the call to its return,
// divided by the ops; `latency` is the run of a chain of two ops alone. The operands a and b are
// inputs on all sides, so that there is nothing to fold.
#include <troupe/actors/engine/engine.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/count_allocations.hpp>
#include <troupe/test/bench/peer.hpp>

#include <cmath>
#include <cstring>

namespace {

using namespace troupe;
constexpr int kRepetitions = 9;
constexpr int kShort = 2;  // ops in the chain whose run is all latency
constexpr float kA = 0.999f, kB = 0.5f;

Tensor one_element(float value, int rank) {
  return rank == 0 ? Tensor::scalar(value) : Tensor::of({value});
}

EngineOptions one_worker() {
  EngineOptions options;
  options.workers = 1;
  return options;
}

CompileOptions unoptimized() {
  CompileOptions options;
  options.optimize = false;
  return options;
}

class Chain {
 public:
  Chain(int ops, int rank) : ops_(ops), rank_(rank) {
    Shape shape = rank == 0 ? Shape{} : Shape{1};
    Expr x = graph_.input("x", DType::f32, shape), a = graph_.input("a", DType::f32, shape),
         b = graph_.input("b", DType::f32, shape);
    Expr y = x;
    for (int i = 0; i < ops; ++i) y = i % 2 == 0 ? y * a : y + b;
    run_ = engine_.compile(graph_, {x, a, b}, {y}, unoptimized());
    run(200, 0, nullptr);
  }

  /// ns a run, over `runs` runs; their results go to `results`.
  double run(int runs, int first, std::vector<float>* results) {
    const Tensor a = one_element(kA, rank_), b = one_element(kB, rank_);
    const double start = bench::now_ns();
    for (int i = 0; i < runs; ++i) {
      const Tensor y = run_({one_element(input_of(first + i), rank_), a, b})[0];
      const float value = y.item<float>();
      check(first + i, value);
      if (results) results->push_back(value);
    }
    return (bench::now_ns() - start) / runs;
  }

  double allocations_per_run(int runs) {
    const Tensor a = one_element(kA, rank_), b = one_element(kB, rank_);
    std::int64_t before = 0;
    for (int i = -1; i < runs; ++i) {
      if (i == 0) before = bench::allocations();
      run_({one_element(input_of(i + 1), rank_), a, b});
    }
    return static_cast<double>(bench::allocations() - before) / runs;
  }

 private:
  static float input_of(int i) { return static_cast<float>(i * 0.001); }

  // Expected results are kept: the check in the timed loop is one comparison.
  void check(int i, float value) {
    while (static_cast<int>(expected_.size()) <= i) {
      float x = input_of(static_cast<int>(expected_.size()));
      for (int k = 0; k < ops_; ++k) x = k % 2 == 0 ? x * kA : x + kB;
      expected_.push_back(x);
    }
    if (std::memcmp(&value, &expected_[static_cast<std::size_t>(i)], sizeof value) == 0) return;
    std::fprintf(stderr, "run %d of %d ops: %.9g instead of %.9g\n", i, ops_, value,
                 expected_[static_cast<std::size_t>(i)]);
    std::exit(1);
  }

  int ops_, rank_;
  Graph graph_;
  Engine engine_{one_worker()};
  Function run_;
  std::vector<float> expected_;
};

void compare(const std::vector<float>& ours, const std::vector<double>& answer, const char* peer) {
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (std::abs(ours[i] - answer[i + 1]) > 1e-6 * std::abs(answer[i + 1])) {
      std::fprintf(stderr, "run %zu: %.9g, but %s says %.9g\n", i, ours[i], peer, answer[i + 1]);
      std::exit(1);
    }
}

struct Opponent {
  const char* name;
  const char* script;
  const char* what;
};
constexpr Opponent kOpponents[] = {
    {"onnxruntime", "chain_onnxruntime.py", "onnxruntime, graph optimisations disabled"},
    {"torch", "chain_torch.py", "torch eager, inference mode"},
};

void measure(int ops, int rank, int runs) {
  const bool is_latency = ops == kShort;
  Chain chain(ops, rank);
  // A run allocates for itself (its result, say); a firing is what a longer chain has more.
  const double per_run = chain.allocations_per_run(200);
  const double per_short_run = is_latency ? per_run : Chain(kShort, rank).allocations_per_run(200);
  for (const Opponent& o : kOpponents) {
    bench::Peer peer(o.name, o.script, {std::to_string(ops), std::to_string(rank), "1"});
    bench::Comparison c{.name = std::string(is_latency ? "run_latency_" : "firing_") +
                                (rank == 0 ? "scalar" : "one_element"),
                        .unit = is_latency ? "ns a run" : "ns an op",
                        .peer = {}};
    peer.describe(c, o.what);
    if (!is_latency) c.budget_value = 60;
    const double divisor = is_latency ? 1 : ops;
    if (peer.is_here()) peer.ask("run 20 0");
    for (int i = 0, first = 0; i < kRepetitions; ++i, first += runs) {
      std::vector<float> results;
      chain.run(runs / 10, first, nullptr);  // wakes the worker
      c.ours.push_back(chain.run(runs, first, &results) / divisor);
      if (!peer.is_here()) continue;
      const std::vector<double> answer =
          peer.ask("run " + std::to_string(runs) + " " + std::to_string(first));
      c.theirs.push_back(answer[0] / divisor);
      compare(results, answer, o.name);
    }
    c.also = {{"ops", ops}, {"allocations_per_run", per_run}};
    if (!is_latency)
      c.also.push_back({"allocations_per_firing", (per_run - per_short_run) / (ops - kShort)});
    c.note = is_latency ? "a chain of two ops, run after run" : "from the call to its return";
    c.print();
  }
}

}  // namespace

int main(int argc, char** argv) {
  // ours alone, for a profiler: profile <rank> <ops> <runs>
  if (argc > 4 && std::strcmp(argv[1], "profile") == 0) {
    Chain(std::atoi(argv[3]), std::atoi(argv[2])).run(std::atoi(argv[4]), 0, nullptr);
    return 0;
  }
  for (const int rank : {0, 1}) {
    measure(1000, rank, 100);
    measure(kShort, rank, 2000);
  }
}
