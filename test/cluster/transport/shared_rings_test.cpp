// Rings in shared memory: bytes stay in order whatever the two threads do, no bell is missed, and a
// peer lies.
#include <troupe/cluster/transport/channel/shared_rings.hpp>

#include <boost/test/unit_test.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <semaphore>
#include <thread>

BOOST_AUTO_TEST_SUITE(shared_rings_test)

namespace {

using namespace troupe;

struct Pair {
  SharedRings mine = SharedRings::create(),
              theirs = SharedRings::open(OwnedDescriptor(dup(mine.descriptor())));
};

std::byte value(std::uint64_t i) { return static_cast<std::byte>(i * 7 + (i >> 12)); }

BOOST_AUTO_TEST_CASE(bytes_arrive_in_order_and_no_bell_is_missed) {
  constexpr std::uint64_t kBytes = 5 * SharedRings::kBytes + 12'345;
  Pair pair;
  std::counting_semaphore<> space{0}, bytes{0};  // the bells
  std::jthread writer([&] {
    std::mt19937_64 random(1);
    for (std::uint64_t at = 0; at < kBytes;) {
      const std::span<std::byte> to = pair.mine.space();
      if (to.empty()) {
        if (pair.mine.sleep_until_space()) space.acquire();
        continue;
      }
      const std::size_t n =
          std::min<std::uint64_t>({to.size(), 1 + random() % 300'000, kBytes - at});
      for (std::size_t i = 0; i < n; ++i) to[i] = value(at + i);
      at += n;
      if (pair.mine.publish(n)) bytes.release();
    }
  });
  std::mt19937_64 random(2);
  std::uint64_t at = 0, wrong = 0;
  while (at < kBytes) {
    const std::span<const std::byte> from = pair.theirs.bytes();
    if (from.empty()) {
      if (pair.theirs.sleep_until_bytes()) bytes.acquire();
      continue;
    }
    const std::size_t n = std::min<std::uint64_t>(from.size(), 1 + random() % 300'000);
    for (std::size_t i = 0; i < n; ++i) wrong += from[i] != value(at + i);
    at += n;
    if (pair.theirs.consume(n)) space.release();
  }
  BOOST_TEST(wrong == 0);
  BOOST_TEST(!pair.mine.is_broken());
  BOOST_TEST(!pair.theirs.is_broken());
}

BOOST_AUTO_TEST_CASE(a_sleeping_reader_is_woken_once) {
  Pair pair;
  BOOST_TEST(!pair.mine.publish(1));
  BOOST_TEST(!pair.theirs.sleep_until_bytes());  // there is one
  BOOST_TEST(!pair.theirs.consume(1));
  BOOST_TEST(pair.theirs.sleep_until_bytes());
  BOOST_TEST(pair.mine.publish(1));
  BOOST_TEST(!pair.mine.publish(1));
  // Full: the writer hears of it when half of it is free.
  while (!pair.mine.space().empty()) pair.mine.publish(pair.mine.space().size());
  BOOST_TEST(pair.mine.sleep_until_space());
  BOOST_TEST(!pair.theirs.consume(SharedRings::kBytes / 2 - 1));
  BOOST_TEST(pair.theirs.consume(1));
  BOOST_TEST(!pair.theirs.consume(1));
  BOOST_TEST(!pair.mine.sleep_until_space());
}

// A writer with much room does not look up how much more there is; one with little gets all that is
// free.
BOOST_AUTO_TEST_CASE(room_is_looked_up_where_it_gets_scarce) {
  constexpr std::size_t kHalf = SharedRings::kBytes / 2;
  Pair pair;
  pair.mine.publish(kHalf);
  pair.theirs.consume(kHalf);
  BOOST_TEST(pair.mine.space().size() == kHalf);  // to the end of the memory
  pair.mine.publish(kHalf);
  BOOST_TEST(pair.mine.space().size() == kHalf);  // bytes read since
  pair.theirs.consume(kHalf);
  pair.mine.publish(kHalf);
  BOOST_TEST(pair.mine.space().size() == kHalf);
  BOOST_TEST(!pair.mine.is_broken());
}

BOOST_AUTO_TEST_CASE(a_peer_that_lies_breaks_its_rings_and_nothing_else) {
  for (const std::uint64_t said :
       {std::uint64_t{SharedRings::kBytes} + 1, std::uint64_t{1} << 63}) {
    for (const std::size_t line : {0, 128}) {  // `written`, `read` of the first direction
      Pair pair;
      void* raw =
          mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, pair.mine.descriptor(), 0);
      BOOST_REQUIRE(raw != MAP_FAILED);
      std::memcpy(static_cast<std::byte*>(raw) + line, &said, sizeof said);
      munmap(raw, 4096);
      SharedRings& victim = line == 0 ? pair.theirs : pair.mine;
      if (line == 128) victim.publish(SharedRings::kBytes / 2 + 1);  // or it would not ask
      BOOST_TEST((line == 0 ? victim.bytes().empty() : victim.space().empty()));
      BOOST_TEST(victim.is_broken());
    }
  }
}

BOOST_AUTO_TEST_CASE(only_memory_of_fixed_size_is_opened) {
  const auto refuses = [](OwnedDescriptor fd) {
    BOOST_CHECK_EXCEPTION(SharedRings::open(std::move(fd)), Error,
                          [](const Error& e) { return e.code() == Code::data_loss; });
  };
  refuses(OwnedDescriptor());
  refuses(OwnedDescriptor(open("/dev/zero", O_RDWR)));
  const std::size_t whole = 2 * (4096 + SharedRings::kBytes);
  for (const bool is_sealed : {false, true}) {
    OwnedDescriptor memory(memfd_create("test", MFD_ALLOW_SEALING));
    BOOST_REQUIRE(ftruncate(memory.get(), static_cast<off_t>(is_sealed ? whole / 2 : whole)) == 0);
    if (is_sealed)
      BOOST_REQUIRE(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ==
                    0);
    refuses(std::move(memory));
  }
  Pair pair;
  BOOST_TEST(ftruncate(pair.theirs.descriptor(), 4096) != 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
