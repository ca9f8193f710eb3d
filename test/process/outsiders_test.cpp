// Not under tsan: its processes run on ZeroMQ, which is not instrumented.
// Attacks of outsiders on nodes that are processes, over real sockets: one replays a recorded
// connection between two nodes, one announces an oversized message, one scans a cluster on one
// machine. They obtain nothing, nothing runs, and each attack is counted and logged.
#include <boost/test/unit_test.hpp>

#include <ifaddrs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <httplib.h>

#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/net/keys.hpp>
#include <troupe/cluster/transport/wire.hpp>
#include <troupe/test/process/client.hpp>
#include <troupe/test/process/connection.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/test/process/scan.hpp>
#include <troupe/test/process/standalone.hpp>
#include <troupe/test/support/cluster/relay.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(outsiders_test)

namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;

/// Ten times as long as it could take.
template <class Done>
bool until(Done done) {
  const auto end = std::chrono::steady_clock::now() + 100s;
  while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return done();
}

/// Node b as a process, what its `/metrics` say of what it has refused, and what it has logged.
struct Watched {
  /// `keys`: of b, if any.
  explicit Watched(const std::string& keys) : node(folder, "b", flags(keys)) {
    const std::string& said = node.process.seen();
    const std::size_t at = said.find("http://");
    url = said.substr(at, said.find('\n') - at);
    control = port_of(node.address);
    Listening all = listening_of(node.process.pid());
    all.ports.erase(control);
    all.ports.erase(port_of(url));
    BOOST_REQUIRE(all.ports.size() == 1u);
    bulk = *all.ports.begin();
  }
  static std::vector<std::string> flags(const std::string& keys) {
    std::vector<std::string> all{"--http", "0"};
    if (!keys.empty()) all.insert(all.end(), {"--keys", keys});
    return all;
  }
  std::uint64_t metric(const std::string& name) const {
    httplib::Client page(url);
    page.set_read_timeout(60);
    const auto answer = page.Get("/metrics");
    BOOST_REQUIRE(answer);
    const std::string line = "\ntroupe_transport_" + name + "_total ";
    const std::size_t at = answer->body.find(line);
    BOOST_REQUIRE_MESSAGE(at != std::string::npos, name);
    return static_cast<std::uint64_t>(std::stod(answer->body.substr(at + line.size())));
  }
  std::uint64_t turned_away() const { return metric("turned_away"); }
  std::uint64_t dropped() const { return metric("dropped"); }
  std::uint64_t broken_off() const { return metric("broken_off"); }
  std::uint64_t received() const { return metric("received_messages"); }
  /// The first refusal is logged at once, more a minute later.
  bool has_told(const std::string& what) const {
    return until([&] { return has(read_file(folder / ".stderr"), what); });
  }
  /// The most memory that it ever had, in bytes.
  std::uint64_t peak() const {
    std::ifstream file("/proc/" + std::to_string(node.process.pid()) + "/status");
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
    BOOST_FAIL("no VmHWM");
    return 0;
  }
  void ends_well() {
    node.process.interrupt(SIGTERM);
    const Outcome left = node.process.finish();
    BOOST_TEST(left.code == 0, left.error);
  }
  Folder folder;
  NodeProcess node;
  std::string url;
  int control = 0, bulk = 0;
};

/// Returns the keys for dialling a node that has b's key only. They are tried first, because
/// another would lead to a failed handshake, and be logged as one.
std::optional<Keys> to_dial_with(const KeyFolders& folders, const std::string& name,
                                 bool has_keys) {
  if (!has_keys) return {};
  Keys keys = read_keys(folders[name]);
  std::erase_if(keys.authorized, [](const auto& one) { return one.second != "b"; });
  keys.folder.clear();
  return keys;
}

// ---- what was recorded

constexpr std::int64_t kMany = 100'000;  // elements: they go beside the connection

bool say_all(const OwnedDescriptor& fd, const std::string& bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = send(fd.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += static_cast<std::size_t>(n);
  }
  return true;
}

/// Says again what was said, each piece when as much has been answered as then, of the first
/// `awaited` bytes of answers. How much it was; nothing more is said once the other end has hung
/// up.
std::size_t say_again(const OwnedDescriptor& fd, const Relay::Talk& talk, std::size_t awaited) {
  std::size_t due = 0, got = 0;
  for (const Relay::Piece& piece : talk) {
    if (piece.is_answer) {
      due = std::min(due + piece.bytes.size(), awaited);
      continue;
    }
    while (got < due) {
      const std::size_t more = some_of(fd).size();
      if (more == 0) return got;
      got += more;
    }
    if (!say_all(fd, piece.bytes)) return got;
  }
  return got;
}

/// Replays the recorded bytes to a port, at once or in their recorded timing, until the connection
/// is closed. Returns the number of bytes answered.
std::size_t played_again(int port, const Relay::Talk& talk, bool at_once) {
  const OwnedDescriptor fd = connected_to(port);
  std::size_t got = say_again(fd, talk, at_once ? 0 : SIZE_MAX);
  shutdown(fd.get(), SHUT_WR);
  for (std::size_t more; (more = some_of(fd).size()) != 0;) got += more;
  return got;
}

/// b, a that runs there, and what was said between them: a has dialled, both ports of b by a relay.
struct Recorded {
  explicit Recorded(bool has_keys)
      : b(has_keys ? keys["b"] : ""), control(b.node.address, "tcp://127.0.0.2:0"),
        // The channel beside the connection is dialled at the host of the connection, at the port
        // that b says.
        beside(fmt::format("tcp://127.0.0.1:{}", b.bulk),
               fmt::format("tcp://127.0.0.2:{}", b.bulk)) {
    control.tap();
    beside.tap();
    a = client("a", control.address(), to_dial_with(keys, "a", has_keys), false);
    a->wait_for({"b"}, 60s);
    Expr x = g.input("x", DType::f32, {kMany});
    {
      auto there = g.on_device("/node:b/cpu:0");
      v = g.variable("v", Tensor::zeros(DType::f32, {kMany}));
      more = v.assign_add(x);
    }
    f = a->engine().compile(g, {x}, {more});
    while (a->counters().bulk_bytes_out == 0) {  // until the channel is there
      BOOST_REQUIRE(runs < 1000);
      run();
    }
  }
  void run() {
    ++runs;
    const Tensor sum = f({Tensor::of(std::vector<float>(kMany, 1.f), {kMany})})[0];
    BOOST_TEST(sum.at(0) == runs);
    BOOST_TEST(sum.at(kMany - 1) == runs);
  }
  /// The one connection to each.
  static Relay::Talk talk(const Relay& relay) {
    const std::vector<Relay::Talk> all = relay.talks();
    BOOST_REQUIRE(all.size() == 1u);
    return all[0];
  }
  const KeyFolders keys{{"a", "b", "c"}};
  Watched b;
  Relay control, beside;
  std::unique_ptr<ClusterNode> a;
  Graph g;
  Variable v;
  Expr more;
  Function f;
  int runs = 0;
};

}  // namespace

BOOST_AUTO_TEST_CASE(recorded_traffic_is_not_accepted_again,
                     *boost::unit_test::label("stock_zmq")) {
  Recorded r(true);
  const Relay::Talk control = r.talk(r.control), beside = r.talk(r.beside);
  BOOST_TEST(r.beside.seen().size() > sizeof(float) * kMany);  // the replayed bytes contain a run
  BOOST_TEST(r.b.turned_away() == 0u);
  BOOST_TEST(r.b.dropped() == 0u);
  // While the session lasts, which it could be taken for; and when it is over.
  for (const bool is_there : {true, false}) {
    if (!is_there) r.a.reset();
    const std::size_t made = is_there ? made_on(*r.a, "b") : 0;
    const std::uint64_t turned_away = r.b.turned_away(), dropped = r.b.dropped(),
                        received = r.b.received();
    for (const bool at_once : {true, false}) {
      const std::size_t answered = played_again(r.b.control, control, at_once);
      // a key that is good and a greeting: it is what follows that says nothing new
      if (!at_once) BOOST_TEST(answered > 64u);
      BOOST_TEST(played_again(r.b.bulk, beside, at_once) == 0u);
      BOOST_TEST(r.b.has_told("; the last was a ticket that was not issued, or used before"));
    }
    BOOST_TEST(played_again(r.b.bulk, control, true) == 0u);
    played_again(r.b.control, beside, true);
    BOOST_TEST(until(
        [&] { return r.b.turned_away() >= turned_away + 3 && r.b.dropped() >= dropped + 3; }));
    BOOST_TEST(r.b.turned_away() == turned_away + 3);
    BOOST_TEST(r.b.dropped() == dropped + 3);
    if (is_there) {
      BOOST_TEST(made_on(*r.a, "b") == made);
      BOOST_TEST(r.a->counters().reconnects == 0u);
      BOOST_TEST((r.a->nodes() == std::vector<std::string>{"a", "b"}));
      BOOST_TEST(r.a->engine().get(r.v).at(0) == r.runs);  // nothing was added meanwhile
      r.run();
    } else {
      BOOST_TEST(r.b.received() == received);  // no other process is there that sends anything
    }
  }
  BOOST_TEST(r.b.has_told("connections that ended in their handshake: "));
  auto c = client("c", r.b.node.address, to_dial_with(r.keys, "c", true));
  c->wait_for({"b"}, 60s);
  BOOST_TEST(sum_on(*c, "b") == 8);
  c.reset();
  r.b.ends_well();
}

/// The last bytes that the connecting side sent there: a frame of ZMTP, or the bytes of one read. A
/// read may begin anywhere. On a bulk connection, bytes that are no bulk record are refused like a
/// replayed one. On the ZeroMQ connection, a frame's length may be read from them, and awaited.
std::string last_said(const Relay::Talk& talk, bool is_beside) {
  constexpr std::size_t kGreeting = 64, kHead = 16;
  std::string all, last;
  for (const Relay::Piece& piece : talk) {
    if (piece.is_answer) continue;
    if (is_beside && piece.bytes.size() >= kHead) last = piece.bytes;
    all += piece.bytes;
  }
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(all[at]));
  };
  for (std::size_t at = kGreeting; !is_beside && at + 9 <= all.size();) {
    const bool is_long = (byte(at) & 2) != 0;
    std::size_t bytes = is_long ? 0 : byte(at + 1);
    for (std::size_t i = 1; is_long && i <= 8; ++i) bytes = bytes << 8 | byte(at + i);
    const std::size_t whole = bytes + (is_long ? 9 : 2);
    if (all.size() - at < whole) break;
    last = all.substr(at, whole);
    at += whole;
  }
  return last;
}

// A process between the two sends it again at once, where it came from.
BOOST_AUTO_TEST_CASE(recorded_traffic_is_refused_in_its_own_connection,
                     *boost::unit_test::label("stock_zmq")) {
  for (const bool is_beside : {true, false}) {
    Recorded r(true);
    Relay& relay = is_beside ? r.beside : r.control;
    const auto refused = [&] { return is_beside ? r.b.dropped() : r.b.turned_away(); };
    const std::string last = last_said(r.talk(relay), is_beside);
    BOOST_TEST_CONTEXT((is_beside ? "beside, " : "control, ") << last.size() << " bytes") {
      BOOST_REQUIRE(!last.empty());
      BOOST_TEST(refused() == 0u);
      relay.insert(last);
      BOOST_TEST(until([&] { return refused() == 1; }));
      BOOST_TEST(r.b.has_told(is_beside ? "dropped 1 of what came here"
                                        : "connections that ended in their handshake: 1"));
      BOOST_TEST(until([&] { return r.a->counters().reconnects == 1; }));
      r.run();
      BOOST_TEST(refused() == 1u);
      r.a.reset();
      r.b.ends_well();
    }
  }
}

// Otherwise the two cases above would prove nothing: keys keep it out. Without keys, any process on
// this machine may send anything.
BOOST_AUTO_TEST_CASE(without_keys_it_is_taken, *boost::unit_test::label("stock_zmq")) {
  Recorded r(false);
  const Relay::Talk control = r.talk(r.control);
  r.a.reset();
  const std::uint64_t received = r.b.received();
  const OwnedDescriptor fd = connected_to(r.b.control);
  // until there is a connection; what is answered then are other messages
  say_again(fd, control, 64 + kReadyRouter.size());
  BOOST_TEST(until([&] { return r.b.received() > received; }));
}

// ---- what claims to be more than may be sent

namespace {

std::string big_endian(std::uint64_t n) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(n >> shift);
  return bytes;
}

/// A node that its test speaks for byte by byte, in clear text: what ZeroMQ calls a DEALER.
class ByHand {
 public:
  explicit ByHand(int port) : fd_(connected_to(port)) {
    say(greeting("NULL", 1) + kReadyDealer);
    BOOST_TEST(take(64) == greeting("NULL", 1));
    BOOST_TEST(take(kReadyRouter.size()) == kReadyRouter);
  }
  void say(const std::string& bytes) { BOOST_TEST(say_all(fd_, bytes)); }
  void say(const wire::Frame& frame) {
    const std::vector<std::byte> bytes = wire::encode(frame);
    say("\2" + big_endian(bytes.size()) +
        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  /// The next wire frame that is an F.
  template <class F>
  F hear() {
    for (;;) {
      const std::string flags = take(1);
      std::uint64_t size = 0;
      for (const char c : take((flags[0] & 2) != 0 ? 8 : 1))
        size = size << 8 | static_cast<unsigned char>(c);
      const std::string bytes = take(size);
      wire::Decoded d;
      BOOST_REQUIRE(wire::decode(std::as_bytes(std::span(bytes)), {}, d).ok());
      if (const F* found = std::get_if<F>(&d.frame)) return *found;
    }
  }
  bool is_hung_up_on() {
    while (!some_of(fd_).empty()) {}
    return true;
  }
  /// Opens a session, or goes on with it; where the channel for large payload is to be had.
  wire::Bulk greet(bool resumes = false) {
    wire::Hello hello;
    hello.info = {
        .name = "x", .incarnation = 7, .address = "", .engine = std::string(engine_version())};
    hello.session = 7;
    hello.resumes = resumes;
    hello.window = 1 << 20;
    hello.bulk.kinds = 1;
    say(hello);
    const auto answer = hear<wire::Hello>();
    BOOST_TEST(answer.is_answer);
    say(wire::Ready{});
    return answer.bulk;
  }
  /// Ends the session, for which b would wait else.
  void leave() {
    say(wire::Bye{Status(Code::unavailable, "x leaves"), {}});
    hear<wire::Gone>();
  }

 private:
  std::string take(std::size_t bytes) {
    while (got_.size() < bytes) {
      const std::string more = some_of(fd_);
      BOOST_REQUIRE(!more.empty());
      got_ += more;
    }
    const std::string first = got_.substr(0, bytes);
    got_.erase(0, bytes);
    return first;
  }

  OwnedDescriptor fd_;
  std::string got_;
};

/// The header of a Data frame that begins a message.
wire::Data begins(std::uint64_t head_bytes, std::vector<wire::TensorType> tensors) {
  return {.lane = Lane::data,
          .sequence = 0,
          .received = {},
          .messages = {{head_bytes, std::move(tensors)}}};
}

/// Shows the ticket of a session at the port for large payload, then says that such a bulk record
/// comes, and its beginning; until it is hung up on.
void says_beside(const Watched& b, std::uint32_t header_bytes, std::uint64_t bulk_bytes,
                 const std::vector<std::byte>& header) {
  ByHand x(b.control);
  const wire::Bulk at = x.greet();
  BOOST_TEST(at.where == std::to_string(b.bulk));
  const OwnedDescriptor fd = connected_to(b.bulk);
  BOOST_TEST(say_all(fd, "troupe-b" + std::string(reinterpret_cast<const char*>(at.ticket.data()),
                                                  at.ticket.size())));
  BOOST_TEST(some_of(fd).starts_with("troupe+b"));  // wire frames may follow
  std::string record(16, '\0');
  std::memcpy(record.data(), &header_bytes, sizeof header_bytes);
  std::memcpy(record.data() + 8, &bulk_bytes, sizeof bulk_bytes);
  BOOST_TEST(say_all(
      fd, record + std::string(reinterpret_cast<const char*>(header.data()), header.size())));
  while (!some_of(fd).empty()) {}
}

/// Goes on with the session, if there is one, and ends it.
void is_over(const Watched& b) {
  ByHand x(b.control);
  x.greet(true);
  x.leave();
}

struct Claim {
  const char* what;
  bool has_keys;
  std::function<void(const Watched&)> say;
  std::uint64_t (Watched::*counted)() const;
  std::string told;
};

}  // namespace

BOOST_AUTO_TEST_CASE(oversized_messages_are_dropped_counted_and_logged,
                     *boost::unit_test::label("stock_zmq")) {
  const std::string in_handshake = "connections that ended in their handshake: 1",
                    some = std::string(1000, 'x');
  const auto in_session = [](const wire::Frame& frame) {
    return [frame](const Watched& b) {
      ByHand x(b.control);
      x.greet();
      x.say(frame);
      x.leave();
    };
  };
  wire::Hello wordy;
  wordy.info.name = std::string(5000, 'x');
  const std::vector<std::byte> header = wire::encode(begins(0, {}));
  const Claim claims[] = {
      {"a part of 1 TiB", false,
       [&](const Watched& b) {
         ByHand x(b.control);
         x.say("\2" + big_endian(1ull << 40) + some);
         BOOST_TEST(x.is_hung_up_on());
       },
       &Watched::turned_away, in_handshake},
      {"a command of 2 GiB in the handshake", false,
       [&](const Watched& b) {
         probe(b.control, greeting("NULL", 1) + "\6" + big_endian(1ull << 31) + some, 64);
       },
       &Watched::turned_away, in_handshake},
      {"the same to who has keys", true,
       [&](const Watched& b) {
         probe(b.control, greeting("CURVE", 1) + "\6" + big_endian(1ull << 31) + some, 64);
       },
       &Watched::turned_away, in_handshake},
      {"a part of 1 TiB in a session", false,
       [&](const Watched& b) {
         ByHand x(b.control);
         // a client that begins with garbage is identified by its next wire frame all the same
         x.say(std::string("\0\4", 2) + "junk");
         x.greet();
         x.say("\2" + big_endian(1ull << 40) + some);
         BOOST_TEST(x.is_hung_up_on());
         BOOST_TEST(until([&] { return b.broken_off() != 0; }));
         ByHand again(b.control);
         again.greet(true);
         again.leave();
       },
       &Watched::broken_off, "connections that ended in the middle of a session: 1"},
      {"a name of 5,000 bytes", false, [&](const Watched& b) { ByHand(b.control).say(wordy); },
       &Watched::dropped, "the last was a text of a frame has 5000 bytes"},
      {"a head of 2^60 bytes", false, in_session(begins(1ull << 60, {})), &Watched::dropped,
       "the last was a head of 1152921504606846976 bytes"},
      {"a tensor of 4 TiB", false,
       in_session(begins(0, {{DType::f32, Shape{std::int64_t{1} << 40}}})), &Watched::dropped,
       "the last was a message of more than 68719476736 bytes"},
      {"a record with a header of 4 GiB", false,
       [&](const Watched& b) {
         says_beside(b, 0xffffffff, 0, header);
         is_over(b);
       },
       &Watched::dropped, "the last was a record that cannot be one"},
      {"a record of 2^62 bytes", false,
       [&](const Watched& b) {
         says_beside(b, static_cast<std::uint32_t>(header.size()), 1ull << 62, header);
         is_over(b);
       },
       &Watched::dropped, "the last was a record that is no frame of messages, or"},
      {"the same from who has no ticket", true,
       [&](const Watched& b) {
         probe(b.bulk, "troupe-b" + std::string(32, '\0') + std::string(16, '\x7f') + some, 0);
       },
       &Watched::dropped, "the last was a ticket that was not issued"},
  };
  for (const Claim& claim : claims) {
    BOOST_TEST_CONTEXT(claim.what) {
      const KeyFolders keys({"a", "b"});
      Watched b(claim.has_keys ? keys["b"] : "");
      auto a = client("a", b.node.address, to_dial_with(keys, "a", claim.has_keys));
      a->wait_for({"b"}, 60s);
      BOOST_TEST((b.*claim.counted)() == 0u);
      const std::uint64_t peak = b.peak();
      claim.say(b);
      BOOST_TEST(until([&] { return (b.*claim.counted)() != 0; }));
      BOOST_TEST((b.*claim.counted)() == 1u);
      BOOST_TEST(b.has_told(claim.told));
      // the least of what was claimed is 2 GiB, but for a text
      BOOST_TEST(b.peak() < peak + (64u << 20));
      BOOST_TEST(made_on(*a, "b") == 0u);
      BOOST_TEST(sum_on(*a, "b") == 8);
      a.reset();
      b.ends_well();
    }
  }
}

// ---- a scan

// The default for first trials: without keys, so any process on this machine may join, in any role.
BOOST_AUTO_TEST_CASE(scan_of_a_local_cluster_obtains_and_runs_nothing,
                     *boost::unit_test::label("stock_zmq")) {
  const ManyFiles many;
  Standalone all;
  const Listening supervisor = listening_of(all.process.pid());
  BOOST_TEST(supervisor.ports.empty());
  BOOST_TEST(supervisor.names.empty());
  const std::vector<std::string> names{"local-1", "local-2", "local-3"},
      addresses = all.addresses();
  BOOST_REQUIRE(addresses.size() == 3u);
  auto a = client("a", addresses[0], {});
  a->wait_for(names, 60s);
  std::vector<OwnedDescriptor> left_open;
  std::set<int> scanned;
  for (const pid_t pid : all.nodes)
    for (const std::string& address : addresses) {
      if (!listening_of(pid).ports.contains(port_of(address))) continue;
      scanned.insert(port_of(address));
      scan(pid, port_of(address), "local-", false, left_open);
    }
  BOOST_TEST(scanned.size() == 3u);
  for (const std::string& name : names) BOOST_TEST(made_on(*a, name) == 0u, "plans or runs");
  // With all of them still there.
  for (const std::string& name : names) BOOST_TEST(sum_on(*a, name) == 8);
  for (const std::string& name : names) BOOST_TEST(made_on(*a, name) > 0u);
  BOOST_TEST(a->nodes().size() == 4u);
  a.reset();
  left_open.clear();
  all.process.interrupt(SIGTERM);
  const Outcome end = all.process.finish();
  BOOST_TEST(end.code == 0, end.error);
}

// Other addresses of the machine have no listener: 127.0.0.2, which always exists, and those of its
// network, if it has any.
BOOST_AUTO_TEST_CASE(a_cluster_on_one_machine_is_there_for_that_machine_alone,
                     *boost::unit_test::label("stock_zmq")) {
  Standalone all;
  std::set<int> ports;
  for (const pid_t pid : all.nodes) ports.merge(listening_of(pid).ports);
  BOOST_TEST(ports.size() == 6u);
  sockaddr_in second{};
  second.sin_family = AF_INET;
  second.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  std::vector<sockaddr_in> others{second};
  ifaddrs* first = nullptr;
  BOOST_REQUIRE(getifaddrs(&first) == 0);
  for (const ifaddrs* i = first; i; i = i->ifa_next) {
    if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in at;
    std::memcpy(&at, i->ifa_addr, sizeof at);
    if (ntohl(at.sin_addr.s_addr) >> 24 != IN_LOOPBACKNET) others.push_back(at);
  }
  freeifaddrs(first);
  const auto answer = [](sockaddr_in at, int port) {
    at.sin_port = htons(static_cast<std::uint16_t>(port));
    const OwnedDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 ? 0 : errno;
  };
  sockaddr_in loopback = second;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (const int port : ports) {
    BOOST_TEST(answer(loopback, port) == 0);  // it is there for that machine
    for (const sockaddr_in& at : others) BOOST_TEST(answer(at, port) == ECONNREFUSED);
  }
  BOOST_TEST_MESSAGE(others.size() << " other addresses");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
