// The page of text that a traced function has about itself: its graphs, why each was traced, and
// the program that a call runs.
#include <boost/test/unit_test.hpp>

#include <fmt/format.h>

#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/eager_scopes.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(explain_test)

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

BOOST_AUTO_TEST_CASE(explain_names_each_graph_and_its_reason) {
  in_each_scope([](Eager& e) {
    const auto zeros = [&](std::int64_t n, DType t = DType::f64) {
      return e.constant(Tensor::zeros(t, {n}));
    };
    const int line = __LINE__ + 1;
    auto f = function("f", [](Expr x, int n) { return x * static_cast<double>(n); });
    f(zeros(2), 1);
    f(zeros(3), 1);
    f(zeros(3), 2);
    f(zeros(3, DType::f32), 2);
    const std::vector<std::string> lines = lines_of(f.explain(zeros(9), 1));
    BOOST_REQUIRE_GT(lines.size(), 5U);
    BOOST_TEST(lines[0].starts_with("function 'f' ("));
    BOOST_TEST(
        lines[0].ends_with(fmt::format("explain_test.cpp:{}): 4 of 4 graphs are kept", line)));
    BOOST_TEST(lines[1] == "  (f64[2]; 1), traced because it was called for the first time");
    BOOST_TEST(lines[2] ==
               "* (f64[?]; 1), traced because tensor argument 0 changed from f64[2] to f64[?]");
    BOOST_TEST(lines[3] == "  (f64[3]; 2), traced because host argument 0 changed from 1 to 2");
    BOOST_TEST(lines[4] ==
               "  (f32[3]; 2), traced because tensor argument 0 changed from f64[3] to f32[3]");
    BOOST_TEST(f.traces() == 4);
    // the lines before are `signatures()`
    for (std::size_t i = 0; i < 4; ++i)
      BOOST_TEST(lines[1 + i].substr(2).starts_with(f.signatures()[i] + ","));
  });
}

BOOST_AUTO_TEST_CASE(explain_traces_and_counts_dropped_graphs) {
  Eager e;
  FunctionOptions options;
  options.max_traces = 2;
  auto f = function(
      "f", [](Expr x, int n) { return x * static_cast<double>(n); }, options);
  for (int n = 0; n < 3; ++n) f(e.constant(1.0), n);
  const std::vector<std::string> lines = lines_of(f.explain(e.constant(1.0), 7));
  BOOST_TEST(lines[0].ends_with("2 of 4 graphs are kept"));
  BOOST_TEST(lines[2] == "* (f64[]; 7), traced because host argument 0 changed from 2 to 7");
  BOOST_TEST(f.traces() == 4);
}

BOOST_AUTO_TEST_CASE(explain_ends_with_the_plan_of_the_call) {
  Engine engine({.workers = 1});
  Eager e(engine);
  Variable v = e.variable("v", Tensor::of<float>({1, 2}));
  auto f = function("f", [&](Expr x) {
    v.assign_add(tanh(x) * 2.0 + x);
    return matmul(reshape(x, Shape{1, 2}), reshape(v.read(), Shape{2, 1}));
  });
  const Expr x = e.constant(Tensor::of<float>({1, 2}));
  const std::string text = f.explain(x);
  // as `Function::explain` describes it: partitions, kernels, passes
  Graph g;
  const Expr in = g.input("x", DType::f32, {2});
  const Variable w = g.variable("w", Tensor::of<float>({1, 2}));
  w.assign_add(tanh(in) * 2.0 + in);
  const std::string by_hand =
      engine.compile(g, {in}, {matmul(reshape(in, Shape{1, 2}), reshape(w.read(), Shape{2, 1}))})
          .explain();
  for (const std::string& heading : lines_of(by_hand))
    if (!heading.empty() && heading[0] != ' ' &&
        heading.find_first_of("0123456789") == heading.npos)
      BOOST_TEST(text.find(heading) != std::string::npos, heading << " is not in:\n" << text);
  for (const char* part : {"MatMul", "'v'", "cpu:0"})
    BOOST_TEST(text.find(part) != std::string::npos, part << " is not in:\n" << text);

  // without an engine: the nodes
  Eager alone;
  auto g2 = function("g", [](Expr a) { return tanh(a) * 2.0; });
  const std::string nodes = g2.explain(alone.constant(1.0));
  BOOST_TEST(nodes.find("Tanh") != std::string::npos);
  BOOST_TEST(nodes.find("Mul") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
