// Gradients of loops on a device that cannot hold what the loops save: with swapping, the same bits
// as on one that can; without, out of memory.
#include <boost/test/unit_test.hpp>

#include <thread>

#include <troupe/devices/sim/sim_device.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(swap_test)

namespace {

constexpr int kWidth = 256;  // 1 KiB a vector

EngineOptions on_sim(std::uint64_t limit = 0) {
  EngineOptions o;
  o.workers = 2;
  o.default_device = "sim:0";
  o.sim.memory_limit = limit;
  o.sim.max_delay_us = 2;
  o.swap.threshold = 512;
  return o;
}

Tensor wave(double from, std::int64_t rows = 0) {
  std::vector<float> v;
  for (std::int64_t i = 0; i < kWidth * std::max<std::int64_t>(1, rows); ++i)
    v.push_back(static_cast<float>(std::sin(from + 0.37 * static_cast<double>(i))));
  return Tensor::of(v, rows ? Shape{rows, kWidth} : Shape{kWidth});
}

// One step of a recurrence with something to save; its own values are saved twice, as result and as
// input.
Expr step_of(const Expr& h, const Expr& w) { return tanh(h * w + sin(h)); }

Expr recurrence(const Expr& h, const Expr& w, int n) {
  auto [i_end, end] = while_loop([n](Expr i, Expr) { return i < n; },
                                 [&](Expr i, Expr v) {
                                   return std::tuple{i + 1, step_of(v, w)};
                                 },
                                 std::tuple{h.reader().constant(0), h});
  return end;
}

Scenario plain(Graph& g, int n = 60) {
  Expr h = g.input("h", DType::f32, {kWidth}), w = g.input("w", DType::f32, {kWidth});
  return {{{h, wave(0)}, {w, wave(1)}}, gradients(sum(recurrence(h, w, n)), {h, w})};
}

Scenario nested(Graph& g) {
  Expr h = g.input("h", DType::f32, {kWidth}), w = g.input("w", DType::f32, {kWidth});
  auto [i_end, end] = while_loop(
      [](Expr i, Expr) { return i < 8; },
      [&](Expr i, Expr v) {
        auto [j_end, inner] = while_loop([&](Expr j, Expr) { return j < i + 3; },
                                         [&](Expr j, Expr u) {
                                           return std::tuple{j + 1, step_of(u, w)};
                                         },
                                         std::tuple{g.constant(0), v});
        return std::tuple{i + 1,
                          cond(
                              i < 4, [&] { return inner * w; }, [&] { return step_of(inner, v); })};
      },
      std::tuple{g.constant(0), h});
  return {{{h, wave(0)}, {w, wave(1)}}, gradients(sum(end), {h, w})};
}

Scenario second_order(Graph& g) {
  Expr h = g.input("h", DType::f32, {kWidth}), w = g.input("w", DType::f32, {kWidth});
  Exprs d = gradients(sum(recurrence(h, w, 20)), {h, w});
  return {{{h, wave(0)}, {w, wave(1)}}, gradients(sum(d[0] * d[1]), {h, w})};
}

// A user's list, read from its ends, gathered and stacked, and differentiated.
Scenario out_of_order(Graph& g) {
  Expr h = g.input("h", DType::f32, {kWidth}), w = g.input("w", DType::f32, {kWidth});
  constexpr int kSteps = 30;
  auto [i_end, v_end, all] =
      while_loop([](Expr i, Expr, Expr) { return i < kSteps; },
                 [&](Expr i, Expr v, Expr list) {
                   Expr next = step_of(v, w);
                   return std::tuple{i + 1, next, list_push(list, next)};
                 },
                 std::tuple{g.constant(0), h, list_empty(g, {DType::f32, {kWidth}})});
  Expr list = all;
  auto [k_end, s] = while_loop(
      [](Expr k, Expr) { return k < kSteps / 2; },
      [&](Expr k, Expr t) {
        return std::tuple{k + 1, t + list_read(list, k) * list_read(list, kSteps - 1 - k)};
      },
      std::tuple{g.constant(0), h * 0.0});
  Expr picked =
      stop_gradient(list_gather(list, g.constant(Tensor::of<std::int32_t>({29, 3, 17, 3, 0}))));
  Expr y = sum(s) + sum(list_read(list, 17) * list_read(list, 3)) + sum(picked * picked);
  Exprs d = gradients(y, {h, w});
  return {{{h, wave(0)}, {w, wave(1)}}, {y, d[0], d[1]}};
}

// Its gradient is a product of two saved lists, of which the device holds few elements at a time.
Scenario product_of_lists(Graph& g) {
  Expr h = g.input("h", DType::f32, {64, 64}), w = g.input("w", DType::f32, {64, 64});
  auto [i_end, end] = while_loop([](Expr i, Expr) { return i < 150; },
                                 [&](Expr i, Expr v) {
                                   return std::tuple{i + 1, tanh(matmul(v, w))};
                                 },
                                 std::tuple{g.constant(0), h}, {.parallel_iterations = 4});
  std::vector<float> start(64 * 64), weights(64 * 64);
  for (std::size_t i = 0; i < start.size(); ++i)
    start[i] = 0.1f, weights[i] = 0.2f * std::sin(1.3f * static_cast<float>(i));
  return {{{h, Tensor::of<float>(start, {64, 64})}, {w, Tensor::of<float>(weights, {64, 64})}},
          gradients(sum(end), {w})};
}

// Part of the body elsewhere, with what it saves.
Scenario over_devices(Graph& g) {
  Expr h = g.input("h", DType::f32, {kWidth}), w = g.input("w", DType::f32, {kWidth});
  auto [i_end, end] = while_loop([](Expr i, Expr) { return i < 40; },
                                 [&](Expr i, Expr v) {
                                   Expr u = step_of(v, w);
                                   auto there = g.on_device("cpu:1");
                                   return std::tuple{i + 1, step_of(u, w)};
                                 },
                                 std::tuple{g.constant(0), h}, {.parallel_iterations = 3});
  return {{{h, wave(0)}, {w, wave(1)}}, gradients(sum(end), {h, w})};
}

// The results without swapping, and the peak of a device's memory.
struct Unlimited {
  std::uint64_t peak;
  std::vector<Tensor> values;
};
Unlimited unlimited(const Build& build, const EngineOptions& options = on_sim()) {
  Graph g;
  Scenario s = build(g);
  Engine engine(options);
  std::vector<Tensor> values = engine.run(g, s.feeds, s.fetches);
  return {engine.device("sim:0").allocator().counters().peak, std::move(values)};
}

void check_identical(const std::vector<Tensor>& got, const std::vector<Tensor>& expected,
                     const std::string& where) {
  BOOST_REQUIRE_EQUAL(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    BOOST_TEST(identical(got[i], expected[i]), where << ": fetch " << i << " differs");
}

// In `share` of the memory that it takes: fails without swapping, succeeds with it, in every way to
// run it.
void swaps(const Build& build, double share, bool all_lists = false) {
  const Unlimited free = unlimited(build);
  const auto limit = static_cast<std::uint64_t>(share * static_cast<double>(free.peak));
  {
    Graph g;
    Scenario s = build(g);
    EngineOptions o = on_sim(limit);
    o.swap.is_on = false;
    Engine engine(o);
    const std::string why = refused([&] { engine.run(g, s.feeds, s.fetches); });
    BOOST_TEST(
        says(why, {"out of device memory", "of " + std::to_string(limit) + " in use on sim:0",
                   "swapping of saved values is off"}),
        why);
  }
  struct Way {
    const char* name;
    bool is_deterministic;
    std::uint64_t seed;
    std::uint32_t delay;
    int prefetch;
  };
  for (const Way& way : {Way{"at once", false, 0, 0, 4},
                         {"delays 1", false, 1, 20, 4},
                         {"delays 2", false, 2, 20, 1},
                         {"stepped 1", true, 1, 2, 2},
                         {"stepped 2", true, 2, 2, 0}}) {
    Graph g;
    Scenario s = build(g);
    EngineOptions o = on_sim(limit);
    o.deterministic = way.is_deterministic;
    o.seed = way.seed;
    o.sim.max_delay_us = way.delay;
    o.swap.prefetch = way.prefetch;
    o.swap.all_lists = all_lists;
    Engine engine(o);
    Function f = [&] {
      Exprs keys;
      for (const auto& feed : s.feeds) keys.push_back(feed.first);
      return engine.compile(g, keys, s.fetches);
    }();
    std::vector<Tensor> values;
    for (const auto& feed : s.feeds) values.push_back(feed.second);
    for (int run = 0; run < 2; ++run) {
      try {
        check_identical(f(values), free.values, way.name);
      } catch (const Error& e) { BOOST_ERROR(way.name << ": " << e.what()); }
    }
    const SwapCounters c = engine.device("sim:0").swapper()->counters();
    const AllocatorCounters memory = engine.device("sim:0").allocator().counters();
    BOOST_TEST((c.out_bytes > 0 && c.in_bytes > 0 && c.made_room > 0), way.name);
    BOOST_TEST(memory.peak <= limit);
    BOOST_TEST(c.on_host == 0u);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_loop_that_saves_more_than_the_device_holds) {
  swaps([](Graph& g) { return plain(g); }, 0.3);
}
BOOST_AUTO_TEST_CASE(products_of_lists_on_a_small_device) { swaps(product_of_lists, 0.4); }
BOOST_AUTO_TEST_CASE(nested_loops_and_branches) { swaps(nested, 0.4); }
BOOST_AUTO_TEST_CASE(gradients_of_gradients) { swaps(second_order, 0.4); }
BOOST_AUTO_TEST_CASE(lists_of_users_read_in_any_order) { swaps(out_of_order, 0.7, true); }
BOOST_AUTO_TEST_CASE(saved_on_several_devices) { swaps(over_devices, 0.4); }

BOOST_AUTO_TEST_CASE(only_saved_values_are_swapped_unless_it_is_asked_for) {
  for (bool all : {false, true}) {
    Graph g;
    Expr h = g.input("h", DType::f32, {kWidth});
    auto [i_end, v_end, list] =
        while_loop([](Expr i, Expr, Expr) { return i < 20; },
                   [](Expr i, Expr v, Expr l) {
                     return std::tuple{i + 1, tanh(v), list_push(l, tanh(v))};
                   },
                   std::tuple{g.constant(0), h, list_empty(g, {DType::f32, {kWidth}})});
    EngineOptions o = on_sim(1 << 20);
    o.swap.fill_level = 0;
    o.swap.all_lists = all;
    Engine engine(o);
    engine.run(g, {{h, wave(0)}}, {list_read(list, 3)});
    BOOST_TEST((engine.device("sim:0").swapper()->counters().out > 0) == all);
  }
}

BOOST_AUTO_TEST_CASE(runs_in_flight_share_the_memory) {
  const Build build = [](Graph& g) { return plain(g, 30); };
  const Unlimited free = unlimited(build);
  Graph g;
  Scenario s = build(g);
  Engine engine(on_sim(free.peak));  // for one
  Function f = engine.compile(g, {s.feeds[0].first, s.feeds[1].first}, s.fetches);
  for (int round = 0; round < 3; ++round) {
    std::vector<RunHandle> runs;
    for (int i = 0; i < 4; ++i) runs.push_back(f.start({s.feeds[0].second, s.feeds[1].second}));
    for (RunHandle& run : runs) check_identical(run.get(), free.values, "in flight");
  }
  BOOST_TEST(engine.device("sim:0").swapper()->counters().made_room > 0u);
}

BOOST_AUTO_TEST_CASE(a_run_that_is_cancelled_or_fails_leaves_nothing_behind) {
  int stepped = 0, threaded = 0;  // runs that were cancelled
  for (bool is_deterministic : {false, true})
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      Graph g;
      Scenario s = plain(g, 60);
      Expr w = s.feeds[1].first;
      // A loop with an index that is out of range in iteration 50.
      Expr table = g.input("table", DType::f32, {50, 1});
      auto [i_end, h_end] = while_loop([](Expr i, Expr) { return i < 60; },
                                       [&](Expr i, Expr v) {
                                         return std::tuple{i + 1, step_of(v, w) * gather(table, i)};
                                       },
                                       std::tuple{g.constant(0), s.feeds[0].first});
      const Exprs broken = gradients(sum(h_end), {w});
      EngineOptions o = on_sim(25 * kWidth * sizeof(float));
      o.deterministic = is_deterministic;
      o.seed = seed;
      o.sim.max_delay_us = 20;
      Engine engine(o);
      Device& device = engine.device("sim:0");
      Function f = engine.compile(g, {s.feeds[0].first, w}, s.fetches),
               fails = engine.compile(g, {s.feeds[0].first, w, table}, broken);
      const std::vector<Tensor> values{s.feeds[0].second, s.feeds[1].second};
      const std::vector<Tensor> expected = f(values);
      auto in_use = [&] {
        device.compute_stream()->synchronize();
        return device.allocator().counters().in_use;
      };
      const std::uint64_t before = in_use();
      // With threads a run may end before it is cancelled: some more, until one does not.
      for (int round = 0;
           round < 3 || (!is_deterministic && seed == 4 && threaded == 0 && round < 500); ++round) {
        const std::uint64_t already = device.swapper()->counters().out;
        RunHandle run = f.start(values);
        const std::uint64_t enough = already + 5 * static_cast<std::uint64_t>(round % 3 + 1);
        while (device.swapper()->counters().out < enough && !run.is_done()) {
          if (is_deterministic) engine.take_step();
          else std::this_thread::yield();
        }
        run.cancel();
        const Status status = run.wait();
        BOOST_TEST((status.code() == Code::cancelled || (!is_deterministic && status.ok())),
                   status.message());
        (is_deterministic ? stepped : threaded) += status.code() == Code::cancelled;
        const std::string why = refused([&] {
          fails({values[0], values[1], Tensor::zeros(DType::f32, {50, 1})});
        });
        BOOST_TEST(says(why, {"Gather"}), why);
        check_identical(f(values), expected, "after a run that was cancelled");
      }
      BOOST_TEST(device.swapper()->counters().on_host == 0u);
      BOOST_TEST(in_use() == before);
    }
  BOOST_TEST(stepped == 12);
  BOOST_TEST(threaded > 0);
}

BOOST_AUTO_TEST_CASE(a_device_that_is_too_small_is_reported) {
  Graph g;
  Scenario s = plain(g);
  for (std::uint64_t limit : {4, 5}) {
    Engine engine(on_sim(limit * kWidth * sizeof(float)));
    const std::string why = refused([&] { engine.run(g, s.feeds, s.fetches); });
    const std::string cap = std::to_string(limit * kWidth * sizeof(float)) + " in use on sim:0";
    BOOST_TEST(says(why, {"out of device memory: 1024 bytes wanted", cap, "in iteration", "of loop",
                          "swap_test.cpp", "raise the device's memory limit"}),
               why);
  }
  EngineOptions o = on_sim(40 * kWidth * sizeof(float));
  o.swap.host_limit = 10 * kWidth * sizeof(float);
  Engine engine(o);
  const std::string why = refused([&] { engine.run(g, s.feeds, s.fetches); });
  BOOST_TEST(
      says(why, {"out of device memory", "its limit is 10240", "swap.host_limit", "of loop"}), why);
}

BOOST_AUTO_TEST_CASE(copies_run_beside_the_loop) {
  Graph g;
  Scenario s = plain(g, 100);
  auto stalled = [&](int prefetch) {
    EngineOptions o = on_sim(40 * kWidth * sizeof(float));
    o.sim.is_traced = true;
    o.sim.speed = {.launch_ns = 0, .bytes_per_ns = 1, .flops_per_ns = 1, .copy_bytes_per_ns = 1};
    o.swap.prefetch = prefetch;
    Engine engine(o);
    engine.run(g, s.feeds, s.fetches);
    Device& device = engine.device("sim:0");
    const SwapCounters c = device.swapper()->counters();
    BOOST_TEST(c.in > 50u);
    if (prefetch) BOOST_TEST(c.ahead == c.in);
    else BOOST_TEST(c.ahead == 0u);
    double now = 0, busy = 0;
    for (const SimSpan& span : trace_of(device))
      if (span.stream == "compute") busy += span.end - span.begin, now = span.end;
    return (now - busy) / now;
  };
  const double ahead = stalled(4), late = stalled(0);
  BOOST_TEST(ahead < 0.005);
  BOOST_TEST(late > 0.03);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
