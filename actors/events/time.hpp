// Application time of event streams: whole numbers whose unit the user chooses.
//
// A lifetime is half-open, [begin, end). `kForever` ends a lifetime without an end. A guarantee
// g states that no change with sync <= g is still to come; `kNever` is the guarantee of nothing.
#pragma once

#include <cstdint>

namespace troupe::events {

using Time = std::int64_t;

inline constexpr Time kForever = INT64_MAX;
inline constexpr Time kNever = INT64_MIN;

/// Returns a + b for b >= 0; an end without limit stays without limit, and no sum wraps around.
constexpr Time later(Time a, Time b) {
  return a == kForever || b == kForever || (a > 0 && b > kForever - a) ? kForever : a + b;
}

/// Returns a - b for b >= 0; no difference wraps around.
constexpr Time earlier(Time a, Time b) {
  if (b == kForever) return kNever;
  return a < 0 && b > a - kNever ? kNever : a - b;
}

/// Returns the largest multiple of `hop` that is at most `t`; `kNever` stays.
constexpr Time round_down(Time t, Time hop) {
  const Time rest = ((t % hop) + hop) % hop;
  return earlier(t, rest);
}

/// Returns the last time before `t`.
constexpr Time before(Time t) { return t == kForever || t == kNever ? t : t - 1; }

/// Returns whether no change after the guarantee `g` can touch a lifetime that ends at `end`.
constexpr bool is_settled(Time end, Time g) {
  return g == kForever || (end != kForever && g != kNever && end - 1 <= g);
}

}  // namespace troupe::events
