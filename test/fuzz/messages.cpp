// libFuzzer: the messages between nodes. A readable message is written, and must then read as the
// same. Instruments: cluster/protocol/messages.cpp cluster/protocol/archive.cpp
// cluster/transport/pack_scan.cpp
#include <troupe/cluster/protocol/messages.hpp>
#include <troupe/cluster/protocol/program_codec.hpp>
#include <troupe/test/fuzz/input.hpp>
#include <troupe/test/support/cluster/every_message.hpp>

namespace troupe::test {
namespace {

template <class M>
void check(MessageReader& reader) {
  M message;
  read_fields(reader, message);
  if constexpr (!std::is_same_v<M, MakePlan>) reader.end();  // after a MakePlan a program follows
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
  for_each_message([](const auto& message) { seed_of(message); });
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  Message m = Input(data, size).message();
  try {
    check_any<Gossip, GetLoops, MakePlan, DropPlan, BeginRun, RunTokens, RunFailed, AbandonRun,
              LeftRun, GetVariable, SetVariable, Answer, GetCosts, Probe, ProbeFor, InspectNode,
              Inspected, PlanBroken, RunsBegun, ClearContainer, OperateNode>(m);
  } catch (const Error&) {}
  return 0;
}
