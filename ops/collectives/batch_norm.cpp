#include <troupe/ops/collectives/batch_norm.hpp>

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe::collective {
namespace {

// One call, checked.
class GlobalNorm {
 public:
  GlobalNorm(const Group& group, const Exprs& xs, const Site& site)
      : group_(group), xs_(xs), site_(site) {
    if (static_cast<int>(xs.size()) != group.size())
      refuse(fmt::format("it has {} members and got {} expressions; give one of each member",
                         group.size(), xs.size()));
    for (const Expr& x : xs) {
      if (x.is_empty() || !is_floating(x.dtype()) || x.dtype() != xs[0].dtype())
        refuse("it normalises floating values of one dtype");
      if (!x.shape().has_rank() || x.shape().rank() < 2 || x.shape().rank() != xs[0].shape().rank())
        refuse(fmt::format("x must be [..., channels], not {}", x.spec().text()));
    }
    graph_ = dynamic_cast<Graph*>(&xs[0].reader());
  }

  /// Calls f(x) for each member, on its device.
  template <class F>
  Exprs each(F f) const {
    Exprs out;
    for (std::size_t m = 0; m < xs_.size(); ++m) {
      if (!graph_) {
        out.push_back(f(m));
        continue;
      }
      const auto there = graph_->on_device(group_.device(static_cast<int>(m)));
      out.push_back(f(m));
    }
    return out;
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Code::invalid_argument, fmt::format("batch_norm over group '{}' ({}): {}",
                                                    group_.name(), site_.text(), why));
  }

 private:
  const Group& group_;
  const Exprs& xs_;
  const Site site_;
  Graph* graph_ = nullptr;
};

}  // namespace

BatchNorm batch_norm(const Group& group, const Exprs& xs, const Exprs& scales, const Exprs& biases,
                     double epsilon, CollectiveAt at) {
  const GlobalNorm norm(group, xs, at);
  if (!(epsilon >= 0) || !std::isfinite(epsilon))
    norm.refuse(fmt::format("epsilon must be finite and at least 0, not {}", epsilon));
  if (scales.size() != xs.size() || biases.size() != xs.size())
    norm.refuse(
        fmt::format("it got {} scales and {} biases for {} members; give one of each member",
                    scales.size(), biases.size(), xs.size()));
  const Reader::AtSite here(xs[0].reader(), at);
  const Exprs wide = norm.each([&](std::size_t m) { return widened_half(xs[m]); });
  Exprs means, variances;  // a member's own rows', f64
  const Exprs rows = norm.each([&](std::size_t m) {
    const Exprs moments = bind_op("ChannelMoments", {wide[m]}, Attrs{{"by_item", false}});
    // Moments of no rows are NaN, and count for nothing.
    const Expr has_rows = size_of(xs[m]) > std::int64_t{0};
    means.push_back(where(has_rows, moments[0], 0.0));
    variances.push_back(where(has_rows, moments[1], 0.0));
    return cast(size_of(xs[m]), DType::f64) / cast(size_of(moments[0]), DType::f64);
  });
  const Exprs total = all_reduce(group, rows, Combine::sum, at);
  const Exprs share = norm.each([&](std::size_t m) { return rows[m] / total[m]; });
  const Exprs mean = all_reduce(
      group, norm.each([&](std::size_t m) { return means[m] * share[m]; }), Combine::sum, at);
  const Exprs variance = all_reduce(group, norm.each([&](std::size_t m) {
    return (variances[m] + square(means[m] - mean[m])) * share[m];
  }),
                                    Combine::sum, at);
  BatchNorm out;
  out.y = norm.each([&](std::size_t m) {
    const DType type = wide[m].dtype();
    const Expr factor = rsqrt(variance[m] + epsilon) * cast(scales[m], DType::f64);
    // x's dtype loses digits of the mean, which are added to the bias.
    const Expr near = cast(mean[m], type);
    const Expr rest = cast(biases[m], DType::f64) + (cast(near, DType::f64) - mean[m]) * factor;
    return cast((wide[m] - near) * cast(factor, type) + cast(rest, type), xs[m].dtype());
  });
  const auto narrow = [&](const Exprs& moments) {
    return norm.each([&](std::size_t m) { return cast(moments[m], xs[m].dtype()); });
  };
  out.mean = narrow(mean);
  out.variance = narrow(variance);
  return out;
}

}  // namespace troupe::collective
