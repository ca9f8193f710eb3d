// Training over processes that die: kill -9 of a worker at several moments, a driver that starts
// again, a node that joins. The weights at the end are those of an undisturbed training, bit for
// bit.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/cluster.hpp>
#include <troupe/cluster/training/training.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/collectives/collectives.hpp>
#include <troupe/ops/format/safetensors.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/troupe.hpp>

using namespace troupe;
using namespace troupe::collective;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(recovery_test)

namespace {

constexpr int kReplicas = 3;
constexpr std::int64_t kRows = 4, kFeatures = 6;

// A network of two layers; the second layer's weights live beside a replica, so that a lost node
// takes a variable with it. Rows are drawn in the program, noise too: both follow from the step.
TrainingProgram network(Graph& g, const Group& group) {
  std::vector<Expr> feeds;
  Variable w1 = g.variable("w1", DType::f32, {kFeatures, 5}, Initializer::normal(0, 0.3));
  Variable w2 = [&] {
    const auto there = g.on_device(group.device(1));
    return g.variable("w2", DType::f32, {5, 1}, Initializer::normal(0, 0.3));
  }();
  Exprs losses, slopes1, slopes2;
  for (int r = 0; r < group.size(); ++r) {
    const auto there = g.on_device(group.device(r));
    feeds.push_back(g.input("x" + std::to_string(r), DType::f32, {kRows, kFeatures}));
    const Expr x = feeds.back() + g.random_normal({kRows, kFeatures}) * 0.01;
    const Expr a = w1.read(), b = w2.read();
    losses.push_back(mean(square(matmul(tanh(matmul(x, a)), b) - 1.0)));
    const Exprs slope = gradients(losses.back(), {a, b});
    slopes1.push_back(slope[0]);
    slopes2.push_back(slope[1]);
  }
  const Expr slope1 = reduce(group, slopes1, 0, Combine::mean),
             slope2 = reduce(group, slopes2, 1, Combine::mean);
  const Expr train = Adam({.learning_rate = 0.02}).apply({slope1, slope2}, {w1, w2});
  return {feeds, {reduce(group, losses, 0, Combine::mean), train}};
}

std::vector<Tensor> rows_of(std::int64_t step) {
  std::vector<Tensor> all;
  for (int r = 0; r < kReplicas; ++r) {
    Tensor t = Tensor::zeros(DType::f32, Shape{kRows, kFeatures});
    for (std::int64_t i = 0; i < t.elements(); ++i)
      t.mutable_data<float>()[i] =
          static_cast<float>((step * 31 + r * 7 + i * 13) % 17) / 17.0f - 0.5f;
    all.push_back(std::move(t));
  }
  return all;
}

std::unique_ptr<ClusterNode> driver(const std::vector<std::string>& join, const char* name = "a") {
  NodeOptions o;
  o.name = name;
  o.join = join;
  o.engine.seed = 5;
  o.transport = [](PeerInfo self) {
    self.address = "tcp://127.0.0.1:0";
    return make_zeromq_transport(std::move(self), {});
  };
  return std::make_unique<ClusterNode>(std::move(o));
}

// The newest checkpoint, which a run ends with.
std::map<std::string, Tensor> weights(const Folder& folder, std::int64_t step) {
  const TensorFile file =
      load_safetensors(folder / fmt::format("checkpoints/step-{}.safetensors", step));
  return {file.tensors.begin(), file.tensors.end()};
}

// The weights after `steps` steps of one process alone.
std::map<std::string, Tensor> undisturbed(std::int64_t steps) {
  Folder folder;
  auto a = driver({});
  Training training(*a, {.replicas = kReplicas, .folder = folder / "checkpoints"}, network,
                    rows_of);
  training.run(steps);
  BOOST_TEST(training.counters().recoveries == 0);
  return weights(folder, steps);
}

void check_same(const std::map<std::string, Tensor>& got,
                const std::map<std::string, Tensor>& wanted) {
  BOOST_REQUIRE(got.size() == wanted.size());
  for (const auto& [name, value] : wanted)
    BOOST_TEST(identical(got.at(name), value), name << " differs");
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_killed_worker_changes_no_bit, *boost::unit_test::label("stock_zmq")) {
  constexpr std::int64_t kSteps = 60;
  const auto wanted = undisturbed(kSteps);
  for (const std::int64_t killed_at : {1, 17, 40}) {
    Folder folder_b, folder_c, folder;
    NodeProcess b(folder_b, "b"), c(folder_c, "c", {"--join", b.address});
    auto a = driver({b.address});
    a->wait_for({"b", "c"}, std::chrono::seconds(60));
    std::vector<std::string> lines;
    Training training(*a,
                      {.replicas = kReplicas,
                       .folder = folder / "checkpoints",
                       .every = 8,
                       .log = [&](const std::string& line) { lines.push_back(line); }},
                      network, [&](std::int64_t step) {
                        if (step == killed_at) c.process.interrupt(SIGKILL);
                        return rows_of(step);
                      });
    BOOST_CHECK_NO_THROW(training.run(kSteps));
    for (const std::string& line : lines) BOOST_TEST_MESSAGE(line);
    BOOST_TEST(training.step() == kSteps);
    BOOST_TEST(training.counters().recoveries >= 1);
    for (const std::string& device : training.devices())
      BOOST_TEST(device.find("/node:c/") == std::string::npos);
    check_same(weights(folder, kSteps), wanted);
    c.process.finish();
    b.process.interrupt(SIGTERM);
    b.process.finish();
  }
}

BOOST_AUTO_TEST_CASE(a_driver_that_starts_again_goes_on, *boost::unit_test::label("stock_zmq")) {
  const auto wanted = undisturbed(30);
  Folder folder_b, folder;
  NodeProcess b(folder_b, "b");
  const TrainingOptions options{
      .replicas = kReplicas, .folder = folder / "checkpoints", .every = 7};
  {
    auto a = driver({b.address});
    a->wait_for({"b"}, std::chrono::seconds(60));
    Training training(*a, options, network, [&](std::int64_t step) {
      if (step == 18) throw Error(Code::cancelled, "the driver ends");
      return rows_of(step);
    });
    BOOST_CHECK_THROW(training.run(30), Error);
    BOOST_TEST(training.step() == 18);
  }
  auto a = driver({b.address}, "a2");
  a->wait_for({"b"}, std::chrono::seconds(60));
  Training training(*a, options, network, rows_of);
  training.run(30);
  BOOST_TEST(training.counters().steps == 30 - 14);
  check_same(weights(folder, 30), wanted);
  b.process.interrupt(SIGTERM);
  b.process.finish();
}

BOOST_AUTO_TEST_CASE(a_node_that_joins_is_used_from_the_next_checkpoint,
                     *boost::unit_test::label("stock_zmq")) {
  const auto wanted = undisturbed(40);
  Folder folder_b, folder_c, folder;
  NodeProcess b(folder_b, "b");
  std::unique_ptr<NodeProcess> c;
  auto a = driver({b.address});
  a->wait_for({"b"}, std::chrono::seconds(60));
  Training training(*a, {.replicas = kReplicas, .folder = folder / "checkpoints", .every = 5},
                    network, [&](std::int64_t step) {
                      if (step == 12 && !c) {
                        c = std::make_unique<NodeProcess>(
                            folder_c, "c", std::vector<std::string>{"--join", b.address});
                        a->wait_for({"c"}, std::chrono::seconds(60));
                      }
                      return rows_of(step);
                    });
  training.run(40);
  BOOST_TEST(training.counters().recoveries == 0);
  const std::vector<std::string> devices = training.devices();
  BOOST_TEST(std::any_of(devices.begin(), devices.end(), [](const std::string& d) {
    return d.find("/node:c/") != std::string::npos;
  }));
  check_same(weights(folder, 40), wanted);
  for (NodeProcess* node : {c.get(), &b}) {
    node->process.interrupt(SIGTERM);
    node->process.finish();
  }
}

BOOST_AUTO_TEST_CASE(a_damaged_checkpoint_is_skipped_and_named) {
  Folder folder;
  auto a = driver({});
  const TrainingOptions options{.replicas = 2, .folder = folder / "checkpoints", .every = 2};
  const auto two = [](Graph& g, const Group& group) { return network(g, group); };
  const auto rows = [](std::int64_t step) {
    std::vector<Tensor> all = rows_of(step);
    all.pop_back();
    return all;
  };
  {
    Training training(*a, options, two, rows);
    training.run(6);
  }
  const std::string newest = folder / "checkpoints/step-6.safetensors";
  fs::resize_file(newest, fs::file_size(newest) - 3);
  std::vector<std::string> lines;
  TrainingOptions logged = options;
  logged.log = [&](const std::string& line) { lines.push_back(line); };
  Training again(*a, logged, two, rows);
  again.run(7);
  BOOST_TEST(again.counters().steps == 3);
  BOOST_TEST(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("skipped") != std::string::npos &&
           line.find("step-6.safetensors") != std::string::npos;
  }));
}

BOOST_AUTO_TEST_CASE(checkpoint_of_another_program_is_refused_with_differences) {
  Folder folder;
  auto a = driver({});
  const TrainingOptions options{.replicas = kReplicas, .folder = folder / "checkpoints"};
  Training(*a, options, network, rows_of).run(1);
  const auto other = [](Graph& g, const Group& group) {
    TrainingProgram p = network(g, group);
    p.fetches.push_back(g.variable("more", DType::f32, {2}, Initializer::constant(0)).read());
    return p;
  };
  BOOST_CHECK_EXCEPTION(Training(*a, options, other, rows_of).run(2), Error, [](const Error& e) {
    const std::string text = e.what();
    return e.code() == Code::failed_precondition &&
           text.find("step-1.safetensors") != std::string::npos &&
           text.find("more is not in it") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(options_that_mean_nothing_are_refused) {
  Folder folder;
  auto a = driver({});
  const auto refuses = [&](TrainingOptions options) {
    BOOST_CHECK_THROW(Training(*a, std::move(options), network, rows_of), Error);
  };
  refuses({.replicas = 1, .folder = folder / "x"});
  refuses({.folder = ""});
  refuses({.folder = folder / "x", .every = 0});
  refuses({.folder = folder / "x", .keep = {.newest = 0}});
}

BOOST_AUTO_TEST_SUITE_END()
