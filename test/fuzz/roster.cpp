// libFuzzer: gossip, as any peer may send it. Each accepted member has a name that stands in JSON
// and in metrics unescaped. Instruments: cluster/node/roster.cpp cluster/membership/membership.cpp
// cluster/protocol/messages.cpp cluster/protocol/archive.cpp cluster/transport/pack_scan.cpp
// cluster/transport/net/tcp_socket.cpp
#include <algorithm>

#include <nlohmann/json.hpp>

#include <troupe/cluster/node/roster.hpp>
#include <troupe/test/fuzz/input.hpp>

using namespace troupe;
using namespace troupe::test;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const Member b{.name = "b", .incarnation = 2, .address = "tcp://0.0.0.0:7117"};
  for (const char* name : {"worker-1", "caf\xc3\xa9", "caf\xe9", "a b", "x/y"}) {
    const Member other{
        .name = name, .incarnation = 3, .address = "tcp://10.0.0.3:7117", .labels = "zone=x"};
    seed(bytes_as_input(
        written(Gossip{b, {.kind = MembershipMessage::Kind::sync, .members = {b, other}}})));
    seed(bytes_as_input(
        written(Gossip{other, {.kind = MembershipMessage::Kind::news, .members = {b}}})));
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  Message m = Input(data, size).message();
  Roster a({.name = "a", .incarnation = 1, .address = "tcp://127.0.0.1:7117"}, {}, 1);
  try {
    const NodeMessage any = read_message(m);
    if (!std::holds_alternative<Gossip>(any)) return 0;
    const Gossip& said = std::get<Gossip>(any);
    a.connected({}, 5, {said.from.name, said.from.incarnation, said.from.address, {}});
    a.heard({}, 5, said);
  } catch (const Error&) {}
  for (const Member& known : a.members()) {
    const auto is_of_text = [](unsigned char c) { return c > ' ' && c != 127; };
    // Strict: throws an uncaught exception for invalid UTF-8.
    if (nlohmann::json(known.name).dump().size() < 3 ||
        !std::all_of(known.name.begin(), known.name.end(), is_of_text))
      std::abort();
  }
  return 0;
}
