// Host callbacks: eager and in traced functions, with and without gradients, and each way in which
// their code fails.
#include <boost/test/unit_test.hpp>

#include <future>
#include <stdexcept>

#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/host_callback.hpp>
#include <troupe/test/support/eager_scopes.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(callback_test)

namespace {

const ValueSpec kScalar{DType::f64, Shape{}};

// An f(x), computed by the host.
Expr on_host(const Expr& x, std::function<double(double)> f, HostCallbackOptions options = {}) {
  return host_callback(
      "on_host", {x}, kScalar,
      [f](std::span<const Tensor> in) { return Tensor::scalar(f(in[0].item<double>())); },
      std::move(options));
}

}  // namespace

BOOST_AUTO_TEST_CASE(callbacks_run_at_each_call) {
  in_each_scope([](Eager& e) {
    int calls = 0;
    auto f = function(
        "f", [&](Expr x) { return on_host(x * 2.0, [&](double v) { return v + ++calls; }); });
    BOOST_TEST(number(f(e.constant(1.0))) == 3);
    BOOST_TEST(number(f(e.constant(1.0))) == 4);
    BOOST_TEST(f.traces() == 1);
    BOOST_TEST(number(on_host(e.constant(5.0), [&](double v) { return v * calls; })) == 10);
  });
}

BOOST_AUTO_TEST_CASE(callbacks_of_one_name_have_code_of_their_own) {
  in_each_scope([](Eager& e) {
    auto f =
        function("f", [](Expr x, double n) { return on_host(x, [n](double v) { return v * n; }); });
    BOOST_TEST(number(f(e.constant(1.0), 2.0)) == 2);
    BOOST_TEST(number(f(e.constant(1.0), 3.0)) == 3);
    BOOST_TEST(number(f(e.constant(1.0), 2.0)) == 2);
  });
}

BOOST_AUTO_TEST_CASE(callbacks_fire_in_loops_in_order) {
  in_each_scope([](Eager& e) {
    std::vector<double> seen;
    auto f = function("f", [&](Expr x) {
      return for_loop(
          0, 4,
          [&](Expr, Expr s) {
            return on_host(s, [&](double v) {
              seen.push_back(v);
              return v + 1;
            });
          },
          x);
    });
    BOOST_TEST(number(f(e.constant(0.0))) == 4);
    BOOST_TEST(seen == (Numbers{0, 1, 2, 3}));
  });
}

BOOST_AUTO_TEST_CASE(callbacks_may_have_gradients) {
  in_each_scope([](Eager& e) {
    const HostCallbackOptions options{
        .gradient = [](const Expr& dy, const std::vector<Expr>& xs, const Expr&) {
          return std::vector<Expr>{dy * on_host(xs[0], [](double v) { return 3 * v * v; })};
        }};
    const auto cube = [&](Expr x) {
      return on_host(
          x, [](double v) { return v * v * v; }, options);
    };
    auto staged = function("cube", cube);
    Expr x = e.constant(2.0);
    GradientTape tape({.persistent = true});
    tape.watch(x);
    BOOST_TEST(number(tape.gradient(cube(x) * 2.0, x)) == 24);
    BOOST_TEST(number(tape.gradient(staged(x) * 2.0, x)) == 24);
    auto inside = function("inside", [&](Expr v) {
      GradientTape inner;
      inner.watch(v);
      return inner.gradient(cube(v), v);
    });
    BOOST_TEST(number(inside(x)) == 12);
  });
}

BOOST_AUTO_TEST_CASE(a_callback_without_a_gradient_is_refused_on_a_path) {
  in_each_scope([](Eager& e) {
    const auto same = [](Expr x) { return on_host(x, [](double v) { return v; }); };
    Expr x = e.constant(2.0);
    GradientTape tape({.persistent = true});
    tape.watch(x);
    Expr y = same(x);
    auto staged = function("same", same);
    for (const Expr& z : {y, staged(x)})
      BOOST_CHECK_EXCEPTION(tape.gradient(z, x), Error, [](const Error& error) {
        return says(error, Code::unimplemented,
                    {"on_host", "callback_test.cpp", "has no gradient", "stop_gradient"});
      });
    BOOST_TEST(number(tape.gradient(x * stop_gradient(y), x)) == 2);
  });
}

BOOST_AUTO_TEST_CASE(callback_without_a_gradient_has_a_zero_jacobian_on_request) {
  in_each_scope([](Eager& e) {
    for (const bool parallel : {true, false}) {
      auto staged = function("zeros", [&](Expr x) {
        GradientTape tape({.persistent = true});
        tape.watch(x);
        return tape.jacobian(on_host(x, [](double v) { return v; }), x,
                             {.unconnected = Unconnected::zeros, .parallel = parallel});
      });
      BOOST_TEST(number(staged(e.constant(2.0))) == 0);
    }
  });
}

BOOST_AUTO_TEST_CASE(a_condition_with_a_callback_is_evaluated_once_an_iteration) {
  in_each_scope([](Eager& e) {
    int calls = 0;
    const Expr end = while_loop(
        [&](Expr i) {
          return on_host(i, [&](double v) {
                   ++calls;
                   return v;
                 }) < 3.0;
        },
        [](Expr i) { return i + 1.0; }, e.constant(0.0));
    BOOST_TEST(number(end) == 3);
    BOOST_TEST(calls == 4);
  });
}

BOOST_AUTO_TEST_CASE(a_callback_that_fails_names_itself_and_the_line) {
  in_each_scope([](Eager& e) {
    const auto throws = [](Expr x) {
      return on_host(x, [](double) -> double { throw std::runtime_error("no such luck"); });
    };
    const auto misfits = [](Expr x) {
      return host_callback("misfits", {x}, kScalar, [](std::span<const Tensor>) {
        return Tensor::of<double>({1, 2}, {2});
      });
    };
    auto staged_throws = function("throws", throws);
    auto staged_misfits = function("misfits", misfits);
    Expr x = e.constant(1.0);
    const auto luck = [](const Error& error) {
      return says(error, Code::invalid_argument, {"on_host", "no such luck", "callback_test.cpp"});
    };
    const auto shape = [](const Error& error) {
      return says(error, Code::invalid_argument,
                  {"misfits", "must be f64[]", "not f64[2]", "callback_test.cpp"});
    };
    BOOST_CHECK_EXCEPTION(throws(x), Error, luck);
    BOOST_CHECK_EXCEPTION(staged_throws(x), Error, luck);
    BOOST_CHECK_EXCEPTION(misfits(x), Error, shape);
    BOOST_CHECK_EXCEPTION(staged_misfits(x), Error, shape);
  });
}

BOOST_AUTO_TEST_CASE(a_callback_that_blocks_has_a_thread_of_its_own) {
  Engine engine({.workers = 1});
  Eager e(engine);
  std::promise<double> answer;
  // the worker that would wait for the answer is the one that gives it
  auto f = function("f", [&](Expr x) {
    Expr waits = on_host(x, [&](double) { return answer.get_future().get(); }, {.blocks = true});
    Expr gives = on_host(x, [&](double v) {
      answer.set_value(v + 1);
      return v;
    });
    return waits + gives;
  });
  BOOST_TEST(number(f(e.constant(1.0))) == 3);
}

BOOST_AUTO_TEST_CASE(callbacks_need_a_name_a_function_and_an_input) {
  Eager e;
  const HostFunction one = [](std::span<const Tensor>) { return Tensor::scalar(1.0); };
  const auto refuses = [&](auto call, const char* part) {
    BOOST_CHECK_EXCEPTION(call(), Error, [&](const Error& error) {
      return std::string(error.what()).find(part) != std::string::npos &&
             std::string(error.what()).find("callback_test.cpp") != std::string::npos;
    });
  };
  Expr x = e.constant(1.0);
  refuses([&] { host_callback("", {x}, kScalar, one); }, "it has no name");
  refuses([&] { host_callback("f", {x}, kScalar, {}); }, "its function is empty");
  refuses([&] { host_callback("f", {}, kScalar, one); }, "it has no inputs");
  refuses([&] { host_callback("f", {Expr()}, kScalar, one); }, "input 0 is an empty expression");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
