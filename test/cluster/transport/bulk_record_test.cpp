// Not under tsan: it encodes and decodes on one thread.
// Bulk records of the bulk channel, in memory: wire frames and their bulk in pieces, sealed, by
// loan, damaged.
#include <troupe/cluster/transport/channel/bulk_record.hpp>
#include <troupe/test/support/cluster/golden.hpp>
#include <troupe/test/support/cluster/hostile.hpp>

#include <algorithm>
#include <cstring>
#include <random>

#include <sys/uio.h>
#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(bulk_record_test)

namespace {

using namespace troupe;
using namespace troupe::test;
using Bytes = std::vector<std::byte>;

Ref<OutFrame> frame_of(std::uint64_t sequence, const Bytes& payload) {
  Ref<OutFrame> frame(new OutFrame);
  wire::Data data{.lane = Lane::data, .sequence = sequence, .received = {}, .messages = {}};
  data.messages.push_back(
      {.head_bytes = 0,
       .tensors = {{DType::u8, Shape{static_cast<std::int64_t>(payload.size())}}}});
  wire::encode_data(data, 1, frame->header);
  struct Held final : Counted {
    Tensor tensor;
  };
  Ref<Held> held(new Held);
  held->tensor =
      Tensor::of(std::span(reinterpret_cast<const std::uint8_t*>(payload.data()), payload.size()),
                 Shape{static_cast<std::int64_t>(payload.size())});
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

/// Returns the writer's output, in pieces of up to `most` bytes.
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

Stream stream_of(const std::optional<SealKeys>& keys, std::vector<std::size_t> sizes,
                 std::size_t most = 1000) {
  Stream s;
  for (const std::size_t size : sizes)
    s.payloads.push_back(payload_of(size, static_cast<unsigned>(size)));
  BulkWriter writer(keys);
  for (std::uint64_t i = 0; i < sizes.size(); ++i) writer.add(frame_of(i, s.payloads[i]));
  s.bytes = written(writer, most);
  return s;
}

BOOST_AUTO_TEST_CASE(records_carry_frames_whatever_pieces_they_come_in) {
  for (const std::optional<SealCipher> cipher :
       {std::optional<SealCipher>(), std::optional(SealCipher::aes_256_gcm),
        std::optional(SealCipher::aes_256_ocb)}) {
    std::optional<SealKeys> out, in;
    if (cipher) out = some_keys(true, *cipher), in = some_keys(false, *cipher);
    for (const std::size_t step : {1, 7, 900, 4096, 1 << 20}) {
      const Stream s = stream_of(out, {40'000, 1, 17, 300, 5, 200'000, 131'072, 131'073}, 5000);
      Hostile reader(true, in);
      for (std::size_t at = 0; at < s.bytes.size(); at += step)
        BOOST_REQUIRE(
            reader.tell_bulk(std::span(s.bytes).subspan(at, std::min(step, s.bytes.size() - at))));
      BOOST_TEST(reader.received() == 8);
      BOOST_TEST(reader.dropped() == 0);
      BOOST_REQUIRE(reader.last().tensors.size() == 1);
      BOOST_TEST(std::memcmp(reader.last().tensors[0].raw(), s.payloads.back().data(),
                             s.payloads.back().size()) == 0);
    }
  }
}

/// As OutLane gathers them: their bytes are in the header.
Ref<OutFrame> small_messages(std::uint64_t sequence, int count) {
  Ref<OutFrame> frame(new OutFrame);
  wire::Data data{.lane = Lane::data, .sequence = sequence, .received = {}, .messages = {}};
  for (int i = 0; i < count; ++i)
    data.messages.push_back({.head_bytes = 0, .tensors = {{DType::u8, Shape{64}}}});
  wire::encode_data(data, static_cast<std::size_t>(count), frame->header);
  const Bytes all = payload_of(static_cast<std::size_t>(count) * 64, 3);
  frame->header.insert(frame->header.end(), all.begin(), all.end());
  return frame;
}

BOOST_AUTO_TEST_CASE(small_messages_are_copied_once_from_a_socket) {
  // As many bytes at a time as there is room for: the head of a bulk record comes with what is
  // behind it, up to the beginning of the next.
  BulkWriter writer({});
  for (const std::uint64_t i : {0, 1, 2, 3}) writer.add(small_messages(i, 250));
  Hostile large(true);
  BOOST_REQUIRE(large.tell_bulk(written(writer, 1 << 20)));
  BOOST_TEST(large.received() == 1000u);
  BOOST_TEST(large.copied_bytes() == 1000u * 64);
  BOOST_TEST(
      std::memcmp(large.last().tensors[0].raw(), payload_of(16'000, 3).data() + 249 * 64, 64) == 0);
  // Several bulk records in one read: each is passed on in place, and the part of a bulk record
  // that is cut off by the read is moved.
  for (std::uint64_t i = 0; i < 40; ++i) writer.add(small_messages(i, 2));
  Hostile small(true);
  BOOST_REQUIRE(small.tell_bulk(written(writer, 1 << 20)));
  BOOST_TEST(small.received() == 80u);
  BOOST_TEST(small.copied_bytes() >= 80u * 64);
  BOOST_TEST(small.copied_bytes() < 2 * 80u * 64);
  // The part of a payload that came with its head is moved there.
  writer.add(frame_of(0, payload_of(40'000, 1)));
  Hostile payload(true);
  BOOST_REQUIRE(payload.tell_bulk(written(writer, 1 << 20)));
  BOOST_TEST(payload.received() == 1u);
  BOOST_TEST(payload.copied_bytes() > 0u);
  BOOST_TEST(payload.copied_bytes() < kReadAhead);
}

// The channel is not given up with it: its end would overtake the session's last word, which goes
// by the connection.
BOOST_AUTO_TEST_CASE(frames_of_an_ended_session_are_skipped) {
  const Bytes payload = payload_of(100'000, 1);
  const Ref<OutFrame> frame = frame_of(0, payload);
  wire::Data data{.lane = Lane::data, .sequence = 0, .received = {}, .messages = {}};
  // the rest belongs to no message
  data.messages.push_back({.head_bytes = 0, .tensors = {{DType::u8, Shape{10}}}});
  frame->header.clear();
  wire::encode_data(data, 1, frame->header);
  for (const std::size_t step : {std::size_t{7}, std::size_t{900}, payload.size() * 2}) {
    BulkWriter writer({});
    writer.add(frame);
    const Bytes stream = written(writer, payload.size());
    Hostile reader(true);
    for (std::size_t at = 0; at < stream.size(); at += step)
      BOOST_REQUIRE(reader.tell_bulk(
          std::span(stream).subspan(at, std::min(step, stream.size() - at)), false));
    BOOST_TEST(reader.received() == 1u);
  }
}

BOOST_AUTO_TEST_CASE(sealed_records_are_opaque_and_detect_any_change) {
  const Stream plain = stream_of({}, {50'000, 50'000}),
               sealed = stream_of(some_keys(true), {50'000, 50'000});
  const auto contains = [](const Bytes& all, const Bytes& part) {
    return std::search(all.begin(), all.end(), part.begin() + 1000, part.begin() + 1032) !=
           all.end();
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
  for (const std::size_t at : {std::size_t{0}, std::size_t{9}, kBulkPrefix, kBulkPrefix + 30,
                               std::size_t{400}, whole.size() / 2 - 1}) {
    Bytes changed = whole;
    changed[at] ^= std::byte{1};
    BOOST_TEST(received(changed) == 0, at);
  }
  Bytes repeated(whole.begin(), whole.begin() + half);
  repeated.insert(repeated.end(), whole.begin(), whole.begin() + half);
  BOOST_TEST(received(repeated) == 1);
  BOOST_TEST(received(Bytes(whole.begin() + half, whole.end())) == 0);  // the first is left out
  // the other direction's key
  Bytes other = stream_of(some_keys(false), {50'000}).bytes;
  BOOST_TEST(received(other) == 0);
  BOOST_TEST(received(plain.bytes) == 0);
  // sealed by the other cipher
  BOOST_TEST(received(stream_of(some_keys(true, SealCipher::aes_256_gcm), {50'000}).bytes) == 0);
}

BOOST_AUTO_TEST_CASE(frames_buffered_for_a_missing_frame_are_bounded) {
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
    for (std::uint64_t n = random() % 3; n > 0; --n)
      bytes[random() % (random() % 2 ? 100 : bytes.size())] = static_cast<std::byte>(random());
    bytes.resize(bytes.size() - random() % 3 * 1000);
    (victim.tell_bulk(bytes) ? read : refused) += 1;
    victim.tell(std::span(bytes).subspan(kBulkPrefix, 40), {});
    victim.forget();
  }
  BOOST_TEST(refused > 0);
  BOOST_TEST(read > 0);
  BOOST_TEST(victim.received() > 0);
}

BOOST_AUTO_TEST_CASE(urgent_frames_overtake_frames_that_have_not_begun) {
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
    for (const std::size_t size : sizes)
      payloads.push_back(payload_of(size, static_cast<unsigned>(size)));
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
  BOOST_TEST(std::memcmp(reader.last().tensors[0].raw(), lent.payloads.back().data(),
                         lent.payloads.back().size()) == 0);
  // A payload without room there comes in the bulk record.
  Lent much;
  const Bytes both = much.stream({600'000, 600'000});
  BOOST_TEST(both.size() > 600'000u);
  BOOST_TEST(both.size() < 601'000u);
}

// Tensors of a whole number of chunks and a little: the slab has room for two.
BOOST_AUTO_TEST_CASE(returned_loan_is_lent_again_at_any_tensor_size) {
  for (const std::size_t more : {0, 4, 1000, 16 << 10, (16 << 10) + 1}) BOOST_TEST_CONTEXT(more) {
      const std::size_t bytes = (std::size_t{1} << 20) + more;
      const OwnedDescriptor memory = make_slab(3 << 20);
      const Ref<BorrowedSlab> theirs = BorrowedSlab::open(memory);
      BulkWriter writer({});
      writer.use(LendingSlab::open(memory));
      OutLane out(Lane::data);
      for (std::uint64_t i = 0; i < 8; ++i) {
        out.add({{}, {Tensor::zeros(DType::u8, Shape{static_cast<std::int64_t>(bytes)})}});
        while (const Ref<OutFrame> frame = out.next({}, bytes)) writer.add(frame);
        const Bytes stream = written(writer, 1000);
        BOOST_REQUIRE(stream.size() < 1000u);  // without its bytes
        std::uint64_t place[3];
        std::memcpy(place, stream.data() + kBulkPrefix, sizeof place);
        BOOST_TEST(place[2] == bytes);
        theirs->give_back({.slot = place[0], .position = place[1], .bytes = place[2]});
        BOOST_TEST(out.acknowledge(out.frames()));
      }
    }
}

// For each kind, the writer's bytes equal the files, and the reader accepts the files.
BOOST_AUTO_TEST_CASE(records_are_as_they_were) {
  const std::vector<std::size_t> sizes{40, 3};
  const auto with = [](SealCipher cipher, bool dialled) {
    return std::optional(some_keys(dialled, cipher));
  };
  struct {
    const char* name;
    std::optional<SealKeys> out, in;
  } const kinds[] = {{"bulk_records", {}, {}},
                     {"bulk_records_gcm", with(SealCipher::aes_256_gcm, true),
                      with(SealCipher::aes_256_gcm, false)},
                     {"bulk_records_ocb", with(SealCipher::aes_256_ocb, true),
                      with(SealCipher::aes_256_ocb, false)}};
  for (const auto& [name, out, in] : kinds) {
    const Stream s = stream_of(out, sizes);
    check_golden(name, s.bytes);
    Hostile reader(true, in);
    BOOST_TEST(reader.tell_bulk(golden_bytes(name)));
    BOOST_TEST(reader.received() == 2u);
    BOOST_TEST(std::memcmp(reader.last().tensors.at(0).raw(), s.payloads[1].data(), sizes[1]) == 0);
  }
  Lent lent;
  check_golden("bulk_loans", lent.stream({40'000, 200'000}));
  Hostile reader(true, {}, BorrowedSlab::open(lent.memory));
  BOOST_TEST(reader.tell_bulk(golden_bytes("bulk_loans")));
  BOOST_TEST(reader.received() == 2u);
  BOOST_TEST(std::memcmp(reader.last().tensors.at(0).raw(), lent.payloads[1].data(), 200'000) == 0);
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
  BOOST_TEST(!accepted(4, 2));         // no such location
  BOOST_TEST(!accepted(kBulkPrefix, SlabMemory::kSlots));
  BOOST_TEST(!accepted(kBulkPrefix + 8, 1));                        // not a page's beginning
  BOOST_TEST(!accepted(kBulkPrefix + 8, std::uint64_t{1} << 20));   // beyond the end
  BOOST_TEST(!accepted(kBulkPrefix + 16, std::uint64_t{2} << 20));  // longer than the slab
  // shorter than what is said to lie there
  BOOST_TEST(!accepted(kBulkPrefix + 16, 39'999));
  BOOST_TEST(!accepted(kBulkPrefix + 24, 1));  // and so with an offset
  BOOST_TEST(!accepted(kBulkPrefix + 24, ~std::uint64_t{0}));
  // a larger loan than the tensor: it is copied out
  BOOST_TEST(accepted(kBulkPrefix + 16, 50'000));
}

BOOST_AUTO_TEST_CASE(damaged_loans_are_refused_or_read) {
  std::mt19937_64 random(31);
  Lent lent;
  const Bytes stream = lent.stream({40'000, 50'000, 60'000});
  Hostile victim(true, {}, BorrowedSlab::open(lent.memory));
  std::uint64_t refused = 0, read = 0;
  for (int round = 0; round < 3000; ++round) {
    Bytes bytes = stream;
    for (std::uint64_t n = random() % 3; n > 0; --n)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    (victim.tell_bulk(bytes) ? read : refused) += 1;
    victim.forget();
  }
  BOOST_TEST(refused > 0u);
  BOOST_TEST(read > 0u);
  BOOST_TEST(victim.received() > 0u);
}

BOOST_AUTO_TEST_CASE(checked_payload_is_copied_out_of_shared_memory) {
  Lent lent;
  const Bytes payload(40'000, std::byte{1});
  Ref<OutFrame> frame = frame_of(0, payload);
  frame->header.clear();
  wire::encode_data({.lane = Lane::data,
                     .sequence = 0,
                     .received = {},
                     .messages = {{.head_bytes = 0, .tensors = {{DType::boolean, Shape{40'000}}}}}},
                    1, frame->header);
  BulkWriter writer({});
  writer.use(LendingSlab::open(lent.memory));
  writer.add(frame);
  Hostile reader(true, {}, BorrowedSlab::open(lent.memory));
  BOOST_TEST(reader.tell_bulk(written(writer, 1000)));
  BOOST_TEST(reader.received() == 1u);
  BOOST_TEST(reader.copied_bytes() == 40'000u);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
