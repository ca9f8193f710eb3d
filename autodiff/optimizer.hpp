// Optimizers: how gradients change variables, as nodes of the graph.
//
//   Expr step = Adam({.learning_rate = 1e-3}).minimize(loss, {w, b});
//   engine.run(feeds, {step, loss});              // one step; loss is that of the old variables
//
// An optimizer is a value; its state (momenta, step counts) consists of variables named
// `<variable>/<optimizer>/<slot>` on the variable's device and of its dtype (f32 for f16 and bf16,
// in which no step is computed), so that checkpoints save them and two optimizers of one variable
// share them only if they are of one kind. Order: an update comes after every read that stands
// before it in the program, so all gradients of a step use the old values. An update that needs a
// slot's new value takes the result of `assign`. Sparse cotangents touch only the rows used, and a
// row that occurs twice counts once, with its sum. Sgd and Adagrad then equal the dense step. The
// others are lazy: a row's slots stand still while it is not used (as in TensorFlow's LazyAdam and
// PyTorch's SparseAdam).
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <troupe/autodiff/gradients.hpp>

namespace troupe {

class Optimizer {
 public:
  using At = std::source_location;
  virtual ~Optimizer() = default;

  /// One step down the gradient of `loss`: an expression to fetch. Variables on which the loss does
  /// not depend stay as they are; throws invalid_argument if it depends on none of them.
  Expr minimize(const Expr& loss, const std::vector<Variable>& variables,
                At at = At::current()) const;
  /// One step with gradients that came from elsewhere (clipped, averaged over replicas), one a
  /// variable; none leaves its variable as it is.
  Expr apply(const std::vector<detail::Cotangent>& gradients,
             const std::vector<Variable>& variables, At at = At::current()) const;
  Expr apply(const std::vector<Expr>& gradients, const std::vector<Variable>& variables,
             At at = At::current()) const;
  Expr apply(std::initializer_list<Expr> gradients, const std::vector<Variable>& variables,
             At at = At::current()) const {
    return apply(std::vector<Expr>(gradients), variables, at);
  }
  /// The part of its slots' names that tells its kind: `adam`.
  const std::string& name() const { return name_; }

 protected:
  explicit Optimizer(std::string name) : name_(std::move(name)) {}
  /// Throws invalid_argument if its options make no step; called for all variables before any is
  /// changed.
  virtual void check(const Variable& v) const = 0;
  /// Returns the updates of one variable, to be fetched. Gradients come in `computed_in(v)`.
  virtual Expr update(const Variable& v, const Expr& gradient) const = 0;
  /// Returns the updates of the rows `indices` (rank 1), which may occur twice.
  virtual Expr update_rows(const Variable& v, const Expr& indices, const Expr& rows) const = 0;

  /// A variable beside `v` that starts as `initial` everywhere, of `computed_in(v)`.
  Variable slot(const Variable& v, const std::string& name, double initial = 0) const;
  Variable slot(const Variable& v, const std::string& name, DType dtype, const Shape& shape,
                double initial) const;

 private:
  std::string name_;
};

namespace detail {

/// A number, or an expression (a schedule); cast to the dtype in which the step is computed.
using Rate = Operand;

}  // namespace detail

struct SgdOptions {
  detail::Rate learning_rate = 0.01;
};

/// w -= learning_rate * dw (Robbins and Monro, 1951). Sparse steps are exact.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(SgdOptions options = {}) : Optimizer("sgd"), options_(std::move(options)) {}
  explicit Sgd(std::initializer_list<detail::Nothing>) : Sgd(SgdOptions{}) {}  // `Sgd({})`

 private:
  void check(const Variable& v) const override;
  Expr update(const Variable& v, const Expr& gradient) const override;
  Expr update_rows(const Variable& v, const Expr& indices, const Expr& rows) const override;
  SgdOptions options_;
};

struct MomentumOptions {
  detail::Rate learning_rate = 0.01;
  double momentum = 0.9;
  bool nesterov = false;
};

/// velocity = momentum * velocity + dw; w -= learning_rate * velocity (Polyak, 1964), or with
/// Nesterov's look-ahead w -= learning_rate * (dw + momentum * velocity) (Sutskever et al., ICML
/// 2013).
class Momentum final : public Optimizer {
 public:
  explicit Momentum(MomentumOptions options = {})
      : Optimizer("momentum"), options_(std::move(options)) {}
  explicit Momentum(std::initializer_list<detail::Nothing>)
      : Momentum(MomentumOptions{}) {}  // `Momentum({})`

 private:
  void check(const Variable& v) const override;
  Expr update(const Variable& v, const Expr& gradient) const override;
  Expr update_rows(const Variable& v, const Expr& indices, const Expr& rows) const override;
  Expr change(const Variable& v, const Expr& gradient, const Expr& velocity) const;
  MomentumOptions options_;
};

struct AdamOptions {
  detail::Rate learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

/// Kingma and Ba (ICLR 2015), algorithm 1. Each variable counts its own steps, so that variables
/// may join later; two Adams of one variable share its count, as they share its moments. Bias
/// corrections are computed in f64.
class Adam final : public Optimizer {
 public:
  explicit Adam(AdamOptions options = {}) : Optimizer("adam"), options_(std::move(options)) {}
  explicit Adam(std::initializer_list<detail::Nothing>) : Adam(AdamOptions{}) {}  // `Adam({})`

 private:
  void check(const Variable& v) const override;
  Expr update(const Variable& v, const Expr& gradient) const override;
  Expr update_rows(const Variable& v, const Expr& indices, const Expr& rows) const override;
  AdamOptions options_;
};

struct AdamWOptions {
  detail::Rate learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

/// Adam whose decay is not in the gradient: w -= learning_rate * weight_decay * w beside Adam's
/// step, both of the old w (Loshchilov and Hutter, ICLR 2019; the learning rate is their schedule
/// times their alpha, as elsewhere). Sparse steps decay the rows used alone.
class AdamW final : public Optimizer {
 public:
  explicit AdamW(AdamWOptions options = {})
      : Optimizer("adamw"), adam_{options.learning_rate, options.beta1, options.beta2,
                                  options.epsilon},
        weight_decay_(options.weight_decay) {}
  explicit AdamW(std::initializer_list<detail::Nothing>) : AdamW(AdamWOptions{}) {}  // `AdamW({})`

 private:
  void check(const Variable& v) const override;
  Expr update(const Variable& v, const Expr& gradient) const override;
  Expr update_rows(const Variable& v, const Expr& indices, const Expr& rows) const override;
  Expr decay(const Variable& v, const Expr& old) const;
  AdamOptions adam_;
  double weight_decay_;
};

struct RmsPropOptions {
  detail::Rate learning_rate = 0.01;
  double decay = 0.99;
  double epsilon = 1e-8;
  double momentum = 0;
  bool centered = false;
};

/// square = decay * square + (1 - decay) dw^2; step = dw / (sqrt(square) + epsilon) (Tieleman and
/// Hinton, 2012); w -= learning_rate * step, or with momentum velocity = momentum * velocity +
/// step; w -= learning_rate * velocity. Centered, a mean of dw is kept likewise, whose square is
/// taken off (Graves, 2013).
class RmsProp final : public Optimizer {
 public:
  explicit RmsProp(RmsPropOptions options = {})
      : Optimizer("rmsprop"), options_(std::move(options)) {}
  explicit RmsProp(std::initializer_list<detail::Nothing>)
      : RmsProp(RmsPropOptions{}) {}  // `RmsProp({})`

 private:
  void check(const Variable& v) const override;
  Expr update(const Variable& v, const Expr& gradient) const override;
  Expr update_rows(const Variable& v, const Expr& indices, const Expr& rows) const override;
  Expr decayed(const Expr& old, const Expr& now) const;
  Expr scaled(const Expr& gradient, const Expr& of_squares, const Expr& mean) const;
  RmsPropOptions options_;
};

struct AdagradOptions {
  detail::Rate learning_rate = 0.01;
  double initial_accumulator = 0.1;
  double epsilon = 1e-7;
};

/// accumulator += dw^2; w -= learning_rate * dw / (sqrt(accumulator) + epsilon) (Duchi et al., JMLR
/// 2011). Sparse steps are exact.
class Adagrad final : public Optimizer {
 public:
  explicit Adagrad(AdagradOptions options = {})
      : Optimizer("adagrad"), options_(std::move(options)) {}
  explicit Adagrad(std::initializer_list<detail::Nothing>)
      : Adagrad(AdagradOptions{}) {}  // `Adagrad({})`

 private:
  void check(const Variable& v) const override;
  Expr update(const Variable& v, const Expr& gradient) const override;
  Expr update_rows(const Variable& v, const Expr& indices, const Expr& rows) const override;
  Expr change(const Variable& v, const Expr& gradient, const Expr& accumulator) const;
  AdagradOptions options_;
};

/// The Euclidean norm of all gradients taken together, as f32 (f64 if one of them is). None counts
/// as zero.
Expr global_norm(const std::vector<detail::Cotangent>& gradients,
                 std::source_location at = std::source_location::current());
/// All gradients scaled by min(1, norm / global_norm) (Pascanu et al., ICML 2013); sparse ones stay
/// sparse. A norm that is not finite makes them all NaN: it is not hidden.
std::vector<detail::Cotangent> clip_by_global_norm(
    const std::vector<detail::Cotangent>& gradients, Operand norm,
    std::source_location at = std::source_location::current());
std::vector<Expr> clip_by_global_norm(const std::vector<Expr>& gradients, Operand norm,
                                      std::source_location at = std::source_location::current());
inline std::vector<Expr> clip_by_global_norm(
    std::initializer_list<Expr> gradients, Operand norm,
    std::source_location at = std::source_location::current()) {
  return clip_by_global_norm(std::vector<Expr>(gradients), std::move(norm), at);
}

}  // namespace troupe
