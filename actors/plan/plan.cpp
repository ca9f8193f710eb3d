#include <troupe/actors/plan/plan.hpp>

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include <troupe/actors/placement/placement.hpp>
#include <troupe/actors/plan/cut_edge_credit.hpp>
#include <troupe/actors/plan/plan_calls.hpp>
#include <troupe/actors/plan/plan_draft.hpp>
#include <troupe/actors/plan/plan_kernels.hpp>
#include <troupe/controlflow/resident/resident_loop.hpp>
#include <troupe/ops/graph/made_by.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe::detail {
namespace {

class Planner {
 public:
  Planner(Placed placed, DeviceFinder& devices, StateStore& states) {
    d_.plan_part = std::move(placed.part);
    d_.plan.program = std::move(placed.program);
    d_.plan.keep = std::move(placed.keep);
    d_.plan.edge_bytes = placed.edge_bytes;
    edge_ahead_ = placed.edge_ahead;
    take_feeds();
    d_.plan.check_finite = std::any_of(d_.graph().nodes().begin(), d_.graph().nodes().end(),
                                       [](const Node& n) { return n.attrs.has(kWatched); });
    d_.plan.fetches = static_cast<std::int32_t>(d_.plan.program.fetches.size());
    d_.plan.queues = d_.plan_part ? d_.plan_part->queues : queue_uses(d_.plan.program.graph);
    if (d_.plan_part)
      for (const PlanPart::Wait& w : d_.plan_part->waits)
        d_.plan.ends_queue_waits.emplace(w.node, w.ended_by);
    add_partitions(placed, devices);
    const auto here = nodes_.find(devices.node());
    d_.plan.here = here == nodes_.end() ? -1 : here->second;
    kernels_.emplace(d_.graph(), states);
    d_.frames.emplace(d_.graph(), d_.fed, d_.partition_of);
    if (d_.plan_part) take_outs();
  }

  Plan make() {
    const Graph& g = d_.plan.program.graph;
    const auto frames = static_cast<std::int32_t>(d_.frames->all().size());
    d_.local.resize(at(g.size()), -1);
    d_.held.resize(at(g.size()));
    constants_.resize(d_.plan.partitions.size());
    d_.parts.assign(d_.plan.partitions.size(), std::vector<std::int32_t>(at(frames), -1));
    for (std::size_t q = 0; q < d_.parts.size(); ++q) d_.part(static_cast<std::int32_t>(q), 0);
    find_materialized();
    for (std::int32_t id = 0; id < g.size(); ++id) add(id);
    add_edges(d_);
    add_call_edges(d_.plan, *d_.frames, d_.partition_of, d_.parts);
    set_cut_edge_credit(d_.plan, edge_ahead_);
    for (PartitionPlan& p : d_.plan.partitions) {
      for (FramePlan& f : p.frames) f.invariant_targets.resize(at(f.invariants));
      for (const PartitionPlan::Enter& e : p.enters)
        if (e.invariant >= 0) p.frames[at(e.frame)].invariant_targets[at(e.invariant)] = e.targets;
      for (std::size_t f = 0; f < p.frames.size(); ++f) finish(p, static_cast<std::int32_t>(f));
    }
    if (d_.plan_part) number_ends(d_.plan, *d_.plan_part);
    d_.plan.partition_of = std::move(d_.partition_of);
    return std::move(d_.plan);
  }

 private:
  // A feed that only other nodes' parts use names no node.
  void take_feeds() {
    for (Edge e : d_.plan.program.feeds) {
      if (e.node >= 0) d_.fed.emplace(e.node, static_cast<std::int32_t>(d_.plan.feeds.size()));
      d_.plan.feeds.push_back(e.node >= 0 ? d_.graph().spec(e) : ValueSpec());
      d_.plan.feed_names.push_back(e.node >= 0 ? d_.graph().name_of(e.node) : std::string());
    }
  }

  // Adds one partition a device, in the order of their first nodes. A part of a plan lists them in
  // the order of the whole plan, with partitions that only receive values.
  void add_partitions(const Placed& placed, DeviceFinder& devices) {
    const std::vector<std::string>& names = placed.device;
    std::map<std::string, std::int32_t> index;
    if (d_.plan_part) {
      d_.plan.nodes = d_.plan_part->nodes;
      for (std::size_t i = 0; i < d_.plan.nodes.size(); ++i)
        nodes_.emplace(d_.plan.nodes[i], static_cast<std::int32_t>(i));
      d_.plan.numbers = d_.plan_part->numbers;
      std::map<std::string, std::int32_t> first;
      for (std::size_t id = 0; id < names.size(); ++id)
        first.emplace(names[id], static_cast<std::int32_t>(id));
      for (const PlanPart::Partition& p : d_.plan_part->partitions) {
        index.emplace(p.device, static_cast<std::int32_t>(d_.plan.partitions.size()));
        const auto known = first.find(p.device);
        add_partition(p.device, devices, known != first.end() ? known->second : -1);
        d_.plan.partitions.back().number = p.number;
      }
    }
    d_.partition_of.resize(names.size());
    for (std::size_t id = 0; id < names.size(); ++id) {
      if (id > 0 && names[id] == names[id - 1]) {
        d_.partition_of[id] = d_.partition_of[id - 1];
        continue;
      }
      auto [it, is_new] =
          index.try_emplace(names[id], static_cast<std::int32_t>(d_.plan.partitions.size()));
      if (is_new) add_partition(names[id], devices, static_cast<std::int32_t>(id));
      d_.partition_of[id] = it->second;
    }
    if (d_.plan.partitions.empty()) add_partition(placed.default_device, devices);
    if (d_.plan_part && d_.plan.partitions.size() != d_.plan_part->partitions.size())
      throw Error(Code::data_loss,
                  "a part of a program has nodes in partitions that it does not name");
    d_.plan.partitions_on.resize(d_.plan.nodes.size());
    for (std::size_t q = 0; q < d_.plan.partitions.size(); ++q)
      d_.plan.partitions_on[at(d_.plan.partitions[q].node)].push_back(static_cast<std::int32_t>(q));
  }

  void take_outs() {
    for (const PlanPart::Out& out : d_.plan_part->outs) {
      if (d_.frames->frame(out.node) != 0)
        throw Error(
            Code::data_loss,
            fmt::format("{} leaves a part of a program from inside of a loop that is not in it",
                        d_.graph().describe(out.node)));
      d_.outs[{out.node, out.output}].insert(out.partition);
    }
  }

  void add_partition(const std::string& name, DeviceFinder& devices, std::int32_t first = -1) {
    PartitionPlan& made = d_.plan.partitions.emplace_back();
    made.name = name;
    made.number = static_cast<std::int32_t>(d_.plan.partitions.size()) - 1;
    try {
      made.device = devices.find(name);
    } catch (const Error& e) {
      throw Error(e.code(), first < 0
                                ? e.what()
                                : fmt::format("{}: {}", d_.graph().describe(first), e.what()));
    }
    const auto [node, is_new] = nodes_.try_emplace(std::string(node_of(name)),
                                                   static_cast<std::int32_t>(d_.plan.nodes.size()));
    made.node = node->second;
    if (is_new) d_.plan.nodes.push_back(node->first);
  }

  // A constant whose token itself is used (by a fetch, a Merge, an Enter) is a node after all.
  void find_materialized() {
    d_.is_materialized.resize(at(d_.graph().size()), 0);
    auto mark = [&](Edge e) {
      if (d_.frames->is_constant(e)) d_.is_materialized[at(d_.frames->resolve(e).node)] = 1;
    };
    for (Edge e : d_.plan.program.fetches)
      if (e.node >= 0) mark(e);
    // read for constants only
    for (const auto& [edge, partitions] : d_.outs) d_.is_materialized[at(edge.first)] = 1;
    for (std::int32_t id = 0; id < d_.graph().size(); ++id) {
      Role r = d_.frames->role(id);
      bool needs_tokens = r == Role::merge || r == Role::enter || r == Role::exit ||
                          r == Role::next || r == Role::loop_merge;
      if (!needs_tokens) continue;
      for (Edge e : d_.graph().node(id).inputs) {
        if (d_.frames->is_constant(e) && r != Role::enter && d_.frames->frame(id) != 0)
          throw Error(Code::invalid_argument,
                      fmt::format("{}: its input {} is no value of its loop; take it in with Enter",
                                  d_.graph().describe(id), d_.graph().describe(e.node)));
        mark(e);
      }
    }
  }

  void add(std::int32_t id) {
    const Node& n = d_.graph().node(id);
    std::int32_t q = d_.partition_of[at(id)];
    PartitionPlan& p = d_.partition(q);
    switch (d_.frames->role(id)) {
      case Role::feed:
      case Role::alias: return;
      case Role::enter: {
        d_.part(q, d_.frames->frame(id));  // may make frames: no reference before it
        FramePlan& f = d_.frame_of(id);
        ++f.enters;
        d_.local[at(id)] = static_cast<std::int32_t>(p.enters.size());
        p.enters.push_back({d_.part(q, d_.frames->frame(id)),
                            n.attrs.get<bool>("constant") ? f.invariants++ : -1,
                            {},
                            {}});
        return;
      }
      case Role::exit: {
        std::int32_t inside = d_.part(q, d_.frames->frame(n.inputs[0].node));
        FramePlan& f = p.frames[at(inside)];
        d_.local[at(id)] = static_cast<std::int32_t>(p.exits.size());
        p.exits.push_back({{}, static_cast<std::int32_t>(f.exits.size()), id});
        f.exits.push_back(d_.local[at(id)]);
        return;
      }
      case Role::next:
        d_.part(q, d_.frames->frame(id));
        d_.local[at(id)] = static_cast<std::int32_t>(p.loops.size());
        p.loops.push_back({{}, {}, id, d_.part(q, d_.frames->frame(id))});
        return;
      case Role::loop_merge:
      case Role::argument: d_.part(q, d_.frames->frame(id)); return;
      default: break;
    }
    if (!d_.fires(id)) return;
    d_.part(q, d_.frames->frame(id));
    FramePlan& f = d_.frame_of(id);
    PlanNode node;
    node.source = id;
    node.inputs = static_cast<std::int32_t>(n.inputs.size());
    node.outputs = static_cast<std::int32_t>(n.outputs.size());
    node.first_input = f.slots;
    node.index = p.nodes++;
    f.slots += node.inputs;
    p.max_outputs = std::max(p.max_outputs, node.outputs);
    switch (d_.frames->role(id)) {
      case Role::identity: node.kind = PlanNode::Kind::identity; break;
      case Role::switch_: node.kind = PlanNode::Kind::switch_; break;
      case Role::merge: node.kind = PlanNode::Kind::merge; break;
      case Role::trigger: node.kind = PlanNode::Kind::trigger; break;
      case Role::call: {
        node.kind = PlanNode::Kind::call;
        node.number = static_cast<std::int32_t>(p.calls.size());
        p.calls.push_back({-1, n.origin});  // the frame is set when all frames exist
        break;
      }
      case Role::return_:
        node.kind = PlanNode::Kind::return_;
        node.number = static_cast<std::int32_t>(n.attrs.get<std::int64_t>("index"));
        break;
      default:
        if (!p.device) break;
        p.kernels.push_back(kernels_->make(id, *p.device));
        node.kernel = p.kernels.back().get();
        node.scalars = node.inputs > 0 ? node.kernel->scalar_program() : nullptr;
        node.resident = dynamic_cast<ResidentKernel*>(node.kernel);
        node.makes_list = std::any_of(n.outputs.begin(), n.outputs.end(),
                                      [](const ValueSpec& spec) { return spec.is_list(); });
    }
    if (p.device && !p.device->is_synchronous()) node.rank = rank_of(n);
    if (node.kind == PlanNode::Kind::merge && !n.controls.empty())
      throw Error(
          Code::invalid_argument,
          fmt::format("{}: a Merge cannot have control inputs; give them to an Identity after it",
                      d_.graph().describe(id)));
    for (std::int32_t i = 0; i < node.inputs; ++i)
      if (d_.frames->is_constant(n.inputs[at(i)]) && node.kind != PlanNode::Kind::merge)
        d_.held[at(id)].push_back(
            {node.first_input + i, constant(q, d_.frames->resolve(n.inputs[at(i)]).node), -1});
    d_.local[at(id)] = node.place = static_cast<std::int32_t>(f.nodes.size());
    f.nodes.push_back(node);
  }

  std::int32_t constant(std::int32_t q, std::int32_t id) {
    auto [it, is_new] =
        constants_[at(q)].emplace(id, static_cast<std::int32_t>(d_.partition(q).constants.size()));
    if (is_new) {
      Device* device = d_.partition(q).device;
      d_.partition(q).constants.push_back(device ? constant_on(*device, d_.graph().node(id))
                                                 : Tensor());
    }
    return it->second;
  }

  // Moves the sends among the predicate's targets to `told`: the deciding node broadcasts it.
  // Returns the end of the remaining targets.
  static std::int32_t broadcast_predicate(PartitionPlan& p, FramePlan& frame, TargetRange range) {
    const auto first = p.targets.begin() + range.first, last = p.targets.begin() + range.last;
    if (std::none_of(first, last, [](const Target& t) { return t.is(Destination::predicate); }))
      return range.last;
    const auto others = std::stable_partition(
        first, last, [](const Target& t) { return !t.is(Destination::send); });
    for (auto t = others; t != last; ++t) frame.told.push_back(t->index());
    return static_cast<std::int32_t>(others - p.targets.begin());
  }

  // Called when everything is counted: computes the initial counts of iterations.
  void finish(PartitionPlan& p, std::int32_t number) {
    FramePlan& f = p.frames[at(number)];
    for (PlanNode& n : f.nodes) {
      const std::vector<Held>& held = d_.held[at(n.source)];
      n.first_held = static_cast<std::int32_t>(p.held.size());
      n.held = static_cast<std::int32_t>(held.size());
      p.held.insert(p.held.end(), held.begin(), held.end());
      f.awaited.push_back(n.awaited);
      std::int32_t* const range = p.output_targets.data() + n.first_output;
      for (std::int32_t o = 0; o < n.outputs; ++o)
        range[2 * o + 1] = broadcast_predicate(p, f, {range[2 * o], range[2 * o + 1]});
      n.has_only = n.outputs == 1 && range[1] - range[0] == 1 && range[2] == range[3];
      if (n.has_only) n.only = p.targets[at(range[0])];
    }
    f.steady = f.awaited;
    for (std::size_t v = 0; v < f.invariant_targets.size(); ++v) {
      for (std::int32_t t = f.invariant_targets[v].first; t < f.invariant_targets[v].last; ++t) {
        const Target& target = p.targets[at(t)];
        if (target.is(Destination::control)) --f.steady[at(target.node())];
        else f.forwards.push_back({static_cast<std::int32_t>(v), target});
      }
    }
    for (std::size_t n = 0; n < f.nodes.size(); ++n) {
      if (f.awaited[n] == 0 && number > 0)
        throw Error(Code::invalid_argument,
                    fmt::format("{} is in loop '{}' and waits for nothing of it",
                                d_.graph().describe(f.nodes[n].source), f.name));
      if (f.steady[n] == 0) f.roots.push_back(static_cast<std::int32_t>(n));
    }
  }

  std::int32_t edge_ahead_ = 0;
  PlanDraft d_;
  std::map<std::string, std::int32_t> nodes_;  // by name in the cluster: into Plan::nodes
  std::optional<PlanKernels> kernels_;
  std::vector<std::map<std::int32_t, std::int32_t>> constants_;
};

}  // namespace

Plan make_plan(Placed placed, DeviceFinder& devices, StateStore& states) {
  return Planner(std::move(placed), devices, states).make();
}

Plan make_plan(Program program, DeviceFinder& devices, const std::string& default_device,
               StateStore& states) {
  return make_plan(
      place(std::move(program), {.default_device = default_device, .here = devices.node()}),
      devices, states);
}

}  // namespace troupe::detail
