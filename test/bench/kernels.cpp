// Single functions on large tensors, f32, each compiled and run as its users run it, against eager
// torch: a chain of eight pointwise operations on 10^7 elements, softmax, layer normalisation,
// reductions, sorting, moving, on one thread and on two. Values are compared first.
//
//   kernels [NAME...]: all, or those named
#include <troupe/functions.hpp>
#include <troupe/test/bench/pattern.hpp>
#include <troupe/test/bench/training.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace {

using namespace troupe;
constexpr int kRepetitions = 9;

struct Case {
  const char* name;
  Shape shape;
  double budget;
  Expr (*make)(const Expr& x);
  double tolerance = 1e-4;  // tolerance of a value, relative to 1 + |value|
};

Expr chain(const Expr& x) { return sqrt(abs(relu(x * 1.5 + 0.5) * x - 0.25)) * 0.75 + x; }

Expr normalized(const Expr& x) {
  const std::int64_t channels = x.shape()[1];
  Reader& g = x.reader();
  return layer_norm(x, g.constant(bench::pattern({channels}, 1, 2)),
                    g.constant(bench::pattern({channels}, 1, 3)));
}

/// Integers in [0, 400].
Expr whole(const Expr& x) { return cast(abs(x) * 100.0, DType::i64); }

const Case kCases[] = {
    {"pointwise_chain_of_8", {10'000'000}, 0.4, chain},
    {"softmax", {64, 10'000}, 0.7, [](const Expr& x) { return softmax(x); }},
    {"softmax_wide", {4096, 1024}, 0.7, [](const Expr& x) { return softmax(x); }},
    {"layer_norm", {256, 1024}, 0.7, [](const Expr& x) { return normalized(x); }},
    {"layer_norm_wide", {4096, 1024}, 0.7, [](const Expr& x) { return normalized(x); }},
    {"sum", {10'000'000}, 0.7, [](const Expr& x) { return sum(x); }},
    {"sum_of_rows", {4096, 1024}, 0.7, [](const Expr& x) { return sum(x, {1}); }},
    // sums of 4,096 numbers near 1, which nearly cancel: torch is off by 1.2e-4
    {"sum_of_columns", {4096, 1024}, 0.7, [](const Expr& x) { return sum(x, {0}); }, 3e-4},
    {"sum_of_columns_cached", {1000, 1000}, 0.7, [](const Expr& x) { return sum(x, {0}); }},
    {"max_of_rows", {1000, 1000}, 0, [](const Expr& x) { return reduce_max(x, {1}); }},
    {"max_of_columns", {1000, 1000}, 0, [](const Expr& x) { return reduce_max(x, {0}); }},
    {"product_of_rows",
     {1000, 1000},
     0,
     [](const Expr& x) { return product(x * 0.001 + 1.0, {1}); }},
    {"sum_of_integers",
     {1000, 1000},
     0,
     [](const Expr& x) { return cast(sum(whole(x), {1}), DType::f32); }},
    {"take_along", {1000, 1000}, 0, [](const Expr& x) { return take_along(x, whole(x)); }},
    {"top_10", {1000, 10'000}, 0, [](const Expr& x) { return top_k(x, 10)[0]; }},
    {"sort_of_rows", {1000, 1000}, 0, [](const Expr& x) { return sort(x)[0]; }},
    {"sort_of_one", {1'000'000}, 0, [](const Expr& x) { return sort(x)[0]; }},
    {"pad",
     {32, 28, 28, 32},
     0,
     [](const Expr& x) {
       return pad(x, {0, 1, 1, 0}, {0, 1, 1, 0});
     }},
    {"tan_atan2", {1000, 1000}, 0, [](const Expr& x) { return atan2(tan(x * 0.3), x); }},
    {"matmul_i64",
     {256, 256},
     0,
     [](const Expr& x) { return cast(matmul(whole(x), whole(x)), DType::f32); }},
    {"conv_f64",
     {4, 32, 32, 32},
     0,
     [](const Expr& x) {
       return cast(
           conv(cast(x, DType::f64), cast(slice(x, {0, 0, 0, 0}, {3, 3, 32, 32}), DType::f64)),
           DType::f32);
     }},
};

void compare_values(const Case& c, const Tensor& ours, const std::vector<double>& theirs) {
  const std::vector<float> values = ours.to_vector<float>();
  const std::size_t step = std::max<std::size_t>(1, values.size() / theirs.size());
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const double mine = values[i * step];
    if (std::abs(mine - theirs[i]) <= c.tolerance * (1 + std::abs(theirs[i]))) continue;
    std::fprintf(stderr, "%s: element %zu is %.9g here and %.9g there\n", c.name, i * step, mine,
                 theirs[i]);
    std::exit(1);
  }
}

void measure(const Case& c, int threads) {
  std::vector<std::string> arguments{std::to_string(threads), c.name};
  for (const std::int64_t extent : c.shape.dims()) arguments.push_back(std::to_string(extent));
  bench::Peer torch("torch", "kernels_torch.py", arguments, threads);
  Graph g;
  Expr x = g.input("x", DType::f32, c.shape);
  Engine engine(bench::with_workers(threads));
  Function f = engine.compile(g, {x}, {c.make(x)});
  const Tensor value = bench::pattern(c.shape, 4, 1);
  bench::Comparison r{.name = std::string(c.name) + (threads == 1 ? "_1_thread" : "_2_threads"),
                      .unit = "ns",
                      .peer = {},
                      .budget = c.budget,
                      .threads = threads};
  torch.describe(r, "torch eager");
  {
    const Tensor y = f({value})[0];
    if (torch.is_here()) compare_values(c, y, torch.ask("values"));
  }
  for (int i = 0; i < kRepetitions; ++i) {
    auto run = [&] { return f({value})[0]; };
    run();
    int count = 0;
    const double begin = bench::now_ns();
    while (bench::now_ns() - begin < 2e7) run(), ++count;
    r.ours.push_back((bench::now_ns() - begin) / count);
    if (torch.is_here()) r.theirs.push_back(torch.ask("run")[0]);
  }
  r.print();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> asked(argv + 1, argv + argc);
  for (const std::string& name : asked)
    if (std::none_of(std::begin(kCases), std::end(kCases),
                     [&](const Case& c) { return name == c.name; })) {
      std::fprintf(stderr, "there is no benchmark '%s'; there are", name.c_str());
      for (const Case& c : kCases) std::fprintf(stderr, " %s", c.name);
      std::fprintf(stderr, "\n");
      return 2;
    }
  for (const int threads : {1, 2})
    for (const Case& c : kCases)
      if (asked.empty() || std::find(asked.begin(), asked.end(), c.name) != asked.end())
        measure(c, threads);
}
