// The dtype in which an optimizer computes, and its scalars in it.
#pragma once

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include <troupe/autodiff/optimizer.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>

namespace troupe {

/// The variable's own dtype, but f32 for f16 and bf16: an epsilon of 1e-8 is zero in f16, and a
/// second moment underflows long before its gradient does (Micikevicius et al., ICLR 2018).
inline DType computed_in(const Variable& v) {
  return v.dtype() == DType::f16 || v.dtype() == DType::bf16 ? DType::f32 : v.dtype();
}

/// Throws invalid_argument unless `value` is in [low, high), naming the option and the caller's
/// line.
inline void require_option(const Variable& v, const char* name, double value, double low,
                           double high = std::numeric_limits<double>::infinity()) {
  if (value >= low && value < high) return;
  const std::string range = std::isinf(high) ? fmt::format("{:g} or more, and finite", low)
                                             : fmt::format("in [{:g}, {:g})", low, high);
  throw Error(Code::invalid_argument,
              fmt::format("the optimizer of variable '{}' at {}: {} must be {}, not {:g}", v.name(),
                          v.reader().current().site_for(Site()).text(), name, range, value));
}

/// Returns the loss if it is one number: the step of a vector would be that of its sum, where its
/// mean may be meant. Throws invalid_argument if its shape has more elements; if its shape is not
/// known, its run fails instead.
inline Expr one_number(const Expr& loss, const char* what, const Site& at) {
  if (loss.is_empty()) return loss;  // refused by name later
  const ValueSpec spec = loss.spec();
  const char* remedy = "a loss must be one number; minimize mean(loss) or sum(loss)";
  bool is_one = !spec.is_list();
  if (is_one && spec.shape.has_rank())
    for (int axis = 0; axis < spec.shape.rank(); ++axis) is_one = is_one && spec.shape[axis] == 1;
  if (!is_one)
    throw Error(Code::invalid_argument,
                fmt::format("{} at {}: the loss is {}; {}", what, at.text(), spec.text(), remedy));
  if (spec.shape.has_rank()) return loss;
  const std::vector<Operand> operands{loss, size_of(loss) == 1};
  return bind_op("Require", operands, Attrs{{"what", std::string(remedy)}}, at)[0];
}

/// Throws invalid_argument unless the rate, if it is a number, is finite; a negative one ascends.
inline void require_rate(const Variable& v, const Rate& rate) {
  if (!rate.is_number() || std::isfinite(rate.literal().at(0))) return;
  throw Error(
      Code::invalid_argument,
      fmt::format("the optimizer of variable '{}' at {}: learning_rate must be finite, not {:g}",
                  v.name(), v.reader().current().site_for(Site()).text(), rate.literal().at(0)));
}

/// A number adapts by itself; an expression is cast.
inline Operand rate_for(const Variable& v, const Rate& rate) {
  return rate.is_expr() ? Operand(cast(rate, computed_in(v))) : rate;
}

/// v -= change, computed in the optimizer's dtype.
inline Expr descend(const Variable& v, const Expr& change) {
  return v.assign_sub(cast(change, v.dtype()));
}
/// Whole rows of v -= change; a row may be named twice with one change.
inline Expr descend_rows(const Variable& v, const Expr& indices, const Expr& change) {
  Expr rows = cast(gather(v, indices), computed_in(v)) - change;
  return v.scatter_update(indices, cast(rows, v.dtype()));
}

}  // namespace troupe
