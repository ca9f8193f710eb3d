#include <troupe/autodiff/vjp.hpp>

#include <fmt/format.h>

#include <troupe/functions.hpp>

namespace troupe::detail {
namespace {

// Ops of variables are not recorded: only the arguments count.
constexpr TapeOptions kOnce{.persistent = false, .watch_variables = false};

bool is_differentiable(const Expr& e) {
  return !e.spec().is_list() && (is_floating(e.dtype()) || is_complex(e.dtype()));
}

void require_values(const Exprs& xs, const Site& at) {
  for (std::size_t i = 0; i < xs.size(); ++i)
    if (xs[i].is_empty())
      throw Error(Code::failed_precondition,
                  fmt::format("the derivative at {}: argument {} is an empty expression; take what "
                              "an op returned",
                              at.text(), i));
}

void require_like(const Exprs& given, const Exprs& wanted, const char* what, const Site& at) {
  if (given.size() != wanted.size())
    throw Error(Code::invalid_argument,
                fmt::format("the derivative at {}: {} {}s are given for {} values", at.text(),
                            given.size(), what, wanted.size()));
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i].is_empty()) continue;
    const ValueSpec is = given[i].spec(), to = wanted[i].spec();
    if (is.dtype != to.dtype || !is.shape.is_compatible(to.shape))
      throw Error(Code::invalid_argument,
                  fmt::format("the derivative at {}: {} {} is {}, and its value is {}; they must "
                              "agree",
                              at.text(), what, i, is.text(), to.text()));
  }
}

// Copies each argument by `identity`. Two arguments may be one value, or one may be computed from
// the other; after the copy each has its own derivative.
Exprs copies_of(const Exprs& xs, const Site& at) {
  require_values(xs, at);
  Exprs out;
  for (const Expr& x : xs) out.push_back(is_differentiable(x) ? identity(Operand(x, at)) : x);
  return out;
}

// The gradient of the ys in the direction `dys`, where y and x may be non-floating or empty.
Exprs gradients_of(GradientTape& tape, const Exprs& ys, const Exprs& xs, const Exprs& dys,
                   const std::source_location& at) {
  Exprs targets, weights;
  for (std::size_t i = 0; i < ys.size(); ++i) {
    if (ys[i].is_empty() || !is_differentiable(ys[i])) continue;
    targets.push_back(ys[i]);
    weights.push_back(i < dys.size() ? dys[i] : Expr());
  }
  if (targets.empty()) return Exprs(xs.size());
  TapeGradientOptions how;
  how.output_gradients = weights;
  return tape.gradient(targets, Independents(xs), how, at);
}

Exprs with_zeros(Exprs found, const Exprs& like) {
  for (std::size_t i = 0; i < found.size(); ++i)
    if (found[i].is_empty()) found[i] = zeros_like(like[i]);
  return found;
}

}  // namespace

Exprs expressions_of(const Operands& operands, const char* what, const Site& at) {
  Exprs out;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Operand& o = operands[i];
    if (!o.is_expr() && o.literal().has_value())
      throw Error(Code::invalid_argument,
                  fmt::format("the derivative at {}: {} {} is a number or a tensor; make an "
                              "expression of it with `constant`",
                              at.text(), what, i));
    out.push_back(o.is_expr() ? o.expr() : Expr());
  }
  return out;
}

Pullback::Pullback(const ExprFunction& f, Exprs xs, const VjpOptions& options, const Site& at)
    : tape_({.persistent = options.persistent, .watch_variables = false}), xs_(copies_of(xs, at)) {
  tape_.watch(xs_);
  ys_ = f(xs_);
  tape_.stop();
}

Exprs Pullback::products(const Exprs& dys, const std::source_location& at) {
  require_like(dys, ys_, "cotangent", at);
  return with_zeros(gradients_of(tape_, ys_, xs_, dys, at), xs_);
}

Exprs jvp(const ExprFunction& f, const Exprs& arguments, const Exprs& dxs,
          const std::source_location& at) {
  const Exprs xs = copies_of(arguments, at);
  require_like(dxs, xs, "tangent", at);
  GradientTape outer(kOnce);
  Exprs ys, ws, products;
  {
    GradientTape inner(kOnce);
    inner.watch(xs);
    ys = f(xs);
    inner.stop();
    // w J is linear in w, so that any w serves
    for (const Expr& y : ys) ws.push_back(is_differentiable(y) ? zeros_like(y) : Expr());
    for (const Expr& w : ws)
      if (!w.is_empty()) outer.watch(w);
    products = gradients_of(inner, ys, xs, ws, at);
  }
  Exprs reached, along, varied;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    if (products[i].is_empty() || dxs[i].is_empty()) continue;
    reached.push_back(products[i]);
    along.push_back(dxs[i]);
  }
  for (const Expr& w : ws)
    if (!w.is_empty()) varied.push_back(w);
  Exprs found(varied.size());
  if (!reached.empty()) found = gradients_of(outer, reached, varied, along, at);
  Exprs out = ys;
  std::size_t next = 0;
  for (std::size_t i = 0; i < ys.size(); ++i) {
    const Expr dy = ws[i].is_empty() ? Expr() : found[next++];
    out.push_back(dy.is_empty() ? zeros_like(ys[i]) : dy);
  }
  return out;
}

Exprs hessian_vector_product(const ExprFunction& f, const Exprs& arguments, const Exprs& vs,
                             const std::source_location& at) {
  const Exprs xs = copies_of(arguments, at);
  require_like(vs, xs, "vector", at);
  GradientTape outer(kOnce);
  outer.watch(xs);
  Exprs first;
  {
    GradientTape inner(kOnce);
    inner.watch(xs);
    first = gradients_of(inner, f(xs), xs, {}, at);
  }
  Exprs reached, along;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    if (first[i].is_empty() || vs[i].is_empty()) continue;
    reached.push_back(first[i]);
    along.push_back(vs[i]);
  }
  Exprs found(xs.size());
  if (!reached.empty()) found = gradients_of(outer, reached, xs, along, at);
  return with_zeros(std::move(found), xs);
}

}  // namespace troupe::detail
