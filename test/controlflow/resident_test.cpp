// Loops that stay whole, against the lowered form of the same loop.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>

#include <troupe/controlflow/resident/resident_loop.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/scalar/machine_code.hpp>
#include <troupe/test/support/resident_forms.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(resident_test)

using namespace forms;

namespace {

Tensor f32(float v) { return Tensor::scalar(v); }
Tensor vector(std::vector<float> v) {
  const auto n = static_cast<std::int64_t>(v.size());
  return Tensor::of<float>(v, {n});
}

Expr second_of(const std::tuple<Expr, Expr>& both) { return std::get<1>(both); }

template <class T>
Exprs count_to(Graph& g, T first, T last) {
  return {while_loop([&](Expr i) { return i < g.constant(last); },
                     [&](Expr i) { return i + g.constant(T{1}); }, g.constant(first))};
}

std::string why(const Make& make, const Tensor& x, const EngineOptions& options = {}) {
  const std::string text = run_resident(make, x, true, options).explanation;
  const std::size_t at = text.find(": lowered: ");
  if (at == std::string::npos) return "not lowered: " + text;
  return text.substr(at + 11, text.find('\n', at) - at - 11);
}

}  // namespace

BOOST_AUTO_TEST_CASE(counters_of_every_usual_dtype) {
  agree([](Graph& g, const Expr&) { return count_to<float>(g, 0, 1000); }, f32(0));
  agree([](Graph& g, const Expr&) { return count_to<double>(g, 0.5, 1000); }, f32(0));
  agree([](Graph& g, const Expr&) { return count_to<std::int32_t>(g, -5, 1000); }, f32(0));
  agree([](Graph& g, const Expr&) { return count_to<std::int64_t>(g, -5, 1000); }, f32(0));
  agree([](Graph& g, const Expr&) { return count_to<std::uint8_t>(g, 3, 200); }, f32(0));
  agree([](Graph& g, const Expr&) { return count_to<float>(g, 9, 3); }, f32(0));  // none
}

BOOST_AUTO_TEST_CASE(scalar_arithmetic_of_many_kinds) {
  agree(
      [](Graph& g, const Expr& x) {
        auto [i_end, a_end, b_end, c_end, d_end] = while_loop(
            [](Expr i, Expr, Expr, Expr, Expr) { return i < 50; },
            [&](Expr i, Expr a, Expr b, Expr c, Expr d) {
              const Expr real = cast(i, DType::f32);
              return std::tuple{i + 1, sin(a) * x + real / 3.0, exp(-abs(b)) + tanh(a) - real * 0.1,
                                c * 31 + i, where(logical_and(a > b, real < 20.0), d + b, d - a)};
            },
            std::tuple{g.constant(0), x, x * 2.0, g.constant(1), g.constant(0.25f)});
        return Exprs{i_end, a_end, b_end, c_end, d_end};
      },
      f32(0.7f));
}

BOOST_AUTO_TEST_CASE(variables_that_swap_and_stay) {
  agree(
      [](Graph& g, const Expr& x) {
        auto [i_end, a_end, b_end, c_end, v_end, w_end] = while_loop(
            [](Expr i, Expr, Expr, Expr, Expr, Expr) { return i < 7; },
            [](Expr i, Expr a, Expr b, Expr c, Expr v, Expr w) {
              return std::tuple{i + 1, b, a + b, c, w, v + w};
            },
            std::tuple{g.constant(0), g.constant(0.f), g.constant(1.f), x[0], x, x * 2.0});
        return Exprs{i_end, a_end, b_end, c_end, v_end, w_end};
      },
      vector({1, 2, 3}));
}

BOOST_AUTO_TEST_CASE(tensors_and_products) {
  agree(
      [](Graph& g, const Expr& x) {
        const Expr w = g.constant(
            Tensor::of<float>({0.1f, 0.2f, -0.3f, 0.4f, 0.5f, -0.6f, 0.7f, 0.8f, 0.9f}, {3, 3}));
        auto [i_end, h_end, total_end] =
            while_loop([](Expr, Expr h, Expr) { return sum(h * h) < 1e6; },
                       [&](Expr i, Expr h, Expr total) {
                         const Expr next = matmul(h, w) + h * 1.5;
                         return std::tuple{i + 1, next, total + sum(next)};
                       },
                       std::tuple{g.constant(0), reshape(x, {1, 3}), g.constant(0.f)});
        return Exprs{i_end, h_end, total_end};
      },
      vector({0.5f, -1, 2}));
}

BOOST_AUTO_TEST_CASE(small_products_of_every_layout) {
  for (const bool turns_a : {false, true})
    for (const bool turns_b : {false, true})
      agree(
          [&](Graph& g, const Expr& x) {
            const Expr kept = g.constant(Tensor::of<float>(
                {0.1f, 0.2f, -0.3f, 0.4f, 0.5f, -0.6f, 0.7f, 0.8f, 0.9f}, {3, 3}));
            auto [i_end, h_end, b_end] = while_loop(
                [](Expr i, Expr, Expr) { return i < 6; },
                [&](Expr i, Expr h, Expr batches) {
                  const Expr by_kept = matmul(h, kept, turns_a, turns_b);
                  const Expr by_itself = matmul(kept, h, turns_a, turns_b) + matmul(h, h);
                  return std::tuple{i + 1, by_kept * 0.5 - by_itself * 0.125,
                                    matmul(batches, h, turns_a, turns_b)};
                },
                std::tuple{g.constant(0), reshape(x, {3, 3}),
                           broadcast_to(reshape(x, {3, 3}), {2, 3, 3})});
            return Exprs{h_end, b_end};
          },
          vector({0.5f, -1, 2, 0.25f, 3, -0.75f, 1.5f, 0.1f, -2}));
}

BOOST_AUTO_TEST_CASE(lists_that_stay_in_their_variables) {
  const auto stacked = [](bool reads_before, bool reads_after, bool swaps) {
    return [=](Graph& g, const Expr& x) {
      const Expr none = list_empty(g, {DType::f32, Shape{}});
      auto [i_end, a_end, b_end, n_end, v_end] =
          while_loop([](Expr i, Expr, Expr, Expr, Expr) { return i < 20; },
                     [&](Expr i, Expr a, Expr b, Expr n, Expr vectors) {
                       Expr count = n;
                       if (reads_before) count = count + list_length(a);
                       const Expr longer = list_push(a, cast(i, DType::f32) * x[0]);
                       // the old list, after a push that would have changed it
                       if (reads_after) count = count * 3 + list_length(a) + list_length(longer);
                       const Expr other = cond(
                           i % 3 == 0, [&] { return list_push(b, x[1]); }, [&] { return b; });
                       const Expr more = list_push(vectors, x * cast(i, DType::f32));
                       if (swaps) return std::tuple{i + 1, other, longer, count, more};
                       return std::tuple{i + 1, longer, other, count, more};
                     },
                     std::tuple{g.constant(0), none, none, g.constant(std::int64_t{0}),
                                list_empty(g, {DType::f32, Shape{2}})});
      auto [k_end, rest_end, sum_end] =
          while_loop([&](Expr k, Expr, Expr) { return k < list_length(a_end); },
                     [&](Expr k, Expr rest, Expr total) {
                       auto [shorter, last] = list_pop(rest);
                       return std::tuple{k + 1, shorter, total * 0.5 + last};
                     },
                     std::tuple{g.constant(std::int64_t{0}), a_end, g.constant(0.f)});
      return Exprs{list_stack(a_end), list_stack(b_end), n_end,
                   list_stack(v_end), sum_end,           list_length(rest_end)};
    };
  };
  for (const bool reads_before : {false, true})
    for (const bool reads_after : {false, true})
      for (const bool swaps : {false, true})
        agree(stacked(reads_before, reads_after, swaps), vector({0.5f, 2}));
}

BOOST_AUTO_TEST_CASE(branches_and_loops_within) {
  agree(
      [](Graph& g, const Expr& x) {
        auto [i_end, v_end, s_end] = while_loop(
            [](Expr i, Expr, Expr) { return i < 9; },
            [&](Expr i, Expr v, Expr s) {
              const Expr next = switch_case<std::function<Expr()>>(
                  i % 4, {[&] { return v + 1.0; }, [&] { return v * x; }, [&] { return -v; }});
              auto [k_end, inner_end] =
                  while_loop([&](Expr k, Expr) { return k < i; },
                             [&](Expr k, Expr t) {
                               return std::tuple{k + 1, t + sum(next) * 0.125};
                             },
                             std::tuple{g.constant(0), s});
              const Expr after = cond(
                  inner_end > 10.0, [&] { return inner_end - 10.0; }, [&] { return inner_end; });
              return std::tuple{i + 1, next, after};
            },
            std::tuple{g.constant(0), x, g.constant(0.f)});
        return Exprs{i_end, v_end, s_end};
      },
      vector({0.5f, 1.25f}));
}

BOOST_AUTO_TEST_CASE(draws_are_those_of_the_lowered_form) {
  agree(
      [](Graph& g, const Expr& x) {
        auto [i_end, v_end] =
            while_loop([](Expr i, Expr) { return i < 4; },
                       [&](Expr i, Expr v) {
                         auto [k_end, w_end] =
                             while_loop([](Expr k, Expr) { return k < 3; },
                                        [&](Expr k, Expr w) {
                                          return std::tuple{k + 1, w + random_uniform_like(w)};
                                        },
                                        std::tuple{g.constant(0), v});
                         return std::tuple{i + 1, w_end * random_uniform_like(x)};
                       },
                       std::tuple{g.constant(0), x});
        return Exprs{v_end};
      },
      vector({1, 2, 3, 4}));
}

BOOST_AUTO_TEST_CASE(a_loop_in_a_lowered_one_stays_whole) {
  const Make make = [](Graph& g, const Expr& x) {
    const Variable seen = g.variable("seen", Tensor::scalar(0.f));
    auto [i_end, total_end] = while_loop(
        [](Expr i, Expr) { return i < 5; },
        [&](Expr i, Expr total) {
          auto [k_end, t_end] = while_loop([&](Expr k, Expr) { return k < i * 3; },
                                           [&](Expr k, Expr t) {
                                             return std::tuple{k + 1, t * 1.5 + sum(x)};
                                           },
                                           std::tuple{g.constant(0), total}, {.name = "inner"});
          return std::tuple{i + 1, t_end + seen.assign_add(t_end)};
        },
        std::tuple{g.constant(0), g.constant(1.f)}, {.name = "outer"});
    return Exprs{total_end};
  };
  const Told resident = run_resident(make, vector({1, 2}), true),
             lowered = run_resident(make, vector({1, 2}), false);
  BOOST_TEST(has(resident.explanation, "while_loop 'inner'"));
  BOOST_TEST(has(resident.explanation, ": resident"));
  BOOST_TEST(has(resident.explanation, ": lowered: AssignAdd"));
  BOOST_TEST_REQUIRE(resident.error == "");
  BOOST_TEST(identical(resident.values[0], lowered.values[0]));
}

BOOST_AUTO_TEST_CASE(errors_name_op_iterations_and_line) {
  const std::string one = agree(
      [](Graph& g, const Expr& x) {
        return Exprs{
            second_of(while_loop([](Expr i, Expr) { return i < 9; },
                                 [&](Expr i, Expr s) {
                                   return std::tuple{i + 1, s + gather(x, i)};
                                 },
                                 std::tuple{g.constant(0), g.constant(0.f)}, {.name = "walk"}))};
      },
      vector({1, 2, 3}));
  for (const char* part : {"Gather", "in iteration 3 of loop 'walk/1'", "resident_test.cpp"})
    BOOST_TEST(has(one, part));
  // one at a time, so that the first error is the lowered form's first
  const std::string nested = agree(
      [](Graph& g, const Expr& x) {
        return Exprs{second_of(while_loop([](Expr i, Expr) { return i < 9; },
                                          [&](Expr i, Expr s) {
                                            auto [k_end, t_end] = while_loop(
                                                [&](Expr k, Expr) { return k < i; },
                                                [&](Expr k, Expr t) {
                                                  return std::tuple{k + 1, t + gather(x, k)};
                                                },
                                                std::tuple{g.constant(0), s}, {.name = "inner"});
                                            return std::tuple{i + 1, t_end};
                                          },
                                          std::tuple{g.constant(0), g.constant(0.f)},
                                          {.name = "outer", .parallel_iterations = 1}))};
      },
      vector({1, 2, 3}));
  BOOST_TEST(has(nested, "in iteration 4 of loop 'outer/1', iteration 3 of loop 'inner/2'"));
}

BOOST_AUTO_TEST_CASE(nan_in_a_predicate_is_the_same_error) {
  const Make alone = [](Graph&, const Expr& x) {
    return Exprs{while_loop([](Expr y) { return y < 10.0; },
                            [](Expr y) { return sqrt(y) * log(y - 2.0); }, x, {.name = "root"})};
  };
  BOOST_TEST(has(agree(alone, f32(2.5f)), "it has ended only because"));
  const Make within = [](Graph& g, const Expr& x) {
    return Exprs{second_of(while_loop(
        [](Expr i, Expr) { return i < 3; },
        [&](Expr i, Expr y) {
          return std::tuple{i + 1, while_loop([](Expr z) { return z < 10.0; },
                                              [](Expr z) { return sqrt(z) * log(z - 2.0); }, y,
                                              {.name = "root"})};
        },
        std::tuple{g.constant(0), x}, {.name = "outer"}))};
  };
  BOOST_TEST(has(agree(within, f32(2.5f)), "in iteration 0 of loop 'outer/1'"));
}

BOOST_AUTO_TEST_CASE(explanations_name_the_reason_for_lowering) {
  const Make plain = [](Graph& g, const Expr&) { return count_to<float>(g, 0, 3); };
  EngineOptions options;
  options.granularity = Granularity::op;
  BOOST_TEST(why(plain, f32(0), options) == "the granularity is op");
  options = {};
  options.default_device = "sim:0";
  BOOST_TEST(why(plain, f32(0), options) == "the default device is sim:0");
  const Make over_devices = [](Graph& g, const Expr& x) {
    const auto there = g.on_device("sim:0");
    return Exprs{x + count_to<float>(g, 0, 3)[0]};
  };
  BOOST_TEST(has(why(over_devices, f32(0)), "something in the program is on sim:0"));
  const Make writes = [](Graph& g, const Expr&) {
    const Variable v = g.variable("v", Tensor::scalar(0.f));
    return Exprs{while_loop([](Expr y) { return y < 3.0; },
                            [&](Expr y) { return y + 1.0 + v.assign_add(y) * 0.0; },
                            g.constant(0.f))};
  };
  BOOST_TEST(has(why(writes, f32(0)), "uses a state"));
  const Make grows = [](Graph& g, const Expr& x) {
    return Exprs{second_of(while_loop([](Expr i, Expr) { return i < 3; },
                                      [](Expr i, Expr v) {
                                        return std::tuple{i + 1, concat({v, v}, 0)};
                                      },
                                      std::tuple{g.constant(0), x},
                                      {.shape_invariants = {std::nullopt, Shape{kAny}}}))};
  };
  BOOST_TEST(has(why(grows, vector({1})), "is of no known shape"));
  const Make heavy = [](Graph& g, const Expr& x) {
    return Exprs{second_of(while_loop([](Expr i, Expr) { return i < 2; },
                                      [](Expr i, Expr v) {
                                        return std::tuple{i + 1, matmul(v, v) * 0.1};
                                      },
                                      std::tuple{g.constant(0), x}))};
  };
  BOOST_TEST(has(why(heavy, Tensor::zeros(DType::f32, {96, 96})), "takes so long"));
}

BOOST_AUTO_TEST_CASE(gradients_are_those_of_the_lowered_form) {
  agree(
      [](Graph& g, const Expr& x) {
        auto [i_end, y_end] = while_loop([](Expr i, Expr) { return i < 100; },
                                         [&](Expr i, Expr y) {
                                           return std::tuple{i + 1, y * x + sin(y)};
                                         },
                                         std::tuple{g.constant(0), x});
        const Expr first = gradients({y_end}, {x})[0];
        return Exprs{y_end, first};
      },
      f32(0.3f));
  agree(
      [](Graph& g, const Expr& x) {
        auto [i_end, y_end] = while_loop(
            [](Expr i, Expr) { return i < 5; },
            [&](Expr i, Expr y) {
              auto [k_end, z_end] = while_loop([&](Expr k, Expr) { return k < i; },
                                               [&](Expr k, Expr z) {
                                                 return std::tuple{k + 1, tanh(z * x)};
                                               },
                                               std::tuple{g.constant(0), y});
              return std::tuple{i + 1, cond(
                                           sum(z_end) > 0.2, [&] { return z_end * z_end; },
                                           [&] { return z_end + x; })};
            },
            std::tuple{g.constant(0), x});
        return Exprs{y_end, gradients({sum(y_end)}, {x})[0]};
      },
      vector({0.3f, 0.7f, -0.2f}));
}

// Values of each size, in loops within loops, whose lists are pushed to in some iterations alone.
BOOST_AUTO_TEST_CASE(saved_scalars_are_those_of_the_lowered_form) {
  const auto saving = [](DType dtype) {
    return [dtype](Graph& g, const Expr& x) {
      auto [i_end, y_end, z_end] = while_loop(
          [](Expr i, Expr, Expr) { return i < 12; },
          [&](Expr i, Expr y, Expr z) {
            auto [k_end, w_end] = while_loop([&](Expr k, Expr) { return k < 3 * (i + 1); },
                                             [&](Expr k, Expr w) {
                                               return std::tuple{k + 1, w * cast(x, dtype) * 0.75};
                                             },
                                             std::tuple{g.constant(0), y + 1.0});
            const Expr chosen = cond(
                i % 3 == 0, [&] { return w_end * w_end; }, [&] { return w_end - z; });
            return std::tuple{i + 1, where(chosen > 0.5, sin(chosen), y * 0.5), z * y + chosen};
          },
          std::tuple{g.constant(0), cast(x, dtype), cast(x, dtype)});
      const Expr first = gradients({y_end * z_end}, {x})[0];
      return Exprs{y_end, z_end, first, gradients({first}, {x})[0]};
    };
  };
  for (const DType dtype : {DType::f16, DType::f32, DType::f64}) agree(saving(dtype), f32(0.9f));
  agree(  // more elements than a chunk has, saved and then read by another loop
      [](Graph& g, const Expr& x) {
        auto [i_end, y_end] = while_loop([](Expr i, Expr) { return i < 5000; },
                                         [&](Expr i, Expr y) {
                                           return std::tuple{i + 1, y * x + 1e-3};
                                         },
                                         std::tuple{g.constant(0), x});
        return Exprs{y_end, gradients({y_end}, {x})[0]};
      },
      f32(0.9997f));
}

BOOST_AUTO_TEST_CASE(an_endless_loop_is_cancelled_and_disturbs_no_other) {
  for (const bool is_deterministic : {false, true}) {
    EngineOptions options;
    options.workers = 1;
    options.deterministic = is_deterministic;
    Engine engine(options);
    Graph g;
    const Expr x = g.input("x", DType::f32, {});
    const Function endless = engine.compile(
        g, {x},
        {while_loop([&](Expr y) { return y > x; }, [](Expr y) { return y * 0.5 + 1.0; },
                    g.constant(1.f), {.name = "endless"})});
    const Function other = engine.compile(g, {x}, count_to<float>(g, 0, 5000));
    BOOST_TEST(has(endless.explain(), ": resident"));
    RunHandle run = endless.start({f32(0)});
    if (is_deterministic)
      for (int i = 0; i < 100; ++i) BOOST_TEST_REQUIRE(engine.take_step());
    // on the only worker
    BOOST_TEST(other({f32(0)})[0].item<float>() == 5000.f);
    BOOST_TEST(!run.is_done());
    run.cancel();
    if (is_deterministic)
      while (engine.take_step()) {}
    BOOST_TEST((run.wait().code() == Code::cancelled));
    BOOST_TEST(endless({f32(9)})[0].item<float>() == 1.f);
  }
}

BOOST_AUTO_TEST_CASE(a_run_that_takes_too_long_names_the_loop) {
  Engine engine({.deterministic = true});
  Graph g;
  const Expr x = g.input("x", DType::f32, {});
  const Function endless =
      engine.compile(g, {x},
                     {while_loop([&](Expr) { return x < 1.0; }, [](Expr y) { return y + 1.0; },
                                 g.constant(1.f), {.name = "endless"})});
  BOOST_TEST(has(endless.explain(), ": resident"));
  RunHandle run = endless.start({f32(0)}, {.timeout = std::chrono::seconds(1)});
  for (int i = 0; i < 20; ++i) BOOST_TEST_REQUIRE(engine.take_step());
  engine.advance_time(std::chrono::seconds(2));
  const Status status = run.wait();
  BOOST_TEST((status.code() == Code::deadline_exceeded));
  BOOST_TEST(has(status.message(), "loop 'endless/1'"));
  while (engine.take_step()) {}
}

BOOST_AUTO_TEST_CASE(several_runs_of_one_plan_are_under_way) {
  Engine engine({.workers = 2});
  Graph g;
  const Expr n = g.input("n", DType::i64, {});
  auto [i_end, s_end] =
      while_loop([&](Expr i, Expr) { return i < n; },
                 [](Expr i, Expr s) {
                   return std::tuple{i + 1, s + i};
                 },
                 std::tuple{g.constant(std::int64_t{0}), g.constant(std::int64_t{0})});
  const Function f = engine.compile(g, {n}, {s_end});
  std::vector<RunHandle> runs;
  for (std::int64_t k = 0; k < 20; ++k) runs.push_back(f.start({Tensor::scalar(100'000 + k)}));
  for (std::int64_t k = 0; k < 20; ++k) {
    const std::int64_t last = 100'000 + k;
    BOOST_TEST(runs[static_cast<std::size_t>(k)].get()[0].item<std::int64_t>() ==
               last * (last - 1) / 2);
  }
}

BOOST_AUTO_TEST_CASE(code_goes_on_where_its_budget_ended) {
  struct None final : ScalarCalls {
    int call(std::int32_t) override { return 1; }
  } none;
  ScalarCode code;
  const auto x = code.add_register(), counter = code.add_register(), more = code.add_register();
  const auto one = code.add_constant(Tensor::scalar(1.0)),
             n = code.add_constant(Tensor::scalar(10.0));
  code.set_zero(x);
  code.set_zero(counter);
  const auto top = code.here();
  code.add(ScalarOp::add, DType::f64, DType::f64, x, x, one);
  code.add(ScalarOp::lt, DType::boolean, DType::f64, more, x, n);
  code.again_if(more, top, counter);
  code.call(5);
  code.halt();
  ScalarFrame frame(code);
  int pauses = 0, how = 0;
  while ((how = code.run(frame, 4, none)) == ScalarCode::kPaused) ++pauses;
  BOOST_TEST(pauses == 2);
  BOOST_TEST(how == 1);
  BOOST_TEST(code.run(frame, 4, none) == ScalarCode::kHalted);
  double value;
  std::memcpy(&value, frame.at(x), sizeof value);
  BOOST_TEST(value == 10.0);
  std::int64_t counted;
  std::memcpy(&counted, frame.at(counter), sizeof counted);
  BOOST_TEST(counted == 9);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
