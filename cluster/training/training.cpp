#include <troupe/cluster/training/training.hpp>

#include <algorithm>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/engine/compiled_plan.hpp>
#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/cluster/checkpoint/saved_states.hpp>
#include <troupe/cluster/node/fence_scope.hpp>
#include <troupe/cluster/training/arrival_loop.hpp>
#include <troupe/cluster/training/checkpoint_requests.hpp>
#include <troupe/cluster/training/queued_gradients.hpp>
#include <troupe/cluster/training/resharding.hpp>
#include <troupe/cluster/training/training_checkpoints.hpp>
#include <troupe/devices/base/device_name.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

struct Training::State {
  State(ClusterNode& on, TrainingOptions o, Build b, Data d)
      : node(on), options(std::move(o)), build(std::move(b)), data(std::move(d)),
        driver(on.checkpoints(), options.name) {
    if (!options.folder.empty())
      checkpoints = std::make_unique<FolderCheckpoints>(options.folder, node, driver);
    else
      checkpoints = std::make_unique<NodeCheckpoints>(
          node, driver, options.copies, [this](const std::string& line) { say(line); });
  }

  // ---- where

  std::vector<std::string> nodes_there() const {
    std::vector<std::string> there = node.nodes(), chosen;
    if (!options.nodes.empty()) {
      for (const std::string& n : options.nodes)
        if (std::find(there.begin(), there.end(), n) != there.end()) chosen.push_back(n);
      return chosen;
    }
    std::set<std::string> named;  // nodes that take only programs that name them, such as verbs'
    for (const Member& m : node.members())
      if (m.labels.find("placement=named") != std::string::npos) named.insert(m.name);
    for (const std::string& n : there)
      if (n != node.name() && !named.contains(n)) chosen.push_back(n);
    if (chosen.empty()) chosen.push_back(node.name());
    std::sort(chosen.begin(), chosen.end());
    return chosen;
  }
  std::vector<std::string> wait_for_nodes() const {
    std::vector<std::string> there;
    const auto is_one_there = [&] {
      there = nodes_there();
      return !there.empty();
    };
    if (!node.checkpoints().wait(is_one_there, options.patience))
      throw Error(
          Code::unavailable,
          fmt::format("the training waits for one of the nodes {}, and none was there within {} s; "
                      "start one, or name others",
                      fmt::join(options.nodes, ", "),
                      std::chrono::duration_cast<std::chrono::seconds>(options.patience).count()));
    return there;
  }
  // Nodes that obey this driver; others may have come since.
  std::vector<std::string> claimed_nodes() const {
    std::vector<std::string> all;
    for (const std::string& n : nodes_there())
      if (driver.nodes().contains(n)) all.push_back(n);
    if (all.empty())
      throw Error(Code::unavailable, "the nodes have left while the training was to be placed");
    return all;
  }
  // Replica r is on node r mod n: a node with several has a device for each.
  static std::vector<std::string> devices_on(const std::vector<std::string>& nodes, int replicas) {
    std::vector<std::string> devices;
    const auto n = static_cast<int>(nodes.size());
    for (int r = 0; r < replicas; ++r)
      devices.push_back(
          full_name(fmt::format("cpu:{}", r / n), nodes[static_cast<std::size_t>(r % n)]));
    return devices;
  }

  // ---- the program

  void place(const std::vector<std::string>& nodes) {
    const collective::Group group("replicas", devices_on(nodes, options.replicas));
    auto made = std::make_unique<Graph>();
    TrainingProgram built = build(*made, group);
    std::set<std::string> restored;
    for (const StateSpec& state : made->states()) restored.insert(state.name);
    node.checkpoints().forget_values(restored);
    const FenceScope scope(driver.fence());
    arrival_loop.reset();  // before its graph
    if (!built.arrivals) step_function = node.engine().compile(*made, built.feeds, built.fetches);
    graph = std::move(made);
    program = std::move(built);
    if (program.arrivals) make_arrival_loop();
    where = nodes;
    devices = group.devices();
    say(fmt::format("step {}: {} replicas on {}", step, options.replicas,
                    fmt::join(devices, ", ")));
    if (!program.arrivals) return;
    say(
        fmt::format("step {}: gradients are applied as they arrive, so the results are not "
                    "reproducible",
                    step));
    find_saved_actors();
  }
  void make_arrival_loop() {
    arrival_loop = std::make_unique<ArrivalLoop>(
        node.engine(), *graph, *program.arrivals, program.feeds, program.fetches, data,
        std::chrono::system_clock::now().time_since_epoch().count(), driver.fence());
  }
  std::vector<Tensor> take_step() {
    driver.check();
    const FenceScope scope(driver.fence());  // a plan that was broken is made anew
    if (program.arrivals) {
      if (!arrival_loop) make_arrival_loop();
      return arrival_loop->step(step);
    }
    RunOptions of_step;
    of_step.step = step;
    return step_function(data(step), of_step);
  }
  void report(const char* what, std::int64_t steps) {
    driver.report({.step = step,
                   .steps = steps,
                   .checkpoint = saved,
                   .recoveries = counters.recoveries,
                   .state = what,
                   .nodes = where});
  }

  // ---- checkpoints

  // Takes the values of this step, and has them written while training goes on.
  void begin_checkpoint() {
    const auto began = Clock::now();
    end_checkpoint(true);  // one at a time
    if (pauses()) arrival_loop->pause(options.patience);
    taken = step;
    const auto write = [this, at = step, values = checkpoints->take(step, metric, values_there())] {
      values();
      checkpoints->prune(options.keep, at);
    };
    counters.stood_still += Clock::now() - began;
    const auto policy =
        node.checkpoints().is_deterministic() ? std::launch::deferred : std::launch::async;
    writing = std::async(policy, write);
  }
  // Looks for the end of the checkpoint that is being written, if there is one. A node that was
  // lost meanwhile ends it: the checkpoint before counts.
  void end_checkpoint(bool waits) {
    if (!writing.valid() ||
        (!waits && writing.wait_for(std::chrono::seconds(0)) == std::future_status::timeout))
      return;
    const std::int64_t written = std::exchange(taken, saved);
    writing.get();
    taken = saved = written;
    ++counters.checkpoints;
    say(fmt::format("step {}: wrote {}", saved, checkpoints->text({saved, driver.fence().epoch})));
  }
  // Gives up a checkpoint that is being written.
  void drop_checkpoint() {
    try {
      end_checkpoint(true);
    } catch (const Error& e) { say(fmt::format("no checkpoint was written: {}", e.what())); }
  }
  struct Read {
    CheckpointId id;
    NamedTensors values;           // to be set
    std::set<std::string> is_set;  // variables that their nodes have set
  };
  using Restored = std::optional<Read>;
  // The newest checkpoint that can be read; nothing if there is none at all. Throws unavailable if
  // nodes that may have a newer one are not there.
  Restored newest() {
    const std::vector<CheckpointId> all = checkpoints->all();
    if (all.empty() && saved >= 0)
      throw Error(Code::unavailable,
                  fmt::format("the checkpoint of step {} was written, and no node that has it is "
                              "there; start one",
                              saved));
    if (const std::string why = checkpoints->missing(); all.empty() && !why.empty())
      throw Error(Code::unavailable, why);
    std::string last;
    for (auto it = all.rbegin(); it != all.rend(); ++it) try {
        Read read{*it, {}, {}};
        read.values = checkpoints->restore(*it, values_there(), read.is_set);
        return read;
      } catch (const Error& e) {
        if (e.code() != Code::data_loss) throw;
        last = e.what();
        say(fmt::format("skipped {}: {}", checkpoints->text(*it), last));
      }
    if (!all.empty())
      throw Error(Code::data_loss, fmt::format("no checkpoint can be read; the oldest: {}", last));
    return std::nullopt;
  }
  Restored newest_within_patience() {
    constexpr std::chrono::milliseconds kPause(200);
    for (std::chrono::nanoseconds waited(0);; waited += kPause) try {
        return newest();
      } catch (const Error& e) {
        if (e.code() != Code::unavailable) throw;
        is_patience_over = waited >= options.patience;
        if (is_patience_over) throw;
        if (waited.count() == 0) say(fmt::format("waits for a checkpoint: {}", e.what()));
        node.checkpoints().wait([] { return false; }, kPause);
      }
  }
  // Sets all states to the newest checkpoint that can be read.
  void restore() {
    if (const Restored read = newest_within_patience()) {
      const std::string name = checkpoints->text(read->id);
      set_states(*read, name);
      step = saved = taken = read->id.step;
      say(read->is_set.empty()
              ? fmt::format("step {}: restored {}", step, name)
              : fmt::format("step {}: restored {}, {} of {} values by their nodes", step, name,
                            read->is_set.size(), read->is_set.size() + read->values.size()));
      return;
    }
    step = 0;
    if (options.folder.empty() && driver.fence().epoch > 1)
      say("step 0: no driver before this one wrote a checkpoint that a node here has; begins anew");
    if (!program.start.empty()) {
      const FenceScope scope(driver.fence());
      node.engine().run(*graph, {}, program.start);
    }
    begin_checkpoint();  // the initial values, to come back to
    end_checkpoint(true);
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
  // The nodes where the plan of the step has the states that it uses.
  std::map<std::string, std::string> homes() const {
    std::map<std::string, std::string> all;
    for (const auto& plan : node.engine().impl().plans()) {
      if (plan->graph != graph->id()) continue;
      const Graph& placed = plan->troupe.plan->program.graph;
      for (const Node& n : placed.nodes())
        if (n.state >= 0) {
          const StateSpec& state = placed.states()[at(n.state)];
          all[state.name] = node_of(state.device);
        }
    }
    return all;
  }
  // Asks each actor of an arrival loop, once, whether checkpoints can have it.
  void find_saved_actors() {
    std::map<std::string, std::string> where_is = homes();
    for (const StateSpec& state : graph->states()) {
      if (state.kind != StateSpec::Kind::actor || !where_is.contains(state.name) ||
          known_actors.contains(state.name))
        continue;
      const auto ask = [&](CheckpointRequest::Kind kind, std::vector<std::string> names) {
        CheckpointRequest m;
        m.kind = kind;
        m.fence = driver.fence();
        m.names = std::move(names);
        node.checkpoints().ask(where_is[state.name], std::move(m));
      };
      try {
        ask(CheckpointRequest::Kind::take, {state.name});
        ask(CheckpointRequest::Kind::fetch, {});  // drops the values
        saved_actors.insert(state.name);
      } catch (const Error& e) {
        if (e.code() != Code::failed_precondition) throw;
        say(fmt::format("step {}: checkpoints go without an actor: {}", step, e.what()));
      }
      known_actors.insert(state.name);
    }
  }
  // Queues and actors that are in checkpoints: all that the step uses. If gradients are applied as
  // they arrive, actors that can be saved, and waiting gradients only beside states of the program:
  // what they were made of is not in these any more. Else they are computed again after a loss.
  std::vector<std::string> others(const std::map<std::string, std::string>& homes) const {
    using enum StateSpec::Kind;
    std::vector<std::string> all;
    for (const StateSpec& state : graph->states()) {
      if (state.kind == variable || state.kind == console || !homes.contains(state.name)) continue;
      if (program.arrivals && state.kind == actor && !saved_actors.contains(state.name)) continue;
      all.push_back(state.name);
    }
    if (program.arrivals && all == std::vector{program.arrivals->queue}) all.clear();
    return all;
  }
  // True if checkpoints of an arrival loop have queues or actors: its replicas pause before each.
  bool pauses() const { return arrival_loop && !others(homes()).empty(); }
  TrainingCheckpoints::Values values_there() const {
    std::map<std::string, std::string> where_is = homes();
    TrainingCheckpoints::Values all;
    for (const std::string& name : others(where_is)) all.push_back({name, where_is[name]});
    if (program.arrivals && arrival_loop && !all.empty()) {
      const std::string& queue = program.arrivals->queue;
      all.push_back(
          {name_of_life(queue), where_is[queue], {}, Tensor::scalar(arrival_loop->life())});
    }
    for (const Variable& v : variables()) all.push_back({v.name(), where_is[v.name()], v});
    return all;
  }
  // Sets all states of the program. Throws failed_precondition, naming each difference, if the
  // checkpoint is of another program.
  void set_states(const Read& read, const std::string& path) const {
    std::vector<std::string> differ;
    std::map<std::string, Tensor> values(read.values.begin(), read.values.end());
    for (const auto& [table, partitioner] : program.sharded)
      reshard(values, {table.name(), partitioner.kind(), table.shape()[0]},
              static_cast<std::int64_t>(table.shards().size()));
    if (program.arrivals)
      arrival_loop->restore(adopt_gradients(values, program.arrivals->queue,
                                            static_cast<std::size_t>(options.replicas),
                                            arrival_loop->life()));
    std::vector<std::pair<Variable, Tensor>> found;
    for (const Variable& v : variables()) {
      if (read.is_set.contains(v.name())) continue;
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
    std::map<std::string, std::string> where_is = homes();
    std::map<std::string, CheckpointRequest> by_node;
    for (const std::string& name : others(where_is)) {
      const std::string prefix = name + kOfState;
      if (!values.contains(prefix)) differ.push_back(fmt::format("{} is not in it", name));
      CheckpointRequest& ask = by_node[where_is[name]];
      for (auto it = values.lower_bound(prefix);
           it != values.end() && it->first.starts_with(prefix); it = values.erase(it)) {
        ask.names.push_back(it->first);
        ask.tensors.push_back(it->second);
      }
    }
    for (const auto& [name, value] : values)
      differ.push_back(fmt::format("{} is not in the program", name));
    if (!differ.empty())
      throw Error(Code::failed_precondition,
                  fmt::format("the checkpoint '{}' is of another program: {}", path,
                              fmt::join(differ, "; ")));
    CheckpointRequests putting(node.checkpoints());
    const auto put = [&](const std::string& on, CheckpointRequest ask) {
      ask.kind = CheckpointRequest::Kind::put;
      ask.fence = driver.fence();
      putting.start(on, std::move(ask));
    };
    for (auto& [on, ask] : by_node) put(on, std::move(ask));
    for (const auto& [variable, value] : found) {
      const std::string& home = where_is[variable.name()];
      if (home.empty() || home == node.name()) {
        driver.check();
        node.engine().set(variable, value);
        continue;
      }
      CheckpointRequest ask;  // it carries the epoch, as Engine::set does not
      ask.names = {variable.name()};
      ask.tensors = {value};
      put(home, std::move(ask));
    }
    putting.await();
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

  void say(const std::string& line) {
    std::lock_guard lock(log_mutex);
    if (options.log) options.log(line);
  }

  ClusterNode& node;
  const TrainingOptions options;
  const Build build;
  const Data data;
  std::mutex log_mutex;  // held while a line is logged: a checkpoint that is being written has some
  TrainingDriver driver;
  std::unique_ptr<TrainingCheckpoints> checkpoints;

  std::unique_ptr<Graph> graph;  // the program's
  TrainingProgram program;
  Function step_function;  // unless gradients are applied as they arrive
  std::unique_ptr<ArrivalLoop> arrival_loop;
  std::set<std::string> known_actors, saved_actors;  // an arrival loop's, by name
  bool is_restored = false;                          // the graph's states have the values of `step`
  bool is_patience_over = false;  // the nodes with the checkpoint to restore did not come
  std::vector<std::string> where, devices;
  std::int64_t step = 0;
  std::int64_t saved = -1, taken = -1;  // steps of the last checkpoint, written and begun
  std::optional<double> metric;         // the last step's
  TrainingCounters counters;
  std::future<void> writing;  // last: its destructor waits for what uses the others
};

Training::Training(ClusterNode& node, TrainingOptions options, Build build, Data data) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw Error(Code::invalid_argument, fmt::format("Training: {}", what));
  };
  require(options.replicas >= 2, "it needs two replicas or more");
  require(!options.folder.empty() || !options.name.empty(),
          "name the training, whose checkpoints are on nodes, or a folder for them");
  require(options.copies >= 0, "let `copies` be 0 or more");
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
  bool is_placed = std::exchange(s.is_restored, false);
  s.is_patience_over = false;
  while (!is_placed || s.step < steps || s.saved != s.step) try {
      if (!is_placed) {
        s.drop_checkpoint();
        s.arrival_loop.reset();
        s.wait_for_nodes();
        s.driver.claim([&s](const std::string& line) { s.say(line); });
        s.place(s.claimed_nodes());
        s.restore();
        is_placed = true;
        continue;
      }
      if (s.step >= steps) {
        if (!s.writing.valid()) s.begin_checkpoint();
        s.end_checkpoint(true);
        continue;
      }
      last = s.take_step();
      if (s.options.metric >= 0) s.metric = s.metric_of(last);
      ++s.step;
      ++s.counters.steps;
      s.end_checkpoint(false);
      s.report("trains", steps);
      if (s.step - s.taken < s.options.every && s.step < steps) continue;
      s.begin_checkpoint();
      // Nodes that have come are used from here on.
      if (s.nodes_there() == s.where) continue;
      s.end_checkpoint(true);
      is_placed = false;
    } catch (const Error& e) {
      s.arrival_loop.reset();
      if ((e.code() != Code::unavailable && e.code() != Code::not_found) || s.is_patience_over)
        throw;
      s.say(fmt::format("step {}: {}", s.step, e.what()));
      s.drop_checkpoint();
      s.report("recovers", steps);
      s.wait_for_nodes();
      ++s.counters.recoveries;
      s.counters.repeated += std::max<std::int64_t>(0, s.step - std::max<std::int64_t>(0, s.saved));
      is_placed = false;
    }
  // Nothing runs on after the last step. A paused loop stays, for the gradients that wait.
  if (!s.pauses()) s.arrival_loop.reset();
  s.is_restored = true;
  s.report(TrainingDriver::kEnded, steps);
  return last;
}

}  // namespace troupe
