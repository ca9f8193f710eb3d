// Trainings that apply gradients as they arrive. The gradient of batch i of replica r is one at the
// element (r, i) of the weights, and zero elsewhere: the weights show which gradients were applied,
// and how often.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/parallel/data_parallel.hpp>
#include <troupe/cluster/training/training.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/actor_node.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/temp_directory.hpp>

using namespace troupe;
using namespace troupe::collective;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(arrivals_test)

namespace {

constexpr int kReplicas = 3;
constexpr std::int64_t kBatches = 64;

using Apply = std::function<ArrivalStep(const Group&, const Exprs& losses, const Variable& w)>;
/// Changes a replica's weights on the way to its loss.
using Through = std::function<Expr(Graph&, int replica, const Expr&)>;

Training::Build network_of(Apply apply, bool is_sparse, Through through = {}) {
  return [=](Graph& g, const Group& group) {
    const Variable w =
        g.variable("w", DType::f64, {kReplicas * kBatches}, Initializer::constant(0));
    TrainingProgram p;
    Exprs losses;
    for (int r = 0; r < group.size(); ++r) {
      const auto there = g.on_device(group.device(r));
      p.feeds.push_back(g.input(fmt::format("batch-{}", r), DType::i64, {1}));
      Expr id = p.feeds.back() + static_cast<std::int64_t>(r) * kBatches;
      if (through) id = through(g, r, id);
      // Minus the gradient is added.
      losses.push_back(is_sparse
                           ? -sum(gather(w, id))
                           : -sum(w.read() * cast(one_hot(id, kReplicas * kBatches), DType::f64)));
    }
    p.arrivals = apply(group, losses, w);
    p.fetches = {p.arrivals->loss};
    return p;
  };
}

std::vector<Tensor> batches_of(std::int64_t step) {
  return std::vector<Tensor>(kReplicas, Tensor::of<std::int64_t>({step}, {1}));
}

const Sgd kSum({.learning_rate = 1});
const Apply kAsynchronous = [](const Group& group, const Exprs& losses, const Variable& w) {
  return data_parallel::asynchronous(group, losses, {w}, kSum);
};
Apply with_backups(int backups) {
  return [=](const Group& group, const Exprs& losses, const Variable& w) {
    return data_parallel::with_backups(group, losses, {w}, kSum, backups);
  };
}

struct Result {
  std::vector<double> w;
  std::vector<std::int64_t> counts;
};
Result result_of(Engine& engine) {
  return {engine.get("w").to_vector<double>(),
          engine.get("replicas/arrivals/counts").to_vector<std::int64_t>()};
}

// Each replica's first batches were applied once, and no others.
void check_each_once(const Result& result, std::int64_t steps) {
  std::int64_t all = 0;
  for (std::size_t r = 0; r < kReplicas; ++r) {
    all += result.counts[r];
    for (std::int64_t i = 0; i < kBatches; ++i)
      BOOST_TEST(result.w[r * kBatches + static_cast<std::size_t>(i)] ==
                     (i < result.counts[r] ? 1.0 : 0.0),
                 "batch " << i << " of replica " << r);
  }
  BOOST_TEST(all == steps);
}

}  // namespace

BOOST_AUTO_TEST_CASE(asynchronous_training_applies_each_gradient_once) {
  for (const bool is_sparse : {false, true})
    for (const int count : {1, 3}) {
      Nodes nodes(count);
      Folder folder;
      std::vector<std::string> lines;
      Training training(nodes[0],
                        {.replicas = kReplicas,
                         .folder = folder / "checkpoints",
                         .log = [&](const std::string& line) { lines.push_back(line); }},
                        network_of(kAsynchronous, is_sparse), batches_of);
      training.run(25);
      check_each_once(result_of(nodes.engine()), 25);
      training.run(40);
      check_each_once(result_of(nodes.engine()), 40);
      BOOST_TEST(std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
                   return line.find("the results are not reproducible") != std::string::npos;
                 }) == 1);
    }
}

BOOST_AUTO_TEST_CASE(asynchronous_training_goes_on_from_its_folder) {
  Folder folder;
  for (const std::int64_t steps : {12, 31}) {
    Nodes nodes(1);
    Training training(nodes[0],
                      {.replicas = kReplicas, .folder = folder / "checkpoints", .every = 5},
                      network_of(kAsynchronous, false), batches_of);
    training.run(steps);
    check_each_once(result_of(nodes.engine()), steps);
  }
}

// The node leaves while gradients of its replicas are computed, in the queue, or applied.
BOOST_AUTO_TEST_CASE(a_lost_node_loses_no_gradient_and_repeats_none) {
  for (const bool is_asynchronous : {true, false})
    for (const std::int64_t lost_at : {1, 7, 18}) {
      Nodes nodes(3);
      Folder folder;
      std::atomic<bool> is_lost = false;
      std::promise<void> left;
      std::thread leaving;
      const auto data = [&](std::int64_t step) {
        if (step == lost_at && !is_lost.exchange(true))
          leaving = std::thread([&] {
            nodes.remove(2);
            left.set_value();
          });
        return batches_of(step);
      };
      Training training(nodes[0],
                        {.replicas = kReplicas,
                         .folder = folder / "checkpoints",
                         .every = 4,
                         .nodes = {"b", "c"}},
                        network_of(is_asynchronous ? kAsynchronous : with_backups(1), false), data);
      training.run(60);
      BOOST_REQUIRE(is_lost);
      left.get_future().wait();
      leaving.join();
      const Result result = result_of(nodes.engine());
      if (is_asynchronous) {
        check_each_once(result, 60);
        continue;
      }
      for (std::int64_t step = 0; step < 60; ++step) {
        double all = 0;
        for (std::size_t r = 0; r < kReplicas; ++r) {
          const double w = result.w[r * kBatches + static_cast<std::size_t>(step)];
          BOOST_TEST((w == 0 || w == 0.5));
          all += w;
        }
        BOOST_TEST(all == 1, "step " << step);
      }
    }
}

// Variables of three shapes on two devices, with an optimizer that has slots, which one update
// changes; the loss falls.
BOOST_AUTO_TEST_CASE(variables_may_be_on_several_devices) {
  for (const int count : {1, 2})
    for (const bool is_asynchronous : {true, false}) {
      Nodes nodes(count);
      Folder folder;
      const auto build = [=](Graph& g, const Group& group) {
        std::vector<Variable> all;
        for (int i = 0; i < 3; ++i) {
          const auto there = g.on_device(group.device(i % 2));
          all.push_back(
              g.variable(fmt::format("v{}", i), DType::f32, {i + 1, 2}, Initializer::constant(1)));
        }
        TrainingProgram p;
        Exprs losses;
        for (int r = 0; r < group.size(); ++r) {
          const auto there = g.on_device(group.device(r));
          p.feeds.push_back(g.input(fmt::format("batch-{}", r), DType::i64, {1}));
          losses.push_back(sum(square(all[0].read())) + sum(square(all[1].read())) +
                           sum(square(gather(all[2], minimum(p.feeds.back(), 2)))));
        }
        const Adam adam({.learning_rate = 0.05});
        const data_parallel::Options options{.clip_norm = 2};
        p.arrivals = is_asynchronous
                         ? data_parallel::asynchronous(group, losses, all, adam, options)
                         : data_parallel::with_backups(group, losses, all, adam, 1, options);
        p.fetches = {p.arrivals->loss};
        return p;
      };
      Training training(nodes[0], {.replicas = kReplicas, .folder = folder / "checkpoints"}, build,
                        batches_of);
      const float before = training.run(1)[0].item<float>();
      const float after = training.run(30)[0].item<float>();
      BOOST_TEST(after < 0.5f * before);
    }
}

// Replica 2 waits inside its step until the training has ended: no step waits for it.
BOOST_AUTO_TEST_CASE(a_step_does_not_wait_for_more_gradients_than_it_needs) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  Nodes nodes(1);
  Folder folder;
  const Through slow = [released](Graph& g, int replica, const Expr& id) {
    if (replica != 2) return id;
    return actor_node(g, "slow", {id}, {{DType::i64, Shape{1}}},
                      [released](std::span<const Tensor> in, std::span<Tensor> out) {
                        released.wait();
                        out[0] = in[0];
                      },
                      {.blocks = true})[0];
  };
  Training training(nodes[0], {.replicas = kReplicas, .folder = folder / "checkpoints"},
                    network_of(with_backups(1), false, slow), batches_of);
  training.run(20);
  release.set_value();
  const Result result = result_of(nodes.engine());
  BOOST_TEST(result.counts == (std::vector<std::int64_t>{20, 20, 0}),
             boost::test_tools::per_element());
  for (std::size_t step = 0; step < 20; ++step)
    for (std::size_t r = 0; r < kReplicas; ++r)
      BOOST_TEST(result.w[r * kBatches + step] == (r < 2 ? 0.5 : 0.0));
}

BOOST_AUTO_TEST_CASE(an_error_of_a_replica_ends_the_training) {
  for (const Apply& apply : {kAsynchronous, with_backups(0)}) {
    Nodes nodes(1);
    Folder folder;
    const Through failing = [](Graph& g, int replica, const Expr& id) {
      if (replica != 1) return id;
      return actor_node(g, "failing", {id}, {{DType::i64, Shape{1}}},
                        [](std::span<const Tensor> in, std::span<Tensor> out) {
                          if (in[0].at(0) == kBatches + 3)
                            throw Error(Code::invalid_argument, "this batch cannot be used");
                          out[0] = in[0];
                        })[0];
    };
    Training training(nodes[0], {.replicas = kReplicas, .folder = folder / "checkpoints"},
                      network_of(apply, false, failing), batches_of);
    BOOST_TEST(refusal([&] { training.run(1000); }, Code::invalid_argument)
                   .find("this batch cannot be used") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(feeds_that_replicas_do_not_divide_are_refused) {
  Nodes nodes(1);
  Folder folder;
  const auto build = [](Graph& g, const Group& group) {
    TrainingProgram p = network_of(kAsynchronous, false)(g, group);
    p.feeds.push_back(g.input("more", DType::f32, Shape()));
    return p;
  };
  Training training(nodes[0], {.replicas = kReplicas, .folder = folder / "checkpoints"}, build,
                    batches_of);
  BOOST_TEST(refusal([&] { training.run(1); }, Code::invalid_argument) ==
             "Training: a step has 4 feeds for 3 replicas; give as many of each replica, replica "
             "by replica");
}

BOOST_AUTO_TEST_CASE(the_programs_of_a_step_by_arrival_give_no_warning) {
  for (const Apply& apply : {kAsynchronous, with_backups(1)}) {
    std::vector<std::string> warnings;
    Engine engine({.log = [&](const LogRecord& r) {
      if (r.level == LogRecord::Level::warning) warnings.push_back(r.text);
    }});
    Graph g;
    const TrainingProgram p =
        network_of(apply, false)(g, Group("replicas", {"cpu:0", "cpu:1", "cpu:2"}));
    const ArrivalStep& a = *p.arrivals;
    engine.compile(g, {a.ticket}, {a.loss, a.train, a.applied});
    for (std::size_t r = 0; r < kReplicas; ++r)
      engine.compile(g, {p.feeds[r], a.ticket}, {a.sent[r]});
    BOOST_TEST(warnings.empty(), fmt::format("{}", fmt::join(warnings, "\n")));
  }
}

BOOST_AUTO_TEST_SUITE_END()
