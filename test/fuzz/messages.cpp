// libFuzzer: what nodes say to each other. What can be read is written, and must then read as the same.
// Instruments: cluster/messages.cpp cluster/archive.cpp cluster/pack_scan.cpp
#include <troupe/cluster/messages.hpp>
#include <troupe/cluster/program_codec.hpp>
#include <troupe/test/cluster/inspected.hpp>
#include <troupe/test/fuzz/input.hpp>

namespace troupe::test {
namespace {

template <class M>
void check(MessageReader& reader) {
  M message;
  read_fields(reader, message);
  if constexpr (!std::is_same_v<M, MakePlan>) reader.end();  // of MakePlan, a program follows
  Message first = written(message).take();
  const std::vector<std::byte> head = first.head;
  MessageReader again(first);
  if (kind_of(again) != M::kKind) std::abort();
  if (written(read_all<M>(again)).take().head != head) std::abort();
}

template <class... M>
void check_any(Message& m) {
  MessageReader reader(m);
  const MessageKind kind = kind_of(reader);
  ((kind == M::kKind ? check<M>(reader) : void()), ...);
}

template <class M>
void seed_of(const M& message) {
  seed(bytes_as_input(written(message).take()));
}

}  // namespace
}  // namespace troupe::test

using namespace troupe;
using namespace troupe::test;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const NodeId a{"a", 7, "tcp://127.0.0.1:7117"}, b{"worker-1", 1u << 20, ""};
  const Tensor t = Tensor::of<float>({1, 2, 3, 4, 5, 6}, Shape{2, 3});
  List list(DType::f32, Shape{2, 3});
  list.push(t);
  list.grow(2);
  RunToken token{1, 2, false, {}, list};
  token.path.depth = 2;
  token.path.number[1] = 300;
  const Status failed(Code::out_of_range, "an index out of its bound");
  StateSpec variable;
  variable.name = "v";
  variable.values = {ValueSpec{DType::f32, Shape{2, 3}}};
  MembershipMessage ping;
  ping.number = 9;
  ping.target = "worker-1";
  ping.members = {{"a", 7, 1, MemberState::suspect, "tcp://127.0.0.1:7117", "gpu=no"}};
  seed_of(Gossip{ping.members[0], ping});
  seed_of(GetLoops{5, 2});
  seed_of(MakePlan{1, 2, {a, b}, 64, 0x1234567890abcdef});
  seed_of(DropPlan{3});
  seed_of(BeginRun{4, 9, 2, 5, 6, {{0, t}, {3, Tensor::scalar(true)}}});
  seed_of(RunTokens{{7, 8}, {{1, 2, token.path, 32}}, {token}});
  seed_of(RunTokens{{7, 9}, {}, {{0, 0, true, {}, Tensor::scalar(1.5)}}});
  seed_of(RunFailed{4, failed});
  seed_of(AbandonRun{4});
  seed_of(LeftRun{4, Status(), {{1, t}}});
  seed_of(GetVariable{5, variable});
  seed_of(SetVariable{6, variable, t});
  seed_of(Answer{6, failed, t, {}, {{3, 1500.0}}, 200});
  seed_of(GetCosts{7, 2});
  seed_of(Probe{8, t});
  seed_of(ProbeFor{9, "worker-1", 1 << 18});
  seed_of(InspectNode{7, {NodeQuestion::What::counters, {"a", 3}, 12}});
  seed_of(inspected_with_everything());
  seed_of(PlanBroken{2});
  seed_of(RunsBegun{9});
  seed_of(ClearContainer{7, "models"});
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  Message m = Input(data, size).message();
  try {
    check_any<Gossip, GetLoops, MakePlan, DropPlan, BeginRun, RunTokens, RunFailed, AbandonRun, LeftRun, GetVariable, SetVariable, Answer, GetCosts, Probe, ProbeFor, InspectNode, Inspected, PlanBroken,
              RunsBegun, ClearContainer>(m);
  } catch (const Error&) {
  }
  return 0;
}
