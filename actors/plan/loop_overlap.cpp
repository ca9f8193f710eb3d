#include <troupe/actors/plan/loop_overlap.hpp>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <troupe/ops/graph/node_index.hpp>

namespace troupe {
namespace {

class Overlap {
 public:
  Overlap(const Forecaster& forecaster, const Graph& graph, const CostModel& model,
          const std::vector<std::int32_t>& device, std::int32_t frame)
      : forecaster_(forecaster), g_(graph), model_(model), items_(forecaster.items(frame)),
        frame_(frame) {
    for (const Forecaster::Item& item : items_) {
      // a loop within counts where it begins
      std::int32_t node = item.node;
      if (node < 0)
        for (const std::int32_t n : forecaster.nodes_within(item.frame))
          if (device[at(n)] >= 0) {
            node = n;
            break;
          }
      const std::int32_t where = node < 0 ? -1 : device[at(node)];
      where_.push_back(where);
      ns_.push_back(where < 0 ? 0 : forecaster.item_ns(item, at(where)));
    }
  }

  LoopOverlap result() const {
    LoopOverlap r;
    r.frame = frame_;
    std::map<std::size_t, double> busy;
    for (std::size_t i = 0; i < items_.size(); ++i)
      if (where_[i] >= 0 && ns_[i] > 0) busy[at(where_[i])] += ns_[i];
    r.busy_ns.assign(busy.begin(), busy.end());
    for (const auto& [device, ns] : r.busy_ns)
      if (ns > r.period_ns) r.period_ns = ns, r.limit = model_.devices()[device];
    const std::vector<double> ends = longest_from(-1);
    r.length_ns = ends.empty() ? 0 : *std::max_element(ends.begin(), ends.end());
    const int window = forecaster_.frames().all()[at(frame_)].window;
    if (r.length_ns / window > r.period_ns)
      r.period_ns = r.length_ns / window,
      r.limit =
          window == 1 ? "one iteration at a time" : fmt::format("{} iterations at a time", window);
    for (std::size_t i = 0; i < items_.size(); ++i)
      if (const double ns = recurrence(i); ns > r.period_ns)
        r.period_ns = ns, r.limit = "the variable of " + g_.describe(items_[i].node);
    return r;
  }

 private:
  // The time from a loop variable's value to its next one.
  double recurrence(std::size_t merge) const {
    const std::int32_t id = items_[merge].node;
    if (id < 0 || forecaster_.frames().role(id) != Role::loop_merge) return 0;
    const std::vector<double> ends = longest_from(static_cast<std::int32_t>(merge));
    for (std::size_t i = 0; i < items_.size(); ++i)
      if (const std::int32_t n = items_[i].node;
          n >= 0 && forecaster_.frames().role(n) == Role::next && g_.node(n).inputs[1].node == id)
        return std::max(0.0, ends[i]);
    return 0;
  }

  // By item, the end of the longest path to it from one item, or from any (-1); negative: none.
  std::vector<double> longest_from(std::int32_t first) const {
    std::vector<double> end(items_.size(), first < 0 ? 0 : -1);
    for (std::size_t i = 0; i < items_.size(); ++i) {
      double start = first < 0 || at(first) == i ? 0 : -1;
      for (const Forecaster::In& in : forecaster_.inputs_of(frame_, i)) {
        if (end[at(in.from)] < 0) continue;
        const bool crosses =
            where_[at(in.from)] >= 0 && where_[i] >= 0 && where_[at(in.from)] != where_[i];
        start = std::max(start, end[at(in.from)] +
                                    (crosses ? model_.transfer_ns(in.bytes, at(where_[at(in.from)]),
                                                                  at(where_[i]))
                                             : 0));
      }
      end[i] = start < 0 ? -1 : start + ns_[i];
    }
    return end;
  }

  const Forecaster& forecaster_;
  const Graph& g_;
  const CostModel& model_;
  const std::vector<Forecaster::Item>& items_;
  const std::int32_t frame_;
  std::vector<std::int32_t> where_;  // by item: its device; negative: none
  std::vector<double> ns_;           // by item
};

}  // namespace

double LoopOverlap::bubble(double iterations) const {
  double busy = 0;
  for (const auto& [device, ns] : busy_ns) busy += ns;
  const double all =
      static_cast<double>(busy_ns.size()) * (length_ns + std::max(0.0, iterations - 1) * period_ns);
  return all > 0 ? std::max(0.0, 1 - iterations * busy / all) : 0;
}

std::vector<LoopOverlap> loop_overlaps(const Forecaster& forecaster, const Graph& graph,
                                       const CostModel& model,
                                       const std::vector<std::int32_t>& device) {
  std::vector<LoopOverlap> found;
  const std::vector<Frame>& frames = forecaster.frames().all();
  for (std::size_t f = 1; f < frames.size(); ++f) {
    if (frames[f].function) continue;
    LoopOverlap o =
        Overlap(forecaster, graph, model, device, static_cast<std::int32_t>(f)).result();
    if (o.busy_ns.size() > 1) found.push_back(std::move(o));
  }
  return found;
}

}  // namespace troupe
