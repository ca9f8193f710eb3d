// Rows of what takes and puts at coordinates, of products of bytes, of what counts.
#pragma once

#include <algorithm>
#include <map>

#include <troupe/test/ops/tables/table.hpp>

namespace troupe::test {

/// Returns the position where gather_nd finds an element of its result, for an index into
/// [batch..., n..., rest...].
inline Index found_at(const Arrays& x, std::size_t params, const Attrs& a, const Index& i) {
  const auto batch = static_cast<std::ptrdiff_t>(a.get_or<std::int64_t>("batch_axes", 0)),
             rank = static_cast<std::ptrdiff_t>(x[1].shape.rank());
  Index which(i.begin(), i.begin() + rank - 1), from(i.begin(), i.begin() + batch);
  for (std::int64_t k = 0; k < x[1].shape[static_cast<int>(rank - 1)]; ++k) {
    Index one = which;
    one.push_back(k);
    from.push_back(static_cast<std::int64_t>(x[1][one]));
  }
  from.insert(from.end(), i.begin() + rank - 1, i.end());
  from.resize(static_cast<std::size_t>(x[params].shape.rank()));
  return from;
}

inline double put_together(const std::string& mode, double there, double put) {
  if (mode == "update") return put;
  if (mode == "add") return there + put;
  if (mode == "sub") return there - put;
  if (mode == "mul") return there * put;
  return mode == "min" ? std::min(there, put) : std::max(there, put);
}

inline std::vector<Row> coordinate_rows() {
  Draws draws(61);
  std::vector<Case> taken, put, summed;
  auto choose = [&](const Shape& params, const Shape& indices, const Shape& result,
                    std::int64_t extent, std::int64_t batch) {
    taken.push_back(
        {{draws.values(params), draws.indices(indices, extent)}, Attrs{{"batch_axes", batch}}});
    for (const char* mode : {"update", "min", "max", "add", "sub", "mul"})
      (std::string("update min max").find(mode) == std::string::npos ? summed : put)
          .push_back({{draws.values(params, 0.5, 2), draws.indices(indices, extent),
                       draws.values(result, 0.5, 2)},
                      Attrs{{"mode", std::string(mode)}, {"batch_axes", batch}}});
  };
  choose({5, 2}, {3, 1}, {3, 2}, 5, 0);
  choose({3, 3}, {4, 2}, {4}, 3, 0);
  choose({3, 3, 2}, {2, 2}, {2, 2}, 3, 0);
  choose({2, 3, 2}, {2, 2, 1}, {2, 2, 2}, 3, 1);
  choose({2, 2, 3}, {2, 2, 2, 1}, {2, 2, 2}, 3, 2);
  choose({4}, {1}, {}, 4, 0);
  choose({3, 2}, {0, 1}, {0, 2}, 3, 0);
  choose({3, 0}, {2, 1}, {2, 0}, 3, 0);
  // The product's derivatives where factors that meet are zero: one, two, and what they meet.
  for (const std::vector<double>& factors :
       {std::vector<double>{0, 3, 2, 5, 4}, {0, 3, 0, 5, 0}, {0, 0, 0, 0, 2}})
    summed.push_back({{{{Shape{3}, {2, 0, 3}}},
                       {{Shape{5, 1}, {0, 0, 0, 1, 1}}, Role::index},
                       {{Shape{5}, factors}}},
                      Attrs{{"mode", std::string("mul")}, {"batch_axes", std::int64_t{0}}}});
  Reference placed = [](const Arrays& x, const Attrs& a) {
    Array out = x[0];
    for_each_index(x[2].shape, [&](const Index& i) {
      double& to = out[found_at(x, 0, a, i)];
      to = put_together(a.get<std::string>("mode"), to, x[2][i]);
    });
    return Arrays{out};
  };
  std::vector<Case> bytes;
  for (auto [a, b] :
       {std::pair{Shape{2, 3}, Shape{3, 4}}, std::pair{Shape{2, 2, 5}, Shape{5, 3}},
        std::pair{Shape{0, 3}, Shape{3, 2}}, std::pair{Shape{2, 0}, Shape{0, 3}},
        std::pair{Shape{3, 2}, Shape{2, 0}}, std::pair{Shape{70, 130}, Shape{130, 33}}})
    bytes.push_back({{draws.values(a, -128, 127), draws.values(b, -128, 127)}, {}});
  return {
      {"GatherNd",
       kReals_and_bool,
       taken,
       [](const Arrays& x, const Attrs& a) {
         const auto batch = static_cast<int>(a.get<std::int64_t>("batch_axes"));
         Shape s;
         for (int k = 0; k + 1 < x[1].shape.rank(); ++k) s.push_back(x[1].shape[k]);
         for (int k = batch + static_cast<int>(x[1].shape[x[1].shape.rank() - 1]);
              k < x[0].shape.rank(); ++k)
           s.push_back(x[0].shape[k]);
         return Arrays{tabulate(s, [&](const Index& i) { return x[0][found_at(x, 0, a, i)]; })};
       },
       2,
       1,
       {},
       false},
      {"ScatterNd", kReals_and_bool, put, placed, 2, 1, {}, false},
      {"ScatterNd", kReals, summed, placed, 2, 4, {}, false},
      {"Int8MatMul",
       {DType::i8},
       bytes,
       [](const Arrays& x, const Attrs&) {
         const std::int64_t k = x[1].shape[0];
         Shape s = x[0].shape;
         s.set(s.rank() - 1, x[1].shape[1]);
         return Arrays{tabulate(s, [&](Index i) {
           const std::int64_t column = i.back();
           double sum = 0;
           for (std::int64_t j = 0; j < k; ++j) i.back() = j, sum += x[0][i] * x[1][{j, column}];
           return sum;
         })};
       },
       0},
      {"RangeBetween",
       {DType::i32, DType::i64, DType::f32, DType::f64},
       {{{{{Shape{}, {3}}, Role::value},
          {{Shape{}, {-4}}, Role::value},
          {{Shape{}, {-2}}, Role::value}},
         {},
         0},
        {{{{Shape{}, {5}}, Role::value},
          {{Shape{}, {1}}, Role::value},
          {{Shape{}, {2}}, Role::value}},
         {},
         0}},
       [](const Arrays& x, const Attrs&) {
         const double start = x[0].v[0], by = x[2].v[0];
         const double count = std::max(std::ceil((x[1].v[0] - start) / by), 0.0);
         return Arrays{tabulate({static_cast<std::int64_t>(count)}, [&](const Index& i) {
           return start + static_cast<double>(i[0]) * by;
         })};
       },
       0},
      {"Range",
       {DType::i64},
       {{{}, Attrs{{"start", 3.0}, {"step", -2.0}, {"count", std::int64_t{4}}}},
        {{}, Attrs{{"count", std::int64_t{0}}}},
        {{},
         Attrs{{"start", 0.25}, {"step", 0.5}, {"count", std::int64_t{3}}, {"dtype", DType::f32}}}},
       [](const Arrays&, const Attrs& a) {
         return Arrays{tabulate({a.get<std::int64_t>("count")}, [&](const Index& i) {
           return a.get_or("start", 0.0) + static_cast<double>(i[0]) * a.get_or("step", 1.0);
         })};
       },
       0,
       1,
       {},
       false},
      {"Unique",
       kReals_and_bool,
       {{{{{Shape{7}, {2, 1, 2, 0, 1, 2, 3}}}}, {}},
        {{draws.values({150}, -60, 60)}, {}},
        {{{{Shape{2, 2}, {1, 1, 1, 1}}}}, {}},
        {{{{Shape{0}, {}}}}, {}},
        {{{{Shape{}, {1}}}}, {}}},
       [](const Arrays& x, const Attrs&) {
         std::map<double, double> counts;
         for (double v : x[0].v) ++counts[v];
         const Shape s{static_cast<std::int64_t>(counts.size())};
         Array values{s, {}}, which = x[0], often{s, {}};
         for (const auto& [value, count] : counts) {
           for (std::size_t i = 0; i < x[0].v.size(); ++i)
             if (x[0].v[i] == value) which.v[i] = static_cast<double>(values.v.size());
           values.v.push_back(value);
           often.v.push_back(count);
         }
         return Arrays{values, which, often};
       },
       0},
      {"NonZero",
       kReals_and_bool,
       {{{{{Shape{2, 3}, {0, 1, 0, 2, 0, 3}}}}, {}},
        {{{{Shape{3}, {0, 0, 0}}}}, {}},
        {{{{Shape{}, {1}}}}, {}},
        {{{{Shape{0, 2}, {}}}}, {}}},
       [](const Arrays& x, const Attrs&) {
         Array out{Shape{0, x[0].shape.rank()}, {}};
         for_each_index(x[0].shape, [&](const Index& i) {
           if (x[0][i] == 0) return;
           out.shape.set(0, out.shape[0] + 1);
           for (std::int64_t k : i) out.v.push_back(static_cast<double>(k));
         });
         return Arrays{out};
       },
       0},
  };
}

}  // namespace troupe::test
