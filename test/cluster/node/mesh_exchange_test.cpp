// Operations along a split axis: small exchanges in the place of a gather. Row marks (V8, S12, O1)
// are those of the cases.
#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/mesh/shift.hpp>
#include <troupe/test/support/cluster/meshes.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace troupe::test::meshes;

BOOST_AUTO_TEST_SUITE(mesh_exchange_test)

namespace {

const Dim row{"row", 8}, column{"column", 6};

Counts shifts(int n) { return {{"MeshShift", n}}; }

std::vector<double> numbers(const Tensor& t) { return t.to_vector<double>(); }

}  // namespace

BOOST_AUTO_TEST_CASE(elements_shift_over_devices) {  // V8
  for (const bool wraps : {true, false}) {
    const std::vector<Tensor> got = check(
        [&](Graph& g) {
          MeshCase c;
          const Expr x = input(c, g, "x", counted(Shape{8}), {row});
          c.fetches = {mesh::shift(x, row, 1, wraps)};
          return c;
        },
        {{"r:2", "row:r", shifts(1)}, {"p:4", "row:p", shifts(1)}, {"r:2", "", kNone}});
    check_values(got[0], {wraps ? 7.0 : 0.0, 0, 1, 2, 3, 4, 5, 6});
  }
}

BOOST_AUTO_TEST_CASE(a_device_without_a_neighbour_receives_nothing) {
  Graph g;
  MeshCase c;
  const Expr x = input(c, g, "x", counted(Shape{8}), {row});
  c.fetches = {mesh::shift(x, row, 1)};
  const Partitioning p{mesh_of("p:4", places()[0]), Layout("row:p")};
  const Program program =
      mesh::detail::expand(mesh::detail::one_program(spmd_of(g, fed(c), c.fetches, p)), p.mesh);
  int received = 0;
  for (const auto& n : program.graph.nodes())
    if (n.op->name == "Identity" && program.graph.node(n.inputs[0].node).device != n.device)
      ++received;
  BOOST_TEST(received == 3);
}

BOOST_AUTO_TEST_CASE(shifts_of_any_length_equal_those_of_whole_values) {  // S12
  for (const bool wraps : {true, false})
    for (const std::int64_t by : {-9, -8, -5, -2, -1, 0, 2, 3, 4, 7, 11}) {
      Graph g;
      MeshCase c;
      const Expr x = input(c, g, "x", counted({8, 6}, 0.5, 1), {row, column});
      const Expr y = mesh::shift(x, row, by, wraps);
      c.fetches = gradients(sum(y * y * y), {x});
      c.fetches.push_back(y);
      Engine whole, cut;
      const std::vector<Tensor> wanted = run(whole, g, c, std::nullopt);
      const Partitioning p{mesh_of("r:2;c:2", places()[0]), Layout("row:r;column:c")};
      const std::vector<Tensor> got = run(cut, g, c, p);
      for (std::size_t i = 0; i < 2; ++i)
        check_close(got[i], wanted[i], 0, "by " + std::to_string(by));
      for (std::int64_t i = 0; i < 8; ++i) {
        const std::int64_t from = wraps ? ((i - by) % 8 + 8) % 8 : i - by;
        const double first = from >= 0 && from < 8 ? 1 + 3.0 * static_cast<double>(from) : 0;
        BOOST_TEST(wanted[1].at(6 * i) == first, "by " << by << ", row " << i);
      }
    }
  Graph g;
  MeshCase c;
  const Expr x = input(c, g, "x", counted(Shape{8}), {row});
  check_refused([&] { mesh::shift(x, column, 1); },
                {"mesh_exchange_test.cpp:", "no dimension 'column' of size 6", "row:8"});
}

BOOST_AUTO_TEST_CASE(running_sums_gather_totals_alone) {
  const Counts totals{{"MeshAllGather", 4}};
  const std::vector<Tensor> got = check(
      [&](Graph& g) {
        MeshCase c;
        const Expr x = input(c, g, "x", counted({8, 6}, 0.25, -2), {row, column});
        c.fetches = {cumsum(x, 0), cumsum(x, 0, true), cumsum(x, 0, false, true),
                     cumsum(x, 0, true, true)};
        return c;
      },
      {{"r:2", "row:r", totals}, {"p:4", "row:p", totals}, {"r:2", "column:r", kNone}});
  BOOST_TEST(numbers(got[0])[42] == numbers(got[2])[0]);
}

BOOST_AUTO_TEST_CASE(the_largest_elements_of_a_split_row) {  // O1
  const Dim all{"a", 6}, b{"b", 2};
  const std::vector<Tensor> got = check(
      [&](Graph& g) {
        MeshCase c;
        const Tensor values = Tensor::of<double>({1, 10, 2, 9, 3, 8, 4, 7, 5, 6, 6, 5}, {6, 2});
        const Expr x = transpose(input(c, g, "x", values, {all, b}), {1, 0});
        const Exprs top = top_k(x, 4), ties = top_k(floor(x * 0.34), 5);
        c.fetches = {top[0], cast(top[1], DType::f64), ties[0], cast(ties[1], DType::f64)};
        return c;
      },
      {{"p:2", "a:p", {{"MeshAllGather", 4}}},
       {"p:3", "a:p", {{"MeshAllGather", 4}}},
       {"p:2", "b:p", kNone}});
  // Counted from 0, the second of each.
  BOOST_TEST(numbers(got[0])[1] == 5);
  BOOST_TEST(numbers(got[0])[5] == 9);
}

BOOST_AUTO_TEST_CASE(convolutions_exchange_the_rows_beside_their_own) {  // S10
  const Dim batch{"batch", 2}, height{"height", 8}, width{"width", 6}, in{"in", 2}, out{"out", 4},
      fh{"fh", 3}, fw{"fw", 2};
  const auto build = [&](Graph& g) {
    MeshCase c;
    const Expr x = input(c, g, "x", counted({2, 8, 6, 2}, 0.01, -1), {batch, height, width, in});
    const Expr w = input(c, g, "w", counted({3, 2, 2, 4}, 0.02, -0.5), {fh, fw, in, out});
    const Expr y = conv(x, w, {.padding = Padding::same()});
    BOOST_TEST((mesh::dims_of(y) == Dims{batch, height, width, out}));
    c.fetches = gradients(sum(y * y * 0.5), {x, w});
    c.fetches.push_back(y);
    return c;
  };
  // Forward and the filter's gradient take rows of x from both sides, the other gradient rows of
  // dy; a window of two along the width reaches to one side.
  check(build, {{"r:2", "height:r", {{"MeshShift", 6}, {"MeshAllReduce", 1}}},
                {"p:4", "height:p", {{"MeshShift", 6}, {"MeshAllReduce", 1}}},
                {"r:2", "width:r", {{"MeshShift", 3}, {"MeshAllReduce", 1}}},
                {"r:2;c:2", "height:r;width:c", {{"MeshShift", 9}, {"MeshAllReduce", 2}}},
                {"r:2;c:2", "height:r;out:c", {{"MeshShift", 6}, {"MeshAllReduce", 2}}},
                {"r:2;c:2", "height:r;in:c", {{"MeshShift", 6}, {"MeshAllReduce", 2}}}});
}

BOOST_AUTO_TEST_CASE(dimensions_that_an_operation_must_split_are_not_gathered) {  // S1 to S13
  const Dim a{"a", 4}, b{"b", 6}, d{"c", 8}, wide{"x", 12}, low{"y", 2};
  const auto build = [&](const std::function<Exprs(Graph&, Expr)>& f) {
    return [=](Graph& g) {
      MeshCase k;
      k.fetches = f(g, input(k, g, "in", counted({4, 6}, 0.1, -1), {a, b}));
      return k;
    };
  };
  const std::vector<Cut> both{
      {"r:2", "a:r", kNone}, {"r:2", "b:r", kNone}, {"r:2;s:2", "a:r;b:s", kNone}};
  check(build([](Graph&, Expr x) { return gradients(sum(exp(x)), {x}); }), both);  // S1
  check(build([](Graph&, Expr x) { return Exprs{x * 3.0 + 1.0}; }), both);         // S2
  check(build([&](Graph& g, Expr x) {                                              // S3
          const Expr y = mesh::named(g.constant(counted({4, 8})), {a, d});
          return Exprs{x * y};
        }),
        both);
  check(build([](Graph&, Expr x) {
          return Exprs{concat({x, x}, 1) * 1.0};
        }),
        {{"r:2", "a:r", kNone}});  // S6
  check(build([](Graph&, Expr x) {
          return Exprs{pad(x, {0, 7}, {0, 2})};
        }),
        {{"r:2", "a:r", kNone}});   // S8
  check(build([](Graph&, Expr x) {  // with gradients, and starts that count from the end
          const Exprs parts = split(concat({x, x * 2.0}, 1), {5, 7}, 1);
          const Expr y = sum(exp(parts[0])) + sum(square(parts[1])) +
                         sum(exp(slice(x, {-4, 2}, {4, 3}))) + sum(exp(pad(x, {0, 7}, {0, 2})));
          return Exprs{gradients(y, {x})[0], parts[1], slice(x, {-4, 1}, {4, 2})};
        }),
        {{"r:2", "a:r", kNone}, {"p:4", "a:p", kNone}});  // S6, S8
  check(build([&](Graph&, Expr x) {                       // S12
          const Expr hot = one_hot(cast(abs(x), DType::i64), 8, DType::f64);
          return Exprs{hot, stop_gradient(x), mesh::shift(x, b, -5, true) * 0.0};
        }),
        {{"r:2", "a:r", kNone}});
  check(build([&](Graph&, Expr x) {
          return Exprs{mesh::reshape(x, {wide, low})};
        }),
        {{"r:2", "a:r", {{"MeshAllGather", 1}}}});  // the extents of 4, 6 and 12, 2 cross
}

BOOST_AUTO_TEST_SUITE_END()
