#include <troupe/autodiff/check.hpp>

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>

namespace troupe {

std::vector<Tensor> evaluate_eagerly(const Graph& graph, const Feeds& feeds,
                                     const std::vector<Expr>& fetches) {
  return Eager().run(graph, feeds, fetches);
}

namespace {

Tensor as_doubles(const Tensor& t) {
  std::vector<double> elements;
  for (std::int64_t i = 0; i < t.elements(); ++i) elements.push_back(t.at(i));
  return Tensor::of(elements, t.shape());
}

// SplitMix64: numbers in [0.5, 1.5) with either sign, so that no direction is nearly zero.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}
  double next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    double magnitude = 0.5 + static_cast<double>(z >> 11) * 0x1p-53;
    return z & 1 ? magnitude : -magnitude;
  }
  Tensor like(const Tensor& t) {
    std::vector<double> elements;
    for (std::int64_t i = 0; i < t.elements(); ++i) elements.push_back(next());
    return Tensor::of(elements, t.shape());
  }

 private:
  std::uint64_t state_;
};

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i) sum += a.at(i) * b.at(i);
  return sum;
}

void compare(CheckReport& report, double exact, double measured, const std::string& place) {
  ++report.compared;
  double error = std::abs(exact - measured) / std::max({1.0, std::abs(exact), std::abs(measured)});
  if (std::isnan(exact) && std::isnan(measured)) error = 0;
  else if (exact == measured) error = 0;  // infinities
  else if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
  if (error > report.worst) {
    report.worst = error;
    report.text = fmt::format(
        "{}: the gradient is {:.12g}, the difference quotient {:.12g} (relative error {:.3g})",
        place, exact, measured, error);
  }
}

// A function's graph with inputs of the tensors' shapes.
struct Traced {
  Graph graph;
  Exprs xs;
  std::vector<std::size_t> floating;  // indices into xs
  Expr y;

  Traced(const Differentiable& f, const std::vector<Tensor>& values, const CheckOptions& options) {
    if (!f) throw Error(Code::invalid_argument, "the function to check is empty");
    for (std::size_t i = 0; i < values.size(); ++i) {
      Shape shape = values[i].shape();
      for (int k = 0; k < shape.rank() && options.open_shapes; ++k) shape.set(k, kAny);
      xs.push_back(graph.input("x" + std::to_string(i), values[i].dtype(), shape));
      if (is_floating(values[i].dtype())) floating.push_back(i);
    }
    y = f(graph, xs);
    if (y.is_empty())
      throw Error(
          Code::invalid_argument,
          "the function to check returned an empty expression; it must return what an op returned");
  }
  Exprs differentiated() const {
    Exprs out;
    for (std::size_t i : floating) out.push_back(xs[i]);
    return out;
  }
  Feeds feeds(const std::vector<Tensor>& values) const {
    Feeds out;
    for (std::size_t i = 0; i < values.size(); ++i) out.emplace_back(xs[i], values[i]);
    return out;
  }
};

std::vector<Tensor> in_doubles(const std::vector<Tensor>& xs) {
  std::vector<Tensor> out;
  for (const Tensor& x : xs) out.push_back(is_floating(x.dtype()) ? as_doubles(x) : x);
  return out;
}

CheckReport compare_with_differences(const Differentiable& f, const std::vector<Tensor>& xs,
                                     const CheckOptions& options) {
  CheckReport report;
  report.tolerance = options.tolerance;
  Traced t(f, xs, options);
  Exprs wanted = t.differentiated();
  Tensor y = options.evaluate(t.graph, t.feeds(xs), {t.y})[0];
  Tensor w = Draws(options.seed).like(y);
  Expr weights = t.graph.constant(w);
  Exprs d = gradients({t.y}, wanted, {weights}, {.unconnected = Unconnected::zeros});
  std::vector<Tensor> exact = options.evaluate(t.graph, t.feeds(xs), d);

  auto value_at = [&](std::size_t which, std::int64_t element, double x) {
    std::vector<Tensor> moved = xs;
    moved[which] = as_doubles(xs[which]);
    moved[which].mutable_data<double>()[element] = x;
    return options.evaluate(t.graph, t.feeds(moved), {t.y})[0];
  };
  for (std::size_t k = 0; k < t.floating.size(); ++k) {
    std::size_t which = t.floating[k];
    for (std::int64_t i = 0; i < xs[which].elements(); ++i) {
      double x = xs[which].at(i);
      volatile double up =
          x + std::cbrt(std::numeric_limits<double>::epsilon()) * std::max(1.0, std::abs(x));
      double step = up - x;  // the addition rounds: the exact difference
      // The difference of y first: the weighted sum of large values would cancel.
      Tensor above = value_at(which, i, x + step), below = value_at(which, i, x - step);
      double slope = 0;
      for (std::int64_t j = 0; j < w.elements(); ++j)
        slope += w.at(j) * ((above.at(j) - below.at(j)) / (2 * step));
      compare(report, exact[k].at(i), slope,
              fmt::format("input {}, element {} ({:g})", which, i, x));
    }
  }
  return report;
}

}  // namespace

CheckReport check_gradients(const Differentiable& f, const std::vector<Tensor>& xs,
                            const CheckOptions& options) {
  std::vector<Tensor> values = in_doubles(xs);
  CheckReport report = compare_with_differences(f, values, options);
  if (options.order < 2 || !report.ok()) return report;
  // The gradient of <w, y>, flattened into one vector, is a function like another.
  Traced t(f, values, options);
  Tensor w = Draws(options.seed + 1).like(options.evaluate(t.graph, t.feeds(values), {t.y})[0]);
  Differentiable first = [&](Graph& g, const Exprs& x) {
    Exprs wanted, flat;
    for (const Expr& e : x)
      if (is_floating(e.dtype())) wanted.push_back(e);
    Expr y = f(g, x);
    for (const Expr& d :
         gradients({y}, wanted, {g.constant(w)}, {.unconnected = Unconnected::zeros}))
      flat.push_back(reshape(d, Shape{kAny}));
    return concat(flat, 0);
  };
  CheckReport second = compare_with_differences(first, values, options);
  second.compared += report.compared;
  if (second.worst > report.worst) second.text = "second order, " + second.text;
  else second.worst = report.worst, second.text = report.text;
  return second;
}

CheckReport check_dot_product(const Differentiable& f, const std::vector<Tensor>& xs,
                              const CheckOptions& options) {
  std::vector<Tensor> values = in_doubles(xs);
  CheckReport report;
  report.tolerance = options.tolerance;
  Traced t(f, values, options);
  Exprs wanted = t.differentiated();
  Tensor y = options.evaluate(t.graph, t.feeds(values), {t.y})[0];
  Draws draws(options.seed);
  Expr w = t.graph.input("w", DType::f64, y.shape());
  Exprs pulled = gradients({t.y}, wanted, {w}, {.unconnected = Unconnected::zeros});
  Exprs vs;
  Feeds feeds = t.feeds(values);
  std::vector<Tensor> directions;
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    directions.push_back(draws.like(values[t.floating[k]]));
    vs.push_back(t.graph.input("v" + std::to_string(k), DType::f64, directions[k].shape()));
    feeds.emplace_back(vs[k], directions[k]);
  }
  Tensor tw = draws.like(y);
  feeds.emplace_back(w, tw);
  Expr pushed = gradients(pulled, w, vs, {.unconnected = Unconnected::zeros})[0];
  Exprs fetches = pulled;
  fetches.push_back(pushed);
  std::vector<Tensor> out = options.evaluate(t.graph, feeds, fetches);
  double pulled_dot = 0;
  for (std::size_t k = 0; k < wanted.size(); ++k) pulled_dot += dot(out[k], directions[k]);
  compare(report, pulled_dot, dot(out.back(), tw), "<v, J^T w> and <J v, w>");
  return report;
}

}  // namespace troupe
