// Memory of fixed size, without a name, shared by passing its descriptor. No holder can resize it
// and thereby kill a reader (memfd_create(2), fcntl(2): F_ADD_SEALS).
#pragma once

#include <cstddef>
#include <optional>

#include <troupe/cluster/transport/net/tcp_socket.hpp>

namespace troupe {

/// `bytes` bytes of zeros; `name` is what /proc shows. Throws unavailable.
OwnedDescriptor fixed_memory(const char* name, std::size_t bytes);
/// Returns the bytes that `memory` has; none if it is no such memory.
std::optional<std::size_t> fixed_memory_bytes(const OwnedDescriptor& memory);

}  // namespace troupe
