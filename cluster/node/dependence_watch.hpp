// The causes among this node's own events, for nodes that ask (`/api/dependence`): recorders are
// read and fits made from the first question on, until none has come for a while. Fitted
// parameters, edges and alarms leave the node; times of events do not.
//
//   DependenceWatch watch({.record = ..., .plans = ..., .node = "a"});
//   watch.text()                                   // JSON; starts the thread
//
// Threads: any. A question gets the report of the last look. Without a thread of its own
// (`has_thread` false) each question reads the recorders.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <troupe/actors/dependence/node_dependence.hpp>
#include <troupe/actors/dependence/plan_truth.hpp>
#include <troupe/cluster/protocol/node_report.hpp>

namespace troupe {

class DependenceWatch {
 public:
  struct NumberedPlan {
    detail::PlanDescription plan;
    std::vector<std::int32_t> numbers;
  };
  struct Host {
    /// Returns the events that ended at `since_ns` or later, by this node's clock.
    std::function<std::vector<detail::RecordedPlan>(std::int64_t since_ns)> record;
    /// The plans of this node, each with the number in the whole program of each of its actors.
    std::function<std::vector<NumberedPlan>()> plans;
    std::function<std::int64_t()> time_ns;
    std::string node;
    bool has_thread = true;
  };
  explicit DependenceWatch(Host host, dependence::NodeDependenceOptions options = {});
  ~DependenceWatch();

  /// Returns channels, fits, edges, true edges, precision, recall and the last alarms as JSON.
  std::string text();

 private:
  void run(const std::stop_token& stop);
  void poll();
  void note(const events::Batch& alarms);
  void forget_places(const std::vector<NumberedPlan>& plans);
  dependence::Edges truth(const std::vector<NumberedPlan>& plans) const;

  const Host host_;
  std::mutex poll_mutex_;  // held while recorders are read; guards all up to `mutex_`
  dependence::NodeDependence here_;
  std::int64_t until_ = 0;  // events that ended before were taken
  // by channel: its node's number in the plans that have it
  std::map<std::string, std::map<PlanName, dependence::ChannelPlace>> places_;
  dependence::Edges truth_;  // since the last test
  std::uint64_t tests_ = 0;
  std::vector<std::string> alarms_;  // the last changes, as JSON
  std::uint64_t changes_ = 0;        // changes of alarms
  std::mutex mutex_;                 // guards all below; no question waits for a test
  std::condition_variable_any wanted_;
  std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
  std::string text_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace troupe
