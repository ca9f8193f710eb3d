// Plans, as an engine makes them: passes, placement, partitions; and those that it keeps for graphs
// it has seen.
#include <troupe/actors/engine/engine_impl.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace troupe {

std::shared_ptr<Compiled> EngineImpl::compile(const Graph& graph, const std::vector<Edge>& feeds,
                                              const std::vector<Edge>& fetches,
                                              const CompileOptions& options) {
  std::vector<PassReport> reports;
  std::vector<std::string> skipped = options.skip_passes;
  // what waits here might come to lie on another node
  if (options_.placement == Placement::automatic) skipped.push_back("order_gradients");
  Program program = optimize(graph, feeds, fetches, options.optimize && options_.optimize, skipped,
                             &reports, options.mixed_precision);
  PlacementOptions placement = placement_options();
  if (options_.placement == Placement::automatic) {
    placement.measured = measured(graph.id());
    if (peers_ && placement.costs.measure_links)
      // those that users gave come first
      for (LinkBetween& link : peers_->links()) placement.costs.links.push_back(std::move(link));
  }
  auto compiled = make_troupe(place(std::move(program), placement), std::move(reports), graph.id());
  compiled->costs = std::move(placement.costs);
  compiled->measured = std::move(placement.measured);
  return compiled;
}

std::shared_ptr<Compiled> EngineImpl::make_troupe(Placed placed, std::vector<PassReport> reports,
                                                  std::uint64_t graph) {
  auto compiled = std::make_shared<Compiled>();
  compiled->engine = this;
  compiled->reports = std::move(reports);
  compiled->graph = graph;
  const auto is_elsewhere = [&](const std::string& device) {
    return peers_ && node_of(device) != peers_->name();
  };
  const bool is_shared = std::any_of(placed.device.begin(), placed.device.end(), is_elsewhere);
  Plan plan = make_plan(is_shared ? Placed(placed) : std::move(placed), *this, states_);
  plan.call_depth = options_.call_depth;
  plan.name = {node(), next_plan_.fetch_add(1, std::memory_order_relaxed),
               peers_ ? peers_->incarnation() : 0};
  compiled->troupe.plan = std::make_shared<const Plan>(std::move(plan));
  for (const Node& n : compiled->troupe.plan->program.graph.nodes())
    if (n.op->name == "Constant") compiled->constant_bytes += n.attrs.get<Tensor>("value").bytes();
  if (is_shared) {
    compiled->troupe.remote = peers_->prepare(compiled->troupe.plan, placed);
    compiled->placed = std::make_unique<const Placed>(std::move(placed));
    remember_homes(compiled->troupe.plan->program.graph);
  }
  spawn_partitions(*compiled);
  std::lock_guard lock(mutex_);
  std::erase_if(compiled_, [](const auto& weak) { return weak.expired(); });
  compiled_.push_back(compiled);
  return compiled;
}

std::shared_ptr<Compiled> EngineImpl::current(const std::shared_ptr<Compiled>& compiled) {
  const auto is_broken = [](const Compiled& c) {
    return c.troupe.remote && c.troupe.remote->is_broken();
  };
  if (!is_broken(*compiled) || !compiled->placed) return compiled;
  std::lock_guard lock(compiled->renewal_mutex);
  std::shared_ptr<Compiled>& renewed = compiled->renewed;
  if (!renewed || is_broken(*renewed)) {
    renewed = make_troupe(Placed(*compiled->placed), compiled->reports, compiled->graph);
    renewed->costs = compiled->costs;
    renewed->measured = compiled->measured;
  }
  return renewed;
}

std::shared_ptr<Compiled> EngineImpl::take_part(Placed placed, int call_depth, PlanName name,
                                                std::shared_ptr<StateStore> states) {
  auto compiled = std::make_shared<Compiled>();
  compiled->engine = this;
  Plan plan = make_plan(std::move(placed), *this, *states);
  compiled->states = std::move(states);
  plan.call_depth = call_depth;
  plan.name = std::move(name);
  compiled->troupe.plan = std::make_shared<const Plan>(std::move(plan));
  spawn_partitions(*compiled);
  std::lock_guard lock(mutex_);
  std::erase_if(compiled_, [](const auto& weak) { return weak.expired(); });
  compiled_.push_back(compiled);
  return compiled;
}

void EngineImpl::spawn_partitions(Compiled& compiled) {
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
  std::lock_guard lock(mutex_);
  o.homes = settled_;
  return o;
}

// A simulated device's memory is known.
CostOptions EngineImpl::costs() const {
  CostOptions costs = options_.costs;
  std::vector<std::string> names = options_.devices;
  names.push_back(options_.default_device);
  for (const std::string& name : names) {
    const bool is_said = std::any_of(costs.devices.begin(), costs.devices.end(),
                                     [&](const auto& d) { return d.first == name; });
    if (!name.starts_with("sim:") || options_.sim.memory_limit == 0 || is_said) continue;
    costs.devices.emplace_back(name, costs.device);
    costs.devices.back().second.memory_bytes = options_.sim.memory_limit;
  }
  return costs;
}

// What kernels took in earlier plans of a graph, on all nodes.
Measured EngineImpl::measured(std::uint64_t graph) {
  std::vector<std::shared_ptr<Compiled>> plans;  // dropped outside the lock
  {
    std::lock_guard lock(mutex_);
    for (const auto& weak : compiled_)
      if (auto compiled = weak.lock()) plans.push_back(std::move(compiled));
  }
  Measured times;
  for (const auto& compiled : plans) {
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

std::shared_ptr<Compiled> EngineImpl::cached(const Graph& graph, const std::vector<Edge>& feeds,
                                             const std::vector<Edge>& fetches) {
  CacheKey key{graph.id(), graph.version(), feeds, fetches};
  std::shared_ptr<Compiled> broken;  // dropped outside the lock
  {
    std::lock_guard lock(mutex_);
    for (auto it = plans_.begin(); it != plans_.end(); ++it) {
      if (it->first != key) continue;
      if (it->second->troupe.remote && it->second->troupe.remote->is_broken()) {
        broken = std::move(it->second);
        plans_.erase(it);
        break;
      }
      plans_.splice(plans_.begin(), plans_, it);
      return it->second;
    }
  }
  auto compiled = compile(graph, feeds, fetches, {});
  std::vector<std::shared_ptr<Compiled>> oldest;
  std::lock_guard lock(mutex_);
  plans_.emplace_front(std::move(key), compiled);
  std::uint64_t bytes = 0;
  for (auto it = std::next(plans_.begin()); it != plans_.end(); ++it)
    bytes += it->second->constant_bytes;
  while (plans_.size() > kMaxPlans || (plans_.size() > 1 && bytes > kMaxPlanBytes)) {
    bytes -= plans_.back().second->constant_bytes;
    oldest.push_back(std::move(plans_.back().second));
    plans_.pop_back();
  }
  return compiled;
}

}  // namespace troupe
