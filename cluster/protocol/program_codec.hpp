// Programs between nodes: a placed, lowered program, or what one node needs of it, from which that
// makes its partitions (actors/plan/plan_part.hpp).
//
//   MessageWriter w;  write(w, placed);                        // constants go beside it, uncopied
//   Placed there;  read(r, there);                      // throws data_loss, or not_found for what this node lacks
//
// What can be named is named, never sent: ops, and users' actors, of which the node that is their
// home must have registered one of that name (`register_actor`). Nothing that is read runs code of
// the sender's. Invariant: what `read` yields holds what kernels and planner rely on: edges go
// backwards, every node's inputs, attributes and outputs are what its op's inference says, states
// are of the kind their ops work on, and such as a user may declare. How loops are wired the
// planner looks at itself (actors/controlflow/frames.hpp).
#pragma once

#include <troupe/actors/placement/placement.hpp>
#include <troupe/cluster/protocol/archive.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe {

/// `to`: the node that it is for, which gets no values of constants that only others use; empty:
/// all of them.
void write(MessageWriter& w, const Placed& placed, const std::string& to = {});
/// `here`: the name of this node, whose actors must be known.
void read(MessageReader& r, Placed& placed, const std::string& here);

void write(MessageWriter& w, const StateSpec& spec);
void read(MessageReader& r, StateSpec& spec);

}  // namespace troupe
