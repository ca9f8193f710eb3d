// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Ops that the library makes for a user's call carry the user's line: errors, diagnoses and
// pictures of the graph name it.
#include <boost/test/unit_test.hpp>

#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/subgraph.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(sites_test, TROUPE_ONE_THREAD)

namespace {

// The lines of others that nodes carry, in sub-graphs too: `functional.cpp:12 Add`.
void collect(const Graph& g, std::set<std::string>& foreign) {
  for (const Node& n : g.nodes()) {
    if (!std::string_view(n.site.file).ends_with("sites_test.cpp"))
      foreign.insert(fmt::format("{} {}", n.site.text(), n.op->name));
    for (const auto& sub : subgraphs_of(n)) collect(sub->graph, foreign);
  }
}

void check(const Graph& g) {
  std::set<std::string> foreign;
  collect(g, foreign);
  BOOST_TEST(foreign.empty(), fmt::format("{}", fmt::join(foreign, "\n")));
}

struct Weights {
  Graph& g;
  int made = 0;
  Variable of(const Shape& shape) {
    return g.variable(fmt::format("w{}", made++), DType::f32, shape,
                      Initializer::uniform(-1, 1, 1));
  }
  RecurrentWeights recurrent(int features, int units, int gates) {
    return {of({features, gates * units}).read(), of({units, gates * units}).read(),
            of({gates * units}).read()};
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(nodes_of_loops_and_branches_have_sites) {
  Graph g;
  Expr x = g.input("x", DType::f32, {5, 3});
  Expr a = map([](Expr e) { return e * 2.0; }, x);
  Expr sums =
      scan([](Expr s, Expr e) { return s + e; }, a, g.zeros(DType::f32, {3}), {.reverse = true});
  Expr bounded = while_loop([](Expr v) { return sum(v) < 100.0; }, [](Expr v) { return v * 2.0; },
                            gather(sums, 0), {.maximum_iterations = 4});
  Expr chosen = cond(
      sum(bounded) > 0.0, [&] { return bounded; }, [&] { return gather(sums, 1); });
  Expr folded = fold_left([](Expr s, Expr e) { return s + e; }, x, g.zeros(DType::f32, {3}));
  TensorArray list(g, {.dtype = DType::f32, .element_shape = Shape{3}, .size = 3});
  Expr stacked = list.write(0, chosen).write(1, folded).write(2, chosen).stack();
  gradients(sum(stacked), {x});
  check(g);
}

BOOST_AUTO_TEST_CASE(nodes_of_recurrent_layers_have_sites) {
  Graph g;
  Weights w{g};
  Expr x = g.input("x", DType::f32, {5, 2, 3}), lengths = g.input("lengths", DType::i64, {2});
  auto first = lstm(x, w.recurrent(3, 4, 4), {.lengths = lengths});
  auto second = gru(first.outputs, w.recurrent(4, 4, 3), {.reverse = true});
  auto third = lstm(second.outputs, w.recurrent(4, 4, 4));
  const RecurrentWeights cell = w.recurrent(4, 4, 3);
  auto fourth = dynamic_rnn([&](Expr h, Expr e) { return gru_cell(e, h, cell); }, third.outputs,
                            g.zeros(DType::f32, {2, 4}), {.lengths = lengths, .reverse = true});
  gradients(sum(fourth.outputs), {x});
  check(g);
}

BOOST_AUTO_TEST_CASE(nodes_of_training_have_sites) {
  Graph g;
  Weights w{g};
  const Variable table = w.of({10, 4}), dense = w.of({4, 3});
  Expr ids = g.input("ids", DType::i64, {6}), labels = g.input("labels", DType::i64, {6});
  Expr loss = mean(cross_entropy(matmul(gather(table, ids), dense), labels));
  const std::vector<Variable> all{table, dense};
  const std::vector<Cotangent> clipped = clip_by_global_norm(cotangents(loss, all), 1.0);
  global_norm(clipped);
  Sgd({.learning_rate = 0.1}).apply(clipped, all);
  Momentum().minimize(loss, all);
  Adagrad().minimize(loss, all);
  LossScale(g, "scale").minimize(Adam(), loss, all);
  check(g);
}

BOOST_AUTO_TEST_CASE(nodes_of_composed_functions_have_sites) {
  Graph g;
  Expr x = g.input("x", DType::f32, {2, 4, 8}), q = g.input("q", DType::f32, {2, 2, 4, 8}),
       image = g.input("image", DType::f32, {1, 8, 8, 4});
  Exprs all{attention(q, q, q),
            one_hot(argmax(x), 8),
            variance(x, {-1}),
            layer_norm(x, g.ones(DType::f32, {8}), g.zeros(DType::f32, {8})),
            huber_loss(x, tanh(x)),
            einsum("abc,abd->cd", {x, x}),
            tile(x, {1, 2, 1}),
            roll(x, 1, 1),
            global_avg_pool(image),
            adaptive_avg_pool(image, {2, 2}),
            resize_nearest(image, {16, 16}),
            resize_linear(image, {16, 16}),
            norm(x),
            softplus(x),
            dropout(x, 0.5)};
  Exprs gs;
  for (const Expr& e : all)
    if (e.dtype() == DType::f32) gs.push_back(sum(e));
  gradients(gs, {x, q, image});
  check(g);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
