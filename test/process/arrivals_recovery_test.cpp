// Not under asan and tsan: its processes run the binary, which other suites run in one process.
// Trainings that apply gradients as they arrive, over processes of which one is killed with -9. The
// gradient of batch i of replica r is one at the element (r, i) of the weights, and zero elsewhere:
// the weights show which gradients were applied, and how often.
#include <boost/test/unit_test.hpp>

#include <csignal>
#include <string>
#include <vector>

#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/parallel/data_parallel.hpp>
#include <troupe/cluster.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/process/node_process.hpp>

using namespace troupe;
using namespace troupe::collective;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(arrivals_recovery_test)

namespace {

constexpr int kReplicas = 3;
constexpr std::int64_t kBatches = 128, kSteps = 60;

Training::Build network_of(bool is_asynchronous) {
  return [=](Graph& g, const Group& group) {
    // On the second replica's node, which may be the one that is lost.
    const Variable w = [&] {
      const auto there = g.on_device(group.device(1));
      return g.variable("w", DType::f64, {kReplicas, kBatches}, Initializer::constant(0));
    }();
    TrainingProgram p;
    Exprs losses;
    for (int r = 0; r < group.size(); ++r) {
      const auto there = g.on_device(group.device(r));
      p.feeds.push_back(g.input("batch-" + std::to_string(r), DType::i64, {1}));
      const Expr which = cast(one_hot(p.feeds.back(), kBatches), DType::f64);
      losses.push_back(-sum(slice(w.read(), {r, 0}, {1, kBatches}) * which));
    }
    const Sgd optimizer({.learning_rate = 1});
    p.arrivals = is_asynchronous ? data_parallel::asynchronous(group, losses, {w}, optimizer)
                                 : data_parallel::with_backups(group, losses, {w}, optimizer, 1);
    p.fetches = {p.arrivals->loss};
    return p;
  };
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_killed_node_loses_no_gradient_and_repeats_none,
                     *boost::unit_test::label("stock_zmq")) {
  for (const bool is_asynchronous : {true, false})
    for (const std::int64_t killed_at : {1, 9}) {
      Folder folder_b, folder_c, folder;
      NodeProcess b(folder_b, "b"), c(folder_c, "c", {"--join", b.address});
      NodeOptions o;
      o.name = "a";
      o.join = {b.address};
      o.transport = [](PeerInfo self) {
        self.address = "tcp://127.0.0.1:0";
        return make_zeromq_transport(std::move(self), {});
      };
      ClusterNode a(std::move(o));
      a.wait_for({"b", "c"}, std::chrono::seconds(60));
      bool is_killed = false;
      Training training(a, {.replicas = kReplicas, .folder = folder / "checkpoints", .every = 8},
                        network_of(is_asynchronous), [&](std::int64_t step) {
                          if (step == killed_at && !is_killed) {
                            c.process.interrupt(SIGKILL);
                            is_killed = true;
                          }
                          return std::vector<Tensor>(kReplicas,
                                                     Tensor::of<std::int64_t>({step}, {1}));
                        });
      training.run(kSteps);
      BOOST_TEST(is_killed);
      const TensorFile last = CheckpointFolder(folder / "checkpoints").read(kSteps);
      std::vector<double> w;
      std::vector<std::int64_t> counts;
      for (const auto& [name, value] : last.tensors) {
        if (name == "w") w = value.to_vector<double>();
        if (name == "replicas/arrivals/counts") counts = value.to_vector<std::int64_t>();
      }
      BOOST_REQUIRE(counts.size() == std::size_t{kReplicas});
      std::int64_t all = 0;
      for (const std::int64_t count : counts) all += count;
      BOOST_TEST(all == kSteps * (is_asynchronous ? 1 : 2));
      for (std::int64_t i = 0; i < kBatches; ++i) {
        double of_step = 0;
        for (std::size_t r = 0; r < kReplicas; ++r) {
          const double got = w[r * kBatches + static_cast<std::size_t>(i)];
          if (is_asynchronous) BOOST_TEST(got == (i < counts[r] ? 1.0 : 0.0));
          of_step += got;
        }
        if (!is_asynchronous) BOOST_TEST(of_step == (i < kSteps ? 1.0 : 0.0));
      }
      c.process.finish();
      b.process.interrupt(SIGTERM);
      b.process.finish();
    }
}

BOOST_AUTO_TEST_SUITE_END()
