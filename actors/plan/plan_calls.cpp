#include <troupe/actors/plan/plan_calls.hpp>

#include <troupe/ops/graph/node_index.hpp>

namespace troupe {
namespace {

class CallEdges {
 public:
  CallEdges(Plan& plan, const Frames& frames, const std::vector<std::int32_t>& partition,
            const std::vector<std::vector<std::int32_t>>& parts)
      : plan_(plan), frames_(frames), partition_(partition), parts_(parts) {}

  void add() {
    for (std::size_t frame = 1; frame < frames_.all().size(); ++frame)
      if (frames_.all()[frame].function) add_function(static_cast<std::int32_t>(frame));
    for (PartitionPlan& p : plan_.partitions) name_functions(p);
    for (std::int32_t q = 0; q < partitions(); ++q) {
      const std::int32_t call = of(q).has_cut_function ? outer_call_of(q) : -1;
      if (call < 0) continue;
      for (std::int32_t to = 0; to < partitions(); ++to)
        if (to != q && of(to).has_cut_function)
          of(q).overs.push_back(add_edge(q, to, 0, call, PartitionPlan::Says::over));
    }
  }

 private:
  std::int32_t partitions() const { return static_cast<std::int32_t>(plan_.partitions.size()); }
  PartitionPlan& of(std::int32_t q) { return plan_.partitions[at(q)]; }
  FramePlan& part(std::int32_t q, std::int32_t frame) {
    return of(q).frames[at(parts_[at(q)][at(frame)])];
  }

  void add_function(std::int32_t frame) {
    std::int32_t argument = 0;
    while (frames_.role(argument) != Role::argument || frames_.frame(argument) != frame) ++argument;
    const std::int32_t home = partition_[at(argument)];
    for (std::int32_t q = 0; q < partitions(); ++q) {
      if (parts_[at(q)][at(frame)] < 0) continue;
      FramePlan& mine = part(q, frame);
      mine.home = home;
      if (q == home) continue;
      part(home, frame)
          .begins.push_back(add_edge(home, q, frame, argument, PartitionPlan::Says::begins));
      mine.tells = add_edge(q, home, frame, mine.nodes.empty() ? argument : mine.nodes[0].source,
                            PartitionPlan::Says::ended);
      of(home).has_cut_function = of(q).has_cut_function = true;
    }
  }

  static void name_functions(PartitionPlan& p) {
    const auto function_around = [&](std::int32_t f) {
      while (f > 0 && !p.frames[at(f)].function) f = p.frames[at(f)].parent;
      return f > 0 ? f : -1;
    };
    for (PartitionPlan::Send& s : p.sends) s.function = function_around(s.frame);
    for (PartitionPlan::Receive& r : p.receives) r.function = function_around(r.frame);
    for (FramePlan& f : p.frames)
      if (f.function) f.senders.clear();  // a call has one iteration: nothing to grant
  }

  /// A Call of that partition that is in no function; -1: there is none.
  std::int32_t outer_call_of(std::int32_t q) const {
    const auto& all = frames_.all();
    for (std::int32_t id = 0; id < static_cast<std::int32_t>(partition_.size()); ++id) {
      if (partition_[at(id)] != q || frames_.role(id) != Role::call) continue;
      std::int32_t f = frames_.frame(id);
      while (f > 0 && !all[at(f)].function) f = all[at(f)].parent;
      if (f == 0) return id;
    }
    return -1;
  }

  /// The send; `source`: the node that messages name.
  std::int32_t add_edge(std::int32_t from, std::int32_t to, std::int32_t frame, std::int32_t source,
                        PartitionPlan::Says says) {
    const bool is_over = says == PartitionPlan::Says::over;
    const std::int32_t here = parts_[at(from)][at(frame)], there = parts_[at(to)][at(frame)];
    FramePlan &sender = of(from).frames[at(here)], &receiver = of(to).frames[at(there)];
    const auto send = static_cast<std::int32_t>(of(from).sends.size()),
               receive = static_cast<std::int32_t>(of(to).receives.size());
    of(to).receives.push_back({there,
                               {},
                               source,
                               -1,
                               from,
                               send,
                               is_over ? of(to).overs_in++ : receiver.receives++,
                               false,
                               says,
                               0});
    of(from).sends.push_back({to, receive, here, source, {}});
    if (is_over) return send;
    of(from).sends.back().place[0] = static_cast<std::int32_t>(sender.edges_out.size());
    sender.edges_out.push_back(send);
    receiver.edges_in.push_back(receive);
    return send;
  }

  Plan& plan_;
  const Frames& frames_;
  const std::vector<std::int32_t>& partition_;
  const std::vector<std::vector<std::int32_t>>& parts_;
};

}  // namespace

void add_call_edges(Plan& plan, const Frames& frames, const std::vector<std::int32_t>& partition,
                    const std::vector<std::vector<std::int32_t>>& parts) {
  CallEdges(plan, frames, partition, parts).add();
}

}  // namespace troupe
