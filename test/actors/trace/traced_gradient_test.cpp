// Gradients of traced functions: tapes around calls, tapes inside the code, both nested, and a
// training step that is the same eagerly and staged.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/custom_gradient.hpp>
#include <troupe/test/support/eager_scopes.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(traced_gradient_test)

BOOST_AUTO_TEST_CASE(a_tape_differentiates_a_call) {  // D1, D4
  in_each_place([](Eager& e) {
    Variable v = e.variable("v", Tensor::scalar(1.0));
    auto f = function("f", [&] { return square(v.read()); });
    for (int again = 0; again < 2; ++again) {
      GradientTape tape;
      Expr y = f();
      BOOST_TEST(number(tape.gradient(y, v)) == 2);
    }
    BOOST_TEST(f.traces() == 1);
    Expr t = matrix(e, {1, 2, 3, 4}, {2, 2});
    auto product = function("product", [](Expr a) { return matmul(transpose(a), a); });
    GradientTape tape;
    tape.watch(t);
    BOOST_TEST(numbers(tape.gradient(product(t), t)) == (Numbers{6, 6, 14, 14}));
  });
}

BOOST_AUTO_TEST_CASE(functions_and_tapes_nest_to_any_order) {  // D2
  in_each_place([](Eager& e) {
    const double expected[] = {std::cos(1), -std::sin(1), -std::cos(1), std::sin(1), std::cos(1)};
    Expr one = e.constant(1.0);
    auto f0 = function("f0", [](Expr x) { return cos(x); });
    // tapes outside: f0 alone is staged
    {
      GradientTape t1, t2, t3, t4;
      for (GradientTape* t : {&t1, &t2, &t3, &t4}) t->watch(one);
      Expr y = f0(one);
      BOOST_CHECK_CLOSE(number(y), expected[0], 1e-10);
      int order = 0;
      for (GradientTape* t : {&t4, &t3, &t2, &t1}) {
        y = t->gradient(y, one);
        BOOST_CHECK_CLOSE(number(y), expected[++order], 1e-10);
      }
    }
    // tapes inside: each gradient is a function of its own
    const auto derivative = [](auto f, std::string name) {
      return function(std::move(name), [f](Expr x) {
        GradientTape tape;
        tape.watch(x);
        Expr y = f(x);
        return tape.gradient(y, x);
      });
    };
    auto f1 = derivative(f0, "f1");
    auto f2 = derivative(f1, "f2");
    auto f3 = derivative(f2, "f3");
    BOOST_CHECK_CLOSE(number(f1(one)), expected[1], 1e-10);
    BOOST_CHECK_CLOSE(number(f2(one)), expected[2], 1e-10);
    BOOST_CHECK_CLOSE(number(f3(one)), expected[3], 1e-10);
    // both
    GradientTape tape;
    tape.watch(one);
    BOOST_CHECK_CLOSE(number(tape.gradient(f3(one), one)), expected[4], 1e-10);
  });
}

BOOST_AUTO_TEST_CASE(one_persistent_tape_inside_gives_all_orders) {
  in_each_scope([](Eager& e) {
    auto f = function("f", [](Expr x, int order) {
      GradientTape tape({.persistent = true});
      tape.watch(x);
      Expr y = cos(x);
      for (int i = 0; i < order; ++i) y = tape.gradient(y, x);
      return y;
    });
    const double expected[] = {std::cos(1), -std::sin(1), -std::cos(1), std::sin(1), std::cos(1)};
    for (int order = 0; order < 5; ++order)
      BOOST_CHECK_CLOSE(number(f(e.constant(1.0), order)), expected[order], 1e-10);
  });
}

BOOST_AUTO_TEST_CASE(staged_control_flow_has_gradients) {  // D5
  in_each_place([](Eager& e) {
    Expr one = e.constant(1.0);
    auto branch = function("branch", [](Expr x) {
      return cond(
          x > 0.5, [&] { return 2.0 * x; }, [&] { return 3.0 * x; });
    });
    auto loop = function("loop", [](Expr x) {
      return std::get<1>(while_loop([](Expr i, Expr) { return i < 2.0; },
                                    [](Expr i, Expr y) {
                                      return std::tuple{i + 1.0, y * 2.0};
                                    },
                                    std::tuple{x * 0.0, x}));
    });
    auto powers = function("powers", [](Expr x) {
      return std::get<1>(while_loop([](Expr i, Expr) { return i < 3.0; },
                                    [&](Expr i, Expr y) {
                                      return std::tuple{i + 1.0, y * x};
                                    },
                                    std::tuple{x * 0.0, x}));
    });
    GradientTape tape({.persistent = true});
    tape.watch(one);
    BOOST_TEST(number(tape.gradient(branch(one), one)) == 2);
    BOOST_TEST(number(tape.gradient(loop(one), one)) == 4);
    BOOST_TEST(number(tape.gradient(powers(one), one)) == 4);

    Expr two = e.constant(2.0), first;
    GradientTape outer;
    outer.watch(two);
    {
      GradientTape inner;
      inner.watch(two);
      first = inner.gradient(powers(two), two);
    }
    BOOST_TEST(number(first) == 32);
    BOOST_TEST(number(outer.gradient(first, two)) == 48);
  });
}

BOOST_AUTO_TEST_CASE(results_may_be_empty) {  // D8
  in_each_place([](Eager& e) {
    struct Four {
      Expr a, b, c, d;
      auto members() { return std::tie(a, b, c, d); }
    };
    auto f = function("f", [](Expr a, Expr b) {
      return Four{Expr(), a * (a + b), Expr(), 2.0 * a};
    });
    Expr a = e.constant(5.0), b = e.constant(1.0);
    GradientTape tape({.persistent = true});
    tape.watch(std::pair(a, b));
    Four out = f(a, b);
    BOOST_TEST(out.a.is_empty());
    BOOST_TEST(out.c.is_empty());
    BOOST_TEST(number(out.b) == 30);
    BOOST_TEST(number(out.d) == 10);
    BOOST_TEST(number(tape.gradient(out.b, a)) == 11);
    BOOST_TEST(number(tape.gradient(out.d, a)) == 2);
  });
}

BOOST_AUTO_TEST_CASE(captured_values_have_gradients) {  // D10
  in_each_place([](Eager& e) {
    Expr x = e.constant(3.0);
    GradientTape tape;
    tape.watch(x);
    auto f = function("f", [&] { return 2.0 * x; });
    BOOST_TEST(number(tape.gradient(f(), x)) == 2);
  });
}

BOOST_AUTO_TEST_CASE(effects_beside_a_loss_do_not_hinder_its_gradient) {  // D12, D14
  in_each_place([](Eager& e) {
    Variable model = e.variable("model", Tensor::scalar(1.0)),
             counter = e.variable("counter", Tensor::scalar(0.0)),
             unused = e.variable("unused", Tensor::scalar(0.0));
    auto f = function("f", [&] {
      counter.assign_add(1.0);
      unused.read();
      return 0.5 * square(7.0 - model.read());
    });
    for (int n = 1; n < 3; ++n) {
      GradientTape tape;
      const std::vector<Expr> d = tape.gradient(f(), {model, counter, unused});
      BOOST_TEST(number(d[0]) == -6);
      BOOST_TEST(d[1].is_empty());
      BOOST_TEST(d[2].is_empty());
      BOOST_TEST(number(counter.read()) == n);
    }
  });
}

BOOST_AUTO_TEST_CASE(paths_that_end_may_count_as_zeros) {
  in_each_scope([](Eager& e) {
    Variable v = e.variable("v", Tensor::scalar(1.0));
    const auto code = [&](Expr x) {
      const Expr written = v.assign(x * 3.0);
      return std::tuple{written + sin(x), x * x, written * 2.0};
    };
    auto traced = function("f", code);
    const Expr x = e.constant(0.5);
    const auto slopes = [&](auto f) {
      GradientTape tape({.persistent = true, .watch_variables = false});
      tape.watch(x);
      const auto [mixed, square, ends] = f(x);
      const TapeGradientOptions zeros{.unconnected = Unconnected::zeros};
      Numbers out;
      for (const Exprs& ys : std::vector<Exprs>{{mixed}, {square}, {ends}, {mixed, square, ends}})
        out.push_back(number(tape.gradient(ys, x, zeros)));
      // a path that ends is refused without zeros, and hinders no other result
      out.push_back(number(tape.gradient(square, x)));
      BOOST_CHECK_THROW(tape.gradient(mixed, x), Error);
      return out;
    };
    const Numbers expected{std::cos(0.5), 1, 0, std::cos(0.5) + 1, 1};
    BOOST_TEST(slopes(code) == expected);
    BOOST_TEST(slopes(traced) == expected);
    // nested tapes give the second order
    GradientTape outer({.watch_variables = false});
    outer.watch(x);
    GradientTape inner({.watch_variables = false});
    inner.watch(x);
    const TapeGradientOptions zeros{.unconnected = Unconnected::zeros};
    const Expr slope = inner.gradient(std::get<0>(traced(x)), x, zeros);
    BOOST_TEST(number(outer.gradient(slope, x, zeros)) == -std::sin(0.5));
  });
}

BOOST_AUTO_TEST_CASE(custom_gradients_are_staged) {  // B13
  in_each_place([](Eager& e) {
    auto f = function("f", [](Expr x) {
      Expr scale = x * 0.0 + 2.0;
      return with_gradient(square(x), {x},
                           [=](const Expr& dy, const std::vector<Expr>& xs, const Expr&) {
                             return std::vector<Expr>{scale * dy * xs[0] + 1.0};
                           });
    });
    Expr x = e.constant(3.0);
    GradientTape tape;
    tape.watch(x);
    BOOST_TEST(number(tape.gradient(f(x), x)) == 7);
    Variable v = e.variable("v", Tensor::scalar(3.0));
    GradientTape of_variable;
    BOOST_TEST(number(of_variable.gradient(f(v), v)) == 7);
  });
}

BOOST_AUTO_TEST_CASE(a_tape_inside_does_not_see_what_was_before_it) {
  in_each_scope([](Eager& e) {
    Variable v = e.variable("v", Tensor::scalar(3.0));
    auto f = function("f", [&](Expr x) {
      Expr before = v.read() * x;
      GradientTape tape;
      tape.watch(x);
      Expr y = v.read() * x, stopped;
      {
        const auto pause = tape.stop_recording();
        stopped = x * x;
      }
      const std::vector<Expr> d = tape.gradient(y + before + stopped, {v});
      return d[0];
    });
    BOOST_TEST(number(f(e.constant(2.0))) == 2);
  });
}

BOOST_AUTO_TEST_CASE(a_training_step_is_the_same_eagerly_and_staged) {
  in_each_scope([](Eager& e) {
    const auto train = [&](const char* name, bool is_staged) {
      Variable w =
          e.variable(std::string(name) + "/w", DType::f32, {4, 1}, Initializer::normal(0, 1, 7));
      w.assign(e.constant(Tensor::of<float>({1, 2, 3, 4}, {4, 1})));
      const auto step = [&](Expr x, Expr y) {
        GradientTape tape;
        Expr loss = mean(square(matmul(x, w) - y));
        Momentum({.learning_rate = 0.05}).apply(tape.gradient(loss, {w}), {w});
        return loss;
      };
      auto staged = function("step", step);
      std::vector<float> losses;
      for (int i = 0; i < 10; ++i) {
        Expr x = e.constant(
                 Tensor::of<float>({1, 0, 2, 1, 0, 1, 1, static_cast<float>(i % 3)}, {2, 4})),
             y = e.constant(Tensor::of<float>({1, 2}, {2, 1}));
        losses.push_back((is_staged ? staged(x, y) : step(x, y)).value().item<float>());
      }
      BOOST_TEST(staged.traces() == (is_staged ? 1 : 0));
      return losses;
    };
    BOOST_TEST(train("eager", false) == train("staged", true));
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
