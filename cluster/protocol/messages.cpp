#include <troupe/cluster/protocol/messages.hpp>

#include <algorithm>

#include <troupe/cluster/protocol/inspection_codec.hpp>
#include <troupe/cluster/protocol/program_codec.hpp>

namespace troupe {

template <>
inline constexpr std::uint64_t kValues<MessageKind> =
    static_cast<std::uint64_t>(MessageKind::operate) + 1;
template <>
inline constexpr std::uint64_t kValues<OperateNode::What> =
    static_cast<std::uint64_t>(OperateNode::What::drain) + 1;
template <>
inline constexpr std::uint64_t kValues<MemberState> =
    static_cast<std::uint64_t>(MemberState::left) + 1;
template <>
inline constexpr std::uint64_t kValues<MembershipMessage::Kind> =
    static_cast<std::uint64_t>(MembershipMessage::Kind::sync_answer) + 1;

template <class A>
void fields(A& a, NodeId& n) {
  a(n.name), a(n.incarnation), a(n.address);
}
template <class A>
void fields(A& a, RunKey& k) {
  a(k.owner), a(k.number);
}
template <class A>
void fields(A& a, Path& p) {
  a(p.depth);
  if (p.depth < 0 || p.depth > Path::kMaxDepth)
    MessageReader::malformed("a path through too many loops");
  for (std::int32_t d = 0; d < p.depth; ++d) {
    a(p.number[d]);
    if (p.number[d] < 0) MessageReader::malformed("a negative iteration");
  }
}
template <class A>
void fields(A& a, std::pair<std::int32_t, Tensor>& p) {
  a(p.first), a(p.second);
}

template <class A>
void fields(A& a, Member& m) {
  a(m.name), a(m.incarnation), a(m.refutations), a(m.state), a(m.address), a(m.labels);
}
template <class A>
void fields(A& a, MembershipMessage& m) {
  a(m.kind), a(m.number), a(m.target), a(m.members);
}

template <class A>
void fields(A& a, Gossip& m) {
  a(m.from), a(m.message);
}
template <class A>
void fields(A& a, MakePlan& m) {
  a(m.request), a(m.plan), a(m.participants), a(m.call_depth), a(m.fingerprint), a(m.container);
}
template <class A>
void fields(A& a, DropPlan& m) {
  a(m.plan);
}
template <class A>
void fields(A& a, BeginRun& m) {
  a(m.run), a(m.id), a(m.plan), a(m.step), a(m.seed), a(m.feeds);
}
// Fields of a RunToken or RunGrant; also of a Token or Grant, whose runs and partitions are
// elsewhere.
template <class A, class Number, class T>
void token_fields(A& a, Number&& partition, T& m) {
  a(partition), a(m.receive), a(m.is_dead), a(m.path), a(m.times), a(m.value);
}
template <class A, class Number, class T>
void grant_fields(A& a, Number&& partition, T& m) {
  a(partition), a(m.send), a(m.path), a(m.last);
}
template <class A>
void fields(A& a, RunToken& m) {
  token_fields(a, m.partition, m);
}
template <class A>
void fields(A& a, RunGrant& m) {
  grant_fields(a, m.partition, m);
}
// Bounds the entries of one message, because its thread serves no other message meanwhile.
template <class T>
void at_most(MessageWriter& w, std::size_t, const std::vector<T>& all) {
  w(all);
}
template <class T>
void at_most(MessageReader& r, std::size_t most, std::vector<T>& all) {
  std::size_t n = 0;
  r.count(n);
  if (n > most) r.malformed("more than a turn has to say");
  all.clear();
  for (std::size_t i = 0; i < n; ++i) r(all.emplace_back());
}
template <class A>
void fields(A& a, RunTokens& m) {
  a(m.run), at_most(a, RunTokens::kMost, m.grants), at_most(a, RunTokens::kMost, m.tokens);
}
template <class A>
void fields(A& a, RunFailed& m) {
  a(m.run), a(m.status);
}
template <class A>
void fields(A& a, AbandonRun& m) {
  a(m.run), a(m.id), a(m.plan), a(m.status);
}
template <class A>
void fields(A& a, LeftRun& m) {
  a(m.run), a(m.status), a(m.fetches), a(m.done.fired), a(m.done.sent), a(m.done.received);
}
// A state that is requested by itself is made if it is not there. So it must be a variable: this
// node cannot make a user's actor.
template <class A>
void only_variable(A& a, StateSpec& spec) {
  a(spec);
  if constexpr (A::reads)
    if (spec.kind != StateSpec::Kind::variable)
      MessageReader::malformed("a value of what is no variable");
}
template <class A>
void fields(A& a, GetVariable& m) {
  a(m.request), only_variable(a, m.variable), a(m.container);
}
template <class A>
void fields(A& a, SetVariable& m) {
  a(m.request), only_variable(a, m.variable), a(m.value), a(m.container);
}
template <class A>
void fields(A& a, ClearContainer& m) {
  a(m.request), a(m.container);
}
template <class A>
void fields(A& a, LoopReport& r) {
  a(r.loop), a(r.device), a(r.executions), a(r.iterations), a(r.parallel_iterations),
      a(r.achieved_parallelism), a(r.most_parallel);
  a(r.limited_by_window), a(r.held_tokens), a(r.held_by_bytes), a(r.most_bytes_on_way),
      a(r.iteration_us), a(r.recurrence_us), a(r.limiting_dependence);
}
template <class A>
void fields(A& a, NodeCost& c) {
  a(c.node), a(c.ns);
}
template <class A>
void fields(A& a, GetLoops& m) {
  a(m.request), a(m.plan);
}
template <class A>
void fields(A& a, Answer& m) {
  a(m.request), a(m.status), a(m.value), a(m.loops), a(m.costs), a(m.ns), a(m.states);
}
template <class A>
void fields(A& a, GetCosts& m) {
  a(m.request), a(m.plan);
}
template <class A>
void fields(A& a, Probe& m) {
  a(m.request), a(m.load);
}
template <class A>
void fields(A& a, ProbeFor& m) {
  a(m.request), a(m.node), a(m.bytes);
}

template <class A>
void fields(A& a, InspectNode& m) {
  a(m.request), a(m.question);
}
template <class A>
void fields(A& a, Inspected& m) {
  a(m.request), a(m.status), a(m.report);
}
template <class A>
void fields(A& a, PlanBroken& m) {
  a(m.plan);
}
template <class A>
void fields(A& a, RunsBegun& m) {
  a(m.last);
}

template <class A>
void fields(A& a, OperateNode& m) {
  a(m.request), a(m.what), a(m.node), a(m.run), a(m.is_passed_on);
}

MessageKind kind_of(MessageReader& reader) {
  MessageKind kind{};
  reader(kind);
  return kind;
}

template <class M>
MessageWriter written(const M& message) {
  MessageWriter w;
  w(M::kKind);
  fields(w, const_cast<M&>(message));  // writes only
  return w;
}

MessageWriter written(const RunKey& run, std::span<Posted> posted, const Plan& plan) {
  const auto number_of = [&](const Posted& p) {
    return plan.partitions[static_cast<std::size_t>(p.partition)].number;
  };
  MessageWriter w;
  w(RunTokens::kKind), w(run);
  const auto grants =
      static_cast<std::size_t>(std::count_if(posted.begin(), posted.end(), [](const Posted& p) {
        return std::holds_alternative<Grant>(p.message);
      }));
  w.unsigned_number(grants);
  for (Posted& p : posted)
    if (auto* grant = std::get_if<Grant>(&p.message)) grant_fields(w, number_of(p), *grant);
  w.unsigned_number(posted.size() - grants);
  for (Posted& p : posted)
    if (auto* token = std::get_if<Token>(&p.message)) token_fields(w, number_of(p), *token);
  return w;
}

template <class M>
void read_fields(MessageReader& reader, M& message) {
  fields(reader, message);
}

#define TROUPE_MESSAGE(M)                   \
  template MessageWriter written(const M&); \
  template void read_fields(MessageReader&, M&);
TROUPE_MESSAGE(Gossip)
TROUPE_MESSAGE(MakePlan)
TROUPE_MESSAGE(DropPlan)
TROUPE_MESSAGE(BeginRun)
TROUPE_MESSAGE(RunTokens)
TROUPE_MESSAGE(RunFailed)
TROUPE_MESSAGE(AbandonRun)
TROUPE_MESSAGE(LeftRun)
TROUPE_MESSAGE(GetVariable)
TROUPE_MESSAGE(SetVariable)
TROUPE_MESSAGE(ClearContainer)
TROUPE_MESSAGE(OperateNode)
TROUPE_MESSAGE(GetLoops)
TROUPE_MESSAGE(Answer)
TROUPE_MESSAGE(GetCosts)
TROUPE_MESSAGE(Probe)
TROUPE_MESSAGE(ProbeFor)
TROUPE_MESSAGE(InspectNode)
TROUPE_MESSAGE(Inspected)
TROUPE_MESSAGE(PlanBroken)
TROUPE_MESSAGE(RunsBegun)
#undef TROUPE_MESSAGE

}  // namespace troupe
