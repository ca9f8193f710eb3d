// Not under (tsan|asan and tsan): one thread, a function of its arguments.
#include <boost/test/unit_test.hpp>

#include <troupe/cluster/membership/membership.hpp>
#include <troupe/cluster/membership/round_trip_check.hpp>

namespace troupe::test {

using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(round_trip_check_test)

BOOST_AUTO_TEST_CASE(a_round_trip_longer_than_the_period_is_named_once) {
  RoundTripCheck check(suspecting_after(100ms).period);
  std::vector<std::string> sentences;
  for (int i = 0; i < 20; ++i)
    for (const auto& [node, took] : {std::pair{"b", 104ms}, std::pair{"c", 1ms}})
      if (std::string s = check.note(node, took); !s.empty()) sentences.push_back(std::move(s));
  BOOST_REQUIRE(sentences.size() == 1u);
  BOOST_TEST(sentences[0] ==
             "a ping to node 'b' takes 0.104 s, and is awaited for 0.033 s: the node will be "
             "suspected although it is healthy; give --suspect-after 0.4 at least");
}

BOOST_AUTO_TEST_CASE(one_short_round_trip_clears_a_node) {
  RoundTripCheck check(30ms);
  for (int i = 0; i < 20; ++i) BOOST_TEST(check.note("b", i == 3 ? 5ms : 200ms).empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
