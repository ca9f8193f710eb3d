// Gradients of graphs, by reverse mode: more nodes of the same graph.
//
//   Expr loss = mean(cross_entropy(matmul(x, w) + b, labels));
//   std::vector<Expr> d = gradients(loss, {w, b});     // variables or expressions
//   Expr dd = gradients(sum(square(d[0])), w)[0];      // gradients of gradients are no different
//
// Nodes keep their ids and outputs: a gradient appends nodes, and adds outputs to loops, branches
// and calls. So gradients may be added before or after the graph was run. The added nodes are
// in the scope `gradients/`, on the device and with the line of the forward node. A branch or a
// body may also take gradients, of values inside and with respect to values outside.
// Threads: as the graph.
// Invariants: 1. only nodes on paths from xs to ys are differentiated, each once; 2. a path ends at
// an op that is not differentiable by definition, at an integer and at a bool (`Unconnected` lists
// the ends that are errors); 3. the gradient of a variable is the sum over its reads in the graph,
// whatever was assigned between them.
#pragma once

#include <functional>
#include <initializer_list>
#include <variant>
#include <vector>

#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/variable.hpp>

namespace troupe {

namespace detail {

struct Node;

/// An expression or a variable with respect to which a gradient is taken.
class Independent {
 public:
  Independent(Expr e) : what_(std::move(e)) {}  // NOLINT
  Independent(Variable v) : what_(v) {}         // NOLINT
  const Expr* expr() const { return std::get_if<Expr>(&what_); }
  const Variable* variable() const { return std::get_if<Variable>(&what_); }
  DType dtype() const { return expr() ? expr()->dtype() : variable()->dtype(); }

 private:
  std::variant<Expr, Variable> what_;
};

/// One or several of them, in braces or in a vector.
class Independents {
 public:
  Independents(std::initializer_list<Independent> xs) : xs_(xs) {}
  Independents(std::vector<Independent> xs) : xs_(std::move(xs)) {}             // NOLINT
  Independents(const std::vector<Expr>& xs) : xs_(xs.begin(), xs.end()) {}      // NOLINT
  Independents(const std::vector<Variable>& xs) : xs_(xs.begin(), xs.end()) {}  // NOLINT
  Independents(const Expr& x) : xs_{x} {}                                       // NOLINT
  Independents(const Variable& x) : xs_{x} {}                                   // NOLINT
  std::size_t size() const { return xs_.size(); }
  const Independent& operator[](std::size_t i) const { return xs_[i]; }
  auto begin() const { return xs_.begin(); }
  auto end() const { return xs_.end(); }

 private:
  std::vector<Independent> xs_;
};

}  // namespace detail

/// The result where a path from an x to a y has no gradient. The last two cases are errors even if
/// another path from x has one; with `zeros` only that path counts as zeros.
///
///   case                                                     refused  zeros  none   absent
///   no y depends on x, or only through bools                 zeros    zeros  empty  empty
///   all paths end at integers                                error    zeros  error  empty
///   a path ends at an op that yields floats, but has no
///   gradient (a user's actor, a draw, an assignment), or at
///   a loop variable or a parameter that depends on an x
///   outside of the loop or function                          error    zeros  error  error
///   a path ends at a write of a state and goes on at a read
///   that follows in the same graph: a variable that is
///   assigned and read, an element of a queue                 error    zeros  error  error
///
/// An optimizer's step, and the writes of a variable among the xs, are no such writes.
enum class Unconnected : std::uint8_t {
  refused,
  zeros,
  none,
  absent,  // tapes use it
};

struct GradientOptions {
  Unconnected unconnected = Unconnected::refused;
  /// The xs are independent of each other, as if each were fed: no path goes through an x.
  bool xs_are_independent = false;
  /// Paths that end count as zeros, and none is an error, whatever `unconnected` is.
  bool ends_are_zeros = false;
  /// Nodes for which it is false count as constants; null: there are none. For tapes, which do not
  /// record everything.
  const std::function<bool(const detail::Node&)>* follows = nullptr;
};

/// d(sum of y) / dx for each x, in x's shape and dtype. Throws invalid_argument unless each y is
/// floating, or complex with a given dy, each x floating or complex, and all are of one graph (or
/// of graphs one inside the other); unimplemented if a node on a path has no gradient. Both name
/// it, and the caller's line.
std::vector<Expr> gradients(const Expr& y, const detail::Independents& xs,
                            const GradientOptions& options = {},
                            std::source_location at = std::source_location::current());
/// The sum over several ys, each weighted with its dy: dys is empty (ones) or has one entry a y, of
/// its dtype and shape, in which an empty expression stands for ones.
std::vector<Expr> gradients(const std::vector<Expr>& ys, const detail::Independents& xs,
                            const std::vector<Expr>& dys = {}, const GradientOptions& options = {},
                            std::source_location at = std::source_location::current());

namespace detail {

/// Returns gradients in which rows that a gather used stay sparse.
std::vector<Cotangent> cotangents(const Expr& y, const Independents& xs,
                                  const GradientOptions& options = {},
                                  Site at = std::source_location::current());
std::vector<Cotangent> cotangents(const std::vector<Expr>& ys, const Independents& xs,
                                  const std::vector<Expr>& dys = {},
                                  const GradientOptions& options = {},
                                  Site at = std::source_location::current());

}  // namespace detail

}  // namespace troupe
