// Not under tsan: its kernels run in parallel in op_table_test and devices/cpu_primitives_test.
// Pooling in f32, by the level's kernels, against f64, by plain loops; the table of ops
// (test/ops/tables/window_rows.hpp) has the references.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/device.hpp>
#include <troupe/devices/device/window.hpp>
#include <troupe/test/support/one_thread.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(pool_test, TROUPE_ONE_THREAD)

namespace {

// Few different numbers: equals are the rule. Some NaN.
Tensor numbers(DType t, const Shape& shape, std::uint32_t seed) {
  Tensor out = Tensor::empty(t, shape);
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    const double v = seed >> 24 == 0 ? std::numeric_limits<double>::quiet_NaN()
                                     : static_cast<double>(seed >> 28) - 8;
    if (t == DType::f32) static_cast<float*>(out.raw_mutable())[i] = static_cast<float>(v);
    else static_cast<double*>(out.raw_mutable())[i] = v;
  }
  return out;
}

Tensor pooled(Device& device, DType t, Pool what, const Windows& w, std::int64_t channels) {
  constexpr std::int64_t kBatch = 3;
  const Shape in{kBatch, w.inputs(), channels}, of{kBatch, w.outputs(), channels};
  const bool is_back = what == Pool::max_gradient || what == Pool::mean_gradient;
  Tensor x = numbers(t, what == Pool::mean_gradient ? of : in, 1),
         other = numbers(t, what == Pool::max_at ? in : of, 2);
  Tensor out = Tensor::empty(t, is_back ? in : of);
  auto stream = device.make_stream();
  device.primitives().pool(*stream, {what, x, other, View(out), w, kBatch, channels});
  return out;
}

}  // namespace

BOOST_AUTO_TEST_CASE(rows_of_channels_are_pooled_as_single_ones_are) {
  auto device = make_cpu_device();
  auto axis = [](std::int64_t in, std::int64_t size, std::int64_t stride, std::int64_t before,
                 std::int64_t dilation) {
    return WindowAxis{.in = in,
                      .out = (in + 2 * before - (size - 1) * dilation - 1) / stride + 1,
                      .size = size,
                      .stride = stride,
                      .dilation = dilation,
                      .before = before};
  };
  const Windows windows[] = {{{WindowAxis{}, axis(8, 2, 2, 0, 1), axis(6, 2, 2, 0, 1)}},
                             {{WindowAxis{}, axis(7, 3, 2, 1, 1), axis(9, 3, 1, 1, 1)}},
                             {{axis(5, 2, 1, 0, 1), axis(4, 2, 2, 1, 1), axis(6, 2, 1, 1, 2)}}};
  for (const Windows& w : windows)
    for (const std::int64_t channels : {1, 15, 16, 37, 64})
      for (Pool what :
           {Pool::max, Pool::max_gradient, Pool::max_at, Pool::mean, Pool::mean_gradient}) {
        const Tensor wanted = pooled(*device, DType::f64, what, w, channels),
                     got = pooled(*device, DType::f32, what, w, channels);
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < wanted.elements(); ++i) {
          const double a = wanted.at(i), b = got.at(i);
          wrong += !(std::isnan(a) ? std::isnan(b) : std::abs(a - b) <= 1e-6 * (1 + std::abs(a)));
        }
        BOOST_TEST(wrong == 0, "kind " << int(what) << ", " << channels << " channels: " << wrong
                                       << " elements differ");
      }
}

BOOST_AUTO_TEST_SUITE_END()
