// The bytes that strangers send to the ports of a node, and the sockets on which a process listens,
// for tests.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/cluster/transport/transport.hpp>
#include <troupe/test/process/connection.hpp>

namespace troupe::test {

inline OwnedDescriptor connected_to(int port) {
  return OwnedDescriptor(dial(fmt::format(":{}", port)));
}

/// To a unix socket in the abstract name space; waits until there is room for one more.
inline OwnedDescriptor connected_to(const std::string& name) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  name.copy(at.sun_path + 1, sizeof at.sun_path - 1);
  OwnedDescriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  BOOST_REQUIRE(
      connect(fd.get(), reinterpret_cast<sockaddr*>(&at),
              static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) == 0);
  return fd;
}

/// Returns the next bytes; empty once the other end has closed the connection.
inline std::string some_of(const OwnedDescriptor& fd) {
  pollfd readable{fd.get(), POLLIN, 0};
  BOOST_REQUIRE(poll(&readable, 1, 100'000) == 1);
  std::string block(4096, '\0');
  block.resize(
      static_cast<std::size_t>(std::max<ssize_t>(::read(fd.get(), block.data(), block.size()), 0)));
  return block;
}

/// All that comes back until the other end hangs up, which it does when we have nothing more to
/// say; we wait for `first` bytes before we say that.
inline std::string probe(const OwnedDescriptor& fd, const std::string& say, std::size_t first) {
  [[maybe_unused]] const auto sent = send(fd.get(), say.data(), say.size(), MSG_NOSIGNAL);
  if (first == 0) shutdown(fd.get(), SHUT_WR);
  for (std::string got;;) {
    const std::string more = some_of(fd);
    if (more.empty()) return got;
    got += more;
    if (got.size() >= first) shutdown(fd.get(), SHUT_WR);
  }
}
inline std::string probe(int port, const std::string& say, std::size_t first) {
  return probe(connected_to(port), say, first);
}

/// The sockets on which a process listens: TCP ports, any UDP sockets, and named unix sockets, an
/// abstract one's name behind `@`.
struct Listening {
  std::set<int> ports;
  std::set<std::string> hosts;  // addresses of these ports, as the kernel writes them
  std::vector<std::string> names;
};

inline Listening listening_of(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  std::set<std::string> sockets;
  for (const auto& entry : std::filesystem::directory_iterator(process + "/fd")) {
    std::error_code gone;
    sockets.insert(std::filesystem::read_symlink(entry.path(), gone).string());
  }
  Listening all;
  const auto each_line = [&](const char* table, const auto& take) {
    std::ifstream file(process + table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::vector<std::string> w(10);
      for (std::string& word : w) words >> word;
      take(w);
    }
  };
  for (const char* table : {"/net/tcp", "/net/tcp6", "/net/udp", "/net/udp6"})
    each_line(table, [&](const std::vector<std::string>& w) {
      const bool waits = w[3] == "0A" || std::string(table).find("udp") != std::string::npos;
      if (!waits || !sockets.contains("socket:[" + w[9] + "]")) return;
      all.ports.insert(std::stoi(w[1].substr(w[1].rfind(':') + 1), nullptr, 16));
      all.hosts.insert(w[1].substr(0, w[1].rfind(':')));
    });
  each_line("/net/unix", [&](const std::vector<std::string>& w) {
    const bool accepts = (std::stoul(w[3], nullptr, 16) & 0x10000) != 0;
    if (accepts && sockets.contains("socket:[" + w[6] + "]")) all.names.push_back(w[7]);
  });
  return all;
}
inline const std::string kLoopbackHost = "0100007F";

inline std::string greeting(const std::string& mechanism, char minor = 0) {
  using namespace std::string_literals;
  std::string g = "\xff\0\0\0\0\0\0\0\1\x7f\x03"s + minor + mechanism;
  return g + std::string(64 - g.size(), '\0');
}

inline std::string framed(char flags, const std::string& body) {
  return {flags + std::string(1, static_cast<char>(body.size())) + body};
}

inline std::string ready(const std::string& socket_type) {
  using namespace std::string_literals;
  return framed(4, "\5READY\x0bSocket-Type\0\0\0\6"s + socket_type + "\x08Identity\0\0\0\0"s);
}
inline const std::string kReadyDealer = ready("DEALER"), kReadyRouter = ready("ROUTER");

/// Inputs of scanners, and of an attacker familiar with ZeroMQ.
inline std::vector<std::string> phrases() {
  using namespace std::string_literals;
  std::minstd_rand random(7);
  std::string noise(65536, '\0');
  for (char& c : noise) c = static_cast<char>(random() >> 8);
  const std::string message = framed(0, "\x96\5\1\0\0\0\x90");  // Data from nowhere
  return {"", "\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "SSH-2.0-scan\r\n",
          "\x16\x03\x01\0\xa5\1\0\0\xa1\x03\x03"s, "*1\r\n$4\r\nINFO\r\n", std::string(4096, '\0'),
          std::string(4096, '\xff'), noise, "\xff\0\0\0\0\0\0\0\1\x7f"s,
          "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x03", greeting("NULL"), greeting("PLAIN"),
          greeting("GSSAPI"), greeting("CURVE"), greeting("NULL") + kReadyDealer + message,
          greeting("NULL", 1) + kReadyDealer + message,
          greeting("PLAIN") + framed(4, "\5HELLO\1a\1b"),
          greeting("CURVE") + framed(4, "\5HELLO\1\0"s + std::string(192, 'x')),
          greeting("CURVE") + kReadyDealer + message,
          // a command of 2 GiB
          greeting("CURVE") + "\6\0\0\0\0\x7f\xff\xff\xff"s + std::string(1000, 'x'),
          "\1\0\1\x06stolen"s,                                    // ZMTP 1.0
          "\xff\0\0\0\0\0\0\0\1\x7f\1\5\0\0\0\6\x93\5\1\1\1\1"s,  // ZMTP 2.0
          "\1\0"s + std::string(100, '\2'),
          "troupe-b" + std::string(32, '\0'),  // a ticket, and half of one
          "troupe-b" + noise.substr(0, 16)};
}

inline int port_of(const std::string& address) {
  return std::stoi(address.substr(address.rfind(':') + 1));
}

/// Scans every port of a node, and its unix socket, and leaves connections open on each; each
/// answer is a greeting of ZeroMQ, or nothing. The other ports, for large payload, answer nothing
/// to a client without a ticket. `port`: of ZeroMQ.
inline void scan(pid_t pid, int port, const std::string& name, bool has_keys,
                 std::vector<OwnedDescriptor>& left_open) {
  Listening at = listening_of(pid);
  BOOST_TEST(at.hosts == std::set<std::string>{kLoopbackHost});
  BOOST_REQUIRE(at.ports.erase(port) == 1u);
  BOOST_REQUIRE(at.ports.size() == 1u);
  BOOST_REQUIRE(at.names.size() == 1u);
  BOOST_REQUIRE(at.names[0].starts_with("@troupe-"));
  const int bulk = *at.ports.begin();
  const std::string local = at.names[0].substr(1);
  for (const std::string& phrase : phrases()) {
    BOOST_TEST(probe(bulk, phrase, 0).empty());
    BOOST_TEST(probe(connected_to(local), phrase, 0).empty());
  }
  for (int i = 0; i < 300; ++i)
    left_open.push_back(i % 3 ? connected_to(bulk) : connected_to(local));
  const std::string ours = greeting(has_keys ? "CURVE" : "NULL", 1);
  std::size_t probes = 0, bytes = 0, longest = 0;
  for (const std::string& phrase : phrases()) {
    const std::string got = probe(
        port, phrase, phrase.starts_with(greeting(has_keys ? "CURVE" : "NULL")) ? ours.size() : 0);
    ++probes;
    bytes += got.size();
    longest = std::max(longest, got.size());
    BOOST_TEST(!has(got, name));
    BOOST_TEST(!has(got, std::string(engine_version())));
    std::string rest = got.substr(std::min(got.size(), ours.size()));
    // The eleventh byte says the version of the protocol, which a newer node tells an older one as
    // it knows it.
    const std::size_t same = std::min<std::size_t>(got.size(), 10);
    BOOST_TEST(got.substr(0, same) == ours.substr(0, same));
    if (has_keys) BOOST_TEST(rest.size() == 0u);
    if (!has_keys && !rest.empty()) BOOST_TEST(rest == kReadyRouter);
  }
  BOOST_TEST_MESSAGE(
      fmt::format("{}: {} probes, {} bytes came back, {} at most", port, probes, bytes, longest));
  BOOST_TEST(longest >= ours.size());  // it does answer
  for (int i = 0; i < 1500; ++i) {
    left_open.push_back(connected_to(port));
    if (i % 3 != 0) {
      const std::string half =
          i % 3 == 1 ? greeting(has_keys ? "CURVE" : "NULL") : std::string("\xff\0\0", 3);
      [[maybe_unused]] const auto sent =
          send(left_open.back().get(), half.data(), half.size(), MSG_NOSIGNAL);
    }
  }
}

}  // namespace troupe::test
