// Recursion: a function that calls itself on the branches of a tree. Its gradient, a function too,
// finds the rule by which the values of random trees were made, each of another shape, without a
// new graph.
#include <cmath>
#include <cstdio>
#include <random>

#include <troupe/troupe.hpp>

using namespace troupe;

namespace {

// Node i is a leaf with a number, or has two branches.
struct Tree {
  std::vector<std::int64_t> left, right;
  std::vector<float> leaf;

  std::int64_t grow(std::mt19937& random, int depth) {
    const auto i = static_cast<std::int64_t>(leaf.size());
    left.push_back(-1), right.push_back(-1), leaf.push_back(0);
    const auto at = static_cast<std::size_t>(i);
    if (depth == 0 || random() % 4 == 0) {
      leaf[at] = static_cast<float>(random() % 2000) / 1000.f - 1.f;
      return i;
    }
    const std::int64_t first = grow(random, depth - 1), second = grow(random, depth - 1);
    left[at] = first, right[at] = second;
    return i;
  }
  // The rule that is to be found.
  float value(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return left[at] < 0 ? leaf[at] : 0.7f * value(left[at]) - 0.4f * value(right[at]) + 0.2f;
  }
};

}  // namespace

int main() {
  Graph g;
  Expr left = g.input("left", DType::i64, {kAny}), right = g.input("right", DType::i64, {kAny});
  Expr leaf = g.input("leaf", DType::f32, {kAny}), wanted = g.input("wanted", DType::f32, Shape{});
  Variable a = g.variable("a", Tensor::scalar(0.f)), b = g.variable("b", Tensor::scalar(0.f)),
           c = g.variable("c", Tensor::scalar(0.f));

  // The arguments and results are declared because the body calls the function; the arrays come in
  // by themselves.
  GraphFunction<Expr(Expr)> value(g, "value", {{DType::i64, Shape{}}}, {{DType::f32, Shape{}}});
  value.define([&](Expr i) {
    return cond(
        gather(left, i) < 0, [&] { return gather(leaf, i); },
        [&] { return a * value(gather(left, i)) + b * value(gather(right, i)) + c; });
  });
  Expr loss = square(value(0) - wanted);
  Expr step = Adam({.learning_rate = 0.01}).minimize(loss, {a, b, c});

  Engine engine;
  Function train = engine.compile(g, {left, right, leaf, wanted}, {loss, step});
  std::mt19937 random(7);
  float error = 0;
  for (int i = 0; i <= 1500; ++i) {
    Tree t;
    t.grow(random, 5);
    const Shape nodes{static_cast<std::int64_t>(t.leaf.size())};
    Tensor loss_now = train({Tensor::of(t.left, nodes), Tensor::of(t.right, nodes),
                             Tensor::of(t.leaf, nodes), Tensor::scalar(t.value(0))})[0];
    error = 0.98f * error + 0.02f * loss_now.item<float>();
    if (i % 500 == 0)
      std::printf("step %4d  a tree of %2zu nodes, mean error %.6f\n", i, t.leaf.size(),
                  static_cast<double>(error));
  }
  const double found[] = {engine.get(a).at(0), engine.get(b).at(0), engine.get(c).at(0)},
               rule[] = {0.7, -0.4, 0.2};
  std::printf("value = %.3f left %+.3f right %+.3f\n", found[0], found[1], found[2]);
  bool is_found = true;
  for (int k = 0; k < 3; ++k) is_found = is_found && std::abs(found[k] - rule[k]) < 0.02;

  // A call that leads to itself without end is an error that names the function and the line.
  GraphFunction<Expr(Expr)> forever(g, "forever", {{DType::f32, Shape{}}}, {{DType::f32, Shape{}}});
  forever.define([&](Expr x) { return forever(x + 1.0); });
  try {
    engine.run(g, {}, {forever(0.0)});
    return 1;
  } catch (const Error& e) {
    std::printf("%s\n", e.what());
    return is_found && e.code() == Code::resource_exhausted ? 0 : 1;
  }
}
