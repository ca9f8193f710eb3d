#include <boost/test/unit_test.hpp>

#include <poll.h>

#include <troupe/cluster/transport/net/resolver.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(lookup_test)

namespace {

using namespace std::chrono_literals;
using Addresses = std::vector<std::string>;

/// Until its bell rings.
const Lookup& done(const Lookup& lookup) {
  pollfd bell{.fd = lookup.bell(), .events = POLLIN, .revents = 0};
  if (!lookup.is_done()) BOOST_REQUIRE(poll(&bell, 1, 600'000) == 1);
  BOOST_REQUIRE(lookup.is_done());
  return lookup;
}

}  // namespace

BOOST_AUTO_TEST_CASE(numeric_address_is_resolved_at_once) {
  for (const char* address :
       {"tcp://127.0.0.1:7", "tcp://10.0.0.7:7117", "tcp://[::1]:7", "tcp://[fe80::1%lo]:7",
        "tcp://0.0.0.0:7", "tcp://*:7", "tcp://[::]:7"}) {
    const Lookup lookup(address);
    BOOST_TEST(lookup.is_done(), address);
    BOOST_TEST(lookup.bell() == -1, address);
    BOOST_TEST((lookup.found() == Addresses{address}), address);
  }
}

BOOST_AUTO_TEST_CASE(a_name_resolves_to_numbers) {
  const Lookup lookup("tcp://localhost:7117");
  BOOST_TEST(lookup.bell() >= 0);
  BOOST_TEST(done(lookup).found().front() == "tcp://127.0.0.1:7117");
}

// With an empty part, about which no server is asked.
BOOST_AUTO_TEST_CASE(an_unknown_name_is_reported) {
  const Lookup lookup("tcp://nobody..here:7117");
  const std::string why = refusal([&] { (void)done(lookup).found(); }, Code::not_found);
  BOOST_TEST(why.starts_with("the name nobody..here does not resolve ("), why);
  refusal([] { in_numbers("nobody"); }, Code::invalid_argument);
}

BOOST_AUTO_TEST_CASE(a_name_is_asked_about_once_at_a_time) {
  Lookups lookups;
  const std::string name = "tcp://localhost:1", other = "tcp://localhost:2";
  const auto first = lookups.ask(name, 0s);
  BOOST_TEST(lookups.ask(name, 1s) == first);
  BOOST_TEST(lookups.ask(other, 1s) != first);
  done(*first);
  BOOST_TEST(lookups.ask(name, 10s) == first);  // its answer has not been taken yet
  const auto later = lookups.ask(name, 22s);    // which is an old one now
  BOOST_TEST(later != first);
  done(*later);
  lookups.taken(name, 22s, true);
  BOOST_TEST(lookups.ask(name, 24s) == later);  // its taker may have had no time to use it
  const auto last = lookups.ask(name, 25s);
  BOOST_TEST(last != later);
  done(*last);
  lookups.taken(name, 25s, false);
  BOOST_TEST(lookups.ask(name, 25s) != last);
}

BOOST_AUTO_TEST_CASE(bracketed_host_may_be_a_name) {
  BOOST_TEST(!is_in_numbers("tcp://[localhost]:1"));
  BOOST_TEST(is_in_numbers("tcp://[fe80::1%lo]:1"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
