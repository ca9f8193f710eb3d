#include <troupe/cluster/inspect/event_feed.hpp>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include <troupe/actors/executor/trace_file.hpp>
#include <troupe/actors/runtime/clock.hpp>
#include <troupe/cluster/inspect/inspection_json.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {
namespace {

using events::FlowEvent;

std::string feed_name(const RecordedPlan& plan, const RecordedEvent& e) {
  const auto it =
      std::lower_bound(plan.names.begin(), plan.names.end(), std::pair{e.node, std::string()});
  return title_of(
      e, it == plan.names.end() || it->first != e.node ? std::to_string(e.node) : it->second);
}

events::Time feed_end(const FlowEvent& e) { return events::later(e.event.begin, e.event.length); }

}  // namespace

class EventFeed::Asker {
 public:
  Asker(const ClusterNode& node, FeedOptions options)
      : node_(node), options_(std::move(options)), merger_({options_.patience.count(), 1 << 16}),
        tracer_(static_cast<std::uint64_t>(epoch_ns())) {
    if (options_.period.count() > 0) thread_ = std::jthread([this](std::stop_token s) { run(s); });
  }
  ~Asker() {
    if (thread_.joinable()) {
      thread_.request_stop();
      thread_.join();
    }
    if (options_.firings) ask(NodeQuestion::Kind::trace_off, 0);
  }

  void poll() {
    const std::lock_guard one(poll_mutex_);
    if (options_.firings) ask(NodeQuestion::Kind::trace_on, 0);
    const ClusterReport report = ask(NodeQuestion::Kind::events, std::max<std::int64_t>(0, since_));
    const std::int64_t now = time_of(report);
    since_ = now;
    std::vector<FlowEvent> of_members = membership(report, now);
    add_records(of_members, now);
    for (const NodeAnswer& a : report) add(a, now);
    merger_.add("", std::move(of_members), now - 1, now);
    events::EventMerger::Part part = merger_.take(now);
    const std::lock_guard lock(mutex_);
    for (events::EngineEvent& e : part.events) ring_.push_back(std::move(e));
    while (ring_.size() > options_.room) {
      ring_.pop_front();
      ++first_;
    }
    guarantee_ = part.guarantee;
    counts_.clocks = merger_.clocks(now);
    counts_.late = merger_.late();
    counts_.gaps = gaps_;
    counts_.most_ahead = merger_.most_ahead();
    ++counts_.asked;
  }

  Part after(std::uint64_t next, std::size_t most) {
    const std::lock_guard lock(mutex_);
    taken_ = std::chrono::steady_clock::now();
    wanted_.notify_all();
    Part part;
    const std::uint64_t end = first_ + ring_.size(), begin = std::clamp(next, first_, end);
    part.lost = next < first_ ? first_ - next : 0;
    part.next = begin + std::min<std::uint64_t>(end - begin, most);
    const auto at = [this](std::uint64_t n) {
      return ring_.begin() + static_cast<std::ptrdiff_t>(n - first_);
    };
    part.events.assign(at(begin), at(part.next));
    if (part.next == end) part.guarantee = guarantee_;
    return part;
  }
  std::uint64_t first() const {
    const std::lock_guard lock(mutex_);
    return first_;
  }
  Counts counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  /// Times by the node's own clock.
  struct Known {
    std::int64_t complete_until = 0;              // but for the tracks below; 0: no answer yet
    std::map<std::string, std::int64_t> lagging;  // tracks that have not answered since
  };

  void run(const std::stop_token& stop) {
    const std::stop_callback wake(stop, [this] {
      const std::lock_guard lock(mutex_);
      wanted_.notify_all();
    });
    while (!stop.stop_requested()) {
      const auto next = std::chrono::steady_clock::now() + options_.period;
      poll();
      std::unique_lock lock(mutex_);
      wanted_.wait_until(lock, next, [&] { return stop.stop_requested(); });
      wanted_.wait(lock, [&] {
        return stop.stop_requested() || std::chrono::steady_clock::now() - taken_ < options_.idle;
      });
    }
  }

  ClusterReport ask(NodeQuestion::Kind kind, std::int64_t since) const {
    NodeQuestion question;
    question.kind = kind;
    question.since_ns = since;
    question.tracer = tracer_;
    return node_.inspect(question, options_.answer, options_.node);
  }

  /// Returns the time by this node's clock, which may be another than the system's.
  static std::int64_t time_of(const ClusterReport& report) {
    std::int64_t now = INT64_MIN;
    for (const NodeAnswer& a : report)
      if (a.has_answered) now = std::max(now, a.report.received_ns - a.offset_ns);
    return now == INT64_MIN ? epoch_ns() : now;
  }

  /// Adds the events of a node's recorders that ended since its last answer. Its own clock decides
  /// which these are, so an estimate of its offset that changes repeats and loses none.
  void add(const NodeAnswer& a, std::int64_t now) {
    const std::string& name = a.member.name;
    const auto [it, is_new] = known_.try_emplace(name);
    Known& known = it->second;
    if (!a.has_answered) {
      if (!a.member.is_up()) merger_.end(name);
      // once: a node that never answers is waited for no longer than the patience
      else if (is_new) merger_.add(name, {}, events::kNever, now);
      return ask_from(known.complete_until - a.offset_ns, now);
    }
    const std::int64_t until = a.report.received_ns;
    std::vector<FlowEvent> fresh;
    std::map<std::string, std::int64_t> lagging;
    for (const RecordedPlan& plan : a.report.recorded)
      for (const PartitionSnapshot& p : plan.partitions) {
        const std::string track = p.device + " of plan " + plan.name.text();
        const auto late = known.lagging.find(track);
        const std::int64_t since =
            late == known.lagging.end() ? known.complete_until : late->second;
        if (!p.has_answered) {
          lagging[track] = since;
          continue;
        }
        gaps_ += since > 0 && p.whole_since_ns > since;
        for (const RecordedEvent& e : p.events) {
          if (const std::int64_t end = e.begin_ns + e.length_ns; end < since || end >= until)
            continue;
          fresh.push_back({{e.begin_ns - a.offset_ns, e.length_ns, name, track,
                            troupe::name_of(e.kind), feed_name(plan, e)},
                           e.flow});
        }
      }
    known.lagging = std::move(lagging);
    known.complete_until = std::max(known.complete_until, until);
    fresh.push_back({{until - 1 - a.offset_ns, 0, name, "", "heartbeat", "answer"}, 0});
    std::stable_sort(fresh.begin(), fresh.end(), [](const FlowEvent& x, const FlowEvent& y) {
      return feed_end(x) < feed_end(y);
    });
    std::int64_t complete = known.complete_until;
    for (const auto& [track, since] : known.lagging)
      if (until - since <= options_.patience.count()) complete = std::min(complete, since);
    ask_from(complete - a.offset_ns, now);
    merger_.add(name, std::move(fresh), complete - a.offset_ns - 1, now);
  }

  /// The next question is for events since then, unless that is longer ago than the patience.
  void ask_from(std::int64_t since, std::int64_t now) {
    if (now - since <= options_.patience.count()) since_ = std::min(since_, since);
  }

  /// Returns an event for each member whose state has changed.
  std::vector<FlowEvent> membership(const ClusterReport& report, std::int64_t now) {
    std::vector<FlowEvent> changed;
    for (const NodeAnswer& a : report) {
      const auto [it, is_new] = states_.try_emplace(a.member.name, a.member.state);
      if (!is_new && it->second == a.member.state) continue;
      it->second = a.member.state;
      changed.push_back(
          {{now - 1, 0, a.member.name, node_.name(), "membership", troupe::name_of(a.member.state)},
           0});
    }
    return changed;
  }

  /// Adds the training records that have come since the last question, one by one.
  void add_records(std::vector<FlowEvent>& all, std::int64_t now) {
    NodeQuestion question;
    question.kind = NodeQuestion::Kind::scalars;
    question.since_step = since_step_;
    const std::string text = scalars_json(node_.inspect(question, options_.answer, options_.node));
    if (text.empty()) {
      knows_records_ = true;
      return;
    }
    const nlohmann::json answer = nlohmann::json::parse(text);
    std::int64_t since = INT64_MAX;
    for (const auto& series : answer.at("series")) {
      const auto name = series.at("name").get<std::string>();
      LastRecord& last = last_records_[{series.at("node").get<std::string>(), name}];
      const bool is_scalar = series.at("kind") == "scalar";
      for (const auto& point : series.at("points")) {
        const auto step = point.at(0).get<std::int64_t>(),
                   wall_ns = point.at(1).get<std::int64_t>();
        // A training that goes on from an earlier step has later times there.
        if (wall_ns <= last.wall_ns) continue;
        last = {step, wall_ns};
        if (is_scalar && knows_records_)
          all.push_back(
              {{now - 1, 0, series.at("node").get<std::string>(), "", "record", name}, 0});
      }
      since = std::min(since, last.step);
    }
    since_step_ = since == INT64_MAX || since == INT64_MIN ? INT64_MIN : since - 1;
    knows_records_ = true;  // earlier records are no events of the feed
  }

  const ClusterNode& node_;
  const FeedOptions options_;
  std::mutex poll_mutex_;  // held while nodes are asked; guards all up to `mutex_`
  events::EventMerger merger_;
  const std::uint64_t tracer_;
  std::map<std::string, Known> known_;
  std::map<std::string, MemberState> states_;
  struct LastRecord {
    std::int64_t step = INT64_MIN, wall_ns = INT64_MIN;
  };
  std::map<std::pair<std::string, std::string>, LastRecord> last_records_;  // by node and name
  std::int64_t since_ = 0, since_step_ = INT64_MIN;
  bool knows_records_ = false;
  std::uint64_t gaps_ = 0;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable wanted_;
  std::chrono::steady_clock::time_point taken_ = std::chrono::steady_clock::now();
  std::deque<events::EngineEvent> ring_;
  std::uint64_t first_ = 0;  // number of the first event in the ring
  events::Time guarantee_ = events::kNever;
  Counts counts_;
  std::jthread thread_;  // last: it uses the others
};

EventFeed::EventFeed(const ClusterNode& node, FeedOptions options)
    : asker_(std::make_unique<Asker>(node, std::move(options))) {}
EventFeed::~EventFeed() = default;

Subscription EventFeed::subscribe() const { return {.next = asker_->first()}; }

std::vector<events::Batch> EventFeed::take(Subscription& who) {
  Part part = asker_->after(who.next, SIZE_MAX);
  who.next = part.next;
  who.lost += part.lost;
  std::vector<events::Batch> batches = events::finished_batches(part.events, who.key);
  if (batches.empty()) batches.emplace_back(events::finished_schema());
  batches.back().guarantee = part.guarantee;
  return batches;
}

EventFeed::Part EventFeed::after(std::uint64_t next, std::size_t most) {
  return asker_->after(next, most);
}
EventFeed::Counts EventFeed::counts() const { return asker_->counts(); }
void EventFeed::poll() { asker_->poll(); }

}  // namespace troupe
