// Seals: authenticated encryption of bulk payload by libcrypto, AES-256-OCB (RFC 7253) or
// AES-256-GCM (NIST SP 800-38D).
//
//   SealKeys keys = derive_seal_keys(cipher, mine, theirs, i_connected);    // 32 random bytes of either side, from the handshake
//   Sealer sealer(keys.cipher, keys.out);      std::uint64_t n = sealer.seal(about, plain, sealed);
//   Opener opener(keys.cipher, keys.in);       Status s = opener.open(n, about, sealed, plain);
//
// Which cipher. OCB enciphers and authenticates in one pass of AES; GCM multiplies in a field
// besides, which costs it a third of its speed where libcrypto has no wide instructions for that,
// and nothing where it has (AVX-512). So it is measured, once a process.
//
// Construction. The control connection is ZeroMQ's CURVE, which authenticates both nodes by their
// keys and hides what they say; over it each side sends 32 fresh random bytes. Keys of the two
// directions come from both by HKDF-SHA256 (RFC 5869), so they are new with every connection, and
// nobody who is not an authorised peer knows them. The cipher is part of what they are derived for:
// no key is ever used with two. Nonces. The n-th box of a direction has the nonce n, 96 bits; a
// sealer counts and never goes back, and a key ends after 2^32 boxes, at which the connection is
// made anew. So no nonce is used twice with a key. Both ciphers hide and authenticate up to the
// birthday bound of 2^64 blocks; 2^32 boxes of 128 KiB are 2^45, which leaves a chance of 2^-38.
// Replay. An opener takes only numbers above the last it took: boxes come in order over a
// connection; what was recorded and sent again, or comes out of order, is refused, like what was
// changed in a single bit. `about` is authenticated with the box but not in it: the frame's header,
// so that a payload cannot be put under another.
//
// Threads: one at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <troupe/devices/base/error.hpp>

namespace troupe::detail {

inline constexpr std::size_t kSealKeyBytes = 32;
inline constexpr std::size_t kSealTagBytes = 16;  // what a box is longer than what is in it
using SealKey = std::array<std::byte, kSealKeyBytes>;
/// What either side adds to the keys.
using SealShare = std::array<std::byte, 32>;

enum class SealCipher { aes_256_gcm, aes_256_ocb };
/// Those libcrypto has here, the fastest first. Some libcryptos lack OCB (FIPS).
const std::vector<SealCipher>& seal_ciphers();

/// Boxes a key may seal.
inline constexpr std::uint64_t kMostSealBoxes = std::uint64_t{1} << 32;

struct SealKeys {
  SealCipher cipher;
  SealKey out, in;
  std::uint64_t boxes = kMostSealBoxes;  // that `out` may seal
};

/// Fresh random bytes; throws unavailable if the system has none.
SealShare random_share();
/// The same keys on both sides, `out` of the one being `in` of the other. `connected`: this side
/// asked for the connection.
SealKeys derive_seal_keys(SealCipher cipher, const SealShare& mine, const SealShare& theirs,
                          bool connected);

class Sealer {
 public:
  /// `boxes`: that the key may seal, kMostSealBoxes at most.
  Sealer(SealCipher cipher, const SealKey& key, std::uint64_t boxes = kMostSealBoxes);
  ~Sealer();
  /// Writes plain.size() + kSealTagBytes bytes to `box`; its number, to be sent along. Throws
  /// resource_exhausted when the key has sealed so many, invalid_argument if `box` is of another
  /// size. The two may start at the same place.
  std::uint64_t seal(std::span<const std::byte> about, std::span<const std::byte> plain,
                     std::span<std::byte> box);

 private:
  struct Cipher;
  std::unique_ptr<Cipher> cipher_;
  const std::uint64_t boxes_;
  std::uint64_t next_ = 1;
};

class Opener {
 public:
  Opener(SealCipher cipher, const SealKey& key);
  ~Opener();
  /// Writes box.size() - kSealTagBytes bytes to `plain`. data_loss: it was replayed, changed, cut
  /// short, or sealed with another key; `plain` is then zeros, and the next box may still be
  /// opened.
  Status open(std::uint64_t number, std::span<const std::byte> about,
              std::span<const std::byte> box, std::span<std::byte> plain);

 private:
  struct Cipher;
  std::unique_ptr<Cipher> cipher_;
  std::uint64_t last_ = 0;
};

}  // namespace troupe::detail
