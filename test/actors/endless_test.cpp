// Loops whose predicate depends on nothing that they change.
#include <boost/test/unit_test.hpp>

#include <functional>

#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(endless_test)

namespace {

using Predicate = std::function<Expr(const std::vector<Expr>&)>;
using Step = std::function<std::vector<Expr>(const std::vector<Expr>&)>;

const OpenLoop& loop_of(const EngineSnapshot& s) { return s.runs.at(0).partitions.at(0).runs.at(0).loops.at(0); }

/// What two looks say of a loop of a few iterations over a flag or number that stays, and a number that changes.
std::vector<Verdict> said_of(const std::function<Predicate(Graph& g, Expr outside)>& predicate, bool is_flag, const Step& step, bool optimize) {
  Graph g;
  Expr outside = g.input("outside", DType::i32, {});
  const std::vector<Expr> last = while_loop(predicate(g, outside), step, std::vector<Expr>{is_flag ? g.constant(true) : g.constant(0), g.constant(0.0f)}, {.name = "stays"});
  Engine engine({.deterministic = true});
  RunHandle run = engine.compile(g, {outside}, {last[1]}, {.optimize = optimize}).start({Tensor::scalar(1)});
  const auto look = [&](std::int64_t after) {
    for (;;) {
      EngineSnapshot s = engine.snapshot();
      const bool is_open = s.runs.size() == 1u && !s.runs[0].partitions.at(0).runs.empty() && !s.runs[0].partitions[0].runs[0].loops.empty();
      if (is_open && loop_of(s).last > after) return s;
      BOOST_REQUIRE(engine.take_step());
    }
  };
  const EngineSnapshot early = look(0), later = look(loop_of(early).last);
  BOOST_TEST(loop_of(later).last < 10'000);  // fewer than comparisons are judged by
  const std::vector<Verdict> said = hangs(early.runs, later.runs);
  run.cancel();
  while (engine.take_step()) {}
  return said;
}

std::vector<Expr> changes_one(const std::vector<Expr>& v) {
  return {v[0], cond(v[1] > 3.0f, [&] { return v[1] - 3.0f; }, [&] { return v[1] + 1.0f; })};
}

void is_named(const std::vector<Verdict>& said) {
  BOOST_REQUIRE(said.size() == 1u);
  for (const char* part : {"loop 'stays/1'", " is still true, and depends on nothing that the loop changes", "endless_test.cpp:"})
    BOOST_TEST(said[0].text.find(part) != std::string::npos, said[0].text);
}

}  // namespace

BOOST_AUTO_TEST_CASE(numbers_that_stay) {
  for (const bool optimize : {false, true})
    is_named(said_of([](Graph&, Expr outside) { return [=](const std::vector<Expr>& v) { return logical_and(v[0] < outside, v[0] > -1); }; }, false, changes_one, optimize));
}

BOOST_AUTO_TEST_CASE(a_flag_that_stays) {
  for (const bool optimize : {false, true})
    is_named(said_of([](Graph&, Expr) { return [](const std::vector<Expr>& v) { return v[0]; }; }, true, changes_one, optimize));
}

BOOST_AUTO_TEST_CASE(branches_on_what_stays) {
  const auto decides = [](Graph&, Expr outside) {
    return [=](const std::vector<Expr>& v) { return cond(v[0] < 5, [&] { return v[0] < outside; }, [&] { return v[0] > outside; }); };
  };
  for (const bool optimize : {false, true}) is_named(said_of(decides, false, changes_one, optimize));
}

BOOST_AUTO_TEST_CASE(who_has_a_part_that_changes_is_not_named) {
  const auto number = [](Graph&, Expr) { return [](const std::vector<Expr>& v) { return v[1] < 100.0f; }; };
  const auto either = [](Graph&, Expr outside) { return [=](const std::vector<Expr>& v) { return logical_or(v[0] < outside, v[1] > 100.0f); }; };
  const auto branch = [](Graph&, Expr outside) {
    return [=](const std::vector<Expr>& v) { return cond(v[1] < 50.0f, [&] { return v[0] < outside; }, [&] { return v[0] > outside; }); };
  };
  const auto flag = [](Graph&, Expr) { return [](const std::vector<Expr>& v) { return v[0]; }; };
  const Step sets_flag = [](const std::vector<Expr>& v) {
    std::vector<Expr> next = changes_one(v);
    next[0] = v[1] < 1e6f;
    return next;
  };
  const auto draws = [](Graph& g, Expr) { return [&g](const std::vector<Expr>&) { return g.random_uniform({}) < 2.0f; }; };
  for (const bool optimize : {false, true}) {
    BOOST_TEST(said_of(number, false, changes_one, optimize).empty());
    BOOST_TEST(said_of(either, false, changes_one, optimize).empty());
    BOOST_TEST(said_of(branch, false, changes_one, optimize).empty());
    BOOST_TEST(said_of(flag, true, sets_flag, optimize).empty());
    BOOST_TEST(said_of(draws, false, changes_one, optimize).empty());
  }
}

// Another run may set it.
BOOST_AUTO_TEST_CASE(who_reads_a_variable_is_not_named) {
  Graph g;
  Variable on = g.variable("on", Tensor::scalar(true));
  const auto decides = [&](const std::vector<Expr>&) { return on.read(); };
  const std::vector<Expr> last = while_loop(decides, changes_one, std::vector<Expr>{g.constant(0), g.constant(0.0f)}, {.name = "waits"});
  Engine engine({.deterministic = true});
  RunHandle run = engine.compile(g, {}, {last[1]}).start({});
  const auto look = [&] {
    for (int i = 0; i < 20; ++i) BOOST_REQUIRE(engine.take_step());
    return engine.snapshot();
  };
  const EngineSnapshot early = look(), later = look();
  BOOST_REQUIRE(loop_of(later).last > loop_of(early).last);
  BOOST_TEST(hangs(early.runs, later.runs).empty());
  run.cancel();
  while (engine.take_step()) {}
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
