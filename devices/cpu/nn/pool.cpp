// Pooling: each position's channels side by side, items of the batch in parallel. f32 by the
// kernels of levels/pool.cpp.
#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/element_types.hpp>
#include <troupe/devices/cpu/level.hpp>
#include <troupe/devices/device/window.hpp>

namespace troupe::cpu {
namespace {

/// The taps of each position that lie inside, axis by axis, found once: divisions cost more than
/// the work at a position.
class Reach {
 public:
  explicit Reach(const Windows& w) : windows_(w) {
    for (std::size_t d = 0; d < 3; ++d)
      for (std::int64_t o = 0; o < w.axis[d].out; ++o)
        axis_[d].push_back({w.axis[d].start(o), w.axis[d].first_tap(o), w.axis[d].last_tap(o)});
  }
  /// The most that lie inside of any window, whose own extents may be beyond all numbers.
  std::int64_t most() const {
    std::int64_t product = 1;
    for (const std::vector<Span>& axis : axis_) {
      std::int64_t longest = 0;
      for (const Span& s : axis) longest = std::max(longest, s.last - s.first);
      product *= longest;
    }
    return product;
  }

  /// Calls f(position).
  template <class F>
  void for_each_position(F&& f) const {
    for (std::int64_t at = 0; at < windows_.outputs(); ++at) f(at);
  }
  /// Calls f(input element) for each of a window's that is no padding.
  template <class F>
  void for_each_inside(std::int64_t position, F&& f) const {
    const auto& [p, q, r] = windows_.axis;
    const Span &x = axis_[0][at(position / (q.out * r.out))],
               &y = axis_[1][at(position / r.out % q.out)], &z = axis_[2][at(position % r.out)];
    for (std::int64_t a = x.first; a < x.last; ++a)
      for (std::int64_t b = y.first; b < y.last; ++b) {
        const std::int64_t line =
            ((x.start + a * p.dilation) * q.in + y.start + b * q.dilation) * r.in + z.start;
        for (std::int64_t c = z.first; c < z.last; ++c) f(line + c * r.dilation);
      }
  }

 private:
  struct Span {
    std::int64_t start, first, last;
  };
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  const Windows& windows_;
  std::vector<Span> axis_[3];
};

template <class T>
bool is_above(T x, T best) {
  return x > best || (x != x && best == best);
}

template <class T>
struct PoolItem {
  const Reach& reach;
  std::int64_t channels;
  std::vector<Wide<T>> best = std::vector<Wide<T>>(static_cast<std::size_t>(channels));
  std::vector<std::int64_t> where = std::vector<std::int64_t>(static_cast<std::size_t>(channels));

  void find_largest(const T* x, std::int64_t at) {
    bool is_first = true;
    reach.for_each_inside(at, [&](std::int64_t in) {
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
    reach.for_each_position([&](std::int64_t at) {
      find_largest(x, at);
      for (std::size_t c = 0; c < best.size(); ++c)
        y[at * channels + static_cast<std::int64_t>(c)] = T(best[c]);
    });
  }
  void max_gradient(const T* x, const T* dy, T* dx) {
    reach.for_each_position([&](std::int64_t at) {
      find_largest(x, at);
      for (std::int64_t c = 0; c < channels; ++c) {
        T& to = dx[where[static_cast<std::size_t>(c)] * channels + c];
        to = T(static_cast<Wide<T>>(wide(to) + wide(dy[at * channels + c])));
      }
    });
  }
  void max_at(const T* x, const T* from, T* y) {
    reach.for_each_position([&](std::int64_t at) {
      find_largest(x, at);
      for (std::int64_t c = 0; c < channels; ++c)
        y[at * channels + c] = from[where[static_cast<std::size_t>(c)] * channels + c];
    });
  }
  void mean(const T* x, T* y) {
    reach.for_each_position([&](std::int64_t at) {
      std::int64_t count = 0;
      std::fill(best.begin(), best.end(), Wide<T>(0));
      reach.for_each_inside(at, [&](std::int64_t in) {
        for (std::size_t c = 0; c < best.size(); ++c)
          best[c] += wide(x[in * channels + static_cast<std::int64_t>(c)]);
        ++count;
      });
      for (std::size_t c = 0; c < best.size(); ++c)
        y[at * channels + static_cast<std::int64_t>(c)] = T(best[c] / static_cast<Wide<T>>(count));
    });
  }
  void mean_gradient(const T* dy, T* dx) {
    reach.for_each_position([&](std::int64_t at) {
      std::int64_t count = 0;
      reach.for_each_inside(at, [&](std::int64_t) { ++count; });
      reach.for_each_inside(at, [&](std::int64_t in) {
        for (std::int64_t c = 0; c < channels; ++c) {
          T& to = dx[in * channels + c];
          to = T(wide(to) + wide(dy[at * channels + c]) / static_cast<Wide<T>>(count));
        }
      });
    });
  }
};

// f32: the level's kernels on the rows of a window.
template <>
struct PoolItem<float> {
  const Reach& reach;
  std::int64_t channels;
  std::vector<const float*> taps =
                                std::vector<const float*>(static_cast<std::size_t>(reach.most())),
                            from = taps;
  std::vector<float*> to = std::vector<float*>(taps.size());
  const LevelKernels& kernels = level_kernels();

  /// Finds the beginnings of the window's rows in a pooled tensor; returns their number.
  template <class Row>
  int find(std::vector<Row>& rows, Row data, std::int64_t at) const {
    std::size_t n = 0;
    reach.for_each_inside(at, [&](std::int64_t in) { rows[n++] = data + in * channels; });
    return static_cast<int>(n);
  }
  void max(const float* x, float* y) {
    reach.for_each_position([&](std::int64_t at) {
      if (const int n = find(taps, x, at))
        kernels.pool_max_f32(y + at * channels, taps.data(), n, channels);
      else std::fill_n(y + at * channels, channels, 0.f);
    });
  }
  void max_gradient(const float* x, const float* dy, float* dx) {
    reach.for_each_position([&](std::int64_t at) {
      if (const int n = find(taps, x, at); n && find(to, dx, at))
        kernels.pool_max_add_f32(to.data(), taps.data(), n, dy + at * channels, channels);
    });
  }
  void max_at(const float* x, const float* other, float* y) {
    reach.for_each_position([&](std::int64_t at) {
      if (const int n = find(taps, x, at); n && find(from, other, at))
        kernels.pool_max_at_f32(y + at * channels, from.data(), taps.data(), n, channels);
      else std::fill_n(y + at * channels, channels, 0.f);
    });
  }
  void mean(const float* x, float* y) {
    reach.for_each_position([&](std::int64_t at) {
      kernels.pool_mean_f32(y + at * channels, taps.data(), find(taps, x, at), channels);
    });
  }
  void mean_gradient(const float* dy, float* dx) {
    reach.for_each_position([&](std::int64_t at) {
      kernels.pool_mean_add_f32(to.data(), find(to, dx, at), dy + at * channels, channels);
    });
  }
};

template <class T>
void pool_items(WorkerPool* workers, const PoolArgs& p) {
  const std::int64_t in = p.windows.inputs() * p.channels, out = p.windows.outputs() * p.channels;
  const T* x = static_cast<const T*>(p.x.data());
  const T* other = static_cast<const T*>(p.other.data());
  T* to = static_cast<T*>(p.out.data);
  if (p.what == Pool::max_gradient || p.what == Pool::mean_gradient)
    std::memset(p.out.data, 0, p.out.bytes());
  const Reach reach(p.windows);
  for_blocks(p.batch * in <= kSmallWork ? nullptr : workers, p.batch, [&](int n) {
    PoolItem<T> item{reach, p.channels};
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
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::complex<float>> ||
                  std::is_same_v<T, std::complex<double>>)
      throw Error(Code::unimplemented,
                  fmt::format("pooling of {} is not defined", name_of(p.out.dtype)));
    else pool_items<T>(pool_, p);
  });
}

}  // namespace troupe::cpu
