// libFuzzer: the messages between nodes. A readable message is written, and must then read as the
// same. Instruments: cluster/protocol/messages.cpp cluster/protocol/run_tokens.cpp
// cluster/protocol/archive.cpp cluster/transport/pack_scan.cpp
#include <troupe/cluster/protocol/messages.hpp>
#include <troupe/test/fuzz/input.hpp>
#include <troupe/test/support/cluster/every_message.hpp>

namespace troupe::test {
namespace {

void check(Message& m) {
  Message first = written(read_message(m));
  const std::vector<std::byte> head = first.head;
  if (written(read_message(first)).head != head) std::abort();
}

template <class M>
void seed_of(const M& message) {
  seed(bytes_as_input(written(message)));
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
    check(m);
  } catch (const Error&) {}
  return 0;
}
