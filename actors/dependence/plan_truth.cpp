#include <troupe/actors/dependence/plan_truth.hpp>

#include <set>
#include <vector>

#include <troupe/devices/base/device_name.hpp>

namespace troupe::dependence {

Edges plan_truth(const detail::PlanDescription& plan, const std::string& node,
                 const std::map<ChannelPlace, std::string>& channels) {
  const auto is_here = [&](std::int32_t actor) {
    return node_of(plan.actors[static_cast<std::size_t>(actor)].device) == node;
  };
  std::map<ChannelPlace, std::vector<ChannelPlace>> after;
  for (const detail::EdgeDescription& e : plan.edges) {
    ChannelPlace last{e.from, 'k'};
    const auto go = [&](ChannelPlace next) {
      after[last].push_back(next);
      last = next;
    };
    if (is_here(e.from) && e.is_cut) go({e.from, 's'});
    if (is_here(e.to)) {
      if (!is_here(e.from)) last = {e.from, 'r'};
      else if (e.is_cut) go({e.from, 'r'});
      go({e.to, 'k'});
    }
  }
  Edges truth;
  for (const auto& [place, name] : channels) {
    std::vector<ChannelPlace> pending{place};
    std::set<ChannelPlace> seen;
    while (!pending.empty()) {
      const ChannelPlace at = pending.back();
      pending.pop_back();
      for (const ChannelPlace& next : after[at]) {
        if (!seen.insert(next).second) continue;
        const auto channel = channels.find(next);
        if (channel == channels.end()) pending.push_back(next);
        else if (channel->second != name) truth.emplace(name, channel->second);
      }
    }
  }
  return truth;
}

}  // namespace troupe::dependence
