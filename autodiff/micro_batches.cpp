#include <troupe/autodiff/micro_batches.hpp>

#include <utility>

#include <fmt/format.h>

#include <troupe/controlflow/functional.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/mesh/functions.hpp>

namespace troupe {

namespace {

[[noreturn]] void refuse(const Site& at, const std::string& why) {
  throw Error(Code::invalid_argument, fmt::format("micro_batches at {}: {}", at.text(), why));
}

// The dtype in which values are added up: f16 and bf16 have too few digits.
DType dtype_of_sum(DType t) { return t == DType::f16 || t == DType::bf16 ? DType::f32 : t; }
Expr as(const Expr& e, DType dtype) { return e.dtype() == dtype ? e : cast(e, dtype); }

// Zeros to which gradients of x are added, under x's names.
Expr zeros_of(Reader& reader, const Independent& x) {
  if (const Variable* v = x.variable()) {
    const ValueSpec spec = reader.state_spec(v->state()).values[0];
    return reader.zeros(dtype_of_sum(spec.dtype), spec.shape);
  }
  const Expr zeros = as(zeros_like(*x.expr()), dtype_of_sum(x.dtype()));
  return mesh::detail::named_as(zeros, *x.expr());
}

}  // namespace

LossAndGradients micro_batches(const std::vector<Expr>& inputs, const mesh::Dim& batch,
                               std::int64_t count, const Independents& xs, const PartLoss& loss,
                               std::source_location at) {
  const Site site(at);
  if (inputs.empty()) refuse(site, "it has no input");
  if (count < 1 || batch.size < 1 || batch.size % count != 0)
    refuse(site, fmt::format("dimension '{}' of size {} does not divide into {} parts", batch.name,
                             batch.size, count));
  const mesh::Dim rows{fmt::format("{}/{}", batch.name, count), batch.size / count};
  DType sum_of_losses = DType::f32, dtype = DType::f32;
  std::vector<mesh::detail::Parted> parted;
  for (const Expr& x : inputs) {
    parted.push_back(mesh::detail::parted(x, batch, count, "micro_batches", at));
    if (x.dtype() == DType::f64) sum_of_losses = DType::f64;
  }
  for (const Independent& x : xs)
    if (x.dtype() == DType::f64) sum_of_losses = DType::f64;
  Reader& reader = parted[0].parts.reader();
  Operands sums;
  {
    const Reader::AtSite here(reader, site);
    sums.emplace_back(reader.zeros(sum_of_losses, Shape{}), site);
    for (const Independent& x : xs) sums.emplace_back(zeros_of(reader, x), site);
  }
  const auto add_part = [&](const Exprs& v) {
    Exprs part;
    for (const mesh::detail::Parted& x : parted)
      part.push_back(mesh::detail::part_of(x, v.back(), at));
    const Expr value = loss(part, rows);
    if (value.is_empty()) refuse(site, "its loss is an empty expression");
    if (!value.shape().is_scalar() || !is_floating(value.dtype()))
      refuse(site, fmt::format("its loss is {}; it must be a floating scalar: take a mean",
                               value.spec().text()));
    dtype = value.dtype();
    const std::vector<Expr> d = gradients(value, xs, {}, at);
    const Reader::AtSite here(value.reader(), site);
    Operands next{Operand(v[0] + as(value, v[0].dtype()), site)};
    for (std::size_t i = 0; i < d.size(); ++i)
      next.emplace_back(v[i + 1] + as(d[i], v[i + 1].dtype()), site);
    return next;
  };
  const Exprs out = for_loop(&reader, Operand(std::int64_t{0}, site), Operand(count, site), sums,
                             add_part, {.name = "micro_batches", .parallel_iterations = 1}, site);
  const Reader::AtSite here(reader, site);
  const auto mean_of = [&](const Expr& sum, DType of) {
    return as(sum / static_cast<double>(count), of);
  };
  LossAndGradients made{mean_of(out[0], dtype), {}};
  for (std::size_t i = 0; i < xs.size(); ++i)
    made.gradients.push_back(mean_of(out[i + 1], xs[i].dtype()));
  return made;
}

}  // namespace troupe
