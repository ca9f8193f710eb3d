#include <troupe/actors/events/query_report.hpp>

#include <algorithm>

#include <nlohmann/json.hpp>

#include <troupe/actors/runtime/clock.hpp>
#include <troupe/devices/base/device_name.hpp>
#include <troupe/ops/format/json_text.hpp>

namespace troupe::events {
namespace {

using json = nlohmann::json;

constexpr const char* kStatusNames[] = {"idle", "ready", "running", "waiting", "dead", "failed"};

/// `select` of `select#3`, `align` of `trades.align`; an output is itself.
std::string kind_of_operator(const std::string& name) {
  if (const auto hash = name.find('#'); hash != std::string::npos) return name.substr(0, hash);
  if (const auto dot = name.rfind('.'); dot != std::string::npos) return name.substr(dot + 1);
  return "output";
}

/// Bytes of a message in a token, without those of its text.
std::uint64_t message_bytes(const Schema& schema) {
  return 4 * sizeof(Time) + schema.size() * sizeof(std::int64_t);
}

}  // namespace

void ReportsOfOperators::add(std::size_t place, OperatorReport report) {
  const std::lock_guard lock(mutex_);
  report.has_answered = true;
  all_[place] = std::move(report);
  if (--missing_ == 0) answered_.notify_all();
}

void ReportsOfOperators::wait() {
  std::unique_lock lock(mutex_);
  answered_.wait(lock, [this] { return missing_ == 0; });
}

bool ReportsOfOperators::wait(std::chrono::nanoseconds patience) {
  std::unique_lock lock(mutex_);
  return answered_.wait_for(lock, patience, [this] { return missing_ == 0; });
}

std::vector<OperatorReport> ReportsOfOperators::reports() const {
  const std::lock_guard lock(mutex_);
  return all_;
}

ActorStatus status_of(const OperatorReport& report) {
  if (report.has_failed) return ActorStatus::failed;
  if (!report.has_answered) return ActorStatus::running;
  if (report.full >= 0) return ActorStatus::waiting;
  return report.waiting > 0 ? ActorStatus::ready : ActorStatus::idle;
}

QueryReporter::QueryReporter(const Query& query, std::string name, int window, Ask ask)
    : query_(query), name_(std::move(name)), window_(window), made_ns_(epoch_ns()),
      ask_(std::move(ask)), last_(query.steps().size()) {}

void QueryReporter::close() {
  const std::lock_guard lock(mutex_);
  ask_ = {};
}

/// An operator without an answer keeps its last counters.
std::vector<OperatorReport> QueryReporter::ask(std::chrono::nanoseconds patience) {
  const std::lock_guard lock(mutex_);
  for (OperatorReport& report : last_) report.has_answered = false;
  if (!ask_) return last_;
  std::vector<OperatorReport> now = ask_(patience);
  for (std::size_t s = 0; s < now.size(); ++s)
    if (now[s].has_answered) last_[s] = std::move(now[s]);
  return last_;
}

detail::PlanDescription QueryReporter::plan() {
  detail::PlanDescription plan;
  std::int32_t edges = 0;
  for (std::size_t s = 0; s < query_.steps().size(); ++s) {
    const Query::Step& step = query_.steps()[s];
    detail::ActorDescription& actor = plan.actors.emplace_back();
    actor.op = kind_of_operator(step.name);
    actor.name = step.name;
    actor.scope = name_;
    actor.device = full_name(kHostDevice, step.node);
    actor.attributes = step.what;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      detail::EdgeDescription& edge = plan.edges.emplace_back();
      edge.from = static_cast<std::int32_t>(step.inputs[i]);
      edge.to = static_cast<std::int32_t>(s);
      edge.input = static_cast<std::int32_t>(i);
      edge.dtype = "events";
      edge.shape = query_.steps()[step.inputs[i]].schema.text();
      edge.is_cut = true;
      edge.receive = edges++;
    }
  }
  return plan;
}

PartitionSnapshot QueryReporter::counters(std::chrono::nanoseconds patience) {
  const std::vector<OperatorReport> reports = ask(patience);
  const auto consumers = query_.consumers();
  PartitionSnapshot p;
  p.device = "cpu:0";
  p.has_answered = true;
  p.runs.emplace_back();  // it goes on: tokens that wait are not lost
  std::int32_t edges = 0;
  for (std::size_t s = 0; s < reports.size(); ++s) {
    const OperatorReport& r = reports[s];
    const Query::Step& step = query_.steps()[s];
    ActorCounters& c = p.actors.emplace_back();
    c.node = static_cast<std::int32_t>(s);
    c.fires = r.tokens;
    c.busy_ns = r.busy_ns;
    c.bytes_out = (r.counters.events_out + r.counters.retractions_out) * message_bytes(step.schema);
    c.state = status_of(r);
    if (c.state == ActorStatus::waiting && r.full < std::ssize(consumers[s]))
      c.waiting_for =
          static_cast<std::int32_t>(consumers[s][static_cast<std::size_t>(r.full)].step);
    c.queued = r.waiting;
    c.capacity = static_cast<std::uint64_t>(window_) * std::max<std::size_t>(1, step.inputs.size());
    for (std::size_t i = 0; i < step.inputs.size(); ++i, ++edges) {
      const std::size_t from = step.inputs[i];
      EdgeCounters taken, sent;
      taken.receive = sent.receive = edges;
      taken.window = window_;
      if (i < r.taken.size()) taken.received = r.taken[i];
      for (std::size_t k = 0; k < consumers[from].size(); ++k)
        if (consumers[from][k].step == s && consumers[from][k].input == i &&
            k < reports[from].sent.size())
          sent.sent = reports[from].sent[k];
      // answers come one after another: no token is taken before it was sent
      sent.sent = std::max(sent.sent, taken.received);
      p.edges.push_back(taken);
      p.edges.push_back(sent);
    }
  }
  return p;
}

std::string QueryReporter::text(std::uint64_t number, std::chrono::nanoseconds patience) {
  auto operators = json::array();
  const std::vector<OperatorReport> reports = ask(patience);
  for (std::size_t s = 0; s < reports.size(); ++s) {
    const Counters& c = reports[s].counters;
    operators.push_back({{"name", query_.steps()[s].name},
                         {"kind", kind_of_operator(query_.steps()[s].name)},
                         {"state", kStatusNames[static_cast<std::size_t>(status_of(reports[s]))]},
                         {"tokens", reports[s].tokens},
                         {"waiting", reports[s].waiting},
                         {"events_in", c.events_in},
                         {"retractions_in", c.retractions_in},
                         {"events_out", c.events_out},
                         {"retractions_out", c.retractions_out},
                         {"blocked", c.blocked},
                         {"blocking", c.blocking},
                         {"state_size", c.state},
                         {"peak_state", c.peak_state},
                         {"live_bytes", c.state_bytes},
                         {"peak_bytes", c.peak_bytes},
                         {"clipped", c.clipped},
                         {"dropped", c.dropped},
                         {"refused", c.refused},
                         {"complaints", c.complaints}});
  }
  return json_text({{"number", number},
                    {"name", name_},
                    {"made_ns", made_ns_},
                    {"explain", query_.explain()},
                    {"operators", std::move(operators)}});
}

}  // namespace troupe::events
