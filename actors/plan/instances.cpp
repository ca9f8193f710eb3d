#include <troupe/actors/plan/instances.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <troupe/actors/placement/placement.hpp>
#include <troupe/actors/plan/exchange.hpp>
#include <troupe/actors/plan/finite_watch.hpp>
#include <troupe/actors/plan/plan_kernels.hpp>
#include <troupe/controlflow/resident/resident_loop.hpp>
#include <troupe/devices/base/device_name.hpp>
#include <troupe/ops/graph/transfer.hpp>
#include <troupe/ops/mesh/instances.hpp>

namespace troupe::detail {
namespace {

std::size_t part_of_instances(const Plan& plan) {
  const auto it = std::find_if(plan.partitions.begin(), plan.partitions.end(),
                               [](const PartitionPlan& p) { return is_of_instances(p.name); });
  return static_cast<std::size_t>(it - plan.partitions.begin());
}

// The tables of a partition, which refer to the kernels of the original.
PartitionPlan tables_of(const PartitionPlan& p) {
  PartitionPlan made;
  made.name = p.name;
  made.number = p.number;
  made.node = p.node;
  made.device = p.device;
  made.frames = p.frames;
  made.output_targets = p.output_targets;
  made.targets = p.targets;
  made.held = p.held;
  made.constants = p.constants;
  made.enters = p.enters;
  made.exits = p.exits;
  made.loops = p.loops;
  made.calls = p.calls;
  made.sends = p.sends;
  made.receives = p.receives;
  made.feeds = p.feeds;
  made.has_cut_function = p.has_cut_function;
  made.overs = p.overs;
  made.overs_in = p.overs_in;
  made.nodes = p.nodes;
  made.max_outputs = p.max_outputs;
  return made;
}

class InstanceMaker {
 public:
  InstanceMaker(const std::shared_ptr<const Plan>& compiled, DeviceFinder& devices,
                StateStore& states)
      : from_(*compiled), graph_(compiled->program.graph),
        mesh_(*mesh::detail::mesh_of_instances(graph_)), kernels_(graph_, states), states_(states),
        exchange_(std::make_shared<mesh::detail::Exchange>()) {
    made_.name = from_.name;
    made_.program = from_.program;
    made_.compiled = compiled;
    made_.exchange = exchange_;
    made_.partition_of = from_.partition_of;
    made_.nodes = from_.nodes;
    made_.feeds = from_.feeds;
    made_.feed_names = from_.feed_names;
    made_.fetches = from_.fetches;
    made_.queues = from_.queues;
    made_.call_depth = from_.call_depth;
    made_.edge_bytes = from_.edge_bytes;
    made_.check_finite = from_.check_finite;
    const std::size_t all = part_of_instances(from_);
    find_nodes(from_.partitions[all], devices.node());
    for (std::size_t q = 0; q < from_.partitions.size(); ++q)
      made_.partitions.push_back(q == all ? instance(from_.partitions[q], 0, devices)
                                          : once(from_.partitions[q]));
    // The first instance stands in the place of all, where nodes of the program are looked up.
    for (int i = 1; i < mesh_.size(); ++i)
      made_.partitions.push_back(instance(from_.partitions[all], i, devices));
    made_.partitions_on.resize(made_.nodes.size());
    for (std::size_t q = 0; q < made_.partitions.size(); ++q) {
      made_.partitions[q].number = static_cast<std::int32_t>(q);
      made_.partitions_on[static_cast<std::size_t>(made_.partitions[q].node)].push_back(
          static_cast<std::int32_t>(q));
    }
  }

  Plan take() { return std::move(made_); }

 private:
  const Node& node(const PlanNode& n) const { return graph_.node(n.source); }

  void use(PartitionPlan& p, PlanNode& n, std::unique_ptr<Kernel> kernel) {
    n.kernel = kernel.get();
    n.scalars = n.inputs > 0 ? kernel->scalar_program() : nullptr;
    n.resident = dynamic_cast<ResidentKernel*>(n.kernel);
    p.kernels.push_back(std::move(kernel));
  }
  void meet(PartitionPlan& p, PlanNode& n, int instance) {
    try {
      auto kernel =
          make_exchange_kernel(mesh_, nodes_, graph_, node(n), exchange_, instance, *p.device);
      if (node(n).attrs.has(kWatched))
        kernel = std::make_unique<WatchedKernel>(std::move(kernel), node(n));
      use(p, n, std::move(kernel));
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("{}: {}", graph_.describe(n.source), e.what()));
    }
  }

  // All nodes of the cluster number themselves in one order: each has all of the compiled plan.
  void find_nodes(const PartitionPlan& all, const std::string& here) {
    const auto number_of = [&](std::string_view name) {
      auto& names = made_.nodes;
      const auto known = std::find(names.begin(), names.end(), name);
      if (known != names.end()) return static_cast<int>(known - names.begin());
      names.emplace_back(name);
      return static_cast<int>(names.size()) - 1;
    };
    for (int i = 0; i < mesh_.size(); ++i) {
      devices_.push_back(full_name(mesh_.device(i), node_of(all.name)));
      nodes_.of_device.push_back(number_of(node_of(devices_.back())));
    }
    const auto known = std::find(made_.nodes.begin(), made_.nodes.end(), here);
    made_.here =
        known == made_.nodes.end() ? -1 : static_cast<std::int32_t>(known - made_.nodes.begin());
    nodes_.here = made_.here;
    for (std::int32_t id = 0; id < graph_.size(); ++id) {
      const PartitionPlan& p = from_.partitions[static_cast<std::size_t>(
          from_.partition_of[static_cast<std::size_t>(id)])];
      if (mesh::detail::meets_others(graph_.node(id)) && !is_of_instances(p.name))
        nodes_.of_once.emplace(graph_.node(id).attrs.get<std::int64_t>("key"), p.node);
    }
  }

  PartitionPlan once(const PartitionPlan& from) {
    PartitionPlan made = tables_of(from);
    for (FramePlan& f : made.frames)
      for (PlanNode& n : f.nodes)
        if (n.kernel && mesh::detail::meets_others(node(n))) meet(made, n, -1);
    return made;
  }

  PartitionPlan instance(const PartitionPlan& all, int i, DeviceFinder& devices) {
    const auto device = static_cast<std::size_t>(i);
    if (nodes_.of_device[device] != made_.here) return elsewhere(all, device);
    PartitionPlan made = tables_of(all);
    made.name = devices_[device];
    made.node = made_.here;
    made.device = devices.find(made.name);
    const bool is_synchronous = made.device->is_synchronous();
    for (FramePlan& f : made.frames)
      for (PlanNode& n : f.nodes) {
        if (!is_synchronous) n.rank = rank_of(node(n));
        if (!n.kernel) continue;
        const std::int32_t state = node(n).state;
        if (mesh::detail::meets_others(node(n))) meet(made, n, i);
        else if (state >= 0)
          use(made, n, kernels_.make(n.source, *made.device, piece_of(state, i)));
        else if (!is_synchronous) use(made, n, kernels_.make(n.source, *made.device));
      }
    if (!is_synchronous) {
      const auto stream = made.device->compute_stream();
      for (Value& constant : made.constants)
        if (constant.kind() == Value::Kind::tensor)
          copy_to_device(constant.tensor(), *made.device, *stream);
      stream->synchronize();
    }
    return made;
  }
  // An instance on another node, which has its tables. This one knows what to feed it.
  PartitionPlan elsewhere(const PartitionPlan& all, std::size_t device) const {
    PartitionPlan made;
    made.name = devices_[device];
    made.node = nodes_.of_device[device];
    made.feeds = all.feeds;
    return made;
  }
  Ref<State> piece_of(std::int32_t state, int i) {
    return states_.get(mesh::detail::piece_of_instance(
        graph_.states()[static_cast<std::size_t>(state)], mesh_, i));
  }

  const Plan& from_;
  const Graph& graph_;
  const mesh::Mesh& mesh_;
  PlanKernels kernels_;
  StateStore& states_;
  const std::shared_ptr<mesh::detail::Exchange> exchange_;
  std::vector<std::string> devices_;  // the mesh's, in full
  mesh::detail::InstanceNodes nodes_;
  Plan made_;
};

}  // namespace

bool is_of_instances(std::string_view device) {
  return short_name(device) == mesh::detail::kInstances;
}

bool is_of_instances(const Plan& plan, std::int32_t node) {
  if (!plan.compiled) return false;
  const auto partition = plan.compiled->partition_of[static_cast<std::size_t>(node)];
  return is_of_instances(plan.compiled->partitions[static_cast<std::size_t>(partition)].name);
}

bool are_instances_closed(const Placed& placed) {
  const Graph& g = placed.program.graph;
  const auto is_inside = [&](std::int32_t id) {
    return is_of_instances(placed.device[static_cast<std::size_t>(id)]);
  };
  const auto is_anywhere = [&](std::int32_t id) {
    const Node& n = g.node(id);
    return n.op->name == "Input" || (n.op->name == "Constant" && n.controls.empty());
  };
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const auto crosses = [&](std::int32_t from) {
      return is_inside(from) != is_inside(id) && !is_anywhere(from);
    };
    const Node& n = g.node(id);
    if (std::any_of(n.inputs.begin(), n.inputs.end(), [&](Edge e) { return crosses(e.node); }) ||
        std::any_of(n.controls.begin(), n.controls.end(), crosses))
      return false;
  }
  return true;
}

bool has_instances(const Plan& plan) { return part_of_instances(plan) < plan.partitions.size(); }

Plan make_instances(const std::shared_ptr<const Plan>& compiled, DeviceFinder& devices,
                    StateStore& states) {
  const PartitionPlan& all = compiled->partitions[part_of_instances(*compiled)];
  if (!all.sends.empty() || !all.receives.empty())
    throw Error(Code::internal, "the part of all devices of a plan has cut edges");
  return InstanceMaker(compiled, devices, states).take();
}

bool spans_nodes(const mesh::Mesh& mesh, const std::string& here) {
  return std::any_of(mesh.devices().begin(), mesh.devices().end(), [&](const std::string& device) {
    return node_of(device) != here && !node_of(device).empty();
  });
}

void each_state(
    const Plan& plan,
    const std::function<void(std::int32_t id, std::int32_t on, const StateSpec& state)>& use) {
  const Graph& g = plan.program.graph;
  const mesh::Mesh* const mesh = plan.compiled ? mesh::detail::mesh_of_instances(g) : nullptr;
  const std::size_t all = mesh ? part_of_instances(*plan.compiled) : 0;
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const std::int32_t state = g.node(id).state;
    if (state < 0) continue;
    const StateSpec& spec = g.states()[static_cast<std::size_t>(state)];
    const auto at = static_cast<std::size_t>(plan.partition_of[static_cast<std::size_t>(id)]);
    if (!mesh || at != all) {
      use(id, plan.partitions[at].node, spec);
      continue;
    }
    for (int i = 0; i < mesh->size(); ++i) {
      const StateSpec piece = mesh::detail::piece_of_instance(spec, *mesh, i);
      const auto name = std::find(plan.nodes.begin(), plan.nodes.end(), node_of(piece.device));
      use(id, static_cast<std::int32_t>(name - plan.nodes.begin()), piece);
    }
  }
}

bool has_instances_on(const Plan& plan, std::int32_t node) {
  if (!plan.compiled) return false;
  const auto& on = plan.partitions_on[static_cast<std::size_t>(node)];
  const std::size_t all = part_of_instances(*plan.compiled);
  return std::any_of(on.begin(), on.end(), [&](std::int32_t partition) {
    const auto p = static_cast<std::size_t>(partition);
    return p == all || p >= plan.compiled->partitions.size();
  });
}

void cancel_exchanges(const Plan& plan, std::uint64_t run) {
  if (plan.exchange) plan.exchange->cancel(run);
}

}  // namespace troupe::detail
