// Checkpoints on the disks of nodes: this node's part of them, on behalf of a training's driver.
//
//   driver                         node with states                     node with a copy
//     │ take(names) ─────────────────►│ handles of the values                │
//     │ ◄──────────────────── Answer ─│   training goes on from here         │
//     │ write(file, holders) ────────►│ keep(file, values) ─────────────────►│ writes
//     │                               │ writes                               │
//     │                               │ ◄───────────────── Answer(checksums) │
//     │ ◄── Answer(checksums, holders)│                                      │
//     │ commit(manifest) ────────────►│ ────────────────────────────────────►│ (to each node)
//     │ put(names, values) ──────────►│ sets states                          │
//     │ put(names, file, checksums) ─►│ sets variables from its own disk     │
//
// Values are handles of buffers, which a later update does not change: training waits for `take`.
// Threads: any. `ask` and `await` block their caller. The request worker takes requests. One thread
// of the service does `write`, which may wait for room at a node with a copy; another serves such
// nodes and never waits for one. In a deterministic engine the request worker does all.
// Ownership: the service owns its threads; `close` ends them. It drops values that were taken when
// they are written, when the training takes others, or with the session of their owner.
// Invariants: 1. Requests of an earlier epoch are refused (CheckpointStore). 2. Copies of a shard
// have equal bytes: their checksums are compared before a holder is named. 3. At most 256 requests
// wait, 64 of a peer; PeerQuota counts their bytes until they are done.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include <troupe/cluster/checkpoint/checkpoint_answers.hpp>
#include <troupe/cluster/checkpoint/checkpoint_store.hpp>
#include <troupe/cluster/node/node_parts.hpp>
#include <troupe/cluster/node/plan_service.hpp>
#include <troupe/cluster/node/state_service.hpp>

namespace troupe::detail {

class CheckpointService {
 public:
  using Reply = RequestTable::Reply;
  using Kind = CheckpointRequest::Kind;

  CheckpointService(const NodeParts& node, StateService& states, PlanService& plans,
                    CheckpointStore& store);
  ~CheckpointService();
  /// Ends the threads when they have done what they are at.
  void close();

  const CheckpointStore& store() const { return store_; }
  const std::string& node() const { return node_.self.name; }

  // ---- at the driver

  /// Sends a request to a node, this one included, and returns its number for `await`. Throws
  /// not_found for a node that is not there.
  std::uint64_t start(const std::string& node, CheckpointRequest m);
  /// Blocks until the reply is there. Throws its error, naming the node.
  Reply await(const std::string& node, std::uint64_t request);
  Reply ask(const std::string& node, CheckpointRequest m) {
    return await(node, start(node, std::move(m)));
  }
  /// Sends a request whose reply is of no interest. A node that is not there is passed over.
  void tell(const std::string& node, CheckpointRequest m);
  /// Asks each node that is there for what it keeps; one that does not answer is left out.
  std::map<std::string, TrainingsReport> look();
  /// A shard's file on a node, of so many bytes. Throws as the node's disk does.
  std::unique_ptr<ReadableFile> open(const std::string& node, const std::string& training,
                                     const ShardEntry& shard);
  /// As StateService::forget, before a checkpoint is restored.
  void forget_values(const std::set<std::string>& variables) { states_.forget(variables); }
  /// Waits until the condition holds, which is looked at now and then; false if it does not within
  /// `patience`.
  bool wait(const std::function<bool()>& holds, std::chrono::nanoseconds patience);
  /// The trainings that this node knows, and the checkpoints that it keeps of them.
  TrainingsReport report() const;
  bool is_deterministic() const { return node_.waiter.is_deterministic(); }
  std::int64_t time_ns() const { return node_.time_ns(); }

  // ---- here, for others

  /// `owner`: the incarnation of `from`; `bytes`: of the message, which are kept while it waits.
  void handle(Peer from, std::uint64_t owner, CheckpointRequest&& m, std::uint64_t bytes);
  /// The session with a node has ended: the values of its training are dropped.
  void lost(const NodeId& node);

 private:
  class PeerJobs;
  class RemoteFile;
  struct Copies;
  struct Taken {
    std::int64_t step = 0;
    NamedTensors values;
  };
  // Its owner, its training, and a number for trainings of one owner that have no names.
  using TakenKey = std::tuple<std::uint64_t, std::string, std::uint64_t>;
  static TakenKey key_of(std::uint64_t owner, const CheckpointRequest& m) {
    return {owner, m.fence.training, m.number};
  }

  Answer answer_to(std::uint64_t owner, const CheckpointRequest& m);
  void claim(const Fence& fence);
  std::shared_ptr<StateStore> states_of(std::uint64_t owner, const std::string& container);
  Taken taken_by(std::uint64_t owner, const CheckpointRequest& m);
  void take(Peer from, std::uint64_t owner, const CheckpointRequest& m);
  void put(Peer from, std::uint64_t owner, const CheckpointRequest& m);
  void put_from_disk(Peer from, std::uint64_t owner, const CheckpointRequest& m);
  void write(Peer from, std::uint64_t owner, const CheckpointRequest& m);
  void begin_write(Peer from, const CheckpointRequest& m, NamedTensors values);
  void reply(Peer to, const Answer& answer);
  void reply_with_status(Peer to, std::uint64_t request, const Status& status);

  const NodeParts node_;
  StateService& states_;
  PlanService& plans_;
  CheckpointStore& store_;

  mutable std::mutex mutex_;  // guards the two below
  std::map<TakenKey, Taken> taken_;
  std::map<std::string, DriverProgress> progress_;  // by training
  std::unique_ptr<PeerJobs> writer_, sender_;       // null in a deterministic engine
};

}  // namespace troupe::detail
