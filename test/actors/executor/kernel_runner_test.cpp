// Not under tsan: it drives one part of a partition on one thread.
// Kernels in the turn and outside of it: each ends once, and is counted until then.
#include <troupe/actors/executor/kernel_runner.hpp>

#include <optional>

#include <boost/test/unit_test.hpp>

#include <troupe/test/actors/executor/partition_parts.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(kernel_runner_test, TROUPE_ONE_THREAD)

namespace {

using Outcome = KernelRunner::Outcome;
constexpr std::int64_t kHeavy = 20'000;  // ns

/// Nodes that run test kernels, outside of loops, each with one bound input and one output.
std::shared_ptr<Plan> plan_on(Device& device, std::vector<std::unique_ptr<Kernel>> kernels) {
  auto plan = std::make_shared<Plan>();
  Graph g;
  std::vector<Edge> fetches;
  for (std::size_t i = 0; i < kernels.size(); ++i)
    fetches.push_back(
        g.named(g.constant(static_cast<float>(i)), "node" + std::to_string(i)).edge());
  plan->program = prune(g, {}, fetches);
  plan->nodes = {"a"};
  plan->partitions.resize(1);
  PartitionPlan& mine = plan->partitions[0];
  mine.device = &device;
  mine.frames.resize(1);
  mine.constants.emplace_back(Tensor::scalar(7.0f));
  FramePlan& frame = mine.frames[0];
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const auto n = static_cast<std::int32_t>(i);
    PlanNode& node = frame.nodes.emplace_back();
    node.kernel = kernels[i].get();
    node.inputs = node.outputs = node.held = 1;
    node.first_input = node.first_held = node.index = node.place = node.source = n;
    mine.held.push_back({.slot = n, .constant = 0});
  }
  frame.slots = mine.nodes = static_cast<std::int32_t>(kernels.size());
  mine.max_outputs = 1;
  mine.kernels = std::move(kernels);
  return plan;
}

struct Kernels {
  template <class... F>
  explicit Kernels(F... f) : Kernels(Granularity::automatic, f...) {}
  template <class... F>
  explicit Kernels(Granularity granularity, F... f)
      : parts(plan_on(*device, list(f...))),
        runner(*parts.plan, parts.mine, granularity, 2, parts.driver, parts.stream, parts.observer,
               parts.failures) {}

  template <class... F>
  static std::vector<std::unique_ptr<Kernel>> list(F... f) {
    std::vector<std::unique_ptr<Kernel>> all;
    (all.push_back(make_kernel(f)), ...);
    return all;
  }

  const PlanNode& node(std::size_t i) const { return parts.mine.frames[0].nodes[i]; }
  IterationState& iteration() { return *parts.outside; }
  RunState& state() { return *parts.state; }
  Outcome run(std::size_t i = 0) { return runner.run(iteration(), node(i)); }
  PendingKernel& hand_over(std::size_t i = 0) {
    runner.hand_over(iteration(), node(i));
    return *parts.driver.handed_over.back();
  }
  /// Returns the kernels that have ended outside of the turn, by their messages.
  std::vector<PendingKernel*> ended() const {
    std::vector<PendingKernel*> kernels;
    for (const PartitionMessage& message : parts.driver.own)
      kernels.push_back(std::get<KernelDone>(message).kernel);
    return kernels;
  }
  /// Handles the end of a kernel as the partition does.
  void handle_end(PendingKernel& kernel) {
    runner.measure_end(kernel);
    kernel.run = {};
    runner.give_back(kernel);
    --state().under_way;
  }
  /// Fires a node on another worker, where it takes that long.
  void take(std::size_t i, std::int64_t nanoseconds) {
    PendingKernel& kernel = hand_over(i);
    kernel.nanoseconds = nanoseconds;
    handle_end(kernel);
  }
  void make_ready(std::size_t i) { state().ready.push_apart({&iteration(), &node(i)}); }

  const std::unique_ptr<Device> device = make_cpu_device();
  PartitionParts parts;
  KernelRunner runner;
};

void doubles(KernelContext& c) { c.set(0, Tensor::scalar(2 * c.input(0).item<float>())); }

float output(const PendingKernel& kernel) { return kernel.outputs.at(0).tensor().item<float>(); }

}  // namespace

// ---- in the turn

BOOST_AUTO_TEST_CASE(kernel_that_returns_has_its_outputs_in_scratch) {
  Kernels k(doubles);
  BOOST_TEST((k.run() == Outcome::done));
  BOOST_TEST(k.runner.scratch()[0].tensor().item<float>() == 14.0f);  // the bound input doubled
  BOOST_TEST(k.state().under_way == 0);
  BOOST_TEST(k.ended().empty());
  BOOST_TEST(k.runner.under_way().empty());
  k.runner.clear_scratch();
  BOOST_TEST(!k.runner.scratch()[0].has_value());
}

BOOST_AUTO_TEST_CASE(kernel_that_takes_its_completion_ends_later) {
  Completion right;
  Kernels k([&right](KernelContext& c) { right = c.defer(); });
  BOOST_TEST((k.run() == Outcome::under_way));
  BOOST_TEST(k.state().under_way == 1);
  BOOST_TEST(k.runner.under_way().size() == 1u);
  BOOST_TEST(k.ended().empty());
  right.fulfil(Tensor::scalar(3.0f));
  BOOST_REQUIRE(k.ended().size() == 1u);
  BOOST_TEST(k.state().posted == 1u);
  BOOST_TEST(k.state().under_way == 1);  // until the partition handles the message
  PendingKernel& kernel = *k.ended()[0];
  BOOST_TEST(kernel.status.ok());
  BOOST_TEST(output(kernel) == 3.0f);
  BOOST_TEST(kernel.node == &k.node(0));
  k.handle_end(kernel);
  BOOST_TEST(k.runner.under_way().empty());
  BOOST_TEST((k.run() == Outcome::under_way));
  BOOST_TEST(k.runner.under_way()[0] == &kernel);  // used again
  right.fail(Status(Code::cancelled, "planted"));
  BOOST_TEST(k.ended().size() == 2u);
  BOOST_TEST((kernel.status.code() == Code::cancelled));
}

BOOST_AUTO_TEST_CASE(completion_before_the_return_ends_once) {
  Kernels k([](KernelContext& c) { c.defer().fulfil(Tensor::scalar(3.0f)); });
  BOOST_TEST((k.run() == Outcome::under_way));
  BOOST_REQUIRE(k.ended().size() == 1u);
  BOOST_TEST(output(*k.ended()[0]) == 3.0f);
}

BOOST_AUTO_TEST_CASE(kernel_that_throws_fails_its_run) {
  Kernels k([](KernelContext& c) {
    c.set(0, Tensor::scalar(1.0f));
    throw Error(Code::out_of_range, "planted");
  });
  BOOST_TEST((k.run() == Outcome::failed));
  BOOST_TEST(!k.runner.scratch()[0].has_value());
  BOOST_TEST(k.state().under_way == 0);
  BOOST_TEST(k.ended().empty());
  BOOST_TEST(k.runner.under_way().empty());
  BOOST_REQUIRE(k.parts.run->is_poisoned());
  const Status& status = k.parts.run->status();
  BOOST_TEST((status.code() == Code::out_of_range));
  BOOST_TEST(status.message().find("'node0'") != std::string::npos, status.message());
}

// The dropped right ends it; its end is not reported a second time by the return.
BOOST_AUTO_TEST_CASE(kernel_that_throws_with_its_completion_ends_once) {
  Kernels k([](KernelContext& c) {
    const Completion right = c.defer();
    throw Error(Code::out_of_range, "planted");
  });
  BOOST_TEST((k.run() == Outcome::under_way));
  BOOST_TEST(k.ended().size() == 1u);
  BOOST_TEST(k.state().under_way == 1);
  BOOST_TEST((k.parts.run->status().code() == Code::out_of_range));
}

// ---- on other workers

BOOST_AUTO_TEST_CASE(handed_over_kernel_ends_by_a_message) {
  Kernels k(doubles);
  PendingKernel& kernel = k.hand_over();
  BOOST_TEST(kernel.waits_for_worker);
  BOOST_TEST(kernel.run.get() == k.parts.run.get());
  BOOST_TEST(k.state().under_way == 1);
  kernel.runner->run_elsewhere(kernel);
  BOOST_TEST(!kernel.waits_for_worker);
  BOOST_TEST((k.ended() == std::vector<PendingKernel*>{&kernel}));
  BOOST_TEST(k.state().posted == 1u);
  BOOST_TEST(output(kernel) == 14.0f);
  BOOST_TEST(kernel.nanoseconds > 0);
}

BOOST_AUTO_TEST_CASE(handed_over_kernels_end_once_however_they_end) {
  std::optional<Completion> right;
  Kernels k([](KernelContext&) { throw Error(Code::out_of_range, "thrown"); },
            [](KernelContext& c) {
              const Completion dropped = c.defer();
              throw Error(Code::out_of_range, "thrown");
            },
            [](KernelContext& c) { c.defer().fulfil(Tensor::scalar(3.0f)); },
            [&right](KernelContext& c) { right = c.defer(); });
  for (std::size_t i = 0; i < 4; ++i) {
    PendingKernel& kernel = k.hand_over(i);
    kernel.runner->run_elsewhere(kernel);
    if (right) {
      BOOST_TEST(k.ended().size() == i);
      right.reset();  // dropped: the firing fails
    }
    BOOST_TEST_CONTEXT("kernel " << i) {
      BOOST_TEST(k.ended().size() == i + 1);
      BOOST_TEST((k.ended().back() == &kernel));
      const Code expected[] = {Code::out_of_range, Code::out_of_range, Code::ok, Code::internal};
      BOOST_TEST((kernel.status.code() == expected[i]), kernel.status.message());
    }
  }
  BOOST_TEST(k.state().under_way == 4);
  BOOST_TEST(k.runner.under_way().size() == 4u);
}

// ---- heavy kernels

BOOST_AUTO_TEST_CASE(kernel_is_heavy_by_its_shortest_first_firings) {
  Kernels k(doubles, doubles, doubles);
  k.take(0, kHeavy);
  BOOST_TEST(!k.runner.is_heavy(k.node(0)));  // the first firing alone says little
  k.take(0, 2 * kHeavy);
  BOOST_TEST(k.runner.is_heavy(k.node(0)));
  BOOST_TEST(k.runner.cost_ns(0) == kHeavy);
  k.take(1, 2 * kHeavy);
  k.take(1, kHeavy - 1);
  BOOST_TEST(!k.runner.is_heavy(k.node(1)));
  BOOST_TEST(!k.runner.is_heavy(k.node(2)));
  BOOST_TEST(k.runner.cost_ns(2) == 0);
}

BOOST_AUTO_TEST_CASE(no_kernel_is_heavy_if_the_partition_keeps_all) {
  Kernels k(Granularity::partition, doubles);
  for (int i = 0; i < 3; ++i) k.take(0, 10 * kHeavy);
  BOOST_TEST(!k.runner.is_heavy(k.node(0)));
}

BOOST_AUTO_TEST_CASE(only_heavy_kernel_runs_in_the_turn) {
  Kernels k(doubles);
  k.runner.dispatch_heavy(k.state());
  BOOST_TEST(k.parts.driver.heavy_ones == 0);  // none is ready
  k.make_ready(0);
  k.runner.dispatch_heavy(k.state());
  BOOST_TEST(k.parts.driver.handed_over.empty());
  BOOST_TEST(k.parts.driver.heavy_ones == 1);
  BOOST_REQUIRE(k.state().ready.has_next());
  BOOST_TEST(k.state().ready.pop().node == &k.node(0));
}

BOOST_AUTO_TEST_CASE(several_heavy_kernels_go_to_other_workers) {
  Kernels k(doubles, doubles);
  k.make_ready(0);
  k.make_ready(1);
  k.runner.dispatch_heavy(k.state());
  BOOST_TEST(k.parts.driver.handed_over.size() == 2u);
  BOOST_TEST(k.state().ready.is_empty());
  BOOST_TEST(k.state().under_way == 2);
}

BOOST_AUTO_TEST_CASE(heavy_kernel_beside_one_under_way_is_handed_over) {
  Kernels k(doubles, doubles);
  k.hand_over(0);
  k.make_ready(1);
  k.runner.dispatch_heavy(k.state());
  BOOST_TEST(k.parts.driver.handed_over.size() == 2u);
  BOOST_TEST(k.state().under_way == 2);
}

BOOST_AUTO_TEST_CASE(dead_node_and_failed_run_hand_nothing_over) {
  Kernels k(doubles, doubles);
  k.make_ready(0);
  k.iteration().awaited[0] = IterationState::kDead;
  k.runner.hand_over_heavy(k.state());
  BOOST_TEST(k.state().ready.has_next());
  k.parts.run->fail(Status(Code::cancelled, "planted"));
  k.make_ready(1);
  k.runner.hand_over_heavy(k.state());
  BOOST_TEST(k.parts.driver.handed_over.empty());
  BOOST_TEST(k.state().ready.size() == 2u);
}

BOOST_AUTO_TEST_CASE(light_partition_has_measured_short_kernels_only) {
  Kernels k(doubles, doubles);
  BOOST_TEST(!k.runner.is_light());  // none was measured
  k.take(0, kHeavy - 1);
  BOOST_TEST(!k.runner.is_light());
  k.take(1, 1);
  BOOST_TEST(k.runner.is_light());
  k.take(0, 4 * kHeavy);  // the shortest counts
  BOOST_TEST(k.runner.is_light());
  for (int i = 0; i < 3; ++i) k.take(1, 8 * kHeavy);
  BOOST_TEST(!k.runner.is_light());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
