// Not under asan and tsan: mesh_variables_test runs the same programs.
// A small Transformer language model with named dimensions learns alike under data-parallel,
// model-parallel and mixed layouts.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/mesh/join_all_reduces.hpp>
#include <troupe/test/support/cluster/meshes.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace troupe::test::meshes;

BOOST_AUTO_TEST_SUITE(mesh_models_test)

namespace {

const Dim kBatch{"batch", 4}, kLength{"length", 4}, kMemory{"memory", 4}, kModel{"model", 8},
    kHeads{"heads", 2}, kDepth{"depth", 4}, kInner{"d_ff", 16}, kVocabulary{"vocabulary", 16};

class Transformer {
 public:
  Graph g;
  Expr ids, targets, loss, step;

  Transformer() {
    ids = g.input("ids", DType::i64, {4, 4});
    targets = g.input("targets", DType::i64, {4, 4});
    const Expr table = parameter("table", {kVocabulary, kModel});
    Expr x = gather(table, mesh::named(ids, {kBatch, kLength}));
    for (int layer = 0; layer < 2; ++layer) {
      const auto scope = g.scope("layer" + std::to_string(layer));
      x = x + attention_of(normal(x));
      x = x + feed_forward(normal(x));
    }
    const Expr logits = mesh::einsum({normal(x), table}, {kBatch, kLength, kVocabulary});
    const Expr wanted =
        mesh::named(one_hot(mesh::named(targets, {kBatch, kLength}), 16, DType::f64),
                    {kBatch, kLength, kVocabulary});
    loss = -sum(wanted * log_softmax(logits)) * (1.0 / 16);
    step = Adam({.learning_rate = 0.02}).minimize(loss, variables_);
  }

 private:
  Expr parameter(const std::string& name, const Dims& dims) {
    Shape shape;
    for (const Dim& d : dims) shape.push_back(d.size);
    variables_.push_back(g.variable(name, DType::f64, shape, Initializer::normal(0, 0.3, 5)));
    return mesh::named(variables_.back().read(), dims);
  }
  // Zhang and Sennrich, NeurIPS 2019, without a scale.
  Expr normal(const Expr& x) {
    const Expr squares = mean(x * x, {2}, true);
    return x / sqrt(squares + 1e-6);
  }
  Expr attention_of(const Expr& x) {
    const Dims dims{kBatch, kHeads, kLength, kDepth}, of_memory{kBatch, kHeads, kMemory, kDepth};
    const Expr q = mesh::einsum({x, parameter("q", {kModel, kHeads, kDepth})}, dims);
    const Expr k =
        mesh::named(mesh::einsum({x, parameter("k", {kModel, kHeads, kDepth})}, dims), of_memory);
    const Expr v =
        mesh::named(mesh::einsum({x, parameter("v", {kModel, kHeads, kDepth})}, dims), of_memory);
    Tensor mask = Tensor::zeros(DType::f64, {4, 4});
    for (std::int64_t i = 0; i < 16; ++i) mask.mutable_data<double>()[i] = i % 4 > i / 4 ? -1e9 : 0;
    const Expr scores = mesh::einsum({q, k}, {kBatch, kHeads, kLength, kMemory}) * 0.5 +
                        mesh::named(g.constant(mask), {kLength, kMemory});
    const Expr mixed = mesh::einsum({mesh::softmax(scores, kMemory), v}, dims);
    return mesh::einsum({mixed, parameter("o", {kHeads, kDepth, kModel})},
                        {kBatch, kLength, kModel});
  }
  Expr feed_forward(const Expr& x) {
    const Expr h =
        relu(mesh::einsum({x, parameter("in", {kModel, kInner})}, {kBatch, kLength, kInner}));
    return mesh::einsum({h, parameter("out", {kInner, kModel})}, {kBatch, kLength, kModel});
  }

  std::vector<Variable> variables_;
};

std::vector<double> learn(const std::optional<Partitioning>& p, int steps,
                          const std::vector<std::string>& skip_passes = {}) {
  Transformer t;
  Engine engine;
  CompileOptions options;
  options.mesh = p;
  options.skip_passes = skip_passes;
  const Function f = engine.compile(t.g, {t.ids, t.targets}, {t.loss, t.step}, options);
  Tensor in = Tensor::zeros(DType::i64, {4, 4}), next = Tensor::zeros(DType::i64, {4, 4});
  for (std::int64_t i = 0; i < 16; ++i) {
    in.mutable_data<std::int64_t>()[i] = i * i % 16;
    next.mutable_data<std::int64_t>()[i] = (i + 1) * (i + 1) % 16;
  }
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(f({in, next})[0].at(0));
  return losses;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_transformer_learns_alike_under_every_layout) {
  const std::vector<double> wanted = learn(std::nullopt, 4);
  BOOST_TEST(wanted.back() < 0.9 * wanted.front());
  const Place here = places()[0];
  for (const auto& [axes, layout] :
       {std::pair("p:4", "batch:p"), std::pair("p:2", "vocabulary:p;d_ff:p;heads:p"),
        std::pair("r:2;c:2", "batch:r;vocabulary:c;d_ff:c;heads:c"),
        std::pair("r:2;c:2", "batch:r;d_ff:c;heads:c;slots/model:r")}) {
    const Partitioning p{mesh_of(axes, here), Layout(layout)};
    const std::vector<double> got = learn(p, 4);
    BOOST_TEST(got == learn(p, 4, kCopies), boost::test_tools::per_element());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      BOOST_TEST(
          std::abs(got[i] - wanted[i]) <= 1e-5 * wanted[i],
          layout << ": step " << i << " has loss " << got[i] << " in place of " << wanted[i]);
  }
}

BOOST_AUTO_TEST_CASE(data_parallel_gradients_are_one_all_reduce) {
  Transformer t;
  const Partitioning p{mesh_of("p:4", places()[0]), Layout("batch:p")};
  const auto spmd = spmd_of(t.g, {t.ids, t.targets}, {t.loss, t.step}, p);
  const Counts counts = counts_of(mesh::detail::join_all_reduces(spmd));
  if (counts != all_reduces(1))
    for (const std::string& line : spmd.told) BOOST_TEST_MESSAGE(line);
  BOOST_TEST((counts == all_reduces(1)));
}

BOOST_AUTO_TEST_CASE(model_parallel_layers_gather_nothing) {
  Transformer t;
  const Partitioning p{mesh_of("p:2", places()[0]), Layout("vocabulary:p;d_ff:p;heads:p")};
  const auto spmd = spmd_of(t.g, {t.ids, t.targets}, {t.loss, t.step}, p);
  Counts counts = counts_of(spmd);
  for (const std::string& line : spmd.told) BOOST_TEST_MESSAGE(line);
  BOOST_TEST(counts["MeshAllGather"] == 0);
  BOOST_TEST(counts["MeshAllToAll"] == 0);
}

BOOST_AUTO_TEST_SUITE_END()
