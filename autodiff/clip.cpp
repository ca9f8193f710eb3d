#include <troupe/autodiff/optimizer.hpp>

#include <limits>

#include <fmt/format.h>

#include <troupe/autodiff/rows.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>

namespace troupe {
namespace {

using At = std::source_location;

// Returns the dtype of the norm: f16 could overflow, and bf16 is too coarse.
DType kept_in(const std::vector<Cotangent>& gradients) {
  for (const Cotangent& g : gradients)
    if (!g.is_none() && (g.is_sparse() ? g.values : g.dense).dtype() == DType::f64)
      return DType::f64;
  return DType::f32;
}

Expr norm_of(const std::vector<Cotangent>& unique) {
  const DType kept = kept_in(unique);
  auto squares = [&](const Expr& by) {
    Expr total;
    for (const Cotangent& g : unique) {
      if (g.is_none()) continue;
      // the square of 2e19 is infinite in f32
      Expr wide = cast(g.is_sparse() ? g.values : g.dense, DType::f64);
      Expr of_one = sum(square(by.is_empty() ? wide : wide * by));
      total = total.is_empty() ? of_one : total + of_one;
    }
    return total;
  };
  Expr plain = squares({});
  if (kept != DType::f64) return cast(sqrt(plain), kept);
  Expr by = scale_of_squares(plain);
  return sqrt(squares(by)) / by;
}

// A row that occurs twice counts with the norm of its sum.
std::vector<Cotangent> all_unique(const std::vector<Cotangent>& gradients) {
  std::vector<Cotangent> out;
  for (const Cotangent& g : gradients) out.push_back(without_duplicates(g));
  return out;
}

Reader& reader_of(const std::vector<Cotangent>& gradients, const char* what, const Site& at) {
  for (const Cotangent& g : gradients)
    if (!g.is_none()) return (g.is_sparse() ? g.values : g.dense).reader();
  throw Error(Code::invalid_argument,
              fmt::format("{} at {}: there is no gradient", what, at.text()));
}

}  // namespace

Expr global_norm(const std::vector<Cotangent>& gradients, At at) {
  const Reader::AtSite here(reader_of(gradients, "global_norm", at), at);
  return norm_of(all_unique(gradients));
}

std::vector<Cotangent> clip_by_global_norm(const std::vector<Cotangent>& gradients, Operand norm,
                                           At at) {
  const Reader::AtSite here(reader_of(gradients, "clip_by_global_norm", at), at);
  if (norm.is_number() && !(norm.literal().at(0) > 0))
    throw Error(
        Code::invalid_argument,
        fmt::format("clip_by_global_norm at {}: the norm to clip to must be positive, not {:g}",
                    Site(at).text(), norm.literal().at(0)));
  std::vector<Cotangent> out = all_unique(gradients);
  Expr total = norm_of(out);
  Operand limit = norm.is_expr() ? Operand(cast(norm, total.dtype())) : norm;
  Expr scale = where(is_finite(total), limit / maximum(total, limit),
                     std::numeric_limits<double>::quiet_NaN());
  for (Cotangent& g : out) {
    if (g.is_sparse()) g.values = g.values * cast(scale, g.values.dtype());
    else if (!g.is_none()) g.dense = g.dense * cast(scale, g.dense.dtype());
  }
  return out;
}

std::vector<Expr> clip_by_global_norm(const std::vector<Expr>& gradients, Operand norm, At at) {
  std::vector<Expr> out;
  for (const Cotangent& g :
       clip_by_global_norm(std::vector<Cotangent>(gradients.begin(), gradients.end()), norm, at))
    out.push_back(g.dense);
  return out;
}

}  // namespace troupe
