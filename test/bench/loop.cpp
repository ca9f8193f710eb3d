// Nanoseconds an iteration of a loop whose body costs nothing: while x < n: x = x + 1, with a
// tensor predicate, against JAX's while_loop, onnxruntime's Loop and a while loop compiled by
// TorchScript, on one thread each. `interpreted` is the same loop without machine code, `lowered`
// of nodes that fire.
//
// Every result is compared. The memory that 10^7 iterations take is that of the process's peak,
// before and after.
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/count_allocations.hpp>
#include <troupe/test/bench/peer.hpp>

namespace {

using namespace troupe;
constexpr int kRepetitions = 7;

EngineOptions one_worker() {
  EngineOptions options;
  options.workers = 1;
  return options;
}

class Loop {
 public:
  explicit Loop(bool is_resident, bool is_compiled = true) {
    Expr n = graph_.input("n", DType::f32, Shape{});
    Expr last = while_loop([&](Expr x) { return x < n; }, [](Expr x) { return x + 1.0; },
                           graph_.constant(0.f));
    CompileOptions options;
    options.resident_loops = is_resident;
    options.compiled_loops = is_compiled;
    run_ = engine_.compile(graph_, {n}, {last}, options);
    run(1000);
  }
  /// ns an iteration.
  double run(int iterations) {
    const double start = bench::now_ns();
    const Tensor y = run_({Tensor::scalar(static_cast<float>(iterations))})[0];
    const double took = bench::now_ns() - start;
    if (y.item<float>() != static_cast<float>(iterations)) {
      std::fprintf(stderr, "%d iterations ended at %g\n", iterations,
                   static_cast<double>(y.item<float>()));
      std::exit(1);
    }
    return took / iterations;
  }

 private:
  Graph graph_;
  Engine engine_{one_worker()};
  Function run_;
};

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

struct Opponent {
  const char* name;
  const char* script;
  const char* what;
  std::vector<std::string> arguments;
};
const Opponent kOpponents[] = {{"JAX", "loops_jax.py", "JAX while_loop, jit", {"count", "1"}},
                               {"onnxruntime", "loop_onnxruntime.py", "onnxruntime Loop", {"1"}},
                               {"torch", "loop_torch.py", "TorchScript while", {"1"}}};

}  // namespace

int main(int argc, char** argv) {
  // ours alone, for a profiler: profile <iterations>
  if (argc > 2 && std::strncmp(argv[1], "profile", 7) == 0) {
    Loop(std::strcmp(argv[1], "profile_lowered") != 0,
         std::strcmp(argv[1], "profile_interpreted") != 0)
        .run(std::atoi(argv[2]));
    return 0;
  }
  Loop loop(true), interpreted(true, false), lowered(false);
  const int iterations = 100'000;
  const double peak_before = peak_mib();
  loop.run(10'000'000);
  const double peak_after = peak_mib();
  const auto before = bench::allocations();
  loop.run(iterations);
  const auto allocated = static_cast<double>(bench::allocations() - before);
  for (const Opponent& o : kOpponents) {
    bench::Peer peer(o.name, o.script, o.arguments);
    bench::Comparison c{.name = "loop", .unit = "ns an iteration", .peer = {}};
    peer.describe(c, o.what);
    c.budget_value = 2;
    std::vector<double> in_nodes, by_interpreter;
    if (peer.is_here()) peer.ask("run 2000");
    for (int i = 0; i < kRepetitions; ++i) {
      c.ours.push_back(loop.run(iterations));
      by_interpreter.push_back(interpreted.run(iterations));
      in_nodes.push_back(lowered.run(iterations));
      if (!peer.is_here()) continue;
      const std::vector<double> answer = peer.ask("run " + std::to_string(iterations));
      if (answer[1] != iterations) {
        std::fprintf(stderr, "%s ended at %g\n", o.name, answer[1]);
        return 1;
      }
      c.theirs.push_back(answer[0]);
    }
    c.also = {{"iterations", iterations},           {"interpreted", bench::median(by_interpreter)},
              {"lowered", bench::median(in_nodes)}, {"allocations_a_run", allocated},
              {"peak_mib_before_1e7", peak_before}, {"peak_mib_after_1e7", peak_after}};
    c.print();
  }
}
