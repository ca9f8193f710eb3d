// Pooling: each position's channels side by side, items of the batch in parallel.
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/window.hpp>

namespace troupe::cpu {
namespace {

/// Calls f(input element) for each of a window's that is no padding.
template <class F>
void for_each_inside(const Windows& w, std::int64_t i, std::int64_t j, std::int64_t k, F&& f) {
  const auto& [p, q, r] = w.axis;
  for (std::int64_t a = p.first_tap(i); a < p.last_tap(i); ++a)
    for (std::int64_t b = q.first_tap(j); b < q.last_tap(j); ++b)
      for (std::int64_t c = r.first_tap(k); c < r.last_tap(k); ++c)
        f(((p.start(i) + a * p.dilation) * q.in + q.start(j) + b * q.dilation) * r.in + r.start(k) + c * r.dilation);
}

template <class F>
void for_each_position(const Windows& w, F&& f) {
  const auto& [p, q, r] = w.axis;
  for (std::int64_t i = 0, at = 0; i < p.out; ++i)
    for (std::int64_t j = 0; j < q.out; ++j)
      for (std::int64_t k = 0; k < r.out; ++k) f(i, j, k, at++);
}

template <class T>
constexpr bool is_small = std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;
// f16 and bf16 compute in float.
template <class T>
using Wide = std::conditional_t<is_small<T>, float, T>;
template <class T>
Wide<T> wide(T x) {
  return static_cast<Wide<T>>(x);
}
template <class T>
bool is_above(T x, T best) {
  return x > best || (x != x && best == best);
}

template <class T>
struct Item {
  const Windows& w;
  std::int64_t channels;
  std::vector<Wide<T>> best = std::vector<Wide<T>>(static_cast<std::size_t>(channels));
  std::vector<std::int64_t> where = std::vector<std::int64_t>(static_cast<std::size_t>(channels));

  void find_largest(const T* x, std::int64_t i, std::int64_t j, std::int64_t k) {
    bool is_first = true;
    for_each_inside(w, i, j, k, [&](std::int64_t in) {
      const T* from = x + in * channels;
      for (std::size_t c = 0; c < best.size(); ++c) {
        const Wide<T> v = wide(from[c]);
        if (!is_first && !is_above(v, best[c])) continue;
        best[c] = v;
        where[c] = in;
      }
      is_first = false;
    });
  }
  void max(const T* x, T* y) {
    for_each_position(w, [&](std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t at) {
      find_largest(x, i, j, k);
      for (std::size_t c = 0; c < best.size(); ++c) y[at * channels + static_cast<std::int64_t>(c)] = T(best[c]);
    });
  }
  void max_gradient(const T* x, const T* dy, T* dx) {
    for_each_position(w, [&](std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t at) {
      find_largest(x, i, j, k);
      for (std::int64_t c = 0; c < channels; ++c) {
        T& to = dx[where[static_cast<std::size_t>(c)] * channels + c];
        to = T(static_cast<Wide<T>>(wide(to) + wide(dy[at * channels + c])));
      }
    });
  }
  void max_at(const T* x, const T* from, T* y) {
    for_each_position(w, [&](std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t at) {
      find_largest(x, i, j, k);
      for (std::int64_t c = 0; c < channels; ++c) y[at * channels + c] = from[where[static_cast<std::size_t>(c)] * channels + c];
    });
  }
  void mean(const T* x, T* y) {
    for_each_position(w, [&](std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t at) {
      std::int64_t count = 0;
      std::fill(best.begin(), best.end(), Wide<T>(0));
      for_each_inside(w, i, j, k, [&](std::int64_t in) {
        for (std::size_t c = 0; c < best.size(); ++c) best[c] += wide(x[in * channels + static_cast<std::int64_t>(c)]);
        ++count;
      });
      for (std::size_t c = 0; c < best.size(); ++c) y[at * channels + static_cast<std::int64_t>(c)] = T(best[c] / static_cast<Wide<T>>(count));
    });
  }
  void mean_gradient(const T* dy, T* dx) {
    for_each_position(w, [&](std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t at) {
      std::int64_t count = 0;
      for_each_inside(w, i, j, k, [&](std::int64_t) { ++count; });
      for_each_inside(w, i, j, k, [&](std::int64_t in) {
        for (std::int64_t c = 0; c < channels; ++c) {
          T& to = dx[in * channels + c];
          to = T(wide(to) + wide(dy[at * channels + c]) / static_cast<Wide<T>>(count));
        }
      });
    });
  }
};

template <class T>
void pool_items(WorkerPool* workers, const PoolArgs& p) {
  const std::int64_t in = p.windows.inputs() * p.channels, out = p.windows.outputs() * p.channels;
  const T* x = static_cast<const T*>(p.x.data());
  const T* other = static_cast<const T*>(p.other.data());
  T* to = static_cast<T*>(p.out.data);
  if (p.what == Pool::max_gradient || p.what == Pool::mean_gradient) std::memset(p.out.data, 0, p.out.bytes());
  for_blocks(p.batch * in <= kSmallWork ? nullptr : workers, p.batch, [&](int n) {
    Item<T> item{p.windows, p.channels};
    switch (p.what) {
      case Pool::max: return item.max(x + n * in, to + n * out);
      case Pool::max_gradient: return item.max_gradient(x + n * in, other + n * out, to + n * in);
      case Pool::max_at: return item.max_at(x + n * in, other + n * in, to + n * out);
      default: break;
    }
    if constexpr (!std::is_integral_v<T>) {
      if (p.what == Pool::mean) item.mean(x + n * in, to + n * out);
      else item.mean_gradient(x + n * out, to + n * in);
    }
  });
}

}  // namespace

void CpuPrimitives::pool(Stream&, const PoolArgs& p) const {
  if (p.out.elements() == 0) return;
  visit_dtype(p.out.dtype, [&]<class T>(type_tag<T>) {
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>)
      throw Error(Code::unimplemented, fmt::format("pooling of {} is not defined", name_of(p.out.dtype)));
    else pool_items<T>(pool_, p);
  });
}

}  // namespace troupe::cpu
