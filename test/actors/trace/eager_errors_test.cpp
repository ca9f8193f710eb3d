// Errors of eager code and of traces name the user's line.
#include <boost/test/unit_test.hpp>

#include <stdexcept>

#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/test/support/eager_scopes.hpp>

namespace troupe {

TROUPE_OP(TestThrowsOther) {
  op.doc("Throws an exception of the standard library, or another type.");
  op.inputs(1);
  op.attr<bool>("standard");
  op.infer([](Inference& c) { c.output(DType::f64, Shape{}); });
  op.run([](KernelContext&, const Attrs& attrs) {
    if (attrs.get<bool>("standard")) throw std::runtime_error("no such luck");
    throw 7;
  });
}

}  // namespace troupe

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(eager_errors_test)

namespace {

/// The line of a call of this, as errors name it.
std::string line_here(std::source_location at = std::source_location::current()) {
  return detail::Site(at).text();
}

}  // namespace

BOOST_AUTO_TEST_CASE(kernels_that_throw_are_named_with_the_line) {
  in_each_scope([](Eager& e) {
    const Expr x = e.constant(1.0);
    const auto fire = [&](bool is_standard) {
      const detail::Site site = std::source_location::current();
      detail::Reader& reader = x.reader().current();
      reader.bind(detail::find_op("TestThrowsOther"), {&x, 1}, {{"standard", is_standard}}, site);
    };
    BOOST_CHECK_EXCEPTION(fire(true), Error, [&](const Error& error) {
      return says(error, Code::internal,
                  {"TestThrowsOther", "eager_errors_test.cpp:", "no such luck"});
    });
    BOOST_CHECK_EXCEPTION(fire(false), Error, [&](const Error& error) {
      return says(error, Code::internal,
                  {"TestThrowsOther", "eager_errors_test.cpp:", "no std::exception"});
    });
    // the scope computes on
    BOOST_TEST(number(x + 1.0) == 2);
  });
}

BOOST_AUTO_TEST_CASE(traced_values_that_are_read_are_refused_by_line) {
  in_each_scope([](Eager& e) {
    std::string line;
    auto f = function("f", [&](Expr x) {
      const Expr y = (line = line_here(), tanh(x));
      return y.value().at(0) > 0 ? x : y;
    });
    BOOST_CHECK_EXCEPTION(f(e.constant(1.0)), Error, [&](const Error& error) {
      return says(error, Code::failed_precondition, {"Tanh", line, "function 'f'", "is traced"});
    });
    Graph g;
    const Expr x = g.input("x", DType::f64, Shape{});
    const Expr y = (line = line_here(), tanh(x));
    BOOST_CHECK_EXCEPTION(y.value(), Error, [&](const Error& error) {
      return says(error, Code::failed_precondition, {"Tanh", line, "run the graph and fetch it"});
    });
  });
}

BOOST_AUTO_TEST_CASE(refused_gradients_name_the_line_of_the_tape) {
  in_each_scope([](Eager& e) {
    Variable v = e.variable("v", Tensor::scalar(1.0));
    const auto code = [&](Expr x) { return v.assign(x * 3.0) + x; };
    const Expr x = e.constant(1.0);
    std::string line;
    const auto has_line = [&](const Error& error) {
      return says(error, error.code(), {line, "AssignVariable"}) &&
             std::string(error.what()).find(" :0:") == std::string::npos;
    };
    // around a call, and within the code
    auto around = function("around", code);
    GradientTape tape;
    tape.watch(x);
    const Expr y = around(x);
    BOOST_CHECK_EXCEPTION((line = line_here(), tape.gradient(y, x)), Error, has_line);
    auto within = function("within", [&](Expr in) {
      GradientTape inner;
      inner.watch(in);
      const Expr out = code(in);
      return (line = line_here(), inner.gradient(out, in));
    });
    BOOST_CHECK_EXCEPTION(within(x), Error, has_line);
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
