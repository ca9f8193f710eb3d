// The view of the cluster: sessions whose messages are accepted, and errors that name the nodes.
#include <boost/test/unit_test.hpp>

#include <troupe/cluster/node/cluster_view.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(cluster_view_test, TROUPE_ONE_THREAD)

namespace {

struct View {
  void connect(Peer peer, const std::string& name) {
    view.change([&](Roster& r) { r.connected({}, peer, {name, 7, "tcp://" + name + ":1", {}}); });
  }
  void lose(Peer peer) {
    view.change([&](Roster& r) { r.lost({}, peer); });
  }

  Waiter waiter{false, {}};
  ClusterView view{{.name = "here", .incarnation = 1, .address = {}}, {}, [] { return 0; }, waiter};
};

}  // namespace

BOOST_AUTO_TEST_CASE(accepts_returns_the_incarnation_of_a_session) {
  View v;
  BOOST_TEST(!v.view.accepts(1).has_value());
  v.connect(1, "a");
  BOOST_TEST(v.view.accepts(1).value() == 7u);
  v.lose(1);
  BOOST_TEST(!v.view.accepts(1).has_value());
}

BOOST_AUTO_TEST_CASE(accepts_direct_forgets_a_peer_that_is_lost) {
  View v;
  BOOST_TEST(!v.view.accepts_direct(1));
  v.connect(1, "a");
  BOOST_TEST(v.view.accepts_direct(1));
  BOOST_TEST(v.view.accepts_direct(1));
  v.lose(1);
  BOOST_TEST(!v.view.accepts_direct(1));
}

BOOST_AUTO_TEST_CASE(closed_view_accepts_nothing) {
  View v;
  v.connect(1, "a");
  BOOST_TEST(v.view.accepts_direct(1));
  v.view.close({});
  BOOST_TEST(!v.view.accepts(1).has_value());
  BOOST_TEST(!v.view.accepts_direct(1));
  BOOST_TEST(v.view.has_session(1));
}

BOOST_AUTO_TEST_CASE(change_reports_a_member_once) {
  View v;
  const ClusterView::Change change = v.view.change([&](Roster& r) {
    r.connected({}, 1, {"a", 7, "tcp://a:1", {}});
  });
  BOOST_TEST(change.effects.has_changed);
  BOOST_TEST(v.view.note_all().empty());
}

BOOST_AUTO_TEST_CASE(peer_of_names_the_nodes_that_are_there) {
  View v;
  const auto text_of = [&] {
    try {
      v.view.peer_of("worker");
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string();
  };
  BOOST_TEST(text_of().find("there is no node 'worker' in this cluster; there are here") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(refusal_is_kept_until_it_is_forgotten) {
  View v;
  BOOST_TEST(!v.view.refusal("tcp://a:1").has_value());
  v.view.refused("tcp://a:1", Status(Code::unavailable, "no answer"));
  BOOST_TEST(v.view.refusal("tcp://a:1")->message() == "no answer");
  v.view.forget_refusal("tcp://a:1");
  BOOST_TEST(!v.view.refusal("tcp://a:1").has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
