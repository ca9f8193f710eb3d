// Matrix products. f32 by the level's tiles (tile_product.hpp) or by oneDNN (packed_matmul.hpp for
// a repeated b), as the shape decides, on the calling thread, f64 (and products too small for
// oneDNN's entry cost) by Eigen at the CPU's level, f16 and bf16 by way of f32, integers by the
// level's own kernel, complex by a plain loop. One product is cut into blocks of its result by its
// shape, and the blocks run on the pool.
#include <complex>
#include <cstring>

#include <dnnl.h>
#include <fmt/format.h>

#include <troupe/devices/cpu/as_floats.hpp>
#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/level.hpp>
#include <troupe/devices/cpu/products/gemm.hpp>
#include <troupe/devices/cpu/products/int8_matmul.hpp>
#include <troupe/devices/cpu/products/library_call.hpp>
#include <troupe/devices/cpu/products/packed_matmul.hpp>
#include <troupe/devices/cpu/products/tile_product.hpp>

namespace troupe::cpu {
namespace {

// Multiply-adds below which Eigen wins by its entry cost (RESULTS.md: 16^3 0.14 against 0.25 µs,
// 32^3 0.55 against 0.48).
constexpr std::int64_t kSmallProduct = 20 * 20 * 20;
// Multiply-adds worth a block of their own: ~50 µs.
constexpr std::int64_t kBlockWork = 6 << 20;

void sgemm(const GemmCall& g) {
  LibraryCall call;
  bool ta = g.a_cs != 1, tb = g.b_cs != 1;
  // In a single row, transposed or not, the stride to the next row is arbitrary; the library
  // requires it to be behind this one.
  const dnnl_dim_t lda = ta ? g.a_cs : std::max(g.a_rs, g.k),
                   ldb = tb ? g.b_cs : std::max(g.b_rs, g.n);
  dnnl_status_t s =
      dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', g.m, g.n, g.k, 1.f, static_cast<const float*>(g.a),
                 lda, static_cast<const float*>(g.b), ldb, 0.f, static_cast<float*>(g.c), g.c_rs);
  if (s != dnnl_success)
    throw Error(Code::internal,
                fmt::format("dnnl_sgemm {}x{}x{} failed with {}", g.m, g.k, g.n, int(s)));
}

// Sums in T, row by row, so that the inner loop runs along dense rows of b when it can.
template <class T>
void plain_gemm(const GemmCall& g) {
  const T* a = static_cast<const T*>(g.a);
  const T* b = static_cast<const T*>(g.b);
  T* c = static_cast<T*>(g.c);
  for (std::int64_t i = 0; i < g.m; ++i) {
    T* row = c + i * g.c_rs;
    std::fill(row, row + g.n, T(0));
    for (std::int64_t k = 0; k < g.k; ++k) {
      const T x = a[i * g.a_rs + k * g.a_cs];
      const T* y = b + k * g.b_rs;
      for (std::int64_t j = 0; j < g.n; ++j) row[j] += x * y[j * g.b_cs];
    }
  }
}

bool goes_by_tiles(DType type, const GemmCall& g) {
  return type == DType::f32 && g.m * g.n * g.k > kSmallProduct && suits_tiles(g, false);
}

}  // namespace

void gemm(DType type, const GemmCall& g) {
  switch (type) {
    case DType::f32:
      if (goes_by_tiles(type, g)) return tile_product(level_kernels(), g);
      return g.m * g.n * g.k <= kSmallProduct ? level_kernels().gemm_f32(g) : sgemm(g);
    case DType::f64: return level_kernels().gemm_f64(g);
    case DType::c64: return plain_gemm<std::complex<float>>(g);
    case DType::c128: return plain_gemm<std::complex<double>>(g);
    default: break;
  }
  if (is_integer(type)) return level_kernels().gemm_int[int(type)](g);
  throw Error(Code::unimplemented, fmt::format("matmul of {} is not defined", name_of(type)));
}

namespace {

// A batch of products, with operands that may repeat along broadcast axes.
struct Batch {
  int rank = 0;
  std::int64_t count = 1, a_matrix = 0;
  std::int64_t extent[Shape::kMaxRank], a_step[Shape::kMaxRank], b_step[Shape::kMaxRank];

  Batch() = default;
  explicit Batch(const MatmulArgs& m) {
    rank = m.out.shape.rank() - 2;
    std::int64_t a = matrix(m.a.shape), b = matrix(m.b.shape);
    a_matrix = a;
    for (int d = rank - 1; d >= 0; --d) {
      extent[d] = m.out.shape[d];
      count *= extent[d];
      a_step[d] = step(m.a.shape, d, a);
      b_step[d] = step(m.b.shape, d, b);
    }
  }
  /// Returns true if the products take all of a, in order, with one and the same b.
  bool shares_b() const {
    std::int64_t items = 1;
    for (int d = rank - 1; d >= 0; --d) {
      if (extent[d] == 1) continue;
      if (b_step[d] != 0 || a_step[d] != items * a_matrix) return false;
      items *= extent[d];
    }
    return true;
  }
  void locate(std::int64_t item, std::int64_t& a, std::int64_t& b) const {
    a = b = 0;
    for (int d = rank - 1; d >= 0; --d) {
      std::int64_t at = item % extent[d];
      item /= extent[d];
      a += at * a_step[d];
      b += at * b_step[d];
    }
  }

 private:
  static std::int64_t matrix(const Shape& s) { return s[s.rank() - 2] * s[s.rank() - 1]; }
  // `elements` is the distance of one step along the operand's axis; it grows with the axes passed.
  std::int64_t step(const Shape& s, int d, std::int64_t& elements) const {
    int axis = d - (rank + 2 - s.rank());
    if (axis < 0) return 0;
    std::int64_t here = s[axis] == 1 ? 0 : elements;
    elements *= s[axis];
    return here;
  }
};

// The blocks of one result. The longer side is halved until there are as many as the work is worth;
// sides stay long enough that packing the operands anew for each block is cheap.
struct Cut {
  std::int64_t rows, columns, down = 1, across = 1;

  Cut(std::int64_t m, std::int64_t n) : rows(m), columns(n) {}  // all in one
  Cut(std::int64_t m, std::int64_t n, std::int64_t k) : Cut(m, n) {
    double work = double(m) * double(n) * double(k);
    // Past four blocks packing costs more than balance gains (1024^3: 122 GFLOP/s in 8, 150 in 4,
    // 154 whole; a^T b of 256 x 1600 x 1024: 105, 123, 124), and squarer blocks pack less.
    double wanted = std::min(work / double(kBlockWork), std::max(4.0, work / double(1 << 30)));
    while (double(down * across) < wanted) {
      if (columns > 2 * rows && columns >= 256) halve(columns, across, n);
      else if (rows >= 128) halve(rows, down, m);
      else if (columns >= 256) halve(columns, across, n);
      else break;
    }
  }
  std::int64_t count() const { return down * across; }

 private:
  static void halve(std::int64_t& side, std::int64_t& pieces, std::int64_t whole) {
    side = (side / 2 + 15) / 16 * 16;
    pieces = (whole + side - 1) / side;
  }
};

}  // namespace

void CpuPrimitives::matmul(Stream& stream, const MatmulArgs& m) const {
  std::int64_t elements = m.out.elements();
  if (elements == 0) return;
  DType type = m.out.dtype;
  if (type == DType::i32 && size_of(m.a.dtype) == 1) return int8_matmul(pool_, m);
  if (type == DType::f16 || type == DType::bf16) {
    Ref<Buffer> a = as_floats(m.a), b = as_floats(m.b);
    Ref<Buffer> c =
        Buffer::allocate(host_allocator(), static_cast<std::size_t>(elements) * sizeof(float));
    matmul(stream, {ConstView(a->data(), DType::f32, m.a.shape),
                    ConstView(b->data(), DType::f32, m.b.shape),
                    View(c->data(), DType::f32, m.out.shape), m.transpose_a, m.transpose_b});
    return from_floats(static_cast<const float*>(c->data()), m.out);
  }
  int rank = m.out.shape.rank();
  GemmCall g{};
  g.m = m.out.shape[rank - 2];
  g.n = m.out.shape[rank - 1];
  g.k = m.a.shape[m.a.shape.rank() - (m.transpose_a ? 2 : 1)];
  if (g.k == 0) {
    std::memset(m.out.data, 0, m.out.bytes());
    return;
  }
  g.a_rs = m.transpose_a ? 1 : g.k;
  g.a_cs = m.transpose_a ? g.m : 1;
  g.b_rs = m.transpose_b ? 1 : g.n;
  g.b_cs = m.transpose_b ? g.k : 1;
  g.c_rs = g.n;

  Batch batch(m);
  if (!m.transpose_a && batch.count > 1 && batch.shares_b()) {  // many rows times one matrix
    g.m *= batch.count;
    batch = Batch{};
  }
  if (m.kept && m.b_content != 0 && batch.count == 1 && type == DType::f32 &&
      g.m * g.n * g.k > kSmallProduct) {
    g.a = m.a.data();
    g.b = m.b.data();
    g.c = m.out.data;
    if (suits_tiles(g, true))
      return PackedColumns::run(level_kernels(), pool_, g, m.b_content, *m.kept);
    return PackedProduct::run(pool_, g, m.b_content, *m.kept);
  }
  // With tiles an element has the same bits however the product is cut. One worker packs each
  // operand only once.
  const bool is_tiled = goes_by_tiles(type, g);
  const Cut cut = is_tiled && (!pool_ || pool_->size() < 2) ? Cut(g.m, g.n) : Cut(g.m, g.n, g.k);
  std::int64_t items = batch.count * cut.count();
  std::int64_t group = std::max<std::int64_t>(
      1, kBlockWork / std::max<std::int64_t>(1, g.k * cut.rows * cut.columns));
  std::int64_t bytes = static_cast<std::int64_t>(size_of(type));
  auto a = static_cast<const std::byte*>(m.a.data()), b = static_cast<const std::byte*>(m.b.data());
  auto c = static_cast<std::byte*>(m.out.data);
  for_blocks(pool_, (items + group - 1) / group, [&](int block) {
    for (std::int64_t i = block * group; i < std::min(items, (block + 1) * group); ++i) {
      std::int64_t item = i / cut.count(), a_at, b_at;
      batch.locate(item, a_at, b_at);
      std::int64_t row = i % cut.count() / cut.across * cut.rows,
                   column = i % cut.across * cut.columns;
      GemmCall part = g;
      part.m = std::min(cut.rows, g.m - row);
      part.n = std::min(cut.columns, g.n - column);
      part.a = a + (a_at + row * g.a_rs) * bytes;
      part.b = b + (b_at + column * g.b_cs) * bytes;
      part.c = c + ((item * g.m + row) * g.n + column) * bytes;
      if (is_tiled) tile_product(level_kernels(), part);
      else gemm(type, part);
    }
  });
}

}  // namespace troupe::cpu
