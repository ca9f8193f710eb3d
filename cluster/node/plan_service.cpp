#include <troupe/cluster/node/plan_service.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/plan/plan_part.hpp>
#include <troupe/cluster/node/fence_scope.hpp>
#include <troupe/cluster/protocol/program_codec.hpp>
#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {

thread_local Fence FenceScope::current_;

// ---- at the owner

std::shared_ptr<RemotePlan> PlanService::prepare(const std::shared_ptr<const Plan>& plan,
                                                 const Placed& placed) {
  MakePlan m;
  std::vector<Peer> peers;
  for (const std::string& node : plan->nodes) {
    const bool is_here = node == node_.self.name;
    const Peer peer = is_here ? 0 : node_.view.peer_of(node, plan.get());
    const std::optional<NodeId> there = node_.view.session(peer);
    if (!is_here && !there) throw Error(Code::unavailable, fmt::format("node '{}' was lost", node));
    m.participants.push_back(
        is_here ? NodeId{node_.self.name, node_.self.incarnation, node_.transport.address()}
                : *there);
    peers.push_back(peer);
  }
  m.plan = plan->name.number;
  m.call_depth = plan->call_depth;
  m.container = node_.container;
  m.fence = FenceScope::current();
  const std::shared_ptr<DistributedRuns> runs = runs_.lock();
  auto shared = std::make_shared<DistributedPlan>(runs, RunKey{node_.self.incarnation, m.plan},
                                                  plan, std::move(peers), 0);
  runs->add(shared);
  std::vector<std::uint64_t> ids;
  const PlanParts parts(*plan, placed);
  const std::vector<std::uint64_t> prints = fingerprints(*plan);
  for (Peer peer : shared->others()) {
    const std::int32_t node = shared->node_of_peer(peer);
    m.request = node_.requests.add(peer);
    m.fingerprint = prints[at(node)];
    ids.push_back(m.request);
    MessageWriter w;
    if (parts.is_divisible()) write(w, parts.of(node), plan->nodes[at(node)]);
    else write(w, placed, plan->nodes[at(node)]);
    m.program = w.take();
    Message message = written(m);
    const std::uint64_t bytes = bytes_of(message);
    node_.requests.ask(m.request, bytes,
                       [&] { node_.transport.send(peer, MakePlan::kLane, std::move(message)); });
  }
  Status first;
  std::vector<std::uint64_t> states(plan->nodes.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::size_t node = at(shared->node_of_peer(shared->others()[i]));
    const RequestTable::Reply reply = node_.requests.await(ids[i]);
    states[node] = reply.states;
    if (first.ok() && !reply.status.ok())
      first = Status(reply.status.code(),
                     fmt::format("node '{}': {}", plan->nodes[node], reply.status.message()));
  }
  first.throw_if_error();
  states_.note(*plan, states);
  return shared;
}

template <class Question>
std::vector<std::uint64_t> PlanService::ask_others(const DistributedPlan& plan) {
  std::vector<std::uint64_t> ids;
  for (Peer peer : plan.others()) {
    ids.push_back(node_.requests.add(peer));
    send(node_.transport, peer, Question{ids.back(), plan.number()});
  }
  return ids;
}

std::vector<LoopReport> PlanService::loops(const DistributedPlan& plan) {
  std::vector<LoopReport> all;
  for (std::uint64_t id : ask_others<GetLoops>(plan))
    for (LoopReport& r : node_.requests.await(id).loops) all.push_back(std::move(r));
  return all;
}

std::vector<NodeCost> PlanService::costs(const DistributedPlan& plan) {
  const std::vector<std::uint64_t> ids = ask_others<GetCosts>(plan);
  std::vector<NodeCost> all;
  for (std::size_t i = 0; i < ids.size(); ++i)
    // each node reports its own nodes alone
    for (const NodeCost& c : node_.requests.await(ids[i]).costs)
      if (std::isfinite(c.ns) && c.ns > 0 && c.ns < 1e15 && c.node >= 0 &&
          c.node < plan.plan().program.graph.size() &&
          plan.peer_of(plan.plan().partition_of[at(c.node)]) == plan.others()[i])
        all.push_back(c);
  return all;
}

// ---- at the others

std::optional<Answer> PlanService::make(Peer from, const std::shared_ptr<MakePlan>& plan) {
  Answer answer{plan->request, {}, {}};
  try {
    if (!try_make(from, plan, answer.states)) return std::nullopt;
  } catch (...) { answer.status = Status::from_current_exception(); }
  return answer;
}

// Returns the sessions with all other participants; nothing if the plan has to wait for one. Called
// under the lock.
auto PlanService::connected_with(const NodeId& owner, Peer from, const std::shared_ptr<MakePlan>& m)
    -> std::optional<PeersByName> {
  PeersByName peers;
  for (NodeId p : m->participants) {
    p.address = seen_through(p.address, owner.address);
    if (p.name == node_.self.name && p.incarnation == node_.self.incarnation) continue;
    const auto [known, is_it] = node_.view.look([&](const Roster& roster, ObservedMembers&) {
      const Peer peer = roster.session_with(p.name);
      return std::pair(peer, peer != 0 && roster.session(peer)->incarnation == p.incarnation);
    });
    if (is_it) {
      peers.emplace(p.name, known);
      continue;
    }
    const std::optional<Status> refusal = node_.view.refusal(p.address);
    if (known != 0 || p.address.empty() || refusal)
      throw Error(Code::unavailable, fmt::format("it cannot reach node '{}'{}", p.name,
                                                 refusal ? ": " + refusal->message() : ""));
    RequestUse waiting;
    for (const Waiting& w : waiting_)
      if (w.from == from) waiting.add(bytes_of(w.plan->program));
    if (!waiting.has_room(bytes_of(m->program), node_.limits))
      throw Error(Code::resource_exhausted,
                  "too many plans of this owner wait for connections, or too large ones");
    waiting_.push_back({from, m});
    node_.transport.connect(p.address);
    return std::nullopt;
  }
  return peers;
}

// Returns false if the plan has to wait for connections; `retry` tries it again then.
bool PlanService::try_make(Peer from, const std::shared_ptr<MakePlan>& m, std::uint64_t& states) {
  std::optional<NodeId> owner;
  std::optional<PeersByName> peers;
  {
    std::lock_guard lock(mutex_);
    owner = node_.view.session(from);
    if (!owner) return false;  // lost: no answer is awaited
    if (is_draining_)
      throw Error(Code::unavailable,
                  "it is being drained and takes no new partitions; place the program on others");
    peers = connected_with(*owner, from, m);
    if (!peers) return false;
  }
  checkpoints_.check(m->fence);
  Placed placed;
  MessageReader reader(m->program);
  read(reader, placed, node_.self.name);
  reader.end();
  EngineImpl::OthersStates owners = states_.states_for(owner->incarnation, m->container);
  states = owners.number;
  std::shared_ptr<CompiledPlan> compiled =
      node_.engine.take_part(std::move(placed), m->call_depth,
                             {owner->name, m->plan, owner->incarnation}, std::move(owners.store));
  const std::shared_ptr<const Plan> plan = compiled->troupe.plan;
  if (plan->here < 0 || fingerprints(*plan)[at(plan->here)] != m->fingerprint)
    throw Error(Code::internal, "it makes another plan of this program");
  std::vector<Peer> of_nodes;
  for (const std::string& node : plan->nodes) {
    if (node != node_.self.name && !peers->contains(node))
      throw Error(Code::data_loss,
                  fmt::format("node '{}' is in the plan and does not take part", node));
    of_nodes.push_back(node == node_.self.name ? 0 : peers->at(node));
  }
  const RunKey key{owner->incarnation, m->plan};
  const std::shared_ptr<DistributedRuns> runs = runs_.lock();
  auto shared = std::make_shared<DistributedPlan>(runs, key, plan, std::move(of_nodes), from);
  compiled->troupe.connect(shared);
  runs->add(shared);
  std::lock_guard lock(mutex_);
  // A loss while the plan was made found no plan to break; the session ends before it is announced.
  for (const auto& [name, peer] : *peers)
    if (!node_.view.has_session(peer))
      throw Error(Code::unavailable, fmt::format("node '{}' was lost", name));
  checkpoints_.check(m->fence);  // a later driver may have come meanwhile
  if (!node_.view.has_session(from)) return true;
  plans_.emplace(key, std::move(compiled));
  if (!m->fence.training.empty()) fences_.insert_or_assign(key, m->fence);
  return true;
}

std::shared_ptr<CompiledPlan> PlanService::find(RunKey key) {
  std::lock_guard lock(mutex_);
  const auto it = plans_.find(key);
  return it != plans_.end() ? it->second : nullptr;
}

std::vector<LoopReport> PlanService::loops_of(RunKey plan) {
  const std::shared_ptr<CompiledPlan> compiled = find(plan);
  return compiled ? compiled->loops_here() : std::vector<LoopReport>();
}

std::vector<NodeCost> PlanService::costs_of(RunKey plan) {
  const std::shared_ptr<CompiledPlan> compiled = find(plan);
  return compiled ? compiled->costs_here() : std::vector<NodeCost>();
}

void PlanService::drop(Peer from, RunKey key) {
  std::shared_ptr<CompiledPlan> last;
  std::lock_guard lock(mutex_);
  if (auto it = plans_.find(key); it != plans_.end()) {
    last = std::move(it->second);
    plans_.erase(it);
  }
  fences_.erase(key);
  std::erase_if(waiting_,
                [&](const Waiting& w) { return w.from == from && w.plan->plan == key.number; });
}

void PlanService::retry() {
  std::vector<Waiting> waiting;
  {
    std::lock_guard lock(mutex_);
    if (is_closed_) return;
    waiting = std::exchange(waiting_, {});
  }
  for (Waiting& w : waiting)
    node_.quota.run_later([this, w] {
      if (const std::optional<Answer> answer = make(w.from, w.plan))
        node_.quota.reply(w.from, *answer);
    });
}

template <class IsBroken>
void PlanService::break_if(IsBroken is_broken) {
  std::vector<std::shared_ptr<CompiledPlan>> plans;
  {
    std::lock_guard lock(mutex_);
    for (auto it = plans_.begin(); it != plans_.end();) {
      if (!is_broken(it->first, *it->second)) {
        ++it;
        continue;
      }
      plans.push_back(std::move(it->second));
      fences_.erase(it->first);
      it = plans_.erase(it);
    }
  }
  for (const auto& plan : plans) {
    const auto& shared = static_cast<const DistributedPlan&>(*plan->troupe.remote);
    send(node_.transport, shared.owner(), PlanBroken{shared.number()});
  }
}

void PlanService::break_with(const std::shared_ptr<StateStore>& states) {
  break_if([&](const RunKey&, const CompiledPlan& plan) { return plan.states == states; });
}

void PlanService::break_older(const Fence& fence) {
  std::map<RunKey, Fence> older;
  break_if([&](const RunKey& key, const CompiledPlan&) {
    const auto of = fences_.find(key);
    if (of == fences_.end() || of->second.training != fence.training ||
        of->second.epoch >= fence.epoch)
      return false;
    older.insert(*of);
    return true;
  });
  const std::shared_ptr<DistributedRuns> runs = runs_.lock();
  for (const auto& [plan, driver] : older)
    runs->end(plan, Status(Code::failed_precondition,
                           fmt::format("training '{}': driver '{}' is of epoch {}, and driver '{}' "
                                       "of epoch {} was accepted while the step ran; at most one "
                                       "driver acts at a time, so end this one",
                                       fence.training, driver.driver, driver.epoch, fence.driver,
                                       fence.epoch)));
}

void PlanService::drain() {
  // kept: a run may begin before its owner is notified
  std::vector<std::shared_ptr<CompiledPlan>> plans;
  {
    std::lock_guard lock(mutex_);
    is_draining_ = true;
    for (const auto& [key, plan] : plans_) plans.push_back(plan);
  }
  for (const auto& plan : plans) {
    const auto& shared = static_cast<const DistributedPlan&>(*plan->troupe.remote);
    send(node_.transport, shared.owner(), PlanBroken{shared.number()});
  }
}

void PlanService::lost(Peer peer, const NodeId& node) {
  std::vector<std::shared_ptr<CompiledPlan>> plans;
  std::lock_guard lock(mutex_);
  for (auto plan = plans_.begin(); plan != plans_.end();) {
    if (plan->first.owner == node.incarnation)
      plans.push_back(std::move(plan->second)), fences_.erase(plan->first),
          plan = plans_.erase(plan);
    else ++plan;
  }
  std::erase_if(waiting_, [&](const Waiting& w) { return w.from == peer; });
}

void PlanService::close() {
  std::lock_guard lock(mutex_);
  is_closed_ = true;
}

}  // namespace troupe
