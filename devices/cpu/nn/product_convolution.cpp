#include <troupe/devices/cpu/nn/product_convolution.hpp>

#include <cstring>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>

namespace troupe::cpu {
namespace {

// above, reordering the filter is little beside the work
constexpr std::int64_t kMostPositions = 1024;
constexpr std::int64_t kFewestChannels = 16;  // below, a window's row is made of scraps

/// Calls f(first of the taps, how many follow it side by side, element of x or -1 for padding) for
/// each run of a window's row along the last axis; padded runs and single ones, if the taps are
/// apart in x.
template <class F>
void for_each_run(const Windows& w, std::int64_t position, F&& f) {
  const auto& [p, q, r] = w.axis;
  const std::int64_t i = position / (q.out * r.out), j = position / r.out % q.out,
                     k = position % r.out;
  std::int64_t tap = 0;
  for (std::int64_t a = 0; a < p.size; ++a)
    for (std::int64_t b = 0; b < q.size; ++b, tap += r.size) {
      const std::int64_t x = p.start(i) + a * p.dilation, y = q.start(j) + b * q.dilation;
      if (x < 0 || x >= p.in || y < 0 || y >= q.in) {
        f(tap, r.size, -1);
        continue;
      }
      const std::int64_t first = std::min(r.first_tap(k), r.size),
                         last = std::max(first, r.last_tap(k)),
                         line = (x * q.in + y) * r.in + r.start(k);
      if (first > 0) f(tap, first, -1);
      if (r.dilation == 1 && last > first) f(tap + first, last - first, line + first);
      else
        for (std::int64_t c = first; c < last; ++c) f(tap + c, 1, line + c * r.dilation);
      if (last < r.size) f(tap + last, r.size - last, -1);
    }
}

// Each position of each item sees one element, its own: x is the matrix.
bool is_pointwise(const Windows& w) {
  for (const WindowAxis& a : w.axis)
    if (a.size != 1 || a.stride != 1 || a.before != 0 || a.in != a.out) return false;
  return true;
}

// elements of the rows of windows that are in memory together, of f64
constexpr std::int64_t kRowsAtOnce = 1 << 21;

// Positions [first, last) of all items', as rows.
template <class T>
void unroll(WorkerPool* pool, const ConvolveArgs& c, const T* x, T* rows, std::int64_t first,
            std::int64_t last) {
  const std::int64_t row = c.windows.taps() * c.channels, item = c.windows.inputs() * c.channels,
                     positions = c.windows.outputs();
  for_ranges((last - first) * row <= kSmallWork ? nullptr : pool, last - first,
             std::max<std::int64_t>(1, kBlock / row), [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t n = first + begin; n < first + end; ++n)
                 for_each_run(
                     c.windows, n % positions,
                     [&](std::int64_t tap, std::int64_t count, std::int64_t from) {
                       T* to = rows + (n - first) * row + tap * c.channels;
                       const auto bytes = static_cast<std::size_t>(count * c.channels) * sizeof(T);
                       if (from < 0) std::memset(to, 0, bytes);
                       else std::memcpy(to, x + n / positions * item + from * c.channels, bytes);
                     });
             });
}

// Adds them to x. Items in parallel: windows overlap within one.
template <class T>
void roll_up(WorkerPool* pool, const ConvolveArgs& c, const T* rows, T* x, std::int64_t first,
             std::int64_t last) {
  const std::int64_t row = c.windows.taps() * c.channels, item = c.windows.inputs() * c.channels,
                     positions = c.windows.outputs();
  const std::int64_t first_item = first / positions,
                     items = (last - 1) / positions + 1 - first_item;
  for_blocks(pool, items, [&](int b) {
    const std::int64_t n = first_item + b;
    for (std::int64_t at = std::max(first, n * positions); at < std::min(last, (n + 1) * positions);
         ++at)
      for_each_run(c.windows, at - n * positions,
                   [&](std::int64_t tap, std::int64_t count, std::int64_t element) {
                     if (element < 0) return;
                     const T* from = rows + (at - first) * row + tap * c.channels;
                     T* to = x + n * item + element * c.channels;
                     for (std::int64_t i = 0; i < count * c.channels; ++i) to[i] += from[i];
                   });
  });
}

template <class T>
void convolve(const CpuPrimitives& cpu, Stream& stream, WorkerPool* pool, const ConvolveArgs& c) {
  const DType type = dtype_of<T>;
  const std::int64_t positions = c.batch * c.windows.outputs(), row = c.windows.taps() * c.channels;
  const bool is_direct = is_pointwise(c.windows);
  const std::int64_t together = is_direct || type == DType::f32
                                    ? positions
                                    : std::clamp<std::int64_t>(kRowsAtOnce / row, 1, positions);
  const Shape w_shape{row, c.filters};
  auto buffer = [](std::int64_t elements) {
    return Buffer::allocate(host_allocator(), static_cast<std::size_t>(elements) * sizeof(T));
  };
  Ref<Buffer> memory, part;
  if (!is_direct) memory = buffer(together * row);
  const T* a = static_cast<const T*>(c.a.data());
  T* out = static_cast<T*>(c.out.data);
  if (c.what == Convolve::input && !is_direct) std::memset(c.out.data, 0, c.out.bytes());
  for (std::int64_t first = 0; first < positions; first += together) {
    const std::int64_t last = std::min(positions, first + together);
    const Shape rows_shape{last - first, row}, y_shape{last - first, c.filters};
    T* rows = is_direct ? nullptr : static_cast<T*>(memory->data());
    if (c.what == Convolve::input) {
      if (is_direct) rows = out;
      cpu.matmul(stream,
                 {ConstView(a + first * c.filters, type, y_shape),
                  ConstView(c.b.data(), type, w_shape), View(rows, type, rows_shape), false, true});
      if (!is_direct) roll_up(pool, c, rows, out, first, last);
      continue;
    }
    if (!is_direct) unroll(pool, c, a, rows, first, last);
    const ConstView windows(is_direct ? a : rows, type, rows_shape);
    if (c.what == Convolve::output) {
      cpu.matmul(stream, {windows, ConstView(c.b.data(), type, w_shape),
                          View(out + first * c.filters, type, y_shape)});
      continue;
    }
    // The filter's gradient is the sum of the pieces', in order.
    if (first > 0 && !part) part = buffer(w_shape.elements());
    T* to = first > 0 ? static_cast<T*>(part->data()) : out;
    cpu.matmul(
        stream,
        {windows, ConstView(static_cast<const T*>(c.b.data()) + first * c.filters, type, y_shape),
         View(to, type, w_shape), true, false});
    for (std::int64_t i = 0; to != out && i < w_shape.elements(); ++i) out[i] += to[i];
  }
}

}  // namespace

bool is_better_as_product(const ConvolveArgs& c) {
  if (c.groups != 1) return false;
  return c.out.dtype == DType::f64 ||
         (c.channels >= kFewestChannels && c.batch * c.windows.outputs() <= kMostPositions);
}

void convolve_as_product(const CpuPrimitives& cpu, Stream& stream, WorkerPool* pool,
                         const ConvolveArgs& c) {
  if (c.out.dtype == DType::f64) convolve<double>(cpu, stream, pool, c);
  else convolve<float>(cpu, stream, pool, c);
}

}  // namespace troupe::cpu
