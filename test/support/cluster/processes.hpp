// Nodes that are processes of their own, `troupe node`, over ZeroMQ on loopback, for tests.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>
#include <boost/test/unit_test.hpp>

#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>
#include <troupe/test/process/node_process.hpp>

namespace troupe::test {

inline bool is_over_processes() { return std::getenv("TROUPE_OVER_PROCESSES") != nullptr; }

/// b and c, for as long as this program runs, and for each test program an `a` within it, which
/// joins them.
class NodeProcesses {
 public:
  static NodeProcesses& all() {
    static NodeProcesses processes;
    return processes;
  }

  std::unique_ptr<ClusterNode> join(EngineOptions engine) {
    auto a = make_a(std::move(engine), {b_.address});
    a->wait_for({"b", "c"}, std::chrono::seconds(60));
    return a;
  }

  /// An `a` within this program, for others to join or that joins them.
  static std::unique_ptr<ClusterNode> make_a(EngineOptions engine,
                                             std::vector<std::string> join = {}) {
    NodeOptions o;
    o.name = "a";
    o.engine = std::move(engine);
    o.membership.suspicion = std::chrono::seconds(100);  // slow machines are not what is tested
    o.join = std::move(join);
    o.transport = [](PeerInfo self) {
      self.address = "tcp://127.0.0.1:0";
      return make_zeromq_transport(std::move(self), {});
    };
    return std::make_unique<ClusterNode>(std::move(o));
  }

  /// Checks, before a test's finished `a` leaves, whether b or c had a part in any of its runs. The
  /// ops that `EngineOptions::scatter` places yield the same if all of them stay on `a`. A single
  /// program may be too small to be spread, so the runs of the whole suite are counted.
  void is_done(const ClusterNode& a) {
    namespace unit_test = boost::unit_test;
    Count& suite = suites_[unit_test::framework::get<unit_test::test_suite>(
                               unit_test::framework::current_test_case().p_parent_id)
                               .p_name];
    ++suite.all;
    suite.spread += has_part(a, "b") || has_part(a, "c");
  }

  /// They end well, which is where sanitizers say what they have found.
  ~NodeProcesses() {
    bool is_spread = true;
    for (const auto& [suite, count] : suites_) {
      // a run of a case or two by hand may have chosen cases that are not spread
      if (count.all < 8 || 2 * count.spread >= count.all) continue;
      std::fprintf(
          stderr,
          "%s: of %d engines that were to spread what they run over three processes %d have\n",
          suite.c_str(), count.all, count.spread);
      is_spread = false;
    }
    for (NodeProcess* node : {&c_, &b_}) {
      node->process.interrupt(SIGTERM);
      const Outcome o = node->process.finish();
      if (o.code == 0) continue;
      std::fprintf(stderr, "a node ends with %d: %s\n", o.code, o.error.c_str());
      fail();
    }
    if (!is_spread) fail();
  }

 private:
  NodeProcesses() = default;
  /// The tests have been judged.
  [[noreturn]] static void fail() {
    std::fflush(stderr);
    _exit(1);
  }
  struct Count {
    int all = 0, spread = 0;
  };
  static bool has_part(const ClusterNode& a, const std::string& other) {
    const ClusterReport said = a.inspect({}, std::chrono::seconds(60), other);
    if (said.size() != 1) return false;
    const std::vector<Member> members = a.members();
    const auto self = std::find_if(members.begin(), members.end(),
                                   [&](const Member& m) { return m.name == a.name(); });
    const auto is_of_a = [&](const auto& run) {
      return run.plan.owner == a.name() && run.plan.life == self->incarnation;
    };
    const EngineSnapshot& there = said[0].report.engine;
    return std::any_of(there.runs.begin(), there.runs.end(), is_of_a) ||
           std::any_of(there.recent.begin(), there.recent.end(), is_of_a);
  }
  static NodeProcess node(const Folder& folder, const std::string& name,
                          std::vector<std::string> more) {
    // a test program that is ended leaves none
    return NodeProcess(folder, name, std::move(more), "tcp://127.0.0.1:0",
                       {"/usr/bin/setpriv", "--pdeathsig", "KILL"});
  }
  std::map<std::string, Count> suites_;
  Folder of_b_, of_c_;  // and what each has said
  NodeProcess b_ = node(of_b_, "b", {}), c_ = node(of_c_, "c", {"--join", b_.address});
};

}  // namespace troupe::test
