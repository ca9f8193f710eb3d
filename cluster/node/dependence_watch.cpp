#include <troupe/cluster/node/dependence_watch.hpp>

#include <algorithm>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include <troupe/actors/executor/trace_file.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/format/json_text.hpp>

namespace troupe {
namespace {

constexpr auto kWatchPeriod = std::chrono::milliseconds(250);
constexpr auto kWatchIdle = std::chrono::seconds(30);
constexpr std::size_t kAlarmsKept = 64;

/// `k`, `s` or `r`; 0: an event that is no channel's.
char channel_kind(RecordedEvent::Kind kind) {
  using Kind = RecordedEvent::Kind;
  if (kind == Kind::kernel || kind == Kind::firing) return 'k';
  return kind == Kind::send ? 's' : kind == Kind::receive ? 'r' : '\0';
}

}  // namespace

DependenceWatch::DependenceWatch(Host host, dependence::NodeDependenceOptions options)
    : host_(std::move(host)), here_(options) {
  note(here_.take_alarms());
  if (host_.has_thread) thread_ = std::jthread([this](const std::stop_token& s) { run(s); });
}

DependenceWatch::~DependenceWatch() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void DependenceWatch::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto next = std::chrono::steady_clock::now() + kWatchPeriod;
    poll();
    std::unique_lock lock(mutex_);
    wanted_.wait_until(lock, stop, next, [] { return false; });
    wanted_.wait(lock, stop,
                 [this] { return std::chrono::steady_clock::now() - asked_ < kWatchIdle; });
  }
}

/// Takes what ended since the last look. Events of a partition that answers late are left out.
void DependenceWatch::poll() {
  const std::lock_guard one(poll_mutex_);
  const std::int64_t now = host_.time_ns();
  std::vector<dependence::ChannelEvent> fresh;
  for (const RecordedPlan& plan : host_.record(until_))
    for (const PartitionSnapshot& p : plan.partitions)
      for (const RecordedEvent& e : p.events) {
        const char kind = channel_kind(e.kind);
        const std::int64_t end = e.begin_ns + e.length_ns;
        if (kind == '\0' || end < until_ || end >= now) continue;
        const auto name = std::lower_bound(plan.names.begin(), plan.names.end(),
                                           std::pair{e.node, std::string()});
        if (name == plan.names.end() || name->first != e.node) continue;
        const std::string channel = (kind == 'k'   ? ""
                                     : kind == 's' ? "send "
                                                   : "receive ") +
                                    name->second;
        places_[channel][plan.name] = {e.node, kind};
        fresh.push_back({channel, end});
      }
  std::stable_sort(fresh.begin(), fresh.end(),
                   [](const auto& a, const auto& b) { return a.at < b.at; });
  until_ = now;
  here_.add(fresh, now);
  if (std::exchange(tests_, here_.tests()) != here_.tests()) {
    const std::vector<NumberedPlan> plans = host_.plans();
    forget_places(plans);
    truth_ = truth(plans);
  }
  note(here_.take_alarms());
}

/// Keeps the changes of alarms, and makes the report.
void DependenceWatch::note(const events::Batch& batch) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const events::Row row = batch.row(i);
    alarms_.push_back(json_text({{"change", batch.is_insert(i) ? "insert" : "retract"},
                                 {"number", ++changes_},
                                 {"key", batch.key[i]},
                                 {"begin_ns", batch.begin[i]},
                                 {"end_ns", batch.end[i]},
                                 {"output", std::get<std::string>(row[0])},
                                 {"text", std::get<std::string>(row[1])},
                                 {"sum", std::get<double>(row[2])}}));
  }
  if (alarms_.size() > kAlarmsKept)
    alarms_.erase(alarms_.begin(), alarms_.end() - static_cast<std::ptrdiff_t>(kAlarmsKept));
  nlohmann::json report = nlohmann::json::parse(here_.json(truth_));
  report["open_alarms"] = here_.open_alarms();
  report["alarms"] = nlohmann::json::array();
  for (const std::string& alarm : alarms_) report["alarms"].push_back(nlohmann::json::parse(alarm));
  const std::lock_guard lock(mutex_);
  text_ = json_text(report);
}

/// Drops the places of channels without a name, and those in plans that this node no longer has.
void DependenceWatch::forget_places(const std::vector<NumberedPlan>& plans) {
  std::set<PlanName> there;
  for (const NumberedPlan& p : plans) there.insert(p.plan.name);
  for (auto& [channel, places] : places_)
    std::erase_if(places, [&](const auto& place) { return !there.contains(place.first); });
  std::erase_if(places_, [this](const auto& channel) {
    return channel.second.empty() || !here_.knows(channel.first);
  });
}

dependence::Edges DependenceWatch::truth(const std::vector<NumberedPlan>& plans) const {
  std::set<std::string> known;
  for (const dependence::Channel& channel : here_.graph().channels) known.insert(channel.name);
  dependence::Edges all;
  for (const auto& [plan, numbers] : plans) {
    std::map<std::int32_t, std::int32_t> actor_of;
    for (std::size_t i = 0; i < numbers.size(); ++i)
      actor_of[numbers[i]] = static_cast<std::int32_t>(i);
    std::map<dependence::ChannelPlace, std::string> channels;
    for (const auto& [name, places] : places_) {
      const auto place = places.find(plan.name);
      if (place == places.end() || !known.contains(name)) continue;
      if (const auto actor = actor_of.find(place->second.first); actor != actor_of.end())
        channels[{actor->second, place->second.second}] = name;
    }
    all.merge(dependence::plan_truth(plan, host_.node, channels));
  }
  return all;
}

std::string DependenceWatch::text() {
  if (!host_.has_thread) poll();
  const std::lock_guard lock(mutex_);
  asked_ = std::chrono::steady_clock::now();
  wanted_.notify_all();
  return text_;
}

}  // namespace troupe
