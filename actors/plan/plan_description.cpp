#include <troupe/actors/plan/plan_description.hpp>

#include <map>
#include <tuple>

#include <fmt/format.h>

#include <troupe/actors/plan/plan.hpp>
#include <troupe/controlflow/resident/resident_loop.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe::detail {

std::uint64_t bytes_of_token(const ValueSpec& spec) {
  if (spec.is_list() || !spec.shape.has_rank()) return 0;
  std::uint64_t bytes = size_of(spec.dtype);
  for (int d = 0; d < spec.shape.rank(); ++d) {
    if (spec.shape[d] == kAny) return 0;
    bytes *= static_cast<std::uint64_t>(spec.shape[d]);
  }
  return bytes;
}

PlanDescription describe(const Plan& plan) {
  PlanDescription d;
  d.name = plan.name;
  const Graph& g = plan.program.graph;
  d.actors.resize(at(g.size()));
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    ActorDescription& a = d.actors[at(id)];
    a.op = n.op->name;
    a.name = g.name_of(id);
    a.scope = n.scope ? *n.scope : std::string();
    if (!a.scope.empty() && a.scope.back() == '/') a.scope.pop_back();
    a.partition = plan.partition_of[at(id)];
    a.device = a.partition >= 0 ? plan.partitions[at(a.partition)].name : std::string();
    a.line = n.site.text();
    a.is_user_actor = n.state >= 0 && g.states()[at(n.state)].kind == StateSpec::Kind::actor;
    constexpr std::size_t kLongest = 200;
    if (a.attributes = n.attrs.text(); a.attributes.size() > kLongest)
      a.attributes.resize(kLongest);
  }
  for (const PartitionPlan& p : plan.partitions)
    for (const FramePlan& f : p.frames)
      for (const PlanNode& n : f.nodes) {
        ActorDescription& a = d.actors[at(n.source)];
        a.frame = f.parent < 0 && !f.function ? std::string() : f.name;
        a.frame_depth = f.depth;
        // A resident loop is the only actor of its frame.
        if (n.resident) a.frame = n.resident->name(), ++a.frame_depth;
      }
  // by partition, source, output
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::int32_t> receives;
  for (std::size_t p = 0; p < plan.partitions.size(); ++p)
    for (std::size_t r = 0; r < plan.partitions[p].receives.size(); ++r) {
      const PartitionPlan::Receive& receive = plan.partitions[p].receives[r];
      receives.emplace(std::tuple{static_cast<std::int32_t>(p), receive.source, receive.output},
                       static_cast<std::int32_t>(r));
    }
  const auto add_edge = [&](std::int32_t from, std::int32_t output, std::int32_t to,
                            std::int32_t input) {
    EdgeDescription& e = d.edges.emplace_back();
    e.from = from, e.output = output, e.to = to, e.input = input;
    e.kind = output < 0   ? EdgeDescription::Kind::control
             : from >= to ? EdgeDescription::Kind::back
                          : EdgeDescription::Kind::data;
    e.is_cut = d.actors[at(from)].partition != d.actors[at(to)].partition;
    if (e.is_cut)
      if (auto it = receives.find({d.actors[at(to)].partition, from, output}); it != receives.end())
        e.receive = it->second;
    if (output < 0) return;
    const ValueSpec& spec = g.spec({from, output});
    e.dtype = std::string(name_of(spec.dtype));
    e.shape = spec.is_list() ? "list of " + spec.shape.text() : spec.shape.text();
    e.bytes = bytes_of_token(spec);
  };
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      // A NextIteration's second input names the Merge that its value goes to in the next
      // iteration.
      if (n.op->name == "NextIteration" && i == 1) add_edge(id, 0, n.inputs[1].node, 1);
      else add_edge(n.inputs[i].node, n.inputs[i].output, id, static_cast<std::int32_t>(i));
    }
    for (std::int32_t c : n.controls) add_edge(c, -1, id, -1);
  }
  return d;
}

// FNV-1a over the facts that a node and the plan's owner must agree on: the destination of each
// token, and how often it is sent.
std::vector<std::uint64_t> fingerprints(const Plan& plan) {
  constexpr std::uint64_t kBasis = 0xCBF29CE484222325ull;
  if (plan.compiled) {  // each node has all of it, and its own instances
    std::uint64_t hash = kBasis ^ plan.partitions.size();
    for (const std::uint64_t of_node : fingerprints(*plan.compiled))
      hash = (hash ^ of_node) * 0x100000001B3ull;
    return std::vector<std::uint64_t>(plan.nodes.size(), hash);
  }
  std::vector<std::uint64_t> all(plan.nodes.size(), kBasis);
  const auto number_of = [&](std::int32_t partition) {
    return plan.partitions[at(partition)].number;
  };
  for (const PartitionPlan& p : plan.partitions) {
    std::uint64_t& hash = all[at(p.node)];
    const auto take = [&](std::initializer_list<std::int64_t> numbers) {
      for (std::int64_t n : numbers)
        hash = (hash ^ static_cast<std::uint64_t>(n)) * 0x100000001B3ull;
    };
    take({p.number, p.nodes, static_cast<std::int64_t>(p.targets.size())});
    for (const FramePlan& f : p.frames)
      take({f.parent, f.depth, f.window, f.known, f.enters, f.receives, f.unfired(),
            static_cast<std::int64_t>(f.key)});
    for (const PartitionPlan::Send& s : p.sends)
      take({number_of(s.partition), s.receive, s.frame, plan.number_of(s.source), s.window});
    for (const PartitionPlan::Receive& r : p.receives)
      take({number_of(r.partition), r.send, r.frame, plan.number_of(r.source), r.output, r.window,
            r.decides, static_cast<std::int64_t>(r.says)});
    for (const PartitionPlan::Feed& f : p.feeds) take({f.index, f.targets.first, f.targets.last});
  }
  return all;
}

}  // namespace troupe::detail
