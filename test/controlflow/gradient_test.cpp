// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Gradients through conditionals and loops: programs with known results.
#include <boost/test/unit_test.hpp>

#include <fmt/format.h>

#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {
namespace {

Expr vector(Graph& g, std::vector<float> v) {
  auto n = static_cast<std::int64_t>(v.size());
  return g.constant(Tensor::of<float>(v, {n}));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gradients_of_conditionals)

BOOST_AUTO_TEST_CASE(gradient_follows_the_taken_branch) {  // C11
  for (auto [c, expected] : {std::pair{1., 42.}, {3., 3.}})
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Expr x = scalar(g, 10), p = g.input("c", DType::f32, Shape{});
          Expr r = cond(
              p < 2.0, [&] { return 42.0 * x; }, [&] { return 3.0 * x; });
          return {{{p, Tensor::scalar(static_cast<float>(c))}}, {gradients(r, x)[0]}};
        },
        {Reals{expected}}, 2);
}

BOOST_AUTO_TEST_CASE(built_after_a_run) {  // C15
  for (const Setting& s : all_settings()) {
    Graph g;
    Expr x = scalar(g, 10), p = g.input("p", DType::boolean, Shape{});
    Expr r = cond(
        p, [&] { return square(square(x)); }, [&] { return square(x); });
    Somewhere there(s);
    Engine& engine = there.engine();
    Feeds feeds{{p, Tensor::scalar(true)}};
    compare(engine.run(g, feeds, {r}), {Reals{10000}}, s.name);
    Expr d = gradients(r, x)[0];
    compare(engine.run(g, feeds, {d}), {Reals{4000}}, s.name);
    compare(engine.run(g, feeds, {r, d}), {Reals{10000}, Reals{4000}}, s.name);
    compare(engine.run(g, {{p, Tensor::scalar(false)}}, {r, d}), {Reals{100}, Reals{20}}, s.name);
  }
}

BOOST_AUTO_TEST_CASE(nested) {  // C17
  for (bool yes : {true, false})
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Expr x = scalar(g, 0), p = g.input("p", DType::boolean, Shape{});
          auto self = [&] { return x; };
          Expr r = cond(p, self, [&] { return cond(x < 1.0, self, self); });
          return {{{p, Tensor::scalar(yes)}}, {gradients(r, x)[0]}};
        },
        {Reals{1}}, 2);
}

BOOST_AUTO_TEST_CASE(second_order) {  // C18
  for (bool yes : {true, false})
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Expr x = scalar(g, 3), p = g.input("p", DType::boolean, Shape{});
          Expr r = cond(
              p, [&] { return x * x * x; }, [&] { return x; });
          Expr d = gradients(r, x)[0];
          return {{{p, Tensor::scalar(yes)}}, {d, gradients(d, x)[0]}};
        },
        {Reals{yes ? 27. : 1.}, Reals{yes ? 18. : 0.}}, 2);
}

BOOST_AUTO_TEST_CASE(rows_of_a_gather) {  // C24
  for (double c : {1., 3.})
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Expr v = vector(g, {1, 42}), p = g.input("c", DType::f32, Shape{});
          Expr r = cond(
              p < 2.0, [&] { return v; },
              [&] {
                return gather(v, g.constant(Tensor::of<std::int64_t>({1, 1}, {2})));
              });
          return {{{p, Tensor::scalar(static_cast<float>(c))}}, {gradients(r, v)[0]}};
        },
        {c < 2 ? Reals{1, 1} : Reals{0, 2}}, 2);
}

BOOST_AUTO_TEST_CASE(a_choice_of_several_in_which_not_all_use_everything) {
  for (std::int32_t k : {0, 1, 2, 7})
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Expr x = scalar(g, 2), y = scalar(g, 5), u = scalar(g, 1),
               index = g.input("k", DType::i32, Shape{});
          std::vector<std::function<Expr()>> branches{[&] { return x * y; },
                                                      [&] { return exp(x) + stop_gradient(u); },
                                                      [&] { return square(y); }};
          Expr r = switch_case(index, branches);
          Exprs d = gradients(r, {x, y});
          BOOST_TEST(gradients(r, u, {.unconnected = Unconnected::none})[0].is_empty());
          return {{{index, Tensor::scalar(k)}}, {d[0], d[1]}};
        },
        {Reals{k == 0   ? 5
               : k == 1 ? std::exp(2.)
                        : 0},
         Reals{k == 0   ? 2.
               : k == 1 ? 0.
                        : 10.}},
        2);
}

BOOST_AUTO_TEST_CASE(gradient_reaches_variables_read_in_a_branch) {
  for (bool yes : {true, false})
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Variable v = g.variable("v", Tensor::of<float>({1, 2, 3}, {3})),
                   u = g.variable("u", Tensor::scalar(4.f)),
                   other = g.variable("other", Tensor::scalar(4.f));
          Expr p = g.input("p", DType::boolean, Shape{});
          Expr r = cond(
              p, [&] { return sum(square(v)) * u; }, [&] { return sum(v); });
          Exprs d = gradients(r, {v, u}),
                none = gradients(r, other, {.unconnected = Unconnected::none});
          BOOST_TEST(none[0].is_empty());
          return {{{p, Tensor::scalar(yes)}}, {d[0], d[1]}};
        },
        {yes ? Reals{8, 16, 24} : Reals{1, 1, 1}, Reals{yes ? 14. : 0.}}, 2);
}

BOOST_AUTO_TEST_CASE(effects_are_not_repeated) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Variable n = g.variable("n", Tensor::scalar(3.f));
        Expr x = scalar(g, 2), yes = x > 0.0;
        Expr r = cond(
            yes, [&] { return x * n.assign_add(1.0); }, [&] { return x; });
        Expr d = gradients(r, x)[0];
        auto last = g.after({d});
        return {{}, {r, d, n.read()}};
      },
      {Reals{8}, Reals{4}, Reals{4}});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(gradients_of_loops)

BOOST_AUTO_TEST_CASE(squares) {  // G1
  for (bool in_branch : {false, true})
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Expr v = scalar(g, 2);
          auto loop = [&] {
            return while_loop([](Expr x) { return x < 100.0; }, [](Expr x) { return square(x); },
                              v);
          };
          Expr r = in_branch ? cond(v < 3.0, loop, [&] { return v; }) : loop();
          return {{}, {r, gradients(r, v)[0]}};
        },
        {Reals{256}, Reals{1024}}, 2);
}

BOOST_AUTO_TEST_CASE(captured_values) {  // G2
  for (int parallel : {1, 10})
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Expr v = scalar(g, 2), a = scalar(g, 3);
          Expr r = while_loop([](Expr x) { return x < 100.0; }, [&](Expr x) { return x * a; }, v,
                              {.parallel_iterations = parallel});
          Exprs d = gradients(r, {a, v});
          return {{}, {r, d[0], d[1]}};
        },
        {Reals{162}, Reals{216}, Reals{81}}, 2);
}

BOOST_AUTO_TEST_CASE(unknown_shapes) {  // G4
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = g.input("x", DType::f32, Shape::unknown()), v = vector(g, {2});
        auto [i_end, r_end] = while_loop([](Expr i, Expr) { return i < 5; },
                                         [&](Expr i, Expr y) {
                                           return std::tuple{i + 1, x * y};
                                         },
                                         std::tuple{g.constant(0), v},
                                         {.shape_invariants = {std::nullopt, Shape::unknown()}});
        return {{{x, Tensor::of<float>({3, 4}, {2})}}, {gradients(r_end, x)[0]}};
      },
      {Reals{810, 2560}}, 2);
}

BOOST_AUTO_TEST_CASE(no_iteration) {  // G5
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = vector(g, {1, 2}), v0 = vector(g, {0, 0});
        auto [i_end, r_end] = while_loop([](Expr i, Expr) { return i < 0; },
                                         [&](Expr i, Expr v) {
                                           return std::tuple{i + 1, v + x};
                                         },
                                         std::tuple{g.constant(0), v0});
        return {{}, {gradients({r_end, square(x)}, x)[0], gradients(r_end, v0)[0]}};
      },
      {Reals{2, 4}, Reals{1, 1}}, 2);
}

BOOST_AUTO_TEST_CASE(built_after_a_run) {  // G6, G7
  for (const Setting& s : all_settings())
    for (bool nested : {false, true}) {
      Graph g;
      Expr v = scalar(g, 2);
      auto body = [&](Expr i, Expr x) {
        if (!nested) return std::tuple{i + 1, square(x)};
        auto [j_end, y_end] = while_loop([](Expr n, Expr) { return n < 2; },
                                         [&](Expr n, Expr z) {
                                           return std::tuple{n + 1, z * x};
                                         },
                                         std::tuple{g.constant(0), scalar(g, 1)});
        return std::tuple{i + 1, y_end};
      };
      auto [i_end, r_end] = while_loop([](Expr i, Expr) { return i < 100; }, body,
                                       std::tuple{g.constant(0), v}, {.maximum_iterations = 3});
      Somewhere there(s);
      Engine& engine = there.engine();
      compare(engine.run(g, {}, {r_end}), {Reals{256}}, s.name);
      Expr d = gradients(r_end, v)[0];
      compare(engine.run(g, {}, {d}), {Reals{1024}}, s.name);
      compare(engine.run(g, {}, {r_end}), {Reals{256}}, s.name);
      compare(engine.run(g, {}, {r_end, d}), {Reals{256}, Reals{1024}}, s.name);
      compare(Eager().run(g, {}, {r_end, d}), {Reals{256}, Reals{1024}}, s.name);
    }
}

BOOST_AUTO_TEST_CASE(several_variables) {  // G9
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x0 = scalar(g, 3), y0 = scalar(g, 2);
        auto [x_end, y_end] = while_loop([](Expr x, Expr) { return x < 100.0; },
                                         [](Expr x, Expr y) {
                                           Expr z = x + y;
                                           return std::tuple{x * z, z};
                                         },
                                         std::tuple{x0, y0});
        Exprs both = gradients({x_end, y_end}, {x0, y0}), one = gradients(x_end, {x0, y0});
        return {{}, {x_end, y_end, both[0], both[1], one[0], one[1]}};
      },
      {Reals{300}, Reals{20}, Reals{304}, Reals{124}, Reals{295}, Reals{120}}, 2);
}

BOOST_AUTO_TEST_CASE(without_back_prop) {  // G11
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr v = scalar(g, 2);
        Expr r = while_loop([](Expr x) { return x < 100.0; }, [](Expr x) { return square(x); }, v,
                            {.back_prop = false});
        BOOST_TEST(gradients(r, v, {.unconnected = Unconnected::none})[0].is_empty());
        return {{}, {gradients(r + v, v)[0]}};
      },
      {Reals{1}}, 2);
}

BOOST_AUTO_TEST_CASE(two_loops) {  // G14
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr v = scalar(g, 1);
        auto doubled = [&](Expr from) {
          auto [i_end, x_end] = while_loop([](Expr i, Expr) { return i < 5; },
                                           [](Expr i, Expr x) {
                                             return std::tuple{i + 1, x * 2.0};
                                           },
                                           std::tuple{g.constant(0), from});
          return x_end;
        };
        return {{},
                {gradients(doubled(doubled(v)), v)[0], gradients(doubled(v) + doubled(v), v)[0]}};
      },
      {Reals{1024}, Reals{64}}, 2);
}

BOOST_AUTO_TEST_CASE(branches_in_loops) {  // G18
  for (bool open : {false, true})
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Expr v = g.input("v", DType::f32, open ? Shape::unknown() : Shape{}),
               yes = scalar(g, 1) < 2.0;
          Expr r = while_loop([](Expr x) { return reduce_max(x) < 100.0; },
                              [&](Expr x) {
                                return cond(
                                    yes, [&] { return square(x); }, [&] { return x - 1.0; });
                              },
                              v);
          return {{{v, Tensor::scalar(2.f)}}, {gradients(r, v)[0]}};
        },
        {Reals{1024}}, 2);
}

BOOST_AUTO_TEST_CASE(on_several_devices) {  // G19
  for (bool yes : {true, false})
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Expr x0 = scalar(g, 2), p = g.input("p", DType::boolean, Shape{});
          auto [i_end, r_end] = while_loop(
              [](Expr i, Expr) { return i < 3; },
              [&](Expr i, Expr x) {
                return std::tuple{i + 1,
                                  cond(
                                      p, [&] { return x * 2.0; }, [&] { return scalar(g, 10); })};
              },
              std::tuple{g.constant(0), x0});
          Expr d = [&] {
            auto there = g.on_device("cpu:1");
            return gradients(r_end, x0)[0];
          }();
          Expr dd = [&] {
            auto there = g.on_device("cpu:0");
            return gradients(d, x0)[0];
          }();
          return {{{p, Tensor::scalar(yes)}}, {d, dd}};
        },
        {Reals{yes ? 8. : 0.}, Reals{0}}, 2);
}

BOOST_AUTO_TEST_CASE(growing_shapes) {  // G20
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Variable x = g.variable("x", Tensor::of<float>({1, 2}, {1, 2}));
        auto [i_end, h_end] = while_loop([](Expr i, Expr) { return i < 2; },
                                         [&](Expr i, Expr h) {
                                           return std::tuple{i + 1, concat({h, x.read()}, 0)};
                                         },
                                         std::tuple{g.constant(0), g.zeros(DType::f32, {0, 2})},
                                         {.shape_invariants = {std::nullopt, Shape{kAny, 2}}});
        Expr updated = x.assign_sub(gradients(sum(h_end), x)[0] * 0.01);
        return {{}, {updated}};
      },
      {Reals{0.98, 1.98}});
}

BOOST_AUTO_TEST_CASE(gradients_inside_loops) {  // G22
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr p = scalar(g, 5), weights = vector(g, {1, 2, 3});
        auto loop = [&](auto derivative) {
          auto [i_end, s_end] = while_loop([](Expr i, Expr) { return i < 10; },
                                           [&](Expr i, Expr s) {
                                             return std::tuple{i + 1, s + derivative()};
                                           },
                                           std::tuple{g.constant(0), scalar(g, 0)});
          return s_end;
        };
        Expr inside = loop([&] { return gradients(sum(weights * square(p)), p)[0]; });
        // Some of the path is outside of the loop, or all of it.
        Expr squared = square(p), y = sum(weights * squared);
        Expr partly = loop([&] { return gradients(sum(weights * squared), p)[0]; });
        Expr outside = loop([&] { return gradients(y, p)[0]; });
        Expr unused = loop([&] { return gradients(scalar(g, 1) * 2.0, p)[0]; });
        return {{},
                {inside, partly, outside, unused, gradients(inside, p)[0], gradients(partly, p)[0],
                 gradients(outside, p)[0]}};
      },
      {Reals{600}, Reals{600}, Reals{600}, Reals{0}, Reals{120}, Reals{120}, Reals{120}}, 2);
}

BOOST_AUTO_TEST_CASE(gradients_of_loops_inside_loops) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr p = scalar(g, 2);
        auto cube = [&](Expr of) {
          auto [i_end, y_end] = while_loop([](Expr i, Expr) { return i < 3; },
                                           [&](Expr i, Expr y) {
                                             return std::tuple{i + 1, y * of};
                                           },
                                           std::tuple{g.constant(0), scalar(g, 1)});
          return y_end;
        };
        Expr outer = cube(p);
        // Newton's steps: each takes a gradient of a loop, with respect to the loop's variable.
        auto [n_end, x_end] = while_loop([](Expr n, Expr) { return n < 20; },
                                         [&](Expr n, Expr x) {
                                           Expr y = cube(x) - 27.0;
                                           return std::tuple{n + 1, x - y / gradients(y, x)[0]};
                                         },
                                         std::tuple{g.constant(0), scalar(g, 1)});
        // A gradient of an outer loop, asked for inside.
        auto [m_end, s_end] = while_loop([](Expr m, Expr) { return m < 4; },
                                         [&](Expr m, Expr s) {
                                           return std::tuple{m + 1, s + gradients(outer, p)[0]};
                                         },
                                         std::tuple{g.constant(0), scalar(g, 0)});
        return {{}, {x_end, s_end, gradients(s_end, p)[0], outer}};
      },
      {Reals{3}, Reals{48}, Reals{48}, Reals{8}}, 2);
}

BOOST_AUTO_TEST_CASE(stopped) {  // G26
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x0 = scalar(g, 3), y0 = scalar(g, 2);
        auto [rx_end, ry_end] = while_loop([](Expr x, Expr) { return x < 100.0; },
                                           [](Expr x, Expr y) {
                                             return std::tuple{square(x) + square(y), square(y)};
                                           },
                                           std::tuple{x0, y0});
        auto in_y = [&](Expr of) { return gradients(of, y0)[0]; };
        BOOST_TEST(gradients(stop_gradient(rx_end) + stop_gradient(ry_end), y0,
                             {.unconnected = Unconnected::none})[0]
                       .is_empty());
        BOOST_TEST(gradients(ry_end, x0, {.unconnected = Unconnected::none})[0].is_empty());
        auto [a_end, b_end] = while_loop(
            [](Expr x, Expr) { return x < 100.0; },
            [](Expr x, Expr y) {
              return std::tuple{stop_gradient(square(x) + square(y)), stop_gradient(square(y))};
            },
            std::tuple{x0, y0});
        Expr inside = gradients(a_end + b_end, y0, {.unconnected = Unconnected::none})[0];
        return {
            {},
            {rx_end, ry_end, in_y(rx_end), in_y(ry_end), in_y(rx_end + ry_end),
             in_y(stop_gradient(rx_end) + ry_end), in_y(rx_end + stop_gradient(ry_end)), inside}};
      },
      {Reals{185}, Reals{16}, Reals{136}, Reals{32}, Reals{168}, Reals{32}, Reals{136}, Reals{0}},
      2);
}

BOOST_AUTO_TEST_CASE(functions_in_bodies) {  // G33
  run_all_configurations(
      [](Graph& g) -> Scenario {
        auto f = [](Expr v) { return square(square(v)); };
        Expr v = scalar(g, 2);
        auto [i_end, r_end] = while_loop([](Expr i, Expr) { return i < 2; },
                                         [&](Expr i, Expr x) {
                                           return std::tuple{i + 1, f(x)};
                                         },
                                         std::tuple{g.constant(0), v});
        return {{}, {r_end, gradients(r_end, v)[0]}};
      },
      {Reals{65536}, Reals{524288}}, 2);
}

BOOST_AUTO_TEST_CASE(higher_order) {  // G34
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr v = scalar(g, 2);
        Expr r = while_loop([](Expr x) { return x < 8.0; }, [](Expr x) { return square(x); }, v);
        Expr d = gradients(r, v)[0], dd = gradients(d, v)[0], ddd = gradients(dd, v)[0],
             dddd = gradients(ddd, v)[0];
        return {{}, {r, d, dd, ddd, dddd}};
      },
      {Reals{16}, Reals{32}, Reals{48}, Reals{48}, Reals{24}}, 2);
}

BOOST_AUTO_TEST_CASE(captured_in_the_condition_and_in_the_body) {  // G37
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr v = scalar(g, 2), three = scalar(g, 3), nine = scalar(g, 9);
        Expr r =
            while_loop([&](Expr x) { return x + 1.0 < nine; }, [&](Expr x) { return 3.0 * x; }, v);
        Expr s = while_loop([&](Expr x) { return x < 8.0; }, [&](Expr x) { return x * three; }, v);
        BOOST_TEST(gradients(r, nine, {.unconnected = Unconnected::none})[0].is_empty());
        return {{}, {r, gradients(r, v)[0], s, gradients(s, v)[0]}};
      },
      {Reals{18}, Reals{9}, Reals{18}, Reals{9}}, 2);
}

BOOST_AUTO_TEST_CASE(variables_read_in_the_body) {  // G40, G41
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr v = scalar(g, 2);
        Variable a = g.variable("a", Tensor::scalar(3.f));
        Expr r = while_loop([](Expr x) { return x < 100.0; }, [&](Expr x) { return x * a; }, v);
        return {{}, {gradients(r, a)[0], gradients(r, v)[0]}};
      },
      {Reals{216}, Reals{81}}, 2);
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr v = scalar(g, 1);
        Variable a = g.variable("a", Tensor::of<float>({1, 1, 1, 1}, {2, 2}));
        auto [i_end, r_end] = while_loop([](Expr i, Expr) { return i < 2; },
                                         [&](Expr i, Expr x) {
                                           return std::tuple{i + 1, x * sum(a) * v};
                                         },
                                         std::tuple{g.constant(0), scalar(g, 1)});
        Exprs d = gradients(r_end, {v, a});
        return {{}, {d[0], d[1]}};
      },
      {Reals{32}, Reals{8, 8, 8, 8}}, 2);
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Variable v = g.variable("v", Tensor::of<float>({1, 1, 1, 1, 1}, {5}));
        Expr rows = g.constant(Tensor::of<std::int64_t>({1, 3}, {2}));
        auto [i_end, r_end] =
            while_loop([](Expr i, Expr) { return i < 3; },
                       [&](Expr i, Expr x) {
                         return std::tuple{i + 1, x * sum(gather(v.read(), rows))};
                       },
                       std::tuple{g.constant(0), scalar(g, 1)});
        return {{}, {gradients(r_end, v)[0]}};
      },
      {Reals{0, 12, 0, 12, 0}}, 2);
}

BOOST_AUTO_TEST_CASE(maps_in_loops) {  // G46
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr p = scalar(g, 2), x = vector(g, {1, 2, 3, 4, 5, 6});
        auto [i_end, r_end] = while_loop(
            [](Expr i, Expr) { return i < 10; },
            [&](Expr i, Expr y) {
              return std::tuple{i + 1, map([&](Expr e) { return e * p; }, y)};
            },
            std::tuple{g.constant(0), x}, {.shape_invariants = {std::nullopt, Shape{kAny}}});
        Exprs d = gradients(r_end, {p, x});
        return {{}, {d[0], d[1]}};
      },
      {Reals{107520}, Reals(6, 1024.)}, 2);
}

BOOST_AUTO_TEST_CASE(lists_through_loops) {  // T23
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = scalar(g, 2);
        TensorArray acc(g, {.dtype = DType::f32, .element_shape = Shape{}, .size = 100});
        auto [i_end, first_end] =
            while_loop([](Expr i, Expr) { return i < 5; },
                       [&](Expr i, Expr l) {
                         Expr next = cond(
                             i == 0, [&] { return x; }, [&] { return 2.0 * list_read(l, i - 1); });
                         return std::tuple{i + 1, list_write(l, i, next)};
                       },
                       std::tuple{g.constant(0), acc.list()});
        auto [j_end, all_end] =
            while_loop([](Expr i, Expr) { return i < 100; },
                       [&](Expr i, Expr l) {
                         return std::tuple{i + 1, list_write(l, i, scalar(g, 0))};
                       },
                       std::tuple{i_end, first_end});
        return {{}, {gradients(list_stack(all_end), x)[0], sum(list_stack(all_end))}};
      },
      {Reals{31}, Reals{62}}, 2);
}

BOOST_AUTO_TEST_CASE(maps_folds_and_scans) {  // F2, F9
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr p = scalar(g, 2), x = vector(g, {1, 2, 3, 4, 5, 6});
        Exprs d = gradients(map([&](Expr e) { return p * square(e); }, x), {p, x});
        return {{}, {d[0], d[1]}};
      },
      {Reals{91}, Reals{4, 8, 12, 16, 20, 24}}, 2);
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr v = scalar(g, 2), x = vector(g, {1, 2, 3, 4, 5, 6});
        auto times = [](Expr a, Expr y) { return a * y; };
        return {{},
                {gradients(scan(times, x, v), v)[0], gradients(fold_left(times, x, v), v)[0],
                 gradients(fold_right(times, x, v), x)[0],
                 gradients(scan(times, x, v, {.reverse = true}), v)[0]}};
      },
      {Reals{873}, Reals{720}, Reals{1440, 720, 480, 360, 288, 240},
       Reals{6 + 30 + 120 + 360 + 720 + 720}},
      2);
}

BOOST_AUTO_TEST_CASE(effects_are_not_repeated) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Variable n = g.variable("n", Tensor::scalar(0.f));
        Expr v = scalar(g, 1);
        Expr r = while_loop([](Expr x) { return x < 20.0; },
                            [&](Expr x) { return x * (n.assign_add(1.0) + 1.0); }, v);
        Expr d = gradients(r, v)[0];
        auto last = g.after({d});
        return {{}, {r, d, n.read()}};
      },
      {Reals{24}, Reals{24}, Reals{3}});
}

BOOST_AUTO_TEST_CASE(draws_are_those_of_the_forward_pass) {
  for (const Setting& s : settings()) {
    Graph g;
    Expr v = scalar(g, 1);
    auto [i_end, r_end] = while_loop([](Expr i, Expr) { return i < 5; },
                                     [&](Expr i, Expr x) {
                                       return std::tuple{i + 1, x * (1.0 + g.random_uniform({}))};
                                     },
                                     std::tuple{g.constant(0), v});
    Engine before(options_of(s)), after(options_of(s));
    double was = numbers(before.run(g, {}, {r_end})[0])[0];
    Expr d = gradients(r_end, v)[0];
    std::vector<Tensor> is = after.run(g, {}, {r_end, d});
    BOOST_TEST(numbers(is[0])[0] == was, s.name);
    BOOST_TEST(std::abs(numbers(is[1])[0] - was) <= 1e-5 * was, s.name);
  }
}

BOOST_AUTO_TEST_CASE(users_gradients_in_bodies) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr v = scalar(g, 2), w = scalar(g, 7);
        auto body = [&](Expr i, Expr x) {
          Expr half = x * 0.5;
          // It uses what the body and the outer graph have.
          return std::tuple{
              i + 1, with_gradient(round(x), {x}, [=](const Expr& dy, const Exprs&, const Expr&) {
                return Exprs{dy * w * half};
              })};
        };
        auto [i_end, r_end] =
            while_loop([](Expr i, Expr) { return i < 2; }, body, std::tuple{g.constant(0), v});
        return {{}, {gradients(r_end, v)[0]}};
      },
      {Reals{49}}, 2);
}

BOOST_AUTO_TEST_CASE(lists_that_cross_devices) {
  // forward: the elements lie on one device and are stacked on another
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = vector(g, {1, 2, 3}) * 2.0, l, y;
        {
          auto there = g.on_device("cpu:0");
          l = list_push(list_empty(g, {DType::f32, Shape{3}}), x);
        }
        auto there = g.on_device("sim:0");
        y = list_stack(l);
        return {{}, {y}};
      },
      {Reals{2, 4, 6}}, 2);
  run_all_configurations(
      [](Graph& g) -> Scenario {  // the gradient with respect to cotangents
        Expr m = g.input("m", DType::f32, {2, 3}), l;
        {
          auto there = g.on_device("sim:0");
          l = list_unstack(m);
        }
        Popped p = list_pop(l);
        return {{{m, Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3})}},
                {gradients(sum(list_stack(p.list)) + sum(square(p.value)), m)[0]}};
      },
      {Reals{1, 1, 1, 8, 10, 12}}, 2);
}

BOOST_AUTO_TEST_CASE(errors_name_the_loop) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape::unknown());
  Expr r = while_loop([](Expr y) { return reduce_max(y) < 100.0; },
                      [](Expr y) { return y * sum(cholesky(y)); }, x,
                      {.shape_invariants = {Shape::unknown()}});
  const std::string line = fmt::format("gradient_test.cpp:{}", __LINE__ - 3);
  BOOST_CHECK_EXCEPTION(gradients(sum(r), x), Error, [&](const Error& e) {
    std::string what = e.what();
    BOOST_TEST_MESSAGE(what);
    return what.find("While") != std::string::npos && what.find("Cholesky") != std::string::npos &&
           what.find(line) != std::string::npos;
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
