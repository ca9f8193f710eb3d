// Optimizers: how gradients change variables, as nodes of the graph.
//
//   Expr step = Adam({.learning_rate = 1e-3}).minimize(loss, {w, b});
//   engine.run(feeds, {step, loss});              // one step; loss is that of the old variables
//
// An optimizer is a value; what it remembers (momenta, step counts) are variables named
// `<variable>/<optimizer>/<slot>`, of the variable's dtype and on its device, so that checkpoints
// save them and two optimizers of one variable share them only if they are of one kind.
// Order: an update comes after every read that stands before it in the program, so all gradients of
// a step see the old values. Where an update needs a slot's new value it takes what `assign` yields.
// Sparse cotangents touch only the rows used; rows that occur twice count once, with their sum.
#pragma once

#include <string>
#include <vector>

#include <troupe/autodiff/gradients.hpp>

namespace troupe {

class Optimizer {
 public:
  using At = std::source_location;
  virtual ~Optimizer() = default;

  /// One step down the gradient of `loss`: an expression to fetch. Variables on which the loss does
  /// not depend stay as they are; throws invalid_argument if it depends on none of them.
  Expr minimize(const Expr& loss, const std::vector<Variable>& variables, At at = At::current()) const;
  /// One step with gradients that came from elsewhere (clipped, averaged over replicas), one a
  /// variable; none leaves its variable as it is.
  Expr apply(const std::vector<Cotangent>& gradients, const std::vector<Variable>& variables, At at = At::current()) const;
  Expr apply(const std::vector<Expr>& gradients, const std::vector<Variable>& variables, At at = At::current()) const;

 protected:
  explicit Optimizer(std::string name) : name_(std::move(name)) {}
  /// The updates of one variable; what they yield is fetched.
  virtual Expr update(const Variable& v, const Expr& gradient) const = 0;
  /// The same for rows `indices` (rank 1), which may occur twice.
  virtual Expr update_rows(const Variable& v, const Expr& indices, const Expr& rows) const = 0;

  /// A variable beside `v` that starts as `initial` everywhere.
  Variable slot(const Variable& v, const std::string& name, double initial = 0) const;
  Variable slot(const Variable& v, const std::string& name, DType dtype, const Shape& shape, double initial) const;

 private:
  std::string name_;
};

/// A number, or an expression (a schedule), as a scalar of the variable's dtype.
using Rate = Operand;

struct SgdOptions {
  Rate learning_rate = 0.01;
};

/// w -= learning_rate * dw (Robbins and Monro, 1951). Sparse steps are exact.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(SgdOptions options = {}) : Optimizer("sgd"), options_(std::move(options)) {}

 private:
  Expr update(const Variable& v, const Expr& gradient) const override;
  Expr update_rows(const Variable& v, const Expr& indices, const Expr& rows) const override;
  SgdOptions options_;
};

}  // namespace troupe
