// Connections by hand to an inspection server, for what no client of HTTP would say.
#pragma once

#include <boost/test/unit_test.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

namespace troupe::test {

/// Connects a socket to `http://127.0.0.1:PORT`; one that does not block may be on its way.
inline void connect_to(int fd, const std::string& url) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  BOOST_REQUIRE(
      (connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 || errno == EINPROGRESS));
}

/// `flags`: SOCK_NONBLOCK does not wait for the connection.
inline int dial(const std::string& url, int flags = 0) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  connect_to(fd, url);
  return fd;
}

inline void say(int fd, const std::string& text) {
  BOOST_REQUIRE(send(fd, text.data(), text.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(text.size()));
}

/// Returns the answer, up to the end of the connection.
inline std::string heard(int fd) {
  std::string answer;
  char block[4096];
  for (ssize_t n; (n = ::read(fd, block, sizeof block)) > 0;)
    answer.append(block, static_cast<std::size_t>(n));
  close(fd);
  return answer;
}

/// As many descriptors as the system lets a process have, for as long as it is there.
struct ManyFiles {
  rlimit was{};
  ManyFiles() {
    getrlimit(RLIMIT_NOFILE, &was);
    const rlimit most{was.rlim_max, was.rlim_max};
    setrlimit(RLIMIT_NOFILE, &most);
  }
  ~ManyFiles() { setrlimit(RLIMIT_NOFILE, &was); }
};

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace troupe::test
