// The actor that drives a partition: a lean actor whose turn drains its inbox, then fires up to two
// thousand nodes, then yields.
#pragma once

#include <atomic>

#include <caf/actor_clock.hpp>

#include <troupe/actors/executor/partition.hpp>
#include <troupe/actors/runtime/lean_actor.hpp>
#include <troupe/devices/threads/worker_pool.hpp>

namespace troupe {

class PartitionActor;
class RemotePlan;

namespace detail {

/// The actors of one plan, and what they share.
struct PlanTroupe {
  std::shared_ptr<const Plan> plan;
  std::vector<LeanRef<PartitionActor>> partitions;  // null: of another node
  std::shared_ptr<RemotePlan> remote;               // of a plan over several nodes
  /// All kernels that are here were measured to be short: who brings a token may run what it
  /// enables.
  std::atomic<bool> is_light{false};  // publishes nothing but itself

  /// To a partition of this node or of another, at once. Any thread.
  void post(std::int32_t partition, PartitionMessage message);
  /// Looks again whether that is so: before a run.
  void weigh();
  /// How many partitions are of this node.
  int here() const;
};

}  // namespace detail

class PartitionActor final : public LeanActor<PartitionMessage>, private PartitionDriver {
 public:
  PartitionActor(caf::actor_config& config, std::shared_ptr<const Plan> plan, std::int32_t index,
                 Granularity granularity, WorkerPool& pool, PlanTroupe& troupe);

  ~PartitionActor() override;

  const char* name() const override { return "partition"; }
  const Partition& partition() const { return partition_; }

  /// For who has a worker's place: if the actor waits for a message, its turn here and now, in
  /// which `messages` calls what it is given with each PartitionMessage that there is. No inbox is
  /// on their way, nor a job. False: nothing was done.
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
  /// A token of another partition, or the end of a kernel that another worker runs.
  bool awaits_soon() const override { return !partition_.is_idle(); }
  void break_turn() override {
    partition_.break_turn();
    end_turn();
  }

 private:
  // about 50 µs of tiny kernels; a yield costs 0.1. A turn of long ones ends earlier: `KernelRunner::kLongTurn`
  static constexpr int kFirings = 2000;
  static constexpr std::size_t kMostPosted = 64;  // to other nodes, until they are sent
  // of these, the last, for one that another goes on or replaces
  static constexpr std::size_t kLookedAt = 8;
  // turns that have posted as much as the one before them: the next one will too
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
  std::uint64_t time_at(std::uint64_t now) const override;
  bool is_stepped() const override { return virtual_clock_ != nullptr; }
  std::int64_t nanoseconds(std::uint64_t time, const TickClock& clock) const override {
    return virtual_clock_ ? static_cast<std::int64_t>(time) : clock.nanoseconds(time);
  }
  std::uint64_t time_of(std::int64_t nanoseconds, const TickClock& clock) const override {
    return virtual_clock_ ? static_cast<std::uint64_t>(nanoseconds) : clock.ticks_of(nanoseconds);
  }

  WorkerPool& pool_;
  const caf::actor_clock* const virtual_clock_;  // of a deterministic engine; null: there is none
  PlanTroupe& troupe_;
  const Granularity granularity_;
  std::vector<Posted> posted_;  // to other nodes, by this turn
  // A loop whose iterations wait for another node posts the same in each turn. The last of it is
  // known for the last then, and takes all along: what the turn has still to do, a fifth of it, is
  // done while the other works. A wrong guess costs a message.
  int posts_ = 0;       // by this turn, but for those that go on with another
  int last_posts_ = 0;  // by the last one that posted; 0: in this turn one may go on
  int same_ = 0;        // turns with as many, before that
  /// With granularity `op`: each op's kernel in an actor of its own, made at its first firing.
  class OpActor;
  std::vector<LeanRef<OpActor>> op_actors_;
  Partition partition_;
};

}  // namespace troupe
