// Not under tsan: it encodes and decodes on one thread.
// The wire format: what is written stays as the golden files have it, and a decoder that gets
// anything else refuses it.
#include <troupe/test/support/cluster/golden.hpp>
#include <troupe/test/support/cluster/hostile.hpp>
#include <troupe/test/support/one_thread.hpp>

#include <boost/test/unit_test.hpp>

#include <fstream>
#include <random>
#include <sstream>

#include <fmt/format.h>
#include <msgpack.hpp>

BOOST_AUTO_TEST_SUITE(wire_test, TROUPE_ONE_THREAD)

namespace {

using namespace troupe;
using namespace troupe::test;
using Bytes = std::vector<std::byte>;

struct Golden {
  const char* name;
  wire::Frame frame;
};

wire::Bulk bulk() {
  wire::Bulk b{.kinds = 3, .host = "here", .where = "7118", .ticket = {}, .share = {}};
  b.ticket.fill(std::byte{0xaa});
  b.share.fill(std::byte{0x55});
  return b;
}

wire::Hello hello() {
  return {.is_answer = false,
          .version = wire::kVersion,
          .info = {.name = "worker1",
                   .incarnation = 1234567890123,
                   .address = "tcp://10.0.0.7:7117",
                   .engine = "0.1.0"},
          .session = 42,
          .resumes = false,
          .window = 8 << 20,
          .received = {0, 0},
          .bulk = bulk()};
}

std::vector<Golden> goldens() {
  wire::Hello answer = hello();
  answer.is_answer = answer.resumes = true;
  answer.received = {3, 70'000};
  wire::Data data{.lane = Lane::data, .sequence = 300, .received = {1, 2}, .messages = {}};
  data.messages.push_back(
      {.head_bytes = 16,
       .tensors = {
           {DType::f32, Shape{64, 128}}, {DType::i64, Shape{}}, {DType::boolean, Shape{0, 3}}}});
  data.messages.push_back({.head_bytes = 0, .tensors = {}});
  return {
      {"hello", hello()},
      {"answer", answer},
      {"ready", wire::Ready{}},
      {"refuse",
       wire::Refuse{"worker2", Status(Code::failed_precondition, "worker1 runs Troupe 9"), true}},
      {"data", data},
      {"empty_data",
       wire::Data{.lane = Lane::control, .sequence = 0, .received = {}, .messages = {}}},
      {"ack", wire::Ack{{255, 1ull << 40}}},
      {"bye", wire::Bye{Status(Code::unavailable, "worker1 has left"), {5, 6}}},
      {"gone", wire::Gone{}}};
}

Status decoded(const Bytes& bytes, wire::Decoded* out = nullptr, wire::Limits limits = {}) {
  wire::Decoded d;
  const Status s = wire::decode(bytes, limits, d);
  if (out) *out = std::move(d);
  return s;
}

/// A wire frame of the test's own making.
template <class F>
Bytes packed(F&& fill) {
  msgpack::sbuffer buffer;
  msgpack::packer<msgpack::sbuffer> p(buffer);
  fill(p);
  const auto* data = reinterpret_cast<const std::byte*>(buffer.data());
  return Bytes(data, data + buffer.size());
}

/// A Data frame of one message with one tensor.
Bytes data_with(std::uint64_t lane, std::uint64_t dtype, const std::vector<std::int64_t>& extents,
                std::uint64_t head_bytes = 0) {
  return packed([&](auto& p) {
    p.pack_array(6).pack_uint8(5);
    p.pack(lane).pack(std::uint64_t{0}).pack(std::uint64_t{0}).pack(std::uint64_t{0});
    p.pack_array(1).pack_array(2).pack(head_bytes);
    p.pack_array(1).pack_array(static_cast<std::uint32_t>(1 + extents.size())).pack(dtype);
    for (const std::int64_t e : extents) p.pack(e);
  });
}

BOOST_AUTO_TEST_CASE(frames_are_written_as_the_golden_files_have_them) {
  for (const Golden& g : goldens()) {
    const Bytes bytes = wire::encode(g.frame);
    check_golden(g.name, bytes);
    wire::Decoded d;
    const Status s = decoded(golden_bytes(g.name), &d);
    BOOST_TEST(s.ok(), g.name << ": " << s.message());
    BOOST_TEST(d.header_bytes == bytes.size());
    BOOST_TEST(hex(wire::encode(d.frame)) == hex(bytes), g.name);
  }
}

BOOST_AUTO_TEST_CASE(inline_bytes_follow_a_data_header) {
  Bytes bytes = golden_bytes("data");
  const std::size_t header = bytes.size();
  bytes.resize(header + 100, std::byte{0xff});
  wire::Decoded d;
  BOOST_TEST(decoded(bytes, &d).ok());
  BOOST_TEST(d.header_bytes == header);
  Bytes ack = golden_bytes("ack");
  ack.push_back(std::byte{0});
  BOOST_TEST((decoded(ack).code() == Code::data_loss));
}

BOOST_AUTO_TEST_CASE(another_version_is_recognised) {
  const Bytes bytes = packed([](auto& p) {
    p.pack_array(4).pack_uint8(1);
    p.pack("troupe").pack(wire::kVersion + 1).pack("whatever comes then");
  });
  wire::Decoded d;
  BOOST_REQUIRE(decoded(bytes, &d).ok());
  BOOST_TEST(std::get<wire::Hello>(d.frame).version == wire::kVersion + 1);
}

BOOST_AUTO_TEST_CASE(every_bound_is_checked) {
  const auto lost = [](const Bytes& b) { return decoded(b).code() == Code::data_loss; };
  const auto exhausted = [](const Bytes& b) {
    return decoded(b).code() == Code::resource_exhausted;
  };
  BOOST_TEST(decoded(data_with(1, 2, {3, 4})).ok());
  BOOST_TEST(lost(data_with(2, 2, {3, 4})));                        // no such priority
  BOOST_TEST(lost(data_with(1, kDTypes, {3, 4})));                  // an invalid dtype
  BOOST_TEST(lost(data_with(1, 2, {1, 1, 1, 1, 1, 1, 1, 1, 1})));   // rank 9
  BOOST_TEST(lost(data_with(1, 2, {3, -1})));                       // an unknown extent
  BOOST_TEST(exhausted(data_with(1, 2, {1ll << 40, 1ll << 40})));   // 2^80 elements
  BOOST_TEST(exhausted(data_with(1, 2, {1ll << 62})));              // 2^64 bytes
  BOOST_TEST(exhausted(data_with(1, 2, {1ll << 35})));              // more than the limit
  BOOST_TEST(exhausted(data_with(1, 2, {1}, 1ull << 60)));          // an oversized head
  BOOST_TEST(exhausted(data_with(1, 4, {1ll << 32}, 1ull << 36)));  // oversized sum of both
  BOOST_TEST(lost(packed([](auto& p) { p.pack_array(1).pack_uint8(99); })));
  BOOST_TEST(lost(packed([](auto& p) { p.pack_array(1).pack_uint8(0); })));
  BOOST_TEST(lost(packed([](auto& p) { p.pack("troupe"); })));
  BOOST_TEST(lost(packed([](auto& p) { p.pack_map(0); })));
  BOOST_TEST(lost(packed([](auto& p) {
    p.pack_array(3).pack_uint8(6);
    p.pack(1).pack(-1);
  })));
  // too long a text
  BOOST_TEST(exhausted(packed([](auto& p) {
    p.pack_array(2).pack_uint8(1);
    p.pack("trouper");
  })));
  BOOST_TEST(lost(packed([](auto& p) {
    p.pack_array(2).pack_uint8(1);
    p.pack("troupE");
  })));
  BOOST_TEST(lost({}));
  // An array of four thousand million elements, in five bytes; and arrays in arrays.
  BOOST_TEST(
      lost({std::byte{0xdd}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff}}));
  BOOST_TEST(lost(Bytes(10'000, std::byte{0x91})));
  wire::Hello wordy = hello();
  wordy.info.name.assign(5000, 'x');
  BOOST_TEST(exhausted(wire::encode(wordy)));
}

BOOST_AUTO_TEST_CASE(no_beginning_of_a_frame_is_a_frame) {
  for (const Golden& g : goldens()) {
    const Bytes whole = wire::encode(g.frame);
    for (std::size_t n = 0; n < whole.size(); ++n)
      BOOST_TEST(
          (decoded(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n))).code() ==
           Code::data_loss),
          g.name << ", " << n);
  }
}

BOOST_AUTO_TEST_CASE(replayed_frames_are_dropped_and_counted) {
  Hostile victim;
  const auto data = [](std::uint64_t sequence) {
    Bytes bytes = wire::encode(wire::Data{.lane = Lane::data,
                                          .sequence = sequence,
                                          .received = {},
                                          .messages = {{.head_bytes = 3, .tensors = {}}}});
    bytes.resize(bytes.size() + 3, std::byte{1});
    return bytes;
  };
  victim.tell(data(0), {});
  BOOST_TEST(victim.received() == 1);
  BOOST_TEST(victim.dropped() == 0);
  victim.tell(data(0), {});
  BOOST_TEST(victim.received() == 1);
  BOOST_TEST(victim.dropped() == 1);
  victim.tell(data(1), {});
  BOOST_TEST(victim.received() == 2);
  victim.tell(data(3), {});  // one is missing: the session ends
  victim.tell(data(2), {});
  BOOST_TEST(victim.received() == 2);
}

BOOST_AUTO_TEST_CASE(the_dialler_gets_an_answer_or_a_refusal) {
  wire::Hello answer = hello();
  answer.is_answer = true;
  answer.info.engine = std::string(engine_version());
  const auto refusal = [](bool redundant) {
    return wire::Refuse{"worker1", Status(Code::unavailable, "worker1 is leaving"), redundant};
  };
  Hostile victim;
  victim.dial_and_tell(refusal(false));
  BOOST_TEST(victim.refusals() == 1u);
  victim.dial_and_tell(refusal(true));  // it dials again, later
  BOOST_TEST(victim.dials() == 2u);
  victim.break_dialled();
  BOOST_TEST(victim.dials() == 3u);
  BOOST_TEST(victim.refusals() == 1u);
  victim.answer(wire::encode(wire::Ready{}), {});  // is no answer
  BOOST_TEST(victim.met() == 0u);
  victim.answer(wire::encode(answer), {});
  BOOST_TEST(victim.met() == 1u);
  BOOST_TEST((victim.offered() == answer.bulk));
  BOOST_TEST(victim.dropped() == 0u);
  victim.answer(wire::encode(answer), {});  // nothing more was asked
  BOOST_TEST(victim.dropped() == 1u);
  victim.dial_and_tell(answer);  // to another dial: it is connected already
  BOOST_TEST(victim.dials() == 4u);
  BOOST_TEST(victim.met() == 1u);
  BOOST_TEST(victim.losses() == 0u);
}

BOOST_AUTO_TEST_CASE(a_redial_gets_the_reason_of_the_end) {
  wire::Hello answer = hello();
  answer.is_answer = true;
  answer.info.engine = std::string(engine_version());
  const auto resumed_by = [&](std::initializer_list<wire::Frame> frames) {
    Hostile victim;
    victim.dial_and_tell(answer);
    victim.break_dialled();
    BOOST_TEST(victim.dials() == 2u);
    for (const wire::Frame& frame : frames) victim.answer(wire::encode(frame), {});
    BOOST_TEST(victim.met() == 1u);
    return victim.losses() == 0u;
  };
  BOOST_TEST(resumed_by({answer}));
  wire::Hello ahead = answer;
  ahead.received = {0, 1};  // acknowledges messages that were never sent
  BOOST_TEST(!resumed_by({ahead}));
  BOOST_TEST(!resumed_by({wire::Refuse{
      "worker1", Status(Code::unavailable, "worker1 has given up this session"), false}}));
  const wire::Bye bye{Status(Code::unavailable, "worker1 has left"), {}};
  BOOST_TEST(!resumed_by({answer, bye}));
  BOOST_TEST(resumed_by({bye}));  // before its answer the node has no part in the session
}

BOOST_AUTO_TEST_CASE(mutated_frames_are_refused_or_read_the_same_again) {
  std::mt19937_64 random(20);
  std::vector<Bytes> seeds;
  for (const Golden& g : goldens()) seeds.push_back(golden_bytes(g.name));
  Hostile victim;
  std::uint64_t executed = 0, accepted = 0;
  for (int round = 0; round < 40'000; ++round) {
    Bytes bytes = seeds[random() % seeds.size()];
    for (std::uint64_t n = 1 + random() % 4; n > 0 && !bytes.empty(); --n) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 5) {
        case 0: bytes[at] = static_cast<std::byte>(random()); break;
        case 1: bytes[at] ^= static_cast<std::byte>(1u << (random() % 8)); break;
        case 2: bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at)); break;
        case 3:
          bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                       static_cast<std::byte>(random()));
          break;
        default:
          bytes.resize(bytes.size() + random() % 64, static_cast<std::byte>(random()));
          break;
      }
    }
    accepted += decode_and_check(bytes);
    const Bytes bulk(random() % 3 ? 0 : random() % 5000, std::byte{1});
    victim.tell(bytes, bulk);
    victim.tell_dialled(bytes, bulk);
    ++executed;
  }
  BOOST_TEST_MESSAGE(fmt::format("{} mutated frames, {} read, {} dropped by the router", executed,
                                 accepted, victim.dropped()));
  BOOST_TEST(executed > 0);
  BOOST_TEST(accepted > 0);
  BOOST_TEST(accepted < executed);
  BOOST_TEST(victim.dropped() > 0);
  // The connection of each broke once, or the dialled node was refused: another life of its name.
  BOOST_TEST(victim.dials() + victim.refusals() >= 2 * executed);
  BOOST_TEST(victim.losses() > 0u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
