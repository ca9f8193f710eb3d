// The implementation of `ClusterNode`: the transport's listener, which passes each message to the
// service that it is for, and the order in which the services are notified of a node that comes or
// goes.
//
//   caller's thread:  prepare, get, set ─────────►┌─────────┐─────────► transport ──► other nodes
//   partitions:       tokens, grants (DistributedPlan)─►│ services│
//                                                  └────▲────┘
//   transport:        received, lost, tick ───► NodeCore ──► ClusterView, DistributedRuns
//
// Threads: any. The transport's thread decodes, looks up and posts; work that takes long runs on
// the request worker, an actor on the engine's workers.
//
// Ownership: NodeCore owns all services. `open` makes those that need an engine, before the
// transport starts; `close` leaves the cluster, and ends their threads. Plans keep NodeCore alive.
//
// Invariants:
// 1. Locks: NodeCore has none. A service may look at the view with its own lock held; no service is
//    called with the view's lock held.
// 2. `lost` takes the session out of the view before it notifies services, so that none waits for a
//    node that is not there (ClusterView, invariant 1).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/cluster/checkpoint/checkpoint_store.hpp>
#include <troupe/cluster/node/checkpoint_service.hpp>
#include <troupe/cluster/node/cluster_view.hpp>
#include <troupe/cluster/node/eager_service.hpp>
#include <troupe/cluster/node/inspection_service.hpp>
#include <troupe/cluster/node/link_probes.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/node/operations.hpp>
#include <troupe/cluster/node/peer_quota.hpp>
#include <troupe/cluster/node/plan_service.hpp>
#include <troupe/cluster/node/remote_devices.hpp>
#include <troupe/cluster/node/request_table.hpp>
#include <troupe/cluster/node/state_service.hpp>
#include <troupe/cluster/runs/distributed_runs.hpp>

namespace troupe::detail {

class NodeCore final : public TransportListener,
                       public Peers,
                       public RunHost,
                       public std::enable_shared_from_this<NodeCore> {
 public:
  explicit NodeCore(NodeOptions& options);
  ~NodeCore();

  /// `engine` outlives `close`.
  void open(EngineImpl& engine, const std::vector<std::string>& join);
  void close();

  Transport& transport() { return *transport_; }
  DistributedRuns& runs() { return runs_; }
  ClusterView& view() { return view_; }
  /// After `open`.
  StateService& states() { return services_->states; }
  InspectionService& inspections() { return services_->inspections; }
  Operations& operations() { return services_->operations; }
  EagerService& eager() { return services_->eager; }
  RemoteDevices& remote_devices() { return services_->remote_devices; }
  CheckpointService& checkpoints() { return services_->checkpoints; }

  void connect(const std::string& address);
  bool wait_joined(std::chrono::nanoseconds timeout, const std::function<bool()>& gives_up);

  // ---- Peers
  const std::string& name() const override { return self_.name; }
  std::uint64_t incarnation() const override { return self_.incarnation; }
  std::vector<NodeLabels> nodes_with_labels() const override { return view_.nodes_with_labels(); }
  std::shared_ptr<RemotePlan> prepare(const std::shared_ptr<const Plan>& plan,
                                      const Placed& placed) override {
    return services_->plans.prepare(plan, placed);
  }
  std::vector<LinkBetween> links() override { return probes_.links(); }
  Tensor get(const std::string& node, const StateSpec& variable) override {
    return services_->states.get(node, variable);
  }
  void set(const std::string& node, const StateSpec& variable, Tensor value) override {
    services_->states.set(node, variable, std::move(value));
  }
  Device& remote_device(const std::string& full_name) override {
    return services_->remote_devices.device(full_name);
  }
  void ask_about(const Run& run, std::function<void(const RunSnapshot&)> heard) override {
    services_->inspections.ask_about(run, std::move(heard));
  }
  bool step() override { return waiter_.step(); }

  // ---- RunHost
  std::string name_of(Peer peer) const override { return view_.name_of(peer); }
  std::vector<LoopReport> loops(const DistributedPlan& plan) override {
    return services_->plans.loops(plan);
  }
  std::vector<NodeCost> costs(const DistributedPlan& plan) override {
    return services_->plans.costs(plan);
  }

  // ---- TransportListener, and `lost` of RunHost
  void connected(Peer peer, const PeerInfo& info) override;
  void refused(const std::string& address, const Status& why) override;
  void received(Peer peer, Lane lane, Message message) override;
  void received_direct(Peer peer, std::span<const std::byte> record) override;
  void lost(Peer peer, const Status& why) override;
  void broken(Peer peer) override;
  std::chrono::nanoseconds tick(std::chrono::nanoseconds now) override;

 private:
  class RequestWorker;
  /// The services that need an engine.
  struct Services {
    Services(const NodeParts& node, CheckpointStore& store, DistributedRuns& runs,
             std::weak_ptr<DistributedRuns> distributed_runs, bool has_own_clock);
    StateService states;
    PlanService plans;
    CheckpointService checkpoints;
    InspectionService inspections;
    EagerService eager;
    Operations operations;
    RemoteDevices remote_devices;
  };

  PeerQuota::Hooks quota_hooks();
  void dispatch(Peer peer, std::uint64_t from, Message& message);  // from: its incarnation
  /// Calls `event(roster)`, and does what follows from it.
  template <class Event>
  void on_roster(Event event);
  void follow(ClusterView::Change change);
  void act(Roster::Effects effects);
  void hang_up(Peer peer);
  std::chrono::nanoseconds age_heap(std::chrono::nanoseconds now);
  void log(const std::vector<LogRecord>& records) const;

  const NodeId self_;
  const std::string container_;
  const EarlyLimits limits_;  // limits of a peer's waiting requests
  const bool has_own_clock_;
  const std::function<std::int64_t()> time_ns_;  // time since the Unix epoch
  Waiter waiter_;
  std::unique_ptr<Transport> transport_;
  EngineImpl* engine_ = nullptr;  // null before `open`
  LeanRef<RequestWorker> worker_;
  ClusterView view_;
  RequestTable requests_;
  PeerQuota quota_;
  LinkProbes probes_;
  CheckpointStore store_;
  DistributedRuns runs_;
  std::unique_ptr<Services> services_;  // null before `open`

  // next trim of the heap; used by the transport's thread only
  std::chrono::nanoseconds next_age_{};
};

}  // namespace troupe::detail
