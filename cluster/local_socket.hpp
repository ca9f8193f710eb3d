// Unix sockets in the abstract name space, where there is no file to remove: for processes of one host and one network
// name space. What they pass besides bytes are descriptors.
#pragma once

#include <cstddef>
#include <string>

#include <sys/types.h>

#include <troupe/cluster/tcp_socket.hpp>

namespace troupe {

/// Both do not wait; without a descriptor if the name is taken, or nobody is there.
OwnedDescriptor listen_locally(const std::string& name);
OwnedDescriptor connect_locally(const std::string& name);
/// Does the process at the other end run as this user?
bool is_own(int socket);
/// All of `text` or nothing, and `fd` with it.
bool send_descriptor(int socket, const char* text, std::size_t bytes, int fd);
/// As recv; `fd` becomes the descriptor that comes along, if one does. Any others are closed by the kernel.
ssize_t receive_descriptor(int socket, std::byte* to, std::size_t most, OwnedDescriptor& fd);

}  // namespace troupe
