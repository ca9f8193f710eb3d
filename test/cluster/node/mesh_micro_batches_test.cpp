// Training steps in parts of the batch, and steps that compute values again, over meshes: losses
// and gradients as of the whole step, sums that cross devices once, memory of one part.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/micro_batches.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/recompute.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/controlflow/inline_branches.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/subgraph.hpp>
#include <troupe/ops/mesh/automatic.hpp>
#include <troupe/test/support/cluster/mesh_networks.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace troupe::test::meshes;

BOOST_AUTO_TEST_SUITE(mesh_micro_batches_test)

namespace {

const Dim batch{"batch", 16}, in{"in", 4}, hidden{"hidden", 8}, out{"out", 4};

// A network of two layers: inputs, labels and weights are fed.
struct Network {
  Expr x, labels, a, v;
  explicit Network(MeshCase& c, Graph& g) {
    x = input(c, g, "x", counted({16, 4}, 0.02, -0.6), {batch, in});
    labels = input(c, g, "labels", counted({16, 4}, 0.03, -0.9), {batch, out});
    a = input(c, g, "a", counted({4, 8}, 0.05, -0.7), {in, hidden});
    v = input(c, g, "v", counted({8, 4}, -0.04, 0.5), {hidden, out});
  }
  // The mean over rows of the squared errors.
  Expr loss(const Exprs& part, const Dim& rows, bool recomputes = false) const {
    const auto apply = [&](const Expr& e) {
      return mesh::einsum({relu(mesh::einsum({e, a}, {rows, hidden})), v}, {rows, out});
    };
    const Expr y = recomputes ? recompute(apply)(part[0]) : apply(part[0]);
    return mesh::mean(mesh::sum(square(y - part[1]), {out}), {rows});
  }
};

// The step in `count` parts; 0: as a whole.
BuildMesh step(std::int64_t count, bool recomputes = false) {
  return [=](Graph& g) {
    MeshCase c;
    const Network n(c, g);
    if (count == 0) {
      c.fetches = gradients(n.loss({n.x, n.labels}, batch, recomputes), {n.a, n.v});
      c.fetches.push_back(n.loss({n.x, n.labels}, batch));
      return c;
    }
    const LossAndGradients made = micro_batches(
        {n.x, n.labels}, batch, count, {n.a, n.v},
        [&](const Exprs& part, const Dim& rows) { return n.loss(part, rows, recomputes); });
    c.fetches = made.gradients;
    c.fetches.push_back(made.loss);
    return c;
  };
}

std::vector<Tensor> run_whole(const BuildMesh& build) {
  Graph g;
  const MeshCase c = build(g);
  Engine engine;
  return run(engine, g, c, {});
}

// A program as the pass `mesh` takes it: recomputed branches are in their graphs.
Program flat(const Program& from) {
  Rewriter rewriter(from);
  for (std::int32_t id = 0; id < from.graph.size(); ++id) {
    auto node = rewriter.translated(id);
    std::vector<std::shared_ptr<const detail::SubGraph>> graphs;
    for (const auto& sub : detail::subgraphs_of(node)) {
      Program changed = flat({sub->graph, sub->inputs, sub->outputs});
      auto fresh = std::make_shared<detail::SubGraph>(std::move(changed.graph));
      fresh->inputs = std::move(changed.feeds);
      fresh->outputs = std::move(changed.fetches);
      graphs.push_back(std::move(fresh));
    }
    if (!graphs.empty()) node.attrs.set("graphs", detail::make_subgraphs(std::move(graphs)));
    rewriter.replace(id, std::move(node));
  }
  return inline_branches(rewriter.finish());
}
mesh::detail::SpmdProgram flat_spmd_of(Graph& g, const MeshCase& c, const Partitioning& p) {
  Program program = prune(g, edges(fed(c)), edges(c.fetches));
  program.graph.reserve_origins(g.origins());
  return mesh::detail::to_spmd(flat(program), p);
}

// As `check`, of programs that recompute.
void check_recomputed(const BuildMesh& build, const std::vector<Cut>& cuts) {
  run_everywhere(
      build, cuts,
      [](Graph& g, const MeshCase& c, const Cut& cut, const Partitioning& p,
         const std::string& what) {
        const auto spmd = flat_spmd_of(g, c, p);
        std::string counted;
        for (const auto& [op, n] : counts_of(spmd)) counted += " " + op + " " + std::to_string(n);
        BOOST_TEST((counts_of(spmd) == cut.counts), what << ": collectives are" << counted);
      },
      [](const Tensor&) { return 1e-12; });
}

// The collectives in the bodies of loops alone.
Counts inside(const BuildMesh& build, const char* axes, const char* layout) {
  Graph g;
  const MeshCase c = build(g);
  const auto spmd = flat_spmd_of(g, c, {mesh_of(axes, places()[0]), Layout(layout)});
  return counts_inside(spmd);
}

}  // namespace

BOOST_AUTO_TEST_CASE(parts_yield_the_whole_steps_loss_and_gradients) {
  const std::vector<Tensor> wanted = run_whole(step(0));
  for (const std::int64_t count : {1, 2, 4, 8, 16}) {
    const std::vector<Tensor> got = run_whole(step(count));
    for (std::size_t i = 0; i < wanted.size(); ++i)
      check_close(got[i], wanted[i], 1e-12, std::to_string(count) + " parts");
  }
}

BOOST_AUTO_TEST_CASE(parts_run_on_pieces_under_each_layout) {
  // Two gradients and the loss are summed after the loop.
  check(step(4), {{"r:1", "batch:r", kNone},
                  {"r:2", "batch:r", all_reduces(3)},
                  {"p:4", "batch:p", all_reduces(3)},
                  {"r:2", "hidden:r", all_reduces(1)},
                  {"r:2;c:2", "batch:r;hidden:c", all_reduces(4)}});
}

BOOST_AUTO_TEST_CASE(gradients_of_parts_cross_devices_after_the_loop) {
  BOOST_TEST((inside(step(4), "r:2", "batch:r") == kNone));
  BOOST_TEST((inside(step(4), "p:4", "batch:p") == kNone));
  // The hidden layer's sum is needed in each part.
  BOOST_TEST((inside(step(4), "r:2", "hidden:r") == all_reduces(1)));
}

BOOST_AUTO_TEST_CASE(random_layouts_keep_losses_and_gradients) {
  constexpr unsigned kSeed = 41;
  BOOST_TEST_MESSAGE("seed " << kSeed);
  std::mt19937 random(kSeed);
  const std::vector<Tensor> wanted = run_whole(step(0));
  Engine engine;
  for (int round = 0; round < 24; ++round) {
    std::vector<std::string> axes{"r", "c"};
    std::shuffle(axes.begin(), axes.end(), random);
    std::vector<std::string> dims{"batch", "in", "hidden", "out"};
    std::shuffle(dims.begin(), dims.end(), random);
    const std::string layout = dims[0] + ":" + axes[0] + ";" + dims[1] + ":" + axes[1];
    const std::int64_t count = std::int64_t{1} << (random() % 4);
    Graph g;
    const MeshCase c = step(count, random() % 2 == 0)(g);
    const std::vector<Tensor> got =
        run(engine, g, c, Partitioning{mesh_of("r:2;c:2", places()[0]), Layout(layout)});
    for (std::size_t i = 0; i < wanted.size(); ++i)
      check_close(got[i], wanted[i], 1e-12, layout + ", parts: " + std::to_string(count));
  }
}

BOOST_AUTO_TEST_CASE(parts_read_variables_where_there_is_no_mesh) {
  Graph g;
  const Expr x = mesh::named(g.input("x", DType::f64, {16, 4}), {batch, in});
  const Variable w = g.variable("w", counted({4, 4}, 0.1));
  const auto loss = [&](const Exprs& part, const Dim& rows) {
    return mesh::mean(
        mesh::sum(square(mesh::einsum({part[0], mesh::named(w.read(), {in, out})}, {rows, out})),
                  {out}),
        {rows});
  };
  const LossAndGradients parts = micro_batches({x}, batch, 4, {w}, loss);
  const Expr whole = loss({x}, batch);
  Engine engine;
  const std::vector<Tensor> got =
      engine.run(g, {{x, counted({16, 4}, 0.02, -0.6)}},
                 {parts.loss, whole, parts.gradients[0], gradients(whole, {w})[0]});
  check_close(got[0], got[1], 1e-12, "the loss");
  check_close(got[2], got[3], 1e-12, "the gradient");
}

BOOST_AUTO_TEST_CASE(a_network_trains_in_parts_on_pieces) {
  std::vector<double> last;
  for (const std::int64_t count : {0, 4}) {
    Graph g;
    MeshCase c;
    const Expr x = input(c, g, "x", counted({16, 4}, 0.02, -0.6), {batch, in});
    const Variable w = g.variable("w", counted({4, 4}, 0.1, -0.6));
    const Expr read = mesh::named(w.read(), {in, out});
    const auto loss = [&](const Exprs& part, const Dim& rows) {
      const Expr y = tanh(mesh::einsum({part[0], read}, {rows, out}));
      return mesh::mean(mesh::sum(square(y - 0.5), {out}), {rows});
    };
    LossAndGradients made;
    if (count > 0) made = micro_batches({x}, batch, count, {read}, loss);
    else made.loss = loss({x}, batch), made.gradients = gradients(made.loss, {read});
    const Expr applied = Sgd({.learning_rate = 0.5}).apply(made.gradients, {w});
    c.fetches = {made.loss, applied};
    Engine engine;
    const Partitioning p{mesh_of("r:2;c:2", places()[0]), Layout("batch:r;out:c")};
    std::vector<double> losses;
    for (int i = 0; i < 10; ++i) losses.push_back(run(engine, g, c, p)[0].at(0));
    BOOST_TEST(losses.back() < losses.front());
    if (!last.empty())
      for (std::size_t i = 0; i < losses.size(); ++i)
        BOOST_TEST(std::abs(losses[i] - last[i]) < 1e-12);
    last = losses;
  }
}

BOOST_AUTO_TEST_CASE(activations_take_the_memory_of_one_part) {
  constexpr std::int64_t kRows = 2048, kWide = 16;
  const Dim rows_of_all{"rows", kRows}, wide{"wide", kWide};
  const auto peak = [&](std::int64_t count) {
    Graph g;
    const Expr x = mesh::named(g.input("x", DType::f64, {kRows, kWide}), {rows_of_all, wide});
    const Expr w = g.input("w", DType::f64, {kWide, kWide});
    const auto made =
        micro_batches({x}, rows_of_all, count, {w}, [&](const Exprs& part, const Dim&) {
          Expr y = part[0];
          for (int i = 0; i < 10; ++i) y = tanh(matmul(y, w));
          return mean(square(y));
        });
    EngineOptions options;
    options.workers = 1;
    options.default_device = "sim:0";
    Engine engine(options);
    engine.run(g, {{x, counted({kRows, kWide}, 0.0001)}, {w, counted({kWide, kWide}, 0.003)}},
               {made.loss, made.gradients[0]});
    return engine.device("sim:0").allocator().counters().peak;
  };
  const std::uint64_t whole = peak(1), parts = peak(16);
  BOOST_TEST(parts * 2 < whole, "as a whole " << whole << " bytes, in 16 parts " << parts);
}

BOOST_AUTO_TEST_CASE(parts_that_do_not_divide_are_refused) {
  Graph g;
  MeshCase c;
  const Network n(c, g);
  const auto loss = [&](const Exprs& part, const Dim& rows) { return n.loss(part, rows); };
  check_refused(
      [&] {
        micro_batches({n.x, n.labels}, batch, 3, {n.a}, loss);
      },
      {"micro_batches at mesh_micro_batches_test.cpp:",
       "dimension 'batch' of size 16 does not divide into 3 parts"});
  check_refused([&] { micro_batches({n.x}, batch, 0, {n.a}, loss); }, {"into 0 parts"});
  check_refused([&] { micro_batches({}, batch, 2, {n.a}, loss); }, {"it has no input"});
  check_refused(
      [&] {
        micro_batches({n.x, n.a}, batch, 2, {n.a}, loss);
      },
      {"micro_batches at", "no dimension 'batch' of size 16; it has in, hidden"});
  check_refused(
      [&] {
        micro_batches({n.x}, batch, 2, {n.a},
                      [](const Exprs& part, const Dim&) { return part[0]; });
      },
      {"its loss is f64[8, 4]; it must be a floating scalar"});
}

BOOST_AUTO_TEST_CASE(layouts_that_do_not_divide_a_part_are_refused) {
  Graph g;
  const MeshCase c = step(8)(g);
  Engine engine;
  check_refused(
      [&] {
        run(engine, g, c, Partitioning{mesh_of("p:4", places()[0]), Layout("batch:p")});
      },
      {"mesh_micro_batches_test.cpp:", "axis 'p' of 4 devices", "'batch/8' of size 2"});
}

BOOST_AUTO_TEST_CASE(parts_follow_a_rule_of_their_own) {
  check(step(4), {{"r:2", "batch/4:r", {{"MeshAllReduce", 3}}}});
}

BOOST_AUTO_TEST_CASE(a_layout_is_chosen_for_a_step_in_parts) {
  Graph g;
  const MeshCase c = step(8)(g);
  const mesh::LayoutChoice choice =
      mesh::automatic_layout(g, fed(c), c.fetches, mesh_of("p:4", places()[0]));
  // Parts of two rows are not split over four devices.
  BOOST_TEST(!choice.layout.axis_of("batch").has_value());
}

// ---- recomputation

BOOST_AUTO_TEST_CASE(recomputed_steps_run_on_pieces) {
  // The hidden layer's sum is needed by the recomputed loss, and by the one that is fetched.
  check_recomputed(step(0, true), {{"r:2", "batch:r", all_reduces(3)},
                                   {"p:4", "batch:p", all_reduces(3)},
                                   {"r:2", "hidden:r", all_reduces(2)},
                                   {"r:2;c:2", "batch:r;hidden:c", all_reduces(5)}});
}

BOOST_AUTO_TEST_CASE(recomputed_parts_run_on_pieces) {
  check_recomputed(step(4, true),
                   {{"r:2", "batch:r", all_reduces(3)}, {"p:4", "batch:p", all_reduces(3)}});
  BOOST_TEST((inside(step(4, true), "r:2", "batch:r") == kNone));
}

BOOST_AUTO_TEST_CASE(recomputed_scans_run_on_pieces) {
  const BuildMesh build = scan_of(batch, in, out, counted({5, 16, 4}, 0.002, -0.3),
                                  [](const Expr& h, const Expr& at, const Expr& w) {
                                    return recompute([&](const Expr& e, const Expr& f) {
                                      return tanh(mesh::named(matmul(e, w), {batch, in}) + f);
                                    })(h, at);
                                  });
  check_recomputed(build, {{"r:2", "batch:r", all_reduces(1)}});
  BOOST_TEST((inside(build, "r:2", "batch:r") == kNone));
}

BOOST_AUTO_TEST_SUITE_END()
