// Training steps over a mesh of two devices, by data and by model, of a perceptron and of a
// Transformer block: against one device with both cores, against JAX on two host devices, and two
// processes against one. Then the bytes that cross devices against the formula, and compile times
// over meshes of 1 to 512 devices.
//
//   mesh                                                 # all
//   mesh steps | bytes | compile | explain [data | model]
//
// All programs of a model start from the same weights and take the same batch; the losses of the
// first steps must agree to 1e-3, or the benchmark ends with an error.
//
// Formula, for k devices: an all-reduce of n bytes takes 2n(k-1) on all links together. By data it
// is one, of all gradients and the loss. By model it is one of an activation for each product that
// is summed over a split dimension: forward, and backward where a gradient goes on. Feeds go to the
// devices but the first: their pieces by data, whole by model.
//
// A compile time ends when `Engine::compile` returns: the program has gone through all passes, is
// placed, and has its partitions, tables and kernels. The first run makes the instances of the
// devices out of it: `instances_ms`, apart, with the devices. `nodes` are those of the plan,
// `passes_ms` is the part of the time that passes take. `copies_ms` compiles the same program with
// nodes copied to all devices.
#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/actors/plan/pass_order.hpp>
#include <troupe/test/bench/mesh_models.hpp>
#include <troupe/test/bench/processes.hpp>

#include <cstring>

namespace {

using namespace troupe;
using namespace troupe::bench;
using bench::Comparison;
using bench::Peer;
using meshed::Model;
using meshed::Trainer;

constexpr int kRepetitions = 9, kCompared = 3;

const std::string& layout_of(const Model& m, bool by_data) { return by_data ? m.data : m.split; }

std::vector<std::string> cpus(int n) {
  std::vector<std::string> all;
  for (int i = 0; i < n; ++i) all.push_back("cpu:" + std::to_string(i));
  return all;
}

void require_equal(const std::vector<float>& losses, const std::vector<float>& wanted,
                   const std::string& what) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (std::abs(losses[i] - wanted[i]) <= 1e-3 * std::abs(wanted[i])) continue;
    std::fprintf(stderr, "%s: the loss of step %zu is %g in place of %g\n", what.c_str(), i,
                 static_cast<double>(losses[i]), static_cast<double>(wanted[i]));
    std::exit(1);
  }
}

std::vector<float> first_losses(Trainer& trainer) {
  std::vector<float> losses;
  trainer.reset();
  trainer.steps(kCompared, &losses);
  return losses;
}

// ---- time

// ms a step of `ours` and of `theirs`, in turns.
void in_turns(Comparison& c, const std::function<double(int)>& ours,
              const std::function<double(int)>& theirs, int steps) {
  for (int i = 0; i < kRepetitions; ++i) {
    ours(1);
    c.ours.push_back(ours(steps) / 1e6);
    if (!theirs) continue;
    theirs(1);
    c.theirs.push_back(theirs(steps) / 1e6);
  }
  c.print();
}

void compare_steps(const Model& model, Processes& workers, ClusterNode& driver) {
  Engine whole(with_workers(2)), parted(with_workers(2));
  Peer jax("JAX", "mesh_jax.py", {"2"}, 2);
  Trainer one(model, whole, std::nullopt);
  const std::vector<float> wanted = first_losses(one);
  const auto one_steps = [&](int n) { return one.steps(n); };
  const int steps = model.name == "mlp" ? 4 : 8;
  for (const bool by_data : {true, false}) {
    const std::string& layout = layout_of(model, by_data);
    const std::string name = "mesh_" + model.name + (by_data ? "_data" : "_model");
    Engine engine(with_workers(2));
    Trainer two(model, engine, meshed::cut(cpus(2), layout));
    require_equal(first_losses(two), wanted, name);
    const auto two_steps = [&](int n) { return two.steps(n); };

    Comparison c{.name = name,
                 .unit = "ms a step",
                 .peer = "one device, both cores",
                 .budget = model.name == "mlp" && by_data ? 1.10 : 1.02,
                 .threads = 2,
                 .note = "two devices of one process; layout " + layout};
    in_turns(c, two_steps, one_steps, steps);

    const std::string request = model.name + (by_data ? "_data" : "_model");
    Comparison j{.name = name + "_jax",
                 .unit = "ms a step",
                 .peer = {},
                 .budget = model.name == "mlp" ? 0 : 0.9,
                 .threads = 2,
                 .note = "both on two devices of one process"};
    jax.describe(j, "JAX, two host devices");
    if (jax.is_here()) {
      const std::vector<double> theirs = jax.ask("losses " + request + " 3");
      require_equal({theirs.begin(), theirs.end()}, wanted, "JAX, " + request);
    }
    std::function<double(int)> jax_steps;
    if (jax.is_here())
      jax_steps = [&](int n) { return jax.ask("steps " + request + " " + std::to_string(n))[0]; };
    in_turns(j, two_steps, jax_steps, steps);

    Trainer nodes(model, driver.engine(),
                  meshed::cut({"/node:driver/cpu:0", workers.device(0)}, layout));
    require_equal(first_losses(nodes), wanted, name + " over two processes");
    Comparison p{.name = name + "_processes",
                 .unit = "ms a step",
                 .peer = "two devices of one process",
                 .budget = 1.25,
                 .threads = 2,
                 .note = "two processes, one worker each, by shared memory"};
    in_turns(
        p, [&](int n) { return nodes.steps(n); }, two_steps, steps);
  }
}

// ---- bytes

// Bytes over the edges between partitions of all plans so far, as the senders counted them.
double bytes_between(Engine& engine) {
  double bytes = 0;
  Inspect question{};
  question.asks_of_actors = true;
  for (const auto& [plan, answers] : engine.impl().ask_all(question, std::chrono::seconds(10)))
    for (const PartitionSnapshot& p : answers)
      for (const EdgeCounters& e : p.edges) bytes += static_cast<double>(e.bytes);
  return bytes;
}

// Returns the bytes of a step over `devices` by the formula. `with_whole_feeds`: a feed that a
// device takes whole is counted, as at a transport; devices of one process share it.
double bytes_by_formula(const Model& model, const Trainer& t, bool by_data, int devices,
                        bool with_whole_feeds) {
  const double others = devices - 1;
  const auto fed = static_cast<double>(t.fed_bytes());
  if (by_data)
    return 2 * others * 4 * static_cast<double>(t.weights() + 1) + fed * others / devices;
  // The second layer's sums; the attention's, the inner layer's, and that one's gradient.
  const double activation = model.name == "mlp" ? 256 * 2048 : 16 * 64 * 256,
               sums = model.name == "mlp" ? activation : 3 * activation;
  // The first normalisation has feeds alone: it is computed once, and sent.
  const double once = model.name == "mlp" ? 0 : activation;
  return others * (2 * 4 * sums + 4 * once + (with_whole_feeds ? fed : 0));
}

void count_bytes(const Model& model, Processes& workers, ClusterNode& driver) {
  constexpr int kSteps = 4;
  for (const bool by_data : {true, false}) {
    const std::string& layout = layout_of(model, by_data);
    for (const int devices : {2, 4}) {
      Engine engine(with_workers(2));
      // Instances pass values on by reference; copies count what they send.
      Trainer trainer(model, engine, meshed::cut(cpus(devices), layout), {"instances"});
      trainer.steps(1);
      const double before = bytes_between(engine);
      trainer.steps(kSteps);
      Comparison c{.name = "mesh_" + model.name + (by_data ? "_data" : "_model") + "_bytes_" +
                           std::to_string(devices),
                   .unit = "MB a step",
                   .peer = "the formula",
                   .budget = 1.001,
                   .threads = 2,
                   .note = "over the edges between devices of one process, nodes copied"};
      c.ours.push_back((bytes_between(engine) - before) / kSteps / 1e6);
      c.theirs.push_back(bytes_by_formula(model, trainer, by_data, devices, false) / 1e6);
      c.print();
    }
    Trainer nodes(model, driver.engine(),
                  meshed::cut({"/node:driver/cpu:0", workers.device(0)}, layout));
    nodes.steps(1);
    const auto moved = [&] {
      const TransportCounters now = driver.counters();
      return static_cast<double>(now.bytes_out + now.bytes_in);
    };
    const double before = moved();
    nodes.steps(kSteps);
    Comparison c{.name = "mesh_" + model.name + (by_data ? "_data" : "_model") + "_bytes_processes",
                 .unit = "MB a step",
                 .peer = "the formula",
                 .budget = 1.01,
                 .threads = 2,
                 .note = "at the transport of one of two processes; heads of messages included"};
    c.ours.push_back((moved() - before) / kSteps / 1e6);
    c.theirs.push_back(bytes_by_formula(model, nodes, by_data, 2, true) / 1e6);
    c.print();
  }
}

// ---- compile time

// Two Transformer blocks and their training step over n devices, by data and by model.
class CompiledStep {
 public:
  explicit CompiledStep(int devices) {
    const Model model = Model::block(2);
    const Expr loss = model.loss(b_);
    fetches_ = {loss, Sgd({.learning_rate = 0.01}).minimize(loss, b_.variables)};
    const int rows = std::min(devices, 8);
    std::vector<std::string> names;
    for (int i = 0; i < devices; ++i) names.push_back("sim:" + std::to_string(i));
    options_.mesh =
        mesh::Partitioning{mesh::Mesh({{"r", rows}, {"c", devices / rows}}, names),
                           // 64 columns do not divide the batch of 16
                           mesh::Layout(std::string("heads:r;inner:r;") +
                                        (devices / rows > 16 ? "length:c" : "batch:c"))};
  }
  double compile_ms(bool by_instances = true) const {
    Engine engine(with_workers(1));
    CompileOptions options = options_;
    if (!by_instances) options.skip_passes = {"instances"};
    const double start = now_ns();
    const Function step = engine.compile(b_.graph, b_.inputs, fetches_, options);
    return (now_ns() - start) / 1e6;
  }
  /// ms until all instances could start, after the compilation.
  double instances_ms() const {
    Engine engine(with_workers(1));
    const auto compiled =
        engine.impl().compile(b_.graph, edges(b_.inputs), edges(fetches_), options_);
    const double start = now_ns();
    engine.impl().current(compiled);
    return (now_ns() - start) / 1e6;
  }
  /// ms of all passes; the nodes that they leave go to `nodes`.
  double passes_ms(double& nodes) const {
    std::vector<PassReport> reports;
    mesh::detail::VariableHomes homes;
    homes.may_lay_out = [](const StateSpec&) { return true; };
    homes.find = [](const StateSpec&) { return nullptr; };
    optimize(b_.graph, edges(b_.inputs), edges(fetches_),
             {.optimize = true, .mesh = &*options_.mesh, .homes = &homes}, {}, &reports);
    double seconds = 0;
    for (const PassReport& r : reports) seconds += r.seconds;
    nodes = reports.back().nodes_after;
    return seconds * 1e3;
  }

 private:
  static std::vector<detail::Edge> edges(const Exprs& xs) {
    std::vector<detail::Edge> all;
    for (const Expr& x : xs) all.push_back(x.edge());
    return all;
  }

  meshed::Builder b_;
  Exprs fetches_;
  CompileOptions options_;
};

void compare_compile_times() {
  const CompiledStep one(1);
  double nodes = 0;
  one.passes_ms(nodes);
  for (const int devices : {8, 64, 512}) {
    const CompiledStep many(devices);
    Comparison c{.name = "mesh_compile_" + std::to_string(devices),
                 .unit = "ms",
                 .peer = "a mesh of one device",
                 .budget = 1.2,
                 .note = "two Transformer blocks and their training step, by data and by model"};
    for (int i = 0; i < 9; ++i) {
      c.theirs.push_back(one.compile_ms());
      c.ours.push_back(many.compile_ms());
    }
    c.also.emplace_back("one_passes_ms", one.passes_ms(nodes));
    c.also.emplace_back("one_nodes", nodes);
    c.also.emplace_back("passes_ms", many.passes_ms(nodes));
    c.also.emplace_back("nodes", nodes);
    c.also.emplace_back("instances_ms", many.instances_ms());
    c.also.emplace_back("copies_ms", many.compile_ms(false));
    c.print();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  const auto runs = [&](const char* part) { return what == "all" || what == part; };
  if (what == "explain") {
    Engine engine(with_workers(2));
    const bool by_data = argc > 2 && std::strcmp(argv[2], "data") == 0;
    for (const Model& m : {Model::mlp(), Model::block()})
      std::puts(Trainer(m, engine, meshed::cut(cpus(2), layout_of(m, by_data))).explain().c_str());
    return 0;
  }
  Processes workers(1);
  auto driver = workers.join();
  for (const Model& m : {Model::mlp(), Model::block()}) {
    if (runs("steps")) compare_steps(m, workers, *driver);
    if (runs("bytes")) count_bytes(m, workers, *driver);
  }
  driver.reset();
  if (runs("compile")) compare_compile_times();
}
