// Descriptors, TCP sockets, and `tcp://HOST:PORT` addresses. `is_loopback` and `in_numbers` wait
// for the resolver; others do not, if HOST is numeric.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <troupe/devices/base/error.hpp>

namespace troupe {

/// A file descriptor that is closed unless it is released.
class OwnedDescriptor {
 public:
  explicit OwnedDescriptor(int fd = -1) : fd_(fd) {}
  OwnedDescriptor(OwnedDescriptor&& o) noexcept : fd_(o.release()) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& o) noexcept;
  ~OwnedDescriptor();
  int get() const { return fd_; }
  int release();

 private:
  int fd_;
};

struct ListeningSocket {
  OwnedDescriptor fd;
  std::string address;  // with the port that was chosen
};

/// Listens at `tcp://HOST:PORT`; connections that it accepts inherit the congestion control. Throws
/// unavailable.
ListeningSocket listen_at(const std::string& address, const std::string& congestion);
/// Begins to connect to `tcp://HOST:PORT` without waiting; writable means that it has come to
/// something. Throws unavailable.
OwnedDescriptor connect_to(const std::string& address);
/// Returns `tcp://` and the numeric address of the peer of a socket; empty: it has no peer any
/// more.
std::string peer_of(int fd);
/// Sets it for bytes sent from here; false if the kernel does not have it.
bool set_congestion(int fd, const std::string& congestion);
/// Throws invalid_argument if the address is not `tcp://HOST:PORT`. Does not resolve HOST.
void check_address(const std::string& address);
/// Is HOST an IPv6 address, in brackets?
bool is_ipv6(std::string_view address);
/// Returns true if HOST is numeric. Does not resolve it.
bool is_in_numbers(const std::string& address);
/// Returns the addresses of HOST of `tcp://HOST:PORT`, with that port, those of IPv4 first; waits
/// for the resolver. Throws not_found, in the resolver's words, if HOST does not resolve,
/// unavailable if the resolver gives no answer, and invalid_argument for a malformed address.
std::vector<std::string> in_numbers(const std::string& address);
/// Is HOST every address of the machine? `told` as it stands, malformed or not.
bool is_any_host(std::string_view told);
/// HOST of `tcp://HOST:PORT`, and the same address with another one, which may be an IPv6 address
/// without brackets.
std::string host_of(std::string_view address);
std::string with_host(std::string_view address, const std::string& host);
/// Returns the address of a node that is announced as `told` by a node reached at `teller`. A
/// loopback address there means that node's machine, seen from elsewhere. Empty if `told` names no
/// single machine, as an address for all interfaces does.
std::string seen_through(const std::string& told, const std::string& teller);
/// Returns true if `tcp://HOST:PORT` leads to this machine only. Throws invalid_argument for a
/// malformed address.
bool is_loopback(const std::string& address);

}  // namespace troupe
