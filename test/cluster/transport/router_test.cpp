// The router's time-outs, by a clock that the test moves.
#include <boost/test/unit_test.hpp>

#include <map>
#include <string>
#include <vector>

#include <troupe/cluster/transport/router.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(router_test, TROUPE_ONE_THREAD)

namespace {

using namespace std::chrono_literals;

/// A router whose connections go nowhere: what it says is dropped, what it hears the test says.
class Alone final : private FrameLink, private TransportListener {
 public:
  Time clock = 1s;
  std::vector<std::string> lost_names, refusals;
  Router router{
      {.name = "a", .incarnation = 1, .address = "test://a", .engine = ""}, {}, *this, *this};

  void hear(Connection connection, const wire::Frame& frame) {
    router.frame(connection, wire::encode(frame), {});
  }
  void open_session(Connection connection, const std::string& name, std::uint64_t life) {
    hear(connection, hello(name, life, 100 + connection));
    hear(connection, wire::Ready{});
  }
  static wire::Hello hello(const std::string& name, std::uint64_t life, std::uint64_t session) {
    return {.is_answer = false,
            .version = wire::kVersion,
            .info = {name, life, "test://" + name, std::string(engine_version())},
            .session = session,
            .resumes = false,
            .window = 1 << 20,
            .received = {}};
  }
  /// Moves the clock until the router is done with all sessions; how far.
  Time until_idle() {
    const Time began = clock;
    while (!router.is_idle() && clock < began + 100s) {
      clock += 10ms;
      router.tick();
    }
    return clock - began;
  }

 private:
  Connection dial(const std::string&) override { return 1000; }
  bool send(Connection connection, const Ref<OutFrame>& frame) override {
    wire::Decoded d;
    BOOST_REQUIRE(wire::decode(frame->header, {}, d).ok());
    if (const auto* refuse = std::get_if<wire::Refuse>(&d.frame))
      refusals.push_back(refuse->why.message());
    static_cast<void>(connection);
    return true;
  }
  void close(Connection) override {}
  Time now() const override { return clock; }
  void connected(Peer peer, const PeerInfo& info) override { names_[peer] = info.name; }
  void refused(const std::string&, const Status&) override {}
  void received(Peer, Lane, Message) override {}
  void lost(Peer peer, const Status&) override { lost_names.push_back(names_[peer]); }

  std::map<Peer, std::string> names_;
};

}  // namespace

// One was stopped, one was killed, which breaks its connection.
BOOST_AUTO_TEST_CASE(a_node_that_leaves_waits_for_no_silent_peer) {
  for (const bool is_killed : {false, true}) {
    Alone alone;
    alone.open_session(1, "b", 1);
    if (is_killed) alone.router.broken(1, Status(Code::unavailable, "it was killed"));
    alone.clock += 20ms;
    alone.router.leave();
    BOOST_TEST((alone.until_idle() <= 500ms), is_killed);
  }
}

// A peer that takes what is left of it is waited for.
BOOST_AUTO_TEST_CASE(a_node_that_leaves_waits_for_a_peer_that_answers) {
  Alone alone;
  alone.open_session(1, "b", 1);
  alone.router.leave();
  for (int i = 0; i < 20; ++i) {
    alone.clock += 100ms;
    alone.hear(1, wire::Ack{});
    alone.router.tick();
    BOOST_TEST(!alone.router.is_idle());
  }
  alone.hear(1, wire::Gone{});
  BOOST_TEST(alone.router.is_idle());
}

BOOST_AUTO_TEST_CASE(a_name_is_free_when_its_node_is_silent) {
  Alone alone;
  alone.open_session(1, "b", 1);
  alone.hear(2, Alone::hello("b", 2, 7));  // the connection of the first is there
  BOOST_REQUIRE(alone.refusals.size() == 1u);
  BOOST_TEST(
      alone.refusals[0] ==
      "another node 'b' at test://b is connected with a and answers; give each a name of its "
      "own, or end that one first");
  BOOST_TEST(alone.lost_names.empty());
  alone.clock += 5s;
  alone.hear(3, Alone::hello("b", 2, 8));
  BOOST_TEST(alone.refusals.size() == 1u);
  BOOST_TEST(alone.lost_names == std::vector<std::string>{"b"});
  // A process that has died has broken its connection.
  alone.hear(3, wire::Ready{});
  alone.router.broken(3, Status(Code::unavailable, "it was killed"));
  alone.hear(4, Alone::hello("b", 3, 9));
  BOOST_TEST(alone.refusals.size() == 1u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
