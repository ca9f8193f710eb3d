// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Gradients of random programs: against finite differences, first and second order, and under the
// engine against the interpreter. `TROUPE_SEED=n TROUPE_PROGRAMS=1` repeats one.
#include <cstdlib>

#include <troupe/test/support/programs/random_gradients.hpp>
#include <troupe/test/support/programs/swapping.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(random_gradient_test)

namespace {

std::uint64_t number(const char* variable, std::uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : fallback;
}

struct Slopes {
  double exact, measured;
  bool is_smooth;
};

// Along one direction.
Slopes slopes(const Recipe& r, int order) {
  Differentiated p(r);
  for (int i = 1; i < order; ++i) p.derive();
  p.differentiate();
  const auto start = p.values;
  Exprs fetches = p.d;
  double exact = 0;
  std::vector<Tensor> d =
      fetches.empty() ? std::vector<Tensor>() : Eager().run(p.g, p.feeds(r), fetches);
  auto direction = [](std::size_t i, std::int64_t k) {
    return 0.5 + 0.25 * std::sin(static_cast<double>(i) * 3 + static_cast<double>(k));
  };
  for (std::size_t i = 0; i < d.size(); ++i)
    for (std::int64_t k = 0; k < d[i].elements(); ++k) exact += d[i].at(k) * direction(i, k);
  auto at = [&](double step) {
    for (std::size_t i = 0; i < start.size(); ++i) {
      // All elements that the tensor has, as Kitchen::tensor fills them.
      Tensor t = p.kitchen.tensor(p.types[i], start[i]);
      p.values[i].clear();
      for (std::int64_t k = 0; k < t.elements(); ++k)
        p.values[i].push_back(t.at(k) + step * direction(i, k));
    }
    double value = Eager().run(p.g, p.feeds(r), {p.y})[0].at(0);
    p.values = start;
    return value;
  };
  auto slope = [&](double h) { return (at(h) - at(-h)) / (2 * h); };
  const double h = 1e-5, fine = slope(h), coarse = slope(4 * h);
  const double size = std::max({1.0, std::abs(fine), std::abs(at(0))});
  return {exact, fine, std::isfinite(fine) && std::abs(fine - coarse) <= 1e-5 * size};
}

void against_differences(int order, std::uint64_t programs) {
  const std::uint64_t first = number("TROUPE_SEED", 1), n = number("TROUPE_PROGRAMS", programs);
  std::uint64_t compared = 0, moving = 0;
  for (std::uint64_t seed = first; seed < first + n; ++seed) {
    Recipe r = random_recipe(seed, {.variables = Use::none, .is_smooth = true});
    BOOST_TEST_CONTEXT("seed " << seed << "\n" << text_of(r)) try {
      Slopes s = slopes(r, order);
      if (!s.is_smooth) continue;
      ++compared;
      moving += s.measured != 0;
      BOOST_TEST(std::abs(s.exact - s.measured) <=
                     1e-4 * std::max({1.0, std::abs(s.exact), std::abs(s.measured)}),
                 s.exact << " but measured " << s.measured);
    } catch (const Error& e) { BOOST_ERROR(e.what()); }
  }
  BOOST_TEST_MESSAGE(compared << " programs compared, " << moving << " with a slope");
  BOOST_TEST((n < 20 || moving > n / 8));
}

}  // namespace

BOOST_AUTO_TEST_CASE(first_order, *boost::unit_test::label("one_thread")) {
  against_differences(1, 150);
}
BOOST_AUTO_TEST_CASE(second_order, *boost::unit_test::label("one_thread")) {
  against_differences(2, 50);
}

BOOST_AUTO_TEST_CASE(the_engine_equals_the_interpreter) {
  const std::uint64_t out = swapped().out, in = swapped().in;
  const Seeds s = seeds(60);
  compare_gradients(ways(), s);
  if (s.count >= 20)
    BOOST_TEST((swapped().out > out && swapped().in > in),
               swapped().out - out << " swapped out, " << swapped().in - in << " back");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
