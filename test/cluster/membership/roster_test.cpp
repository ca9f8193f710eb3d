// Not under tsan: one thread steps the simulation.
// Addresses of members, as reported by the nodes that have seen them.
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include <troupe/cluster/node/roster.hpp>
#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(roster_test, TROUPE_ONE_THREAD)

namespace {

std::string address_of(const Roster& roster, const std::string& name) {
  const Member* m = roster.member(name);
  return m ? m->address : "nobody";
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_node_that_listens_everywhere_has_the_seen_address) {
  Roster a({.name = "a", .incarnation = 1, .address = "tcp://0.0.0.0:7117"}, {}, 1);
  a.connected({}, 5, {"b", 2, "tcp://10.0.0.2:7117", {}});  // as the transport has seen it
  const Member b{.name = "b", .incarnation = 2, .address = "tcp://0.0.0.0:7117"};
  Gossip said{b,
              {.kind = MembershipMessage::Kind::sync,
               .members = {b,
                           {.name = "c", .incarnation = 3, .address = "tcp://10.0.0.3:7117"},
                           {.name = "d", .incarnation = 4, .address = "tcp://127.0.0.1:7200"},
                           {.name = "e", .incarnation = 5, .address = "tcp://[::]:7117"}}}};
  a.heard({}, 5, said);
  BOOST_TEST(address_of(a, "b") == "tcp://10.0.0.2:7117");
  BOOST_TEST(address_of(a, "c") == "tcp://10.0.0.3:7117");
  BOOST_TEST(address_of(a, "d") == "tcp://10.0.0.2:7200");  // on b's machine
  BOOST_TEST(address_of(a, "e") == "");                     // no node that has seen it reports it
  // b refutes a suspicion: still not what it says of itself.
  said.from.refutations = 1;
  said.message = {.kind = MembershipMessage::Kind::news, .members = {said.from}};
  a.heard({}, 5, said);
  BOOST_TEST(address_of(a, "b") == "tcp://10.0.0.2:7117");
  for (const std::string& address : a.take().dialled) BOOST_TEST(!is_any_host(address), address);
}

// c may have been cut off itself: b is pinged with what is said of it, and its session stays until
// it leaves that unanswered.
BOOST_AUTO_TEST_CASE(a_death_by_hearsay_ends_no_session) {
  Roster a({.name = "a", .incarnation = 1, .address = "tcp://127.0.0.1:7117"}, {}, 1);
  const Member b{.name = "b", .incarnation = 2, .address = "tcp://10.0.0.2:7117"},
      c{.name = "c", .incarnation = 3, .address = "tcp://10.0.0.3:7117"};
  const Gossip from_b{b, {.kind = MembershipMessage::Kind::news, .members = {b}}};
  a.connected({}, 5, {b.name, b.incarnation, b.address, {}});
  a.heard({}, 5, from_b);
  a.connected({}, 6, {c.name, c.incarnation, c.address, {}});
  Member dead = b;
  dead.state = MemberState::dead;
  a.take();
  a.heard({}, 6, {c, {.kind = MembershipMessage::Kind::news, .members = {dead}}});
  Roster::Effects effects = a.take();
  BOOST_TEST(effects.ended.empty());
  BOOST_TEST((a.member("b")->state == MemberState::suspect));
  BOOST_TEST(a.find("b") == 5u);
  BOOST_REQUIRE(effects.said.size() == 1u);
  const auto& [peer, gossip] = effects.said[0];
  BOOST_TEST(peer == 5u);
  BOOST_TEST((gossip.message.kind == MembershipMessage::Kind::ping));
  BOOST_REQUIRE(!gossip.message.members.empty());
  BOOST_TEST(gossip.message.members[0].name == "b");
  // It refutes; another time it does not.
  Member refuted = b;
  refuted.refutations = 1;
  a.heard({}, 5, {refuted, {.kind = MembershipMessage::Kind::news, .members = {refuted}}});
  BOOST_TEST((a.member("b")->state == MemberState::alive));
  dead.refutations = 1;
  a.heard({}, 6, {c, {.kind = MembershipMessage::Kind::news, .members = {dead}}});
  for (Roster::Time now{}; now < a.detection_bound(3); now += std::chrono::milliseconds(100))
    a.tick(now);
  effects = a.take();
  BOOST_TEST((a.member("b")->state == MemberState::dead));
  BOOST_TEST(std::count_if(effects.ended.begin(), effects.ended.end(),
                           [](const auto& e) { return e.first == 5; }) == 1);
}

// Without a session there is nothing to end, and others know better.
BOOST_AUTO_TEST_CASE(hearsay_about_a_member_without_a_session_is_believed) {
  Roster a({.name = "a", .incarnation = 1, .address = "tcp://127.0.0.1:7117"}, {}, 1);
  const Member c{.name = "c", .incarnation = 3, .address = "tcp://10.0.0.3:7117"};
  Member b{.name = "b", .incarnation = 2, .address = "tcp://10.0.0.2:7117"};
  a.connected({}, 6, {c.name, c.incarnation, c.address, {}});
  a.heard({}, 6, {c, {.kind = MembershipMessage::Kind::news, .members = {b}}});
  b.state = MemberState::dead;
  a.heard({}, 6, {c, {.kind = MembershipMessage::Kind::news, .members = {b}}});
  BOOST_TEST((a.member("b")->state == MemberState::dead));
}

BOOST_AUTO_TEST_CASE(session_of_a_node_that_left_ends_after_a_suspicion) {
  Roster a({.name = "a", .incarnation = 1, .address = "tcp://127.0.0.1:7117"}, {}, 1);
  Member b{.name = "b", .incarnation = 2, .address = "tcp://10.0.0.2:7117"};
  a.connected({}, 5, {b.name, b.incarnation, b.address, {}});
  a.heard({}, 5, {b, {.kind = MembershipMessage::Kind::news, .members = {b}}});
  b.state = MemberState::left;
  a.heard({}, 5, {b, {.kind = MembershipMessage::Kind::news, .members = {b}}});
  a.tick(std::chrono::milliseconds(1499));
  BOOST_TEST(a.take().ended.empty());
  a.tick(std::chrono::milliseconds(1500));
  const Roster::Effects effects = a.take();
  BOOST_REQUIRE(effects.ended.size() == 1u);
  BOOST_TEST(effects.ended[0].second.message() ==
             "node left but did not close its session within 1.5 s");
}

// A node whose clock went back an hour: the error of the node that it asks names the clock, and the
// life to follow.
BOOST_AUTO_TEST_CASE(a_clock_that_went_back_is_named) {  // H7
  const std::uint64_t before = (std::uint64_t{1'700'000'000'000} << kLifeBits) + 5,
                      hour = std::uint64_t{3'600'000} << kLifeBits;
  Roster a({.name = "a", .incarnation = 1, .address = "tcp://127.0.0.1:7117"}, {}, 1);
  const Member b{.name = "b", .incarnation = before, .address = "tcp://10.0.0.2:7117"};
  a.connected({}, 5, {b.name, b.incarnation, b.address, {}});
  a.heard({}, 5, {b, {.kind = MembershipMessage::Kind::news, .members = {b}}});
  Member left = b;
  left.state = MemberState::left;
  a.heard({}, 5, {left, {.kind = MembershipMessage::Kind::news, .members = {left}}});
  a.lost({}, 5);
  a.take();
  a.connected({}, 6, {b.name, before - hour, b.address, {}});
  const Roster::Effects effects = a.take();
  BOOST_REQUIRE(effects.ended.size() == 1u);
  const std::string why = effects.ended[0].second.message();
  BOOST_TEST(why.find("the clock of the machine of node 'b' is behind: by it the node has started "
                      "3600.0 s before") != std::string::npos,
             why);
  BOOST_REQUIRE(effects.said.size() >= 1u);
  // The node that came back hears of its earlier life.
  Roster again({.name = "b", .incarnation = before - hour, .address = b.address}, {}, 1);
  again.connected({}, 9, {"a", 1, "tcp://127.0.0.1:7117", {}});
  again.heard({}, 9, effects.said[0].second);
  BOOST_TEST((again.status().code() == Code::failed_precondition));
  BOOST_TEST(again.status().message() == why);
  BOOST_TEST(again.outdated_by() == before);
}

// Else Prometheus would refuse all that a node says.
BOOST_AUTO_TEST_CASE(a_name_that_is_no_utf_8_is_refused) {
  const auto named = [](const std::string& name) {
    Roster({.name = name, .incarnation = 1, .address = "tcp://127.0.0.1:7117"}, {}, 1);
  };
  for (const char* name :
       {"\xff", "a\x80", "\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xe2\x82", "\xed\xa0\x80",
        "\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"})
    refusal([&] { named(name); }, Code::invalid_argument);
  for (const char* name : {"a", "caf\xc3\xa9", "\xe0\xa0\x80", "\xe2\x82\xac", "\xed\x9f\xbf",
                           "\xf0\x9f\x90\xb4", "\xf4\x8f\xbf\xbf"})
    BOOST_CHECK_NO_THROW(named(name));
}

// The name is not taken from other nodes either: a node of that name is disconnected, and one that
// reports it reports an invalid name.
BOOST_AUTO_TEST_CASE(names_that_nodes_may_not_have_are_refused_in_gossip) {
  const Member b{.name = "b", .incarnation = 2, .address = "tcp://10.0.0.2:7117"};
  for (const char* name : {"\xff", "caf\xe9", "a b", "a\nb", "*", "a/b", ""}) {
    Roster a({.name = "a", .incarnation = 1, .address = "tcp://127.0.0.1:7117"}, {}, 1);
    a.connected({}, 5, {name, 2, "tcp://10.0.0.2:7117", {}});
    const Roster::Effects effects = a.take();
    BOOST_REQUIRE(effects.ended.size() == 1u);
    BOOST_TEST(effects.ended[0].first == 5u);
    BOOST_TEST((effects.ended[0].second.code() == Code::invalid_argument));
    BOOST_TEST(!a.session(5));
    a.connected({}, 6, {b.name, b.incarnation, b.address, {}});
    const Gossip said{
        b,
        {.kind = MembershipMessage::Kind::news,
         .members = {{.name = name, .incarnation = 3, .address = "tcp://10.0.0.3:7117"}}}};
    refusal([&] { a.heard({}, 6, said); }, Code::data_loss);
    for (const Member& m : a.members()) BOOST_TEST((m.name == "a" || m.name == "b"), m.name);
  }
}

BOOST_AUTO_TEST_CASE(loopback_is_the_senders_machine) {
  BOOST_TEST(seen_through("tcp://127.0.0.1:1", "tcp://127.0.0.1:2") == "tcp://127.0.0.1:1");
  BOOST_TEST(seen_through("tcp://localhost:1", "tcp://node7:2") == "tcp://node7:1");
  BOOST_TEST(seen_through("tcp://[::1]:1", "tcp://[fd00::2]:2") == "tcp://[fd00::2]:1");
  // a client came by IPv4 to a socket for both
  BOOST_TEST(with_host("tcp://*:1", "::ffff:10.0.0.3") == "tcp://10.0.0.3:1");
  BOOST_TEST(with_host("tcp://*:1", "fd00::2") == "tcp://[fd00::2]:1");
  BOOST_TEST(seen_through("tcp://127.0.0.1:1", "") == "tcp://127.0.0.1:1");
  BOOST_TEST(seen_through("inproc://b", "inproc://a") == "inproc://b");
  BOOST_TEST(seen_through("tcp://*:1", "tcp://node7:2") == "");
}

// 30 ms each way, where a ping is awaited for 33.
BOOST_AUTO_TEST_CASE(a_node_is_warned_of_pings_that_cannot_be_answered_in_time) {
  using Time = Roster::Time;
  struct Sent {
    Time at;
    std::size_t to;
    Gossip gossip;
  };
  for (const auto& [after, is_warned] :
       {std::pair{100ms, true}, std::pair{300ms, false}, std::pair{1500ms, false}}) {
    Roster rosters[] = {{{.name = "a", .incarnation = 1, .address = "tcp://10.0.0.1:1"},
                         suspecting_after(after),
                         1},
                        {{.name = "b", .incarnation = 2, .address = "tcp://10.0.0.2:1"},
                         suspecting_after(after),
                         2}};
    rosters[0].connected({}, 1, {"b", 2, "tcp://10.0.0.2:1", {}});
    rosters[1].connected({}, 1, {"a", 1, "tcp://10.0.0.1:1", {}});
    std::vector<Sent> sent;
    std::vector<std::string> warnings;
    const auto look = [&](Time now) {
      for (std::size_t i = 0; i < 2; ++i) {
        Roster::Effects effects = rosters[i].take();
        for (auto& [peer, gossip] : effects.said) sent.push_back({now + 30ms, 1 - i, gossip});
        BOOST_TEST(effects.ended.empty());
        if (i == 0)
          warnings.insert(warnings.end(), effects.warnings.begin(), effects.warnings.end());
      }
    };
    for (Time now{}; now < 20s; now += 1ms) {
      for (Roster& roster : rosters) roster.tick(now);
      look(now);
      const auto due = std::stable_partition(sent.begin(), sent.end(),
                                             [&](const Sent& s) { return s.at > now; });
      const std::vector<Sent> arrived(std::make_move_iterator(due),
                                      std::make_move_iterator(sent.end()));
      sent.erase(due, sent.end());
      for (const Sent& s : arrived) rosters[s.to].heard(now, 1, s.gossip);
      look(now);
    }
    BOOST_TEST(warnings.size() == (is_warned ? 1u : 0u));
    if (is_warned)
      BOOST_TEST(warnings.at(0).starts_with("a ping to node 'b' takes 0.06"), warnings.at(0));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
