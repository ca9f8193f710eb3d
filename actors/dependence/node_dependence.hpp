// The causes among a node's own events, followed as they come: each channel is an output whose
// OnlineFit has the other channels as inputs, and pairs are tested every few seconds.
//
//   NodeDependence here({});
//   here.add(events_of_the_recorder, until);        // times alone: no message ids
//   run.feed("alarms", here.take_alarms());          // a query with the source alarm_schema()
//   std::string text = here.json(truth);             // channels, fitted parameters, edges
//
// The window has at most `most_events`, so a busy node has a shorter one. Only parameters leave
// the node. If other channels become the largest, their fits begin anew, and open alarms end.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include <troupe/actors/dependence/evaluation.hpp>
#include <troupe/actors/dependence/online_fit.hpp>

namespace troupe::dependence {

struct NodeDependenceOptions {
  double window = 20;     ///< s
  double test_every = 5;  ///< s
  double support = 0.05;  ///< s, longest delay
  double threshold = 11;  ///< sum of CUSUM that alarms
  std::size_t most_channels = 8;
  std::size_t most_events = 20'000;  ///< in the window
  std::size_t most_names = 1'024;    ///< kept, beside those of channels with an event in the window
};

/// An event of a channel, which ended then.
struct ChannelEvent {
  std::string channel;
  events::Time at = 0;  ///< ns
};

class NodeDependence {
 public:
  explicit NodeDependence(NodeDependenceOptions options)
      : options_(options), alarms_(alarm_schema()) {}

  /// Adds events in order of time; none before `until` comes any more.
  void add(const std::vector<ChannelEvent>& events, events::Time until);

  /// The edges of the last test; empty before it.
  const DependenceGraph& graph() const { return graph_; }
  /// Returns how often pairs were tested.
  std::uint64_t tests() const { return tests_; }
  /// The largest channels, which have fits.
  std::vector<std::string> channels() const;
  const std::vector<OnlineFit>& fits() const { return fits_; }
  /// Returns the part of pairs of channels that have as many events: near 1 if a step locks them.
  double locked() const;
  /// Returns what changed since the last call: inserts, retractions, and the guarantee.
  events::Batch take_alarms();
  std::size_t open_alarms() const { return open_.size(); }
  /// Returns how many channels have names here: those of the window, and at most `most_names` more.
  std::size_t known_channels() const { return names_.size(); }
  /// Returns whether a channel has a name here.
  bool knows(const std::string& channel) const { return numbers_.contains(channel); }
  /// Returns the report with precision and recall against true edges.
  std::string json(const Edges& truth) const;

 private:
  struct Open {
    events::Time begin;
    events::Row row;
  };

  std::uint32_t number_of(const std::string& channel);
  double seconds(events::Time at) const { return static_cast<double>(at - origin_) * 1e-9; }
  void feed(std::uint32_t channel, double time);
  void test();
  void rebuild(std::vector<std::uint32_t> largest);
  void forget_channels();
  events::Time gather(std::size_t fit);
  void end_alarm(events::Key key, const Open& alarm, events::Time end);
  void end_alarms();

  const NodeDependenceOptions options_;
  std::map<std::string, std::uint32_t> numbers_;
  std::vector<std::string> names_;  // by number
  std::deque<std::pair<std::uint32_t, double>> window_;
  events::Time origin_ = events::kNever;
  double now_ = 0, tested_ = 0;
  std::vector<std::uint32_t> largest_;  // channels with fits, in the order of numbers
  std::vector<OnlineFit> fits_;         // by place in `largest_`
  std::uint64_t generation_ = 0;        // generation of the fits
  DependenceGraph graph_;
  std::uint64_t tests_ = 0;
  events::Batch alarms_;
  events::Time guarantee_ = events::kNever;
  std::map<events::Key, Open> open_;
};

}  // namespace troupe::dependence
