// Programs between nodes: a placed, lowered program, or the part of it from which one node makes
// its partitions (actors/plan/plan_part.hpp).
//
//   MessageWriter w;  write(w, placed);  // constants go beside it, uncopied
//   Placed there;  read(r, there);       // throws data_loss, or not_found for an unknown name
//
// Ops and users' actors are sent by name. The home node of a user's actor must have registered one
// of that name (`register_actor`). No code of the sender's runs. Invariant: the result of `read`
// satisfies the assumptions of kernels and planner. Edges go backwards; each node's inputs,
// attributes and outputs agree with its op's inference; states are of the kind that their ops use
// and that a user may declare. The planner checks the wiring of loops itself
// (actors/frames/frames.hpp).
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
