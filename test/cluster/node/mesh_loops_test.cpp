// Loops, branches and scans over meshes: each device runs the body on its pieces.
#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/cluster/mesh_networks.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace troupe::test::meshes;

BOOST_AUTO_TEST_SUITE(mesh_loops_test)

namespace {

// The collectives in the sub-graphs of loops and branches alone.
Counts inside(const BuildMesh& build, const char* axes, const char* layout) {
  Graph g;
  const MeshCase c = build(g);
  const auto spmd = spmd_of(g, fed(c), c.fetches, {mesh_of(axes, places()[0]), Layout(layout)});
  return counts_inside(spmd);
}

const Dim batch{"batch", 4}, depth{"depth", 4}, next_depth{"next", 4};

}  // namespace

BOOST_AUTO_TEST_CASE(a_loop_over_a_split_batch_sends_nothing) {  // V11
  const BuildMesh build = [](Graph& g) {
    MeshCase c;
    Tensor half = Tensor::zeros(DType::f64, {4, 4});
    for (int i = 0; i < 4; ++i) half.mutable_data<double>()[5 * i] = 0.5;
    const Expr x = input(c, g, "x", counted({4, 4}), {batch, depth});
    const Expr w = input(c, g, "w", half, {depth, next_depth});
    c.fetches = {for_loop(
        0, 3,
        [&](Expr, Expr v) {
          return mesh::named(matmul(v, w), {batch, depth});
        },
        x)};
    return c;
  };
  const std::vector<Tensor> got =
      check(build, {{"r:2", "batch:r", kNone},
                    {"p:4", "batch:p", kNone},
                    {"r:2", "depth:r", {{"MeshReduceScatter", 1}}},
                    {"r:2;c:2", "batch:r;depth:c", {{"MeshReduceScatter", 1}}}});
  for (std::int64_t i = 0; i < 16; ++i) BOOST_TEST(got[0].at(i) == static_cast<double>(i) / 8);
  BOOST_TEST((inside(build, "r:2", "batch:r") == kNone));
}

BOOST_AUTO_TEST_CASE(a_while_loop_runs_on_pieces_of_both_dimensions) {  // S15
  const Dim a{"a", 4}, b{"b", 6};
  const BuildMesh build = [&](Graph& g) {
    MeshCase c;
    const Expr x = input(c, g, "x", counted({4, 6}), {a, b});
    const auto [i, y] = while_loop([](Expr n, Expr) { return n < 10; },
                                   [](Expr n, Expr v) {
                                     return std::tuple{n + 1, v * 2.0};
                                   },
                                   std::tuple{g.constant(0), x});
    c.fetches = {i, y};
    return c;
  };
  const std::vector<Tensor> got =
      check(build, {{"r:2", "a:r", kNone}, {"r:2", "b:r", kNone}, {"r:2;s:2", "a:r;b:s", kNone}});
  BOOST_TEST(got[0].at(0) == 10);
  BOOST_TEST(got[1].at(5) == 5 * 1024);
}

BOOST_AUTO_TEST_CASE(a_loop_may_end_by_a_sum_over_devices) {
  const Dim a{"a", 4};
  check(
      [&](Graph& g) {
        MeshCase c;
        const Expr x = input(c, g, "x", counted({4}, 1, 1), {a});
        c.fetches = {
            while_loop([](Expr v) { return sum(v) < 100.0; }, [](Expr v) { return v * 1.5; }, x)};
        return c;
      },
      {{"r:2", "a:r", all_reduces(1)}});
}

BOOST_AUTO_TEST_CASE(gradients_go_through_loops_on_pieces) {
  const BuildMesh build = [](Graph& g) {
    MeshCase c;
    const Expr x = input(c, g, "x", counted({4, 4}, 0.1, -0.7), {batch, depth});
    const Expr w = input(c, g, "w", counted({4, 4}, 0.05, -0.3), {depth, next_depth});
    const Expr y = for_loop(
        0, 3,
        [&](Expr, Expr v) {
          return mesh::named(tanh(matmul(v, w)), {batch, depth});
        },
        x);
    c.fetches = gradients(sum(y * y), {x, w});
    c.fetches.push_back(y);
    return c;
  };
  check(build, {{"r:2", "batch:r", all_reduces(1)}, {"p:4", "batch:p", all_reduces(1)}});
  // The gradient of w is summed once, after the loop.
  BOOST_TEST((inside(build, "r:2", "batch:r") == kNone));
}

BOOST_AUTO_TEST_CASE(sums_of_iterations_cross_devices_after_the_loop) {
  const BuildMesh build = [](Graph& g) {
    MeshCase c;
    const Expr x = input(c, g, "x", counted({4, 4}, 0.1, -0.7), {batch, depth});
    const Expr w = input(c, g, "w", counted({4, 4}, 0.05, -0.3), {depth, next_depth});
    const Expr b = input(c, g, "b", counted({4}, 0.05, -0.1), {next_depth});
    const auto [v, total, unused] = for_loop(
        0, 3,
        [&](Expr, Expr u, Expr sum_of_squares, Expr largest) {
          const Expr next = tanh(matmul(u, w) + b);
          return std::tuple{mesh::named(next, {batch, depth}), sum_of_squares + sum(next * next),
                            maximum(largest, reduce_max(next, {0, 1}))};
        },
        std::tuple{x, g.constant(Tensor::scalar(0.0)), g.constant(Tensor::scalar(0.0))});
    // The bias's gradient is a sum over rows, and no product of saved lists.
    c.fetches = gradients(sum(v * v) + total, {x, w, b});
    c.fetches.insert(c.fetches.end(), {v, total, unused});
    return c;
  };
  check(build,
        {{"r:2", "batch:r", {{"MeshAllReduce", 4}}}, {"p:4", "batch:p", {{"MeshAllReduce", 4}}}});
  // The maximum alone is needed in each iteration.
  BOOST_TEST((inside(build, "r:2", "batch:r") == all_reduces(1)));
}

BOOST_AUTO_TEST_CASE(a_sum_that_the_body_reads_crosses_devices_in_the_loop) {
  const BuildMesh build = [](Graph& g) {
    MeshCase c;
    const Expr x = input(c, g, "x", counted({4, 4}, 0.1, -0.7), {batch, depth});
    const auto [v, total] = for_loop(
        0, 3,
        [&](Expr, Expr u, Expr sum_of_all) {
          return std::tuple{u * 0.5 + sum_of_all * 0.01, sum_of_all + sum(u)};
        },
        std::tuple{x, g.constant(Tensor::scalar(0.0))});
    c.fetches = {v, total};
    return c;
  };
  check(build,
        {{"r:2", "batch:r", all_reduces(1)}, {"r:2;c:2", "batch:r;depth:c", all_reduces(2)}});
}

BOOST_AUTO_TEST_CASE(scans_run_on_pieces) {
  const BuildMesh build = scan_of(batch, depth, next_depth, counted({5, 4, 4}, 0.02, -0.7),
                                  [](const Expr& h, const Expr& at, const Expr& w) {
                                    return tanh(mesh::named(matmul(h, w), {batch, depth}) + at);
                                  });
  check(build, {{"r:2", "batch:r", all_reduces(1)}});
  BOOST_TEST((inside(build, "r:2", "batch:r") == kNone));
}

BOOST_AUTO_TEST_CASE(branches_run_on_pieces) {
  const BuildMesh build = [](Graph& g) {
    MeshCase c;
    const Expr x = input(c, g, "x", counted({4, 4}, 0.1, -0.7), {batch, depth});
    const Expr w = input(c, g, "w", counted({4, 4}, 0.05), {depth, next_depth});
    const Expr is_large = g.input("is_large", DType::boolean, {});
    c.feeds.emplace_back(is_large, Tensor::scalar(true));
    const Expr y = cond(
        is_large,
        [&] {
          return mesh::named(matmul(x, w), {batch, depth});
        },
        [&] { return x * 2.0; });
    c.fetches = gradients(sum(tanh(y)), {x, w});
    c.fetches.push_back(y);
    return c;
  };
  check(build, {{"r:2", "batch:r", all_reduces(1)}, {"p:4", "batch:p", all_reduces(1)}});
}

BOOST_AUTO_TEST_CASE(a_body_may_read_a_variable) {
  Graph g;
  MeshCase c;
  const Expr x = input(c, g, "x", counted({4, 4}, 0.1), {batch, depth});
  const Variable w = g.variable("w", counted({4, 4}, 0.05, -0.3));
  c.fetches = {for_loop(
      0, 3,
      [&](Expr, Expr v) {
        return mesh::named(matmul(v, mesh::named(w.read(), {depth, next_depth})), {batch, depth});
      },
      x)};
  Engine whole, cut;
  const Tensor wanted = run(whole, g, c, {})[0];
  for (const char* layout : {"batch:r", "depth:r"})
    check_close(run(cut, g, c, Partitioning{mesh_of("r:2", places()[0]), Layout(layout)})[0],
                wanted, 1e-12, layout);
}

BOOST_AUTO_TEST_CASE(a_loop_of_what_has_no_names_runs_once) {
  Graph g;
  MeshCase c;
  const Expr x = input(c, g, "x", counted({4, 4}), {batch, depth});
  const Expr n = for_loop(
      0, 4, [](Expr, Expr s) { return s * 2.0; }, g.constant(Tensor::scalar(1.0)));
  c.fetches = {x * n};
  const Partitioning p{mesh_of("r:2", places()[0]), Layout("batch:r")};
  BOOST_TEST(spmd_of(g, fed(c), c.fetches, p).flows.empty());
  Engine engine;
  BOOST_TEST(run(engine, g, c, p)[0].at(15) == 240);
}

BOOST_AUTO_TEST_SUITE_END()
