// Not under tsan: its kernels run in parallel in op_table_test and devices/cpu_primitives_test.
// Random draws: keyed by seed, op and step; distributed as they should be.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(random_test, TROUPE_ONE_THREAD)

namespace {

struct Moments {
  double mean = 0, deviation = 0, low = INFINITY, high = -INFINITY;
};
Moments moments(const Tensor& t) {
  Moments m;
  auto n = static_cast<double>(t.elements());
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    m.mean += t.at(i) / n;
    m.low = std::min(m.low, t.at(i));
    m.high = std::max(m.high, t.at(i));
  }
  for (std::int64_t i = 0; i < t.elements(); ++i)
    m.deviation += (t.at(i) - m.mean) * (t.at(i) - m.mean) / n;
  m.deviation = std::sqrt(m.deviation);
  return m;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_step_and_a_seed_decide) {
  Graph g;
  Expr a = g.random_normal({4}), b = g.random_normal({4});
  Eager one, two;
  std::vector<Tensor> first = one.run(g, {}, {a, b});
  BOOST_TEST(identical(first[0], two.run(g, {}, {a, b})[0]));
  BOOST_TEST(!identical(first[0], first[1]));                // another op
  BOOST_TEST(!identical(first[0], one.run(g, {}, {a})[0]));  // another step
  one.set_step(0);
  BOOST_TEST(identical(first[0], one.run(g, {}, {a})[0]));  // and back
  one.set_step(0);
  one.set_seed(7);
  BOOST_TEST(!identical(first[0], one.run(g, {}, {a})[0]));
}

BOOST_AUTO_TEST_CASE(a_second_seed_does_not_restart_the_draws) {
  Eager e, other;
  const auto draw = [](Eager& scope) { return scope.random_normal({4}).value(); };
  e.set_seed(7);
  const Eager::RandomState start = e.random_state();
  const Tensor first = draw(e);
  e.set_seed(7);
  BOOST_TEST(!identical(draw(e), first));
  e.set_random_state(start);
  BOOST_TEST(identical(draw(e), first));
  // the last seed counts, as if it had been the only one
  e.set_seed(9);
  other.set_seed(9);
  draw(other);
  BOOST_TEST(identical(draw(e), draw(other)));
}

BOOST_AUTO_TEST_CASE(pruning_changes_no_draw) {
  Graph g;
  Expr unused = g.random_normal({4}), a = g.random_normal({4});
  Eager one, two;
  BOOST_TEST(identical(one.run(g, {}, {unused, a})[1], two.run(g, {}, {a})[0]));
}

BOOST_AUTO_TEST_CASE(distributions) {
  for (DType t : {DType::f32, DType::f64}) {
    Graph g;
    const Shape many{100, 1000};
    std::vector<Tensor> out = Eager().run(
        g, {}, {g.random_uniform(many, t), g.random_normal(many, t), g.truncated_normal(many, t)});
    Moments u = moments(out[0]), n = moments(out[1]), c = moments(out[2]);
    // 100,000 draws: the mean is off by 0.003 deviations, and five times that is never seen.
    BOOST_TEST(std::abs(u.mean - 0.5) < 0.005);
    BOOST_TEST(std::abs(u.deviation - std::sqrt(1.0 / 12)) < 0.005);
    BOOST_TEST(u.low >= 0);
    BOOST_TEST(u.high < 1);
    BOOST_TEST(std::abs(n.mean) < 0.016);
    BOOST_TEST(std::abs(n.deviation - 1) < 0.016);
    BOOST_TEST(n.high > 3.5);
    BOOST_TEST(std::abs(c.mean) < 0.016);
    BOOST_TEST(std::abs(c.deviation - 0.8796) < 0.016);
    BOOST_TEST(c.high <= 2);
    BOOST_TEST(c.low >= -2);
  }
}

BOOST_AUTO_TEST_CASE(random_ops_refuse_wrong_dtypes_and_open_shapes) {
  Graph g;
  BOOST_CHECK_THROW(g.random_normal({2}, DType::i32), Error);
  BOOST_CHECK_THROW(g.random_uniform({kAny}), Error);
  BOOST_CHECK_THROW(g.random_uniform({2}, DType::boolean), Error);
  BOOST_CHECK_NO_THROW(g.random_uniform({2}, DType::u8));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
