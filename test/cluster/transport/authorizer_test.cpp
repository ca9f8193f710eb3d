// Admission over ZeroMQ, by keys: right ones, wrong ones, none, and names that belong to others.
#include <troupe/test/support/cluster/relay.hpp>
#include <troupe/test/support/cluster/transport_world.hpp>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <zmq.hpp>

#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/router.hpp>
#include <troupe/test/support/ipv6.hpp>
#include <troupe/troupe.hpp>

BOOST_AUTO_TEST_SUITE(authorizer_test)

namespace {

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;
namespace utf = boost::unit_test;

using Authorized = std::map<std::string, std::string>;

Message text(const std::string& s) {
  Message m;
  m.head.resize(s.size());
  std::memcpy(m.head.data(), s.data(), s.size());
  Tensor t = Tensor::empty(DType::u8, {300'000});
  for (std::int64_t i = 0; i < t.elements(); ++i)
    static_cast<std::uint8_t*>(t.raw_mutable())[i] =
        static_cast<std::uint8_t>(s[static_cast<std::size_t>(i) % s.size()]);
  m.tensors.push_back(std::move(t));
  return m;
}

bool says(const Message& m, const std::string& s) {
  return m.head.size() == s.size() && std::memcmp(m.head.data(), s.data(), s.size()) == 0 &&
         m.tensors.size() == 1 && std::memcmp(m.tensors[0].raw(), s.data(), s.size()) == 0;
}

bool contains(const std::string& all, const std::string& part) {
  return all.find(part) != std::string::npos;
}

OwnedDescriptor connected_to(int port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr generic;
  std::memcpy(&generic, &to, sizeof generic);
  OwnedDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  BOOST_REQUIRE(connect(fd.get(), &generic, sizeof to) == 0);
  return fd;
}

// For what rings no bell.
template <class Done>
bool wait_until_polled(Done done) {
  const auto end = std::chrono::steady_clock::now() + 100s;
  while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return done();
}

// A transport, what it heard and what it logged.
struct Party {
  Party(Bell& b, const std::string& name, std::optional<Keys> keys,
        const std::string& address = "tcp://127.0.0.1:0", bool has_bulk = true)
      : bell(b), heard(b) {
    ZeroMqOptions options;
    options.bulk = has_bulk;
    options.shared_memory = false;
    options.keys = std::move(keys);
    options.log = [this](const std::string& line) {
      std::lock_guard lock(bell.mutex);
      log.push_back(line);
      bell.rings.notify_all();
    };
    transport = make_zeromq_transport(
        {.name = name, .incarnation = 1, .address = address, .engine = ""}, options);
    transport->start(heard);
  }
  ~Party() { transport->stop(); }

  std::string address() const { return transport->address(); }
  void connect(const Party& other) { transport->connect(other.address()); }
  bool meets(const Party& other) {
    connect(other);
    return wait_until(bell,
                      [&] {
                        return !heard.refusals.empty() ||
                               (!heard.peers.empty() && !other.heard.peers.empty());
                      }) &&
           heard.refusals.empty();
  }
  /// Returns the refusal that a dial gets from the other node, or from the way to it.
  std::string refused_by(const std::string& there) {
    const std::size_t before = heard.refusals.size();
    transport->connect(there);
    BOOST_REQUIRE(wait_until(bell, [&] { return heard.refusals.size() > before; }));
    BOOST_TEST(heard.refusals.back().first == there);
    return heard.refusals.back().second.message();
  }

  Bell& bell;
  troupe::test::RecordingListener heard;
  std::vector<std::string> log;
  std::unique_ptr<Transport> transport;
};

struct Keyed {
  Bell bell;
  KeyPair a = generate_keys(), b = generate_keys(), c = generate_keys();
  Keys keys(const KeyPair& own, Authorized authorized) const {
    return {own, std::move(authorized)};
  }
};

wire::Hello hello(const std::string& name, std::uint64_t session, bool resumes) {
  return {.is_answer = false,
          .version = wire::kVersion,
          .info = {name, 1, "", std::string(engine_version())},
          .session = session,
          .resumes = resumes,
          .window = 1 << 20,
          .received = {}};
}

// A router whose connections have proved what `keys` says; it hears wire frames, and what it says
// is kept.
class Doors final : private FrameLink, private TransportListener {
 public:
  std::map<Connection, std::string> keys;
  std::map<Connection, wire::Frame> said;  // the last on each
  std::vector<std::string> log;
  Router router{
      {.name = "a", .incarnation = 1, .address = "test://a", .engine = ""}, {}, *this, *this};

  void hear(Connection connection, const wire::Frame& frame) {
    router.frame(connection, wire::encode(frame), {});
  }
  std::string refusal(Connection connection) const {
    const auto found = said.find(connection);
    const auto* refuse = found == said.end() ? nullptr : std::get_if<wire::Refuse>(&found->second);
    return refuse ? refuse->why.message() : "";
  }

 private:
  Connection dial(const std::string&) override { return 1000; }
  bool send(Connection connection, const Ref<OutFrame>& frame) override {
    wire::Decoded d;
    BOOST_REQUIRE(wire::decode(frame->header, {}, d).ok());
    said.insert_or_assign(connection, std::move(d.frame));
    return true;
  }
  void close(Connection) override {}
  Time now() const override { return 1s; }
  std::string key_of(Connection connection) const override { return keys.at(connection); }
  void connected(Peer, const PeerInfo& info) override { log.push_back("connected " + info.name); }
  void refused(const std::string& address, const Status& why) override {
    log.push_back("refused by " + address + ": " + why.message());
  }
  void received(Peer, Lane, Message) override {}
  void lost(Peer, const Status& why) override { log.push_back("lost: " + why.message()); }
};

struct TemporaryFolder {
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe-gate-XXXXXX").string();
    BOOST_REQUIRE(mkdtemp(name.data()));
    path = std::filesystem::path(name) / "keys";
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path.parent_path()); }
  std::filesystem::path path;
};

BOOST_AUTO_TEST_CASE(two_that_know_each_other_talk_in_secret, *utf::label("stock_zmq")) {
  const std::string words = "nobody between us reads this sentence";
  for (const bool has_keys : {false, true}) {
    Keyed k;
    const auto of = [&](const KeyPair& own, const Authorized& list) {
      return has_keys ? std::optional(k.keys(own, list)) : std::nullopt;
    };
    // Without the second connection for large payload, which would pass the relay by.
    Party a(k.bell, "a", of(k.a, {{k.b.public_key, "b"}}), "tcp://127.0.0.1:0", false),
        b(k.bell, "b", of(k.b, {{k.a.public_key, "a"}}), "tcp://127.0.0.1:0", false);
    Relay relay(a.address());
    relay.tap();
    b.transport->connect(relay.address());
    BOOST_REQUIRE(
        wait_until(k.bell, [&] { return !a.heard.peers.empty() && !b.heard.peers.empty(); }));
    a.transport->send(a.heard.peer_named("b"), Lane::data, text(words));
    b.transport->send(b.heard.peer_named("a"), Lane::control, text(words));
    BOOST_REQUIRE(wait_until(k.bell, [&] { return !a.heard.got.empty() && !b.heard.got.empty(); }));
    BOOST_TEST(says(a.heard.got[0].message, words));
    BOOST_TEST(says(b.heard.got[0].message, words));
    BOOST_TEST(relay.seen().size() > 600'000u);
    BOOST_TEST(contains(relay.seen(), words) == !has_keys);
    BOOST_TEST(a.transport->counters().turned_away == 0u);
    b.transport->stop();  // before the relay goes
  }
}

BOOST_AUTO_TEST_CASE(large_payload_of_two_with_keys_goes_beside_the_connection,
                     *utf::label("stock_zmq")) {
  Keyed k;
  Party a(k.bell, "a", k.keys(k.a, {{k.b.public_key, "b"}})),
      b(k.bell, "b", k.keys(k.b, {{k.a.public_key, "a"}}));
  BOOST_REQUIRE(b.meets(a));
  // The channel opens behind the handshake: what is sent before goes by the connection.
  for (std::size_t sent = 1;
       a.transport->counters().bulk_bytes_in == 0 || b.transport->counters().bulk_bytes_in == 0;
       ++sent) {
    BOOST_REQUIRE(sent < 100u);
    a.transport->send(a.heard.peer_named("b"), Lane::data, text("from a"));
    b.transport->send(b.heard.peer_named("a"), Lane::data, text("from b"));
    BOOST_REQUIRE(wait_until(
        k.bell, [&] { return a.heard.got.size() == sent && b.heard.got.size() == sent; }));
    BOOST_TEST(says(a.heard.got.back().message, "from b"));
    BOOST_TEST(says(b.heard.got.back().message, "from a"));
  }
}

// H11
BOOST_AUTO_TEST_CASE(a_broken_connection_of_two_with_keys_goes_on, *utf::label("stock_zmq")) {
  Keyed k;
  Party a(k.bell, "a", k.keys(k.a, {{k.b.public_key, "b"}})),
      b(k.bell, "b", k.keys(k.b, {{k.a.public_key, "a"}}));
  Relay relay(a.address());
  b.transport->connect(relay.address());
  BOOST_REQUIRE(
      wait_until(k.bell, [&] { return !a.heard.peers.empty() && !b.heard.peers.empty(); }));
  for (std::size_t i = 0; i < 20; ++i) {
    b.transport->send(b.heard.peer_named("a"), Lane::data, text(std::to_string(i)));
    if (i % 5 != 4) continue;
    relay.cut();
    // The next cut is to find a connection behind its handshake: a's log may count an earlier one.
    b.transport->send(b.heard.peer_named("a"), Lane::control, text("after a cut"));
    BOOST_REQUIRE(wait_until(k.bell, [&] { return a.heard.got.size() == i + 1 + (i + 1) / 5; }));
  }
  std::erase_if(a.heard.got, [](const auto& got) { return says(got.message, "after a cut"); });
  BOOST_REQUIRE(a.heard.got.size() == 20u);
  for (int i = 0; i < 20; ++i)
    BOOST_TEST(says(a.heard.got[static_cast<std::size_t>(i)].message, std::to_string(i)));
  BOOST_TEST(wait_until_polled([&] { return b.transport->counters().reconnects > 0u; }));
  b.transport->stop();
  for (Party* party : {&a, &b}) {
    BOOST_TEST(party->transport->counters().turned_away == 0u);
    std::lock_guard lock(k.bell.mutex);
    for (const std::string& line : party->log)
      BOOST_TEST(line.find("handshake") == std::string::npos, line);
  }
}

BOOST_AUTO_TEST_CASE(the_dialler_finds_the_key_among_many, *utf::label("stock_zmq")) {
  Keyed k;
  Authorized many{{k.a.public_key, "a"}, {k.b.public_key, "b"}};
  for (int i = 0; i < 12; ++i) many[generate_keys().public_key] = std::to_string(i);
  Party a(k.bell, "a", k.keys(k.a, many)), b(k.bell, "b", k.keys(k.b, many));
  BOOST_TEST(b.meets(a));
  // Each wrong guess is counted; its own key, which bears its name, comes last.
  BOOST_TEST(a.transport->counters().turned_away <= 12u);
}

// As after a cut: a node that was dialled knows the key of the one that dialled it.
BOOST_AUTO_TEST_CASE(a_node_that_was_dialled_dials_back_without_a_guess, *utf::label("stock_zmq")) {
  Keyed k;
  Authorized many{{k.a.public_key, "a"}, {k.b.public_key, "b"}};
  for (int i = 0; i < 12; ++i) many[generate_keys().public_key] = std::to_string(i);
  Party a(k.bell, "a", k.keys(k.a, many)), b(k.bell, "b", k.keys(k.b, many));
  BOOST_REQUIRE(b.meets(a));
  a.transport->disconnect(a.heard.peer_named("b"), Status(Code::unavailable, "a cut"));
  BOOST_REQUIRE(wait_until(k.bell, [&] { return b.heard.losses.size() == 1; }));
  const std::size_t before = a.heard.peers.size();
  a.connect(b);
  BOOST_REQUIRE(wait_until(k.bell, [&] { return a.heard.peers.size() > before; }));
  BOOST_TEST(b.transport->counters().turned_away == 0u);
}

BOOST_AUTO_TEST_CASE(nodes_may_share_a_key, *utf::label("stock_zmq")) {
  Keyed k;
  const Keys shared = k.keys(k.a, {{k.a.public_key, "the cluster"}});
  Party a(k.bell, "a", shared), b(k.bell, "b", shared);
  BOOST_TEST(b.meets(a));
  BOOST_TEST(a.transport->counters().turned_away == 0u);
}

BOOST_AUTO_TEST_CASE(a_key_that_is_not_authorized_is_turned_away, *utf::label("stock_zmq")) {
  Keyed k;
  Party a(k.bell, "a", k.keys(k.a, {{k.b.public_key, "b"}})),
      c(k.bell, "c", k.keys(k.c, {{k.a.public_key, "a"}}));
  for (int i = 0; i < 2; ++i) {
    const std::string why = c.refused_by(a.address());
    BOOST_TEST(
        contains(why, "does not accept the key of this one; there: troupe keygen --authorize '" +
                          k.c.public_key + "' --name c"),
        why);
  }
  BOOST_REQUIRE(wait_until(k.bell, [&] { return !a.log.empty(); }));
  BOOST_TEST(contains(a.log[0], "127.0.0.1"), a.log[0]);
  BOOST_TEST(contains(a.log[0], k.c.public_key), a.log[0]);
  std::size_t lines = 0;
  for (const std::string& line : a.log) lines += contains(line, k.c.public_key);
  BOOST_TEST(lines == 1u);  // though it came twice
  BOOST_TEST(wait_until_polled([&] { return a.transport->counters().turned_away >= 2u; }));
  BOOST_TEST(a.heard.peers.empty());
}

BOOST_AUTO_TEST_CASE(the_dialler_sends_nothing_to_an_unknown_key, *utf::label("stock_zmq")) {
  Keyed k;
  Party a(k.bell, "a", k.keys(k.a, {{k.b.public_key, "b"}})),
      b(k.bell, "b", k.keys(k.b, {{k.b.public_key, "b"}, {k.c.public_key, "c"}}));
  const std::string why = b.refused_by(a.address());
  BOOST_TEST(contains(why, "has none of the 2 keys that are authorized here"), why);
  BOOST_TEST(a.heard.peers.empty());
}

BOOST_AUTO_TEST_CASE(with_and_without_keys_do_not_mix, *utf::label("stock_zmq")) {
  Keyed k;
  Party with(k.bell, "a", k.keys(k.a, {{k.a.public_key, "a"}})), without(k.bell, "b", {});
  const std::string demands = without.refused_by(with.address()),
                    has_none = with.refused_by(without.address());
  BOOST_TEST(contains(demands, "start this one with --keys"), demands);
  BOOST_TEST(contains(has_none, "no key"), has_none);
  BOOST_TEST(with.heard.peers.empty());
  BOOST_TEST(without.heard.peers.empty());
}

BOOST_AUTO_TEST_CASE(an_authorized_node_may_not_take_anothers_name, *utf::label("stock_zmq")) {
  Keyed k;
  const Authorized all{{k.a.public_key, "a"}, {k.b.public_key, "b"}, {k.c.public_key, "c"}};
  Party a(k.bell, "a", k.keys(k.a, all)), liar(k.bell, "b", k.keys(k.c, all));
  const std::string why = liar.refused_by(a.address());
  BOOST_TEST(contains(why, "at a the name b belongs to another key"), why);
  // The dialled node may not do so either.
  const std::string seen = a.refused_by(liar.address());
  BOOST_TEST(contains(seen, "at a the name b belongs to another key"), seen);
  BOOST_TEST(a.heard.peers.empty());
  Party b(k.bell, "b", k.keys(k.b, all));
  BOOST_TEST(b.meets(a));
}

BOOST_AUTO_TEST_CASE(an_authorized_node_may_not_take_the_name_of_a_connected_one,
                     *utf::label("stock_zmq")) {
  Keyed k;
  // a list without names
  const Authorized all{{k.a.public_key, ""}, {k.b.public_key, ""}, {k.c.public_key, ""}};
  Party a(k.bell, "a", k.keys(k.a, all)), b(k.bell, "b", k.keys(k.b, all));
  BOOST_REQUIRE(b.meets(a));
  Party liar(k.bell, "b", k.keys(k.c, all));
  const std::string why = liar.refused_by(a.address());
  BOOST_TEST(contains(why, "another node, with another key, has the name b at a"), why);
  a.transport->send(a.heard.peers[0].first, Lane::data, text("still there"));
  BOOST_REQUIRE(wait_until(k.bell, [&] { return !b.heard.got.empty(); }));
}

BOOST_AUTO_TEST_CASE(the_list_is_read_while_the_node_runs, *utf::label("stock_zmq")) {
  Keyed k;
  TemporaryFolder folder;
  make_keys(folder.path, "a");
  const Keys of_a = read_keys(folder.path);
  Party a(k.bell, "a", of_a), b(k.bell, "b", k.keys(k.b, {{of_a.own.public_key, "a"}}));
  BOOST_TEST(contains(b.refused_by(a.address()), "does not accept the key"));
  authorize(folder.path, k.b.public_key, "b");
  BOOST_REQUIRE(wait_until(k.bell, [&] {
    return std::any_of(a.log.begin(), a.log.end(),
                       [](const auto& l) { return contains(l, "2 keys may connect"); });
  }));
  b.heard.refusals.clear();
  BOOST_REQUIRE(b.meets(a));
  // A list that makes no sense changes nothing; a shorter one ends sessions.
  const auto write = [&](const std::string& list) {  // at once: none that is half written is read
    std::ofstream(folder.path / "next") << list;
    std::filesystem::rename(folder.path / "next", folder.path / "authorized");
  };
  write("what is this\n");
  BOOST_REQUIRE(wait_until(
      k.bell, [&] { return contains(a.log.back(), "authorized:1: 'what' is no public key"); }));
  BOOST_TEST(a.heard.losses.empty());
  write(fmt::format("{} a # alone again\n", of_a.own.public_key));
  BOOST_REQUIRE(
      wait_until(k.bell, [&] { return a.heard.losses.size() == 1 && b.heard.losses.size() == 1; }));
  BOOST_TEST(
      contains(b.heard.losses[0].second.message(), "the key of b is not authorized at a any more"),
      b.heard.losses[0].second.message());
  BOOST_TEST(contains(b.refused_by(a.address()), "does not accept the key"));
}

BOOST_AUTO_TEST_CASE(an_unfinished_handshake_is_closed, *utf::label("stock_zmq")) {
  Keyed k;
  Bell bell;
  troupe::test::RecordingListener heard(bell);
  ZeroMqOptions options;
  options.router.answer = 100ms;
  for (const bool has_keys : {true, false}) {
    options.keys.reset();
    if (has_keys) options.keys = k.keys(k.a, {{k.a.public_key, "a"}});
    auto a = make_zeromq_transport(
        {.name = "a", .incarnation = 1, .address = "tcp://127.0.0.1:0", .engine = ""}, options);
    a->start(heard);
    std::string greeting("\xff\0\0\0\0\0\0\0\1\x7f\3\0", 12);
    greeting += has_keys ? "CURVE" : "NULL";
    greeting.resize(64);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{9}, greeting.size()}) {
      const OwnedDescriptor fd =
          connected_to(std::stoi(a->address().substr(a->address().rfind(':') + 1)));
      BOOST_REQUIRE(send(fd.get(), greeting.data(), bytes, MSG_NOSIGNAL) ==
                    static_cast<ssize_t>(bytes));
      char block[256];
      while (read(fd.get(), block, sizeof block) > 0) {  // until it hangs up
      }
    }
    // The first one has said nothing, as what a cut ends.
    BOOST_REQUIRE(wait_until_polled([&] { return a->counters().turned_away == 2u; }));
    a->stop();
    BOOST_TEST(a->counters().turned_away == 2u);
  }
}

BOOST_AUTO_TEST_CASE(with_keys_a_node_is_reached_from_anywhere, *utf::label("stock_zmq")) {
  Keyed k;
  const Keys shared = k.keys(k.a, {{k.a.public_key, "all"}});
  Party a(k.bell, "a", shared, "tcp://0.0.0.0:0"), b(k.bell, "b", shared, "tcp://*:0");
  const std::string port = a.address().substr(a.address().rfind(':'));
  // by TCP, that is
  BOOST_TEST(contains(b.refused_by("ipc:///tmp/x"), "an address is tcp://HOST:PORT"));
  b.transport->connect("tcp://127.0.0.1" + port);
  BOOST_REQUIRE(
      wait_until(k.bell, [&] { return !a.heard.peers.empty() && !b.heard.peers.empty(); }));
  // Peers get the address at which each node was seen.
  BOOST_TEST(b.heard.peers[0].second.address == "tcp://127.0.0.1" + port);
  BOOST_TEST(a.heard.peers[0].second.address ==
             "tcp://127.0.0.1" + b.address().substr(b.address().rfind(':')));
}

BOOST_AUTO_TEST_CASE(nodes_reach_each_other_over_ipv6,
                     *utf::label("stock_zmq") * utf::precondition(has_ipv6)) {
  Keyed k;
  const Keys shared = k.keys(k.a, {{k.a.public_key, "all"}});
  for (const bool has_keys : {false, true}) {
    const std::optional<Keys> keys = has_keys ? std::optional(shared) : std::nullopt;
    // With keys also at all addresses, of both kinds.
    Party a(k.bell, "a", keys, has_keys ? "tcp://[::]:0" : "tcp://[::1]:0"),
        b(k.bell, "b", keys, "tcp://[::1]:0"),
        c(k.bell, "c", keys, has_keys ? "tcp://*:0" : "tcp://127.0.0.1:0");
    const std::string port = a.address().substr(a.address().rfind(':'));
    b.transport->connect("tcp://[::1]" + port);
    BOOST_REQUIRE(
        wait_until(k.bell, [&] { return !a.heard.peers.empty() && !b.heard.peers.empty(); }));
    BOOST_TEST(b.heard.peers[0].second.address == "tcp://[::1]" + port);
    BOOST_TEST(a.heard.peers[0].second.address == b.address());
    // By the channel for bulk too, once it is there.
    for (std::size_t n = 1; n <= 1000 && a.transport->counters().bulk_bytes_in == 0; ++n) {
      Message m;
      m.head.resize(1);
      m.tensors.push_back(Tensor::zeros(DType::u8, {1'000'000}));
      b.transport->send(b.heard.peers[0].first, Lane::data, std::move(m));
      BOOST_REQUIRE(wait_until(k.bell, [&] { return a.heard.got.size() == n; }));
    }
    BOOST_TEST(a.transport->counters().bulk_bytes_in > 0u);
    if (!has_keys) continue;
    c.transport->connect("tcp://127.0.0.1" + port);
    BOOST_REQUIRE(
        wait_until(k.bell, [&] { return a.heard.peers.size() == 2 && !c.heard.peers.empty(); }));
    // RateLimitedLog to b, it is reached there, by IPv4 as it came.
    BOOST_TEST(a.heard.peers[1].second.address ==
               "tcp://127.0.0.1" + c.address().substr(c.address().rfind(':')));
    b.transport->connect(a.heard.peers[1].second.address);
    BOOST_REQUIRE(
        wait_until(k.bell, [&] { return b.heard.peers.size() == 2 || !b.heard.refusals.empty(); }));
    BOOST_TEST(b.heard.refusals.empty());
  }
}

BOOST_AUTO_TEST_CASE(a_program_runs_over_two_nodes_with_keys, *utf::label("stock_zmq")) {
  Keyed k;
  const Authorized all{{k.a.public_key, "a"}, {k.b.public_key, "b"}};
  const auto node = [&](const std::string& name, const KeyPair& own,
                        std::vector<std::string> join) {
    NodeOptions o;
    o.name = name;
    o.join = std::move(join);
    o.engine.workers = 1;
    o.transport = [&](PeerInfo self) {
      self.address = "tcp://127.0.0.1:0";
      ZeroMqOptions options;
      options.keys = k.keys(own, all);
      return make_zeromq_transport(std::move(self), options);
    };
    return std::make_unique<ClusterNode>(std::move(o));
  };
  auto b = node("b", k.b, {});
  auto a = node("a", k.a, {b->address()});
  a->wait_for({"b"}, 60s);
  Graph g;
  auto [n, sum] = while_loop([](Expr i, Expr) { return i < 10; },
                             [&](Expr i, Expr s) {
                               auto there = g.on_device("/node:b/cpu:0");
                               return std::tuple{i + 1, s + cast(i, DType::f32)};
                             },
                             std::tuple{g.constant(0), g.zeros(DType::f32, {200, 300})});
  BOOST_TEST(a->engine().run(g, {}, {sum})[0].at(0) == 45);
}

BOOST_AUTO_TEST_CASE(a_session_belongs_to_the_key_that_opened_it) {
  Doors doors;
  doors.keys = {{1, "key of b"}, {2, "another"}, {3, "key of b"}, {4, "another"}};
  doors.hear(1, hello("b", 77, false));
  doors.hear(1, wire::Ready{});
  BOOST_TEST(doors.log == std::vector<std::string>{"connected b"});
  doors.hear(2, hello("b", 77, true));  // it knows everything but the key
  BOOST_TEST(contains(doors.refusal(2), "has given up this session"), doors.refusal(2));
  wire::Hello newer = hello("b", 78, false);
  newer.info.incarnation = 2;  // as if b had started anew
  doors.hear(4, newer);
  BOOST_TEST(contains(doors.refusal(4), "another node, with another key, has the name b at a"),
             doors.refusal(4));
  doors.hear(3, hello("b", 77, true));
  BOOST_TEST(doors.refusal(3) == "");
  BOOST_TEST(std::holds_alternative<wire::Hello>(doors.said.at(3)));
  BOOST_TEST(doors.log.size() == 1u);
  doors.router.expel([](const std::string& key) { return key == "another"; });
  BOOST_TEST(doors.log.size() == 1u);
  doors.router.expel([](const std::string& key) { return key == "key of b"; });
  BOOST_REQUIRE(doors.log.size() == 2u);
  BOOST_TEST(doors.log[1] == "lost: the key of b is not authorized at a any more");
  BOOST_TEST(std::holds_alternative<wire::Bye>(doors.said.at(3)));
}

// A client may choose its routing id, and so pretend to be a connection that was there before.
BOOST_AUTO_TEST_CASE(another_version_of_the_protocol_is_refused_by_both_ends) {
  Doors doors;
  doors.keys = {{1, ""}, {2, ""}, {1000, ""}};
  wire::Hello other = hello("b", 77, false);
  other.version = wire::kVersion + 1;
  doors.hear(1, other);
  const std::string versions =
      fmt::format("speaks version {} of the protocol, not {}", wire::kVersion, wire::kVersion + 1);
  BOOST_TEST(doors.refusal(1) == "a " + versions);
  BOOST_TEST(doors.log.empty());
  doors.router.connect("test://b");
  const auto* asked = std::get_if<wire::Hello>(&doors.said.at(1000));
  BOOST_REQUIRE(asked);
  other.is_answer = true;
  other.session = asked->session;
  doors.hear(1000, other);
  BOOST_TEST(doors.log == std::vector<std::string>{fmt::format(
                              "refused by test://b: speaks version {} of the protocol, not {}",
                              wire::kVersion + 1, wire::kVersion)},
             boost::test_tools::per_element());
  doors.hear(2, hello("b", 78, false));  // this peer with the right version
  BOOST_TEST(doors.refusal(2) == "");
}

BOOST_AUTO_TEST_CASE(a_routing_id_proves_nothing, *utf::label("stock_zmq")) {
  Keyed k;
  Party a(k.bell, "a", k.keys(k.a, {{k.b.public_key, ""}, {k.c.public_key, ""}}));
  zmq::context_t context(1);
  const auto connected = [&](const KeyPair& own) {
    zmq::socket_t socket(context, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::routing_id, "the same");
    socket.set(zmq::sockopt::curve_serverkey, k.a.public_key);
    socket.set(zmq::sockopt::curve_publickey, own.public_key);
    socket.set(zmq::sockopt::curve_secretkey, own.secret_key);
    socket.connect(a.address());
    return socket;
  };
  const auto say = [](zmq::socket_t& socket, const wire::Frame& frame) {
    socket.send(zmq::buffer(wire::encode(frame)));
  };
  const auto answer = [](zmq::socket_t& socket) {
    zmq::message_t m;
    wire::Decoded d;
    BOOST_REQUIRE(socket.recv(m));
    BOOST_REQUIRE(wire::decode({static_cast<const std::byte*>(m.data()), m.size()}, {}, d).ok());
    return d.frame;
  };
  zmq::socket_t b = connected(k.b);
  say(b, hello("b", 5, false));
  BOOST_REQUIRE(std::holds_alternative<wire::Hello>(answer(b)));
  say(b, wire::Ready{});
  BOOST_REQUIRE(wait_until(k.bell, [&] { return a.heard.peers.size() == 1; }));
  b.close();
  zmq::socket_t c = connected(k.c);
  say(c, wire::Bye{Status(Code::unavailable, "b is leaving")});  // would end the session
  say(c, hello("b", 5, true));                                   // would take it over
  // ZeroMQ refuses an id that is still in use: then it tries again, until the first is gone.
  c.set(zmq::sockopt::rcvtimeo, 100);
  for (int i = 0; i < 100; ++i) {
    zmq::message_t m;
    if (c.recv(m)) {
      wire::Decoded d;
      BOOST_REQUIRE(wire::decode({static_cast<const std::byte*>(m.data()), m.size()}, {}, d).ok());
      BOOST_TEST(!std::holds_alternative<wire::Hello>(d.frame));
      if (const auto* refuse = std::get_if<wire::Refuse>(&d.frame)) {
        BOOST_TEST(contains(refuse->why.message(), "given up this session"), refuse->why.message());
        break;
      }
    } else {
      c = connected(k.c);
      c.set(zmq::sockopt::rcvtimeo, 100);
      say(c, hello("b", 5, true));
    }
    BOOST_REQUIRE(i < 99);
  }
  BOOST_TEST(std::none_of(a.heard.losses.begin(), a.heard.losses.end(), [](const auto& l) {
    return contains(l.second.message(), "is leaving");
  }));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
