#include <troupe/actors/plan.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include <troupe/actors/frames.hpp>
#include <troupe/actors/placement.hpp>
#include <troupe/actors/plan_calls.hpp>
#include <troupe/actors/plan_kernels.hpp>
#include <troupe/actors/plan_part.hpp>
#include <troupe/ops/function_def.hpp>
#include <troupe/ops/node_index.hpp>
#include <troupe/ops/state.hpp>

namespace troupe {
namespace {

class Planner {
 public:
  Planner(Placed placed, DeviceFinder& devices, StateStore& states) : part_(std::move(placed.part)) {
    plan_.program = std::move(placed.program);
    plan_.keep = std::move(placed.keep);
    plan_.edge_bytes = placed.edge_bytes;
    take_feeds();
    plan_.fetches = static_cast<std::int32_t>(plan_.program.fetches.size());
    plan_.queues = part_ ? part_->queues : queue_uses(plan_.program.graph);
    if (part_)
      for (const PlanPart::Wait& w : part_->waits) plan_.ends_queue_waits.emplace(w.node, w.ended_by);
    add_partitions(placed, devices);
    const auto here = nodes_.find(devices.node());
    plan_.here = here == nodes_.end() ? -1 : here->second;
    kernels_.emplace(graph(), states);
    frames_.emplace(graph(), fed_, partition_);
    if (part_) take_outs();
  }

  Plan make() {
    const Graph& g = plan_.program.graph;
    const auto frames = static_cast<std::int32_t>(frames_->all().size());
    local_.resize(at(g.size()), -1);
    held_.resize(at(g.size()));
    constants_.resize(plan_.partitions.size());
    parts_.assign(plan_.partitions.size(), std::vector<std::int32_t>(at(frames), -1));
    for (std::size_t q = 0; q < parts_.size(); ++q) part(static_cast<std::int32_t>(q), 0);
    find_materialized();
    for (std::int32_t id = 0; id < g.size(); ++id) add(id);
    collect_users();
    for (std::int32_t id = 0; id < g.size(); ++id) add_targets(id);
    add_predicates();
    add_call_edges(plan_, *frames_, partition_, parts_);
    for (PartitionPlan& p : plan_.partitions) {
      for (FramePlan& f : p.frames) f.invariant_targets.resize(at(f.invariants));
      for (const PartitionPlan::Enter& e : p.enters)
        if (e.invariant >= 0) p.frames[at(e.frame)].invariant_targets[at(e.invariant)] = e.targets;
      for (std::size_t f = 0; f < p.frames.size(); ++f) finish(p, static_cast<std::int32_t>(f));
    }
    if (part_) number_ends(plan_, *part_);
    plan_.partition_of = std::move(partition_);
    return std::move(plan_);
  }

 private:
  // Those of other nodes' parts alone name no node.
  void take_feeds() {
    for (Edge e : plan_.program.feeds) {
      if (e.node >= 0) fed_.emplace(e.node, static_cast<std::int32_t>(plan_.feeds.size()));
      plan_.feeds.push_back(e.node >= 0 ? graph().spec(e) : ValueSpec());
      plan_.feed_names.push_back(e.node >= 0 ? graph().name_of(e.node) : std::string());
    }
  }

  // One a device, in the order of their first nodes; a part names them in the order of the whole, with those that values only go to.
  void add_partitions(const Placed& placed, DeviceFinder& devices) {
    const std::vector<std::string>& names = placed.device;
    std::map<std::string, std::int32_t> index;
    if (part_) {
      plan_.nodes = part_->nodes;
      for (std::size_t i = 0; i < plan_.nodes.size(); ++i) nodes_.emplace(plan_.nodes[i], static_cast<std::int32_t>(i));
      plan_.numbers = part_->numbers;
      std::map<std::string, std::int32_t> first;
      for (std::size_t id = 0; id < names.size(); ++id) first.emplace(names[id], static_cast<std::int32_t>(id));
      for (const PlanPart::Partition& p : part_->partitions) {
        index.emplace(p.device, static_cast<std::int32_t>(plan_.partitions.size()));
        const auto known = first.find(p.device);
        add_partition(p.device, devices, known != first.end() ? known->second : -1);
        plan_.partitions.back().number = p.number;
      }
    }
    partition_.resize(names.size());
    for (std::size_t id = 0; id < names.size(); ++id) {
      if (id > 0 && names[id] == names[id - 1]) {
        partition_[id] = partition_[id - 1];
        continue;
      }
      auto [it, is_new] = index.try_emplace(names[id], static_cast<std::int32_t>(plan_.partitions.size()));
      if (is_new) add_partition(names[id], devices, static_cast<std::int32_t>(id));
      partition_[id] = it->second;
    }
    if (plan_.partitions.empty()) add_partition(placed.default_device, devices);
    if (part_ && plan_.partitions.size() != part_->partitions.size()) throw Error(Code::data_loss, "a part of a program has nodes in partitions that it does not name");
    plan_.partitions_on.resize(plan_.nodes.size());
    for (std::size_t q = 0; q < plan_.partitions.size(); ++q) plan_.partitions_on[at(plan_.partitions[q].node)].push_back(static_cast<std::int32_t>(q));
  }

  void take_outs() {
    for (const PlanPart::Out& out : part_->outs) {
      if (frames_->frame(out.node) != 0)
        throw Error(Code::data_loss, fmt::format("{} leaves a part of a program from inside of a loop that is not in it", graph().describe(out.node)));
      outs_[{out.node, out.output}].insert(out.partition);
    }
  }

  void add_partition(const std::string& name, DeviceFinder& devices, std::int32_t first = -1) {
    PartitionPlan& made = plan_.partitions.emplace_back();
    made.name = name;
    made.number = static_cast<std::int32_t>(plan_.partitions.size()) - 1;
    try {
      made.device = devices.find(name);
    } catch (const Error& e) {
      throw Error(e.code(), first < 0 ? e.what() : fmt::format("{}: {}", graph().describe(first), e.what()));
    }
    const auto [node, is_new] = nodes_.try_emplace(std::string(node_of(name)), static_cast<std::int32_t>(plan_.nodes.size()));
    made.node = node->second;
    if (is_new) plan_.nodes.push_back(node->first);
  }

  const Graph& graph() const { return plan_.program.graph; }
  PartitionPlan& partition(std::int32_t q) { return plan_.partitions[at(q)]; }
  FramePlan& frame_of(std::int32_t id) { return partition(partition_[at(id)]).frames[at(part(partition_[at(id)], frames_->frame(id)))]; }

  /// The part of a frame that is in a partition; with it come parts of the frames around it.
  std::int32_t part(std::int32_t q, std::int32_t frame) {
    std::int32_t& known = parts_[at(q)][at(frame)];
    if (known >= 0) return known;
    const Frame& f = frames_->all()[at(frame)];
    std::int32_t parent = frame == 0 || f.function ? -1 : part(q, f.parent);
    PartitionPlan& p = partition(q);
    FramePlan made;
    made.name = f.name;
    made.key = f.key;
    made.parent = parent;
    made.depth = f.depth;
    made.window = f.window;
    made.function = f.function;
    if (f.function) made.arguments.resize(f.function->parameters.size());
    if (parent >= 0) made.child_slot = p.frames[at(parent)].children++;
    known = static_cast<std::int32_t>(p.frames.size());
    p.frames.push_back(std::move(made));
    return known;
  }

  // A constant whose token somebody needs as such (a fetch, a Merge, an Enter) is a node after all.
  void find_materialized() {
    is_materialized_.resize(at(graph().size()), 0);
    auto mark = [&](Edge e) {
      if (frames_->is_constant(e)) is_materialized_[at(frames_->resolve(e).node)] = 1;
    };
    for (Edge e : plan_.program.fetches)
      if (e.node >= 0) mark(e);
    for (const auto& [edge, partitions] : outs_) is_materialized_[at(edge.first)] = 1;  // looked at of constants only
    for (std::int32_t id = 0; id < graph().size(); ++id) {
      Role r = frames_->role(id);
      bool needs_tokens = r == Role::merge || r == Role::enter || r == Role::exit || r == Role::next || r == Role::loop_merge;
      if (!needs_tokens) continue;
      for (Edge e : graph().node(id).inputs) {
        if (frames_->is_constant(e) && r != Role::enter && frames_->frame(id) != 0)
          throw Error(Code::invalid_argument, fmt::format("{}: its input {} is no value of its loop; take it in with Enter", graph().describe(id),
                                                          graph().describe(e.node)));
        mark(e);
      }
    }
  }

  bool fires(std::int32_t id) const {
    switch (frames_->role(id)) {
      case Role::kernel:
      case Role::identity:
      case Role::switch_:
      case Role::merge:
      case Role::trigger:
      case Role::call:
      case Role::return_: return true;
      case Role::constant: return is_materialized_[at(id)];
      default: return false;
    }
  }

  void add(std::int32_t id) {
    const Node& n = graph().node(id);
    std::int32_t q = partition_[at(id)];
    PartitionPlan& p = partition(q);
    switch (frames_->role(id)) {
      case Role::feed:
      case Role::alias: return;
      case Role::enter: {
        part(q, frames_->frame(id));  // may make frames: no reference before it
        FramePlan& f = frame_of(id);
        ++f.enters;
        local_[at(id)] = static_cast<std::int32_t>(p.enters.size());
        p.enters.push_back({part(q, frames_->frame(id)), n.attrs.get<bool>("constant") ? f.invariants++ : -1, {}, {}});
        return;
      }
      case Role::exit: {
        std::int32_t inside = part(q, frames_->frame(n.inputs[0].node));
        FramePlan& f = p.frames[at(inside)];
        local_[at(id)] = static_cast<std::int32_t>(p.exits.size());
        p.exits.push_back({{}, static_cast<std::int32_t>(f.exits.size()), id});
        f.exits.push_back(local_[at(id)]);
        return;
      }
      case Role::next:
        part(q, frames_->frame(id));
        local_[at(id)] = static_cast<std::int32_t>(p.loops.size());
        p.loops.push_back({{}, {}, id, part(q, frames_->frame(id))});
        return;
      case Role::loop_merge:
      case Role::argument: part(q, frames_->frame(id)); return;
      default: break;
    }
    if (!fires(id)) return;
    part(q, frames_->frame(id));
    FramePlan& f = frame_of(id);
    PlanNode node;
    node.source = id;
    node.inputs = static_cast<std::int32_t>(n.inputs.size());
    node.outputs = static_cast<std::int32_t>(n.outputs.size());
    node.first_input = f.slots;
    node.index = p.nodes++;
    f.slots += node.inputs;
    p.max_outputs = std::max(p.max_outputs, node.outputs);
    switch (frames_->role(id)) {
      case Role::identity: node.kind = PlanNode::Kind::identity; break;
      case Role::switch_: node.kind = PlanNode::Kind::switch_; break;
      case Role::merge: node.kind = PlanNode::Kind::merge; break;
      case Role::trigger: node.kind = PlanNode::Kind::trigger; break;
      case Role::call: {
        node.kind = PlanNode::Kind::call;
        node.number = static_cast<std::int32_t>(p.calls.size());
        p.calls.push_back({-1, n.origin});  // its frame: when all are there
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
        node.makes_list = std::any_of(n.outputs.begin(), n.outputs.end(), [](const ValueSpec& spec) { return spec.is_list(); });
    }
    if (p.device && !p.device->is_synchronous()) node.rank = rank_of(n);
    if (node.kind == PlanNode::Kind::merge && !n.controls.empty())
      throw Error(Code::invalid_argument, fmt::format("{}: a Merge cannot have control inputs; give them to an Identity after it", graph().describe(id)));
    for (std::int32_t i = 0; i < node.inputs; ++i)
      if (frames_->is_constant(n.inputs[at(i)]) && node.kind != PlanNode::Kind::merge)
        held_[at(id)].push_back({node.first_input + i, constant(q, frames_->resolve(n.inputs[at(i)]).node), -1});
    local_[at(id)] = node.place = static_cast<std::int32_t>(f.nodes.size());
    f.nodes.push_back(node);
  }

  static PlanNode::Rank rank_of(const Node& n) {
    const std::string& op = n.op->name;
    if (op == "ListPop" || op == "ListTake" || op == "ListRead") return PlanNode::Rank::last;
    return !n.outputs.empty() && n.outputs[0].is_list() ? PlanNode::Rank::first : PlanNode::Rank::usual;
  }

  std::int32_t constant(std::int32_t q, std::int32_t id) {
    auto [it, is_new] = constants_[at(q)].emplace(id, static_cast<std::int32_t>(partition(q).constants.size()));
    if (is_new) {
      Device* device = partition(q).device;
      partition(q).constants.push_back(device ? constant_on(*device, graph().node(id)) : Tensor());
    }
    return it->second;
  }

  // ---- targets

  struct User {
    std::int32_t output;    // -1: waits for the node, whatever its outputs
    std::int32_t consumer;  // a node; -1: a fetch
    std::int32_t slot;      // of the consumer's input, or the fetch; kControl
  };

  // Who uses which output of what makes tokens, in order of consumers.
  void collect_users() {
    users_.resize(at(graph().size()));
    auto use = [&](Edge e, User u) {
      e = frames_->resolve(e);
      u.output = e.output;
      users_[at(e.node)].push_back(u);
    };
    for (std::int32_t id = 0; id < graph().size(); ++id) {
      const Node& n = graph().node(id);
      Role r = frames_->role(id);
      if (r == Role::feed || r == Role::alias || r == Role::constant) continue;
      if (r == Role::loop_merge) continue;  // its Enters and NextIterations look its users up
      for (std::size_t i = 0; i < n.inputs.size(); ++i) {
        if (r == Role::next && i == 1) continue;
        bool needs_token = r == Role::enter || r == Role::exit || r == Role::next || r == Role::merge;
        if (frames_->is_constant(n.inputs[i]) && !needs_token) continue;
        use(n.inputs[i], {0, id, static_cast<std::int32_t>(i)});
      }
      for (std::int32_t c : n.controls) {
        Role rc = frames_->role(c);
        if (rc == Role::constant || rc == Role::feed || rc == Role::next) continue;
        if (rc == Role::alias) {
          // Of an Identity that only repeats: its source's token, for it has none of its own.
          Edge e = frames_->resolve({c, 0});
          if (frames_->role(e.node) != Role::constant && frames_->role(e.node) != Role::feed) users_[at(e.node)].push_back({e.output, id, Target::kControl});
          continue;
        }
        bool has_one_token = rc == Role::enter || rc == Role::exit || rc == Role::loop_merge || rc == Role::argument || leaves_loop_elsewhere(c);
        users_[at(c)].push_back({has_one_token ? 0 : -1, id, Target::kControl});
      }
    }
    for (std::size_t f = 0; f < plan_.program.fetches.size(); ++f)
      if (plan_.program.fetches[f].node >= 0) use(plan_.program.fetches[f], {0, -1, static_cast<std::int32_t>(f)});
  }

  bool leaves_loop_elsewhere(std::int32_t id) const {
    const Node& n = graph().node(id);
    return part_ && n.op->name == "Elsewhere" && n.attrs.get<bool>("leaves_loop");
  }

  // The users of an edge in the given partition become targets there.
  TargetRange local_targets(std::int32_t from, std::int32_t output, std::int32_t q) {
    PartitionPlan& p = partition(q);
    TargetRange range{static_cast<std::int32_t>(p.targets.size()), 0};
    for (const User& u : users_[at(from)])
      if (u.output == output && (u.consumer < 0 ? home_of_fetch(from) : partition_[at(u.consumer)]) == q) append_target(p.targets, u, from, q);
    range.last = static_cast<std::int32_t>(p.targets.size());
    return range;
  }

  std::int32_t home_of_fetch(std::int32_t from) const { return frames_->role(from) == Role::feed ? 0 : partition_[at(from)]; }

  void append_target(std::vector<Target>& out, const User& u, std::int32_t from, std::int32_t q) {
    if (u.consumer < 0) {
      if (frames_->frame(from) != 0)
        throw Error(Code::invalid_argument, fmt::format("{} is inside loop '{}': only what leaves it through an Exit can be fetched",
                                                        graph().describe(from), frames_->all()[at(frames_->frame(from))].name));
      out.push_back({Target::kFetch, u.slot});
      return;
    }
    std::int32_t local = local_[at(u.consumer)];
    switch (frames_->role(u.consumer)) {
      case Role::enter: out.push_back({Target::kEnter, local}); return;
      case Role::exit: out.push_back({Target::kExit, local}); return;
      case Role::next: out.push_back({Target::kNext, local}); return;
      default: break;
    }
    FramePlan& f = frame_of(u.consumer);
    PlanNode& n = f.nodes[at(local)];
    ++n.awaited;
    if (u.slot == Target::kControl) out.push_back({local, Target::kControl});
    else if (n.kind == PlanNode::Kind::merge) out.push_back({local, Target::kMerge - u.slot});
    else out.push_back({local, n.first_input + u.slot});
    // A constant Enter's value is held by the instance: only its arrival is counted.
    if (frames_->role(from) == Role::enter && graph().node(from).attrs.get<bool>("constant") && u.slot != Target::kControl &&
        n.kind != PlanNode::Kind::merge) {
      if (partition_[at(from)] != q)  // placement puts one on every device
        throw Error(Code::invalid_argument, fmt::format("{}: it takes {}, which is constant in its loop, from another device; enter the value there too",
                                                        graph().describe(u.consumer), graph().describe(from)));
      out.back().slot = Target::kControl;
      held_[at(u.consumer)].push_back({n.first_input + u.slot, -1, partition(q).enters[at(local_[at(from)])].invariant});
    }
  }

  /// The users of an edge as targets of its producer's partition, those elsewhere behind a send.
  TargetRange targets_of(std::int32_t from, std::int32_t output) {
    std::int32_t q = partition_[at(from)];
    static const std::set<std::int32_t> kNone;
    const auto known = outs_.find({from, output});
    const std::set<std::int32_t>& outs = known != outs_.end() ? known->second : kNone;
    std::map<std::int32_t, std::int32_t> others;  // partition: receive, unless that is in another's part of the plan
    for (const std::int32_t to : outs) others.emplace(to, -1);
    for (const User& u : users_[at(from)])
      if (u.output == output && u.consumer >= 0 && partition_[at(u.consumer)] != q) others.emplace(partition_[at(u.consumer)], -1);
    for (auto& [to, receive] : others)
      if (!outs.contains(to)) receive = add_receive(to, from, output, local_targets(from, output, to));
    TargetRange range = local_targets(from, output, q);
    for (auto [to, receive] : others) {
      if (outs.contains(to)) append_out(range, q, to, from);
      else append_send(range, q, to, receive);
    }
    return range;
  }

  void append_out(TargetRange& range, std::int32_t q, std::int32_t to, std::int32_t from) {
    PartitionPlan& p = partition(q);
    p.sends.push_back({to, 0, 0, from});
    append(range, q, {Target::kRemote, static_cast<std::int32_t>(p.sends.size()) - 1});
  }

  std::int32_t add_receive(std::int32_t to, std::int32_t from, std::int32_t output, TargetRange targets) {
    PartitionPlan& p = partition(to);
    std::int32_t frame = part(to, frames_->frame(from));
    if (p.frames[at(frame)].depth > Path::kMaxDepth)
      throw Error(Code::unimplemented, fmt::format("{}: its value goes to another device from inside {} loops, and what travels names the iterations of {} at most; "
                                                   "keep the innermost of them on one device, with graph.on_device around it",
                                                   graph().describe(from), p.frames[at(frame)].depth, Path::kMaxDepth));
    p.receives.push_back({frame, targets, from, output, 0, 0, p.frames[at(frame)].receives++});
    return static_cast<std::int32_t>(p.receives.size()) - 1;
  }

  void append(TargetRange& range, std::int32_t q, Target target) {
    PartitionPlan& p = partition(q);
    if (range.last != static_cast<std::int32_t>(p.targets.size())) {  // ranges grow at the end only
      std::vector<Target> copy(p.targets.begin() + range.first, p.targets.begin() + range.last);
      range.first = static_cast<std::int32_t>(p.targets.size());
      p.targets.insert(p.targets.end(), copy.begin(), copy.end());
    }
    p.targets.push_back(target);
    range.last = static_cast<std::int32_t>(p.targets.size());
  }

  void append_send(TargetRange& range, std::int32_t q, std::int32_t to, std::int32_t receive) {
    PartitionPlan& p = partition(q);
    PartitionPlan::Receive& there = partition(to).receives[at(receive)];
    const auto send = static_cast<std::int32_t>(p.sends.size());
    p.sends.push_back({to, receive, part(q, frames_->frame(there.source)), there.source});
    there.partition = q;
    there.send = send;
    for (std::int32_t f = p.sends.back().frame; f > 0; f = p.frames[at(f)].parent) {
      p.sends.back().place[p.frames[at(f)].depth - 1] = static_cast<std::int32_t>(p.frames[at(f)].edges_out.size());
      p.frames[at(f)].edges_out.push_back(send);
    }
    PartitionPlan& other = partition(to);
    for (std::int32_t f = there.frame; f > 0; f = other.frames[at(f)].parent) {
      FramePlan& frame = other.frames[at(f)];
      frame.edges_in.push_back(receive);
      if (std::none_of(frame.senders.begin(), frame.senders.end(), [&](std::int32_t r) { return other.receives[at(r)].partition == q; })) frame.senders.push_back(receive);
    }
    append(range, q, {Target::kRemote, send});
  }

  void add_targets(std::int32_t id) {
    std::int32_t q = partition_[at(id)];
    const Node& n = graph().node(id);
    switch (frames_->role(id)) {
      case Role::feed:
        // A feed is delivered by each partition that uses it; a fed fetch by the first.
        for (std::size_t k = 0; k < plan_.partitions.size(); ++k) {
          TargetRange range = local_targets(id, 0, static_cast<std::int32_t>(k));
          if (range.first != range.last) plan_.partitions[k].feeds.push_back({fed_.at(id), range});
        }
        return;
      case Role::enter: {
        auto [value, chosen] = merge_targets(id, true);
        PartitionPlan::Enter& e = partition(q).enters[at(local_[at(id)])];
        e.targets = value, e.index_targets = chosen;
        return;
      }
      case Role::next: {
        auto [value, chosen] = merge_targets(n.inputs[1].node, false);
        PartitionPlan::Loop& l = partition(q).loops[at(local_[at(id)])];
        l.targets = value, l.index_targets = chosen;
        return;
      }
      case Role::argument: {
        TargetRange range = targets_of(id, 0);
        frame_of(id).arguments[at(static_cast<std::int32_t>(n.attrs.get<std::int64_t>("index")))] = range;
        return;
      }
      case Role::call: find_callee(id); break;
      case Role::exit: {
        TargetRange range = targets_of(id, 0);
        partition(q).exits[at(local_[at(id)])].targets = range;
        return;
      }
      default: break;
    }
    if (!fires(id)) return;
    PartitionPlan& p = partition(q);
    const auto first = static_cast<std::int32_t>(p.output_targets.size());
    const auto outputs = static_cast<std::int32_t>(n.outputs.size());
    for (std::int32_t o = 0; o <= outputs; ++o) {
      const TargetRange range = targets_of(id, o < outputs ? o : -1);
      p.output_targets.push_back(range.first);
      p.output_targets.push_back(range.last);
    }
    frame_of(id).nodes[at(local_[at(id)])].first_output = first;
  }

  // The frame of a call's function, which placement has put beside it.
  void find_callee(std::int32_t id) {
    const FunctionDef* function = function_of(graph().node(id));
    PartitionPlan& p = partition(partition_[at(id)]);
    auto f = std::find_if(p.frames.begin(), p.frames.end(), [&](const FramePlan& frame) { return frame.function == function; });
    if (f == p.frames.end()) throw Error(Code::internal, fmt::format("{}: function '{}' is on another device", graph().describe(id), function->name));
    p.calls[at(frame_of(id).nodes[at(local_[at(id)])].number)].frame = static_cast<std::int32_t>(f - p.frames.begin());
  }

  // Whoever uses the Merge of a loop gets what its Enters and NextIterations bring. An Enter may also
  // be used without a Merge. The targets of a Merge are made once: they count what is awaited.
  std::pair<TargetRange, TargetRange> merge_targets(std::int32_t id, bool is_enter) {
    std::int32_t merge = id;
    if (is_enter) {
      const auto known = enter_merges().find(id);
      if (known == enter_merges().end()) return {targets_of(id, 0), {}};
      merge = known->second;
    }
    auto it = merges_.find(merge);
    if (it == merges_.end()) it = merges_.emplace(merge, std::pair{targets_of(merge, 0), targets_of(merge, 1)}).first;
    return it->second;
  }

  const std::map<std::int32_t, std::int32_t>& enter_merges() {
    if (!enter_merge_) {
      enter_merge_.emplace();
      for (std::int32_t id = 0; id < graph().size(); ++id)
        if (frames_->role(id) == Role::loop_merge)
          for (Edge e : graph().node(id).inputs) (*enter_merge_)[e.node] = id;
    }
    return *enter_merge_;
  }

  // Each partition that has part of a loop is told the predicate of every iteration.
  void add_predicates() {
    for (std::size_t frame = 1; frame < frames_->all().size(); ++frame) {
      auto parts = std::count_if(parts_.begin(), parts_.end(), [&](const auto& of) { return of[frame] >= 0; });
      if (parts > 1 && !frames_->all()[frame].function && frames_->all()[frame].leader < 0)
        throw Error(Code::invalid_argument, fmt::format("loop '{}' spans several devices and has no LoopCond to tell them when it ends",
                                                        frames_->all()[frame].name));
    }
    for (std::int32_t id = 0; id < graph().size(); ++id) {
      if (graph().node(id).op->name != "LoopCond") continue;
      std::int32_t frame = frames_->frame(id);
      if (frame <= 0) throw Error(Code::invalid_argument, fmt::format("{}: its predicate is no value of a loop", graph().describe(id)));
      Edge predicate = frames_->role(id) == Role::alias ? frames_->resolve({id, 0}) : Edge{id, 0};
      for (std::size_t q = 0; q < parts_.size(); ++q) {
        std::int32_t part = parts_[q][at(frame)];
        if (part < 0) continue;
        FramePlan& f = plan_.partitions[q].frames[at(part)];
        if (std::exchange(f.has_predicate, true))
          throw Error(Code::invalid_argument, fmt::format("{}: loop '{}' has another LoopCond", graph().describe(id), f.name));
        tell_predicate(predicate, static_cast<std::int32_t>(q));
      }
    }
  }

  void tell_predicate(Edge predicate, std::int32_t to) {
    std::int32_t q = partition_[at(predicate.node)];
    std::int32_t receive = -1;
    if (to != q) {
      std::vector<PartitionPlan::Receive>& there = partition(to).receives;
      auto known = std::find_if(there.begin(), there.end(), [&](const auto& r) { return r.source == predicate.node && r.output == predicate.output; });
      if (known != there.end()) {  // it goes there anyway, to a node
        known->decides = true;
        return;
      }
      receive = add_receive(to, predicate.node, predicate.output, {});
      there.back().decides = true;
    }
    auto extend = [&](TargetRange& range) {
      if (to != q) append_send(range, q, to, receive);
      else append(range, q, {Target::kPredicate, 0});
    };
    if (frames_->role(predicate.node) == Role::loop_merge) {
      auto& [value, chosen] = merges_.at(predicate.node);
      extend(value);
      for (std::int32_t id = 0; id < graph().size(); ++id) {  // those who bring it hold copies of the range
        if (frames_->role(id) == Role::next && graph().node(id).inputs[1].node == predicate.node) partition(q).loops[at(local_[at(id)])].targets = value;
        if (frames_->role(id) == Role::enter && enter_merges().contains(id) && enter_merges().at(id) == predicate.node)
          partition(q).enters[at(local_[at(id)])].targets = value;
      }
      return;
    }
    if (frames_->role(predicate.node) == Role::enter)
      throw Error(Code::invalid_argument, fmt::format("the predicate of loop '{}' is a constant of it: it never ends", frames_->all()[at(frames_->frame(predicate.node))].name));
    const auto first_output = at(frame_of(predicate.node).nodes[at(local_[at(predicate.node)])].first_output);
    const auto place = first_output + 2 * static_cast<std::size_t>(predicate.output);
    TargetRange range{partition(q).output_targets[place], partition(q).output_targets[place + 1]};
    extend(range);
    partition(q).output_targets[place] = range.first;
    partition(q).output_targets[place + 1] = range.last;
  }

  // Everything is counted: what records start from.
  void finish(PartitionPlan& p, std::int32_t number) {
    FramePlan& f = p.frames[at(number)];
    for (PlanNode& n : f.nodes) {
      const std::vector<Held>& held = held_[at(n.source)];
      n.first_held = static_cast<std::int32_t>(p.held.size());
      n.held = static_cast<std::int32_t>(held.size());
      p.held.insert(p.held.end(), held.begin(), held.end());
      f.awaited.push_back(n.awaited);
      const std::int32_t* range = p.output_targets.data() + n.first_output;
      n.has_only = n.outputs == 1 && range[1] - range[0] == 1 && range[2] == range[3];
      if (n.has_only) n.only = p.targets[at(range[0])];
    }
    f.steady = f.awaited;
    for (std::size_t v = 0; v < f.invariant_targets.size(); ++v) {
      for (std::int32_t t = f.invariant_targets[v].first; t < f.invariant_targets[v].last; ++t) {
        const Target& target = p.targets[at(t)];
        if (target.node >= 0 && target.slot == Target::kControl) --f.steady[at(target.node)];
        else f.forwards.push_back({static_cast<std::int32_t>(v), target});
      }
    }
    for (std::size_t n = 0; n < f.nodes.size(); ++n) {
      if (f.awaited[n] == 0 && number > 0)
        throw Error(Code::invalid_argument, fmt::format("{} is in loop '{}' and waits for nothing of it", graph().describe(f.nodes[n].source), f.name));
      if (f.steady[n] == 0) f.roots.push_back(static_cast<std::int32_t>(n));
    }
  }

  Plan plan_;
  const std::shared_ptr<const PlanPart> part_;  // null: the program is whole
  std::map<std::pair<std::int32_t, std::int32_t>, std::set<std::int32_t>> outs_;  // node, output: partitions of other nodes
  std::map<std::string, std::int32_t> nodes_;  // of the cluster: into Plan::nodes
  std::optional<PlanKernels> kernels_;
  std::optional<Frames> frames_;
  std::vector<std::int32_t> partition_;
  std::vector<std::int32_t> local_;  // a node's place: in its frame, or among enters, exits, loops
  std::vector<char> is_materialized_;
  std::vector<std::vector<std::int32_t>> parts_;  // partition, frame: the part
  std::vector<std::map<std::int32_t, std::int32_t>> constants_;
  std::map<std::int32_t, std::int32_t> fed_;
  std::vector<std::vector<User>> users_;
  std::vector<std::vector<Held>> held_;  // of each node
  std::map<std::int32_t, std::pair<TargetRange, TargetRange>> merges_;
  std::optional<std::map<std::int32_t, std::int32_t>> enter_merge_;
};

}  // namespace

Plan make_plan(Placed placed, DeviceFinder& devices, StateStore& states) { return Planner(std::move(placed), devices, states).make(); }

Plan make_plan(Program program, DeviceFinder& devices, const std::string& default_device, StateStore& states) {
  return make_plan(place(std::move(program), {.default_device = default_device, .here = devices.node()}), devices, states);
}

}  // namespace troupe
