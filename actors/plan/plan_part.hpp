// PlanPart: the part of a placed program that one cluster node is sent. From it the node makes its
// partitions exactly as they are in the whole plan.
//
//   PlanParts parts(plan, placed);  // the whole plan, and the placed program that it was made from
//   Placed theirs = parts.is_divisible() ? parts.of(node) : placed;  // for make_plan on that node
//
// A part holds, in the whole program's order: the program nodes on the cluster node; all of each
// loop and function that has one of these; and the sources of their inputs. An alias, a constant or
// an input is kept as it is. Any other source is replaced by an `Elsewhere` with its name and
// outputs, and without inputs. A part is as large as its partitions and cut edges. Only the names
// of all cluster nodes, all queues, and the indices of feeds and fetches are in every part.
//
// Invariant: a partition numbers its frames, receives and sends in the order of the nodes that it
// exchanges tokens with. The part has all of these, in the whole program's order. So the tables are
// equal in part and whole, but for indices of nodes and partitions (Plan::numbers). The other ends
// of cut edges are numbered elsewhere, and sent with the part. `fingerprints` check the equality.
//
// If functions are called over several devices, every node is sent the whole program, because a
// partition with part of a call receives messages from every partition that may call. If devices of
// a mesh run instances of the plan, every node is sent all of it too, and makes its own instances.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <troupe/actors/placement/placement.hpp>
#include <troupe/actors/plan/plan.hpp>

namespace troupe {

struct PlanPart {
  std::vector<std::string> nodes;     // Plan::nodes
  std::vector<std::int32_t> numbers;  // Plan::numbers
  struct Partition {
    std::string device;
    std::int32_t number = 0;  // in the whole plan
  };
  std::vector<Partition> partitions;  // the partitions of all nodes in the part, by number
  /// A value, or with output -1 a control token, that goes from outside of all loops to a partition
  /// of another node.
  struct Out {
    std::int32_t node = 0;  // index in the part
    std::int32_t output = 0;
    std::int32_t partition = 0;  // into `partitions`
  };
  std::vector<Out> outs;
  QueueUses queues;  // Plan::queues
  /// An operation on the node that may wait at a queue.
  struct Wait {
    std::int32_t node = 0;  // index in the part
    // QueueUsers::may_end as indices in the part; only -1: some are in other partitions
    std::vector<std::int32_t> ended_by;
  };
  std::vector<Wait> waits;
  // Numbers of the other ends of the node's cut edges, partition by partition: `receives` for its
  // sends, `sends` for its receives.
  std::vector<std::int32_t> receives, sends;
};

/// Sets the numbers of the other ends of the cut edges, in a plan that was made from a part. They
/// are in the order of the node's partitions. Throws data_loss if their number is wrong.
void number_ends(Plan& plan, const PlanPart& part);

/// Makes the parts of a whole plan. Refers to the plan and to the program that it was made from.
class PlanParts {
 public:
  PlanParts(const Plan& plan, const Placed& placed);
  ~PlanParts();
  /// False if every node needs all of the program.
  bool is_divisible() const;
  /// Returns the part of `Plan::nodes[node]`. Requires is_divisible().
  Placed of(std::int32_t node) const;

  struct Whole;

 private:
  const std::unique_ptr<const Whole> whole_;
};

}  // namespace troupe
