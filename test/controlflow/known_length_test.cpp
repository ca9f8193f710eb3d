// Stacked results of loops with a constant number of iterations have a known shape.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <tuple>

#include <troupe/test/support/resident_forms.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(known_length_test)

using namespace forms;

namespace {

const ValueSpec kPair{DType::f32, {2}};

// Stacks the values that a loop pushes, whose counter starts at `first`.
Expr pushed(Graph& g, const Expr& x, const Expr& first, const std::function<Expr(Expr)>& goes_on,
            const std::function<Expr(Expr)>& next) {
  const auto [i, list] = while_loop([&](Expr k, Expr) { return goes_on(k); },
                                    [&](Expr k, Expr l) {
                                      return std::tuple{next(k), list_push(l, x)};
                                    },
                                    std::tuple{first, list_empty(g, kPair)});
  return list_stack(list);
}

Tensor run(Graph& g, const Expr& x, const Expr& y) {
  return Engine().run(g, {{x, Tensor::of<float>({1, 2})}}, {y})[0];
}

}  // namespace

BOOST_AUTO_TEST_CASE(counted_loops_have_as_many_elements) {
  using Step = std::function<Expr(Expr)>;
  const auto plus = [](int by) -> Step { return [by](Expr i) { return i + by; }; };
  struct Row {
    int first;
    Step goes_on, next;
    std::int64_t length;
  };
  const std::vector<Row> rows{
      {0, [](Expr i) { return i < 10; }, plus(1), 10},
      {0, [](Expr i) { return i <= 10; }, plus(3), 4},
      {1, [](Expr i) { return i < 10; }, plus(3), 3},
      {10, [](Expr i) { return i > 0; }, plus(-2), 5},
      {10, [](Expr i) { return i >= 0; }, [](Expr i) { return i - 5; }, 3},
      {0, [](Expr i) { return i.reader().constant(7) > i; }, [](Expr i) { return 2 + i; }, 4},
      {9, [](Expr i) { return i < 9; }, plus(1), 0}};
  for (const Row& row : rows) {
    Graph g;
    const Expr x = g.input("x", DType::f32, {2});
    const Expr y = pushed(g, x, g.constant(row.first), row.goes_on, row.next);
    BOOST_TEST((y.shape() == Shape{row.length, 2}), y.shape().text());
    BOOST_TEST((run(g, x, y).shape() == Shape{row.length, 2}));
  }
}

BOOST_AUTO_TEST_CASE(lists_in_nested_loops_and_arrays) {
  Graph g;
  const Expr x = g.input("x", DType::f32, {2});
  const auto count = [&](int n, const Expr& list, const std::function<Expr(Expr, Expr)>& next) {
    return std::get<1>(while_loop([&](Expr i, Expr) { return i < n; },
                                  [&](Expr i, Expr l) {
                                    return std::tuple{i + 1, next(i, l)};
                                  },
                                  std::tuple{g.constant(0), list}));
  };
  const auto twice = [&](Expr i, Expr l) {
    return list_push(list_push(l, x), x * cast(i, DType::f32));
  };
  const Expr nested = list_stack(list_push(count(3, list_push(list_empty(g, kPair), x),
                                                 [&](Expr, Expr l) { return count(4, l, twice); }),
                                           x));
  BOOST_TEST((nested.shape() == Shape{26, 2}), nested.shape().text());
  BOOST_TEST((run(g, x, nested).shape() == Shape{26, 2}));
  const Expr written = list_stack(count(5, list_reserve(g, 5, kPair), [&](Expr i, Expr l) {
    return list_write(l, i, x * cast(i, DType::f32));
  }));
  BOOST_TEST((written.shape() == Shape{5, 2}), written.shape().text());
  BOOST_TEST(run(g, x, written).at(9) == 8.0);
  const Expr slope = gradients(sum(written * written), {x})[0];
  BOOST_TEST(run(g, x, slope).at(1) == 120.0);  // 2 (0 + 1 + 4 + 9 + 16) x
}

BOOST_AUTO_TEST_CASE(other_loops_have_any_length) {
  Graph g;
  const Expr x = g.input("x", DType::f32, {2}), n = g.input("n", DType::i32, Shape{});
  const auto less = [](Expr i) { return i < 10; };
  const auto one = [](Expr i) { return i + 1; };
  const std::vector<Expr> unknown{
      pushed(g, x, n, less, one),
      pushed(
          g, x, g.constant(0), [&](Expr i) { return i < n; }, one),
      pushed(g, x, g.constant(0), less, [](Expr i) { return i * 2 + 1; }),
      pushed(g, x, g.constant(0), less, [&](Expr i) { return i + n; }),
      pushed(
          g, x, g.constant(0), [&](Expr i) { return logical_and(i < 10, x[0] < 1.0); }, one),
      pushed(
          g, x, g.constant(2'000'000'000), [](Expr i) { return i < 2'147'483'647; },
          [](Expr i) { return i + 1'000'000'000; })};
  for (const Expr& y : unknown) BOOST_TEST((y.shape() == Shape{kAny, 2}), y.shape().text());
  const Expr some = list_stack(std::get<1>(while_loop(
      [](Expr i, Expr) { return i < 9; },
      [&](Expr i, Expr l) {
        return std::tuple{i + 1, cond(
                                     i > 4, [&] { return list_push(l, x); }, [&] { return l; })};
      },
      std::tuple{g.constant(0), list_empty(g, kPair)})));
  BOOST_TEST((some.shape() == Shape{kAny, 2}));
}

BOOST_AUTO_TEST_CASE(loop_that_stacks_stays_whole) {
  agree(
      [](Graph& g, const Expr& x) {
        return Exprs{std::get<1>(while_loop([](Expr i, Expr) { return i < 4; },
                                            [&](Expr i, Expr v) {
                                              const Expr rows = pushed(
                                                  g, v, g.constant(0), [](Expr k) { return k < 3; },
                                                  [](Expr k) { return k + 1; });
                                              return std::tuple{i + 1, sum(rows, {0}) * x};
                                            },
                                            std::tuple{g.constant(0), x}))};
      },
      Tensor::of<float>({0.5f, 1.25f}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
