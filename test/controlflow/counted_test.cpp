// Loops with a counter, choices of the first predicate, and vectors within structures.
#include <boost/test/unit_test.hpp>

#include <limits>

#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(counted_test)

namespace {

using Longs = std::vector<std::int64_t>;

/// The counters of C++'s own loop.
Longs plain(std::int64_t begin, std::int64_t end, std::int64_t step) {
  Longs out;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end; i += step) out.push_back(i);
  return out;
}

/// A number that tells sequences of counters apart.
std::int64_t digest(const Longs& counters) {
  std::int64_t d = 7;
  for (std::int64_t i : counters) d = d * 31 + i;
  return d;
}

Expr digest_step(const Expr& i, const Expr& d) { return d * 31 + cast(i, DType::i64); }

}  // namespace

BOOST_AUTO_TEST_CASE(counters_are_those_of_cpp) {
  for (const auto& [begin, end, step] : std::vector<std::array<std::int64_t, 3>>{{0, 5, 1},
                                                                                 {2, 2, 1},
                                                                                 {5, 0, 1},
                                                                                 {0, 5, 2},
                                                                                 {0, 6, 2},
                                                                                 {5, 0, -1},
                                                                                 {0, 5, -1},
                                                                                 {7, -4, -3},
                                                                                 {-3, 8, 4},
                                                                                 {1, 2, 100}}) {
    const std::int64_t wanted = digest(plain(begin, end, step));
    Eager eager;
    BOOST_TEST(for_loop(begin, end, digest_step, eager.constant(std::int64_t{7}), {.step = step})
                   .value()
                   .item<std::int64_t>() == wanted);
    for (DType dtype : {DType::i32, DType::i64})
      for (int given = 0; given < 8; ++given) {  // which of the three are expressions
        Graph g;
        Feeds feeds;
        const auto bound = [&](int bit, std::int64_t n, const char* name) {
          if ((given >> bit & 1) == 0) return Operand(n);
          const Expr e = g.input(name, dtype, {});
          feeds.emplace_back(e, Tensor::scalar_as(dtype, static_cast<double>(n)));
          return Operand(e);
        };
        const Operand from = bound(0, begin, "begin"), to = bound(1, end, "end"),
                      by = bound(2, step, "step");
        const Expr last =
            for_loop(from, to, digest_step, g.constant(std::int64_t{7}), {.step = by});
        Engine engine({.workers = 1});
        BOOST_TEST(engine.run(g, feeds, {last})[0].item<std::int64_t>() == wanted,
                   begin << " " << end << " " << step << " " << given);
      }
  }
}

BOOST_AUTO_TEST_CASE(counters_at_the_ends_of_i64) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  Eager e;
  BOOST_TEST(
      for_loop(most - 5, most, [](Expr, Expr n) { return n + 1; }, e.constant(0), {.step = 3})
          .value()
          .item<std::int32_t>() == 2);
}

BOOST_AUTO_TEST_CASE(structures_everywhere) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        auto [a, b] = for_loop(
            1, g.constant(std::int64_t{5}),
            [](Expr i, Expr x, Expr y) {
              return std::tuple{x + cast(i, DType::f32), y * 2.0};
            },
            std::tuple{scalar(g, 0), scalar(g, 1)});
        return {{}, {a, b}};
      },
      {Reals{10}, Reals{16}}, 2);
}

BOOST_AUTO_TEST_CASE(gradients_go_through) {
  Graph g;
  Expr x = g.input("x", DType::f64, {}), n = g.input("n", DType::i64, {});
  const Expr y = for_loop(
      0, n, [&](Expr, Expr p) { return p * x; }, g.constant(1.0));
  Engine engine({.workers = 1});
  const std::vector<Tensor> out = engine.run(
      g, {{x, Tensor::scalar(2.0)}, {n, Tensor::scalar(std::int64_t{3})}}, {y, gradients(y, x)[0]});
  BOOST_TEST(out[0].item<double>() == 8);
  BOOST_TEST(out[1].item<double>() == 12);
}

BOOST_AUTO_TEST_CASE(the_first_case_that_holds) {
  for (double v : {-5.0, -1.0, 0.0, 2.0, 3.0, 9.0}) {
    const auto build = [](const Expr& x) {
      return case_of({{x > 2.0, [&] { return x * 10.0; }},
                      {x > 1.0, [&] { return x * 100.0; }},
                      {x < -1.0, [&] { return -x; }}},
                     [&] { return x * x; });
    };
    const double wanted = v > 2    ? v * 10
                          : v > 1  ? v * 100
                          : v < -1 ? -v
                                   : v * v,
                 slope = v > 2    ? 10
                         : v > 1  ? 100
                         : v < -1 ? -1
                                  : 2 * v;
    Eager e;
    BOOST_TEST(build(e.constant(v)).value().item<double>() == wanted);
    Graph g;
    Expr x = g.input("x", DType::f64, {});
    const Expr y = build(x);
    Engine engine({.workers = 1});
    const std::vector<Tensor> out =
        engine.run(g, {{x, Tensor::scalar(v)}}, {y, gradients(y, x)[0]});
    BOOST_TEST(out[0].item<double>() == wanted);
    BOOST_TEST(out[1].item<double>() == slope);
  }
}

BOOST_AUTO_TEST_CASE(a_vector_within_a_structure) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        auto [i, v] = while_loop([](Expr k, const Exprs&) { return k < 3; },
                                 [](Expr k, Exprs all) {
                                   for (Expr& e : all) e += 1.0;
                                   return std::tuple{k + 1, all};
                                 },
                                 std::tuple{g.constant(0), Exprs{scalar(g, 1), scalar(g, 2)}});
        std::vector<LstmState> states{{scalar(g, 1), scalar(g, 2)}, {scalar(g, 3), scalar(g, 4)}};
        states = for_loop(
            0, 2,
            [](Expr, std::vector<LstmState> s) {
              std::swap(s[0], s[1]);
              s[0].h *= 2.0;
              return s;
            },
            states);
        return {{}, {v[0], v[1], states[0].h, states[1].c}};
      },
      {Reals{4}, Reals{5}, Reals{2}, Reals{4}}, 2);
}

BOOST_AUTO_TEST_CASE(refusals) {
  Graph g;
  Expr x = g.input("x", DType::f32, {}), n = g.input("n", DType::i64, {}),
       m = g.input("m", DType::i32, {}), v = g.input("v", DType::i64, {2}),
       p = g.input("p", DType::boolean, {2});
  const auto keep = [](Expr, Expr s) { return s; };
  const auto refuses = [](auto f, Code code, const std::vector<std::string>& parts) {
    const std::string said = refusal(f, code);
    for (const std::string& part : parts) BOOST_TEST(said.find(part) != std::string::npos, said);
    BOOST_TEST(said.find("counted_test.cpp:") != std::string::npos, said);
  };
  const Code wrong = Code::invalid_argument;
  refuses([&] { for_loop(0, n, keep, x, {.step = 0}); }, wrong, {"for_loop", "the step is 0"});
  refuses([&] { for_loop(0, x, keep, x); }, wrong, {"end must be a number or an i32 or i64"});
  refuses([&] { for_loop(v, 3, keep, x); }, wrong, {"begin must be a number or an i32 or i64"});
  refuses([&] { for_loop(n, m, keep, x); }, wrong, {"cast one of them"});
  refuses([&] { for_loop(0, 1.5, keep, x); }, wrong, {"1.5 is no i64"});
  refuses([&] { for_loop(0, 3, keep, 1.0); }, wrong, {"pass the graph"});
  refuses(
      [&] {
        for_loop(
            0, n, [](Expr) { return std::tuple{}; }, std::tuple{});
      },
      wrong, {"it has no variables"});
  refuses(
      [&] {
        for_loop(
            0, n, [](Expr i, Expr) { return i; }, x);
      },
      wrong, {"variable 0 is f32[] at first and i64[] after"});
  refuses(
      [&] {
        case_of({{p, [&] { return x; }}}, [&] { return x; });
      },
      wrong, {"case_of", "case 0 must be a bool scalar"});
  refuses(
      [&] {
        case_of({{true, [&] { return x; }}}, [&] { return x; });
      },
      wrong, {"none of the predicates is an expression"});
  Engine engine({.workers = 1});
  const Expr zero_step = for_loop(0, 3, keep, g.constant(1), {.step = n});
  refuses(
      [&] {
        engine.run(g, {{n, Tensor::scalar(std::int64_t{0})}}, {zero_step});
      },
      wrong, {"the step is 0"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
