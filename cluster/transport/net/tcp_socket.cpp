#include <troupe/cluster/transport/net/tcp_socket.hpp>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace troupe {

namespace {

constexpr std::string_view kScheme = "tcp://";

using Resolved = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// As the resolver takes it.
std::string bare_host(const std::string& address) {
  const std::string host = host_of(address);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    return host.substr(1, host.size() - 2);
  return host == "*" ? "0.0.0.0" : host;
}

std::string why_none(const std::string& host, int error) {
  const std::string why = error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error);
  const bool is_of_name = error != EAI_SERVICE && error != EAI_SYSTEM && error != EAI_MEMORY;
  return is_of_name ? fmt::format("the name {} does not resolve ({})", host, why) : why;
}

Resolved resolve(const std::string& address, bool to_listen) {
  check_address(address);
  const std::size_t colon = address.rfind(':');
  const std::string host = bare_host(address);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = to_listen ? AI_PASSIVE : 0;
  if (const int error =
          getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
      error != 0)
    throw Error(Code::unavailable, fmt::format("{}: {}", address, why_none(host, error)));
  return Resolved(found, &freeaddrinfo);
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof v4);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  if (address.sa_family != AF_INET6) return false;
  sockaddr_in6 v6;
  std::memcpy(&v6, &address, sizeof v6);
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

int port_of(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  char port[NI_MAXSERV] = {};
  getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, port, sizeof port,
              NI_NUMERICSERV);
  return std::atoi(port);
}

}  // namespace

OwnedDescriptor& OwnedDescriptor::operator=(OwnedDescriptor&& o) noexcept {
  std::swap(fd_, o.fd_);
  return *this;
}
OwnedDescriptor::~OwnedDescriptor() {
  if (fd_ >= 0) close(fd_);
}
int OwnedDescriptor::release() { return std::exchange(fd_, -1); }

bool set_congestion(int fd, const std::string& congestion) {
  return congestion.empty() || setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion.data(),
                                          static_cast<socklen_t>(congestion.size())) == 0;
}

bool is_loopback(const std::string& address) {
  const Resolved found = resolve(address, false);
  for (const addrinfo* a = found.get(); a; a = a->ai_next)
    if (!is_loopback(*a->ai_addr)) return false;
  return true;
}

void check_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (!address.starts_with(kScheme) || colon == std::string::npos || colon <= kScheme.size() ||
      colon + 1 == address.size())
    throw Error(Code::invalid_argument,
                fmt::format("an address is tcp://HOST:PORT, not {}", address));
  const std::string_view host =
      std::string_view(address).substr(kScheme.size(), colon - kScheme.size());
  if (host.find(':') != std::string_view::npos && !is_ipv6(address))
    throw Error(
        Code::invalid_argument,
        fmt::format("'{}' has an IPv6 address without brackets; write tcp://[HOST]:PORT", address));
}

bool is_ipv6(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  return address.starts_with(kScheme) && colon != std::string_view::npos &&
         colon > kScheme.size() + 1 && address[kScheme.size()] == '[' && address[colon - 1] == ']';
}

bool is_in_numbers(const std::string& address) {
  const std::string host = bare_host(address);
  in6_addr bytes;
  if (is_ipv6(address))
    return inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &bytes) == 1;
  return is_any_host(address) || inet_pton(AF_INET, host.c_str(), &bytes) == 1;
}

std::vector<std::string> in_numbers(const std::string& address) {
  check_address(address);
  const std::string host = bare_host(address);
  addrinfo hints{}, *first = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = is_ipv6(address) ? AF_INET6 : AF_UNSPEC;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &first); error != 0)
    throw Error(error == EAI_SYSTEM || error == EAI_MEMORY ? Code::unavailable : Code::not_found,
                why_none(host, error));
  const Resolved found(first, &freeaddrinfo);
  std::vector<std::string> all;
  // A machine may have IPv6 addresses and no way to them, which takes minutes to find out. Or none,
  // and a file that names one.
  const bool has_ipv6 = OwnedDescriptor(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)).get() >= 0;
  for (const int family : {AF_INET, AF_INET6})
    for (const addrinfo* a = found.get(); a; a = a->ai_next) {
      char text[NI_MAXHOST] = {};
      if (a->ai_family != family || (family == AF_INET6 && !has_ipv6) ||
          getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) !=
              0)
        continue;
      all.push_back(with_host(address, text));
    }
  if (all.empty())
    throw Error(Code::not_found,
                fmt::format("the name {} has no address of IPv4{}", host,
                            has_ipv6 ? " or IPv6" : ", and there is no IPv6 here"));
  return all;
}

std::string host_of(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  return std::string(address.substr(kScheme.size(), colon - kScheme.size()));
}

bool is_any_host(std::string_view told) {
  const std::size_t colon = told.rfind(':');
  if (!told.starts_with(kScheme) || colon < kScheme.size()) return false;
  const std::string host = host_of(told);
  return host == "*" || host == "0.0.0.0" || host == "[::]";
}

namespace {

// Decides by the text alone: a receiver of gossip has no time for look-ups.
bool names_loopback(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (!address.starts_with(kScheme) || colon < kScheme.size()) return false;
  const std::string host = host_of(address);
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

}  // namespace

std::string seen_through(const std::string& told, const std::string& teller) {
  if (is_any_host(told)) return {};
  if (!names_loopback(told) || !teller.starts_with(kScheme) || names_loopback(teller) ||
      is_any_host(teller))
    return told;
  return with_host(told, host_of(teller));
}

std::string with_host(std::string_view address, const std::string& host) {
  // A peer that came by IPv4 to a socket for both is announced as IPv4: nodes without IPv6 reach it
  // too.
  constexpr std::string_view kMapped = "::ffff:";
  if (host.starts_with(kMapped) && host.find('.') != std::string::npos)
    return with_host(address, host.substr(kMapped.size()));
  const bool needs_brackets = host.find(':') != std::string::npos && !host.starts_with('[');
  return fmt::format("{}{}{}", kScheme, needs_brackets ? "[" + host + "]" : host,
                     address.substr(address.rfind(':')));
}

std::string peer_of(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return {};
  if (getnameinfo(reinterpret_cast<sockaddr*>(&peer), size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {};
  return with_host(fmt::format(":{}", port), host);
}

OwnedDescriptor connect_to(const std::string& address) {
  const Resolved at = resolve(address, false);
  OwnedDescriptor fd(
      socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (fd.get() < 0 || (connect(fd.get(), at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS))
    throw Error(Code::unavailable, fmt::format("{}: {}", address, std::strerror(errno)));
  return fd;
}

ListeningSocket listen_at(const std::string& address, const std::string& congestion) {
  const Resolved at = resolve(address, true);
  OwnedDescriptor fd(
      socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  const auto fail = [&](const char* what) {
    throw Error(Code::unavailable, fmt::format("{}: {}: {}", address, what, std::strerror(errno)));
  };
  if (fd.get() < 0) fail("no socket");
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  set_congestion(fd.get(), congestion);
  if (bind(fd.get(), at->ai_addr, at->ai_addrlen) != 0) fail("the address cannot be had");
  if (listen(fd.get(), 256) != 0) fail("the address cannot be had");
  const std::string chosen =
      fmt::format("{}:{}", address.substr(0, address.rfind(':')), port_of(fd.get()));
  return {std::move(fd), chosen};
}

}  // namespace troupe
