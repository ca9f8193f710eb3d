// Compiles graphs: passes, placement, partitions. Keeps the plans of graphs that run again.
#include <troupe/actors/engine/engine_impl.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include <troupe/actors/plan/instances.hpp>
#include <troupe/devices/scalar/machine_code.hpp>
#include <troupe/ops/graph/tracing.hpp>
#include <troupe/ops/mesh/instances.hpp>

namespace troupe::detail {

namespace {

std::string why_interpreted(const CompileOptions& options) {
  return options.compiled_loops ? MachineCode::why_not()
                                : "CompileOptions::compiled_loops is false";
}

// Finds the host where a program names the devices of all instances.
class HostForInstances final : public DeviceFinder {
 public:
  explicit HostForInstances(DeviceFinder& devices) : devices_(devices) {}
  Device* find(const std::string& name) override {
    return devices_.find(is_of_instances(name) ? std::string(kHostDevice) : name);
  }
  std::string node() const override { return devices_.node(); }

 private:
  DeviceFinder& devices_;
};

// Devices of a mesh are made with their instances; a kind that is not there is refused before.
void require_kinds_of(const mesh::Mesh& mesh, DeviceFinder& devices) {
  std::set<std::string_view> kinds;
  for (const std::string& device : mesh.devices())
    if (kinds.insert(kind_of(device)).second) devices.find(device);
}

bool is_cpu(const std::string& device) {
  return device.empty() || (node_of(device).empty() && is_on_host(device));
}

}  // namespace

// A resident loop is one node on one CPU. An option that could place it elsewhere excludes all
// resident loops.
ResidentOptions EngineImpl::resident_options(const Graph& graph,
                                             const CompileOptions& options) const {
  const auto because = [](std::string why) { return ResidentOptions{false, std::move(why)}; };
  if (!options.resident_loops) return because("CompileOptions::resident_loops is false");
  if (!options.optimize) return because("CompileOptions::optimize is false");
  if (!options_.optimize) return because("EngineOptions::optimize is false");
  if (options.mesh) return because("the program is cut over a mesh");
  if (options.check_finite) return because("CompileOptions::check_finite looks at every node");
  if (options_.granularity == Granularity::op) return because("the granularity is op");
  if (peers_ && options_.placement == Placement::automatic)
    return because("automatic placement may choose another node");
  if (!is_cpu(options_.default_device))
    return because("the default device is " + options_.default_device);
  if (!options_.scatter.empty()) return because("EngineOptions::scatter places each node");
  if (options_.placement == Placement::automatic)
    for (const std::string& device : options_.devices)
      if (!is_cpu(device)) return because("automatic placement may choose " + device);
  if (const std::string device = other_device(graph, node()); !device.empty())
    return because("something in the program is on " + device);
  return {true, {}, why_interpreted(options)};
}

namespace {

using Homes = std::map<std::string, std::string>;  // devices of states, by their names

// A state without a device of its own stays where an earlier program has it. Operations that use it
// follow, and a program over several nodes has no resident loops.
ResidentOptions unless_elsewhere(ResidentOptions options, const Graph& graph, const Homes& homes,
                                 const std::string& here) {
  for (const StateSpec& state : graph.states())
    if (const auto home = homes.find(state.name);
        options.is_on && home != homes.end() && node_of(home->second) != here)
      return {false, "state '" + state.name + "' is on " + home->second};
  return options;
}

}  // namespace

std::shared_ptr<CompiledPlan> EngineImpl::compile(const Graph& graph,
                                                  const std::vector<Edge>& feeds,
                                                  const std::vector<Edge>& fetches,
                                                  const CompileOptions& options, bool is_staged) {
  const Tracing::Suspended untraced;  // passes compute on eager scopes
  std::vector<PassReport> reports;
  std::vector<std::string> warnings;
  std::vector<std::string> skipped = options.skip_passes;
  // the pass makes nodes wait for others, which might be placed on another node
  if (options_.placement == Placement::automatic) skipped.push_back("order_gradients");
  const Keep keep = options.prune_effects ? Keep::fetches : Keep::effects;
  // Programs over a mesh arrange their variables one after the other.
  std::unique_lock laying(laying_mutex_, std::defer_lock);
  if (options.mesh) laying.lock();
  mesh::detail::VariableHomes homes;
  const PassOptions passes{.optimize = options.optimize && options_.optimize,
                           .low = options.mixed_precision,
                           .keep = keep,
                           .takes_lists = is_staged,
                           .check_finite = options.check_finite,
                           .resident = unless_elsewhere(resident_options(graph, options), graph,
                                                        peers_ ? states_.homes() : Homes(), node()),
                           .mesh = options.mesh ? &*options.mesh : nullptr,
                           .homes = &homes,
                           .warnings = &warnings};
  const auto optimized = [&] {
    reports.clear();
    homes = laid_.homes([this](const StateSpec& spec) { return !is_used(spec); });
    return optimize(graph, feeds, fetches, passes, skipped, &reports);
  };
  Program program = optimized();
  while (!laid_.note_used(program.graph) || !store_in_pieces(homes)) {
    // A program of another thread was faster, with another arrangement of a variable.
    if (!laying.owns_lock()) laying.lock();
    program = optimized();
  }
  if (laying.owns_lock()) laying.unlock();
  // The first run of instances on this node cuts their variables.
  if (!mesh::detail::mesh_of_instances(program.graph)) cut_variables_of(program.graph);
  program.graph.seed_states(options_.seed);
  PlacementOptions placement = placement_options();
  if (options_.placement == Placement::automatic) {
    placement.measured = measured(graph.id());
    if (peers_ && placement.costs.measure_links)
      // links that the user gave come first
      for (LinkBetween& link : peers_->links()) placement.costs.links.push_back(std::move(link));
  }
  Placed placed = place(std::move(program), placement);
  if (options.mesh && !are_instances_closed(placed)) {
    skipped.push_back("instances");
    program = optimized();
    cut_variables_of(program.graph);
    program.graph.seed_states(options_.seed);
    placed = place(std::move(program), placement);
  }
  auto compiled = make_troupe(std::move(placed), std::move(reports), graph.id());
  compiled->costs = std::move(placement.costs);
  compiled->measured = std::move(placement.measured);
  compiled->warnings = std::move(warnings);
  // A staged program is a part of a traced function, which runs all of its effects.
  if (!is_staged) {
    const std::vector<char> needed = needed_nodes(graph, feeds, fetches, keep);
    for (auto& more : {effects_.add(graph, feeds, needed), initials_.add(graph, needed)})
      compiled->warnings.insert(compiled->warnings.end(), more.begin(), more.end());
  }
  for (const std::string& warning : compiled->warnings) log_.warn(warning, node());
  return compiled;
}

std::shared_ptr<const Plan> EngineImpl::plan_of(Placed placed, int call_depth, PlanName name,
                                                StateStore& states) {
  HostForInstances host(*this);
  const bool is_by_instances = mesh::detail::mesh_of_instances(placed.program.graph) != nullptr;
  Plan plan = make_plan(std::move(placed),
                        is_by_instances ? static_cast<DeviceFinder&>(host) : *this, states);
  plan.call_depth = call_depth;
  plan.name = std::move(name);
  return std::make_shared<const Plan>(std::move(plan));
}

std::shared_ptr<CompiledPlan> EngineImpl::make_troupe(Placed placed,
                                                      std::vector<PassReport> reports,
                                                      std::uint64_t graph) {
  auto compiled = std::make_shared<CompiledPlan>();
  compiled->engine = this;
  compiled->reports = std::move(reports);
  compiled->graph = graph;
  const auto is_elsewhere = [&](const std::string& device) {
    return peers_ && node_of(device) != peers_->name();
  };
  const mesh::Mesh* const mesh = mesh::detail::mesh_of_instances(placed.program.graph);
  const bool is_shared = std::any_of(placed.device.begin(), placed.device.end(), is_elsewhere) ||
                         (mesh && spans_nodes(*mesh, node()));
  if (mesh) require_kinds_of(*mesh, *this);
  const PlanName name{node(), next_plan_.fetch_add(1, std::memory_order_relaxed),
                      peers_ ? peers_->incarnation() : 0};
  compiled->troupe.plan = plan_of(is_shared ? Placed(placed) : std::move(placed),
                                  options_.call_depth, name, states_.own());
  // Other nodes make their instances with their part of the plan, and so does this one.
  if (mesh && is_shared) {
    cut_variables_of(compiled->troupe.plan->program.graph);
    compiled->troupe.plan =
        std::make_shared<const Plan>(make_instances(compiled->troupe.plan, *this, states_.own()));
  }
  for (const Node& n : compiled->troupe.plan->program.graph.nodes())
    if (n.op->name == "Constant") compiled->constant_bytes += n.attrs.get<Tensor>("value").bytes();
  if (is_shared) {
    compiled->troupe.connect(peers_->prepare(compiled->troupe.plan, placed));
    compiled->placed = std::make_unique<const Placed>(std::move(placed));
    each_state(*compiled->troupe.plan, [&](std::int32_t, std::int32_t, const StateSpec& state) {
      if (state.kind == StateSpec::Kind::variable) states_.settle(state);
    });
  }
  if (!has_instances(*compiled->troupe.plan)) spawn_partitions(*compiled);
  plans_.add(compiled);
  return compiled;
}

// The first run makes the instances.
std::shared_ptr<CompiledPlan> EngineImpl::current(const std::shared_ptr<CompiledPlan>& compiled) {
  if (has_instances(*compiled->troupe.plan)) {
    std::lock_guard lock(compiled->renewal_mutex);
    std::shared_ptr<CompiledPlan>& made = compiled->renewed;
    if (made) return made;
    cut_variables_of(compiled->troupe.plan->program.graph);
    auto all = std::make_shared<CompiledPlan>();
    all->engine = this;
    all->reports = compiled->reports;
    all->graph = compiled->graph;
    all->costs = compiled->costs;
    all->measured = compiled->measured;
    all->warnings = compiled->warnings;
    all->constant_bytes = compiled->constant_bytes;
    all->troupe.plan =
        std::make_shared<const Plan>(make_instances(compiled->troupe.plan, *this, states_.own()));
    spawn_partitions(*all);
    plans_.add(all);
    return made = std::move(all);
  }
  if (!compiled->is_broken() || !compiled->placed) return compiled;
  std::lock_guard lock(compiled->renewal_mutex);
  std::shared_ptr<CompiledPlan>& renewed = compiled->renewed;
  if (!renewed || renewed->is_broken()) {
    renewed = make_troupe(Placed(*compiled->placed), compiled->reports, compiled->graph);
    renewed->costs = compiled->costs;
    renewed->measured = compiled->measured;
    renewed->warnings = compiled->warnings;
  }
  return renewed;
}

std::shared_ptr<CompiledPlan> EngineImpl::take_part(Placed placed, int call_depth, PlanName name,
                                                    std::shared_ptr<StateStore> states) {
  auto compiled = std::make_shared<CompiledPlan>();
  compiled->engine = this;
  compiled->troupe.plan = plan_of(std::move(placed), call_depth, std::move(name), *states);
  if (has_instances(*compiled->troupe.plan))
    compiled->troupe.plan =
        std::make_shared<const Plan>(make_instances(compiled->troupe.plan, *this, *states));
  compiled->states = std::move(states);
  spawn_partitions(*compiled);
  plans_.add(compiled);
  return compiled;
}

void EngineImpl::spawn_partitions(CompiledPlan& compiled) {
  const Plan& plan = *compiled.troupe.plan;
  for (std::size_t i = 0; i < plan.partitions.size(); ++i) {
    LeanRef<PartitionActor>& partition = compiled.troupe.partitions.emplace_back();
    if (plan.is_here(i))
      partition =
          lean_spawn<PartitionActor>(*system_, compiled.troupe.plan, static_cast<std::int32_t>(i),
                                     options_.granularity, *pool_, compiled.troupe);
  }
}

PlacementOptions EngineImpl::placement_options() {
  PlacementOptions o{.default_device = options_.default_device,
                     .here = node(),
                     .scatter = options_.scatter,
                     .seed = options_.seed,
                     .policy = options_.placement,
                     .nodes = {},
                     .devices = options_.devices,
                     .costs = costs(),
                     .measured = {},
                     .edges = options_.edges,
                     .homes = {}};
  if (!peers_) return o;
  o.nodes = peers_->nodes_with_labels();
  o.homes = states_.homes();
  return o;
}

CostOptions EngineImpl::costs() const {
  CostOptions costs = options_.costs;
  std::vector<std::string> names = options_.devices;
  names.push_back(options_.default_device);
  devices_.add_memory(costs, names);
  return costs;
}

// Returns the measured times of kernels in earlier plans of a graph, on all nodes.
Measured EngineImpl::measured(std::uint64_t graph) {
  Measured times;
  for (const auto& compiled : plans_.alive()) {
    if (compiled->graph != graph) continue;
    const Plan& plan = *compiled->troupe.plan;
    std::vector<NodeCost> costs = compiled->costs_here();
    if (compiled->troupe.remote && !compiled->troupe.remote->is_broken())
      for (const NodeCost& c : compiled->troupe.remote->costs()) costs.push_back(c);
    for (const NodeCost& c : costs)
      if (c.node >= 0 && c.node < plan.program.graph.size() && c.ns > 0)
        times.insert_or_assign(
            {plan.program.graph.node(c.node).origin,
             plan.partitions[static_cast<std::size_t>(
                                 plan.partition_of[static_cast<std::size_t>(c.node)])]
                 .name},
            c.ns);
  }
  return times;
}

std::shared_ptr<CompiledPlan> EngineImpl::cached(const Graph& graph, const std::vector<Edge>& feeds,
                                                 const std::vector<Edge>& fetches) {
  PlanCache::Key key{graph.id(), graph.version(), feeds, fetches};
  if (auto found = plans_.find(key)) return found;
  auto compiled = compile(graph, feeds, fetches, {});
  plans_.keep(std::move(key), compiled);
  return compiled;
}

}  // namespace troupe::detail
