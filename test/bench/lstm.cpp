// A training step of an LSTM, 50 steps of time, batch 32, 128 features to 256 units, f32: forward,
// mean squared error to a target, backward and an SGD update of the four weights, against eager
// torch's nn.LSTM with its fused SGD, on one thread and on two: as a loop in the graph, and fused
// into one op. Neither side differentiates its input. `products_ns` is what the step's products
// take alone, on one thread, by oneDNN, which is the fastest here. `least_core_ns` is what they
// would take at the measured multiply-add peak of a core, and `least_ratio` that of the peer's
// processor time: no step in f32 takes less, on however many cores.
//
// Both sides start from the same weights and take the same batches; the losses of the first steps
// must agree to 1e-4, or the benchmark ends with an error. The loss is fetched every step on both
// sides.
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/controlflow/recurrent.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/pattern.hpp>
#include <troupe/test/bench/peak.hpp>
#include <troupe/test/bench/training.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <dnnl.hpp>

namespace {

using namespace troupe;
constexpr int kRepetitions = 15;
constexpr int kSteps = 5, kCompared = 20;
constexpr int kBatches = 4;
constexpr std::int64_t kTime = 50, kBatch = 32, kFeatures = 128, kUnits = 256;
constexpr double kRate = 0.5;

class Trainer {
 public:
  explicit Trainer(int workers, bool fused = false) : engine_(bench::with_workers(workers)) {
    Expr x = graph_.input("x", DType::f32, {kTime, kBatch, kFeatures}),
         target = graph_.input("target", DType::f32, {kTime, kBatch, kUnits});
    weights_ = {bench::variable(graph_, "input", start(0)),
                bench::variable(graph_, "recurrent", start(1)),
                // torch has two biases that are added up; each takes the whole gradient.
                bench::variable(graph_, "bias_input", start(2)),
                bench::variable(graph_, "bias_recurrent", start(3))};
    auto [outputs, last] =
        lstm(x, {weights_[0], weights_[1], weights_[2] + weights_[3]}, {.fused = fused});
    Expr loss = mean(square(outputs - target));
    step_ = engine_.compile(graph_, {x, target},
                            {loss, Sgd({.learning_rate = kRate}).minimize(loss, weights_)});
    for (std::uint32_t i = 0; i < kBatches; ++i) {
      xs_.push_back(bench::pattern({kTime, kBatch, kFeatures}, 2, 100 + i));
      targets_.push_back(bench::pattern({kTime, kBatch, kUnits}, 1, 200 + i));
    }
    reset();
  }

  void reset() {
    for (int i = 0; i < 4; ++i) engine_.set(weights_[static_cast<std::size_t>(i)], start(i));
  }

  /// ns a step; the losses go to `losses`.
  double steps(int count, std::vector<float>* losses = nullptr) {
    return bench::timed_steps(count, losses, [this](std::size_t i) {
      return step_({xs_[i % kBatches], targets_[i % kBatches]})[0].item<float>();
    });
  }
  std::string explain() const { return step_.explain(); }

 private:
  static Tensor start(int i) {
    const double scale = 2 / std::sqrt(static_cast<double>(kUnits));
    const Shape shapes[] = {
        {kFeatures, 4 * kUnits}, {kUnits, 4 * kUnits}, {4 * kUnits}, {4 * kUnits}};
    return bench::pattern(shapes[i], scale, static_cast<std::uint32_t>(i + 1));
  }

  Graph graph_;
  Engine engine_;
  std::vector<Variable> weights_;
  Function step_;
  std::vector<Tensor> xs_, targets_;
};

class FusedTrainer : public Trainer {
 public:
  explicit FusedTrainer(int workers) : Trainer(workers, true) {}
};

// Steps of time as products with the same weights [k, n], which oneDNN keeps in a layout of its
// own.
class PackedSteps {
 public:
  PackedSteps(std::int64_t k, std::int64_t n)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_),
        from_(static_cast<std::size_t>(kTime * kBatch * k), 0.1f),
        to_(static_cast<std::size_t>(kTime * kBatch * n)) {
    const dnnl::memory::desc a = plain(kBatch, k), c = plain(kBatch, n),
                             any({k, n}, dnnl::memory::data_type::f32,
                                 dnnl::memory::format_tag::any);
    const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(a, any, c), engine_);
    product_ = dnnl::matmul(chosen);
    a_ = dnnl::memory(a, engine_, from_.data()), b_ = dnnl::memory(chosen.weights_desc(), engine_),
    c_ = dnnl::memory(c, engine_, to_.data());
    std::memset(b_.get_data_handle(), 0, chosen.weights_desc().get_size());
  }
  void run() {
    const std::size_t a = from_.size() / kTime, c = to_.size() / kTime;
    for (std::size_t t = 0; t < kTime; ++t) {
      a_.set_data_handle(from_.data() + t * a);
      c_.set_data_handle(to_.data() + t * c);
      product_.execute(stream_, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}});
    }
  }

 private:
  static dnnl::memory::desc plain(std::int64_t rows, std::int64_t columns) {
    return {{rows, columns}, dnnl::memory::data_type::f32, dnnl::memory::dims{columns, 1}};
  }
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<float> from_, to_;
  dnnl::matmul product_;
  dnnl::memory a_, b_, c_;
};

// The least processor time of the five products of a step.
double products_ns() {
  constexpr std::int64_t rows = kTime * kBatch, columns = 4 * kUnits;
  std::vector<float> of_rows(rows * kUnits, 0.1f), gates(rows * columns, 0.1f),
      weights(kUnits * columns, 0.1f);
  PackedSteps forward(kUnits, columns), back(columns, kUnits);
  auto least = [](auto&& product) {
    double best = 1e18;
    for (int i = 0; i < kRepetitions; ++i) {
      const double before = bench::processor_ns();
      product();
      best = std::min(best, bench::processor_ns() - before);
    }
    return best;
  };
  double sum = least([&] {
    dnnl_sgemm('N', 'N', rows, columns, kFeatures, 1, of_rows.data(), kFeatures, weights.data(),
               columns, 0, gates.data(), columns);
  });
  sum += least([&] { forward.run(); });
  sum += least([&] { back.run(); });
  for (const std::int64_t n : {kUnits, kFeatures})
    sum += least([&] {
      dnnl_sgemm('T', 'N', n, columns, rows, 1, of_rows.data(), n, gates.data(), columns, 0,
                 weights.data(), columns);
    });
  return sum;
}

// The multiply-adds, counted as two, that a step cannot do without. The first state is zero, and
// its gradient is not fetched.
constexpr double kFlops =
    2.0 * kBatch * 4 * kUnits * (2.0 * kTime * kFeatures + 3.0 * (kTime - 1) * kUnits);

template <class Trained>
void measure(int threads) {
  static const double products = products_ns();
  const bool fused = std::is_same_v<Trained, FusedTrainer>;
  Trained trainer(threads);
  bench::Peer torch("torch", "lstm_torch.py", {std::to_string(threads)}, threads);
  bench::Comparison c{.name = bench::step_name(fused ? "lstm_fused" : "lstm", threads),
                      .unit = "ns a step",
                      .peer = {},
                      .budget = 0.5,
                      .threads = threads,
                      .note = "T 50, batch 32, 128-256, SGD; loss fetched every step"};
  torch.describe(c, "torch nn.LSTM (oneDNN), fused SGD");
  const double peak = bench::peak_gflops();
  c.also.insert(c.also.end(), {{"products_ns", products}, {"peak_gflops", peak}});
  bench::compare_losses(trainer, torch, {.steps = kCompared, .tolerance = 1e-4}, c);
  bench::measure_steps(
      trainer, torch,
      {.repetitions = kRepetitions, .steps = kSteps, .warm_up = 1, .least_ns = kFlops / peak}, c);
}

}  // namespace

int main(int argc, char** argv) {
  // applies to the library's products alone
  if (void* set = dlsym(RTLD_DEFAULT, "omp_set_num_threads"))
    reinterpret_cast<void (*)(int)>(set)(1);
  const bool of_loop = argc > 1 && std::strcmp(argv[1], "profile") == 0;
  // takes less memory, and so comes first
  if (!of_loop) bench::run_training<FusedTrainer>(argc, argv, measure<FusedTrainer>);
  // `profile_fused <workers> <steps>`
  if (argc > 1 && !of_loop) return 0;
  bench::run_training<Trainer>(argc, argv, measure<Trainer>);
}
