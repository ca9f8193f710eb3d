// A causal model of one output that follows its events: a fit of the last window, refitted from the
// model before, and alarms as a stream of events that are taken back.
//
//   OnlineFit fit("page", {"rank", "ads"}, {.window = 60});
//   fit.add_input(0, 1.2);  fit.add_output(1.25);  fit.advance(2);
//   run.feed("alarms", fit.take_alarms());           // a query with the source alarm_schema()
//
//   events ─► window ─► refit ─► model ─► CUSUM ─► over: insert [since, forever)
//                                  ▲        │
//                                  └────────┴─ the model before fits again: retract to then
//
// An alarm holds from the time since when the model is worse than one of its alternatives. While it
// holds, CUSUM watches for the return, which retracts the alarm's end. After a whole window
// the change is the new model, which ends the alarm too. Refits wait while evidence gathers, so
// that no model learns the change before the alarm.
//
// Threads: one at a time. Times are seconds and ascending, over all channels.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <troupe/actors/dependence/change.hpp>
#include <troupe/actors/events/batch.hpp>

namespace troupe::dependence {

struct OnlineOptions {
  double window = 60;       ///< s
  double refit_every = 10;  ///< s
  double support = 1;       ///< s, longest delay
  double threshold = 11;    ///< sum of CUSUM that alarms
  int warm_iterations = 6;  ///< EM steps a refit
  std::size_t fewest = 40;  ///< outputs in the window before the first fit
};

/// (output text, change text, sum real): an alarm. Times are nanoseconds.
const events::Schema& alarm_schema();

class OnlineFit {
 public:
  /// Throws Error (invalid_argument) unless the window is longer than the support.
  OnlineFit(std::string output, std::vector<std::string> inputs, OnlineOptions options);

  /// Throws Error (not_found) for an input that is not there, and (invalid_argument) for a time
  /// that goes back.
  void add_input(std::size_t input, double time);
  void add_output(double time);
  /// No event comes before `time` any more.
  void advance(double time);

  /// Returns the last fit; none before enough outputs.
  const std::optional<Fit>& fit() const { return fit_; }
  bool has_alarm() const { return alarm_.has_value(); }
  /// Returns what changed since the last call: inserts, retractions, and the guarantee.
  events::Batch take_alarms();

 private:
  struct OpenAlarm {
    events::Key key;
    Cusum::Alarm what;
    events::Row row;
    double opened;  // s
  };

  void refit();
  void watch(const CausalModel& model, std::vector<CausalModel> alternatives);
  void check();
  void open_alarm();
  void close_alarm(double end);
  Arrivals arrivals() const;

  const std::string output_;
  const std::vector<std::string> inputs_;
  const OnlineOptions options_;
  std::vector<std::deque<double>> input_times_;  // in the window
  std::deque<double> output_times_;
  double now_ = 0, fitted_ = 0;
  std::optional<Fit> fit_;
  std::optional<Cusum> cusum_;
  std::optional<OpenAlarm> alarm_;
  events::Key next_key_ = 0;
  events::Batch changes_;
};

}  // namespace troupe::dependence
