// Not under tsan: its kernels run in parallel in op_table_test and devices/cpu_primitives_test.
// Convolutions in f32, which a library computes in pieces, and f64, which are products, against
// those in i64, which plain loops do; the table of ops (test/ops/tables/window_rows.hpp) has the
// small ones and the references.
#include <boost/test/unit_test.hpp>

#include <random>

#include <troupe/devices/device/device.hpp>
#include <troupe/devices/device/window.hpp>
#include <troupe/devices/threads/worker_pool.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(convolve_test)

namespace {

struct Problem {
  std::int64_t batch, channels, filters, groups;
  Windows windows;
  Shape x() const { return {batch, windows.inputs(), channels}; }
  Shape w() const { return {windows.taps(), channels / groups, filters}; }
  Shape y() const { return {batch, windows.outputs(), filters}; }
};

Windows window(std::int64_t in, std::int64_t size, std::int64_t stride, std::int64_t before,
               std::int64_t dilation = 1) {
  const std::int64_t covered = (size - 1) * dilation + 1;
  WindowAxis a{.in = in,
               .out = (in + 2 * before - covered) / stride + 1,
               .size = size,
               .stride = stride,
               .dilation = dilation,
               .before = before};
  return {{WindowAxis{}, a, a}};
}

Tensor random_tensor(DType t, const Shape& shape, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensor out = Tensor::empty(t, shape);
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    const std::int64_t n = static_cast<std::int64_t>(random() % 2001) - 1000;
    if (t == DType::f32) static_cast<float*>(out.raw_mutable())[i] = static_cast<float>(n) / 1000.f;
    else if (t == DType::f64)
      static_cast<double*>(out.raw_mutable())[i] = static_cast<double>(n) / 1000;
    else static_cast<std::int64_t*>(out.raw_mutable())[i] = n;
  }
  return out;
}

Tensor convolved(Device& device, DType t, Convolve what, const Problem& p, RepackedSlot* kept) {
  const Shape a = what == Convolve::output || what == Convolve::filter ? p.x() : p.y(),
              b = what == Convolve::filter ? p.y() : p.w();
  Tensor x = random_tensor(t, a, 1), y = random_tensor(t, b, 2);
  Tensor out = Tensor::empty(t, what == Convolve::output  ? p.y()
                                : what == Convolve::input ? p.x()
                                                          : p.w());
  auto stream = device.make_stream();
  device.primitives().convolve(
      *stream, {what, x, y, View(out), p.windows, p.batch, p.channels, p.filters, p.groups, kept});
  return out;
}

/// `wanted` is of thousandths.
void check_against_i64(const Problem& p, Convolve what, const Tensor& wanted, const Tensor& got) {
  double worst = 0, size = 1;
  for (std::int64_t i = 0; i < wanted.elements(); ++i) {
    worst = std::max(worst, std::abs(got.at(i) - wanted.at(i) / 1e6));
    size = std::max(size, std::abs(wanted.at(i) / 1e6));
  }
  BOOST_TEST(worst <= (got.dtype() == DType::f64 ? 1e-13 : 1e-5) * size,
             "channels " << p.channels << ", part " << int(what) << ": off by " << worst << " of "
                         << size);
}

}  // namespace

BOOST_AUTO_TEST_CASE(pieces_of_a_batch_make_the_whole) {
  WorkerPool pool(2);
  auto shared = make_cpu_device({&pool, "cpu:0"}), alone = make_cpu_device();
  const Problem problems[] = {
      {5, 16, 32, 1, window(16, 3, 1, 1)},  // pieces, the last with fewer items
      {33, 8, 16, 1, window(20, 5, 2, 2)}, {7, 32, 32, 32, window(28, 3, 1, 1)},  // depthwise
      {6, 32, 64, 4, window(14, 3, 1, 0)}, {1, 3, 8, 1, window(32, 7, 2, 3)},
  };
  for (const Problem& p : problems)
    for (Convolve what : {Convolve::output, Convolve::input, Convolve::filter}) {
      RepackedSlot kept;
      Tensor wanted = convolved(*alone, DType::i64, what, p, nullptr),
             got = convolved(*shared, DType::f32, what, p, &kept);
      check_against_i64(p, what, wanted, got);
      BOOST_TEST((kept.get() != nullptr));
      auto first = kept.get();
      BOOST_TEST(identical(got, convolved(*shared, DType::f32, what, p, &kept)));
      BOOST_TEST((kept.get() == first));  // made once
      // the product is identical for each caller
      BOOST_TEST(identical(got, convolved(*alone, DType::f32, what, p, nullptr)));
    }
}

BOOST_AUTO_TEST_CASE(few_positions_are_a_product) {
  WorkerPool pool(2);
  auto shared = make_cpu_device({&pool, "cpu:0"}), alone = make_cpu_device();
  const Problem problems[] = {
      {8, 64, 96, 1, window(4, 3, 1, 1)},
      {3, 16, 32, 1, window(5, 3, 2, 1)},
      {2, 32, 48, 1, window(7, 1, 1, 0)},  // each position's channels alone: x is the matrix
      {2, 16, 24, 1, window(6, 1, 2, 0)},
      {1, 16, 4, 1, window(3, 5, 1, 2)},  // wider than x
      // taps apart, some nowhere
      {2, 17, 8, 1, window(9, 3, 1, 2, 2)},
      {2, 16, 8, 1, window(3, 2, 2, 1, 4)},
      {16, 256, 128, 1, window(8, 3, 1, 1)},
  };
  for (const Problem& p : problems)
    for (Convolve what : {Convolve::output, Convolve::input, Convolve::filter}) {
      RepackedSlot kept;
      const Tensor got = convolved(*shared, DType::f32, what, p, &kept);
      check_against_i64(p, what, convolved(*alone, DType::i64, what, p, nullptr), got);
      BOOST_TEST((kept.get() == nullptr));  // the library was not asked
      BOOST_TEST(identical(got, convolved(*alone, DType::f32, what, p, nullptr)));
    }
}

BOOST_AUTO_TEST_CASE(doubles_are_products_of_pieces) {
  WorkerPool pool(2);
  auto shared = make_cpu_device({&pool, "cpu:0"}), alone = make_cpu_device();
  const Problem problems[] = {
      // more rows of windows than are kept at once; pieces end within an item
      {3, 32, 8, 1, window(60, 3, 1, 1)}, {2, 3, 5, 1, window(11, 3, 2, 1)},
      {2, 4, 6, 1, window(7, 1, 1, 0)},   {2, 8, 12, 4, window(9, 3, 1, 1)},
      {1, 2, 3, 1, window(3, 5, 1, 2)},
  };
  for (const Problem& p : problems)
    for (Convolve what : {Convolve::output, Convolve::input, Convolve::filter}) {
      const Tensor got = convolved(*shared, DType::f64, what, p, nullptr);
      check_against_i64(p, what, convolved(*alone, DType::i64, what, p, nullptr), got);
      BOOST_TEST(identical(got, convolved(*alone, DType::f64, what, p, nullptr)));
    }
}

BOOST_AUTO_TEST_CASE(another_shape_is_made_anew) {
  auto device = make_cpu_device();
  RepackedSlot kept;
  const Problem small{2, 4, 8, 1, window(8, 3, 1, 1)}, large{3, 4, 8, 1, window(9, 3, 1, 1)};
  for (const Problem& p : {small, large, small})
    BOOST_TEST(identical(convolved(*device, DType::f32, Convolve::output, p, &kept),
                         convolved(*device, DType::f32, Convolve::output, p, nullptr)));
}

BOOST_AUTO_TEST_SUITE_END()
