// Effects of gradients: they happen when the gradient is computed, not in calls of the function,
// and errors of gradients that are not requested are not thrown.
#include <boost/test/unit_test.hpp>

#include <future>
#include <thread>

#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/controlflow/recurrent.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/host_callback.hpp>
#include <troupe/ops/graph/custom_gradient.hpp>
#include <troupe/test/support/eager_scopes.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(gradient_effects_test)

namespace {

const ValueSpec kScalar{DType::f64, Shape{}};

Expr on_host(const std::vector<Expr>& xs, std::function<double(std::span<const Tensor>)> f,
             HostCallbackOptions options = {}) {
  return host_callback(
      "on_host", xs, kScalar, [f](std::span<const Tensor> in) { return Tensor::scalar(f(in)); },
      std::move(options));
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_callback_of_a_gradient_may_take_dy) {
  in_each_scope([](Eager& e) {
    int forward = 0, backward = 0, of_inputs = 0;
    auto square_of = function("square_of", [&](Expr x) {
      return on_host({x},
                     [&](auto in) {
                       ++forward;
                       return in[0].at(0) * in[0].at(0);
                     },
                     {.gradient = [&](const Expr& dy, const Exprs& xs, const Expr&) {
                       const Expr slope = on_host({xs[0]}, [&](auto in) {
                         ++of_inputs;
                         return 2 * in[0].at(0);
                       });
                       return Exprs{on_host({dy, slope}, [&](auto in) {
                         ++backward;
                         return in[0].at(0) * in[1].at(0);
                       })};
                     }});
    });
    const Expr x = e.constant(3.0);
    const auto counts = [&] { return std::vector<int>{forward, of_inputs, backward}; };
    GradientTape tape({.persistent = true});
    tape.watch(x);
    const Expr y = square_of(x);
    BOOST_TEST(number(y) == 9);
    BOOST_TEST(counts() == (std::vector<int>{1, 0, 0}));
    BOOST_TEST(number(tape.gradient(y * 5.0, x)) == 30);
    BOOST_TEST(counts() == (std::vector<int>{1, 1, 1}));
    // the plain program, which is compiled only now
    tape.stop();
    BOOST_TEST(number(square_of(x)) == 9);
    BOOST_TEST(counts() == (std::vector<int>{2, 1, 1}));
    // in another function's code
    auto outer = function("outer", [&](Expr v) { return square_of(v) + 1.0; });
    BOOST_TEST(number(outer(x)) == 10);
    BOOST_TEST(counts() == (std::vector<int>{3, 1, 1}));
  });
}

BOOST_AUTO_TEST_CASE(an_effect_of_a_gradient_happens_with_the_gradient) {
  in_each_scope([](Eager& e) {
    Variable count = e.variable("count", Tensor::scalar(0.0));
    auto doubled = function("doubled", [&](Expr x) {
      return with_gradient(x * 2.0, {x}, [&](const Expr& dy, const Exprs&, const Expr&) {
        count.assign_add(1.0);
        return Exprs{dy * 2.0};
      });
    });
    const Expr x = e.constant(3.0);
    for (int n = 1; n < 3; ++n) {
      GradientTape tape;
      tape.watch(x);
      const Expr y = doubled(x);
      BOOST_TEST(number(count.read()) == n - 1);
      BOOST_TEST(number(tape.gradient(y, x)) == 2);
      BOOST_TEST(number(count.read()) == n);
    }
    BOOST_TEST(number(doubled(x)) == 6);
    BOOST_TEST(number(count.read()) == 2);
  });
}

BOOST_AUTO_TEST_CASE(an_error_of_a_gradient_is_thrown_where_it_is_requested) {
  in_each_scope([](Eager& e) {
    auto f = function("f", [&](Expr x) {
      Expr bad = with_gradient(x * 2.0, {x}, [](const Expr&, const Exprs&, const Expr&) -> Exprs {
        throw Error(Code::invalid_argument, "no such luck");
      });
      return std::tuple{bad, x * 3.0};
    });
    const Expr x = e.constant(3.0);
    GradientTape tape({.persistent = true});
    tape.watch(x);
    const auto [bad, good] = f(x);
    BOOST_TEST(number(bad) == 6);
    BOOST_TEST(number(tape.gradient(good, x)) == 3);
    // zeros for what no gradient reaches are none for a gradient that fails
    for (const Unconnected unconnected : {Unconnected::absent, Unconnected::zeros})
      BOOST_CHECK_EXCEPTION(
          tape.gradient(bad, x, {.unconnected = unconnected}), Error, [](const Error& error) {
            return says(error, Code::invalid_argument,
                        {"result 0 of function 'f'", "gradient_effects_test.cpp", "no such luck"});
          });
  });
}

// A gradient that calls a traced function is made under a tape while another thread traces.
BOOST_AUTO_TEST_CASE(gradients_and_traces_of_two_threads_do_not_deadlock) {
  Engine engine({.workers = 2});
  Eager e(engine);
  auto inner = function("inner", [](Expr x) { return x * 2.0; });
  std::promise<void> gradient_runs;
  auto f = function("f", [&](Expr x) {
    return with_gradient(x * 2.0, {x}, [&](const Expr& dy, const Exprs&, const Expr&) {
      gradient_runs.set_value();
      return Exprs{inner(dy)};
    });
  });
  const Expr x = e.constant(3.0);
  BOOST_TEST(number(f(x)) == 6);
  double of_other = 0;
  std::thread other([&] {
    Eager mine(engine);
    gradient_runs.get_future().wait();
    auto outer = function("outer", [&](Expr v) { return f(v) + 1.0; });
    of_other = number(outer(mine.constant(1.0)));
  });
  GradientTape tape;
  tape.watch(x);
  BOOST_TEST(number(tape.gradient(f(x), x)) == 2);
  other.join();
  BOOST_TEST(of_other == 3);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
