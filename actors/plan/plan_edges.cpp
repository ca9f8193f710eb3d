#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/plan/plan_draft.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {
namespace {

class EdgeMaker {
 public:
  explicit EdgeMaker(PlanDraft& draft) : d_(draft) {}

  void add() {
    collect_users();
    for (std::int32_t id = 0; id < d_.graph().size(); ++id) add_targets(id);
    add_predicates();
  }

 private:
  struct User {
    std::int32_t output;    // -1: waits for the node, whatever its outputs
    std::int32_t consumer;  // a node; -1: a fetch
    static constexpr std::int32_t kControl = -1;
    std::int32_t slot;  // index of the consumer's input, or of the fetch; or kControl
  };

  // Collects the users of each node that makes tokens, in order of consumers.
  void collect_users() {
    users_.resize(at(d_.graph().size()));
    auto use = [&](Edge e, User u) {
      e = d_.frames->resolve(e);
      u.output = e.output;
      users_[at(e.node)].push_back(u);
    };
    for (std::int32_t id = 0; id < d_.graph().size(); ++id) {
      const Node& n = d_.graph().node(id);
      Role r = d_.frames->role(id);
      if (r == Role::feed || r == Role::alias || r == Role::constant) continue;
      if (r == Role::loop_merge) continue;  // its Enters and NextIterations look its users up
      for (std::size_t i = 0; i < n.inputs.size(); ++i) {
        if (r == Role::next && i == 1) continue;
        bool needs_token =
            r == Role::enter || r == Role::exit || r == Role::next || r == Role::merge;
        if (d_.frames->is_constant(n.inputs[i]) && !needs_token) continue;
        use(n.inputs[i], {0, id, static_cast<std::int32_t>(i)});
      }
      for (std::int32_t c : n.controls) {
        Role rc = d_.frames->role(c);
        if (rc == Role::constant || rc == Role::feed || rc == Role::next) continue;
        if (rc == Role::alias) {
          // An Identity that is only an alias has no token; the control edge uses its source's.
          Edge e = d_.frames->resolve({c, 0});
          if (d_.frames->role(e.node) != Role::constant && d_.frames->role(e.node) != Role::feed)
            users_[at(e.node)].push_back({e.output, id, User::kControl});
          continue;
        }
        bool has_one_token = rc == Role::enter || rc == Role::exit || rc == Role::loop_merge ||
                             rc == Role::argument || leaves_loop_elsewhere(c);
        users_[at(c)].push_back({has_one_token ? 0 : -1, id, User::kControl});
      }
    }
    for (std::size_t f = 0; f < d_.plan.program.fetches.size(); ++f)
      if (d_.plan.program.fetches[f].node >= 0)
        use(d_.plan.program.fetches[f], {0, -1, static_cast<std::int32_t>(f)});
  }

  bool leaves_loop_elsewhere(std::int32_t id) const {
    const Node& n = d_.graph().node(id);
    return d_.plan_part && n.op->name == "Elsewhere" && n.attrs.get<bool>("leaves_loop");
  }

  // The users of an edge in the given partition become targets there.
  TargetRange local_targets(std::int32_t from, std::int32_t output, std::int32_t q) {
    PartitionPlan& p = d_.partition(q);
    TargetRange range{static_cast<std::int32_t>(p.targets.size()), 0};
    for (const User& u : users_[at(from)])
      if (u.output == output &&
          (u.consumer < 0 ? home_of_fetch(from) : d_.partition_of[at(u.consumer)]) == q)
        append_target(p.targets, u, from, q);
    range.last = static_cast<std::int32_t>(p.targets.size());
    return range;
  }

  std::int32_t home_of_fetch(std::int32_t from) const {
    return d_.frames->role(from) == Role::feed ? 0 : d_.partition_of[at(from)];
  }

  void append_target(std::vector<Target>& out, const User& u, std::int32_t from, std::int32_t q) {
    if (u.consumer < 0) {
      if (d_.frames->frame(from) != 0)
        throw Error(
            Code::invalid_argument,
            fmt::format(
                "{} is inside loop '{}': only what leaves it through an Exit can be fetched",
                d_.graph().describe(from), d_.frames->all()[at(d_.frames->frame(from))].name));
      out.push_back(Target::fetch(u.slot));
      return;
    }
    std::int32_t local = d_.local[at(u.consumer)];
    switch (d_.frames->role(u.consumer)) {
      case Role::enter: out.push_back(Target::enter(local)); return;
      case Role::exit: out.push_back(Target::exit(local)); return;
      case Role::next: out.push_back(Target::next(local)); return;
      default: break;
    }
    FramePlan& f = d_.frame_of(u.consumer);
    PlanNode& n = f.nodes[at(local)];
    ++n.awaited;
    if (u.slot == User::kControl) out.push_back(Target::control(local));
    else if (n.kind == PlanNode::Kind::merge) out.push_back(Target::merge(local, u.slot));
    else out.push_back(Target::input(local, n.first_input + u.slot));
    // A constant Enter's value is kept in the instance: only its arrival is counted.
    if (d_.frames->role(from) == Role::enter && d_.graph().node(from).attrs.get<bool>("constant") &&
        u.slot != User::kControl && n.kind != PlanNode::Kind::merge) {
      if (d_.partition_of[at(from)] != q)  // placement puts one on every device
        throw Error(Code::invalid_argument,
                    fmt::format("{}: it takes {}, which is constant in its loop, from another "
                                "device; enter the value there too",
                                d_.graph().describe(u.consumer), d_.graph().describe(from)));
      out.back() = Target::control(local);
      d_.held[at(u.consumer)].push_back(
          {n.first_input + u.slot, -1, d_.partition(q).enters[at(d_.local[at(from)])].invariant});
    }
  }

  /// Returns the users of an edge as targets of its producer's partition. Users in other partitions
  /// are behind a send.
  TargetRange targets_of(std::int32_t from, std::int32_t output) {
    std::int32_t q = d_.partition_of[at(from)];
    static const std::set<std::int32_t> kNone;
    const auto known = d_.outs.find({from, output});
    const std::set<std::int32_t>& outs = known != d_.outs.end() ? known->second : kNone;
    // partition: receive, unless that is in another's part of the plan
    std::map<std::int32_t, std::int32_t> others;
    for (const std::int32_t to : outs) others.emplace(to, -1);
    for (const User& u : users_[at(from)])
      if (u.output == output && u.consumer >= 0 && d_.partition_of[at(u.consumer)] != q)
        others.emplace(d_.partition_of[at(u.consumer)], -1);
    for (auto& [to, receive] : others)
      if (!outs.contains(to))
        receive = add_receive(to, from, output, local_targets(from, output, to));
    TargetRange range = local_targets(from, output, q);
    for (auto [to, receive] : others) {
      if (outs.contains(to)) append_out(range, q, to, from);
      else append_send(range, q, to, receive);
    }
    return range;
  }

  void append_out(TargetRange& range, std::int32_t q, std::int32_t to, std::int32_t from) {
    PartitionPlan& p = d_.partition(q);
    p.sends.push_back({to, 0, 0, from});
    append(range, q, Target::send(static_cast<std::int32_t>(p.sends.size()) - 1));
  }

  std::int32_t add_receive(std::int32_t to, std::int32_t from, std::int32_t output,
                           TargetRange targets) {
    PartitionPlan& p = d_.partition(to);
    std::int32_t frame = d_.part(to, d_.frames->frame(from));
    if (p.frames[at(frame)].depth > Path::kMaxDepth)
      throw Error(
          Code::unimplemented,
          fmt::format("{}: its value goes to another device from inside {} loops, and what travels "
                      "names the iterations of {} at most; "
                      "keep the innermost of them on one device, with graph.on_device around it",
                      d_.graph().describe(from), p.frames[at(frame)].depth, Path::kMaxDepth));
    p.receives.push_back({frame, targets, from, output, 0, 0, p.frames[at(frame)].receives++});
    return static_cast<std::int32_t>(p.receives.size()) - 1;
  }

  void append(TargetRange& range, std::int32_t q, Target target) {
    PartitionPlan& p = d_.partition(q);
    if (range.last != static_cast<std::int32_t>(p.targets.size())) {  // ranges grow at the end only
      std::vector<Target> copy(p.targets.begin() + range.first, p.targets.begin() + range.last);
      range.first = static_cast<std::int32_t>(p.targets.size());
      p.targets.insert(p.targets.end(), copy.begin(), copy.end());
    }
    p.targets.push_back(target);
    range.last = static_cast<std::int32_t>(p.targets.size());
  }

  void append_send(TargetRange& range, std::int32_t q, std::int32_t to, std::int32_t receive) {
    PartitionPlan& p = d_.partition(q);
    PartitionPlan::Receive& there = d_.partition(to).receives[at(receive)];
    const auto send = static_cast<std::int32_t>(p.sends.size());
    p.sends.push_back({to, receive, d_.part(q, d_.frames->frame(there.source)), there.source});
    p.sends.back().output = there.output;
    there.partition = q;
    there.send = send;
    for (std::int32_t f = p.sends.back().frame; f > 0; f = p.frames[at(f)].parent) {
      p.sends.back().place[p.frames[at(f)].depth - 1] =
          static_cast<std::int32_t>(p.frames[at(f)].edges_out.size());
      p.frames[at(f)].edges_out.push_back(send);
    }
    PartitionPlan& other = d_.partition(to);
    for (std::int32_t f = there.frame; f > 0; f = other.frames[at(f)].parent) {
      FramePlan& frame = other.frames[at(f)];
      frame.edges_in.push_back(receive);
      if (std::none_of(frame.senders.begin(), frame.senders.end(), [&](const FramePlan::Sender& s) {
            return other.receives[at(s.receive)].partition == q;
          }))
        frame.senders.push_back({receive});
    }
    append(range, q, Target::send(send));
  }

  void add_targets(std::int32_t id) {
    std::int32_t q = d_.partition_of[at(id)];
    const Node& n = d_.graph().node(id);
    switch (d_.frames->role(id)) {
      case Role::feed:
        // A feed is delivered by each partition that uses it; a fed fetch by the first.
        for (std::size_t k = 0; k < d_.plan.partitions.size(); ++k) {
          TargetRange range = local_targets(id, 0, static_cast<std::int32_t>(k));
          if (range.first != range.last)
            d_.plan.partitions[k].feeds.push_back({d_.fed.at(id), range});
        }
        return;
      case Role::enter: {
        auto [value, chosen] = merge_targets(id, true);
        PartitionPlan::Enter& e = d_.partition(q).enters[at(d_.local[at(id)])];
        e.targets = value, e.index_targets = chosen;
        return;
      }
      case Role::next: {
        auto [value, chosen] = merge_targets(n.inputs[1].node, false);
        PartitionPlan::Loop& l = d_.partition(q).loops[at(d_.local[at(id)])];
        l.targets = value, l.index_targets = chosen;
        return;
      }
      case Role::argument: {
        TargetRange range = targets_of(id, 0);
        d_.frame_of(id)
            .arguments[at(static_cast<std::int32_t>(n.attrs.get<std::int64_t>("index")))] = range;
        return;
      }
      case Role::call: find_callee(id); break;
      case Role::exit: {
        TargetRange range = targets_of(id, 0);
        d_.partition(q).exits[at(d_.local[at(id)])].targets = range;
        return;
      }
      default: break;
    }
    if (!d_.fires(id)) return;
    PartitionPlan& p = d_.partition(q);
    const auto first = static_cast<std::int32_t>(p.output_targets.size());
    const auto outputs = static_cast<std::int32_t>(n.outputs.size());
    for (std::int32_t o = 0; o <= outputs; ++o) {
      const TargetRange range = targets_of(id, o < outputs ? o : -1);
      p.output_targets.push_back(range.first);
      p.output_targets.push_back(range.last);
    }
    d_.frame_of(id).nodes[at(d_.local[at(id)])].first_output = first;
  }

  // The frame of a call's function, which placement has put beside it.
  void find_callee(std::int32_t id) {
    const FunctionDef* function = function_of(d_.graph().node(id));
    PartitionPlan& p = d_.partition(d_.partition_of[at(id)]);
    auto f = std::find_if(p.frames.begin(), p.frames.end(),
                          [&](const FramePlan& frame) { return frame.function == function; });
    if (f == p.frames.end())
      throw Error(Code::internal, fmt::format("{}: function '{}' is on another device",
                                              d_.graph().describe(id), function->name));
    p.calls[at(d_.frame_of(id).nodes[at(d_.local[at(id)])].number)].frame =
        static_cast<std::int32_t>(f - p.frames.begin());
  }

  // The users of a loop's Merge become targets of its Enters and NextIterations. An Enter may also
  // be used without a Merge. The targets of a Merge are made once, because making them counts the
  // awaited tokens.
  std::pair<TargetRange, TargetRange> merge_targets(std::int32_t id, bool is_enter) {
    std::int32_t merge = id;
    if (is_enter) {
      const auto known = enter_merges().find(id);
      if (known == enter_merges().end()) return {targets_of(id, 0), {}};
      merge = known->second;
    }
    auto it = merges_.find(merge);
    if (it == merges_.end())
      it = merges_.emplace(merge, std::pair{targets_of(merge, 0), targets_of(merge, 1)}).first;
    return it->second;
  }

  const std::map<std::int32_t, std::int32_t>& enter_merges() {
    if (!enter_merge_) {
      enter_merge_.emplace();
      for (std::int32_t id = 0; id < d_.graph().size(); ++id)
        if (d_.frames->role(id) == Role::loop_merge)
          for (Edge e : d_.graph().node(id).inputs) (*enter_merge_)[e.node] = id;
    }
    return *enter_merge_;
  }

  // Adds the edges that send a loop's predicate, in every iteration, to each partition with a part
  // of the loop.
  void add_predicates() {
    for (std::size_t frame = 1; frame < d_.frames->all().size(); ++frame) {
      auto parts = std::count_if(d_.parts.begin(), d_.parts.end(),
                                 [&](const auto& of) { return of[frame] >= 0; });
      if (parts > 1 && !d_.frames->all()[frame].function && d_.frames->all()[frame].leader < 0)
        throw Error(
            Code::invalid_argument,
            fmt::format(
                "loop '{}' spans several devices and has no LoopCond to signal its end to them",
                d_.frames->all()[frame].name));
    }
    for (std::int32_t id = 0; id < d_.graph().size(); ++id) {
      if (d_.graph().node(id).op->name != "LoopCond") continue;
      std::int32_t frame = d_.frames->frame(id);
      if (frame <= 0)
        throw Error(Code::invalid_argument, fmt::format("{}: its predicate is no value of a loop",
                                                        d_.graph().describe(id)));
      Edge predicate =
          d_.frames->role(id) == Role::alias ? d_.frames->resolve({id, 0}) : Edge{id, 0};
      for (std::size_t q = 0; q < d_.parts.size(); ++q) {
        std::int32_t part = d_.parts[q][at(frame)];
        if (part < 0) continue;
        FramePlan& f = d_.plan.partitions[q].frames[at(part)];
        if (std::exchange(f.has_predicate, true))
          throw Error(Code::invalid_argument, fmt::format("{}: loop '{}' has another LoopCond",
                                                          d_.graph().describe(id), f.name));
        tell_predicate(predicate, static_cast<std::int32_t>(q));
      }
    }
  }

  void tell_predicate(Edge predicate, std::int32_t to) {
    std::int32_t q = d_.partition_of[at(predicate.node)];
    std::int32_t receive = -1;
    if (to != q) {
      std::vector<PartitionPlan::Receive>& there = d_.partition(to).receives;
      auto known = std::find_if(there.begin(), there.end(), [&](const auto& r) {
        return r.source == predicate.node && r.output == predicate.output;
      });
      if (known != there.end()) {  // a node there uses the predicate, so the edge exists
        known->decides = true;
        return;
      }
      receive = add_receive(to, predicate.node, predicate.output, {});
      there.back().decides = true;
    }
    auto extend = [&](TargetRange& range) {
      if (to != q) append_send(range, q, to, receive);
      else append(range, q, Target::predicate());
    };
    if (d_.frames->role(predicate.node) == Role::loop_merge) {
      auto& [value, chosen] = merges_.at(predicate.node);
      extend(value);
      // its NextIterations and Enters hold copies of the range
      for (std::int32_t id = 0; id < d_.graph().size(); ++id) {
        if (d_.frames->role(id) == Role::next &&
            d_.graph().node(id).inputs[1].node == predicate.node)
          d_.partition(q).loops[at(d_.local[at(id)])].targets = value;
        if (d_.frames->role(id) == Role::enter && enter_merges().contains(id) &&
            enter_merges().at(id) == predicate.node)
          d_.partition(q).enters[at(d_.local[at(id)])].targets = value;
      }
      return;
    }
    // the predicate leaves a loop within this one
    if (d_.frames->role(predicate.node) == Role::exit)
      return extend(d_.partition(q).exits[at(d_.local[at(predicate.node)])].targets);
    if (d_.frames->role(predicate.node) == Role::enter)
      throw Error(Code::invalid_argument,
                  fmt::format("the predicate of loop '{}' is the value that enters its first "
                              "iteration; compute one in each iteration",
                              d_.frames->all()[at(d_.frames->frame(predicate.node))].name));
    const auto first_output =
        at(d_.frame_of(predicate.node).nodes[at(d_.local[at(predicate.node)])].first_output);
    const auto place = first_output + 2 * static_cast<std::size_t>(predicate.output);
    TargetRange range{d_.partition(q).output_targets[place],
                      d_.partition(q).output_targets[place + 1]};
    extend(range);
    d_.partition(q).output_targets[place] = range.first;
    d_.partition(q).output_targets[place + 1] = range.last;
  }

  PlanDraft& d_;
  std::vector<std::vector<User>> users_;
  std::map<std::int32_t, std::pair<TargetRange, TargetRange>> merges_;
  std::optional<std::map<std::int32_t, std::int32_t>> enter_merge_;
};

}  // namespace

void add_edges(PlanDraft& draft) { EdgeMaker(draft).add(); }

}  // namespace troupe
