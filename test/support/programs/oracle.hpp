// The oracle: a sequential interpreter of programs with functional control flow, for tests. It
// walks Case, While and Call nodes as they were built and computes in doubles, with the references
// of the table of operations (test/ops/), and with plain loops for lists and variables. It
// shares no code with the tested library: no lowering, no kernels, no eager path.
//
//   Oracle oracle;
//   std::vector<OracleValue> out = oracle.run(graph, feeds, fetches);
//   oracle.variable("w");
//
// Integers and bools are exact: an integer that doubles, or its dtype, could not hold is refused.
// Errors: throws OracleError, naming the node, where the program is wrong for these inputs. A value
// is fragile where a comparison of floats is so close that rounding may decide it: `margin`.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <troupe/ops/graph/graph.hpp>
#include <troupe/test/ops/tables/array.hpp>

namespace troupe::test {

/// A tensor, or a list of such or of lists; an element that is null was never written.
struct OracleValue {
  DType dtype = DType::f32;
  Array array;
  bool is_list = false;
  Shape element;
  int depth = 0;
  std::vector<std::shared_ptr<const OracleValue>> elements;

  static OracleValue of(const Tensor& t) { return {t.dtype(), Array::of(t), false, {}, 0, {}}; }
  static OracleValue integer(DType dtype, double v) {
    return {dtype, {Shape{}, {v}}, false, {}, 0, {}};
  }
};

class OracleError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// The program is no fit for comparing: it takes too long or its numbers leave what doubles hold.
class OracleRefusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Oracle {
 public:
  /// Nodes that a run may compute; what computes more takes too long to compare.
  static constexpr std::int64_t kMostFired = 200'000;

  /// `round_to`: what floats are rounded to after every operation; f64: nothing. A second oracle
  /// that rounds more tells how far rounding can lead.
  explicit Oracle(DType round_to = DType::f64);
  Oracle(Oracle&&) noexcept;
  ~Oracle();

  std::vector<OracleValue> run(const Graph& graph,
                               const std::vector<std::pair<Expr, OracleValue>>& feeds,
                               const std::vector<Expr>& fetches);

  /// A variable's value: what it starts as if no run has touched it.
  const Array& variable(const Graph& graph, std::int32_t state);
  void set_variable(const Graph& graph, std::int32_t state, Array value);
  /// The least distance of two floats compared in the last run, relative to them.
  double margin() const;
  /// Number of nodes computed in the last run.
  std::int64_t fired() const;

 private:
  class Walk;
  std::unique_ptr<Walk> walk_;
};

}  // namespace troupe::test
