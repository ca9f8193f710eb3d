#include <troupe/cluster/node/node.hpp>

#include <charconv>

#include <fmt/format.h>

#include <troupe/cluster/membership/discovery.hpp>
#include <troupe/cluster/node/node_core.hpp>

namespace troupe {

ClusterNode::ClusterNode(NodeOptions options) {
  // before anything is begun
  for (std::string& address : options.join) address = full_address(address);
  EngineOptions of_engine = options.engine;
  core_ = std::make_shared<NodeCore>(options);
  engine_ = std::make_unique<Engine>(std::move(of_engine));
  core_->open(engine_->impl(), options.join);
}

ClusterNode::~ClusterNode() {
  core_->close();
  engine_.reset();
}

Engine& ClusterNode::engine() { return *engine_; }
const std::string& ClusterNode::name() const { return core_->name(); }
std::string ClusterNode::address() const { return core_->transport().address(); }
std::vector<std::string> ClusterNode::nodes() const { return core_->view().names(); }
std::vector<Member> ClusterNode::members() const { return core_->view().members(); }
bool ClusterNode::has_joined() const { return core_->view().has_joined(); }
Status ClusterNode::status() const { return core_->view().status(); }
std::uint64_t ClusterNode::outdated_by() const { return core_->view().outdated_by(); }
void ClusterNode::connect(const std::string& address) { core_->connect(address); }
void ClusterNode::wait_for(const std::vector<std::string>& names,
                           std::chrono::nanoseconds timeout) {
  core_->view().wait_for(names, timeout);
}
bool ClusterNode::wait_joined(std::chrono::nanoseconds timeout,
                              const std::function<bool()>& gives_up) {
  return core_->wait_joined(timeout, gives_up);
}
RunCounters ClusterNode::run_counters() const {
  return {core_->runs().waited(), core_->runs().dropped(), core_->runs().refused(),
          core_->runs().taken()};
}
MembershipCounters ClusterNode::membership_counters() const { return core_->view().counters(); }
PoolCounters ClusterNode::pool_counters() const { return engine_->impl().pool()->counters(); }
std::map<std::string, std::chrono::nanoseconds> ClusterNode::round_trips() const {
  return core_->view().look([](const Roster& roster, ObservedMembers&) {
    std::map<std::string, std::chrono::nanoseconds> all;
    for (const Member& m : roster.members()) all[m.name] = roster.round_trip(m.name);
    return all;
  });
}
std::chrono::nanoseconds ClusterNode::detection_bound(std::size_t nodes) const {
  return core_->view().detection_bound(nodes);
}
ClusterReport ClusterNode::inspect(const NodeQuestion& question, std::chrono::nanoseconds patience,
                                   const std::string& only) const {
  return core_->inspections().inspect(question, patience, only);
}
std::vector<Diagnosis> ClusterNode::diagnose(std::chrono::nanoseconds apart,
                                             std::chrono::nanoseconds patience) const {
  return core_->inspections().diagnose(apart, patience);
}
CheckpointService& ClusterNode::checkpoints() const { return core_->checkpoints(); }
void ClusterNode::tell_of(const Records& records) const { core_->inspections().add(records); }
void ClusterNode::forget(const Records& records) const { core_->inspections().forget(records); }
Cleared ClusterNode::clear_container(const std::string& container,
                                     const std::vector<std::string>& nodes) {
  return core_->states().clear_container(container, nodes);
}
void ClusterNode::cancel_run(const std::string& run) {
  const auto slash = run.rfind('/');
  std::uint64_t number = 0;
  const char* const end = run.data() + run.size();
  if (slash == std::string::npos || slash == 0 ||
      std::from_chars(run.data() + slash + 1, end, number).ptr != end || slash + 1 == run.size())
    throw Error(
        Code::invalid_argument,
        fmt::format("'{}' is no run: a run is NODE/NUMBER, as 'troupe ps' lists them", run));
  core_->operations().cancel(run.substr(0, slash), number);
}
std::size_t ClusterNode::drain(const std::string& node) { return core_->operations().drain(node); }
bool ClusterNode::is_drained() const { return core_->operations().is_drained(); }
TransportCounters ClusterNode::counters() const { return core_->transport().counters(); }

}  // namespace troupe
