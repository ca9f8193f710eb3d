// Memory without a name, shared by handing on its descriptor; sealed, so that nobody who has it can
// shrink or grow it and thereby kill who reads there (memfd_create(2), fcntl(2): F_ADD_SEALS).
#pragma once

#include <cstddef>
#include <optional>

#include <troupe/cluster/transport/net/tcp_socket.hpp>

namespace troupe {

/// `bytes` bytes of zeros; `name` is what /proc shows. Throws unavailable.
OwnedDescriptor sealed_memory(const char* name, std::size_t bytes);
/// How many bytes `memory` has; none if it is no such memory.
std::optional<std::size_t> sealed_bytes(const OwnedDescriptor& memory);

}  // namespace troupe
