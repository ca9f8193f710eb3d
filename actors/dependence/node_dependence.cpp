#include <troupe/actors/dependence/node_dependence.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include <troupe/ops/format/json_text.hpp>

namespace troupe::dependence {

std::uint32_t NodeDependence::number_of(const std::string& channel) {
  const auto [it, is_new] =
      numbers_.try_emplace(channel, static_cast<std::uint32_t>(names_.size()));
  if (is_new) names_.push_back(channel);
  return it->second;
}

void NodeDependence::add(const std::vector<ChannelEvent>& events, events::Time until) {
  if (origin_ == events::kNever) origin_ = (events.empty() ? until : events.front().at) - 1;
  for (const ChannelEvent& e : events) {
    const double time = std::max(now_, seconds(e.at));
    const std::uint32_t channel = number_of(e.channel);
    now_ = time;
    window_.emplace_back(channel, time);
    feed(channel, time);
  }
  now_ = std::max(now_, seconds(until));
  while (!window_.empty() && (window_.front().second <= now_ - options_.window ||
                              window_.size() > options_.most_events))
    window_.pop_front();
  for (std::size_t f = 0; f < fits_.size(); ++f) {
    fits_[f].advance(now_);
    gather(f);
  }
  if (now_ - tested_ >= options_.test_every) {
    test();
    forget_channels();
  }
}

/// Drops the names of channels that have neither an event in the window nor a fit, if there are
/// many. The others get new numbers in the old order.
void NodeDependence::forget_channels() {
  std::vector<bool> stays(names_.size());
  for (const std::uint32_t channel : largest_) stays[channel] = true;
  for (const auto& [channel, time] : window_) stays[channel] = true;
  const auto staying = static_cast<std::size_t>(std::count(stays.begin(), stays.end(), true));
  if (names_.size() - staying <= options_.most_names) return;
  std::vector<std::uint32_t> number(names_.size());
  std::vector<std::string> names;
  for (std::size_t c = 0; c < names_.size(); ++c) {
    number[c] = static_cast<std::uint32_t>(names.size());
    if (stays[c]) names.push_back(std::move(names_[c]));
  }
  names_ = std::move(names);
  numbers_.clear();
  for (std::size_t c = 0; c < names_.size(); ++c)
    numbers_.emplace(names_[c], static_cast<std::uint32_t>(c));
  for (std::uint32_t& channel : largest_) channel = number[channel];
  for (auto& [channel, time] : window_) channel = number[channel];
}

void NodeDependence::feed(std::uint32_t channel, double time) {
  const auto place = std::lower_bound(largest_.begin(), largest_.end(), channel);
  if (place == largest_.end() || *place != channel) return;
  const auto at = static_cast<std::size_t>(place - largest_.begin());
  for (std::size_t f = 0; f < fits_.size(); ++f)
    if (f == at) fits_[f].add_output(time);
    else fits_[f].add_input(at < f ? at : at - 1, time);
}

void NodeDependence::test() {
  tested_ = now_;
  ++tests_;
  std::map<std::uint32_t, Times> times;
  const double begin = window_.empty() ? now_ : window_.front().second - 1e-9;
  for (const auto& [channel, time] : window_) times[channel].push_back(time - begin);
  std::vector<std::pair<std::size_t, std::uint32_t>> sizes;
  for (const auto& [channel, of] : times) sizes.emplace_back(of.size(), channel);
  std::stable_sort(sizes.begin(), sizes.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (sizes.size() > options_.most_channels) sizes.resize(options_.most_channels);
  std::vector<std::uint32_t> largest;
  std::vector<Channel> channels;
  for (const auto& [size, channel] : sizes) {
    largest.push_back(channel);
    channels.push_back({names_[channel], std::move(times[channel])});
  }
  DependenceOptions testing;
  testing.support = options_.support;
  testing.shifts = 0;
  testing.most_inputs = options_.most_channels;
  graph_ = find_dependences(std::move(channels), now_ - begin, testing);
  std::sort(largest.begin(), largest.end());
  if (largest != largest_) rebuild(std::move(largest));
}

/// Makes the fits of other channels, and gives them the window.
void NodeDependence::rebuild(std::vector<std::uint32_t> largest) {
  end_alarms();
  largest_ = std::move(largest);
  fits_.clear();
  ++generation_;
  OnlineOptions online;
  online.window = options_.window;
  online.refit_every = options_.test_every;
  online.support = options_.support;
  online.threshold = options_.threshold;
  for (std::size_t f = 0; f < largest_.size(); ++f) {
    std::vector<std::string> inputs;
    for (std::size_t c = 0; c < largest_.size(); ++c)
      if (c != f) inputs.push_back(names_[largest_[c]]);
    fits_.emplace_back(names_[largest_[f]], std::move(inputs), online);
  }
  for (const auto& [channel, time] : window_) feed(channel, time);
  for (OnlineFit& fit : fits_) fit.advance(now_);
}

/// Takes the alarms of a fit under keys of its own, and returns its guarantee. Fits that begin anew
/// look back at times for which a guarantee was given: such alarms begin behind it.
events::Time NodeDependence::gather(std::size_t fit) {
  constexpr int kFitBits = 32, kGenerationBits = 40;
  const events::Batch batch = fits_[fit].take_alarms();
  const events::Time first = events::later(guarantee_, 1);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const events::Key key = batch.key[i] + (static_cast<events::Key>(fit) << kFitBits) +
                            (static_cast<events::Key>(generation_) << kGenerationBits);
    if (batch.is_insert(i)) {
      const Open opened{std::max(first, batch.begin[i] + origin_), batch.row(i)};
      alarms_.insert(key, opened.begin, events::kForever, opened.row);
      open_.emplace(key, opened);
    } else if (const auto it = open_.find(key); it != open_.end()) {
      end_alarm(key, it->second, batch.end[i] + origin_);
      open_.erase(it);
    }
  }
  return batch.guarantee + origin_;
}

void NodeDependence::end_alarm(events::Key key, const Open& alarm, events::Time end) {
  const events::Time until = std::max({alarm.begin, events::later(guarantee_, 1), end});
  alarms_.shrink(key, alarm.begin, until, events::kForever, alarm.row);
}

/// The fits go, and what they have reported with them.
void NodeDependence::end_alarms() {
  for (std::size_t f = 0; f < fits_.size(); ++f) gather(f);
  for (const auto& [key, alarm] : open_) end_alarm(key, alarm, origin_ + std::llround(now_ * 1e9));
  open_.clear();
}

events::Batch NodeDependence::take_alarms() {
  events::Time least = events::kForever;
  for (std::size_t f = 0; f < fits_.size(); ++f) least = std::min(least, gather(f));
  if (least != events::kForever) guarantee_ = std::max(guarantee_, least);
  events::Batch taken = std::exchange(alarms_, events::Batch(alarm_schema()));
  taken.guarantee = guarantee_;
  return taken;
}

std::vector<std::string> NodeDependence::channels() const {
  std::vector<std::string> all;
  for (const std::uint32_t channel : largest_) all.push_back(names_[channel]);
  return all;
}

double NodeDependence::locked() const {
  std::size_t pairs = 0, equal = 0;
  for (std::size_t a = 0; a < graph_.channels.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      const auto x = static_cast<double>(graph_.channels[a].times.size()),
                 y = static_cast<double>(graph_.channels[b].times.size());
      ++pairs;
      equal += std::abs(x - y) <= 2 + 0.02 * std::max(x, y);
    }
  return pairs == 0 ? 0 : static_cast<double>(equal) / static_cast<double>(pairs);
}

std::string NodeDependence::json(const Edges& truth) const {
  using Json = nlohmann::json;
  DependenceGraph judged = graph_;
  judge(judged, truth);
  Json out = Json::parse(json_of(judged));
  auto fits = Json::array(), edges = Json::array();
  for (std::size_t f = 0; f < fits_.size(); ++f) {
    if (!fits_[f].fit()) continue;
    const Fit& fit = *fits_[f].fit();
    auto causes = Json::array();
    for (const Cause& cause : fit.model.channels) {
      const std::size_t from = cause.input < f ? cause.input : cause.input + 1;
      causes.push_back({{"input", names_[largest_[from]]},
                        {"strength", cause.weight},
                        {"delay", cause.delay.mean()}});
    }
    fits.push_back({{"output", names_[largest_[f]]},
                    {"leak", fit.model.leak},
                    {"log_likelihood", fit.log_likelihood},
                    {"has_alarm", fits_[f].has_alarm()},
                    {"causes", std::move(causes)}});
  }
  std::map<std::string, bool> takes_part;
  for (const Channel& channel : graph_.channels) takes_part[channel.name] = true;
  for (const auto& [from, to] : truth)
    if (takes_part.contains(from) && takes_part.contains(to))
      edges.push_back({{"from", from}, {"to", to}});
  out["fits"] = std::move(fits);
  out["true_edges"] = std::move(edges);
  out["locked"] = locked();
  return json_text(out);
}

}  // namespace troupe::dependence
