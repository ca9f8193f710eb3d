// Windows over [batch, space..., channels]: pooling, and convolutions as columns for a product, or
// element by element. Each element of a result is made by one thread, in a fixed order: gradients
// look for the windows that cover their element.
#include <troupe/devices/cuda/kernels/launch.hpp>
#include <troupe/devices/cuda/kernels/nn.hpp>
#include <troupe/devices/cuda/kernels/row_group.hpp>

namespace troupe::cuda {
namespace {

__device__ inline std::int64_t start_of(const WindowSpan& s, std::int64_t o) {
  return o * s.stride - s.before;
}
// Taps [first_tap, last_tap) of position o lie inside.
__device__ inline std::int64_t first_tap(const WindowSpan& s, std::int64_t o) {
  const std::int64_t start = start_of(s, o);
  return start < 0 ? (-start + s.dilation - 1) / s.dilation : 0;
}
__device__ inline std::int64_t last_tap(const WindowSpan& s, std::int64_t o) {
  const std::int64_t room = s.in - start_of(s, o),
                     inside = room <= 0 ? 0 : (room + s.dilation - 1) / s.dilation;
  return inside < s.size ? inside : s.size;
}
// Positions [first, last] whose windows may cover element p. Sizes may be beyond all numbers.
__device__ inline std::int64_t first_position(const WindowSpan& s, std::int64_t p) {
  const std::int64_t reach = p + s.before,
                     span = s.size - 1 > reach / s.dilation ? reach : (s.size - 1) * s.dilation;
  return reach - span <= 0 ? 0 : (reach - span + s.stride - 1) / s.stride;
}
__device__ inline std::int64_t last_position(const WindowSpan& s, std::int64_t p) {
  const std::int64_t last = (p + s.before) / s.stride;
  return last < s.out ? last : s.out - 1;
}
// The tap by which position o covers element p; -1: it does not.
__device__ inline std::int64_t tap_at(const WindowSpan& s, std::int64_t o, std::int64_t p) {
  const std::int64_t off = p - start_of(s, o);
  if (off < 0 || off % s.dilation != 0) return -1;
  const std::int64_t tap = off / s.dilation;
  return tap < s.size ? tap : -1;
}

struct Place {
  std::int64_t item, p, q, r, channel;
};
__device__ inline Place place_of(std::int64_t i, std::int64_t channels, std::int64_t p,
                                 std::int64_t q, std::int64_t r) {
  Place at;
  at.channel = i % channels;
  i /= channels;
  at.r = i % r;
  i /= r;
  at.q = i % q;
  i /= q;
  at.p = i % p;
  at.item = i / p;
  return at;
}
__device__ inline Place output_place(const WindowShape& w, std::int64_t i, std::int64_t channels) {
  return place_of(i, channels, w.axis[0].out, w.axis[1].out, w.axis[2].out);
}
__device__ inline Place input_place(const WindowShape& w, std::int64_t i, std::int64_t channels) {
  return place_of(i, channels, w.axis[0].in, w.axis[1].in, w.axis[2].in);
}

// Calls f(input position, tap) for the taps of a window that lie inside.
template <class F>
__device__ void for_each_inside(const WindowShape& w, const Place& at, F&& f) {
  const WindowSpan &x = w.axis[0], &y = w.axis[1], &z = w.axis[2];
  for (std::int64_t a = first_tap(x, at.p); a < last_tap(x, at.p); ++a)
    for (std::int64_t b = first_tap(y, at.q); b < last_tap(y, at.q); ++b)
      for (std::int64_t c = first_tap(z, at.r); c < last_tap(z, at.r); ++c)
        f(((start_of(x, at.p) + a * x.dilation) * y.in + start_of(y, at.q) + b * y.dilation) *
                  z.in +
              start_of(z, at.r) + c * z.dilation,
          (a * y.size + b) * z.size + c);
}
// Calls f(output position, tap) for the windows that cover an input position, in their order.
template <class F>
__device__ void for_each_cover(const WindowShape& w, const Place& at, F&& f) {
  const WindowSpan &x = w.axis[0], &y = w.axis[1], &z = w.axis[2];
  for (std::int64_t i = first_position(x, at.p); i <= last_position(x, at.p); ++i) {
    const std::int64_t a = tap_at(x, i, at.p);
    for (std::int64_t j = first_position(y, at.q); a >= 0 && j <= last_position(y, at.q); ++j) {
      const std::int64_t b = tap_at(y, j, at.q);
      for (std::int64_t k = first_position(z, at.r); b >= 0 && k <= last_position(z, at.r); ++k) {
        const std::int64_t c = tap_at(z, k, at.r);
        if (c >= 0) f((i * y.out + j) * z.out + k, (a * y.size + b) * z.size + c);
      }
    }
  }
}

// ---- pooling

template <class T>
__device__ bool is_above(T x, T best) {
  const auto a = wide(x), b = wide(best);
  if constexpr (std::is_floating_point_v<decltype(wide(x))>) return a > b || (a != a && b == b);
  else return a > b;
}

// The position of the largest element of a window, the first of equals; -1: it is all padding.
template <class T>
__device__ std::int64_t largest_in(const T* x, const WindowShape& w, const Place& at) {
  std::int64_t best = -1;
  for_each_inside(w, at, [&](std::int64_t in, std::int64_t) {
    const std::int64_t here = (at.item * w.inputs() + in) * w.channels + at.channel;
    if (best < 0 || is_above(x[here], x[best])) best = here;
  });
  return best;
}

template <class T>
__global__ __launch_bounds__(kThreads) void pool_maxima(const T* __restrict__ x,
                                                        const T* __restrict__ other,
                                                        T* __restrict__ out,
                                                        std::int64_t* __restrict__ where,
                                                        WindowShape w) {
  const std::int64_t n = w.batch * w.outputs() * w.channels;
  for (std::int64_t i = first_thread<std::int64_t>(); i < n; i += all_threads<std::int64_t>()) {
    const std::int64_t best = largest_in(x, w, output_place(w, i, w.channels));
    if (where) where[i] = best;
    else out[i] = best < 0 ? T{} : (other ? other : x)[best];
  }
}

template <class T>
__global__ __launch_bounds__(kThreads) void pool_means(const T* __restrict__ x, T* __restrict__ out,
                                                       WindowShape w) {
  const std::int64_t n = w.batch * w.outputs() * w.channels;
  for (std::int64_t i = first_thread<std::int64_t>(); i < n; i += all_threads<std::int64_t>()) {
    const Place at = output_place(w, i, w.channels);
    double sum = 0;
    std::int64_t count = 0;
    for_each_inside(w, at, [&](std::int64_t in, std::int64_t) {
      sum += wide(x[(at.item * w.inputs() + in) * w.channels + at.channel]);
      ++count;
    });
    out[i] = narrowed<T>(sum / static_cast<double>(count));
  }
}

// `where`: of maxima; null: of means.
template <class T>
__global__ __launch_bounds__(kThreads) void pool_back(const T* __restrict__ dy,
                                                      const std::int64_t* __restrict__ where,
                                                      T* __restrict__ dx, WindowShape w) {
  const std::int64_t n = w.batch * w.inputs() * w.channels;
  for (std::int64_t i = first_thread<std::int64_t>(); i < n; i += all_threads<std::int64_t>()) {
    const Place at = input_place(w, i, w.channels);
    const WindowSpan &x = w.axis[0], &y = w.axis[1], &z = w.axis[2];
    Accumulator<T> sum{};
    for_each_cover(w, at, [&](std::int64_t out, std::int64_t) {
      const std::int64_t from = (at.item * w.outputs() + out) * w.channels + at.channel;
      if (where) {
        if (where[from] == i) sum = plus(sum, accumulated(dy[from]));
        return;
      }
      if constexpr (is_real_float<T>) {
        const std::int64_t k = out % z.out, j = out / z.out % y.out, o = out / z.out / y.out;
        const auto taps = [](const WindowSpan& s, std::int64_t position) {
          return static_cast<double>(last_tap(s, position) - first_tap(s, position));
        };
        sum += accumulated(dy[from]) / (taps(x, o) * taps(y, j) * taps(z, k));
      }
    });
    dx[i] = narrowed<T>(sum);
  }
}

// ---- columns

template <class T>
__global__ __launch_bounds__(kThreads) void unfold_windows(const T* __restrict__ x,
                                                           T* __restrict__ columns, WindowShape w) {
  const std::int64_t taps = w.taps(), n = w.batch * w.outputs() * taps * w.channels;
  for (std::int64_t i = first_thread<std::int64_t>(); i < n; i += all_threads<std::int64_t>()) {
    const std::int64_t channel = i % w.channels, tap = i / w.channels % taps;
    const Place at = output_place(w, i / w.channels / taps, 1);
    const WindowSpan &a = w.axis[0], &b = w.axis[1], &c = w.axis[2];
    const std::int64_t p = start_of(a, at.p) + tap / (b.size * c.size) * a.dilation,
                       q = start_of(b, at.q) + tap / c.size % b.size * b.dilation,
                       r = start_of(c, at.r) + tap % c.size * c.dilation;
    const bool is_there = is_inside(p, a.in) && is_inside(q, b.in) && is_inside(r, c.in);
    columns[i] =
        is_there ? x[(((at.item * a.in + p) * b.in + q) * c.in + r) * w.channels + channel] : T{};
  }
}

template <class T>
__global__ __launch_bounds__(kThreads) void fold_windows(const T* __restrict__ columns,
                                                         T* __restrict__ x, WindowShape w) {
  const std::int64_t taps = w.taps(), n = w.batch * w.inputs() * w.channels;
  for (std::int64_t i = first_thread<std::int64_t>(); i < n; i += all_threads<std::int64_t>()) {
    const Place at = input_place(w, i, w.channels);
    double sum = 0;
    for_each_cover(w, at, [&](std::int64_t out, std::int64_t tap) {
      sum += wide(columns[((at.item * w.outputs() + out) * taps + tap) * w.channels + at.channel]);
    });
    x[i] = narrowed<T>(sum);
  }
}

// ---- element by element

template <class T>
struct Direct {
  const T *a, *b;
  T* out;
  WindowShape w;
  std::int64_t filters, groups;
  using Acc = Accumulator<T>;
  __device__ std::int64_t group_channels() const { return w.channels / groups; }
  __device__ std::int64_t group_filters() const { return filters / groups; }
  // w [taps, channels / groups, filters]
  __device__ std::int64_t weight_at(std::int64_t tap, std::int64_t channel,
                                    std::int64_t filter) const {
    return (tap * group_channels() + channel) * filters + filter;
  }
};

template <class T>
__global__ __launch_bounds__(kThreads) void convolve_output(Direct<T> d) {
  const std::int64_t n = d.w.batch * d.w.outputs() * d.filters;
  for (std::int64_t i = first_thread<std::int64_t>(); i < n; i += all_threads<std::int64_t>()) {
    const Place at = output_place(d.w, i, d.filters);
    const std::int64_t first = at.channel / d.group_filters() * d.group_channels();
    typename Direct<T>::Acc sum{};
    for_each_inside(d.w, at, [&](std::int64_t in, std::int64_t tap) {
      const T* x = d.a + (at.item * d.w.inputs() + in) * d.w.channels + first;
      for (std::int64_t c = 0; c < d.group_channels(); ++c)
        sum =
            plus(sum, times(accumulated(x[c]), accumulated(d.b[d.weight_at(tap, c, at.channel)])));
    });
    d.out[i] = narrowed<T>(sum);
  }
}

template <class T>
__global__ __launch_bounds__(kThreads) void convolve_input(Direct<T> d) {
  const std::int64_t n = d.w.batch * d.w.inputs() * d.w.channels;
  for (std::int64_t i = first_thread<std::int64_t>(); i < n; i += all_threads<std::int64_t>()) {
    const Place at = input_place(d.w, i, d.w.channels);
    const std::int64_t group = at.channel / d.group_channels(),
                       channel = at.channel % d.group_channels(), first = group * d.group_filters();
    typename Direct<T>::Acc sum{};
    for_each_cover(d.w, at, [&](std::int64_t out, std::int64_t tap) {
      const T* dy = d.a + (at.item * d.w.outputs() + out) * d.filters + first;
      for (std::int64_t f = 0; f < d.group_filters(); ++f)
        sum = plus(
            sum, times(accumulated(dy[f]), accumulated(d.b[d.weight_at(tap, channel, first + f)])));
    });
    d.out[i] = narrowed<T>(sum);
  }
}

template <class T>
__global__ __launch_bounds__(kThreads) void convolve_filter(Direct<T> d) {
  const std::int64_t n = d.w.taps() * d.group_channels() * d.filters;
  for (std::int64_t i = first_thread<std::int64_t>(); i < n; i += all_threads<std::int64_t>()) {
    const std::int64_t filter = i % d.filters, channel = i / d.filters % d.group_channels(),
                       tap = i / d.filters / d.group_channels(),
                       from = filter / d.group_filters() * d.group_channels() + channel;
    const WindowSpan &a = d.w.axis[0], &b = d.w.axis[1], &c = d.w.axis[2];
    const std::int64_t u = tap / (b.size * c.size) * a.dilation,
                       v = tap / c.size % b.size * b.dilation, t = tap % c.size * c.dilation;
    typename Direct<T>::Acc sum{};
    for (std::int64_t k = 0; k < d.w.batch * d.w.outputs(); ++k) {
      const Place at = output_place(d.w, k, 1);
      const std::int64_t p = start_of(a, at.p) + u, q = start_of(b, at.q) + v,
                         r = start_of(c, at.r) + t;
      if (!is_inside(p, a.in) || !is_inside(q, b.in) || !is_inside(r, c.in)) continue;
      const std::int64_t x = ((at.item * a.in + p) * b.in + q) * c.in + r;
      sum = plus(sum, times(accumulated(d.a[x * d.w.channels + from]),
                            accumulated(d.b[k * d.filters + filter])));
    }
    d.out[i] = narrowed<T>(sum);
  }
}

// Floats by their types; integers, which wrap, by their size.
template <class F>
cudaError_t visit_summed(DType dtype, F&& f) {
  switch (dtype) {
    case DType::i8:
    case DType::u8: return f(type_tag<std::uint8_t>{});
    case DType::i16:
    case DType::u16: return f(type_tag<std::uint16_t>{});
    case DType::i32:
    case DType::u32: return f(type_tag<std::uint32_t>{});
    case DType::i64:
    case DType::u64: return f(type_tag<std::uint64_t>{});
    default: return visit_real(dtype, f);
  }
}

template <class A, class B, class Out>
__global__ __launch_bounds__(kThreads) void multiply_integers(const A* __restrict__ a,
                                                              const B* __restrict__ b,
                                                              Out* __restrict__ out,
                                                              IntegerProduct p) {
  const std::int64_t n = p.batch * p.m * p.n;
  for (std::int64_t i = first_thread<std::int64_t>(); i < n; i += all_threads<std::int64_t>()) {
    const std::int64_t column = i % p.n, row = i / p.n % p.m, item = i / p.n / p.m;
    const A* x = a + item * p.a_stride;
    const B* y = b + item * p.b_stride;
    std::uint64_t sum = 0;
    for (std::int64_t k = 0; k < p.k; ++k)
      sum += static_cast<std::uint64_t>(x[p.transpose_a ? k * p.m + row : row * p.k + k]) *
             static_cast<std::uint64_t>(y[p.transpose_b ? column * p.k + k : k * p.n + column]);
    out[item * p.out_stride + row * p.n + column] = static_cast<Out>(sum);
  }
}

}  // namespace

std::size_t pool_scratch(PoolOp op, const WindowShape& w) {
  return op == PoolOp::max_gradient
             ? static_cast<std::size_t>(w.batch * w.outputs() * w.channels) * sizeof(std::int64_t)
             : 0;
}

cudaError_t pool(cudaStream_t stream, PoolOp op, DType dtype, const void* x, const void* other,
                 void* out, const WindowShape& w, void* scratch) {
  const std::int64_t ins = w.batch * w.inputs() * w.channels,
                     outs = w.batch * w.outputs() * w.channels;
  return visit_elements(dtype, [&]<class T>(type_tag<T>) -> cudaError_t {
    if constexpr (is_complex_type<T> || std::is_same_v<T, bool>) return cudaErrorInvalidValue;
    else {
      const auto *from = static_cast<const T*>(x), *second = static_cast<const T*>(other);
      auto* to = static_cast<T*>(out);
      auto* where = static_cast<std::int64_t*>(scratch);
      const auto run = [&](std::int64_t n, auto kernel, auto... arguments) {
        return n == 0 ? cudaSuccess
                      : launch(stream, blocks_of(n), dim3(kThreads), 0, kernel, arguments...);
      };
      constexpr std::int64_t* kNowhere = nullptr;
      constexpr const T* kNone = nullptr;
      switch (op) {
        case PoolOp::max: return run(outs, pool_maxima<T>, from, kNone, to, kNowhere, w);
        case PoolOp::max_at: return run(outs, pool_maxima<T>, from, second, to, kNowhere, w);
        case PoolOp::max_gradient: {
          const cudaError_t error = run(outs, pool_maxima<T>, from, kNone, to, where, w);
          if (error != cudaSuccess) return error;
          return run(ins, pool_back<T>, second, static_cast<const std::int64_t*>(where), to, w);
        }
        default: break;
      }
      if constexpr (is_real_float<T>) {
        if (op == PoolOp::mean) return run(outs, pool_means<T>, from, to, w);
        return run(ins, pool_back<T>, from, static_cast<const std::int64_t*>(nullptr), to, w);
      }
      return cudaErrorInvalidValue;
    }
  });
}

cudaError_t unfold(cudaStream_t stream, int element_bytes, const void* x, void* columns,
                   const WindowShape& w) {
  const std::int64_t n = w.batch * w.outputs() * w.taps() * w.channels;
  if (n == 0) return cudaSuccess;
  return visit_bytes(element_bytes, [&]<class T>(type_tag<T>) {
    return launch(stream, blocks_of(n), dim3(kThreads), 0, unfold_windows<T>,
                  static_cast<const T*>(x), static_cast<T*>(columns), w);
  });
}

cudaError_t fold(cudaStream_t stream, DType dtype, const void* columns, void* x,
                 const WindowShape& w) {
  const std::int64_t n = w.batch * w.inputs() * w.channels;
  if (n == 0) return cudaSuccess;
  return visit_real(dtype, [&]<class T>(type_tag<T>) {
    return launch(stream, blocks_of(n), dim3(kThreads), 0, fold_windows<T>,
                  static_cast<const T*>(columns), static_cast<T*>(x), w);
  });
}

cudaError_t convolve(cudaStream_t stream, ConvolveOp op, DType dtype, const void* a, const void* b,
                     void* out, const WindowShape& w, std::int64_t filters, std::int64_t groups) {
  return visit_summed(dtype, [&]<class T>(type_tag<T>) {
    const Direct<T> d{static_cast<const T*>(a),
                      static_cast<const T*>(b),
                      static_cast<T*>(out),
                      w,
                      filters,
                      groups};
    const std::int64_t n = op == ConvolveOp::output  ? w.batch * w.outputs() * filters
                           : op == ConvolveOp::input ? w.batch * w.inputs() * w.channels
                                                     : w.taps() * (w.channels / groups) * filters;
    if (n == 0) return cudaSuccess;
    return launch(stream, blocks_of(n), dim3(kThreads), 0,
                  op == ConvolveOp::output  ? convolve_output<T>
                  : op == ConvolveOp::input ? convolve_input<T>
                                            : convolve_filter<T>,
                  d);
  });
}

cudaError_t integer_product(cudaStream_t stream, const void* a, const void* b, void* out,
                            const IntegerProduct& p) {
  const std::int64_t n = p.batch * p.m * p.n;
  if (n == 0) return cudaSuccess;
  const auto run = [&]<class A, class B, class Out>(type_tag<A>, type_tag<B>, type_tag<Out>) {
    return launch(stream, blocks_of(n), dim3(kThreads), 0, multiply_integers<A, B, Out>,
                  static_cast<const A*>(a), static_cast<const B*>(b), static_cast<Out*>(out), p);
  };
  using Small = type_tag<std::int8_t>;
  if (p.out != p.a && p.out == DType::i32 && p.b == DType::i8) {
    if (p.a == DType::i8) return run(Small{}, Small{}, type_tag<std::int32_t>{});
    if (p.a == DType::u8) return run(type_tag<std::uint8_t>{}, Small{}, type_tag<std::int32_t>{});
  }
  if (p.out != p.a || p.out != p.b) return cudaErrorInvalidValue;
  return visit_summed(p.out, [&]<class T>(type_tag<T> tag) -> cudaError_t {
    if constexpr (!std::is_integral_v<T>) return cudaErrorInvalidValue;
    else return run(tag, tag, tag);
  });
}

}  // namespace troupe::cuda
