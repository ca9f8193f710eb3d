// A training step of an LSTM over 100 steps of time, batch 32, 256 units (half of the usual 200, 64
// and 512 each, to fit small machines): the loop in the graph against the same steps unrolled into
// it, one node a step and op. Both multiply the input with its weights for all steps at once, and
// both are Troupe's.
//
// The limits of unrolling are printed beside it: the time of compiling, the memory of the plan, and
// the longest sequence whose training step (batch 8, 64 units) fits a simulated device of 8 MiB.
// There the loop's saved values move to the host, as they would by default in a model whose values
// are 16 KiB and more; unrolled values do not move. Both hold the gates of all steps at once, which
// limits both.
#include <malloc.h>

#include <cmath>
#include <cstring>
#include <string>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/controlflow/recurrent.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/bench.hpp>
#include <troupe/test/bench/pattern.hpp>

namespace {

using namespace troupe;
constexpr int kRepetitions = 11;

struct Sizes {
  std::int64_t time, batch, features, units;
};
constexpr Sizes kTimed{100, 32, 128, 256};

EngineOptions with_workers(int workers) {
  EngineOptions options;
  options.workers = workers;
  return options;
}

// The outputs of all steps, [time, batch, units].
Expr unrolled(const Expr& x, const Sizes& s, const Expr& wx, const Expr& wh, const Expr& b) {
  const Exprs steps =
      split(matmul(x, wx) + b, std::vector<std::int64_t>(static_cast<std::size_t>(s.time), 1), 0);
  LstmState state{x.reader().zeros(DType::f32, {s.batch, s.units}),
                  x.reader().zeros(DType::f32, {s.batch, s.units})};
  Exprs outputs;
  for (const Expr& gates : steps) {
    state = lstm_cell(reshape(gates, {s.batch, 4 * s.units}), state, wh);
    outputs.push_back(expand_dims(state.h, 0));
  }
  return concat(outputs, 0);
}

class Trainer {
 public:
  Trainer(const Sizes& s, bool is_dynamic, const EngineOptions& options) : engine_(options) {
    const double scale = 2 / std::sqrt(static_cast<double>(s.units));
    Expr x = graph_.input("x", DType::f32, {s.time, s.batch, s.features}),
         target = graph_.input("target", DType::f32, {s.time, s.batch, s.units});
    std::vector<Variable> weights{
        graph_.variable("input", bench::pattern({s.features, 4 * s.units}, scale, 1)),
        graph_.variable("recurrent", bench::pattern({s.units, 4 * s.units}, scale, 2)),
        graph_.variable("bias", bench::pattern({4 * s.units}, scale, 3))};
    Expr outputs = is_dynamic
                       ? lstm(x, {weights[0], weights[1], weights[2]}).outputs
                       : unrolled(x, s, weights[0].read(), weights[1].read(), weights[2].read());
    Expr loss = mean(square(outputs - target));
    Expr train = Sgd({.learning_rate = 0.5}).minimize(loss, weights);
    const double begin = bench::now_ns();
    step_ = engine_.compile(graph_, {x, target}, {loss, train});
    compiling_ = bench::now_ns() - begin;
    x_ = bench::pattern({s.time, s.batch, s.features}, 2, 4);
    target_ = bench::pattern({s.time, s.batch, s.units}, 1, 5);
  }

  float step() { return step_({x_, target_})[0].item<float>(); }
  double timed() {
    const double begin = bench::now_ns();
    step();
    return bench::now_ns() - begin;
  }
  double compiling() const { return compiling_; }

 private:
  Graph graph_;
  Engine engine_;
  Function step_;
  Tensor x_, target_;
  double compiling_ = 0;
};

// Does a device of 8 MiB hold the training step?
bool fits(std::int64_t time, bool is_dynamic) {
  EngineOptions options = with_workers(1);
  options.default_device = "sim:0";
  options.sim.memory_limit = 8 << 20;
  options.swap.threshold = 1 << 10;  // the values are as small as the model
  try {
    Trainer({time, 8, 32, 64}, is_dynamic, options).step();
    return true;
  } catch (const Error& e) {
    if (e.code() == Code::resource_exhausted) return false;
    throw;
  }
}

// The longest sequence that it does hold, in steps of 25, up to 1,600: at most ten tries.
double longest(bool is_dynamic) {
  std::int64_t yes = 0, no = 65;  // times 25
  while (no - yes > 1) {
    const std::int64_t middle = (yes + no) / 2;
    (fits(25 * middle, is_dynamic) ? yes : no) = middle;
  }
  return static_cast<double>(25 * yes);
}

// Returns the heap, in KiB, of the graph, its gradient and its plan; nothing has run yet.
double plan_kib(bool is_dynamic, std::int64_t time) {
  const std::size_t before = mallinfo2().uordblks;
  // its tensors are next to nothing
  const Trainer trainer({time, 1, 1, 1}, is_dynamic, with_workers(1));
  return static_cast<double>(mallinfo2().uordblks - before) / 1024;
}

void measure(int workers) {
  Trainer dynamic(kTimed, true, with_workers(workers)), fixed(kTimed, false, with_workers(workers));
  bench::Comparison c{
      .name = "rnn_" + std::to_string(workers) + (workers == 1 ? "_thread" : "_threads"),
      .unit = "ns a step",
      .peer = "the same unrolled",
      .peer_version = "same build",
      .budget = 1.03,
      .threads = workers,
      .note = "LSTM training step, T 100, batch 32, 128-256"};
  for (int i = 0; i < 3; ++i) {
    const float a = dynamic.step(), b = fixed.step();
    if (std::abs(a - b) <= 1e-5f) continue;
    std::fprintf(stderr, "step %d: the loss is %g with a loop, %g unrolled\n", i,
                 static_cast<double>(a), static_cast<double>(b));
    std::exit(1);
  }
  for (int i = 0; i < kRepetitions; ++i) {
    c.ours.push_back(dynamic.timed());
    c.theirs.push_back(fixed.timed());
  }
  c.also = {{"compiling_ms", dynamic.compiling() / 1e6},
            {"peer_compiling_ms", fixed.compiling() / 1e6}};
  if (workers == 1)
    c.also.insert(c.also.end(), {{"longest_in_8_mib", longest(true)},
                                 {"peer_longest_in_8_mib", longest(false)},
                                 {"plan_kib_100", plan_kib(true, 100)},
                                 {"peer_plan_kib_100", plan_kib(false, 100)},
                                 {"plan_kib_1600", plan_kib(true, 1600)},
                                 {"peer_plan_kib_1600", plan_kib(false, 1600)}});
  c.print();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "longest") == 0) {
    std::printf("8 MiB hold %g steps with a loop, %g unrolled\n", longest(true), longest(false));
    for (const std::int64_t time : {100, 400, 1600})
      std::printf("the plan of %lld steps: %.0f KiB with a loop, %.0f unrolled\n",
                  static_cast<long long>(time), plan_kib(true, time), plan_kib(false, time));
    return 0;
  }
  for (const int workers : {1, 2}) measure(workers);
}
