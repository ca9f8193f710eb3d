// Loop variables that are equal in every iteration become one. Values and draws stay.
#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include <troupe/controlflow/build.hpp>
#include <troupe/controlflow/drop_unused_outputs.hpp>
#include <troupe/controlflow/merge_variables.hpp>
#include <troupe/test/ops/passes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(merge_variables_test)

namespace {

using Four = std::tuple<Expr, Expr, Expr, Expr>;

/// Merges and drops; returns how many variables each loop has, and compares the values.
std::vector<int> variables_left(const Graph& g, const std::vector<Expr>& feeds,
                                const std::vector<Expr>& fetches,
                                const std::vector<Tensor>& values = {}) {
  std::vector<Edge> in, out;
  for (const Expr& e : feeds) in.push_back(e.edge());
  for (const Expr& e : fetches) out.push_back(e.edge());
  const Program before = prune(g, in, out);
  const Program merged = merge_variables(before);
  same_values(before, merged, values, "merge_variables");
  const Program after = drop_unused_outputs(merged);
  same_values(before, after, values, "drop_unused_outputs");
  std::vector<int> left;
  for (const Node& n : after.graph.nodes())
    if (n.op->name == "While") left.push_back(WhileView(n).variables);
  return left;
}

Expr below(const Expr& n, double end) { return n < end; }

}  // namespace

BOOST_AUTO_TEST_CASE(variables_that_start_and_change_alike_become_one) {
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  auto [i, a, j, b] = while_loop([](Expr n, Expr, Expr, Expr) { return below(n, 5); },
                                 [&](Expr n, Expr p, Expr m, Expr q) {
                                   return Four{n + 1, p * x + 0.5, m + 1, x * q + 0.5};
                                 },
                                 Four{g.constant(0), x, g.constant(0), x});
  BOOST_TEST(variables_left(g, {x}, {i, a, j, b}, {Tensor::scalar(1.25)}) == (std::vector<int>{2}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(variables_are_equal_only_if_those_they_read_are) {
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  // p and q start equal, and read n and m, which differ from the second iteration on
  auto [i, a, j, b] =
      while_loop([](Expr n, Expr, Expr, Expr) { return below(n, 5); },
                 [&](Expr n, Expr p, Expr m, Expr q) {
                   return Four{n + 1, p + cast(n, DType::f64), m + 2, q + cast(m, DType::f64)};
                 },
                 Four{g.constant(0), x, g.constant(0), x});
  BOOST_TEST(variables_left(g, {x}, {i, a, j, b}, {Tensor::scalar(1.25)}) == (std::vector<int>{4}),
             boost::test_tools::per_element());
  // with equal steps all are equal in pairs, each by the other
  auto [k, c, l, d] =
      while_loop([](Expr n, Expr, Expr, Expr) { return below(n, 5); },
                 [&](Expr n, Expr p, Expr m, Expr q) {
                   return Four{n + 1, q + cast(m, DType::f64), m + 1, p + cast(n, DType::f64)};
                 },
                 Four{g.constant(0), x, g.constant(0), x});
  BOOST_TEST(variables_left(g, {x}, {k, c, l, d}, {Tensor::scalar(1.25)}) == (std::vector<int>{2}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(draws_zeros_of_either_sign_and_dtypes_part_variables) {
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  auto [i, a, b, c] =
      while_loop([](Expr n, Expr, Expr, Expr) { return below(n, 4); },
                 [&](Expr n, Expr p, Expr q, Expr r) {
                   return Four{n + 1, p + g.random_normal({}, DType::f64),
                               q + g.random_normal({}, DType::f64), r * x};
                 },
                 Four{g.constant(0), g.constant(0.0), g.constant(0.0), g.constant(0.0)});
  BOOST_TEST(variables_left(g, {x}, {i, a, b, c}, {Tensor::scalar(1.25)}) == (std::vector<int>{4}),
             boost::test_tools::per_element());
  auto [j, d, e, f] =
      while_loop([](Expr n, Expr, Expr, Expr) { return below(n, 4); },
                 [&](Expr n, Expr p, Expr q, Expr r) {
                   return Four{n + 1, p * x, q * x, r * 2.0f};
                 },
                 Four{g.constant(0), g.constant(0.0), g.constant(-0.0), g.constant(0.f)});
  BOOST_TEST(variables_left(g, {x}, {j, d, e, f}, {Tensor::scalar(1.25)}) == (std::vector<int>{4}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(engine_merges_loops_within_loops_and_tells_so) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3});
  using Pair = std::tuple<Expr, Expr>;
  auto [n, s] = while_loop(
      [](Expr k, Expr) { return k < 3; },
      [&](Expr k, Expr sum) {
        auto [i, a, j, b] = while_loop([](Expr m, Expr, Expr, Expr) { return below(m, 4); },
                                       [&](Expr m, Expr p, Expr l, Expr q) {
                                         return Four{m + 1, matmul(p, x), l + 1, matmul(q, x)};
                                       },
                                       Four{g.constant(0), x, g.constant(0), x}, {.name = "inner"});
        return Pair{k + 1, sum + reduce_max(a - b) + cast(i + j, DType::f64) + reduce_max(b)};
      },
      Pair{g.constant(0), g.constant(0.0)});
  const Tensor value = Tensor::of(std::vector<double>(9, 0.5), {3, 3});
  Engine engine({.workers = 1});
  const Function f = engine.compile(g, {x}, {s});
  const std::string text = f.explain();
  BOOST_TEST(text.find("merged equal variables 2 with 0, 3 with 1") != std::string::npos, text);
  const Function plain = engine.compile(g, {x}, {s}, {.optimize = false});
  BOOST_TEST(identical(f({value})[0], plain({value})[0]));
  // the gradient merges what it saves, too
  const Expr d = gradients(s, x)[0];
  BOOST_TEST(identical(engine.compile(g, {x}, {d})({value})[0],
                       engine.compile(g, {x}, {d}, {.optimize = false})({value})[0]));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
