#include <troupe/cluster/transport/net/local_socket.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace troupe {

namespace {

struct Name {
  explicit Name(const std::string& name) {
    at.sun_family = AF_UNIX;
    const std::size_t n = std::min(name.size(), sizeof at.sun_path - 1);
    std::memcpy(at.sun_path + 1, name.data(), n);  // behind a zero: not a file
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n);
  }
  const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&at); }
  sockaddr_un at{};
  socklen_t bytes;
};

OwnedDescriptor make() {
  return OwnedDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

OwnedDescriptor listen_locally(const std::string& name) {
  const Name at(name);
  OwnedDescriptor fd = make();
  if (fd.get() < 0 || bind(fd.get(), at.generic(), at.bytes) != 0 || listen(fd.get(), 64) != 0)
    return OwnedDescriptor();
  return fd;
}

OwnedDescriptor connect_locally(const std::string& name) {
  const Name at(name);
  OwnedDescriptor fd = make();
  if (fd.get() < 0 || connect(fd.get(), at.generic(), at.bytes) != 0) return OwnedDescriptor();
  return fd;
}

bool is_own(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

bool send_descriptors(int socket, const char* text, std::size_t bytes,
                      std::span<const int> descriptors) {
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  iovec piece{const_cast<char*>(text), bytes};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(c), descriptors.data(), descriptors.size_bytes());
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes);
}

ssize_t receive_descriptors(int socket, std::byte* to, std::size_t most,
                            std::vector<OwnedDescriptor>& descriptors) {
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  iovec piece{to, most};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  // the kernel closes those that have no room
  message.msg_controllen = CMSG_LEN(kMostDescriptors * sizeof(int));
  const ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* c = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) return n;
  for (std::size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
    int got;
    std::memcpy(&got, CMSG_DATA(c) + i * sizeof got, sizeof got);
    descriptors.emplace_back(got);
  }
  return n;
}

}  // namespace troupe
