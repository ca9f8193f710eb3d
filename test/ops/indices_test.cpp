// Not under tsan: its kernels run in parallel in op_table_test and devices/cpu_primitives_test.
// Functions of the DSL that choose and arrange elements: segments, masks, indices.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>

#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/test/ops/tables/computed.hpp>
#include <troupe/test/ops/tables/samples.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(indices_test)

BOOST_AUTO_TEST_CASE(segments_and_ragged_rows) {
  Draws draws(71);
  const Sample x = draws.values({5, 2}), ids = given({5}, {2, 0, 2, 0, 2}, Role::index);
  auto segment = [&](std::int64_t s, std::int64_t column, double start, auto f) {
    for (std::int64_t i = 0; i < 5; ++i)
      if (ids.array[{i}] == static_cast<double>(s)) start = f(start, x.array[{i, column}]);
    return start;
  };
  auto table = [&](double start, auto f) {
    return tabulate({4, 2}, [&](const Index& i) { return segment(i[0], i[1], start, f); });
  };
  same(computed(
           {x, ids}, [](const Exprs& e) { return segment_min(e[0], e[1], 4); }, 0),
       table(INFINITY, [](double a, double b) { return std::min(a, b); }));
  same(computed({x, ids}, [](const Exprs& e) { return segment_product(e[0], e[1], 4); }),
       table(1, [](double a, double b) { return a * b; }));
  Array roots = table(0, [](double a, double b) { return a + b; });
  for (std::int64_t c = 0; c < 2; ++c)
    roots[{0, c}] /= std::sqrt(2.0), roots[{2, c}] /= std::sqrt(3.0);
  same(computed({x, ids}, [](const Exprs& e) { return segment_sqrt_n(e[0], e[1], 4); }), roots);
  // One gradient check of min where every segment has rows: an infinite one has no differences.
  computed({x, given({5}, {0, 1, 0, 1, 0}, Role::index)},
           [](const Exprs& e) { return segment_min(e[0], e[1], 2); });
  // One factor is zero, or two are.
  Array zeros = computed({given({4}, {0, 2, 0, 0}), given({4}, {0, 0, 1, 1}, Role::index)},
                         [](const Exprs& e) { return segment_product(e[0], e[1], 2); });
  same(zeros, vector_of({0, 0}));
  const Sample splits = given({4}, {0, 2, 2, 5}, Role::index);
  same(computed(
           {x, splits}, [](const Exprs& e) { return ragged_ids(e[1], e[0]); }, 0),
       vector_of({0, 0, 2, 2, 2}));
  same(computed({x, splits},
                [](const Exprs& e) { return segment_sum(e[0], ragged_ids(e[1], e[0]), 3); }),
       tabulate({3, 2}, [&](const Index& i) {
         const std::int64_t begin[] = {0, 2, 2, 5};
         double sum = 0;
         for (std::int64_t r = begin[i[0]]; r < begin[i[0] + 1]; ++r) sum += x.array[{r, i[1]}];
         return sum;
       }));
}

BOOST_AUTO_TEST_CASE(chosen_by_masks_and_batches) {
  Draws draws(72);
  const Sample x = draws.values({2, 3}), mask = given({2, 3}, {1, 0, 1, 0, 0, 1}, Role::truth),
               rows = given({2}, {0, 1}, Role::truth);
  same(computed({x, mask}, [](const Exprs& e) { return boolean_mask(e[0], e[1]); }),
       vector_of({x.array.v[0], x.array.v[2], x.array.v[5]}));
  same(computed({x, rows}, [](const Exprs& e) { return boolean_mask(e[0], e[1]); }),
       {Shape{1, 3}, {x.array.v[3], x.array.v[4], x.array.v[5]}});
  same(computed({x, given({2, 2}, {2, 0, 1, 1}, Role::index)},
                [](const Exprs& e) { return batched_gather(e[0], e[1]); }),
       {Shape{2, 2}, {x.array.v[2], x.array.v[0], x.array.v[4], x.array.v[4]}});
  const Sample u = draws.values({1, 3});
  for (std::int64_t axis : {0, -2})
    same(computed({x, given({1, 3}, {1, 0, 1}, Role::index), u},
                  [=](const Exprs& e) { return put_along(e[0], e[1], e[2], axis, "add"); }),
         tabulate({2, 3}, [&](const Index& i) {
           return x.array[i] + (i[0] == (i[1] == 1 ? 0 : 1) ? u.array[{0, i[1]}] : 0);
         }));
  same(computed({x, given({2}, {1, 1}, Role::index), u},
                [](const Exprs& e) {
                  return scatter(e[0], e[1], concat({e[2], 2.0 * e[2]}, 0), "max");
                }),
       tabulate({2, 3}, [&](const Index& i) {
         return i[0] == 0 ? x.array[i]
                          : std::max({x.array[i], u.array[{0, i[1]}], 2 * u.array[{0, i[1]}]});
       }));
}

BOOST_AUTO_TEST_CASE(an_index_outside_names_op_index_and_bound) {
  Graph g;
  Expr x = g.input("x", DType::f32, {3, 4}), at = g.input("at", DType::i64, {2}),
       u = g.input("u", DType::f32, Shape::unknown());
  Tensor tx = Tensor::zeros(DType::f32, {3, 4}), bad = Tensor::of<std::int64_t>({1, 7}, {2});
  auto says_so = [&](const Expr& y, const char* op, const Tensor& tu,
                     std::initializer_list<const char*> parts) {
    for (const Place& place : places()) {
      const std::string said = refusal(
          [&] {
            place.evaluate(g, {{x, tx}, {at, bad}, {u, tu}}, {y});
          },
          Code::out_of_range);
      BOOST_TEST(said.find(op) != std::string::npos, place.name << ": " << said);
      BOOST_TEST(said.find("indices_test.cpp") != std::string::npos, place.name << ": " << said);
      says(said, parts);
    }
  };
  Tensor row = Tensor::zeros(DType::f32, {2, 4});
  says_so(gather(x, at), "Gather", row, {"7", "3"});
  says_so(gather_nd(x, at), "GatherNd", row, {"7", "4"});
  says_so(scatter(x, at, u, "max"), "ScatterNd", row, {"7", "3"});
  says_so(scatter_add(x, at, u), "ScatterAdd", row, {"7", "3"});
  says_so(take_along(slice(x, {0, 0}, {-1, 2}), expand_dims(at, 0), 0), "TakeAlong", row,
          {"7", "3"});
  says_so(segment_min(slice(x, {0, 0}, {2, -1}), at, 3), "SegmentMin", row, {"7", "3"});
  says_so(cross_entropy(slice(x, {0, 0}, {2, -1}), at), "CrossEntropy", row, {"7", "4"});
}

// Blocks look at their own indices; the error is that of the first all the same, and what is inside
// is taken.
BOOST_AUTO_TEST_CASE(many_indices_along_an_axis) {
  const std::int64_t n = 100'000;
  for (const DType type : {DType::i32, DType::i64})
    for (const bool adds : {false, true}) {
      Eager e;
      const auto along = [&](std::vector<std::int64_t> which) {
        const Expr indices = cast(e.constant(Tensor::of(which, Shape{2, n / 2})), type),
                   x = e.constant(Tensor::of<double>({1, 2, 3, 4, 5, 6}, {2, 3}));
        return adds ? bind1("AddAlong", {cast(indices, DType::f64), indices, x},
                            Attrs{{"axis", std::int64_t{-1}}})
                    : take_along(x, indices);
      };
      std::vector<std::int64_t> which(static_cast<std::size_t>(n));
      for (std::size_t i = 0; i < which.size(); ++i)
        which[i] = static_cast<std::int64_t>(i * 7 % 3);
      const Tensor y = along(which).value();
      if (!adds)
        for (std::int64_t i = 0; i < n; i += 997)
          BOOST_TEST(y.at(i) ==
                     static_cast<double>(which[static_cast<std::size_t>(i)] + (i < n / 2 ? 1 : 4)));
      else BOOST_TEST((y.at(0) == 0 && y.at(1) == 16'667 && y.at(2) == 2 * 16'666));
      for (const std::int64_t bad :
           {std::int64_t{3}, std::int64_t{-1}, std::int64_t{1'000'000'000}}) {
        std::vector<std::int64_t> wrong = which;
        wrong[99'000] = 5, wrong[60'001] = bad;
        says(refusal([&] { along(wrong); }, Code::out_of_range),
             {("index " + std::to_string(bad) + " at position 60001 is outside [0, 3)").c_str()});
      }
    }
}

BOOST_AUTO_TEST_CASE(arranged_anew) {
  Draws draws(76);
  const Sample x = draws.values({2, 3}), y = draws.values({3}), m = draws.values({2, 2});
  same(computed({x},
                [](const Exprs& e) {
                  return flip(e[0], {0, -1});
                }),
       tabulate({2, 3}, [&](const Index& i) {
         return x.array[{1 - i[0], 2 - i[1]}];
       }));
  same(computed({x}, [](const Exprs& e) { return roll(e[0], 4, 1); }),
       tabulate({2, 3}, [&](const Index& i) {
         return x.array[{i[0], (i[1] + 2) % 3}];
       }));
  same(computed({x},
                [](const Exprs& e) {
                  return tile(e[0], {2, 1});
                }),
       tabulate({4, 3}, [&](const Index& i) {
         return x.array[{i[0] % 2, i[1]}];
       }));
  BOOST_TEST((computed(
                  {x},
                  [](const Exprs& e) {
                    return tile(e[0], {1, 0});
                  },
                  0)
                  .shape == Shape{2, 0}));
  same(computed({x}, [](const Exprs& e) { return repeat(e[0], 2, 1); }),
       tabulate({2, 6}, [&](const Index& i) {
         return x.array[{i[0], i[1] / 2}];
       }));
  same(computed({y, m},
                [](const Exprs& e) {
                  return meshgrid({e[0], reshape(e[1], {4})})[1];
                }),
       tabulate({3, 4}, [&](const Index& i) { return m.array.v[static_cast<std::size_t>(i[1])]; }));
  for (std::int64_t k : {-1, 0, 1, 2, 5})
    same(computed(
             {x}, [=](const Exprs& e) { return diagonal(e[0], k); }, k < 3 ? 2 : 0),
         tabulate({k == -1 || k == 2 ? 1
                   : k == 5          ? 0
                                     : 2},
                  [&](const Index& i) {
                    return x.array[{i[0] + (k < 0), i[0] + std::max<std::int64_t>(k, 0)}];
                  }));
  same(computed({y}, [](const Exprs& e) { return diagonal_matrix(e[0]); }),
       tabulate({3, 3}, [&](const Index& i) { return i[0] == i[1] ? y.array[{i[0]}] : 0; }));
  same(computed({m}, [](const Exprs& e) { return trace(e[0]); }),
       {Shape{}, {m.array.v[0] + m.array.v[3]}});
  same(computed({y}, [](const Exprs& e) { return outer(e[0], e[0]); }),
       tabulate({3, 3}, [&](const Index& i) { return y.array[{i[0]}] * y.array[{i[1]}]; }));
  same(computed({m, x}, [](const Exprs& e) { return kronecker(e[0], e[1]); }),
       tabulate({4, 6}, [&](const Index& i) {
         return m.array[{i[0] / 2, i[1] / 3}] * x.array[{i[0] % 2, i[1] % 3}];
       }));
  same(computed(
           {given({5}, {0, 3, 3, 1, 0}, Role::index)},
           [](const Exprs& e) { return bincount(e[0], 5); }, 0),
       vector_of({2, 1, 0, 2, 0}));
  same(computed(
           {given({6}, {-1, 0, 0.49, 0.5, 1, NAN})},
           [](const Exprs& e) { return histogram(e[0], 0, 1, 2); }, 0),
       vector_of({2, 2}));
  Eager eager;
  same(Array::of(arange(eager, 5, 0, -2).value()), vector_of({5, 3, 1}));
  same(Array::of(linspace(eager, 1, 2, 5).value()), vector_of({1, 1.25, 1.5, 1.75, 2}));
  same(Array::of(eye(eager, 2, 3).value()), {Shape{2, 3}, {1, 0, 0, 0, 1, 0}});
  says(refusal([&] { arange(eager, 0, 1, 0); }, Code::invalid_argument),
       {"arange", "indices_test.cpp", "there is no end"});
  says(refusal([&] { bincount(eager.constant(Tensor::of<std::int64_t>({3})), 2); },
               Code::out_of_range),
       {"indices_test.cpp", "3", "2"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
