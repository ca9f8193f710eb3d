#include <troupe/autodiff/loss_scale.hpp>

#include <fmt/format.h>

#include <troupe/autodiff/rate.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>

namespace troupe {

LossScale::LossScale(Graph& graph, const std::string& name, const LossScaleOptions& options, At at)
    : options_(options),
      scale_(
          graph.variable(name + "/scale", Tensor::scalar(static_cast<float>(options.initial)), at)),
      good_steps_(graph.variable(name + "/good_steps", Tensor::scalar(std::int64_t{0}), at)) {
  const bool fits = 0 < options.least && options.least <= options.initial &&
                    options.initial <= options.most && options.growth >= 1 && 0 < options.backoff &&
                    options.backoff <= 1 && options.interval >= 1;
  if (!fits)
    throw Error(Code::invalid_argument,
                fmt::format("LossScale '{}' at {}: needs 0 < least <= initial <= most, growth >= "
                            "1, 0 < backoff <= 1 and interval >= 1",
                            name, Site(at).text()));
}

Expr LossScale::minimize(const Optimizer& optimizer, const Expr& of,
                         const std::vector<Variable>& variables, At at) const {
  const Expr loss = one_number(of, "LossScale::minimize", at);
  Reader::AtSite site(scale_.reader(), at);
  Expr scale = scale_.read(), count = good_steps_.read();
  std::vector<Cotangent> gradients =
      cotangents(cast(loss, DType::f32) * scale, variables, {.unconnected = Unconnected::none}, at);
  std::vector<Expr> finite;
  std::vector<Variable> moved;
  std::vector<Cotangent> unscaled;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Cotangent g = flattened(gradients[i]);
    if (g.is_none()) continue;
    auto divided = [&](const Expr& e) {
      Expr wide = e.dtype() == DType::f16 || e.dtype() == DType::bf16 ? cast(e, DType::f32) : e;
      Expr by = wide / cast(scale, wide.dtype());
      finite.push_back(all(is_finite(by)));
      return by;
    };
    unscaled.push_back(g.is_sparse() ? Cotangent::sparse(g.indices, divided(g.values), g.like)
                                     : Cotangent(divided(g.dense)));
    moved.push_back(variables[i]);
  }
  if (moved.empty())
    throw Error(
        Code::invalid_argument,
        fmt::format("LossScale::minimize at {}: the loss depends on none of the {} variables",
                    Site(at).text(), variables.size()));
  Expr is_good = finite[0];
  for (std::size_t i = 1; i < finite.size(); ++i) is_good = logical_and(is_good, finite[i]);

  Expr step = cond(
      is_good, [&] { return optimizer.apply(unscaled, moved, at); },
      [&] { return scale_.reader().constant(true); });
  Expr good = count + 1, grows = good >= options_.interval;
  Expr grown = minimum(scale * options_.growth, options_.most),
       backed_off = maximum(scale * options_.backoff, options_.least);
  Expr next = scale_.assign(where(is_good, where(grows, grown, scale), backed_off));
  Expr counted =
      good_steps_.assign(where(logical_and(is_good, logical_not(grows)), good, zeros_like(good)));
  return logical_and(is_good, group({step, next, counted}));
}

}  // namespace troupe
