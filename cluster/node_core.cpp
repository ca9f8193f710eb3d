#include <troupe/cluster/node_core.hpp>

#include <algorithm>
#include <random>

#include <fmt/format.h>

#include <troupe/cluster/program_codec.hpp>

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

std::uint64_t draw_incarnation() {
  std::random_device device;
  std::uint64_t drawn = 0;
  while (drawn == 0) drawn = std::uint64_t{device()} << 32 | device();
  return drawn;
}

NodeId self_of(const NodeOptions& o) {
  const bool is_name = !o.name.empty() && o.name.find('/') == std::string::npos;
  if (!is_name) throw Error(Code::invalid_argument, fmt::format("a node needs a name without '/', not '{}'", o.name));
  if (!o.transport) throw Error(Code::invalid_argument, "a node needs a transport");
  return {o.name, o.incarnation ? o.incarnation : draw_incarnation(), {}};
}

std::string joined(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

}  // namespace

NodeCore::NodeCore(NodeOptions& options)
    : self_(self_of(options)), deterministic_(options.engine.deterministic), step_(std::move(options.step)),
      transport_(options.transport({self_.name, self_.incarnation, {}, {}})), runs_(*this, self_.incarnation) {}

NodeCore::~NodeCore() = default;

void NodeCore::open(EngineImpl& engine, const std::vector<std::string>& join) {
  engine_ = &engine;
  clerk_ = lean_spawn<Clerk>(engine.system());
  engine.join(*this);
  join_ = join;
  transport_->start(*this);
  for (const std::string& address : join) transport_->connect(address);
}

void NodeCore::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  runs_.close();
  transport_->stop();
  std::map<Peer, NodeId> left;
  {
    std::lock_guard lock(mutex_);
    left = members_;
  }
  for (const auto& [peer, node] : left) lost(peer, Status(Code::unavailable, fmt::format("node '{}' is leaving", self_.name)));
  clerk_ = {};
}

// ---- who is there

std::vector<std::string> NodeCore::nodes() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> names{self_.name};
  for (const auto& [name, peer] : by_name_) names.push_back(name);
  return names;
}

std::vector<NodeLabels> NodeCore::nodes_with_labels() const {
  std::vector<NodeLabels> all;
  for (const std::string& name : nodes()) all.push_back({name, {}});
  return all;
}

std::string NodeCore::name_of(Peer peer) const {
  std::lock_guard lock(mutex_);
  auto it = members_.find(peer);
  return it == members_.end() ? "that has left" : it->second.name;
}

Peer NodeCore::peer_of(const std::string& node) const {
  std::lock_guard lock(mutex_);
  auto it = by_name_.find(node);
  if (it != by_name_.end()) return it->second;
  std::vector<std::string> there{self_.name};
  for (const auto& [known, peer] : by_name_) there.push_back(known);
  throw Error(Code::not_found, fmt::format("there is no node '{}' in this cluster; there are {}", node, joined(there)));
}

void NodeCore::wait_for(const std::vector<std::string>& names, std::chrono::nanoseconds timeout) {
  auto missing = [&] {
    std::vector<std::string> out;
    for (const std::string& n : names)
      if (n != self_.name && !by_name_.contains(n)) out.push_back(n);
    return out;
  };
  if (deterministic_) {
    engine_->step_until([&] {
      std::lock_guard lock(mutex_);
      return missing().empty();
    });
    return;
  }
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, timeout, [&] { return missing().empty(); })) return;
  std::string why;
  for (const auto& [address, status] : refusals_) why += fmt::format("; {}: {}", address, status.message());
  throw Error(Code::deadline_exceeded, fmt::format("node '{}' waited in vain for {}{}", self_.name, joined(missing()), why));
}

// Nodes are started in any order: who is not there yet is asked again.
void NodeCore::wait_joined(std::chrono::nanoseconds timeout) {
  constexpr auto kPause = std::chrono::milliseconds(100);
  constexpr auto kFirstAnswer = std::chrono::seconds(5);  // is waited for in any case
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::unique_lock lock(mutex_);
  while (members_.empty() && !join_.empty()) {
    std::string why;
    for (const std::string& address : join_)
      if (auto refusal = refusals_.find(address); refusal != refusals_.end()) why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", address, refusal->second.message());
    const auto late = std::chrono::steady_clock::now() - deadline;
    if (late >= kFirstAnswer || (late.count() >= 0 && !why.empty()))
      throw Error(Code::unavailable, fmt::format("no node could be joined: {}", why.empty() ? "nobody has answered yet" : why));
    changed_.wait_for(lock, kPause);
    if (!members_.empty() || why.empty()) continue;
    refusals_.clear();
    const std::vector<std::string> again = join_;
    lock.unlock();
    for (const std::string& address : again) transport_->connect(address);
    lock.lock();
  }
}

void NodeCore::connected(Peer peer, const PeerInfo& info) {
  const NodeId fresh{info.name, info.incarnation, info.address};
  Members all, one{{fresh}};
  std::vector<Peer> others;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [other, node] : members_) {
      others.push_back(other);
      all.nodes.push_back(node);
    }
    members_.emplace(peer, fresh);
    by_name_.insert_or_assign(info.name, peer);
    refusals_.erase(info.address);
    changed_.notify_all();
  }
  send(peer, all);
  if (!info.address.empty())
    for (Peer other : others) send(other, one);
  retry_plans();
}

// Everybody connects with everybody.
void NodeCore::meet(const Members& members) {
  for (const NodeId& node : members.nodes) {
    if (node.name == self_.name || node.address.empty()) continue;
    {
      std::lock_guard lock(mutex_);
      if (by_name_.contains(node.name)) continue;
    }
    transport_->connect(node.address);
  }
}

void NodeCore::refused(const std::string& address, const Status& why) {
  {
    std::lock_guard lock(mutex_);
    refusals_.insert_or_assign(address, why);
    changed_.notify_all();
  }
  retry_plans();
}

void NodeCore::lost(Peer peer, const Status& why) {
  NodeId node;
  std::vector<std::shared_ptr<Compiled>> plans;  // dropped outside the lock
  {
    std::lock_guard lock(mutex_);
    auto it = members_.find(peer);
    if (it == members_.end()) return;
    node = it->second;
    members_.erase(it);
    if (auto named = by_name_.find(node.name); named != by_name_.end() && named->second == peer) by_name_.erase(named);
    for (auto& [id, request] : requests_) {
      if (request.to != peer || request.is_done) continue;
      request.is_done = true;
      request.status = Status(Code::unavailable, "it was lost: " + why.message());
    }
    for (auto plan = plans_.begin(); plan != plans_.end();) {
      if (plan->first.owner == node.incarnation) plans.push_back(std::move(plan->second)), plan = plans_.erase(plan);
      else ++plan;
    }
    std::erase_if(waiting_plans_, [&](const Waiting& w) { return w.from == peer; });
    changed_.notify_all();
  }
  runs_.lost(peer, node, why);
  retry_plans();
}

// ---- messages

void NodeCore::received(Peer peer, Lane, Message message) {
  std::uint64_t from = 0;
  {
    std::lock_guard lock(mutex_);
    auto it = members_.find(peer);
    if (it == members_.end() || closed_) return;
    from = it->second.incarnation;
  }
  try {
    dispatch(peer, from, message);
  } catch (...) {
    transport_->disconnect(peer, Status::from_current_exception());
    lost(peer, Status::from_current_exception());
  }
}

void NodeCore::dispatch(Peer peer, std::uint64_t from, Message& message) {
  MessageReader r(message);
  switch (kind_of(r)) {
    case MessageKind::token: runs_.handle(peer, read_all<RunToken>(r)); return;
    case MessageKind::grant: runs_.handle(peer, read_all<RunGrant>(r)); return;
    case MessageKind::begin_run: {
      auto m = read_all<BeginRun>(r);
      std::shared_ptr<Compiled> compiled;
      {
        std::lock_guard lock(mutex_);
        if (auto it = plans_.find({from, m.plan}); it != plans_.end()) compiled = it->second;
      }
      runs_.handle(peer, from, std::move(m), compiled);
      return;
    }
    case MessageKind::abandon_run: runs_.handle(peer, from, read_all<AbandonRun>(r)); return;
    case MessageKind::run_failed: runs_.handle(peer, read_all<RunFailed>(r)); return;
    case MessageKind::left_run: runs_.handle(peer, read_all<LeftRun>(r)); return;
    case MessageKind::members: meet(read_all<Members>(r)); return;
    case MessageKind::answer: handle(read_all<Answer>(r)); return;
    case MessageKind::make_plan:
      do_later([this, peer, kept = std::make_shared<Message>(std::move(message))] { make_plan(peer, kept); });
      return;
    case MessageKind::drop_plan:
      do_later([this, peer, key = RunKey{from, read_all<DropPlan>(r).plan}] { drop_plan(peer, key); });
      return;
    case MessageKind::get_variable:
      do_later([this, peer, m = read_all<GetVariable>(r)] {
        Answer a{m.request, {}, {}};
        try {
          a.value = engine_->get_here(m.variable);
        } catch (...) {
          a.status = Status::from_current_exception();
        }
        send(peer, a);
      });
      return;
    case MessageKind::set_variable:
      do_later([this, peer, m = read_all<SetVariable>(r)] {
        Answer a{m.request, {}, {}};
        try {
          engine_->set_here(m.variable, m.value);
        } catch (...) {
          a.status = Status::from_current_exception();
        }
        send(peer, a);
      });
      return;
  }
}

void NodeCore::do_later(std::function<void()> job) {
  clerk_->send(std::move(job));
}

// ---- requests

std::uint64_t NodeCore::request(Peer to) {
  std::lock_guard lock(mutex_);
  requests_.emplace(++last_request_, Request{to, !members_.contains(to), Status(Code::unavailable, "it was lost"), {}});
  return last_request_;
}

void NodeCore::handle(Answer&& answer) {
  std::lock_guard lock(mutex_);
  auto it = requests_.find(answer.request);
  if (it == requests_.end()) return;  // nobody waits any more
  it->second.is_done = true;
  it->second.status = std::move(answer.status);
  it->second.value = std::move(answer.value);
  changed_.notify_all();
}

NodeCore::Request NodeCore::answer_to(std::uint64_t id) {
  auto is_done = [&] { return requests_.at(id).is_done; };
  if (deterministic_)
    engine_->step_until([&] {
      std::lock_guard lock(mutex_);
      return is_done();
    });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, is_done);
  return std::move(requests_.extract(id).mapped());
}

Tensor NodeCore::get(const std::string& node, const StateSpec& variable) {
  const Peer to = peer_of(node);
  const std::uint64_t id = request(to);
  send(to, GetVariable{id, variable});
  Request answer = answer_to(id);
  if (!answer.status.ok()) throw Error(answer.status.code(), fmt::format("node '{}': {}", node, answer.status.message()));
  return std::move(answer.value);
}

void NodeCore::set(const std::string& node, const StateSpec& variable, Tensor value) {
  const Peer to = peer_of(node);
  const std::uint64_t id = request(to);
  send(to, SetVariable{id, variable, std::move(value)});
  const Request answer = answer_to(id);
  if (!answer.status.ok()) throw Error(answer.status.code(), fmt::format("node '{}': {}", node, answer.status.message()));
}

// ---- plans

std::shared_ptr<RemotePlan> NodeCore::prepare(const std::shared_ptr<const Plan>& plan, const Placed& placed) {
  MakePlan m;
  std::vector<Peer> peers;
  for (const std::string& node : plan->nodes) {
    const bool is_here = node == self_.name;
    const Peer peer = is_here ? 0 : peer_of(node);
    std::lock_guard lock(mutex_);
    auto member = members_.find(peer);
    if (!is_here && member == members_.end()) throw Error(Code::unavailable, fmt::format("node '{}' was lost", node));
    m.participants.push_back(is_here ? NodeId{self_.name, self_.incarnation, transport_->address()} : member->second);
    peers.push_back(peer);
  }
  {
    std::lock_guard lock(mutex_);
    m.plan = ++last_plan_;
  }
  m.call_depth = plan->call_depth;
  m.fingerprint = fingerprint(*plan);
  auto shared = std::make_shared<SharedPlan>(shared_from_this(), RunKey{self_.incarnation, m.plan}, plan, std::move(peers), 0);
  runs_.add(shared);
  std::vector<std::uint64_t> requests;
  for (Peer peer : shared->others()) {
    m.request = request(peer);
    requests.push_back(m.request);
    MessageWriter w = written(m);
    write(w, placed, plan->nodes[static_cast<std::size_t>(shared->node_of_peer(peer))]);
    transport_->send(peer, MakePlan::kLane, w.take());
  }
  Status first;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request answer = answer_to(requests[i]);
    if (first.ok() && !answer.status.ok())
      first = Status(answer.status.code(), fmt::format("node '{}': {}", plan->nodes[static_cast<std::size_t>(shared->node_of_peer(shared->others()[i]))], answer.status.message()));
  }
  first.throw_if_error();
  return shared;
}

void NodeCore::make_plan(Peer from, const std::shared_ptr<Message>& message) {
  MessageReader reader(*message);
  MakePlan m;
  try {
    kind_of(reader);
    read_fields(reader, m);
  } catch (...) {
    transport_->disconnect(from, Status::from_current_exception());
    return;
  }
  Answer answer{m.request, {}, {}};
  try {
    if (!try_make_plan(from, message, m, reader)) return;
  } catch (...) {
    answer.status = Status::from_current_exception();
  }
  send(from, answer);
}

// False if it has to wait for connections; another of which then tries again.
bool NodeCore::try_make_plan(Peer from, const std::shared_ptr<Message>& message, const MakePlan& m, MessageReader& reader) {
  NodeId owner;
  std::map<std::string, Peer> peers;
  {
    std::lock_guard lock(mutex_);
    auto sender = members_.find(from);
    if (sender == members_.end()) return false;  // lost: nobody waits
    owner = sender->second;
    for (const NodeId& p : m.participants) {
      if (p.name == self_.name && p.incarnation == self_.incarnation) continue;
      auto known = by_name_.find(p.name);
      if (known != by_name_.end() && members_.at(known->second).incarnation == p.incarnation) {
        peers.emplace(p.name, known->second);
        continue;
      }
      auto refusal = refusals_.find(p.address);
      if (known != by_name_.end() || p.address.empty() || refusal != refusals_.end())
        throw Error(Code::unavailable, fmt::format("it cannot reach node '{}'{}", p.name, refusal == refusals_.end() ? "" : ": " + refusal->second.message()));
      waiting_plans_.push_back({from, message});
      transport_->connect(p.address);
      return false;
    }
  }
  Placed placed;
  read(reader, placed, self_.name);
  reader.end();
  std::shared_ptr<Compiled> compiled = engine_->take_part(std::move(placed), m.call_depth);
  const std::shared_ptr<const Plan> plan = compiled->troupe.plan;
  if (plan->here < 0 || fingerprint(*plan) != m.fingerprint) throw Error(Code::internal, "it makes another plan of this program");
  std::vector<Peer> of_nodes;
  for (const std::string& node : plan->nodes) {
    if (node != self_.name && !peers.contains(node)) throw Error(Code::data_loss, fmt::format("node '{}' is in the plan and does not take part", node));
    of_nodes.push_back(node == self_.name ? 0 : peers.at(node));
  }
  const RunKey key{owner.incarnation, m.plan};
  auto shared = std::make_shared<SharedPlan>(shared_from_this(), key, plan, std::move(of_nodes), from);
  compiled->troupe.remote = shared;
  runs_.add(shared);
  std::lock_guard lock(mutex_);
  if (members_.contains(from)) plans_.emplace(key, std::move(compiled));
  return true;
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

void NodeCore::retry_plans() {
  std::vector<Waiting> waiting;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    waiting = std::move(waiting_plans_);
    waiting_plans_.clear();
  }
  for (Waiting& w : waiting)
    do_later([this, w] { make_plan(w.from, w.message); });
}

}  // namespace troupe
