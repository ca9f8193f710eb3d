// The answers of the inspection server as JSON: INSPECTION.md has every field.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <troupe/actors/observe/recorder.hpp>
#include <troupe/cluster/checkpoint/checkpoint_answers.hpp>
#include <troupe/cluster/protocol/node_report.hpp>

namespace troupe {

namespace detail {

struct PoolCounters;

}  // namespace detail

std::string state_json(const std::string& node, const ClusterReport& report);
/// The nodes that are known, of `node`.
std::string members_json(const std::string& node, const std::vector<Member>& members);
std::string plan_json(const PlanDescription& plan);
std::string diagnosis_json(const std::string& node, const std::vector<Diagnosis>& verdicts,
                           const std::vector<RunSnapshot>& runs);
/// The training records of all nodes, each series with its node; times are this node's clock.
/// Empty: no node records.
std::string scalars_json(const ClusterReport& report);
std::string error_json(const std::string& sentence);
/// `report`: of all nodes, which were asked at `asked_ns`. Events that are all outside of [since,
/// until] are left out, and so are the earliest beyond `limit`. Times are this node's clock.
std::string events_json(const ClusterReport& report, std::int64_t asked_ns, std::int64_t since_ns,
                        std::int64_t until_ns, std::size_t limit);
/// In Chrome's trace format, which Perfetto reads: the latest `limit` events, 100 MB of text.
/// `until_ns`: when it was over; 0: with the last event.
std::string trace_json(const ClusterReport& report, std::int64_t since_ns = 0,
                       std::int64_t until_ns = 0, std::size_t limit = std::size_t{1} << 19);
/// Prometheus text, of one node. `pool`: of its engine.
std::string metrics_text(const NodeReport& report, const std::vector<Member>& members,
                         const PoolCounters& pool, const MembershipCounters& membership = {});

/// Prometheus text, of the trainings that a node knows.
std::string training_metrics(const TrainingsReport& report);

/// The counters of a plan's actors on all nodes, and the changes since an earlier request. Threads:
/// any.
class CounterCache {
 public:
  explicit CounterCache(PlanDescription plan);
  const PlanDescription& plan() const { return plan_; }
  /// Returns a ticket. Call it before the nodes are asked: of two requests at once, the later
  /// ticket's answer stays.
  std::uint64_t begin();
  /// `ticket`: from `begin`. Values that a later ticket has brought are kept.
  void update(const ClusterReport& report, std::uint64_t ticket);
  void update(const ClusterReport& report) { update(report, begin()); }
  std::string changes(std::uint64_t since) const;
  /// Everything of one actor.
  std::string actor_json(std::int32_t node, const std::vector<RunSnapshot>& runs,
                         const std::vector<std::string>& errors) const;
  std::string id_of(std::int32_t node) const {
    return plan_.name.text() + ":" + std::to_string(node);
  }

 private:
  std::string awaited(const ActorCounters& c) const {
    return c.waiting_for < 0 ? std::string() : id_of(c.waiting_for);
  }

  std::uint64_t executions_of(std::int32_t node) const;
  std::optional<std::uint64_t> put_out_each(const EdgeDescription& edge) const;

  struct Edge {
    std::uint64_t sent = 0, bytes = 0, received = 0;
    // tokens that were sent, and that runs which are over have not received, and never will
    std::uint64_t lost = 0;
    // iteration window of all runs under way together; 0: no token waits for credit
    std::int64_t window = 0;
    // Its two nodes were asked one after the other: no more than may be.
    std::uint64_t in_flight() const {
      const std::uint64_t left = sent > received + lost ? sent - received - lost : 0;
      return window > 0 ? std::min(left, static_cast<std::uint64_t>(window)) : left;
    }
    friend bool operator==(const Edge&, const Edge&) = default;
  };
  template <class T>
  struct Seen {
    T now{};
    std::uint64_t changed = 0;
    std::uint64_t ticket = 0;  // ticket of the request that brought `now`
  };

  const PlanDescription plan_;
  // Numbers of different caches differ: a request with a number of another cache gets everything.
  const std::uint64_t first_seq_ = static_cast<std::uint64_t>(steady_ns()) / 1000;
  mutable std::mutex mutex_;  // guards everything below
  std::uint64_t seq_ = first_seq_, last_ticket_ = 0;
  std::map<std::int32_t, Seen<ActorCounters>> actors_;
  std::map<std::pair<std::int32_t, std::int32_t>, Seen<Edge>> edges_;  // by partition and receive
  std::map<std::string, Seen<std::vector<LoopSnapshot>>> loops_;       // by device
};

}  // namespace troupe
