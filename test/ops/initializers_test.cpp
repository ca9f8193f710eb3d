// Initial values of variables: their spread, and the seed that they follow.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(initializers_test)

namespace {

Tensor made(const Initializer& init, const Shape& shape, DType dtype = DType::f64) {
  return init.make("w", dtype, shape);
}

Tensor in_engine(const Initializer& init, std::uint64_t seed, bool is_run) {
  Graph g;
  Variable w = g.variable("w", DType::f32, {3, 4}, init);
  Engine engine({.workers = 1, .seed = seed});
  if (is_run) return engine.run(g, {}, {w.read()})[0];
  return engine.get(w);
}

}  // namespace

BOOST_AUTO_TEST_CASE(he_has_the_deviation_of_its_inputs) {
  const Tensor w = made(Initializer::he(50, 3), {200, 100});
  double total = 0, squares = 0;
  for (std::int64_t i = 0; i < w.elements(); ++i) total += w.at(i), squares += w.at(i) * w.at(i);
  const auto n = static_cast<double>(w.elements());
  BOOST_TEST(std::abs(total / n) < 0.01);
  BOOST_TEST(std::abs(std::sqrt(squares / n) - 0.2) < 0.005);
}

BOOST_AUTO_TEST_CASE(orthogonal_matrices) {
  for (const Shape& shape : {Shape{6, 4}, Shape{4, 6}, Shape{2, 3, 4}, Shape{5}}) {
    const Tensor w = made(Initializer::orthogonal(2, 5), shape);
    const std::int64_t columns = shape[shape.rank() - 1], rows = w.elements() / columns;
    const bool is_wide = rows < columns;
    const std::int64_t vectors = std::min(rows, columns);
    for (std::int64_t i = 0; i < vectors; ++i)
      for (std::int64_t j = 0; j < vectors; ++j) {
        double dot = 0;
        for (std::int64_t k = 0; k < std::max(rows, columns); ++k)
          dot += is_wide ? w.at(i * columns + k) * w.at(j * columns + k)
                         : w.at(k * columns + i) * w.at(k * columns + j);
        BOOST_TEST(std::abs(dot - (i == j ? 4 : 0)) < 1e-12);
      }
  }
}

BOOST_AUTO_TEST_CASE(without_a_seed_they_follow_the_engine) {
  for (const auto& init :
       {Initializer::glorot(3, 4), Initializer::he(3), Initializer::orthogonal(),
        Initializer::normal(0, 1), Initializer::uniform(0, 1), Initializer::truncated_normal(0, 1)})
    for (bool is_run : {false, true}) {
      BOOST_TEST(identical(in_engine(init, 1, is_run), in_engine(init, 1, !is_run)));
      BOOST_TEST(!identical(in_engine(init, 1, is_run), in_engine(init, 2, is_run)));
    }
  const Initializer fixed = Initializer::glorot(3, 4, 7);
  BOOST_TEST(identical(in_engine(fixed, 1, true), in_engine(fixed, 2, true)));
  BOOST_TEST(identical(in_engine(fixed, 1, true), fixed.make("w", DType::f32, {3, 4})));
}

BOOST_AUTO_TEST_CASE(variables_refuse_values_that_their_dtype_lacks) {
  Graph g;
  int n = 0;
  const auto why = [&](DType dtype, const Initializer& init) {
    return refusal(
        [&] {
          g.variable("v" + std::to_string(++n), dtype, {2, 3}, init);
        },
        Code::invalid_argument);
  };
  const auto says = [](const std::string& text, const std::string& part) {
    BOOST_TEST(text.find(part) != std::string::npos, text);
    BOOST_TEST(text.find("initializers_test.cpp:") != std::string::npos, text);
  };
  says(why(DType::u8, Initializer::constant(300)), "u8 has no value 300");
  says(why(DType::i32, Initializer::constant(0.5)), "i32 has no value 0.5");
  says(why(DType::i32, Initializer::constant(NAN)), "i32 has no value nan");
  says(why(DType::i32, Initializer::glorot(2, 3)), "draws are of floating dtypes, not of i32");
  says(why(DType::boolean, Initializer::normal(0, 1)), "draws are of floating dtypes");
  says(why(DType::f32, Initializer::uniform(2, 1)), "draws cannot be uniform from 2 to 1");
  says(why(DType::f32, Initializer::normal(0, -1)), "of mean 0 and deviation -1");
  says(why(DType::f32, Initializer::truncated_normal(NAN, 1)), "of mean nan and deviation 1");
  g.variable("whole", DType::u8, {2}, Initializer::constant(255));
  g.variable("still", DType::f32, {2}, Initializer::normal(1, 0));
}

BOOST_AUTO_TEST_CASE(initialize_draws_the_same_again) {
  Graph g;
  Variable w = g.variable("w", DType::f32, {3}, Initializer::normal(0, 1));
  Engine engine({.workers = 1, .seed = 9});
  const Tensor first = engine.get(w);
  engine.set(w, Tensor::zeros(DType::f32, {3}));
  engine.initialize(w);
  BOOST_TEST(identical(engine.get(w), first));
}

BOOST_AUTO_TEST_CASE(eager_scopes_have_seeds_too) {
  const auto of_seed = [](std::uint64_t seed) {
    Eager e;
    e.set_seed(seed);
    return e.variable("w", DType::f32, {4}, Initializer::he(4)).read().value();
  };
  BOOST_TEST(identical(of_seed(1), of_seed(1)));
  BOOST_TEST(!identical(of_seed(1), of_seed(2)));
  BOOST_TEST(identical(of_seed(3), Initializer::he(4).make("w", DType::f32, {4}, 3)));
}

BOOST_AUTO_TEST_CASE(refusals) {
  BOOST_TEST(refusal([] { Initializer::he(0); }, Code::invalid_argument).find("he") !=
             std::string::npos);
  refusal([] { Initializer::glorot(0, 3); }, Code::invalid_argument);
  Graph g;
  for (const auto& [dtype, shape] :
       {std::pair(DType::f32, Shape{}), std::pair(DType::i32, Shape{2, 2})}) {
    const std::string said = refusal(
        [&] { g.variable("w", dtype, shape, Initializer::orthogonal()); }, Code::invalid_argument);
    BOOST_TEST(said.find("initializers_test.cpp:") != std::string::npos, said);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
