// The other nodes of a plan, for tests of one engine's tables: there are `count` of them, and a
// test decides when one is lost. No message arrives anywhere.
#pragma once

#include <vector>

#include <troupe/actors/executor/loop_report.hpp>
#include <troupe/actors/executor/remote_plan.hpp>

namespace troupe::test {

struct FakeRemotePlan final : RemotePlan {
  explicit FakeRemotePlan(int nodes) : count(nodes) {}

  int nodes() const override { return count; }
  bool is_broken() const override { return is_lost; }
  void post(std::span<Posted>) override {}
  void meet(std::uint64_t, std::int32_t, const MeetingPlace&, std::vector<Tensor>) override {}
  void start(Run&) override {}
  std::vector<LoopReport> loops() override { return {}; }
  std::vector<NodeCost> costs() override { return {}; }
  void failed(Run&) override {}
  void refused(Run&, std::int32_t, const std::string&) override {}

  int count;
  bool is_lost = false;
};

}  // namespace troupe::test
