// Parts of plans: what one node of a cluster is sent of a placed program, from which it makes its
// own partitions as they are in the whole plan.
//
//   PlanParts parts(plan, placed);                                        // the whole plan, and what it was made from
//   Placed theirs = parts.is_divisible() ? parts.of(node) : placed;       // for make_plan on that node
//
// A part holds, in the whole program's order: the node's own nodes; all of each loop, and of each
// function, that has one of them; and whose values these take from elsewhere: what only repeats
// them, constants and inputs as they are, and `Elsewhere` in the place of who makes them, with
// their names and outputs and without inputs of their own. Its size is that of the node's
// partitions and of the edges that cut them off, whatever the whole is; but for the names of all
// nodes that take part and all queues, and the places of feeds and fetches, which go by their
// numbers in every part.
//
// Invariant: a partition's tables number its frames, receives and sends in the order of the nodes
// that it exchanges tokens with, all of which are there, in the same order; what they hold is the
// same in the part and in the whole, but for where nodes and partitions stand (Plan::numbers). Only
// the other ends of cut edges are numbered by others, so their numbers come with the part.
// `fingerprints` tell whether both have made the same.
//
// Programs in which functions are called over several devices are sent to every node as a whole,
// for who has part of a call hears from whoever may make one, wherever that is.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <troupe/actors/placement/placement.hpp>
#include <troupe/actors/plan/plan.hpp>

namespace troupe {

struct PlanPart {
  std::vector<std::string> nodes;     // of the cluster: Plan::nodes
  std::vector<std::int32_t> numbers;  // Plan::numbers
  struct Partition {
    std::string device;
    std::int32_t number = 0;  // in the whole plan
  };
  std::vector<Partition> partitions;  // those of the nodes that are there, by number
  /// A value, or with output -1 that it has fired, that goes to a partition of another node from
  /// outside of all loops.
  struct Out {
    std::int32_t node = 0;  // of the part
    std::int32_t output = 0;
    std::int32_t partition = 0;  // into `partitions`
  };
  std::vector<Out> outs;
  QueueUses queues;  // Plan::queues
  /// An operation of the node's own that may have to wait at a queue.
  struct Wait {
    std::int32_t node = 0;  // of the part
    // QueueUsers::may_end, by where they are in the part; -1 alone: some are in other partitions
    std::vector<std::int32_t> ended_by;
  };
  std::vector<Wait> waits;
  // Of the sends of the node's partitions, one after the other, and of their receives: the number
  // at the other end.
  std::vector<std::int32_t> receives, sends;
};

/// Gives the cut edges of a plan that has been made from a part the numbers of their other ends,
/// which come in the order of the node's partitions. Throws data_loss where they are not as many.
void number_ends(Plan& plan, const PlanPart& part);

/// Of a whole plan. Refers to it, and to what it was made from.
class PlanParts {
 public:
  PlanParts(const Plan& plan, const Placed& placed);
  ~PlanParts();
  /// False: every node needs all of the program.
  bool is_divisible() const;
  /// For the node of that index into `Plan::nodes`; only where it is divisible.
  Placed of(std::int32_t node) const;

  struct Whole;

 private:
  const std::unique_ptr<const Whole> whole_;
};

}  // namespace troupe
