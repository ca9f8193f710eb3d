// When values of a loop's variables come back.
#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <limits>
#include <vector>

#include <troupe/actors/observe/recurrence.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(recurrence_test, TROUPE_ONE_THREAD)

namespace {

constexpr std::size_t kMuch = std::size_t{1} << 30;

/// Returns the recurrence found for one variable that begins iteration n with `of(n)`; -1: none in
/// so many.
template <class F>
std::int64_t found_after(F&& of, std::int64_t iterations, std::int64_t* period = nullptr,
                         std::int64_t from = 1) {
  Recurrence r;
  r.begin(1, 4);
  for (std::int64_t n = from; n < from + iterations; ++n) {
    std::size_t bytes = kMuch;
    r.see(n, 0, Tensor::scalar(of(n)), bytes);
    if (r.period() == 0) continue;
    if (period) *period = r.period();
    return n - from;
  }
  return -1;
}

}  // namespace

BOOST_AUTO_TEST_CASE(rounds_of_any_length) {
  for (std::int64_t length = 1; length < 200; ++length)
    for (const std::int64_t before : {0, 1, 17, 300}) {
      std::int64_t period = 0;
      const auto of = [&](std::int64_t n) { return n < before ? -n - 1 : (n - before) % length; };
      const std::int64_t after = found_after(of, 4 * (before + length) + 8, &period);
      BOOST_TEST_REQUIRE(after >= 0, length << " after " << before);
      BOOST_TEST(period == length);
      BOOST_TEST(after <= 3 * (before + length),
                 length << " after " << before << " was found after " << after);
    }
  BOOST_TEST(found_after([](std::int64_t n) { return n; }, 10'000) == -1);
}

// A client looked in between, and only for a while.
BOOST_AUTO_TEST_CASE(unobserved_iterations) {
  Recurrence r;
  r.begin(1, 4);
  std::size_t bytes = kMuch;
  for (std::int64_t n = 1; n < 10; ++n) r.see(n, 0, Tensor::scalar(n), bytes);
  BOOST_TEST(r.period() == 0);
  for (std::int64_t n = 1'000'000; n < 1'000'010; ++n) r.see(n, 0, Tensor::scalar(n % 3), bytes);
  BOOST_TEST(r.period() == 3);
}

BOOST_AUTO_TEST_CASE(several_variables_in_any_order) {
  const auto sees = [](std::int64_t n, std::int64_t changes, std::size_t first, Recurrence& r) {
    std::size_t bytes = kMuch;
    const std::int64_t values[] = {7, n >= changes ? 8 : n};
    r.see(n, first, Tensor::scalar(values[first]), bytes);
    r.see(n, 1 - first, Tensor::scalar(values[1 - first]), bytes);
  };
  Recurrence r;
  r.begin(2, 4);
  for (std::int64_t n = 1; n < 9; ++n) sees(n, 9, n % 2, r);
  BOOST_TEST(r.period() == 0);
  for (std::int64_t n = 9; n < 40; ++n) sees(n, 9, n % 2, r);
  BOOST_TEST(r.period() == 1);
  // Iterations that overlap: one variable is ahead.
  Recurrence ahead;
  ahead.begin(2, 4);
  for (std::int64_t n = 1; n < 40; ++n) {
    std::size_t bytes = kMuch;
    ahead.see(n, 0, Tensor::scalar(n % 2), bytes);
    if (n > 3) ahead.see(n - 3, 1, Tensor::scalar(std::int64_t{5}), bytes);
  }
  BOOST_TEST(ahead.period() == 2);
  BOOST_TEST(ahead.seen() > 2);
  // One that never comes.
  Recurrence half;
  half.begin(2, 4);
  for (std::int64_t n = 1; n < 40; ++n) {
    std::size_t bytes = kMuch;
    half.see(n, 0, Tensor::scalar(std::int64_t{5}), bytes);
  }
  BOOST_TEST(half.period() == 0);
  BOOST_TEST(half.seen() == 0);
}

// Which variable has a value is part of the state: two that change places are another one.
BOOST_AUTO_TEST_CASE(variables_that_change_places) {
  Recurrence r;
  r.begin(2, 4);
  std::size_t bytes = kMuch;
  r.see(1, 0, Tensor::scalar(1.0f), bytes), r.see(1, 1, Tensor::scalar(2.0f), bytes);
  r.see(2, 0, Tensor::scalar(2.0f), bytes), r.see(2, 1, Tensor::scalar(1.0f), bytes);
  BOOST_TEST(r.seen() == 2);
  BOOST_TEST(r.period() == 0);
  r.see(3, 0, Tensor::scalar(2.0f), bytes), r.see(3, 1, Tensor::scalar(1.0f), bytes);
  BOOST_TEST(r.period() == 1);
}

BOOST_AUTO_TEST_CASE(values_are_compared_in_bits) {
  const auto is_same = [](const Tensor& a, const Tensor& b) {
    Recurrence r;
    r.begin(1, 4);
    std::size_t bytes = kMuch;
    r.see(1, 0, a, bytes), r.see(2, 0, b, bytes);
    BOOST_TEST(r.seen() == 2);
    return r.period() == 1;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  BOOST_TEST(is_same(Tensor::scalar(nan), Tensor::scalar(nan)));
  BOOST_TEST(!is_same(Tensor::scalar(0.0f), Tensor::scalar(-0.0f)));
  BOOST_TEST(!is_same(Tensor::scalar(1.0f), Tensor::scalar(1.0)));
  BOOST_TEST(!is_same(Tensor::scalar_as(DType::i32, 1), Tensor::scalar_as(DType::u32, 1)));
  const std::vector<float> many(1001, 3.0f);
  std::vector<float> other = many;
  other.back() = 4.0f;
  BOOST_TEST(is_same(Tensor::of(std::span<const float>(many), {7, 143}),
                     Tensor::of(std::span<const float>(many), {7, 143})));
  BOOST_TEST(!is_same(Tensor::of(std::span<const float>(many), {7, 143}),
                      Tensor::of(std::span<const float>(many), {143, 7})));
  BOOST_TEST(!is_same(Tensor::of(std::span<const float>(many), {1001}),
                      Tensor::of(std::span<const float>(other), {1001})));
  BOOST_TEST(is_same(Tensor::empty(DType::f32, {0}), Tensor::empty(DType::f32, {0})));
}

BOOST_AUTO_TEST_CASE(no_more_is_read_than_may_be) {
  Recurrence r;
  r.begin(1, 4);
  const Tensor large = Tensor::empty(DType::f32, {1000});
  std::size_t bytes = 9000;
  for (std::int64_t n = 1; n < 6; ++n) r.see(n, 0, Tensor::scalar(n), bytes);
  BOOST_TEST(r.seen() == 5);
  Recurrence other;
  other.begin(1, 4);
  std::vector<float> zeros(1000);
  for (std::int64_t n = 1; n < 6; ++n) {
    zeros[0] = static_cast<float>(n);
    other.see(n, 0, Tensor::of(std::span<const float>(zeros), {1000}), bytes);
  }
  BOOST_TEST(other.seen() == 2);  // 4000 bytes each
  BOOST_TEST(bytes < 4000u);
  other.forget();
  BOOST_TEST(other.is_new());
  BOOST_TEST(other.seen() == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
