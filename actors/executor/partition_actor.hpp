// PartitionActor: the lean actor that drives a partition. A turn drains the inbox, fires up to
// 2,000 nodes, and yields.
#pragma once

#include <atomic>

#include <troupe/actors/executor/partition.hpp>
#include <troupe/actors/runtime/lean_actor.hpp>
#include <troupe/devices/threads/worker_pool.hpp>

namespace troupe {

class PartitionActor;
class RemotePlan;

namespace detail {

/// The actors of one plan, and the state that they share.
struct PlanActors {
  std::shared_ptr<const Plan> plan;
  std::vector<LeanRef<PartitionActor>> partitions;  // null: on another node
  std::shared_ptr<RemotePlan> remote;               // null: the plan is on one node
  /// True if all kernels on this node were measured to be short. Then the thread that brings a
  /// token may run the nodes that it enables.
  std::atomic<bool> is_light{false};  // publishes nothing but itself

  /// Before the first run of a plan over several nodes.
  void connect(std::shared_ptr<RemotePlan> others);
  /// Sends to a partition of this node or of another, at once. Any thread.
  void post(std::int32_t partition, PartitionMessage message);
  /// Updates `is_light`, before a run.
  void weigh();
  /// Returns the number of partitions on this node.
  int here() const;
};

}  // namespace detail

class PartitionActor final : public LeanActor<PartitionMessage>, private PartitionDriver {
 public:
  PartitionActor(caf::actor_config& config, std::shared_ptr<const Plan> plan, std::int32_t index,
                 Granularity granularity, WorkerPool& pool, PlanActors& troupe);

  ~PartitionActor() override;

  const char* name() const override { return "partition"; }
  const Partition& partition() const { return partition_; }

  /// Runs a turn on the calling thread, which acts as a worker, if the actor waits for a message.
  /// `messages` is given a function and calls it with each PartitionMessage; these bypass the inbox
  /// and need no job. False: the actor was busy and nothing was done.
  template <class Messages>
  bool turn_here(Messages messages) {
    struct First {
      PartitionActor& self;
      Messages& messages;
    } first{*this, messages};
    return take_turn(
        [](void* what) {
          auto& [self, all] = *static_cast<First*>(what);
          all([&](PartitionMessage& message) { self.partition_.receive(message); });
        },
        &first);
  }

 protected:
  void receive(PartitionMessage& message) override { partition_.receive(message); }
  bool continue_turn() override {
    const bool goes_on = partition_.turn(kFirings);
    end_turn();
    return goes_on;
  }
  /// True if a token of another partition, or the end of a kernel on another worker, may come.
  bool awaits_soon() const override { return !partition_.is_idle(); }
  void break_turn() override {
    partition_.break_turn();
    end_turn();
  }

 private:
  // about 50 µs of tiny kernels; a yield costs 0.1 µs. A turn of long kernels ends earlier:
  // `KernelRunner::kLongTurn`
  static constexpr int kFirings = 2000;
  static constexpr std::size_t kMostPosted = 64;  // messages in a batch for other nodes
  // the newest messages of the batch that are searched for one to extend or replace
  static constexpr std::size_t kLookedAt = 8;
  // turns with equal numbers of messages after which the next turn is predicted to have as many
  static constexpr int kSame = 32;

  template <class Message, class Is>
  Message* last_posted(std::int32_t partition, Is is_it);
  Grant* lesser(std::int32_t partition, const Grant& grant);
  void post_self(PartitionMessage message) override { send(std::move(message)); }
  void post_at_once(std::int32_t partition, PartitionMessage message) override {
    troupe_.post(partition, std::move(message));
  }
  bool post(std::int32_t partition, PartitionMessage message) override;
  Token* waiting(std::int32_t partition, std::int32_t receive) override;
  void flush() override;
  void end_turn();
  void hand_over(PendingKernel& kernel) override;
  void before_heavy() override {
    if (Worker* worker = Worker::current()) worker->share();
  }
  void before_medium() override {
    if (Worker* worker = Worker::current()) worker->offer();
  }
  void refused(Run& run, std::int32_t partition, const std::string& what) override;

  WorkerPool& pool_;
  PlanActors& troupe_;
  const Granularity granularity_;
  std::vector<Posted> posted_;  // batch of this turn for other nodes
  // A loop whose iterations wait for another node posts equally many messages in each turn. So the
  // actor can predict the last message, and flushes the batch with it. The rest of the turn, a
  // fifth of it, then overlaps with the other node's work. A wrong prediction costs one message.
  int posts_ = 0;       // messages of this turn, without those that extend or replace another
  int last_posts_ = 0;  // messages of the last turn that posted; 0: no prediction in this turn
  int same_ = 0;        // consecutive turns before that with equally many
  /// With granularity `op`: each op's kernel in an actor of its own, made at its first firing.
  class OpActor;
  std::vector<LeanRef<OpActor>> op_actors_;
  Partition partition_;
};

}  // namespace troupe
