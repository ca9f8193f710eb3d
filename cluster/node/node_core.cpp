#include <troupe/cluster/node/node_core.hpp>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/plan/plan_part.hpp>
#include <troupe/cluster/protocol/program_codec.hpp>
#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/devices/tensor/allocator.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {

// What takes longer than a message may, and must keep its order.
class NodeCore::Clerk final : public LeanActor<std::function<void()>> {
 public:
  using LeanActor::LeanActor;
  const char* name() const override { return "clerk"; }

 protected:
  void receive(std::function<void()>& job) override { job(); }
};

namespace {

// Greater each time, as long as the clock does not go back by more than a start takes, and another
// one for each of many nodes that start in one millisecond.
std::uint64_t draw_incarnation() {
  constexpr int kDrawn = 22;  // bits; the milliseconds take 41 until 2039
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count();
  return static_cast<std::uint64_t>(ms) << kDrawn | std::random_device()() >> (32 - kDrawn);
}

NodeId self_of(const NodeOptions& o) {
  if (!o.transport) throw Error(Code::invalid_argument, "a node needs a transport");
  return {o.name, o.incarnation ? o.incarnation : draw_incarnation(), {}};
}

}  // namespace

NodeCore::NodeCore(NodeOptions& options)
    : self_(self_of(options)), container_(options.container), most_asked_(options.early),
      deterministic_(options.engine.deterministic), step_(std::move(options.step)),
      clock_(std::move(options.clock)),
      transport_(options.transport({self_.name, self_.incarnation, {}, {}})),
      runs_(*this, self_.incarnation, options.early, options.log),
      roster_({.name = self_.name,
               .incarnation = self_.incarnation,
               .address = {},
               .labels = options.labels},
              options.membership, self_.incarnation) {}

// What happens to the roster, and then, without the lock, what follows.
template <class Event>
auto NodeCore::on_roster(Event event) {
  std::unique_lock lock(mutex_);
  auto finish = [&] {
    Roster::Effects effects = roster_.take();
    has_joined_ = has_joined_ || !roster_.is_alone();
    std::vector<LogRecord> news;
    if (effects.has_changed) news = note_states(effects.changed), changed_.notify_all();
    lock.unlock();
    log(news);
    act(std::move(effects));
  };
  if constexpr (std::is_void_v<decltype(event(Roster::Time()))>) {
    event(transport_->now());
    finish();
  } else {
    auto result = event(transport_->now());
    finish();
    return result;
  }
}

NodeCore::~NodeCore() = default;

void NodeCore::open(EngineImpl& engine, const std::vector<std::string>& join) {
  engine_ = &engine;
  clerk_ = lean_spawn<Clerk>(engine.system());
  start_inspector();
  engine.join(*this);
  join_ = join;
  has_joined_ = join.empty();
  {
    std::lock_guard lock(mutex_);  // nobody is told of this node before it knows its address
    transport_->start(*this);
    roster_.set_address(transport_->address());
    for (const std::string& address : join) roster_.ask(address);
  }
  for (const std::string& address : join) transport_->connect(address);
}

// The others hear of it first, so that nobody begins anything more with this node.
void NodeCore::close() {
  on_roster([&](Roster::Time now) {
    closed_ = true;  // from here on nobody's farewell is heard, nor is anybody suspected
    direct_from_.store(0, std::memory_order_relaxed);
    roster_.leave(now);
  });
  runs_.close();
  transport_->stop();
  std::map<Peer, NodeId> left;
  {
    std::lock_guard lock(mutex_);
    left = roster_.sessions();
  }
  for (const auto& [peer, node] : left)
    lost(peer, Status(Code::unavailable, fmt::format("node '{}' is leaving", self_.name)));
  stop_inspector();
  clerk_ = {};
}

// ---- who is there

void NodeCore::act(Roster::Effects effects) {
  for (const auto& [peer, gossip] : effects.said) send(peer, gossip);
  for (const auto& [peer, why] : effects.ended) {
    transport_->disconnect(peer, why);
    lost(peer, why);
  }
  for (const std::string& address : effects.dialled) transport_->connect(address);
  if (effects.has_changed) {
    retry_plans();
    drop_states();
  }
}

void NodeCore::connect(const std::string& address) {
  on_roster([&](Roster::Time) { roster_.ask(address); });
  transport_->connect(address);
}

std::vector<std::string> NodeCore::nodes() const {
  std::lock_guard lock(mutex_);
  return roster_.names();
}

std::vector<Member> NodeCore::members() const {
  std::lock_guard lock(mutex_);
  return roster_.members();
}

bool NodeCore::has_joined() const {
  std::lock_guard lock(mutex_);
  return has_joined_;
}

Status NodeCore::status() const {
  std::lock_guard lock(mutex_);
  return roster_.status();
}

MembershipCounters NodeCore::membership_counters() const {
  std::lock_guard lock(mutex_);
  return roster_.counters();
}

std::vector<NodeLabels> NodeCore::nodes_with_labels() const {
  std::lock_guard lock(mutex_);
  std::vector<NodeLabels> all;
  for (const std::string& name : roster_.names()) all.push_back({name, {}});
  for (const Member& member : roster_.members())
    for (NodeLabels& node : all)
      if (node.name == member.name) node.labels = member.labels;
  return all;
}

std::string NodeCore::name_of(Peer peer) const {
  std::lock_guard lock(mutex_);
  const NodeId* node = roster_.session(peer);
  return node ? node->name : "that has left";
}

void NodeCore::connected(Peer peer, const PeerInfo& info) {
  runs_.met(peer, info.incarnation);
  on_roster([&](Roster::Time now) {
    refusals_.erase(info.address);
    roster_.connected(now, peer, info);
  });
  retry_plans();
}

void NodeCore::broken(Peer peer) {
  on_roster([&](Roster::Time now) { roster_.broken(now, peer); });
}

std::chrono::nanoseconds NodeCore::tick(std::chrono::nanoseconds now) {
  constexpr auto kLook = std::chrono::milliseconds(10);  // at peers that read nothing
  std::chrono::nanoseconds next = on_roster([&](Roster::Time) { return roster_.tick(now); });
  if (!deterministic_) next = std::min(next, age_heap(now));
  return resume_jobs() ? next : std::min<std::chrono::nanoseconds>(next, now + kLook);
}

// A node outlives those who run on it, and what their largest tensors lay in is not kept for ever.
std::chrono::nanoseconds NodeCore::age_heap(std::chrono::nanoseconds now) {
  constexpr auto kEach = std::chrono::seconds(1);
  if (now >= next_age_) {
    host_allocator().age();
    next_age_ = now + kEach;
  }
  return host_allocator().counters().cached > 0 ? next_age_ : std::chrono::nanoseconds::max();
}

void NodeCore::refused(const std::string& address, const Status& why) {
  {
    std::lock_guard lock(mutex_);
    refusals_.insert_or_assign(address, why);
    changed_.notify_all();
  }
  retry_plans();
}

// A session has ended, and may have lost messages: nothing that was under way with that node can go
// on, whether it lives or not.
void NodeCore::lost(Peer peer, const Status& why) {
  std::vector<std::shared_ptr<Compiled>> plans;  // dropped outside the lock
  std::deque<Job> jobs;                          // as these
  const std::optional<NodeId> node = on_roster([&](Roster::Time now) {
    const std::optional<NodeId> lost_node = roster_.lost(now, peer);
    if (!lost_node) return lost_node;
    direct_from_.store(0, std::memory_order_relaxed);
    jobs = forget_replies(peer);
    std::erase_if(requests_, [&](const auto& request) {
      return request.second.to == peer && request.second.heard;
    });
    for (auto& [id, request] : requests_) {
      if (request.to != peer || request.is_done) continue;
      request.is_done = true;
      request.status = Status(Code::unavailable, "it was lost: " + why.message());
    }
    for (auto plan = plans_.begin(); plan != plans_.end();) {
      if (plan->first.owner == lost_node->incarnation)
        plans.push_back(std::move(plan->second)), plan = plans_.erase(plan);
      else ++plan;
    }
    std::erase_if(waiting_plans_, [&](const Waiting& w) { return w.from == peer; });
    std::erase_if(links_, [&](const auto& link) {
      return link.first.first == lost_node->name || link.first.second == lost_node->name;
    });
    return lost_node;
  });
  tell_of_probes();
  if (node) runs_.lost(peer, *node, why);
}

// ---- messages

void NodeCore::received(Peer peer, Lane, Message message) {
  std::uint64_t from = 0;
  {
    std::lock_guard lock(mutex_);
    const NodeId* node = roster_.session(peer);
    if (!node || closed_) return;
    from = node->incarnation;
  }
  try {
    dispatch(peer, from, message);
  } catch (...) { hang_up(peer); }
}

// As messages do, these come by the transport's thread; the lock is taken only if another peer
// spoke last, or one was lost since.
void NodeCore::received_direct(Peer peer, std::span<const std::byte> record) {
  if (direct_from_.load(std::memory_order_relaxed) != peer) {
    std::lock_guard lock(mutex_);
    if (!roster_.session(peer) || closed_) return;
    direct_from_.store(peer, std::memory_order_relaxed);
  }
  try {
    runs_.handle_tokens(peer, record);
  } catch (...) { hang_up(peer); }
}

// In a catch block: it has said what makes no sense.
void NodeCore::hang_up(Peer peer) {
  const Status why = Status::from_current_exception();
  runs_.refused(peer, why.message());
  transport_->disconnect(peer, why);
  lost(peer, why);
}

void NodeCore::dispatch(Peer peer, std::uint64_t from, Message& message) {
  MessageReader r(message);
  const MessageKind kind = kind_of(r);
  // before its tensors are taken out
  const std::uint64_t bytes =
      kind == MessageKind::tokens || kind == MessageKind::small_tokens ? 0 : bytes_of(message);
  switch (kind) {
    case MessageKind::tokens: runs_.handle_tokens(peer, r); return;
    case MessageKind::small_tokens: runs_.handle_tokens(peer, message); return;
    case MessageKind::begin_run: {
      auto m = read_all<BeginRun>(r);
      std::shared_ptr<Compiled> compiled = plan_of({from, m.plan});
      runs_.handle(peer, from, std::move(m), compiled);
      return;
    }
    case MessageKind::abandon_run: runs_.handle(peer, from, read_all<AbandonRun>(r)); return;
    case MessageKind::run_failed: runs_.handle(peer, read_all<RunFailed>(r)); return;
    case MessageKind::left_run: runs_.handle(peer, read_all<LeftRun>(r)); return;
    case MessageKind::gossip:
      on_roster([&, m = read_all<Gossip>(r)](Roster::Time now) { roster_.heard(now, peer, m); });
      return;
    case MessageKind::answer: handle(peer, read_all<Answer>(r)); return;
    case MessageKind::inspect: handle(peer, from, read_all<InspectNode>(r)); return;
    case MessageKind::inspected: handle(peer, read_all<Inspected>(r)); return;
    case MessageKind::make_plan:
      do_for(peer, bytes, [this, peer, kept = std::make_shared<Message>(std::move(message))] {
        return make_plan(peer, kept);
      });
      return;
    case MessageKind::drop_plan:
      do_for(peer, 0, [this, peer, key = RunKey{from, read_all<DropPlan>(r).plan}] {
        drop_plan(peer, key);
        return std::optional<Answer>();
      });
      return;
    case MessageKind::get_variable: handle(peer, from, read_all<GetVariable>(r), bytes); return;
    case MessageKind::get_loops:
      do_for(peer, 0, [this, owner = from, m = read_all<GetLoops>(r)] {
        return Answer{m.request, {}, {}, loops_of({owner, m.plan})};
      });
      return;
    case MessageKind::get_costs:
      do_for(peer, 0, [this, owner = from, m = read_all<GetCosts>(r)] {
        Answer a{m.request, {}, {}};
        a.costs = costs_of({owner, m.plan});
        return a;
      });
      return;
    case MessageKind::probe: send(peer, Answer{read_all<Probe>(r).request, {}, {}}); return;
    case MessageKind::plan_broken: runs_.handle(peer, read_all<PlanBroken>(r)); return;
    case MessageKind::runs_begun: runs_.handle(from, read_all<RunsBegun>(r)); return;
    case MessageKind::probe_for: handle(peer, read_all<ProbeFor>(r)); return;
    case MessageKind::set_variable: handle(peer, from, read_all<SetVariable>(r), bytes); return;
    case MessageKind::clear_container:
      handle(peer, from, read_all<ClearContainer>(r), bytes);
      return;
  }
}

void NodeCore::do_later(std::function<void()> job) { clerk_->send(std::move(job)); }

// ---- requests

std::uint64_t NodeCore::request(Peer to) {
  std::lock_guard lock(mutex_);
  Request made;
  made.to = to;
  made.is_done = !roster_.session(to);
  made.status = Status(Code::unavailable, "it was lost");
  requests_.emplace(++last_request_, std::move(made));
  return last_request_;
}

void NodeCore::await(const std::function<bool()>& is_done) {
  if (deterministic_)
    engine_->step_until([&] {
      std::lock_guard lock(mutex_);
      return is_done();
    });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, is_done);
}

void NodeCore::ask(std::uint64_t id, Lane lane, Message message) {
  Peer to = 0;
  {
    std::lock_guard lock(mutex_);
    Request& mine = requests_.at(id);
    to = mine.to, mine.bytes = bytes_of(message), mine.turn = ++last_turn_;
  }
  try {
    await([&] {
      const Request& mine = requests_.at(id);
      Asked before;
      for (const auto& [number, other] : requests_)
        if (other.to == to && !other.is_done && other.turn != 0 && other.turn < mine.turn)
          ++before.requests, before.bytes += other.bytes;
      return mine.is_done || before.has_room(mine.bytes, most_asked_);
    });
    transport_->send(to, lane, std::move(message));
  } catch (...) {  // those behind it do not wait for what was not sent
    std::lock_guard lock(mutex_);
    requests_.erase(id);
    changed_.notify_all();
    throw;
  }
}

void NodeCore::handle(Peer from, Answer&& answer) {
  std::unique_lock lock(mutex_);
  auto it = requests_.find(answer.request);
  // nobody waits any more, or not for this one
  if (it == requests_.end() || it->second.is_done || it->second.to != from) return;
  it->second.is_done = true;
  it->second.status = std::move(answer.status);
  it->second.value = std::move(answer.value);
  it->second.loops = std::move(answer.loops);
  it->second.costs = std::move(answer.costs);
  it->second.states = answer.states;
  it->second.ns = it->second.began.count() > 0
                      ? static_cast<std::uint64_t>((transport_->now() - it->second.began).count())
                      : answer.ns;
  changed_.notify_all();
  lock.unlock();
  tell_of_probes();
}

NodeCore::Request NodeCore::answer_to(std::uint64_t id) {
  await([&] { return requests_.at(id).is_done; });
  std::lock_guard lock(mutex_);
  return std::move(requests_.extract(id).mapped());
}

// ---- plans

std::shared_ptr<RemotePlan> NodeCore::prepare(const std::shared_ptr<const Plan>& plan,
                                              const Placed& placed) {
  MakePlan m;
  std::vector<Peer> peers;
  for (const std::string& node : plan->nodes) {
    const bool is_here = node == self_.name;
    const Peer peer = is_here ? 0 : peer_of(node, plan.get());
    std::lock_guard lock(mutex_);
    const NodeId* there = roster_.session(peer);
    if (!is_here && !there) throw Error(Code::unavailable, fmt::format("node '{}' was lost", node));
    m.participants.push_back(is_here ? NodeId{self_.name, self_.incarnation, transport_->address()}
                                     : *there);
    peers.push_back(peer);
  }
  m.plan = plan->name.number;
  m.call_depth = plan->call_depth;
  m.container = container_;
  auto shared = std::make_shared<SharedPlan>(shared_from_this(), RunKey{self_.incarnation, m.plan},
                                             plan, std::move(peers), 0);
  runs_.add(shared);
  std::vector<std::uint64_t> requests;
  const PlanParts parts(*plan, placed);
  const std::vector<std::uint64_t> prints = fingerprints(*plan);
  for (Peer peer : shared->others()) {
    const std::int32_t node = shared->node_of_peer(peer);
    m.request = request(peer);
    m.fingerprint = prints[at(node)];
    requests.push_back(m.request);
    MessageWriter w = written(m);
    if (parts.is_divisible()) write(w, parts.of(node), plan->nodes[at(node)]);
    else write(w, placed, plan->nodes[at(node)]);
    ask(m.request, MakePlan::kLane, w.take());
  }
  Status first;
  std::vector<std::uint64_t> states(plan->nodes.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::size_t node = at(shared->node_of_peer(shared->others()[i]));
    const Request answer = answer_to(requests[i]);
    states[node] = answer.states;
    if (first.ok() && !answer.status.ok())
      first = Status(answer.status.code(),
                     fmt::format("node '{}': {}", plan->nodes[node], answer.status.message()));
  }
  first.throw_if_error();
  note_states(*plan, states);
  return shared;
}

// What its owner is told; nothing: it has to wait, or it was no plan.
std::optional<Answer> NodeCore::make_plan(Peer from, const std::shared_ptr<Message>& message) {
  MessageReader reader(*message);
  MakePlan m;
  try {
    kind_of(reader);
    read_fields(reader, m);
  } catch (...) {
    transport_->disconnect(from, Status::from_current_exception());
    return std::nullopt;
  }
  Answer answer{m.request, {}, {}};
  try {
    if (!try_make_plan(from, message, m, reader, answer.states)) return std::nullopt;
  } catch (...) { answer.status = Status::from_current_exception(); }
  return answer;
}

// False if it has to wait for connections; another of which then tries again.
bool NodeCore::try_make_plan(Peer from, const std::shared_ptr<Message>& message, const MakePlan& m,
                             MessageReader& reader, std::uint64_t& states) {
  NodeId owner;
  std::map<std::string, Peer> peers;
  {
    std::lock_guard lock(mutex_);
    const NodeId* sender = roster_.session(from);
    if (!sender) return false;  // lost: nobody waits
    owner = *sender;
    for (NodeId p : m.participants) {
      p.address = seen_through(p.address, owner.address);
      if (p.name == self_.name && p.incarnation == self_.incarnation) continue;
      const Peer known = roster_.session_with(p.name);
      if (known != 0 && roster_.session(known)->incarnation == p.incarnation) {
        peers.emplace(p.name, known);
        continue;
      }
      auto refusal = refusals_.find(p.address);
      if (known != 0 || p.address.empty() || refusal != refusals_.end())
        throw Error(
            Code::unavailable,
            fmt::format("it cannot reach node '{}'{}", p.name,
                        refusal == refusals_.end() ? "" : ": " + refusal->second.message()));
      Asked waiting;
      for (const Waiting& w : waiting_plans_)
        if (w.from == from) ++waiting.requests, waiting.bytes += bytes_of(*w.message);
      if (!waiting.has_room(bytes_of(*message), most_asked_))
        throw Error(Code::resource_exhausted,
                    "too many plans of this owner wait for connections, or too large ones");
      waiting_plans_.push_back({from, message});
      transport_->connect(p.address);
      return false;
    }
  }
  Placed placed;
  read(reader, placed, self_.name);
  reader.end();
  EngineImpl::OthersStates owners = states_for(owner.incarnation, m.container);
  states = owners.number;
  std::shared_ptr<Compiled> compiled =
      engine_->take_part(std::move(placed), m.call_depth, {owner.name, m.plan, owner.incarnation},
                         std::move(owners.store));
  const std::shared_ptr<const Plan> plan = compiled->troupe.plan;
  if (plan->here < 0 || fingerprints(*plan)[at(plan->here)] != m.fingerprint)
    throw Error(Code::internal, "it makes another plan of this program");
  std::vector<Peer> of_nodes;
  for (const std::string& node : plan->nodes) {
    if (node != self_.name && !peers.contains(node))
      throw Error(Code::data_loss,
                  fmt::format("node '{}' is in the plan and does not take part", node));
    of_nodes.push_back(node == self_.name ? 0 : peers.at(node));
  }
  const RunKey key{owner.incarnation, m.plan};
  auto shared =
      std::make_shared<SharedPlan>(shared_from_this(), key, plan, std::move(of_nodes), from);
  compiled->troupe.remote = shared;
  runs_.add(shared);
  std::lock_guard lock(mutex_);
  // Who was lost while the plan was made found no plan to break: `lost` takes the session away
  // first.
  for (const auto& [name, peer] : peers)
    if (!roster_.session(peer))
      throw Error(Code::unavailable, fmt::format("node '{}' was lost", name));
  if (roster_.session(from)) plans_.emplace(key, std::move(compiled));
  return true;
}

std::shared_ptr<Compiled> NodeCore::plan_of(RunKey key) {
  std::lock_guard lock(mutex_);
  const auto it = plans_.find(key);
  return it != plans_.end() ? it->second : nullptr;
}

void NodeCore::drop_plan(Peer from, RunKey key) {
  std::shared_ptr<Compiled> last;
  std::lock_guard lock(mutex_);
  if (auto it = plans_.find(key); it != plans_.end()) {
    last = std::move(it->second);
    plans_.erase(it);
  }
  std::erase_if(waiting_plans_, [&](const Waiting& w) {
    MessageReader reader(*w.message);
    MakePlan m;
    kind_of(reader);
    read_fields(reader, m);
    return w.from == from && m.plan == key.number;
  });
}

}  // namespace troupe
