// Traced functions: when they are traced, what they capture, their gradients, nested both ways, and
// each misuse.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <complex>
#include <optional>
#include <thread>

#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/custom_gradient.hpp>
#include <troupe/test/support/eager_scopes.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(traced_test)

// ---- C: calls

BOOST_AUTO_TEST_CASE(a_call_yields_what_the_code_yields) {  // C1, C2
  in_each_place([](Eager& e) {
    auto twice = function("twice", [](Expr x) { return 2.0 * x; });
    BOOST_TEST(number(twice(e.constant(4.0))) == 8);

    Expr t = matrix(e, {1, 2, 3, 4}, {2, 2});
    auto product = function("product", [](Expr a, Expr b) { return matmul(transpose(a), b); });
    BOOST_TEST(numbers(product(t, t)) == (Numbers{10, 14, 14, 20}));
    BOOST_TEST(numbers(product(product(t, t), t)) == (Numbers{52, 76, 74, 108}));
    BOOST_TEST(product.traces() == 1);
  });
}

BOOST_AUTO_TEST_CASE(variables_are_created_by_the_first_call) {  // C3
  in_each_place([](Eager& e) {
    std::optional<Variable> v;
    auto f = function("f", [&](Expr x) {
      if (!v) v = e.variable("v", Tensor::scalar(2.0));
      return v->read() * x;
    });
    BOOST_TEST(number(f(e.constant(1.0))) == 2);
    BOOST_TEST(number(f(e.constant(3.0))) == 6);
  });
}

BOOST_AUTO_TEST_CASE(creating_variables_in_each_call_is_refused) {  // C4
  in_each_place([](Eager& e) {
    int n = 0;
    auto f = function("f", [&](Expr x) {
      return e.variable("v" + std::to_string(n++), Tensor::scalar(2.0)).read() * x;
    });
    BOOST_CHECK_EXCEPTION(f(e.constant(1.0)), Error, [](const Error& error) {
      return says(error, Code::failed_precondition,
                  {"function 'f'", "creates 'v1'", "traced_test.cpp"});
    });
    auto same = function(
        "same", [&](Expr x) { return e.variable("same", Tensor::scalar(2.0)).read() * x; });
    BOOST_CHECK_EXCEPTION(same(e.constant(1.0)), Error, [](const Error& error) {
      return says(error, Code::failed_precondition,
                  {"creates 'same'", "where it was created at", "traced_test.cpp"});
    });
  });
}

BOOST_AUTO_TEST_CASE(a_variable_may_start_as_an_argument_does) {  // C5
  in_each_place([](Eager& e) {
    std::optional<Variable> v;
    auto f = function("f", [&](Expr x) {
      if (!v) v = e.variable("v", 2.0 * x);
      return v->read() * x;
    });
    BOOST_TEST(number(f(e.constant(1.0))) == 2);
    BOOST_TEST(number(f(e.constant(3.0))) == 6);
  });
}

BOOST_AUTO_TEST_CASE(instances_have_variables_of_their_own) {  // C7
  in_each_place([](Eager& e) {
    struct Model {
      Variable v;
      Expr call(const Expr& x) const { return v.read() * x; }
    };
    Model m0{e.variable("m0/v", Tensor::scalar(2.0))}, m1{e.variable("m1/v", Tensor::scalar(2.0))};
    auto f0 = function("f0", [&](Expr x) { return m0.call(x); });
    auto f1 = function("f1", [&](Expr x) { return m1.call(x); });
    Expr three = e.constant(3.0);
    BOOST_TEST(number(f0(three)) == 6);
    m0.v.assign(3.0);
    BOOST_TEST(number(f0(three)) == 9);
    BOOST_TEST(number(f1(three)) == 6);
  });
}

BOOST_AUTO_TEST_CASE(an_error_of_a_run_does_not_stick) {  // C8
  in_each_place([](Eager& e) {
    auto f = function("f", [](Expr list, Expr i) { return gather(list, i, 0); });
    Expr list = matrix(e, {1, 2}, {2});
    Expr good = e.constant(std::int64_t{0}), bad = e.constant(std::int64_t{7});
    BOOST_TEST(number(f(list, good)) == 1);
    BOOST_CHECK_THROW(number(f(list, bad)), Error);
    BOOST_TEST(number(f(list, good)) == 1);
    BOOST_TEST(f.traces() == 1);
  });
}

BOOST_AUTO_TEST_CASE(the_code_runs_once) {  // C9
  in_each_place([](Eager& e) {
    int runs = 0;
    auto f = function("f", [&](Expr x) {
      ++runs;
      return x + 1.0;
    });
    f(e.constant(1.0));
    f(e.constant(2.0));
    BOOST_TEST(runs == 1);
  });
}

BOOST_AUTO_TEST_CASE(effects_happen_in_program_order) {  // C11
  in_each_place([](Eager& e) {
    Variable v = e.variable("v", Tensor::scalar(1.0));
    auto f = function("f", [&](Expr x) {
      v.assign_add(x);
      return v.read();
    });
    BOOST_TEST(number(f(e.constant(2.0))) == 3);
    auto g = function("g", [&] { v.assign(7.0); });
    g();
    BOOST_TEST(number(v.read()) == 7);
  });
}

BOOST_AUTO_TEST_CASE(variables_are_captured_by_reference_and_values_as_they_are) {  // C12
  in_each_place([](Eager& e) {
    Variable v = e.variable("v", Tensor::scalar(1.0));
    Expr value = e.constant(10.0);
    auto f = function("f", [&](Expr x) { return v.read() * x + value; });
    BOOST_TEST(numbers(f(matrix(e, {1}, {1}))) == Numbers{11});
    v.assign(2.0);
    BOOST_TEST(numbers(f(matrix(e, {1, 2}, {2}))) == (Numbers{12, 14}));
    value = e.constant(100.0);
    BOOST_TEST(numbers(f(matrix(e, {1, 2}, {2}))) == (Numbers{12, 14}));
  });
}

BOOST_AUTO_TEST_CASE(each_dtype_and_rank_is_traced_once) {  // C14
  in_each_place([](Eager& e) {
    using C64 = std::complex<float>;
    using C128 = std::complex<double>;
    auto f = function("f", [](Expr x) { return x + x; });
    const auto traced = [&](const Tensor& t) {
      f(e.constant(t));
      return f.traces();
    };
    BOOST_TEST(traced(Tensor::of<C64>({{1, 0}}, {1, 1})) == 1);
    BOOST_TEST(traced(Tensor::of<C64>({{1, 0}}, {1, 1})) == 1);
    BOOST_TEST(traced(Tensor::of<C64>({{1, 0}}, {1})) == 2);
    BOOST_TEST(traced(Tensor::of<C128>({{1, 0}}, {1})) == 3);
  });
}

BOOST_AUTO_TEST_CASE(extents_that_change_become_unknown) {
  in_each_scope([](Eager& e) {
    auto f = function("f", [](Expr x) { return x * 2.0; });
    for (std::int64_t n = 1; n < 20; ++n) f(e.constant(Tensor::zeros(DType::f64, {n, 3})));
    BOOST_TEST(f.traces() == 2);
    BOOST_TEST(f.signatures().back() == "(f64[?, 3])");
    FunctionOptions exact;
    exact.relax_shapes = false;
    exact.warn = [](const std::string&) {};
    auto g = function(
        "g", [](Expr x) { return x * 2.0; }, exact);
    for (std::int64_t n = 1; n < 5; ++n) g(e.constant(Tensor::zeros(DType::f64, {n, 3})));
    BOOST_TEST(g.traces() == 4);
  });
}

BOOST_AUTO_TEST_CASE(code_that_computes_with_extents_is_traced_for_each) {
  in_each_scope([](Eager& e) {
    FunctionOptions quiet;
    quiet.warn = [](const std::string&) {};
    const auto ones = [&](std::int64_t n) {
      return e.constant(Tensor::of(std::vector<double>(static_cast<std::size_t>(n), 1.0), {n}));
    };
    auto mean_of = function(
        "mean", [](Expr x) { return sum(x) / static_cast<double>(x.shape()[0]); }, quiet);
    auto twice = function(
        "twice", [](Expr x) { return x.reader().zeros(DType::f64, {2 * x.shape()[0]}); }, quiet);
    for (std::int64_t n = 2; n < 6; ++n) {
      BOOST_TEST(numbers(mean_of(ones(n))) == Numbers{1});
      BOOST_TEST(twice(ones(n)).shape()[0] == 2 * n);
    }
    BOOST_TEST(mean_of.traces() == 4);
    BOOST_TEST(twice.traces() == 4);
    // operations that compute with it when they run need one graph for all
    auto mean_as_op = function("mean_as_op", [](Expr x) { return mean(x) * 2.0; });
    for (std::int64_t n = 2; n < 6; ++n) BOOST_TEST(numbers(mean_as_op(ones(n))) == Numbers{2});
    BOOST_TEST(mean_as_op.traces() == 2);
  });
}

BOOST_AUTO_TEST_CASE(a_signature_makes_one_graph) {  // C17
  in_each_place([](Eager& e) {
    FunctionOptions options;
    options.signature = {{DType::f32, Shape{kAny, kAny}}};
    auto f = function(
        "f", [](Expr x) { return shape_of(x); }, options);
    BOOST_TEST(numbers(f(e.constant(Tensor::zeros(DType::f32, {3, 1})))) == (Numbers{3, 1}));
    f(e.constant(Tensor::zeros(DType::f32, {2, 5})));
    BOOST_TEST(f.traces() == 1);
    for (const Tensor& wrong : {Tensor::zeros(DType::f32, {3}), Tensor::zeros(DType::f64, {3, 1})})
      BOOST_CHECK_EXCEPTION(f(e.constant(wrong)), Error, [](const Error& error) {
        return says(error, Code::invalid_argument, {"function 'f'", "argument 0", "signature"});
      });
  });
}

BOOST_AUTO_TEST_CASE(arguments_that_fit_a_signature_share_a_graph) {  // C16
  in_each_place([](Eager& e) {
    FunctionOptions options;
    options.signature = {{DType::f32, Shape{2, kAny}}};
    auto f = function(
        "f", [](Expr x) { return sum(x); }, options);
    for (const std::int64_t n : {1, 3}) f(e.constant(Tensor::zeros(DType::f32, {2, n})));
    BOOST_TEST(f.traces() == 1);
    BOOST_TEST(f.signatures()[0] == "(f32[2, ?])");
  });
}

BOOST_AUTO_TEST_CASE(tensors_of_the_host_are_tensor_arguments) {  // C21
  in_each_place([](Eager&) {
    auto f = function("f", [](Expr x) { return sum(x); });
    BOOST_TEST(number(f(Tensor::of<double>({1, 2}, {2}))) == 3);
    BOOST_TEST(number(f(Tensor::of<double>({3, 4}, {2}))) == 7);
    BOOST_TEST(f.traces() == 1);
  });
}

BOOST_AUTO_TEST_CASE(equal_arguments_find_the_same_graph) {  // C25
  in_each_place([](Eager& e) {
    auto f = function("f", [](Expr x) { return x * 2.0; });
    const auto first = f.graph(e.constant(1.0)), again = f.graph(e.constant(2.0));
    BOOST_TEST(first.get() == again.get());
    BOOST_TEST(f.graph(matrix(e, {1, 2}, {2})).get() != first.get());
    BOOST_TEST(f.traces() == 2);
  });
}

namespace {
struct Pair {
  Expr a, b;
  auto members() { return std::tie(a, b); }
};
}  // namespace

BOOST_AUTO_TEST_CASE(structures_go_in_and_come_out) {  // C18
  in_each_place([](Eager& e) {
    auto f = function("f", [](Pair p) { return Pair{p.a + 1.0, p.b * 2.0}; });
    Expr one = e.constant(1.0), two = matrix(e, {1, 2}, {2});
    Pair out = f(Pair{one, two});
    BOOST_TEST(number(out.a) == 2);
    BOOST_TEST(numbers(out.b) == (Numbers{2, 4}));
    f(Pair{two, one});
    BOOST_TEST(f.traces() == 2);
    f(Pair{one, two});
    BOOST_TEST(f.traces() == 2);
  });
}

BOOST_AUTO_TEST_CASE(host_arguments_are_part_of_the_key) {  // C19
  in_each_place([](Eager& e) {
    auto f = function("f", [](Expr x, int a, std::string b) {
      return x * static_cast<double>(a) + static_cast<double>(b.size());
    });
    Expr x = e.constant(1.0);
    for (int again = 0; again < 2; ++again) {
      BOOST_TEST(number(f(x, 0, "a")) == 1);
      BOOST_TEST(number(f(x, 1, "ab")) == 3);
      BOOST_TEST(number(f(x, 1, "abc")) == 4);
    }
    BOOST_TEST(f.traces() == 3);
  });
}

BOOST_AUTO_TEST_CASE(generic_code_takes_tensors_and_numbers) {
  in_each_scope([](Eager& e) {
    auto f = function("f", [](auto x, auto n) { return x * static_cast<double>(n); });
    BOOST_TEST(number(f(e.constant(2.0), 3)) == 6);
    BOOST_TEST(number(f(Tensor::scalar(2.0), 3)) == 6);
    BOOST_TEST(f.traces() == 1);
  });
}

BOOST_AUTO_TEST_CASE(a_hundred_threads_may_call_one_function) {  // C23
  EngineOptions options;
  options.workers = 2;
  Engine engine(options);
  Eager home(engine);
  auto f = function("f", [](Expr x) { return 2.0 * x; });
  std::vector<double> got(100);
  std::vector<std::thread> threads;
  for (int i = 0; i < 100; ++i)
    threads.emplace_back([&, i] {
      Eager e(engine);
      got[static_cast<std::size_t>(i)] = number(f(e.constant(static_cast<double>(i))));
    });
  for (std::thread& t : threads) t.join();
  for (int i = 0; i < 100; ++i) BOOST_TEST(got[static_cast<std::size_t>(i)] == 2 * i);
  BOOST_TEST(f.traces() == 1);
}

BOOST_AUTO_TEST_CASE(a_value_that_escapes_its_trace_is_refused) {
  in_each_scope([](Eager& e) {
    Expr kept;
    auto f = function("f", [&](Expr x) {
      kept = x * 2.0;
      return x;
    });
    f(e.constant(1.0));
    BOOST_CHECK_EXCEPTION(kept + 1.0, Error, [](const Error& error) {
      return says(error, Code::invalid_argument, {"function 'f'", "traced_test.cpp"});
    });
    auto g = function("g", [&](Expr x) { return x + kept; });
    BOOST_CHECK_EXCEPTION(g(e.constant(1.0)), Error, [](const Error& error) {
      return says(error, Code::invalid_argument, {"function 'f'", "traced_test.cpp"});
    });
  });
}

BOOST_AUTO_TEST_CASE(a_value_from_inside_a_loop_is_refused) {  // C28
  in_each_place([](Eager& e) {
    auto f = function("f", [&](Expr x) {
      Expr inside;
      while_loop([](Expr i) { return i < 3.0; },
                 [&](Expr i) {
                   inside = i * 2.0;
                   return i + 1.0;
                 },
                 x);
      return inside;
    });
    BOOST_CHECK_EXCEPTION(f(e.constant(1.0)), Error, [](const Error& error) {
      return says(error, Code::invalid_argument, {"inside", "traced_test.cpp"});
    });
  });
}

BOOST_AUTO_TEST_CASE(cpp_cannot_look_at_a_traced_value) {
  in_each_scope([](Eager& e) {
    auto f = function("f", [](Expr x) { return x > 0.0 ? x : -x; });
    BOOST_CHECK_EXCEPTION(f(e.constant(1.0)), Error, [](const Error& error) {
      return says(error, Code::failed_precondition, {"Greater", "traced_test.cpp", "cond()"});
    });
    auto g = function("g", [](Expr x) { return where(x > 0.0, x, -x); });
    BOOST_TEST(number(g(e.constant(-1.0))) == 1);
  });
}

BOOST_AUTO_TEST_CASE(an_exception_of_the_code_leaves_nothing_behind) {
  in_each_scope([](Eager& e) {
    bool throws = true;
    auto f = function("f", [&](Expr x) {
      if (throws) throw std::runtime_error("not yet");
      return x;
    });
    BOOST_CHECK_THROW(f(e.constant(1.0)), std::runtime_error);
    BOOST_TEST(f.traces() == 0);
    throws = false;
    BOOST_TEST(number(f(e.constant(1.0))) == 1);
    BOOST_TEST(number(e.constant(2.0) * 2.0) == 4);  // nothing is traced any more
  });
}

BOOST_AUTO_TEST_CASE(random_draws_are_new_at_each_call) {
  in_each_scope([](Eager& e) {
    auto f = function("f", [&] { return e.random_uniform({4}, DType::f64); });
    BOOST_TEST(numbers(f()) != numbers(f()));
  });
}

BOOST_AUTO_TEST_CASE(control_flow_is_staged) {
  in_each_scope([](Eager& e) {
    auto f = function("f", [](Expr x, Expr n) {
      return std::get<1>(while_loop([&](Expr i, Expr) { return i < n; },
                                    [](Expr i, Expr y) {
                                      Expr z = cond(
                                          y > 100.0, [&] { return y; }, [&] { return y * 2.0; });
                                      return std::tuple{i + 1, z};
                                    },
                                    std::tuple{n * 0, x}));
    });
    BOOST_TEST(number(f(e.constant(1.0), e.constant(std::int64_t{5}))) == 32);
    BOOST_TEST(number(f(e.constant(1.0), e.constant(std::int64_t{50}))) == 128);
    BOOST_TEST(f.traces() == 1);
  });
}

BOOST_AUTO_TEST_CASE(retracing_warns_once_and_names_what_changed) {
  in_each_scope([](Eager& e) {
    std::vector<std::string> warnings;
    FunctionOptions options;
    options.warn = [&](const std::string& text) { warnings.push_back(text); };
    auto f = function(
        "f", [](Expr x, int n) { return x + static_cast<double>(n); }, options);
    for (int n = 0; n < 20; ++n) f(e.constant(1.0), n);
    BOOST_REQUIRE_EQUAL(warnings.size(), 1U);
    BOOST_TEST(warnings[0].find("host argument 0 changed from") != std::string::npos);
  });
}

BOOST_AUTO_TEST_CASE(a_cache_of_one_graph_compares_with_the_dropped_one) {
  Eager e;
  std::vector<std::string> warnings;
  FunctionOptions options;
  options.max_traces = 1;
  options.warn = [&](const std::string& text) { warnings.push_back(text); };
  auto f = function(
      "f", [](Expr x, int n) { return x + static_cast<double>(n); }, options);
  for (int n = 0; n < 10; ++n) f(e.constant(1.0), n);
  BOOST_REQUIRE_EQUAL(warnings.size(), 1U);
  BOOST_TEST(warnings[0].find("because host argument 0 changed from 5 to 6") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_cache_is_bounded) {
  in_each_scope([](Eager& e) {
    FunctionOptions options;
    options.max_traces = 4;
    options.warn = [](const std::string&) {};
    auto f = function(
        "f", [](Expr x, int n) { return x + static_cast<double>(n); }, options);
    for (int n = 0; n < 20; ++n) BOOST_TEST(number(f(e.constant(1.0), n)) == 1 + n);
    BOOST_TEST(f.signatures().size() == 4U);
    BOOST_TEST(f.evictions() == 16U);
  });
}

// ---- functions in functions

BOOST_AUTO_TEST_CASE(functions_call_functions_of_one_definition) {
  in_each_scope([](Eager& e) {
    auto inner = function("inner", [](Expr x) { return x * x + 1.0; });
    auto outer = function("outer", [&](Expr x) { return inner(inner(inner(x))); });
    BOOST_TEST(number(outer(e.constant(1.0))) == 26);
    BOOST_TEST(inner.traces() == 1);
    const auto graph = outer.graph(e.constant(1.0));
    BOOST_TEST(graph->functions().size() == 1U);
  });
}

BOOST_AUTO_TEST_CASE(inner_functions_capture_values_of_the_outer_trace) {  // D10
  in_each_place([](Eager& e) {
    auto outer = function("outer", [](Expr x1, Expr x2) {
      Expr x3 = x1 * x2;
      auto inner1 = function("inner1", [&] { return x1; });
      auto inner2 = function("inner2", [&] { return x2; });
      auto inner3 = function("inner3", [&] { return x3; });
      return inner1() + inner2() + inner3() + x1;
    });
    Expr x1 = e.constant(1.0), x2 = e.constant(2.0);
    GradientTape tape;
    tape.watch(std::pair(x1, x2));
    Expr y = outer(x1, x2);
    BOOST_TEST(number(y) == 6);
    const std::vector<Expr> d = tape.gradient(y, {x1, x2});
    BOOST_TEST(number(d[0]) == 4);
    BOOST_TEST(number(d[1]) == 2);
  });
}

BOOST_AUTO_TEST_CASE(host_recursion_unrolls) {
  in_each_scope([](Eager& e) {
    std::function<Expr(Expr, int)> power;
    auto f = function("power",
                      [&](Expr x, int n) { return n == 0 ? x * 0.0 + 1.0 : x * power(x, n - 1); });
    power = [&](Expr x, int n) { return f(x, n); };
    BOOST_TEST(number(f(e.constant(2.0), 5)) == 32);
    BOOST_TEST(f.traces() == 6);
  });
}

BOOST_AUTO_TEST_CASE(endless_recursion_is_refused) {
  in_each_scope([](Eager& e) {
    std::function<Expr(Expr)> again;
    auto f = function("f", [&](Expr x) { return again(x); });
    again = [&](Expr x) { return f(x); };
    BOOST_CHECK_EXCEPTION(f(e.constant(2.0)), Error, [](const Error& error) {
      return says(error, Code::invalid_argument, {"calls itself", "function 'f'"});
    });
  });
}

BOOST_AUTO_TEST_CASE(recursion_of_equal_arguments_is_a_call) {
  in_each_scope([](Eager& e) {
    FunctionOptions options;
    options.results = {{DType::f64, Shape{}}};
    std::function<Expr(Expr, Expr)> again;
    Expr two = e.constant(2.0);
    auto f = function(
        "power",
        [&](Expr x, Expr n) {
          return cond(
              n > 0.0, [&] { return x * again(x, n - 1.0); }, [&] { return x * 0.0 + two; });
        },
        options);
    again = [&](Expr x, Expr n) { return f(x, n); };
    Expr x = e.constant(3.0);
    BOOST_TEST(number(f(x, e.constant(4.0))) == 162);
    BOOST_TEST(number(f(x, e.constant(0.0))) == 2);
    BOOST_TEST(f.traces() == 1);
    GradientTape tape;
    tape.watch(x);
    BOOST_TEST(number(tape.gradient(f(x, e.constant(2.0)), x)) == 12);
    auto twice = function("twice", [&](Expr v) { return f(f(v, v * 0.0 + 1.0), v); });
    BOOST_TEST(number(twice(e.constant(1.0))) == 4);
  });
}

BOOST_AUTO_TEST_CASE(recursion_through_another_function_is_refused) {
  in_each_scope([](Eager& e) {
    FunctionOptions options;
    options.results = {{DType::f64, Shape{}}};
    std::function<Expr(Expr)> again;
    auto g = function("g", [&](Expr x) { return again(x); });
    auto f = function(
        "f",
        [&](Expr x) {
          return cond(
              x > 0.0, [&] { return g(x); }, [&] { return x; });
        },
        options);
    again = [&](Expr x) { return f(x); };
    BOOST_CHECK_EXCEPTION(f(e.constant(2.0)), Error, [](const Error& error) {
      return says(error, Code::invalid_argument, {"function 'f'", "by another traced function"});
    });
  });
}

BOOST_AUTO_TEST_CASE(a_graph_built_by_hand_may_call_a_function) {
  Eager e;
  auto f = function("f", [](Expr x) { return x * x; });
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  Expr y = f(f(x)), d = gradients(y, x)[0];
  const std::vector<Tensor> out = e.run(g, {{x, Tensor::scalar(2.0)}}, {y, d});
  BOOST_TEST(out[0].item<double>() == 16);
  BOOST_TEST(out[1].item<double>() == 32);
  BOOST_TEST(g.functions().size() >= 1U);
}

BOOST_AUTO_TEST_CASE(graphs_run_inside_of_a_trace) {
  in_each_scope([](Eager& e) {
    auto f = function("f", [&](Expr x) {
      Graph g;
      Expr in = g.input("in", DType::f64, {});
      Expr out = in * (g.constant(2.0) + 1.0);
      const double by_eager = Eager().run(g, {{in, Tensor::scalar(2.0)}}, {out})[0].item<double>();
      Engine engine;
      const double by_engine = engine.run(g, {{in, Tensor::scalar(2.0)}}, {out})[0].item<double>();
      return x + by_eager + by_engine;
    });
    BOOST_TEST(number(f(e.constant(1.0))) == 13);
  });
}

BOOST_AUTO_TEST_CASE(init_scope_steps_out_of_the_trace) {
  in_each_scope([](Eager& e) {
    auto f = function("f", [&](Expr x) {
      double now = 0;
      {
        const InitScope outside;
        now = number(e.constant(20.0) + 1.0);
      }
      return x + now;
    });
    BOOST_TEST(number(f(e.constant(1.0))) == 22);
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
