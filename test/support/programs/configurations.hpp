// Runs a program in every way and compares its results: the interpreter, which walks the functional
// nodes, and the engine with each granularity and number of workers, real and deterministic, with
// the graph on one device, spread over several, and over several nodes of a cluster.
//
//   TROUPE_OVER_PROCESSES=1 test_controlflow --run_test=loops_test  # only over processes
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/controlflow/primitives.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/cluster/processes.hpp>
#include <troupe/test/support/gpu.hpp>
#include <troupe/test/support/programs/swapping.hpp>
#include <troupe/test/support/share.hpp>

namespace troupe::test {

using Reals = std::vector<double>;

inline Expr scalar(Graph& g, double v) { return g.constant(static_cast<float>(v)); }

struct Setting {
  const char* name;
  int workers;
  Granularity granularity;
  bool is_deterministic;
  std::uint64_t seed = 0;
  std::string device = "cpu:0";
  bool optimize = true;
  bool swaps = false;
  int nodes = 1;  // more: each node of the graph on one that is drawn
  bool are_processes = false;
};

/// Settings that sanitizer builds run: each part of the engine once. TSan leaves out the
/// deterministic ones, which have one thread.
inline bool is_for_sanitizers(const Setting& s) {
  if (s.is_deterministic) return !kUnderTsan && s.nodes > 1;
  return s.nodes > 1 || s.granularity == Granularity::op || s.swaps || s.device == "gpu:0";
}

/// The settings of this process or, if processes are asked for, those over processes.
inline std::vector<Setting> worth_a_try(std::vector<Setting> all) {
  std::erase_if(all, [](const Setting& s) {
    return (s.device == "gpu:0" && !has_gpu()) || (kShare > 1 && !is_for_sanitizers(s)) ||
           s.are_processes != is_over_processes();
  });
  return all;
}

inline const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = worth_a_try(
      {{"one worker", 1, Granularity::partition, false},
       {"two workers", 2, Granularity::automatic, false},
       {"an actor an op", 2, Granularity::op, false},
       {"no passes", 1, Granularity::automatic, true, 1, "cpu:0", false},
       {"deterministic 1", 1, Granularity::op, true, 1},
       {"deterministic 2", 1, Granularity::op, true, 2},
       {"a simulated device", 2, Granularity::automatic, false, 0, "sim:0"},
       {"a simulated device that swaps", 2, Granularity::automatic, false, 3, "sim:0", true, true},
       {"a GPU", 2, Granularity::automatic, false, 0, "gpu:0"}});
  return all;
}

/// Over nodes of a cluster.
inline const std::vector<Setting>& cluster_settings() {
  static const std::vector<Setting> all = worth_a_try(
      {{"two nodes", 1, Granularity::automatic, false, 4, "cpu:0", true, false, 2},
       {"three nodes, deterministic", 1, Granularity::partition, true, 5, "cpu:0", false, false, 3},
       {"three processes", 1, Granularity::automatic, false, 6, "cpu:0", true, false, 3, true},
       {"three processes, no passes", 1, Granularity::op, false, 7, "cpu:0", false, false, 3,
        true}});
  return all;
}

inline EngineOptions options_of(const Setting& s) {
  EngineOptions o;
  o.workers = s.workers;
  o.granularity = s.granularity;
  o.deterministic = s.is_deterministic;
  o.seed = s.seed;
  o.default_device = s.device;
  o.optimize = s.optimize;
  if (s.swaps) swap_everything(o);
  if (s.nodes > 1) o = Nodes::scattered(s.nodes, o);
  return o;
}

inline std::vector<Setting> all_settings() {
  std::vector<Setting> all = settings();
  all.insert(all.end(), cluster_settings().begin(), cluster_settings().end());
  return all;
}

/// An engine of a setting, and the other nodes if there are any.
class Somewhere {
 public:
  explicit Somewhere(const Setting& s, PrintLine print = {}) {
    EngineOptions o = options_of(s);
    o.print = std::move(print);
    if (s.are_processes) here_ = NodeProcesses::all().join(o);
    else if (s.nodes > 1) nodes_ = std::make_unique<Nodes>(s.nodes, o);
    else alone_ = std::make_unique<Engine>(o);
  }
  ~Somewhere() {
    if (here_) NodeProcesses::all().is_done(*here_);
  }
  Somewhere(const Somewhere&) = delete;
  Engine& engine() { return here_ ? here_->engine() : nodes_ ? nodes_->engine() : *alone_; }

 private:
  std::unique_ptr<ClusterNode> here_;
  std::unique_ptr<Nodes> nodes_;
  std::unique_ptr<Engine> alone_;
};

/// The program that a test builds: feeds and fetches of a graph.
struct Scenario {
  Feeds feeds;
  std::vector<Expr> fetches;
};
using Build = std::function<Scenario(Graph&)>;

inline std::vector<double> numbers(const Tensor& t) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < t.shape().elements(); ++i) out.push_back(t.at(i));
  return out;
}

inline void compare(const std::vector<Tensor>& got,
                    const std::vector<std::vector<double>>& expected, const std::string& where) {
  BOOST_REQUIRE_EQUAL(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    std::vector<double> values = numbers(got[i]);
    BOOST_REQUIRE_MESSAGE(
        values.size() == expected[i].size(),
        where << ": fetch " << i << " has " << values.size() << " elements: " << got[i].text());
    for (std::size_t k = 0; k < values.size(); ++k)
      BOOST_CHECK_MESSAGE(
          std::abs(values[k] - expected[i][k]) <= 1e-5 * std::max(1.0, std::abs(expected[i][k])),
          where << ": fetch " << i << "[" << k << "] is " << values[k] << ", not "
                << expected[i][k]);
  }
}

/// Each setting with a fresh graph, for state starts anew. `runs`: repetitions of the same run, for
/// programs without state.
inline void run_all_configurations(const Build& build,
                                   const std::vector<std::vector<double>>& expected, int runs = 1) {
  if (!is_over_processes()) {
    Graph g;
    Scenario b = build(g);
    compare(Eager().run(g, b.feeds, b.fetches), expected, "interpreter");
  }
  // TSan: one setting a program, another one for the next program; ASan: each fifth on the GPU
  static std::uint64_t calls = 0;
  std::uint64_t number = calls++;
  const bool is_due_on_gpu = is_due_today(number, 5);
  const std::vector<Setting> all = all_settings();
  for (const Setting& s : all) {
    if (!kUnderTsan && s.device == "gpu:0" && !is_due_on_gpu) continue;
    if (kUnderTsan && !is_due_today(number++, all.size())) continue;
    Graph g;
    Scenario b = build(g);
    Somewhere there(s);
    for (int r = 0; r < runs; ++r)
      compare(there.engine().run(g, b.feeds, b.fetches), expected, s.name);
  }
}

/// The message of the error that `f` throws.
template <class F>
std::string refused(F f) {
  try {
    f();
  } catch (const Error& e) { return e.what(); }
  return "nothing was thrown";
}
inline bool says(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& p : parts)
    if (text.find(p) == std::string::npos) {
      BOOST_TEST_MESSAGE("missing '" << p << "' in: " << text);
      return false;
    }
  return true;
}

}  // namespace troupe::test
