// A partition of a running query whose operators are on another node: the actor that stands for it
// at the caller, and its calls. Internal to running_query.cpp.
//
//   NAME.finalize ──Deliver──► PlacedPartition ──Deliver──► OUTPUT.merge
//                  ◄──Grant───   │  ▲          ◄──Grant───
//                           call │  │ Answered, one call at a time
//                                ▼  │
//                        PartitionLine ── run of a graph ──► PartitionHost on the node
//
// A call is a run of a graph of one node, a user's actor on the device of the other node. So the
// engine carries the batches, finds the loss of the node, and fails the run with its name. While a
// call is under way batches gather, up to 4,096 messages a call. The partition takes no input while
// a call is under way or an output has no room, so a slow node slows the sources.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/actors/events/output_edges.hpp>
#include <troupe/actors/events/placed_messages.hpp>

namespace troupe::events {

/// Calls of a partition's operators, one at a time. The calls of an engine with threads are made by
/// a thread of the line, those of one without by `poll`.
class PartitionLine {
 public:
  using Done = std::function<void(Answered)>;

  /// Throws Error (not_found), which lists the nodes, for one that is not there.
  PartitionLine(Engine& engine, std::string node, std::string run, std::size_t slot);
  /// Cancels the call under way, and frees the operators unless the node is lost.
  ~PartitionLine();
  PartitionLine(const PartitionLine&) = delete;
  PartitionLine& operator=(const PartitionLine&) = delete;

  /// Makes the operators on the node. Blocks. Throws the node's error.
  void open(PartitionCall call);
  /// Sets the function that gets the end of each call. Before the first one.
  void deliver(Done done) { done_ = std::move(done); }
  /// Starts a call. Not while another one is under way. Any thread.
  void start(PartitionCall call);
  /// Starts and ends calls of an engine without threads.
  void poll();
  /// Cancels the call under way, whose end is not delivered then.
  void stop();
  const std::string& node() const { return node_; }

 private:
  void live();
  Answered answer_of(RunHandle& run);
  Answered failed() const;

  const std::string node_, run_;
  const bool has_threads_;
  Function function_;
  Done done_;  // published by the first `start`
  bool is_open_ = false;
  std::mutex mutex_;  // guards all below but the thread
  std::condition_variable changed_;
  std::optional<Tensor> next_;     // a call that has not started
  std::optional<RunHandle> call_;  // under way
  bool is_stopped_ = false;
  std::thread thread_;
};

class PlacedPartition final : public QueryActor {
 public:
  PlacedPartition(caf::actor_config& config, PartitionLine& line, const Query& query,
                  std::size_t partition);
  /// Before the first message. A consumer's `stream` is a position in `exits`, and an input one in
  /// `entries`.
  void connect(ActorWiring wiring);
  const char* name() const override { return "stream:partition"; }

 protected:
  void receive(OperatorMessage& message) override;
  void ended(const caf::error& reason) override;

 private:
  void work();
  void take(Answered& end);
  void take_batches(PartitionCall& call);
  void forward(std::vector<StreamBatch> batches);
  void report();
  void level_changed(Time effective, Time reach);

  PartitionLine& line_;  // outlives the actor's last message
  const PartitionShape shape_;
  std::vector<Schema> schemas_;  // by exit
  ActorWiring wiring_;
  OutputEdges edges_;
  std::deque<Deliver> in_;
  std::vector<Ask> asks_;         // wait for a call, then for its answer
  std::vector<Switch> switches_;  // likewise
  std::size_t asked_ = 0;         // the first ones of `asks_`: the call under way answers them
  bool is_calling_ = false, is_changing_ = false, has_failed_ = false;
  std::vector<OperatorReport> last_;  // by operator
};

}  // namespace troupe::events
