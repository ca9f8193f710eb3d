#include <troupe/cluster/node/inspection_service.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/device_name.hpp>
#include <troupe/ops/format/records.hpp>

namespace troupe {
namespace {

constexpr auto kPartitionPatience = std::chrono::milliseconds(100);  // with partitions
constexpr std::size_t kMostQuestions = 64;                           // in line
constexpr auto kTracePatience = std::chrono::milliseconds(2000);     // if they copy a whole trace

std::string in_seconds(std::int64_t ns) {
  return fmt::format("{:.1f} s", static_cast<double>(ns) * 1e-9);
}

}  // namespace

InspectionService::InspectionService(const NodeParts& node, bool has_own_clock)
    : node_(node), has_own_clock_(has_own_clock) {
  if (!node_.waiter.is_deterministic())
    inspector_ = std::make_unique<SerialExecutor>(kMostQuestions);
}

InspectionService::~InspectionService() = default;

void InspectionService::close() {
  inspector_.reset();
  const std::lock_guard lock(dependence_mutex_);
  dependence_.reset();
}

// ---- here, for others

void InspectionService::handle(Peer peer, std::uint64_t asker, InspectNode&& m) {
  const std::int64_t now = node_.time_ns();
  if (!inspector_) return answer(peer, asker, m, now);
  const std::uint64_t request = m.request;
  // Questions about the state, by which the cluster is watched, do not wait for events and traces.
  const auto rank = m.question.kind == NodeQuestion::Kind::state ? SerialExecutor::Rank::first
                                                                 : SerialExecutor::Rank::usual;
  const bool is_posted = inspector_->post(
      [this, peer, asker, now, m = std::move(m)] { answer(peer, asker, m, now); }, rank);
  if (is_posted) return;
  const Status refused(Code::resource_exhausted, "too many pending inspection requests");
  send(node_.transport, peer, Inspected{request, refused, {}});
}

void InspectionService::answer(Peer peer, std::uint64_t asker, const InspectNode& m,
                               std::int64_t received_ns) {
  Inspected said{m.request, {}, {}};
  try {
    if (!node_.quota.is_draining(peer))
      throw Error(Code::resource_exhausted, "it has not read its earlier answers");
    said.report = report(asker, m.question, received_ns);
  } catch (...) { said.status = Status::from_current_exception(); }
  said.report.answered_ns = node_.time_ns();
  node_.quota.reply(peer, said);
}

NodeReport InspectionService::report(std::uint64_t asker, const NodeQuestion& q,
                                     std::int64_t received_ns) {
  using Kind = NodeQuestion::Kind;
  NodeReport r;
  r.name = node_.self.name;
  r.incarnation = node_.self.incarnation;
  r.version = engine_version();
  if (!has_own_clock_) r.host = this_boot();
  r.received_ns = received_ns;
  switch (q.kind) {
    case Kind::state:
      r.engine = node_.engine.snapshot(kPartitionPatience);
      r.transport = node_.transport.counters();
      r.peers = peer_reports();
      load_.measure(r);
      for (const auto& [number, reporter] : reporters_of(node_.engine))
        if (const PlanDescription plan = reporter->plan(); !plan.actors.empty())
          r.engine.plans.push_back({name_of(number),
                                    {node_.self.name},
                                    plan.actors.size(),
                                    plan.edges.size(),
                                    reporter->made_ns(),
                                    1,
                                    0,
                                    0,
                                    {}});
      break;
    case Kind::counters: {
      if (const auto reporter = reporter_of(q.plan)) {
        r.partitions = {reporter->counters(kPartitionPatience)};
        r.partitions[0].device = full_name(r.partitions[0].device, node_.self.name);
        break;
      }
      Inspect of_partitions{};
      of_partitions.asks_of_actors = true;
      r.partitions = node_.engine.ask(q.plan, of_partitions, kPartitionPatience);
      break;
    }
    case Kind::plan:
      if (const auto reporter = reporter_of(q.plan)) {
        r.plan = reporter->plan();
        r.plan.name = q.plan;
        for (ActorDescription& actor : r.plan.actors)
          actor.device = full_name(actor.device, node_.self.name);
        break;
      }
      for (const auto& compiled : node_.engine.plans())
        if (compiled->troupe.plan->name == q.plan && !compiled->troupe.plan->is_part())
          r.plan = describe(*compiled->troupe.plan);
      if (r.plan.name != q.plan)
        throw Error(Code::not_found, fmt::format("node '{}' has no plan '{}', or only part of it",
                                                 node_.self.name, q.plan.text()));
      break;
    case Kind::events:
    case Kind::trace_on:
    case Kind::trace_off: r.recorded = recorded(asker, q); break;
    case Kind::scalars: {
      if (!q.plan.owner.empty()) {
        r.scalars = texts_of(q.plan.owner);
        break;
      }
      std::lock_guard lock(records_mutex_);
      if (!records_.empty())
        r.scalars = records_.back()->json(
            q.since_step, asker == node_.self.incarnation ? 0 : NodeReport::kMostScalars);
      break;
    }
  }
  r.answered_ns = node_.time_ns();
  return r;
}

PlanName InspectionService::name_of(std::uint64_t reporter) const {
  return {node_.self.name, reporter, node_.self.incarnation};
}

/// Null: the plan is none of a reporter here.
std::shared_ptr<Reporter> InspectionService::reporter_of(const PlanName& plan) const {
  if (plan.number < kFirstReporter) return nullptr;
  for (const auto& [number, reporter] : reporters_of(node_.engine))
    if (plan == name_of(number)) return reporter;
  return nullptr;
}

/// The texts of all reporters of a topic, as a JSON array; the first that fit.
std::string InspectionService::texts_of(const std::string& topic) {
  if (topic == "dependence") return "[" + dependence().text() + "]";
  std::string all = "[";
  for (const auto& [number, reporter] : reporters_of(node_.engine)) {
    if (reporter->topic() != topic) continue;
    const std::string text = reporter->text(number, kPartitionPatience);
    if (all.size() + text.size() + 2 > NodeReport::kMostScalars) break;
    all += (all.size() > 1 ? "," : "") + text;
  }
  return all + "]";
}

DependenceWatch& InspectionService::dependence() {
  const std::lock_guard lock(dependence_mutex_);
  if (!dependence_)
    dependence_ = std::make_unique<DependenceWatch>(DependenceWatch::Host{
        .record =
            [this](std::int64_t since_ns) {
              NodeQuestion question;
              question.kind = NodeQuestion::Kind::events;
              question.since_ns = since_ns;
              return recorded(node_.self.incarnation, question);
            },
        .plans =
            [this] {
              std::vector<DependenceWatch::NumberedPlan> all;
              for (const auto& compiled : node_.engine.plans()) {
                const Plan& plan = *compiled->troupe.plan;
                all.push_back({describe(plan), {}});
                const auto n = static_cast<std::int32_t>(all.back().plan.actors.size());
                for (std::int32_t i = 0; i < n; ++i)
                  all.back().numbers.push_back(plan.number_of(i));
              }
              return all;
            },
        .time_ns = node_.time_ns,
        .node = node_.self.name,
        .has_thread = !node_.waiter.is_deterministic()});
  return *dependence_;
}

// Starts or ends a trace, if that is asked, and returns what the flight recorders have kept.
std::vector<RecordedPlan> InspectionService::recorded(std::uint64_t asker, const NodeQuestion& q) {
  using Kind = NodeQuestion::Kind;
  Inspect of_partitions{};
  of_partitions.asks_of_events = q.kind != Kind::trace_on;
  of_partitions.since_ns = q.since_ns;
  of_partitions.watches = q.kind == Kind::events;
  of_partitions.tracer = {q.tracer, asker};
  if (q.kind != Kind::events)
    of_partitions.trace = q.kind == Kind::trace_on ? Inspect::Trace::on : Inspect::Trace::off;
  std::vector<RecordedPlan> all;
  for (auto& [compiled, partitions] : node_.engine.ask_all(
           of_partitions, q.kind == Kind::trace_off ? kTracePatience : kPartitionPatience)) {
    const Plan& plan = *compiled->troupe.plan;
    RecordedPlan recorded{plan.name, std::move(partitions), {}};
    std::set<std::int32_t> nodes;
    for (const PartitionSnapshot& p : recorded.partitions)
      for (const RecordedEvent& e : p.events)
        if (e.node >= 0) nodes.insert(e.node);
    for (const std::int32_t node : nodes)
      recorded.names.emplace_back(node, plan.program.graph.describe(plan.node_of_number(node)));
    if (!nodes.empty() ||
        std::any_of(recorded.partitions.begin(), recorded.partitions.end(),
                    [](const auto& p) { return !p.events.empty() || !p.has_answered; }))
      all.push_back(std::move(recorded));
  }
  return all;
}

void InspectionService::add(const Records& records) {
  std::lock_guard lock(records_mutex_);
  records_.push_back(&records);
}

void InspectionService::forget(const Records& records) {
  std::lock_guard lock(records_mutex_);
  if (const auto it = std::find(records_.begin(), records_.end(), &records); it != records_.end())
    records_.erase(it);
}

std::vector<PeerReport> InspectionService::peer_reports() const {
  const std::vector<PeerCounters> counted = node_.transport.peers();
  std::vector<PeerReport> all;
  node_.view.look([&](const Roster& roster, ObservedMembers&) {
    for (const PeerCounters& c : counted)
      if (const NodeId* node = roster.session(c.peer))
        all.push_back({node->name, c.bytes_out, c.bytes_in, c.unsent_bytes, c.unacknowledged_bytes,
                       roster.round_trip(node->name).count()});
  });
  std::sort(all.begin(), all.end(),
            [](const PeerReport& a, const PeerReport& b) { return a.node < b.node; });
  return all;
}

// ---- of all nodes

// Why there is no session with a member.
std::string InspectionService::why_apart(const Member& m, std::int64_t since_ns,
                                         const ObservedMembers& observed) const {
  const auto for_so_long = [&](std::int64_t since) { return in_seconds(node_.time_ns() - since); };
  if (m.state == MemberState::left)
    return "it has left, and has been gone for " + for_so_long(since_ns);
  if (m.state == MemberState::dead) return "it is dead, and has been for " + for_so_long(since_ns);
  // It may be alive, as others know.
  return fmt::format(
      "it has not been connected for {}{}", for_so_long(observed.apart_since_ns(m.name)),
      m.state == MemberState::suspect ? ", and has been suspected for " + for_so_long(since_ns)
                                      : "");
}

// Returns the question with a time a little earlier than necessary, because the clock of the other
// node is an estimate. Without an estimate all is requested.
NodeQuestion InspectionService::question_for(const std::string& node, NodeQuestion question,
                                             ObservedMembers& observed) const {
  if (question.since_ns == 0) return question;
  // the latest time of any clock; a user may ask for any time
  constexpr std::int64_t kLatest = INT64_MAX / 2;
  const ClockOffset* clock = observed.clock(node);
  question.since_ns =
      !clock || !clock->is_known()
          ? 0
          : std::max<std::int64_t>(0, std::clamp<std::int64_t>(question.since_ns, 0, kLatest) +
                                          clock->offset_ns() - clock->error_ns(node_.time_ns()));
  return question;
}

auto InspectionService::nodes_to_ask(const NodeQuestion& question, const std::string& only,
                                     ClusterReport& report) -> std::vector<PendingQuestion> {
  node_.log(node_.view.note_all());
  const std::string address = node_.transport.address();
  std::vector<PendingQuestion> asked;
  node_.view.look([&](const Roster& roster, ObservedMembers& observed) {
    for (Member& m : roster.members()) {
      if (!only.empty() && m.name != only) continue;
      NodeAnswer& a = report.emplace_back();
      if (m.name == node_.self.name) m.address = address;
      a.since_ns = observed.since_ns(m.name);
      if (const Peer peer = roster.session_with(m.name); peer != 0)
        asked.push_back({report.size() - 1, peer, question_for(m.name, question, observed)});
      else if (m.name != node_.self.name) a.why = why_apart(m, a.since_ns, observed);
      a.member = std::move(m);
    }
  });
  return asked;
}

ClusterReport InspectionService::inspect(const NodeQuestion& question,
                                         std::chrono::nanoseconds patience,
                                         const std::string& only) {
  ClusterReport all;
  std::vector<PendingQuestion> asked = nodes_to_ask(question, only, all);
  std::vector<std::uint64_t> ids;
  for (PendingQuestion& q : asked) {
    q.request = node_.requests.add(q.peer);
    q.sent_ns = node_.time_ns();
    ids.push_back(q.request);
    send(node_.transport, q.peer, InspectNode{q.request, q.question});
  }
  for (NodeAnswer& a : all)
    if (a.member.name == node_.self.name) {
      try {
        a.report = report(node_.self.incarnation, question, node_.time_ns());
        a.has_answered = true;
      } catch (...) { a.why = Status::from_current_exception().message(); }
    }
  node_.requests.wait(ids, patience);
  // when each was heard last, by the transport's clock; without one of no peer
  std::map<Peer, std::chrono::nanoseconds> heard;
  for (const PeerCounters& c : node_.transport.peers()) heard[c.peer] = c.heard;
  for (const PendingQuestion& q : asked) {
    std::optional<RequestTable::Reply> reply = node_.requests.take(q.request);
    NodeAnswer& a = all[q.place];
    const auto last = heard.find(q.peer);
    if (!reply) a.why = why_silent(a, patience, last == heard.end() ? nullptr : &last->second);
    else if (!reply->status.ok() || !reply->report) a.why = reply->status.message();
    else take_report(q, std::move(*reply), a);
  }
  return all;
}

// The text omits how long the node has been alive: it answered until it was suspected.
std::string InspectionService::why_silent(const NodeAnswer& a, std::chrono::nanoseconds patience,
                                          const std::chrono::nanoseconds* heard) const {
  std::string why =
      fmt::format("no answer within {:.1f} s", std::chrono::duration<double>(patience).count());
  if (heard)
    why +=
        fmt::format("; last message {} ago", in_seconds((node_.transport.now() - *heard).count()));
  if (a.member.state != MemberState::alive)
    why += fmt::format(
        "; it has been {} for {}",
        a.member.state == MemberState::suspect ? "suspected" : troupe::name_of(a.member.state),
        in_seconds(node_.time_ns() - a.since_ns));
  return why;
}

// Each report is a measurement of the other node's clock.
void InspectionService::take_report(const PendingQuestion& asked, RequestTable::Reply&& r,
                                    NodeAnswer& a) {
  a.has_answered = true;
  a.report = std::move(*r.report);
  node_.view.look([&](const Roster&, ObservedMembers& observed) {
    ClockOffset once;  // for a node that is not known any more
    ClockOffset* known = observed.clock(a.member.name);
    ClockOffset& clock = known ? *known : once;
    if (!has_own_clock_ && !a.report.host.empty() && a.report.host == this_boot())
      clock.is_same(a.report.incarnation,
                    (r.ended_ns - asked.sent_ns) - (a.report.answered_ns - a.report.received_ns));
    else
      clock.observe(a.report.incarnation,
                    {asked.sent_ns, a.report.received_ns, a.report.answered_ns, r.ended_ns});
    a.round_trip_ns = clock.round_trip_ns();
    a.offset_ns = clock.offset_ns();
  });
}

void InspectionService::ask_about(const Run& run, std::function<void(const RunSnapshot&)> heard) {
  for (const std::string& node : run.plan().nodes) {
    const Peer peer = node_.view.look(
        [&](const Roster& roster, ObservedMembers&) { return roster.session_with(node); });
    if (node == node_.self.name || peer == 0) continue;
    RunSnapshot nothing;  // for a node that has done its part
    for (const std::string& other : run.plan().nodes)
      if (other != node) nothing.other_nodes.push_back(other);
    const std::uint64_t id = node_.requests.add(
        peer, {}, [nothing, key = run.key, heard](const RequestTable::Reply& reply) {
          // otherwise its answer does not show that it lacks the run
          if (!reply.status.ok() || !reply.report) return;
          for (const RunSnapshot& part : reply.report->engine.runs)
            if (part.owner == key.owner && part.number == key.number) return heard(part);
          heard(nothing);
        });
    send(node_.transport, peer, InspectNode{id, {}});
  }
}

std::vector<Diagnosis> InspectionService::diagnose(std::chrono::nanoseconds apart,
                                                   std::chrono::nanoseconds patience) {
  // and predicates are observed from now on
  if (joined_runs(inspect({}, patience, {})).empty()) return {};
  // As waits do: the clock of a transport between threads may stand still.
  const auto now = [this] {
    return node_.waiter.is_deterministic()
               ? node_.transport.now()
               : std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch());
  };
  HangDetector looks(apart);
  do {
    const auto began = now();
    std::vector<RunSnapshot> runs = joined_runs(inspect({}, patience, {}));
    looks.add(std::move(runs), began, now());
  } while (looks.wants_more() && !node_.view.wait_closed(looks.pause()));
  return looks.verdicts();
}

}  // namespace troupe
