// Not under tsan: it encodes and decodes on one thread.
// One priority of a session by itself: messages into wire frames, and wire frames into messages.
#include <boost/test/unit_test.hpp>

#include <troupe/cluster/transport/lane.hpp>
#include <troupe/cluster/transport/wire.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/share.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(lane_test, TROUPE_ONE_THREAD)

namespace {

constexpr std::uint64_t kWindow = 8 << 20;

/// All wire frames that may be sent now.
std::vector<Ref<OutFrame>> frames_of(OutLane& out) {
  std::vector<Ref<OutFrame>> all;
  while (Ref<OutFrame> frame = out.next({}, kWindow)) all.push_back(std::move(frame));
  return all;
}

Status take(InLane& in, const OutFrame& frame, std::vector<Message>& got) {
  wire::Decoded decoded;
  if (Status s = wire::decode(frame.header, {}, decoded); !s.ok()) return s;
  const auto deliver = [&](Message m) { got.push_back(std::move(m)); };
  if (Status s = in.begin(std::get<wire::Data>(decoded.frame),
                          std::span(frame.header).subspan(decoded.header_bytes), deliver);
      !s.ok())
    return s;
  if (Status s =
          in.copy(std::span(static_cast<const std::byte*>(frame.bulk), frame.bulk_bytes), deliver);
      !s.ok())
    return s;
  return in.end();
}

}  // namespace

BOOST_AUTO_TEST_CASE(small_messages_share_frames) {
  constexpr int kMessages = 10'000;
  OutLane out(Lane::data);
  std::uint64_t bytes = 0;
  for (int i = 0; i < kMessages; ++i) {
    Message m{std::vector<std::byte>(static_cast<std::size_t>(i % 60), std::byte(i % 251)),
              {Tensor::scalar<std::int32_t>(i)}};
    bytes += m.head.size() + sizeof i;
    out.add(std::move(m));
  }
  const std::vector<Ref<OutFrame>> frames = frames_of(out);
  BOOST_TEST(out.is_all_sent());
  BOOST_TEST(frames.size() <= (bytes >> 14) + 1);
  InLane in;
  std::vector<Message> got;
  for (const auto& frame : frames) {
    BOOST_TEST(frame->payload_bytes <= 32u << 10);
    BOOST_TEST((frame->payload_bytes >= 16u << 10 || &*frame == &*frames.back()));  // half full
    BOOST_TEST(frame->bulk_bytes == 0u);
    BOOST_TEST(take(in, *frame, got).ok());
  }
  BOOST_REQUIRE(got.size() == static_cast<std::size_t>(kMessages));
  for (int i = 0; i < kMessages; ++i) {
    const Message& m = got[static_cast<std::size_t>(i)];
    BOOST_TEST(
        (m.head == std::vector<std::byte>(static_cast<std::size_t>(i % 60), std::byte(i % 251))));
    BOOST_REQUIRE(m.tensors.size() == 1u);
    BOOST_TEST(m.tensors[0].item<std::int32_t>() == i);
  }
}

BOOST_AUTO_TEST_CASE(lane_sends_large_messages_in_pieces_beside_small_ones) {
  OutLane out(Lane::data);
  const Tensor large = Tensor::zeros(DType::u8, Shape{5 << 19});
  out.add({std::vector<std::byte>(10), {Tensor::scalar(1.f), large}});
  out.add({std::vector<std::byte>(20), {}});
  InLane in;
  std::vector<Message> got;
  std::vector<std::size_t> bulk;
  for (const auto& frame : frames_of(out)) {
    if (frame->bulk_bytes != 0) bulk.push_back(frame->bulk_bytes);
    BOOST_TEST(take(in, *frame, got).ok());
  }
  BOOST_TEST((bulk == std::vector<std::size_t>{1 << 20, 1 << 20, 1 << 19}));
  BOOST_REQUIRE(got.size() == 2u);
  BOOST_TEST(got[0].tensors.at(1).bytes() == large.bytes());
  BOOST_TEST(got[1].head.size() == 20u);
}

// A loan of its memory ends with its last bulk (bulk_record.hpp).
BOOST_AUTO_TEST_CASE(a_tensor_that_begins_as_bulk_ends_as_bulk) {
  constexpr std::int64_t kChunk = 1 << 20, kSmall = 16 << 10;
  for (const std::int64_t bytes :
       {kSmall + 1, kChunk, kChunk + 1, kChunk + kSmall, kChunk + kSmall + 1, 3 * kChunk + 2048}) {
    OutLane out(Lane::data);
    const Tensor large = Tensor::zeros(DType::u8, Shape{bytes});
    out.add({std::vector<std::byte>(10), {large, Tensor::scalar(1.f)}});
    InLane in;
    std::vector<Message> got;
    std::int64_t bulk = 0;
    std::size_t frames = 0;
    for (const auto& frame : frames_of(out)) {
      bulk += static_cast<std::int64_t>(frame->bulk_bytes);
      frames += frame->bulk_bytes != 0;
      BOOST_TEST((frame->bulk_bytes == 0 || frame->whole->raw() == large.raw()));
      BOOST_TEST(take(in, *frame, got).ok());
    }
    BOOST_TEST(bulk == bytes);
    BOOST_TEST(frames == static_cast<std::size_t>((bytes - kSmall - 1) / kChunk + 1));
    BOOST_REQUIRE(got.size() == 1u);
    BOOST_TEST(got[0].tensors.at(0).bytes() == large.bytes());
    BOOST_TEST(got[0].tensors.at(1).item<float>() == 1.f);
  }
}

// An authorized peer may announce more than any machine has. The error is reported once its first
// byte is there, and ends the session, not the node.
BOOST_AUTO_TEST_CASE(lane_refuses_a_message_without_memory_for_it) {
  if (kShare != 1) return;  // sanitizers end a program that asks for so much
  InLane in;
  wire::Data data{
      .lane = Lane::data,
      .messages = {{.head_bytes = 0, .tensors = {{DType::u8, Shape{std::int64_t{1} << 58}}}}}};
  const std::vector<std::byte> first(16);
  const Status s = in.begin(data, first, [](Message) { BOOST_ERROR("nothing is complete"); });
  BOOST_TEST((s.code() == Code::resource_exhausted), s.message());
  BOOST_TEST((s.message().find("288230376151711744") != std::string::npos), s.message());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
