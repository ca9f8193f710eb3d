// Partitions by key: copies of a query's operators, each with a share of the rows.
//
//   const Query two = partitioned(query, 2);       // RunOptions::partitions does it
//
//                        ┌─► count#2/0 ─┐
//   NAME.finalize ─split─┤              ├─► OUTPUT.merge ─► OUTPUT ─► receive
//                        └─► count#2/1 ─┘
//
// A source is divided behind its ingress, by the hash of fields that all operators with state keep
// together: fields of their group, of their join keys or of their correlation key. These fields are
// found in the plan. Operators of one partition see all rows that depend on each other, so their
// output is that of the whole. The merge has the least guarantee of all partitions. `placed` names
// the node of each partition.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <troupe/actors/events/batch.hpp>

namespace troupe::events {

class Query;

/// How the rows of an operator depend on each other.
struct Division {
  /// Rows that depend on each other agree in the k-th columns of all sides.
  struct Side {
    std::size_t input;
    std::vector<std::size_t> columns;
  };
  std::vector<Side> sides;  // none: each row stands by itself
  /// The column of the output that has the values of the k-th columns of the sides, or of the
  /// input's column k if there are no sides; -1: none.
  std::vector<int> made;

  /// Each row stands by itself, and has its input's `columns` columns first.
  static Division by_row(std::size_t columns);
  /// Rows of one input depend on those that agree in `columns`; the output has `made` of them.
  static Division by(std::vector<std::size_t> columns, std::vector<int> made);
};

/// Divides batches by the hash of columns.
struct Split {
  std::vector<std::size_t> columns;
  std::size_t partitions;
  /// Returns a batch a partition, each with the guarantee.
  std::vector<Batch> divide(const Batch& batch) const;
};

/// Returns the query with copies of all operators between ingress and outputs; as it is if no
/// operator has state, because those run beside each other already. Throws Error (invalid_argument)
/// for less than one partition, and for an operator whose rows share no field.
Query partitioned(const Query& query, std::size_t partitions);

/// Returns the query with `partitions` copies on each of the nodes, one node after another; divided
/// also if no operator has state. Throws Error (invalid_argument) as `partitioned`, and for a node
/// that is named twice.
Query placed(const Query& query, const std::vector<std::string>& nodes, std::size_t partitions);

/// The operators of one partition of a placed query, and the streams between them and the others.
struct PartitionShape {
  std::vector<std::size_t> steps;    ///< its operators, ascending
  std::vector<std::size_t> entries;  ///< steps outside that feed it, ascending
  std::vector<std::size_t> exits;    ///< its steps that feed others, ascending
};
PartitionShape shape_of(const Query& query, std::size_t partition);

}  // namespace troupe::events
