// Calls in loops: bodies of functions take their place, so that the loops stay whole.
#include <boost/test/unit_test.hpp>

#include <tuple>

#include <fmt/format.h>

#include <troupe/test/support/programs/calls.hpp>
#include <troupe/test/support/resident_forms.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(inline_calls_test)

using namespace forms;

namespace {

Tensor f32(float v) { return Tensor::scalar(v); }
Tensor vector(std::vector<float> v) {
  const auto n = static_cast<std::int64_t>(v.size());
  return Tensor::of<float>(v, {n});
}

// y = step(y), three times.
template <class Step>
Expr thrice(Graph& g, const Expr& x, Step step) {
  return std::get<1>(while_loop([](Expr i, Expr) { return i < 3; },
                                [&](Expr i, Expr y) {
                                  return std::tuple{i + 1, step(y)};
                                },
                                std::tuple{g.constant(0), x}, {.name = "thrice"}));
}

std::string why(const Make& make, const Tensor& x) {
  const std::string text = run_resident(make, x, true).explanation;
  const std::size_t at = text.find(": lowered: ");
  if (at == std::string::npos) return "not lowered: " + text;
  return text.substr(at + 11, text.find('\n', at) - at - 11);
}

}  // namespace

BOOST_AUTO_TEST_CASE(calls_of_calls_with_outer_values_and_variables) {
  agree(
      [](Graph& g, const Expr& x) {
        const Variable a = g.variable("a", f32(0.75f));
        const ValueSpec pair{DType::f32, {2}};
        const Expr outside = x * 0.5;
        One grown(g, "grown", {pair}, [&](Expr v) { return v * a + outside; });
        One turned(g, "turned", {pair}, [&](Expr v) {
          return cond(
              sum(v) > 1.0, [&] { return grown(v) - 1.0; }, [&] { return grown(grown(v)); });
        });
        One looped(g, "looped", {pair}, [&](Expr v) {
          return std::get<1>(while_loop([](Expr k, Expr) { return k < 4; },
                                        [&](Expr k, Expr w) {
                                          return std::tuple{k + 1, turned(w) * 0.5};
                                        },
                                        std::tuple{g.constant(0), v}));
        });
        return Exprs{thrice(g, x, turned), thrice(g, x, [&](Expr y) { return looped(y) + y; }),
                     looped(x)};
      },
      vector({0.5f, 1.25f}));
}

BOOST_AUTO_TEST_CASE(calls_that_draw_recurse_or_write_stay) {
  BOOST_TEST(has(why(
                     [](Graph& g, const Expr& x) {
                       One noisy(g, "noisy", {kReal},
                                 [](Expr v) { return v + random_uniform_like(v); });
                       return Exprs{thrice(g, x, noisy)};
                     },
                     f32(1)),
                 "calls a function"));
  BOOST_TEST(has(why(
                     [](Graph& g, const Expr& x) {
                       One halved(g, "halved", {kReal}, {kReal});
                       halved.define([&](Expr v) {
                         return cond(
                             v < 1.0, [&] { return v; }, [&] { return halved(v * 0.5); });
                       });
                       return Exprs{thrice(g, x, halved)};
                     },
                     f32(5)),
                 "calls a function"));
  BOOST_TEST(has(why(
                     [](Graph& g, const Expr& x) {
                       const Variable a = g.variable("a", f32(0));
                       One counted(g, "counted", {kReal},
                                   [&](Expr v) { return v + a.assign_add(1.0); });
                       return Exprs{thrice(g, x, counted)};
                     },
                     f32(1)),
                 "calls a function"));
}

BOOST_AUTO_TEST_CASE(errors_name_the_line_in_the_function) {
  int line = 0;
  const std::string error = agree(
      [&](Graph& g, const Expr& x) {
        One element(g, "element", {{DType::i32, Shape{}}}, [&](Expr i) {
          line = __LINE__ + 1;
          return gather(x, i);
        });
        return Exprs{
            std::get<1>(while_loop([](Expr i, Expr) { return i < 9; },
                                   [&](Expr i, Expr s) {
                                     return std::tuple{i + 1, s + element(i)};
                                   },
                                   std::tuple{g.constant(0), g.constant(0.f)}, {.name = "walk"}))};
      },
      vector({1, 2, 3}));
  BOOST_TEST(has(error, "in iteration 3 of loop 'walk/1'"));
  BOOST_TEST(has(error, fmt::format("inline_calls_test.cpp:{}", line)));
}

BOOST_AUTO_TEST_CASE(gradients_go_through_the_bodies) {
  const Make make = [](Graph& g, const Expr& x) {
    const Expr outside = x * 0.5;
    One wave(g, "wave", {kReal}, [&](Expr v) { return sin(v) * outside + v; });
    const Expr y = thrice(g, x, [&](Expr v) { return wave(wave(v)); });
    const Expr first = gradients(y, {x})[0];
    return Exprs{y, first, gradients(first, {x})[0]};
  };
  const Told resident = run_resident(make, f32(0.3f), true),
             lowered = run_resident(make, f32(0.3f), false);
  BOOST_TEST(resident.error == "");
  BOOST_TEST(has(resident.explanation, "'thrice'"));
  BOOST_TEST(has(resident.explanation, ": resident"));
  BOOST_REQUIRE_EQUAL(resident.values.size(), lowered.values.size());
  for (std::size_t i = 0; i < resident.values.size(); ++i)
    BOOST_TEST(is_same(resident.values[i], lowered.values[i]));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
