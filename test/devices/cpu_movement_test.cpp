// Not under tsan: its kernels run in parallel in op_table_test and devices/cpu_primitives_test.
// Data movement of the CPU device, against loops that a reader can check by eye: transposes,
// blocks, gathering and scattering, filling.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <numeric>

#include <troupe/test/support/cpu.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_FIXTURE_TEST_SUITE(cpu_movement, Cpu)

BOOST_AUTO_TEST_CASE(transpose_of_any_permutation) {
  for (int round = 0; round < 600 / kRoundShare; ++round) {
    DType type = std::array{DType::i8, DType::f16, DType::f32, DType::f64,
                            DType::c128}[static_cast<std::size_t>(below(5))];
    Shape s = shape(5, round % 20 == 0 ? 30 : 5), out;
    std::vector<std::int64_t> order(static_cast<std::size_t>(s.rank()));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (std::int64_t axis : order) out.push_back(s[static_cast<int>(axis)]);
    Tensor x = random_tensor(random, type, s, -100, 100), y = Tensor::empty(type, out);
    p().transpose(*stream, x, View(y), order);
    for (std::int64_t i = 0; i < y.elements(); ++i) {
      std::vector<std::int64_t> c = coordinates(i, out), from(c.size());
      for (std::size_t d = 0; d < c.size(); ++d) from[static_cast<std::size_t>(order[d])] = c[d];
      BOOST_TEST_REQUIRE(y.at(i) == x.at(position(from, s)));
    }
  }
}

BOOST_AUTO_TEST_CASE(copy_block_with_steps) {
  for (int round = 0; round < 600 / kRoundShare; ++round) {
    Shape in = shape(4, 7, false), out, extents;
    Block from, to;
    for (int d = 0; d < in.rank(); ++d) {
      from.start.push_back(below(in[d]));
      from.step.push_back(1 + below(2));
      std::int64_t n = below((in[d] - from.start[d] + from.step[d] - 1) / from.step[d] + 1);
      extents.push_back(n);
      to.start.push_back(below(3));
      to.step.push_back(1 + below(2));
      out.push_back(to.start[d] + std::max<std::int64_t>(1, (n - 1) * to.step[d] + 1) + below(3));
    }
    Tensor x = random_tensor(random, DType::i32, in, -100, 100),
           y = random_tensor(random, DType::i32, out, -100, 100);
    Tensor expected = y.clone();
    p().copy_block(*stream, x, from, View(y), to, extents);
    for (std::int64_t i = 0; i < extents.elements(); ++i) {
      std::vector<std::int64_t> c = coordinates(i, extents), f = c, t = c;
      for (std::size_t d = 0; d < c.size(); ++d) {
        f[d] = from.start[static_cast<int>(d)] + c[d] * from.step[static_cast<int>(d)];
        t[d] = to.start[static_cast<int>(d)] + c[d] * to.step[static_cast<int>(d)];
      }
      auto* e = static_cast<std::int32_t*>(expected.raw_mutable());
      e[position(t, out)] = x.data<std::int32_t>()[position(f, in)];
    }
    BOOST_TEST_REQUIRE(identical(y, expected));
  }
}

BOOST_AUTO_TEST_CASE(gather_and_scatter) {
  for (int round = 0; round < 300 / kRoundShare; ++round) {
    Shape params = shape(3, 6, false);
    if (params.rank() == 0) params.push_back(4);
    int axis = static_cast<int>(below(params.rank()));
    Shape where = shape(2, 5), out;
    for (int d = 0; d < axis; ++d) out.push_back(params[d]);
    for (std::int64_t e : where.dims()) out.push_back(e);
    for (int d = axis + 1; d < params.rank(); ++d) out.push_back(params[d]);
    Tensor x = random_tensor(random, DType::f32, params), y = Tensor::empty(DType::f32, out);
    Tensor indices = Tensor::empty(DType::i64, where);
    for (std::int64_t i = 0; i < where.elements(); ++i)
      static_cast<std::int64_t*>(indices.raw_mutable())[i] = below(params[axis]);
    p().gather(*stream, x, indices, axis, View(y));
    for (std::int64_t i = 0; i < out.elements(); ++i) {
      std::vector<std::int64_t> c = coordinates(i, out);
      std::vector<std::int64_t> w(c.begin() + axis, c.begin() + axis + where.rank()),
          f(c.begin(), c.begin() + axis);
      f.push_back(static_cast<std::int64_t>(indices.at(position(w, where))));
      f.insert(f.end(), c.begin() + axis + where.rank(), c.end());
      BOOST_TEST_REQUIRE(y.at(i) == x.at(position(f, params)));
    }
  }
  Tensor rows = Tensor::of<std::int32_t>({2, 0, 2});
  Tensor updates = Tensor::of<float>({1, 2, 3, 4, 5, 6}, Shape{3, 2});
  for (Scatter how : {Scatter::update, Scatter::add, Scatter::sub}) {
    Tensor y = Tensor::of<float>({10, 10, 20, 20, 30, 30}, Shape{3, 2});
    p().scatter(*stream, how, rows, updates, View(y));
    std::vector<float> expected = how == Scatter::update ? std::vector<float>{3, 4, 20, 20, 5, 6}
                                  : how == Scatter::add ? std::vector<float>{13, 14, 20, 20, 36, 38}
                                                        : std::vector<float>{7, 6, 20, 20, 24, 22};
    BOOST_TEST(y.to_vector<float>() == expected);
  }
}

BOOST_AUTO_TEST_CASE(an_index_outside_its_bound_touches_nothing) {
  Tensor x = Tensor::of<float>({1, 2, 3}), y = Tensor::of<float>({7, 7});
  for (std::int64_t bad : {std::int64_t(3), std::int64_t(-1), INT64_MAX, INT64_MIN}) {
    Tensor indices = Tensor::of<std::int64_t>({0, bad});
    BOOST_TEST(
        throws_code(Code::out_of_range, [&] { p().gather(*stream, x, indices, 0, View(y)); }));
    BOOST_TEST(y.to_vector<float>() == (std::vector<float>{7, 7}));
    BOOST_TEST(throws_code(Code::out_of_range,
                           [&] { p().scatter(*stream, Scatter::update, indices, y, View(x)); }));
    BOOST_TEST(x.to_vector<float>() == (std::vector<float>{1, 2, 3}));
  }
}

BOOST_AUTO_TEST_CASE(one_hot_range_fill_copy) {
  Tensor indices = Tensor::of<std::int32_t>({1, -1, 2, 3});
  Tensor y = Tensor::empty(DType::f32, Shape{4, 3});
  p().one_hot(*stream, indices, Tensor::scalar(5.f), Tensor::scalar(-1.f), View(y));
  BOOST_TEST(y.to_vector<float>() ==
             (std::vector<float>{-1, 5, -1, -1, -1, -1, -1, -1, 5, -1, -1, -1}));
  Tensor r = Tensor::empty(DType::i64, Shape{4});
  p().range(*stream, 10, -3, View(r));
  BOOST_TEST(r.to_vector<std::int64_t>() == (std::vector<std::int64_t>{10, 7, 4, 1}));
  Tensor f = Tensor::empty(DType::f32, Shape{3});
  p().range(*stream, 0.5, 0.25, View(f));
  BOOST_TEST(f.to_vector<float>() == (std::vector<float>{0.5f, 0.75f, 1.f}));
  for (int t = 0; t < kDTypes; ++t) {
    DType type = static_cast<DType>(t);
    Tensor value = Tensor::scalar_as(type, 1), many = Tensor::empty(type, Shape{70000}),
           copy = Tensor::empty(type, Shape{70000});
    p().fill(*stream, value, View(many));
    BOOST_TEST(many.at(0) == 1);
    BOOST_TEST(many.at(69999) == 1);
    p().copy(*stream, many, View(copy));
    BOOST_TEST(identical(many, copy));
  }
}

BOOST_AUTO_TEST_SUITE_END()
