// Convolutions. f32 by oneDNN (library_convolution.hpp) or as products (product_convolution.hpp),
// f16 and bf16 by way of it, f64 with one group as products. The other cases and integers (which
// wrap) run in the loops here. Each element adds its products in one order, for any number of
// workers.
#include <cstring>

#include <fmt/format.h>

#include <troupe/devices/cpu/as_floats.hpp>
#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/nn/library_convolution.hpp>
#include <troupe/devices/cpu/nn/product_convolution.hpp>
#include <troupe/devices/device/window.hpp>

namespace troupe::cpu {
namespace {

/// Calls f(input element, output element, tap) for each tap of the window that lies inside, of one
/// item of the batch.
template <class F>
void for_each_tap(const Windows& w, F&& f) {
  const auto& [p, q, r] = w.axis;
  for (std::int64_t i = 0; i < p.out; ++i)
    for (std::int64_t j = 0; j < q.out; ++j)
      for (std::int64_t k = 0; k < r.out; ++k)
        for (std::int64_t a = p.first_tap(i); a < p.last_tap(i); ++a)
          for (std::int64_t b = q.first_tap(j); b < q.last_tap(j); ++b)
            for (std::int64_t c = r.first_tap(k); c < r.last_tap(k); ++c)
              f(((p.start(i) + a * p.dilation) * q.in + q.start(j) + b * q.dilation) * r.in +
                    r.start(k) + c * r.dilation,
                (i * q.out + j) * r.out + k, (a * q.size + b) * r.size + c);
}

template <class T>
struct Plain {
  using U = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
  const ConvolveArgs& c;
  std::int64_t group_channels = c.channels / c.groups, group_filters = c.filters / c.groups;

  static T sum(T a, U b) { return static_cast<T>(static_cast<U>(a) + b); }

  // All channels of an element of x, all filters of one of y, and the tap's [channels / groups,
  // filters] between them.
  void output(const T* x, T* y, const T* w) const {
    for (std::int64_t g = 0; g < c.groups;
         ++g, x += group_channels, y += group_filters, w += group_filters)
      for (std::int64_t i = 0; i < group_channels; ++i)
        for (std::int64_t f = 0; f < group_filters; ++f)
          y[f] = sum(y[f], static_cast<U>(x[i]) * static_cast<U>(w[i * c.filters + f]));
  }
  void input(T* x, const T* y, const T* w) const {
    for (std::int64_t g = 0; g < c.groups;
         ++g, x += group_channels, y += group_filters, w += group_filters)
      for (std::int64_t i = 0; i < group_channels; ++i) {
        T total = x[i];
        for (std::int64_t f = 0; f < group_filters; ++f)
          total = sum(total, static_cast<U>(y[f]) * static_cast<U>(w[i * c.filters + f]));
        x[i] = total;
      }
  }
  void filter(const T* x, const T* y, T* w) const {
    for (std::int64_t g = 0; g < c.groups;
         ++g, x += group_channels, y += group_filters, w += group_filters)
      for (std::int64_t i = 0; i < group_channels; ++i)
        for (std::int64_t f = 0; f < group_filters; ++f)
          w[i * c.filters + f] =
              sum(w[i * c.filters + f], static_cast<U>(x[i]) * static_cast<U>(y[f]));
  }
};

template <class T>
void convolve_plainly(WorkerPool* pool, const ConvolveArgs& c) {
  const Plain<T> plain{c};
  const Windows& w = c.windows;
  const T* a = static_cast<const T*>(c.a.data());
  const T* b = static_cast<const T*>(c.b.data());
  T* out = static_cast<T*>(c.out.data);
  const std::int64_t x_item = w.inputs() * c.channels, y_item = w.outputs() * c.filters,
                     tap_size = plain.group_channels * c.filters;
  std::memset(c.out.data, 0, c.out.bytes());
  if (c.what == Convolve::filter) {
    for_blocks(pool, w.taps(), [&](int mine) {
      for (std::int64_t n = 0; n < c.batch; ++n)
        for_each_tap(w, [&](std::int64_t in, std::int64_t at, std::int64_t tap) {
          if (tap == mine)
            plain.filter(a + n * x_item + in * c.channels, b + n * y_item + at * c.filters,
                         out + tap * tap_size);
        });
    });
    return;
  }
  for_blocks(pool, c.batch, [&](int n) {
    for_each_tap(w, [&](std::int64_t in, std::int64_t at, std::int64_t tap) {
      if (c.what == Convolve::output)
        plain.output(a + n * x_item + in * c.channels, out + n * y_item + at * c.filters,
                     b + tap * tap_size);
      else
        plain.input(out + n * x_item + in * c.channels, a + n * y_item + at * c.filters,
                    b + tap * tap_size);
    });
  });
}

}  // namespace

void CpuPrimitives::convolve(Stream& stream, const ConvolveArgs& c) const {
  if (c.out.elements() == 0) return;
  if (c.a.elements() == 0 || c.b.elements() == 0) {
    std::memset(c.out.data, 0, c.out.bytes());
    return;
  }
  switch (c.out.dtype) {
    case DType::f16:
    case DType::bf16: {
      Ref<Buffer> a = as_floats(c.a), b = as_floats(c.b);
      Ref<Buffer> out = Buffer::allocate(
          host_allocator(), static_cast<std::size_t>(c.out.elements()) * sizeof(float));
      ConvolveArgs wide = c;
      wide.a = ConstView(a->data(), DType::f32, c.a.shape);
      wide.b = ConstView(b->data(), DType::f32, c.b.shape);
      wide.out = View(out->data(), DType::f32, c.out.shape);
      convolve(stream, wide);
      return from_floats(static_cast<const float*>(out->data()), c.out);
    }
    case DType::f32:
      return is_better_as_product(c) ? convolve_as_product(*this, stream, pool_, c)
                                     : LibraryConvolution::run(pool_, c);
    case DType::f64:
      return is_better_as_product(c) ? convolve_as_product(*this, stream, pool_, c)
                                     : convolve_plainly<double>(pool_, c);
    case DType::i8:
    case DType::u8: return convolve_plainly<std::uint8_t>(pool_, c);
    case DType::i16:
    case DType::u16: return convolve_plainly<std::uint16_t>(pool_, c);
    case DType::i32:
    case DType::u32: return convolve_plainly<std::uint32_t>(pool_, c);
    case DType::i64:
    case DType::u64: return convolve_plainly<std::uint64_t>(pool_, c);
    default:
      throw Error(Code::unimplemented,
                  fmt::format("a convolution of {} is not defined", name_of(c.out.dtype)));
  }
}

}  // namespace troupe::cpu
