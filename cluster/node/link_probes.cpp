#include <troupe/cluster/node/link_probes.hpp>

#include <algorithm>
#include <set>

namespace troupe {
namespace {

// the shortest try counts: additional time belongs to other work
constexpr int kTries = 3;
constexpr std::uint64_t kLoad = 256 << 10;  // bytes, as much as a few wire frames
// bytes a nanosecond: a faster measurement was an accident
constexpr double kFastest = 100;
constexpr auto kFresh = std::chrono::seconds(30);
// a measurement is valid for at least this multiple of its duration
constexpr int kWorth = 100;
constexpr std::size_t kAllPairs = 16;  // nodes; of more, links of this one only

}  // namespace

auto LinkProbes::links_to_measure(std::chrono::nanoseconds now)
    -> std::pair<std::vector<Link>, std::vector<Link>> {
  std::vector<Link> unknown, all;
  const std::vector<PeerCounters> traffic = transport_.peers();
  std::set<std::string> in_use;
  const std::vector<std::string> names = view_.look([&](const Roster& roster, ObservedMembers&) {
    for (const PeerCounters& p : traffic)
      if (const NodeId* node = roster.session(p.peer);
          node && p.unsent_bytes + p.unacknowledged_bytes > kLoad)
        in_use.insert(node->name);
    return roster.names();  // this node first
  });
  for (std::size_t a = 0; a < names.size() && (a == 0 || names.size() <= kAllPairs); ++a)
    for (std::size_t b = a + 1; b < names.size(); ++b)
      all.push_back(std::minmax(names[a], names[b]));
  std::lock_guard lock(mutex_);
  for (const Link& link : all) {
    const auto known = links_.find(link);
    const bool is_of_use =
        known != links_.end() && (now < known->second.holds_until || in_use.contains(link.first) ||
                                  in_use.contains(link.second));
    if (!is_of_use) unknown.push_back(link);
  }
  return {all, unknown};
}

std::vector<LinkBetween> LinkProbes::links() {
  const std::chrono::nanoseconds began = transport_.now();
  if (began.count() == 0) return {};  // without a clock
  const auto [all, unknown] = links_to_measure(began);
  std::vector<std::uint64_t> least(unknown.size(), UINT64_MAX), loaded(unknown.size(), UINT64_MAX);
  for (int round = 0; round < 2 * kTries; ++round) {
    std::vector<std::uint64_t>& found = round % 2 == 0 ? least : loaded;
    std::vector<std::uint64_t> ids;
    for (const auto& [a, b] : unknown) ids.push_back(probe(a, b, round % 2 == 0 ? 0 : kLoad));
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (const auto reply = requests_.await(ids[i]); reply.status.ok() && reply.ns > 0)
        found[i] = std::min(found[i], reply.ns);
  }
  const std::chrono::nanoseconds now = transport_.now(),
                                 holds_until = now + std::max<std::chrono::nanoseconds>(
                                                         kFresh, kWorth * (now - began));
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < unknown.size(); ++i)
    if (least[i] != UINT64_MAX && loaded[i] != UINT64_MAX)  // else one of the two was lost
      note(unknown[i], least[i], loaded[i], holds_until);
  std::vector<LinkBetween> known;
  for (const Link& link : all)
    if (auto it = links_.find(link); it != links_.end())
      known.push_back({link.first, link.second, it->second.cost});
  return known;
}

// Under the lock.
void LinkProbes::note(const Link& link, std::uint64_t least_ns, std::uint64_t loaded_ns,
                      std::chrono::nanoseconds holds_until) {
  const double more = std::max(static_cast<double>(kLoad) / kFastest,
                               static_cast<double>(loaded_ns) - static_cast<double>(least_ns));
  const LinkCost cost{.latency_ns = static_cast<double>(least_ns) / 2,
                      .bytes_per_ns = static_cast<double>(kLoad) / more};
  links_.insert_or_assign(link, Measured{cost, holds_until});
}

// By this node, or by one of the two.
std::uint64_t LinkProbes::probe(const std::string& a, const std::string& b, std::uint64_t bytes,
                                RequestTable::Continuation then) {
  const Peer to = view_.find(a == node_ ? b : a);
  if (a != node_ && b != node_) {
    const std::uint64_t id = requests_.add(to);
    send(transport_, to, ProbeFor{id, b, bytes});
    return id;
  }
  Tensor load = bytes > 0 ? Tensor::zeros(DType::u8, {static_cast<std::int64_t>(bytes)})
                          : Tensor::scalar(false);
  const std::uint64_t id = requests_.add(to, transport_.now(), std::move(then));
  send(transport_, to, Probe{id, std::move(load)});
  return id;
}

void LinkProbes::handle(Peer from, ProbeFor&& m) {
  if (m.bytes > kLoad) MessageReader::malformed("too large a probe");
  {
    std::lock_guard lock(mutex_);
    if (for_others_[from] >= kAllPairs * kAllPairs) MessageReader::malformed("too many probes");
    ++for_others_[from];
  }
  probe(node_, m.node, m.bytes, [this, from, request = m.request](RequestTable::Reply&& reply) {
    {
      std::lock_guard lock(mutex_);
      if (const auto it = for_others_.find(from); --it->second == 0) for_others_.erase(it);
    }
    Answer answer{request, reply.status, {}};
    answer.ns = reply.ns;
    send(transport_, from, answer);
  });
}

void LinkProbes::lost(const std::string& node) {
  std::lock_guard lock(mutex_);
  std::erase_if(links_, [&](const auto& link) {
    return link.first.first == node || link.first.second == node;
  });
}

}  // namespace troupe
