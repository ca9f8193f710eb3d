// Pooling at one position: the taps of its window that lie inside, each a row of channels. A packet
// of channels sees all taps before the next packet, so that the extremum stays in registers.
#include <troupe/devices/cpu/levels/packet.hpp>

namespace troupe::cpu {
namespace {

template <class V>
inline V at(const float* x) {
  V v;
  __builtin_memcpy(&v, x, sizeof v);
  return v;
}
template <class V>
inline void put(float* to, V v) {
  __builtin_memcpy(to, &v, sizeof v);
}

/// Calls f(c, V, I) for each packet of channels, and f(c, float, int32) for the rest: V and I are
/// the types to compute in.
template <class F>
inline void for_channels(std::int64_t channels, F f) {
  std::int64_t c = 0;
  for (; c + kPacket <= channels; c += kPacket) f(c, Floats{}, Ints{});
  for (; c < channels; ++c) f(c, float{}, std::int32_t{});
}

/// The first of the largest taps, NaN the largest of all, and which it is.
template <class V, class I>
inline V largest(const float* const* taps, int n, std::int64_t c, I& where) {
  V best = at<V>(taps[0] + c);
  where = I{};
  for (int t = 1; t < n; ++t) {
    const V v = at<V>(taps[t] + c);
    const auto above = (v > best) | ((v != v) & (best == best));
    best = above ? v : best;
    where = above ? I{} + t : where;
  }
  return best;
}

void max(float* y, const float* const* taps, int n, std::int64_t channels) {
  for_channels(channels, [=](std::int64_t c, auto v, auto i) {
    put(y + c, largest<decltype(v)>(taps, n, c, i));
  });
}

void max_add(float* const* to, const float* const* taps, int n, const float* dy,
             std::int64_t channels) {
  for_channels(channels, [=](std::int64_t c, auto v, auto i) {
    using V = decltype(v);
    largest<V>(taps, n, c, i);
    const V d = at<V>(dy + c);
    for (int t = 0; t < n; ++t) put(to[t] + c, at<V>(to[t] + c) + (i == t ? d : V{}));
  });
}

void max_at(float* y, const float* const* from, const float* const* taps, int n,
            std::int64_t channels) {
  for_channels(channels, [=](std::int64_t c, auto v, auto i) {
    using V = decltype(v);
    largest<V>(taps, n, c, i);
    V chosen{};
    for (int t = 0; t < n; ++t) chosen = i == t ? at<V>(from[t] + c) : chosen;
    put(y + c, chosen);
  });
}

void mean(float* y, const float* const* taps, int n, std::int64_t channels) {
  for_channels(channels, [=](std::int64_t c, auto v, auto) {
    using V = decltype(v);
    V sum{};
    for (int t = 0; t < n; ++t) sum += at<V>(taps[t] + c);
    put(y + c, sum / static_cast<float>(n));
  });
}

void mean_add(float* const* to, int n, const float* dy, std::int64_t channels) {
  for_channels(channels, [=](std::int64_t c, auto v, auto) {
    using V = decltype(v);
    const V d = at<V>(dy + c) / static_cast<float>(n);
    for (int t = 0; t < n; ++t) put(to[t] + c, at<V>(to[t] + c) + d);
  });
}

}  // namespace

void TROUPE_FILL(pool)(LevelKernels& k) {
  k.pool_max_f32 = cpu::max;
  k.pool_max_add_f32 = max_add;
  k.pool_max_at_f32 = max_at;
  k.pool_mean_f32 = mean;
  k.pool_mean_add_f32 = mean_add;
}

}  // namespace troupe::cpu
