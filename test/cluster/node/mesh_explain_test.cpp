// `Function::explain` of a program over a mesh: the predicted step, and each kernel and collective
// of a device with its layout, bytes, time and reason. Layouts are chosen by the same predictions.
#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include <fmt/format.h>

#include <troupe/autodiff/optimizer.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/devices/base/text.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/mesh/cost.hpp>
#include <troupe/ops/mesh/join_all_reduces.hpp>
#include <troupe/test/support/cluster/meshes.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace troupe::test::meshes;

BOOST_AUTO_TEST_SUITE(mesh_explain_test)

namespace {

const Dim kBatch{"batch", 64}, kIn{"in", 32}, kHidden{"hidden", 128}, kOut{"out", 16};

// A step of two layers.
struct Network {
  Graph g;
  Exprs feeds, fetches;
  Network() {
    const auto weight = [&](const char* name, const Dims& dims) {
      return g.variable(name, DType::f32, {dims[0].size, dims[1].size},
                        Initializer::normal(0, 0.1, 3));
    };
    const Variable w = weight("w", {kIn, kHidden}), v = weight("v", {kHidden, kOut});
    feeds = {g.input("x", DType::f32, {kBatch.size, kIn.size})};
    const Expr x = mesh::named(feeds[0], {kBatch, kIn});
    const Expr h =
        relu(mesh::einsum({x, mesh::named(w.read(), {kIn, kHidden})}, {kBatch, kHidden}));
    const Expr y = mesh::einsum({h, mesh::named(v.read(), {kHidden, kOut})}, {kBatch, kOut});
    const Expr loss = mean(square(y));
    fetches = {loss, Sgd({.learning_rate = 0.1}).minimize(loss, {w, v})};
  }
};

bool says(const std::string& text, const std::string& part) {
  const bool is_there = text.find(part) != std::string::npos;
  if (!is_there) BOOST_TEST_MESSAGE("'" << part << "' is not in:\n" << text);
  return is_there;
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

BOOST_AUTO_TEST_CASE(explain_has_layouts_collectives_times_and_bytes) {
  Network n;
  Engine engine;
  CompileOptions options;
  options.mesh = Partitioning{mesh_of("p:2", places()[0]), Layout("batch:p")};
  const std::string text = engine.compile(n.g, n.feeds, n.fetches, options).explain();
  // Gradients and loss: 32 * 128 + 128 * 16 + 1 numbers of four bytes, half of them sent twice.
  const double sent = 4 * (32 * 128 + 128 * 16 + 1);
  BOOST_TEST(says(text, "mesh p:2, layout 'batch:p': "));
  BOOST_TEST(says(text, "of them for 1 collectives, which send " + readable_bytes(sent)));
  BOOST_TEST(says(text, "all-reduce of f32[6145] along 'p', 2 devices, at "));
  BOOST_TEST(says(text, "sends " + readable_bytes(sent) + ": 3 sums are one"));
  BOOST_TEST(says(text, "[batch/p, hidden] f32[32, 128]"));
  BOOST_TEST(says(text, " live: MatMul "));
}

BOOST_AUTO_TEST_CASE(explain_and_the_choice_of_layouts_have_one_prediction) {
  Network n;
  for (const char* layout : {"", "batch:p", "hidden:p", "in:p"}) {
    const Partitioning p{mesh_of("p:4", places()[0]), Layout(layout)};
    const mesh::LayoutCost cost = mesh::predict(n.g, n.feeds, n.fetches, p);
    const std::vector<std::string> lines = mesh::detail::explained(
        mesh::detail::join_all_reduces(spmd_of(n.g, n.feeds, n.fetches, p)), p);
    BOOST_TEST(says(lines[0], fmt::format("{:.1f} us a step", cost.ns() / 1000)));
    BOOST_TEST(says(lines[0], fmt::format("{:.1f} us of them for", cost.collectives_ns / 1000)));
    BOOST_TEST(says(
        lines[0], readable_bytes(static_cast<double>(cost.peak_bytes)) + " at most live at once"));
  }
}

BOOST_AUTO_TEST_CASE(explain_lists_what_a_loop_does_below_it) {
  Graph g;
  const Dim m{"m", 4}, k{"k", 4};
  const Expr x = g.input("x", DType::f32, {4, 4}), w = g.input("w", DType::f32, {4, 4});
  const Expr named_w = mesh::named(w, {k, {"n", 4}});
  const Expr last = for_loop(
      0, 3,
      [&](const Expr&, const Expr& a) {
        return mesh::named(matmul(a, named_w), {m, k});
      },
      mesh::named(x, {m, k}));
  Engine engine;
  CompileOptions options;
  options.mesh = Partitioning{mesh_of("p:2", places()[0]), Layout("k:p")};
  const std::string text = engine.compile(g, {x, w}, {last}, options).explain();
  // The product is summed in each iteration; its columns are renamed to split ones.
  BOOST_TEST(count(text, "reduce-scatter of f32[4, 4]") + count(text, "all-reduce of f32[4, 4]") >=
             1);
  BOOST_TEST(says(text, "While "));
}

BOOST_AUTO_TEST_SUITE_END()
