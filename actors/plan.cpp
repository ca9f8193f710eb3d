#include <troupe/actors/plan.hpp>

#include <map>

#include <fmt/format.h>

namespace troupe {
namespace {

// The device of each node by name: its own constraint, else its state's, else the default.
std::vector<std::string> place(const Program& p, const std::string& default_device) {
  std::vector<std::string> device(static_cast<std::size_t>(p.graph.size()));
  for (std::int32_t id = 0; id < p.graph.size(); ++id) {
    const Node& n = p.graph.node(id);
    std::string of_state = n.state >= 0 ? p.graph.states()[static_cast<std::size_t>(n.state)].device : std::string();
    if (!of_state.empty() && !n.device.empty() && n.device != of_state)
      throw Error(Code::invalid_argument, fmt::format("{} is constrained to {}, but its state lives on {}", p.graph.describe(id),
                                                      n.device, of_state));
    device[static_cast<std::size_t>(id)] = !of_state.empty() ? of_state : !n.device.empty() ? n.device : default_device;
  }
  return device;
}

class Planner {
 public:
  Planner(Program program, DeviceFinder& devices, const std::string& default_device, StateStore& states)
      : states_(states) {
    plan_.program = std::move(program);
    const Graph& g = plan_.program.graph;
    std::vector<std::string> names = place(plan_.program, default_device);
    std::map<std::string, std::int32_t> index;
    partition_.resize(names.size());
    local_.resize(names.size(), -1);
    for (std::size_t id = 0; id < names.size(); ++id) {
      auto [it, is_new] = index.emplace(names[id], static_cast<std::int32_t>(plan_.partitions.size()));
      if (is_new) {
        plan_.partitions.emplace_back();
        plan_.partitions.back().device = &devices.find(names[id]);
      }
      partition_[id] = it->second;
    }
    if (plan_.partitions.empty()) {
      plan_.partitions.emplace_back();
      plan_.partitions.back().device = &devices.find(default_device);
    }
    for (Edge e : plan_.program.feeds) {
      fed_.emplace(e.node, static_cast<std::int32_t>(plan_.feeds.size()));
      plan_.feeds.push_back(g.spec(e));
      plan_.feed_names.push_back(g.name_of(e.node));
    }
    plan_.fetches = static_cast<std::int32_t>(plan_.program.fetches.size());
  }

  Plan make() {
    const Graph& g = plan_.program.graph;
    for (std::int32_t id = 0; id < g.size(); ++id)
      if (!fed_.contains(id)) add_node(id);
    collect_targets();
    for (std::int32_t id = 0; id < g.size(); ++id)
      if (auto it = fed_.find(id); it != fed_.end()) add_feed(id, it->second);
      else add_targets(id);
    for (PartitionPlan& p : plan_.partitions) {
      for (std::size_t n = 0; n < p.nodes.size(); ++n) {
        p.awaited.push_back(p.nodes[n].awaited);
        if (p.nodes[n].awaited == 0) p.roots.push_back(static_cast<std::int32_t>(n));
      }
    }
    return std::move(plan_);
  }

 private:
  void add_node(std::int32_t id) {
    const Graph& g = plan_.program.graph;
    const Node& n = g.node(id);
    PartitionPlan& p = plan_.partitions[static_cast<std::size_t>(partition_[static_cast<std::size_t>(id)])];
    PlanNode node;
    node.source = id;
    node.inputs = static_cast<std::int32_t>(n.inputs.size());
    node.outputs = static_cast<std::int32_t>(n.outputs.size());
    node.first_input = p.slots;
    node.awaited = node.inputs;
    for (std::int32_t c : n.controls)
      if (!fed_.contains(c)) ++node.awaited;
    p.slots += node.inputs;
    p.max_outputs = std::max(p.max_outputs, node.outputs);
    p.kernels.push_back(make_kernel_of(id, *p.device));
    node.kernel = p.kernels.back().get();
    local_[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(p.nodes.size());
    p.nodes.push_back(node);
  }

  std::unique_ptr<Kernel> make_kernel_of(std::int32_t id, Device& device) {
    const Graph& g = plan_.program.graph;
    const Node& n = g.node(id);
    in_types_.clear(), in_shapes_.clear(), out_types_.clear(), out_shapes_.clear();
    for (Edge e : n.inputs) {
      in_types_.push_back(g.spec(e).dtype);
      in_shapes_.push_back(g.spec(e).shape);
    }
    for (const ValueSpec& s : n.outputs) {
      out_types_.push_back(s.dtype);
      out_shapes_.push_back(s.shape);
    }
    try {
      Ref<State> state = n.state >= 0 ? states_.get(g.states()[static_cast<std::size_t>(n.state)]) : Ref<State>();
      return make_node_kernel(*n.op, KernelSetup{n.op->name, n.attrs, in_types_, in_shapes_, out_types_, out_shapes_, device, n.origin, state});
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("{}: {}", g.describe(id), e.what()));
    }
  }

  // Who uses which output: per output, in order of consumers.
  void collect_targets() {
    const Graph& g = plan_.program.graph;
    users_.resize(static_cast<std::size_t>(g.size()));
    for (std::int32_t id = 0; id < g.size(); ++id) {
      if (fed_.contains(id)) continue;
      const Node& n = g.node(id);
      const PlanNode& mine = node_of(id);
      for (std::size_t i = 0; i < n.inputs.size(); ++i) {
        Edge e = n.inputs[i];
        users_[static_cast<std::size_t>(e.node)].push_back({e.output, id, mine.first_input + static_cast<std::int32_t>(i)});
      }
      for (std::int32_t c : n.controls)
        if (!fed_.contains(c)) users_[static_cast<std::size_t>(c)].push_back({-1, id, Target::kControl});
    }
    for (std::size_t f = 0; f < plan_.program.fetches.size(); ++f) {
      Edge e = plan_.program.fetches[f];
      users_[static_cast<std::size_t>(e.node)].push_back({e.output, -1, static_cast<std::int32_t>(f)});
    }
  }

  // The target as seen from partition `from`.
  Target target_for(std::int32_t from, std::int32_t consumer, std::int32_t slot) {
    if (consumer < 0) return {Target::kFetch, slot};
    std::int32_t to = partition_[static_cast<std::size_t>(consumer)];
    Target local{local_[static_cast<std::size_t>(consumer)], slot};
    if (to == from) return local;
    auto& sends = plan_.partitions[static_cast<std::size_t>(from)].sends;
    sends.push_back({to, local});
    return {Target::kRemote, static_cast<std::int32_t>(sends.size()) - 1};
  }

  void add_targets(std::int32_t id) {
    std::int32_t at = partition_[static_cast<std::size_t>(id)];
    PartitionPlan& p = plan_.partitions[static_cast<std::size_t>(at)];
    PlanNode& node = p.nodes[static_cast<std::size_t>(local_[static_cast<std::size_t>(id)])];
    node.first_output = static_cast<std::int32_t>(p.output_targets.size());
    for (std::int32_t o = 0; o <= node.outputs; ++o) {  // the last round: control edges
      p.output_targets.push_back(static_cast<std::int32_t>(p.targets.size()));
      for (const User& u : users_[static_cast<std::size_t>(id)])
        if (u.output == (o < node.outputs ? o : -1)) p.targets.push_back(target_for(at, u.consumer, u.slot));
    }
    p.output_targets.push_back(static_cast<std::int32_t>(p.targets.size()));
  }

  // A feed is delivered by each partition that uses it; a fed fetch by the first.
  void add_feed(std::int32_t id, std::int32_t index) {
    for (std::size_t q = 0; q < plan_.partitions.size(); ++q) {
      PartitionPlan::Feed feed{index, {}};
      for (const User& u : users_[static_cast<std::size_t>(id)]) {
        if (u.consumer < 0) {
          if (q == 0) feed.targets.push_back({Target::kFetch, u.slot});
        } else if (partition_[static_cast<std::size_t>(u.consumer)] == static_cast<std::int32_t>(q)) {
          feed.targets.push_back({local_[static_cast<std::size_t>(u.consumer)], u.slot});
        }
      }
      if (!feed.targets.empty()) plan_.partitions[q].feeds.push_back(std::move(feed));
    }
  }

  const PlanNode& node_of(std::int32_t id) const {
    return plan_.partitions[static_cast<std::size_t>(partition_[static_cast<std::size_t>(id)])].nodes[static_cast<std::size_t>(
        local_[static_cast<std::size_t>(id)])];
  }

  struct User {
    std::int32_t output;  // -1: control
    std::int32_t consumer;  // -1: fetch
    std::int32_t slot;
  };
  Plan plan_;
  StateStore& states_;
  std::vector<std::int32_t> partition_, local_;
  std::map<std::int32_t, std::int32_t> fed_;
  std::vector<std::vector<User>> users_;
  std::vector<DType> in_types_, out_types_;
  std::vector<Shape> in_shapes_, out_shapes_;
};

}  // namespace

Plan make_plan(Program program, DeviceFinder& devices, const std::string& default_device, StateStore& states) {
  return Planner(std::move(program), devices, default_device, states).make();
}

}  // namespace troupe
