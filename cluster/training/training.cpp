#include <troupe/cluster/training/training.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <troupe/cluster/training/arrival_loop.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {
struct Training::State {
  State(ClusterNode& on, TrainingOptions o, Build b, Data d)
      : node(on), options(std::move(o)), build(std::move(b)), data(std::move(d)),
        checkpoints(options.folder) {}

  // ---- where

  std::vector<std::string> nodes_there() const {
    std::vector<std::string> there = node.nodes(), chosen;
    if (!options.nodes.empty()) {
      for (const std::string& n : options.nodes)
        if (std::find(there.begin(), there.end(), n) != there.end()) chosen.push_back(n);
      return chosen;
    }
    for (const std::string& n : there)
      if (n != node.name()) chosen.push_back(n);
    if (chosen.empty()) chosen.push_back(node.name());
    std::sort(chosen.begin(), chosen.end());
    return chosen;
  }
  std::vector<std::string> wait_for_nodes() const {
    const auto end = std::chrono::steady_clock::now() + options.patience;
    for (;;) {
      std::vector<std::string> there = nodes_there();
      if (!there.empty()) return there;
      if (std::chrono::steady_clock::now() >= end)
        throw Error(
            Code::unavailable,
            fmt::format(
                "the training waits for one of the nodes {}, and none was there "
                "within {} s; start one, or name others",
                fmt::join(options.nodes, ", "),
                std::chrono::duration_cast<std::chrono::seconds>(options.patience).count()));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  // Replica r is on node r mod n: a node with several has a device for each.
  static std::vector<std::string> devices_on(const std::vector<std::string>& nodes, int replicas) {
    std::vector<std::string> devices;
    const auto n = static_cast<int>(nodes.size());
    for (int r = 0; r < replicas; ++r)
      devices.push_back(
          fmt::format("/node:{}/cpu:{}", nodes[static_cast<std::size_t>(r % n)], r / n));
    return devices;
  }

  // ---- the program

  void place(const std::vector<std::string>& nodes) {
    const collective::Group group("replicas", devices_on(nodes, options.replicas));
    auto made = std::make_unique<Graph>();
    TrainingProgram built = build(*made, group);
    arrival_loop.reset();  // before its graph
    if (!built.arrivals) step_function = node.engine().compile(*made, built.feeds, built.fetches);
    graph = std::move(made);
    program = std::move(built);
    if (program.arrivals) make_arrival_loop();
    where = nodes;
    devices = group.devices();
    say(fmt::format("step {}: {} replicas on {}", step, options.replicas,
                    fmt::join(devices, ", ")));
    if (program.arrivals)
      say(
          fmt::format("step {}: gradients are applied as they arrive, so the results are not "
                      "reproducible",
                      step));
  }
  void make_arrival_loop() {
    arrival_loop = std::make_unique<ArrivalLoop>(
        node.engine(), *graph, *program.arrivals, program.feeds, program.fetches, data,
        std::chrono::system_clock::now().time_since_epoch().count());
  }
  std::vector<Tensor> take_step() {
    if (program.arrivals) {
      if (!arrival_loop) make_arrival_loop();
      return arrival_loop->step(step);
    }
    RunOptions run_options;
    run_options.step = step;
    return step_function(data(step), run_options);
  }

  // ---- checkpoints

  void write_checkpoint() {
    NamedTensors values;
    for (const Variable& v : variables()) values.emplace_back(v.name(), node.engine().get(v));
    checkpoints.write(step, values, metric);
    saved = step;
    ++counters.checkpoints;
    checkpoints.prune(options.keep, step);
    say(fmt::format("step {}: wrote {}", step, checkpoints.path(step)));
  }
  // Sets all variables to the newest checkpoint that can be read.
  void restore() {
    const std::vector<std::int64_t> all = checkpoints.steps();
    std::string last;
    for (auto it = all.rbegin(); it != all.rend(); ++it) try {
        set_variables(checkpoints.read(*it), checkpoints.path(*it));
        step = saved = *it;
        say(fmt::format("step {}: restored {}", step, checkpoints.path(step)));
        return;
      } catch (const Error& e) {
        if (e.code() != Code::data_loss) throw;
        last = e.what();
        say(fmt::format("skipped {}: {}", checkpoints.path(*it), last));
      }
    if (!all.empty())
      throw Error(Code::data_loss, fmt::format("no checkpoint can be read; the oldest: {}", last));
    step = 0;
    if (!program.start.empty()) node.engine().run(*graph, {}, program.start);
    write_checkpoint();  // the initial values, to come back to
  }

  // The program's own, by handle: a variable that was on another node before is there still, under
  // the same name.
  std::vector<Variable> variables() const {
    std::vector<Variable> all;
    for (std::size_t i = 0; i < graph->states().size(); ++i)
      if (graph->states()[i].kind == StateSpec::Kind::variable)
        all.emplace_back(graph.get(), static_cast<int>(i));
    return all;
  }
  void set_variables(const TensorFile& file, const std::string& path) const {
    std::vector<std::string> differ;
    std::map<std::string, Tensor> values(file.tensors.begin(), file.tensors.end());
    std::vector<std::pair<Variable, Tensor>> found;
    for (const Variable& v : variables()) {
      const auto value = values.find(v.name());
      if (value == values.end()) {
        differ.push_back(fmt::format("{} is not in it", v.name()));
        continue;
      }
      if (value->second.dtype() != v.dtype() || value->second.shape() != v.shape())
        differ.push_back(fmt::format("{} is {}{} there and {}{} in the program", v.name(),
                                     name_of(value->second.dtype()), value->second.shape().text(),
                                     name_of(v.dtype()), v.shape().text()));
      found.emplace_back(v, value->second);
      values.erase(value);
    }
    for (const auto& [name, value] : values)
      differ.push_back(fmt::format("{} is not in the program", name));
    if (!differ.empty())
      throw Error(Code::failed_precondition,
                  fmt::format("the checkpoint '{}' is of another program: {}", path,
                              fmt::join(differ, "; ")));
    for (const auto& [variable, value] : found) node.engine().set(variable, value);
  }

  double metric_of(const std::vector<Tensor>& fetched) const {
    const auto at = static_cast<std::size_t>(options.metric);
    if (at >= fetched.size() || fetched[at].elements() != 1)
      throw Error(Code::invalid_argument,
                  fmt::format("Training: `metric` is {}, and a step fetches {} values; name one "
                              "with one element",
                              options.metric, fetched.size()));
    return fetched[at].at(0);
  }

  void say(const std::string& line) const {
    if (options.log) options.log(line);
  }

  ClusterNode& node;
  const TrainingOptions options;
  const Build build;
  const Data data;
  const CheckpointFolder checkpoints;

  std::unique_ptr<Graph> graph;  // the program's
  TrainingProgram program;
  Function step_function;  // unless gradients are applied as they arrive
  std::unique_ptr<ArrivalLoop> arrival_loop;
  std::vector<std::string> where, devices;
  std::int64_t step = 0, saved = -1;
  std::optional<double> metric;  // the last step's
  TrainingCounters counters;
};

Training::Training(ClusterNode& node, TrainingOptions options, Build build, Data data) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw Error(Code::invalid_argument, fmt::format("Training: {}", what));
  };
  require(options.replicas >= 2, "it needs two replicas or more");
  require(!options.folder.empty(), "name the folder of its checkpoints");
  require(options.every >= 1,
          "a checkpoint is written every step at most; let `every` be 1 or more");
  require(options.keep.newest >= 1,
          "the newest checkpoint has to stay; let `keep.newest` be 1 or more");
  require(options.keep.span.count() >= 0, "let `keep.span` be 0 or more hours");
  require(build && data, "give it a function that builds the program, and one for the feeds");
  state_ = std::make_unique<State>(node, std::move(options), std::move(build), std::move(data));
}

Training::~Training() = default;

std::int64_t Training::step() const { return state_->step; }
TrainingCounters Training::counters() const { return state_->counters; }
std::vector<std::string> Training::devices() const { return state_->devices; }

std::vector<Tensor> Training::run(std::int64_t steps) {
  State& s = *state_;
  std::vector<Tensor> last;
  bool is_placed = s.graph != nullptr;
  while (!is_placed || s.step < steps) try {
      if (!is_placed) {
        s.place(s.wait_for_nodes());
        s.restore();
        is_placed = true;
        continue;
      }
      last = s.take_step();
      if (s.options.metric >= 0) s.metric = s.metric_of(last);
      ++s.step;
      ++s.counters.steps;
      if (s.step - s.saved < s.options.every && s.step < steps) continue;
      s.write_checkpoint();
      // Nodes that have come are used from here on.
      if (s.nodes_there() != s.where) is_placed = false;
    } catch (const Error& e) {
      s.arrival_loop.reset();
      if (e.code() != Code::unavailable && e.code() != Code::not_found) throw;
      s.say(fmt::format("step {}: {}", s.step, e.what()));
      s.wait_for_nodes();
      ++s.counters.recoveries;
      s.counters.repeated += std::max<std::int64_t>(0, s.step - std::max<std::int64_t>(0, s.saved));
      is_placed = false;
    }
  s.arrival_loop.reset();  // nothing runs on after the last step
  return last;
}

}  // namespace troupe
