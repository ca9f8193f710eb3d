// Rows of the operations that are not pointwise, with references written as plain loops.
#pragma once

#include <algorithm>

#include <troupe/test/ops/tables/table.hpp>

namespace troupe::test {

using Integers = std::vector<std::int64_t>;

inline std::vector<bool> marked(const Integers& axes, int rank) {
  std::vector<bool> out(static_cast<std::size_t>(rank), axes.empty());
  for (std::int64_t a : axes) out[static_cast<std::size_t>(a < 0 ? a + rank : a)] = true;
  return out;
}
inline int axis_of(const Attrs& a, int rank) {
  std::int64_t axis = a.get<std::int64_t>("axis");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}
inline Index with(Index i, int axis, std::int64_t value) {
  i[static_cast<std::size_t>(axis)] = value;
  return i;
}
inline Index inserted(Index i, int axis, std::int64_t value) {
  i.insert(i.begin() + axis, value);
  return i;
}
inline Index erased(Index i, int axis) {
  i.erase(i.begin() + axis);
  return i;
}

// ---- reductions

inline Row reduction(std::string op, std::vector<DType> dtypes,
                     Callable<double(const std::vector<double>&)> f, int order,
                     bool of_nothing = true, Role role = Role::value) {
  Draws draws(5);
  std::vector<Case> cases;
  auto add = [&](const Shape& s, Integers axes, bool keep) {
    Sample x = role == Role::truth ? draws.truths(s) : draws.values(s);
    cases.push_back({{x}, Attrs{{"axes", axes}, {"keep_dims", keep}}});
  };
  for (bool keep : {false, true}) {
    add({}, {}, keep);
    add({5}, {}, keep);
    add({2, 3}, {}, keep);
    add({2, 3}, {1}, keep);
    add({2, 3}, {-2}, keep);
    add({2, 3, 2}, {0, 2}, keep);
    add({2, 1, 3}, {1}, keep);
    add({3, 21}, {1}, keep);
    add({0, 3}, {1}, keep);
    // 0 / 0
    if (of_nothing)
      add({2, 0}, {1}, keep), cases.back().order = op == "Sum" || op == "Product" ? 2 : 0;
  }
  return {std::move(op),
          std::move(dtypes),
          cases,
          [f](const Arrays& x, const Attrs& a) {
            auto axes = marked(a.get<Integers>("axes"), x[0].shape.rank());
            return Arrays{reduce_with(x[0], axes, a.get<bool>("keep_dims"), f)};
          },
          order,
          4};
}

inline Row arg_reduction(std::string op, bool largest) {
  Draws draws(6);
  std::vector<Case> cases;
  for (bool keep : {false, true})
    for (std::int64_t axis : {0, -1})
      for (const Shape& s : {Shape{5}, Shape{2, 3}, Shape{3, 2, 19}})
        cases.push_back({{draws.values(s)}, Attrs{{"axes", Integers{axis}}, {"keep_dims", keep}}});
  cases.push_back({{{{Shape{4}, {1, 3, 3, 1}}}}, Attrs{{"axes", Integers{0}}}});  // equals
  return {std::move(op), kReals, cases,
          [largest](const Arrays& x, const Attrs& a) {
            auto axes = marked(a.get<Integers>("axes"), x[0].shape.rank());
            return Arrays{reduce_with(x[0], axes, a.get_or("keep_dims", false),
                                      [largest](const std::vector<double>& v) {
                                        auto at = largest ? std::max_element(v.begin(), v.end())
                                                          : std::min_element(v.begin(), v.end());
                                        return static_cast<double>(at - v.begin());
                                      })};
          },
          0};
}

inline double sum_of(const std::vector<double>& v) {
  double s = 0;
  for (double e : v) s += e;
  return s;
}

inline std::vector<Row> reduction_rows() {
  auto product = [](const std::vector<double>& v) {
    double p = 1;
    for (double e : v) p *= e;
    return p;
  };
  std::vector<Row> rows{
      reduction("Sum", kComplex + kReals, sum_of, 2),
      reduction(
          "Mean", kComplex + kFloats,
          [](const std::vector<double>& v) { return sum_of(v) / static_cast<double>(v.size()); },
          2),
      reduction("Product", kComplex + kReals, product, 2),
      reduction(
          "Max", kReals,
          [](const std::vector<double>& v) { return *std::max_element(v.begin(), v.end()); }, 2,
          false),
      reduction(
          "Min", kReals,
          [](const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); }, 2,
          false),
      reduction(
          "LogSumExp", kFloats,
          [](const std::vector<double>& v) {
            double s = 0;
            for (double e : v) s += std::exp(e);
            return std::log(s);
          },
          2),
      reduction(
          "All", kBool,
          [](const std::vector<double>& v) {
            return double(std::all_of(v.begin(), v.end(), [](double e) { return e != 0; }));
          },
          0, true, Role::truth),
      reduction(
          "Any", kBool,
          [](const std::vector<double>& v) {
            return double(std::any_of(v.begin(), v.end(), [](double e) { return e != 0; }));
          },
          0, true, Role::truth),
      arg_reduction("ArgMax", true),
      arg_reduction("ArgMin", false),
  };
  // The product's derivatives where elements are zero: one in a group, two, and all.
  for (bool keep : {false, true})
    for (const Integers& axes : {Integers{1}, Integers{0}, Integers{}}) {
      rows[2].cases.push_back({{{{Shape{3, 3}, {1, 0, 2, 0, 0, 3, 4, 5, 6}}}},
                               Attrs{{"axes", axes}, {"keep_dims", keep}}});
      rows[2].cases.push_back({{{{Shape{2, 5}, {0, 0, 2, 3, 1, 0, 0, 0, 0, 0}}}},
                               Attrs{{"axes", axes}, {"keep_dims", keep}}});
    }
  return rows;
}

// ---- shapes

inline Arrays same_elements(const Array& x, const Shape& shape) { return {{shape, x.v}}; }

inline std::vector<Row> shape_rows() {
  Draws draws(7);
  const std::vector<DType> all = kReals_and_bool;
  auto first = [](const Arrays& x, const Attrs&) { return Arrays{x[0]}; };
  auto under_second = [](const Arrays& x, const Attrs&) { return same_elements(x[0], x[1].shape); };
  std::vector<Case> some{
      {{draws.values({})}, {}}, {{draws.values({2, 3})}, {}}, {{draws.values({0})}, {}}};
  std::vector<Case> fills = some, required = some;
  for (Case& c : required) c.inputs.push_back({{Shape{}, {1}}, Role::truth});
  for (Case& c : fills) c.attrs = Attrs{{"value", 3.0}};
  return {
      {"Identity", all, some, first},
      {"StopGradient", all, some, first, 0},
      {"EdgeAsBf16", all, some, first},
      {"Require", all, required, first},
      {"FillLike",
       kReals,
       fills,
       [](const Arrays& x, const Attrs& a) {
         return Arrays{Array::filled(x[0].shape, a.get<double>("value"))};
       },
       0,
       1,
       {},
       false},
      {"Fill",
       kReals_and_bool,
       {{{}, Attrs{{"value", Tensor::scalar(2.5)}, {"shape", Shape{2, 3}}}},
        {{}, Attrs{{"value", Tensor::scalar(2.5)}, {"shape", Shape{}}}},
        {{}, Attrs{{"value", Tensor::scalar(2.5)}, {"shape", Shape{0}}}}},
       [](const Arrays&, const Attrs& a) {
         return Arrays{Array::filled(a.get<Shape>("shape"), a.get<Tensor>("value").at(0))};
       },
       0,
       1,
       {},
       false},
      {"Group",
       all,
       {{{draws.values({2})}, {}}, {{draws.values({}), draws.values({0})}, {}}},
       [](const Arrays&, const Attrs&) {
         return Arrays{{Shape{}, {1}}};
       },
       0},
      {"WaitForAll",
       all,
       {{{draws.values({2})}, {}}, {{draws.values({}), draws.values({2, 3})}, {}}},
       [](const Arrays& x, const Attrs&) { return x; }},
      {"ShapeOf",
       all,
       {{{draws.values({2, 3})}, {}}, {{draws.values({})}, {}}, {{draws.values({0, 4})}, {}}},
       [](const Arrays& x, const Attrs&) {
         Array out{Shape{x[0].shape.rank()}, {}};
         for (std::int64_t d : x[0].shape) out.v.push_back(static_cast<double>(d));
         return Arrays{out};
       },
       0},
      {"SizeOf", all, some,
       [](const Arrays& x, const Attrs&) {
         return Arrays{{Shape{}, {static_cast<double>(x[0].shape.elements())}}};
       },
       0},
      {"ExpandDims",
       all,
       {{{draws.values({2, 3})}, Attrs{{"axis", std::int64_t{1}}}},
        {{draws.values({})}, Attrs{{"axis", std::int64_t{-1}}}},
        {{draws.values({2})}, Attrs{{"axis", std::int64_t{-1}}}}},
       [](const Arrays& x, const Attrs& a) {
         return same_elements(x[0], x[0].shape.with_inserted(axis_of(a, x[0].shape.rank() + 1), 1));
       }},
      {"Squeeze",
       all,
       {{{draws.values({2, 1, 3})}, Attrs{{"axis", std::int64_t{1}}}},
        {{draws.values({1})}, Attrs{{"axis", std::int64_t{-1}}}}},
       [](const Arrays& x, const Attrs& a) {
         return same_elements(x[0], x[0].shape.without(axis_of(a, x[0].shape.rank())));
       }},
      {"Reshape",
       all,
       {{{draws.values({2, 3})}, Attrs{{"shape", Shape{3, 2}}}},
        {{draws.values({2, 3})}, Attrs{{"shape", Shape{6}}}},
        {{draws.values({})}, Attrs{{"shape", Shape{1, 1}}}},
        {{draws.values({1})}, Attrs{{"shape", Shape{}}}},
        {{draws.values({0, 2})}, Attrs{{"shape", Shape{3, 0}}}},
        {{draws.values({2, 6})}, Attrs{{"shape", Shape{4, kAny}}}},
        {{draws.values({2, 3, 4})}, Attrs{{"shape", Shape{kAny, kAny, 2, 2}}}},
        {{draws.values({0, 3, 4})}, Attrs{{"shape", Shape{kAny, kAny, 2}}}},
        {{draws.values({2, 3, 2})}, Attrs{{"shape", Shape{kAny, 1, kAny}}}}},
       [](const Arrays& x, const Attrs& a) {
         Shape s = a.get<Shape>("shape");
         int last = -1;
         for (int i = 0; i < s.rank(); ++i)
           if (s[i] < 0) last = i;
         std::int64_t given = 1, asked = 1;
         for (int i = 0; i < x[0].shape.rank(); ++i)
           if (i >= last || s[i] >= 0) given *= x[0].shape[i];
         for (int i = 0; i < s.rank(); ++i)
           if (s[i] >= 0) asked *= s[i];
           else if (i < last) s.set(i, x[0].shape[i]);
         if (last >= 0) s.set(last, given / asked);
         return same_elements(x[0], s);
       }},
      {"ReshapeTo",
       all,
       {{{draws.values({2, 3}), {{Shape{2}, {3, 2}}, Role::index}},
         Attrs{{"shape", Shape{kAny, kAny}}}},
        {{draws.values({2, 3}), {{Shape{3}, {1, 6, 1}}, Role::index}},
         Attrs{{"shape", Shape{1, kAny, kAny}}}},
        {{draws.values({1}), {{Shape{0}, {}}, Role::index}}, Attrs{{"shape", Shape{}}}},
        {{draws.values({0, 2}), {{Shape{2}, {3, 0}}, Role::index}},
         Attrs{{"shape", Shape{kAny, kAny}}}}},
       [](const Arrays& x, const Attrs&) {
         Shape s;
         for (double e : x[1].v) s.push_back(static_cast<std::int64_t>(e));
         return same_elements(x[0], s);
       }},
      {"BroadcastTo",
       all,
       {{{draws.values({1, 3}), {{Shape{2}, {2, 3}}, Role::index}},
         Attrs{{"shape", Shape{kAny, kAny}}}},
        {{draws.values({}), {{Shape{2}, {0, 2}}, Role::index}}, Attrs{{"shape", Shape{kAny, 2}}}},
        {{draws.values({3}), {{Shape{2}, {2, -1}}, Role::index}},
         Attrs{{"shape", Shape{kAny, kAny}}, {"open", Integers{1}}}},
        {{draws.values({2}), {{Shape{1}, {2}}, Role::index}}, Attrs{{"shape", Shape{kAny}}}}},
       [](const Arrays& x, const Attrs&) {
         Shape s;
         for (std::size_t k = 0; k < x[1].v.size(); ++k) {
           const auto e = static_cast<std::int64_t>(x[1].v[k]);
           const int off = static_cast<int>(x[1].v.size()) - x[0].shape.rank();
           s.push_back(e < 0 ? x[0].shape[static_cast<int>(k) - off] : e);
         }
         return Arrays{tabulate(s, [&](const Index& i) { return x[0].broadcast_at(i); })};
       }},
      {"ReshapeLike",
       all,
       {{{draws.values({2, 3}), draws.values({3, 2})}, {}},
        {{draws.values({}), draws.values({1})}, {}}},
       under_second},
      {"BroadcastLike",
       all,
       {{{draws.values({}), draws.values({2, 3})}, {}},
        {{draws.values({3}), draws.values({2, 3})}, {}},
        {{draws.values({2, 1}), draws.values({2, 3})}, {}},
        {{draws.values({2}), draws.values({2})}, {}},
        {{draws.values({1}), draws.values({0})}, {}},
        {{draws.values({}), draws.values({})}, {}}},
       [](const Arrays& x, const Attrs&) {
         return Arrays{tabulate(x[1].shape, [&](const Index& i) { return x[0].broadcast_at(i); })};
       }},
      {"SumTo",
       kReals,
       {{{draws.values({2, 3}), draws.values({})}, {}},
        {{draws.values({2, 3}), draws.values({3})}, {}},
        {{draws.values({2, 3}), draws.values({2, 1})}, {}},
        {{draws.values({4}), draws.values({4})}, {}},
        {{draws.values({0}), draws.values({1})}, {}},
        {{draws.values({0, 3}), draws.values({3})}, {}},
        {{draws.values({2, 1, 3}), draws.values({1, 1})}, {}}},
       [](const Arrays& x, const Attrs&) {
         Array out = Array::filled(x[1].shape, 0);
         for_each_index(x[0].shape, [&](const Index& i) {
           Index own(i.end() - out.shape.rank(), i.end());
           for (int k = 0; k < out.shape.rank(); ++k)
             if (out.shape[k] == 1) own[static_cast<std::size_t>(k)] = 0;
           out[own] += x[0][i];
         });
         return Arrays{out};
       },
       2,
       4},
      {"Transpose",
       all,
       {{{draws.values({2, 3})}, Attrs{{"permutation", Integers{1, 0}}}},
        {{draws.values({2, 3, 4})}, Attrs{{"permutation", Integers{2, 0, 1}}}},
        {{draws.values({})}, Attrs{{"permutation", Integers{}}}},
        {{draws.values({0, 2})}, Attrs{{"permutation", Integers{1, 0}}}},
        {{draws.values({5})}, Attrs{{"permutation", Integers{0}}}}},
       [](const Arrays& x, const Attrs& a) {
         const auto& p = a.get<Integers>("permutation");
         Shape s;
         for (std::int64_t k : p) s.push_back(x[0].shape[static_cast<int>(k)]);
         return Arrays{tabulate(s, [&](const Index& i) {
           Index from(p.size());
           for (std::size_t k = 0; k < p.size(); ++k) from[static_cast<std::size_t>(p[k])] = i[k];
           return x[0][from];
         })};
       }},
  };
}

// ---- blocks

inline Arrays block_of(const Array& x, const Integers& starts, const Shape& extents) {
  return {tabulate(extents, [&](const Index& i) {
    Index from = i;
    for (std::size_t k = 0; k < i.size(); ++k)
      from[k] += starts[k] < 0 ? starts[k] + x.shape[static_cast<int>(k)] : starts[k];
    return x[from];
  })};
}
/// A slice's start and extents, by a plain reading of SliceBetween's attributes.
inline std::pair<Integers, Shape> between(const Shape& x, const std::vector<double>& begins,
                                          const std::vector<double>& ends, const Attrs& a) {
  Integers start;
  Shape extent;
  for (int k = 0; k < x.rank(); ++k) {
    const std::int64_t n = x[k];
    auto from = static_cast<std::int64_t>(begins[static_cast<std::size_t>(k)]),
         to = static_cast<std::int64_t>(ends[static_cast<std::size_t>(k)]);
    if (from < 0) from += n;
    if (a.get_or("cut", true)) {
      if (to < 0) to += n;
      from = std::min(from, n), to = std::min(to, n);
    } else {
      to = to < 0 ? n : from + to;
    }
    start.push_back(from);
    extent.push_back(std::max<std::int64_t>(to - from, 0));
  }
  return {start, extent};
}

inline Arrays placed(const Array& block, const Integers& starts, const Shape& shape,
                     double around) {
  Array out = Array::filled(shape, around);
  for_each_index(block.shape, [&](const Index& i) {
    Index to = i;
    for (std::size_t k = 0; k < i.size(); ++k)
      to[k] += starts[k] < 0 ? starts[k] + shape[static_cast<int>(k)] : starts[k];
    out[to] = block[i];
  });
  return {out};
}
inline Arrays pieces_of(const Array& x, int axis, const Integers& extents) {
  Arrays out;
  Integers starts(static_cast<std::size_t>(x.shape.rank()), 0);
  for (std::int64_t e : extents) {
    Shape s = x.shape;
    s.set(axis, e);
    out.push_back(block_of(x, starts, s)[0]);
    starts[static_cast<std::size_t>(axis)] += e;
  }
  return out;
}

inline std::vector<Row> block_rows() {
  Draws draws(8);
  const std::vector<DType> all = kReals_and_bool;
  auto starts = [](const Attrs& a) { return a.get<Integers>("starts"); };
  return {
      {"Slice",
       all,
       {{{draws.values({4, 3})}, Attrs{{"starts", Integers{1, 0}}, {"extents", Integers{2, 2}}}},
        {{draws.values({4})}, Attrs{{"starts", Integers{-2}}, {"extents", Integers{-1}}}},
        {{draws.values({4})}, Attrs{{"starts", Integers{4}}, {"extents", Integers{0}}}}},
       [=](const Arrays& x, const Attrs& a) {
         Shape s;
         for (int k = 0; k < x[0].shape.rank(); ++k) {
           std::int64_t from = starts(a)[static_cast<std::size_t>(k)], n = x[0].shape[k],
                        e = a.get<Integers>("extents")[static_cast<std::size_t>(k)];
           s.push_back(e < 0 ? n - (from < 0 ? from + n : from) : e);
         }
         return block_of(x[0], starts(a), s);
       }},
      {"SliceGradient",
       all,
       {{{draws.values({2, 2}), draws.values({4, 3})}, Attrs{{"starts", Integers{1, 0}}}},
        {{draws.values({2}), draws.values({4})}, Attrs{{"starts", Integers{-2}}}}},
       [=](const Arrays& x, const Attrs& a) { return placed(x[0], starts(a), x[1].shape, 0); }},
      {"SliceBetween",
       all,
       {{{draws.values({4, 3}),
          {{Shape{2}, {1, -2}}, Role::index},
          {{Shape{2}, {-1, 9}}, Role::index}},
         Attrs{{"shape", Shape{kAny, kAny}}}},
        {{draws.values({4}), {{Shape{1}, {3}}, Role::index}, {{Shape{1}, {1}}, Role::index}},
         Attrs{{"shape", Shape{0}}}},
        {{draws.values({4, 3}),
          {{Shape{2}, {-3, 0}}, Role::index},
          {{Shape{2}, {2, -1}}, Role::index}},
         Attrs{{"shape", Shape{2, kAny}}, {"cut", false}}}},
       [=](const Arrays& x, const Attrs& a) {
         const auto [start, extent] = between(x[0].shape, x[1].v, x[2].v, a);
         return block_of(x[0], start, extent);
       }},
      {"SliceBetweenGradient",
       all,
       {{{draws.values({2, 2}),
          draws.values({4, 3}),
          {{Shape{2}, {1, -2}}, Role::index},
          {{Shape{2}, {-1, 9}}, Role::index}},
         Attrs{{"shape", Shape{kAny, kAny}}}},
        {{draws.values({2, 3}),
          draws.values({4, 3}),
          {{Shape{2}, {-3, 0}}, Role::index},
          {{Shape{2}, {2, -1}}, Role::index}},
         Attrs{{"shape", Shape{2, kAny}}, {"cut", false}}}},
       [=](const Arrays& x, const Attrs& a) {
         const auto [start, extent] = between(x[1].shape, x[2].v, x[3].v, a);
         return placed(x[0], start, x[1].shape, 0);
       }},
      {"SliceLike",
       all,
       {{{draws.values({4, 3}), draws.values({2, 2})}, Attrs{{"starts", Integers{1, 1}}}},
        {{draws.values({4}), draws.values({2})}, Attrs{{"starts", Integers{-3}}}}},
       [=](const Arrays& x, const Attrs& a) { return block_of(x[0], starts(a), x[1].shape); }},
      {"Pad",
       kReals,
       {{{draws.values({2, 3})},
         Attrs{{"before", Integers{1, 0}}, {"after", Integers{0, 2}}, {"value", 3.0}}},
        {{draws.values({0})},
         Attrs{{"before", Integers{1}}, {"after", Integers{2}}, {"value", 1.0}}},
        {{draws.values({3})}, Attrs{{"before", Integers{0}}, {"after", Integers{0}}}}},
       [](const Arrays& x, const Attrs& a) {
         Shape s = x[0].shape;
         for (int k = 0; k < s.rank(); ++k)
           s.set(k, s[k] + a.get<Integers>("before")[static_cast<std::size_t>(k)] +
                        a.get<Integers>("after")[static_cast<std::size_t>(k)]);
         return placed(x[0], a.get<Integers>("before"), s, a.get_or("value", 0.0));
       },
       2,
       1,
       {},
       false},
      {"Concat",
       all,
       {{{draws.values({2, 3}), draws.values({1, 3})}, Attrs{{"axis", std::int64_t{0}}}},
        {{draws.values({2, 3}), draws.values({2, 0}), draws.values({2, 2})},
         Attrs{{"axis", std::int64_t{-1}}}},
        {{draws.values({3})}, Attrs{{"axis", std::int64_t{0}}}}},
       [](const Arrays& x, const Attrs& a) {
         int axis = axis_of(a, x[0].shape.rank());
         Shape s = x[0].shape;
         for (std::size_t k = 1; k < x.size(); ++k) s.set(axis, s[axis] + x[k].shape[axis]);
         return Arrays{tabulate(s, [&](Index i) {
           std::size_t k = 0;
           for (auto& at = i[static_cast<std::size_t>(axis)]; at >= x[k].shape[axis]; ++k)
             at -= x[k].shape[axis];
           return x[k][i];
         })};
       }},
      {"Split",
       all,
       {{{draws.values({4, 3})}, Attrs{{"extents", Integers{1, 3}}, {"axis", std::int64_t{0}}}},
        {{draws.values({2, 3})},
         Attrs{{"extents", Integers{1, 0, 2}}, {"axis", std::int64_t{-1}}}}},
       [](const Arrays& x, const Attrs& a) {
         return pieces_of(x[0], axis_of(a, x[0].shape.rank()), a.get<Integers>("extents"));
       }},
      {"SplitLike",
       all,
       {{{draws.values({4, 3}), draws.values({1, 3}), draws.values({3, 3})},
         Attrs{{"axis", std::int64_t{0}}}}},
       [](const Arrays& x, const Attrs& a) {
         Integers extents;
         for (std::size_t k = 1; k < x.size(); ++k)
           extents.push_back(x[k].shape[axis_of(a, x[0].shape.rank())]);
         return pieces_of(x[0], axis_of(a, x[0].shape.rank()), extents);
       }},
  };
}

// ---- rows and indices

inline Arrays gathered(const Arrays& x, const Attrs& a) {
  int axis = axis_of(a, x[0].shape.rank());
  Shape s;
  for (int k = 0; k < axis; ++k) s.push_back(x[0].shape[k]);
  for (std::int64_t d : x[1].shape) s.push_back(d);
  for (int k = axis + 1; k < x[0].shape.rank(); ++k) s.push_back(x[0].shape[k]);
  return {tabulate(s, [&](const Index& i) {
    Index which(i.begin() + axis, i.begin() + axis + x[1].shape.rank());
    Index from(i.begin(), i.begin() + axis);
    from.push_back(static_cast<std::int64_t>(x[1][which]));
    from.insert(from.end(), i.begin() + axis + x[1].shape.rank(), i.end());
    return x[0][from];
  })};
}

inline std::vector<Row> index_rows() {
  Draws draws(9);
  const std::vector<DType> all = kReals_and_bool;
  auto gather_case = [&](const Shape& p, const Shape& i, std::int64_t axis, std::int64_t extent) {
    return Case{{draws.values(p), draws.indices(i, extent)}, Attrs{{"axis", axis}}};
  };
  return {
      {"Gather",
       all,
       {gather_case({5, 2}, {3}, 0, 5), gather_case({5}, {}, 0, 5),
        gather_case({4, 2}, {2, 3}, 0, 4), gather_case({2, 4}, {3}, 1, 4),
        gather_case({2, 4, 2}, {2, 2}, -2, 4), gather_case({3, 2}, {0}, 0, 3),
        gather_case({3, 4}, {}, 1, 4)},
       gathered},
      {"ScatterAdd",
       kReals,
       {{{draws.values({5, 2}), draws.indices({4}, 5), draws.values({4, 2})}, {}},
        {{draws.values({3}), draws.indices({}, 3), draws.values({})}, {}},
        {{draws.values({3}), draws.indices({2, 3}, 3), draws.values({2, 3})}, {}},
        {{draws.values({3, 2}), draws.indices({0}, 3), draws.values({0, 2})}, {}}},
       [](const Arrays& x, const Attrs&) {
         Array out = x[0];
         for_each_index(x[2].shape, [&](const Index& i) {
           Index which(i.begin(), i.begin() + x[1].shape.rank()),
               to{static_cast<std::int64_t>(x[1][which])};
           to.insert(to.end(), i.begin() + x[1].shape.rank(), i.end());
           out[to] += x[2][i];
         });
         return Arrays{out};
       }},
      {"LastPosition",
       {DType::i32, DType::i64},
       {{{{{Shape{6}, {3, 1, 3, 0, 1, 1}}}, draws.values({4, 2})}, {}},
        {{{{Shape{2, 2}, {1, 0, 1, 1}}}, draws.values({2})}, {}},
        {{{{Shape{0}, {}}}, draws.values({2})}, {}},
        {{{{Shape{}, {1}}}, draws.values({2})}, {}}},
       [](const Arrays& x, const Attrs&) {
         Array out = x[0];
         for (double& e : out.v)
           for (std::size_t k = 0; k < x[0].v.size(); ++k)
             if (double index = x[0].v[static_cast<std::size_t>(&e - out.v.data())];
                 x[0].v[k] == index)
               e = static_cast<double>(k);
         return Arrays{out};
       },
       0,
       1,
       {},
       true},
      {"OneHot",
       {DType::i32, DType::i64},
       {{{{{Shape{3}, {0, 2, 5}}}}, Attrs{{"depth", std::int64_t{4}}, {"on", 2.0}, {"off", -1.0}}},
        {{{{Shape{}, {1}}}}, Attrs{{"depth", std::int64_t{3}}}},
        {{{{Shape{2}, {0, 1}}}}, Attrs{{"depth", std::int64_t{0}}}},
        {{{{Shape{0}, {}}}}, Attrs{{"depth", std::int64_t{3}}}},
        {{{{Shape{2}, {-1, 0}}}}, Attrs{{"depth", std::int64_t{2}}}}},
       [](const Arrays& x, const Attrs& a) {
         Shape s = x[0].shape;
         s.push_back(a.get<std::int64_t>("depth"));
         return Arrays{tabulate(s, [&](Index i) {
           double hot = static_cast<double>(i.back());
           i.pop_back();
           return x[0][i] == hot ? a.get_or("on", 1.0) : a.get_or("off", 0.0);
         })};
       },
       0},
  };
}

// ---- linear algebra and softmax

inline Arrays product_of(const Arrays& x, const Attrs& a) {
  bool ta = a.get_or("transpose_a", false), tb = a.get_or("transpose_b", false);
  const Shape &sa = x[0].shape, &sb = x[1].shape;
  std::int64_t m = sa[sa.rank() - (ta ? 1 : 2)], k = sa[sa.rank() - (ta ? 2 : 1)],
               n = sb[sb.rank() - (tb ? 2 : 1)];
  Shape batch = broadcast(Shape(sa.dims().first(static_cast<std::size_t>(sa.rank() - 2))),
                          Shape(sb.dims().first(static_cast<std::size_t>(sb.rank() - 2))));
  Shape s = batch;
  s.push_back(m);
  s.push_back(n);
  auto element = [](const Array& t, Index i, std::int64_t row, std::int64_t column) {
    i.push_back(row);
    i.push_back(column);
    Index own(i.end() - t.shape.rank(), i.end());
    for (int d = 0; d < t.shape.rank() - 2; ++d)
      if (t.shape[d] == 1) own[static_cast<std::size_t>(d)] = 0;
    return t[own];
  };
  return {tabulate(s, [&](const Index& i) {
    Index at(i.begin(), i.end() - 2);
    std::int64_t row = i[i.size() - 2], column = i.back();
    double sum = 0;
    for (std::int64_t j = 0; j < k; ++j)
      sum += (ta ? element(x[0], at, j, row) : element(x[0], at, row, j)) *
             (tb ? element(x[1], at, column, j) : element(x[1], at, j, column));
    return sum;
  })};
}

// f(row) of each row along the last axis.
inline Array by_rows(const Array& x, const Callable<void(std::vector<double>&)>& f) {
  Array out{x.shape, {}};
  std::size_t n = static_cast<std::size_t>(x.shape[x.shape.rank() - 1]);
  for (std::size_t at = 0; at < x.v.size(); at += n) {
    std::vector<double> row(x.v.begin() + static_cast<std::ptrdiff_t>(at),
                            x.v.begin() + static_cast<std::ptrdiff_t>(at + n));
    f(row);
    out.v.insert(out.v.end(), row.begin(), row.end());
  }
  return out;
}
inline void make_softmax(std::vector<double>& row) {
  double sum = 0;
  for (double e : row) sum += std::exp(e);
  for (double& e : row) e = std::exp(e) / sum;
}

inline std::vector<Row> algebra_rows() {
  Draws draws(10);
  std::vector<Case> products;
  auto product = [&](const Shape& a, const Shape& b, bool ta, bool tb) {
    products.push_back(
        {{draws.values(a), draws.values(b)}, Attrs{{"transpose_a", ta}, {"transpose_b", tb}}});
  };
  product({2, 3}, {3, 4}, false, false);
  product({3, 2}, {3, 4}, true, false);
  product({2, 3}, {4, 3}, false, true);
  product({3, 2}, {4, 3}, true, true);
  product({2, 2, 3}, {3, 2}, false, false);
  product({2, 1, 2, 3}, {3, 2, 3}, false, true);
  product({1, 3, 2}, {2, 3, 2}, true, false);
  product({2, 3, 1}, {1, 2, 3}, true, true);
  product({0, 3}, {3, 2}, false, false);
  product({2, 0}, {0, 3}, false, false);
  std::vector<Case> rows{{{draws.values({4})}, {}},
                         {{draws.values({2, 3})}, {}},
                         {{draws.values({2, 2, 5})}, {}},
                         {{draws.values({3, 1})}, {}},
                         {{draws.values({0, 3})}, {}}};
  std::vector<Case> labelled{{{draws.values({3, 4}), draws.indices({3}, 4)}, {}},
                             {{draws.values({1, 2}), draws.indices({1}, 2)}, {}},
                             {{draws.values({0, 2}), draws.indices({0}, 2)}, {}},
                             {{draws.values({2, 3, 4}), draws.indices({2, 3}, 4)}, {}},
                             {{draws.values({2, 0, 3}), draws.indices({2, 0}, 3)}, {}},
                             {{draws.values({5}), draws.indices({}, 5)}, {}}};
  std::vector<Case> scaled = labelled;
  for (Case& c : scaled) c.inputs.push_back(draws.values(c.inputs[1].array.shape));
  auto softmaxed = [](bool log) {
    return [log](const Arrays& x, const Attrs&) {
      return Arrays{by_rows(x[0], [log](std::vector<double>& row) {
        make_softmax(row);
        if (log)
          for (double& e : row) e = std::log(e);
      })};
    };
  };
  return {
      {"MatMul", kFloats, products, product_of, 2, 8, {}, false},
      {"Softmax", kFloats, rows, softmaxed(false), 2, 4},
      {"LogSoftmax", kFloats, rows, softmaxed(true), 2, 4},
      {"CrossEntropy", kFloats, labelled,
       [](const Arrays& x, const Attrs&) {
         Array p = by_rows(x[0], make_softmax);
         return Arrays{tabulate(x[1].shape, [&](const Index& i) {
           return -std::log(
               p[inserted(i, static_cast<int>(i.size()), static_cast<std::int64_t>(x[1][i]))]);
         })};
       },
       2, 4},
      {"CrossEntropyGradient", kFloats, scaled,
       [](const Arrays& x, const Attrs&) {
         Array p = by_rows(x[0], make_softmax);
         return Arrays{tabulate(x[0].shape, [&](const Index& i) {
           const Index row(i.begin(), i.end() - 1);
           return (p[i] - (x[1][row] == static_cast<double>(i.back()))) * x[2][row];
         })};
       },
       2, 4},
  };
}

// ---- rows brought to variance 1

struct RowMoments {
  double mean, rstd;
};
inline RowMoments moments_of(const std::vector<double>& row, double epsilon, bool centered) {
  const double n = static_cast<double>(row.size()), mean = centered ? sum_of(row) / n : 0;
  double squares = 0;
  for (double e : row) squares += (e - mean) * (e - mean);
  return {mean, 1 / std::sqrt(squares / n + epsilon)};
}

inline Row row_norm(bool centered) {
  Draws draws(12);
  std::vector<Case> cases;
  auto add = [&](const Shape& x, const Shape& scale, double epsilon) {
    Case c{{draws.values(x), draws.values(scale)}, Attrs{{"epsilon", epsilon}}};
    if (centered) c.inputs.push_back(draws.values(scale));
    cases.push_back(std::move(c));
  };
  add({4}, {4}, 0.1);
  add({2, 3}, {3}, 0.1);
  add({2, 2, 5}, {5}, 1e-5);
  add({3, 4}, {}, 0.1);
  add({3, 1}, {1}, 0.1);
  add({0, 3}, {3}, 0.1);
  add({2, 0}, {0}, 0.1), cases.back().order = 0;  // the moments are 0 / 0
  add({7, 70}, {70}, 1e-5);
  return {
      centered ? "LayerNorm" : "RmsNorm",
      kFloats,
      cases,
      [centered](const Arrays& x, const Attrs& a) {
        const double epsilon = a.get<double>("epsilon");
        const Shape rows = x[0].shape.without(x[0].shape.rank() - 1);
        const auto n = static_cast<std::size_t>(x[0].shape[x[0].shape.rank() - 1]);
        Arrays y{x[0]};
        for (int i = 0; i < (centered ? 2 : 1); ++i) y.push_back(Array::filled(rows, std::nan("")));
        for (std::size_t r = 0; r < y[1].v.size(); ++r) {
          const std::vector<double> row(x[0].v.begin() + static_cast<std::ptrdiff_t>(r * n),
                                        x[0].v.begin() + static_cast<std::ptrdiff_t>((r + 1) * n));
          const RowMoments m =
              n ? moments_of(row, epsilon, centered) : RowMoments{std::nan(""), std::nan("")};
          for (std::size_t i = 0; i < n; ++i) {
            auto at = [i](const Array& parameter) {
              return parameter.v[parameter.shape.rank() ? i : 0];
            };
            y[0].v[r * n + i] = (row[i] - m.mean) * m.rstd * at(x[1]) + (centered ? at(x[2]) : 0);
          }
          if (centered) y[1].v[r] = m.mean;
          y.back().v[r] = m.rstd;
        }
        return y;
      },
      2,
      8};
}

inline Row row_norm_gradient(bool centered) {
  Draws draws(13);
  std::vector<Case> cases;
  auto add = [&](const Shape& x, const Shape& scale) {
    const Shape rows = x.without(x.rank() - 1);
    Case c{{draws.values(x), draws.values(scale)}, {}};
    if (centered) c.inputs.push_back(draws.values(rows));
    c.inputs.push_back(draws.values(rows, 0.5, 1.5));
    c.inputs.push_back(draws.values(x));
    cases.push_back(std::move(c));
  };
  add({4}, {4});
  add({2, 3}, {3});
  add({2, 2, 2}, {2});
  add({3, 2}, {});
  add({0, 3}, {3});
  add({2, 0}, {0});
  add({6, 70}, {70});
  add({530, 64}, {64});
  return {centered ? "LayerNormGradient" : "RmsNormGradient",
          {DType::f32, DType::f64},
          cases,
          [centered](const Arrays& x, const Attrs&) {
            const std::size_t n = static_cast<std::size_t>(x[0].shape[x[0].shape.rank() - 1]);
            const Array &rstd = x[x.size() - 2], &dy = x.back();
            Arrays d{x[0]};
            for (int i = 0; i < (centered ? 2 : 1); ++i)
              d.push_back(Array::filled(Shape{static_cast<std::int64_t>(n)}, 0));
            for (std::size_t r = 0; n && r < rstd.v.size(); ++r) {
              std::vector<double> g(n), h(n), gh(n);
              for (std::size_t i = 0; i < n; ++i) {
                const double up = dy.v[r * n + i];
                g[i] = up * x[1].v[x[1].shape.rank() ? i : 0];
                h[i] = (x[0].v[r * n + i] - (centered ? x[2].v[r] : 0)) * rstd.v[r];
                gh[i] = g[i] * h[i];
                d[1].v[i] += up * h[i];
                if (centered) d[2].v[i] += up;
              }
              const double of_g = centered ? sum_of(g) / static_cast<double>(n) : 0,
                           of_gh = sum_of(gh) / static_cast<double>(n);
              for (std::size_t i = 0; i < n; ++i)
                d[0].v[r * n + i] = rstd.v[r] * (g[i] - of_g - h[i] * of_gh);
            }
            return d;
          },
          2,
          16};
}

inline std::vector<Row> norm_rows() {
  return {row_norm(true), row_norm(false), row_norm_gradient(true), row_norm_gradient(false)};
}

inline std::vector<Row> structure_rows() {
  std::vector<Row> out;
  for (auto rows :
       {reduction_rows(), shape_rows(), block_rows(), index_rows(), algebra_rows(), norm_rows()})
    for (Row& r : rows) {
      // An op that only moves elements takes every dtype, complex ones too.
      if (r.dtypes == kReals_and_bool || r.op == "ScatterAdd" || r.op == "SumTo")
        r.refuses_others = false;
      out.push_back(std::move(r));
    }
  return out;
}

}  // namespace troupe::test
