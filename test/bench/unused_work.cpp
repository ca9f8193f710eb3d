// The passes for unused and invariant work against the same written by hand: 20 iterations of
// (i + 1, s + 1, matmul(h, x)) with s alone fetched, by a loop without h; and 50 iterations of
// v + reduce_max(matmul(x, x)), by a loop over the product. 256 by 256 of f32, one worker.
// `both` is what fetching s and h takes, `unmoved` what the second loop takes without the pass.
#include <troupe/actors/engine/engine.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/bench.hpp>
#include <troupe/test/bench/pattern.hpp>

namespace {

using namespace troupe;
using Pair = std::tuple<Expr, Expr>;
constexpr int kRepetitions = 15;
constexpr std::int64_t kSize = 256;

// The run before finds the caches as the other function has left them.
double time_of(const Function& f, const std::vector<Tensor>& feeds) {
  f(feeds);
  const double start = bench::now_ns();
  f(feeds);
  return bench::now_ns() - start;
}

void compare(const char* name, const char* peer, const char* third, const Function& ours,
             const Function& by_hand, const Function& other, const std::vector<Tensor>& feeds) {
  bench::Comparison c{
      .name = name, .unit = "ns a run", .peer = peer, .peer_version = "same build", .budget = 1.2};
  std::vector<double> others;
  for (int i = 0; i < 3; ++i) time_of(ours, feeds), time_of(by_hand, feeds), time_of(other, feeds);
  for (int i = 0; i < kRepetitions; ++i) {
    c.ours.push_back(time_of(ours, feeds));
    c.theirs.push_back(time_of(by_hand, feeds));
    others.push_back(time_of(other, feeds));
  }
  c.also = {{third, bench::median(others)}};
  c.print();
}

}  // namespace

int main() {
  EngineOptions one;
  one.workers = 1;
  Engine engine(one);
  Graph g;
  Expr x = g.input("x", DType::f32, {kSize, kSize});
  const std::vector<Tensor> feeds{bench::pattern({kSize, kSize}, 0.1, 1)};
  {
    auto [i, s, h] = while_loop([](Expr n, Expr, Expr) { return n < 20; },
                                [&](Expr n, Expr a, Expr b) {
                                  return std::tuple{n + 1, a + 1.0, matmul(b, x)};
                                },
                                std::tuple{g.constant(0), g.constant(0.f), x});
    auto [j, t] = while_loop([](Expr n, Expr) { return n < 20; },
                             [&](Expr n, Expr a) {
                               return Pair{n + 1, a + 1.0};
                             },
                             Pair{g.constant(0), g.constant(0.f)});
    compare("unused_work_variable", "a loop without the variable", "both",
            engine.compile(g, {x}, {s}), engine.compile(g, {x}, {t}),
            engine.compile(g, {x}, {s, h}), feeds);
  }
  const auto loop = [&](auto term) {
    return std::get<1>(while_loop([](Expr n, Expr) { return n < 50; },
                                  [&](Expr n, Expr v) {
                                    return Pair{n + 1, v + term()};
                                  },
                                  Pair{g.constant(0), g.constant(0.f)}));
  };
  Expr ours = loop([&] { return reduce_max(matmul(x, x)); });
  Expr product = reduce_max(matmul(x, x));
  Expr by_hand = loop([&] { return product; });
  CompileOptions unmoved;
  unmoved.skip_passes = {"move_invariant"};
  compare("unused_work_invariant", "the product before the loop", "unmoved",
          engine.compile(g, {x}, {ours}), engine.compile(g, {x}, {by_hand}),
          engine.compile(g, {x}, {ours}, unmoved), feeds);
}
