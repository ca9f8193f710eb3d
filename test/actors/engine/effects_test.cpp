// Effects at top level: which of them a compiled function runs, and what `compile` warns of.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(effects_test)

namespace {

const ValueSpec kNumber{DType::f32, Shape{}};
const CompileOptions kAll{.prune_effects = false};

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
bool names_line(const std::string& text, unsigned line) {
  return says(text, fmt::format("effects_test.cpp:{})", line)) ||
         says(text, fmt::format("effects_test.cpp:{},", line));
}

/// An engine that keeps what it logs.
struct Logging {
  std::vector<std::string> warnings;
  Engine engine{{.log = [this](const LogRecord& r) {
    if (r.level == LogRecord::Level::warning) warnings.push_back(r.text);
  }}};
};

float number(const Function& f, std::vector<Tensor> feeds = {}) {
  return f(std::move(feeds))[0].item<float>();
}

void has_one_warning(const Function& f, std::initializer_list<unsigned> lines) {
  BOOST_REQUIRE_EQUAL(f.warnings().size(), 1U);
  for (const unsigned line : lines)
    BOOST_TEST(names_line(f.warnings()[0], line), line << " is not in: " << f.warnings()[0]);
  BOOST_TEST(says(f.warnings()[0], "prune_effects"));
  BOOST_TEST(says(f.explain(), "warning: " + f.warnings()[0]));
}

}  // namespace

// ---- which effects run

BOOST_AUTO_TEST_CASE(a_function_runs_the_effects_of_its_fetches) {
  for (const bool optimize : {true, false}) {
    const auto build = [&](bool fetches_update, bool runs_all, float expected, bool warns) {
      Graph g;
      Variable v = g.variable("v", Tensor::scalar(1.f));
      const unsigned line = __LINE__ + 1;
      Expr u = v.assign(5.0);
      Expr after = v.read();
      Logging l;
      std::vector<Expr> fetches{after};
      if (fetches_update) fetches.push_back(u);
      Function f =
          l.engine.compile(g, {}, fetches, {.optimize = optimize, .prune_effects = !runs_all});
      BOOST_TEST(number(f) == expected);
      BOOST_TEST(number(f) == expected);
      BOOST_TEST(l.engine.get("v").item<float>() == expected);
      BOOST_TEST(l.warnings == f.warnings(), boost::test_tools::per_element());
      if (warns) has_one_warning(f, {line, line + 1});
      else BOOST_TEST(f.warnings().empty());
    };
    build(false, false, 1, true);
    build(true, false, 5, false);
    build(false, true, 5, false);
    build(true, true, 5, false);
  }
}

BOOST_AUTO_TEST_CASE(all_effects_of_a_branch_run) {
  Graph g;
  Variable v = g.variable("v", Tensor::scalar(1.f));
  Expr x = g.input("x", DType::boolean, Shape{});
  Expr y = cond(
      x,
      [&] {
        v.assign(5.0);
        return v.read();
      },
      [&] { return v.read(); });
  Logging l;
  Function f = l.engine.compile(g, {x}, {y});
  BOOST_TEST(number(f, {Tensor::scalar(false)}) == 1);
  BOOST_TEST(number(f, {Tensor::scalar(true)}) == 5);
  BOOST_TEST(l.warnings.empty());
}

// Effects run in program order, whatever is fetched first.
BOOST_AUTO_TEST_CASE(all_effects_run_in_program_order_on_request) {  // E3
  Graph g;
  Variable v = g.variable("v", Tensor::scalar(1.f));
  Queue q = g.fifo_queue("q", {kNumber}, 8);
  std::vector<std::string> lines;
  Console console = g.console();
  v.assign(2.0);
  Expr first = v.read();
  while_loop([](Expr i) { return i < 3.0; },
             [&](Expr i) {
               v.assign_add(1.0);
               return i + 1.0;
             },
             g.constant(0.f));
  q.enqueue({v.read()});
  v.assign_add(10.0);
  console.print("v {}", {v.read()});
  Expr last = v.read(), size = q.size();
  Engine engine(
      {.print = [&](const std::string&, const std::string& line) { lines.push_back(line); }});
  for (int run = 1; run <= 2; ++run) {
    std::vector<Tensor> out = engine.compile(g, {}, {last, first, size}, kAll)({});
    BOOST_TEST(out[0].item<float>() == 15);
    BOOST_TEST(out[1].item<float>() == 2);
    BOOST_TEST(out[2].item<std::int64_t>() == run);
  }
  BOOST_TEST(lines == (std::vector<std::string>{"v 15", "v 15"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(effects_that_no_fetch_needs_need_their_feeds) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{});
  Variable v = g.variable("v", Tensor::scalar(1.f));
  v.assign(x);
  Expr after = v.read();
  Engine engine({.log = [](const LogRecord&) {}});
  BOOST_TEST(number(engine.compile(g, {}, {after})) == 1);
  const std::string why =
      refusal([&] { engine.compile(g, {}, {after}, kAll); }, Code::invalid_argument);
  BOOST_TEST(says(why, "needed for the fetches and effects"), why);
  BOOST_TEST(number(engine.compile(g, {x}, {after}, kAll), {Tensor::scalar(7.f)}) == 7);
}

// ---- warnings about reads

BOOST_AUTO_TEST_CASE(reads_that_follow_an_effect_that_is_left_out) {  // E3
  struct Case {
    const char* what;
    // builds; yields what is fetched
    std::function<Expr(Graph&, Variable, Queue)> build;
    bool warns;
  };
  const auto yes = [](Graph& g) { return g.constant(true); };
  const Case cases[] = {
      {"a value made of the read",
       [](Graph&, Variable v, Queue) { return v.assign(5.0), v.read() * 2.0 + 1.0; }, true},
      {"an operand", [](Graph&, Variable v, Queue) { return v.assign_add(5.0), v + 1.0; }, true},
      {"rows",
       [](Graph& g, Variable, Queue) {
         Variable rows = g.variable("rows", Tensor::of<float>({1, 2}));
         rows.scatter_add(Tensor::of<std::int32_t>({0}), Tensor::of<float>({1}));
         return rows.read();
       },
       true},
      {"a loop that writes",
       [](Graph& g, Variable v, Queue) {
         while_loop([](Expr i) { return i < 3.0; },
                    [&](Expr i) { return v.assign_add(1.0), i + 1.0; }, g.constant(0.f));
         return v.read();
       },
       true},
      {"a branch that reads",
       [&](Graph& g, Variable v, Queue) {
         v.assign(5.0);
         return cond(
             yes(g), [&] { return v.read(); }, [&] { return v * 2.0; });
       },
       true},
      {"a branch that reads and writes",
       [&](Graph& g, Variable v, Queue) {
         v.assign_add(5.0);
         return cond(
             yes(g),
             [&] {
               Expr before = v.read();
               v.assign(7.0);
               return before;
             },
             [&] { return v.read(); });
       },
       true},
      {"a function that reads",
       [](Graph& g, Variable v, Queue) {
         GraphFunction<Expr(Expr)> f(g, "f", {kNumber}, [&](Expr x) { return x + v.read(); });
         v.assign(5.0);
         return f(g.constant(1.f));
       },
       true},
      {"the size of a queue",
       [](Graph& g, Variable, Queue q) { return q.enqueue({g.constant(1.f)}), q.size(); }, true},
      {"an update of the value",
       [](Graph&, Variable v, Queue) { return v.assign(5.0), v.assign_add(1.0); }, true},
      {"an update of the value by a difference",
       [](Graph&, Variable v, Queue) { return v.assign_add(5.0), v.assign_sub(1.0); }, true},
      {"an update of rows",
       [](Graph& g, Variable, Queue) {
         const Tensor row = Tensor::of<std::int32_t>({0}), by = Tensor::of<float>({1});
         Variable rows = g.variable("rows", Tensor::of<float>({1, 2}));
         rows.scatter_add(row, by);
         return rows.scatter_sub(row, by);
       },
       true},
      {"a branch that updates",
       [&](Graph& g, Variable v, Queue) {
         v.assign(5.0);
         return cond(
             yes(g), [&] { return v.assign_add(1.0); }, [&] { return v.assign(2.0); });
       },
       true},
      {"an element of a queue",
       [](Graph& g, Variable, Queue q) { return q.enqueue({g.constant(1.f)}), q.dequeue()[0]; },
       true},
      {"the size of a queue that is closed",
       [](Graph& g, Variable, Queue q) { return q.enqueue({g.constant(1.f)}), q.close(); }, true},
      {"an actor's second firing",
       [](Graph& g, Variable, Queue) {
         const auto count = [n = std::int32_t{0}](std::span<const Tensor>,
                                                  std::span<Tensor> out) mutable {
           out[0] = Tensor::scalar(static_cast<float>(++n));
         };
         actor_node(g, "counter", {}, {kNumber}, count);
         return actor_node(g, "counter", {}, {kNumber}, count)[0];
       },
       true},
      {"an element put into a queue after another",
       [](Graph& g, Variable, Queue q) {
         return q.enqueue({g.constant(1.f)}), q.enqueue({g.constant(2.f)});
       },
       false},
      {"a line printed after another",
       [](Graph& g, Variable, Queue) {
         Console console = g.console();
         return console.print("a"), console.print("b");
       },
       false},
      {"a read before it",
       [](Graph&, Variable v, Queue) {
         Expr before = v.read();
         v.assign(5.0);
         return before;
       },
       false},
      {"an update that is fetched",
       [](Graph&, Variable v, Queue) {
         Expr updated = v.assign(5.0);
         return updated + v.read();
       },
       false},
      {"an update that the fetch starts after",
       [](Graph& g, Variable v, Queue) {
         auto order = g.after({v.assign(5.0)});
         return v.read();
       },
       false},
      {"a value that another assignment has replaced",
       [](Graph&, Variable v, Queue) {
         v.assign(5.0);
         Expr replaced = v.assign(6.0);
         return replaced + v.read();
       },
       false},
      {"another variable",
       [](Graph& g, Variable v, Queue) {
         g.variable("other", Tensor::scalar(1.f)).assign(2.0);
         return v.read();
       },
       false},
  };
  for (const Case& c : cases) {
    Graph g;
    Variable v = g.variable("v", Tensor::scalar(1.f));
    Queue q = g.fifo_queue("q", {kNumber}, 8);
    Expr fetch = c.build(g, v, q);
    Logging l;
    BOOST_TEST(l.engine.compile(g, {}, {fetch}).warnings().size() == (c.warns ? 1U : 0U), c.what);
    BOOST_TEST(l.warnings.size() == (c.warns ? 1U : 0U), c.what);
    BOOST_TEST(l.engine.compile(g, {}, {fetch}, kAll).warnings().empty(), c.what);
    // the `EffectRecord` has them now
    BOOST_TEST(l.engine.compile(g, {}, {fetch}).warnings().empty(), c.what);
  }
}

BOOST_AUTO_TEST_CASE(a_firing_without_an_earlier_one_is_no_read) {
  Graph g;
  const auto one = [](std::span<const Tensor>, std::span<Tensor> out) {
    out[0] = Tensor::scalar(1.f);
  };
  const unsigned line = __LINE__ + 1;
  actor_node(g, "one", {}, {kNumber}, one);
  Expr second = actor_node(g, "one", {}, {kNumber}, one)[0];
  Logging l;
  const Function f = l.engine.compile(g, {}, {second});
  has_one_warning(f, {line, line + 1});
  BOOST_TEST(says(f.warnings()[0], "fires actor 'one'"), f.warnings()[0]);
}

BOOST_AUTO_TEST_CASE(many_reads_are_one_warning) {
  Graph g;
  Expr sum = g.constant(0.f);
  unsigned line = 0;
  for (int i = 0; i < 5; ++i) {
    Variable v = g.variable(fmt::format("v{}", i), Tensor::scalar(1.f));
    v.assign(5.0), line = __LINE__;
    sum = sum + v.read();
  }
  Logging l;
  Function f = l.engine.compile(g, {}, {sum});
  has_one_warning(f, {line, line + 1});
  BOOST_TEST(says(f.warnings()[0], "4 more reads"), f.warnings()[0]);
  BOOST_TEST(l.warnings.size() == 1U);
  // A kept plan was compiled once.
  for (int i = 0; i < 3; ++i) l.engine.run(g, {}, {sum * 2.0});
  BOOST_TEST(l.warnings.size() == 4U);  // each time another graph
  Expr doubled = sum * 3.0;
  for (int i = 0; i < 3; ++i) l.engine.run(g, {}, {doubled});
  BOOST_TEST(l.warnings.size() == 5U);
}

// ---- several functions of one graph

BOOST_AUTO_TEST_CASE(training_validation_and_sampling_are_independent) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{});
  Variable w = g.variable("w", Tensor::scalar(1.f));
  Expr loss = square(w.read() - x), step = Sgd({.learning_rate = 0.25}).minimize(loss, {w});
  Expr valid = square(w.read() - x);
  Variable drawn = g.variable("drawn", Tensor::scalar(std::int64_t{0}));
  Expr sample = w.read() + 0.0 * cast(drawn.assign_add(1), DType::f32);
  Logging l;
  Function train = l.engine.compile(g, {x}, {loss, step}),
           check = l.engine.compile(g, {x}, {valid}), draw = l.engine.compile(g, {}, {sample});
  BOOST_TEST(l.warnings.empty());
  BOOST_TEST(number(check, {Tensor::scalar(3.f)}) == 4);
  BOOST_TEST(number(check, {Tensor::scalar(3.f)}) == 4);
  BOOST_TEST(number(draw) == 1);
  BOOST_TEST(number(train, {Tensor::scalar(3.f)}) == 4);
  BOOST_TEST(number(check, {Tensor::scalar(3.f)}) == 1);
  BOOST_TEST(number(draw) == 2);
  BOOST_TEST(l.engine.get("drawn").item<std::int64_t>() == 2);
  BOOST_TEST(l.engine.get("w").item<float>() == 2);
}

BOOST_AUTO_TEST_CASE(a_step_that_no_fetch_reaches_gives_one_warning) {  // E5
  const auto steps = [](Graph& g, unsigned& line) {
    Variable w = g.variable("w", Tensor::scalar(1.f)), u = g.variable("u", Tensor::scalar(1.f));
    Expr loss = square(w.read() - 3.0) + square(u.read());
    line = __LINE__ + 1;
    Adam().minimize(loss, {w, u});
    return loss;
  };
  Graph g;
  unsigned line = 0;
  Expr loss = steps(g, line), other = g.constant(1.f);
  Logging l;
  Function f = l.engine.compile(g, {}, {loss});
  has_one_warning(f, {line});
  BOOST_TEST(says(f.warnings()[0], "optimizer's step"), f.warnings()[0]);
  BOOST_TEST(l.engine.compile(g, {}, {other}).warnings().empty());  // given already
  BOOST_TEST(l.warnings == f.warnings(), boost::test_tools::per_element());
  // another graph, another engine
  Graph h;
  Expr constant = h.constant(1.f);
  steps(h, line);
  has_one_warning(l.engine.compile(h, {}, {constant}), {line});
  has_one_warning(Logging().engine.compile(h, {}, {constant}), {line});
  BOOST_TEST(l.engine.compile(h, {}, {constant}, kAll).warnings().empty());
}

BOOST_AUTO_TEST_CASE(a_read_after_a_step_that_is_left_out_names_both) {
  Graph g;
  Variable w = g.variable("w", Tensor::scalar(1.f));
  Expr loss = square(w.read() - 3.0);
  const unsigned line = __LINE__ + 1;
  Expr step = Momentum().minimize(loss, {w});
  Expr after = w.read();
  Logging l;
  has_one_warning(l.engine.compile(g, {}, {after}), {line, line + 1});
  BOOST_TEST(l.engine.compile(g, {}, {after, step}).warnings().empty());
  BOOST_TEST(l.engine.compile(g, {}, {after}).warnings().empty());
}

BOOST_AUTO_TEST_CASE(steps_inside_of_bodies_are_reached_with_them) {
  for (const bool is_function : {false, true}) {
    Graph g;
    Variable w = g.variable("w", Tensor::scalar(1.f));
    unsigned line = 0;
    const auto train = [&](const Expr& x) {
      Expr loss = square(w.read() - x);
      line = __LINE__ + 1;
      Expr step = Sgd({.learning_rate = 0.25}).minimize(loss, {w});
      auto order = g.after({step});
      return x + 0.0;
    };
    Expr one = g.constant(1.f), three = g.constant(3.f);
    const auto call = [&] {
      return GraphFunction<Expr(Expr)>(g, "train", {kNumber}, train)(three);
    };
    Expr trained = is_function ? call()
                               : cond(
                                     one > 0.0, [&] { return train(three); }, [&] { return one; });
    Logging l;
    has_one_warning(l.engine.compile(g, {}, {one}), {line});
    Logging other;
    Function runs = other.engine.compile(g, {}, {trained});
    BOOST_TEST(runs.warnings().empty());
    BOOST_TEST(number(runs) == 3);
    BOOST_TEST(other.engine.get("w").item<float>() == 2);
    BOOST_TEST(other.engine.compile(g, {}, {one}).warnings().empty());
  }
}

BOOST_AUTO_TEST_CASE(a_function_that_nothing_calls_reaches_no_step) {
  Graph g;
  Variable w = g.variable("w", Tensor::scalar(1.f));
  const unsigned line = __LINE__ + 2;
  GraphFunction<Expr(Expr)> f(g, "train", {kNumber}, [&](Expr x) {
    Expr step = Sgd().minimize(square(w.read() - x), {w});
    return x + 0.0;
  });
  Logging l;
  has_one_warning(l.engine.compile(g, {}, {g.constant(1.f)}), {line});
}

BOOST_AUTO_TEST_CASE(a_scaled_step_is_a_step) {
  Graph g;
  Variable w = g.variable("w", Tensor::scalar(1.f));
  LossScale scale(g, "scale");
  Expr loss = square(w.read() - 3.0);
  const unsigned line = __LINE__ + 1;
  Expr step = scale.minimize(Sgd({.learning_rate = 0.25}), loss, {w});
  Logging l;
  has_one_warning(l.engine.compile(g, {}, {loss}), {line});
  BOOST_TEST(l.engine.compile(g, {}, {loss, step}).warnings().empty());
}

// ---- names across graphs

BOOST_AUTO_TEST_CASE(another_initial_value_gives_one_warning) {  // E2
  struct Built {
    Graph g;
    Expr read;
    unsigned line = 0;
  };
  const auto with = [](float start) {
    auto b = std::make_unique<Built>();
    b->line = __LINE__ + 1;
    b->read = b->g.variable("w", Tensor::scalar(start)).read();
    return b;
  };
  const auto other = [](double start) {
    auto b = std::make_unique<Built>();
    b->line = __LINE__ + 1;
    b->read = b->g.variable("w", DType::f32, {}, Initializer::constant(start)).read();
    return b;
  };
  const auto first = with(1), same = with(1), second = other(2), third = other(2);
  Logging l;
  const auto warned = [&](const Built& b) {
    return l.engine.compile(b.g, {}, {b.read}).warnings();
  };
  BOOST_TEST(warned(*first).empty());
  BOOST_TEST(warned(*same).empty());
  const Function f = l.engine.compile(second->g, {}, {second->read});
  BOOST_REQUIRE_EQUAL(f.warnings().size(), 1U);
  const std::string& why = f.warnings()[0];
  for (const std::string& part : {fmt::format("effects_test.cpp:{}", first->line),
                                  fmt::format("effects_test.cpp:{}", second->line),
                                  std::string("variable 'w'"), std::string("another name")})
    BOOST_TEST(says(why, part), part << " is not in: " << why);
  BOOST_TEST(number(f) == 1);
  BOOST_TEST(warned(*second).empty());
  BOOST_TEST(warned(*third).empty());  // the line is known
  BOOST_TEST(l.warnings.size() == 1U);

  // A function that does not use the variable starts nothing, and meets no other value.
  Logging apart;
  Expr constant = second->g.constant(1.f);
  BOOST_TEST(apart.engine.compile(second->g, {}, {constant}).warnings().empty());
  BOOST_TEST(apart.engine.compile(first->g, {}, {first->read}).warnings().empty());
  // The user's value is meant.
  Logging set;
  set.engine.compile(first->g, {}, {first->read});
  set.engine.set("w", Tensor::scalar(7.f));
  BOOST_TEST(number(set.engine.compile(second->g, {}, {second->read})) == 7);
  BOOST_TEST(set.warnings.empty());
}

BOOST_AUTO_TEST_CASE(actors_of_two_graphs_must_agree) {
  const auto build = [](Graph& g, bool doubles) {
    Expr x = g.constant(3.f);
    return doubles ? actor_node(g, "act", {x}, {kNumber},
                                [](std::span<const Tensor> in, std::span<Tensor> out) {
                                  out[0] = Tensor::scalar(in[0].item<float>() * 2);
                                })[0]
                   : actor_node(g, "act", {x}, {kNumber},
                                [](std::span<const Tensor> in, std::span<Tensor> out) {
                                  out[0] = Tensor::scalar(in[0].item<float>() + 1);
                                })[0];
  };
  Graph a, b, c;
  Expr of_a = build(a, false), of_b = build(b, false), of_c = build(c, true);
  Engine engine;
  BOOST_TEST(engine.run(a, {}, {of_a})[0].item<float>() == 4);
  BOOST_TEST(engine.run(b, {}, {of_b})[0].item<float>() == 4);
  const std::string why = refusal([&] { engine.run(c, {}, {of_c}); }, Code::already_exists);
  BOOST_TEST(says(why, "actor 'act'"), why);
  BOOST_TEST(why.find("effects_test.cpp:") != why.rfind("effects_test.cpp:"), why);
}

BOOST_AUTO_TEST_CASE(an_empty_function_gives_no_warning) {
  refusal([] { Function().warnings(); }, Code::failed_precondition);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
