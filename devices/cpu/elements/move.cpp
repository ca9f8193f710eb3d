#include <troupe/devices/cpu/elements/move.hpp>

#include <cstring>

#include <fmt/format.h>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/element_types.hpp>
#include <troupe/devices/cpu/level.hpp>

namespace troupe::cpu {

void check_index_type(const ConstView& indices) {
  if (indices.dtype != DType::i32 && indices.dtype != DType::i64)
    throw Error(Code::invalid_argument,
                fmt::format("indices are i32 or i64, not {}", name_of(indices.dtype)));
}

void check_index(std::int64_t index, std::int64_t position, std::int64_t bound) {
  if (index < 0 || index >= bound)
    throw Error(Code::out_of_range,
                fmt::format("index {} at position {} is outside [0, {})", index, position, bound));
}

void check_indices(const ConstView& indices, std::int64_t bound) {
  check_index_type(indices);
  const std::int64_t count = indices.elements();
  bool is_good = true;
  visit_indices(indices, [&](const auto* index) { is_good = are_inside(index, count, bound); });
  for (std::int64_t i = 0; !is_good && i < count; ++i) check_index(index_at(indices, i), i, bound);
}

namespace {

const std::byte* bytes_of(const ConstView& v) { return static_cast<const std::byte*>(v.data()); }
std::byte* bytes_of(const View& v) { return static_cast<std::byte*>(v.data); }

void copy_bytes(WorkerPool* pool, std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::int64_t block = 1 << 18;
  auto part = [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  };
  if (bytes <= static_cast<std::size_t>(block)) {
    if (bytes) std::memcpy(to, from, bytes);
  } else {
    for_ranges(pool, static_cast<std::int64_t>(bytes), block, part);
  }
}

template <class T>
void fill_elements(WorkerPool* pool, void* out, const void* element, std::int64_t n) {
  T value;
  std::memcpy(&value, element, sizeof value);
  T* to = static_cast<T*>(out);
  constexpr std::int64_t kPattern = 512 / sizeof(T);
  T pattern[kPattern];  // copied from, which is many elements at a time
  std::fill(pattern, pattern + std::min(n, kPattern), value);
  for_ranges(pool, n, kBlock, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += kPattern)
      std::memcpy(to + begin, pattern,
                  static_cast<std::size_t>(std::min(kPattern, end - begin)) * sizeof(T));
  });
}

// Axes of a permuted copy in the output's order: extent, and the step in the input.
struct Axes {
  int rank = 0;
  std::int64_t extent[Shape::kMaxRank];
  std::int64_t step[Shape::kMaxRank];

  void add(std::int64_t n, std::int64_t s) {
    if (n == 1) return;
    if (rank > 0 && step[rank - 1] == s * n) {  // follows on the axis before
      extent[rank - 1] *= n;
      step[rank - 1] = s;
      return;
    }
    extent[rank] = n;
    step[rank++] = s;
  }
};

// out[i, j] = in[j, i] of a rows × columns output, in squares that fit the cache.
template <class T>
void transpose_matrix(T* out, std::int64_t out_step, const T* in, std::int64_t in_step,
                      std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t side = 16;
  for (std::int64_t r0 = 0; r0 < rows; r0 += side)
    for (std::int64_t c0 = 0; c0 < columns; c0 += side) {
      std::int64_t r1 = std::min(rows, r0 + side), c1 = std::min(columns, c0 + side);
      for (std::int64_t r = r0; r < r1; ++r)
        for (std::int64_t c = c0; c < c1; ++c) out[r * out_step + c] = in[c * in_step + r];
    }
}

// The output's axes but the last two (or one) are walked; the rest is a matrix, a row copied whole,
// or a strided row.
template <class T>
void permute_elements(WorkerPool* pool, const T* in, T* out, const Axes& axes) {
  int last = axes.rank - 1;
  std::int64_t row = axes.extent[last], step = axes.step[last];
  int other = -1;  // the axis along which the input is dense
  for (int d = 0; d < last; ++d)
    if (axes.step[d] == 1) other = d;
  std::int64_t out_step[Shape::kMaxRank];
  std::int64_t s = 1;
  for (int d = last; d >= 0; --d) {
    out_step[d] = s;
    s *= axes.extent[d];
  }
  // Outer positions: every axis but `last` and `other`.
  std::int64_t outer = 1;
  for (int d = 0; d < last; ++d)
    if (d != other) outer *= axes.extent[d];
  std::int64_t inner = row * (other >= 0 ? axes.extent[other] : 1);
  // Long matrices are cut along `other`.
  std::int64_t cut =
      other >= 0 ? std::clamp<std::int64_t>(kBlock / std::max<std::int64_t>(1, row) / 16 * 16, 16,
                                            axes.extent[other])
                 : 1;
  std::int64_t cuts = other >= 0 ? (axes.extent[other] + cut - 1) / cut : 1;
  std::int64_t group = std::max<std::int64_t>(1, kBlock / std::max<std::int64_t>(1, inner / cuts));
  std::int64_t items = outer * cuts;
  WorkerPool* used = items * (inner / cuts) <= kSmallWork ? nullptr : pool;
  for_blocks(used, (items + group - 1) / group, [&](int b) {
    // The first item's position takes divisions; the others take steps, since rows may be short.
    std::int64_t at[Shape::kMaxRank], part = b * group % cuts, rest = b * group / cuts, from = 0,
                                      to = 0;
    for (int d = last - 1; d >= 0; --d) {
      if (d == other) continue;
      at[d] = rest % axes.extent[d];
      rest /= axes.extent[d];
      from += at[d] * axes.step[d];
      to += at[d] * out_step[d];
    }
    auto advance = [&] {
      if (++part < cuts) return;
      part = 0;
      for (int d = last - 1; d >= 0; --d) {
        if (d == other) continue;
        from += axes.step[d];
        to += out_step[d];
        if (++at[d] < axes.extent[d]) return;
        from -= axes.extent[d] * axes.step[d];
        to -= axes.extent[d] * out_step[d];
        at[d] = 0;
      }
    };
    for (std::int64_t item = b * group; item < std::min(items, (b + 1) * group);
         ++item, advance()) {
      if (other >= 0) {
        std::int64_t r0 = part * cut, rows = std::min(cut, axes.extent[other] - r0);
        transpose_matrix(out + to + r0 * out_step[other], out_step[other], in + from + r0, step,
                         rows, row);
      } else if (step == 1) {
        std::memcpy(out + to, in + from, static_cast<std::size_t>(row) * sizeof(T));
      } else {
        for (std::int64_t i = 0; i < row; ++i) out[to + i] = in[from + i * step];
      }
    }
  });
}

}  // namespace

void permute(WorkerPool* pool, const void* in, const Shape& in_shape, void* out,
             std::span<const std::int64_t> permutation, std::size_t bytes) {
  if (in_shape.elements() == 0) return;
  std::int64_t step[Shape::kMaxRank];
  std::int64_t s = 1;
  for (int axis = in_shape.rank() - 1; axis >= 0; --axis) {
    step[axis] = s;
    s *= in_shape[axis];
  }
  Axes axes;
  for (std::int64_t axis : permutation) axes.add(in_shape[static_cast<int>(axis)], step[axis]);
  if (axes.rank == 0) axes.extent[0] = 1, axes.step[0] = 1, axes.rank = 1;
  if (axes.rank == 1)
    return copy_bytes(pool, static_cast<std::byte*>(out), static_cast<const std::byte*>(in),
                      static_cast<std::size_t>(in_shape.elements()) * bytes);
  visit_bytes(bytes, [&]<class T>(T) {
    permute_elements(pool, static_cast<const T*>(in), static_cast<T*>(out), axes);
  });
}

void CpuPrimitives::copy(Stream&, ConstView in, View out) const {
  if (in.data() != out.data) copy_bytes(pool_, bytes_of(out), bytes_of(in), in.bytes());
}

void CpuPrimitives::fill(Stream&, const Tensor& scalar, View out) const {
  visit_bytes(size_of(out.dtype),
              [&]<class T>(T) { fill_elements<T>(pool_, out.data, scalar.raw(), out.elements()); });
}

void CpuPrimitives::transpose(Stream&, ConstView in, View out,
                              std::span<const std::int64_t> permutation) const {
  permute(pool_, in.data(), in.shape, out.data, permutation, size_of(in.dtype));
}

void CpuPrimitives::copy_block(Stream&, ConstView in, const Block& from, View out, const Block& to,
                               const Shape& extents) const {
  if (extents.elements() == 0) return;
  std::size_t bytes = size_of(in.dtype);
  int rank = extents.rank();
  std::int64_t in_step[Shape::kMaxRank], out_step[Shape::kMaxRank];
  std::int64_t si = 1, so = 1, in_at = 0, out_at = 0;
  for (int d = rank - 1; d >= 0; --d) {
    in_at += from.start[d] * si;
    out_at += to.start[d] * so;
    in_step[d] = from.step[d] * si;
    out_step[d] = to.step[d] * so;
    si *= in.shape[d];
    so *= out.shape[d];
  }
  // Innermost axes that are dense on both sides are one run of bytes.
  std::int64_t run = 1;
  int walked = rank;
  while (walked > 0 && in_step[walked - 1] == run && out_step[walked - 1] == run)
    run *= extents[--walked];
  // The runs along the last axis that is walked are a line.
  const int outer = walked > 0 ? walked - 1 : 0;
  const std::int64_t runs = walked > 0 ? extents[outer] : 1,
                     in_line = walked > 0 ? in_step[outer] : 0,
                     out_line = walked > 0 ? out_step[outer] : 0;
  const std::int64_t lines = extents.elements() / run / runs;
  // Long lines are cut as well.
  const std::int64_t piece = std::min(runs, std::max<std::int64_t>(1, kBlock / run)),
                     pieces = (runs + piece - 1) / piece, items = lines * pieces;
  const std::int64_t group = std::max<std::int64_t>(1, kBlock / (run * piece));
  const std::byte* source = bytes_of(in);
  std::byte* target = bytes_of(out);
  auto copy_line = [&](std::int64_t i, std::int64_t o, std::int64_t count) {
    if (run == 1)
      return visit_bytes(bytes, [&]<class T>(T) {
        const T* x = reinterpret_cast<const T*>(source) + i;
        T* y = reinterpret_cast<T*>(target) + o;
        for (std::int64_t n = 0; n < count; ++n) y[n * out_line] = x[n * in_line];
      });
    for (std::int64_t n = 0; n < count; ++n)
      std::memcpy(target + static_cast<std::size_t>(o + n * out_line) * bytes,
                  source + static_cast<std::size_t>(i + n * in_line) * bytes,
                  static_cast<std::size_t>(run) * bytes);
  };
  WorkerPool* used = extents.elements() <= kSmallWork ? nullptr : pool_;
  for_blocks(used, (items + group - 1) / group, [&](int b) {
    for (std::int64_t item = b * group; item < std::min(items, (b + 1) * group); ++item) {
      const std::int64_t first = item % pieces * piece;
      std::int64_t rest = item / pieces, i = in_at + first * in_line, o = out_at + first * out_line;
      for (int d = outer - 1; d >= 0; --d) {
        std::int64_t at = rest % extents[d];
        rest /= extents[d];
        i += at * in_step[d];
        o += at * out_step[d];
      }
      copy_line(i, o, std::min(piece, runs - first));
    }
  });
}

void CpuPrimitives::gather(Stream&, ConstView params, ConstView indices, int axis, View out) const {
  std::int64_t count = indices.elements(), bound = params.shape[axis];
  check_indices(indices, bound);
  std::int64_t outer = 1, inner = 1;
  for (int d = 0; d < axis; ++d) outer *= params.shape[d];
  for (int d = axis + 1; d < params.shape.rank(); ++d) inner *= params.shape[d];
  std::size_t row = static_cast<std::size_t>(inner) * size_of(params.dtype);
  if (row == 0 || outer * count == 0) return;
  const std::byte* from = bytes_of(params);
  std::byte* to = bytes_of(out);
  std::int64_t rows = outer * count, group = std::max<std::int64_t>(1, kBlock / inner);
  WorkerPool* used = rows * inner <= kSmallWork ? nullptr : pool_;
  for_blocks(used, (rows + group - 1) / group, [&](int b) {
    const std::int64_t end = std::min(rows, (b + 1) * group);
    // as far as they are of one outer position
    for (std::int64_t r = b * group, next; r < end; r = next) {
      const std::int64_t o = r / count;
      next = std::min(end, (o + 1) * count);
      visit_indices(indices, [&](const auto* index) {
        index += r - o * count;
        std::byte* mine = to + static_cast<std::size_t>(r) * row;
        const std::byte* source = from + static_cast<std::size_t>(o * bound) * row;
        if (inner == 1)
          return visit_bytes(row, [&]<class T>(T) {
            for (std::int64_t i = 0; i < next - r; ++i)
              reinterpret_cast<T*>(mine)[i] = reinterpret_cast<const T*>(source)[index[i]];
          });
        for (std::int64_t i = 0; i < next - r; ++i)
          std::memcpy(mine + static_cast<std::size_t>(i) * row,
                      source + static_cast<std::size_t>(index[i]) * row, row);
      });
    }
  });
}

namespace {

template <class T>
T plus(T x, T y, bool minus) {
  if constexpr (std::is_same_v<T, bool>) return minus ? x != y : x || y;
  else if constexpr (is_small_float<T>) return T(minus ? float(x) - float(y) : float(x) + float(y));
  else if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(minus ? U(x) - U(y) : U(x) + U(y)));
  } else return minus ? x - y : x + y;
}

// elements worth going through the indices more than once
constexpr std::int64_t kSplitScatter = 1 << 18;

// As the reductions: NaN wins.
template <class T>
T extreme(T x, T y, bool largest) {
  if constexpr (is_complex_type<T>) return x;  // refused before
  else if constexpr (is_small_float<T>) return T(extreme(float(x), float(y), largest));
  else return x != x || (largest ? y <= x : y >= x) ? x : y;
}

}  // namespace

void CpuPrimitives::scatter(Stream&, Scatter how, ConstView indices, ConstView updates,
                            View out) const {
  std::int64_t count = indices.elements(), bound = out.shape[0];
  check_indices(indices, bound);
  std::int64_t inner = 1;
  for (int d = 1; d < out.shape.rank(); ++d) inner *= out.shape[d];
  std::size_t row = static_cast<std::size_t>(inner) * size_of(out.dtype);
  if (how == Scatter::update) {
    for (std::int64_t i = 0; i < count && row; ++i)
      std::memcpy(bytes_of(out) + static_cast<std::size_t>(index_at(indices, i)) * row,
                  bytes_of(updates) + static_cast<std::size_t>(i) * row, row);
    return;
  }
  if (is_complex(out.dtype) && (how == Scatter::min || how == Scatter::max))
    throw Error(Code::unimplemented, "complex numbers have no order");
  visit_dtype(out.dtype, [&]<class T>(type_tag<T>) {
    T* to = static_cast<T*>(out.data);
    const T* from = static_cast<const T*>(updates.data());
    auto put = [&](std::int64_t first, std::int64_t last, auto&& into) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t at = index_at(indices, i);
        if (at >= first && at < last) into(to + at * inner, from + i * inner);
      }
    };
    auto each = [&](auto&& f) {
      return [&, f](T* target, const T* source) {
        for (std::int64_t j = 0; j < inner; ++j) target[j] = f(target[j], source[j]);
      };
    };
    // Each part has rows of its own, and goes through all updates: an element's come in their
    // order.
    const std::int64_t parts = inner >= 16 && count * inner >= kSplitScatter ? 4 : 1;
    for_blocks(pool_, parts, [&](int part) {
      const std::int64_t first = bound * part / parts, last = bound * (part + 1) / parts;
      if (how == Scatter::min)
        return put(first, last, each([](T x, T y) { return extreme(x, y, false); }));
      if (how == Scatter::max)
        return put(first, last, each([](T x, T y) { return extreme(x, y, true); }));
      if (how == Scatter::sub)
        return put(first, last, each([](T x, T y) { return plus(x, y, true); }));
      if constexpr (std::is_same_v<T, float>)
        return put(first, last, [&, &k = level_kernels()](float* target, const float* source) {
          k.add_f32(target, source, inner);
        });
      else return put(first, last, each([](T x, T y) { return plus(x, y, false); }));
    });
  });
}

void CpuPrimitives::one_hot(Stream&, ConstView indices, const Tensor& on, const Tensor& off,
                            View out) const {
  check_index_type(indices);
  std::int64_t depth = out.shape[out.shape.rank() - 1], n = indices.elements();
  visit_bytes(size_of(out.dtype), [&]<class T>(T) {
    fill_elements<T>(pool_, out.data, off.raw(), out.elements());
    for (std::int64_t i = 0; i < n; ++i) {
      std::int64_t at = index_at(indices, i);
      if (at >= 0 && at < depth)
        std::memcpy(static_cast<T*>(out.data) + i * depth + at, on.raw(), sizeof(T));
    }
  });
}

// As the bits of an integer of either sign.
std::uint64_t wrapped(double whole) {
  return whole < 0 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(whole))
                   : static_cast<std::uint64_t>(whole);
}

void CpuPrimitives::range(Stream&, double start, double step, View out) const {
  visit_dtype(out.dtype, [&]<class T>(type_tag<T>) {
    T* to = static_cast<T*>(out.data);
    const auto element = [&](std::int64_t i) -> T {
      const double exact = start + static_cast<double>(i) * step;
      if constexpr (std::is_same_v<T, bool>) return exact != 0;
      else if constexpr (std::is_integral_v<T>)
        return static_cast<T>(wrapped(start) + static_cast<std::uint64_t>(i) * wrapped(step));
      else if constexpr (is_small_float<T>) return T(exact);
      else return static_cast<T>(exact);
    };
    for_ranges(pool_, out.elements(), kBlock, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = element(i);
    });
  });
}

}  // namespace troupe::cpu
