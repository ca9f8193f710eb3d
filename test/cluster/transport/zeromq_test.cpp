// Features of ZeroMQ: connections that are cut under way, peers that stay away, a slow receiver,
// strangers, and addresses that must not be reachable without keys.
#include <troupe/test/support/cluster/relay.hpp>
#include <troupe/test/support/cluster/transport_world.hpp>

#include <algorithm>
#include <future>
#include <iterator>

#include <zmq.hpp>

BOOST_AUTO_TEST_SUITE(zeromq_test)

namespace {

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;
namespace utf = boost::unit_test;

std::unique_ptr<Transport> make(const std::string& name, ZeroMqOptions options = {}) {
  return make_zeromq_transport(
      {.name = name, .incarnation = 1, .address = "tcp://127.0.0.1:0", .engine = ""},
      std::move(options));
}

/// b is connected to a by way of a relay.
struct Relayed {
  explicit Relayed(const ZeroMqOptions& options = {}) : Relayed(options, options) {}
  Relayed(const ZeroMqOptions& of_a, const ZeroMqOptions& of_b)
      : a(make("a", of_a)), b(make("b", of_b)) {
    a->start(heard_a);
    b->start(heard_b);
    relay = std::make_unique<Relay>(a->address());
    b->connect(relay->address());
    BOOST_REQUIRE(
        wait_until(bell, [&] { return !heard_a.peers.empty() && !heard_b.peers.empty(); }));
    to_b = heard_a.peers[0].first;
    to_a = heard_b.peers[0].first;
  }
  ~Relayed() {
    b->stop();
    a->stop();
  }
  Bell bell;
  RecordingListener heard_a{bell}, heard_b{bell};
  std::unique_ptr<Transport> a, b;
  std::unique_ptr<Relay> relay;
  Peer to_b = 0, to_a = 0;
};

BOOST_AUTO_TEST_CASE(cut_connections_lose_and_repeat_nothing, *utf::label("stock_zmq")) {
  constexpr std::uint64_t kMessages = 400;
  Relayed pair;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    pair.a->send(pair.to_b, Lane::data, numbered(i, i % 10 ? 1000 : 900'000));
    pair.b->send(pair.to_a, Lane::data, numbered(i, i % 10 ? 1000 : 900'000));
    if (i % 80 == 79) {
      // In the midst of it: when some of the last eighty have arrived.
      BOOST_REQUIRE(wait_until(pair.bell, [&] {
        return pair.heard_b.got.size() + 60 > i && pair.heard_a.got.size() + 60 > i;
      }));
      pair.relay->cut();
    }
  }
  BOOST_REQUIRE(wait_until(pair.bell, [&] {
    return pair.heard_a.got.size() >= kMessages && pair.heard_b.got.size() >= kMessages;
  }));
  for (const RecordingListener* heard : {&pair.heard_a, &pair.heard_b}) {
    BOOST_REQUIRE(heard->got.size() == kMessages);
    for (std::uint64_t i = 0; i < kMessages; ++i)
      BOOST_REQUIRE(is_numbered(heard->got[i].message, i));
    BOOST_TEST(heard->losses.empty());
    BOOST_TEST(heard->peers.size() == 1);
  }
  BOOST_TEST(pair.relay->cuts() > 0);
  BOOST_TEST(pair.b->counters().reconnects > 0);
}

// So does what goes directly, whose memory goes with the connection: what had been sent by then has
// been taken, the rest goes as messages.
BOOST_AUTO_TEST_CASE(cut_connections_lose_nothing_that_goes_directly, *utf::label("stock_zmq")) {
  constexpr std::uint64_t kCuts = 6, kAhead = 500;
  Relayed pair;
  std::atomic<bool> is_over{false};
  // Sends until all cuts are done, and never far ahead of the receiver, so that each cut finds
  // messages in flight, and rings that have opened anew. Returns their number.
  const auto talk = [&](Transport& from, Peer to, const RecordingListener& heard) {
    std::uint64_t i = 0;
    for (; !is_over; ++i) {
      if (i % kAhead == 0) wait_until(pair.bell, [&] { return heard.got.size() + kAhead >= i; });
      Message m;
      m.head.resize(sizeof i);
      std::memcpy(m.head.data(), &i, sizeof i);
      if (i % 50 != 0 && from.send_direct(to, m.head)) continue;
      if (i % 1000 == 0) m.tensors.push_back(Tensor::zeros(DType::u8, {300'000}));
      from.send(to, Lane::data, std::move(m));
    }
    return i;
  };
  auto by_a =
      std::async(std::launch::async, [&] { return talk(*pair.a, pair.to_b, pair.heard_b); });
  auto by_b =
      std::async(std::launch::async, [&] { return talk(*pair.b, pair.to_a, pair.heard_a); });
  bool are_noticed = true;
  for (std::uint64_t cut = 1; cut <= kCuts && are_noticed; ++cut) {
    std::size_t from_a = 0, from_b = 0;
    wait_until(pair.bell, [&] {
      return from_a = pair.heard_b.got.size(), from_b = pair.heard_a.got.size(), true;
    });
    // More than may be on its way: they are connected again.
    are_noticed = wait_until(pair.bell, [&] {
      return pair.heard_b.got.size() > from_a + 3 * kAhead &&
             pair.heard_a.got.size() > from_b + 3 * kAhead;
    });
    pair.relay->cut();
    are_noticed = are_noticed && wait_until(pair.bell, [&] { return pair.heard_b.breaks >= cut; });
  }
  is_over = true;
  BOOST_TEST(are_noticed);
  const std::uint64_t sent_by_a = by_a.get(), sent_by_b = by_b.get();
  BOOST_TEST(wait_until(pair.bell, [&] {
    return pair.heard_a.got.size() >= sent_by_b && pair.heard_b.got.size() >= sent_by_a;
  }));
  for (const auto& [heard, sent] :
       {std::pair{&pair.heard_a, sent_by_b}, std::pair{&pair.heard_b, sent_by_a}}) {
    BOOST_REQUIRE(heard->got.size() == sent);
    for (std::uint64_t i = 0; i < sent; ++i) {
      std::uint64_t number = UINT64_MAX;
      if (heard->got[i].message.head.size() == sizeof number)
        std::memcpy(&number, heard->got[i].message.head.data(), sizeof number);
      BOOST_REQUIRE(number == i);
    }
    BOOST_TEST(heard->losses.empty());
    BOOST_TEST(heard->direct > 0);
  }
  BOOST_TEST(pair.relay->cuts() >= kCuts);
}

BOOST_AUTO_TEST_CASE(a_peer_that_stays_away_is_lost, *utf::label("stock_zmq")) {
  ZeroMqOptions options;
  options.router.heartbeat = 100ms;
  options.router.silence = 1s;
  options.router.away = 2s;
  options.router.drain = 200ms;
  Relayed pair(options);
  pair.a->send(pair.to_b, Lane::data, numbered(0, 10));
  BOOST_REQUIRE(wait_until(pair.bell, [&] { return pair.heard_b.got.size() == 1; }));
  pair.relay->cut(true);
  BOOST_REQUIRE(wait_until(pair.bell, [&] {
    return pair.heard_a.losses.size() == 1 && pair.heard_b.losses.size() == 1;
  }));
  BOOST_TEST((pair.heard_a.losses[0].second.code() == Code::unavailable));
  BOOST_TEST(pair.heard_a.losses[0].second.message().find("b did not come back") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_slow_receiver_holds_up_no_more_than_the_window, *utf::label("stock_zmq")) {
  constexpr std::uint64_t kMessages = 64;
  ZeroMqOptions options;
  options.router.window = 4 << 20;
  Relayed pair(options);
  std::promise<void> go;
  pair.heard_b.on_message = [future = go.get_future().share()](Peer, Lane, const Message&) {
    future.wait();
  };
  for (std::uint64_t i = 0; i < kMessages; ++i)
    pair.a->send(pair.to_b, Lane::data, numbered(i, 1 << 20));
  // The receiver stands still: the session quota fills up, and stays full.
  TransportCounters c;
  do {
    c = pair.a->counters();
    BOOST_REQUIRE(c.unacknowledged_bytes <= options.router.window);
  } while (c.messages_out < kMessages ||
           c.unacknowledged_bytes + (1 << 20) + 100'000 < options.router.window);
  BOOST_TEST(c.unsent_bytes >= (kMessages - 5) << 20);  // the session quota binds
  go.set_value();
  BOOST_REQUIRE(wait_until(pair.bell, [&] { return pair.heard_b.got.size() == kMessages; }));
  for (std::uint64_t i = 0; i < kMessages; ++i)
    BOOST_REQUIRE(is_numbered(pair.heard_b.got[i].message, i));
}

BOOST_AUTO_TEST_CASE(strangers_are_dropped_counted_and_logged, *utf::label("stock_zmq")) {
  std::mutex mutex;
  std::vector<std::string> lines;
  ZeroMqOptions logs;
  logs.log = [&](const std::string& line) {
    std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  Relayed pair(logs, {});
  const std::string address = pair.a->address();
  {
    zmq::context_t context(1);
    zmq::socket_t stranger(context, zmq::socket_type::dealer);
    stranger.set(zmq::sockopt::linger, 10'000);
    stranger.connect(address);
    for (const std::string text :
         {"", "GET / HTTP/1.1\r\n\r\n", "\x96\x05\x01", "\x93\x06\x01\x01"})
      stranger.send(zmq::buffer(text));
    for (int i = 0; i < 5; ++i)
      stranger.send(zmq::buffer(std::string("part")),
                    i < 4 ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
  {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port =
        htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr generic;
    std::memcpy(&generic, &to, sizeof generic);
    OwnedDescriptor raw(socket(AF_INET, SOCK_STREAM, 0));
    BOOST_REQUIRE(connect(raw.get(), &generic, sizeof to) == 0);
    const std::string noise(10'000, '\x7f');
    BOOST_TEST(write(raw.get(), noise.data(), noise.size()) > 0);
  }
  // Both directions still work, and no impostor was admitted.
  const auto end = std::chrono::steady_clock::now() + 100s;
  while (pair.a->counters().dropped < 4 && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  BOOST_TEST(pair.a->counters().dropped >= 4);
  // Without connections that ended in the handshake, which are reported separately.
  const auto told = [&] {
    std::lock_guard lock(mutex);
    std::vector<std::string> drops;
    std::copy_if(lines.begin(), lines.end(), std::back_inserter(drops),
                 [](const std::string& line) { return line.starts_with("dropped "); });
    return drops;
  };
  while (told().empty() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  const std::vector<std::string> said = told();
  BOOST_REQUIRE(said.size() == 1u);  // one a minute, whatever is sent
  BOOST_TEST(said[0].find("; the last was ") != std::string::npos, said[0]);
  pair.b->send(pair.to_a, Lane::data, numbered(0, 100));
  BOOST_REQUIRE(wait_until(pair.bell, [&] { return pair.heard_a.got.size() == 1; }));
  BOOST_TEST(pair.heard_a.peers.size() == 1);
}

BOOST_AUTO_TEST_CASE(only_loopback_is_reached_without_keys, *utf::label("stock_zmq")) {
  Bell bell;
  RecordingListener heard(bell);
  const auto listening = [&](const std::string& address) {
    return make_zeromq_transport({.name = "a", .incarnation = 1, .address = address, .engine = ""});
  };
  for (const char* address : {"tcp://0.0.0.0:0", "tcp://*:0", "tcp://10.1.2.3:7117"})
    BOOST_CHECK_EXCEPTION(listening(address)->start(heard), Error,
                          [](const Error& e) { return e.code() == Code::failed_precondition; });
  for (const char* address : {"127.0.0.1:1", "tcp://", "tcp://127.0.0.1", "ipc:///tmp/x"})
    BOOST_CHECK_EXCEPTION(listening(address)->start(heard), Error,
                          [](const Error& e) { return e.code() == Code::invalid_argument; });
  auto a = make("a");
  a->start(heard);
  a->connect("tcp://10.1.2.3:7117");
  BOOST_REQUIRE(wait_until(bell, [&] { return heard.refusals.size() == 1; }));
  BOOST_TEST((heard.refusals[0].second.code() == Code::failed_precondition));
  a->stop();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
