// The operators of partitions of other nodes' queries, on the node that runs them.
//
// Each program of Troupe registers kSlots user actors, `stream_partition/0` and on. The graph of a
// caller fires one of them on the node by name (placed_partition.hpp). An actor has any number of
// partitions, by `PartitionCall::run`; partitions of one query are in different actors, so they run
// beside each other.
//
//   PartitionHost host;
//   host.call({.kind = PartitionCall::Kind::open, .run = "a/1/0", .text = ..., ...});
//   host.call({.run = "a/1/0", .batches = ...});      // what follows from the batches
//   host.call({.kind = PartitionCall::Kind::close, .run = "a/1/0"});
//
// Errors are answers, not exceptions: an actor that throws is made anew and loses its partitions. A
// partition that has failed answers each later call with its first error.
//
// Ownership: partitions belong to the caller's states on the node, and are freed with them.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>

#include <troupe/actors/events/placed_messages.hpp>
#include <troupe/ops/graph/actor_node.hpp>

namespace troupe::events {

class PartitionHost final : public NodeActor {
 public:
  static constexpr std::size_t kSlots = 64;  // as many as a query has partitions at most
  static std::string slot_name(std::size_t slot);

  PartitionHost();
  ~PartitionHost() override;
  void receive(std::span<const Tensor> inputs, std::span<Tensor> outputs) override;
  PartitionAnswer call(PartitionCall call);

 private:
  class Partition;
  std::map<std::string, std::unique_ptr<Partition>> partitions_;  // by run
};

}  // namespace troupe::events
