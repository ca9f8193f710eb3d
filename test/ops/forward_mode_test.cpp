// Not under tsan: it has one thread.
// Forward mode over the table of operations: J dx of `jvp` on an eager scope, against w J of `vjp`
// and against differences along dx.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>

#include <fmt/format.h>

#include <troupe/autodiff/vjp.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/test/ops/bits.hpp>
#include <troupe/test/ops/tables/all_rows.hpp>
#include <troupe/test/support/share.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(forward_mode_test)

namespace {

using Numbers = std::vector<double>;

Numbers numbers_of(const Tensor& t) {
  Numbers out;
  for (std::int64_t i = 0; i < t.elements(); ++i) out.push_back(t.at(i));
  return out;
}

double dot(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Tensor drawn_like(const Tensor& t, Draws& draws) {
  return tensor_of(draws.values(t.shape(), -1, 1).array, DType::f64);
}

Tensor moved(const Tensor& x, const Tensor& dx, double step) {
  Array out = Array::of(x);
  for (std::size_t i = 0; i < out.v.size(); ++i)
    out.v[i] += step * dx.at(static_cast<std::int64_t>(i));
  return tensor_of(out, DType::f64);
}

// All floating outputs of an op, one after the other.
Expr flat_outputs(const Row& row, const Case& c, const Exprs& xs) {
  std::vector<Operand> operands(xs.begin(), xs.end());
  Exprs flat;
  for (const Expr& y : bind_op(row.op, operands, c.attrs, operands[0].site()))
    if (is_floating(y.dtype())) flat.push_back(reshape(y, Shape{kAny}));
  return flat.size() == 1 ? flat[0] : concat(flat, 0);
}

void check_case(const Row& row, const Case& c, const std::string& where) {
  const std::vector<Tensor> inputs = tensors_of(c, DType::f64);
  Eager e;
  const auto scoped = [&](const std::vector<Tensor>& values) {
    Exprs out;
    for (const Tensor& t : values) out.push_back(e.constant(t));
    return out;
  };
  const auto f = [&](const Exprs& xs) { return flat_outputs(row, c, xs); };
  Draws draws(5);
  std::vector<Tensor> above = inputs, below = inputs;
  Exprs dxs;
  Numbers flat_dx;
  constexpr double kStep = 6e-6;  // the cube root of the precision
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    dxs.emplace_back();
    if (!is_floating(inputs[k].dtype())) continue;
    const Tensor dx = drawn_like(inputs[k], draws);
    dxs[k] = e.constant(dx);
    above[k] = moved(inputs[k], dx, kStep);
    below[k] = moved(inputs[k], dx, -kStep);
    for (double d : numbers_of(dx)) flat_dx.push_back(d);
  }
  const Exprs xs = scoped(inputs);
  const auto [y, dy] = jvp(f, xs, dxs);
  BOOST_REQUIRE_MESSAGE(dy.shape() == y.shape(), where << " has a tangent of another shape");
  const Numbers pushed = numbers_of(dy.value()), up = numbers_of(f(scoped(above)).value()),
                down = numbers_of(f(scoped(below)).value());
  for (std::size_t i = 0; i < pushed.size(); ++i) {
    const double slope = (up[i] - down[i]) / (2 * kStep);
    BOOST_CHECK_MESSAGE(
        std::abs(pushed[i] - slope) <= 1e-6 * std::max({1.0, std::abs(slope), std::abs(up[i])}),
        where << ": the tangent is " << pushed[i] << " at " << i << ", not " << slope);
  }
  const Tensor w = drawn_like(y.value(), draws);
  const auto pull = vjp(f, xs);
  const Exprs products = pull(e.constant(w));
  Numbers pulled;
  for (std::size_t k = 0; k < inputs.size(); ++k)
    if (is_floating(inputs[k].dtype()))
      for (double d : numbers_of(products[k].value())) pulled.push_back(d);
  const double forward = dot(numbers_of(w), pushed), reverse = dot(pulled, flat_dx);
  BOOST_CHECK_MESSAGE(std::abs(forward - reverse) <= 1e-11 * std::max(1.0, std::abs(reverse)),
                      where << ": w (J dx) is " << forward << " and (w J) dx " << reverse);
}

}  // namespace

BOOST_AUTO_TEST_CASE(tangents_agree_with_cotangents_and_differences,
                     *boost::unit_test::label("one_thread")) {
  int rows = 0, cases = 0;
  for (const Row& row : all_rows()) {
    if (row.order == 0 || !is_due_today(std::hash<std::string>()(row.op), 3)) continue;
    ++rows;
    for (const Case& c : row.cases) {
      std::int64_t elements = 0;
      for (const Sample& s : c.inputs) elements += s.array.shape.elements();
      if (elements > 30 || c.order == 0) continue;  // long inputs are for the kernels' sake
      const std::string where = fmt::format("{} {{{}}}", row.op, c.attrs.text());
      try {
        check_case(row, c, where);
        ++cases;
      } catch (const Error& error) { BOOST_ERROR(where << " threw: " << error.what()); }
    }
  }
  BOOST_TEST_MESSAGE(cases << " cases of " << rows << " ops");
  if (kShare == 1) BOOST_TEST(rows > 100);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
