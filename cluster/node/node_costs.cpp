// What placement goes by: the times of kernels on other nodes, beside what loops did there, and
// what links between nodes take. For these, messages that are answered at once are sent by whoever
// is at one end of a link. It is measured when a plan asks for it, unless that was done within half
// a minute, or a hundred times what measuring takes, or it is in use: probes would be measured
// behind what is under way.
//
//   owner ── ProbeFor(c, bytes) ──► b ── Probe(load) ──► c
//         ◄──── Answer(ns) ──────── b ◄──── Answer ──── c
#include <algorithm>
#include <cmath>
#include <set>

#include <troupe/cluster/node/node_core.hpp>

namespace troupe {
namespace {

// the least counts: what is added was somebody else's
constexpr int kTries = 3;
constexpr std::uint64_t kLoad = 256 << 10;  // bytes, as much as a few frames
// bytes a nanosecond: what is faster was an accident
constexpr double kFastest = 100;
constexpr auto kFresh = std::chrono::seconds(30);
// times what it took: for so long at least a measurement holds
constexpr int kWorth = 100;
constexpr std::size_t kAllPairs = 16;  // nodes; of more, links of this one only

}  // namespace

template <class Question>
std::vector<std::uint64_t> NodeCore::ask_others(const SharedPlan& plan) {
  std::vector<std::uint64_t> requests;
  for (Peer peer : plan.others()) {
    requests.push_back(request(peer));
    send(peer, Question{requests.back(), plan.number()});
  }
  return requests;
}

// ---- loops

std::vector<LoopReport> NodeCore::loops(const SharedPlan& plan) {
  std::vector<LoopReport> all;
  for (std::uint64_t id : ask_others<GetLoops>(plan))
    for (LoopReport& r : answer_to(id).loops) all.push_back(std::move(r));
  return all;
}

std::vector<LoopReport> NodeCore::loops_of(RunKey plan) {
  const std::shared_ptr<Compiled> compiled = plan_of(plan);
  return compiled ? compiled->loops_here() : std::vector<LoopReport>();
}

// ---- kernels

std::vector<NodeCost> NodeCore::costs(const SharedPlan& plan) {
  const std::vector<std::uint64_t> requests = ask_others<GetCosts>(plan);
  std::vector<NodeCost> all;
  for (std::size_t i = 0; i < requests.size(); ++i)
    for (const NodeCost& c : answer_to(requests[i]).costs)  // of its own nodes alone
      if (std::isfinite(c.ns) && c.ns > 0 && c.ns < 1e15 && c.node >= 0 &&
          c.node < plan.plan().program.graph.size() &&
          plan.peer_of(plan.plan().partition_of[static_cast<std::size_t>(c.node)]) ==
              plan.others()[i])
        all.push_back(c);
  return all;
}

std::vector<NodeCost> NodeCore::costs_of(RunKey plan) {
  const std::shared_ptr<Compiled> compiled = plan_of(plan);
  return compiled ? compiled->costs_here() : std::vector<NodeCost>();
}

// ---- links

std::vector<LinkBetween> NodeCore::links() {
  const std::chrono::nanoseconds began = transport_->now();
  if (began.count() == 0) return {};  // without a clock
  std::vector<std::pair<std::string, std::string>> unknown, all;
  const std::vector<PeerCounters> traffic = transport_->peers();
  {
    std::lock_guard lock(mutex_);
    std::set<std::string> in_use;
    for (const PeerCounters& p : traffic)
      if (const NodeId* node = roster_.session(p.peer);
          node && p.unsent_bytes + p.unacknowledged_bytes > kLoad)
        in_use.insert(node->name);
    const std::vector<std::string> names = roster_.names();  // this node first
    for (std::size_t a = 0; a < names.size() && (a == 0 || names.size() <= kAllPairs); ++a)
      for (std::size_t b = a + 1; b < names.size(); ++b)
        all.push_back(std::minmax(names[a], names[b]));
    for (const auto& link : all) {
      const auto known = links_.find(link);
      const bool is_of_use =
          known != links_.end() && (began < known->second.holds_until ||
                                    in_use.contains(link.first) || in_use.contains(link.second));
      if (!is_of_use) unknown.push_back(link);
    }
  }
  std::vector<std::uint64_t> least(unknown.size(), UINT64_MAX), loaded(unknown.size(), UINT64_MAX);
  for (int round = 0; round < 2 * kTries; ++round) {
    std::vector<std::uint64_t>& found = round % 2 == 0 ? least : loaded;
    std::vector<std::uint64_t> requests;
    for (const auto& [a, b] : unknown) requests.push_back(probe(a, b, round % 2 == 0 ? 0 : kLoad));
    for (std::size_t i = 0; i < requests.size(); ++i)
      if (const Request answer = answer_to(requests[i]); answer.status.ok() && answer.ns > 0)
        found[i] = std::min(found[i], answer.ns);
  }
  const std::chrono::nanoseconds now = transport_->now(),
                                 holds_until = now + std::max<std::chrono::nanoseconds>(
                                                         kFresh, kWorth * (now - began));
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < unknown.size(); ++i) {
    if (least[i] == UINT64_MAX || loaded[i] == UINT64_MAX) continue;  // one of them was lost
    const double more = std::max(static_cast<double>(kLoad) / kFastest,
                                 static_cast<double>(loaded[i]) - static_cast<double>(least[i]));
    const LinkCost cost{.latency_ns = static_cast<double>(least[i]) / 2,
                        .bytes_per_ns = static_cast<double>(kLoad) / more};
    links_.insert_or_assign(unknown[i], MeasuredLink{cost, holds_until});
  }
  std::vector<LinkBetween> known;
  for (const auto& link : all)
    if (auto it = links_.find(link); it != links_.end())
      known.push_back({link.first, link.second, it->second.cost});
  return known;
}

// By this node, or by one of the two.
std::uint64_t NodeCore::probe(const std::string& a, const std::string& b, std::uint64_t bytes) {
  Peer to = 0;
  {
    std::lock_guard lock(mutex_);
    to = roster_.find(a == self_.name ? b : a);
  }
  const std::uint64_t id = request(to);
  if (a != self_.name && b != self_.name) {
    send(to, ProbeFor{id, b, bytes});
    return id;
  }
  {
    std::lock_guard lock(mutex_);
    requests_.at(id).began = transport_->now();
  }
  send(to, Probe{id, bytes > 0 ? Tensor::zeros(DType::u8, {static_cast<std::int64_t>(bytes)})
                               : Tensor::scalar(false)});
  return id;
}

void NodeCore::handle(Peer from, ProbeFor&& m) {
  if (m.bytes > kLoad) MessageReader::malformed("too large a probe");
  {
    std::lock_guard lock(mutex_);
    const auto asked = std::count_if(requests_.begin(), requests_.end(),
                                     [&](const auto& r) { return r.second.asked_by == from; });
    if (asked >= static_cast<std::ptrdiff_t>(kAllPairs * kAllPairs))
      MessageReader::malformed("too many probes");
  }
  const std::uint64_t id = probe(self_.name, m.node, m.bytes);
  {
    std::lock_guard lock(mutex_);
    Request& made = requests_.at(id);
    made.asked_by = from;
    made.number_there = m.request;
  }
  tell_of_probes();  // nobody is there
}

// To those who asked for them.
void NodeCore::tell_of_probes() {
  std::vector<std::pair<Peer, Answer>> told;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(requests_, [&](const auto& entry) {
      const Request& r = entry.second;
      if (r.asked_by == 0 || !r.is_done) return false;
      Answer& a = told.emplace_back(r.asked_by, Answer{r.number_there, r.status, {}}).second;
      a.ns = r.ns;
      return true;
    });
  }
  for (const auto& [peer, answer] : told) send(peer, answer);
}

}  // namespace troupe
