// Not under tsan: mesh_test and mesh_loops_test run the same threads.
// Rows of CASES.md that are numeric: values as given, under every layout that fits, at every place.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/cluster/meshes.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace troupe::test::meshes;

BOOST_AUTO_TEST_SUITE(mesh_rows_test)

namespace {

using Layouts = std::vector<std::pair<const char*, const char*>>;

// Values of the program as it is; those under each mesh and layout, at each place, are equal.
std::vector<Tensor> values_of(const BuildMesh& build, const Layouts& layouts) {
  std::vector<Cut> cuts;
  for (const auto& [axes, layout] : layouts) cuts.push_back({axes, layout, {}});
  return run_everywhere(
      build, cuts, [](const auto&...) {}, [](const Tensor&) { return 1e-12; });
}

Tensor of(const std::vector<double>& values, const Shape& shape) {
  return Tensor::of<double>(values, shape);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_value_comes_back_as_it_was_fed) {  // N8
  const Dim a{"a", 4};
  const auto got = values_of(
      [&](Graph& g) {
        MeshCase c;
        const Expr zero = input(c, g, "zero", Tensor::zeros(DType::f64, {}), {});
        c.fetches = {zero, input(c, g, "x", counted({4}), {a})};
        return c;
      },
      {{"p:1", "a:p"}, {"p:2", "a:p"}, {"p:4", "a:p"}});
  check_values(got[0], {0});
  check_values(got[1], {0, 1, 2, 3});
}

BOOST_AUTO_TEST_CASE(sums_and_products_of_every_split) {  // S4, S9
  const Dim a{"a", 4}, b{"b", 6}, c_{"c", 8};
  values_of(
      [&](Graph& g) {
        MeshCase c;
        const Expr x = input(c, g, "x", counted({4, 6}, 0.1), {a, b}),
                   y = input(c, g, "y", counted({4, 8}, 0.2), {a, c_});
        c.fetches = {mesh::sum(x, {a}), mesh::einsum({x, y}, {b, c_})};
        return c;
      },
      {{"p:2", "a:p"},
       {"p:2", "b:p"},
       {"p:4", "c:p"},
       {"r:2;s:2", "a:r;b:s"},
       {"r:2;s:2", "b:r;c:s"}});
}

BOOST_AUTO_TEST_CASE(dimensions_that_are_joined_padded_and_cut) {  // S6, S8
  const Dim a{"a", 4}, b{"b", 6};
  const auto got = values_of(
      [&](Graph& g) {
        MeshCase c;
        const Expr x = input(c, g, "x", counted({4, 6}, 0.5), {a, b});
        const Expr joined = concat({x, x * 2.0}, 0), padded = pad(x, {7, 0}, {2, 0}),
                   part = slice(x, {1, 0}, {2, 6});
        c.fetches = {joined, padded, part};
        for (const Expr& e : gradients(sum(joined * joined) + sum(padded * 3.0) + sum(exp(part)),
                                       {c.feeds[0].first}))
          c.fetches.push_back(e);
        return c;
      },
      {{"p:2", "a:p"}, {"p:4", "a:p"}, {"p:2", "b:p"}, {"r:2;s:2", "a:r;b:s"}});
  BOOST_TEST((got[0].shape() == Shape{8, 6}));
  BOOST_TEST((got[1].shape() == Shape{13, 6}));
  BOOST_TEST(got[1].at(7 * 6 + 1) == 0.5);
}

BOOST_AUTO_TEST_CASE(a_variable_is_read_assigned_and_waited_for) {  // S13
  const Dim a{"a", 4}, b{"b", 6};
  values_of(
      [&](Graph& g) {
        MeshCase c;
        const Variable v = g.variable("v", counted({4, 6}, 0.25));
        const Expr x = input(c, g, "x", counted({4, 6}), {a, b});
        const Expr assigned = v.assign(mesh::named(v.read(), {a, b}) + x);
        c.fetches = {assigned, sum(assigned)};
        return c;
      },
      {{"p:2", "a:p"}});
}

BOOST_AUTO_TEST_CASE(strides_and_first_slices) {  // O6
  const Dim a{"a", 2}, b{"b", 3}, d{"d", 6}, e{"e", 5};
  const auto got = values_of(
      [&](Graph& g) {
        MeshCase c;
        const Expr x = input(c, g, "x", counted({2, 3, 6, 5}), {a, b, d, e});
        c.fetches = {strided_slice(x, {0, 0, 0, 0}, {2, 3, 6, 5}, {1, 1, 2, 1}),
                     strided_slice(x, {0, 0, 0, 0}, {2, 3, 6, 5}, {1, 1, 3, 1}),
                     squeeze(slice(x, {0, 0, 0, 0}, {2, 3, 1, 5}), 2)};
        return c;
      },
      {{"p:2", "a:p"}, {"p:2", "d:p"}});
  BOOST_TEST((got[0].shape() == Shape{2, 3, 3, 5}));
  BOOST_TEST(got[0].at(5) == 10);  // x[0, 0, 2, 0]
  BOOST_TEST(got[1].at(5) == 15);  // x[0, 0, 3, 0]
  BOOST_TEST(got[2].at(5) == 30);  // x[0, 1, 0, 0]
}

BOOST_AUTO_TEST_CASE(convolutions_in_one_dimension) {  // O7, O9
  const Dim batch{"batch", 2}, length{"length", 4}, in{"in", 2}, out{"out", 2}, taps{"taps", 3};
  const auto got = values_of(
      [&](Graph& g) {
        MeshCase c;
        const std::vector<double> once{1, 0, 0, 1, 1, 1, 2, 1};
        std::vector<double> twice = once;
        twice.insert(twice.end(), once.begin(), once.end());
        const Expr x = input(c, g, "x", of(twice, {2, 4, 2}), {batch, length, in}),
                   w = input(c, g, "w", of({1, -1, 0, 0, 2, -2, -1, 1, 3, -3, -2, 2}, {3, 2, 2}),
                             {taps, in, out});
        c.fetches = {conv(x, w, {.padding = Padding::same()}), conv(x, w)};
        return c;
      },
      {{"p:2", "batch:p"},
       {"p:2", "length:p"},
       {"p:2", "in:p"},
       {"p:2", "out:p"},
       {"r:2;s:2", "batch:r;length:s"}});
  const std::vector<double> same{0, 0, 1, -1, 5, -5, 4, -4}, valid{1, -1, 5, -5};
  for (std::int64_t i = 0; i < 8; ++i)
    BOOST_TEST(got[0].at(i) == same[static_cast<std::size_t>(i)]);
  BOOST_TEST((got[1].shape() == Shape{2, 2, 2}));
  for (std::int64_t i = 0; i < 4; ++i)
    BOOST_TEST(got[1].at(i) == valid[static_cast<std::size_t>(i)]);
}

BOOST_AUTO_TEST_CASE(pools_and_their_gradients) {  // O11
  const Dim batch{"batch", 2}, h{"h", 4}, w{"w", 6}, channels{"channels", 2};
  const auto got = values_of(
      [&](Graph& g) {
        MeshCase c;
        Tensor mixed = counted({2, 4, 6, 2});
        for (std::int64_t i = 0; i < mixed.elements(); ++i)
          mixed.mutable_data<double>()[i] = static_cast<double>(i * 37 % 97);
        const Expr x = input(c, g, "x", mixed, {batch, h, w, channels});
        const Expr most = max_pool(x, {2, 3}), even = avg_pool(x, {2, 3});
        c.fetches = {most, even, gradients(sum(most), {c.feeds[0].first})[0],
                     gradients(sum(even), {c.feeds[0].first})[0]};
        return c;
      },
      {{"p:2", "batch:p"},
       {"p:2", "channels:p"},
       {"p:2", "h:p"},
       {"p:2", "w:p"},
       {"r:2;s:2", "batch:r;channels:s"}});
  int nonzero = 0;
  for (std::int64_t i = 0; i < got[2].elements(); ++i) nonzero += got[2].at(i) != 0;
  BOOST_TEST(nonzero == 96 / 6);
  for (std::int64_t i = 0; i < got[3].elements(); ++i)
    BOOST_TEST(std::abs(got[3].at(i) - 1.0 / 6) < 1e-15);
}

BOOST_AUTO_TEST_CASE(weights_of_what_is_not_zero) {  // O12
  const Dim a{"a", 2}, b{"b", 3};
  const auto got = values_of(
      [&](Graph& g) {
        MeshCase c;
        const Expr x = input(c, g, "x", of({3, 1, 0, 1, 0, 0}, {2, 3}), {a, b});
        c.fetches = {cast(x != 0.0, DType::f64)};
        return c;
      },
      {{"p:2", "a:p"}});
  check_values(got[0], {1, 1, 0, 1, 0, 0});
}

// Frequent symbols have a table of their own; rare ones have shorter rows and a projection.
BOOST_AUTO_TEST_CASE(an_adaptive_vocabulary) {  // O14
  const Dim n{"n", 6}, first{"first", 2}, second{"second", 3}, low{"low", 1}, width{"width", 2};
  const auto got = values_of(
      [&](Graph& g) {
        MeshCase c;
        const Expr ids = g.input("ids", DType::i64, {6});
        c.feeds.emplace_back(ids, Tensor::of<std::int64_t>({0, 1, 2, 3, 4, 0}, {6}));
        const Expr id = mesh::named(ids, {n});
        const Expr head = input(c, g, "head", of({0, 1, 2, 0}, {2, 2}), {first, width}),
                   tail = input(c, g, "tail", of({1, 2, 3}, {3, 1}), {second, low}),
                   up = input(c, g, "up", of({1, 2}, {1, 2}), {low, width});
        const Expr of_head = matmul(one_hot(id, 2, DType::f64), head),
                   of_tail = matmul(matmul(one_hot(id - 2, 3, DType::f64), tail), up);
        c.fetches = {of_head + of_tail};
        return c;
      },
      {{"p:2", "n:p"}, {"p:2", "width:p"}, {"p:2", "first:p"}, {"r:2;s:2", "n:r;width:s"}});
  check_values(got[0], {0, 1, 2, 0, 1, 2, 2, 4, 3, 6, 0, 1});
}

// All that follows the first end, 1, becomes 0.
BOOST_AUTO_TEST_CASE(decoded_rows_end) {  // O16
  const Dim a{"a", 4}, b{"b", 7};
  const auto got = values_of(
      [&](Graph& g) {
        MeshCase c;
        const Expr x = input(
            c, g, "x",
            of({2, 0, 2, 1, 3, 2, 0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2},
               {4, 7}),
            {a, b});
        const Expr ends = cumsum(cast(x == 1.0, DType::f64), 1, true);
        c.fetches = {where(ends > 0.0, 0.0, x)};
        return c;
      },
      {{"p:2", "a:p"}, {"p:4", "a:p"}});
  check_values(
      got[0], {2, 0, 2, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 2, 1, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2});
}

BOOST_AUTO_TEST_SUITE_END()
