// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Sums of matrix products over iterations: one product after the loop, with an equal gradient.
#include <boost/test/unit_test.hpp>

#include <troupe/autodiff/check.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(products_test)

namespace {

Tensor filled(const Shape& shape, double scale) {
  std::vector<double> v;
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    v.push_back(scale * std::sin(1.3 * static_cast<double>(i) + scale));
  return Tensor::of<double>(v, shape);
}

void check(const Differentiable& f, const std::vector<Tensor>& xs) {
  CheckReport r = check_gradients(f, xs, {.order = 2});
  BOOST_TEST(r.ok(), r.text);
  BOOST_TEST(r.compared > 0);
  r = check_dot_product(f, xs);
  BOOST_TEST(r.ok(), r.text);
}

// Products with a transposed left operand inside of the gradients of loops, and those of lists
// outside of them.
struct Products {
  int inside = 0, outside = 0;
};
Products products(const Graph& g) {
  Products p;
  auto count = [](const Graph& graph) {
    int n = 0;
    for (const Node& node : graph.nodes())
      n += node.op->name == "MatMul" && node.attrs.get<bool>("transpose_a");
    return n;
  };
  for (const Node& node : g.nodes()) p.outside += node.op->name == "ListProduct";
  for (const Node& node : g.nodes())
    if (node.op->name == "While") p.inside += count(subgraphs_of(node)[1]->graph);
  return p;
}

// `steps` steps of h = tanh(h w) over h [rows, 3], and the gradient in w.
Products after(std::int64_t rows) {
  Graph g;
  Expr h = g.input("h", DType::f32, {rows, 3}), w = g.input("w", DType::f32, {3, 3});
  auto [n, y] = while_loop([](Expr i, Expr) { return i < 4; },
                           [&](Expr i, Expr v) {
                             return std::tuple{i + 1, tanh(matmul(v, w))};
                           },
                           std::tuple{g.constant(0), h});
  gradients(sum(y), w);
  return products(g);
}

}  // namespace

// More rows than one product takes: on a device whose memory is limited, and on one whose is not,
// the same bits.
BOOST_AUTO_TEST_CASE(long_lists_are_multiplied_in_pieces) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3000, 200}), y = g.input("y", DType::f64, {3000, 200});
  Expr lengths = g.constant(Tensor::of(std::vector<std::int64_t>(30, 100), Shape{30}));
  Expr in_pieces = bind1("ListProduct", {list_split(x, lengths), list_split(y, lengths)}),
       whole = matmul(x, y, true, false);
  auto values = [](double from) {
    Tensor t = Tensor::empty(DType::f64, {3000, 200});
    for (std::int64_t i = 0; i < t.elements(); ++i)
      t.mutable_data<double>()[i] = std::sin(from + static_cast<double>(i));
    return t;
  };
  const Feeds feeds{{x, values(1)}, {y, values(2)}};
  Engine engine;
  const std::vector<Tensor> out = engine.run(g, feeds, {in_pieces, whole});
  double most = 0;
  for (std::int64_t i = 0; i < out[0].elements(); ++i)
    most = std::max(most, std::abs(out[0].at(i) - out[1].at(i)));
  BOOST_TEST(most < 1e-9);
  BOOST_TEST(!identical(out[0], out[1]));  // else it was one piece
  EngineOptions limited;
  limited.default_device = "sim:0";
  limited.sim.memory_limit = 64 << 20;
  BOOST_TEST(identical(Engine(limited).run(g, feeds, {in_pieces})[0], out[0]));
}

BOOST_AUTO_TEST_CASE(few_rows_wait_many_do_not) {
  BOOST_TEST(after(8).inside == 0);
  BOOST_TEST(after(8).outside == 1);
  BOOST_TEST(after(kAny).outside == 1);
  BOOST_TEST(after(1000).inside == 1);
  BOOST_TEST(after(1000).outside == 0);
}

BOOST_AUTO_TEST_CASE(several_products_and_other_terms) {
  // w is multiplied with twice, once transposed, and added.
  check(
      [](Graph& g, const Exprs& x) {
        auto [n, y] = while_loop(
            [](Expr i, Expr) { return i < 3; },
            [&](Expr i, Expr h) {
              return std::tuple{
                  i + 1, tanh(matmul(h, x[1]) + matmul(h, x[1], false, true) + sum(x[1]) * 0.1)};
            },
            std::tuple{g.constant(0), x[0]});
        return y;
      },
      {filled({2, 3}, 0.7), filled({3, 3}, 0.5)});
}

BOOST_AUTO_TEST_CASE(the_product_has_a_cotangent_from_elsewhere_too) {
  check(
      [](Graph& g, const Exprs& x) {
        auto [n, y] = while_loop([](Expr i, Expr) { return i < 3; },
                                 [&](Expr i, Expr h) {
                                   return std::tuple{i + 1, sin(matmul(h, x[1]))};
                                 },
                                 std::tuple{g.constant(0), x[0]});
        return matmul(y, x[1]);
      },
      {filled({2, 3}, 0.7), filled({3, 3}, 0.5)});
}

BOOST_AUTO_TEST_CASE(rows_of_other_numbers_each_time) {
  check(
      [](Graph& g, const Exprs& x) {
        auto [n, y] = while_loop(
            [](Expr i, Expr) { return i < 3; },
            [&](Expr i, Expr h) {
              return std::tuple{i + 1, concat({tanh(matmul(h, x[1])), x[0]}, 0)};
            },
            std::tuple{g.constant(0), x[0]}, {.shape_invariants = {std::nullopt, Shape{kAny, 3}}});
        return y;
      },
      {filled({2, 3}, 0.7), filled({3, 3}, 0.5)});
}

BOOST_AUTO_TEST_CASE(loops_in_loops_and_no_iterations) {
  for (int outer : {0, 2})
    check(
        [&](Graph& g, const Exprs& x) {
          auto [n, y] = while_loop([&](Expr i, Expr) { return i < outer; },
                                   [&](Expr i, Expr h) {
                                     auto [m, z] = while_loop(
                                         [&](Expr j, Expr) { return j < i; },
                                         [&](Expr j, Expr v) {
                                           return std::tuple{j + 1, tanh(matmul(v, x[1]))};
                                         },
                                         std::tuple{g.constant(0), h});
                                     return std::tuple{i + 1, matmul(z, x[1])};
                                   },
                                   std::tuple{g.constant(0), x[0]});
          return y + matmul(x[0], x[1]);
        },
        {filled({2, 3}, 0.7), filled({3, 3}, 0.5)});
}

BOOST_AUTO_TEST_CASE(variables_read_in_the_loop) {
  // d/dw of sum(h w w w) for h of ones, as differences say.
  Graph g;
  Expr h = g.input("h", DType::f64, {2, 3});
  Variable w = g.variable("w", filled({3, 3}, 0.5));
  auto [n, y] = while_loop([](Expr i, Expr) { return i < 3; },
                           [&](Expr i, Expr v) {
                             return std::tuple{i + 1, matmul(v, w)};
                           },
                           std::tuple{g.constant(0), h});
  Expr loss = sum(y), d = gradients(loss, w)[0];
  BOOST_TEST(products(g).outside == 1);
  Engine engine;
  const Tensor ones = filled({2, 3}, 0.9), start = filled({3, 3}, 0.5);
  const Tensor dw = engine.run(g, {{h, ones}}, {d})[0];
  for (std::int64_t i = 0; i < 9; ++i) {
    auto at = [&](double step) {
      std::vector<double> v = start.to_vector<double>();
      v[static_cast<std::size_t>(i)] += step;
      engine.set(w, Tensor::of<double>(v, {3, 3}));
      return engine.run(g, {{h, ones}}, {loss})[0].item<double>();
    };
    BOOST_TEST(dw.at(i) == (at(1e-5) - at(-1e-5)) / 2e-5, boost::test_tools::tolerance(1e-6));
  }
}

// Nothing stated how wide the elements of the list's cotangent are, which stood for the operand of
// the product.
BOOST_AUTO_TEST_CASE(no_iterations_over_a_list_of_unknown_element_shape) {
  Graph g;
  Expr n = g.input("n", DType::i32, Shape{}), h = g.input("h", DType::f64, {2, 3}),
       w = g.input("w", DType::f64, {3, 3}), x = g.input("x", DType::f64, {2, 3});
  Expr list = list_push(list_empty(g, {DType::f64, Shape::unknown()}), x);
  auto [last, y] = while_loop(
      [&](Expr i, Expr) { return i < n; },
      [&](Expr i, Expr v) {
        return std::tuple{i + 1, tanh(matmul(v, w) + list_read(list, i, {DType::f64, {2, 3}}))};
      },
      std::tuple{g.constant(0), h});
  const Exprs d = gradients(sum(y), {w, x});
  BOOST_TEST(products(g).outside == 1);
  Engine engine;
  for (int steps : {0, 1}) {
    const std::vector<Tensor> out = engine.run(g,
                                               {{n, Tensor::scalar(steps)},
                                                {h, filled({2, 3}, 0.9)},
                                                {w, filled({3, 3}, 0.5)},
                                                {x, filled({2, 3}, 0.7)}},
                                               {d[0], d[1]});
    BOOST_TEST(out[0].shape().text() == "[3, 3]");
    BOOST_TEST(out[1].shape().text() == "[2, 3]");
    for (const Tensor& t : out) BOOST_TEST((t.at(1) != 0) == (steps == 1));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
