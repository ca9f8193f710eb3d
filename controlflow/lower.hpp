// Lowering: from functional nodes to the primitives, after every other pass and before placement.
//
//   cond    every captured value goes through a Switch, every result through a Merge
//   while   every variable: Enter ─► Merge ─► Switch ─► Exit
//                                      ▲         └─► body ─► NextIteration ─┐
//                                      └───────────────────────────────────┘
//           captured values come in through constant Enters
//   call    non-recursive: the body; else the Call stays, and the function's body stands once in the program,
//           between Arguments, in a frame of one iteration that each call makes an instance of, and Returns
//
// State order: what a sub-graph does to a state is ordered, within it and against the outside, by a
// unit-valued token for that state, which goes through branches like a captured value and through
// iterations like a loop variable. Where a loop only reads a state, its iterations are not ordered
// by it. A node with no input of its iteration or branch (a random draw, an op on captured values
// in a loop) gets a control edge from the branch's or iteration's pivot, so that it runs where and
// as often as it is written. Constants are known to their users without a token.
#pragma once

#include <troupe/ops/graph/program.hpp>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

/// A program without functional nodes but calls, effects on states ordered by control edges.
/// Required: it is what the planner understands.
/// `keeps_resident`: false takes resident loops apart, too.
Program lower(Program program, bool keeps_resident = true);

}  // namespace troupe
