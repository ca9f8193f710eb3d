// A training step of an LSTM over 100 steps of time, batch 32, 256 units (half of the usual 200, 64 and 512
// each, to fit small machines): the loop in the graph against the same steps unrolled into it, one node a
// step and op. Both multiply the input with its weights for all steps at once, and both are Troupe's.
//
// What unrolling cannot do is told beside it: how long compiling takes, and the longest sequence, of 25 times
// a power of two, whose training step (batch 8, 64 units) fits a simulated device of 8 MiB.
#include <cmath>
#include <cstring>
#include <string>

#include <troupe/actors/engine.hpp>
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
  const Exprs steps = split(matmul(x, wx) + b, std::vector<std::int64_t>(static_cast<std::size_t>(s.time), 1), 0);
  LstmState state{x.reader().zeros(DType::f32, {s.batch, s.units}), x.reader().zeros(DType::f32, {s.batch, s.units})};
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
    Expr x = graph_.input("x", DType::f32, {s.time, s.batch, s.features}), target = graph_.input("target", DType::f32, {s.time, s.batch, s.units});
    std::vector<Variable> weights{graph_.variable("input", bench::pattern({s.features, 4 * s.units}, scale, 1)),
                                  graph_.variable("recurrent", bench::pattern({s.units, 4 * s.units}, scale, 2)),
                                  graph_.variable("bias", bench::pattern({4 * s.units}, scale, 3))};
    Expr outputs = is_dynamic ? lstm(x, {weights[0], weights[1], weights[2]}).outputs
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

// The longest sequence whose training step a device of 8 MiB holds.
double longest(bool is_dynamic) {
  EngineOptions options = with_workers(1);
  options.default_device = "sim:0";
  options.sim.memory_limit = 8 << 20;
  double fits = 0;
  for (std::int64_t time = 25; time <= 25 << 6; time *= 2) {
    try {
      Trainer({time, 8, 32, 64}, is_dynamic, options).step();
    } catch (const Error& e) {
      if (e.code() == Code::resource_exhausted) return fits;
      throw;
    }
    fits = static_cast<double>(time);
  }
  return fits;
}

void measure(int workers) {
  Trainer dynamic(kTimed, true, with_workers(workers)), fixed(kTimed, false, with_workers(workers));
  bench::Comparison c{.name = "rnn_" + std::to_string(workers) + (workers == 1 ? "_thread" : "_threads"), .unit = "ns a step", .peer = "the same unrolled",
                      .peer_version = "same build", .budget = 1.03, .threads = workers, .note = "LSTM training step, T 100, batch 32, 128-256"};
  for (int i = 0; i < 3; ++i) {
    const float a = dynamic.step(), b = fixed.step();
    if (std::abs(a - b) <= 1e-5f) continue;
    std::fprintf(stderr, "step %d: the loss is %g with a loop, %g unrolled\n", i, static_cast<double>(a), static_cast<double>(b));
    std::exit(1);
  }
  for (int i = 0; i < kRepetitions; ++i) {
    c.ours.push_back(dynamic.timed());
    c.theirs.push_back(fixed.timed());
  }
  c.also = {{"compiling_ms", dynamic.compiling() / 1e6}, {"peer_compiling_ms", fixed.compiling() / 1e6}};
  if (workers == 1) c.also.insert(c.also.end(), {{"longest_in_8_mib", longest(true)}, {"peer_longest_in_8_mib", longest(false)}});
  c.print();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "longest") == 0) {
    std::printf("%g with a loop, %g unrolled\n", longest(true), longest(false));
    return 0;
  }
  for (const int workers : {1, 2}) measure(workers);
}
