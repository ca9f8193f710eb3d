// Traced functions and the eager scopes that call them: whose variables they use, values of scopes
// that have ended, and what a failed trace leaves.
#include <boost/test/unit_test.hpp>

#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/host_callback.hpp>
#include <troupe/test/support/eager_scopes.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(scopes_test)

BOOST_AUTO_TEST_CASE(a_tape_watches_the_variable_of_the_scope_that_calls) {
  Engine engine({.workers = 1});
  auto first = std::make_unique<Eager>(engine);
  Variable v = first->variable("v", Tensor::scalar(3.0));
  auto f = function("f", [&](Expr x) { return x * square(v.read()); });
  BOOST_TEST(number(f(first->constant(1.0))) == 9);
  Eager second(engine);
  Variable same = second.find_variable("v");
  first.reset();
  GradientTape tape;
  const Expr y = f(second.constant(2.0));
  const std::vector<Variable> watched = tape.watched_variables();
  BOOST_REQUIRE_EQUAL(watched.size(), 1U);
  BOOST_TEST((&watched[0].reader() == &second));
  BOOST_TEST(watched[0].name() == "v");
  BOOST_TEST(number(watched[0].read()) == 3);
  BOOST_TEST(number(tape.gradient(y, same)) == 12);
  BOOST_TEST(f.traces() == 1);
}

BOOST_AUTO_TEST_CASE(scopes_without_an_engine_have_variables_of_their_own) {
  auto f = function(
      "f", [](Expr x) { return x * square(Eager::innermost()->find_variable("v").read()); });
  for (const double value : {2.0, 3.0}) {
    Eager e;
    Variable v = e.variable("v", Tensor::scalar(value));
    GradientTape tape;
    const Expr y = f(e.constant(1.0));
    BOOST_TEST(number(y) == value * value);
    BOOST_TEST(number(tape.gradient(y, v)) == 2 * value);
  }
  BOOST_TEST(f.traces() == 1);
}

BOOST_AUTO_TEST_CASE(a_variable_of_another_engine_is_refused) {
  Engine one({.workers = 1}), two({.workers = 1});
  Eager a(one), b(two);
  Variable v = a.variable("v", Tensor::scalar(3.0));
  auto f = function("f", [&](Expr x) { return x * v.read(); });
  BOOST_TEST(number(f(a.constant(2.0))) == 6);
  BOOST_CHECK_EXCEPTION(f(b.constant(2.0)), Error, [](const Error& error) {
    return says(error, Code::failed_precondition,
                {"variable 'v'", "function 'f'", "scopes_test.cpp", "another engine"});
  });
  // a function that another one's code calls runs where that one does
  auto outer = function("outer", [&](Expr x) { return f(x * 1.0) + 1.0; });
  BOOST_TEST(number(outer(a.constant(2.0))) == 7);
  Eager alone, other;
  Variable w = alone.variable("w", Tensor::scalar(3.0));
  auto g = function("g", [&](Expr x) { return x * w.read(); });
  BOOST_CHECK_EXCEPTION(g(other.constant(2.0)), Error, [](const Error& error) {
    return says(error, Code::failed_precondition, {"variable 'w'", "function 'g'"});
  });
  BOOST_TEST(number(g(alone.constant(2.0))) == 6);
}

BOOST_AUTO_TEST_CASE(threads_find_the_variables_of_their_engine) {
  Engine engine({.workers = 2});
  Eager e(engine);
  Variable v = e.variable("layer/v", Tensor::scalar(0.0));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      Eager mine(engine);
      Variable shared = mine.find_variable("layer/v");
      for (int i = 0; i < 100; ++i) shared.assign_add(1.0);
    });
  for (std::thread& t : threads) t.join();
  BOOST_TEST(number(v.read()) == 400);
  Eager other(engine);
  BOOST_CHECK_EXCEPTION(other.find_variable("v"), Error, [](const Error& error) {
    return says(error, Code::not_found, {"'v'", "did you mean 'layer/v'"});
  });
}

BOOST_AUTO_TEST_CASE(captured_values_outlive_their_scope) {
  Engine engine({.workers = 1});
  auto first = std::make_unique<Eager>(engine);
  Expr captured = first->constant(5.0);
  auto f = function("f", [&](Expr x) { return x + captured; });
  BOOST_TEST(number(f(first->constant(1.0))) == 6);
  captured = Expr();
  first.reset();
  std::thread([&] {
    Eager e(engine);
    BOOST_TEST(number(f(e.constant(2.0))) == 7);
    auto outer = function("outer", [&](Expr x) { return f(x) * 2.0; });
    BOOST_TEST(number(outer(e.constant(2.0))) == 14);
  }).join();
  BOOST_TEST(f.traces() == 1);
}

BOOST_AUTO_TEST_CASE(a_failed_trace_leaves_variables_with_their_first_values) {
  in_each_place([](Eager& e) {
    std::optional<Variable> v;
    bool fails = true;
    auto f = function("f", [&](Expr x) {
      if (!v) v = e.variable("v", 2.0 * x);
      if (fails) throw std::runtime_error("no such luck");
      return v->read() * x;
    });
    BOOST_CHECK_THROW(f(e.constant(3.0)), std::runtime_error);
    BOOST_TEST(number(v->read()) == 6);
    fails = false;
    BOOST_TEST(number(f(e.constant(1.0))) == 6);
  });
}

BOOST_AUTO_TEST_CASE(a_variable_whose_first_value_cannot_be_computed_has_none) {
  in_each_scope([](Eager& e) {
    std::optional<Variable> v;
    auto f = function("f", [&](Expr x) {
      if (!v)
        v = e.variable("v", host_callback("broken", {x}, {DType::f64, Shape{}},
                                          [](std::span<const Tensor>) -> Tensor {
                                            throw std::runtime_error("no such luck");
                                          }));
      return v->read() * x;
    });
    BOOST_CHECK_THROW(f(e.constant(3.0)), Error);
    const auto is_refused = [](const Error& error) {
      return says(error, Code::failed_precondition,
                  {"variable 'v'", "scopes_test.cpp", "no such luck", "assign"});
    };
    BOOST_CHECK_EXCEPTION(v->read(), Error, is_refused);
    BOOST_CHECK_EXCEPTION(f(e.constant(3.0)), Error, is_refused);
    v->assign(2.0);
    BOOST_TEST(number(f(e.constant(3.0))) == 6);
  });
}

BOOST_AUTO_TEST_CASE(a_missing_first_value_is_refused_in_all_scopes) {
  Engine engine({.workers = 1});
  Eager first(engine), second(engine);
  std::optional<Variable> v;
  auto f = function("f", [&](Expr x) {
    if (!v)
      v = first.variable("v", host_callback("broken", {x}, {DType::f64, Shape{}},
                                            [](std::span<const Tensor>) -> Tensor {
                                              throw std::runtime_error("no such luck");
                                            }));
    return v->read() * x;
  });
  BOOST_CHECK_THROW(f(first.constant(3.0)), Error);
  Variable same = second.find_variable("v");
  const auto has_none = [](std::initializer_list<std::string> parts) {
    return [parts](const Error& error) {
      return says(error, Code::failed_precondition, {"'v'", "has no value", "assign one"}) &&
             says(error, Code::failed_precondition, parts);
    };
  };
  BOOST_CHECK_EXCEPTION(same.read(), Error, has_none({"ReadVariable", "scopes_test.cpp"}));
  BOOST_CHECK_EXCEPTION(same.assign_add(1.0), Error, has_none({"AssignAdd", "scopes_test.cpp"}));
  auto g = function("g", [](Expr x) { return x * Eager::innermost()->find_variable("v").read(); });
  // a program names the node
  BOOST_CHECK_EXCEPTION(g(second.constant(1.0)), Error, [](const Error& error) {
    return says(error, Code::failed_precondition,
                {"ReadVariable", "scopes_test.cpp", "has no value", "assign one"});
  });
  BOOST_CHECK_EXCEPTION(engine.get("v"), Error, has_none({}));
  same.assign(2.0);
  // the scope that was refused sees it, too
  BOOST_TEST(number(v->read()) == 2);
  BOOST_TEST(number(f(first.constant(3.0))) == 6);
  BOOST_TEST(number(g(second.constant(1.0))) == 2);
}

BOOST_AUTO_TEST_CASE(a_first_value_to_come_is_refused_elsewhere) {
  Engine engine({.workers = 1});
  Eager first(engine), second(engine);
  std::optional<Variable> v;
  std::string meanwhile = "nothing";
  auto f = function("f", [&](Expr x) {
    if (!v) {
      v = first.variable("v", 2.0 * x);
      const InitScope outside;
      try {
        second.find_variable("v").read();
      } catch (const Error& e) { meanwhile = e.what(); }
    }
    return v->read() * x;
  });
  BOOST_TEST(number(f(first.constant(3.0))) == 18);
  BOOST_TEST(meanwhile.find("has no value") != std::string::npos, meanwhile);
  BOOST_TEST(number(second.find_variable("v").read()) == 6);
}

BOOST_AUTO_TEST_CASE(a_first_value_from_the_outer_code_is_refused) {
  in_each_scope([](Eager& e) {
    std::optional<Variable> v;
    auto inner = function("inner", [&](Expr x) {
      if (!v) v = e.variable("v", 2.0 * x);
      return v->read() * x;
    });
    auto outer = function("outer", [&](Expr x) { return inner(x + 1.0); });
    BOOST_CHECK_EXCEPTION(outer(e.constant(1.0)), Error, [](const Error& error) {
      return says(error, Code::failed_precondition,
                  {"function 'inner'", "'v'", "scopes_test.cpp", "call it once before"});
    });
    BOOST_TEST(number(inner(e.constant(1.0))) == 2);
    BOOST_TEST(number(outer(e.constant(1.0))) == 4);
  });
}

BOOST_AUTO_TEST_CASE(deep_host_recursion_is_refused) {
  in_each_scope([](Eager& e) {
    std::function<Expr(const Expr&, int)> call;
    auto f = function("f", [&](Expr x, int n) { return call(x, n + 1); });
    call = [&](const Expr& x, int n) { return f(x, n); };
    BOOST_CHECK_EXCEPTION(f(e.constant(1.0), 0), Error, [](const Error& error) {
      return says(error, Code::resource_exhausted, {"function 'f'", "256 other traces"});
    });
    auto g = function("g", [&](Expr x, int n) { return n == 0 ? x : call(x * 2.0, n - 1); });
    call = [&](const Expr& x, int n) { return g(x, n); };
    BOOST_TEST(number(g(e.constant(1.0), 100)) == std::pow(2.0, 100));
  });
}

BOOST_AUTO_TEST_CASE(values_of_evicted_and_failed_traces_are_refused) {
  in_each_scope([](Eager& e) {
    Exprs kept;
    auto f = function("f",
                      [&](Expr x, int n) {
                        kept.push_back(x + 1.0);
                        if (n % 2 == 1) throw std::runtime_error("no such luck");
                        return x;
                      },
                      {.max_traces = 1});
    for (int n = 0; n < 10; ++n) {
      if (n % 2 == 1) BOOST_CHECK_THROW(f(e.constant(1.0), n), std::runtime_error);
      else f(e.constant(1.0), n);
    }
    for (const Expr& x : kept)
      BOOST_CHECK_EXCEPTION(x + 1.0, Error, [](const Error& error) {
        return says(error, Code::invalid_argument, {"inside function 'f'"});
      });
    auto g = function("g", [&](Expr x) { return x + kept[0]; });
    BOOST_CHECK_EXCEPTION(g(e.constant(1.0)), Error, [](const Error& error) {
      return says(error, Code::invalid_argument, {"inside function 'f'", "in function 'g'"});
    });
  });
}

BOOST_AUTO_TEST_CASE(an_error_of_creation_lists_what_the_first_trace_created) {
  in_each_scope([](Eager& e) {
    int n = 0;
    auto f = function("f", [&](Expr x) {
      return e.variable("v" + std::to_string(n++), Tensor::scalar(2.0)).read() * x;
    });
    BOOST_CHECK_EXCEPTION(f(e.constant(1.0)), Error, [](const Error& error) {
      return says(error, Code::failed_precondition, {"creates 'v1'", "which created 'v0' at"});
    });
  });
}

BOOST_AUTO_TEST_CASE(cpp_that_tests_an_argument_is_refused_by_name_and_line) {
  in_each_scope([](Eager& e) {
    auto with_if = function("with_if", [](Expr x) {
      if (x) return x;
      return x * 2.0;
    });
    auto with_while = function("with_while", [](Expr x) {
      while (x > 0.0) x = x - 1.0;
      return x;
    });
    const auto names = [](const char* name) {
      return [name](const Error& error) {
        return says(error, Code::failed_precondition,
                    {name, "scopes_test.cpp", "cond()", "while_loop()", "where()"});
      };
    };
    BOOST_CHECK_EXCEPTION(with_if(e.constant(1.0)), Error, names("function 'with_if'"));
    BOOST_CHECK_EXCEPTION(with_while(e.constant(1.0)), Error, names("function 'with_while'"));
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
