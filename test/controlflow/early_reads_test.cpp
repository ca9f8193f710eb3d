// Reads of variables in loops that stay whole: one read before the loop, against the lowered form.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <tuple>

#include <troupe/test/support/resident_forms.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(early_reads_test)

using namespace forms;

namespace {

Tensor f32(float v) { return Tensor::scalar(v); }
Tensor vector(std::vector<float> v) {
  const auto n = static_cast<std::int64_t>(v.size());
  return Tensor::of<float>(v, {n});
}

// Both forms in turn on engines of their own; the resident one's explanation is returned.
std::string agree_where_some_are_lowered(const Make& make, const Tensor& x) {
  const Told resident = run_resident(make, x, true), lowered = run_resident(make, x, false);
  BOOST_TEST(resident.error == lowered.error);
  BOOST_REQUIRE_EQUAL(resident.values.size(), lowered.values.size());
  for (std::size_t i = 0; i < resident.values.size(); ++i)
    BOOST_TEST(is_same(resident.values[i], lowered.values[i]),
               "fetch " << i << ": " << resident.values[i].text() << ", lowered "
                        << lowered.values[i].text());
  return resident.explanation;
}

void step_until_idle(Engine& engine) {
  for (int i = 0; i < 10'000 && engine.take_step(); ++i) {}
}

}  // namespace

BOOST_AUTO_TEST_CASE(body_reads_values_of_every_size) {
  const Make make = [](Graph& g, const Expr& x) {
    const Variable a = g.variable("a", f32(0.75f)), b = g.variable("b", vector({1, -2, 0.5f})),
                   w = g.variable("w", DType::f32, {3, 3}, Initializer::normal(0, 0.5)),
                   large = g.variable("large", DType::f32, {3, 200}, Initializer::normal(0, 0.1));
    auto [i_end, h_end, t_end] = while_loop(
        [](Expr i, Expr, Expr) { return i < 8; },
        [&](Expr i, Expr h, Expr t) {
          const Expr next = tanh(matmul(h, w) * a + b);
          return std::tuple{i + 1, next, t + sum(matmul(next, large)) * a.read()};
        },
        std::tuple{g.constant(0), reshape(x, {1, 3}), g.constant(0.f)}, {.name = "train"});
    return Exprs{i_end, h_end, t_end};
  };
  agree(make, vector({0.5f, -1, 2}));
  const std::string told = run_resident(make, vector({0.5f, -1, 2}), true).explanation;
  BOOST_TEST(has(told, "'train'"));
  BOOST_TEST(has(told, ": read once before it: ReadVariable"));
}

BOOST_AUTO_TEST_CASE(branches_and_inner_loops_read) {
  agree(
      [](Graph& g, const Expr& x) {
        const Variable a = g.variable("a", f32(0.75f)), b = g.variable("b", vector({1, -2}));
        auto [i_end, v_end] = while_loop(
            [](Expr i, Expr) { return i < 6; },
            [&](Expr i, Expr v) {
              const Expr one = cond(
                  i % 2 == 0,
                  [&] {
                    return cond(
                        i > 2, [&] { return v * a.read(); }, [&] { return v - b.read(); });
                  },
                  [&] { return v + x; });
              auto [k_end, w_end] = while_loop([&](Expr k, Expr) { return k < i; },
                                               [&](Expr k, Expr w) {
                                                 return std::tuple{k + 1, w * 0.5 + b.read()};
                                               },
                                               std::tuple{g.constant(0), one});
              return std::tuple{i + 1, w_end};
            },
            std::tuple{g.constant(0), x});
        return Exprs{i_end, v_end};
      },
      vector({0.5f, -1}));
}

BOOST_AUTO_TEST_CASE(loop_of_no_iterations_reads_in_vain) {
  agree(
      [](Graph& g, const Expr& x) {
        const Variable a = g.variable("a", f32(0.75f));
        return Exprs{std::get<1>(while_loop([](Expr i, Expr) { return i < 0; },
                                            [&](Expr i, Expr y) {
                                              return std::tuple{i + 1, y * a.read()};
                                            },
                                            std::tuple{g.constant(0), x}))};
      },
      f32(3));
}

BOOST_AUTO_TEST_CASE(loop_of_outer_values_reads_once_an_outer_iteration) {
  const std::string told = agree_where_some_are_lowered(
      [](Graph& g, const Expr& x) {
        const Variable a = g.variable("a", f32(0.75f)), runs = g.variable("runs", f32(0));
        auto [i_end, sum_end] = while_loop(
            [](Expr i, Expr) { return i < 4; },
            [&](Expr i, Expr sum) {
              const Expr inner =
                  std::get<1>(while_loop([](Expr k, Expr) { return k < 3; },
                                         [&](Expr k, Expr y) {
                                           return std::tuple{k + 1, y * a.read() + 1.0};
                                         },
                                         std::tuple{g.constant(0), x}, {.name = "inner"}));
              return std::tuple{i + 1, sum + inner * runs.assign_add(1.f)};
            },
            std::tuple{g.constant(0), g.constant(0.f)}, {.name = "outer"});
        return Exprs{i_end, sum_end};
      },
      f32(2));
  BOOST_TEST(has(told, ": read once before it: ReadVariable"), told);
}

BOOST_AUTO_TEST_CASE(reads_are_between_writes_in_program_order) {
  const std::string told = agree_where_some_are_lowered(
      [](Graph& g, const Expr& x) {
        const Variable a = g.variable("a", f32(0.75f));
        const auto power = [&](const char* name) {
          return std::get<1>(while_loop([](Expr i, Expr) { return i < 4; },
                                        [&](Expr i, Expr y) {
                                          return std::tuple{i + 1, y * a.read() + 1.0};
                                        },
                                        std::tuple{g.constant(0), x}, {.name = name}));
        };
        const Expr first = power("first"), set = a.assign(x), second = power("second"),
                   more = a.assign_add(2.0), third = power("third");
        // a lowered loop writes what the loop within reads, once an iteration
        auto [i_end, y_end] = while_loop(
            [](Expr i, Expr) { return i < 5; },
            [&](Expr i, Expr y) {
              const Expr inner =
                  std::get<1>(while_loop([](Expr k, Expr) { return k < 3; },
                                         [&](Expr k, Expr z) {
                                           return std::tuple{k + 1, z + a.read() * 0.5};
                                         },
                                         std::tuple{g.constant(0), y}, {.name = "inner"}));
              // all that it starts from is from outside of the lowered loop
              const Expr again = std::get<1>(while_loop([](Expr k, Expr) { return k < 2; },
                                                        [&](Expr k, Expr z) {
                                                          return std::tuple{k + 1, z * a.read()};
                                                        },
                                                        std::tuple{g.constant(0), x}));
              return std::tuple{i + 1, inner * 0.25 + again + a.assign(inner)};
            },
            std::tuple{g.constant(0), x}, {.name = "outer"});
        return Exprs{first, set, second, more, third, y_end, a.read()};
      },
      f32(1.5f));
  int resident = 0;
  for (std::size_t at = 0; (at = told.find(": resident, ", at)) != std::string::npos; ++at)
    ++resident;
  BOOST_TEST(resident == 5);
  BOOST_TEST(has(told, ": lowered: AssignVariable"));
}

// The loop fails in an iteration; what is written after it in program order stays unwritten.
BOOST_AUTO_TEST_CASE(writes_wait_for_the_end_of_the_loop) {
  for (const bool is_resident : {true, false}) {
    Engine engine({.deterministic = true});
    Graph g;
    const Expr x = g.input("x", DType::f32, {3});
    const Variable a = g.variable("a", f32(1));
    const Expr walked = std::get<1>(
        while_loop([](Expr i, Expr) { return i < 9000; },
                   [&](Expr i, Expr s) {
                     return std::tuple{i + 1, s + gather(x, floor_div(i, 2000)) * a.read()};
                   },
                   std::tuple{g.constant(0), g.constant(0.f)}, {.name = "walk"}));
    const Expr written = a.assign(7.0);
    const Function f = engine.compile(g, {x}, {walked, written}, {.resident_loops = is_resident});
    BOOST_TEST(has(f.explain(), is_resident ? ": resident" : ": lowered"));
    std::string error;
    try {
      (void)f({vector({1, 2, 3})});
    } catch (const Error& e) { error = e.what(); }
    BOOST_TEST(has(error, is_resident ? "in iteration 6000 of loop 'walk/1'" : "of loop 'walk/1'"));
    step_until_idle(engine);
    BOOST_TEST(engine.get(a).item<float>() == 1.f);
  }
}

// A run waits for an element that another enqueues after an assignment. The lowered form may
// read before, because its counter is there at once.
BOOST_AUTO_TEST_CASE(reads_wait_for_what_the_loop_waits_for) {
  Engine engine({.deterministic = true});
  Graph g;
  const Variable a = g.variable("a", f32(1));
  const Queue q = g.fifo_queue("q", {{DType::f32, Shape{}}}, 1);
  const Expr taken = q.dequeue()[0];
  const Expr product = std::get<1>(while_loop([](Expr i, Expr) { return i < 3; },
                                              [&](Expr i, Expr y) {
                                                return std::tuple{i + 1, y * a.read()};
                                              },
                                              std::tuple{g.constant(0), taken}));
  const Function f = engine.compile(g, {}, {product}, {});
  BOOST_TEST(has(f.explain(), ": resident"));
  RunHandle run = f.start({});
  step_until_idle(engine);
  BOOST_TEST(!run.is_done());
  engine.set(a, f32(2));
  Graph other;
  const Queue same = other.fifo_queue("q", {{DType::f32, Shape{}}}, 1);
  (void)engine.compile(other, {}, {same.enqueue({3.0})})({});
  BOOST_TEST(run.get()[0].item<float>() == 24.f);
}

// Another run ends the loop by an assignment: in its condition, by a value that the body reads for
// the next condition, and by one that adds up.
BOOST_AUTO_TEST_CASE(loops_that_wait_for_another_run_stay_lowered) {
  for (const int how : {0, 1, 2, 3}) {
    Engine engine({.deterministic = true});
    Graph g;
    const Variable flag = g.variable("flag", f32(0));
    const Expr none = g.constant(0.f);
    const auto counted = [](Expr, Expr seen) { return seen < 1.0; };
    const Expr start = g.constant(0);
    Exprs ends;
    if (how == 0)
      ends = {std::get<0>(while_loop([&](Expr, Expr) { return flag.read() < 1.0; },
                                     [](Expr i, Expr seen) {
                                       return std::tuple{i + 1, seen};
                                     },
                                     std::tuple{start, none}))};
    if (how == 1)
      ends = {std::get<0>(while_loop(
          counted,
          [&](Expr i, Expr) {
            return std::tuple{i + 1, flag.read()};
          },
          std::tuple{start, none}))};
    if (how == 2)
      ends = {std::get<0>(while_loop(
          counted,
          [&](Expr i, Expr seen) {
            return std::tuple{i + 1, seen + flag.read()};
          },
          std::tuple{start, none}))};
    if (how == 3)
      ends = {std::get<0>(while_loop(
          counted,
          [&](Expr i, Expr seen) {
            return std::tuple{i + 1,
                              cond(
                                  i % 2 == 0, [&] { return flag.read(); }, [&] { return seen; })};
          },
          std::tuple{start, none}))};
    const Function f = engine.compile(g, {}, ends);
    BOOST_TEST(has(f.explain(), ": lowered: ReadVariable"));
    BOOST_TEST(has(f.explain(), "decides whether it goes on, and another run may change that"));
    RunHandle run = f.start({});
    for (int i = 0; i < 200; ++i) BOOST_TEST_REQUIRE(engine.take_step());
    BOOST_TEST(!run.is_done());
    engine.set(flag, f32(1));
    for (int i = 0; i < 10'000 && !run.is_done(); ++i) (void)engine.take_step();
    BOOST_TEST_REQUIRE(run.is_done());
    BOOST_TEST(run.get()[0].item<std::int32_t>() > 0);
  }
}

BOOST_AUTO_TEST_CASE(loop_that_writes_keeps_its_reads) {
  const std::string told = agree_where_some_are_lowered(
      [](Graph& g, const Expr& x) {
        const Variable a = g.variable("a", f32(1)), b = g.variable("b", f32(1));
        const auto loop = [&](bool writes_same) {
          return std::get<1>(while_loop(
              [](Expr i, Expr) { return i < 3; },
              [&](Expr i, Expr y) {
                const Expr read = a.read();
                return std::tuple{i + 1, y + read + (writes_same ? a : b).assign_add(read)};
              },
              std::tuple{g.constant(0), x}));
        };
        return Exprs{loop(true), loop(false)};
      },
      f32(0.5f));
  BOOST_TEST(has(told, "uses a state"));
  BOOST_TEST(told.find("read once") == std::string::npos);
  BOOST_TEST(told.find(": resident") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(errors_beside_reads_name_iteration_and_line) {
  const std::string error = agree(
      [](Graph& g, const Expr& x) {
        const Variable table = g.variable("table", vector({3, 1, 4}));
        return Exprs{std::get<1>(while_loop([](Expr i, Expr) { return i < 9; },
                                            [&](Expr i, Expr s) {
                                              return std::tuple{i + 1, s + gather(table, i)};
                                            },
                                            std::tuple{g.constant(0), x}, {.name = "walk"}))};
      },
      f32(0));
  for (const char* part : {"Gather", "in iteration 3 of loop 'walk/1'", "early_reads_test.cpp"})
    BOOST_TEST(has(error, part));
}

BOOST_AUTO_TEST_CASE(gradients_of_loops_that_read) {
  agree(
      [](Graph& g, const Expr& x) {
        const Variable a = g.variable("a", f32(0.75f)), b = g.variable("b", f32(-0.5f));
        auto [i_end, y_end] = while_loop([](Expr i, Expr) { return i < 10; },
                                         [&](Expr i, Expr y) {
                                           return std::tuple{i + 1, tanh(y * a) + y * b * x};
                                         },
                                         std::tuple{g.constant(0), x});
        const Exprs first = gradients(y_end, {x, a, b});
        return Exprs{y_end, first[0], first[1], first[2], gradients(first[0], x)[0]};
      },
      f32(0.3f));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
