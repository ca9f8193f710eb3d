#include <troupe/actors/plan_windows.hpp>

#include <algorithm>

#include <troupe/actors/plan.hpp>
#include <troupe/actors/plan_description.hpp>
#include <troupe/ops/node_index.hpp>

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
  Windows(const Plan& plan, PartitionPlan& partition, std::int32_t ahead) : plan_(plan), p_(partition), ahead_(ahead) {}

  void set() {
    for (PartitionPlan::Send& s : p_.sends) s.window = of(s.frame, p_.sends, s.partition, p_.frames[at(s.frame)].edges_out);
    for (PartitionPlan::Receive& r : p_.receives) r.window = of(r.frame, p_.receives, r.partition, p_.frames[at(r.frame)].edges_in);
    for (std::size_t f = 0; f < p_.frames.size(); ++f) {
      FramePlan& frame = p_.frames[f];
      const auto window_in = [&](const auto& edge) { return at(edge.frame) == f ? edge.window : frame.window; };
      frame.known = frame.window;
      for (const PartitionPlan::Receive& r : p_.receives)
        if (at(r.frame) == f) frame.known = std::max(frame.known, r.window);
      for (FramePlan::Sender& s : frame.senders) s.window = window_in(p_.receives[at(s.receive)]);
      frame.granted.clear();
      for (const std::int32_t send : frame.edges_out) frame.granted.push_back(window_in(p_.sends[at(send)]) - 1);
    }
  }

 private:
  // Of the edges of a frame between this partition and another.
  template <class Edges>
  std::int32_t of(std::int32_t frame, const Edges& edges, std::int32_t other, const std::vector<std::int32_t>& of_frame) const {
    const FramePlan& f = p_.frames[at(frame)];
    const auto is_in_the_way = [&](std::int32_t e) {
      const auto& edge = edges[at(e)];
      return edge.partition == other && (edge.frame != frame || !is_small(plan_.program.graph, edge.source, edge.output));
    };
    const bool may_be_ahead = f.depth > 0 && !f.function && std::none_of(of_frame.begin(), of_frame.end(), is_in_the_way);
    return may_be_ahead ? std::max(f.window, ahead_) : f.window;
  }

  const Plan& plan_;
  PartitionPlan& p_;
  const std::int32_t ahead_;
};

}  // namespace

void set_windows(Plan& plan, std::int32_t ahead) {
  for (PartitionPlan& p : plan.partitions) Windows(plan, p, ahead).set();
}

}  // namespace troupe
