// PackScan reads all that msgpack writes, in every form, and touches nothing beyond its bytes.
#include <troupe/cluster/transport/pack_scan.hpp>
#include <troupe/test/support/one_thread.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <msgpack.hpp>

BOOST_AUTO_TEST_SUITE(pack_scan_test, TROUPE_ONE_THREAD)

namespace {

using troupe::PackScan;
using Kind = PackScan::Kind;

/// A copy without a byte to spare, so that ASan sees what is read beyond it.
std::vector<std::byte> bytes_of(const msgpack::sbuffer& b) {
  const auto* data = reinterpret_cast<const std::byte*>(b.data());
  return {data, data + b.size()};
}

template <class T>
PackScan::Element scanned(const T& x, std::size_t cut = 0) {
  msgpack::sbuffer buffer;
  msgpack::pack(buffer, x);
  std::vector<std::byte> bytes = bytes_of(buffer);
  bytes.resize(bytes.size() - std::min(cut, bytes.size()));
  PackScan scan(bytes);
  const PackScan::Element e = scan.next();
  if (e.kind != Kind::malformed && e.kind != Kind::array) BOOST_TEST(scan.left() == 0u);
  return e;
}

BOOST_AUTO_TEST_CASE(numbers_of_every_width) {
  for (int bits = 0; bits < 64; ++bits)
    for (const std::uint64_t n :
         {std::uint64_t{1} << bits, (std::uint64_t{1} << bits) - 1, ~std::uint64_t{0} >> bits}) {
      const auto e = scanned(n);
      BOOST_TEST((e.kind == Kind::number && e.number == n), n);
      BOOST_TEST((scanned(n, 1).kind == Kind::malformed));
      if (n > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) continue;
      const std::int64_t below = -static_cast<std::int64_t>(n) - 1;
      const auto negative = scanned(below);
      BOOST_TEST((negative.kind == Kind::negative && negative.negative == below), below);
    }
  // A positive number written with a sign is one.
  const std::vector<std::byte> written{std::byte{0xd1}, std::byte{0x01}, std::byte{0x00}};
  PackScan scan(written);
  const auto e = scan.next();
  BOOST_TEST((e.kind == Kind::number && e.number == 256));
}

BOOST_AUTO_TEST_CASE(texts_bytes_and_arrays_of_every_length) {
  for (const std::size_t n : {0, 1, 15, 16, 31, 32, 255, 256, 65'535, 65'536}) {
    const std::string s(n, 'x');
    const auto text = scanned(s);
    BOOST_TEST((text.kind == Kind::text && text.bytes.size() == n), n);
    const auto bytes = scanned(std::vector<char>(n, 'y'));
    BOOST_TEST((bytes.kind == Kind::bytes && bytes.bytes.size() == n), n);
    const auto array = scanned(std::vector<int>(n, 7));
    BOOST_TEST((array.kind == Kind::array && array.number == n), n);
    if (n != 0) {
      BOOST_TEST((scanned(s, 1).kind == Kind::malformed));
      BOOST_TEST((scanned(std::vector<char>(n, 'y'), 1).kind == Kind::malformed));
      BOOST_TEST((scanned(std::vector<int>(n, 7), 1).kind == Kind::malformed));
    }
  }
  BOOST_TEST((scanned(true).kind == Kind::flag && scanned(true).number == 1 &&
              scanned(false).number == 0));
}

BOOST_AUTO_TEST_CASE(forms_that_no_writer_uses_are_malformed) {
  for (const unsigned first :
       {0x80u, 0x8fu, 0xc0u, 0xc1u, 0xc7u, 0xcau, 0xcbu, 0xd4u, 0xd8u, 0xdeu, 0xdfu}) {
    const std::vector<std::byte> bytes(20, static_cast<std::byte>(first));
    BOOST_TEST((PackScan(bytes).next().kind == Kind::malformed), first);
  }
  BOOST_TEST((PackScan({}).next().kind == Kind::malformed));
}

BOOST_AUTO_TEST_CASE(frequent_elements_have_an_equal_short_way) {
  std::mt19937_64 random(5);
  for (unsigned first = 0; first < 256; ++first)
    for (std::size_t length = 0; length < 11; ++length) {
      std::vector<std::byte> bytes(length);
      for (std::byte& b : bytes) b = static_cast<std::byte>(random());
      if (length != 0) bytes[0] = static_cast<std::byte>(first);
      PackScan whole(bytes), number(bytes), flag(bytes), array(bytes);
      const auto e = whole.next();
      // an unusual form of a positive number
      const bool has_sign = first >= 0xd0 && first < 0xd4;
      std::uint64_t n = 999;
      const bool is_number = number.next_number(n);
      BOOST_TEST(is_number == (e.kind == Kind::number && !has_sign), first);
      BOOST_TEST(n == (is_number ? e.number : 999u), first);
      BOOST_TEST(number.place() == (is_number ? whole.place() : 0u), first);
      bool b = false;
      const bool is_flag = flag.next_flag(b);
      BOOST_TEST(is_flag == (e.kind == Kind::flag), first);
      BOOST_TEST(b == (is_flag && e.number != 0), first);
      BOOST_TEST(flag.place() == (is_flag ? 1u : 0u), first);
      std::size_t elements = 999;
      const bool is_array = array.next_array(elements);
      // beyond fifteen the count has bytes of its own
      BOOST_TEST(is_array == (e.kind == Kind::array && first < 0xa0), first);
      BOOST_TEST(elements == (is_array ? e.number : 999u), first);
      BOOST_TEST(array.place() == (is_array ? 1u : 0u), first);
    }
}

BOOST_AUTO_TEST_CASE(any_bytes_are_read_to_their_end_or_refused) {
  std::mt19937_64 random(3);
  std::uint64_t refused = 0, read = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes(random() % 24);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    PackScan scan(bytes);
    while (scan.left() != 0) {
      const auto e = scan.next();
      BOOST_REQUIRE(scan.place() <= bytes.size());
      if (e.kind == Kind::malformed) break;
      BOOST_REQUIRE((e.kind != Kind::array || e.number <= scan.left()));
      BOOST_REQUIRE(e.bytes.size() <= bytes.size());
    }
    ++(scan.left() == 0 ? read : refused);
  }
  BOOST_TEST(refused > 0u);
  BOOST_TEST(read > 0u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
