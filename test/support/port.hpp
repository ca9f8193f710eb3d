// A port of a test's own.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>

#include <boost/test/unit_test.hpp>

namespace troupe::test {

/// A TCP port of the loopback address on which no process listens, for options that cannot ask for
/// any free port. The port is outside the range that the system hands out to "any port" requests,
/// unlike a port that was free a moment ago. While the object lives, no other process has the same
/// port: an abstract Unix address, of the same network namespace as ports, stands for it.
class OwnPort {
 public:
  OwnPort() {
    std::random_device random;
    while (guard_ < 0) take(kFirst + static_cast<int>(random() % kPorts));
  }
  ~OwnPort() { close(guard_); }
  OwnPort(const OwnPort&) = delete;
  OwnPort& operator=(const OwnPort&) = delete;
  int number() const { return port_; }

 private:
  // Below the system's usual range, and where no other test looks (`house/manifests_test.sh` does
  // from 20,000).
  static constexpr unsigned kFirst = 12'000, kPorts = 8'000;

  void take(int port) {
    const int guard = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    BOOST_REQUIRE(guard >= 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const int length =
        std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "troupe-test-port-%d", port);
    const bool is_ours = bind(guard, reinterpret_cast<sockaddr*>(&name),
                              static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                                     static_cast<std::size_t>(length))) == 0;
    if (!is_ours || !can_listen(port)) {
      close(guard);
      return;
    }
    guard_ = guard;
    port_ = port;
  }
  static bool can_listen(int port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    BOOST_REQUIRE(fd >= 0);
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(static_cast<std::uint16_t>(port));
    const bool is_free =
        bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 && listen(fd, 1) == 0;
    close(fd);
    return is_free;
  }

  int guard_ = -1, port_ = 0;
};

}  // namespace troupe::test
