// Normalisation over rows, and sums over columns: those of its gradient, and moments by channel.
//
// Sums are in double. A column's rows are cut into chunks by the shape alone; a thread adds up one
// column of a chunk, so that a warp reads dense memory, and a second kernel adds the chunks in
// order.
#include <troupe/devices/cuda/kernels/launch.hpp>
#include <troupe/devices/cuda/kernels/nn.hpp>
#include <troupe/devices/cuda/kernels/row_group.hpp>

namespace troupe::cuda {
namespace {

// A parameter of each column: one element may stand for all.
template <class T>
struct PerColumn {
  const T* data;
  bool is_for_all;
  __device__ double operator[](std::int64_t i) const {
    return data ? static_cast<double>(wide(data[is_for_all ? 0 : i])) : 0;
  }
};

// A power of two by which elements of f64 are multiplied, so that their squares are numbers. The
// squares of smaller types are numbers of f64 anyway.
template <class T>
__device__ double unit_of(const T* x, std::int64_t n, int lane, int lanes) {
  if constexpr (!std::is_same_v<T, double>) return 1;
  else {
    double largest = 0;
    for (std::int64_t i = lane; i < n; i += lanes) largest = fmax(largest, fabs(x[i]));
    largest = merged_in_group(largest, lanes, [](double a, double b) { return fmax(a, b); });
    if (!(largest > 0) || largest > 1.7e308) return 1;
    const int exponent = -ilogb(largest);
    return ldexp(1.0, exponent > 1000 ? 1000 : exponent < -1000 ? -1000 : exponent);
  }
}

template <class T>
struct RowNorm {
  const T* x;
  PerColumn<T> scale, bias;
  T* y;
  Wide<T>*mean, *rstd;
  double epsilon;
  bool is_centered;
};

template <class T>
__global__ __launch_bounds__(kThreads) void normalize_rows(RowNorm<T> a, RowShape s) {
  for (RowWalk w(s); w.is_inside(); w.next()) {
    const std::int64_t n = w.has_row() ? s.n : 0;
    const T* x = a.x + w.row * s.n;
    const double count = static_cast<double>(s.n), unit = unit_of(x, n, w.lane, s.lanes);
    double sum = 0;
    for (std::int64_t i = w.lane; a.is_centered && i < n; i += s.lanes)
      sum += double(wide(x[i])) * unit;
    const double center = merged_in_group(sum, s.lanes, Plus{}) / count;
    double squares = 0;
    for (std::int64_t i = w.lane; i < n; i += s.lanes) {
      const double off = double(wide(x[i])) * unit - center;
      squares += off * off;
    }
    squares = merged_in_group(squares, s.lanes, Plus{});
    if (!w.has_row()) continue;
    const double spread = unit == 1 ? sqrt(squares / count + a.epsilon)
                                    : hypot(sqrt(squares / count) / unit, sqrt(a.epsilon)),
                 factor = 1 / (spread * unit);
    for (std::int64_t i = w.lane; i < s.n; i += s.lanes)
      a.y[w.row * s.n + i] =
          narrowed<T>((double(wide(x[i])) * unit - center) * factor * a.scale[i] + a.bias[i]);
    if (w.lane > 0) continue;
    if (a.mean) a.mean[w.row] = static_cast<Wide<T>>(center / unit);
    a.rstd[w.row] = static_cast<Wide<T>>(1 / spread);
  }
}

template <class T>
struct RowNormBack {
  const T *x, *dy;
  PerColumn<T> scale;
  const Wide<T>*mean, *rstd;
  T* dx;
};

template <class T>
__global__ __launch_bounds__(kThreads) void normalize_back(RowNormBack<T> a, RowShape s) {
  for (RowWalk w(s); w.is_inside(); w.next()) {
    const std::int64_t n = w.has_row() ? s.n : 0;
    const T *x = a.x + w.row * s.n, *dy = a.dy + w.row * s.n;
    const double mean = a.mean && n ? a.mean[w.row] : 0, rstd = n ? a.rstd[w.row] : 0,
                 count = static_cast<double>(s.n);
    double of_g = 0, of_gh = 0;
    for (std::int64_t i = w.lane; i < n; i += s.lanes) {
      const double g = double(wide(dy[i])) * a.scale[i];
      if (a.mean) of_g += g;
      of_gh += g * (double(wide(x[i])) - mean) * rstd;
    }
    of_g = merged_in_group(of_g, s.lanes, Plus{}) / count;
    of_gh = merged_in_group(of_gh, s.lanes, Plus{}) / count;
    for (std::int64_t i = w.lane; i < n; i += s.lanes) {
      const double g = double(wide(dy[i])) * a.scale[i], h = (double(wide(x[i])) - mean) * rstd;
      a.dx[w.row * s.n + i] = narrowed<T>((g - of_g - h * of_gh) * rstd);
    }
  }
}

// ---- two sums for each column

struct Pair {
  double first, second;
};
__device__ inline Pair operator+(Pair a, Pair b) {
  return {a.first + b.first, a.second + b.second};
}

// dy h and dy, with h = (x - mean of the row) * rstd of the row.
template <class T>
struct OfRowNorm {
  const T *x, *dy;
  const Wide<T>*mean, *rstd;
  __device__ Pair operator()(std::int64_t, std::int64_t row, std::int64_t, std::int64_t at) const {
    const double g = wide(dy[at]), m = mean ? mean[row] : 0;
    return {g * (double(wide(x[at])) - m) * rstd[row], g};
  }
};
// dy and dy (x - mean of the column).
template <class T>
struct OfChannels {
  const T *x, *dy, *mean;
  std::int64_t n;
  __device__ Pair operator()(std::int64_t outer, std::int64_t, std::int64_t column,
                             std::int64_t at) const {
    const double g = dy[at];
    return {g, g * (double(x[at]) - double(mean[outer * n + column]))};
  }
};
// Differences from a point near the mean, and their squares.
template <class T>
struct OfMoments {
  const T* x;
  const double* center;
  std::int64_t n;
  __device__ Pair operator()(std::int64_t outer, std::int64_t, std::int64_t column,
                             std::int64_t at) const {
    const double off = double(x[at]) - (center ? center[outer * n + column] : 0);
    return {off, off * off};
  }
};

struct ColumnSums {
  std::int64_t outer, rows, n, chunks, a_chunk;

  ColumnSums(std::int64_t o, std::int64_t r, std::int64_t columns) : outer(o), rows(r), n(columns) {
    constexpr std::int64_t kLeastRows = kEnoughBlocks < 100 ? 3 : 32;
    const std::int64_t across = std::max<std::int64_t>(1, ceil_div(outer * n, kThreads)),
                       wanted =
                           std::min(ceil_div(kEnoughBlocks, across), ceil_div(rows, kLeastRows));
    a_chunk = std::max<std::int64_t>(1, ceil_div(rows, std::max<std::int64_t>(1, wanted)));
    chunks = std::max<std::int64_t>(1, ceil_div(rows, a_chunk));
  }
  std::size_t scratch() const {
    return static_cast<std::size_t>(chunks * outer * n) * sizeof(Pair);
  }
};

template <class Of>
__global__ __launch_bounds__(kThreads) void add_chunks(Of of, Pair* __restrict__ partial,
                                                       ColumnSums s) {
  const std::int64_t columns = s.outer * s.n;
  for (std::int64_t i = first_thread<std::int64_t>(); i < columns * s.chunks;
       i += all_threads<std::int64_t>()) {
    const std::int64_t chunk = i / columns, which = i - chunk * columns, outer = which / s.n,
                       column = which - outer * s.n, end = min((chunk + 1) * s.a_chunk, s.rows);
    Pair sum{0, 0};
    for (std::int64_t row = chunk * s.a_chunk; row < end; ++row)
      sum = sum + of(outer, row, column, (outer * s.rows + row) * s.n + column);
    partial[i] = sum;
  }
}

enum class Finish : std::uint8_t { sums, mean_alone, moments };

template <class Out>
__global__ __launch_bounds__(kThreads) void finish_columns(const Pair* __restrict__ partial,
                                                           Out* first, Out* second,
                                                           const double* center, ColumnSums s,
                                                           Finish how) {
  const std::int64_t columns = s.outer * s.n;
  for (std::int64_t i = first_thread<std::int64_t>(); i < columns;
       i += all_threads<std::int64_t>()) {
    Pair sum{0, 0};
    for (std::int64_t chunk = 0; chunk < s.chunks; ++chunk)
      sum = sum + partial[chunk * columns + i];
    if (how != Finish::sums) {
      const double count = static_cast<double>(s.rows), offset = sum.first / count,
                   square = sum.second / count - offset * offset;
      sum = {(center ? center[i] : 0) + offset, square < 0 ? 0 : square};
      // A center that is no number would make one of every difference.
      if (how == Finish::mean_alone && !(fabs(sum.first) < INFINITY)) sum.first = 0;
    }
    first[i] = narrowed<Out>(sum.first);
    if (second && how != Finish::mean_alone) second[i] = narrowed<Out>(sum.second);
  }
}

template <class Of, class Out>
cudaError_t sum_columns(cudaStream_t stream, const Of& of, Out* first, Out* second,
                        const double* center, const ColumnSums& s, Finish how, void* scratch) {
  const std::int64_t columns = s.outer * s.n;
  if (columns == 0) return cudaSuccess;
  auto* partial = static_cast<Pair*>(scratch);
  const cudaError_t error = launch(stream, blocks_of(columns * s.chunks), dim3(kThreads), 0,
                                   add_chunks<Of>, of, partial, s);
  if (error != cudaSuccess) return error;
  return launch(stream, blocks_of(columns), dim3(kThreads), 0, finish_columns<Out>,
                static_cast<const Pair*>(partial), first, second, center, s, how);
}

// The first moment of these few rows is near the mean of all.
constexpr std::int64_t kFewRows = 16;

}  // namespace

cudaError_t row_norm(cudaStream_t stream, DType dtype, const RowNormMemory& m, std::int64_t rows,
                     std::int64_t n, double epsilon, bool is_centered) {
  if (rows == 0) return cudaSuccess;
  const RowShape s(rows, n);
  return visit_real(dtype, [&]<class T>(type_tag<T>) {
    const RowNorm<T> a{static_cast<const T*>(m.x),
                       {static_cast<const T*>(m.scale), m.is_one_scale},
                       {static_cast<const T*>(m.bias), m.is_one_bias},
                       static_cast<T*>(m.y),
                       static_cast<Wide<T>*>(m.mean),
                       static_cast<Wide<T>*>(m.rstd),
                       epsilon,
                       is_centered};
    return launch(stream, s.blocks(), dim3(kThreads), 0, normalize_rows<T>, a, s);
  });
}

std::size_t row_norm_gradient_scratch(std::int64_t rows, std::int64_t n) {
  return ColumnSums(1, rows, n).scratch();
}

cudaError_t row_norm_gradient(cudaStream_t stream, DType dtype, const RowNormBackMemory& m,
                              std::int64_t rows, std::int64_t n, void* scratch) {
  if (n == 0) return cudaSuccess;
  const RowShape s(rows, n);
  const ColumnSums columns(1, rows, n);
  return visit_real(dtype, [&]<class T>(type_tag<T>) {
    const auto *x = static_cast<const T*>(m.x), *dy = static_cast<const T*>(m.dy);
    const auto *mean = static_cast<const Wide<T>*>(m.mean),
               *rstd = static_cast<const Wide<T>*>(m.rstd);
    // Before dx, which may lie where dy does.
    const cudaError_t error =
        sum_columns(stream, OfRowNorm<T>{x, dy, mean, rstd}, static_cast<T*>(m.dscale),
                    static_cast<T*>(m.dbias), static_cast<const double*>(nullptr), columns,
                    Finish::sums, scratch);
    if (error != cudaSuccess || rows == 0) return error;
    const RowNormBack<T> a{x,    dy,   {static_cast<const T*>(m.scale), m.is_one_scale},
                           mean, rstd, static_cast<T*>(m.dx)};
    return launch(stream, s.blocks(), dim3(kThreads), 0, normalize_back<T>, a, s);
  });
}

std::size_t channel_sums_scratch(std::int64_t outer, std::int64_t rows, std::int64_t n) {
  return ColumnSums(outer, rows, n).scratch() +
         static_cast<std::size_t>(outer * n) * sizeof(double);
}

cudaError_t channel_sums(cudaStream_t stream, DType dtype, const void* x, const void* dy,
                         const void* mean, double* first, double* second, std::int64_t outer,
                         std::int64_t rows, std::int64_t n, void* scratch) {
  const ColumnSums s(outer, rows, n);
  auto* center = static_cast<double*>(scratch);
  void* const partial = center + outer * n;
  const auto run = [&]<class T>(type_tag<T>) -> cudaError_t {
    const auto* from = static_cast<const T*>(x);
    if (mean)
      return sum_columns(
          stream, OfChannels<T>{from, static_cast<const T*>(dy), static_cast<const T*>(mean), n},
          first, second, static_cast<const double*>(nullptr), s, Finish::sums, partial);
    // f64 is not exact enough about a point that is only near: about the mean, in a second read.
    ColumnSums few = s;
    if (!std::is_same_v<T, double> && outer == 1 && rows > kFewRows)
      few = ColumnSums(1, kFewRows, n);
    const cudaError_t error =
        sum_columns(stream, OfMoments<T>{from, nullptr, n}, center, static_cast<double*>(nullptr),
                    static_cast<const double*>(nullptr), few, Finish::mean_alone, partial);
    if (error != cudaSuccess) return error;
    return sum_columns(stream, OfMoments<T>{from, center, n}, first, second,
                       static_cast<const double*>(center), s, Finish::moments, partial);
  };
  if (outer * n == 0) return cudaSuccess;
  if (dtype == DType::f32) return run(type_tag<float>{});
  if (dtype == DType::f64) return run(type_tag<double>{});
  return cudaErrorInvalidValue;
}

}  // namespace troupe::cuda
