#include <troupe/cluster/node/node_core.hpp>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include <troupe/devices/tensor/allocator.hpp>

namespace troupe::detail {

// Runs work in order that takes longer than a message may.
class NodeCore::RequestWorker final : public LeanActor<std::function<void()>> {
 public:
  RequestWorker(caf::actor_config& config, const NodeCore& node) : LeanActor(config), node_(node) {}
  const char* name() const override { return "request worker"; }

 protected:
  // One job that fails must not end those of all peers.
  void receive(std::function<void()>& job) override {
    try {
      job();
    } catch (...) {
      node_.log({{LogRecord::Level::error,
                  node_.time_ns_(),
                  node_.self_.name,
                  {},
                  {},
                  name(),
                  fmt::format("a request of another node has failed without an answer: {}",
                              Status::from_current_exception().message())}});
    }
  }

 private:
  const NodeCore& node_;
};

namespace {

template <class... F>
struct Overloads : F... {
  using F::operator()...;
};

// Greater each time, as long as the clock does not go back by more than a start takes, and another
// one for each of many nodes that start in one millisecond.
std::uint64_t draw_incarnation() {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count();
  return static_cast<std::uint64_t>(ms) << kLifeBits | std::random_device()() >> (32 - kLifeBits);
}

NodeId self_of(const NodeOptions& o) {
  if (!o.transport) throw Error(Code::invalid_argument, "a node needs a transport");
  return {o.name, o.incarnation ? o.incarnation : draw_incarnation(), {}};
}

}  // namespace

NodeCore::Services::Services(const NodeParts& node, CheckpointStore& store, DistributedRuns& runs,
                             std::weak_ptr<DistributedRuns> distributed_runs, bool has_own_clock)
    : states(node, runs, [this](const auto& broken) { plans.break_with(broken); }),
      plans(node, states, store, std::move(distributed_runs)),
      checkpoints(node, states, plans, store), inspections(node, has_own_clock),
      eager(node, states), operations(node, plans, eager), remote_devices(node) {}

NodeCore::NodeCore(NodeOptions& options)
    : self_(self_of(options)), container_(options.container), limits_(options.early),
      has_own_clock_(static_cast<bool>(options.clock)),
      time_ns_(options.clock ? std::move(options.clock) : epoch_ns),
      waiter_(options.engine.deterministic, std::move(options.step)),
      transport_(options.transport({self_.name, self_.incarnation, {}, {}})),
      view_({.name = self_.name,
             .incarnation = self_.incarnation,
             .address = {},
             .labels = options.labels},
            options.membership, time_ns_, waiter_),
      requests_(
          limits_, [this](Peer peer) { return view_.has_session(peer); }, waiter_),
      quota_(self_.name, limits_, quota_hooks()),
      probes_(self_.name, *transport_, view_, requests_),
      store_(options.disk ? *options.disk : real_disk(), options.state, self_.name),
      runs_(*this, *transport_, self_, limits_, options.log) {}

NodeCore::~NodeCore() = default;

PeerQuota::Hooks NodeCore::quota_hooks() {
  const auto unread_bytes = [this](Peer peer) {
    std::uint64_t bytes = 0;
    for (const PeerCounters& c : transport_->peers())
      if (c.peer == peer) bytes = c.unsent_bytes + c.unacknowledged_bytes;
    return bytes;
  };
  return {
      .has_session = [this](Peer peer) { return view_.has_session(peer); },
      .unread_bytes = unread_bytes,
      .run_later = [this](std::function<void()> job) { worker_->send(std::move(job)); },
      .send = [this](Peer to, Lane lane,
                     Message message) { transport_->send(to, lane, std::move(message)); },
      .answer_here =
          [this](Answer&& answer) { requests_.answered(0, std::move(answer), transport_->now()); }};
}

void NodeCore::open(EngineImpl& engine, const std::vector<std::string>& join) {
  engine_ = &engine;
  waiter_.open(engine, *transport_);
  runs_.open(engine);
  worker_ = lean_spawn<RequestWorker>(engine.system(), *this);
  services_ = std::make_unique<Services>(
      NodeParts{self_, container_, limits_, *transport_, engine, view_, requests_, quota_, waiter_,
                time_ns_},
      store_, runs_, std::shared_ptr<DistributedRuns>(shared_from_this(), &runs_), has_own_clock_);
  engine.join(*this);
  view_.open(join, [this] {
    transport_->start(*this);
    return transport_->address();
  });
  for (const std::string& address : join) transport_->connect(address);
}

// The other nodes are notified first, so that none begins new work with this one.
void NodeCore::close() {
  services_->plans.close();
  services_->eager.close();
  follow(view_.close(transport_->now()));
  runs_.close();
  transport_->stop();
  const auto left =
      view_.look([](const Roster& roster, ObservedMembers&) { return roster.sessions(); });
  for (const auto& [peer, node] : left)
    lost(peer, Status(Code::unavailable, fmt::format("node '{}' is leaving", self_.name)));
  services_->inspections.close();
  services_->checkpoints.close();
  worker_ = {};
}

// ---- the cluster changes

template <class Event>
void NodeCore::on_roster(Event event) {
  follow(view_.change(std::move(event)));
}

void NodeCore::follow(ClusterView::Change change) {
  log(change.news);
  act(std::move(change.effects));
}

void NodeCore::act(Roster::Effects effects) {
  for (const auto& [peer, gossip] : effects.said) send(*transport_, peer, gossip);
  for (const auto& [peer, why] : effects.ended) {
    transport_->disconnect(peer, why);
    lost(peer, why);
  }
  for (const std::string& address : effects.dialled) transport_->connect(address);
  if (effects.has_changed) {
    services_->plans.retry();
    services_->states.drop_of_lost_owners();
  }
}

void NodeCore::log(const std::vector<LogRecord>& records) const {
  if (const auto& log = engine_->options().log)
    for (const LogRecord& r : records) log(r);
}

void NodeCore::connect(const std::string& address) {
  on_roster([&](Roster& roster) { roster.ask(address); });
  transport_->connect(address);
}

bool NodeCore::wait_joined(std::chrono::nanoseconds timeout,
                           const std::function<bool()>& gives_up) {
  return view_.wait_joined(
      timeout, gives_up, [this](const std::string& address) { transport_->connect(address); },
      [this](const std::string& what) {
        log({{LogRecord::Level::warning, time_ns_(), self_.name, {}, {}, {}, what}});
      });
}

void NodeCore::connected(Peer peer, const PeerInfo& info) {
  runs_.met(peer, info.incarnation);
  view_.forget_refusal(info.address);
  on_roster([&](Roster& roster) { roster.connected(transport_->now(), peer, info); });
  services_->plans.retry();
}

void NodeCore::broken(Peer peer) {
  on_roster([&](Roster& roster) { roster.broken(transport_->now(), peer); });
}

void NodeCore::refused(const std::string& address, const Status& why) {
  view_.refused(address, why);
  services_->plans.retry();
}

// A session has ended, and may have lost messages: nothing that was under way with that node can go
// on, whether it lives or not.
void NodeCore::lost(Peer peer, const Status& why) {
  std::optional<NodeId> node;
  ClusterView::Change change =
      view_.change([&](Roster& roster) { node = roster.lost(transport_->now(), peer); });
  if (node) {
    quota_.lost(peer);
    services_->plans.lost(peer, *node);
    services_->eager.lost(peer);
    services_->remote_devices.calls().lost(peer, node->name, why);
    services_->checkpoints.lost(*node);
    probes_.lost(node->name);
    requests_.lost(peer, why);
  }
  follow(std::move(change));
  if (node) runs_.lost(peer, *node, why);
}

std::chrono::nanoseconds NodeCore::tick(std::chrono::nanoseconds now) {
  constexpr auto kLook = std::chrono::milliseconds(10);  // at peers that read nothing
  std::chrono::nanoseconds next{};
  on_roster([&](Roster& roster) { next = roster.tick(now); });
  if (!waiter_.is_deterministic()) next = std::min(next, age_heap(now));
  return quota_.resume() ? next : std::min<std::chrono::nanoseconds>(next, now + kLook);
}

// A node outlives the programs that run on it, and does not keep the memory of their largest
// tensors for ever.
std::chrono::nanoseconds NodeCore::age_heap(std::chrono::nanoseconds now) {
  constexpr auto kEach = std::chrono::seconds(1);
  if (now >= next_age_) {
    host_allocator().age();
    next_age_ = now + kEach;
  }
  return host_allocator().counters().cached > 0 ? next_age_ : std::chrono::nanoseconds::max();
}

// ---- messages

void NodeCore::received(Peer peer, Lane, Message message) {
  const std::optional<std::uint64_t> from = view_.accepts(peer);
  if (!from) return;
  try {
    dispatch(peer, *from, message);
  } catch (...) { hang_up(peer); }
}

void NodeCore::received_direct(Peer peer, std::span<const std::byte> record) {
  if (!view_.accepts_direct(peer)) return;
  try {
    runs_.handle_tokens(peer, record);
  } catch (...) { hang_up(peer); }
}

// In a catch block: the peer has sent what makes no sense.
void NodeCore::hang_up(Peer peer) {
  const Status why = Status::from_current_exception();
  runs_.refused(peer, why.message());
  transport_->disconnect(peer, why);
  lost(peer, why);
}

void NodeCore::dispatch(Peer peer, std::uint64_t from, Message& message) {
  if (is_a<RunTokens>(message)) {
    runs_.handle_tokens(peer, message);
    return;
  }
  const std::uint64_t bytes = bytes_of(message);  // before its tensors are taken out
  PlanService& plans = services_->plans;
  StateService& states = services_->states;
  std::visit(
      Overloads{
          [&](RunTokens&& m) { runs_.handle(peer, std::move(m)); },
          [&](MeshValues&& m) { runs_.handle(peer, std::move(m)); },
          [&](BeginRun&& m) {
            const std::shared_ptr<CompiledPlan> compiled = plans.find({from, m.plan});
            runs_.handle(peer, from, std::move(m), compiled);
          },
          [&](AbandonRun&& m) { runs_.handle(peer, from, std::move(m)); },
          [&](RunFailed&& m) { runs_.handle(peer, std::move(m)); },
          [&](LeftRun&& m) { runs_.handle(peer, std::move(m)); },
          [&](PlanBroken&& m) { runs_.handle(peer, std::move(m)); },
          [&](RunsBegun&& m) { runs_.handle(from, std::move(m)); },
          [&](Gossip&& m) {
            on_roster([&](Roster& roster) { roster.heard(transport_->now(), peer, m); });
          },
          [&](Answer&& m) { requests_.answered(peer, std::move(m), transport_->now()); },
          [&](InspectNode&& m) { services_->inspections.handle(peer, from, std::move(m)); },
          [&](Inspected&& m) { requests_.inspected(peer, std::move(m), time_ns_()); },
          [&](MakePlan&& m) {
            quota_.submit(peer, bytes,
                          [&plans, peer, plan = std::make_shared<MakePlan>(std::move(m))] {
                            return plans.make(peer, plan);
                          });
          },
          [&](DropPlan&& m) {
            quota_.submit(peer, 0, [&plans, peer, key = RunKey{from, m.plan}] {
              plans.drop(peer, key);
              return std::optional<Answer>();
            });
          },
          [&](GetLoops&& m) {
            quota_.submit(peer, 0, [&plans, owner = from, m] {
              return Answer{m.request, {}, {}, plans.loops_of({owner, m.plan})};
            });
          },
          [&](GetCosts&& m) {
            quota_.submit(peer, 0, [&plans, owner = from, m] {
              Answer a{m.request, {}, {}};
              a.costs = plans.costs_of({owner, m.plan});
              return a;
            });
          },
          [&](Probe&& m) { probes_.handle(peer, std::move(m)); },
          [&](ProbeFor&& m) { probes_.handle(peer, std::move(m)); },
          [&](GetVariable&& m) { states.handle(peer, from, std::move(m), bytes); },
          [&](SetVariable&& m) { states.handle(peer, from, std::move(m), bytes); },
          [&](ClearContainer&& m) { states.handle(peer, from, std::move(m), bytes); },
          [&](OperateNode&& m) { services_->operations.handle(peer, std::move(m)); },
          [&](CheckpointRequest&& m) {
            services_->checkpoints.handle(peer, from, std::move(m), bytes);
          },
          [&](EagerProgram&& m) { services_->eager.make(peer, from, std::move(m), bytes); },
          [&](EagerSteps&& m) { services_->eager.handle(peer, from, std::move(m), bytes); },
          [&](EagerResults&& m) { services_->remote_devices.calls().handle(peer, std::move(m)); }},
      read_message(message));
}

}  // namespace troupe::detail
