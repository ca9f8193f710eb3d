// The bulk channel: payload that goes beside the connection, its records, what is sealed, and who is not let in.
#include <troupe/test/cluster/hostile.hpp>
#include <troupe/test/cluster/relay.hpp>
#include <troupe/test/cluster/transport_world.hpp>
#include <troupe/test/port.hpp>
#include <troupe/cluster/bulk_channels.hpp>

#include <algorithm>
#include <fstream>
#include <random>

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <fmt/format.h>

BOOST_AUTO_TEST_SUITE(bulk_test)

namespace {

using namespace troupe;
using namespace troupe::test;
using Bytes = std::vector<std::byte>;
namespace utf = boost::unit_test;

// ---- records

Ref<OutFrame> frame_of(std::uint64_t sequence, const Bytes& payload) {
  Ref<OutFrame> frame(new OutFrame);
  wire::Data data{.lane = Lane::data, .sequence = sequence, .received = {}, .messages = {}};
  data.messages.push_back({.head_bytes = 0, .tensors = {{DType::u8, Shape{static_cast<std::int64_t>(payload.size())}}}});
  wire::encode_data(data, 1, frame->header);
  struct Held final : Counted {
    Tensor tensor;
  };
  Ref<Held> held(new Held);
  held->tensor = Tensor::of(std::span(reinterpret_cast<const std::uint8_t*>(payload.data()), payload.size()), Shape{static_cast<std::int64_t>(payload.size())});
  frame->whole = &held->tensor;
  frame->bulk = held->tensor.raw();
  frame->bulk_bytes = payload.size();
  held->retain();
  frame->owner = Ref<Counted>(held.get());
  return frame;
}

Bytes payload_of(std::size_t bytes, unsigned seed) {
  Bytes payload(bytes);
  for (std::size_t i = 0; i < bytes; ++i) payload[i] = static_cast<std::byte>(i * 31 + seed);
  return payload;
}

/// What the writer writes, in pieces of up to `most` bytes.
Bytes written(BulkWriter& writer, std::size_t most) {
  Bytes all;
  iovec pieces[8];
  while (const std::size_t n = writer.pieces(pieces)) {
    const std::size_t bytes = std::min(most, pieces[0].iov_len);
    const auto* from = static_cast<const std::byte*>(pieces[0].iov_base);
    BOOST_REQUIRE(n > 0);
    all.insert(all.end(), from, from + bytes);
    writer.wrote(bytes);
  }
  return all;
}

SealKeys some_keys(bool dialled, SealCipher cipher = SealCipher::aes_256_ocb) {
  SealShare a, b;
  a.fill(std::byte{1});
  b.fill(std::byte{2});
  return dialled ? derive_seal_keys(cipher, a, b, true) : derive_seal_keys(cipher, b, a, false);
}

struct Stream {
  Bytes bytes;
  std::vector<Bytes> payloads;
};

Stream stream_of(const std::optional<SealKeys>& keys, std::vector<std::size_t> sizes, std::size_t most = 1000) {
  Stream s;
  for (const std::size_t size : sizes) s.payloads.push_back(payload_of(size, static_cast<unsigned>(size)));
  BulkWriter writer(keys);
  for (std::uint64_t i = 0; i < sizes.size(); ++i) writer.add(frame_of(i, s.payloads[i]));
  s.bytes = written(writer, most);
  return s;
}

BOOST_AUTO_TEST_CASE(records_carry_frames_whatever_pieces_they_come_in) {
  for (const std::optional<SealCipher> cipher : {std::optional<SealCipher>(), std::optional(SealCipher::aes_256_gcm), std::optional(SealCipher::aes_256_ocb)}) {
    std::optional<SealKeys> out, in;
    if (cipher) out = some_keys(true, *cipher), in = some_keys(false, *cipher);
    for (const std::size_t step : {1, 7, 4096, 1 << 20}) {
      const Stream s = stream_of(out, {40'000, 1, 200'000, 131'072, 131'073}, 5000);
      Hostile reader(true, in);
      for (std::size_t at = 0; at < s.bytes.size(); at += step)
        BOOST_REQUIRE(reader.tell_bulk(std::span(s.bytes).subspan(at, std::min(step, s.bytes.size() - at))));
      BOOST_TEST(reader.received() == 5);
      BOOST_TEST(reader.dropped() == 0);
      BOOST_REQUIRE(reader.last().tensors.size() == 1);
      BOOST_TEST(std::memcmp(reader.last().tensors[0].raw(), s.payloads.back().data(), s.payloads.back().size()) == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(sealed_records_say_nothing_and_cannot_be_changed_left_out_or_repeated) {
  const Stream plain = stream_of({}, {50'000, 50'000}), sealed = stream_of(some_keys(true), {50'000, 50'000});
  const auto contains = [](const Bytes& all, const Bytes& part) {
    return std::search(all.begin(), all.end(), part.begin() + 1000, part.begin() + 1032) != all.end();
  };
  BOOST_TEST(contains(plain.bytes, plain.payloads[0]));
  BOOST_TEST(!contains(sealed.bytes, sealed.payloads[0]));
  const auto received = [](const Bytes& bytes) {
    Hostile reader(true, some_keys(false));
    const bool accepted = reader.tell_bulk(bytes);
    BOOST_TEST(reader.dropped() == (accepted ? 0u : 1u));
    return reader.received();
  };
  const Bytes& whole = sealed.bytes;
  const auto half = static_cast<std::ptrdiff_t>(whole.size() / 2);
  BOOST_TEST(received(whole) == 2);
  for (const std::size_t at : {std::size_t{0}, std::size_t{9}, kBulkPrefix, kBulkPrefix + 30, std::size_t{400}, whole.size() / 2 - 1}) {
    Bytes changed = whole;
    changed[at] ^= std::byte{1};
    BOOST_TEST(received(changed) == 0, at);
  }
  Bytes repeated(whole.begin(), whole.begin() + half);
  repeated.insert(repeated.end(), whole.begin(), whole.begin() + half);
  BOOST_TEST(received(repeated) == 1);
  BOOST_TEST(received(Bytes(whole.begin() + half, whole.end())) == 0);  // the first is left out
  Bytes other = stream_of(some_keys(false), {50'000}).bytes;                   // the other direction's key
  BOOST_TEST(received(other) == 0);
  BOOST_TEST(received(plain.bytes) == 0);
  BOOST_TEST(received(stream_of(some_keys(true, SealCipher::aes_256_gcm), {50'000}).bytes) == 0);  // sealed by the other cipher
}

BOOST_AUTO_TEST_CASE(what_is_put_by_for_a_missing_frame_is_bounded) {
  Hostile victim(true);
  const Bytes payload = payload_of(100'000, 1);
  std::uint64_t told = 0;
  while (victim.dropped() == 0 && told < 10'000) {
    const Ref<OutFrame> frame = frame_of(++told, payload);  // number 0 never comes
    victim.tell_open(frame->header, payload);
  }
  BOOST_TEST(victim.received() == 0);
  BOOST_TEST(told * payload.size() >= 2 * RouterOptions{}.window);
  BOOST_TEST(told * payload.size() < 2 * RouterOptions{}.window + 3 * payload.size());
}

BOOST_AUTO_TEST_CASE(damaged_records_are_refused_or_read) {
  std::mt19937_64 random(30);
  const Stream s = stream_of({}, {40'000, 1, 0, 70'000});
  Hostile victim(true);
  std::uint64_t refused = 0, read = 0;
  for (int round = 0; round < 3000; ++round) {
    Bytes bytes = s.bytes;
    for (std::uint64_t n = random() % 3; n > 0; --n) bytes[random() % (random() % 2 ? 100 : bytes.size())] = static_cast<std::byte>(random());
    bytes.resize(bytes.size() - random() % 3 * 1000);
    (victim.tell_bulk(bytes) ? read : refused) += 1;
    victim.tell(std::span(bytes).subspan(kBulkPrefix, 40), {});
    victim.forget();
  }
  BOOST_TEST(refused > 0);
  BOOST_TEST(read > 0);
  BOOST_TEST(victim.received() > 0);
}

BOOST_AUTO_TEST_CASE(what_is_urgent_goes_before_what_has_not_begun) {
  BulkWriter writer({});
  const Bytes payload = payload_of(1000, 1);
  std::vector<Ref<OutFrame>> frames;
  for (std::uint64_t i = 0; i < 5; ++i) frames.push_back(frame_of(i, payload));
  for (std::uint64_t i = 0; i < 2; ++i) {
    frames.push_back(Ref<OutFrame>(new OutFrame));
    frames.back()->header = wire::encode(wire::Ack{{i, i}});
    frames.back()->is_urgent = true;
  }
  for (const int i : {0, 1, 2}) writer.add(frames[i]);
  iovec pieces[24];
  BOOST_REQUIRE(writer.pieces(pieces) > 3);  // more than the first is prepared
  writer.wrote(10);
  for (const int i : {5, 3, 6, 4}) writer.add(frames[i]);
  const Bytes rest = written(writer, 700);
  std::vector<std::size_t> headers;
  for (std::size_t at = kBulkPrefix - 10 + frames[0]->header.size() + 1000; at < rest.size();) {
    std::uint32_t header;
    std::uint64_t bulk;
    std::memcpy(&header, rest.data() + at, sizeof header);
    std::memcpy(&bulk, rest.data() + at + 8, sizeof bulk);
    headers.push_back(bulk);
    at += kBulkPrefix + header + bulk;
  }
  BOOST_TEST((headers == std::vector<std::size_t>{0, 0, 1000, 1000, 1000, 1000}));
}

// ---- by loan

struct Lent {
  OwnedDescriptor memory = make_slab(1 << 20);
  std::vector<Bytes> payloads;
  Bytes stream(std::vector<std::size_t> sizes) {
    for (const std::size_t size : sizes) payloads.push_back(payload_of(size, static_cast<unsigned>(size)));
    BulkWriter writer({});
    writer.use(LendingSlab::open(memory));
    for (std::uint64_t i = 0; i < sizes.size(); ++i) writer.add(frame_of(i, payloads[i]));
    return written(writer, 1000);
  }
};

BOOST_AUTO_TEST_CASE(a_tensor_lies_where_its_bytes_were_lent) {
  Lent lent;
  const Bytes stream = lent.stream({40'000, 200'000, 500'000});
  BOOST_TEST(stream.size() < 1000u);  // only where they are
  Hostile reader(true, {}, BorrowedSlab::open(lent.memory));
  for (const std::byte b : stream) BOOST_REQUIRE(reader.tell_bulk({&b, 1}));
  BOOST_TEST(reader.received() == 3u);
  BOOST_TEST(reader.copied_bytes() == 0u);
  BOOST_TEST(std::memcmp(reader.last().tensors[0].raw(), lent.payloads.back().data(), lent.payloads.back().size()) == 0);
  // What has no room there comes in the record.
  Lent much;
  const Bytes both = much.stream({600'000, 600'000});
  BOOST_TEST(both.size() > 600'000u);
  BOOST_TEST(both.size() < 601'000u);
}

BOOST_AUTO_TEST_CASE(loans_that_lie_are_refused) {
  Lent lent;
  const Bytes stream = lent.stream({40'000});
  const auto accepted = [&](std::size_t at, std::uint64_t said, bool has_slab = true) {
    Bytes bytes = stream;
    std::memcpy(bytes.data() + at, &said, at < kBulkPrefix ? 4 : 8);
    Hostile reader(true, {}, has_slab ? BorrowedSlab::open(lent.memory) : Ref<BorrowedSlab>());
    const bool is_read = reader.tell_bulk(bytes);
    BOOST_TEST(reader.dropped() == (is_read ? 0u : 1u));
    return is_read && reader.received() == 1;
  };
  BOOST_TEST(accepted(4, 1));
  BOOST_TEST(!accepted(4, 1, false));  // nothing is lent on this channel
  BOOST_TEST(!accepted(4, 2));         // no such place
  BOOST_TEST(!accepted(kBulkPrefix, SlabMemory::kSlots));
  BOOST_TEST(!accepted(kBulkPrefix + 8, 1));                          // not a page's beginning
  BOOST_TEST(!accepted(kBulkPrefix + 8, std::uint64_t{1} << 20));     // beyond the end
  BOOST_TEST(!accepted(kBulkPrefix + 16, std::uint64_t{2} << 20));    // longer than the slab
  BOOST_TEST(!accepted(kBulkPrefix + 16, 39'999));                    // shorter than what is said to lie there
  BOOST_TEST(!accepted(kBulkPrefix + 24, 1));                         // and so with an offset
  BOOST_TEST(!accepted(kBulkPrefix + 24, ~std::uint64_t{0}));
  BOOST_TEST(accepted(kBulkPrefix + 16, 50'000));  // a larger loan than the tensor: it is copied out
}

BOOST_AUTO_TEST_CASE(damaged_loans_are_refused_or_read) {
  std::mt19937_64 random(31);
  Lent lent;
  const Bytes stream = lent.stream({40'000, 50'000, 60'000});
  Hostile victim(true, {}, BorrowedSlab::open(lent.memory));
  std::uint64_t refused = 0, read = 0;
  for (int round = 0; round < 3000; ++round) {
    Bytes bytes = stream;
    for (std::uint64_t n = random() % 3; n > 0; --n) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    (victim.tell_bulk(bytes) ? read : refused) += 1;
    victim.forget();
  }
  BOOST_TEST(refused > 0u);
  BOOST_TEST(read > 0u);
  BOOST_TEST(victim.received() > 0u);
}

BOOST_AUTO_TEST_CASE(what_is_checked_is_copied_out) {
  Lent lent;
  const Bytes payload(40'000, std::byte{1});
  Ref<OutFrame> frame = frame_of(0, payload);
  frame->header.clear();
  wire::encode_data({.lane = Lane::data, .sequence = 0, .received = {}, .messages = {{.head_bytes = 0, .tensors = {{DType::boolean, Shape{40'000}}}}}}, 1, frame->header);
  BulkWriter writer({});
  writer.use(LendingSlab::open(lent.memory));
  writer.add(frame);
  Hostile reader(true, {}, BorrowedSlab::open(lent.memory));
  BOOST_TEST(reader.tell_bulk(written(writer, 1000)));
  BOOST_TEST(reader.received() == 1u);
  BOOST_TEST(reader.copied_bytes() == 40'000u);
}

// ---- over TCP

std::string at_port(int port) { return fmt::format("tcp://127.0.0.1:{}", port); }
int port_of(const std::string& address) { return std::stoi(address.substr(address.rfind(':') + 1)); }

/// b is connected to a.
struct Pair {
  Pair(const ZeroMqOptions& of_a, const ZeroMqOptions& of_b)
      : a(make_zeromq_transport({.name = "a", .incarnation = 1, .address = "tcp://127.0.0.1:0", .engine = ""}, of_a)),
        b(make_zeromq_transport({.name = "b", .incarnation = 1, .address = "tcp://127.0.0.1:0", .engine = ""}, of_b)) {
    a->start(heard_a);
    b->start(heard_b);
    b->connect(a->address());
    BOOST_REQUIRE(wait_until(bell, [&] { return !heard_a.peers.empty() && !heard_b.peers.empty(); }));
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
    BOOST_REQUIRE(wait_until(bell, [&] { return heard_a.got.size() >= to && heard_b.got.size() >= to; }));
    for (const RecordingListener* heard : {&heard_a, &heard_b}) {
      BOOST_REQUIRE(heard->got.size() == to);
      for (std::uint64_t i = from; i < to; ++i) BOOST_REQUIRE(is_numbered(heard->got[i].message, i));
      BOOST_TEST(heard->losses.empty());
    }
  }
  /// Until the channel is there in both directions.
  void warm_up() {
    for (std::uint64_t n = 0; a->counters().bulk_bytes_in == 0 || b->counters().bulk_bytes_in == 0; n += 3) {
      BOOST_REQUIRE(n < 3000);
      exchange(n, n + 3, 100'000);
      next = n + 3;
    }
  }
  Bell bell;
  RecordingListener heard_a{bell}, heard_b{bell};
  std::unique_ptr<Transport> a, b;
  Peer to_b = 0, to_a = 0;
  std::uint64_t next = 0;
};

// What the one has not got yet when it hears that the other leaves it does not take any more: neither waits until the time for that is over.
BOOST_AUTO_TEST_CASE(two_that_leave_at_once_do_not_wait_for_each_other, *utf::label("stock_zmq")) {
  for (const bool shared : {true, false}) {
    ZeroMqOptions options{.shared_memory = shared};
    options.router.drain = std::chrono::seconds(100);
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

// A router's surroundings in which nothing happens.
class Still final : public Carrier, public TransportListener {
 public:
  Connection dial(const std::string&) override { return 1; }
  bool send(Connection, const Ref<OutFrame>&) override { return true; }
  void close(Connection) override {}
  Time now() const override { return std::chrono::seconds(1); }
  void connected(Peer, const PeerInfo&) override {}
  void refused(const std::string&, const Status&) override {}
  void received(Peer, Lane, Message) override {}
  void lost(Peer, const Status&) override {}
};

BOOST_AUTO_TEST_CASE(who_listens_chooses_of_the_kinds_that_are_asked_for) {
  Still still;
  Router router({.name = "a", .incarnation = 1, .address = "", .engine = ""}, {}, still, still);
  BulkChannels channels(router, still, {.shared_memory = false});
  channels.listen("tcp://127.0.0.1:1", false);
  const auto bit = [](BulkKind kind) { return static_cast<std::uint8_t>(kind); };
  const std::uint8_t gcm = bit(BulkKind::gcm_tcp), ocb = bit(BulkKind::ocb_tcp), tcp = bit(BulkKind::tcp);
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
  BOOST_TEST(answer(gcm | ocb, true).kinds == (seal_ciphers().front() == SealCipher::aes_256_ocb ? ocb : gcm));
  BOOST_TEST((answer(ocb, true).share != SealShare{}));
  BOOST_TEST(answer(tcp, true).kinds == 0);  // never clear text between those who have keys
  BOOST_TEST(answer(0, true).kinds == 0);
  BOOST_TEST(answer(gcm | ocb, false).kinds == 0);
  BOOST_TEST(answer(tcp | gcm, false).kinds == tcp);
}

BOOST_AUTO_TEST_CASE(all_connections_have_the_congestion_control_that_is_asked_for, *utf::label("stock_zmq")) {
  for (const char* asked : {"reno", "cubic"}) {
    Pair pair({.congestion = asked, .shared_memory = false}, {.congestion = asked, .shared_memory = false});
    pair.warm_up();
    int connections = 0;
    for (int fd = 0; fd < 1024; ++fd) {
      sockaddr_storage there;
      socklen_t size = sizeof there;
      char name[16] = {};
      socklen_t length = sizeof name - 1;
      if (getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) != 0 || there.ss_family != AF_INET) continue;
      if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0) continue;
      ++connections;
      BOOST_TEST(std::string(name) == asked, "descriptor " << fd);
    }
    BOOST_TEST(connections >= 4);  // of ZeroMQ and beside it, both ends
  }
}

BOOST_AUTO_TEST_CASE(payload_is_not_copied_and_sealed_once, *utf::label("stock_zmq")) {
  for (const bool sealed : {false, true}) {
    Pair pair({.shared_memory = false, .seal = sealed}, {.shared_memory = false, .seal = sealed});
    pair.warm_up();
    const TransportCounters before = pair.b->counters();
    pair.exchange(pair.next, pair.next + 30, 2'000'000);
    const TransportCounters after = pair.b->counters();
    const std::uint64_t in = after.bulk_bytes_in - before.bulk_bytes_in, out = after.bulk_bytes_out - before.bulk_bytes_out;
    BOOST_TEST(in == 40'000'000u);
    BOOST_TEST(out == 40'000'000u);
    const std::uint64_t copied = after.copied_bytes - before.copied_bytes;
    BOOST_TEST(copied >= (sealed ? in + out : 0));
    BOOST_TEST(copied < (sealed ? in + out : 0) + 100'000);
  }
}

BOOST_AUTO_TEST_CASE(a_bulk_channel_that_is_cut_loses_and_repeats_nothing, *utf::label("stock_zmq")) {
  for (const bool sealed : {false, true}) {
    const OwnPort port;
    Relay relay(at_port(port.number()));
    Pair pair({.shared_memory = false, .bulk_port = port.number(), .bulk_port_outside = port_of(relay.address()), .seal = sealed}, {.seal = sealed});
    pair.warm_up();
    for (int cut = 0; cut < 4; ++cut) {
      const std::uint64_t from = pair.next, to = from + 60;
      for (std::uint64_t i = from; i < to; ++i) {
        pair.a->send(pair.to_b, Lane::data, numbered(i, i % 3 ? 900'000 : 100));
        pair.b->send(pair.to_a, Lane::data, numbered(i, i % 3 ? 900'000 : 100));
      }
      // In the midst of it.
      BOOST_REQUIRE(wait_until(pair.bell, [&] { return pair.heard_a.got.size() > from + 5 && pair.heard_b.got.size() > from + 5; }));
      relay.cut();
      BOOST_REQUIRE(wait_until(pair.bell, [&] { return pair.heard_a.got.size() >= to && pair.heard_b.got.size() >= to; }));
      for (const RecordingListener* heard : {&pair.heard_a, &pair.heard_b})
        for (std::uint64_t i = from; i < to; ++i) BOOST_REQUIRE(is_numbered(heard->got[i].message, i));
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
BOOST_AUTO_TEST_CASE(a_key_that_is_used_up_is_followed_by_another_and_nothing_is_lost, *utf::label("stock_zmq")) {
  const ZeroMqOptions options{.shared_memory = false, .seal = true, .seal_boxes = 53};
  Pair pair(options, options);
  pair.warm_up();
  for (int round = 0; round < 5; ++round) {
    pair.exchange(pair.next, pair.next + 60, 900'000);
    pair.next += 60;
  }
  // How many, depends on how soon a channel is there again: until then payload goes over the connection.
  for (int more = 0; pair.a->counters().reconnects + pair.b->counters().reconnects < 10; ++more) {
    BOOST_REQUIRE(more < 200);
    pair.exchange(pair.next, pair.next + 60, 900'000);
    pair.next += 60;
  }
  BOOST_TEST(pair.heard_a.peers.size() == 1);
}

BOOST_AUTO_TEST_CASE(without_a_bulk_channel_all_goes_over_the_connection, *utf::label("stock_zmq")) {
  constexpr int nobody = 1;
  const std::pair<ZeroMqOptions, ZeroMqOptions> refusals[] = {
      {{.shared_memory = false, .bulk_port_outside = nobody}, {}},    // a firewall
      {{.bulk = false}, {}},
      {{}, {.bulk = false}},
      {{.shared_memory = false, .seal = true}, {.seal = false}},      // no clear text for who wants none
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

BOOST_AUTO_TEST_CASE(processes_of_one_host_share_memory_for_as_long_as_they_live, *utf::label("stock_zmq")) {
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

BOOST_AUTO_TEST_CASE(who_keeps_much_gets_copies, *utf::label("stock_zmq")) {
  Pair pair({.slab_bytes = 5'000'000}, {.slab_bytes = 5'000'000});
  pair.warm_up();
  const TransportCounters before = pair.b->counters();
  pair.exchange(pair.next, pair.next + 30, 2'000'000);  // both keep what they have got
  const TransportCounters after = pair.b->counters();
  BOOST_TEST(after.copied_bytes - before.copied_bytes > 70'000'000u);
  BOOST_TEST(after.copied_bytes - before.copied_bytes < 81'000'000u);
  // What they no longer keep can be lent again.
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
  const auto copied = [&] { return pair.a->counters().copied_bytes + pair.b->counters().copied_bytes; };
  const std::uint64_t before = copied();
  for (std::uint64_t i = 0; i < 5; ++i) send(pair.next + i, false);
  BOOST_TEST(copied() - before < 100'000u);
  send(pair.next + 5, true);  // what somebody else holds is
  BOOST_TEST(copied() - before > 3'000'000u);
}

BOOST_AUTO_TEST_CASE(tensors_outlive_who_lent_them, *utf::label("stock_zmq")) {
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

BOOST_AUTO_TEST_CASE(who_has_no_ticket_is_closed, *utf::label("stock_zmq")) {
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
  for (const std::string& said : {std::string("GET / HTTP/1.1\r\n\r\n"), guess, std::string(100'000, '\x7f')}) {
    const OwnedDescriptor stranger = dial();
    BOOST_TEST(send(stranger.get(), said.data(), said.size(), MSG_NOSIGNAL) > 0);
    BOOST_TEST(is_closed(stranger));
    BOOST_TEST(pair.a->counters().dropped > dropped);
    dropped = pair.a->counters().dropped;
  }
  // Those that say nothing: the oldest leaves for one too many, the others after their time.
  std::vector<OwnedDescriptor> silent;
  for (std::size_t i = 0; i <= BulkSockets::kStrangers; ++i) silent.push_back(dial());
  for (const OwnedDescriptor& fd : silent) BOOST_TEST(is_closed(fd));
  pair.exchange(pair.next, pair.next + 6, 300'000);
  BOOST_TEST(pair.b->counters().reconnects == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
