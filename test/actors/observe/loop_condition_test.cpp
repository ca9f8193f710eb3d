// Loops whose predicate never turns false, and loops that only look like them.
#include <boost/test/unit_test.hpp>

#include <complex>
#include <functional>
#include <optional>

#include <troupe/devices/base/internal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(loop_condition_test)

namespace {

using Predicate = std::function<Expr(const std::vector<Expr>&)>;
using Step = std::function<std::vector<Expr>(const std::vector<Expr>&)>;

const OpenLoop& loop_of(const EngineSnapshot& s) {
  return s.runs.at(0).partitions.at(0).runs.at(0).loops.at(0);
}

using Made = std::function<std::vector<Expr>(Graph& g, Expr outside)>;

/// Returns the verdicts of looks at a loop of a few iterations, named 'stays', over the values of
/// `made`; `outside` is the integer 1.
std::vector<Diagnosis> said_of(const Made& made, bool optimize, std::int64_t apart = 4,
                               bool resident = true) {
  Graph g;
  Expr outside = g.input("outside", DType::i32, {});
  const std::vector<Expr> last = made(g, outside);
  Engine engine({.deterministic = true});
  RunHandle run =
      engine.compile(g, {outside}, last, {.optimize = optimize, .resident_loops = resident})
          .start({Tensor::scalar(1)});
  const auto look = [&](std::int64_t after) -> std::optional<EngineSnapshot> {
    for (;;) {
      EngineSnapshot s = engine.snapshot();
      if (s.runs.empty()) return std::nullopt;
      const bool is_open = !s.runs[0].partitions.at(0).runs.empty() &&
                           !s.runs[0].partitions[0].runs[0].loops.empty();
      if (is_open && loop_of(s).last > after) return s;
      if (!engine.take_step()) return std::nullopt;
    }
  };
  const auto first = look(0);  // from then on what they compare is seen
  const auto early = first ? look(loop_of(*first).last + apart) : std::nullopt;
  const auto later = early ? look(loop_of(*early).last + apart) : std::nullopt;
  BOOST_TEST_REQUIRE(later.has_value(), "the loop has ended before it was looked at");
  BOOST_TEST(loop_of(*later).last < 10'000);  // fewer than other numbers are judged by
  run.cancel();
  while (engine.take_step()) {}
  return find_hangs(early->runs, later->runs);
}

/// Returns the verdicts for a loop over a flag or number that stays, and a number that changes.
std::vector<Diagnosis> said_of(const std::function<Predicate(Graph& g, Expr outside)>& predicate,
                               bool is_flag, const Step& step, bool optimize) {
  const auto made = [&](Graph& g, Expr outside) {
    return std::vector<Expr>{
        while_loop(predicate(g, outside), step,
                   std::vector<Expr>{is_flag ? g.constant(true) : g.constant(0), g.constant(0.0f)},
                   {.name = "stays"})[1]};
  };
  return said_of(made, optimize);
}

std::vector<Expr> changes_one(const std::vector<Expr>& v) {
  return {v[0], cond(
                    v[1] > 3.0f, [&] { return v[1] - 3.0f; }, [&] { return v[1] + 1.0f; })};
}

void is_named(const std::vector<Diagnosis>& said) {
  BOOST_REQUIRE(said.size() == 1u);
  for (const char* part :
       {"loop 'stays/1'", " is still true, and depends on nothing that the loop changes",
        "loop_condition_test.cpp:"})
    BOOST_TEST(said[0].text.find(part) != std::string::npos, said[0].text);
}

}  // namespace

BOOST_AUTO_TEST_CASE(numbers_that_stay) {
  for (const bool optimize : {false, true})
    is_named(said_of(
        [](Graph&, Expr outside) {
          return [=](const std::vector<Expr>& v) { return logical_and(v[0]<outside, v[0]> - 1); };
        },
        false, changes_one, optimize));
}

BOOST_AUTO_TEST_CASE(a_flag_that_stays) {
  for (const bool optimize : {false, true})
    is_named(said_of([](Graph&, Expr) { return [](const std::vector<Expr>& v) { return v[0]; }; },
                     true, changes_one, optimize));
}

BOOST_AUTO_TEST_CASE(branches_on_what_stays) {
  const auto decides = [](Graph&, Expr outside) {
    return [=](const std::vector<Expr>& v) {
      return cond(
          v[0] < 5, [&] { return v[0] < outside; }, [&] { return v[0] > outside; });
    };
  };
  for (const bool optimize : {false, true})
    is_named(said_of(decides, false, changes_one, optimize));
}

BOOST_AUTO_TEST_CASE(a_loop_with_a_changing_part_is_not_named) {
  const auto number = [](Graph&, Expr) {
    return [](const std::vector<Expr>& v) { return v[1] < 8000.0f; };
  };
  const auto either = [](Graph&, Expr outside) {
    return [=](const std::vector<Expr>& v) { return logical_or(v[0] > outside, v[1] < 8000.0f); };
  };
  const auto branch = [](Graph&, Expr outside) {
    return [=](const std::vector<Expr>& v) {
      return cond(
          v[1] < 8000.0f, [&] { return v[0] < outside; }, [&] { return v[0] > outside; });
    };
  };
  const auto flag = [](Graph&, Expr) { return [](const std::vector<Expr>& v) { return v[0]; }; };
  const Step counts = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{v[0], v[1] + 1.0f};
  };
  const Step sets_flag = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{v[1] < 8000.0f, v[1] + 1.0f};
  };
  const auto draws = [](Graph& g, Expr) {
    return [&g](const std::vector<Expr>&) { return g.random_uniform({}) < 2.0f; };
  };
  for (const bool optimize : {false, true}) {
    BOOST_TEST(said_of(number, false, counts, optimize).empty());
    BOOST_TEST(said_of(either, false, counts, optimize).empty());
    BOOST_TEST(said_of(branch, false, counts, optimize).empty());
    BOOST_TEST(said_of(flag, true, sets_flag, optimize).empty());
    BOOST_TEST(said_of(draws, false, counts, optimize).empty());
  }
}

// Another run may set it.
BOOST_AUTO_TEST_CASE(a_loop_that_reads_a_variable_is_not_named) {
  Graph g;
  Variable on = g.variable("on", Tensor::scalar(true));
  const auto decides = [&](const std::vector<Expr>&) { return on.read(); };
  const std::vector<Expr> last = while_loop(
      decides, changes_one, std::vector<Expr>{g.constant(0), g.constant(0.0f)}, {.name = "waits"});
  Engine engine({.deterministic = true});
  RunHandle run = engine.compile(g, {}, {last[1]}).start({});
  const auto look = [&] {
    for (int i = 0; i < 20; ++i) BOOST_REQUIRE(engine.take_step());
    return engine.snapshot();
  };
  const EngineSnapshot early = look(), later = look();
  BOOST_REQUIRE(loop_of(later).last > loop_of(early).last);
  BOOST_TEST(find_hangs(early.runs, later.runs).empty());
  run.cancel();
  while (engine.take_step()) {}
}

// ---- predicates that compare what the loop changes

namespace {

/// A loop over some numbers, `made` by a predicate and a step.
Made loop_over(std::function<std::vector<Expr>(Graph&)> first,
               std::function<Expr(const std::vector<Expr>&, Expr outside)> predicate, Step step) {
  return [=](Graph& g, Expr outside) {
    return while_loop([=](const std::vector<Expr>& v) { return predicate(v, outside); }, step,
                      first(g), {.name = "stays"});
  };
}

std::vector<Expr> two_counters(Graph& g) { return {g.constant(0), g.constant(0)}; }
std::vector<Expr> one_up_each(const std::vector<Expr>& v) { return {v[0] + 1, v[1] + 1}; }
std::vector<Expr> only_the_first(const std::vector<Expr>& v) { return {v[0] + 1, v[1]}; }

void comes_no_nearer(const Made& made, const char* numbers, bool resident = true) {
  for (const bool optimize : {false, true}) {
    const std::vector<Diagnosis> said = said_of(made, optimize, 4, resident);
    BOOST_TEST_REQUIRE(said.size() == 1u);
    for (const char* part :
         {"loop 'stays/1'", " is still true, and comes no nearer to being false", numbers})
      BOOST_TEST(said[0].text.find(part) != std::string::npos, said[0].text);
  }
}

// Lowered: as resident loops these end between two looks.
void is_not_named(const Made& made) {
  for (const bool optimize : {false, true}) {
    const std::vector<Diagnosis> said = said_of(made, optimize, 4, false);
    BOOST_TEST(said.empty(), (said.empty() ? std::string() : said[0].text));
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_counter_that_goes_away_from_its_bound) {
  comes_no_nearer(loop_over(
                      two_counters, [](const auto& v, Expr) { return v[0] >= 0; }, one_up_each),
                  " >= 0)");
  comes_no_nearer(
      loop_over(
          two_counters, [](const auto& v, Expr outside) { return v[0] + outside > v[1] - 1; },
          one_up_each),
      " > ");
  comes_no_nearer(loop_over(
                      two_counters, [](const auto& v, Expr) { return v[0] * -2 < 5; }, one_up_each),
                  " < 5)");
  comes_no_nearer(loop_over(
                      two_counters, [](const auto& v, Expr) { return -v[0] != 1; }, one_up_each),
                  " != 1)");
}

BOOST_AUTO_TEST_CASE(floats_that_go_away_from_their_bound) {
  const auto halves = [](Graph& g) { return std::vector<Expr>{g.constant(0.0f)}; };
  const auto up = [](const std::vector<Expr>& v) { return std::vector<Expr>{v[0] + 0.5f}; };
  comes_no_nearer(loop_over(
                      halves, [](const auto& v, Expr) { return v[0] > -1.0f; }, up),
                  " > -1)");
  comes_no_nearer(loop_over(
                      halves, [](const auto& v, Expr) { return v[0] * -3.0f < 1.0f; }, up),
                  " < 1)");
  const auto one = [](Graph& g) { return std::vector<Expr>{g.constant(1.0f)}; };
  comes_no_nearer(
      loop_over(
          one, [](const auto& v, Expr) { return v[0] >= 0.0f; },
          [](const std::vector<Expr>& v) { return std::vector<Expr>{v[0] * 1.001f + 0.5f}; }),
      " >= 0)");
  comes_no_nearer(loop_over(
                      one, [](const auto& v, Expr) { return v[0] < 2.0f; },
                      [](const std::vector<Expr>& v) { return std::vector<Expr>{v[0] / 1.001f}; }),
                  " < 2)");
}

BOOST_AUTO_TEST_CASE(several_comparisons) {
  // The second keeps the first from deciding anything.
  comes_no_nearer(
      loop_over(
          two_counters, [](const auto& v, Expr) { return logical_or(v[0] >= 0, v[1] < 3); },
          one_up_each),
      " >= 0");
  comes_no_nearer(
      loop_over(
          two_counters,
          [](const auto& v, Expr) { return logical_and(v[0] >= 0, logical_not(v[1] < -3)); },
          one_up_each),
      " < -3 is not true");
  comes_no_nearer(
      loop_over(
          two_counters,
          [](const auto& v, Expr outside) { return logical_and(v[0] >= 0, v[1] < outside); },
          only_the_first),
      "0 < 1");
  comes_no_nearer(
      loop_over(
          two_counters,
          [](const auto& v, Expr) { return logical_not(logical_or(v[0]<0, v[1]> v[0] + 1)); },
          one_up_each),
      "is not true");
}

BOOST_AUTO_TEST_CASE(truths_that_a_loop_gathers) {
  // Lowered: comparisons in the body of a resident loop are not observed.
  const auto first = [](Graph& g) { return std::vector<Expr>{g.constant(0), g.constant(false)}; };
  const auto gathers = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{v[0] + 1, logical_or(v[1], v[0] < 0)};
  };
  comes_no_nearer(loop_over(
                      first, [](const auto& v, Expr) { return logical_not(v[1]); }, gathers),
                  "< 0 is not true", false);
  // The flag is the predicate itself.
  const auto on = [](Graph& g) { return std::vector<Expr>{g.constant(0), g.constant(true)}; };
  const auto keeps = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{v[0] + 1, logical_and(v[1], v[0] >= 0)};
  };
  comes_no_nearer(loop_over(
                      on, [](const auto& v, Expr) { return v[1]; }, keeps),
                  " >= 0)", false);
  // Made anew in each iteration.
  const auto again = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{v[0] + 1, v[0] >= 0};
  };
  comes_no_nearer(loop_over(
                      on, [](const auto& v, Expr) { return v[1]; }, again),
                  " >= 0)", false);
}

BOOST_AUTO_TEST_CASE(a_loop_that_approaches_its_bound_is_not_named) {
  is_not_named(loop_over(
      two_counters, [](const auto& v, Expr) { return v[0] < 8000; }, one_up_each));
  is_not_named(loop_over(
      two_counters, [](const auto& v, Expr) { return v[0] != 8000; }, one_up_each));
  is_not_named(loop_over(
      two_counters, [](const auto& v, Expr) { return logical_and(v[0] >= 0, v[1] < 8000); },
      one_up_each));
  is_not_named(loop_over(
      two_counters, [](const auto& v, Expr) { return logical_or(v[0] < 0, v[1] * 3 < 24000); },
      one_up_each));
  is_not_named(loop_over(
      two_counters, [](const auto& v, Expr) { return v[0] * 2 < v[1] + 8000; }, one_up_each));
  const auto first = [](Graph& g) { return std::vector<Expr>{g.constant(0), g.constant(false)}; };
  const auto gathers = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{v[0] + 1, logical_or(v[1], v[0] > 8000)};
  };
  is_not_named(loop_over(
      first, [](const auto& v, Expr) { return logical_not(v[1]); }, gathers));
}

BOOST_AUTO_TEST_CASE(variables_that_step_by_each_other) {
  const auto first = [](Graph& g) {
    return std::vector<Expr>{g.constant(0), g.constant(1), g.constant(0)};
  };
  const auto swings = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{v[0] + v[1], v[1] - v[0], v[2] + 1};
  };
  comes_no_nearer(
      loop_over(
          first, [](const auto& v, Expr) { return logical_or(v[0] == 12'345, v[2] >= 0); }, swings),
      " >= 0");
}

// They end, all of them: what two looks show of them is not how they go on.
BOOST_AUTO_TEST_CASE(a_loop_that_turns_round_is_not_named) {
  // Wraps around, every fourth time.
  const auto leaps = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{v[0] + (1 << 30), v[1] + 1};
  };
  is_not_named(loop_over(
      two_counters, [](const auto& v, Expr) { return logical_or(v[0] >= 0, v[1] < 8000); }, leaps));
  is_not_named(loop_over(
      two_counters, [](const auto& v, Expr) { return v[0] * 500'000 >= 0; }, one_up_each));
  is_not_named(loop_over(
      two_counters, [](const auto& v, Expr) { return logical_or(v[0] != 0, v[1] < 8000); },
      [](const std::vector<Expr>& v) {
        return std::vector<Expr>{v[0] + 4096, v[1] + 1};
      }));
  // A narrow one wraps around before what it is cast to does.
  const auto shorts = [](Graph& g) {
    return std::vector<Expr>{g.constant(Tensor::scalar_as(DType::i16, 0))};
  };
  const auto one_up = [](const std::vector<Expr>& v) { return std::vector<Expr>{v[0] + 1}; };
  is_not_named(loop_over(
      shorts, [](const auto& v, Expr) { return cast(v[0], DType::i32) >= 0; }, one_up));
  // Complex numbers, of which the imaginary parts differ.
  const auto complex = [](Graph& g) {
    return std::vector<Expr>{g.constant(0),
                             g.constant(Tensor::of<std::complex<float>>({{1, 2}}, Shape{})),
                             g.constant(Tensor::of<std::complex<float>>({{1, 3}}, Shape{}))};
  };
  const auto counts = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{v[0] + 1, v[1], v[2]};
  };
  is_not_named(loop_over(
      complex, [](const auto& v, Expr) { return logical_or(v[1] == v[2], v[0] < 8000); }, counts));
  // A float comes back from beyond.
  const auto falls = [](Graph& g) { return std::vector<Expr>{g.constant(8000.0f)}; };
  is_not_named(loop_over(
      falls, [](const auto& v, Expr) { return v[0] > 0.0f; },
      [](const std::vector<Expr>& v) { return std::vector<Expr>{v[0] - 1.0f}; }));
  // By a factor that is not known to be positive, it may jump over and back.
  is_not_named(
      loop_over([](Graph& g) { return std::vector<Expr>{g.constant(1.0f)}; },
                [](const auto& v, Expr) { return v[0] < 1e30f; },
                [](const std::vector<Expr>& v) { return std::vector<Expr>{v[0] * -1.01f}; }));
  // Two floats that both step are rounded each at its own time.
  const auto floats = [](Graph& g) {
    return std::vector<Expr>{g.constant(0.0f), g.constant(0.25f)};
  };
  const auto both_up = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{v[0] + 0.1f, v[1] + 0.1f};
  };
  is_not_named(loop_over(
      floats, [](const auto& v, Expr) { return v[0] < v[1]; }, both_up));
  // It turns round.
  const auto swings = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{v[0] + 1, v[0] * v[0] - 8000 * v[0]};
  };
  is_not_named(loop_over(
      two_counters, [](const auto& v, Expr) { return v[1] < 10; }, swings));
  // The step itself grows.
  const auto grows = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{v[0] + v[1], v[1] - 1};
  };
  is_not_named(loop_over(
      [](Graph& g) {
        return std::vector<Expr>{g.constant(0), g.constant(4000)};
      },
      [](const auto& v, Expr) { return v[0] >= 0; }, grows));
  // The gathered truth depends on another carried truth.
  const auto first = [](Graph& g) {
    return std::vector<Expr>{g.constant(0), g.constant(false), g.constant(false)};
  };
  const auto chained = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{v[0] + 1, logical_or(v[1], v[2]), v[0] > 8000};
  };
  is_not_named(loop_over(
      first, [](const auto& v, Expr) { return logical_not(v[1]); }, chained));
}

// ---- what comes back

namespace {

void comes_back(const Made& made, const char* after) {
  for (const bool optimize : {false, true}) {
    const std::vector<Diagnosis> said = said_of(made, optimize, 40);
    BOOST_TEST_REQUIRE(said.size() == 1u);
    for (const char* part :
         {"loop 'stays/1'", " is still true, and all that it comes from is what it was ", after})
      BOOST_TEST(said[0].text.find(part) != std::string::npos, said[0].text);
  }
}

std::vector<Expr> two_floats(Graph& g) { return {g.constant(1.0f), g.constant(0.0f)}; }

}  // namespace

// A search that stops short of what is asked of it.
BOOST_AUTO_TEST_CASE(converged_loop_repeats_its_state) {
  const auto root_of_two = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{(v[0] + 2.0f / v[0]) * 0.5f, v[1] + 1.0f};
  };
  comes_back(loop_over(
                 two_floats, [](const auto& v, Expr) { return abs(v[0] * v[0] - 2.0f) > 0.0f; },
                 root_of_two),
             "what it was an iteration before (");
  const auto fades = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{v[0] * 0.01f, v[1]};
  };
  comes_back(loop_over(
                 two_floats, [](const auto& v, Expr) { return v[0] < 2.0f; }, fades),
             "what it was an iteration before (0 < 2)");
  // A tensor of several elements, of which a branch is taken.
  const auto vector = [](Graph& g) {
    return std::vector<Expr>{g.constant(Tensor::of<float>({1, 2, 3}, {3})), g.constant(0)};
  };
  const auto halves = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{
        cond(
            sum(v[0]) > 1.0f, [&] { return v[0] * 0.5f; }, [&] { return v[0]; }),
        v[1] + 1};
  };
  comes_back(loop_over(
                 vector, [](const auto& v, Expr) { return sum(v[0]) > 0.1f; }, halves),
             "what it was an iteration before (");
}

BOOST_AUTO_TEST_CASE(loop_that_diverged_to_nan_repeats_its_state) {
  const auto diverges = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{v[0] * 1e30f - v[0] * 2e30f, v[1] + 1.0f};
  };
  comes_back(
      loop_over(
          two_floats, [](const auto& v, Expr) { return logical_not(v[0] == 0.5f); }, diverges),
      "what it was an iteration before (nan == 0.5 is not true)");
}

BOOST_AUTO_TEST_CASE(cyclic_loop_repeats_its_state) {
  const auto none = [](Graph& g) { return std::vector<Expr>{g.constant(0), g.constant(1)}; };
  comes_back(loop_over(
                 none, [](const auto& v, Expr) { return v[1] != 5; },
                 [](const std::vector<Expr>& v) {
                   return std::vector<Expr>{v[0] + 1, 4 - v[1] * v[1] / 3};
                 }),
             "iteration");
  comes_back(loop_over(
                 none, [](const auto& v, Expr) { return v[1] != 9; },
                 [](const std::vector<Expr>& v) {
                   return std::vector<Expr>{v[0] + 1, mod(v[1] + 1, 7)};
                 }),
             "7 iterations before (");
  // An inner loop has a part in it, and the variable that only counts has none.
  const auto inner = [](const std::vector<Expr>& v) {
    return std::vector<Expr>{v[0] + 1,
                             while_loop([](Expr i) { return i < 12; }, [](Expr i) { return i + 5; },
                                        mod(v[1], 5), {.name = "inner"})};
  };
  comes_back(loop_over(
                 none, [](const auto& v, Expr) { return v[1] > 0; }, inner),
             "what it was an iteration before (");
}

// They end, but not as soon as one would think, or may end at any time.
BOOST_AUTO_TEST_CASE(loop_whose_state_does_not_repeat_is_not_named) {
  const auto none = [](Graph& g) { return std::vector<Expr>{g.constant(0), g.constant(1)}; };
  const auto not_five = [](const std::vector<Expr>& v, Expr) { return v[1] != 5; };
  const auto below_two = [](const std::vector<Expr>& v, Expr) { return v[0] < 2.0f; };
  const auto float_first = [](Graph& g) {
    return std::vector<Expr>{g.constant(0.5f), g.constant(0)};
  };
  struct Row {
    const char* what;
    std::function<std::vector<Expr>(Graph&)> first;
    std::function<Expr(const std::vector<Expr>&, Expr outside)> predicate;
    Step step;
  };
  const Row rows[] = {
      {"draws", float_first, below_two,
       [](const std::vector<Expr>& v) {
         return std::vector<Expr>{v[0].reader().random_uniform({}), v[1] + 1};
       }},
      {"draws the same", none, not_five,
       [](const std::vector<Expr>& v) {
         return std::vector<Expr>{v[0] + 1,
                                  cast(floor(v[1].reader().random_uniform({}) * 0.5f), DType::i32)};
       }},
      {"wanders", none, not_five,
       [](const std::vector<Expr>& v) {
         return std::vector<Expr>{v[0] + 1, v[1] * 1'664'525 + 1'013'904'223};
       }},
      {"counts in steps", none, [](const auto& v, Expr) { return v[0] / 9'000 < 1; },
       [](const std::vector<Expr>& v) {
         return std::vector<Expr>{v[0] + 1, v[1]};
       }},
      {"has patience", float_first, [](const auto& v, Expr) { return v[1] < 5; },
       [](const std::vector<Expr>& v) {
         return std::vector<Expr>{v[0] * 0.999f, where(v[0] > 1e-3f, v[1] * 0, v[1] + 1)};
       }},
      {"flies", float_first, [](const auto& v, Expr) { return v[0] > 0.0f; },
       [](const std::vector<Expr>& v) {
         return std::vector<Expr>{v[0] + (40'000.0f - cast(v[1], DType::f32) * 10.0f) * 0.01f,
                                  v[1] + 1};
       }},
      {"grows", float_first, [](const auto& v, Expr) { return v[0] < 1e30f; },
       [](const std::vector<Expr>& v) {
         return std::vector<Expr>{v[0] * 1.01f, v[1] + 1};
       }},
      {"wraps around", none, [](const auto& v, Expr) { return v[0] >= 0; },
       [](const std::vector<Expr>& v) {
         return std::vector<Expr>{v[0] + 200'000, v[1]};
       }},
  };
  for (const Row& row : rows)
    for (const bool optimize : {false, true}) {
      const std::vector<Diagnosis> said =
          said_of(loop_over(row.first, row.predicate, row.step), optimize, 40);
      BOOST_TEST(said.empty(), row.what << (said.empty() ? "" : ": " + said[0].text));
    }
}

// Another may have set it since.
BOOST_AUTO_TEST_CASE(loop_condition_that_reads_a_variable_is_not_named) {
  is_not_named([](Graph& g, Expr) {
    Variable level = g.variable("level", Tensor::scalar(1.0f));
    return while_loop([](const std::vector<Expr>& v) { return v[1] > 0.0f; },
                      [=](const std::vector<Expr>& v) {
                        return std::vector<Expr>{v[0] + 1, level.read()};
                      },
                      std::vector<Expr>{g.constant(0), g.constant(1.0f)}, {.name = "stays"});
  });
}

// A dead value ends a loop, and by hand it may be anywhere: here in iteration 8,000.
BOOST_AUTO_TEST_CASE(loops_wired_by_hand_are_not_named) {
  using namespace control;
  for (const bool computes : {false, true}) {
    is_not_named([=](Graph& g, Expr) {
      Expr i = merge({enter(g.constant(0), "by_hand")}).value,
           flag = merge({enter(g.constant(true), "by_hand")}).value;
      Expr p = loop_cond(flag);
      Expr j = switch_(i, p).if_true + 1, on = switch_(flag, p).if_true;
      const Expr goes_on = j < 8000;
      const Expr live = switch_(j, goes_on).if_true;
      next_iteration(live, i);
      next_iteration(computes ? logical_and(on, live >= 0) : switch_(on, goes_on).if_true, flag);
      return std::vector<Expr>{exit(switch_(j, goes_on).if_false)};
    });
  }
  is_not_named(loop_over(
      two_counters,
      [](const auto& v, Expr) {
        return logical_or(v[0] >= 0, switch_(v[1] >= 5, v[0] < 8000).if_true);
      },
      one_up_each));
}

// A server: its run ends when the queue is closed.
BOOST_AUTO_TEST_CASE(a_loop_that_takes_from_a_queue_is_not_named) {
  Graph g;
  Queue jobs = g.fifo_queue("jobs", {{DType::i32, {}}}, 4);
  Expr first = g.constant(0);
  const std::vector<Expr> last =
      while_loop([](const std::vector<Expr>& v) { return v[0] >= 0; },
                 [&](const std::vector<Expr>& v) {
                   return std::vector<Expr>{v[0] + 1, v[1] + jobs.dequeue()[0]};
                 },
                 std::vector<Expr>{first, g.constant(0)}, {.name = "serves"});
  Graph other;
  Engine engine({.deterministic = true});
  Function put = engine.compile(g, {}, {jobs.enqueue({g.constant(1)})});
  RunHandle run = engine.compile(g, {}, {last[1]}).start({});
  const auto look = [&](std::int64_t jobs_done) {
    for (std::int64_t i = 0; i < jobs_done; ++i) {
      put({});
      while (engine.take_step()) {}
    }
    return engine.snapshot();
  };
  const EngineSnapshot early = (look(2), look(2)), later = look(6);
  BOOST_REQUIRE(loop_of(later).last > loop_of(early).last);
  BOOST_TEST(find_hangs(early.runs, later.runs).empty());
  run.cancel();
  while (engine.take_step()) {}
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
