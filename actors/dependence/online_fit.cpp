#include <troupe/actors/dependence/online_fit.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::dependence {
namespace {

events::Time online_ns(double seconds) { return std::llround(seconds * 1e9); }

void online_forget(std::deque<double>& times, double before) {
  while (!times.empty() && times.front() <= before) times.pop_front();
}

}  // namespace

const events::Schema& alarm_schema() {
  static const events::Schema schema{
      {"output", events::Type::text}, {"change", events::Type::text}, {"sum", events::Type::real}};
  return schema;
}

OnlineFit::OnlineFit(std::string output, std::vector<std::string> inputs, OnlineOptions options)
    : output_(std::move(output)), inputs_(std::move(inputs)), options_(options),
      input_times_(inputs_.size()), changes_(alarm_schema()) {
  if (!(options_.support > 0 && options_.window > options_.support))
    throw Error(Code::invalid_argument,
                fmt::format("a window of {} s is not longer than the support of {} s; use a longer "
                            "window",
                            options_.window, options_.support));
}

void OnlineFit::add_input(std::size_t input, double time) {
  if (input >= inputs_.size())
    throw Error(Code::not_found, fmt::format("there is no input {} of '{}'; it has {}", input,
                                             output_, inputs_.size()));
  advance(time);
  input_times_[input].push_back(time);
  if (cusum_) cusum_->add_input(input, time);
}

void OnlineFit::add_output(double time) {
  advance(time);
  output_times_.push_back(time);
  if (!cusum_) return;
  cusum_->add_output(time);
  check();
}

void OnlineFit::advance(double time) {
  if (!(time >= now_))
    throw Error(Code::invalid_argument,
                fmt::format("time goes back from {} s to {} s; give events in order", now_, time));
  now_ = time;
  if (cusum_) {
    cusum_->advance(time);
    check();
  }
  if (now_ - fitted_ < options_.refit_every) return;
  online_forget(output_times_, now_ - options_.window);
  for (auto& times : input_times_) online_forget(times, now_ - options_.window);
  if (alarm_ && now_ - alarm_->opened > options_.window) close_alarm(now_);
  constexpr double kRising = 0.5;  // times the threshold
  const bool is_quiet = !cusum_ || cusum_->largest() < kRising * options_.threshold;
  if (!alarm_ && is_quiet && output_times_.size() >= options_.fewest) refit();
}

Arrivals OnlineFit::arrivals() const {
  const double begin = std::max(0.0, now_ - options_.window);
  const auto times_of = [&](const std::deque<double>& times) {
    Times out;
    out.reserve(times.size());
    for (const double t : times)
      if (t > begin) out.push_back(std::min(t - begin, now_ - begin));
    return out;
  };
  Arrivals all{{}, times_of(output_times_), now_ - begin};
  for (const auto& times : input_times_) all.inputs.push_back(times_of(times));
  return all;
}

void OnlineFit::refit() {
  fitted_ = now_;
  const Arrivals all = arrivals();
  FitOptions fitting{options_.support, 200, 1e-7};
  if (fit_) {
    fitting.most_iterations = options_.warm_iterations;  // the next refit goes on from there
    CausalModel start = fit_->model;
    start.leak = std::max(start.leak, 0.1 / all.end);
    for (Cause& cause : start.channels) cause.weight = std::max(cause.weight, 1e-3);
    fit_ = fit_by_em(all, std::move(start), fitting);
  } else {
    fit_ = fit_from_scales(all, model_of(all, options_.support / 16), fitting);
  }
  // a model of less than a window alarms of itself
  if (now_ >= options_.window) watch(fit_->model, alternatives_of(fit_->model));
}

// Inputs of the last supports still cause outputs.
void OnlineFit::watch(const CausalModel& model, std::vector<CausalModel> alternatives) {
  constexpr double kSupports = 4;
  const double begin = std::max(0.0, now_ - kSupports * options_.support);
  cusum_.emplace(model, std::move(alternatives),
                 CusumOptions{options_.support, options_.threshold, begin});
  std::vector<std::pair<double, std::size_t>> recent;
  for (std::size_t j = 0; j < input_times_.size(); ++j)
    for (auto t = input_times_[j].rbegin(); t != input_times_[j].rend() && *t >= begin; ++t)
      recent.emplace_back(*t, j);
  std::sort(recent.begin(), recent.end());
  for (const auto& [time, input] : recent) cusum_->add_input(input, time);
  cusum_->advance(now_);
  cusum_->reset();
}

void OnlineFit::check() {
  if (!cusum_->is_over()) return;
  if (!alarm_) return open_alarm();
  close_alarm(cusum_->alarm().since);
}

void OnlineFit::open_alarm() {
  const Cusum::Alarm what = cusum_->alarm();
  events::Row row{output_, difference_text(what.before, what.after, inputs_), what.sum};
  alarm_ = OpenAlarm{++next_key_, what, std::move(row), now_};
  changes_.insert(alarm_->key, online_ns(what.since), events::kForever, alarm_->row);
  watch(what.after, {what.before});
}

void OnlineFit::close_alarm(double end) {
  const OpenAlarm closed = *std::exchange(alarm_, std::nullopt);
  const events::Time begin = online_ns(closed.what.since);
  changes_.shrink(closed.key, begin, std::max(begin, online_ns(end)), events::kForever, closed.row);
  watch(closed.what.before, alternatives_of(closed.what.before));
  // a change that lasts: the next refit adopts it
  if (now_ - closed.opened > options_.window) cusum_.reset();
}

// An insert or retraction to come begins when its sum does.
events::Batch OnlineFit::take_alarms() {
  events::Batch taken = std::exchange(changes_, events::Batch(alarm_schema()));
  taken.guarantee = online_ns(cusum_ ? cusum_->earliest() : now_) - 1;
  return taken;
}

}  // namespace troupe::dependence
