// The tokens and grants of a run's partitions here for partitions of other nodes.
#include <algorithm>

#include <troupe/actors/executor/partition_messages.hpp>
#include <troupe/cluster/protocol/run_tokens.hpp>
#include <troupe/cluster/runs/distributed_runs.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {

namespace {

constexpr std::uint64_t kLarge = 16 << 10;  // bytes of a token that goes in a message of its own

}  // namespace

DistributedPlan::DistributedPlan(std::shared_ptr<DistributedRuns> runs, RunKey key,
                                 std::shared_ptr<const Plan> plan, std::vector<Peer> peers,
                                 Peer owner)
    : runs_(std::move(runs)), key_(key), plan_(std::move(plan)), peers_(std::move(peers)),
      owner_(owner) {
  for (std::size_t n = 0; n < peers_.size(); ++n)
    if (static_cast<std::int32_t>(n) != plan_->here) others_.push_back(peers_[n]);
  fetched_from_.assign(plan_->program.fetches.size(), -1);
  for (const PartitionPlan& p : plan_->partitions)
    for (const Target& t : p.targets)
      if (t.is(Destination::fetch)) fetched_from_[at(t.index())] = p.node;
}

DistributedPlan::~DistributedPlan() {
  if (is_owned())
    for (Peer peer : others_) send(runs_->transport(), peer, DropPlan{key_.number});
}

std::int32_t DistributedPlan::node_of_peer(Peer peer) const {
  for (std::size_t n = 0; n < peers_.size(); ++n)
    if (static_cast<std::int32_t>(n) != plan_->here && peers_[n] == peer)
      return static_cast<std::int32_t>(n);
  return -1;
}

// Directly, or as a message: then true. Without tokens, what there is overtakes messages of the
// data priority.
bool DistributedPlan::post_message(const RunKey& run, std::span<Posted> posted, Peer to) {
  if (posted.empty()) return false;
  const bool has_tokens = std::any_of(posted.begin(), posted.end(), [](const Posted& p) {
    return std::holds_alternative<Token>(p.message);
  });
  const WrittenTokens tokens(run, posted, *plan_);
  const std::span<const std::byte> record = tokens.record();
  Transport& transport = runs_->transport();
  if (!record.empty() && transport.send_direct(to, record, has_tokens)) return false;
  transport.send(to, has_tokens ? RunTokens::kLane : Lane::control, tokens.message());
  return true;
}

// Sends one message for each node and run, or a direct record by shared memory. A large value goes
// by itself, so that nothing small waits for it, and once if several partitions get it.
void DistributedPlan::post(std::span<Posted> posted) {
  const auto run_of = [](const Posted& p) -> const Run& {
    const auto* token = std::get_if<Token>(&p.message);
    return token ? *token->run : *std::get<Grant>(p.message).run;
  };
  const auto is_large = [](const Posted& p) {
    const auto* token = std::get_if<Token>(&p.message);
    return token && bytes_of(token->value) >= kLarge;
  };
  // Moves the posts that `holds` accepts to the front; returns their number.
  const auto to_front = [](std::span<Posted> all, auto holds) {
    std::size_t n = 0;
    for (Posted& p : all)
      if (holds(p)) {
        if (&all[n] != &p) std::swap(all[n], p);
        ++n;
      }
    return n;
  };
  while (!posted.empty()) {
    const Peer to = peer_of(posted.front().partition);
    const Run& run = run_of(posted.front());
    const RunKey key = run.key;
    const std::span<Posted> ours = posted.first(to_front(
        posted, [&](const Posted& p) { return peer_of(p.partition) == to && &run_of(p) == &run; }));
    const std::size_t large = to_front(ours, is_large);
    for (std::span<Posted> rest = ours.first(large); !rest.empty();) {
      const Value value = std::get<Token>(rest.front().message).value;
      const std::size_t same = to_front(rest, [&](const Posted& p) {
        return is_same_tensor(value, std::get<Token>(p.message).value);
      });
      const std::span<Posted> one = rest.first(std::max<std::size_t>(same, 1));  // a list is alone
      runs_->transport().send(to, RunTokens::kLane, WrittenTokens(key, one, *plan_).message());
      rest = rest.subspan(one.size());
    }
    const bool is_message = post_message(key, ours.subspan(large), to);
    // the transport sends them while the turn's remaining work is done
    if (is_message || large != 0) runs_->transport().flush(to);
    posted = posted.subspan(ours.size());
  }
}

void DistributedPlan::meet(std::uint64_t run, std::int32_t node, const MeetingPlace& place,
                           std::vector<Tensor> values) {
  const std::optional<RunKey> key = runs_->key_of(run);
  if (!key) return;
  const Peer to = peers_[at(node)];
  send(runs_->transport(), to, MeshValues{*key, place, std::move(values)});
  runs_->transport().flush(to);
}

void DistributedPlan::start(Run& run) { runs_->begin(run, *this); }
std::vector<LoopReport> DistributedPlan::loops() { return runs_->host().loops(*this); }
std::vector<NodeCost> DistributedPlan::costs() { return runs_->host().costs(*this); }
void DistributedPlan::failed(Run& run) { runs_->failed(run, *this); }
void DistributedPlan::refused(Run&, std::int32_t partition, const std::string& what) {
  runs_->refused(peer_of(partition), what);
}

}  // namespace troupe
