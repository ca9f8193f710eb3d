#include <troupe/devices/cpu/move.hpp>

#include <cstring>

#include <fmt/format.h>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>

namespace troupe::cpu {

void check_index_type(const char* op, const ConstView& indices) {
  if (indices.dtype != DType::i32 && indices.dtype != DType::i64)
    throw Error(Code::invalid_argument, fmt::format("{}: indices are i32 or i64, not {}", op, name_of(indices.dtype)));
}

void check_index(const char* op, std::int64_t index, std::int64_t position, std::int64_t bound) {
  if (index < 0 || index >= bound)
    throw Error(Code::out_of_range,
                fmt::format("{}: index {} at position {} is outside [0, {})", op, index, position, bound));
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
  for_ranges(pool, n, kBlock, [&](std::int64_t begin, std::int64_t end) { std::fill(to + begin, to + end, value); });
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
void transpose_matrix(T* out, std::int64_t out_step, const T* in, std::int64_t in_step, std::int64_t rows,
                      std::int64_t columns) {
  constexpr std::int64_t side = 16;
  for (std::int64_t r0 = 0; r0 < rows; r0 += side)
    for (std::int64_t c0 = 0; c0 < columns; c0 += side) {
      std::int64_t r1 = std::min(rows, r0 + side), c1 = std::min(columns, c0 + side);
      for (std::int64_t r = r0; r < r1; ++r)
        for (std::int64_t c = c0; c < c1; ++c) out[r * out_step + c] = in[c * in_step + r];
    }
}

// The output's axes but the last two (or one) are walked; what is left is a matrix, a row copied
// whole, or a strided row.
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
  std::int64_t cut = other >= 0 ? std::clamp<std::int64_t>(kBlock / std::max<std::int64_t>(1, row) / 16 * 16, 16, axes.extent[other]) : 1;
  std::int64_t cuts = other >= 0 ? (axes.extent[other] + cut - 1) / cut : 1;
  std::int64_t group = std::max<std::int64_t>(1, kBlock / std::max<std::int64_t>(1, inner / cuts));
  std::int64_t items = outer * cuts;
  WorkerPool* used = items * (inner / cuts) <= kSmallWork ? nullptr : pool;
  for_blocks(used, (items + group - 1) / group, [&](int b) {
    // Where the first item is, by divisions; the others by steps, since rows may be short.
    std::int64_t at[Shape::kMaxRank], part = b * group % cuts, rest = b * group / cuts, from = 0, to = 0;
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
    for (std::int64_t item = b * group; item < std::min(items, (b + 1) * group); ++item, advance()) {
      if (other >= 0) {
        std::int64_t r0 = part * cut, rows = std::min(cut, axes.extent[other] - r0);
        transpose_matrix(out + to + r0 * out_step[other], out_step[other], in + from + r0, step, rows, row);
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
  visit_bytes(size_of(out.dtype), [&]<class T>(T) { fill_elements<T>(pool_, out.data, scalar.raw(), out.elements()); });
}

void CpuPrimitives::transpose(Stream&, ConstView in, View out, std::span<const std::int64_t> permutation) const {
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
  while (walked > 0 && in_step[walked - 1] == run && out_step[walked - 1] == run) run *= extents[--walked];
  std::int64_t items = extents.elements() / run;
  std::int64_t group = std::max<std::int64_t>(1, kBlock / run);
  const std::byte* source = bytes_of(in);
  std::byte* target = bytes_of(out);
  WorkerPool* used = extents.elements() <= kSmallWork ? nullptr : pool_;
  for_blocks(used, (items + group - 1) / group, [&](int b) {
    for (std::int64_t item = b * group; item < std::min(items, (b + 1) * group); ++item) {
      std::int64_t rest = item, i = in_at, o = out_at;
      for (int d = walked - 1; d >= 0; --d) {
        std::int64_t at = rest % extents[d];
        rest /= extents[d];
        i += at * in_step[d];
        o += at * out_step[d];
      }
      std::memcpy(target + static_cast<std::size_t>(o) * bytes, source + static_cast<std::size_t>(i) * bytes,
                  static_cast<std::size_t>(run) * bytes);
    }
  });
}

void CpuPrimitives::gather(Stream&, ConstView params, ConstView indices, int axis, View out) const {
  check_index_type("gather", indices);
  std::int64_t count = indices.elements(), bound = params.shape[axis];
  for (std::int64_t i = 0; i < count; ++i) check_index("gather", index_at(indices, i), i, bound);
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
    for (std::int64_t r = b * group; r < std::min(rows, (b + 1) * group); ++r) {
      std::int64_t o = r / count, i = r % count;
      std::memcpy(to + static_cast<std::size_t>(r) * row,
                  from + static_cast<std::size_t>(o * bound + index_at(indices, i)) * row, row);
    }
  });
}

namespace {

template <class T>
T plus(T x, T y, bool minus) {
  if constexpr (std::is_same_v<T, bool>) return minus ? x != y : x || y;
  else if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>)
    return T(minus ? float(x) - float(y) : float(x) + float(y));
  else if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(minus ? U(x) - U(y) : U(x) + U(y)));
  } else return minus ? x - y : x + y;
}

// As the reductions: NaN wins.
template <class T>
T extreme(T x, T y, bool largest) {
  if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>)
    throw Error(Code::unimplemented, "complex numbers have no order");
  else if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>)
    return T(extreme(float(x), float(y), largest));
  else return x != x || (largest ? y <= x : y >= x) ? x : y;
}

}  // namespace

void CpuPrimitives::scatter(Stream&, Scatter how, ConstView indices, ConstView updates, View out) const {
  check_index_type("scatter", indices);
  std::int64_t count = indices.elements(), bound = out.shape[0];
  for (std::int64_t i = 0; i < count; ++i) check_index("scatter", index_at(indices, i), i, bound);
  std::int64_t inner = 1;
  for (int d = 1; d < out.shape.rank(); ++d) inner *= out.shape[d];
  std::size_t row = static_cast<std::size_t>(inner) * size_of(out.dtype);
  if (how == Scatter::update) {
    for (std::int64_t i = 0; i < count && row; ++i)
      std::memcpy(bytes_of(out) + static_cast<std::size_t>(index_at(indices, i)) * row,
                  bytes_of(updates) + static_cast<std::size_t>(i) * row, row);
    return;
  }
  visit_dtype(out.dtype, [&]<class T>(type_tag<T>) {
    T* to = static_cast<T*>(out.data);
    const T* from = static_cast<const T*>(updates.data());
    for (std::int64_t i = 0; i < count; ++i) {
      T* target = to + index_at(indices, i) * inner;
      if (how == Scatter::min || how == Scatter::max)
        for (std::int64_t j = 0; j < inner; ++j) target[j] = extreme(target[j], from[i * inner + j], how == Scatter::max);
      else
        for (std::int64_t j = 0; j < inner; ++j) target[j] = plus(target[j], from[i * inner + j], how == Scatter::sub);
    }
  });
}

void CpuPrimitives::one_hot(Stream&, ConstView indices, const Tensor& on, const Tensor& off, View out) const {
  check_index_type("one_hot", indices);
  std::int64_t depth = out.shape[out.shape.rank() - 1], n = indices.elements();
  visit_bytes(size_of(out.dtype), [&]<class T>(T) {
    fill_elements<T>(pool_, out.data, off.raw(), out.elements());
    for (std::int64_t i = 0; i < n; ++i) {
      std::int64_t at = index_at(indices, i);
      if (at >= 0 && at < depth) std::memcpy(static_cast<T*>(out.data) + i * depth + at, on.raw(), sizeof(T));
    }
  });
}

void CpuPrimitives::range(Stream&, const Tensor& start, const Tensor& step, View out) const {
  visit_dtype(out.dtype, [&]<class T>(type_tag<T>) {
    T* to = static_cast<T*>(out.data);
    T first = start.item<T>(), by = step.item<T>();
    auto element = [&](std::int64_t i) -> T {
      if constexpr (std::is_same_v<T, bool>) return first;
      else if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>)
        return T(static_cast<float>(double(float(first)) + double(i) * double(float(by))));
      else if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<std::uint64_t>(first) + static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(by));
      else if constexpr (std::is_same_v<T, float>) return static_cast<float>(double(first) + double(i) * double(by));
      else if constexpr (std::is_same_v<T, double>) return first + double(i) * by;
      else return first + typename T::value_type(i) * by;
    };
    for_ranges(pool_, out.elements(), kBlock, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = element(i);
    });
  });
}

}  // namespace troupe::cpu
