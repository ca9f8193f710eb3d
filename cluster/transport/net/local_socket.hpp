// Unix sockets in the abstract name space, where there is no file to remove: for processes of one
// host and one network name space. They pass bytes and descriptors.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include <troupe/cluster/transport/net/tcp_socket.hpp>

namespace troupe {

/// Do not block. Return no descriptor if the name is taken, or no process listens there.
OwnedDescriptor listen_locally(const std::string& name);
OwnedDescriptor connect_locally(const std::string& name);
/// Does the process at the other end run as this user?
bool is_own(int socket);
/// All of `text` or nothing, and the descriptors with it.
bool send_descriptors(int socket, const char* text, std::size_t bytes,
                      std::span<const int> descriptors);
inline constexpr std::size_t kMostDescriptors = 3;
/// As recv; `descriptors` become those that come along, if any do. More than kMostDescriptors are
/// closed by the kernel.
ssize_t receive_descriptors(int socket, std::byte* to, std::size_t most,
                            std::vector<OwnedDescriptor>& descriptors);

}  // namespace troupe
