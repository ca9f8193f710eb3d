// Control flow over several devices of one process: the same results, whatever part of a branch or
// a body runs where.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>

#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(several_devices)

namespace {

using V = std::vector<double>;
const std::vector<std::string> kDevices{"cpu:0", "cpu:1", "sim:1"};

}  // namespace

BOOST_AUTO_TEST_CASE(a_branch_on_another_device) {
  for (const std::string& there : kDevices)
    for (bool yes : {true, false})
      run_all_configurations(
          [&](Graph& g) -> Scenario {
            Expr x = g.input("x", DType::f32, {2}), p = g.input("p", DType::boolean, Shape{});
            Expr y = x * 2.0;
            Expr r = cond(
                p,
                [&] {
                  auto d = g.on_device(there);
                  return y + 1.0;
                },
                [&] { return y - 1.0; });
            return {{{x, Tensor::of<float>({1, 2})}, {p, Tensor::scalar(yes)}}, {r, y}};
          },
          {yes ? V{3, 5} : V{1, 3}, V{2, 4}}, 3);
}

BOOST_AUTO_TEST_CASE(part_of_a_body_on_another_device) {
  for (const std::string& there : kDevices)
    for (int parallel : {1, 2, 32})
      run_all_configurations(
          [&](Graph& g) -> Scenario {
            Expr x0 = g.ones(DType::f32, {2});
            auto [n, x, s] = while_loop([](Expr i, Expr, Expr) { return i < 20; },
                                        [&](Expr i, Expr y, Expr t) {
                                          Expr z;
                                          {
                                            auto d = g.on_device(there);
                                            z = y * 1.5;
                                          }
                                          return std::tuple{i + 1, z * 0.8, t + z};
                                        },
                                        std::tuple{g.constant(0), x0, x0 * 0.0},
                                        {.parallel_iterations = parallel});
            return {{}, {n, x, s}};
          },
          [] {
            double a = 1, b = 0;
            for (int i = 0; i < 20; ++i) b += a * 1.5, a = a * 1.5 * 0.8;
            return std::vector<V>{V{20}, V{a, a}, V{b, b}};
          }(),
          2);
}

BOOST_AUTO_TEST_CASE(a_variable_that_is_used_from_several_devices) {
  for (const std::string& home : {std::string(), std::string("cpu:1"), std::string("sim:1")})
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Variable v;
          {
            auto d = g.on_device(home);
            v = g.variable("v", Tensor::of<float>({1, 2}));
          }
          Exprs seen;
          for (const std::string& there : kDevices) {
            auto d = g.on_device(there);
            Expr n = while_loop([](Expr i) { return i < 3; },
                                [&](Expr i) {
                                  v.assign_add(v * 1.0);
                                  return i + 1;
                                },
                                g.constant(0));
            auto later = g.after({n});
            seen.push_back(v + 0.0);
          }
          return {{}, seen};
        },
        {V{8, 16}, V{64, 128}, V{512, 1024}});
}

BOOST_AUTO_TEST_CASE(a_loop_variable_that_lives_elsewhere) {
  for (const std::string& there : kDevices)
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Expr x0 = g.ones(DType::f32, {2});
          auto [n, x] = while_loop([](Expr i, Expr) { return i < 10; },
                                   [&](Expr i, Expr y) {
                                     auto d = g.on_device(there);
                                     return std::tuple{i + 1, y + y};
                                   },
                                   std::tuple{g.constant(0), x0});
          return {{}, {x, n}};
        },
        {V{1024, 1024}, V{10}}, 2);
}

BOOST_AUTO_TEST_CASE(a_predicate_that_is_computed_elsewhere) {
  for (const std::string& there : kDevices)
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Expr x = while_loop(
              [&](Expr y) {
                auto d = g.on_device(there);
                return sum(y) < 1000.0;
              },
              [](Expr y) { return y * 2.0; }, g.ones(DType::f32, {2}));
          return {{}, {x}};
        },
        {V{512, 512}}, 2);
}

BOOST_AUTO_TEST_CASE(nested_loops_over_devices) {
  for (const std::string& there : kDevices)
    for (int parallel : {1, 4})
      run_all_configurations(
          [&](Graph& g) -> Scenario {
            Expr a = g.constant(Tensor::of<float>({1, 2}));
            auto [n, s] =
                while_loop([](Expr i, Expr) { return i < 4; },
                           [&](Expr i, Expr t) {
                             auto [m, u] = while_loop([&](Expr j, Expr) { return j < i; },
                                                      [&](Expr j, Expr v) {
                                                        auto d = g.on_device(there);
                                                        return std::tuple{j + 1, v + a};
                                                      },
                                                      std::tuple{g.constant(0), t},
                                                      {.parallel_iterations = parallel});
                             Expr c = cond(
                                 i < 2,
                                 [&] {
                                   auto d = g.on_device(there);
                                   return u * 1.0;
                                 },
                                 [&] { return u + 0.0; });
                             return std::tuple{i + 1, c};
                           },
                           std::tuple{g.constant(0), a * 0.0}, {.parallel_iterations = parallel});
            return {{}, {s, n}};
          },
          {V{6, 12}, V{4}}, 2);
}

BOOST_AUTO_TEST_CASE(a_fast_producer_is_bounded_by_its_consumer) {
  // The leader has nothing to wait for; what the other device does with each value takes it a
  // while.
  for (int parallel : {1, 3}) {
    Graph g;
    Expr x = g.ones(DType::f32, {40, 40});
    auto [n, s] =
        while_loop([](Expr i, Expr) { return i < 200; },
                   [&](Expr i, Expr t) {
                     Expr y = x * cast(i, DType::f32), next = i + 1;
                     auto d = g.on_device("cpu:1");
                     return std::tuple{next, t + sum(matmul(y, y))};
                   },
                   std::tuple{g.constant(0), g.constant(0.f)}, {.parallel_iterations = parallel});
    EngineOptions one;
    one.workers = 1;  // the leader has its turn of two thousand firings first
    Engine engine(one);
    Function f = engine.compile(g, {}, {n, s});
    double expected = 0;
    for (int i = 0; i < 200; ++i) expected += 64000.0 * i * i;
    for (int round = 0; round < 2; ++round) {
      std::vector<Tensor> out = f({});
      BOOST_TEST(out[0].item<std::int32_t>() == 200);
      BOOST_TEST(out[1].at(0) == expected, boost::test_tools::tolerance(1e-3));
    }
    std::uint64_t held = 0;
    for (const LoopReport& r : f.loops()) {
      BOOST_TEST(r.most_parallel <= static_cast<std::uint64_t>(parallel));
      held += r.held_tokens;
    }
    BOOST_TEST(held > 0u);  // the limit was seen to bind
  }
}

BOOST_AUTO_TEST_CASE(bytes_on_an_edge_are_bounded) {
  constexpr std::uint64_t kToken = 64 << 10;
  for (const std::uint64_t limit :
       {std::uint64_t{1}, kToken, 5 * kToken / 2, std::uint64_t{1} << 30}) {
    Graph g;
    Expr x = g.ones(DType::f32, {128, 128});
    auto [n, s] =
        while_loop([](Expr i, Expr) { return i < 100; },
                   [&](Expr i, Expr t) {
                     Expr y = x * cast(i, DType::f32), next = i + 1;
                     auto d = g.on_device("cpu:1");
                     return std::tuple{next, t + sum(matmul(y, y))};
                   },
                   std::tuple{g.constant(0), g.constant(0.f)}, {.parallel_iterations = 16});
    EngineOptions one;
    one.workers = 1;  // the leader has its turn of two thousand firings first
    one.edges.bytes = limit;
    Engine engine(one);
    Function f = engine.compile(g, {}, {n, s});
    double expected = 0;
    for (int i = 0; i < 100; ++i) expected += 128.0 * 128 * 128 * i * i;
    for (int round = 0; round < 2; ++round)
      BOOST_TEST(f({})[1].at(0) == expected, boost::test_tools::tolerance(1e-3));
    std::uint64_t held = 0, most = 0;
    for (const LoopReport& r : f.loops())
      held += r.held_by_bytes, most = std::max(most, r.most_bytes_on_way);
    BOOST_TEST_CONTEXT("limit " << limit) {
      BOOST_TEST((held > 0) == (limit < 16 * kToken));       // it was seen to bind
      BOOST_TEST(most <= std::max(limit, kToken) + kToken);  // besides the oldest iteration's
      BOOST_TEST(most >= std::min(limit, 16 * kToken) / kToken * kToken);
    }
  }
}

BOOST_AUTO_TEST_CASE(errors_and_cancellation_end_loops_everywhere) {
  for (const std::string& there : kDevices) {
    Graph g;
    Expr table = g.constant(Tensor::of<float>({1, 2, 3}));
    auto [n, s] = while_loop([](Expr i, Expr) { return i < 1000000000; },
                             [&](Expr i, Expr t) {
                               Expr r;
                               {
                                 auto d = g.on_device(there);
                                 r = gather(table, reshape(minimum(i, 1000000), {1}));
                               }
                               return std::tuple{i + 1, t + r};
                             },
                             std::tuple{g.constant(0), g.zeros(DType::f32, {1})});
    Engine engine;
    for (int round = 0; round < 3; ++round) {
      BOOST_CHECK_EXCEPTION(engine.run(g, {}, {s}), Error, [](const Error& e) {
        return std::string(e.what()).find("Gather") != std::string::npos;
      });
    }
  }
}

// The predicate of a loop in a device's memory ended the process: it was taken for a scalar on the
// device's thread.
BOOST_AUTO_TEST_CASE(a_predicate_that_is_no_scalar_is_refused_everywhere) {
  for (const Setting& s : all_settings())
    for (bool is_loop : {false, true}) {
      Graph g;
      Expr limit = g.input("limit", DType::f32, Shape::unknown()), x = g.constant(1.f);
      Expr y = is_loop ? while_loop([&](Expr v) { return v < limit; },
                                    [](Expr v) { return v + 1.0; }, x, {.name = "choose"})
                       : cond(
                             x < limit, [&] { return x + 1.0; }, [&] { return x + 2.0; },
                             {.name = "choose"});
      Somewhere there(s);
      BOOST_TEST(says(refused([&] {
                        there.engine().run(g, {{limit, Tensor::of<float>({2, 3})}}, {y});
                      }),
                      {"predicate must be a scalar, not [2]", "choose", "devices_test.cpp:"}),
                 s.name << is_loop);
      BOOST_TEST(
          there.engine().run(g, {{limit, Tensor::scalar(3.f)}}, {y})[0].at(0) == (is_loop ? 3 : 2),
          s.name);
    }
}

// Each list within a list took a frame of the stack: on its way, and where two cotangents of it
// were added.
BOOST_AUTO_TEST_CASE(lists_nested_deep_go_to_other_devices_and_back) {
  constexpr int deep = 100'000;
  for (const std::string& there : kDevices) {
    Graph g;
    Expr x = g.input("x", DType::f32, Shape{});
    Expr nested = std::get<1>(
        while_loop([](Expr i, Expr) { return i < deep; },
                   [&](Expr i, Expr l) {
                     return std::tuple{i + 1, list_push(list_push(list_of_any(l.reader()), x), l)};
                   },
                   std::tuple{g.constant(0), list_of_any(g)}));
    const auto sum_of = [&](double factor) {
      return std::get<2>(while_loop(
          [](Expr i, Expr, Expr) { return i < deep; },
          [&](Expr i, Expr l, Expr s) {
            auto [rest, inner] =
                list_pop(l, ValueSpec{DType::f32, Shape::unknown(), ValueSpec::kAnyDepth});
            return std::tuple{i + 1, inner,
                              s + list_pop(rest, {DType::f32, Shape{}}).value * factor};
          },
          std::tuple{g.constant(0), nested, g.constant(0.f)}));
    };
    Expr y = sum_of(1);
    {
      auto d = g.on_device(there);
      y = y + sum_of(2);
    }
    const std::vector<Tensor> out =
        Engine().run(g, {{x, Tensor::scalar(1.f)}}, {y, gradients({y}, {x})[0]});
    for (const Tensor& t : out) BOOST_TEST(t.at(0) == 3.0 * deep, there);
  }
}

// A token names the iterations of all loops around it.
BOOST_AUTO_TEST_CASE(twelve_loops_may_be_cut_and_no_more) {
  const auto nested = [](Graph& g, int loops) {
    const std::function<Expr(int, Expr)> at = [&](int depth, Expr x) -> Expr {
      if (depth == 0) {
        auto d = g.on_device("cpu:1");
        return x + 1.0;
      }
      return std::get<1>(while_loop([](Expr i, Expr) { return i < 2; },
                                    [&](Expr i, Expr v) {
                                      return std::tuple{i + 1, at(depth - 1, v)};
                                    },
                                    std::tuple{g.constant(0), x}));
    };
    return at(loops, g.constant(0.f));
  };
  for (int loops : {7, 12}) {
    Graph g;
    BOOST_TEST(Engine().run(g, {}, {nested(g, loops)})[0].at(0) == std::pow(2, loops));
  }
  Graph g;
  Expr y = nested(g, 13);
  BOOST_CHECK_EXCEPTION(Engine().run(g, {}, {y}), Error, [](const Error& e) {
    const std::string text = e.what();
    return text.find("devices_test.cpp:") != std::string::npos &&
           text.find("inside 13 loops") != std::string::npos &&
           text.find("graph.on_device") != std::string::npos;
  });
}

// ---- what does not cross

// Values that the reads in it wait for enter it there, too.
BOOST_AUTO_TEST_CASE(a_loop_that_is_all_on_one_device_sends_nothing) {
  Graph g;
  auto there = g.on_device("cpu:1");
  const Variable a = g.variable("a", Tensor::of<float>({1, 2}));
  Expr first = a.assign_add(1.0);
  auto [n, s] = while_loop([](Expr i, Expr) { return i < 3; },
                           [&](Expr i, Expr t) {
                             return std::tuple{i + 1, t + a};
                           },
                           std::tuple{g.constant(0), g.zeros(DType::f32, {2})});
  Engine engine;
  Function f = engine.compile(g, {}, {s, first});
  const std::string text = f.explain();
  BOOST_TEST(text.find("each iteration") == std::string::npos, text);
  BOOST_TEST(f({})[0].to_vector<float>() == (std::vector<float>{6, 9}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
