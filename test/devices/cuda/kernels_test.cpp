// The kernels that nvcc compiles, run by the fake runtime: moves against loops, what computes
// against the CPU device. Elements start anywhere, and memory ends behind the last one, so that
// ASan sees what is read or written beside it.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <new>
#include <numeric>
#include <vector>

#include <troupe/test/support/cuda/host_grid.hpp>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/cuda/kernels/grid.hpp>
#include <troupe/devices/cuda/kernels/kernels.hpp>
#include <troupe/test/support/cpu.hpp>
#include <troupe/test/support/cuda/fake_cuda.hpp>

using namespace troupe;
using namespace troupe::test;
using cuda::Element;

namespace {

constexpr int kSizes[] = {1, 2, 4, 8, 16};

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Bytes that start `offset` bytes behind an address that 64 divides.
class Memory {
 public:
  explicit Memory(std::int64_t bytes, std::int64_t offset = 0, unsigned char content = 0xA5)
      : bytes_(at(bytes)), offset_(at(offset)), data_(static_cast<unsigned char*>(::operator new (
                                                    bytes_ + offset_ + 1, std::align_val_t{64}))) {
    std::memset(data_, content, bytes_ + offset_ + 1);
  }
  ~Memory() { ::operator delete (data_, std::align_val_t{64}); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  unsigned char* data() const { return data_ + offset_; }
  std::vector<unsigned char> bytes() const { return {data(), data() + bytes_}; }
  // Whether the byte behind the end is as it was.
  bool is_end_intact(unsigned char content = 0xA5) const { return data()[bytes_] == content; }

 private:
  std::size_t bytes_, offset_;
  unsigned char* data_;
};

struct Kernels : Cpu {
  Kernels() {
    fake_cuda::reset({.max_delay_us = 0});
    BOOST_REQUIRE(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking) == cudaSuccess);
  }
  ~Kernels() {
    cudaStreamDestroy(queue);
    fake_cuda::reset();
  }

  void finish(cudaError_t launched) {
    BOOST_TEST_REQUIRE(launched == cudaSuccess);
    BOOST_TEST_REQUIRE(cudaStreamSynchronize(queue) == cudaSuccess);
  }
  void draw(const Memory& memory, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; ++i)
      memory.data()[i] = static_cast<unsigned char>(random());
  }
  Element draw_element() {
    Element e;
    for (unsigned char& byte : e.bytes) byte = static_cast<unsigned char>(random());
    return e;
  }
  // n of i32 or i64 within [low, high)
  std::vector<std::int64_t> draw_indices(std::int64_t n, std::int64_t low, std::int64_t high) {
    std::vector<std::int64_t> indices(at(n));
    for (std::int64_t& index : indices) index = low + below(high - low);
    return indices;
  }
  // An address of this dtype that is a multiple of its size and of little else.
  std::int64_t odd_start(std::size_t element) {
    return below(4) == 0 ? 0 : below(5) * static_cast<std::int64_t>(element);
  }

  cudaStream_t queue = nullptr;
};

void store_indices(const Memory& memory, const std::vector<std::int64_t>& indices, bool are_i64) {
  for (std::size_t i = 0; i < indices.size(); ++i)
    if (are_i64) reinterpret_cast<std::int64_t*>(memory.data())[i] = indices[i];
    else reinterpret_cast<std::int32_t*>(memory.data())[i] = static_cast<std::int32_t>(indices[i]);
}
std::int64_t index_bytes(bool are_i64) { return are_i64 ? 8 : 4; }

Tensor index_tensor(const std::vector<std::int64_t>& indices, bool are_i64) {
  Tensor t = Tensor::empty(are_i64 ? DType::i64 : DType::i32,
                           Shape{static_cast<std::int64_t>(indices.size())});
  for (std::size_t i = 0; i < indices.size(); ++i)
    if (are_i64) static_cast<std::int64_t*>(t.raw_mutable())[i] = indices[i];
    else static_cast<std::int32_t*>(t.raw_mutable())[i] = static_cast<std::int32_t>(indices[i]);
  return t;
}

// Equal as numbers, NaN to NaN; floats within a tolerance.
bool are_close(double x, double y, double tolerance) {
  return x == y || (std::isnan(x) && std::isnan(y)) ||
         std::fabs(x - y) <= tolerance * std::max(1.0, std::fabs(y));
}
template <class T>
bool is_equal(T x, T y, double tolerance) {
  if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>)
    return are_close(double(float(x)), double(float(y)), tolerance);
  else if constexpr (std::is_same_v<T, std::complex<float>> ||
                     std::is_same_v<T, std::complex<double>>)
    return are_close(x.real(), y.real(), tolerance) && are_close(x.imag(), y.imag(), tolerance);
  else if constexpr (std::is_floating_point_v<T>) return are_close(x, y, tolerance);
  else return x == y;
}

// The first element that differs, or -1.
std::int64_t first_difference(DType type, const void* found, const void* expected, std::int64_t n,
                              double tolerance = 0) {
  return visit_dtype(type, [&]<class T>(type_tag<T>) {
    const T *x = static_cast<const T*>(found), *y = static_cast<const T*>(expected);
    for (std::int64_t i = 0; i < n; ++i)
      if (!is_equal(x[i], y[i], tolerance)) return i;
    return std::int64_t{-1};
  });
}

double rounding_of(DType type) {
  switch (type) {
    case DType::f16: return 1e-3;
    case DType::bf16: return 8e-3;
    case DType::f32:
    case DType::c64: return 1e-6;
    default: return 1e-12;
  }
}

std::vector<DType> dtypes() {
  std::vector<DType> all;
  for (int i = 0; i < kDTypes; ++i) all.push_back(static_cast<DType>(i));
  return all;
}

// As random_tensor, also of complex numbers.
Tensor draw_tensor(std::mt19937_64& random, DType type, const Shape& shape) {
  if (!is_complex(type)) return random_tensor(random, type, shape);
  const DType part = type == DType::c64 ? DType::f32 : DType::f64;
  const Tensor parts = random_tensor(random, part, Shape{shape.elements(), 2}, -1.5, 1.5);
  Tensor t = Tensor::empty(type, shape);
  std::memcpy(t.raw_mutable(), parts.raw(), at(shape.elements()) * size_of(type));
  return t;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cuda_kernels, Kernels)

BOOST_AUTO_TEST_CASE(fill_writes_every_element) {
  for (int bytes : kSizes)
    for (std::int64_t n : {0, 1, 2, 15, 16, 17, 33, 1000, 20'001 / bytes})
      for (std::int64_t start : {0, 1, 3}) {
        const Memory out(n * bytes, start * bytes);
        const Element value = draw_element();
        finish(cuda::fill(queue, value, bytes, out.data(), n));
        bool is_filled = true;
        for (std::int64_t i = 0; i < n; ++i)
          is_filled &= std::memcmp(out.data() + i * bytes, value.bytes, at(bytes)) == 0;
        BOOST_TEST((is_filled && out.is_end_intact()), n << " of " << bytes << " from " << start);
      }
}

BOOST_AUTO_TEST_CASE(copy_box_copies_any_block) {
  for (int round = 0; round < 600 / kRoundShare; ++round) {
    const int bytes = kSizes[below(5)], rank = static_cast<int>(below(6));
    // A box of a row-major tensor each, whose axes are then permuted together or one of them alone.
    cuda::Box from{.rank = rank}, to{.rank = rank};
    std::int64_t extent[cuda::kMaxRank], in_elements = 1, out_elements = 1;
    std::vector<int> in_order(at(rank)), out_order(at(rank));
    std::iota(in_order.begin(), in_order.end(), 0);
    std::iota(out_order.begin(), out_order.end(), 0);
    if (below(3) == 0) std::shuffle(in_order.begin(), in_order.end(), random);
    if (below(8) == 0) std::shuffle(out_order.begin(), out_order.end(), random);
    for (int d = 0; d < rank; ++d)
      extent[d] = below(12) == 0 ? below(2) : 1 + below(rank == 1 ? 900 : rank == 2 ? 60 : 9);
    const auto place = [&](cuda::Box& box, const std::vector<int>& order, std::int64_t& elements) {
      for (std::size_t k = order.size(); k-- > 0;) {
        const int d = order[k];
        const std::int64_t step = below(4) == 0 ? 2 : 1, first = below(3) == 0 ? 1 : 0,
                           behind = below(3) == 0 ? 1 : 0;
        box.stride[d] = elements * step;
        box.first += first * elements;
        elements *= first + std::max<std::int64_t>(0, (extent[d] - 1) * step + 1) + behind;
      }
    };
    place(from, in_order, in_elements);
    place(to, out_order, out_elements);
    const Memory in(in_elements * bytes, odd_start(at(bytes))),
        out(out_elements * bytes, odd_start(at(bytes)));
    draw(in, in_elements * bytes);
    std::vector<unsigned char> expected = out.bytes();
    Shape shape;
    for (int d = 0; d < rank; ++d) shape.push_back(extent[d]);
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      const std::vector<std::int64_t> c = coordinates(i, shape);
      std::int64_t source = from.first, target = to.first;
      for (int d = 0; d < rank; ++d) {
        source += c[at(d)] * from.stride[d];
        target += c[at(d)] * to.stride[d];
      }
      std::memcpy(expected.data() + target * bytes, in.data() + source * bytes, at(bytes));
    }
    finish(cuda::copy_box(queue, bytes, in.data(), from, out.data(), to, extent));
    BOOST_TEST((out.bytes() == expected && out.is_end_intact()),
               "round " << round << ": " << shape.text() << " of " << bytes);
  }
}

BOOST_AUTO_TEST_CASE(copy_box_repeats_and_reverses) {
  for (int bytes : kSizes)
    for (std::int64_t columns : {1, 8, 9}) {
      const std::int64_t rows = 90, extent[] = {rows, 4, columns};
      const Memory in(rows * columns * bytes), out(rows * 4 * columns * bytes);
      draw(in, rows * columns * bytes);
      const cuda::Box from{.rank = 3, .first = (rows - 1) * columns, .stride = {-columns, 0, 1}},
          to{.rank = 3, .first = 0, .stride = {4 * columns, columns, 1}};
      finish(cuda::copy_box(queue, bytes, in.data(), from, out.data(), to, extent));
      bool is_right = out.is_end_intact();
      for (std::int64_t i = 0; i < rows * 4; ++i)
        is_right &=
            std::memcmp(out.data() + i * columns * bytes,
                        in.data() + (rows - 1 - i / 4) * columns * bytes, at(columns * bytes)) == 0;
      BOOST_TEST(is_right, columns << " of " << bytes);
    }
}

BOOST_AUTO_TEST_CASE(transpose_tiles_swaps_two_axes) {
  const std::int64_t extents[][3] = {{1, 1, 1},  {0, 3, 4},   {2, 32, 32}, {3, 33, 7}, {1, 100, 65},
                                     {2, 7, 40}, {5, 8, 130}, {1, 3, 300}, {4, 31, 9}};
  for (int bytes : kSizes)
    for (const auto& [outer, rows, columns] : extents) {
      const std::int64_t n = outer * rows * columns;
      const Memory in(n * bytes, odd_start(at(bytes))), out(n * bytes, odd_start(at(bytes)));
      draw(in, n * bytes);
      finish(cuda::transpose_tiles(queue, bytes, in.data(), out.data(), outer, rows, columns));
      bool is_right = out.is_end_intact();
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t o = i / (rows * columns), r = i / columns % rows, c = i % columns;
        is_right &= std::memcmp(out.data() + ((o * columns + c) * rows + r) * bytes,
                                in.data() + i * bytes, at(bytes)) == 0;
      }
      BOOST_TEST(is_right, outer << ", " << rows << ", " << columns << " of " << bytes);
    }
}

BOOST_AUTO_TEST_CASE(gather_takes_rows_and_records_indices) {
  for (int round = 0; round < 200 / kRoundShare; ++round) {
    const int bytes = kSizes[below(5)];
    const bool are_i64 = below(2), has_wrong = below(3) == 0;
    const std::int64_t outer = below(8) == 0 ? 0 : 1 + below(3), extent = below(20),
                       inner = below(8) == 0 ? 0 : 1 + below(3) * below(12), n = below(40);
    const std::int64_t margin = has_wrong || extent == 0 ? 3 : 0;
    const Memory params(outer * extent * inner * bytes, odd_start(at(bytes))),
        out(outer * n * inner * bytes, odd_start(at(bytes))),
        indices(n * index_bytes(are_i64), index_bytes(are_i64) * below(3));
    draw(params, outer * extent * inner * bytes);
    const std::vector<std::int64_t> index = draw_indices(n, -margin, extent + margin);
    store_indices(indices, index, are_i64);
    std::vector<unsigned char> expected = out.bytes();
    const std::int64_t row = inner * bytes;
    cuda::IndexRecord first, record;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t from = index[at(i)];
      if (from < 0 || from >= extent) {
        if (!first.is_set()) first.word = cuda::IndexRecord::packed(i, from);
      } else if (row > 0) {
        for (std::int64_t o = 0; o < outer; ++o)
          std::memcpy(expected.data() + (o * n + i) * row,
                      params.data() + (o * extent + from) * row, at(row));
      }
    }
    finish(cuda::gather(queue, bytes, params.data(), indices.data(), are_i64, out.data(), outer,
                        extent, inner, n, &record));
    BOOST_TEST(record.word == first.word);
    BOOST_TEST((out.bytes() == expected && out.is_end_intact()),
               "round " << round << ": " << n << " of " << extent << ", inner " << inner);
  }
}

BOOST_AUTO_TEST_CASE(a_divisor_of_32_bits_divides_exactly) {
  const auto check = [](std::uint32_t n, std::uint32_t by) {
    return cuda::Divisor<std::uint32_t>(by).quotient(n) == n / by;
  };
  const std::uint32_t ends[] = {0, 1, 2, 3, 7, 641, 65'535, 65'536, 65'537, 1u << 30, INT32_MAX};
  bool is_exact = true;
  for (std::uint32_t by : ends)
    for (std::uint32_t n : ends)
      if (by > 0)
        is_exact &=
            check(n, by) && check(n / by * by, by) && (n < by || check(n / by * by - 1, by));
  for (int round = 0; round < 100'000; ++round) {
    const auto by = static_cast<std::uint32_t>(1 + below(1 + below(INT32_MAX)));
    is_exact &= check(static_cast<std::uint32_t>(below(INT32_MAX)), by);
  }
  BOOST_TEST(is_exact);
}

BOOST_AUTO_TEST_CASE(an_index_record_keeps_position_and_index) {
  using Record = cuda::IndexRecord;
  const auto round_trip = [](std::int64_t position, std::int64_t index) {
    const Record r{Record::packed(position, index)};
    return r.is_set() && r.position() == position && r.index() == index;
  };
  BOOST_TEST(round_trip(0, 0));
  BOOST_TEST(round_trip(7, -1));
  BOOST_TEST(round_trip(3'000'000'000, INT32_MIN));
  BOOST_TEST(Record{Record::packed(1, INT64_MAX)}.index() == INT32_MAX);
  BOOST_TEST(Record{Record::packed(INT64_MAX, -1)}.is_set());
  BOOST_TEST(Record::packed(1, INT64_MAX) < Record::packed(2, INT64_MIN));
}

BOOST_AUTO_TEST_CASE(one_hot_writes_on_and_off) {
  for (int bytes : kSizes)
    for (bool are_i64 : {false, true})
      for (const auto& [outer, depth, inner] :
           {std::array<std::int64_t, 3>{7, 5, 1}, {3, 40, 9}, {1, 1, 1}, {300, 3, 1}, {2, 0, 4}}) {
        const std::int64_t n = outer * depth * inner;
        const Memory out(n * bytes, odd_start(at(bytes))),
            indices(outer * inner * index_bytes(are_i64), 8);
        const std::vector<std::int64_t> index = draw_indices(outer * inner, -2, depth + 2);
        store_indices(indices, index, are_i64);
        const Element on = draw_element(), off = draw_element();
        finish(cuda::one_hot(queue, bytes, indices.data(), are_i64, on, off, out.data(), outer,
                             depth, inner));
        bool is_right = out.is_end_intact();
        for (std::int64_t i = 0; i < n; ++i) {
          const bool is_on =
              index[at(i / (depth * inner) * inner + i % inner)] == i / inner % depth;
          is_right &=
              std::memcmp(out.data() + i * bytes, is_on ? on.bytes : off.bytes, at(bytes)) == 0;
        }
        BOOST_TEST(is_right, outer << ", " << depth << ", " << inner << " of " << bytes);
      }
}

BOOST_AUTO_TEST_CASE(range_has_the_bits_of_the_cpu) {
  for (DType type : dtypes())
    for (const auto& [start, step] : {std::array{0.0, 1.0},
                                      {-3.0, 7.0},
                                      {0.1, 0.3},
                                      {200.0, -1.0},
                                      {-1e9, 1e7},
                                      {65'400.0, 33.0}}) {
      if (is_integer(type) && start != std::trunc(start)) continue;
      for (std::int64_t n : {0, 1, 900}) {
        Tensor expected = Tensor::empty(type, Shape{n});
        p().range(*stream, start, step, View(expected));
        const Memory out(n * static_cast<std::int64_t>(size_of(type)), 3 * 16);
        finish(cuda::range(queue, start, step, type, out.data(), n));
        BOOST_TEST((n == 0 || std::memcmp(out.data(), expected.raw(), expected.bytes()) == 0),
                   name_of(type) << " from " << start << " by " << step);
        BOOST_TEST(out.is_end_intact());
      }
    }
}

BOOST_AUTO_TEST_CASE(scatter_applies_updates_in_order) {
  struct Extents {
    std::int64_t extent, inner, n;
  };
  const Extents extents[] = {{1, 1, 0},    {1, 1, 700},    {5, 0, 3},    {9, 1, 1100},
                             {4, 1, 2100}, {1500, 1, 300}, {4, 300, 20}, {1, 300, 20},
                             {40, 7, 90},  {2, 9, 30},     {3000, 3, 40}};
  for (DType type : dtypes())
    for (int op = 0; op < 5; ++op)
      for (const Extents& e : extents) {
        if (is_complex(type) && op >= 3) continue;
        if (below(kShare > 1 ? 6 : 2) != 0) continue;
        const bool are_i64 = below(2), has_wrong = below(3) == 0;
        const auto bytes = static_cast<std::int64_t>(size_of(type));
        std::vector<std::int64_t> index =
            draw_indices(e.n, has_wrong ? -1 : 0, e.extent + (has_wrong ? 1 : 0));
        // Sorted, a block has none of its own among the first.
        if (below(2)) std::sort(index.begin(), index.end());
        const Tensor updates = draw_tensor(random, type, Shape{e.n, e.inner}),
                     before = draw_tensor(random, type, Shape{e.extent, e.inner});
        // The CPU device is given the indices that are inside.
        std::vector<std::int64_t> inside;
        std::vector<std::byte> rows;
        cuda::IndexRecord first, record;
        for (std::int64_t i = 0; i < e.n; ++i) {
          const std::int64_t to = index[at(i)];
          if (to >= 0 && to < e.extent) {
            inside.push_back(to);
            const auto* row = static_cast<const std::byte*>(updates.raw()) + i * e.inner * bytes;
            rows.insert(rows.end(), row, row + e.inner * bytes);
          } else if (!first.is_set()) {
            first.word = cuda::IndexRecord::packed(i, to);
          }
        }
        Tensor expected = Tensor::empty(type, Shape{e.extent, e.inner});
        std::copy_n(static_cast<const std::byte*>(before.raw()), before.bytes(),
                    static_cast<std::byte*>(expected.raw_mutable()));
        p().scatter(
            *stream, static_cast<Scatter>(op), index_tensor(inside, are_i64),
            ConstView(rows.data(), type, Shape{static_cast<std::int64_t>(inside.size()), e.inner}),
            View(expected));
        const Memory out(e.extent * e.inner * bytes, odd_start(at(bytes))),
            from(e.n * e.inner * bytes, odd_start(at(bytes))),
            indices(e.n * index_bytes(are_i64), 8);
        std::copy_n(static_cast<const unsigned char*>(before.raw()), before.bytes(), out.data());
        std::copy_n(static_cast<const unsigned char*>(updates.raw()), updates.bytes(), from.data());
        store_indices(indices, index, are_i64);
        finish(cuda::scatter(queue, static_cast<cuda::ScatterOp>(op), type, indices.data(), are_i64,
                             from.data(), out.data(), e.extent, e.inner, e.n, &record));
        BOOST_TEST(record.word == first.word);
        const std::int64_t wrong =
            first_difference(type, out.data(), expected.raw(), e.extent * e.inner);
        BOOST_TEST((wrong == -1 && out.is_end_intact()),
                   name_of(type) << " op " << op << ": " << e.n << " to [" << e.extent << ", "
                                 << e.inner << "], element " << wrong);
      }
}

namespace {

bool is_defined(Reduction how, DType type) {
  if (is_complex(type))
    return how != Reduction::logsumexp &&
           (how < Reduction::min || how == Reduction::any || how == Reduction::all);
  return how != Reduction::logsumexp || is_floating(type);
}
bool needs_elements(Reduction how) {
  return how == Reduction::min || how == Reduction::max || how == Reduction::argmin ||
         how == Reduction::argmax;
}
DType result_type(Reduction how, DType type) {
  if (how == Reduction::any || how == Reduction::all) return DType::boolean;
  return how == Reduction::argmin || how == Reduction::argmax ? DType::i64 : type;
}

// Returns cuda::reduce's result for a tensor [outer, reduced, inner] that starts at `offset` bytes.
Tensor reduced_by_kernel(Kernels& kernels, Reduction how, const Tensor& x, std::int64_t offset) {
  const auto op = static_cast<cuda::ReduceOp>(how);
  const std::int64_t outer = x.shape()[0], reduced = x.shape()[1], inner = x.shape()[2];
  const Memory in(static_cast<std::int64_t>(x.bytes()), offset);
  std::copy_n(static_cast<const unsigned char*>(x.raw()), x.bytes(), in.data());
  Tensor y = Tensor::empty(result_type(how, x.dtype()), Shape{outer, inner});
  const Memory out(static_cast<std::int64_t>(y.bytes()), 16),
      scratch(
          static_cast<std::int64_t>(cuda::reduce_scratch(op, x.dtype(), outer, reduced, inner)));
  kernels.finish(cuda::reduce(kernels.queue, op, x.dtype(), in.data(), out.data(), outer, reduced,
                              inner, scratch.data()));
  BOOST_TEST((out.is_end_intact() && scratch.is_end_intact()));
  std::copy_n(out.data(), y.bytes(), static_cast<unsigned char*>(y.raw_mutable()));
  return y;
}

void check_reduction(Kernels& kernels, Reduction how, const Tensor& x, std::int64_t offset) {
  Tensor expected = Tensor::empty(result_type(how, x.dtype()), Shape{x.shape()[0], x.shape()[2]});
  kernels.p().reduce(*kernels.stream, how, x, View(expected), 2);
  const Tensor found = reduced_by_kernel(kernels, how, x, offset);
  const bool is_exact = needs_elements(how);
  const std::int64_t wrong =
      first_difference(expected.dtype(), found.raw(), expected.raw(), expected.elements(),
                       is_exact ? 0 : rounding_of(x.dtype()));
  BOOST_TEST(wrong == -1, name_of(how) << " of " << name_of(x.dtype()) << x.shape().text()
                                       << ", result " << wrong);
}

}  // namespace

BOOST_AUTO_TEST_CASE(reduce_agrees_with_the_cpu) {
  const Shape shapes[] = {{1, 1, 1},   {3, 0, 2},   {700, 1, 1},  {5, 3, 1},    {9, 17, 1},
                          {2, 130, 1}, {1, 333, 1}, {3, 1501, 1}, {1, 5003, 1}, {4, 5, 6},
                          {2, 70, 33}, {1, 900, 3}, {3, 40, 128}, {900, 2, 2},  {1, 300, 256},
                          {0, 3, 4},   {2, 1, 9}};
  for (DType type : dtypes())
    for (int r = 0; r < 10; ++r) {
      const auto how = static_cast<Reduction>(r);
      if (!is_defined(how, type)) continue;
      for (const Shape& shape : shapes) {
        if (shape[1] == 0 && needs_elements(how)) continue;
        if (below(kShare > 1 ? 12 : 4) != 0) continue;
        Tensor x = how == Reduction::product && is_floating(type)
                       ? random_tensor(random, type, shape, 0.8, 1.3)
                       : draw_tensor(random, type, shape);
        check_reduction(*this, how, x, odd_start(size_of(type)));
      }
    }
}

BOOST_AUTO_TEST_CASE(reduce_agrees_on_special_values) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const std::vector<double> special = {nan, inf, -inf, 0.0, -0.0, 1.0, 60'000.0, -2.5};
  for (DType type : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (int r = 0; r < 10; ++r)
      for (int round = 0; round < 12 / std::min(4, kRoundShare); ++round) {
        const Shape shape = round % 2 ? Shape{6, 40, 1} : Shape{2, 40, 5};
        std::vector<double> values(at(shape.elements()));
        // for some only a few, so that not all results are NaN
        for (double& v : values)
          v = below(round < 6 ? 40 : 8) ? double(below(9)) - 4 : special[at(below(8))];
        if (round > 9) std::fill(values.begin(), values.end(), special[at(round - 9)]);
        check_reduction(*this, static_cast<Reduction>(r), from_doubles(type, shape, values), 0);
      }
}

BOOST_AUTO_TEST_CASE(integers_wrap_and_means_are_cut) {
  for (DType type : dtypes()) {
    if (!is_integer(type) && type != DType::boolean) continue;
    for (const Shape& shape : {Shape{3, 100, 1}, Shape{2, 60, 5}}) {
      Tensor x = Tensor::empty(type, shape);
      for (std::size_t i = 0; i < x.bytes(); ++i)
        static_cast<unsigned char*>(x.raw_mutable())[i] =
            static_cast<unsigned char>(type == DType::boolean ? random() % 2 : random());
      for (int r = 0; r < 9; ++r) check_reduction(*this, static_cast<Reduction>(r), x, 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(alignment_does_not_change_a_bit) {
  for (const Shape& shape : {Shape{1, 4000, 1}, Shape{5, 200, 1}, Shape{2, 100, 64}})
    for (Reduction how : {Reduction::sum, Reduction::product, Reduction::logsumexp}) {
      Tensor x = Tensor::empty(DType::f32, shape);
      for (std::int64_t i = 0; i < x.elements(); ++i)
        static_cast<float*>(x.raw_mutable())[i] =
            1.0f + static_cast<float>(random() % 1000) * 1e-6f;
      const Tensor aligned = reduced_by_kernel(*this, how, x, 0),
                   shifted = reduced_by_kernel(*this, how, x, 4);
      BOOST_TEST(std::memcmp(aligned.raw(), shifted.raw(), aligned.bytes()) == 0);
    }
}

BOOST_AUTO_TEST_CASE(kernels_refuse_undefined_combinations) {
  Element one;
  unsigned char memory[64] = {};
  BOOST_TEST(cuda::fill(queue, one, 3, memory, 4) == cudaErrorInvalidValue);
  BOOST_TEST(cuda::range(queue, 0, 1, DType::string, memory, 2) == cudaErrorInvalidValue);
  BOOST_TEST(cuda::reduce(queue, cuda::ReduceOp::max, DType::c64, memory, memory, 1, 2, 1,
                          nullptr) == cudaErrorInvalidValue);
  BOOST_TEST(cuda::reduce(queue, cuda::ReduceOp::logsumexp, DType::i32, memory, memory, 1, 2, 1,
                          nullptr) == cudaErrorInvalidValue);
}

BOOST_AUTO_TEST_SUITE_END()
