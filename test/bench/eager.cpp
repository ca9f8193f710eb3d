// Costs of computing at once: one-element additions on an eager scope, the same under a tape,
// with the gradient, against torch on one thread; and calls of a traced function that find their
// trace, with one argument and with ten, and its ops in a chain, against the engine's own. A new
// shape is one op of a shape that was never met, or a call that is traced for one. Remote additions
// are on another node in this process: a chain, which is read at its end, and one that is read at
// once.
//
// Every chain's result is compared with what it must be.
#include <troupe/actors/engine/engine.hpp>
#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/sim/in_process.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/count_allocations.hpp>
#include <troupe/test/bench/peer.hpp>

#include <cstdlib>
#include <cstring>
#include <numeric>

namespace {

using namespace troupe;
constexpr int kRepetitions = 9, kOps = 1000, kCalls = 2000;

void require(double is, double wanted, const char* what) {
  if (is == wanted) return;
  std::fprintf(stderr, "%s: %.9g instead of %.9g\n", what, is, wanted);
  std::exit(1);
}

Expr chain(Expr x, const Expr& b, int n) {
  for (int i = 0; i < n; ++i) x = x + b;
  return x;
}

class EagerChains {
 public:
  explicit EagerChains(Engine& engine)
      : e_(engine), zero_(e_.constant(Tensor::of<float>({0}))),
        one_(e_.constant(Tensor::of<float>({1}))) {}

  double add(int n) {
    const double start = bench::now_ns();
    const Expr last = chain(zero_, one_, n);
    const double ns = (bench::now_ns() - start) / n;
    require(last.value().at(0), n, "add");
    return ns;
  }
  double taped(int n) {
    const double start = bench::now_ns();
    GradientTape tape;
    tape.watch(zero_);
    const Expr last = chain(zero_, one_, n);
    const double ns = (bench::now_ns() - start) / n;
    require(last.value().at(0), n, "taped");
    return ns;
  }
  double backward(int n) {
    const double start = bench::now_ns();
    GradientTape tape;
    tape.watch(zero_);
    const Expr last = chain(zero_, one_, n);
    const Expr d = tape.gradient(last, zero_);
    const double ns = (bench::now_ns() - start) / n;
    require(d.value().at(0), 1, "backward");
    return ns;
  }
  Eager& scope() { return e_; }
  const Expr& one() const { return one_; }

 private:
  Eager e_;
  Expr zero_, one_;
};

using Chain = double (EagerChains::*)(int);

void measure(EagerChains& chains, const char* name, const char* request, Chain of,
             double budget_us) {
  bench::Peer torch("torch", "eager_torch.py", {"1"});
  bench::Comparison c{.name = std::string("eager_") + name, .unit = "ns an op", .peer = {}};
  torch.describe(c, "torch eager");
  c.budget = 0.4;
  c.budget_value = 1e3 * budget_us;
  const std::string ask = std::string(request) + " " + std::to_string(kOps);
  if (torch.is_here()) torch.ask(ask);
  (chains.*of)(kOps);
  const std::int64_t before = bench::allocations();
  (chains.*of)(kOps);
  c.also = {{"allocations_per_op", static_cast<double>(bench::allocations() - before) / kOps}};
  for (int i = 0; i < kRepetitions; ++i) {
    c.ours.push_back((chains.*of)(kOps));
    if (torch.is_here()) c.theirs.push_back(torch.ask(ask)[0]);
  }
  c.print();
}

template <class Call>
double ns_a_call(Call call) {
  const double start = bench::now_ns();
  for (int i = 0; i < kCalls; ++i) call();
  return (bench::now_ns() - start) / kCalls;
}

// Against a run of the same graph through `Function`, which the call cannot be faster than.
void measure_calls(EagerChains& chains, Engine& engine, int arguments, double budget_us) {
  const auto sum_of = [](const Exprs& xs) {
    return std::accumulate(xs.begin() + 1, xs.end(), xs[0] + xs[0]);
  };
  auto f = function("sum", [&](Exprs xs) { return sum_of(xs); });
  Graph g;
  Exprs inputs;
  for (int i = 0; i < arguments; ++i)
    inputs.push_back(g.input("x" + std::to_string(i), DType::f32, {1}));
  const Function direct = engine.compile(g, inputs, {sum_of(inputs)});
  const Exprs given(static_cast<std::size_t>(arguments), chains.one());
  const std::vector<Tensor> fed(given.size(), Tensor::of<float>({1}));
  bench::Comparison c{.name = "traced_call_" + std::to_string(arguments),
                      .unit = "ns a call",
                      .peer = "the engine's Function of the same graph"};
  c.budget_value = 1e3 * budget_us;
  require(f(given).value().at(0), arguments + 1, "traced call");
  for (int i = 0; i < kRepetitions; ++i) {
    c.ours.push_back(ns_a_call([&] { f(given); }));
    c.theirs.push_back(ns_a_call([&] { direct(fed); }));
  }
  c.print();
}

// Without passes, so that each op fires.
void measure_traced_chain() {
  EngineOptions options;
  options.workers = 1;
  options.optimize = false;
  Engine engine(options);
  EagerChains chains(engine);
  auto f = function("chain", [](Expr x, Expr b) {
    for (int i = 0; i < kOps; ++i) x = i % 2 == 0 ? x * b : x + b;
    return x;
  });
  Graph g;
  Expr x = g.input("x", DType::f32, {1}), b = g.input("b", DType::f32, {1}), y = x;
  for (int i = 0; i < kOps; ++i) y = i % 2 == 0 ? y * b : y + b;
  const Function direct = engine.compile(g, {x, b}, {y});
  const std::vector<Tensor> fed(2, Tensor::of<float>({1}));
  bench::Comparison c{.name = "traced_chain",
                      .unit = "ns an op",
                      .peer = "the same graph built by hand",
                      .budget = 1.05};
  f(chains.one(), chains.one());
  for (int i = 0; i < kRepetitions; ++i) {
    c.ours.push_back(ns_a_call([&] { f(chains.one(), chains.one()); }) / kOps);
    c.theirs.push_back(ns_a_call([&] { direct(fed); }) / kOps);
  }
  c.print();
}

void measure_tracing(EagerChains& chains, int ops) {
  bench::Comparison c{
      .name = "trace_" + std::to_string(ops) + "_ops", .unit = "us a trace", .peer = "none"};
  c.budget_value = 1e3 + 10.0 * (ops - 1);
  for (int i = 0; i < kRepetitions; ++i) {
    auto f = function("trace", [&](Expr x) { return chain(x, x, ops); });
    const double start = bench::now_ns();
    f(chains.one());
    c.ours.push_back((bench::now_ns() - start) / 1e3);
  }
  c.print();
}

void measure_new_shapes(Engine& engine) {
  bench::Comparison c{.name = "new_shape", .unit = "us an op", .peer = "none"};
  c.budget_value = 1e3;
  Eager e(engine);
  for (std::int64_t n = 2; n < 2 + kRepetitions; ++n) {
    const Expr x = e.zeros(DType::f32, {n});
    const double start = bench::now_ns();
    const Expr y = x + x;
    c.ours.push_back((bench::now_ns() - start) / 1e3);
    require(y.value().at(0), 0, "new shape");
  }
  c.print();
}

// Each shape is a graph of its own.
void measure_retraces(Engine& engine) {
  bench::Comparison c{.name = "retrace_shape", .unit = "us a call", .peer = "none"};
  c.budget_value = 1e3;
  Eager e(engine);
  FunctionOptions options;
  options.relax_shapes = false;
  options.warn = [](const std::string&) {};
  auto f = function(
      "retraced", [](Expr x) { return tanh(x * 2.0 + x); }, options);
  for (std::int64_t n = 2; n < 2 + kRepetitions; ++n) {
    const Expr x = e.zeros(DType::f32, {n});
    const double start = bench::now_ns();
    const Expr y = f(x);
    c.ours.push_back((bench::now_ns() - start) / 1e3);
    require(y.value().at(0), 0, "retrace");
  }
  require(f.traces(), kRepetitions, "traces");
  c.print();
}

void measure_remote() {
  InProcessNetwork network;
  const auto node = [&](const std::string& name, std::vector<std::string> join) {
    NodeOptions o;
    o.name = name;
    o.engine.workers = 1;
    o.transport = [&network](PeerInfo self) {
      self.address = "inproc://" + self.name;
      return network.make_transport(std::move(self));
    };
    o.join = std::move(join);
    return std::make_unique<ClusterNode>(std::move(o));
  };
  const auto a = node("a", {}), b = node("b", {"inproc://a"});
  a->wait_for({"b"}, std::chrono::seconds(60));
  Eager e(a->engine());
  const auto there = e.on_device("/node:b/cpu:0");
  const Expr zero = e.constant(Tensor::of<float>({0})), one = e.constant(Tensor::of<float>({1}));
  const auto chained = [&](int n) {
    const double start = bench::now_ns();
    require(e.on_host(chain(zero, one, n)).at(0), n, "remote chain");
    return (bench::now_ns() - start) / n / 1e3;
  };
  chained(kOps);
  bench::Comparison pipelined{.name = "remote_add", .unit = "us an op", .peer = "none"};
  bench::Comparison read{.name = "remote_add_read", .unit = "us an op", .peer = "none"};
  for (int i = 0; i < kRepetitions; ++i) {
    pipelined.ours.push_back(chained(kOps));
    double sum = 0;
    for (int k = 0; k < 100; ++k) sum += chained(1);
    read.ours.push_back(sum / 100);
  }
  pipelined.print();
  read.print();
}

}  // namespace

int main(int argc, char** argv) {
  EngineOptions options;
  options.workers = 1;
  Engine engine(options);
  EagerChains chains(engine);
  // ours alone, for a profiler: profile <add|taped|backward> <repetitions>
  if (argc > 3 && std::strcmp(argv[1], "profile") == 0) {
    const std::string what = argv[2];
    const Chain of = what == "add"     ? &EagerChains::add
                     : what == "taped" ? &EagerChains::taped
                                       : &EagerChains::backward;
    for (int i = 0; i < std::atoi(argv[3]); ++i) (chains.*of)(kOps);
    return 0;
  }
  measure(chains, "add", "add", &EagerChains::add, 0.30);
  measure(chains, "taped", "taped", &EagerChains::taped, 0.6);
  measure(chains, "backward", "backward", &EagerChains::backward, 1.3);
  measure_calls(chains, engine, 1, 1.0);
  measure_calls(chains, engine, 10, 1.5);
  measure_traced_chain();
  measure_tracing(chains, 1);
  measure_tracing(chains, 1000);
  measure_new_shapes(engine);
  measure_retraces(engine);
  measure_remote();
}
