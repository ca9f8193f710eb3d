// The surroundings of one part of a partition: a plan, a run, and a driver that records its calls.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <troupe/actors/executor/device_stream.hpp>
#include <troupe/actors/executor/kernel_runner.hpp>
#include <troupe/actors/executor/partition_driver.hpp>
#include <troupe/actors/executor/partition_observer.hpp>
#include <troupe/actors/executor/run_failures.hpp>
#include <troupe/actors/executor/run_state.hpp>

namespace troupe::test {

/// Batches messages to partitions of other nodes, and sends all others at once.
struct RecordingDriver final : PartitionDriver {
  explicit RecordingDriver(const Plan& p) : PartitionDriver(PartitionClock(nullptr)), plan(p) {}

  void post_self(PartitionMessage message) override { own.push_back(std::move(message)); }
  void post_at_once(std::int32_t partition, PartitionMessage message) override {
    sent.push_back({partition, std::move(message)});
  }
  bool post(std::int32_t partition, PartitionMessage message) override {
    const bool is_batched = !plan.is_here(static_cast<std::size_t>(partition));
    (is_batched ? batch : sent).push_back({partition, std::move(message)});
    return is_batched;
  }
  Token* waiting(std::int32_t partition, std::int32_t receive) override {
    for (auto posted = batch.rbegin(); posted != batch.rend(); ++posted)
      if (Token* token = std::get_if<Token>(&posted->message);
          token && posted->partition == partition && token->receive == receive)
        return token;
    return nullptr;
  }
  void flush() override {
    ++flushes;
    on_batch_sent();
    sent.insert(sent.end(), batch.begin(), batch.end());
    gone = std::exchange(batch, {});
  }
  void hand_over(PendingKernel& kernel) override { handed_over.push_back(&kernel); }
  void before_heavy() override { ++heavy_ones; }
  void before_medium() override {}
  void refused(Run&, std::int32_t partition, const std::string& what) override {
    refusals.emplace_back(partition, what);
  }

  const Plan& plan;
  std::function<void()> on_batch_sent = [] {};
  std::deque<Posted> batch, sent;  // a deque: pointers to batched tokens stay valid
  std::deque<Posted> gone;         // the last batch, which no token may extend any more
  std::vector<PartitionMessage> own;
  std::vector<PendingKernel*> handed_over;
  std::vector<std::pair<std::int32_t, std::string>> refusals;
  int flushes = 0, heavy_ones = 0;
};

/// The parts of partition 0 that others need, and one run in it with its outermost iteration open.
struct PartitionParts {
  explicit PartitionParts(std::shared_ptr<Plan> p) : plan(std::move(p)) {
    runs.reserve(0);
    state = &runs.start();
    state->run = run;
    state->root = &frames.take_root(nullptr, *state);
    outside = &frames.take_iteration(*state->root);
  }

  const std::shared_ptr<Plan> plan;
  const PartitionPlan& mine = plan->partitions[0];
  RecordingDriver driver{*plan};
  PartitionObserver observer{*plan, mine, 0, driver};
  RunFailures failures{*plan, mine, observer};
  DeviceStream stream{*mine.device, driver, observer, failures};
  RunStates runs;
  FramePool frames{mine};
  Ref<Run> run{new Run(1, 0, 0, plan, {}, 1)};
  RunState* state = nullptr;
  IterationState* outside = nullptr;
};

}  // namespace troupe::test
