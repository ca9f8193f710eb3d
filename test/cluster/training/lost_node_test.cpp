// Trainings of which one node leaves, in each way of combining replicas whose results are
// reproducible: the last checkpoint has the bits of an undisturbed training on one node.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/parallel/data_parallel.hpp>
#include <troupe/cluster/training/training.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/collectives/batch_norm.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/temp_directory.hpp>

using namespace troupe;
using namespace troupe::collective;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(lost_node_test)

namespace {

constexpr int kReplicas = 4;
constexpr std::int64_t kRows = 4, kColumns = 6, kSteps = 40;

enum class Way { synchronous, by_collectives, local_sgd };

// Two layers with a normalisation over the rows of all replicas between them; noise is drawn.
Training::Build network_of(Way way) {
  return [=](Graph& g, const Group& group) {
    TrainingProgram p;
    std::vector<MirroredVariable> mirrored;
    std::vector<Variable> shared;
    const auto declare = [&](const char* name, const Shape& shape) {
      const Initializer initial = Initializer::normal(0, 0.4, 3);
      if (way == Way::synchronous) shared.push_back(g.variable(name, DType::f32, shape, initial));
      else mirrored.emplace_back(g, name, DType::f32, shape, initial, group);
    };
    declare("w", {kColumns, 5});
    declare("v", {5, 1});
    const auto of = [&](std::size_t i, int r) {
      return way == Way::synchronous ? shared[i].read() : mirrored[i][r].read();
    };
    Exprs hidden, scales, biases, losses;
    for (int r = 0; r < group.size(); ++r) {
      const auto there = g.on_device(group.device(r));
      p.feeds.push_back(g.input(fmt::format("x{}", r), DType::f32, {kRows, kColumns}));
      const Expr x = p.feeds.back() + g.random_normal({kRows, kColumns}) * 0.01;
      hidden.push_back(matmul(x, of(0, r)));
      scales.push_back(g.constant(Tensor::of<float>({1, 1, 1, 1, 1}, {5})));
      biases.push_back(g.constant(Tensor::of<float>({0, 0, 0, 0, 0}, {5})));
    }
    hidden = collective::batch_norm(group, hidden, scales, biases).y;
    for (int r = 0; r < group.size(); ++r) {
      const auto there = g.on_device(group.device(r));
      losses.push_back(
          mean(square(matmul(tanh(hidden[static_cast<std::size_t>(r)]), of(1, r)) - 1.0)));
    }
    const Adam adam({.learning_rate = 0.02});
    const data_parallel::Options options{.clip_norm = 0.5, .buckets = {.bytes = 64}};
    const data_parallel::Step step =
        way == Way::synchronous ? data_parallel::synchronous(group, losses, shared, adam, options)
        : way == Way::local_sgd
            ? data_parallel::local_sgd(group, losses, mirrored, adam, 3, options)
            : data_parallel::by_collectives(group, losses, mirrored, adam, options);
    p.fetches = {step.loss, step.train};
    if (!mirrored.empty()) p.start = {MirroredVariable::start(mirrored)};
    return p;
  };
}

std::vector<Tensor> rows_of(std::int64_t step) {
  std::vector<Tensor> all;
  for (int r = 0; r < kReplicas; ++r) {
    Tensor t = Tensor::zeros(DType::f32, Shape{kRows, kColumns});
    for (std::int64_t i = 0; i < t.elements(); ++i)
      t.mutable_data<float>()[i] =
          static_cast<float>((step * 31 + r * 7 + i * 13) % 17) / 17.0f - 0.5f;
    all.push_back(std::move(t));
  }
  return all;
}

std::map<std::string, Tensor> weights_of(const Folder& folder) {
  const TensorFile file = CheckpointFolder(folder / "checkpoints").read(kSteps);
  return {file.tensors.begin(), file.tensors.end()};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_node_that_leaves_changes_no_bit_of_any_way_of_training) {
  for (const Way way : {Way::synchronous, Way::by_collectives, Way::local_sgd}) {
    Folder undisturbed, disturbed;
    EngineOptions engine;
    engine.seed = 5;
    {
      Nodes nodes(1, engine);
      Training training(nodes[0],
                        {.replicas = kReplicas, .folder = undisturbed / "checkpoints", .every = 7},
                        network_of(way), rows_of);
      training.run(kSteps);
    }
    Nodes nodes(4, engine);
    std::thread leaving;
    const auto data = [&](std::int64_t step) {
      if (step == 17 && !leaving.joinable()) leaving = std::thread([&] { nodes.remove(3); });
      return rows_of(step);
    };
    Training training(nodes[0],
                      {.replicas = kReplicas, .folder = disturbed / "checkpoints", .every = 7},
                      network_of(way), data);
    training.run(kSteps);
    leaving.join();
    const auto wanted = weights_of(undisturbed), got = weights_of(disturbed);
    BOOST_TEST(got.size() == wanted.size());
    for (const auto& [name, value] : wanted)
      BOOST_TEST(identical(got.at(name), value), name << " differs");
    if (way == Way::by_collectives)
      for (int r = 1; r < kReplicas; ++r)
        BOOST_TEST(identical(got.at(fmt::format("w/replica-{}", r)), got.at("w/replica-0")));
  }
}

BOOST_AUTO_TEST_SUITE_END()
