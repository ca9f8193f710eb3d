// Not under asan and tsan: op_table_test runs the same kernels.
// Functions of the DSL that are made of other ops, and ops that no table of independent elements
// can hold, against plain loops; their gradients by differences; what they refuse.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/test/ops/tables/computed.hpp>
#include <troupe/test/support/callable.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(functions_test)

BOOST_AUTO_TEST_CASE(attention_of_every_kind) {
  Draws draws(53);
  struct Setting {
    std::int64_t heads, groups, queries, keys;
    bool causal, masked;
  };
  for (const Setting& s : {Setting{2, 2, 3, 3, false, false},
                           {2, 1, 3, 4, false, false},
                           {4, 2, 2, 2, false, false},
                           {2, 2, 3, 3, true, false},
                           {1, 1, 2, 3, true, false},
                           {1, 1, 4, 2, true, false},
                           {2, 2, 2, 3, false, true},
                           {4, 2, 70, 150, true, true}}) {
    const std::int64_t depth = 2, width = 3, batch = 2;
    const bool is_large = s.queries > 10;
    Sample q = draws.values({batch, s.heads, s.queries, depth}),
           k = draws.values({batch, s.groups, s.keys, depth}),
           v = draws.values({batch, s.groups, s.keys, width});
    Sample mask = draws.truths({batch, s.queries, s.keys});
    // a query that may look at nothing
    for (std::int64_t j = 0; j < s.keys; ++j) mask.array[{0, 0, j}] = 0;
    Function f = [=](const Exprs& e) {
      return s.masked ? masked_attention(e[0], e[1], e[2], e[3], s.causal, 0.7)
                      : attention(e[0], e[1], e[2], s.causal, 0.7);
    };
    std::vector<Sample> inputs{q, k, v};
    if (s.masked) inputs.push_back(mask);
    Array y = computed(inputs, f, is_large ? 0 : 2);
    same(y, tabulate({batch, s.heads, s.queries, width}, [&](const Index& i) {
           const std::int64_t group = i[1] / (s.heads / s.groups);
           double total = 0, sum = 0;
           for (std::int64_t j = 0; j < s.keys; ++j) {
             if ((s.causal && j > i[2] + s.keys - s.queries) ||
                 (s.masked && mask.array[{i[0], i[2], j}] == 0))
               continue;
             double score = 0;
             for (std::int64_t d = 0; d < depth; ++d)
               score += q.array[{i[0], i[1], i[2], d}] * k.array[{i[0], group, j, d}];
             total += std::exp(score * 0.7);
             sum += std::exp(score * 0.7) * v.array[{i[0], group, j, i[3]}];
           }
           return total == 0 ? 0 : sum / total;
         }));
    if (!is_large) continue;
    // Blocks of queries and keys: the gradient against that of the scores stored.
    Graph g;
    Exprs xs;
    Feeds feeds;
    for (const Sample& one : {q, k, v}) {
      xs.push_back(g.input("x" + std::to_string(xs.size()), DType::f64, one.array.shape));
      feeds.emplace_back(xs.back(), tensor_of(one));
    }
    Expr may = g.constant(tensor_of(mask)), seen = expand_dims(may, 1);
    Expr one = ones_like(cast(seen, DType::i32)),
         last = cumsum(one, -1) - cumsum(one, -2) <= s.keys - s.queries;
    auto repeated = [&](const Expr& e) {
      return gather(e, g.constant(Tensor::of<std::int64_t>({0, 0, 1, 1})), 1);
    };
    Expr scores = matmul(xs[0], repeated(xs[1]), false, true) * 0.7,
         looks = logical_and(seen, last);
    Expr e = where(looks, exp(scores), 0.0), total = sum(e, {-1}, true);
    Expr stored = matmul(e / where(total == 0.0, 1.0, total), repeated(xs[2]));
    Expr fused = masked_attention(xs[0], xs[1], xs[2], may, true, 0.7),
         weights = sin(cast(cumsum(ones_like(stored), 2), DType::f64));
    Exprs fetches = gradients(sum(stored * weights), xs);
    for (const Expr& d : gradients(sum(fused * weights), xs)) fetches.push_back(d);
    std::vector<Tensor> got = evaluate_eagerly(g, feeds, fetches);
    for (std::size_t i = 0; i < 3; ++i) same(Array::of(got[3 + i]), Array::of(got[i]), 1e-10);
  }
  Graph g;
  Expr q = g.input("q", DType::f32, {2, 4, 3, 8}), k = g.input("k", DType::f32, {2, 3, 5, 8});
  says(refusal([&] { attention(q, k, k); }, Code::invalid_argument),
       {"Attention", "functions_test.cpp", "the heads of q are no multiple of k's"});
  says(refusal(
           [&] {
             attention(q, q, g.input("v", DType::f32, {2, 4, 5, 8}));
           },
           Code::invalid_argument),
       {"k and v differ in heads or keys"});
  says(refusal(
           [&] {
             masked_attention(q, q, q, g.input("m", DType::f64, {2, 3, 3}));
           },
           Code::invalid_argument),
       {"the mask must be bool, or f32 as q is, not f64"});
}

// A mask added to the scores: values, gradients of both orders, towards the mask too, and by blocks
// against scores that are stored.
BOOST_AUTO_TEST_CASE(attention_with_an_added_mask) {
  Draws draws(153);
  const std::int64_t batch = 2, heads = 2, depth = 2, width = 3;
  const auto of = [](const Exprs& e) {
    return masked_attention(e[0], e[1], e[2], e[3], false, 0.7);
  };
  const Sample q = draws.values({batch, heads, 3, depth}), k = draws.values({batch, 1, 4, depth}),
               v = draws.values({batch, 1, 4, width});
  for (const Shape& s : {Shape{2, 2, 3, 4}, Shape{1, 2, 3, 4}, Shape{2, 1, 1, 4}, Shape{2, 2, 3, 1},
                         Shape{1, 1, 1, 1}, Shape{2, 3, 4}, Shape{3, 4}, Shape{1, 4}}) {
    const Sample mask = draws.values(s);
    const Shape whole = s.rank() == 4   ? s
                        : s.rank() == 3 ? Shape{s[0], 1, s[1], s[2]}
                                        : Shape{1, 1, s[0], s[1]};
    same(computed({q, k, v, mask}, of), tabulate({batch, heads, 3, width}, [&](const Index& i) {
           double total = 0, sum = 0;
           for (std::int64_t j = 0; j < 4; ++j) {
             double score = Array{whole, mask.array.v}.broadcast_at({i[0], i[1], i[2], j});
             for (std::int64_t d = 0; d < depth; ++d)
               score += 0.7 * q.array[{i[0], i[1], i[2], d}] * k.array[{i[0], 0, j, d}];
             total += std::exp(score);
             sum += std::exp(score) * v.array[{i[0], 0, j, i[3]}];
           }
           return sum / total;
         }));
  }
  // -infinity says the same as a truth that is false, to gradients of either order; a query that
  // sees nothing gets zeros.
  Sample may = draws.truths({batch, heads, 3, 4}), shut = may;
  for (std::int64_t j = 0; j < 4; ++j) may.array[{0, 0, 0, j}] = 0;
  for (std::size_t i = 0; i < shut.array.v.size(); ++i)
    shut.array.v[i] = may.array.v[i] != 0 ? 0 : -std::numeric_limits<double>::infinity();
  shut.role = Role::value;
  const auto twice = [&](const Sample& mask) {
    Graph g;
    Exprs xs;
    Feeds feeds;
    for (const Sample& one : {q, k, v, mask}) {
      const Tensor t = tensor_of(one);
      xs.push_back(g.input("x" + std::to_string(xs.size()), t.dtype(), t.shape()));
      feeds.emplace_back(xs.back(), t);
    }
    const Exprs floats{xs[0], xs[1], xs[2]};
    Exprs fetches = gradients(sum(sin(of(xs))), floats);
    for (const Expr& d : gradients(sum(square(fetches[0])) + sum(square(fetches[1])), floats))
      fetches.push_back(d);
    fetches.push_back(of(xs));
    return evaluate_eagerly(g, feeds, fetches);
  };
  const std::vector<Tensor> told = twice(may), added = twice(shut);
  for (std::size_t i = 0; i < told.size(); ++i)
    same(Array::of(added[i]), Array::of(told[i]), 1e-12);
  BOOST_TEST(added.back().at(0) == 0);
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
    for (const Shape& s :
         {Shape{1, 2, 70, 150}, Shape{70, 150}, Shape{2, 1, 1, 150}, Shape{2, 2, 70, 1}}) {
      Graph g;
      Exprs xs;
      for (const Sample& one : {draws.values({2, 2, 70, 8}), draws.values({2, 2, 150, 8}),
                                draws.values({2, 2, 150, 5}), draws.values(s)})
        xs.push_back(g.constant(tensor_of(one)));
      const auto in = [&](DType t) {
        Exprs few;
        for (const Expr& x : xs) few.push_back(cast(cast(x, dtype), t));
        return few;
      };
      const Exprs wide = in(DType::f64), few = in(dtype);
      Expr one = ones_like(cast(matmul(wide[0], wide[1], false, true), DType::i32)),
           seen = cumsum(one, -1) - cumsum(one, -2) <= 80;
      Expr scores = matmul(wide[0], wide[1], false, true) * 0.25 + wide[3];
      Expr stored = matmul(softmax(where(seen, scores, -1e30)), wide[2]),
           fused = masked_attention(few[0], few[1], few[2], few[3], true, 0.25);
      Exprs fetches = gradients(sum(stored * sin(stored)), wide);
      Expr y = cast(fused, DType::f64);
      for (const Expr& d : gradients(sum(y * sin(y)), few)) fetches.push_back(cast(d, DType::f64));
      const std::vector<Tensor> got = evaluate_eagerly(g, {}, fetches);
      const double slack = dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 2e-5 : 0.06;
      for (std::size_t i = 0; i < 4; ++i) {
        double largest = 0, worst = 0;
        for (std::int64_t e = 0; e < got[i].elements(); ++e) {
          largest = std::max(largest, std::abs(got[i].at(e)));
          worst = std::max(worst, std::abs(got[i].at(e) - got[4 + i].at(e)));
        }
        BOOST_TEST(worst <= slack * std::max(1.0, largest),
                   name_of(dtype) << ", mask " << s.text() << ", input " << i << ": off by "
                                  << worst << " of " << largest);
      }
    }
}

// Scores that a mask makes equal and so far from 0 that the logarithm of their sum says no more
// than each: the softmax is that of any others that are equal.
BOOST_AUTO_TEST_CASE(attention_far_from_0) {
  Draws draws(155);
  const Sample keys = draws.values({1, 1, 150, 8}), values = draws.values({1, 1, 150, 5});
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double far : {-1e9, -3e38, 1e9}) {
      Graph g;
      Exprs fetches;
      for (const double all : {0.0, far}) {
        const Exprs xs{g.zeros(dtype, {1, 2, 70, 8}), cast(g.constant(tensor_of(keys)), dtype),
                       cast(g.constant(tensor_of(values)), dtype), g.zeros(dtype, {1, 150}) + all};
        const Expr y = masked_attention(xs[0], xs[1], xs[2], xs[3], true, 0.25);
        const Exprs slopes = gradients(sum(y * sin(y)), xs);
        Exprs made =
            gradients(sum(square(slopes[0])) + sum(square(slopes[2])), Exprs{xs[0], xs[1], xs[2]});
        made.insert(made.end(), slopes.begin(), slopes.end());
        made.push_back(y);
        for (const Expr& e : made) fetches.push_back(cast(e, DType::f64));
      }
      const std::vector<Tensor> got = evaluate_eagerly(g, {}, fetches);
      const std::size_t half = got.size() / 2;
      for (std::size_t i = 0; i < half; ++i) {
        double largest = 0, worst = 0;
        for (std::int64_t e = 0; e < got[i].elements(); ++e) {
          const double off = std::abs(got[i].at(e) - got[half + i].at(e));
          largest = std::max(largest, std::abs(got[i].at(e)));
          worst = off <= worst ? worst : off;
        }
        BOOST_TEST(worst <= 1e-3 * largest, name_of(dtype)
                                                << ", mask of " << far << ", result " << i
                                                << ": off by " << worst << " of " << largest);
      }
    }
}

BOOST_AUTO_TEST_CASE(alignments_with_blanks) {
  // Against the sum over all paths of classes that collapse to the labels.
  Draws draws(54);
  const std::int64_t time = 4, classes = 3;
  const std::vector<std::vector<std::int64_t>> rows{{1, 2}, {1, 1}, {2, 0}, {0, 0}};
  const std::vector<std::int64_t> lengths{2, 2, 1, 0}, times{4, 3, 2, 4};
  Sample x = draws.values({4, time, classes});
  Sample labels{{Shape{4, 2}, {1, 2, 1, 1, 2, 0, 0, 0}}, Role::index},
      t{{Shape{4}, {4, 3, 2, 4}}, Role::index}, n{{Shape{4}, {2, 2, 1, 0}}, Role::index};
  Array loss = computed({x, labels, t, n}, [](const Exprs& e) {
    return ctc_loss(log_softmax(e[0]), e[1], e[2], e[3]);
  });
  for (std::int64_t b = 0; b < 4; ++b) {
    const auto at = static_cast<std::size_t>(b);
    double all = 0;
    const auto steps = times[at];
    for (std::int64_t path = 0; path < static_cast<std::int64_t>(std::pow(classes, steps));
         ++path) {
      std::vector<std::int64_t> said;
      double p = 1;
      std::int64_t before = -1;
      for (std::int64_t i = 0, rest = path; i < steps; ++i, rest /= classes) {
        const std::int64_t c = rest % classes;
        double sum = 0;
        for (std::int64_t other = 0; other < classes; ++other)
          sum += std::exp(x.array[{b, i, other}]);
        p *= std::exp(x.array[{b, i, c}]) / sum;
        if (c != before && c != 0) said.push_back(c);
        before = c;
      }
      if (said == std::vector<std::int64_t>(rows[at].begin(), rows[at].begin() + lengths[at]))
        all += p;
    }
    BOOST_TEST(std::abs(loss.v[at] + std::log(all)) < 1e-11);
  }
  Graph g;
  Expr in = g.input("x", DType::f32, {1, 2, 3}),
       y = ctc_loss(in, g.constant(Tensor::of<std::int64_t>({3}, {1, 1})),
                    g.constant(Tensor::of<std::int64_t>({2})),
                    g.constant(Tensor::of<std::int64_t>({1})));
  says(refusal(
           [&] {
             evaluate_eagerly(g, {{in, Tensor::zeros(DType::f32, {1, 2, 3})}}, {y});
           },
           Code::out_of_range),
       {"CtcLoss", "functions_test.cpp", "label 3 at position 0 of item 0 is outside [1, 3)"});
  says(refusal(
           [&] {
             ctc_loss(in, g.input("l", DType::i64, {2, 1}), g.input("t", DType::i64, {1}),
                      g.input("n", DType::i64, {1}));
           },
           Code::invalid_argument),
       {"differ in their batch"});
}

BOOST_AUTO_TEST_CASE(normalisation) {
  Draws draws(55);
  const Sample x = draws.values({2, 3, 2, 4}), scale = draws.values({4}), bias = draws.values({4});
  auto normalised = [&](auto same_group) {
    return tabulate(x.array.shape, [&](const Index& i) {
      double n = 0, sum = 0, squares = 0;
      for_each_index(x.array.shape, [&](const Index& j) {
        if (same_group(i, j)) n += 1, sum += x.array[j];
      });
      for_each_index(x.array.shape, [&](const Index& j) {
        if (same_group(i, j)) squares += (x.array[j] - sum / n) * (x.array[j] - sum / n);
      });
      return (x.array[i] - sum / n) / std::sqrt(squares / n + 1e-5) * scale.array[{i[3]}] +
             bias.array[{i[3]}];
    });
  };
  const std::vector<Sample> all{x, scale, bias};
  same(computed(all, [](const Exprs& e) { return layer_norm(e[0], e[1], e[2]); }),
       normalised([](const Index& i, const Index& j) {
         return i[0] == j[0] && i[1] == j[1] && i[2] == j[2];
       }));
  same(computed(all, [](const Exprs& e) { return batch_norm(e[0], e[1], e[2])[0]; }),
       normalised([](const Index& i, const Index& j) { return i[3] == j[3]; }));
  same(computed(all, [](const Exprs& e) { return group_norm(e[0], 2, e[1], e[2]); }),
       normalised(
           [](const Index& i, const Index& j) { return i[0] == j[0] && i[3] / 2 == j[3] / 2; }));
  same(computed(all, [](const Exprs& e) { return instance_norm(e[0], e[1], e[2]); }),
       normalised([](const Index& i, const Index& j) { return i[0] == j[0] && i[3] == j[3]; }));
  // The moments that come out have gradients too, beside y's; parameters may be numbers.
  computed(all, [](const Exprs& e) {
    const Exprs y = batch_norm(e[0], e[1], 0.5);
    return concat({reshape(sin(y[0]), {kAny}), square(y[1]), sqrt(y[2])}, 0);
  });
  // Inference with the batch's own moments is training.
  same(computed(
           all,
           [](const Exprs& e) {
             Exprs y = batch_norm(e[0], e[1], e[2]);
             return batch_norm_with(e[0], e[1], e[2], y[1], y[2]) - y[0];
           },
           0),
       Array::filled(x.array.shape, 0));
  same(computed({x, scale}, [](const Exprs& e) { return rms_norm(e[0], e[1]); }),
       tabulate(x.array.shape, [&](const Index& i) {
         double squares = 0;
         for (std::int64_t c = 0; c < 4; ++c)
           squares += x.array[{i[0], i[1], i[2], c}] * x.array[{i[0], i[1], i[2], c}] / 4;
         return x.array[i] / std::sqrt(squares + 1e-6) * scale.array[{i[3]}];
       }));
  Graph g;
  Expr in = g.input("x", DType::f32, {2, 4}), s = g.input("s", DType::f32, {3});
  says(refusal([&] { layer_norm(in, s, s); }, Code::invalid_argument),
       {"LayerNorm", "functions_test.cpp", "parameters are of shape [4], not [3]"});
  says(refusal([&] { group_norm(in, 3, 1.0, 0.0); }, Code::invalid_argument),
       {"group_norm", "4 channels do not divide into 3 groups"});
}

BOOST_AUTO_TEST_CASE(moments_norms_and_losses) {
  Draws draws(56);
  const Sample x = draws.values({3, 4}), t = draws.values({3, 4}, 0, 1);
  auto by_row = [&](auto f) {
    return tabulate({3}, [&](const Index& i) {
      return f(std::vector<double>(x.array.v.begin() + 4 * i[0], x.array.v.begin() + 4 * i[0] + 4));
    });
  };
  auto spread = [](const std::vector<double>& v) {
    double m = std::accumulate(v.begin(), v.end(), 0.0) / 4, s = 0;
    for (double e : v) s += (e - m) * (e - m) / 4;
    return s;
  };
  same(computed({x}, [](const Exprs& e) { return variance(e[0], {1}); }), by_row(spread));
  same(computed({x}, [](const Exprs& e) { return standard_deviation(e[0], {1}); }),
       by_row([&](const auto& v) { return std::sqrt(spread(v)); }));
  for (double p : {1.0, 2.0, 3.0, double(INFINITY)})
    same(computed(
             {x}, [=](const Exprs& e) { return norm(e[0], {1}, p); }, 1),
         by_row([=](const std::vector<double>& v) {
           double s = 0;
           for (double e : v)
             s = std::isinf(p) ? std::max(s, std::abs(e)) : s + std::pow(std::abs(e), p);
           return std::isinf(p) ? s : std::pow(s, 1 / p);
         }));
  auto each = [&](auto f) {
    return tabulate({3, 4}, [&](const Index& i) { return f(x.array[i], t.array[i]); });
  };
  same(computed(
           {x, t}, [](const Exprs& e) { return huber_loss(e[0], e[1], 0.8); }, 1),
       each([](double a, double b) {
         const double d = std::abs(a - b);
         return d <= 0.8 ? d * d / 2 : 0.8 * (d - 0.4);
       }));
  same(computed({x, t}, [](const Exprs& e) { return binary_cross_entropy(e[0], e[1]); }),
       each([](double a, double b) {
         const double s = 1 / (1 + std::exp(-a));
         return -b * std::log(s) - (1 - b) * std::log(1 - s);
       }));
  double squares = 0;
  for (std::size_t i = 0; i < 12; ++i) squares += std::pow(x.array.v[i] - t.array.v[i], 2) / 12;
  same(computed({x, t}, [](const Exprs& e) { return mse_loss(e[0], e[1]); }), {Shape{}, {squares}});
  const Sample labels{{Shape{3}, {2, 0, 3}}, Role::index};
  same(computed({x, labels},
                [](const Exprs& e) {
                  return nll_loss(log_softmax(e[0]), e[1]) - cross_entropy(e[0], e[1]);
                }),
       Array::filled({3}, 0));
}

BOOST_AUTO_TEST_CASE(norms_of_what_has_no_square) {
  const auto length = [](double p) { return [p](const Exprs& e) { return norm(e[0], {-1}, p); }; };
  const auto slope = [](double p) {
    return [p](const Exprs& e) { return gradients(norm(e[0], {-1}, p), {e[0]})[0]; };
  };
  const Function spread = [](const Exprs& e) { return standard_deviation(e[0], {0}, true); };
  const auto in_units = [](double unit, const Sample& x, const Function& f, double of) {
    Sample far = x;
    for (double& v : far.array.v) v *= unit;
    Array y = computed({far}, f, 0);
    for (double& v : y.v) v /= of;
    return y;
  };
  const Sample x{{Shape{2, 2}, {3, -4, 0, 0}}}, y{{Shape{2}, {-1, 3}}};
  for (const double unit : {1e200, 1e-200, 1.0}) {
    same(in_units(unit, x, length(2), unit), {Shape{2}, {5, 0}}, 1e-15);
    same(in_units(unit, x, slope(2), 1), {Shape{2, 2}, {0.6, -0.8, 0, 0}}, 1e-15);
    same(in_units(unit, x, length(3), unit), {Shape{2}, {std::cbrt(91.), 0}}, 1e-13);
    same(in_units(unit, x, slope(3), 1),
         {Shape{2, 2}, {9 / std::pow(91., 2. / 3), -16 / std::pow(91., 2. / 3), 0, 0}}, 1e-13);
    same(in_units(unit, y, spread, unit), {Shape{1}, {2}}, 1e-15);
    same(in_units(
             unit, y, [&](const Exprs& e) { return gradients(spread(e), {e[0]})[0]; }, 1),
         {Shape{2}, {-0.5, 0.5}}, 1e-15);
  }
  const double inf = INFINITY;
  same(computed({{{Shape{2, 2}, {inf, 1, -inf, inf}}}}, length(2), 0), {Shape{2}, {inf, inf}});
  same(computed({{{Shape{2, 0}, {}}}}, length(2), 0), {Shape{2}, {0, 0}});
  same(computed({{{Shape{2, 0}, {}}}}, length(3), 0), {Shape{2}, {0, 0}});
  BOOST_TEST(std::isnan(computed({{{Shape{1, 2}, {NAN, 1e300}}}}, length(2), 0).v[0]));
  // Powers of f32 beyond what f64 holds.
  const Function tenth = [](const Exprs& e) {
    return cast(norm(cast(e[0], DType::f32), {}, 10), DType::f64);
  };
  same(in_units(1, {{Shape{2}, {3e38, 1e38}}}, tenth, 3e38), {Shape{}, {1}}, 1e-5);
  // Complex ones are scaled by both parts.
  same(computed(
           {{{Shape{2}, {3e200, 0}}}, {{Shape{2}, {0, 4e200}}}},
           [](const Exprs& e) { return norm(complex(e[0], e[1])) / 5e200; }, 0),
       {Shape{}, {1}}, 1e-15);
}

BOOST_AUTO_TEST_CASE(slopes_of_powers_of_zero) {
  const Function power = [](const Exprs& e) { return pow(e[0], e[1]); };
  computed({{{Shape{3}, {0.5, 2, 3}}}, {{Shape{3}, {0, 0, 1}}}}, power);
  const Sample x{{Shape{5}, {0, 5e-324, INFINITY, NAN, -2}}}, zero{{Shape{5}, {0, 0, 0, 0, 0}}};
  same(computed(
           {x, zero}, [&](const Exprs& e) { return gradients(power(e), {e[0]})[0]; }, 0),
       zero.array);
}

BOOST_AUTO_TEST_CASE(sums_by_letters) {
  Draws draws(57);
  struct Setting {
    const char* equation;
    std::vector<Shape> shapes;
  };
  for (const Setting& s : std::vector<Setting>{{"ij,jk->ik", {{2, 3}, {3, 2}}},
                                               {"bij,bkj->bik", {{2, 2, 3}, {2, 2, 3}}},
                                               {"ij->ji", {{2, 3}}},
                                               {"ij->", {{2, 3}}},
                                               {"i,j->ji", {{2}, {3}}},
                                               {"bhqd,bhkd->bqhk", {{1, 2, 2, 2}, {1, 2, 3, 2}}},
                                               {"ijk,kjl->li", {{2, 2, 3}, {3, 2, 2}}},
                                               {"ab,bc,cd->ad", {{2, 2}, {2, 3}, {3, 2}}},
                                               {"ij,ij->ij", {{2, 3}, {2, 3}}},
                                               {"ij,j->i", {{2, 3}, {3}}},
                                               {"i,i->", {{3}, {3}}},
                                               {"ijk,j->ik", {{2, 3, 2}, {3}}},
                                               {"ab,ac->a", {{2, 2}, {2, 3}}}}) {
    std::vector<Sample> inputs;
    for (const Shape& shape : s.shapes) inputs.push_back(draws.values(shape));
    Array got = computed(inputs, [&](const Exprs& e) { return einsum(s.equation, e); });
    // Over all values of all letters.
    std::string text = s.equation, letters, right = text.substr(text.find("->") + 2);
    std::vector<std::string> terms{""};
    for (char c : text.substr(0, text.find("->")))
      if (c == ',') terms.emplace_back();
      else terms.back() += c;
    Shape all, out;
    for (std::size_t i = 0; i < terms.size(); ++i)
      for (std::size_t k = 0; k < terms[i].size(); ++k)
        if (letters.find(terms[i][k]) == std::string::npos)
          letters += terms[i][k], all.push_back(s.shapes[i][static_cast<int>(k)]);
    auto pick = [&](const Index& i, const std::string& of) {
      Index own;
      for (char c : of) own.push_back(i[letters.find(c)]);
      return own;
    };
    for (char c : right) out.push_back(all[static_cast<int>(letters.find(c))]);
    Array wanted = Array::filled(out, 0);
    for_each_index(all, [&](const Index& i) {
      double p = 1;
      for (std::size_t k = 0; k < terms.size(); ++k) p *= inputs[k].array[pick(i, terms[k])];
      wanted[pick(i, right)] += p;
    });
    same(got, wanted);
  }
  Graph g;
  Expr a = g.input("a", DType::f32, {2, 3}), b = g.input("b", DType::f32, {4, 3});
  says(refusal(
           [&] {
             einsum("ij,jk->ik", {a, b});
           },
           Code::invalid_argument),
       {"einsum", "functions_test.cpp", "axis j is 3 in one place and 4 in another"});
  says(refusal(
           [&] {
             einsum("ij->ij", {a, b});
           },
           Code::invalid_argument),
       {"names 1 operands, but there are 2"});
  says(refusal([&] { einsum("ijk->i", {a}); }, Code::invalid_argument),
       {"names 3 axes, but operand 0 is [2, 3]"});
  says(refusal([&] { einsum("ii->i", {a}); }, Code::invalid_argument),
       {"einsum", "axis i is 2 in one place and 3 in another"});
  says(refusal([&] { einsum("...ijk->i", {a}); }, Code::invalid_argument),
       {"names 3 axes, but operand 0 is [2, 3]"});
  says(refusal([&] { einsum("ij->k", {a}); }, Code::invalid_argument), {"'k' on the right"});
}

BOOST_AUTO_TEST_CASE(segments_and_triangles) {
  Draws draws(58);
  const Sample x = draws.values({5, 2}), ids{{Shape{5}, {2, 0, 2, 3, 0}}, Role::index};
  auto reduced = [&](double none, auto f) {
    return tabulate({5, 2}, [&](const Index& i) {
      std::vector<double> v;
      for (std::int64_t k = 0; k < 5; ++k)
        if (static_cast<std::int64_t>(ids.array[{k}]) == i[0]) v.push_back(x.array[{k, i[1]}]);
      return v.empty() ? none : f(v);
    });
  };
  auto sum_of = [](const std::vector<double>& v) {
    return std::accumulate(v.begin(), v.end(), 0.0);
  };
  same(computed({x, ids}, [](const Exprs& e) { return segment_sum(e[0], e[1], 5); }),
       reduced(0, sum_of));
  same(computed({x, ids}, [](const Exprs& e) { return segment_mean(e[0], e[1], 5); }),
       reduced(0, [&](const auto& v) { return sum_of(v) / static_cast<double>(v.size()); }));
  same(computed(
           {x, ids}, [](const Exprs& e) { return maximum(segment_max(e[0], e[1], 5), -9.0); }, 1),
       reduced(-9, [](const auto& v) { return *std::max_element(v.begin(), v.end()); }));
  const Sample m = draws.values({2, 3, 4});
  for (std::int64_t k : {-1, 0, 1}) {
    same(
        computed({m}, [=](const Exprs& e) { return tril(e[0], k); }),
        tabulate(m.array.shape, [&](const Index& i) { return i[2] - i[1] <= k ? m.array[i] : 0; }));
    same(
        computed({m}, [=](const Exprs& e) { return triu(e[0], k); }),
        tabulate(m.array.shape, [&](const Index& i) { return i[2] - i[1] >= k ? m.array[i] : 0; }));
  }
}

// Cases that rows of tables do not cover: sums of many elements in few bits.
BOOST_AUTO_TEST_CASE(sums_of_halves) {
  const Tensor ids = Tensor::zeros(DType::i64, {1000});
  for (const Place& place : places()) {
    Graph g;
    Expr s = g.input("s", DType::i64, {1000}), x = g.ones(DType::bf16, {1000});
    BOOST_TEST(place.evaluate(g, {{s, ids}}, {segment_sum(x, s, 1)})[0].at(0) == 1000);
    BOOST_TEST(place.evaluate(g, {{s, ids}}, {segment_mean(x, s, 1)})[0].at(0) == 1);
  }
}

// Shapes that only a run shows.
BOOST_AUTO_TEST_CASE(shapes_that_come_too_late_are_refused) {
  const auto refused = [](const Callable<Expr(const Expr&, const Expr&)>& f, const Shape& a,
                          const Shape& b) {
    Graph g;
    Expr x = g.input("x", DType::f32, Shape::unknown()),
         w = g.input("w", DType::f32, Shape::unknown());
    Engine engine({.workers = 1});
    return refusal(
        [&] {
          engine.run(g, {{x, Tensor::zeros(DType::f32, a)}, {w, Tensor::zeros(DType::f32, b)}},
                     {f(x, w)});
        },
        Code::invalid_argument);
  };
  const auto convolved = [](const Expr& x, const Expr& w) { return conv(x, w); };
  const Shape six{1, 1, 1, 1, 1, 1};
  BOOST_TEST(refused(convolved, six, six).find("one to three spatial axes") != std::string::npos);
  BOOST_TEST(refused(convolved, {1}, {1}).find("[batch, space..., channels]") != std::string::npos);
  BOOST_TEST(refused(
                 [](const Expr& x, const Expr&) {
                   return max_pool(x, {2},
                                   {.strides = {1}, .padding = Padding::same(), .dilation = {4}});
                 },
                 {1, 3, 1}, {1})
                 .find("holds padding alone") != std::string::npos);
  BOOST_TEST(refused(
                 [](const Expr& x, const Expr&) {
                   return reshape(x, {1, kAny, kAny});
                 },
                 {6}, {1})
                 .find("extent 1 of [1, ?, ?] would be that of [6], which has none there") !=
             std::string::npos);
  BOOST_TEST(refused(
                 [](const Expr& x, const Expr&) {
                   return reshape(x, {kAny, kAny, 2});
                 },
                 {2, 3}, {1})
                 .find("6 elements cannot take shape [?, ?, 2]") != std::string::npos);
  const auto put_under = [](const Expr& x, const Expr& w) {
    return reshape_to(x, cast(w, DType::i64), {kAny, 2});
  };
  BOOST_TEST(refused(put_under, {6}, {2}).find("extent 1 is 0, which is none of [?, 2]") !=
             std::string::npos);
  BOOST_TEST(refused(put_under, {6}, {3}).find("there are 3 extents for shape [?, 2]") !=
             std::string::npos);
  const auto under_more = [](const Expr& x, const Expr& w) {
    return reshape_to(x, shape_of(w), {kAny, kAny});
  };
  BOOST_TEST(refused(under_more, {6}, {2, 4}).find("6 elements cannot take shape [2, 4]") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(other_sizes) {
  Draws draws(59);
  const Sample x = draws.values({1, 4, 3, 2});
  auto at = [](double o, double in, double out) {
    return std::min(std::max((o + 0.5) * in / out - 0.5, 0.0), in - 1);
  };
  for (auto [h, w] : {std::pair<std::int64_t, std::int64_t>{8, 6}, {2, 5}, {4, 3}, {7, 1}}) {
    same(computed({x},
                  [=](const Exprs& e) {
                    return resize_nearest(e[0], {h, w});
                  }),
         tabulate({1, h, w, 2}, [&](const Index& i) {
           return x.array[{0, (2 * i[1] + 1) * 4 / (2 * h), (2 * i[2] + 1) * 3 / (2 * w), i[3]}];
         }));
    same(computed({x},
                  [=](const Exprs& e) {
                    return resize_linear(e[0], {h, w});
                  }),
         tabulate({1, h, w, 2}, [&](const Index& i) {
           const double r = at(double(i[1]), 4, double(h)), c = at(double(i[2]), 3, double(w));
           double sum = 0;
           for (std::int64_t a = 0; a < 4; ++a)
             for (std::int64_t b = 0; b < 3; ++b)
               sum += std::max(0.0, 1 - std::abs(r - double(a))) *
                      std::max(0.0, 1 - std::abs(c - double(b))) * x.array[{0, a, b, i[3]}];
           return sum;
         }));
  }
}

BOOST_AUTO_TEST_CASE(draws_of_another_shape) {
  Graph g;
  Expr x = g.input("x", DType::f32, {kAny, 100});
  Expr dropped = dropout(x, 0.25), coins = cast(bernoulli(x * 0.3), DType::f32),
       exponential = random_exponential_like(x), normal = random_normal_like(x);
  Expr classes = categorical(g.constant(Tensor::of<float>({0, std::log(3.f)})) +
                             zeros_like(slice(x, {0, 0}, {-1, 2})));
  std::vector<Tensor> got = evaluate_eagerly(
      g, {{x, Tensor::of(std::vector<float>(100000, 1), {1000, 100})}},
      {mean(dropped), mean(cast(dropped == 0.0, DType::f32)), mean(coins), mean(exponential),
       mean(square(normal)), reduce_max(dropped), mean(cast(classes, DType::f32)),
       gradients(sum(dropped), {x})[0] - dropped});
  const double wanted[] = {1, 0.25, 0.3, 1, 1, 4.0 / 3, 0.75};
  const double error[] = {0.01, 0.01, 0.01, 0.02, 0.03, 1e-6, 0.07};
  for (std::size_t i = 0; i < 7; ++i)
    BOOST_TEST(std::abs(got[i].at(0) - wanted[i]) < error[i], i << ": " << got[i].at(0));
  for (std::int64_t i = 0; i < 1000; ++i) BOOST_TEST(got[7].at(i) == 0);  // an equal mask
  says(refusal([&] { dropout(x, 1); }, Code::invalid_argument),
       {"dropout", "functions_test.cpp", "[0, 1), not 1"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
