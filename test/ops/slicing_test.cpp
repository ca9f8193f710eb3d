// Not under asan and tsan: op_table_test runs the same kernels.
// Slices, shapes that stand on values, and the operators of conditions and assignments, on every
// place; their gradients by differences, and what they refuse.
#include <boost/test/unit_test.hpp>

#include <sstream>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/autodiff/gradients.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/test/ops/tables/computed.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(slicing_test)

namespace {

using Longs = std::vector<std::int64_t>;
using Made = Callable<Expr(const Expr& x, const Expr& n)>;

Tensor counted(const Shape& shape) {
  std::vector<double> v(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(i);
  return Tensor::of(v, shape);
}

/// `f` of 0, 1, ... in `shape` and of an i64, with known and unknown extents, and eagerly.
std::vector<double> made(const Shape& shape, std::int64_t n, const Made& f, const Shape& wanted,
                         DType index = DType::i64) {
  Eager e;
  const Tensor x = counted(shape), count = Tensor::scalar_as(index, static_cast<double>(n));
  const Tensor now = f(e.constant(x), e.constant(count)).value();
  BOOST_TEST(now.shape() == wanted);
  for (bool is_known : {true, false}) {
    Graph g;
    Expr in =
        g.input("x", DType::f64,
                is_known ? shape : Shape(Longs(static_cast<std::size_t>(shape.rank()), kAny)));
    Expr k = g.input("n", index, {});
    const Expr out = f(in, k);
    BOOST_TEST(out.shape().is_compatible(wanted));
    Engine engine({.workers = 1});
    const Tensor then = engine.run(g, {{in, x}, {k, count}}, {out})[0];
    BOOST_TEST(identical(now, then));
  }
  return cast(e.constant(now), DType::f64).value().to_vector<double>();
}

std::string printed(const auto& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

}  // namespace

using Reals = std::vector<double>;

BOOST_AUTO_TEST_CASE(intervals_are_those_of_python) {
  const auto check = [](const Made& f, Reals wanted) {
    BOOST_TEST(made({5}, 2, f, {static_cast<std::int64_t>(wanted.size())}) == wanted);
  };
  check([](Expr x, Expr) { return x[{1, -1}]; }, {1, 2, 3});
  check([](Expr x, Expr) { return x[{-2, {}}]; }, {3, 4});
  check([](Expr x, Expr) { return x[{{}, -3}]; }, {0, 1});
  check([](Expr x, Expr) { return x[{-9, 9}]; }, {0, 1, 2, 3, 4});
  check([](Expr x, Expr) { return x[{3, 1}]; }, {});
  check([](Expr x, Expr) { return x[{7, 9}]; }, {});
  check([](Expr x, Expr) { return x[{}]; }, {0, 1, 2, 3, 4});
  check([](Expr x, Expr n) { return x[{n, {}}]; }, {2, 3, 4});
  check([](Expr x, Expr n) { return x[{-n, {}}]; }, {3, 4});
  check([](Expr x, Expr n) { return x[{n, n + 2}]; }, {2, 3});
  check([](Expr x, Expr n) { return x[{n * 9, {}}]; }, {});
  check([](Expr x, Expr n) { return x[{{{}, n}}]; }, {0, 1});
}

BOOST_AUTO_TEST_CASE(several_axes_and_elements) {
  using R = Reals;
  BOOST_TEST(made({2, 3}, 1, [](Expr x, Expr) { return x[{{}, {1, -1}}]; }, {2, 1}) == (R{1, 4}));
  BOOST_TEST(made({2, 3}, 1, [](Expr x, Expr n) { return x[{{n, {}}, {0, n}}]; }, {1, 1}) == R{3});
  BOOST_TEST(made({2, 3}, 1, [](Expr x, Expr) { return x[0]; }, {3}) == (R{0, 1, 2}));
  BOOST_TEST(made({2, 3}, 1, [](Expr x, Expr) { return x[-1][-1]; }, {}) == R{5});
  for (DType index : {DType::i32, DType::i64}) {
    BOOST_TEST(made(
                   {2, 3}, 1, [](Expr x, Expr n) { return x[n]; }, {3}, index) == (R{3, 4, 5}));
    BOOST_TEST(made(
                   {2, 3}, -2, [](Expr x, Expr n) { return x[n]; }, {3}, index) == (R{0, 1, 2}));
  }
  BOOST_TEST(made({2, 3}, 1,
                  [](Expr x, Expr n) {
                    return slice(x, {0, n}, {2, 1});
                  },
                  {2, 1}) == (R{1, 4}));
  BOOST_TEST(made({2, 3}, -2,
                  [](Expr x, Expr n) {
                    return slice(x, {1, n}, {1, -1});
                  },
                  {1, 2}) == (R{4, 5}));
}

BOOST_AUTO_TEST_CASE(slices_have_gradients) {
  Draws draws(7);
  const Sample x = draws.values({4, 3}), n{Array{Shape{}, {1}}, Role::index};
  same(computed({x, n},
                [](const Exprs& e) {
                  return square(e[0][{e[1], -1}]);
                }),
       tabulate({2, 3}, [&](const Index& i) {
         const double v = x.array[{i[0] + 1, i[1]}];
         return v * v;
       }));
  same(computed({x, n}, [](const Exprs& e) { return square(e[0][e[1]]); }),
       tabulate({3}, [&](const Index& i) {
         return x.array[{1, i[0]}] * x.array[{1, i[0]}];
       }));
}

BOOST_AUTO_TEST_CASE(extents_that_are_values) {
  using R = Reals;
  BOOST_TEST(made({3}, 2,
                  [](Expr x, Expr n) {
                    return broadcast_to(x, {n, kAny});
                  },
                  {2, 3}) == (R{0, 1, 2, 0, 1, 2}));
  BOOST_TEST(made({2, 1}, 3,
                  [](Expr x, Expr n) {
                    return broadcast_to(x, {kAny, n});
                  },
                  {2, 3}) == (R{0, 0, 0, 1, 1, 1}));
  BOOST_TEST(made({1}, 3, [](Expr x, Expr n) { return broadcast_to(x, shape_of(arange(n))); },
                  {3}) == (R{0, 0, 0}));
  BOOST_TEST(made({6}, 2,
                  [](Expr x, Expr n) {
                    return reshape(x, {n, kAny});
                  },
                  {2, 3}) == (R{0, 1, 2, 3, 4, 5}));
  BOOST_TEST(made({6}, 2,
                  [](Expr x, Expr n) {
                    return x.reader().zeros(DType::f64, {n, 2});
                  },
                  {2, 2}) == (R{0, 0, 0, 0}));
  BOOST_TEST(made({2}, 2, [](Expr x, Expr) { return x.reader().ones(DType::f64, shape_of(x)); },
                  {2}) == (R{1, 1}));
  BOOST_TEST(made({2}, 3, [](Expr, Expr n) { return arange(n); }, {3}) == (R{0, 1, 2}));
  BOOST_TEST(made({2}, 3, [](Expr, Expr n) { return arange(10, n, -3); }, {3}) == (R{10, 7, 4}));
  BOOST_TEST(made({2}, 3, [](Expr x, Expr n) { return arange(x.reader(), 1, n); }, {2}) ==
             (R{1, 2}));
  BOOST_TEST(made({2}, 3, [](Expr, Expr n) { return arange(n, 3); }, {0}) == R{});
  Draws draws(3);
  const Sample x = draws.values({3}), n{Array{Shape{}, {2}}, Role::index};
  same(computed({x, n},
                [](const Exprs& e) {
                  return square(broadcast_to(e[0], {e[1], kAny}));
                }),
       tabulate({2, 3}, [&](const Index& i) { return x.array[{i[1]}] * x.array[{i[1]}]; }));
  // start + i * step of floats: 1 for the start, i for the step
  Graph g;
  Expr start = g.input("start", DType::f64, {}), step = g.input("step", DType::f64, {});
  const Exprs d = gradients(sum(arange(start, 4.0, step)), {start, step});
  Engine engine({.workers = 1});
  const std::vector<Tensor> got =
      engine.run(g, {{start, Tensor::scalar(1.0)}, {step, Tensor::scalar(1.0)}}, d);
  BOOST_TEST(got[0].item<double>() == 3);
  BOOST_TEST(got[1].item<double>() == 3);
}

BOOST_AUTO_TEST_CASE(conditions_and_assignments) {
  Eager e;
  const Expr p = e.constant(Tensor::of<bool>({true, true, false, false}, {4})),
             q = e.constant(Tensor::of<bool>({true, false, true, false}, {4}));
  const Variable v = e.variable("v", q.value());
  BOOST_TEST(identical((p && q).value(), logical_and(p, q).value()));
  BOOST_TEST(identical((p || q).value(), logical_or(p, q).value()));
  BOOST_TEST(identical((!p).value(), logical_not(p).value()));
  BOOST_TEST(identical((p && true).value(), p.value()));
  BOOST_TEST(identical((false || p).value(), p.value()));
  BOOST_TEST(identical((p && v).value(), (p && q).value()));
  BOOST_TEST(identical((v || p).value(), (q || p).value()));
  BOOST_TEST(identical((!v).value(), (!q).value()));
  Expr x = e.constant(Tensor::of<double>({1, 2}, {2}));
  x += 1.0;
  x *= x;
  x -= e.constant(4.0);
  x /= 5.0;
  BOOST_TEST(x.value().to_vector<double>() == (Reals{0, 1}));
}

BOOST_AUTO_TEST_CASE(an_axis_is_a_number_or_a_list) {
  Eager e;
  const Expr x = e.constant(counted({2, 3}));
  BOOST_TEST(sum(x, 0).value().to_vector<double>() == (Reals{3, 5, 7}));
  BOOST_TEST(sum(x, {0}).value().to_vector<double>() == (Reals{3, 5, 7}));
  BOOST_TEST(sum(x, {}).value().item<double>() == 15);
  BOOST_TEST(sum(x, -1, true).value().shape() == (Shape{2, 1}));
  BOOST_TEST(mean(x, 1).value().to_vector<double>() == (Reals{1, 4}));
  BOOST_TEST(reduce_max(x, 0).value().to_vector<double>() == (Reals{3, 4, 5}));
  BOOST_TEST(reduce_min(x, 1).value().to_vector<double>() == (Reals{0, 3}));
  BOOST_TEST(product(x, 0).value().to_vector<double>() == (Reals{0, 4, 10}));
  BOOST_TEST(all(x > 0.0, 1).value().shape() == Shape{2});
  BOOST_TEST(any(x > 0.0, 0).value().shape() == Shape{3});
  BOOST_TEST(squeeze(e.constant(counted({1, 2, 1})), {}).value().shape() == (Shape{1, 2, 1}));
  BOOST_TEST(flip(x, 0)[0].value().to_vector<double>() == (Reals{3, 4, 5}));
}

BOOST_AUTO_TEST_CASE(refusals_name_the_line) {
  Graph g;
  Expr x = g.input("x", DType::f32, {3, 4}), any = g.input("y", DType::f32, Shape::unknown()),
       real = g.input("r", DType::f32, {}), n = g.input("n", DType::i64, {}),
       row = g.input("v", DType::i64, {2});
  const auto refuses = [](auto f, Code code, const char* text) {
    const std::string said = refusal(f, code);
    BOOST_TEST(said.find("slicing_test.cpp:") != std::string::npos, said);
    BOOST_TEST(said.find(text) != std::string::npos, said);
  };
  refuses([&] { x[3]; }, Code::out_of_range, "index 3 is outside [-3, 3)");
  refuses([&] { any[0]; }, Code::invalid_argument, "needs the rank");
  refuses([&] { real[0]; }, Code::invalid_argument, "a scalar has no elements");
  refuses([&] { x[real]; }, Code::invalid_argument, "must be a number or an i32 or i64 scalar");
  refuses([&] { x[{row, 2}]; }, Code::invalid_argument, "must be a number or an i32 or i64 scalar");
  refuses([&] { x[1.5]; }, Code::invalid_argument, "1.5 is no i64");
  refuses([&] { x[{{}, {}, {0, 1}}]; }, Code::invalid_argument, "3 slices are given");
  refuses([&] { reshape(x, {real, 2}); }, Code::invalid_argument, "extent 0 must be");
  refuses([&] { broadcast_to(x, {n, 5}); }, Code::invalid_argument, "is no part of");
  refuses([&] { arange(real, n); }, Code::invalid_argument, "start, stop and step");
  refuses([&] { x += row; }, Code::invalid_argument, "Add");
  Engine engine({.workers = 1});
  const Tensor in = Tensor::zeros(DType::f32, {3, 4});
  const auto run = [&](const Expr& out, std::int64_t value) {
    engine.run(g, {{x, in}, {n, Tensor::scalar(value)}}, {out});
  };
  refuses([&] { run(x[n], 3); }, Code::out_of_range, "are not among its 3");
  refuses([&] { run(slice(x, {n, 0}, {2, 1}), 2); }, Code::out_of_range, "are not among its 3");
  refuses([&] { run(g.zeros(DType::f32, {n}), -1); }, Code::invalid_argument, "extent 0 is -1");
  refuses([&] { run(arange(0, 5, n), 0); }, Code::invalid_argument, "there is no end");
}

BOOST_AUTO_TEST_CASE(values_on_a_stream) {
  BOOST_TEST(printed(Tensor::scalar(1.5f)) == "f32[] 1.5");
  BOOST_TEST(printed(Tensor::of<std::int32_t>({1, 20}, {2})) == "i32[2] [1, 20]");
  BOOST_TEST(printed(Tensor::of<double>({1, -2.5, 3, 10}, {2, 2})) ==
             "f64[2, 2]\n[[   1, -2.5],\n [   3,   10]]");
  BOOST_TEST(printed(Tensor::of<std::int64_t>({1, 2, 3, 4}, {2, 1, 2})) ==
             "i64[2, 1, 2]\n[[[1, 2]],\n\n [[3, 4]]]");
  BOOST_TEST(printed(Tensor::strings({"a"}, {1})) == "string[1] [\"a\"]");
  BOOST_TEST(printed(Tensor::of<bool>({true}, {1})) == "bool[1] [true]");
  BOOST_TEST(printed(Tensor::zeros(DType::f32, {0, 3})) == "f32[0, 3]\n[]");
  BOOST_TEST(printed(counted({2000})) == "f64[2000] [0, 1, 2, ..., 1997, 1998, 1999]");
  BOOST_TEST(printed(counted({2, 1000})) ==
             "f64[2, 1000]\n[[   0,    1,    2, ...,  997,  998,  999],\n"
             " [1000, 1001, 1002, ..., 1997, 1998, 1999]]");
  BOOST_TEST(printed(Tensor()) == "nothing");
  BOOST_TEST(printed(Shape{1, kAny}) == (Shape{1, kAny}.text()));
  BOOST_TEST(printed(DType::bf16) == "bf16");
  Graph g;
  BOOST_TEST(printed(g.input("x", DType::f32, {2})) == "f32[2]");
  Eager e;
  BOOST_TEST(printed(e.constant(2)) == "i32[] 2");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
