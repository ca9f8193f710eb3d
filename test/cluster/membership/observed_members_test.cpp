// A node keeps entries of members only as long as they are known.
#include <boost/test/unit_test.hpp>

#include <troupe/cluster/membership/observed_members.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(observed_members_test, TROUPE_ONE_THREAD)

namespace {

Member is(const std::string& name, MemberState state) {
  return {.name = name, .incarnation = 1, .state = state, .address = {}};
}

std::string names_of(const std::vector<Member>& members) {
  std::string all;
  for (const Member& m : members) all += m.name;
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_change_is_reported_once_with_its_time) {
  ObservedMembers observed;
  BOOST_TEST(names_of(observed.note({is("a", MemberState::alive), is("b", MemberState::alive)},
                                    10)) == "ab");
  BOOST_TEST(names_of(observed.note({is("a", MemberState::alive), is("b", MemberState::suspect)},
                                    20)) == "b");
  BOOST_TEST(names_of(observed.note({is("a", MemberState::alive), is("b", MemberState::suspect)},
                                    30)) == "");
  BOOST_TEST(observed.since_ns("a") == 10);
  BOOST_TEST(observed.since_ns("b") == 20);
  BOOST_TEST(observed.since_ns("c") == 0);
}

BOOST_AUTO_TEST_CASE(an_unknown_node_is_dropped_with_its_clock) {
  ObservedMembers observed;
  observed.note(
      {is("a", MemberState::alive), is("b", MemberState::dead), is("c", MemberState::alive)}, 10);
  for (const char* name : {"b", "c"}) {
    BOOST_REQUIRE(observed.clock(name));
    observed.clock(name)->observe(1,
                                  {.sent = 100, .received = 1100, .answered = 1100, .ended = 100});
  }
  observed.note({is("d", MemberState::alive)}, 20);
  BOOST_TEST(observed.size() == 4);
  observed.forget_but(
      {is("a", MemberState::alive), is("c", MemberState::alive), is("d", MemberState::alive)});
  BOOST_TEST(observed.size() == 3);
  BOOST_TEST(!observed.clock("b"));
  BOOST_TEST(observed.since_ns("b") == 0);
  BOOST_REQUIRE(observed.clock("c"));
  BOOST_TEST(observed.clock("c")->offset_ns() == 1000);
  BOOST_TEST(names_of(observed.note({is("a", MemberState::alive), is("b", MemberState::dead),
                                     is("c", MemberState::alive), is("d", MemberState::alive)},
                                    30)) == "b");
  BOOST_TEST(!observed.clock("b")->is_known());
  BOOST_TEST(observed.since_ns("b") == 30);
}

BOOST_AUTO_TEST_CASE(since_when_there_is_no_session) {
  ObservedMembers observed;
  observed.note({is("a", MemberState::alive)}, 10);
  BOOST_TEST(observed.apart_since_ns("a") == 0);
  observed.note_session("a", false, 20);
  observed.note_session("a", false, 30);
  observed.note_session("nobody", false, 30);
  BOOST_TEST(observed.apart_since_ns("a") == 20);
  BOOST_TEST(observed.apart_since_ns("nobody") == 0);
  observed.note_session("a", true, 40);
  BOOST_TEST(observed.apart_since_ns("a") == 0);
  observed.note_session("a", false, 50);
  observed.note({is("a", MemberState::suspect)}, 60);
  BOOST_TEST(observed.apart_since_ns("a") == 50);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
