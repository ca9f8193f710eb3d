#include <troupe/cluster/protocol/messages.hpp>

#include <iterator>
#include <type_traits>

#include <troupe/cluster/protocol/inspection_codec.hpp>
#include <troupe/cluster/protocol/program_codec.hpp>

namespace troupe {

template <>
inline constexpr std::uint64_t kValues<OperateNode::Action> =
    static_cast<std::uint64_t>(OperateNode::Action::drain) + 1;
template <>
inline constexpr std::uint64_t kValues<EagerStep::Kind> =
    static_cast<std::uint64_t>(EagerStep::Kind::end) + 1;
template <>
inline constexpr std::uint64_t kValues<CheckpointRequest::Kind> =
    static_cast<std::uint64_t>(CheckpointRequest::Kind::report) + 1;
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
void fields(A& a, Fence& f) {
  a(f.training), a(f.epoch), a(f.driver);
}
template <class A>
void fields(A& a, MakePlan& m) {
  a(m.request), a(m.plan), a(m.participants), a(m.call_depth), a(m.fingerprint), a(m.container);
  a(m.fence), a(m.program);
}
template <class A>
void fields(A& a, DropPlan& m) {
  a(m.plan);
}
template <class A>
void fields(A& a, BeginRun& m) {
  a(m.run), a(m.id), a(m.plan), a(m.step), a(m.seed), a(m.feeds);
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
  a(m.request), a(m.action), a(m.node), a(m.run), a(m.is_passed_on);
}

template <class A>
void fields(A& a, CheckpointRequest& m) {
  a(m.request), a(m.kind), a(m.fence), a(m.step), a(m.number), a(m.count), a(m.text), a(m.names);
  a(m.tensors), a(m.container);
}
template <class A>
void fields(A& a, MeshValues& m) {
  a(m.run.owner), a(m.run.number), a(m.place.key), a(m.place.tag), a(m.place.group), a(m.values);
}
template <class A>
void fields(A& a, EagerProgram& m) {
  a(m.batch), a(m.number), a(m.call_depth), a(m.container), a(m.program);
}
template <class A>
void fields(A& a, EagerStep& s) {
  using enum EagerStep::Kind;
  a(s.kind), a(s.stream), a(s.of);
  switch (s.kind) {
    case put: a(s.value); return;
    case pack: a(s.list), a(s.in); return;
    case unpack: a(s.out); return;
    case call:
      a(s.number), a(s.in), a(s.out), a(s.step), a(s.seed), a(s.acts), a(s.is_told);
      return;
    case read: a(s.number); return;
    case release:
    case drop:
    case end: return;
  }
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
  if (n > most) r.malformed("more than a message may hold");
  all.clear();
  for (std::size_t i = 0; i < n; ++i) r(all.emplace_back());
}
template <class A>
void fields(A& a, EagerSteps& m) {
  a(m.batch), at_most(a, EagerSteps::kMost, m.steps);
}
template <class A>
void fields(A& a, EagerSpec& s) {
  a(s.spec), a(s.length);
}
template <class A>
void fields(A& a, EagerResult& r) {
  a(r.number), a(r.status), a(r.cause), a(r.value), a(r.told);
}
template <class A>
void fields(A& a, EagerResults& m) {
  a(m.batch), a(m.results);
}

Message written(const NodeMessage& message) {
  return std::visit(
      []<class M>(const M& m) {
        if constexpr (std::is_same_v<M, RunTokens>) {
          return written_tokens(m);
        } else {
          MessageWriter w;
          w.raw({{kKind<M>}});
          fields(w, const_cast<M&>(m));  // writes only
          return w.take();
        }
      },
      message);
}

namespace {

template <class M>
NodeMessage read_as(Message& message) {
  M m;
  if constexpr (std::is_same_v<M, RunTokens>) {
    read_tokens(message, m);
  } else {
    MessageReader reader(std::span(message.head).subspan(1), message.tensors);
    fields(reader, m);
    reader.end();
  }
  return m;
}

template <class... All>
NodeMessage read_any(Message& message, const std::variant<All...>*) {
  constexpr NodeMessage (*read[])(Message&) = {read_as<All>...};
  if (message.head.empty() || static_cast<std::size_t>(message.head[0]) >= std::size(read))
    MessageReader::malformed("it is of no kind");
  return read[static_cast<std::size_t>(message.head[0])](message);
}

}  // namespace

NodeMessage read_message(Message& message) {
  return read_any(message, static_cast<NodeMessage*>(nullptr));
}

}  // namespace troupe
