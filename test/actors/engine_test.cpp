#include <troupe/actors/engine.hpp>

#include <boost/test/unit_test.hpp>

#include <troupe/functions.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(engine_test)

BOOST_AUTO_TEST_CASE(a_line) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{});
  Expr y = x * 2.0 + 1.0;
  Engine engine;
  Function f = engine.compile(g, {x}, {y});
  for (int i = 0; i < 100; ++i) BOOST_TEST(f({Tensor::scalar(float(i))})[0].item<float>() == 2.f * i + 1);
}

BOOST_AUTO_TEST_SUITE_END()
