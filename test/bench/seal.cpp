// Boxes of 128 KiB, sealed and opened again on one thread, by each cipher that the transport may
// choose, against libsodium's, which ZeroMQ brings along.
#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

#include <fmt/format.h>

#include <troupe/cluster/transport/channel/bulk_record.hpp>
#include <troupe/cluster/transport/net/seal.hpp>
#include <troupe/test/bench/bench.hpp>

namespace {

using namespace troupe;

constexpr std::size_t kAbout = 16;

struct Boxes {
  std::vector<std::byte> plain = std::vector<std::byte>(kBoxBytes),
                         box = std::vector<std::byte>(kBoxBytes + kSealTagBytes),
                         again = std::vector<std::byte>(kBoxBytes);
  std::array<std::byte, kAbout> about{};
};

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "seal: %s\n", what);
  std::exit(1);
}

/// Nanoseconds a KiB of rounds, each of which seals `boxes.plain` and opens it again, for 30 ms at
/// least.
double cost(const std::function<void()>& round) {
  const double begin = bench::now_ns();
  double count = 0;
  for (; bench::now_ns() - begin < 3e7; ++count) round();
  return (bench::now_ns() - begin) / (count * static_cast<double>(kBoxBytes >> 10));
}

/// libsodium of Debian, if it is installed.
class Sodium {
 public:
  explicit Sodium(Boxes& boxes)
      : boxes_(boxes), library_(dlopen("libsodium.so.23", RTLD_NOW | RTLD_LOCAL)) {
    if (!library_) return;
    require(function<int (*)()>("sodium_init")() >= 0, "libsodium does not begin");
    version_ = function<const char* (*)()>("sodium_version_string")();
  }
  const std::string& version() const { return version_; }
  /// Null where there is none; libsodium has AES-256-GCM by the processor's instructions alone.
  std::function<void()> gcm() {
    if (!library_ || function<int (*)()>("crypto_aead_aes256gcm_is_available")() != 1) return {};
    require(function<int (*)(void*, const std::byte*)>("crypto_aead_aes256gcm_beforenm")(
                key_.data(), key_.data()) == 0,
            "libsodium takes no key");
    return round("crypto_aead_aes256gcm_encrypt_afternm", "crypto_aead_aes256gcm_decrypt_afternm");
  }
  std::function<void()> chacha() {
    if (!library_) return {};
    return round("crypto_aead_chacha20poly1305_ietf_encrypt",
                 "crypto_aead_chacha20poly1305_ietf_decrypt");
  }

 private:
  template <class F>
  F function(const char* name) {
    void* found = dlsym(library_, name);
    require(found != nullptr, name);
    return reinterpret_cast<F>(found);
  }
  using Bytes = const std::byte*;
  std::function<void()> round(const char* seal, const char* open) {
    const auto encrypt =
        function<int (*)(std::byte*, unsigned long long*, Bytes, unsigned long long, Bytes,
                         unsigned long long, Bytes, Bytes, Bytes)>(seal);
    const auto decrypt =
        function<int (*)(std::byte*, unsigned long long*, std::byte*, Bytes, unsigned long long,
                         Bytes, unsigned long long, Bytes, Bytes)>(open);
    return [this, encrypt, decrypt] {
      ++number_;
      std::memcpy(nonce_.data(), &number_, sizeof number_);
      encrypt(boxes_.box.data(), nullptr, boxes_.plain.data(), kBoxBytes, boxes_.about.data(),
              kAbout, nullptr, nonce_.data(), key_.data());
      require(decrypt(boxes_.again.data(), nullptr, nullptr, boxes_.box.data(), boxes_.box.size(),
                      boxes_.about.data(), kAbout, nonce_.data(), key_.data()) == 0,
              "a box of libsodium's does not open");
    };
  }

  Boxes& boxes_;
  void* const library_;
  std::string version_;
  alignas(16) std::array<std::byte, 512> key_{};
  std::uint64_t number_ = 0;  // number of the last box, its nonce
  std::array<std::byte, 12> nonce_{};
};

}  // namespace

int main() {
  constexpr int kRepetitions = 9;
  Boxes boxes;
  Sodium sodium(boxes);
  struct Rival {
    const char *suffix, *name;
    std::function<void()> round;
  };
  const Rival rivals[] = {{"", "AES-256-GCM", sodium.gcm()},
                          {"_chacha", "ChaCha20-Poly1305", sodium.chacha()}};
  for (const SealCipher cipher : seal_ciphers()) {
    const SealKeys keys = derive_seal_keys(cipher, {}, {}, true);
    Sealer sealer(cipher, keys.out);
    Opener opener(cipher, keys.out);
    const auto ours = [&] {
      const std::uint64_t n = sealer.seal(boxes.about, boxes.plain, boxes.box);
      require(opener.open(n, boxes.about, boxes.box, boxes.again).ok(), "a box does not open");
    };
    const std::string name = cipher == SealCipher::aes_256_ocb ? "aes_256_ocb" : "aes_256_gcm";
    for (const Rival& rival : rivals) {
      bench::Comparison c{
          .name = fmt::format("seal_{}{}", name, rival.suffix),
          .unit = "ns a KiB",
          .peer = fmt::format("libsodium {}{}", rival.name, rival.round ? "" : " (not here)"),
          .peer_version = sodium.version(),
          .speed_up = true};
      for (int i = 0; i < kRepetitions; ++i) {
        c.ours.push_back(cost(ours));
        if (rival.round) c.theirs.push_back(cost(rival.round));
      }
      c.note = "sealed and opened again; libcrypto";
      c.print();
    }
  }
}
