// Not under tsan: it builds graphs on one thread.
// Names of states: which scopes prefix them, second declarations, how one is found.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(names_test, TROUPE_ONE_THREAD)

namespace {

const ValueSpec kNumber{DType::f32, Shape{}};
using Numbers = std::vector<float>;

Variable number(Reader& r, const std::string& name, float start,
                std::source_location at = std::source_location::current()) {
  return r.variable(name, Tensor::scalar(start), at);
}

/// Checks that `f` is refused and that the error names line `first` of this file, a later line, and
/// all `parts`.
template <class F>
void refuses(F f, unsigned first, const std::vector<std::string>& parts) {
  const std::string why = refusal(f, Code::already_exists), file = "names_test.cpp:";
  for (const std::string& part : parts)
    BOOST_TEST(why.find(part) != std::string::npos, "'" << part << "' is not in: " << why);
  unsigned lowest = ~0u, highest = 0;
  for (std::size_t at = why.find(file); at != std::string::npos; at = why.find(file, at + 1)) {
    const auto line = static_cast<unsigned>(std::stoul(why.substr(at + file.size())));
    lowest = std::min(lowest, line), highest = std::max(highest, line);
  }
  BOOST_TEST(lowest == first, why);
  BOOST_TEST(highest > first, why);
}

std::vector<std::string> names(const Graph& g) {
  std::vector<std::string> all;
  for (const StateSpec& s : g.states()) all.push_back(s.name);
  return all;
}

Numbers fetched(const Graph& g, const std::vector<Expr>& fetches) {
  Numbers all;
  for (const Tensor& t : Eager().run(g, {}, fetches)) all.push_back(t.item<float>());
  return all;
}

struct Adder : NodeActor {
  float sum = 0;
  void receive(std::span<const Tensor> in, std::span<Tensor> out) override {
    out[0] = Tensor::scalar(sum += in[0].item<float>());
  }
};

}  // namespace

// ---- scopes

BOOST_AUTO_TEST_CASE(a_layer_in_two_scopes_has_two_variables) {  // E1
  Graph g;
  const auto layer = [&](float start) { return number(g, "w", start); };
  const auto in_scope = [&](const std::string& name, float start) {
    auto scope = g.scope(name);
    return layer(start);
  };
  Variable a = in_scope("a", 1), b = in_scope("b", 2);
  BOOST_TEST(a.name() == "a/w");
  BOOST_TEST(b.name() == "b/w");
  Expr set = a.assign(10.0);
  BOOST_TEST(fetched(g, {set, a.read(), b.read()}) == (Numbers{10, 10, 2}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(scopes_prefix_queues_and_actors_but_no_consoles) {
  Graph g;
  {
    auto outer = g.scope("a");
    auto inner = g.scope("b");
    g.fifo_queue("q", {kNumber}, 1);
    g.shuffling_queue("s", {kNumber}, 2, 1);
    actor_node<Adder>(g, "adder", {g.constant(1.f)}, {kNumber});
    g.console("out");
    g.variable("w", DType::f32, {2}, Initializer::constant(0));
  }
  number(g, "w", 1);
  g.console("out");
  BOOST_TEST(
      names(g) == (std::vector<std::string>{"a/b/q", "a/b/s", "a/b/adder", "out", "a/b/w", "w"}),
      boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_full_name_begins_with_a_slash) {
  Graph g;
  auto scope = g.scope("a");
  BOOST_TEST(number(g, "/b/w", 1).name() == "b/w");
  BOOST_TEST(number(g, "/w", 1).name() == "w");
  BOOST_TEST(number(g, "w", 1).name() == "a/w");
  refusal([&] { number(g, "/", 1); }, Code::invalid_argument);
  BOOST_TEST(Eager().variable("/w", Tensor::scalar(1.f)).name() == "w");
}

// Devices, controls and what the library opens around a body name nodes alone.
BOOST_AUTO_TEST_CASE(bodies_keep_the_prefix_of_open_scopes) {
  Graph g;
  Expr x = g.constant(2.f);
  std::vector<std::string> declared;
  const auto declare = [&](const std::string& name) {
    Variable v = number(g, name, 1);
    declared.push_back(v.name());
    return v.read();
  };
  {
    auto scope = g.scope("a");
    auto device = g.on_device("cpu:0");
    auto after = g.after({x});
    GraphFunction<Expr(Expr)> f(g, "f", {kNumber}, [&](Expr y) { return y + declare("in f"); });
    cond(
        x > 1.0, [&] { return declare("in cond"); }, [&] { return x; });
    while_loop([](Expr i) { return i < 3.0; },
               [&](Expr i) {
                 auto inner = g.scope("b");
                 return i + declare("in loop");
               },
               x);
  }
  scan([&](Expr s, Expr e) { return s + e + declare("in scan"); },
       g.constant(Tensor::of<float>({1})), g.constant(0.f));
  BOOST_TEST(
      declared == (std::vector<std::string>{"a/in f", "a/in cond", "a/b/in loop", "in scan"}),
      boost::test_tools::per_element());
}

// ---- a second declaration

BOOST_AUTO_TEST_CASE(a_second_variable_is_refused_with_both_lines) {  // E2
  for (const float start : {1.f, 2.f}) {
    Graph g;
    const unsigned first = __LINE__ + 1;
    number(g, "w", 1);
    refuses([&] { number(g, "w", start); }, first,
            {"variable 'w'", "declared already", "find_variable(\"w\")", "scope"});
    refuses([&] { number(g, "/w", start); }, first, {"variable 'w'"});
    refuses([&] { g.variable("w", DType::f64, {3}, Initializer::constant(0)); }, first,
            {"variable 'w'"});
    refuses([&] { g.fifo_queue("w", {kNumber}, 1); }, first, {"queue 'w'", "taken by"});
    refuses([&] { g.console("w"); }, first, {"console 'w'", "taken by"});
    BOOST_TEST(g.states().size() == 1U);
  }
}

BOOST_AUTO_TEST_CASE(a_second_variable_in_a_body_is_refused) {
  Graph g;
  Expr x = g.constant(2.f);
  const unsigned first = __LINE__ + 1;
  number(g, "w", 1);
  const auto again = [&] { return number(g, "w", 1).read(); };
  refuses([&] { cond(x > 1.0, again, [&] { return x; }); }, first, {"variable 'w'"});
  refuses(
      [&] { while_loop([](Expr i) { return i < 3.0; }, [&](Expr i) { return i + again(); }, x); },
      first, {"variable 'w'"});
  refuses(
      [&] { GraphFunction<Expr(Expr)> f(g, "f", {kNumber}, [&](Expr y) { return y + again(); }); },
      first, {"variable 'w'"});
}

BOOST_AUTO_TEST_CASE(a_second_queue_is_refused_with_both_lines) {
  Graph g;
  auto scope = g.scope("a");
  const unsigned first = __LINE__ + 1;
  g.fifo_queue("q", {kNumber}, 1);
  refuses([&] { g.fifo_queue("q", {kNumber}, 1); }, first,
          {"queue 'a/q'", "share it by its handle"});
  refuses([&] { g.shuffling_queue("q", {kNumber}, 2, 1); }, first, {"queue 'a/q'"});
  refuses([&] { number(g, "q", 1); }, first, {"variable 'a/q'", "taken by queue"});
}

BOOST_AUTO_TEST_CASE(an_eager_line_may_repeat_its_declaration) {
  Eager e;
  const auto [i, sum] = while_loop([](Expr k, Expr) { return k < 3.0; },
                                   [&](Expr k, Expr) {
                                     return std::tuple{k + 1.0, number(e, "w", 1).assign_add(1.0)};
                                   },
                                   std::tuple{e.constant(0.f), e.constant(0.f)});
  BOOST_TEST(sum.value().item<float>() == 4);
  // a body over no elements is only looked at, to know what it would yield
  scan([&](Expr s, Expr x) { return s + x + number(e, "v", 1); }, e.constant(Tensor::of<float>({})),
       e.constant(0.f));

  const unsigned first = __LINE__ + 1;
  Variable u = number(e, "u", 1);
  refuses([&] { number(e, "u", 1); }, first, {"variable 'u'", "declared already"});
  for (const float start : {1.f, 2.f}) {  // one line, two values
    if (start == 1) number(e, "t", 1);
    const auto declare = [&](float s) { number(e, "s", s); };
    if (start == 1) declare(1), declare(1);
    else refusal([&] { declare(2), declare(3); }, Code::already_exists);
  }
  BOOST_TEST(e.find_variable("u").state() == u.state());
}

// A replayed program's states are shared by name, as those of graphs in one engine are.
BOOST_AUTO_TEST_CASE(graphs_share_by_name) {
  Eager e;
  for (const float start : {1.f, 50.f}) {
    Graph g;
    Expr next = number(g, "w", start).assign_add(1.0);
    BOOST_TEST(e.run(g, {}, {next})[0].item<float>() == (start == 1 ? 2 : 3));
  }
  BOOST_TEST(number(e, "w", 7).read().value().item<float>() == 3);
}

// ---- finding

BOOST_AUTO_TEST_CASE(find_variable_takes_full_names) {
  Graph g;
  Variable w;
  {
    auto scope = g.scope("a");
    w = number(g, "w", 1);
  }
  BOOST_TEST(g.find_variable("a/w").state() == w.state());
  auto scope = g.scope("b");
  BOOST_TEST(g.find_variable("a/w").state() == w.state());
  BOOST_TEST(g.find_variable("/a/w").state() == w.state());
  Expr sum = g.find_variable("a/w").assign_add(1.0), twice = sum + w.read();
  BOOST_TEST(fetched(g, {twice}) == Numbers{4}, boost::test_tools::per_element());
  cond(
      twice > 1.0, [&] { return g.find_variable("a/w").read(); }, [&] { return twice; });
}

BOOST_AUTO_TEST_CASE(find_variable_suggests_near_names) {
  Graph g;
  for (const char* scope : {"a", "b", "c", "d"}) {
    auto open = g.scope(scope);
    number(g, "weight", 1);
  }
  g.fifo_queue("q", {kNumber}, 1);
  const auto why = [&](const std::string& name) {
    const std::string text = refusal([&] { g.find_variable(name); }, Code::not_found);
    BOOST_TEST(text.find("names_test.cpp:") != std::string::npos, text);
    return text;
  };
  BOOST_TEST(why("weight").find("did you mean 'a/weight', 'b/weight', 'c/weight'?") !=
             std::string::npos);
  BOOST_TEST(why("d/wieght").find("did you mean 'd/weight'?") != std::string::npos);
  BOOST_TEST(why("bias").find("did you mean") == std::string::npos);
  BOOST_TEST(why("q").find("queue 'q'") != std::string::npos);
  BOOST_TEST(why("").find("there is no variable ''") != std::string::npos);
}

// ---- actors

BOOST_AUTO_TEST_CASE(two_actors_of_one_name_are_refused_with_both_lines) {  // E4
  Graph g;
  Expr x = g.constant(1.f);
  const auto add = [](std::span<const Tensor> in, std::span<Tensor> out) {
    out[0] = Tensor::scalar(in[0].item<float>() + 1);
  };
  const auto twice = [](std::span<const Tensor> in, std::span<Tensor> out) {
    out[0] = Tensor::scalar(in[0].item<float>() * 2);
  };
  const unsigned first = __LINE__ + 1;
  Expr one = actor_node(g, "act", {x}, {kNumber}, add)[0];
  refuses([&] { actor_node(g, "act", {x}, {kNumber}, twice); }, first,
          {"actor 'act'", "another class, function"});
  refuses([&] { actor_node<Adder>(g, "act", {x}, {kNumber}); }, first, {"actor 'act'"});
  refuses([&] { actor_node(g, "act", {x}, {kNumber, kNumber}, add); }, first, {"actor 'act'"});
  refuses([&] { actor_node(g, "act", {x}, {kNumber}, add, {.max_restarts = 7}); }, first,
          {"actor 'act'", "options"});
  refuses([&] { number(g, "act", 1); }, first, {"variable 'act'", "taken by actor"});
  // one function at two places fires one actor
  Expr two = actor_node(g, "act", {one}, {kNumber}, add)[0];
  auto scope = g.scope("a");
  Expr other = actor_node(g, "act", {two}, {kNumber}, twice)[0];
  BOOST_TEST(fetched(g, {one, two, other}) == (Numbers{2, 3, 6}), boost::test_tools::per_element());
}

// One line that is reached with two values declares two actors.
BOOST_AUTO_TEST_CASE(captured_values_distinguish_functions) {  // E4
  Graph g;
  Expr x = g.constant(1.f);
  const auto adding = [&](const std::string& name, auto by) {
    return actor_node(g, name, {x}, {kNumber},
                      [by](std::span<const Tensor> in, std::span<Tensor> out) {
                        out[0] = Tensor::scalar(in[0].item<float>() + static_cast<float>(by));
                      })[0];
  };
  const auto padded = [&](const std::string& name, char a, double b) {
    return actor_node(g, name, {x}, {kNumber},
                      [a, b](std::span<const Tensor> in, std::span<Tensor> out) {
                        out[0] = Tensor::scalar(in[0].item<float>() + static_cast<float>(a + b));
                      })[0];
  };
  const auto refuses_other = [](auto f) {
    const std::string why = refusal(f, Code::already_exists);
    BOOST_TEST(why.find("another class, function, captured values") != std::string::npos, why);
  };
  Expr float_once = adding("float", 1.f), float_again = adding("float", 1.f);
  refuses_other([&] { adding("float", 2.f); });
  adding("double", 1.0), adding("double", 1.0);
  refuses_other([&] { adding("double", 2.0); });
  adding("long", std::int64_t{1}), adding("long", std::int64_t{1});
  refuses_other([&] { adding("long", std::int64_t{2}); });
  padded("padded", 1, 2), padded("padded", 1, 2);
  refuses_other([&] { padded("padded", 1, 3); });
  refuses_other([&] { padded("padded", 2, 2); });
  BOOST_TEST(fetched(g, {float_once, float_again}) == (Numbers{2, 2}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(captured_values_that_cannot_be_compared_are_refused) {  // E4
  Graph g;
  Expr x = g.constant(1.f);
  const auto named = [&](Graph& in, Expr from, const std::string& name, std::string text) {
    return actor_node(in, name, {from}, {kNumber},
                      [text](std::span<const Tensor>, std::span<Tensor> out) {
                        out[0] = Tensor::scalar(static_cast<float>(text.size()));
                      })[0];
  };
  named(g, x, "text", "a");
  for (const char* text : {"a", "b"}) {
    const std::string why = refusal([&] { named(g, x, "text", text); }, Code::already_exists);
    BOOST_TEST(why.find("names_test.cpp:") != why.rfind("names_test.cpp:"), why);
    for (const char* part : {"cannot be compared", "capture a pointer", "another name", "scope"})
      BOOST_TEST(why.find(part) != std::string::npos, why);
  }
  {
    auto scope = g.scope("a");
    Expr other = named(g, x, "text", "other");
    BOOST_TEST(fetched(g, {other}) == Numbers{5}, boost::test_tools::per_element());
  }
  const std::function<void(std::span<const Tensor>, std::span<Tensor>)> function =
      [](std::span<const Tensor>, std::span<Tensor> out) { out[0] = Tensor::scalar(1.f); };
  actor_node(g, "function", {x}, {kNumber}, function);
  refusal([&] { actor_node(g, "function", {x}, {kNumber}, function); }, Code::already_exists);
  // two graphs of one engine
  Graph a, b, c;
  Eager e;
  e.run(a, {}, {named(a, a.constant(1.f), "text", "a")});
  const std::string why = refusal([&] { e.run(b, {}, {named(b, b.constant(1.f), "text", "b")}); },
                                  Code::already_exists);
  BOOST_TEST(why.find("cannot be compared") != std::string::npos, why);
}

struct Constant : NodeActor {
  explicit Constant(float v) : value(v) {}
  const float value;
  void receive(std::span<const Tensor>, std::span<Tensor> out) override {
    out[0] = Tensor::scalar(value);
  }
};
std::unique_ptr<NodeActor> make_one() { return std::make_unique<Constant>(1.f); }
std::unique_ptr<NodeActor> make_two() { return std::make_unique<Constant>(2.f); }

BOOST_AUTO_TEST_CASE(factories_of_one_actor_must_agree) {  // E4
  Graph g;
  const auto made = [&](const std::string& name, float value) {
    return actor_node(g, name, {}, {kNumber},
                      [value] { return std::make_unique<Constant>(value); })[0];
  };
  Expr one = made("one", 1), again = made("one", 1);
  refusal([&] { made("one", 2); }, Code::already_exists);
  const auto held = [&](std::shared_ptr<float> value) {
    return actor_node(g, "held", {}, {kNumber},
                      [value] { return std::make_unique<Constant>(*value); })[0];
  };
  const auto value = std::make_shared<float>(3.f);
  held(value);
  refusal([&] { held(value); }, Code::already_exists);
  actor_node(g, "function", {}, {kNumber}, make_one);
  actor_node(g, "function", {}, {kNumber}, make_one);
  refusal([&] { actor_node(g, "function", {}, {kNumber}, make_two); }, Code::already_exists);
  const std::function<std::unique_ptr<NodeActor>()> typeless = [] {
    return std::make_unique<Constant>(4.f);
  };
  actor_node(g, "typeless", {}, {kNumber}, typeless);
  refusal([&] { actor_node(g, "typeless", {}, {kNumber}, typeless); }, Code::already_exists);
  BOOST_TEST(fetched(g, {one, again}) == (Numbers{1, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(an_engines_actors_of_one_name_must_agree) {
  Eager e;
  const auto build = [&](Graph& g, bool doubles) {
    Expr x = g.constant(3.f);
    return doubles ? actor_node(g, "act", {x}, {kNumber},
                                [](std::span<const Tensor> in, std::span<Tensor> out) {
                                  out[0] = Tensor::scalar(in[0].item<float>() * 2);
                                })[0]
                   : actor_node<Adder>(g, "act", {x}, {kNumber})[0];
  };
  Graph a, b, c;
  Expr of_a = build(a, false), of_b = build(b, false), of_c = build(c, true);
  BOOST_TEST(e.run(a, {}, {of_a})[0].item<float>() == 3);
  BOOST_TEST(e.run(b, {}, {of_b})[0].item<float>() == 6);
  const std::string why = refusal([&] { e.run(c, {}, {of_c}); }, Code::already_exists);
  BOOST_TEST(why.find("names_test.cpp:") != why.rfind("names_test.cpp:"), why);
}

// ---- optimizers

BOOST_AUTO_TEST_CASE(slots_have_the_name_of_their_variable) {
  Graph g;
  Variable w;
  {
    auto scope = g.scope("a");
    w = number(g, "w", 1);
    Adam().minimize(square(w.read()), {w});
  }
  auto scope = g.scope("b");
  Adam().minimize(w * 2.0, {w});  // shares the slots of the first
  Momentum().minimize(w * 2.0, {w});
  std::vector<std::string> all = names(g);
  std::sort(all.begin(), all.end());
  BOOST_TEST(all == (std::vector<std::string>{"a/w", "a/w/adam/m", "a/w/adam/step", "a/w/adam/v",
                                              "a/w/momentum/velocity"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(slots_that_start_otherwise_are_refused) {
  Graph g;
  Variable w = number(g, "w", 1);
  const unsigned first = __LINE__ + 1;
  Adagrad({.initial_accumulator = 0.1}).minimize(square(w.read()), {w});
  Adagrad({.learning_rate = 0.5, .initial_accumulator = 0.1}).minimize(square(w.read()), {w});
  refuses([&] { Adagrad({.initial_accumulator = 0.5}).minimize(square(w.read()), {w}); }, first,
          {"variable 'w/adagrad/accumulator'", "0.5"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
