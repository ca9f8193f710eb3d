// Inspections: answers what this node is doing, and asks all nodes.
//
//   ClusterReport now = inspections.inspect({}, 500ms, {});       // blocks for `patience` at most
//   std::vector<Diagnosis> hangs = inspections.diagnose(400ms, 300ms);
//   inspections.handle(peer, incarnation, inspect_node);          // by the listener
//
// Threads: any. Questions of others are answered on a thread of their own: an answer waits for
// partitions, and neither the transport's thread nor a worker may wait. A deterministic engine has
// no threads, and answers at once.
//
// Ownership: the service owns that thread; `close` ends it, and with it all answers.
//
// Invariants:
// 1. At most 64 questions wait; one more is refused. Questions about the state come first.
// 2. A peer that has not read its answers is answered with an error.
// 3. Times in a question are by the clock of the node that is asked: `question_for` converts them.
// 4. A question for scalars whose plan has an owner asks for the texts of a topic, a JSON array:
//    those of the engine's reporters (actors/engine/reporters.hpp), or `dependence`. The owner is
//    the topic.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <troupe/actors/engine/reporters.hpp>
#include <troupe/actors/runtime/serial_executor.hpp>
#include <troupe/cluster/node/dependence_watch.hpp>
#include <troupe/cluster/node/node_parts.hpp>
#include <troupe/cluster/node/process_load.hpp>
#include <troupe/cluster/protocol/node_report.hpp>

namespace troupe {

class Records;

class InspectionService {
 public:
  /// `has_own_clock`: it is not the system's, so that no other process reads the same.
  InspectionService(const NodeParts& node, bool has_own_clock);
  ~InspectionService();
  void close();

  // ---- here, for others

  /// `asker`: the incarnation of `peer`.
  void handle(Peer peer, std::uint64_t asker, InspectNode&& m);
  /// Adds records that inspections for scalars report: the last that were added. Call `forget`
  /// before they go.
  void add(const Records& records);
  void forget(const Records& records);

  // ---- of all nodes

  /// As ClusterNode::inspect and diagnose.
  ClusterReport inspect(const NodeQuestion& question, std::chrono::nanoseconds patience,
                        const std::string& only);
  std::vector<Diagnosis> diagnose(std::chrono::nanoseconds apart,
                                  std::chrono::nanoseconds patience);
  /// As Peers::ask_about.
  void ask_about(const Run& run, std::function<void(const RunSnapshot&)> heard);

 private:
  struct PendingQuestion {
    std::size_t place;  // in the report
    Peer peer;
    NodeQuestion question;
    std::uint64_t request = 0;
    std::int64_t sent_ns = 0;
  };

  void answer(Peer peer, std::uint64_t asker, const InspectNode& m, std::int64_t received_ns);
  NodeReport report(std::uint64_t asker, const NodeQuestion& question, std::int64_t received_ns);
  std::vector<RecordedPlan> recorded(std::uint64_t asker, const NodeQuestion& question);
  PlanName name_of(std::uint64_t reporter) const;
  std::shared_ptr<Reporter> reporter_of(const PlanName& plan) const;
  std::string texts_of(const std::string& topic);
  DependenceWatch& dependence();
  std::vector<PeerReport> peer_reports() const;
  /// The nodes that can be asked; of the others, the report has the reason why not.
  std::vector<PendingQuestion> nodes_to_ask(const NodeQuestion& question, const std::string& only,
                                            ClusterReport& report);
  NodeQuestion question_for(const std::string& node, NodeQuestion question,
                            ObservedMembers& observed) const;
  std::string why_apart(const Member& m, std::int64_t since_ns,
                        const ObservedMembers& observed) const;
  std::string why_silent(const NodeAnswer& a, std::chrono::nanoseconds patience,
                         const std::chrono::nanoseconds* heard) const;
  void take_report(const PendingQuestion& asked, RequestTable::Reply&& reply, NodeAnswer& a);

  const NodeParts node_;
  const bool has_own_clock_;
  ProcessLoad load_;

  std::mutex records_mutex_;  // guards records_, and those that are being read
  std::vector<const Records*> records_;
  std::mutex dependence_mutex_;                  // guards the one below
  std::unique_ptr<DependenceWatch> dependence_;  // null before the first question
  std::unique_ptr<SerialExecutor> inspector_;    // null in a deterministic engine
};

}  // namespace troupe
