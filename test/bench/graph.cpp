// Seconds to build, differentiate, optimise and plan a graph of 100,000 operations (budget: 1 s),
// and how they divide over the phases. Two shapes of graph: perceptrons of many thin layers, and
// long chains of scalar arithmetic with a literal in every other op. The count is that of the built
// graph, gradient and updates included.
#include <troupe/actors/plan/pass_order.hpp>
#include <troupe/actors/plan/plan.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/bench.hpp>
#include <troupe/test/bench/count_allocations.hpp>

#include <cstring>
#include <map>

namespace {

using namespace troupe;
constexpr int kRepetitions = 5;
constexpr std::int32_t kOps = 100'000;

class OneDevice final : public DeviceFinder {
 public:
  Device* find(const std::string&) override { return device_.get(); }

 private:
  std::unique_ptr<Device> device_ = make_cpu_device(CpuOptions{});
};

struct Built {
  std::vector<Expr> inputs;
  Expr loss;
  std::vector<Variable> variables;
};

/// Layers of 8 units with a skip connection: matmul, bias, activation, sum.
Built build_layers(Graph& g, int layers) {
  Built b;
  Expr x = g.input("x", DType::f32, {4, 8}), t = g.input("t", DType::i64, {4});
  b.inputs = {x, t};
  Expr h = x;
  for (int i = 0; i < layers; ++i) {
    auto scope = g.scope("layer" + std::to_string(i));
    b.variables.push_back(g.variable("layer" + std::to_string(i) + "/w", DType::f32, {8, 8},
                                     Initializer::constant(0.1)));
    b.variables.push_back(
        g.variable("layer" + std::to_string(i) + "/b", DType::f32, {8}, Initializer::constant(0)));
    Expr z = matmul(h, b.variables[b.variables.size() - 2]) + b.variables.back();
    h = h + (i % 2 == 0 ? relu(z) : tanh(z));
  }
  b.loss = mean(cross_entropy(h, t));
  return b;
}

/// A chain of x * 0.999 + y and the like.
Built build_chain(Graph& g, int links) {
  Built b;
  Expr x = g.input("x", DType::f32, {});
  b.inputs = {x};
  b.variables.push_back(g.variable("w", DType::f32, {}, Initializer::constant(1)));
  Expr w = b.variables[0].read(), y = x;
  for (int i = 0; i < links; ++i) y = (i % 4 == 3 ? tanh(y) : y * 0.999) + w;
  b.loss = y;
  return b;
}

using Phases = std::vector<std::pair<std::string, double>>;

double seconds_since(double start) { return (bench::now_ns() - start) * 1e-9; }

/// Seconds of each phase; `ops` is set to the number of nodes built.
Phases once(Built (*build)(Graph&, int), int size, std::int32_t& ops, std::int32_t& planned) {
  Phases phases;
  Graph g;
  double start = bench::now_ns();
  Built b = build(g, size);
  phases.push_back({"build", seconds_since(start)});
  start = bench::now_ns();
  Expr train = Sgd().minimize(b.loss, b.variables);
  phases.push_back({"differentiate", seconds_since(start)});
  ops = g.size();
  std::vector<Edge> feeds;
  for (const Expr& e : b.inputs) feeds.push_back(e.edge());
  std::vector<PassReport> reports;
  start = bench::now_ns();
  Program program =
      optimize(g, feeds, {b.loss.edge(), train.edge()}, {.optimize = true}, {}, &reports);
  const double optimized = seconds_since(start);
  double named = 0;
  for (const PassReport& r : reports) {
    std::string name = r.name;
    for (const auto& [other, unused] : phases)
      if (other == name) name += "_again";
    phases.push_back({name, r.seconds});
    named += r.seconds;
  }
  phases.push_back({"verify", optimized - named});
  OneDevice devices;
  StateStore states;
  start = bench::now_ns();
  Plan plan = make_plan(std::move(program), devices, "cpu:0", states);
  phases.push_back({"plan", seconds_since(start)});
  planned = plan.program.graph.size();
  return phases;
}

/// At least kOps nodes, including gradients and updates: some exist once, the others for each link.
int size_for(Built (*build)(Graph&, int)) {
  std::int32_t of_64 = 0, of_128 = 0, planned = 0;
  once(build, 64, of_64, planned);
  once(build, 128, of_128, planned);
  const int a_link = (of_128 - of_64) / 64;
  return (kOps - (of_64 - 64 * a_link) + a_link - 1) / a_link;
}

void measure(const char* name, Built (*build)(Graph&, int)) {
  std::int32_t ops = 0, planned = 0;
  const int size = size_for(build);
  std::map<std::string, std::vector<double>> by_phase;
  std::vector<std::string> order;
  bench::Comparison c{.name = name, .unit = "s", .peer = "none", .budget_value = 1};
  for (int i = 0; i < kRepetitions; ++i) {
    const std::int64_t before = bench::allocations();
    const Phases phases = once(build, size, ops, planned);
    double sum = 0;
    order.clear();
    for (const auto& [phase, seconds] : phases) {
      by_phase[phase].push_back(seconds);
      order.push_back(phase);
      sum += seconds;
    }
    c.ours.push_back(sum);
    if (i + 1 < kRepetitions) continue;
    c.also = {{"ops", ops},
              {"ops_planned", planned},
              {"allocations_per_op", static_cast<double>(bench::allocations() - before) / ops}};
  }
  for (const std::string& phase : order) c.also.push_back({phase, bench::median(by_phase[phase])});
  c.note = "seconds by phase; the plan includes making the kernels";
  c.print();
}

}  // namespace

int main(int argc, char** argv) {
  // for a profiler: profile <layers|chain> <size>
  if (argc > 3 && std::strcmp(argv[1], "profile") == 0) {
    std::int32_t ops = 0, planned = 0;
    for (const auto& [phase, s] :
         once(std::strcmp(argv[2], "chain") == 0 ? build_chain : build_layers, std::atoi(argv[3]),
              ops, planned))
      std::printf("%-20s %.4f s\n", phase.c_str(), s);
    std::printf("%d ops, %d planned\n", ops, planned);
    return 0;
  }
  measure("graph_layers", build_layers);
  measure("graph_chain", build_chain);
}
