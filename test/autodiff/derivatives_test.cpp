// Not under tsan: it has one thread.
// Jacobians of tapes, and products with them from both sides: eager, staged and in graphs, with
// control flow, custom gradients and traced functions. The rows are those of section B.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/autodiff/vjp.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/custom_gradient.hpp>
#include <troupe/test/support/eager_scopes.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(derivatives_test)

namespace {

Expr cube_with_own_gradient(const Expr& x) {
  return with_gradient(x * x * x, {x},
                       [](const Expr& dy, const std::vector<Expr>& xs, const Expr&) {
                         return std::vector<Expr>{dy * xs[0] * 5.0};  // 5 x instead of 3 x^2
                       });
}

Expr power(const Expr& x, double n) {
  return std::get<1>(while_loop([&](Expr i, Expr) { return i < n; },
                                [&](Expr i, Expr y) {
                                  return std::tuple{i + 1.0, y * x};
                                },
                                std::tuple{sum(x) * 0.0, x * 0.0 + 1.0}));
}

}  // namespace

// ---- vjp (B1)

BOOST_AUTO_TEST_CASE(a_pullback_serves_any_number_of_cotangents) {  // B1
  in_each_scope([](Eager& e) {
    auto pull = vjp([](Expr x) { return square(x); }, e.constant(3.0));
    BOOST_TEST(number(pull.value()) == 9);
    BOOST_TEST(number(pull(e.constant(2.0))) == 12);
    BOOST_TEST(number(pull(e.constant(2.0))) == 12);
    auto once = vjp([](Expr x) { return square(x); }, e.constant(3.0), {.persistent = false});
    BOOST_TEST(number(once(e.constant(2.0))) == 12);
    BOOST_CHECK_EXCEPTION(once(e.constant(2.0)), Error, [](const Error& error) {
      return says(error, Code::failed_precondition, {"used up", "derivatives_test.cpp"});
    });
  });
}

BOOST_AUTO_TEST_CASE(functions_of_structures_have_products) {
  in_each_scope([](Eager& e) {
    const auto f = [](Expr a, Expr b) { return std::pair(a * b, a + 2.0 * b); };
    const std::tuple x(e.constant(2.0), e.constant(5.0));
    auto pull = vjp(f, x);
    const auto [da, db] = pull(std::pair(e.constant(1.0), e.constant(10.0)));
    BOOST_TEST(number(da) == 15);
    BOOST_TEST(number(db) == 22);
    const auto [y, dy] = jvp(f, x, std::tuple(e.constant(1.0), e.constant(100.0)));
    BOOST_TEST(number(y.first) == 10);
    BOOST_TEST(number(dy.first) == 205);
    BOOST_TEST(number(dy.second) == 201);
    // nothing reaches b, and an empty tangent is zero
    auto of_a = vjp([](Expr a, Expr) { return a * 3.0; }, x);
    BOOST_TEST(number(std::get<1>(of_a(e.constant(1.0)))) == 0);
    BOOST_TEST(number(jvp(f, x, std::tuple(Expr(), e.constant(1.0))).second.first) == 2);
  });
}

BOOST_AUTO_TEST_CASE(equal_arguments_have_derivatives_of_their_own) {
  const auto f = [](Expr a, Expr b) { return a * b; };
  in_each_scope([&](Eager& e) {
    Expr x = e.constant(3.0), one = e.constant(1.0), none = e.constant(0.0);
    const auto both = [&] {
      const auto [da, db] = vjp(f, std::tuple(x, x))(one);
      return std::pair(da, db);
    };
    BOOST_TEST(number(both().first) == 3);
    BOOST_TEST(number(both().second) == 3);
    BOOST_TEST(number(jvp(f, std::tuple(x, x), std::tuple(one, none)).second) == 3);
    const auto [ha, hb] = hessian_vector_product(f, std::tuple(x, x), std::tuple(one, none));
    BOOST_TEST(number(ha) == 0);
    BOOST_TEST(number(hb) == 1);
    // an outer tape sees both
    GradientTape tape;
    tape.watch(x);
    BOOST_TEST(number(tape.gradient(both().first, x)) == 1);
  });
  Graph g;
  Expr x = g.input("x", DType::f64, {}), y = 2.0 * x;
  const auto [dx, dy] = vjp(f, std::tuple(x, y))(g.constant(1.0));
  Eager e;
  const std::vector<Tensor> out = e.run(g, {{x, Tensor::scalar(3.0)}}, {dx, dy});
  BOOST_TEST(out[0].item<double>() == 6);
  BOOST_TEST(out[1].item<double>() == 3);
}

BOOST_AUTO_TEST_CASE(products_refuse_values_that_do_not_fit) {
  Eager e;
  Expr x = matrix(e, {1, 2}, {2});
  const auto f = [](Expr v) { return v * v; };
  auto pull = vjp(f, x);
  BOOST_CHECK_EXCEPTION(pull(e.constant(Tensor::of<float>({1, 2}, {2}))), Error,
                        [](const Error& error) {
                          return says(error, Code::invalid_argument,
                                      {"cotangent 0 is f32[2]", "f64[2]", "derivatives_test.cpp"});
                        });
  BOOST_CHECK_EXCEPTION(jvp(f, x, matrix(e, {1, 2, 3}, {3})), Error, [](const Error& error) {
    return says(error, Code::invalid_argument, {"tangent 0 is f64[3]"});
  });
  BOOST_CHECK_EXCEPTION(vjp(f, Expr()), Error, [](const Error& error) {
    return says(error, Code::failed_precondition, {"argument 0 is an empty expression"});
  });
}

// ---- jvp and hvp

BOOST_AUTO_TEST_CASE(forward_mode_goes_through_everything) {
  in_each_scope([](Eager& e) {
    Expr x = matrix(e, {0.5, 2}, {2}), v = matrix(e, {1, 10}, {2});
    const auto tangent = [&](auto f) { return numbers(jvp(f, x, v).second); };
    const Numbers of_sin = tangent([](Expr a) { return sin(a); });
    BOOST_CHECK_CLOSE(of_sin[0], std::cos(0.5), 1e-10);
    BOOST_CHECK_CLOSE(of_sin[1], 10 * std::cos(2), 1e-10);
    BOOST_TEST(tangent([](Expr a) { return cube_with_own_gradient(a); }) == (Numbers{2.5, 100}));
    BOOST_TEST(tangent([](Expr a) { return power(a, 3); }) == (Numbers{0.75, 120}));
    auto staged = function("staged", [](Expr a) { return power(a, 3); });
    BOOST_TEST(tangent([&](Expr a) { return staged(a); }) == (Numbers{0.75, 120}));
    auto inside = function("inside", [](Expr a, Expr d) {
      return jvp([](Expr b) { return power(b, 3); }, a, d).second;
    });
    BOOST_TEST(numbers(inside(x, v)) == (Numbers{0.75, 120}));
    // a result that does not depend on x has no tangent
    BOOST_TEST(tangent([&](Expr) { return v; }) == (Numbers{0, 0}));
    BOOST_TEST(tangent([&](Expr a) { return cast(argmax(a, 0), DType::f64); }) == Numbers{0});
  });
}

BOOST_AUTO_TEST_CASE(forward_mode_has_gradients) {
  in_each_scope([](Eager& e) {
    Expr x = e.constant(2.0), one = e.constant(1.0);
    GradientTape tape;
    tape.watch(x);
    Expr d = jvp([](Expr a) { return a * a * a; }, x, one).second;
    BOOST_TEST(number(d) == 12);
    BOOST_TEST(number(tape.gradient(d, x)) == 12);
  });
}

BOOST_AUTO_TEST_CASE(hessians_multiply_vectors) {
  in_each_scope([](Eager& e) {
    // f = x0^2 x1 + x1^3, H = [[2 x1, 2 x0], [2 x0, 6 x1]]
    const auto f = [](Expr x) {
      Expr a = gather(x, 0), b = gather(x, 1);
      return a * a * b + b * b * b;
    };
    Expr x = matrix(e, {2, 3}, {2}), v = matrix(e, {1, 10}, {2});
    BOOST_TEST(numbers(hessian_vector_product(f, x, v)) == (Numbers{46, 184}));
    auto staged = function("f", f);
    BOOST_TEST(numbers(hessian_vector_product([&](Expr a) { return staged(a); }, x, v)) ==
               (Numbers{46, 184}));
    BOOST_TEST(numbers(hessian_vector_product([](Expr a) { return sum(a); }, x, v)) ==
               (Numbers{0, 0}));
    // a custom gradient holds for both orders: f' = 5 x, so f'' = 5
    BOOST_TEST(numbers(hessian_vector_product([](Expr a) { return sum(cube_with_own_gradient(a)); },
                                              x, v)) == (Numbers{5, 50}));
  });
}

// ---- Jacobians (B2, B5)

BOOST_AUTO_TEST_CASE(jacobians_are_computed_three_ways) {  // B2
  in_each_scope([](Eager& e) {
    Expr x = matrix(e, {1, 2}, {2}), y = matrix(e, {3, 4}, {2});
    const Numbers of_x{6, 0, 0, 16}, of_y{1, 0, 0, 4};
    for (const bool parallel : {true, false}) {
      GradientTape tape({.persistent = !parallel});
      tape.watch(std::pair(x, y));
      const auto [dx, dy] = tape.jacobian(square(x) * y, std::pair(x, y), {.parallel = parallel});
      BOOST_TEST(dx.shape() == (Shape{2, 2}));
      BOOST_TEST(numbers(dx) == of_x);
      BOOST_TEST(numbers(dy) == of_y);
    }
    for (const bool parallel : {true, false}) {
      auto staged = function("jacobian", [&](Expr a, Expr b) {
        GradientTape tape({.persistent = !parallel});
        tape.watch(std::pair(a, b));
        const std::vector<Expr> d = tape.jacobian(square(a) * b, {a, b}, {.parallel = parallel});
        return std::pair(d[0], d[1]);
      });
      const auto [dx, dy] = staged(x, y);
      BOOST_TEST(numbers(dx) == of_x);
      BOOST_TEST(numbers(dy) == of_y);
    }
    // a call: the rows take its backward program in
    auto f = function("f", [](Expr a, Expr b) { return square(a) * b; });
    GradientTape tape;
    tape.watch(x);
    BOOST_TEST(numbers(tape.jacobian(f(x, y), x)) == of_x);
  });
}

BOOST_AUTO_TEST_CASE(jacobians_have_the_extents_of_both) {
  in_each_scope([](Eager& e) {
    Variable w = e.variable("w", Tensor::of<double>({1, 2, 3, 4, 5, 6}, {2, 3}));
    Expr x = matrix(e, {1, 10}, {1, 2}), other = e.constant(1.0);
    for (const bool parallel : {true, false}) {
      GradientTape tape({.persistent = true});
      tape.watch(std::pair(x, other));
      Expr y = matmul(x, w);  // [1, 3]
      const std::vector<Expr> d = tape.jacobian(y, {w, x, other}, {.parallel = parallel});
      BOOST_TEST(d[0].shape() == (Shape{1, 3, 2, 3}));
      BOOST_TEST(numbers(d[0]) ==
                 (Numbers{1, 0, 0, 10, 0, 0, 0, 1, 0, 0, 10, 0, 0, 0, 1, 0, 0, 10}));
      BOOST_TEST(numbers(d[1]) == (Numbers{1, 4, 2, 5, 3, 6}));
      BOOST_TEST(d[2].is_empty());
      const JacobianOptions zeros{.unconnected = Unconnected::zeros, .parallel = parallel};
      BOOST_TEST(numbers(tape.jacobian(y, other, zeros)) == Numbers(3, 0.0));
      const JacobianOptions refused{.unconnected = Unconnected::refused, .parallel = parallel};
      BOOST_CHECK_THROW(tape.jacobian(y, other, refused), Error);
      // a scalar's Jacobian is its gradient; that of nothing has no rows
      BOOST_TEST(numbers(tape.jacobian(sum(y), x, {.parallel = parallel})) == (Numbers{6, 15}));
      Expr none = slice(y, {0, 0}, {0, 3});
      BOOST_TEST(tape.jacobian(none, x, {.parallel = parallel}).shape() == (Shape{0, 3, 1, 2}));
    }
  });
}

BOOST_AUTO_TEST_CASE(jacobians_have_gradients) {
  in_each_scope([](Eager& e) {
    Expr x = matrix(e, {1, 2}, {2});
    GradientTape outer;
    outer.watch(x);
    Expr d;
    {
      GradientTape inner;
      inner.watch(x);
      d = inner.jacobian(x * x * x, x);
    }
    BOOST_TEST(numbers(d) == (Numbers{3, 0, 0, 12}));
    BOOST_TEST(numbers(outer.gradient(d, x)) == (Numbers{6, 12}));
  });
}

BOOST_AUTO_TEST_CASE(variables_that_the_rows_read_have_gradients) {
  in_each_scope([](Eager& e) {
    Variable v = e.variable("v", Tensor::scalar(2.0));
    Expr x = matrix(e, {1, 2}, {2});
    GradientTape outer;
    Expr d;
    {
      GradientTape inner({.watch_variables = false});
      inner.watch(x);
      Expr y =
          with_gradient(x * 1.0, {x}, [&](const Expr& dy, const std::vector<Expr>&, const Expr&) {
            return std::vector<Expr>{dy * v.read()};
          });
      d = inner.jacobian(y, x);
    }
    BOOST_TEST(numbers(d) == (Numbers{2, 0, 0, 2}));
    BOOST_TEST(number(outer.gradient(d, v)) == 2);
  });
}

BOOST_AUTO_TEST_CASE(batches_have_one_jacobian_an_example) {
  in_each_scope([](Eager& e) {
    Expr x = matrix(e, {1, 2, 3, 4}, {2, 2}), w = matrix(e, {1, 2, 3, 4, 5, 6}, {2, 3});
    for (const bool parallel : {true, false}) {
      GradientTape tape({.persistent = true});
      tape.watch(x);
      Expr y = matmul(square(x), w);  // [2, 3]
      Expr d = tape.batch_jacobian(y, x, {.parallel = parallel});
      BOOST_TEST(d.shape() == (Shape{2, 3, 2}));
      BOOST_TEST(numbers(d) == (Numbers{2, 16, 4, 20, 6, 24, 6, 32, 12, 40, 18, 48}));
    }
    FunctionOptions options;
    options.signature = {{DType::f64, Shape{kAny, 2}}};
    auto staged = function(
        "batch",
        [&](Expr a) {
          GradientTape tape;
          tape.watch(a);
          return tape.batch_jacobian(square(a), a);
        },
        options);
    BOOST_TEST(numbers(staged(x)) == (Numbers{2, 0, 0, 4, 6, 0, 0, 8}));
  });
}

BOOST_AUTO_TEST_CASE(jacobians_refuse_what_has_none) {  // B5
  Eager e;
  Expr x = matrix(e, {1, 2, 3, 4}, {2, 2}), row = matrix(e, {1, 2}, {2});
  GradientTape tape({.persistent = true});
  tape.watch(std::pair(x, row));
  const auto refuses = [&](const Expr& y, const Expr& of, const char* part) {
    BOOST_CHECK_EXCEPTION(tape.batch_jacobian(y, of), Error, [&](const Error& error) {
      return says(error, Code::invalid_argument, {part, "derivatives_test.cpp"});
    });
  };
  refuses(concat({x, x}, 0), x, "the target has 4 examples, and the source has 2");
  refuses(row * 1.0, x, "the target is f64[2]");
  refuses(x * 1.0, row, "the source is f64[2]");
  BOOST_CHECK_EXCEPTION(tape.jacobian(argmax(x, 0), x), Error, [](const Error& error) {
    return says(error, Code::invalid_argument, {"the target of a jacobian is i64[2]"});
  });
  GradientTape once;
  once.watch(x);
  Expr y = x * x;
  BOOST_CHECK_EXCEPTION(once.jacobian(y, x, {.parallel = false}), Error, [](const Error& error) {
    return says(error, Code::failed_precondition, {"not persistent", "derivatives_test.cpp"});
  });
  once.jacobian(y, x);
  BOOST_CHECK_EXCEPTION(once.jacobian(y, x), Error, [](const Error& error) {
    return says(error, Code::failed_precondition, {"used up"});
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
