// Transports with keys, as `troupe node --keys` has them: all is encrypted, and both ends are
// authorized.
#pragma once

#include <utility>

#include <troupe/cluster/transport/net/keys.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>

namespace troupe::bench {

/// For all ends of a benchmark, which are one party by them.
inline ZeroMqOptions with_keys(ZeroMqOptions options) {
  const KeyPair own = generate_keys();
  options.keys = Keys{own, {{own.public_key, "bench"}}};
  return options;
}

}  // namespace troupe::bench
