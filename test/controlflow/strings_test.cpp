// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Tensors of strings: moved, compared and printed wherever a program runs; never computed with.
#include <troupe/controlflow/list.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/format/safetensors.hpp>
#include <troupe/ops/graph/variable.hpp>
#include <troupe/test/support/programs/configurations.hpp>

BOOST_AUTO_TEST_SUITE(strings_test)

namespace {

using namespace troupe;
using namespace troupe::test;
using Words = std::vector<std::string>;

Tensor words(const Words& w) {
  return Tensor::strings(w, Shape{static_cast<std::int64_t>(w.size())});
}

void compare_words(const std::vector<Tensor>& got, const std::vector<Tensor>& expected,
                   const std::string& where) {
  BOOST_REQUIRE_EQUAL(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    BOOST_CHECK_MESSAGE(identical(got[i], expected[i]), where << ": fetch " << i << " is "
                                                              << got[i].text() << ", not "
                                                              << expected[i].text());
}

/// In every setting but those on stream devices, which strings do not go to.
void everywhere_on_hosts(const Build& build, const std::vector<Tensor>& expected) {
  {
    Graph g;
    Scenario b = build(g);
    compare_words(Eager().run(g, b.feeds, b.fetches), expected, "interpreter");
  }
  for (const Setting& s : settings()) {
    if (s.device != "cpu:0") continue;
    Graph g;
    Scenario b = build(g);
    Engine engine(options_of(s));
    for (int r = 0; r < 2; ++r) compare_words(engine.run(g, b.feeds, b.fetches), expected, s.name);
  }
  for (const Setting& s : cluster_settings()) {
    Graph g;
    Scenario b = build(g);
    Nodes nodes(s.nodes, options_of(s));
    compare_words(nodes.engine().run(g, b.feeds, b.fetches), expected, s.name);
  }
}

void says_all(const std::string& error, const Words& parts) {
  for (const std::string& part : parts)
    BOOST_TEST((error.find(part) != std::string::npos), error << " does not say " << part);
}

}  // namespace

BOOST_AUTO_TEST_CASE(values) {
  const std::string long_one(1000, 'x'), zeros("a\0b", 3);
  Tensor t;
  {
    const Words gone{"", long_one, zeros, "peach", "", "pear"};
    t = Tensor::strings(gone, {2, 3});
  }
  BOOST_TEST((t.to_strings() == Words{"", long_one, zeros, "peach", "", "pear"}));
  BOOST_TEST(t.bytes() == 6 * sizeof(StringRef));
  BOOST_TEST((t.with_own_text().raw() == t.raw()));  // it has it already
  Tensor row = t.rows(1, 2), copy = t.clone(), flat = t.reshaped({6});
  t = Tensor();
  BOOST_TEST((row.to_strings() == Words{"peach", "", "pear"}));
  BOOST_TEST((flat.rows(2, 4).to_strings() == Words{zeros, "peach"}));
  BOOST_TEST(identical(copy, flat.reshaped({2, 3})));
  BOOST_TEST(!identical(words({"a"}), words({"b"})));
  BOOST_TEST(!identical(words({"a"}), words({"a", "a"})));
  BOOST_TEST(row.text() == "string[1, 3] {\"peach\", \"\", \"pear\"}");
  Tensor one = Tensor::string("peach"), small = words({"a", "b"}).rows(1, 2).reshaped({});
  BOOST_TEST(one.shape().is_scalar());
  BOOST_TEST((one.to_strings() == Words{"peach"}));
  BOOST_TEST((small.to_strings() == Words{"b"}));
  BOOST_TEST((Tensor::zeros(DType::string, {2}).to_strings() == Words{"", ""}));
  BOOST_CHECK_THROW(one.at(0), Error);
  BOOST_CHECK_THROW(Tensor::strings({"a", "b"}, {3}), Error);
}

BOOST_AUTO_TEST_CASE(elements_are_moved) {
  everywhere_on_hosts(
      [](Graph& g) -> Scenario {
        Expr x = g.input("x", DType::string, {2, 2}),
             c = g.constant(Tensor::strings({"e", "f"}, {1, 2}));
        Expr all = concat({x, c}, 0), list = list_unstack(all);
        Exprs halves = split(transpose(all), std::vector<std::int64_t>{1, 1}, 0);
        return {
            {{x, Tensor::strings({"a", "a longer string than sixteen bytes", "", "d"}, {2, 2})}},
            {all, gather(all, g.constant(Tensor::of<std::int32_t>({2, 0, 2}))), halves[1],
             reshape(slice(all, {0, 1}, {2, 1}), {2}),
             stack({squeeze(slice(all, {0, 0}, {1, 2}), 0), reshape(c, {2})}), list_read(list, 2),
             size_of(all)}};
      },
      {Tensor::strings({"a", "a longer string than sixteen bytes", "", "d", "e", "f"}, {3, 2}),
       Tensor::strings({"e", "f", "a", "a longer string than sixteen bytes", "e", "f"}, {3, 2}),
       Tensor::strings({"a longer string than sixteen bytes", "d", "f"}, {1, 3}),
       words({"a longer string than sixteen bytes", "d"}),
       Tensor::strings({"a", "a longer string than sixteen bytes", "e", "f"}, {2, 2}),
       words({"e", "f"}), Tensor::scalar<std::int64_t>(6)});
}

// X14: the value of one device, or node, is delivered to another.
BOOST_AUTO_TEST_CASE(a_peach_is_delivered) {
  everywhere_on_hosts(
      [](Graph& g) -> Scenario {
        Expr p = g.constant("peach"), x = g.input("x", DType::string, Shape{});
        return {{{x, Tensor::string("plum")}},
                {identity(p), identity(x), p == x, x == g.constant("plum"), x != p}};
      },
      {Tensor::string("peach"), Tensor::string("plum"), Tensor::scalar(false), Tensor::scalar(true),
       Tensor::scalar(true)});
}

BOOST_AUTO_TEST_CASE(t2_lists_of_strings) {
  everywhere_on_hosts(
      [](Graph& g) -> Scenario {
        TensorArray ta(g, {.dtype = DType::string, .size = 3});
        ta = ta.write(2, g.constant(Tensor::strings({"8", "9"}, {1, 2})))
                 .write(0, g.constant(Tensor::strings({"4", "5"}, {1, 2})));
        ta = ta.write(1, g.constant(Tensor::strings({"6", "seven"}, {1, 2})));
        TensorArray partly =
            TensorArray(g, {.dtype = DType::string, .element_shape = Shape{1}, .size = 2})
                .write(1, g.constant(words({"only"})));
        return {{},
                {ta.stack(), ta.concat(), ta.read(1), partly.stack(), partly.read(0),
                 list_extents(ta.list())}};
      },
      {Tensor::strings({"4", "5", "6", "seven", "8", "9"}, {3, 1, 2}),
       Tensor::strings({"4", "5", "6", "seven", "8", "9"}, {3, 2}),
       Tensor::strings({"6", "seven"}, {1, 2}), Tensor::strings({"", "only"}, {2, 1}), words({""}),
       Tensor::of<std::int64_t>({1, 1, 1})});
}

BOOST_AUTO_TEST_CASE(branches_loops_and_queues_of_strings) {
  everywhere_on_hosts(
      [](Graph& g) -> Scenario {
        Expr all = g.constant(words({"a", "b", "c"}));
        // Grows by one of them each time; the predicate compares strings.
        auto [n, s] =
            while_loop([&](Expr i, Expr) { return gather(all, minimum(i, 2)) != g.constant("c"); },
                       [&](Expr i, Expr t) {
                         return std::tuple{i + 1, concat({t, reshape(gather(all, i), {1})}, 0)};
                       },
                       std::tuple{g.constant(0), g.constant(words({"first"}))},
                       {.shape_invariants = {Shape{}, Shape{kAny}}});
        Expr chosen = cond(
            n > 1, [&] { return all; }, [&] { return g.constant(words({"none"})); });
        Queue q = g.fifo_queue("q", {{DType::string, Shape{}}}, 2);
        Expr size = q.enqueue({g.constant("queued")});
        // One that waited would be handed it on the way in, and the size be 0.
        auto after = g.after({size});
        return {{}, {n, s, chosen, size, q.dequeue()[0]}};
      },
      {Tensor::scalar<std::int32_t>(2), words({"first", "a", "b"}), words({"a", "b", "c"}),
       Tensor::scalar<std::int64_t>(1), Tensor::string("queued")});
}

BOOST_AUTO_TEST_CASE(unsupported_ops_on_strings_are_refused) {
  Graph g;
  Expr s = g.constant(words({"a", "b"})), f = g.constant(Tensor::of<float>({1, 2}));
  says_all(refused([&] { s + s; }),
           {"Add", "strings_test.cpp", "input 0 is of strings, with which it cannot compute"});
  says_all(refused([&] { matmul(f, s); }), {"MatMul", "strings"});
  says_all(refused([&] { s == f; }), {"StringEqual", "string", "f32"});
  says_all(refused([&] {
             s == g.constant(words({"a", "b", "c"}));
           }),
           {"StringEqual", "[2]", "[3]"});
  says_all(refused([&] { concat({f, s}, 0); }), {"one dtype", "f32", "string"});
  // T8: a string into a list of f32
  says_all(refused([&] {
             list_push(list_empty(g, {DType::f32, Shape{2}}), s);
           }),
           {"string[2] is no element of list(f32[2])", "ListPush"});
  says_all(refused([&] {
             cond(
                 s == s, [&] { return f; }, [&] { return f; });
           }),
           {"scalar"});
  EngineOptions o;
  o.default_device = "sim:0";
  Engine engine(o);
  Expr x = g.input("x", DType::string, {1});
  says_all(refused([&] {
             engine.run(g, {{x, words({"a"})}}, {concat({x, x}, 0)});
           }),
           {"Concat", "strings stay on the host"});
  says_all(refused([&] {
             save_safetensors("/tmp/strings.safetensors", {{"s", words({"a"})}}, {});
           }),
           {"string"});
}

BOOST_AUTO_TEST_CASE(they_are_printed) {
  Graph g;
  Console out = g.console();
  Expr done = out.print("{} and {}", {g.constant("peach"), g.constant(words({"a", "b"}))});
  std::vector<std::string> lines;
  EngineOptions o;
  o.print = [&](const std::string&, const std::string& line) { lines.push_back(line); };
  Engine engine(o);
  engine.run(g, {}, {done});
  BOOST_TEST(lines == Words{"peach and [a, b]"}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
