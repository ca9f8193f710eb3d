// The primitives of dynamic control flow (Yu et al., EuroSys 2018), for programs built by hand;
// `cond`, `while_loop` and their like are lowered to them.
//
//   Expr enter = control::enter(g.constant(0), "count");
//   Expr i = control::merge({enter}).value;
//   Expr more = control::loop_cond(i < 10);
//   auto [last, next] = control::switch_(i, more);
//   control::next_iteration(next + 1, i);       // closes the loop at the merge
//   Expr result = control::exit(last);          // 10
//
// A token is live or dead. Switch sends its data to one side, dead to the others; Merge passes on
// the first live input, dead if all are dead; every other node that gets a dead token sends dead
// tokens. Enter takes a value into a frame, Exit out of it; NextIteration takes it one iteration
// on. A constant Enter's value is there in every iteration. Effects on states happen in program
// order within an iteration only: control edges must order them between iterations, and no state
// may be used both in such a loop and elsewhere. Gradients go through cond, while_loop and their
// like, not through these: `gradients` of a value that depends on one throws unimplemented.
#pragma once

#include <string>
#include <vector>

#include <troupe/ops/graph/graph.hpp>

namespace troupe::control {

struct Switched {
  Expr if_false, if_true;
};
/// `predicate`: bool, scalar.
Switched switch_(Operand data, Operand predicate);
/// One output a branch; an index that names none means the last. `index`: bool, i32 or i64, scalar.
Exprs switch_n(Operand data, Operand index, int branches);

struct Merged {
  Expr value;
  Expr index;  // i32: which input was live
};
/// Inputs of one dtype.
Merged merge(const std::vector<Expr>& inputs,
             std::source_location at = std::source_location::current());

struct EnterOptions {
  bool constant = false;
  int parallel_iterations = 32;
};
/// Frames are identified by name; a frame inside a frame is another. In a frame that loops, values
/// that are not constant are taken from a Merge.
Expr enter(Operand data, const std::string& frame, const EnterOptions& options = {});
Expr exit(Operand data);
/// Closes a loop: `value` becomes the value of `merge`, a Merge of one Enter, in the next
/// iteration. Each is closed once.
Expr next_iteration(Operand value, Operand merge);
/// The predicate of a loop's Switches. `predicate`: bool, scalar.
Expr loop_cond(Operand predicate);
/// Fires when all of `after` have, dead or live: true. For control edges.
Expr trigger(const std::vector<Expr>& after,
             std::source_location at = std::source_location::current());

}  // namespace troupe::control
