// Threads that share variables and a traced function: each has an eager scope of one engine. Sums
// of integers, so that the results are the same in any order.
#include <boost/test/unit_test.hpp>

#include <thread>

#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/eager_scopes.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(shared_state_test)

namespace {

constexpr int kThreads = 8, kCalls = 40;

// Runs `work(thread)` on threads of their own; returns the errors that left it.
template <class Work>
std::vector<std::string> on_threads(Work work) {
  std::vector<std::string> errors(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      try {
        work(t);
      } catch (const std::exception& e) { errors[static_cast<std::size_t>(t)] = e.what(); }
    });
  for (std::thread& t : threads) t.join();
  std::erase(errors, "");
  return errors;
}

// 0 + 1 + ... + n - 1
constexpr int sum_below(int n) { return n * (n - 1) / 2; }

}  // namespace

BOOST_AUTO_TEST_CASE(threads_update_one_variable_by_one_function) {
  for (const int workers : {1, 2}) {
    Engine engine({.workers = workers});
    Eager home(engine);
    const Variable total = home.variable("total", Tensor::zeros(DType::i64, {2}));
    const Variable scale = home.variable("scale", Tensor::scalar(std::int64_t{3}));
    auto add = function("add", [&](Expr x) {
      total.assign_add(x * scale.read());
      return x * scale.read();
    });
    std::vector<double> sums(kThreads);
    const auto errors = on_threads([&](int t) {
      Eager e(engine);
      for (int i = 0; i < kCalls; ++i) {
        const auto n = static_cast<std::int64_t>(t * kCalls + i);
        sums[static_cast<std::size_t>(t)] +=
            numbers(add(e.constant(Tensor::of<std::int64_t>({n, 1}, {2}))))[0];
      }
    });
    BOOST_TEST(errors == std::vector<std::string>(), boost::test_tools::per_element());
    const int all = kThreads * kCalls;
    BOOST_TEST(numbers(total.read()) == (Numbers{3.0 * sum_below(all), 3.0 * all}));
    for (int t = 0; t < kThreads; ++t)
      BOOST_TEST(sums[static_cast<std::size_t>(t)] ==
                 3 * (t * kCalls * kCalls + sum_below(kCalls)));
    BOOST_TEST(add.traces() == 1);
  }
}

BOOST_AUTO_TEST_CASE(threads_trace_and_differentiate_side_by_side) {
  Engine engine({.workers = 2});
  Eager home(engine);
  const Variable w = home.variable("w", Tensor::scalar(5.0));
  const Variable calls = home.variable("calls", Tensor::scalar(std::int64_t{0}));
  FunctionOptions options;
  options.warn = [](const std::string&) {};
  // a graph for each number, traced by whichever thread comes first
  auto power = function(
      "power",
      [&](Expr x, int n) {
        calls.assign_add(1);
        Expr y = x;
        for (int i = 0; i < n; ++i) y = y * w.read();
        return y;
      },
      options);
  std::vector<Numbers> by_x(kThreads), by_w(kThreads);
  const auto errors = on_threads([&](int t) {
    Eager e(engine);
    const Variable mine = e.find_variable("w");
    const auto k = static_cast<std::size_t>(t);
    for (int n = 0; n < 4; ++n) {
      GradientTape tape;
      const Expr x = e.constant(static_cast<double>(t + 1));
      tape.watch(x);
      const Expr y = power(x, n);
      const Exprs d = tape.gradient(y, {x, mine}, {.unconnected = Unconnected::zeros});
      by_x[k].push_back(number(d[0]));
      by_w[k].push_back(number(d[1]));
    }
  });
  BOOST_TEST(errors == std::vector<std::string>(), boost::test_tools::per_element());
  for (int t = 0; t < kThreads; ++t) {
    const double x = t + 1;
    BOOST_TEST(by_x[static_cast<std::size_t>(t)] == (Numbers{1, 5, 25, 125}));
    BOOST_TEST(by_w[static_cast<std::size_t>(t)] == (Numbers{0, x, 10 * x, 75 * x}));
  }
  BOOST_TEST(number(calls.read()) == 4 * kThreads);
  BOOST_TEST(power.traces() == 4);
}

BOOST_AUTO_TEST_CASE(eager_and_traced_updates_of_threads_meet) {
  Engine engine({.workers = 2});
  Eager home(engine);
  const Variable v = home.variable("v", Tensor::scalar(std::int64_t{0}));
  auto add = function("add", [&](Expr x) { return v.assign_add(x); });
  const auto errors = on_threads([&](int t) {
    Eager e(engine);
    const Variable mine = e.find_variable("v");
    const Expr one = e.constant(std::int64_t{1});
    for (int i = 0; i < kCalls; ++i)
      if ((t + i) % 2 == 0) add(one);
      else mine.assign_add(one);
  });
  BOOST_TEST(errors == std::vector<std::string>(), boost::test_tools::per_element());
  BOOST_TEST(number(v.read()) == kThreads * kCalls);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
