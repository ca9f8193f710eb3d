// A user's own actor inside branches and loops: it fires as a state changes, in every iteration of
// the branch that is taken, in program order; its errors, restarts, cancellations and time-outs are
// those that it has outside.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include <troupe/ops/graph/actor_node.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(actor_in_control_flow_test)

namespace {

std::int64_t number(const Tensor& t) { return t.item<std::int64_t>(); }
Expr number(Graph& g, std::int64_t n) { return g.constant(n); }

/// Writes digits one after the other: what it saw, in which order, is one number.
struct Notebook : NodeActor {
  std::int64_t written = 0;
  void receive(std::span<const Tensor> in, std::span<Tensor> out) override {
    if (number(in[0]) == 13) throw Error(Code::out_of_range, "thirteen is no digit");
    written = written * 10 + number(in[0]);
    out[0] = Tensor::scalar(written);
  }
};
Expr note(Graph& g, Expr digit, ActorOptions options = {},
          std::source_location at = std::source_location::current()) {
  return actor_node<Notebook>(g, "notebook", {std::move(digit)}, {{DType::i64, Shape{}}}, options,
                              at)[0];
}

/// The number that is fetched, to the last digit, in every way to run it, as often as given.
void yields(const std::function<Expr(Graph&)>& build, std::vector<std::int64_t> expected) {
  for (const Setting& s : settings()) {
    Graph g;
    Expr fetch = build(g);
    Engine engine(options_of(s));
    for (std::int64_t e : expected) BOOST_TEST(number(engine.run(g, {}, {fetch})[0]) == e, s.name);
  }
  Graph g;
  Expr fetch = build(g);
  Eager interpreter;
  for (std::int64_t e : expected)
    BOOST_TEST(number(interpreter.run(g, {}, {fetch})[0]) == e, "interpreter");
}

/// Counts to n with `body(i)` in each iteration; yields what the last one did.
template <class Body>
Expr repeat(Graph& g, std::int64_t n, Body body, const WhileOptions& options = {},
            std::source_location at = std::source_location::current()) {
  auto [i, last] = while_loop([n](Expr k, Expr) { return k < n; },
                              [&](Expr k, Expr) {
                                return std::tuple{k + 1, body(k)};
                              },
                              std::tuple{number(g, 0), number(g, 0)}, options, at);
  return last;
}

/// Blocks each caller until it is opened.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    has_come_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_open_; });
  }
  void wait_for_somebody() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return has_come_; });
  }
  void open() {
    std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;  // guards has_come_ and is_open_
  std::condition_variable changed_;
  bool has_come_ = false, is_open_ = false;
};

}  // namespace

BOOST_AUTO_TEST_CASE(in_a_loop_it_fires_once_an_iteration_in_order) {
  for (bool blocks : {false, true})
    yields(
        [&](Graph& g) {
          return repeat(g, 4, [&](Expr i) { return note(g, i + 1, {.blocks = blocks}); });
        },
        {1234, 12341234});
}

BOOST_AUTO_TEST_CASE(nodes_of_one_actor_take_turns_and_unused_ones_fire) {
  yields(
      [](Graph& g) {
        auto after_first = g.after({note(g, number(g, 8))});
        Expr last = repeat(g, 3, [&](Expr i) {
          note(g, i);
          note(g, number(g, 7));
          return i;
        });
        auto after_loop = g.after({last});
        return note(g, number(g, 9));
      },
      {80717279});
}

BOOST_AUTO_TEST_CASE(without_inputs_it_fires_in_every_iteration) {
  yields(
      [](Graph& g) {
        return repeat(g, 50, [&](Expr) {
          return actor_node(
              g, "clock", {}, {{DType::i64, Shape{}}},
              [n = std::int64_t{0}](std::span<const Tensor>, std::span<Tensor> out) mutable {
                out[0] = Tensor::scalar(++n);
              })[0];
        });
      },
      {50, 100});
}

BOOST_AUTO_TEST_CASE(only_the_actors_of_the_taken_branch_fire) {
  yields(
      [](Graph& g) {
        return repeat(g, 5, [&](Expr i) {
          Expr is_odd = mod(i, 2) == 1;
          return cond(
              is_odd, [&] { return note(g, i); },
              [&] {
                cond(
                    i < 3, [&] { return note(g, number(g, 8)); }, [&] { return number(g, 0); });
                return note(g, number(g, 9));
              });
        });
      },
      {8918939});
}

BOOST_AUTO_TEST_CASE(before_inside_and_after_in_program_order) {
  yields(
      [](Graph& g) {
        Variable v = g.variable("v", Tensor::scalar(std::int64_t{0}));
        Expr first = note(g, number(g, 1));
        Expr last = repeat(g, 2, [&](Expr i) {
          note(g, i + 6);
          repeat(g, 2, [&](Expr) { return note(g, v.assign_add(1)); }, {.name = "inner"});
          return cond(
              i == 0, [&] { return note(g, number(g, 9)); }, [&] { return i; });
        });
        return note(g, number(g, 5)) + 0 * (first + last);
      },
      {161297345});
}

BOOST_AUTO_TEST_CASE(it_lives_on_the_host_wherever_the_loop_runs) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        auto [i, x] = while_loop(
            [](Expr k, Expr) { return k < 3; },
            [&](Expr k, Expr v) {
              Expr turned = actor_node(g, "turn", {v * 2.0}, {{DType::f32, Shape{3}}},
                                       [](std::span<const Tensor> in, std::span<Tensor> out) {
                                         std::vector<float> values = in[0].to_vector<float>();
                                         std::reverse(values.begin(), values.end());
                                         out[0] = Tensor::of<float>(values, {3});
                                       })[0];
              return std::tuple{k + 1, turned + 1.0};
            },
            std::tuple{number(g, 0), g.constant(Tensor::of<float>({1, 2, 3}, {3}))});
        return {{}, {x}};
      },
      {{31, 23, 15}}, 2);
}

BOOST_AUTO_TEST_CASE(an_actor_decides_whether_a_loop_goes_on) {
  yields(
      [](Graph& g) {
        return while_loop(
            [&](Expr i) {
              return actor_node(g, "door", {i}, {{DType::boolean, Shape{}}},
                                [](std::span<const Tensor> in, std::span<Tensor> out) {
                                  out[0] = Tensor::scalar(number(in[0]) % 10 != 7);
                                })[0];
            },
            [](Expr i) { return i + 1; }, number(g, 1));
      },
      {7, 7});
}

BOOST_AUTO_TEST_CASE(gradient_takes_actor_outputs_as_constants_without_refiring) {
  for (const Setting& s : settings()) {
    Graph g;
    Variable w = g.variable("w", Tensor::scalar(2.0));
    auto [i, total] =
        while_loop([](Expr k, Expr) { return k < 3; },
                   [&](Expr k, Expr sum) {
                     return std::tuple{k + 1, sum + w * cast(note(g, k + 1), DType::f64)};
                   },
                   std::tuple{number(g, 0), g.constant(0.0)});
    Expr dw = gradients(total, w)[0];
    auto after = g.after({dw});
    Expr seen = note(g, number(g, 4));
    Engine engine(options_of(s));
    std::vector<Tensor> out = engine.run(g, {}, {dw, seen});
    BOOST_TEST(out[0].item<double>() == 1 + 12 + 123, s.name);
    BOOST_TEST(number(out[1]) == 1234, s.name);
  }
}

BOOST_AUTO_TEST_CASE(an_error_names_actor_loop_and_line_and_a_fresh_actor_goes_on) {
  for (bool blocks : {false, true})
    for (const Setting& s : settings()) {
      Graph g;
      Expr bad = g.input("bad", DType::i64, Shape{});
      const unsigned line = __LINE__ + 5;
      auto body = [&](Expr i) {
        return cond(
            i == bad,
            [&] {
              return note(g, number(g, 13), {blocks, 1});
            },
            [&] {
              return note(g, i, {blocks, 1});
            });
      };
      Engine engine(options_of(s));
      Function f = engine.compile(g, {bad}, {repeat(g, 4, body, {.name = "play"})});
      auto run = [&](std::int64_t n) { return number(f({Tensor::scalar(n)})[0]); };
      const std::string where = ":" + std::to_string(line) + ")";
      auto fails = [&](std::initializer_list<std::string> parts) {
        BOOST_TEST(says(refused([&] { run(2); }), parts), s.name);
      };
      BOOST_TEST(run(-1) == 123, s.name);
      fails({"'play/", "actor_in_control_flow_test.cpp", where,
             "actor 'notebook': thirteen is no digit"});
      BOOST_TEST(run(-1) == 123, s.name);  // a fresh one
      for (int i = 0; i < 2; ++i) run(-1);
      // One failure in a row may be followed by another life, two may not.
      auto fails_at_once = [&] { return refused([&] { run(0); }); };
      BOOST_TEST(says(fails_at_once(), {"thirteen"}), s.name);
      BOOST_TEST(says(fails_at_once(), {"thirteen"}), s.name);
      BOOST_TEST(says(fails_at_once(), {"'play/", "actor 'notebook' is down", "2 times"}), s.name);
    }
}

BOOST_AUTO_TEST_CASE(a_loop_without_an_end_is_cancelled) {
  for (int workers : {1, 2}) {
    Graph g;
    auto gate = std::make_shared<Gate>();
    auto body = [&](Expr i) {
      return actor_node(g, "guard", {i}, {{DType::i64, Shape{}}},
                        [gate](std::span<const Tensor> in, std::span<Tensor> out) {
                          if (number(in[0]) == 100) gate->pass();
                          out[0] = Tensor::scalar(number(in[0]) + 1);
                        },
                        {.blocks = true})[0];
    };
    Expr end = g.input("end", DType::i64, Shape{});
    Expr last = while_loop([&](Expr i) { return i != end; }, body, number(g, 0));
    Engine engine({.workers = workers});
    Function f = engine.compile(g, {end}, {last});
    RunHandle run = f.start({Tensor::scalar(std::int64_t{-1})});
    gate->wait_for_somebody();
    run.cancel();
    BOOST_TEST((run.wait().code() == Code::cancelled));  // though the guard still holds its firing
    RunHandle next = f.start({Tensor::scalar(std::int64_t{200})});
    BOOST_TEST(!next.is_done());
    gate->open();
    BOOST_TEST(number(next.get()[0]) == 200);
  }
}

BOOST_AUTO_TEST_CASE(a_loop_without_an_end_meets_its_time_out) {
  for (std::uint64_t seed : {1, 2, 3}) {
    Graph g;
    Expr last = while_loop([](Expr i) { return i >= 0; },
                           [&](Expr) { return note(g, number(g, 0)); }, number(g, 0));
    Engine engine({.seed = seed, .deterministic = true});
    Function f = engine.compile(g, {}, {last});
    RunHandle run = f.start({}, {.timeout = std::chrono::seconds(5)});
    for (int i = 0; i < 1000; ++i) BOOST_REQUIRE(engine.take_step());
    engine.advance_time(std::chrono::seconds(4));
    for (int i = 0; i < 1000; ++i) BOOST_REQUIRE(engine.take_step());
    BOOST_TEST(!run.is_done());
    engine.advance_time(std::chrono::seconds(2));
    BOOST_TEST((run.wait().code() == Code::deadline_exceeded));
    while (engine.take_step()) {}  // and it comes to rest
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
