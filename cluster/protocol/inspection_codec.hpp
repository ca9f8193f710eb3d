// How inspections are written and read (archive.hpp). For messages.cpp.
#pragma once

#include <algorithm>
#include <chrono>

#include <troupe/cluster/protocol/archive.hpp>
#include <troupe/cluster/protocol/node_report.hpp>

namespace troupe {

template <>
inline constexpr std::uint64_t kValues<Wait::Kind> = static_cast<std::uint64_t>(Wait::Kind::grant) +
                                                     1;
template <>
inline constexpr std::uint64_t kValues<Comparison::Relation> =
    static_cast<std::uint64_t>(Comparison::Relation::ne) + 1;
template <>
inline constexpr std::uint64_t kValues<Comparison::Course> =
    static_cast<std::uint64_t>(Comparison::Course::carried) + 1;
template <>
inline constexpr std::uint64_t kValues<Decision::Term::Kind> =
    static_cast<std::uint64_t>(Decision::Term::Kind::either) + 1;
template <>
inline constexpr std::uint64_t kValues<ActorStatus> =
    static_cast<std::uint64_t>(ActorStatus::failed) + 1;
template <>
inline constexpr std::uint64_t kValues<EdgeDescription::Kind> =
    static_cast<std::uint64_t>(EdgeDescription::Kind::back) + 1;
template <>
inline constexpr std::uint64_t kValues<RecordedEvent::Kind> =
    static_cast<std::uint64_t>(RecordedEvent::Kind::failure) + 1;
template <>
inline constexpr std::uint64_t kValues<NodeQuestion::Kind> =
    static_cast<std::uint64_t>(NodeQuestion::Kind::scalars) + 1;

// Times from a peer are added and subtracted: `begin - offset + length` of one event less that of
// another, where an offset is the mean of two differences, stays within 64 bits. Written times are
// clamped to these bounds, so that a node's own clock cannot get it disconnected.
constexpr std::int64_t kLatestTime = std::int64_t{1} << 61;  // since the Unix epoch: the year 2043
constexpr std::int64_t kLongest = std::int64_t{1} << 60;     // 36 years

template <class A>
void bounded(A& a, std::int64_t& ns, std::int64_t most, const char* what) {
  if constexpr (A::reads) {
    a(ns);
    if (ns < 0 || ns > most) MessageReader::malformed(what);
  } else {
    a(std::clamp<std::int64_t>(ns, 0, most));
  }
}
template <class A>
void moment(A& a, std::int64_t& ns) {
  bounded(a, ns, kLatestTime, "a time that no clock shows");
}
template <class A>
void time_span(A& a, std::int64_t& ns) {
  bounded(a, ns, kLongest, "a span of time longer than any");
}
template <class A>
void time_span(A& a, std::chrono::nanoseconds& t) {
  std::int64_t ns = t.count();
  time_span(a, ns);
  if constexpr (A::reads) t = std::chrono::nanoseconds(ns);
}

template <class A>
void fields(A& a, PlanName& n) {
  a(n.owner), a(n.number), a(n.life);
}
template <class A>
void fields(A& a, NodeQuestion& q) {
  a(q.kind), a(q.plan), a(q.since_ns), a(q.tracer), a(q.since_step);
}
template <class A>
void fields(A& a, Wait& w) {
  a(w.kind), a(w.what), a(w.state), a(w.tag), a(w.from), a(w.node), time_span(a, w.for_so_long),
      time_span(a, w.longest), a(w.holds_worker), a(w.puts), a(w.is_alone);
}
template <class A>
void fields(A& a, Comparison& c) {
  a(c.relation), a(c.course), a(c.is_truth), a(c.whole_below), a(c.at), a(c.left), a(c.right),
      a(c.left_step), a(c.right_step), a(c.has_step);
}
template <class A>
void fields(A& a, Decision::Term& t) {
  a(t.kind), a(t.comparison);
}
template <class A>
void fields(A& a, Decision& d) {
  a(d.terms), a(d.comparisons);
}
template <class A>
void fields(A& a, OpenLoop& l) {
  a(l.loop), a(l.tag), a(l.predicate), a(l.predicate_node), a(l.depth), a(l.first), a(l.last),
      a(l.window), a(l.decision), a(l.execution), a(l.is_endless), a(l.repeats), a(l.may_repeat);
}
template <class A>
void fields(A& a, ActorCounters& c) {
  a(c.node), a(c.fires), a(c.dead), a(c.busy_ns), a(c.bytes_out), a(c.state), a(c.waiting_for),
      a(c.waiting_input), a(c.waiting_tag), a(c.queued), a(c.capacity);
}
template <class A>
void fields(A& a, EdgeCounters& c) {
  a(c.to), a(c.receive), a(c.sent), a(c.bytes), a(c.received), a(c.window);
}
template <class A>
void fields(A& a, LoopSnapshot& l) {
  a(l.loop), a(l.executions), a(l.iterations), a(l.window), a(l.most_parallel),
      time_span(a, l.open_ns), a(l.achieved_parallelism), a(l.limited_by_window);
}
template <class A>
void fields(A& a, RunPart& p) {
  a(p.run), a(p.fired), a(p.sent), a(p.received), a(p.ready), a(p.loops), a(p.waits),
      a(p.more_waits);
}
template <class A>
void fields(A& a, RecordedEvent& e) {
  a(e.kind), a(e.node), moment(a, e.begin_ns), time_span(a, e.length_ns), a(e.run), a(e.tag),
      a(e.flow);
}
template <class A>
void fields(A& a, PartitionSnapshot& p) {
  a(p.device), a(p.has_answered), a(p.busy_with), a(p.runs), a(p.actors), a(p.edges), a(p.loops),
      a(p.events), a(p.dropped_events), moment(a, p.whole_since_ns), a(p.thinned_events),
      a(p.is_busy_for_another);
}
template <class A>
void fields(A& a, RunSnapshot::Silent& s) {
  a(s.node), a(s.why);
}
template <class A>
void fields(A& a, QueueUses& q) {
  a(q.filled), a(q.emptied);
}
template <class A>
void fields(A& a, RunSnapshot& r) {
  a(r.run), a(r.step), a(r.owner), a(r.number), a(r.plan), time_span(a, r.for_so_long),
      a(r.is_ending), a(r.is_owned), a(r.other_nodes), a(r.partitions), a(r.silent), a(r.queues);
}
template <class A>
void fields(A& a, PlanSnapshot& p) {
  a(p.name), a(p.nodes), a(p.actors), a(p.edges), moment(a, p.made_ns), a(p.started), a(p.ended),
      a(p.failed);
}
template <class A>
void fields(A& a, EndedRun& r) {
  a(r.run), a(r.is_owned), a(r.plan), moment(a, r.ended_ns), time_span(a, r.took_ns), a(r.error),
      a(r.fired), a(r.code), a(r.times), moment(a, r.first_ns), a(r.flight);
}
template <class A>
void fields(A& a, QueueActivity::Copies& c) {
  a(c.count), a(c.bytes);
}
template <class A>
void fields(A& a, QueueActivity& q) {
  a(q.name), a(q.enqueued), a(q.depth), a(q.events), a(q.launches), a(q.graphs), a(q.replayed),
      a(q.to_device), a(q.from_device), a(q.from_peer), a(q.busy_ns);
}
template <class A>
void fields(A& a, DeviceSnapshot& d) {
  a(d.name), a(d.in_use), a(d.peak), a(d.reserved), a(d.free), a(d.limit), a(d.swapped),
      a(d.queues);
}
template <class A>
void fields(A& a, EngineSnapshot& e) {
  a(e.node), a(e.workers), a(e.devices), a(e.runs), a(e.plans), a(e.recent), a(e.errors);
}
template <class A>
void fields(A& a, ActorDescription& d) {
  a(d.op), a(d.name), a(d.scope), a(d.device), a(d.partition), a(d.line), a(d.frame),
      a(d.frame_depth), a(d.is_user_actor), a(d.attributes);
}
template <class A>
void fields(A& a, EdgeDescription& d) {
  a(d.from), a(d.to), a(d.output), a(d.input), a(d.kind), a(d.dtype), a(d.shape), a(d.is_cut),
      a(d.receive), a(d.bytes);
}
template <class A>
void fields(A& a, PlanDescription& d) {
  a(d.name), a(d.actors), a(d.edges);
}
template <class A>
void fields(A& a, TransportCounters& c) {
  a(c.messages_out), a(c.messages_in), a(c.bytes_out), a(c.bytes_in), a(c.copied_bytes),
      a(c.unsent_bytes), a(c.unacknowledged_bytes);
  a(c.bulk_bytes_out), a(c.bulk_bytes_in), a(c.reconnects), a(c.dropped), a(c.turned_away),
      a(c.broken_off);
}
template <class A>
void fields(A& a, PeerReport& p) {
  a(p.node), a(p.sent), a(p.received), a(p.queued), a(p.unacknowledged),
      time_span(a, p.round_trip_ns);
}
template <class A>
void fields(A& a, std::pair<std::int32_t, std::string>& p) {
  a(p.first), a(p.second);
}
template <class A>
void fields(A& a, RecordedPlan& p) {
  a(p.name), a(p.partitions), a(p.names);
}
template <class A>
void fields(A& a, NodeReport& r) {
  a(r.name), a(r.incarnation), a(r.version), a(r.host), moment(a, r.received_ns),
      moment(a, r.answered_ns), a(r.cpu_ns), a(r.cpu), a(r.cores), a(r.resident), a(r.total);
  a(r.transport), a(r.peers), a(r.engine), a(r.partitions), a(r.plan), a(r.recorded), a(r.scalars);
}

}  // namespace troupe
