// The router's time-outs and handshakes, by a clock and a link that the test moves.
#include <boost/test/unit_test.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <troupe/cluster/transport/router.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(router_test, TROUPE_ONE_THREAD)

namespace {

using namespace std::chrono_literals;

/// A router whose connections go nowhere: its wire frames are recorded, and the test makes the
/// peers' frames.
class Alone final : private FrameLink, private TransportListener {
 public:
  static constexpr Connection kFirstDial = 1000;

  Time clock = 1s;
  std::vector<std::string> connected_names, lost_names, refused_addresses, refusals;
  std::vector<bool> redundant;             // for each refusal that was sent
  std::map<Connection, std::string> keys;  // proved by the other end of a connection
  std::vector<std::pair<Connection, wire::Frame>> sent;
  std::vector<wire::Hello> asked;  // Hellos of dials, in order
  std::size_t messages = 0;        // received
  Router router{
      {.name = "a", .incarnation = 1, .address = "test://a", .engine = ""}, {}, *this, *this};

  void hear(Connection connection, const wire::Frame& frame) {
    router.frame(connection, wire::encode(frame), {});
  }
  void open_session(Connection connection, const std::string& name, std::uint64_t life) {
    hear(connection, hello(name, life, 100 + connection));
    hear(connection, wire::Ready{});
  }
  /// The answer of a node to the last dial.
  void answer(Connection connection, const std::string& name) {
    wire::Hello h = hello(name, 1, asked.back().session);
    h.is_answer = true;
    hear(connection, h);
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
  Connection last_dial() const { return kFirstDial + asked.size() - 1; }
  Peer peer_named(const std::string& name) const {
    for (const auto& [peer, peer_name] : names_)
      if (peer_name == name) return peer;
    return 0;
  }
  void move_clock(Time by) {
    clock += by;
    router.tick();
  }
  /// Returns the Data frames that went by a connection.
  std::size_t data_frames(Connection connection) const {
    std::size_t n = 0;
    for (const auto& [to, frame] : sent)
      n += to == connection && std::holds_alternative<wire::Data>(frame);
    return n;
  }
  /// Moves the clock until the router is done with all sessions; how far.
  Time until_idle() {
    const Time began = clock;
    while (!router.is_idle() && clock < began + 100s) move_clock(10ms);
    return clock - began;
  }

 private:
  Connection dial(const std::string&) override { return kFirstDial + asked.size(); }
  bool send(Connection connection, const Ref<OutFrame>& frame) override {
    wire::Decoded d;
    BOOST_REQUIRE(wire::decode(frame->header, {}, d).ok());
    if (const auto* refuse = std::get_if<wire::Refuse>(&d.frame)) {
      refusals.push_back(refuse->why.message());
      redundant.push_back(refuse->redundant);
    }
    if (const auto* h = std::get_if<wire::Hello>(&d.frame); h && !h->is_answer) asked.push_back(*h);
    sent.emplace_back(connection, std::move(d.frame));
    return true;
  }
  bool send_bulk(Connection connection, const Ref<OutFrame>& frame) override {
    return send(connection, frame);
  }
  void close(Connection) override {}
  Time now() const override { return clock; }
  std::string key_of(Connection connection) const override {
    const auto found = keys.find(connection);
    return found == keys.end() ? std::string() : found->second;
  }
  void connected(Peer peer, const PeerInfo& info) override {
    names_[peer] = info.name;
    connected_names.push_back(info.name);
  }
  void refused(const std::string& address, const Status&) override {
    refused_addresses.push_back(address);
  }
  void received(Peer, Lane, Message) override { ++messages; }
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

// On a slow way the last MiB takes longer than `farewell`, and its acknowledgements come by the
// bulk channel alone.
BOOST_AUTO_TEST_CASE(leaving_node_waits_for_acknowledgements_of_its_bulk_channel) {
  constexpr std::uint64_t kFrames = 20;
  Alone alone;
  alone.open_session(1, "b", 1);
  alone.router.bulk_opened(1, 0);
  const Tensor large = Tensor::zeros(DType::u8, Shape{20 << 10});
  for (std::uint64_t i = 0; i < kFrames; ++i)
    alone.router.send(alone.peer_named("b"), Lane::data, {{}, {large}});
  alone.router.flush();
  BOOST_REQUIRE(alone.data_frames(1) == kFrames);
  alone.router.leave();
  for (std::uint64_t i = 1; i <= kFrames; ++i) {
    alone.move_clock(100ms);
    BOOST_REQUIRE(!alone.router.is_idle());
    const auto ack = wire::encode(wire::Ack{{0, i}});
    BOOST_TEST((alone.router.bulk_frame(1, ack, 0) == Router::BulkTurn::taken));
    BOOST_TEST(alone.router.counters().unacknowledged_bytes == (kFrames - i) * large.bytes());
  }
  alone.hear(1, wire::Gone{});
  BOOST_TEST(alone.router.is_idle());
}

// H5: well below a second, unless much data is unacknowledged.
BOOST_AUTO_TEST_CASE(node_leaves_a_silent_peer_after_a_farewell) {
  const RouterOptions options;
  BOOST_TEST((2 * options.farewell < 1s));
  for (const std::int64_t bytes : {0, 1 << 10}) {
    Alone alone;
    alone.open_session(1, "b", 1);
    alone.router.bulk_opened(1, 0);
    if (bytes > 0)
      alone.router.send(alone.peer_named("b"), Lane::data,
                        {{}, {Tensor::zeros(DType::u8, Shape{bytes})}});
    alone.router.flush();
    alone.router.leave();
    const Time wait = (bytes == 0 ? 1 : 2) * options.farewell;
    alone.move_clock(wait - 1ms);
    alone.router.tick();
    BOOST_TEST(!alone.router.is_idle(), bytes);
    alone.move_clock(1ms);
    alone.router.tick();
    BOOST_TEST(alone.router.is_idle(), bytes);
  }
}

BOOST_AUTO_TEST_CASE(node_leaves_a_silent_peer_after_a_heartbeat) {
  Alone alone;
  alone.open_session(1, "b", 1);
  alone.router.bulk_opened(1, 0);
  for (int i = 0; i < 30; ++i)
    alone.router.send(alone.peer_named("b"), Lane::data,
                      {{}, {Tensor::zeros(DType::u8, Shape{20 << 10})}});
  alone.router.flush();
  BOOST_REQUIRE(alone.router.counters().unacknowledged_bytes > 1u << 18);
  alone.router.leave();
  alone.move_clock(RouterOptions().heartbeat);
  BOOST_TEST(!alone.router.is_idle());
  alone.move_clock(RouterOptions().farewell);
  alone.router.tick();
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

// Two nodes dial each other, the other's dial is to go on, and its node dies before it confirms.
BOOST_AUTO_TEST_CASE(a_dial_that_was_dropped_for_another_ends_when_that_dies) {
  // Dropped by this node when its answer comes, or by the other node's refusal.
  for (const bool is_refused : {false, true})
    for (const bool is_confirmed : {false, true}) {
      BOOST_TEST_CONTEXT("refused " << is_refused << ", confirmed " << is_confirmed) {
        Alone alone;
        alone.router.connect("test://0");
        alone.hear(1, Alone::hello("0", 1, 7));  // its name comes first
        if (is_refused)
          alone.hear(Alone::kFirstDial,
                     wire::Refuse{"0", Status(Code::already_exists, "connected already"), true});
        else alone.answer(Alone::kFirstDial, "0");
        BOOST_TEST((alone.redundant == std::vector<bool>(is_refused ? 0 : 1, true)));
        if (is_confirmed) alone.hear(1, wire::Ready{});
        else alone.router.broken(1, Status(Code::unavailable, "it was killed"));
        for (int i = 0; i < 60; ++i) {
          alone.move_clock(100ms);
          if (is_confirmed) alone.hear(1, wire::Ack{});
        }
        BOOST_TEST(alone.connected_names.size() == (is_confirmed ? 1u : 0u));
        BOOST_TEST(alone.refused_addresses.size() == (is_confirmed ? 0u : 1u));
        BOOST_TEST(alone.asked.size() == 1u);
      }
    }
}

// A refusal is redundant only if another connection of the two goes on.
BOOST_AUTO_TEST_CASE(a_refusal_for_another_reason_is_not_redundant) {
  Alone alone;
  alone.router.connect("test://b");
  wire::Hello h = Alone::hello("b", 1, alone.asked.back().session);
  h.is_answer = true;
  h.info.engine = "9.9.9";
  alone.hear(Alone::kFirstDial, h);
  BOOST_TEST((alone.redundant == std::vector<bool>{false}));
  BOOST_TEST(alone.refused_addresses == std::vector<std::string>{"test://b"});
}

// An authorized node with another key may be at the peer's address when it is dialled again. It
// gets none of the session's messages, and can neither speak for the peer nor end the session.
BOOST_AUTO_TEST_CASE(a_redialled_node_with_another_key_has_no_part_in_the_session) {
  const Status why(Code::unavailable, "it says so");
  const wire::Frame frames[] = {
      wire::Data{.lane = Lane::data, .sequence = 0, .received = {}, .messages = {{}}},
      wire::Ready{},
      wire::Ack{{0, 1}},
      wire::Bye{why, {}},
      wire::Gone{},
      wire::Refuse{"b", why, false},
      wire::Hello(Alone::hello("b", 1, 0))};  // its answer
  for (const wire::Frame& frame : frames) BOOST_TEST_CONTEXT("frame " << frame.index()) {
      Alone alone;
      alone.keys[Alone::kFirstDial] = "key of b";
      alone.router.connect("test://b");
      alone.answer(Alone::kFirstDial, "b");
      BOOST_REQUIRE(alone.connected_names.size() == 1u);
      alone.router.send(alone.peer_named("b"), Lane::data, {std::vector<std::byte>(8), {}});
      alone.router.flush();
      BOOST_TEST(alone.data_frames(Alone::kFirstDial) == 1u);
      alone.router.broken(Alone::kFirstDial, Status(Code::unavailable, "it was cut"));
      alone.move_clock(100ms);
      BOOST_REQUIRE(alone.asked.size() == 2u);

      const Connection other = alone.last_dial();
      alone.keys[other] = "key of another";
      if (std::holds_alternative<wire::Hello>(frame)) alone.answer(other, "b");
      else alone.hear(other, frame);
      alone.router.flush();
      BOOST_TEST(alone.router.counters().dropped == 1u);
      BOOST_TEST(alone.messages == 0u);
      BOOST_TEST(alone.data_frames(other) == 0u);
      BOOST_TEST(alone.lost_names.empty());
      BOOST_TEST(alone.router.counters().unacknowledged_bytes == 8u);

      // The peer is back at the next dial, and gets what it has not got.
      alone.router.broken(other, Status(Code::unavailable, "it was cut"));
      alone.move_clock(2s);
      BOOST_REQUIRE(alone.asked.size() == 3u);
      alone.keys[alone.last_dial()] = "key of b";
      alone.answer(alone.last_dial(), "b");
      BOOST_TEST(alone.data_frames(alone.last_dial()) == 1u);
      BOOST_TEST(alone.lost_names.empty());
    }
}

BOOST_AUTO_TEST_CASE(a_refusal_by_the_key_of_the_session_ends_it) {
  Alone alone;
  alone.keys[Alone::kFirstDial] = alone.keys[Alone::kFirstDial + 1] = "key of b";
  alone.router.connect("test://b");
  alone.answer(Alone::kFirstDial, "b");
  alone.router.broken(Alone::kFirstDial, Status(Code::unavailable, "it was cut"));
  alone.move_clock(100ms);
  alone.hear(alone.last_dial(), wire::Refuse{"b", Status(Code::unavailable, "it is new"), false});
  BOOST_TEST(alone.lost_names == std::vector<std::string>{"b"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
