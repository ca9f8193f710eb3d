// Not under tsan: it encodes and decodes on one thread.
// Sealed payload: what comes out is what went in, and nothing else does.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstring>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <troupe/cluster/transport/net/seal.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/one_thread.hpp>

using namespace troupe;

namespace troupe::detail {
std::ostream& operator<<(std::ostream& out, SealCipher cipher) {
  return out << (cipher == SealCipher::aes_256_ocb ? "AES-256-OCB" : "AES-256-GCM");
}
}  // namespace troupe::detail

BOOST_AUTO_TEST_SUITE(seal_test, TROUPE_ONE_THREAD)

namespace {

using Bytes = std::vector<std::byte>;

Bytes of(const std::string& s) {
  Bytes b(s.size());
  std::memcpy(b.data(), s.data(), s.size());
  return b;
}
Bytes from_hex(const std::string& hex) {
  Bytes b;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    b.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return b;
}

constexpr SealCipher kCiphers[] = {SealCipher::aes_256_gcm, SealCipher::aes_256_ocb};

struct Ends {
  explicit Ends(SealCipher which) : cipher(which) {}

  SealCipher cipher;
  SealShare a = random_share(), b = random_share();
  SealKeys keys_a = derive_seal_keys(cipher, a, b, true),
           keys_b = derive_seal_keys(cipher, b, a, false);
  Sealer sealer{cipher, keys_a.out};
  Opener opener{cipher, keys_b.in};

  Bytes box_of(const Bytes& about, const Bytes& plain, std::uint64_t& number) {
    Bytes box(plain.size() + kSealTagBytes);
    number = sealer.seal(about, plain, box);
    return box;
  }
};

}  // namespace

BOOST_DATA_TEST_CASE(opener_opens_sealed_boxes, boost::unit_test::data::make(kCiphers), cipher) {
  Ends e(cipher);
  std::mt19937_64 random{3};
  for (std::size_t size : {0, 1, 15, 16, 17, 1000, 1 << 20}) {
    Bytes plain(size), about = of("header " + std::to_string(size));
    for (std::byte& x : plain) x = static_cast<std::byte>(random());
    std::uint64_t n = 0;
    Bytes box = e.box_of(about, plain, n), out(size);
    BOOST_TEST(e.opener.open(n, about, box, out).ok());
    BOOST_TEST((out == plain));
  }
}

BOOST_DATA_TEST_CASE(in_place_too, boost::unit_test::data::make(kCiphers), cipher) {
  Ends e(cipher);
  const Bytes plain = of("the same memory for both");
  Bytes box = plain;
  box.resize(plain.size() + kSealTagBytes);
  const std::uint64_t n = e.sealer.seal({}, std::span(box).first(plain.size()), box);
  BOOST_TEST(
      (Bytes(box.begin(), box.begin() + static_cast<std::ptrdiff_t>(plain.size())) != plain));
  BOOST_TEST(e.opener.open(n, {}, box, std::span(box).first(plain.size())).ok());
  BOOST_TEST(
      (Bytes(box.begin(), box.begin() + static_cast<std::ptrdiff_t>(plain.size())) == plain));
}

// The constructions are pinned by boxes made once by other libraries (PyCryptodome's own code for
// both, libsodium for the first), with key 0..31, nonce 1 and these texts: one of a whole block,
// and one that ends within a block.
BOOST_AUTO_TEST_CASE(the_constructions_are_the_standards) {
  const struct {
    SealCipher cipher;
    const char *whole, *part;
  } known[] = {
      {SealCipher::aes_256_gcm, "66bfc78821915e3e6c57255c9f86559cf60f27ce4cd0f8b0afa3367910681cf4",
       "78b9cd996480587f600e254e8386589b7afc772744dd32a400697bad43551d7e58ef13945bbe23f5628ada0693a"
       "baf868e6b849473"},
      {SealCipher::aes_256_ocb, "9f7bc9e54b178e8c3aea12b265c951725660f6bd47f1c5ee7a475b0c01eccdbf",
       "353d33b4d89103ba6d8379d84430bca184c6182469967a97cec2f2077313ae33ce813b53faa3c1c739cac1fbf67"
       "368e9ea6bb375e6"}};
  SealKey key;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  for (const auto& k : known) {
    for (const auto& [text, hex] : {std::pair("sixteen bytes ok", k.whole),
                                    std::pair("more than two blocks of sixteen bytes", k.part)}) {
      Sealer sealer(k.cipher, key);
      const Bytes plain = of(text), about = of("about");
      Bytes box(plain.size() + kSealTagBytes);
      BOOST_TEST(sealer.seal(about, plain, box) == 1u);
      BOOST_TEST((box == from_hex(hex)), k.cipher << " of " << text);
    }
  }
}

BOOST_AUTO_TEST_CASE(both_ciphers_are_there_and_timed_once) {
  const std::vector<SealCipher>& ciphers = seal_ciphers();
  BOOST_TEST(ciphers.size() == 2u);
  for (const SealCipher cipher : kCiphers)
    BOOST_TEST((std::count(ciphers.begin(), ciphers.end(), cipher) == 1), cipher);
  BOOST_TEST(&seal_ciphers() == &ciphers);
}

BOOST_DATA_TEST_CASE(one_changed_bit_is_refused, boost::unit_test::data::make(kCiphers), cipher) {
  Ends e(cipher);
  const Bytes plain = of("tokens and gradients"), about = of("frame 7");
  std::uint64_t n = 0;
  const Bytes box = e.box_of(about, plain, n);
  Bytes out(plain.size());
  for (std::size_t bit = 0; bit < 8 * box.size(); ++bit) {
    Bytes changed = box;
    changed[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    std::fill(out.begin(), out.end(), std::byte{1});
    BOOST_TEST((e.opener.open(n, about, changed, out).code() == Code::data_loss));
    BOOST_TEST(std::all_of(out.begin(), out.end(), [](std::byte b) { return b == std::byte{0}; }));
  }
  BOOST_TEST((e.opener.open(n, of("frame 8"), box, out).code() == Code::data_loss));
  BOOST_TEST((e.opener.open(n + 1, about, box, out).code() == Code::data_loss));
  BOOST_TEST((e.opener.open(n, about, std::span(box).first(10), out).code() == Code::data_loss));
  BOOST_TEST(e.opener.open(n, about, box, out).ok());  // none of that cost the box that was sent
}

BOOST_DATA_TEST_CASE(opener_refuses_a_replayed_box, boost::unit_test::data::make(kCiphers),
                     cipher) {
  Ends e(cipher);
  std::uint64_t first = 0, second = 0;
  const Bytes a = e.box_of({}, of("first"), first), b = e.box_of({}, of("second"), second);
  Bytes out(5), out2(6);
  BOOST_TEST(e.opener.open(first, {}, a, out).ok());
  BOOST_TEST((e.opener.open(first, {}, a, out).code() == Code::data_loss));
  BOOST_TEST(e.opener.open(second, {}, b, out2).ok());
  BOOST_TEST((e.opener.open(first, {}, a, out).code() == Code::data_loss));
  BOOST_TEST((e.opener.open(0, {}, a, out).code() == Code::data_loss));
  BOOST_TEST((e.opener.open(kMostSealBoxes + 1, {}, a, out).code() == Code::data_loss));
}

BOOST_DATA_TEST_CASE(a_key_seals_so_many_boxes_and_no_more, boost::unit_test::data::make(kCiphers),
                     cipher) {
  const SealKeys keys = derive_seal_keys(cipher, random_share(), random_share(), true);
  BOOST_TEST(keys.boxes == std::uint64_t{1} << 32);
  Sealer sealer(cipher, keys.out, 3);
  const Bytes plain = of("plain");
  Bytes box(plain.size() + kSealTagBytes), before;
  for (std::uint64_t n = 1; n <= 3; ++n) BOOST_TEST(sealer.seal({}, plain, box) == n);
  before = box;
  for (int again = 0; again < 2; ++again)
    BOOST_CHECK_EXCEPTION(sealer.seal({}, plain, box), Error,
                          [](const Error& e) { return e.code() == Code::resource_exhausted; });
  BOOST_TEST((box == before));
}

BOOST_AUTO_TEST_CASE(keys_are_new_each_time_and_differ_by_direction_and_cipher) {
  const SealShare a = random_share(), b = random_share();
  std::set<SealKey> all;
  for (const SealCipher cipher : kCiphers) {
    const SealKeys one = derive_seal_keys(cipher, a, b, true),
                   other = derive_seal_keys(cipher, b, a, false);
    BOOST_TEST((one.out == other.in && one.in == other.out));
    all.insert({one.out, one.in});
    for (int i = 0; i < 50; ++i) {
      const SealKeys k = derive_seal_keys(cipher, a, random_share(), true);
      all.insert({k.out, k.in});
    }
  }
  BOOST_TEST(all.size() == 204u);
}

BOOST_DATA_TEST_CASE(the_box_of_another_connection_is_refused,
                     boost::unit_test::data::make(kCiphers), cipher) {
  Ends e(cipher), f(cipher);
  std::uint64_t n = 0;
  const Bytes box = f.box_of({}, of("hello"), n);
  Bytes out(5);
  BOOST_TEST((e.opener.open(n, {}, box, out).code() == Code::data_loss));
}

BOOST_AUTO_TEST_SUITE_END()
