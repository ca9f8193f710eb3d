// The sessions of a router: found by number, connection and name, and by their time-outs.
#include <boost/test/unit_test.hpp>

#include <troupe/cluster/transport/dial_table.hpp>
#include <troupe/cluster/transport/peer_table.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(peer_table_test, TROUPE_ONE_THREAD)

namespace {

Time at(int t) { return Time(t); }

/// A table whose entries are due at their `redial_at`.
struct Peers {
  PeerEntry& add(Peer peer, const std::string& name, int due) {
    PeerEntry& entry =
        table.add(std::make_unique<PeerEntry>(peer, PeerInfo{name, 1, {}, {}}, 100 + peer, 1024));
    entry.redial_at = at(due);
    return entry;
  }
  std::vector<Peer> pop_all(int now) {
    std::vector<Peer> all;
    table.settle();
    while (const PeerEntry* entry = table.pop_due(at(now))) all.push_back(entry->peer);
    return all;
  }

  PeerTable table{[](const PeerEntry& e) { return e.redial_at; }};
};

void check_is(const std::vector<Peer>& found, const std::vector<Peer>& expected) {
  BOOST_TEST(found == expected, boost::test_tools::per_element());
}

}  // namespace

BOOST_AUTO_TEST_CASE(entry_is_found_by_its_connection) {
  Peers p;
  p.table.connect(p.add(1, "a", 10), 70);
  p.table.connect(p.add(2, "b", 10), 71);
  BOOST_TEST(p.table.at(70)->peer == 1u);
  BOOST_TEST(p.table.look(Connection(71))->peer == 2u);
  p.table.disconnect(70);
  BOOST_TEST(!p.table.at(70));
  BOOST_TEST(p.table.find(1)->peer == 1u);
}

BOOST_AUTO_TEST_CASE(named_skips_sessions_that_are_drained) {
  Peers p;
  p.add(1, "a", 10).state = PeerEntry::State::closing;
  BOOST_TEST(!p.table.named("a"));
  p.add(2, "a", 10);
  BOOST_TEST(p.table.named("a")->peer == 2u);
  p.table.erase(*p.table.find(2));
  BOOST_TEST(!p.table.named("a"));
  BOOST_TEST(p.table.look(Peer(1))->peer == 1u);
}

BOOST_AUTO_TEST_CASE(entries_are_due_in_the_order_of_their_time_outs) {
  Peers p;
  p.add(1, "a", 30), p.add(2, "b", 10), p.add(3, "c", 20);
  BOOST_TEST((p.table.due() == at(10)));
  check_is(p.pop_all(25), {2, 3});
}

BOOST_AUTO_TEST_CASE(time_out_that_moved_is_due_when_it_comes) {
  Peers p;
  p.add(1, "a", 10);
  BOOST_TEST((p.table.due() == at(10)));
  p.table.find(1)->redial_at = at(50);  // later: the first time stays queued
  BOOST_TEST((p.table.due() == at(10)));
  check_is(p.pop_all(10), {1});
  BOOST_TEST((p.table.due() == at(50)));
  p.table.find(1)->redial_at = at(20);  // sooner
  BOOST_TEST((p.table.due() == at(20)));
  check_is(p.pop_all(20), {1});
}

BOOST_AUTO_TEST_CASE(erased_entry_is_not_due) {
  Peers p;
  p.add(1, "a", 10), p.add(2, "b", 20);
  BOOST_TEST((p.table.due() == at(10)));
  p.table.erase(*p.table.find(1));
  BOOST_TEST((p.table.due() == at(20)));
  check_is(p.pop_all(100), {2});
}

BOOST_AUTO_TEST_CASE(dial_without_an_answer_is_over) {
  DialTable dials(at(100));
  dials.add(1, {.address = "a", .session = 7, .began = at(0)});
  dials.add(2, {.address = "b", .session = 8, .began = at(50)});
  BOOST_TEST((dials.due() == at(100)));
  BOOST_TEST(dials.unanswered(at(99)).empty());
  const std::vector<Connection> over = dials.unanswered(at(100));
  BOOST_TEST(over == std::vector<Connection>{1}, boost::test_tools::per_element());
  BOOST_TEST((dials.due() == at(150)));
  BOOST_TEST(dials.session(2).value() == 8u);
  BOOST_TEST(dials.take(2)->address == "b");
  BOOST_TEST(!dials.has("b"));
}

BOOST_AUTO_TEST_CASE(dial_that_is_retried_waits_for_its_time) {
  DialTable dials(at(100));
  dials.retry({.address = "a", .began = at(0)}, at(40));
  BOOST_TEST(dials.has("a"));
  BOOST_TEST((dials.due() == at(40)));
  BOOST_TEST(dials.take_retries(at(39)).empty());
  BOOST_TEST(dials.take_retries(at(40)).size() == 1u);
  BOOST_TEST(!dials.has("a"));
  dials.retry({.address = "a", .began = at(0)}, at(140));
  const std::vector<Dial> over = dials.take_retries(at(100));
  BOOST_TEST(over.size() == 1u);
  BOOST_TEST(dials.is_over(over.front(), at(100)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
