#include <troupe/cluster/transport/net/seal.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

namespace troupe::detail {
namespace {

// libcrypto counts bytes in ints; wire frames are far smaller.
constexpr std::size_t kMostSealed = std::size_t{1} << 30;

const unsigned char* bytes(const std::byte* p) { return reinterpret_cast<const unsigned char*>(p); }
unsigned char* bytes(std::byte* p) { return reinterpret_cast<unsigned char*>(p); }

[[noreturn]] void broken(const char* what) {
  throw Error(Code::internal, fmt::format("libcrypto: {} failed", what));
}

constexpr std::size_t kNonceBytes = 12;

struct Named {
  const char* name;   // libcrypto's
  const char* label;  // the label from which keys are derived
};
Named named(SealCipher cipher) {
  return cipher == SealCipher::aes_256_ocb ? Named{"AES-256-OCB", "troupe payload 2, AES-256-OCB"}
                                           : Named{"AES-256-GCM", "troupe payload 2, AES-256-GCM"};
}

/// libcrypto's method of a cipher, which lives as long as the process; null if it has none.
const EVP_CIPHER* method(SealCipher cipher) {
  static EVP_CIPHER* const gcm =
      EVP_CIPHER_fetch(nullptr, named(SealCipher::aes_256_gcm).name, nullptr);
  static EVP_CIPHER* const ocb =
      EVP_CIPHER_fetch(nullptr, named(SealCipher::aes_256_ocb).name, nullptr);
  return cipher == SealCipher::aes_256_ocb ? ocb : gcm;
}

class Context {
 public:
  Context(SealCipher cipher, const SealKey& key, bool seals) : context_(EVP_CIPHER_CTX_new()) {
    if (!context_) throw Error(Code::resource_exhausted, "libcrypto: no memory for a cipher");
    const EVP_CIPHER* by = method(cipher);
    // Lengths before the key: OCB's first offset depends on the tag's.
    if (!by || EVP_CipherInit_ex(context_, by, nullptr, nullptr, nullptr, seals) != 1 ||
        EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_IVLEN, kNonceBytes, nullptr) != 1 ||
        (cipher == SealCipher::aes_256_ocb &&
         EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_TAG, kSealTagBytes, nullptr) != 1) ||
        EVP_CipherInit_ex(context_, nullptr, nullptr, bytes(key.data()), nullptr, seals) != 1) {
      EVP_CIPHER_CTX_free(context_);
      broken(named(cipher).name);
    }
  }
  ~Context() { EVP_CIPHER_CTX_free(context_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  EVP_CIPHER_CTX* get() const { return context_; }

 private:
  EVP_CIPHER_CTX* context_;
};

std::array<unsigned char, kNonceBytes> nonce_of(std::uint64_t number) {
  std::array<unsigned char, kNonceBytes> nonce{};
  for (int i = 0; i < 8; ++i)
    nonce[static_cast<std::size_t>(11 - i)] = static_cast<unsigned char>(number >> (8 * i));
  return nonce;
}

SealKey derive(std::span<const std::byte> secret, std::string_view info) {
  EVP_KDF* kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  EVP_KDF_CTX* context = kdf ? EVP_KDF_CTX_new(kdf) : nullptr;
  EVP_KDF_free(kdf);
  if (!context) broken("HKDF");
  char digest[] = "SHA256";
  auto* ikm = const_cast<std::byte*>(secret.data());
  auto* label = const_cast<char*>(info.data());
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, ikm, secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, label, info.size()),
      OSSL_PARAM_construct_end()};
  SealKey key;
  const int ok = EVP_KDF_derive(context, bytes(key.data()), key.size(), params);
  EVP_KDF_CTX_free(context);
  if (ok != 1) broken("HKDF");
  return key;
}

/// Returns the time to seal a box of bulk with this cipher here, the best of a few runs.
std::chrono::nanoseconds time_of(SealCipher cipher) {
  constexpr std::size_t kBox = std::size_t{128} << 10;
  std::vector<std::byte> plain(kBox), box(kBox + kSealTagBytes);
  Sealer sealer(cipher, SealKey{});
  std::chrono::nanoseconds best = std::chrono::nanoseconds::max();
  for (int run = 0; run < 8; ++run) {  // the first fetches the code and the memory
    const auto begin = std::chrono::steady_clock::now();
    sealer.seal({}, plain, box);
    best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - begin);
  }
  return best;
}

}  // namespace

const std::vector<SealCipher>& seal_ciphers() {
  static const std::vector<SealCipher> ciphers = [] {
    std::vector<std::pair<std::chrono::nanoseconds, SealCipher>> timed;
    for (const SealCipher cipher : {SealCipher::aes_256_gcm, SealCipher::aes_256_ocb})
      if (method(cipher)) timed.emplace_back(time_of(cipher), cipher);
    if (timed.empty())
      throw Error(Code::unavailable, "libcrypto has neither AES-256-GCM nor AES-256-OCB here");
    std::sort(timed.begin(), timed.end());
    std::vector<SealCipher> all;
    for (const auto& [time, cipher] : timed) all.push_back(cipher);
    return all;
  }();
  return ciphers;
}

SealShare random_share() {
  SealShare share;
  if (RAND_bytes(bytes(share.data()), static_cast<int>(share.size())) != 1)
    throw Error(Code::unavailable, "the system has no random bytes for keys");
  return share;
}

SealKeys derive_seal_keys(SealCipher cipher, const SealShare& mine, const SealShare& theirs,
                          bool connected) {
  std::array<std::byte, 2 * sizeof(SealShare)> secret;
  std::memcpy(secret.data(), (connected ? mine : theirs).data(), sizeof(SealShare));
  std::memcpy(secret.data() + sizeof(SealShare), (connected ? theirs : mine).data(),
              sizeof(SealShare));
  const SealKey there = derive(secret, fmt::format("{}, from who connected", named(cipher).label));
  const SealKey back = derive(secret, fmt::format("{}, to who connected", named(cipher).label));
  OPENSSL_cleanse(secret.data(), secret.size());
  return connected ? SealKeys{cipher, there, back} : SealKeys{cipher, back, there};
}

struct Sealer::Cipher : Context {
  using Context::Context;
};
struct Opener::Cipher : Context {
  using Context::Context;
};

Sealer::Sealer(SealCipher cipher, const SealKey& key, std::uint64_t boxes)
    : cipher_(std::make_unique<Cipher>(cipher, key, true)),
      boxes_(std::min(boxes, kMostSealBoxes)) {}
Sealer::~Sealer() = default;

std::uint64_t Sealer::seal(std::span<const std::byte> about, std::span<const std::byte> plain,
                           std::span<std::byte> box) {
  if (box.size() != plain.size() + kSealTagBytes || plain.size() > kMostSealed ||
      about.size() > kMostSealed)
    throw Error(Code::invalid_argument,
                fmt::format("a box of {} bytes for {}, which takes {}", box.size(), plain.size(),
                            plain.size() + kSealTagBytes));
  if (next_ > boxes_) throw Error(Code::resource_exhausted, "this key has sealed all it may");
  EVP_CIPHER_CTX* c = cipher_->get();
  const auto nonce = nonce_of(next_);
  int n = 0, done = 0;  // OCB keeps a partial block to the end
  if (EVP_EncryptInit_ex(c, nullptr, nullptr, nullptr, nonce.data()) != 1 ||
      (!about.empty() && EVP_EncryptUpdate(c, nullptr, &n, bytes(about.data()),
                                           static_cast<int>(about.size())) != 1) ||
      (!plain.empty() && EVP_EncryptUpdate(c, bytes(box.data()), &done, bytes(plain.data()),
                                           static_cast<int>(plain.size())) != 1) ||
      EVP_EncryptFinal_ex(c, bytes(box.data()) + done, &n) != 1 ||
      EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, kSealTagBytes, box.data() + plain.size()) != 1)
    broken("sealing");
  return next_++;
}

Opener::Opener(SealCipher cipher, const SealKey& key)
    : cipher_(std::make_unique<Cipher>(cipher, key, false)) {}
Opener::~Opener() = default;

Status Opener::open(std::uint64_t number, std::span<const std::byte> about,
                    std::span<const std::byte> box, std::span<std::byte> plain) {
  auto refuse = [&](const std::string& why) {
    std::memset(plain.data(), 0, plain.size());
    return Status(Code::data_loss, why);
  };
  if (box.size() < kSealTagBytes || plain.size() != box.size() - kSealTagBytes ||
      box.size() > kMostSealed || about.size() > kMostSealed)
    return refuse(fmt::format("a box of {} bytes for {} of payload", box.size(), plain.size()));
  if (number <= last_ || number > kMostSealBoxes)
    return refuse(fmt::format("box {} after box {}: it was sent again, or by another process",
                              number, last_));
  EVP_CIPHER_CTX* c = cipher_->get();
  const auto nonce = nonce_of(number);
  unsigned char tag[kSealTagBytes];
  std::memcpy(tag, box.data() + plain.size(), kSealTagBytes);
  int n = 0, done = 0;
  if (EVP_DecryptInit_ex(c, nullptr, nullptr, nullptr, nonce.data()) != 1 ||
      (!about.empty() && EVP_DecryptUpdate(c, nullptr, &n, bytes(about.data()),
                                           static_cast<int>(about.size())) != 1) ||
      (!plain.empty() && EVP_DecryptUpdate(c, bytes(plain.data()), &done, bytes(box.data()),
                                           static_cast<int>(plain.size())) != 1) ||
      EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_SET_TAG, kSealTagBytes, tag) != 1)
    broken("opening");
  if (EVP_DecryptFinal_ex(c, plain.empty() ? tag : bytes(plain.data()) + done, &n) != 1)
    return refuse(fmt::format("box {} is not what was sealed", number));
  last_ = number;
  return {};
}

}  // namespace troupe::detail
