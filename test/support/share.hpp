// How much a build tries of programs drawn at random and of long tables: sanitizers take ten times
// as long. Another share each day: TROUPE_ROTATION=n is the n-th. With TROUPE_WHOLE=1 tables
// and lists of seeds are tried whole.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace troupe::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kUnderTsan = true;
#else
inline constexpr bool kUnderTsan = false;
#endif

/// True if freed blocks of devices serve again. Under ASan they leave the process: no address
/// repeats.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kBlocksServeAgain = false;
#else
inline constexpr bool kBlocksServeAgain = true;
#endif

/// A test with rounds makes one of so many.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr std::uint64_t kShare = 10;
#else
inline constexpr std::uint64_t kShare = 1;
#endif
/// The share for random programs: TSan takes five times as long as ASan for one.
inline constexpr std::uint64_t kProgramShare = kUnderTsan ? 50 : kShare;

inline std::uint64_t rotation() {
  const char* turn = std::getenv("TROUPE_ROTATION");
  return turn ? std::strtoull(turn, nullptr, 10) : 0;
}

/// Is it today's turn of this one, if a sanitizer build tries one in `shares`? Always in others.
inline bool is_due_today(std::uint64_t number, std::uint64_t shares) {
  return kShare == 1 || std::getenv("TROUPE_WHOLE") || (number + rotation()) % shares == 0;
}

/// 1 to `count`; sanitizers try one of them.
inline std::vector<std::uint64_t> todays_seeds(std::uint64_t count) {
  std::vector<std::uint64_t> all;
  for (std::uint64_t seed = 1; seed <= count; ++seed)
    if (is_due_today(seed, count)) all.push_back(seed);
  return all;
}

struct Seeds {
  std::uint64_t first, count;
};

/// `count`: programs unless TROUPE_PROGRAMS names a number. Sanitizers run a share of them, other
/// builds one in `released`; which, TROUPE_ROTATION tells.
inline Seeds seeds(std::uint64_t count, std::uint64_t released = 1) {
  const char *first = std::getenv("TROUPE_SEED"), *programs = std::getenv("TROUPE_PROGRAMS");
  const std::uint64_t share = std::max(kProgramShare, released);
  Seeds s{1, std::max<std::uint64_t>(1, count / share)};
  s.first += rotation() % share * s.count;
  if (first) s = {std::strtoull(first, nullptr, 10), 1};
  if (programs) s.count = std::strtoull(programs, nullptr, 10);
  std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(s.first),
              static_cast<unsigned long long>(s.first + s.count - 1));
  std::fflush(stdout);
  return s;
}

}  // namespace troupe::test
