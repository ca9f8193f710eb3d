#include <troupe/actors/plan/cut_edge_credit.hpp>

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include <troupe/actors/frames/frames.hpp>
#include <troupe/actors/plan/plan.hpp>
#include <troupe/actors/plan/plan_description.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {
namespace {

bool is_small(const Graph& graph, std::int32_t source, std::int32_t output) {
  if (output < 0) return true;
  const ValueSpec& spec = graph.spec({source, output});
  const std::uint64_t bytes = bytes_of_token(spec);
  return bytes > 0 && bytes <= kSmallToken && spec.dtype != DType::string;
}

class Windows {
 public:
  Windows(const Plan& plan, PartitionPlan& partition, std::int32_t ahead)
      : plan_(plan), p_(partition), ahead_(ahead) {}

  void set() {
    find_other_edges(p_.sends);
    for (PartitionPlan::Send& s : p_.sends) s.window = of(s.frame, s.partition);
    others_.clear();
    find_other_edges(p_.receives);
    for (FramePlan& f : p_.frames) f.known = f.window;
    for (PartitionPlan::Receive& r : p_.receives) {
      r.window = of(r.frame, r.partition);
      FramePlan& f = p_.frames[at(r.frame)];
      f.known = std::max(f.known, r.window);
    }
    for (std::size_t f = 0; f < p_.frames.size(); ++f) {
      FramePlan& frame = p_.frames[f];
      const auto window_in = [&](const auto& edge) {
        return at(edge.frame) == f ? edge.window : frame.window;
      };
      for (FramePlan::Sender& s : frame.senders) {
        s.window = window_in(p_.receives[at(s.receive)]);
        s.every = static_cast<std::int32_t>(
            std::bit_floor(static_cast<std::uint32_t>(std::max(4, s.window)) / 4));
      }
      frame.granted.clear();
      for (const std::int32_t send : frame.edges_out)
        frame.granted.push_back(window_in(p_.sends[at(send)]) - 1);
    }
  }

 private:
  // Finds the pairs of frame and partition whose edges keep the frame's iteration window, because
  // one edge is large or belongs to a loop within.
  template <class Edges>
  void find_other_edges(const Edges& edges) {
    for (const auto& e : edges) {
      if (!is_small(plan_.program.graph, e.source, e.output)) others_.emplace(e.frame, e.partition);
      for (std::int32_t f = p_.frames[at(e.frame)].parent; f > 0; f = p_.frames[at(f)].parent)
        others_.emplace(f, e.partition);
    }
  }
  std::int32_t of(std::int32_t frame, std::int32_t partition) const {
    const FramePlan& f = p_.frames[at(frame)];
    const bool may_be_ahead = f.depth > 0 && !f.function && !others_.contains({frame, partition});
    return may_be_ahead ? std::max(f.window, ahead_) : f.window;
  }

  const Plan& plan_;
  PartitionPlan& p_;
  const std::int32_t ahead_;
  std::set<std::pair<std::int32_t, std::int32_t>> others_;  // frame, the other partition
};

}  // namespace

void set_cut_edge_credit(Plan& plan, std::int32_t ahead) {
  const auto most = static_cast<std::int32_t>(std::min<std::int64_t>(ahead, kMostOpen));
  for (PartitionPlan& p : plan.partitions) Windows(plan, p, most).set();
}

}  // namespace troupe
