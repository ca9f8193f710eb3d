// libFuzzer: the two files of a folder of keys. The first byte says which.
// Instruments: cluster/transport/net/keys.cpp
#include <sstream>

#include <troupe/cluster/transport/net/keys.hpp>
#include <troupe/devices/base/error.hpp>
#include <troupe/test/fuzz/input.hpp>

using namespace troupe;
using namespace troupe::test;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const KeyPair one = generate_keys(), other = generate_keys();
  seed("\1# The key of node a.\npublic " + one.public_key + "\nsecret " + one.secret_key + "\n");
  seed("\1public " + one.public_key + "\nsecret " + other.secret_key + " # no pair\n");
  seed(std::string(1, '\0') + "# Public keys\n" + one.public_key + " a\n" + other.public_key +
       "  worker 1 # in the cellar\n\n");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  Input in(data, size);
  const bool is_pair = in.next() % 2 != 0;
  std::istringstream text(in.rest());
  try {
    if (is_pair) {
      const KeyPair own = parse_key_pair(text, "node.key");
      if (!is_key(own.public_key) || !is_key(own.secret_key)) std::abort();
      return 0;
    }
    for (const auto& [key, name] : parse_authorized(text, "authorized"))
      if (!is_key(key) || name.find('\n') != std::string::npos) std::abort();
  } catch (const Error&) {}
  return 0;
}
