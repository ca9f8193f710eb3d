// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// How much a loop saves for its gradient.
#include <boost/test/unit_test.hpp>

#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(saving_test)

namespace {

using V = std::vector<double>;

// The sub-graphs of the node that made `e`.
const SubGraph& subgraph(const Expr& e, std::size_t i) {
  const auto& graph = static_cast<Graph&>(e.reader());
  return *subgraphs_of(graph.node(e.edge().node))[i];
}
int count(const SubGraph& sub, std::string_view op) {
  return static_cast<int>(std::count_if(sub.graph.nodes().begin(), sub.graph.nodes().end(),
                                        [&](const Node& n) { return n.op->name == op; }));
}
// Values that a loop saves each iteration.
int saved(const Expr& loop) { return count(subgraph(loop, 1), "ListPush"); }

}  // namespace

namespace {
// A loop of three iterations over x, of which the gradient in x and in a is taken.
template <class Body>
int saved_by(Body body, const Shape& shape = {}) {
  Graph g;
  Expr x = g.input("x", DType::f32, shape), a = g.input("a", DType::f32, shape);
  auto [i_end, r_end] =
      while_loop([](Expr i, Expr) { return i < 3; },
                 [&](Expr i, Expr v) {
                   return std::tuple{i + 1, body(i, v, a)};
                 },
                 std::tuple{g.constant(0), x}, {.shape_invariants = {std::nullopt, shape}});
  gradients(r_end, {x, a});
  return saved(r_end);
}
}  // namespace

BOOST_AUTO_TEST_CASE(only_what_is_needed) {
  BOOST_TEST(saved_by([](Expr, Expr x, Expr a) { return x + a; }) == 0);
  BOOST_TEST(saved_by([](Expr, Expr x, Expr) { return x * x; }) == 1);
  BOOST_TEST(saved_by([](Expr, Expr x, Expr a) { return x * a; }) == 1);  // a is captured
  // a value that is equal in every iteration
  BOOST_TEST(saved_by([](Expr, Expr x, Expr a) { return x * 3.0 + sin(a) * a; }) == 0);
  // counted backwards
  BOOST_TEST(saved_by([](Expr i, Expr x, Expr) { return x * cast(i, DType::f32); }) == 0);
  BOOST_TEST(saved_by([](Expr, Expr x, Expr a) { return tanh(x) * a; }) == 1);  // tanh's result
  BOOST_TEST(saved_by([](Expr, Expr x, Expr a) { return x + sum(a * 2.0); }, {4}) == 0);
  BOOST_TEST(saved_by([](Expr, Expr x, Expr) { return x + stop_gradient(exp(x)); }) == 0);
}

BOOST_AUTO_TEST_CASE(shapes_instead_of_values) {
  BOOST_TEST(saved_by([](Expr, Expr x, Expr) { return x + mean(x); }, {4}) == 0);
  // A shape that is not known is saved in place of its value.
  Graph g;
  Expr x = g.input("x", DType::f32, {kAny});
  auto [i_end, r_end] =
      while_loop([](Expr i, Expr) { return i < 3; },
                 [](Expr i, Expr v) {
                   return std::tuple{i + 1, concat({v, v}, 0)};
                 },
                 std::tuple{g.constant(0), x}, {.shape_invariants = {std::nullopt, Shape{kAny}}});
  Expr d = gradients(r_end, x)[0];
  BOOST_TEST(saved(r_end) == 1);
  for (const Node& n : subgraph(r_end, 1).graph.nodes())
    if (n.op->name == "ListPush") BOOST_TEST((n.outputs[0].dtype == DType::i64));
  compare(Eager().run(g, {{x, Tensor::of<float>({1, 2}, {2})}}, {d}), {V{8, 8}}, "interpreter");
}

BOOST_AUTO_TEST_CASE(unchanged_loop_variables_are_not_saved) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{}), a = g.input("a", DType::f32, Shape{});
  auto [i_end, r_end, same_end] = while_loop([](Expr i, Expr, Expr) { return i < 3; },
                                             [](Expr i, Expr v, Expr w) {
                                               return std::tuple{i + 1, v * w, w};
                                             },
                                             std::tuple{g.constant(0), x, a});
  Expr d = gradients(r_end, x)[0];
  BOOST_TEST(saved(r_end) == 0);
  compare(Eager().run(g, {{x, Tensor::scalar(1.f)}, {a, Tensor::scalar(2.f)}}, {d}), {V{8}},
          "interpreter");
  gradients(r_end, a);
  BOOST_TEST(saved(r_end) == 1);
}

BOOST_AUTO_TEST_CASE(values_that_are_saved_already_are_not_saved_again) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{}), a = g.input("a", DType::f32, Shape{});
  Expr r = while_loop([](Expr v) { return v < 100.0; }, [&](Expr v) { return v * v * a; }, x);
  gradients(r, x);
  const int first = saved(r);
  gradients(r, x);
  BOOST_TEST(saved(r) == first);
}

BOOST_AUTO_TEST_CASE(a_forward_run_saves_nothing) {
  // The gradient has been built; a run that does not fetch it does not pay for it. In a nested loop
  // and a branch too.
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{}), a = g.input("a", DType::f32, Shape{});
  auto [i_end, r_end] = while_loop(
      [](Expr i, Expr) { return i < 3; },
      [&](Expr i, Expr v) {
        Expr inner =
            while_loop([&](Expr y) { return y < 20.0; }, [&](Expr y) { return y * y * a; }, v);
        return std::tuple{
            i + 1, cond(
                       i > 0, [&] { return tanh(inner) * inner; }, [&] { return inner * 0.5; })};
      },
      std::tuple{g.constant(0), x});
  Engine engine;
  const std::vector<Tensor> values{Tensor::scalar(2.f), Tensor::scalar(1.5f)};
  // A resident loop shows no nodes.
  const CompileOptions lowered{.resident_loops = false};
  Function before = engine.compile(g, {x, a}, {r_end}, lowered);
  Expr d = gradients(r_end, x)[0];
  Function forward = engine.compile(g, {x, a}, {r_end}, lowered),
           both = engine.compile(g, {x, a}, {r_end, d}, lowered);
  auto pushes = [](const Function& f) { return f.explain().find("ListPush") != std::string::npos; };
  BOOST_TEST(!pushes(before));
  BOOST_TEST(!pushes(forward));
  BOOST_TEST(pushes(both));
  BOOST_TEST(identical(before(values)[0], forward(values)[0]));
  BOOST_TEST(identical(before(values)[0], both(values)[0]));
}

BOOST_AUTO_TEST_CASE(elements_of_a_scan_are_not_saved) {
  Graph g;
  Expr x = g.input("x", DType::f32, {kAny}), h = g.input("h", DType::f32, Shape{});
  Expr r = fold_left([](Expr a, Expr y) { return a + square(y); }, x, h);
  gradients(r, {x, h});
  BOOST_TEST(saved(r) == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
