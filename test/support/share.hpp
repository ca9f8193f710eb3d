// How much of what is drawn at random a build tries: sanitizers take ten times as long.
#pragma once

#include <cstdint>

namespace troupe::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kUnderTsan = true;
#else
inline constexpr bool kUnderTsan = false;
#endif

/// A test with rounds makes one of so many.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr std::uint64_t kShare = 10;
#else
inline constexpr std::uint64_t kShare = 1;
#endif

}  // namespace troupe::test
