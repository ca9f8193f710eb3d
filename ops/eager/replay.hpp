// Replays a program on a reader: binds its nodes there, one after another.
//
//   Exprs y = replay(program, eager, {x});   // computes: the interpreter
//   Exprs y = replay(program, graph, {x});   // appends: inlining
//
// For each node in id order it calls `reader.bind(op, inputs, attrs)`. `Reader::Replaying` names
// the node that the bind repeats. **Threads**: those of the reader. **Ownership**: expressions
// of the result belong to the reader; the program may be destroyed afterwards, except that user
// gradient functions keep what they refer to.
//
// **Invariants**: 1. effects happen in program order; 2. an output has the dtype and, as far as it
// is known, the shape that inference found for the node; 3. an eager scope draws the bits that an
// engine with the same seed and step draws; 4. a graph keeps the nodes' origins, so it draws these
// bits too, unless it has given one of the origins to a node of its own: then all are shifted by
// one number, and the draws are independent of the graph's own.
#pragma once

#include <span>

#include <troupe/ops/graph/program.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe {

/// Returns the program's fetches as expressions of `reader`. `arguments` stand for its feeds; those
/// of other readers are adopted. Throws invalid_argument if their number, dtypes or shapes do not
/// fit.
Exprs replay(const detail::Program& program, detail::Reader& reader,
             std::span<const Expr> arguments);
/// Prunes the graph to the nodes that `fetches` need first. `feeds` are expressions of the graph.
Exprs replay(const Graph& graph, detail::Reader& reader, const std::vector<Expr>& feeds,
             std::span<const Expr> arguments, const std::vector<Expr>& fetches);
/// Replays all nodes of a sub-graph. `states` are those of its outermost graph; `arguments` are
/// expressions of the reader and have been checked.
Exprs replay(const detail::SubGraph& sub_graph, std::span<const detail::StateSpec> states,
             detail::Reader& reader, std::span<const Expr> arguments);

}  // namespace troupe
