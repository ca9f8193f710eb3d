#include <troupe/cluster/local_socket.hpp>

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

OwnedDescriptor make() { return OwnedDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

}  // namespace

OwnedDescriptor listen_locally(const std::string& name) {
  const Name at(name);
  OwnedDescriptor fd = make();
  if (fd.get() < 0 || bind(fd.get(), at.generic(), at.bytes) != 0 || listen(fd.get(), 64) != 0) return OwnedDescriptor();
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

bool send_descriptor(int socket, const char* text, std::size_t bytes, int fd) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  iovec piece{const_cast<char*>(text), bytes};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes);
}

ssize_t receive_descriptor(int socket, std::byte* to, std::size_t most, OwnedDescriptor& fd) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec piece{to, most};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_LEN(sizeof(int));  // room for one: the kernel closes any others
  const ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* c = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int))) {
    int got;
    std::memcpy(&got, CMSG_DATA(c), sizeof got);
    fd = OwnedDescriptor(got);
  }
  return n;
}

}  // namespace troupe
