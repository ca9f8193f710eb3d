// The bulk channel between two transports: payload beside the connection, and refused peers. For
// its bulk records see bulk_record_test.
#include <troupe/cluster/transport/channel/bulk_channels.hpp>
#include <troupe/devices/tensor/allocator.hpp>
#include <troupe/test/support/cluster/relay.hpp>
#include <troupe/test/support/cluster/still.hpp>
#include <troupe/test/support/cluster/transport_world.hpp>
#include <troupe/test/support/port.hpp>
#include <troupe/test/support/share.hpp>

#include <fstream>

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <fmt/format.h>

BOOST_AUTO_TEST_SUITE(bulk_test)

namespace {

using namespace troupe;
using namespace troupe::test;
namespace utf = boost::unit_test;

std::string at_port(int port) { return fmt::format("tcp://127.0.0.1:{}", port); }
int port_of(const std::string& address) {
  return std::stoi(address.substr(address.rfind(':') + 1));
}

/// b is connected to a.
struct Pair {
  Pair(const ZeroMqOptions& of_a, const ZeroMqOptions& of_b)
      : a(make_zeromq_transport(
            {.name = "a", .incarnation = 1, .address = "tcp://127.0.0.1:0", .engine = ""}, of_a)),
        b(make_zeromq_transport(
            {.name = "b", .incarnation = 1, .address = "tcp://127.0.0.1:0", .engine = ""}, of_b)) {
    a->start(heard_a);
    b->start(heard_b);
    b->connect(a->address());
    BOOST_REQUIRE(
        wait_until(bell, [&] { return !heard_a.peers.empty() && !heard_b.peers.empty(); }));
    to_b = heard_a.peers[0].first;
    to_a = heard_b.peers[0].first;
  }
  ~Pair() {
    b->stop();
    a->stop();
  }
  /// Both ways, and looks at what has come.
  void exchange(std::uint64_t from, std::uint64_t to, std::size_t bytes) {
    for (std::uint64_t i = from; i < to; ++i) {
      a->send(to_b, Lane::data, numbered(i, i % 3 ? bytes : 100));
      b->send(to_a, Lane::data, numbered(i, i % 3 ? bytes : 100));
    }
    BOOST_REQUIRE(
        wait_until(bell, [&] { return heard_a.got.size() >= to && heard_b.got.size() >= to; }));
    for (const RecordingListener* heard : {&heard_a, &heard_b}) {
      BOOST_REQUIRE(heard->got.size() == to);
      for (std::uint64_t i = from; i < to; ++i)
        BOOST_REQUIRE(is_numbered(heard->got[i].message, i));
      BOOST_TEST(heard->losses.empty());
    }
  }
  /// Until the channel is there in both directions.
  void warm_up() {
    for (std::uint64_t n = 0; a->counters().bulk_bytes_in == 0 || b->counters().bulk_bytes_in == 0;
         n += 3) {
      BOOST_REQUIRE(n < 3000);
      exchange(n, n + 3, 100'000);
      next = n + 3;
    }
  }
  /// From a to b, which looks at it and does not keep it; where it lay.
  const void* give(const Tensor& t) {
    const std::size_t before = heard_b.got.size();
    a->send(to_b, Lane::data, {std::vector<std::byte>(8), {t}});
    BOOST_REQUIRE(wait_until(bell, [&] { return heard_b.got.size() > before; }));
    std::lock_guard lock(bell.mutex);
    const Message got = std::move(heard_b.got.back().message);
    heard_b.got.pop_back();
    BOOST_REQUIRE(got.tensors.size() == 1);
    BOOST_REQUIRE(got.tensors[0].bytes() == t.bytes());
    BOOST_TEST(std::memcmp(got.tensors[0].raw(), t.raw(), t.bytes()) == 0);
    return got.tensors[0].raw();
  }
  std::uint64_t copied() const { return a->counters().copied_bytes + b->counters().copied_bytes; }
  Bell bell;
  RecordingListener heard_a{bell}, heard_b{bell};
  std::unique_ptr<Transport> a, b;
  Peer to_b = 0, to_a = 0;
  std::uint64_t next = 0;
};

// A side that has outstanding messages when the other leaves does not take them any more: neither
// waits for the timeout.
BOOST_AUTO_TEST_CASE(two_that_leave_at_once_do_not_wait_for_each_other, *utf::label("stock_zmq")) {
  for (const bool shared : {true, false}) {
    ZeroMqOptions options{.shared_memory = shared};
    options.router.drain = options.router.farewell = std::chrono::seconds(100);
    for (int round = 0; round < 10; ++round) {
      Pair pair(options, options);
      pair.warm_up();
      pair.a->send(pair.to_b, Lane::control, numbered(0, 100));
      pair.b->send(pair.to_a, Lane::control, numbered(0, 100));
      const auto began = std::chrono::steady_clock::now();
      std::thread other([&] { pair.a->stop(); });
      pair.b->stop();
      other.join();
      BOOST_TEST((std::chrono::steady_clock::now() - began < std::chrono::seconds(90)));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_listener_chooses_among_the_kinds_asked_for) {
  Still still;
  Router router({.name = "a", .incarnation = 1, .address = "", .engine = ""}, {}, still, still);
  DirectSenders senders;
  BulkChannels channels(router, still, senders, {.shared_memory = false});
  channels.listen("tcp://127.0.0.1:1", false);
  const auto bit = [](BulkKind kind) { return static_cast<std::uint8_t>(kind); };
  const std::uint8_t gcm = bit(BulkKind::gcm_tcp), ocb = bit(BulkKind::ocb_tcp),
                     tcp = bit(BulkKind::tcp);
  const auto answer = [&](std::uint8_t kinds, bool is_authenticated) {
    wire::Bulk ask;
    ask.kinds = kinds;
    return channels.answer(1, ask, is_authenticated);
  };
  BOOST_TEST(channels.ask(1, false).kinds == tcp);
  BOOST_TEST(channels.ask(1, true).kinds == (gcm | ocb));
  BOOST_TEST((channels.ask(1, true).share != channels.ask(1, true).share));
  BOOST_TEST(answer(gcm, true).kinds == gcm);  // libcryptos without OCB ask so
  BOOST_TEST(answer(ocb | tcp, true).kinds == ocb);
  BOOST_TEST(answer(gcm | ocb, true).kinds ==
             (seal_ciphers().front() == SealCipher::aes_256_ocb ? ocb : gcm));
  BOOST_TEST((answer(ocb, true).share != SealShare{}));
  BOOST_TEST(answer(tcp, true).kinds == 0);  // never clear text between peers that have keys
  BOOST_TEST(answer(0, true).kinds == 0);
  BOOST_TEST(answer(gcm | ocb, false).kinds == 0);
  BOOST_TEST(answer(tcp | gcm, false).kinds == tcp);
}

// A peer chooses the contents of an answer: an impossible channel is counted once, and nothing is
// looked up for it.
BOOST_AUTO_TEST_CASE(a_channel_at_no_place_or_of_no_kind_is_refused) {
  Still still;
  Router router({.name = "a", .incarnation = 1, .address = "", .engine = ""}, {}, still, still);
  DirectSenders senders;
  BulkChannels channels(router, still, senders, {.shared_memory = false});
  BulkSockets sockets(router, still, senders, {});
  const ListeningSocket there = listen_at("tcp://127.0.0.1:0", "");
  const auto dropped = [&](const auto& open) {
    const std::uint64_t before = router.counters().dropped;
    open();
    return router.counters().dropped - before;
  };
  const auto by_tcp = [&](const std::string& where,
                          std::uint8_t kinds = static_cast<std::uint8_t>(BulkKind::tcp)) {
    channels.ask(1, false);
    const wire::Bulk answer{.kinds = kinds, .host = "", .where = where, .ticket = {}, .share = {}};
    return dropped([&] { channels.open(1, "tcp://127.0.0.1:1", answer); });
  };
  const std::vector<std::string> no_ports{
      "",     std::string(65, '1'),  "g", "abcde", "0", "00000", "65536", "-1", "+1", " 80", "80 ",
      "0x50", std::string("80\0", 3)};
  for (const std::string& where : no_ports) {
    BOOST_TEST(by_tcp(where) == 1u, where);
    BOOST_TEST(router.last_drop() == "a bulk channel at no place");
  }
  const std::string port = std::to_string(port_of(there.address));
  for (const int kinds : {2, 3, 4, 8, 16, 255}) {
    BOOST_TEST(by_tcp(port, static_cast<std::uint8_t>(kinds)) == 1u, kinds);
    BOOST_TEST(router.last_drop() == "a bulk channel of a kind that was not requested");
  }
  BOOST_TEST(accept4(there.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC) == -1);
  BOOST_TEST(by_tcp("1") == 0u);
  BOOST_TEST(by_tcp("65535") == 0u);
  BOOST_TEST(by_tcp(port) == 0u);
  pollfd dialled{there.fd.get(), POLLIN, 0};
  BOOST_TEST(poll(&dialled, 1, 100'000) == 1);
  const auto locally = [&](const std::string& where) {
    const wire::Bulk answer{.kinds = 4, .host = "", .where = where, .ticket = {}, .share = {}};
    return dropped([&] { sockets.open(1, "", true, answer, {}); });
  };
  for (const std::string& where :
       std::vector<std::string>{"", std::string(65, 'a'), "g", "A", "../x"})
    BOOST_TEST(locally(where) == 1u, where);
  BOOST_TEST(locally(std::string(64, 'a')) == 0u);  // though no peer is there
}

BOOST_AUTO_TEST_CASE(all_connections_have_the_configured_congestion_control,
                     *utf::label("stock_zmq")) {
  for (const char* asked : {"reno", "cubic"}) {
    Pair pair({.congestion = asked, .shared_memory = false},
              {.congestion = asked, .shared_memory = false});
    pair.warm_up();
    int connections = 0;
    for (int fd = 0; fd < 1024; ++fd) {
      sockaddr_storage there;
      socklen_t size = sizeof there;
      char name[16] = {};
      socklen_t length = sizeof name - 1;
      if (getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) != 0 ||
          there.ss_family != AF_INET)
        continue;
      if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0) continue;
      ++connections;
      BOOST_TEST(std::string(name) == asked, "descriptor " << fd);
    }
    BOOST_TEST(connections >= 4);  // ZeroMQ's connections and those beside it, both ends
  }
}

BOOST_AUTO_TEST_CASE(payload_is_not_copied_and_sealed_once, *utf::label("stock_zmq")) {
  for (const bool sealed : {false, true}) {
    Pair pair({.shared_memory = false, .seal = sealed}, {.shared_memory = false, .seal = sealed});
    pair.warm_up();
    const TransportCounters before = pair.b->counters();
    pair.exchange(pair.next, pair.next + 30, 2'000'000);
    const TransportCounters after = pair.b->counters();
    const std::uint64_t in = after.bulk_bytes_in - before.bulk_bytes_in,
                        out = after.bulk_bytes_out - before.bulk_bytes_out;
    BOOST_TEST(in == 40'000'000u);
    BOOST_TEST(out == 40'000'000u);
    const std::uint64_t copied = after.copied_bytes - before.copied_bytes;
    BOOST_TEST(copied >= (sealed ? in + out : 0));
    BOOST_TEST(copied < (sealed ? in + out : 0) + 100'000);
  }
}

constexpr std::size_t kLarge = std::size_t(kShare == 1 ? 256 : 16) << 20;

/// Returns the bulk bytes of each bulk record that went over a relay to the dialling side
/// (bulk_record.hpp). The answer to its greeting comes before the bulk records.
std::vector<std::uint64_t> bulk_of_records(const Relay& relay) {
  constexpr std::size_t kAnswer = 8;
  std::string said;
  for (const Relay::Talk& talk : relay.talks())
    for (const Relay::Piece& piece : talk)
      if (piece.is_answer) said += piece.bytes;
  std::vector<std::uint64_t> all;
  std::size_t at = kAnswer;
  while (at + kBulkPrefix <= said.size()) {
    std::uint32_t header = 0;
    std::uint64_t bulk = 0;
    std::memcpy(&header, said.data() + at, sizeof header);
    std::memcpy(&bulk, said.data() + at + kBulkPrefix - sizeof bulk, sizeof bulk);
    all.push_back(bulk);
    at += kBulkPrefix + header + bulk;
  }
  return all;
}

BOOST_AUTO_TEST_CASE(a_large_tensor_goes_in_frames_of_half_a_mebibyte_to_one,
                     *utf::label("stock_zmq")) {
  const OwnPort port;
  Relay relay(at_port(port.number()));
  relay.tap();
  Pair pair({.shared_memory = false,
             .bulk_port = port.number(),
             .bulk_port_outside = port_of(relay.address())},
            {.shared_memory = false});
  pair.warm_up();
  const std::uint64_t came = pair.b->counters().bulk_bytes_in;
  const std::size_t before = bulk_of_records(relay).size();
  constexpr std::size_t kBytes = kLarge / 4;  // the relay keeps it, and so does its reader
  pair.give(numbered(1, kBytes).tensors[0]);
  BOOST_TEST(pair.b->counters().bulk_bytes_in - came == kBytes);
  std::vector<std::uint64_t> frames = bulk_of_records(relay);
  frames.erase(frames.begin(), frames.begin() + static_cast<std::ptrdiff_t>(before));
  std::erase(frames, 0u);  // acknowledgements
  BOOST_TEST(std::accumulate(frames.begin(), frames.end(), std::uint64_t{0}) == kBytes);
  BOOST_TEST(frames.size() >= kBytes >> 20);
  BOOST_TEST(frames.size() <= kBytes >> 19);
  const auto [least, most] = std::minmax_element(frames.begin(), frames.end());
  BOOST_TEST(*least >= std::uint64_t{1} << 19);
  BOOST_TEST(*most <= std::uint64_t{1} << 20);
}

// Copies in user space, at both ends; those that libzmq makes itself are not among them.
BOOST_AUTO_TEST_CASE(large_clear_text_is_copied_once_at_most, *utf::label("stock_zmq")) {
  struct Way {
    const char* name;
    ZeroMqOptions options;
    double copies;
    bool is_allocated;  // the receiver allocates from the heap
  };
  const Way ways[] = {{"over TCP", {.shared_memory = false}, 0, true},
                      {"by shared memory", {.slab_bytes = 2 * kLarge}, 1, false},
                      {"over ZeroMQ", {.bulk = false}, 1, true}};
  constexpr std::uint64_t kTimes = 4;
  const Tensor t = numbered(3, kLarge).tensors[0];
  for (const Way& way : ways) BOOST_TEST_CONTEXT(way.name) {
      Pair pair(way.options, way.options);
      if (way.options.bulk) pair.warm_up();
      const void* const where = pair.give(t);
      const std::uint64_t copied = pair.copied(), came = pair.b->counters().bytes_in,
                          beside = pair.b->counters().bulk_bytes_in;
      const AllocatorCounters heap = host_allocator().counters();
      for (std::uint64_t i = 0; i < kTimes; ++i) BOOST_TEST((pair.give(t) == where || kShare != 1));
      const AllocatorCounters now = host_allocator().counters();
      const std::uint64_t bytes = pair.b->counters().bytes_in - came;
      BOOST_TEST(bytes == kTimes * (kLarge + 8));
      BOOST_TEST(pair.b->counters().bulk_bytes_in - beside ==
                 (way.options.bulk ? kTimes * kLarge : 0));
      // headers, and what is read with them
      BOOST_TEST(std::abs(static_cast<double>(pair.copied() - copied) / static_cast<double>(bytes) -
                          way.copies) < 0.01);
      BOOST_TEST(now.in_use == heap.in_use);
      if (kShare != 1) continue;  // ASan is to see stale uses: nothing is kept
      BOOST_TEST(now.misses == heap.misses);
      BOOST_TEST(now.cached == heap.cached);
      BOOST_TEST((now.allocations - heap.allocations >= kTimes) == way.is_allocated);
    }
}

BOOST_AUTO_TEST_CASE(a_bulk_channel_that_is_cut_loses_and_repeats_nothing,
                     *utf::label("stock_zmq")) {
  for (const bool sealed : {false, true}) {
    const OwnPort port;
    Relay relay(at_port(port.number()));
    Pair pair({.shared_memory = false,
               .bulk_port = port.number(),
               .bulk_port_outside = port_of(relay.address()),
               .seal = sealed},
              {.seal = sealed});
    pair.warm_up();
    for (int cut = 0; cut < 4; ++cut) {
      const std::uint64_t from = pair.next, to = from + 60;
      for (std::uint64_t i = from; i < to; ++i) {
        pair.a->send(pair.to_b, Lane::data, numbered(i, i % 3 ? 900'000 : 100));
        pair.b->send(pair.to_a, Lane::data, numbered(i, i % 3 ? 900'000 : 100));
      }
      // In the midst of it.
      BOOST_REQUIRE(wait_until(pair.bell, [&] {
        return pair.heard_a.got.size() > from + 5 && pair.heard_b.got.size() > from + 5;
      }));
      relay.cut();
      BOOST_REQUIRE(wait_until(pair.bell, [&] {
        return pair.heard_a.got.size() >= to && pair.heard_b.got.size() >= to;
      }));
      for (const RecordingListener* heard : {&pair.heard_a, &pair.heard_b})
        for (std::uint64_t i = from; i < to; ++i)
          BOOST_REQUIRE(is_numbered(heard->got[i].message, i));
      pair.next = to;
    }
    BOOST_TEST(relay.cuts() > 0);
    BOOST_TEST(pair.b->counters().reconnects > 0);
    BOOST_TEST(pair.heard_a.peers.size() == 1);
    BOOST_TEST(pair.heard_a.losses.empty());
    BOOST_TEST(pair.heard_b.losses.empty());
  }
}

// A header is a box, and so are 128 KiB of payload: keys end at either.
BOOST_AUTO_TEST_CASE(next_key_replaces_an_exhausted_one_without_loss, *utf::label("stock_zmq")) {
  const ZeroMqOptions options{.shared_memory = false, .seal = true, .seal_boxes = 53};
  Pair pair(options, options);
  pair.warm_up();
  for (int round = 0; round < 5; ++round) {
    pair.exchange(pair.next, pair.next + 60, 900'000);
    pair.next += 60;
  }
  // How many, depends on how soon a channel is there again: until then payload goes over the
  // connection.
  for (int more = 0; pair.a->counters().reconnects + pair.b->counters().reconnects < 10; ++more) {
    BOOST_REQUIRE(more < 200);
    pair.exchange(pair.next, pair.next + 60, 900'000);
    pair.next += 60;
  }
  BOOST_TEST(pair.heard_a.peers.size() == 1);
}

BOOST_AUTO_TEST_CASE(without_a_bulk_channel_all_goes_over_the_connection,
                     *utf::label("stock_zmq")) {
  constexpr int nobody = 1;
  const std::pair<ZeroMqOptions, ZeroMqOptions> refusals[] = {
      {{.shared_memory = false, .bulk_port_outside = nobody}, {}},  // a firewall
      {{.bulk = false}, {}},
      {{}, {.bulk = false}},
      // no clear text for a peer that refuses it
      {{.shared_memory = false, .seal = true}, {.seal = false}},
      {{.shared_memory = false, .seal = false}, {.seal = true}},
  };
  for (const auto& [of_a, of_b] : refusals) {
    Pair pair(of_a, of_b);
    pair.exchange(0, 30, 300'000);
    BOOST_TEST(pair.a->counters().bulk_bytes_in == 0);
    BOOST_TEST(pair.b->counters().bulk_bytes_in == 0);
    BOOST_TEST(pair.b->counters().reconnects == 0);
  }
}

std::size_t mapped(const char* what) {
  std::ifstream maps("/proc/self/maps");
  std::size_t n = 0;
  for (std::string line; std::getline(maps, line);) n += line.find(what) != std::string::npos;
  return n;
}
std::size_t rings_mapped() { return mapped("troupe rings"); }

BOOST_AUTO_TEST_CASE(processes_of_one_host_share_memory_for_as_long_as_they_live,
                     *utf::label("stock_zmq")) {
  BOOST_TEST(rings_mapped() == 0);
  {
    Pair pair({}, {.seal = true});
    pair.warm_up();
    BOOST_TEST(rings_mapped() == 2);
    const TransportCounters before = pair.b->counters();
    pair.exchange(pair.next, pair.next + 30, 2'000'000);
    pair.exchange(pair.next + 30, pair.next + 1000, 70);
    const TransportCounters after = pair.b->counters();
    BOOST_TEST(after.bulk_bytes_in - before.bulk_bytes_in == 40'000'000u);
    // Into the slab; what comes stays where it is.
    BOOST_TEST(after.copied_bytes - before.copied_bytes >= 40'000'000u);
    BOOST_TEST(after.copied_bytes - before.copied_bytes < 41'000'000u);
    BOOST_TEST(after.reconnects == 0);
  }
  BOOST_TEST(rings_mapped() == 0);
}

BOOST_AUTO_TEST_CASE(a_reader_that_keeps_much_gets_copies, *utf::label("stock_zmq")) {
  Pair pair({.slab_bytes = 5'000'000}, {.slab_bytes = 5'000'000});
  pair.warm_up();
  const TransportCounters before = pair.b->counters();
  pair.exchange(pair.next, pair.next + 30, 2'000'000);  // both keep what they have got
  const TransportCounters after = pair.b->counters();
  BOOST_TEST(after.copied_bytes - before.copied_bytes > 70'000'000u);
  BOOST_TEST(after.copied_bytes - before.copied_bytes < 81'000'000u);
  // Memory that they no longer hold can be lent again.
  const std::uint64_t next = pair.next + 30;
  for (RecordingListener* heard : {&pair.heard_a, &pair.heard_b}) {
    std::lock_guard lock(pair.bell.mutex);
    for (auto& got : heard->got) got.message = {};
  }
  pair.exchange(next, next + 3, 1'900'000);
  BOOST_TEST(pair.b->counters().copied_bytes - after.copied_bytes < 4'000'000u);
}

BOOST_AUTO_TEST_CASE(a_tensor_made_for_a_peer_is_not_copied_at_all, *utf::label("stock_zmq")) {
  Pair pair({}, {});
  pair.warm_up();
  const auto send = [&](std::uint64_t number, bool is_kept) {
    Message m = numbered(number, 0);
    Tensor t = pair.a->empty_for(pair.to_b, DType::u8, Shape{3'000'000});
    std::memset(t.raw_mutable(), static_cast<int>(number % 251), t.bytes());
    m.tensors[0] = t;
    const Tensor kept = is_kept ? t : Tensor();
    t = Tensor();
    pair.a->send(pair.to_b, Lane::data, std::move(m));
    BOOST_REQUIRE(wait_until(pair.bell, [&] { return pair.heard_b.got.size() == number + 1; }));
    BOOST_TEST(is_numbered(pair.heard_b.got.back().message, number));
    if (is_kept) BOOST_TEST(kept.data<std::uint8_t>()[2'999'999] == number % 251);
  };
  const auto copied = [&] {
    return pair.a->counters().copied_bytes + pair.b->counters().copied_bytes;
  };
  const std::uint64_t before = copied();
  for (std::uint64_t i = 0; i < 5; ++i) send(pair.next + i, false);
  BOOST_TEST(copied() - before < 100'000u);
  send(pair.next + 5, true);  // memory that is still referenced is copied
  BOOST_TEST(copied() - before > 3'000'000u);
}

BOOST_AUTO_TEST_CASE(tensors_outlive_their_lender, *utf::label("stock_zmq")) {
  std::vector<Message> kept;
  {
    Pair pair({}, {});
    pair.warm_up();
    pair.exchange(pair.next, pair.next + 12, 500'000);
    for (auto& got : pair.heard_b.got) kept.push_back(std::move(got.message));
  }
  BOOST_TEST(mapped("troupe slab") == 1u);
  for (std::uint64_t i = 0; i < kept.size(); ++i) BOOST_TEST(is_numbered(kept[i], i));
  kept.clear();
  BOOST_TEST(mapped("troupe slab") == 0u);
}

BOOST_AUTO_TEST_CASE(a_channel_without_a_ticket_is_closed, *utf::label("stock_zmq")) {
  const OwnPort port;
  Pair pair({.shared_memory = false, .bulk_port = port.number()}, {});
  pair.warm_up();
  const auto dial = [&] {
    OwnedDescriptor fd = connect_to(at_port(port.number()));
    pollfd connected{fd.get(), POLLOUT, 0};
    BOOST_REQUIRE(poll(&connected, 1, 100'000) == 1);
    return fd;
  };
  const auto is_closed = [](const OwnedDescriptor& fd) {
    pollfd readable{fd.get(), POLLIN, 0};
    char c;
    return poll(&readable, 1, 100'000) == 1 && recv(fd.get(), &c, 1, MSG_DONTWAIT) <= 0;
  };
  std::string guess = "troupe-b" + std::string(32, '\0');
  std::uint64_t dropped = pair.a->counters().dropped;
  for (const std::string& said :
       {std::string("GET / HTTP/1.1\r\n\r\n"), guess, std::string(100'000, '\x7f')}) {
    const OwnedDescriptor stranger = dial();
    BOOST_TEST(send(stranger.get(), said.data(), said.size(), MSG_NOSIGNAL) > 0);
    BOOST_TEST(is_closed(stranger));
    BOOST_TEST(pair.a->counters().dropped > dropped);
    dropped = pair.a->counters().dropped;
  }
  // Silent connections: the oldest is closed for one too many, the others after their timeout.
  std::vector<OwnedDescriptor> silent;
  for (std::size_t i = 0; i <= BulkSockets::kStrangers; ++i) silent.push_back(dial());
  for (const OwnedDescriptor& fd : silent) BOOST_TEST(is_closed(fd));
  pair.exchange(pair.next, pair.next + 6, 300'000);
  BOOST_TEST(pair.b->counters().reconnects == 0);
}

// The peer may still send, and to close its socket at once would take back the last bytes for it.
BOOST_AUTO_TEST_CASE(strangers_do_not_close_the_socket_of_an_ended_channel) {
  Still still;  // whose clock stands: no socket is closed after a time
  Router router({.name = "a", .incarnation = 1, .address = "", .engine = ""}, {}, still, still);
  DirectSenders senders;
  BulkSockets sockets(router, still, senders, {.shared_memory = false});
  sockets.listen("tcp://127.0.0.1:1", false);
  const wire::Bulk offer = sockets.offer(1, false, {});
  const auto work = [&] {
    pollfd ready{sockets.descriptor(), POLLIN, 0};
    BOOST_REQUIRE(poll(&ready, 1, 100'000) == 1);
    sockets.work();
  };
  const auto dial = [&] {
    OwnedDescriptor fd = connect_to(at_port(std::stoi(offer.where)));
    pollfd connected{fd.get(), POLLOUT, 0};
    BOOST_REQUIRE(poll(&connected, 1, 100'000) == 1);
    return fd;
  };
  const auto has_ended = [](const OwnedDescriptor& fd) {
    char c;
    const ssize_t n = recv(fd.get(), &c, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
  };
  const OwnedDescriptor peer = dial();
  std::string ticket = "troupe-b";
  ticket.append(reinterpret_cast<const char*>(offer.ticket.data()), offer.ticket.size());
  BOOST_REQUIRE(::send(peer.get(), ticket.data(), ticket.size(), MSG_NOSIGNAL) == 40);
  while (sockets.channels() == 0) work();
  sockets.close(1);

  std::vector<OwnedDescriptor> silent;
  for (std::size_t i = 0; i <= BulkSockets::kStrangers; ++i) {
    silent.push_back(dial());
    sockets.work();
  }
  while (!has_ended(silent[0])) work();  // there was one too many
  BOOST_TEST(router.counters().dropped == 1u);
  // More than the kernel buffers: it is all read, and ignored.
  const std::vector<char> bytes(16 << 10);
  for (std::size_t sent = 0; sent < std::size_t{32} << 20;) {
    const ssize_t n = ::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    BOOST_REQUIRE((n > 0 || errno == EAGAIN));
    if (n > 0) sent += static_cast<std::size_t>(n);
    else work();
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
