// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Loops that end because of NaN, in every way to run them.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include <troupe/controlflow/build.hpp>
#include <troupe/controlflow/check_nan_predicates.hpp>
#include <troupe/test/support/programs/calls.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/test/support/programs/oracle.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(comparisons_test)

namespace {

using V = std::vector<double>;

// Checks the error of each way to run the loop, fed x; none of them may be silent. Runs the loop at
// once, too. Returns whether the oracle has found the NaN, too: it refuses programs that use NaN.
using NanLoop = std::function<Expr(const Expr& x)>;
bool ends_by_nan(const NanLoop& build, float x, std::initializer_list<std::string> parts) {
  for (const Setting& s : all_settings()) {
    Graph g;
    Expr in = g.input("x", DType::f32, Shape{}), y = build(in);
    Somewhere there(s);
    BOOST_TEST(says(refused([&] {
                      there.engine().run(g, {{in, Tensor::scalar(x)}}, {y});
                    }),
                    parts),
               s.name);
    const Expr dy = gradients({y}, {in})[0];
    BOOST_TEST(says(refused([&] {
                      there.engine().run(g, {{in, Tensor::scalar(x)}}, {dy});
                    }),
                    parts),
               s.name << ", the gradient");
  }
  Graph g;
  Expr in = g.input("x", DType::f32, Shape{}), y = build(in);
  BOOST_TEST(says(refused([&] {
                    Eager().run(g, {{in, Tensor::scalar(x)}}, {y});
                  }),
                  parts),
             "the interpreter");
  bool is_found = false;
  try {
    Oracle().run(g, {{in, OracleValue::of(Tensor::scalar(x))}}, {y});
    BOOST_ERROR("the oracle has found nothing");
  } catch (const OracleError& e) {
    is_found = std::string(e.what()).find("NaN has ended it") != std::string::npos;
    BOOST_TEST(is_found, e.what());
  } catch (const OracleRefusal&) {}
  Eager e;
  BOOST_TEST(says(refused([&] { build(e.constant(x)); }), parts), "at once");
  return is_found;
}

const Tensor kTurn = Tensor::of<float>({0, 1, 1, 0}, {2, 2});

const Node& the_loop(const Graph& g) {
  for (const Node& n : g.nodes())
    if (n.op->name == "While") return n;
  throw Error(Code::internal, "there is no loop");
}

// Returns the types of the values that leave a loop over f32[2,1] with this condition, beside its
// variable, for one more look.
template <class C>
std::vector<ValueSpec> carried(C condition) {
  Graph g;
  while_loop(
      condition, [](Expr v) { return v * 2.0; }, g.input("x", DType::f32, {2, 1}));
  const WhileView w(the_loop(g));
  const auto compared = comparisons_of(w.condition, w.variables);
  BOOST_REQUIRE(compared.has_value());
  std::vector<ValueSpec> specs;
  for (std::size_t i = 1; i < compared->condition->outputs.size(); ++i)
    specs.push_back(compared->condition->graph.spec(compared->condition->outputs[i]));
  return specs;
}

std::string here(int line) { return "comparisons_test.cpp:" + std::to_string(line); }

}  // namespace

BOOST_AUTO_TEST_CASE(nan_that_ends_a_loop_is_reported) {
  const float nan = std::nanf("");
  const auto loop = [](auto condition) -> NanLoop {
    return [=](const Expr& x) {
      return while_loop(condition, [](Expr v) { return v * 2.0; }, x, {.name = "grow"});
    };
  };
  const int line = __LINE__ + 1;
  BOOST_TEST(ends_by_nan(loop([](Expr v) { return v < 10.0; }), nan,
                         {"while_loop 'grow' (comparisons_test.cpp:", "Less", here(line),
                          "variable 0", "NaN", "is_finite"}));
  BOOST_TEST(ends_by_nan(
      loop([](Expr v) { return logical_not(logical_not(logical_and(v <= 10.0, v < 20.0))); }), nan,
      {"variable 0", "NaN"}));
  ends_by_nan(loop([](Expr v) { return 10.0 - v > 0.0; }), nan, {"while_loop 'grow'", "Greater"});
  // The sum is computed again, once the loop has ended.
  ends_by_nan(
      [](const Expr& x) {
        return sum(while_loop([](Expr v) { return sum(v) < 10.0; }, [](Expr v) { return v * 2.0; },
                              stack({x, x}), {.name = "norm"}));
      },
      nan, {"while_loop 'norm'", "Less", "NaN"});
  // Some elements are numbers still, but have arrived.
  ends_by_nan(
      [](const Expr& x) {
        return sum(while_loop([](Expr v) { return any(v < 10.0); }, [](Expr v) { return v * 2.0; },
                              stack({x, x * 0.f + 20.f}), {.name = "any"}));
      },
      nan, {"while_loop 'any'", "variable 0", "NaN"});
  // A product is not.
  ends_by_nan(
      [](const Expr& x) {
        return sum(while_loop([](Expr v) { return any(matmul(kTurn, v) < 10.0); },
                              [](Expr v) { return v * 2.0; }, reshape(stack({x, x}), Shape{2, 1}),
                              {.name = "product"}));
      },
      nan, {"while_loop 'product'", "Less", "NaN"});
  // It becomes NaN on the way, in the second iteration; bounded, and in a loop.
  const auto falls = [](const Expr& x) {
    return while_loop([](Expr v) { return v > -100.0; }, [](Expr v) { return log(v); }, x,
                      {.name = "falls", .maximum_iterations = 50});
  };
  ends_by_nan(falls, 0.5f, {"while_loop 'falls'", "Greater", "variable 0"});
  ends_by_nan(
      [&](const Expr& x) {
        return std::get<1>(while_loop([](Expr i, Expr) { return i < 3; },
                                      [&](Expr i, Expr v) {
                                        return std::tuple{i + 1, falls(v)};
                                      },
                                      std::tuple{0, x}));
      },
      0.5f, {"while_loop 'falls'", "variable 0"});
}

BOOST_AUTO_TEST_CASE(nan_is_reported_for_every_formula_of_comparisons) {
  const float nan = std::nanf("");
  const auto loop = [](auto condition, int elements) -> NanLoop {
    return [=](const Expr& x) {
      const Expr start = stack(std::vector<Expr>(static_cast<std::size_t>(elements), x));
      return sum(while_loop(condition, [](Expr v) { return v * 2.0; }, start, {.name = "made"}));
    };
  };
  ends_by_nan(loop([](Expr v) { return reshape(v < 10.0, Shape{}); }, 1), nan,
              {"while_loop 'made'", "Less", "variable 0"});
  ends_by_nan(loop([](Expr v) { return squeeze(v < 10.0, 0); }, 1), nan,
              {"while_loop 'made'", "Less", "variable 0"});
  ends_by_nan(loop(
                  [](Expr v) {
                    return all(stack({any(v < 10.0), all(v > -10.0)}));
                  },
                  2),
              nan, {"while_loop 'made'", "Less", "variable 0"});
  ends_by_nan(loop([](Expr v) { return sum(cast(v < 10.0, DType::i32)) > 0; }, 2), nan,
              {"while_loop 'made'", "Less", "variable 0"});
}

BOOST_AUTO_TEST_CASE(loop_saves_the_smallest_costly_value_for_its_check) {
  using Specs = std::vector<ValueSpec>;
  const ValueSpec scalar{DType::f32, Shape{}}, product{DType::f32, {2, 1}};
  const Tensor row = Tensor::of<float>({1, 2, 3}, {1, 3});
  BOOST_TEST((carried([](Expr v) { return sum(v) < 10.0; }) == Specs{}));
  BOOST_TEST((carried([](Expr v) { return any(abs(v - v / 2.0) > 0.1); }) == Specs{}));
  BOOST_TEST((carried([](Expr v) {
                return logical_and(any(transpose(v) > 0.1), mean(reshape(v, Shape{2})) < 8.0);
              }) == Specs{}));
  BOOST_TEST((carried([](Expr v) { return any(matmul(kTurn, v) > 1.0); }) == Specs{product}));
  BOOST_TEST(
      (carried([](Expr v) { return sum(abs(matmul(kTurn, v) - 1.0)) < 1.0; }) == Specs{scalar}));
  BOOST_TEST(
      (carried([&](Expr v) { return any(matmul(kTurn, v) - row < 1.0); }) == Specs{product}));
  BOOST_TEST((carried([](Expr v) { return any(cast(matmul(kTurn, v), DType::f64) < 1.0); }) ==
              Specs{product}));
  BOOST_TEST((carried([](Expr v) {
                const Expr p = matmul(kTurn, v);
                return logical_and(any(p < 9.0), any(relu(p) > 1.0));
              }) == Specs{product}));
}

BOOST_AUTO_TEST_CASE(a_condition_may_be_as_deep_as_one_likes) {
  const auto deep = [](Expr v) {
    for (int i = 0; i < 50'000; ++i) v = -v;
    return sum(v) < 10.0;
  };
  BOOST_TEST(carried(deep).empty());
}

BOOST_AUTO_TEST_CASE(checked_values_have_the_precision_of_the_condition) {
  Graph g;
  const Expr x = g.input("x", DType::f32, {2, 1});
  const Expr y = while_loop([](Expr v) { return any(matmul(kTurn, v) + kTurn < 10.0); },
                            [](Expr v) { return v * 2.0; }, x, {.name = "low"});
  const WhileView w(the_loop(g));
  const Program p =
      mixed_precision({w.condition.graph, w.condition.inputs, w.condition.outputs}, DType::bf16);
  SubGraph low(Graph(p.graph));
  low.inputs = p.feeds;
  low.outputs = p.fetches;
  const auto compared = comparisons_of(low, w.variables);
  BOOST_REQUIRE(compared.has_value());
  BOOST_REQUIRE(compared->condition->outputs.size() == 2u);
  BOOST_TEST((compared->condition->graph.spec(compared->condition->outputs[1]) ==
              ValueSpec{DType::bf16, {2, 1}}));
  BOOST_TEST(says(compared->what, {"Less", "Add", "variable 0"}));
  BOOST_TEST(compared->what.find("Cast") == std::string::npos, compared->what);
  for (DType few : {DType::bf16, DType::f16}) {
    Engine engine({.workers = 2});
    const Function f = engine.compile(g, {x}, {y}, {.mixed_precision = few});
    const float nan = std::nanf("");
    BOOST_TEST(says(refused([&] {
                      f({Tensor::of<float>({20, nan}, {2, 1})});
                    }),
                    {"while_loop 'low'", "Less", "variable 0", "NaN"}));
    compare(f({Tensor::of<float>({1, 2}, {2, 1})}), {V{16, 32}}, "in few bits");
  }
}

BOOST_AUTO_TEST_CASE(a_limit_of_nan_is_reported) {
  const auto loop = [](auto condition) -> NanLoop {
    return [=](const Expr& x) {
      return while_loop(condition, [](Expr v) { return v * 2.0; }, x, {.name = "unlimited"});
    };
  };
  const double nan = std::nan("");
  ends_by_nan(loop([=](Expr v) { return v < nan; }), 1.f,
              {"while_loop 'unlimited'", "Less", "NaN"});
  ends_by_nan(loop([=](Expr v) {
                return any(v < Tensor::of<float>({0, std::nanf("")}));
              }),
              1.f, {"while_loop 'unlimited'", "Less", "NaN"});
  // A loop over constants alone, which passes compute beforehand.
  ends_by_nan(
      [](const Expr& x) {
        const Expr none = x.reader().constant(std::nanf(""));
        return while_loop([&](Expr v) { return logical_and(v < 10.0, none < 1.0); },
                          [](Expr v) { return v * 2.0; }, x, {.name = "unlimited"});
      },
      1.f, {"while_loop 'unlimited'", "Less", "NaN"});
  Graph g;
  const Expr y = loop([=](Expr v) { return v < nan; })(g.constant(1.f));
  BOOST_TEST(says(refused([&] { Engine({.workers = 1}).run(g, {}, {y}); }), {"a constant", "NaN"}));
}

BOOST_AUTO_TEST_CASE(check_names_the_compared_one_of_several_nan_variables) {
  const NanLoop two = [](const Expr& x) {
    return std::get<1>(while_loop([](Expr, Expr v) { return v < 10.0; },
                                  [](Expr a, Expr v) {
                                    return std::tuple{a, v * 2.0};
                                  },
                                  std::tuple{x, x}, {.name = "two"}));
  };
  BOOST_TEST(ends_by_nan(two, std::nanf(""), {"while_loop 'two'", "Less", "variable 1"}));
}

namespace {

// Fed NaN, `write` builds a program that fails and leaves `v` at 1, however often; fed 1 it yields
// `after`.
void writes_nothing(const std::function<Expr(Graph&, const Expr& x, const Variable& v)>& write,
                    double after, int runs = 40) {
  for (const Setting& s : all_settings()) {
    Graph g;
    const Variable v = g.variable("v", Tensor::scalar(1.f));
    const Expr x = g.input("x", DType::f32, Shape{}), written = write(g, x, v);
    Somewhere there(s);
    for (int r = 0; r < (s.nodes > 1 ? 20 : runs); ++r) {
      const std::string why = refused([&] {
        there.engine().run(g, {{x, Tensor::scalar(std::nanf(""))}}, {written});
      });
      BOOST_REQUIRE_MESSAGE(says(why, {"while_loop 'grow'", "NaN"}), s.name << ": " << why);
      const float now = there.engine().get(v).item<float>();
      BOOST_REQUIRE_MESSAGE(now == 1.f, s.name << ": it is " << now << " after run " << r);
    }
    compare(there.engine().run(g, {{x, Tensor::scalar(1.f)}}, {written}), {V{after}}, s.name);
  }
}

Expr grown(const Expr& x) {
  return while_loop([](Expr v) { return v < 10.0; }, [](Expr v) { return v * 2.0; }, x,
                    {.name = "grow"});
}

}  // namespace

BOOST_AUTO_TEST_CASE(writes_after_a_loop_wait_for_its_check) {
  writes_nothing([](Graph&, const Expr& x, const Variable& v) { return v.assign(grown(x)); }, 16,
                 200);
  // It need not use what the loop yields; two loops, one of them in order.
  writes_nothing(
      [](Graph& g, const Expr& x, const Variable& v) {
        const Expr fine = grown(g.constant(1.f)), y = grown(x), written = v.assign_add(2.0);
        const auto later = g.after({y, fine});
        return written + y;
      },
      19);
  writes_nothing(
      [](Graph&, const Expr& x, const Variable& v) {
        return cond(
            logical_not(x > 100.0),
            [&] {
              const Expr y = grown(x);
              return v.assign(y);
            },
            [&] { return x; });
      },
      16);
  // In a branch after it, and after a branch that writes the same.
  writes_nothing(
      [](Graph&, const Expr& x, const Variable& v) {
        const Expr y = grown(x);
        return cond(
            logical_not(x > 100.0), [&] { return v.assign(y); }, [&] { return y; });
      },
      16);
  writes_nothing(
      [](Graph&, const Expr& x, const Variable& v) {
        const Expr y = cond(
            logical_not(x > 100.0),
            [&] {
              v.assign_add(0.0);
              return grown(x);
            },
            [&] { return x; });
        return v.assign_add(2.0) + y;
      },
      19);
  // In a body, in a loop after it, and after one in the condition.
  const auto twice = [](const Expr& start, auto body) {
    return std::get<1>(while_loop([](Expr i, Expr) { return i < 2; },
                                  [&](Expr i, Expr u) {
                                    return std::tuple{i + 1, body(u)};
                                  },
                                  std::tuple{0, start}));
  };
  writes_nothing(
      [&](Graph&, const Expr& x, const Variable& v) {
        return twice(x, [&](Expr u) { return v.assign(grown(u)); });
      },
      16);
  writes_nothing(
      [&](Graph&, const Expr& x, const Variable& v) {
        const Expr y = grown(x);
        return twice(y, [&](Expr u) { return v.assign(u); });
      },
      16);
  writes_nothing(
      [&](Graph& g, const Expr& x, const Variable& v) {
        const auto goes_on = [&](Expr i, Expr) {
          const Expr y = grown(x);
          return logical_and(i < 1, logical_or(is_nan(y), is_finite(y)));
        };
        return std::get<1>(while_loop(
            goes_on,
            [&](Expr i, Expr u) {
              return std::tuple{i + 1, v.assign(u + 1.0)};
            },
            std::tuple{g.constant(0), x}));
      },
      2);
  // In a function, inlined and not.
  writes_nothing(
      [](Graph& g, const Expr& x, const Variable& v) {
        One f(g, "f", {kReal}, [&](Expr u) { return v.assign(grown(u)); });
        return f(x);
      },
      16);
  writes_nothing(
      [](Graph& g, const Expr& x, const Variable& v) {
        One f(g, "f", {kReal}, {kReal});
        f.define([&](Expr u) {
          const Expr y = grown(u), written = v.assign(y);
          return cond(
              y > 1000.0, [&] { return f(y); }, [&] { return written; });
        });
        return f(x);
      },
      16);
}

// A write does not wait for a loop that waits for what comes after the write.
BOOST_AUTO_TEST_CASE(a_write_waits_for_no_loop_that_waits_for_a_queue) {
  for (const Setting& s : all_settings()) {
    Graph g;
    const Variable v = g.variable("v", Tensor::scalar(0.f));
    const Queue q = g.fifo_queue("q", {kReal}, 10);
    const Expr y = while_loop([](Expr u) { return u < 2.5; },
                              [&](Expr u) { return u + q.dequeue()[0]; }, g.constant(0.f));
    const Expr written = v.assign(3.0);
    Exprs fetches{y, written};
    {
      const auto later = g.after({written});
      for (int i = 0; i < 3; ++i) fetches.push_back(q.enqueue({1.f}));
    }
    Somewhere there(s);
    const std::vector<Tensor> got =
        there.engine().run(g, {}, fetches, {.timeout = std::chrono::seconds(60)});
    BOOST_TEST((got[0].item<float>() == 3.f && got[1].item<float>() == 3.f), s.name);
  }
}

// A loop over what a Switch by hand has left dead is dead, and what is written after it is not.
BOOST_AUTO_TEST_CASE(a_write_waits_for_no_dead_loop) {
  for (const Setting& s : all_settings()) {
    Graph g;
    const Variable v = g.variable("v", Tensor::scalar(0.f));
    const Expr p = g.input("p", DType::boolean, Shape{}), x = g.constant(1.f);
    const auto [if_false, if_true] = control::switch_(x, p);
    const Expr y = control::merge({grown(if_true), if_false}).value, written = v.assign_add(3.0);
    Somewhere there(s);
    compare(there.engine().run(g, {{p, Tensor::scalar(false)}}, {y, written}), {V{1}, V{3}},
            s.name);
    compare(there.engine().run(g, {{p, Tensor::scalar(true)}}, {y, written}), {V{16}, V{6}},
            s.name);
  }
}

BOOST_AUTO_TEST_CASE(nan_is_reported_in_functions) {
  const float nan = std::nanf("");
  ends_by_nan(
      [](const Expr& x) {
        return One(x.reader(), "f", {kReal}, [](Expr v) { return grown(v * 1.5); })(x);
      },
      nan, {"while_loop 'grow'", "Less", "NaN"});
  ends_by_nan(
      [](const Expr& x) {  // it calls itself
        One f(x.reader(), "f", {kReal}, {kReal});
        f.define([&](Expr v) {
          const Expr y = grown(v);
          return cond(
              y > 1000.0, [&] { return f(y); }, [&] { return y * 2.0; });
        });
        return f(x);
      },
      nan, {"while_loop 'grow'", "Less", "NaN"});
}

BOOST_AUTO_TEST_CASE(a_loop_that_is_not_run_is_not_looked_at) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        const Expr v = g.input("v", DType::f32, Shape{}), no = v > 0.0;
        One f(g, "f", {kReal}, [](Expr u) { return grown(u); });
        One down(g, "down", {kReal}, {kReal});
        down.define([&](Expr u) {
          return cond(
              u > 1000.0, [&] { return down(u); }, [&] { return grown(u); });
        });
        const auto unless = [&](auto yes) {
          return cond(
              no, [&] { return yes(v); }, [&] { return g.constant(7.f); });
        };
        return {{{v, Tensor::scalar(std::nanf(""))}},
                {unless(grown), unless(f), unless(down),
                 cond(
                     no, [&] { return f(down(v)); }, [&] { return g.constant(8.f); })}};
      },
      {V{7}, V{7}, V{7}, V{8}}, 3);
}

BOOST_AUTO_TEST_CASE(only_the_runs_in_flight_that_saw_nan_fail) {
  for (const Setting& s : all_settings()) {
    Graph g;
    const Expr x = g.input("x", DType::f32, Shape{}), y = grown(x);
    Somewhere there(s);
    for (int i = 0; i < 20; ++i) {
      RunHandle bad = there.engine().start(g, {{x, Tensor::scalar(std::nanf(""))}}, {y}),
                good = there.engine().start(g, {{x, Tensor::scalar(1.f)}}, {y});
      BOOST_TEST(says(refused([&] { bad.get(); }), {"while_loop 'grow'", "NaN"}), s.name);
      compare(good.get(), {V{16}}, s.name);
    }
  }
}

// The condition on one device and the body on another: with a limit from outside, one that is fed,
// and with a product that leaves the loop.
BOOST_AUTO_TEST_CASE(nan_is_reported_over_devices) {
  for (const char* there : {"cpu:1", "sim:1"})
    for (bool is_product : {false, true})
      for (const Setting& s : all_settings()) {
        Graph g;
        const Expr x = g.input("x", DType::f32, {2, 1}),
                   limit = g.input("limit", DType::f32, Shape{}),
                   turn = g.input("turn", DType::f32, {2, 2});
        const auto goes_on = [&](Expr v) {
          Expr norm = v;
          if (is_product) {
            auto d = g.on_device(there);
            norm = matmul(turn + 0.0, v);
          }
          auto d = g.on_device("cpu:0");
          return is_product ? any(norm < limit) : sum(norm) < limit;
        };
        const auto next = [&](Expr v) {
          auto d = g.on_device(there);
          return v * 2.0;
        };
        const Expr y = while_loop(goes_on, next, x, {.name = "far"});
        Somewhere somewhere(s);
        const float nan = std::nanf("");
        const auto run = [&](float of, float to) {
          return somewhere.engine().run(
              g,
              {{x, Tensor::of<float>({of, 1}, {2, 1})}, {limit, Tensor::scalar(to)}, {turn, kTurn}},
              {y});
        };
        BOOST_TEST(
            says(refused([&] { run(nan, 10); }), {"while_loop 'far'", "Less", "variable 0", "NaN"}),
            s.name << ", " << there);
        BOOST_TEST(says(refused([&] { run(1, nan); }),
                        {"while_loop 'far'", "Less", "from outside", "NaN"}),
                   s.name << ", " << there);
        compare(run(1, 10), {is_product ? V{16, 16} : V{8, 8}}, s.name);
      }
}

BOOST_AUTO_TEST_CASE(looking_once_more_changes_no_draw) {
  const auto drawn = [](bool of_floats) {
    Eager e;
    while_loop([=](Expr i, Expr x) { return of_floats ? x < 3.0 : i < 3; },
               [](Expr i, Expr x) {
                 return std::tuple{i + 1, x + 1.0};
               },
               std::tuple{e.constant(0), e.constant(0.f)});
    return e.random_uniform({4}).value();
  };
  BOOST_TEST(identical(drawn(true), drawn(false)));
}

BOOST_AUTO_TEST_CASE(nan_that_a_condition_asks_for_is_no_error) {
  const Build build = [](Graph& g) -> Scenario {
    Expr v = g.input("v", DType::f32, Shape{}), none = g.constant(0);
    auto steps = [&](auto predicate) {
      return std::get<0>(
          while_loop([=](Expr i, Expr x) { return logical_and(i < 3, predicate(x)); },
                     [](Expr i, Expr x) {
                       return std::tuple{i + 1, x * 2.0};
                     },
                     std::tuple{none, v}));
    };
    Expr untaken = cond(
        v > 0.0,
        [&] {
          return while_loop([](Expr x) { return x < 1.0; }, [](Expr x) { return x + 1.0; }, v);
        },
        [&] { return v * 0.f; });
    return {
        {{v, Tensor::scalar(std::nanf(""))}},
        {cond(
             v > 0.0, [&] { return none + 1; }, [&] { return none + 2; }),
         steps([](Expr x) { return x != x; }),
         steps([](Expr x) { return logical_not(is_finite(x)); }),
         steps([](Expr x) { return logical_and(is_finite(x), x < 10.0); }),
         steps([](Expr x) { return logical_or(x < 10.0, is_nan(x)); }),
         steps([](Expr x) { return logical_not(x >= 10.0); }), where(is_nan(untaken), 7.0, 8.0)}};
  };
  run_all_configurations(build, {V{2}, V{3}, V{3}, V{0}, V{3}, V{3}, V{7}});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
