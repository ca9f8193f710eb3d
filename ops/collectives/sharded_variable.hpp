// A variable whose rows are on the devices of a group: embeddings of a large vocabulary, say.
//
//   ShardedVariable table(g, "embedding", DType::f32, {1'000'000, 64}, Initializer::normal(0, 0.1),
//                         servers, Partitioner::modulo());
//   Expr x = table.lookup(ids);                             // [ids..., 64]
//   Expr step = Adagrad({.learning_rate = 0.1}).minimize(loss, table.shards());
//
// A look-up moves the rows that it uses, each once, whatever the size of the table: ids that occur
// twice are combined first, each shard gathers its own rows on its device, and one gather puts the
// rows where the ids were. Its gradient goes the same way back, so an optimizer changes the rows
// that were used, on the shard's device, where its slots are too.
//
// The number of shards is the program's: it decides the names of the parts (`NAME/shard-0`, ...)
// and their initial values. The group decides where they are, and changes no bit.
//
// Source: Abadi et al., "TensorFlow: A System for Large-Scale Machine Learning" (OSDI 2016), §4.2.
// Threads: as the graph. Ownership: the graph must outlive it.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include <troupe/ops/collectives/collectives.hpp>
#include <troupe/ops/graph/variable.hpp>

namespace troupe {

class Graph;

/// Maps rows to shards.
class Partitioner {
 public:
  enum class Kind : std::uint8_t { range, modulo };

  /// Equal ranges of rows, one a member of the group, or `shards` of them.
  static Partitioner range(int shards = 0) { return {Kind::range, shards, 0}; }
  /// Row r is in shard r mod shards, so that frequent rows with neighbouring numbers are spread.
  static Partitioner modulo(int shards = 0) { return {Kind::modulo, shards, 0}; }
  /// As many equal ranges as are needed for shards of at most so many bytes.
  static Partitioner fixed_size(std::int64_t bytes) { return {Kind::range, 0, bytes}; }

  Kind kind() const { return kind_; }
  /// The number of shards for so many rows over so many devices. Throws invalid_argument if a shard
  /// would have no row, or a row does not fit.
  int shards(std::int64_t rows, std::int64_t bytes_of_row, int devices) const;

 private:
  Partitioner(Kind kind, int shards, std::int64_t bytes)
      : kind_(kind), shards_(shards), bytes_(bytes) {}
  Kind kind_;
  int shards_;          // 0: one a device
  std::int64_t bytes_;  // 0: not by size
};

class ShardedVariable {
 public:
  using At = std::source_location;
  /// Shard s is on device s mod the size of the group. Throws invalid_argument for a shape without
  /// rows, and as `Partitioner::shards` and `Graph::variable`.
  ShardedVariable(Graph& graph, const std::string& name, DType dtype, const Shape& shape,
                  const Initializer& initial, const collective::Group& group,
                  Partitioner partitioner = Partitioner::range(), At at = At::current());

  const std::string& name() const { return name_; }
  const Shape& shape() const { return shape_; }
  const std::vector<Variable>& shards() const { return shards_; }

  /// The rows of `ids` (i32 or i64, any shape): [ids..., row...]. A run with an id that is no row
  /// ends with invalid_argument.
  Expr lookup(const Expr& ids, At at = At::current()) const;
  /// The whole table, its rows in order.
  Expr read(At at = At::current()) const;
  /// Adds `updates` [n, row...] to the rows `ids` [n], on the shards' devices: a value to fetch or
  /// to order others after. Duplicates are added up first.
  Expr scatter_add(const Expr& ids, const Expr& updates, At at = At::current()) const;

 private:
  // Different ids, sorted by shard, and how the ids of a call lie among them.
  struct Routes {
    Expr places;      // [m] shard * rows of a shard + row of the shard, rising
    Expr which;       // [n] for each id of the call its place
    Exprs bounds;     // shard s has places[bounds[s]:bounds[s + 1]]
    std::string why;  // prefix of errors
  };
  Routes routes(const Expr& ids, At at) const;
  /// Rows of its shard that part s of the places names, on the shard's device.
  Expr rows_of(const Routes& routes, std::size_t s) const;
  std::int64_t shard_rows(std::size_t s) const;

  Graph* graph_;
  std::string name_;
  Shape shape_;
  Partitioner partitioner_;
  std::vector<std::string> devices_;  // a shard's
  std::vector<Variable> shards_;
  std::int64_t most_ = 0;  // rows of a shard, at most
};

/// Sampled softmax (Bengio and Senécal, AISTATS 2003; Jean et al., ACL 2015): an estimate of the
/// cross-entropy over all classes by an example's own class and `sampled` others, whose rows are
/// looked up in sharded weights [classes, d] and biases [classes]. inputs: [n, d]; labels: [n], i32
/// or i64. Classes are drawn with P(c) ~ log((c + 2) / (c + 1)), so low numbers should be the
/// frequent ones, and weighted by 1 / (sampled P(c)); draws of an example's own class are left out.
/// Yields [n], which is exact in the limit of many samples. Throws invalid_argument for shapes that
/// do not fit and for no samples.
Expr sampled_softmax(const ShardedVariable& weights, const ShardedVariable& biases,
                     const Expr& inputs, const Expr& labels, std::int64_t sampled,
                     std::source_location at = std::source_location::current());

}  // namespace troupe
