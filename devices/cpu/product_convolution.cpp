#include <troupe/devices/cpu/product_convolution.hpp>

#include <cstring>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>

namespace troupe::cpu {
namespace {

constexpr std::int64_t kMostPositions = 1024;  // above, reordering the filter is little beside the work
constexpr std::int64_t kFewestChannels = 16;   // below, a window's row is made of scraps

/// Calls f(first of the taps, how many follow it side by side, element of x or -1 for padding) for each run of a window's row along the
/// last axis; padded runs and single ones, if the taps are apart in x.
template <class F>
void for_each_run(const Windows& w, std::int64_t position, F&& f) {
  const auto& [p, q, r] = w.axis;
  const std::int64_t i = position / (q.out * r.out), j = position / r.out % q.out, k = position % r.out;
  std::int64_t tap = 0;
  for (std::int64_t a = 0; a < p.size; ++a)
    for (std::int64_t b = 0; b < q.size; ++b, tap += r.size) {
      const std::int64_t x = p.start(i) + a * p.dilation, y = q.start(j) + b * q.dilation;
      if (x < 0 || x >= p.in || y < 0 || y >= q.in) {
        f(tap, r.size, -1);
        continue;
      }
      const std::int64_t first = std::min(r.first_tap(k), r.size), last = std::max(first, r.last_tap(k)), line = (x * q.in + y) * r.in + r.start(k);
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

template <class F>
void for_each_position(WorkerPool* pool, const ConvolveArgs& c, std::int64_t row, F&& f) {
  const std::int64_t positions = c.windows.outputs();
  for_ranges(c.batch * positions * row <= kSmallWork ? nullptr : pool, c.batch * positions, std::max<std::int64_t>(1, kBlock / row),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t n = begin; n < end; ++n) f(n, n / positions, n % positions);
             });
}

void unroll(WorkerPool* pool, const ConvolveArgs& c, const float* x, float* rows) {
  const std::int64_t row = c.windows.taps() * c.channels, item = c.windows.inputs() * c.channels;
  for_each_position(pool, c, row, [&](std::int64_t n, std::int64_t of, std::int64_t position) {
    for_each_run(c.windows, position, [&](std::int64_t tap, std::int64_t count, std::int64_t from) {
      float* to = rows + n * row + tap * c.channels;
      const auto bytes = static_cast<std::size_t>(count * c.channels) * sizeof(float);
      if (from < 0) std::memset(to, 0, bytes);
      else std::memcpy(to, x + of * item + from * c.channels, bytes);
    });
  });
}

// Items in parallel: windows overlap within one.
void roll_up(WorkerPool* pool, const ConvolveArgs& c, const float* rows, float* x) {
  const std::int64_t row = c.windows.taps() * c.channels, item = c.windows.inputs() * c.channels, positions = c.windows.outputs();
  for_blocks(pool, c.batch, [&](int n) {
    float* mine = x + n * item;
    std::memset(mine, 0, static_cast<std::size_t>(item) * sizeof(float));
    for (std::int64_t position = 0; position < positions; ++position)
      for_each_run(c.windows, position, [&](std::int64_t tap, std::int64_t count, std::int64_t at) {
        if (at < 0) return;
        const float* from = rows + (n * positions + position) * row + tap * c.channels;
        float* to = mine + at * c.channels;
        for (std::int64_t i = 0; i < count * c.channels; ++i) to[i] += from[i];
      });
  });
}

}  // namespace

bool is_better_as_product(const ConvolveArgs& c) {
  return c.groups == 1 && c.channels >= kFewestChannels && c.batch * c.windows.outputs() <= kMostPositions;
}

void convolve_as_product(const CpuPrimitives& cpu, Stream& stream, WorkerPool* pool, const ConvolveArgs& c) {
  const std::int64_t positions = c.batch * c.windows.outputs(), row = c.windows.taps() * c.channels;
  const Shape rows_shape{positions, row}, y_shape{positions, c.filters}, w_shape{row, c.filters};
  auto matrix = [](const void* data, const Shape& shape) { return ConstView(data, DType::f32, shape); };
  const bool is_direct = is_pointwise(c.windows);
  Ref<Buffer> memory;
  if (!is_direct) memory = Buffer::allocate(host_allocator(), static_cast<std::size_t>(rows_shape.elements()) * sizeof(float));
  if (c.what == Convolve::input) {
    void* rows = is_direct ? c.out.data : memory->data();
    cpu.matmul(stream, {matrix(c.a.data(), y_shape), matrix(c.b.data(), w_shape), View(rows, DType::f32, rows_shape), false, true});
    if (!is_direct) roll_up(pool, c, static_cast<const float*>(rows), static_cast<float*>(c.out.data));
    return;
  }
  const float* x = static_cast<const float*>(c.a.data());
  if (!is_direct) unroll(pool, c, x, static_cast<float*>(memory->data()));
  const ConstView rows = matrix(is_direct ? x : memory->data(), rows_shape);
  if (c.what == Convolve::output) cpu.matmul(stream, {rows, matrix(c.b.data(), w_shape), View(c.out.data, DType::f32, y_shape)});
  else cpu.matmul(stream, {rows, matrix(c.b.data(), y_shape), View(c.out.data, DType::f32, w_shape), true, false});
}

}  // namespace troupe::cpu
