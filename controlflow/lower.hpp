// Lowering: from functional nodes to the primitives, after every other pass and before placement.
//
//   cond    every captured value goes through a Switch, every result through a Merge
//   while   every variable: Enter ─► Merge ─► Switch ─► Exit
//                                      ▲         └─► body ─► NextIteration ─┐
//                                      └───────────────────────────────────┘
//           captured values come in through constant Enters
//   call    non-recursive: the body; else the Call stays, and the function's body stands once in
//           the program, between Arguments and Returns, in a frame of one iteration, of which each
//           call makes an instance
//
// State order: a sub-graph's effects on a state are ordered, within it and against the outside, by
// a unit-valued token for that state, which goes through branches like a captured value and through
// iterations like a loop variable. A loop that only reads a state does not order its iterations by
// it. A node with no input of its iteration or branch (a random draw, an op on captured values in a
// loop) gets a control edge from the branch's or iteration's pivot, so that it runs where and as
// often as it is written. Constants reach their users without a token.
#pragma once

#include <troupe/ops/graph/program.hpp>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

/// Returns a program whose only functional nodes are calls, with effects on states ordered by
/// control edges. The planner requires it.
/// `keeps_resident`: false takes resident loops apart, too.
Program lower(Program program, bool keeps_resident = true);

}  // namespace troupe
