// CompileOptions::check_finite: the first node that makes a value that is not finite is named.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <string>

#include <troupe/devices/tensor/finite.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(check_finite_test)

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

/// Returns the error of a watched run; empty: it ends well. A run without passes must agree on
/// whether it does.
std::string watched(const Graph& g, const std::vector<Expr>& feeds,
                    const std::vector<Expr>& fetches, const std::vector<Tensor>& values,
                    const EngineOptions& options = {.workers = 1}) {
  std::string said[2];
  for (const bool is_optimized : {false, true}) {
    Engine engine(options);
    const Function f =
        engine.compile(g, feeds, fetches, {.optimize = is_optimized, .check_finite = true});
    try {
      f(values);
    } catch (const Error& e) {
      BOOST_TEST((e.code() == Code::invalid_argument));
      said[is_optimized] = e.what();
    }
  }
  BOOST_TEST(said[0].empty() == said[1].empty(), said[0] << " and " << said[1]);
  return said[1];
}
Tensor cast_to(const Tensor& t, DType dtype) {
  Eager e;
  return cast(e.constant(t), dtype).value();
}
Tensor filled(DType dtype, const Shape& shape, double value) {
  return cast_to(
      Tensor::of(std::vector<double>(static_cast<std::size_t>(shape.elements()), value), shape),
      dtype);
}
void says(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    BOOST_TEST(text.find(part) != std::string::npos, text << "\nlacks: " << part);
}
std::string here(int line) { return "check_finite_test.cpp:" + std::to_string(line); }

}  // namespace

BOOST_AUTO_TEST_CASE(tensors_of_every_dtype) {
  for (DType t : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (std::int64_t n : {1, 3, 4, 5, 31, 64, 100})
      for (const double bad : {kInf, -kInf, kNan})
        for (const std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
          Tensor x = cast_to(filled(DType::f64, {n}, 3.0), t);
          BOOST_TEST(is_all_finite(x));
          std::vector<double> v(static_cast<std::size_t>(n), 3.0);
          v[static_cast<std::size_t>(at)] = bad;
          Tensor y = cast_to(Tensor::of(v, {n}), t);
          BOOST_TEST(!is_all_finite(y));
          BOOST_TEST(worst_element(y).element == at);
          BOOST_TEST((worst_element(y).what ==
                      (std::isnan(bad) ? Finiteness::nan : Finiteness::infinite)));
        }
  BOOST_TEST(is_all_finite(filled(DType::i64, {4}, -1)));
  BOOST_TEST(is_all_finite(cast_to(filled(DType::f64, {4}, 65504), DType::f16)));
}

BOOST_AUTO_TEST_CASE(the_operation_within_a_fused_node) {
  Graph g;
  Expr x = g.input("x", DType::f32, {4});
  const int line = __LINE__ + 1;
  Expr y = exp(log(x - 1.0) * 2.0) + x;
  const std::string text = watched(g, {x}, {y}, {Tensor::of<float>({2, 3, 0.5, 4})});
  says(text, {"Log 'Log_", here(line), "made nan of finite operands: element 2 of f32[4]"});
  BOOST_TEST(watched(g, {x}, {y}, {Tensor::of<float>({2, 3, 1.5, 4})}) == "");
}

BOOST_AUTO_TEST_CASE(the_first_and_not_those_after_it) {
  Graph g;
  Expr x = g.input("x", DType::f32, {2, 2});
  const int line = __LINE__ + 1;
  Expr big = matmul(x, x);
  Expr y = sum(tanh(matmul(big - big, x))) * 0.0;
  says(watched(g, {x}, {y}, {filled(DType::f32, {2, 2}, 1e30)}),
       {"MatMul 'MatMul_", here(line), "made an infinity of finite operands: element [0, 0] of"});
}

BOOST_AUTO_TEST_CASE(in_loops_functions_and_branches) {
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  const int line = __LINE__ + 3;
  auto [i, v] = while_loop([](Expr n, Expr) { return n < 20; },
                           [&](Expr n, Expr s) {
                             return std::tuple{n + 1, sqrt(s - 1.0)};
                           },
                           std::tuple{g.constant(0), x}, {.name = "train"});
  // 17, 4, 1.73, 0.86, and no root of what is below 0
  says(watched(g, {x}, {v}, {Tensor::scalar(17.0)}),
       {"Sqrt", here(line), "iteration 3 of loop 'train", "nan"});
  const ValueSpec real{DType::f64, Shape{}};
  GraphFunction<Expr(Expr, Expr)> f(g, "f", {real, real}, {real});
  f.define([&](Expr n, Expr a) {
    return cond(
        n <= 0.0, [&] { return log(a); }, [&] { return f(n - 1.0, a - 1.0); });
  });
  Expr y = f(g.constant(3.0), x);
  says(watched(g, {x}, {y}, {Tensor::scalar(2.0)}), {"Log", "'f'", "nan"});
  BOOST_TEST(watched(g, {x}, {y}, {Tensor::scalar(4.0)}) == "");
  // a branch that is not taken computes nothing
  Expr z = cond(
      x > 0.0, [&] { return log(x); }, [&] { return x; });
  BOOST_TEST(watched(g, {x}, {z}, {Tensor::scalar(-4.0)}) == "");
}

BOOST_AUTO_TEST_CASE(gradients_and_updates) {
  Graph g;
  Expr x = g.input("x", DType::f32, {4});
  Variable w = g.variable("w", filled(DType::f32, {4}, 1));
  Expr loss = sum(sqrt(w * x));
  Expr step = Sgd({.learning_rate = 0.1}).minimize(loss, {w});
  // the root of 0 has an infinite slope
  says(watched(g, {x}, {loss, step}, {Tensor::of<float>({1, 0, 1, 1})}),
       {"gradients", "made ", "element 1 of f32[4]"});
  BOOST_TEST(watched(g, {x}, {loss, step}, {Tensor::of<float>({1, 2, 1, 1})}) == "");
  Expr far = w.assign_sub(x * 3e38);
  says(watched(g, {x}, {far}, {Tensor::of<float>({1, 2, 1, 1})}),
       {"Mul", "made an infinity", "element 1 of f32[4]"});
}

BOOST_AUTO_TEST_CASE(feeds_and_variables_by_name) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3});
  Expr y = x * 2.0;
  says(watched(g, {x}, {y}, {Tensor::of<double>({1, kNan, 2})}),
       {"feed 'x' (", "holds nan: element 1 of f64[3]"});
  Variable w = g.variable("w", Tensor::of<double>({1, 2, kInf}, {3}));
  says(watched(g, {x}, {w.read() * x}, {Tensor::of<double>({1, 1, 1})}),
       {"variable 'w' holds an infinity: element 2 of f64[3]"});
}

BOOST_AUTO_TEST_CASE(masks_are_the_users_wish) {
  Graph g;
  Expr x = g.input("x", DType::f32, {2, 3}), mask = g.input("mask", DType::boolean, {2, 3});
  Expr masked = where(mask, x * 2.0, -kInf);
  Expr y = softmax(masked), m = reduce_max(masked), z = exp(masked) + x;
  const Tensor values = filled(DType::f32, {2, 3}, 1);
  const Tensor some = Tensor::of<bool>({true, false, true, true, true, false}, {2, 3});
  BOOST_TEST(watched(g, {x, mask}, {masked, y, m, z}, {values, some}) == "");
  // a row of which nothing is left has no softmax: NaN of infinities
  const Tensor none = Tensor::of<bool>({true, false, true, false, false, false}, {2, 3});
  says(watched(g, {x, mask}, {y}, {values, none}), {"Softmax", "made nan of an infinity"});
  Expr all = g.constant(Tensor::of<float>({1, static_cast<float>(kInf)}, {2}));
  BOOST_TEST(watched(g, {}, {all * 2.0}, {}) == "");
}

BOOST_AUTO_TEST_CASE(other_dtypes) {
  for (DType t : {DType::f16, DType::bf16, DType::f64, DType::c64}) {
    Graph g;
    Expr x = g.input("x", is_complex(t) ? DType::f32 : t, {3});
    Expr y = is_complex(t) ? complex(x, x) : x;
    Expr z = y / (y - y);
    const Tensor value = cast_to(Tensor::of<double>({1, 2, 3}), x.dtype());
    says(watched(g, {x}, {z}, {value}), {"Div", "of finite operands"});
    BOOST_TEST(watched(g, {x}, {y * y}, {value}) == "");
  }
}

BOOST_AUTO_TEST_CASE(reductions_and_slices_that_are_fused) {
  Graph g;
  Expr x = g.input("x", DType::f32, {2, 6});
  Expr s = sum(square(x) + 1.0);
  says(watched(g, {x}, {s}, {filled(DType::f32, {2, 6}, 1e30)}), {"Square", "an infinity"});
  says(watched(g, {x}, {s}, {filled(DType::f32, {2, 6}, 1.5e19)}), {"Sum", "an infinity"});
  const Exprs parts = split(x, {2, 2, 2}, 1);
  Expr y = concat({sigmoid(parts[0]) * log(parts[1]), tanh(parts[2])}, 1);
  says(watched(g, {x}, {y}, {filled(DType::f32, {2, 6}, -1)}), {"Log", "nan"});
}

BOOST_AUTO_TEST_CASE(work_on_a_device_that_is_done_later) {
  Graph g;
  Expr x = g.input("x", DType::f32, {4});
  auto there = g.on_device("sim:0");
  const int line = __LINE__ + 1;
  Expr y = sqrt(x) + 1.0;
  EngineOptions options{.workers = 1};
  options.devices = {"cpu:0", "sim:0"};
  says(watched(g, {x}, {y}, {Tensor::of<float>({2, 3, -0.5, 4})}, options),
       {"Sqrt", here(line), "made nan", "element 2 of f32[4]"});
  BOOST_TEST(watched(g, {x}, {y}, {Tensor::of<float>({2, 3, 0.5, 4})}, options) == "");
}

BOOST_AUTO_TEST_CASE(nothing_is_looked_at_without_it) {
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  Engine engine({.workers = 1});
  BOOST_TEST(
      std::isnan(engine.compile(g, {x}, {log(x)})({Tensor::scalar(-1.0)})[0].item<double>()));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
