// Rings of direct records in shared memory: in order whatever the two threads do, each either in or
// known not to be when its reader gives the ring up, and a peer that lies.
#include <troupe/cluster/transport/channel/shared_rings.hpp>
#include <troupe/cluster/transport/router.hpp>
#include <troupe/test/support/cluster/golden.hpp>
#include <troupe/test/support/cluster/still.hpp>

#include <boost/test/unit_test.hpp>

#include <unistd.h>

#include <cstring>
#include <random>
#include <semaphore>
#include <thread>

BOOST_AUTO_TEST_SUITE(direct_ring_test)

namespace {

using namespace troupe;

/// A ring in memory of this process.
struct Ring {
  DirectWords words{};
  std::vector<direct::Line> lines = std::vector<direct::Line>(direct::kLines);
  DirectWriter writer{words, lines.data()};
  DirectReader reader{words, lines.data()};
  /// As a writer puts it there that keeps to nothing.
  void put(std::uint64_t line, std::uint64_t front) {
    lines[line % direct::kLines].front.store(front);
  }
};

std::vector<std::byte> record(std::uint64_t number, std::size_t size) {
  std::vector<std::byte> bytes(std::max(size, sizeof number), static_cast<std::byte>(number * 7));
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

/// The number of a direct record that is as `record` makes it; else none.
std::uint64_t number_of(std::span<const std::byte> bytes) {
  std::uint64_t number = 0;
  if (bytes.size() < sizeof number) return UINT64_MAX;
  std::memcpy(&number, bytes.data(), sizeof number);
  return std::ranges::equal(bytes, record(number, bytes.size())) ? number : UINT64_MAX;
}

// On lines that were 0: a direct record of one line, and one of three.
BOOST_AUTO_TEST_CASE(lines_are_as_they_were) {
  constexpr std::size_t kUsed = 4;
  Ring ring;
  ring.reader.open(0);
  BOOST_TEST(ring.writer.write(7, record(1, 20), true));
  BOOST_TEST(ring.writer.write(8, record(2, 150), true));
  std::vector<std::byte> bytes(kUsed * sizeof(direct::Line));
  std::memcpy(bytes.data(), static_cast<const void*>(ring.lines.data()), bytes.size());
  troupe::test::check_golden("direct_records", bytes);
  Ring another;
  another.reader.open(8);
  const std::vector<std::byte> was = troupe::test::golden_bytes("direct_records");
  std::memcpy(static_cast<void*>(another.lines.data()), was.data(), was.size());
  another.reader.look();
  for (const std::uint64_t number : {1, 2}) {
    const auto first = another.reader.first();
    BOOST_REQUIRE(first.has_value());
    BOOST_TEST(number_of(first->bytes) == number);
    BOOST_TEST(first->after == number + 6);
    another.reader.take();
  }
  BOOST_TEST(!another.reader.first().has_value());
}

BOOST_AUTO_TEST_CASE(records_arrive_in_order_and_whole_and_no_bell_is_missed) {
  constexpr std::uint64_t kRecords = 200'000;
  SharedRings mine = SharedRings::create(),
              theirs = SharedRings::open(OwnedDescriptor(dup(mine.descriptor())));
  theirs.direct_in().open(0);
  std::counting_semaphore<> bell{0};
  std::uint64_t full = 0;
  std::jthread writer([&] {
    std::mt19937_64 random(1);
    for (std::uint64_t i = 0; i < kRecords;) {
      if (!mine.direct_out().write(
              i, record(i, random() % 100 == 0 ? direct::kMost : random() % 200))) {
        ++full;
        std::this_thread::yield();
        continue;
      }
      ++i;
      if (mine.wakes_reader()) bell.release();
    }
  });
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < kRecords;) {
    theirs.direct_in().look();
    const auto first = theirs.direct_in().first();
    if (!first) {
      if (theirs.sleep_until_bytes()) bell.acquire();
      continue;
    }
    wrong += first->after != i || number_of(first->bytes) != i;
    theirs.direct_in().take();
    ++i;
  }
  writer.join();
  BOOST_TEST(wrong == 0);
  BOOST_TEST(!theirs.direct_in().is_broken());
  BOOST_TEST_MESSAGE("found full " << full << " times");
}

// The reader gives it up in the midst of it: what the writer knows to be in is all there is.
BOOST_AUTO_TEST_CASE(a_ring_that_is_given_up_has_all_written_records) {
  for (int round = 0; round < 300; ++round) {
    Ring ring;
    ring.reader.open(0);
    std::uint64_t in = 0, out = 0;
    std::atomic<std::uint64_t> begun{0};
    std::jthread writer([&] {
      while (ring.writer.write(0, record(in, in % 90))) begun.store(++in);
    });
    while (begun.load() < static_cast<std::uint64_t>(round % 40)) std::this_thread::yield();
    const auto take_all = [&] {
      for (; const auto first = ring.reader.first(); ring.reader.take(), ++out)
        BOOST_REQUIRE(number_of(first->bytes) == out);
    };
    if (round % 2 == 0) ring.reader.look();
    take_all();
    ring.reader.close();
    writer.join();
    take_all();
    BOOST_REQUIRE(in == out);
    BOOST_REQUIRE(!ring.writer.write(0, record(in, 8)));
    ring.reader.open(0);  // once
    BOOST_REQUIRE(!ring.writer.write(0, record(in, 8)));
  }
}

// A ring without a front that shows it has no room for more, for good.
BOOST_AUTO_TEST_CASE(a_full_ring_is_given_up_too) {
  for (const std::size_t size :
       {direct::kFirst, direct::kFirst + direct::kOther, std::size_t{1000}}) {
    Ring ring;
    ring.reader.open(0);
    std::uint64_t in = 0, out = 0;
    while (ring.writer.write(0, record(in, size))) ++in;
    BOOST_TEST(in == direct::kLines / direct::lines_of(size));
    ring.reader.look();
    for (; out < 2; ++out, ring.reader.take())
      BOOST_TEST(number_of(ring.reader.first()->bytes) == out);
    BOOST_TEST(ring.writer.write(0, record(in++, size)));
    BOOST_TEST(ring.writer.write(0, record(in++, size)));
    ring.reader.close();
    for (; const auto first = ring.reader.first(); ring.reader.take(), ++out)
      BOOST_REQUIRE(number_of(first->bytes) == out);
    BOOST_TEST(in == out);
    BOOST_TEST(!ring.reader.is_broken());
    BOOST_TEST(!ring.writer.write(0, record(in, size)));
    BOOST_TEST(!ring.writer.write(0, record(in, 8)));
  }
}

BOOST_AUTO_TEST_CASE(nothing_goes_into_a_ring_that_is_not_open_or_has_no_room) {
  Ring ring;
  BOOST_TEST(!ring.writer.write(0, record(0, 8)));
  ring.reader.open(0);
  BOOST_TEST(!ring.writer.write(0, {}));
  BOOST_TEST(!ring.writer.write(0, std::vector<std::byte>(direct::kMost + 1)));
  constexpr std::size_t kFourLines = direct::kFirst + 3 * direct::kOther;
  std::uint64_t in = 0;
  while (ring.writer.write(0, record(in, kFourLines))) ++in;
  BOOST_TEST(in == direct::kLines / 4);
  BOOST_TEST(!ring.reader.first());
  ring.reader.look();
  BOOST_TEST(ring.reader.first().has_value());
  BOOST_TEST(ring.reader.has_first());
  BOOST_TEST(!ring.writer.write(0, record(in, kFourLines)));  // looked at, not taken
  ring.reader.take();
  BOOST_TEST(ring.writer.write(0, record(in, kFourLines)));
}

// A writer breaks the protocol: bytes beyond the permitted range are not read. A look covers no
// more than a ring holds, however much is taken meanwhile, and after the end there is no more than
// there was then.
BOOST_AUTO_TEST_CASE(a_writer_cannot_keep_its_reader_at_it) {
  Ring never_open;
  never_open.put(0, direct::front_of(0, 8));
  BOOST_TEST(!never_open.reader.has_any());
  never_open.reader.look();
  BOOST_TEST(!never_open.reader.first());
  never_open.reader.close();
  BOOST_TEST(!never_open.reader.first());
  Ring ring;
  ring.reader.open(0);
  ring.reader.look();
  std::uint64_t in = 0;
  const auto write = [&] { return ring.writer.write(0, record(in, 8)) && ++in; };
  BOOST_TEST(write());
  for (std::uint64_t taken = 0; taken < direct::kLines; ++taken) {
    BOOST_REQUIRE(write());
    BOOST_REQUIRE(ring.reader.first().has_value());
    ring.reader.take();
  }
  BOOST_TEST(!ring.reader.first());
  BOOST_TEST(ring.reader.has_any());
  ring.reader.look();
  BOOST_TEST(ring.reader.first().has_value());
  ring.reader.close();
  ring.put(in, direct::front_of(in, 8));
  ring.reader.take();
  BOOST_TEST(!ring.reader.first());
  BOOST_TEST(!ring.reader.has_any());
}

BOOST_AUTO_TEST_CASE(a_record_that_may_not_wait_does_not) {
  Ring ring;
  ring.reader.open(5);
  BOOST_TEST(ring.writer.write(5, record(1, 8), false));
  BOOST_TEST(!ring.writer.write(6, record(2, 8), false));
  BOOST_TEST(ring.writer.write(6, record(2, 8), true));
  ring.reader.have_come(6);
  BOOST_TEST(ring.writer.write(6, record(3, 8), false));
}

// A direct record that waits for messages keeps no reader awake; another that has not been looked
// at does.
BOOST_AUTO_TEST_CASE(a_record_that_waits_lets_its_reader_sleep) {
  SharedRings mine = SharedRings::create(),
              theirs = SharedRings::open(OwnedDescriptor(dup(mine.descriptor())));
  theirs.direct_in().open(0);
  BOOST_TEST(mine.direct_out().write(3, record(1, 8)));
  BOOST_TEST(!theirs.sleep_until_bytes());
  theirs.direct_in().look();
  BOOST_TEST(theirs.direct_in().first()->after == 3);
  BOOST_TEST(theirs.sleep_until_bytes());
  BOOST_TEST(mine.publish(1));  // a wire frame wakes it
  theirs.direct_in().take();
  BOOST_TEST(!theirs.sleep_until_bytes());  // an unread byte
  BOOST_TEST(theirs.sleep_until_bytes(false));
  BOOST_TEST(mine.direct_out().write(3, record(2, 8)));
  BOOST_TEST(mine.wakes_reader());
  BOOST_TEST(!mine.wakes_reader());
  BOOST_TEST(!theirs.sleep_until_bytes(false));
}

BOOST_AUTO_TEST_CASE(impossible_words_break_the_readers_ring) {
  const auto is_broken = [](std::uint64_t front, bool closes) {
    Ring ring;
    ring.reader.open(0);
    ring.put(0, front);
    if (closes) ring.reader.close();
    else ring.reader.look();
    const bool none = !ring.reader.first();
    BOOST_TEST(none == (ring.reader.is_broken() || !direct::is_front_of(front, 0)));
    return ring.reader.is_broken();
  };
  for (const bool closes : {false, true}) {
    BOOST_TEST(!is_broken(direct::front_of(0, 40), closes));
    BOOST_TEST(!is_broken(direct::front_of(0, direct::kMost), closes));
    BOOST_TEST(!is_broken(direct::front_of(1, 40), closes));  // another line's: none
    BOOST_TEST(!is_broken(direct::kClosed, closes));
    BOOST_TEST(is_broken(direct::front_of(0, 0), closes));
    BOOST_TEST(is_broken(direct::front_of(0, direct::kMost + 1), closes));
    BOOST_TEST(is_broken(direct::front_of(0, 0xffff), closes));
  }
  // Direct records that go on into those that were not taken yet.
  Ring full;
  full.reader.open(0);
  constexpr std::uint64_t kLongest = direct::lines_of(direct::kMost);
  for (std::uint64_t line = 0; line < direct::kLines; line += kLongest)
    full.put(line, direct::front_of(line, direct::kMost));
  full.reader.close();
  BOOST_TEST(full.reader.is_broken());
  // A writer whose peer claims to have read more than was written writes no more.
  Ring ring;
  ring.reader.open(0);
  ring.words.read.store(1 << 20);
  std::uint64_t in = 0;
  while (ring.writer.write(0, record(in, 8))) ++in;
  BOOST_TEST(in == direct::kLines / 2);
}

// ---- at the router

/// A router whose peer, b, is driven by hand.
class Victim final : private test::Still {
 public:
  static constexpr Connection kPeer = 1;
  Router router{
      {.name = "a", .incarnation = 1, .address = "test://a", .engine = ""}, {}, *this, *this};
  std::vector<std::uint64_t> heard;

  void hello() {
    wire::Hello hello;
    hello.info = {
        .name = "b", .incarnation = 1, .address = "", .engine = std::string(engine_version())};
    hello.session = 1;
    hello.window = 1 << 20;
    router.frame(kPeer, wire::encode(hello), {});
  }
  void ready() { router.frame(kPeer, wire::encode(wire::Ready{}), {}); }

 private:
  void received_direct(Peer, std::span<const std::byte> bytes) override {
    heard.push_back(number_of(bytes));
  }
};

BOOST_AUTO_TEST_CASE(a_ring_is_open_while_the_session_is) {
  Victim a;
  const auto ring = std::make_shared<Ring>();
  a.hello();
  BOOST_TEST(a.router.bulk_opened(Victim::kPeer, 0, {ring, &ring->reader}) != 0);
  BOOST_TEST(!ring->writer.write(0, record(1, 8)));  // not confirmed
  a.ready();
  BOOST_TEST(ring->writer.write(0, record(1, 8)));
  BOOST_TEST(a.router.take_direct(Victim::kPeer) == 1u);
  BOOST_TEST(a.router.take_direct(Victim::kPeer) == 0u);
  BOOST_TEST(ring->writer.write(1, record(2, 8)));
  BOOST_TEST(a.router.take_direct(Victim::kPeer) == 0u);  // behind a message that has not come
  a.router.broken(Victim::kPeer, Status(Code::unavailable, "cut"));
  BOOST_TEST(!ring->writer.write(1, record(3, 8)));
  BOOST_TEST(a.heard == std::vector<std::uint64_t>{1}, boost::test_tools::per_element());
  // The next connection's opens when that has come.
  const auto next = std::make_shared<Ring>();
  a.hello();
  a.ready();
  a.router.bulk_opened(Victim::kPeer, 0, {next, &next->reader});
  BOOST_TEST(!next->writer.write(1, record(3, 8)));
}

// A peer that sends Hello twice by one connection gets a second channel, and the first is closed:
// its memory must not be read afterwards.
BOOST_AUTO_TEST_CASE(a_second_channel_takes_the_place_of_the_first) {
  Victim a;
  auto ring = std::make_shared<Ring>();
  a.hello();
  a.ready();
  a.router.bulk_opened(Victim::kPeer, 0, {ring, &ring->reader});
  BOOST_TEST(ring->writer.write(0, record(1, 8)));
  a.hello();
  const auto second = std::make_shared<Ring>();
  a.router.bulk_opened(Victim::kPeer, 0, {second, &second->reader});
  BOOST_TEST(a.heard == std::vector<std::uint64_t>{1}, boost::test_tools::per_element());
  BOOST_TEST(!ring->writer.write(0, record(2, 8)));
  BOOST_TEST(ring.use_count() == 1);
  BOOST_TEST(second->writer.write(0, record(2, 8)));
  BOOST_TEST(a.router.take_direct(Victim::kPeer) == 1u);
}

BOOST_AUTO_TEST_CASE(a_record_after_the_key_was_removed_is_dropped) {
  Victim a;
  const auto ring = std::make_shared<Ring>();
  a.hello();
  a.ready();
  a.router.bulk_opened(Victim::kPeer, 0, {ring, &ring->reader});
  BOOST_TEST(ring->writer.write(0, record(1, 8)));
  a.router.expel([](const std::string&) { return true; });
  BOOST_TEST(a.router.take_direct(Victim::kPeer) == 0u);
  BOOST_TEST(a.heard.empty());
  BOOST_TEST(!ring->reader.has_any());  // it keeps no reader awake
  BOOST_TEST(!ring->writer.write(0, record(2, 8)));
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
