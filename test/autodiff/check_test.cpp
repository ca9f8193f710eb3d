// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// The gradient checks themselves: they pass right gradients and name wrong ones.
#include <boost/test/unit_test.hpp>

#include <troupe/autodiff/check.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/custom_gradient.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(check_test, TROUPE_ONE_THREAD)

namespace {

Expr mlp(Graph&, const Exprs& x) {
  Expr h = tanh(matmul(x[0], x[1]) + x[2]);
  return mean(cross_entropy(matmul(h, x[3]), x[4]));
}

std::vector<Tensor> mlp_inputs() {
  auto draw = [](std::string name, const Shape& s) {
    return Initializer::normal(0, 1, 3).make(name, DType::f32, s);
  };
  return {draw("x", {3, 4}), draw("w", {4, 5}), draw("b", {5}), draw("v", {5, 2}),
          Tensor::of<std::int64_t>({0, 1, 1})};
}

// x^2, with a slope that is wrong where x > 1.
Expr planted(Graph&, const Exprs& x) {
  return with_gradient(square(x[0]), {x[0]}, [](const Expr& dy, const Exprs& xs, const Expr&) {
    return Exprs{dy * where(xs[0] > 1.0, 2.1 * xs[0], 2.0 * xs[0])};
  });
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_small_network_passes) {
  CheckReport r = check_gradients(mlp, mlp_inputs(), {.tolerance = 1e-8, .order = 2});
  BOOST_TEST(r.ok(), r.text);
  BOOST_TEST(r.compared == 2 * (12 + 20 + 5 + 10));
  CheckReport d = check_dot_product(mlp, mlp_inputs(), {.tolerance = 1e-13});
  BOOST_TEST(d.ok(), d.text);
}

BOOST_AUTO_TEST_CASE(a_planted_error_is_found_and_named) {
  std::vector<Tensor> xs{Tensor::of<double>({0.5, 2.0})};
  CheckReport r = check_gradients(planted, xs);
  BOOST_TEST(!r.ok());
  BOOST_TEST(r.text.find("input 0, element 1 (2)") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(steps_fit_the_size_of_x) {
  // With one fixed step either the large or the small element would fail.
  auto f = [](Graph&, const Exprs& x) { return log(x[0]); };
  CheckReport r = check_gradients(f, {Tensor::of<double>({1e8, 1e4, 1, 0.1})}, {.tolerance = 1e-7});
  BOOST_TEST(r.ok(), r.text);
}

BOOST_AUTO_TEST_CASE(an_asymmetric_transpose_is_found_by_the_dot_product) {
  // J^T is taken from another function than J: going backwards twice gives the transpose of what
  // the gradient says, so a gradient that is not linear in dy is what the test can see.
  auto f = [](Graph&, const Exprs& x) {
    return with_gradient(x[0] * 2.0, {x[0]}, [](const Expr& dy, const Exprs&, const Expr&) {
      return Exprs{dy * 2.0 + square(dy)};
    });
  };
  BOOST_TEST(!check_dot_product(f, {Tensor::of<double>({1, 2})}).ok());
}

BOOST_AUTO_TEST_CASE(functions_that_are_none_are_refused) {
  const std::vector<Tensor> xs{Tensor::of<double>({1})};
  BOOST_TEST(
      refusal([&] { check_gradients(nullptr, xs); }, Code::invalid_argument).find("is empty") !=
      std::string::npos);
  BOOST_TEST(refusal([&] { check_gradients([](Graph&, const Exprs&) { return Expr(); }, xs); },
                     Code::invalid_argument)
                 .find("empty expression") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
