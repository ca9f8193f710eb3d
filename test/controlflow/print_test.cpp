// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// The output of Print: the text of values, and lines in program order through branches and
// iterations.
#include <troupe/ops/eager/eager.hpp>
#include <troupe/test/support/programs/configurations.hpp>

BOOST_AUTO_TEST_SUITE(print)

namespace {

using namespace troupe;
using namespace troupe::test;
using Lines = std::vector<std::string>;

/// Under every way to run it: what is fetched, and what is printed.
void prints(const Build& build, const std::vector<std::vector<double>>& expected,
            const Lines& lines) {
  {
    Graph g;
    Scenario b = build(g);
    Lines printed;
    Eager interpreter;
    interpreter.states().print_to(
        [&](const std::string&, const std::string& line) { printed.push_back(line); });
    compare(interpreter.run(g, b.feeds, b.fetches), expected, "interpreter");
    BOOST_TEST(printed == lines, boost::test_tools::per_element());
  }
  for (const Setting& s : all_settings()) {
    BOOST_TEST_CONTEXT(s.name) {
      Graph g;
      Scenario b = build(g);
      Lines printed;  // a console prints a line at a time
      Somewhere there(s, [&](const std::string& console, const std::string& line) {
        BOOST_TEST(console == "console");
        printed.push_back(line);
      });
      compare(there.engine().run(g, b.feeds, b.fetches), expected, s.name);
      BOOST_TEST(printed == lines, boost::test_tools::per_element());
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(effects_of_a_branch_in_order) {  // C36
  prints(
      [](Graph& g) -> Scenario {
        Console out = g.console();
        Expr r = cond(
            g.constant(true),
            [&] {
              out.print("A");
              out.print("B");
              out.print("C");
              return g.constant(10);
            },
            [&] {
              out.print("never");
              return g.constant(0);
            });
        return {{}, {r}};
      },
      {{10}}, {"A", "B", "C"});
}

BOOST_AUTO_TEST_CASE(effects_of_predicate_and_body_in_order) {  // W33
  prints(
      [](Graph& g) -> Scenario {
        Console out = g.console();
        Expr r = while_loop(
            [&](Expr i) {
              out.print("A");
              return i < 2;
            },
            [&](Expr i) {
              out.print("B");
              out.print("C");
              out.print("D");
              return i + 1;
            },
            g.constant(0));
        return {{}, {r}};
      },
      {{2}}, {"A", "B", "C", "D", "A", "B", "C", "D", "A"});
}

BOOST_AUTO_TEST_CASE(values_of_each_iteration) {
  prints(
      [](Graph& g) -> Scenario {
        Console out = g.console();
        auto [i_end, s_end] = while_loop([](Expr i, Expr) { return i < 4; },
                                         [&](Expr i, Expr s) {
                                           out.print("{{{}}}: {}", {i, s});
                                           return std::tuple{i + 1, s * 2.0 + 1.0};
                                         },
                                         std::tuple{g.constant(0), g.constant(0.5f)});
        return {{}, {i_end, s_end}};
      },
      {{4}, {23}}, {"{0}: 0.5", "{1}: 2", "{2}: 5", "{3}: 11"});
}

BOOST_AUTO_TEST_CASE(at_top_level_what_is_fetched_prints) {
  prints(
      [](Graph& g) -> Scenario {
        Console out = g.console();
        out.print("nobody asks");
        return {{}, {out.print("asked for {}", {g.constant(Tensor::of({1.f, 2.5f}))})}};
      },
      {{1}}, {"asked for [1, 2.5]"});
}

BOOST_AUTO_TEST_CASE(texts) {
  Eager eager;
  Lines printed;
  eager.states().print_to(
      [&](const std::string&, const std::string& line) { printed.push_back(line); });
  Console out = eager.console();
  out.print("");
  out.print("a brace {{ and another }}");
  out.print("{} {}", {eager.constant(true), eager.constant(std::int64_t{9007199254740993})});
  out.print("{}", {eager.constant(0.1f)});
  out.print("{}", {eager.constant(0.1)});
  out.print("{}", {eager.constant(Tensor::of<std::int32_t>({1, 2, 3, 4, 5, 6}, Shape{2, 3}))});
  out.print("{}", {eager.constant(Tensor::of<std::int32_t>({1, 2, 3, 4, 5, 6, 7, 8}))});
  out.print("{}", {eager.zeros(DType::f32, {0})});
  const Lines expected{"",    "a brace { and another }", "true 9007199254740993",   "0.1",
                       "0.1", "[[1, 2, 3], [4, 5, 6]]",  "[1, 2, 3, ..., 6, 7, 8]", "[]"};
  BOOST_TEST(printed == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(print_refuses_wrong_arguments_while_building) {
  Graph g;
  Console out = g.console();
  BOOST_TEST(says(refused([&] { out.print("{} {}", {g.constant(1)}); }),
                  {"Print", "places for 2 values, not 1", "print_test.cpp"}));
  BOOST_TEST(says(refused([&] { out.print("{:3}", {g.constant(1)}); }),
                  {"Print", "a lone '{'", "print_test.cpp"}));
  BOOST_TEST(says(refused([&] { out.print("100 }"); }), {"a lone '}'"}));
}

BOOST_AUTO_TEST_SUITE_END()
