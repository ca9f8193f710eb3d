// PartitionDriver: the services that a partition needs of the actor that drives it.
#pragma once

#include <cstdint>
#include <string>

#include <troupe/actors/executor/partition_clock.hpp>
#include <troupe/actors/executor/partition_messages.hpp>

namespace troupe {

class PartitionDriver {
 public:
  /// Sends to the partition itself, or to another one, at once. Any thread.
  virtual void post_self(PartitionMessage message) = 0;
  virtual void post_at_once(std::int32_t partition, PartitionMessage message) = 0;
  /// Sends in the turn. A message to a partition of another node is batched until `flush`, which
  /// the driver calls itself when the turn ends. True: the message is in the batch.
  virtual bool post(std::int32_t partition, PartitionMessage message) = 0;
  /// Returns the last batched token of that edge, if it is recent. The pointer is valid until
  /// `Partition::on_batch_sent`. Null: there is none.
  virtual Token* waiting(std::int32_t partition, std::int32_t receive) = 0;
  virtual void flush() = 0;
  /// Makes another worker call `kernel.runner->run_elsewhere(kernel)`, which runs the kernel or the
  /// next slice of a resident loop, and posts its end. Any thread.
  virtual void hand_over(PendingKernel& kernel) = 0;
  /// Called before a heavy kernel in the turn: other work of this worker may go to other workers.
  virtual void before_heavy() = 0;
  /// Called before a kernel in the turn that takes longer than handing a job to a searching worker:
  /// the next job of this worker may go to one.
  virtual void before_medium() = 0;
  /// Reports that an invalid token or grant from `partition`, on another node, was dropped.
  virtual void refused(Run& run, std::int32_t partition, const std::string& what) = 0;
  const PartitionClock& clock() const { return clock_; }

 protected:
  explicit PartitionDriver(PartitionClock clock) : clock_(clock) {}
  ~PartitionDriver() = default;

 private:
  const PartitionClock clock_;
};

}  // namespace troupe
