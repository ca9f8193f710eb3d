// Seals: authenticated encryption of bulk payload by libcrypto, AES-256-OCB (RFC 7253) or
// AES-256-GCM (NIST SP 800-38D).
//
//   // 32 random bytes of either side, from the handshake
//   SealKeys keys = derive_seal_keys(cipher, mine, theirs, i_connected);
//   Sealer sealer(keys.cipher, keys.out);      std::uint64_t n = sealer.seal(about, plain, sealed);
//   Opener opener(keys.cipher, keys.in);       Status s = opener.open(n, about, sealed, plain);
//
// Cipher. OCB enciphers and authenticates in one pass of AES. GCM multiplies in a field besides:
// this costs a third of its speed where libcrypto has no wide instructions (AVX-512), else nothing.
// So each process measures both once.
//
// Construction. The control connection is ZeroMQ's CURVE, which authenticates both nodes and hides
// their wire frames. Each side sends 32 fresh random bytes over it. HKDF-SHA256 (RFC 5869) derives
// the keys of both directions from them, so only the two peers have them, anew with every
// connection. The cipher is part of the derivation: no key is used with two. Nonces. The n-th box
// of a direction has the nonce n, 96 bits. A sealer only counts up, and a key ends after 2^32
// boxes, with a new connection. So no nonce is used twice with a key. Both ciphers are safe up to
// the birthday bound of 2^64 blocks; 2^32 boxes of 128 KiB are 2^45, which leaves a chance of
// 2^-38. Replay. An opener takes only numbers above its last one, because boxes come in order over
// a connection. It refuses a repeated, reordered or changed box. `about` is authenticated with the
// box but is not in it. For a header it is the first 16 bytes of its bulk record. Boxes of bulk
// have none: their numbers bind them to their header.
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
inline constexpr std::size_t kSealTagBytes = 16;  // bytes that sealing adds to a box
using SealKey = std::array<std::byte, kSealKeyBytes>;
/// Random bytes that one side contributes to the keys.
using SealShare = std::array<std::byte, 32>;

enum class SealCipher { aes_256_gcm, aes_256_ocb };
/// Returns the ciphers that libcrypto has here, the fastest first. Some libcryptos lack OCB (FIPS).
const std::vector<SealCipher>& seal_ciphers();

/// Boxes a key may seal.
inline constexpr std::uint64_t kMostSealBoxes = std::uint64_t{1} << 32;

struct SealKeys {
  SealCipher cipher;
  SealKey out, in;
  std::uint64_t boxes = kMostSealBoxes;  // boxes that `out` may seal
};

/// Fresh random bytes; throws unavailable if the system has none.
SealShare random_share();
/// Derives equal keys on both sides: `out` of one side is `in` of the other. `connected`: this side
/// asked for the connection.
SealKeys derive_seal_keys(SealCipher cipher, const SealShare& mine, const SealShare& theirs,
                          bool connected);

class Sealer {
 public:
  /// `boxes`: that the key may seal, kMostSealBoxes at most.
  Sealer(SealCipher cipher, const SealKey& key, std::uint64_t boxes = kMostSealBoxes);
  ~Sealer();
  /// Writes plain.size() + kSealTagBytes bytes to `box`. Returns the box's number, which the other
  /// end finds by counting. Throws resource_exhausted when the key has sealed so many,
  /// invalid_argument if `box` is of another size. The two may start at the same address.
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
