// A step that does nothing but move its parameters: each worker gets a value from the driver's
// variable and sends one number back, as when parameters are fetched for a training step. A scalar,
// and 100 MB dense; on 1 to 4 workers, each a process on this machine, by shared memory. Peer for
// the dense step: one warm memcpy of what is moved.
#include <thread>

#include <troupe/functions.hpp>
#include <troupe/test/bench/processes.hpp>

namespace {

using namespace troupe;
constexpr int kMost = 4, kRepetitions = 5;

class Step {
 public:
  Step(Engine& engine, const bench::Processes& workers, int count, std::int64_t floats) {
    Variable v = graph_.variable("parameters_" + std::to_string(floats), DType::f32,
                                 floats == 1 ? Shape{} : Shape{floats}, Initializer::constant(0));
    Expr value = v.read();
    std::vector<Expr> fetches;
    for (int w = 0; w < count; ++w) {
      auto there = graph_.on_device(workers.device(static_cast<std::size_t>(w)));
      fetches.push_back(floats == 1 ? value + 1.0 : slice(value, {0}, {1}) + 1.0);
    }
    run_ = engine.compile(graph_, {}, fetches);
    ms(1);
  }
  double ms(int steps) {
    std::vector<Tensor> out;
    const double start = bench::now_ns();
    for (int i = 0; i < steps; ++i) out = run_({});
    const double took = bench::now_ns() - start;
    for (const Tensor& t : out) bench::require(t.item<float>() == 1, "a step whose value is right");
    return took / steps / 1e6;
  }

 private:
  Graph graph_;
  Function run_;
};

double memcpy_ms(std::size_t bytes) {
  static std::vector<char> from(bytes, 1), to(bytes, 2);
  const double start = bench::now_ns();
  std::memcpy(to.data(), from.data(), bytes);
  const double took = bench::now_ns() - start;
  if (to[bytes / 2] != 1) std::exit(1);
  return took / 1e6;
}

}  // namespace

int main() {
  bench::Processes workers(kMost);
  auto node = workers.join();
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  for (const std::int64_t floats : {std::int64_t{1}, std::int64_t{25'000'000}})
    for (int count = 1; count <= kMost; ++count) {
      Step step(node->engine(), workers, count, floats);
      const bool is_dense = floats > 1;
      const std::size_t bytes = 4 * static_cast<std::size_t>(floats);
      bench::Comparison c{.name = std::string(is_dense ? "null_step_100MB_" : "null_step_scalar_") +
                                  std::to_string(count),
                          .unit = "ms",
                          .peer = is_dense ? "warm memcpy, once a worker" : "none",
                          .threads = count + 1,
                          .speed_up = true};
      for (int i = 0; i < kRepetitions; ++i) {
        c.ours.push_back(step.ms(is_dense ? 3 : 300));
        if (!is_dense) continue;
        double copy = 0;
        for (int w = 0; w < count; ++w) copy += memcpy_ms(bytes);
        c.theirs.push_back(copy);
      }
      c.also = {{"steps_s", 1e3 / bench::median(c.ours)}};
      if (is_dense)
        c.also.emplace_back("gb_s",
                            static_cast<double>(bytes) * count / bench::median(c.ours) / 1e6);
      if (count + 1 > cores) c.note = "more processes than cores";
      c.print();
    }
}
