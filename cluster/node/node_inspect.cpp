// What a node asks others and answers them about what is going on. Questions of others are answered
// on a thread of their own, for partitions are asked and waited for, and neither the transport's
// thread nor a worker may wait.
#include <troupe/cluster/node/node_core.hpp>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>

#include <troupe/ops/format/records.hpp>

namespace troupe {
namespace {

constexpr auto kPartitionPatience = std::chrono::milliseconds(100);  // with partitions
constexpr auto kTracePatience = std::chrono::milliseconds(2000);     // that copy a whole trace

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::uint64_t cpu_ns() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto ns = [](const timeval& t) {
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(t.tv_usec) * 1000u;
  };
  return ns(used.ru_utime) + ns(used.ru_stime);
}

/// By what processes know that they read the same clock; empty: this one cannot tell.
const std::string& this_boot() {
  static const std::string boot = [] {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    return id;
  }();
  return boot;
}

std::string seconds(std::int64_t ns) {
  return fmt::format("{:.1f} s", static_cast<double>(ns) * 1e-9);
}

}  // namespace

// Answers others, one after the other; who asks while many wait is told so.
class NodeCore::Inspector {
 public:
  explicit Inspector(NodeCore& core) : core_(core), thread_([this] { work(); }) {}
  ~Inspector() {
    {
      std::lock_guard lock(mutex_);
      is_ending_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  /// False: too many wait.
  bool ask(Peer from, std::uint64_t asker, InspectNode question, std::int64_t received_ns) {
    constexpr std::size_t kMostWaiting = 64;
    std::lock_guard lock(mutex_);
    if (questions_.size() >= kMostWaiting) return false;
    // What others know of the cluster by is not kept waiting by those who draw events and traces.
    const bool is_first = question.question.what == NodeQuestion::What::state;
    const auto place =
        is_first ? std::find_if(questions_.begin(), questions_.end(),
                                [](const Question& q) {
                                  return q.message.question.what != NodeQuestion::What::state;
                                })
                 : questions_.end();
    questions_.insert(place, {from, asker, std::move(question), received_ns});
    changed_.notify_all();
    return true;
  }

 private:
  struct Question {
    Peer from;
    std::uint64_t asker;  // its incarnation
    InspectNode message;
    std::int64_t received_ns;
  };
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !questions_.empty() || is_ending_; });
      if (is_ending_) return;
      const Question q = std::move(questions_.front());
      questions_.erase(questions_.begin());
      lock.unlock();
      core_.answer(q.from, q.asker, q.message, q.received_ns);
      lock.lock();
    }
  }

  NodeCore& core_;
  std::mutex mutex_;  // guards the two below
  std::condition_variable changed_;
  std::vector<Question> questions_;
  bool is_ending_ = false;
  std::thread thread_;
};

std::int64_t NodeCore::time_ns() const { return clock_ ? clock_() : epoch_ns(); }

void NodeCore::start_inspector() {
  load_ = {steady_ns(), cpu_ns(), 0, false};
  if (!deterministic_) inspector_ = std::make_shared<Inspector>(*this);
}

void NodeCore::stop_inspector() { inspector_.reset(); }

// ---- answering

void NodeCore::handle(Peer peer, std::uint64_t asker, InspectNode&& m) {
  const std::int64_t now = time_ns();
  if (!inspector_) return answer(peer, asker, m, now);
  const std::uint64_t request = m.request;
  if (!inspector_->ask(peer, asker, std::move(m), now))
    send(peer, Inspected{request, Status(Code::resource_exhausted, "it is asked too much"), {}});
}

void NodeCore::answer(Peer peer, std::uint64_t asker, const InspectNode& m,
                      std::int64_t received_ns) {
  Inspected said{m.request, {}, {}};
  try {
    if (!reads(peer))
      throw Error(Code::resource_exhausted, "it has not read what it was answered before");
    said.report = report(asker, m.question, received_ns);
  } catch (...) { said.status = Status::from_current_exception(); }
  said.report.answered_ns = time_ns();
  reply(peer, said);
}

NodeReport NodeCore::report(std::uint64_t asker, const NodeQuestion& q, std::int64_t received_ns) {
  using What = NodeQuestion::What;
  NodeReport r;
  r.name = self_.name;
  r.incarnation = self_.incarnation;
  r.version = engine_version();
  if (!clock_) r.host = this_boot();
  r.received_ns = received_ns;
  Inspect of_partitions{};
  switch (q.what) {
    case What::state:
      r.engine = engine_->snapshot(kPartitionPatience);
      r.transport = transport_->counters();
      r.peers = peer_reports();
      measure_process(r);
      break;
    case What::counters:
      of_partitions.asks_of_actors = true;
      r.partitions = engine_->ask(q.plan, of_partitions, kPartitionPatience);
      break;
    case What::plan:
      for (const auto& compiled : engine_->plans())
        if (compiled->troupe.plan->name == q.plan && !compiled->troupe.plan->is_part())
          r.plan = describe(*compiled->troupe.plan);
      if (r.plan.name != q.plan)
        throw Error(Code::not_found, fmt::format("node '{}' has no plan '{}', or only part of it",
                                                 self_.name, q.plan.text()));
      break;
    case What::events:
    case What::trace_on:
    case What::trace_off:
      of_partitions.asks_of_events = q.what != What::trace_on;
      of_partitions.since_ns = q.since_ns;
      of_partitions.watches = q.what == What::events;
      of_partitions.tracer = {q.tracer, asker};
      if (q.what != What::events)
        of_partitions.trace = q.what == What::trace_on ? Inspect::Trace::on : Inspect::Trace::off;
      for (auto& [compiled, partitions] : engine_->ask_all(
               of_partitions, q.what == What::trace_off ? kTracePatience : kPartitionPatience)) {
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
          r.recorded.push_back(std::move(recorded));
      }
      break;
    case What::scalars: {
      std::lock_guard lock(records_mutex_);
      if (!records_.empty())
        r.scalars = records_.back()->json(
            q.since_step, asker == self_.incarnation ? 0 : NodeReport::kMostScalars);
      break;
    }
  }
  r.answered_ns = time_ns();
  return r;
}

void NodeCore::tell_of(const Records& records) {
  std::lock_guard lock(records_mutex_);
  records_.push_back(&records);
}

void NodeCore::forget(const Records& records) {
  std::lock_guard lock(records_mutex_);
  if (const auto it = std::find(records_.begin(), records_.end(), &records); it != records_.end())
    records_.erase(it);
}

std::vector<PeerReport> NodeCore::peer_reports() const {
  const std::vector<PeerCounters> counted = transport_->peers();
  std::vector<PeerReport> all;
  std::lock_guard lock(mutex_);
  for (const PeerCounters& c : counted)
    if (const NodeId* node = roster_.session(c.peer))
      all.push_back({node->name, c.bytes_out, c.bytes_in, c.unsent_bytes, c.unacknowledged_bytes,
                     roster_.round_trip(node->name).count()});
  std::sort(all.begin(), all.end(),
            [](const PeerReport& a, const PeerReport& b) { return a.node < b.node; });
  return all;
}

void NodeCore::measure_process(NodeReport& r) {
  // ns that load is averaged over, at least: who asks more often disturbs nobody
  constexpr std::int64_t kShortest = 1'000'000'000;
  r.cpu_ns = cpu_ns();
  r.cores = static_cast<std::int32_t>(std::thread::hardware_concurrency());
  r.resident = resident_bytes();
  r.total = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
            static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::int64_t now = steady_ns();
  std::lock_guard lock(mutex_);
  const std::int64_t span = now - load_.at_ns;
  if (span < kShortest && load_.is_known) {
    r.cpu = load_.cores;
    return;
  }
  // at first: since the node was made
  r.cpu = static_cast<double>(r.cpu_ns - load_.cpu_ns) /
          static_cast<double>(std::max<std::int64_t>(span, 1));
  if (span >= kShortest) load_ = {now, r.cpu_ns, r.cpu, true};
}

// ---- asking

void NodeCore::handle(Peer from, Inspected&& said) {
  std::unique_lock lock(mutex_);
  auto it = requests_.find(said.request);
  // nobody waits any more
  if (it == requests_.end() || it->second.is_done || it->second.to != from) return;
  Request& r = it->second;
  if (r.heard) {
    const auto heard = std::move(r.heard);
    requests_.erase(it);
    lock.unlock();
    // else it has not said that it knows nothing of the run
    if (said.status.ok()) heard(said.report);
    return;
  }
  r.is_done = true;
  r.ended_ns = time_ns();
  r.status = std::move(said.status);
  r.report = std::make_shared<NodeReport>(std::move(said.report));
  changed_.notify_all();
}

// Why there is no session with it, which is under the lock.
std::string NodeCore::why_apart(const Member& m, std::int64_t since_ns) const {
  const auto for_so_long = [&](std::int64_t since) { return seconds(time_ns() - since); };
  if (m.state == MemberState::left)
    return "it has left, and has been gone for " + for_so_long(since_ns);
  if (m.state == MemberState::dead) return "it is dead, and has been for " + for_so_long(since_ns);
  // It may be alive, as others know.
  return fmt::format(
      "it has not been connected for {}{}", for_so_long(observed_.apart_since_ns(m.name)),
      m.state == MemberState::suspect ? ", and has been suspected for " + for_so_long(since_ns)
                                      : "");
}

// What has become of members. Of a thousand that join one after the other only those are looked at
// who have changed.
std::vector<LogRecord> NodeCore::note_states(const std::vector<std::string>& changed) {
  std::vector<LogRecord> news;
  const std::int64_t now = time_ns();
  std::vector<Member> members;
  for (const std::string& name : changed)
    if (const Member* m = roster_.member(name)) members.push_back(*m);
  std::vector<Member> other = observed_.note(members, now);
  if (observed_.size() != roster_.size()) {
    const std::vector<Member> all = roster_.members();  // with this node
    const std::vector<Member> more = observed_.note(all, now);
    other.insert(other.end(), more.begin(), more.end());
    observed_.forget_but(all);
  }
  for (const Member& m : other)
    if (m.name != self_.name)
      news.push_back(
          {m.state == MemberState::alive || m.state == MemberState::left
               ? LogRecord::Level::info
               : LogRecord::Level::warning,
           now,
           m.name,
           {},
           {},
           {},
           fmt::format("node '{}' is {}{}", m.name,
                       m.state == MemberState::suspect ? "suspected" : troupe::name_of(m.state),
                       m.address.empty() ? "" : ", at " + m.address)});
  for (const std::string& name : changed)
    observed_.note_session(name, name == self_.name || roster_.session_with(name) != 0, now);
  return news;
}

void NodeCore::log(const std::vector<LogRecord>& records) const {
  const auto& log = engine_->options().log;
  if (!log) return;
  for (const LogRecord& r : records) log(r);
}

// Times are those of the clock of who is asked: a little earlier than need be, for that is an
// estimate; all, if there is none yet.
NodeQuestion NodeCore::question_for(const std::string& node, NodeQuestion question) {
  if (question.since_ns == 0) return question;
  constexpr std::int64_t kLatest = INT64_MAX / 2;  // of any clock; who asks may say anything
  const ClockOffset* clock = observed_.clock(node);
  question.since_ns =
      !clock || !clock->is_known()
          ? 0
          : std::max<std::int64_t>(0, std::clamp<std::int64_t>(question.since_ns, 0, kLatest) +
                                          clock->offset_ns() - clock->error_ns(time_ns()));
  return question;
}

ClusterReport NodeCore::inspect(const NodeQuestion& question, std::chrono::nanoseconds patience,
                                const std::string& only) {
  struct Question {
    std::size_t place;
    std::uint64_t request;
    std::int64_t sent_ns;
  };
  struct Reached {
    std::size_t place;
    Peer peer;
    NodeQuestion question;
  };
  ClusterReport all;
  std::vector<Reached> there;
  {
    std::unique_lock lock(mutex_);
    const std::vector<LogRecord> news = note_states({});
    lock.unlock();
    log(news);
    lock.lock();
    for (Member& m : roster_.members()) {
      if (!only.empty() && m.name != only) continue;
      NodeAnswer& a = all.emplace_back();
      if (m.name == self_.name) m.address = transport_->address();
      a.since_ns = observed_.since_ns(m.name);
      if (const Peer peer = roster_.session_with(m.name); peer != 0)
        there.push_back({all.size() - 1, peer, question_for(m.name, question)});
      else if (m.name != self_.name) a.why = why_apart(m, a.since_ns);
      a.member = std::move(m);
    }
  }
  std::vector<Question> asked;
  for (const Reached& r : there) {
    asked.push_back({r.place, request(r.peer), time_ns()});
    send(r.peer, InspectNode{asked.back().request, r.question});
  }
  for (NodeAnswer& a : all)
    if (a.member.name == self_.name) {
      try {
        a.report = report(self_.incarnation, question, time_ns());
        a.has_answered = true;
      } catch (...) { a.why = Status::from_current_exception().message(); }
    }
  wait_until(
      [&] {
        return std::all_of(asked.begin(), asked.end(),
                           [&](const Question& q) { return requests_.at(q.request).is_done; });
      },
      patience);
  // last, by the transport's clock; without one of nobody
  std::map<Peer, std::chrono::nanoseconds> heard;
  for (const PeerCounters& c : transport_->peers()) heard[c.peer] = c.heard;
  const std::chrono::nanoseconds now = transport_->now();
  std::lock_guard lock(mutex_);
  for (const Question& q : asked) {
    const Request r = std::move(requests_.extract(q.request).mapped());
    NodeAnswer& a = all[q.place];
    a.has_answered = r.is_done && r.status.ok() && r.report;
    if (!a.has_answered) {
      if (r.is_done) {
        a.why = r.status.message();
        continue;
      }
      // Not for how long it has been alive: until it is suspected that is the time that it did
      // answer.
      a.why =
          fmt::format("no answer within {:.1f} s", std::chrono::duration<double>(patience).count());
      if (const auto last = heard.find(r.to); last != heard.end())
        a.why += fmt::format("; last heard {} ago", seconds((now - last->second).count()));
      if (a.member.state != MemberState::alive)
        a.why += fmt::format(
            "; it has been {} for {}",
            a.member.state == MemberState::suspect ? "suspected" : troupe::name_of(a.member.state),
            seconds(time_ns() - a.since_ns));
      continue;
    }
    a.report = std::move(*r.report);
    ClockOffset once;  // of who is not known any more
    ClockOffset* known = observed_.clock(a.member.name);
    ClockOffset& clock = known ? *known : once;
    if (!clock_ && !a.report.host.empty() && a.report.host == this_boot())
      clock.is_same(a.report.incarnation,
                    (r.ended_ns - q.sent_ns) - (a.report.answered_ns - a.report.received_ns));
    else
      clock.observe(a.report.incarnation,
                    {q.sent_ns, a.report.received_ns, a.report.answered_ns, r.ended_ns});
    a.round_trip_ns = clock.round_trip_ns();
    a.offset_ns = clock.offset_ns();
  }
  return all;
}

void NodeCore::ask_about(const Run& run, std::function<void(const RunSnapshot&)> heard) {
  for (const std::string& node : run.plan().nodes) {
    std::uint64_t id = 0;
    Peer peer = 0;
    {
      std::lock_guard lock(mutex_);
      if (node == self_.name || (peer = roster_.session_with(node)) == 0) continue;
      id = ++last_request_;
      Request& r = requests_[id];
      r.to = peer;
      RunSnapshot nothing;  // of one that has done its part
      for (const std::string& other : run.plan().nodes)
        if (other != node) nothing.other_nodes.push_back(other);
      r.heard = [nothing, key = run.key, heard](const NodeReport& report) {
        for (const RunSnapshot& part : report.engine.runs)
          if (part.owner == key.owner && part.number == key.number) return heard(part);
        heard(nothing);
      };
    }
    send(peer, InspectNode{id, {}});
  }
}

bool NodeCore::wait_until(const std::function<bool()>& is_done, std::chrono::nanoseconds patience) {
  if (deterministic_) {
    // Not the engine's own steps first: where it always has some, no time would pass.
    const auto end = transport_->now() + patience;
    for (;;) {
      {
        std::lock_guard lock(mutex_);
        if (is_done()) return true;
      }
      if (transport_->now() > end || !(step() || engine_->pool()->step())) return false;
    }
  }
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, patience, is_done);
}

std::vector<Verdict> NodeCore::diagnose(std::chrono::nanoseconds apart,
                                        std::chrono::nanoseconds patience) {
  // and predicates are observed from now on
  if (joined_runs(inspect({}, patience, {})).empty()) return {};
  // As `wait_until` waits: a transport between threads may have a time that stands still.
  const auto now = [this] {
    return deterministic_
               ? transport_->now()
               : std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch());
  };
  Looks looks(apart);
  do {
    const auto began = now();
    std::vector<RunSnapshot> runs = joined_runs(inspect({}, patience, {}));
    looks.add(std::move(runs), began, now());
  } while (looks.wants_more() && !wait_until([this] { return closed_; }, looks.pause()));
  return looks.verdicts();
}

}  // namespace troupe
