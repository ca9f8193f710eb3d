// Rows of what runs along one axis: running sums, order, choosing, searching.
#pragma once

#include <algorithm>
#include <numeric>

#include <troupe/test/ops/tables/structure_rows.hpp>

namespace troupe::test {

/// Calls f(the indices of one line along `axis`, in order) for each line.
inline void each_line(const Shape& shape, int axis,
                      const Callable<void(const std::vector<Index>&)>& f) {
  for_each_index(shape.without(axis), [&](const Index& i) {
    std::vector<Index> line;
    for (std::int64_t k = 0; k < shape[axis]; ++k) line.push_back(inserted(i, axis, k));
    f(line);
  });
}

inline std::vector<Row> scan_rows() {
  Draws draws(31);
  std::vector<Case> sums, products, linear;
  const std::vector<std::pair<Shape, std::int64_t>> shapes{
      {{5}, 0},    {{2, 3}, -1}, {{3, 2}, 0},  {{2, 3, 2}, 1},
      {{2, 0}, 1}, {{0, 2}, 1},  {{7, 31}, 1}, {{1}, 0}};
  for (bool reverse : {false, true})
    for (const auto& [shape, axis] : shapes) {
      for (bool exclusive : {false, true}) {
        const Attrs a{{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}};
        sums.push_back({{draws.values(shape)}, a});
        products.push_back({{draws.values(shape)}, a});
      }
      linear.push_back({{draws.values(shape, -1, 1), draws.values(shape)},
                        Attrs{{"axis", axis}, {"reverse", reverse}}});
    }
  for (bool exclusive : {false, true})  // one zero, two, all
    products.push_back(
        {{{{Shape{3, 4}, {1, 0, 2, 3, 0, 3, 0, 4, 0, 0, 0, 0}}}},
         Attrs{{"axis", std::int64_t{1}}, {"exclusive", exclusive}, {"reverse", false}}});
  auto running = [](bool is_sum) {
    return [is_sum](const Arrays& x, const Attrs& a) {
      Array out = x[0];
      each_line(x[0].shape, axis_of(a, x[0].shape.rank()), [&](std::vector<Index> line) {
        if (a.get<bool>("reverse")) std::reverse(line.begin(), line.end());
        for (std::size_t k = 0; k < line.size(); ++k) {
          double total = is_sum ? 0 : 1;
          for (std::size_t j = 0; j < k + (a.get<bool>("exclusive") ? 0 : 1); ++j)
            total = is_sum ? total + x[0][line[j]] : total * x[0][line[j]];
          out[line[k]] = total;
        }
      });
      return Arrays{out};
    };
  };
  return {
      {"CumSum", kComplex + kReals, sums, running(true), 2, 4},
      {"CumProd", kComplex + kFloats + kSignedInts, products, running(false), 2, 8, {}, false},
      {"LinearScan", kComplex + kReals, linear,
       [](const Arrays& x, const Attrs& a) {
         Array out = x[1];
         each_line(x[0].shape, axis_of(a, x[0].shape.rank()), [&](std::vector<Index> line) {
           const bool reverse = a.get<bool>("reverse");
           if (reverse) std::reverse(line.begin(), line.end());
           for (std::size_t k = 1; k < line.size(); ++k)
             out[line[k]] += x[0][line[reverse ? k - 1 : k]] * out[line[k - 1]];
         });
         return Arrays{out};
       },
       2, 8},
  };
}

inline std::vector<Row> order_rows() {
  Draws draws(32);
  // Different whole numbers, so that a difference quotient changes no order.
  auto scattered = [](const Shape& s) {
    Array a{s, {}};
    for (std::int64_t i = 0; i < s.elements(); ++i)
      a.v.push_back(static_cast<double>(i * 37 % 101));
    return Sample{a};
  };
  std::vector<Case> sorted, top;
  for (bool down : {false, true}) {
    for (const Shape& s :
         {Shape{5}, Shape{2, 3}, Shape{2, 2, 4}, Shape{0}, Shape{0, 3}, Shape{3, 40}})
      sorted.push_back({{scattered(s)}, Attrs{{"descending", down}}});
    sorted.push_back({{{{Shape{6}, {2, 1, 2, 1, 3, 2}}}}, Attrs{{"descending", down}}, 0});
    for (const auto& [s, k] : std::vector<std::pair<Shape, std::int64_t>>{
             {{5}, 2}, {{2, 3}, 3}, {{3, 4}, 1}, {{2, 3}, 0}, {{0, 3}, 2}, {{4, 60}, 7}})
      top.push_back({{scattered(s)}, Attrs{{"k", k}, {"largest", down}}});
  }
  auto in_order = [](const char* direction) {
    return [direction](const Arrays& x, const Attrs& a) {
      const int last = x[0].shape.rank() - 1;
      const std::int64_t k = a.get_or<std::int64_t>("k", x[0].shape[last]);
      const bool down = a.get<bool>(direction);
      Shape s = x[0].shape;
      s.set(last, k);
      Array values = Array::filled(s, 0), indices = values;
      each_line(x[0].shape, last, [&](std::vector<Index> line) {
        std::stable_sort(line.begin(), line.end(), [&](const Index& i, const Index& j) {
          return down ? x[0][i] > x[0][j] : x[0][i] < x[0][j];
        });
        for (std::int64_t n = 0; n < k; ++n) {
          const Index& from = line[static_cast<std::size_t>(n)];
          values[with(from, last, n)] = x[0][from];
          indices[with(from, last, n)] = static_cast<double>(from.back());
        }
      });
      return Arrays{values, indices};
    };
  };
  std::vector<Case> taken, added;
  auto choose = [&](const Shape& x, const Shape& i, std::int64_t axis, std::int64_t extent) {
    taken.push_back({{draws.values(x), draws.indices(i, extent)}, Attrs{{"axis", axis}}});
    added.push_back(
        {{draws.values(i), draws.indices(i, extent), draws.values(x)}, Attrs{{"axis", axis}}});
  };
  choose({5}, {3}, 0, 5);
  choose({2, 4}, {2, 3}, -1, 4);
  choose({4, 2}, {3, 2}, 0, 4);
  choose({2, 3, 2}, {2, 5, 2}, 1, 3);
  choose({2, 3}, {2, 0}, 1, 3);
  std::vector<Case> searched;
  for (bool right : {false, true}) {
    searched.push_back({{{{Shape{5}, {0, 1, 1, 2, 4}}}, {{Shape{6}, {0, 1, 3, 4, 5, 2}}}},
                        Attrs{{"right", right}}});
    searched.push_back({{{{Shape{2, 3}, {0, 1, 2, 2, 2, 3}}}, {{Shape{2, 2}, {1, 5, 2, 0}}}},
                        Attrs{{"right", right}}});
    searched.push_back({{{{Shape{0}, {}}}, {{Shape{2}, {0, 1}}}}, Attrs{{"right", right}}});
  }
  return {
      {"Sort", kReals, sorted, in_order("descending")},
      {"TopK", kReals, top, in_order("largest")},
      {"TakeAlong",
       kReals_and_bool,
       taken,
       [](const Arrays& x, const Attrs& a) {
         const int axis = axis_of(a, x[0].shape.rank());
         return Arrays{tabulate(x[1].shape, [&](const Index& i) {
           return x[0][with(i, axis, static_cast<std::int64_t>(x[1][i]))];
         })};
       },
       2,
       1,
       {},
       false},
      {"AddAlong", kReals, added,
       [](const Arrays& x, const Attrs& a) {
         const int axis = axis_of(a, x[0].shape.rank());
         Array out = Array::filled(x[2].shape, 0);
         for_each_index(x[0].shape, [&](const Index& i) {
           out[with(i, axis, static_cast<std::int64_t>(x[1][i]))] += x[0][i];
         });
         return Arrays{out};
       },
       2, 4},
      {"SearchSorted", kReals, searched,
       [](const Arrays& x, const Attrs& a) {
         return Arrays{tabulate(x[1].shape, [&](const Index& i) {
           double count = 0;
           for (std::int64_t k = 0; k < x[0].shape[x[0].shape.rank() - 1]; ++k) {
             const double e = x[0][with(i, x[0].shape.rank() - 1, k)];
             count += e < x[1][i] || (a.get<bool>("right") && e == x[1][i]);
           }
           return count;
         })};
       },
       0},
  };
}

inline std::vector<Row> along_rows() {
  std::vector<Row> out = scan_rows();
  for (Row& r : order_rows()) out.push_back(std::move(r));
  return out;
}

}  // namespace troupe::test
