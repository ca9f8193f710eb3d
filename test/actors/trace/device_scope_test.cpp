// Device scopes of eager execution: where ops compute, how values get there, and how errors of a
// device that runs behind name the op that failed. Row A42.
#include <boost/test/unit_test.hpp>

#include <sstream>

#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/controlflow/list.hpp>
#include <troupe/devices/sim/sim_device.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/eager_scopes.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(device_scope_test)

namespace {

std::string device_of(const Expr& e) {
  const Device* device = e.held().tensor().device();
  return device ? device->name() : "host";
}

}  // namespace

BOOST_AUTO_TEST_CASE(ops_run_on_the_device_of_the_scope) {
  Engine engine({.workers = 1});
  Eager e(engine);
  Variable v = e.variable("v", Tensor::of<double>({1, 1}, {2}));
  Expr x = matrix(e, {1, 2}, {2}), y, z;
  {
    const auto there = e.on_device("sim:0");
    y = x * 2.0;
    {
      const auto back = e.on_device("cpu:0");
      z = y + x;
    }
    v.assign(y);  // states stay where they are
    BOOST_TEST(device_of(y + z) == "sim:0");
  }
  BOOST_TEST(device_of(y) == "sim:0");
  BOOST_TEST(device_of(z) == "host");
  BOOST_TEST(numbers(z) == (Numbers{3, 6}));
  BOOST_TEST(e.on_host(y).at(1) == 4);
  BOOST_TEST(numbers(v.read()) == (Numbers{2, 4}));
  auto f = function("f", [](Expr a) { return a + 1.0; });
  BOOST_TEST(numbers(f(y)) == (Numbers{3, 5}));  // fed from the other device
}

BOOST_AUTO_TEST_CASE(lists_of_host_elements_are_read_on_a_device) {
  Engine engine({.workers = 1});
  Eager e(engine);
  Expr list = list_empty(e, {DType::f64, Shape{2}});
  list = list_push(list, matrix(e, {1, 2}, {2}));
  const Expr lists = list_push(list_empty(e, {DType::f64, Shape{2}, 1}), list);
  {
    const auto there = e.on_device("sim:0");
    const Expr both = list_push(list, matrix(e, {3, 4}, {2}));
    BOOST_TEST(numbers(list_stack(both)) == (Numbers{1, 2, 3, 4}));
    BOOST_TEST(numbers(list_stack(list_read(lists, 0))) == (Numbers{1, 2}));
  }
  BOOST_TEST(device_of(list_read(list, 0)) == "host");  // the list is not changed
}

BOOST_AUTO_TEST_CASE(elements_of_lists_cross_devices) {
  Engine engine({.workers = 1});
  Eager e(engine), other(engine);
  Expr list = list_empty(e, {DType::f64, Shape{2}});
  {
    const auto there = e.on_device("sim:0");
    list = list_push(list, matrix(e, {1, 2}, {2}) * 2.0);
    list = list_push(list, matrix(e, {3, 4}, {2}) * 2.0);
  }
  BOOST_TEST(device_of(list_read(list, 0)) == "sim:0");
  const Expr stacked = list_stack(list);
  BOOST_TEST(device_of(stacked) == "host");
  BOOST_TEST(numbers(stacked) == (Numbers{2, 4, 6, 8}));
  BOOST_TEST(device_of(list_read(list, 0)) == "sim:0");  // its list is not changed
  auto f = function("f", [](Expr l) { return sum(list_stack(l)); });
  BOOST_TEST(number(f(list)) == 20);
  BOOST_TEST(numbers(list_stack(other.adopt(list, Site()))) == (Numbers{2, 4, 6, 8}));
}

BOOST_AUTO_TEST_CASE(gradients_cross_devices) {  // A42
  Engine engine({.workers = 1});
  Eager e(engine);
  for (const bool is_first_there : {true, false}) {
    const char* first = is_first_there ? "sim:0" : "cpu:0";
    const char* then = is_first_there ? "cpu:0" : "sim:0";
    Expr a, b, sum;
    {
      const auto here = e.on_device(first);
      a = identity(matrix(e, {1, 2}, {2}));
      b = identity(matrix(e, {3, 4}, {2}));
    }
    GradientTape tape;
    tape.watch(std::pair(a, b));
    {
      const auto here = e.on_device(then);
      sum = a + b;
    }
    const std::vector<Expr> d = tape.gradient(sum, {a, b});
    for (const Expr& dx : d) {
      const Tensor t = e.on_host(dx);
      BOOST_TEST(t.at(0) == 1);
      BOOST_TEST(t.at(1) == 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(traced_code_constrains_its_nodes) {
  Engine engine({.workers = 1, .devices = {"cpu:0", "sim:0"}});
  Eager e(engine);
  auto f = function("f", [&](Expr x) {
    const auto there = e.on_device("sim:0");
    return x * 3.0;
  });
  Expr x = matrix(e, {1, 2}, {2});
  BOOST_TEST(numbers(f(x)) == (Numbers{3, 6}));
  bool is_there = false;
  const auto graph = f.graph(x);
  for (const Node& n : graph->nodes()) is_there = is_there || n.device == "sim:0";
  BOOST_TEST(is_there);
}

BOOST_AUTO_TEST_CASE(a_device_runs_behind_its_scope) {
  const auto device = make_sim_device({.manual = true});
  Eager e(*device);
  Expr x = matrix(e, {1, 2}, {2});
  Expr y = x * 2.0 + 1.0;  // nothing has run yet
  const auto stream = device->compute_stream();
  BOOST_TEST(step(*stream));
  BOOST_TEST(e.on_host(y).at(1) == 5);
  BOOST_TEST(!step(*stream));
}

BOOST_AUTO_TEST_CASE(many_ops_in_flight_yield_what_the_host_yields) {
  const auto device = make_sim_device({.max_delay_us = 2});
  const auto computed = [](Eager& e) {
    std::vector<double> weights(16 * 16);
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights[i] = static_cast<double>(i % 7) / 7.0 - 0.4;
    const Expr w = e.constant(Tensor::of<double>(weights, {16, 16}));
    const Expr rows = e.constant(Tensor::of<std::int64_t>({3, 1, 4, 1, 5, 9, 2, 6}));
    Expr x = w;
    for (int i = 0; i < 60; ++i) {
      Expr y = softmax(matmul(x, w), 1);
      y = concat({gather(y, rows, 0), gather(transpose(y), rows, 0)}, 0);
      x = where(y > 0.06, y * 2.0, x - sum(y, {0}, true)) + mean(x);
      x = tanh(x) + cast(cumsum(x, 1) > 0.0, DType::f64);
    }
    const Tensor t = e.on_host(x);
    Numbers out;
    for (std::int64_t i = 0; i < t.elements(); ++i) out.push_back(t.at(i));
    return out;
  };
  Eager here, there(*device);
  BOOST_TEST(computed(there) == computed(here), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(programs_use_what_the_scope_has_enqueued) {
  Engine engine({.workers = 1, .default_device = "sim:0"});
  Eager e(engine);
  Variable v = e.variable("v", Tensor::zeros(DType::f64, {2}));
  Expr x = matrix(e, {1, 2}, {2});
  auto f = function("f", [&](Expr a) { return a * 2.0 + v; });
  for (int i = 1; i <= 10; ++i) {
    v.assign_add(x);
    const Tensor t = e.on_host(f(x * 10.0 + 1.0));
    BOOST_TEST(t.at(0) == 22 + i);
    BOOST_TEST(t.at(1) == 42 + 2 * i);
    BOOST_TEST(engine.get("v").at(1) == 2 * i);
  }
}

BOOST_AUTO_TEST_CASE(cpp_reads_values_of_a_device_that_runs_behind) {
  const auto device = make_sim_device({.max_delay_us = 20});
  Eager e(*device);
  const Expr x = matrix(e, {1, 2}, {2}) * 2.0;
  BOOST_TEST(device_of(x) == "sim:0");
  std::ostringstream text, of_host;
  text << x;
  Eager host;
  of_host << matrix(host, {2, 4}, {2});
  BOOST_TEST(text.str() == of_host.str());
  int n = 0;
  for (Expr i = sum(x); i > 0.0; i = i - 1.0) ++n;
  BOOST_TEST(n == 6);
  const Expr bad = gather(x, e.constant(Tensor::of<std::int64_t>({7})), 0);
  BOOST_CHECK_EXCEPTION(static_cast<void>(bad > 0.0 ? 1 : 2), Error, [](const Error& error) {
    return says(error, Code::out_of_range, {"Gather", "device_scope_test.cpp", "on sim:0"});
  });
}

BOOST_AUTO_TEST_CASE(a_late_error_names_the_op_that_failed) {
  const auto device = make_sim_device({.manual = true});
  Eager e(*device);
  Expr list = matrix(e, {1, 2}, {2});
  Expr bad = gather(list, e.constant(Tensor::of<std::int64_t>({0, 7})), 0);
  Expr later = bad * 2.0 + list;
  const auto names = [](const Error& error) {
    return says(error, Code::out_of_range, {"Gather", "device_scope_test.cpp", "on sim:0"});
  };
  BOOST_CHECK_EXCEPTION(e.on_host(later), Error, names);
  BOOST_CHECK_EXCEPTION(list + 1.0, Error, names);  // and from then on
}

BOOST_AUTO_TEST_CASE(a_list_has_the_late_error_of_an_element) {
  Engine engine({.workers = 1});
  Eager e(engine);
  const auto stacked = [&] {
    Expr list = list_empty(e, {DType::f64, Shape{2}});
    Expr x = matrix(e, {1, 2}, {2}), rows = e.constant(Tensor::of<std::int64_t>({0, 7}));
    {
      const auto there = e.on_device("sim:0");
      list = list_push(list, gather(x, rows, 0));
    }
    return list_stack(list);
  };
  BOOST_CHECK_EXCEPTION(stacked(), Error, [](const Error& error) {
    return says(error, Code::out_of_range, {"Gather", "device_scope_test.cpp", "on sim:0"});
  });
}

BOOST_AUTO_TEST_CASE(another_scope_gets_the_late_error_of_a_value) {
  const auto device = make_sim_device({.manual = true});
  Eager e(*device), other(*device);
  Expr bad = gather(matrix(e, {1, 2}, {2}), e.constant(Tensor::of<std::int64_t>({0, 7})), 0);
  BOOST_CHECK_EXCEPTION(other.adopt(bad, Site()), Error, [](const Error& error) {
    return says(error, Code::out_of_range, {"Gather", "device_scope_test.cpp", "on sim:0"});
  });
}

BOOST_AUTO_TEST_CASE(devices_that_there_are_not_are_refused) {
  Engine engine({.workers = 1});
  Eager e(engine), alone;
  BOOST_CHECK_EXCEPTION(e.on_device("no:0"), Error, [](const Error& error) {
    return says(error, Code::not_found, {"on_device", "device_scope_test.cpp", "no:0"});
  });
  BOOST_CHECK_EXCEPTION(alone.on_device("sim:0"), Error, [](const Error& error) {
    return says(error, Code::not_found, {"without an engine", "device_scope_test.cpp"});
  });
  BOOST_TEST(number(e.constant(1.0) + 1.0) == 2);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
