// For tests that need IPv6, which a machine, or a container's network, may lack: they are skipped
// there, by name.
#pragma once

#include <boost/test/unit_test.hpp>

#include <troupe/cluster/transport/net/tcp_socket.hpp>

namespace troupe::test {

/// A precondition: listening at ::1 is possible.
inline boost::test_tools::assertion_result has_ipv6(boost::unit_test::test_unit_id) {
  boost::test_tools::assertion_result result(true);
  try {
    listen_at("tcp://[::1]:0", "");
  } catch (const Error& e) {
    result = false;
    result.message() << "no IPv6 here: " << e.what();
  }
  return result;
}

}  // namespace troupe::test
