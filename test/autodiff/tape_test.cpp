// Gradient tapes over eager values: what is watched, recorded and summed, orders of derivatives,
// and each misuse. The rows of traced functions are in actors/trace/traced_test.cpp.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include <fmt/format.h>

#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/autodiff/tape_records.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/controlflow/list.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/actor_node.hpp>
#include <troupe/ops/graph/custom_gradient.hpp>
#include <troupe/test/support/eager_scopes.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(tape_test)

namespace {

Expr f64(Eager& e, double value) { return e.constant(value); }

}  // namespace

// ---- A: what a tape yields

BOOST_AUTO_TEST_CASE(the_gradient_of_a_value_with_respect_to_itself_is_one) {  // A1
  in_each_place([](Eager& e) {
    Expr x = f64(e, 3);
    GradientTape tape;
    tape.watch(x);
    BOOST_TEST(number(tape.gradient(x, x)) == 1);
  });
}

BOOST_AUTO_TEST_CASE(identity_hands_the_gradient_on) {  // A2
  in_each_place([](Eager& e) {
    Expr x = f64(e, 3);
    GradientTape tape;
    tape.watch(x);
    BOOST_TEST(number(tape.gradient(identity(x), x)) == 1);
  });
}

BOOST_AUTO_TEST_CASE(a_target_may_be_a_source_too) {  // A3
  in_each_place([](Eager& e) {
    Expr x = f64(e, 2);
    GradientTape tape;
    tape.watch(x);
    Expr y = x * x;
    BOOST_TEST(number(tape.gradient({x, y}, x)) == 5);
  });
}

BOOST_AUTO_TEST_CASE(strings_and_integers_have_no_gradient) {  // A6, A10
  in_each_place([](Eager& e) {
    Expr x = f64(e, 2), s = e.constant(std::string("s")), i = e.constant(std::int64_t{3});
    GradientTape tape({.persistent = true});
    tape.watch(x);
    tape.watch(s);
    tape.watch(i);
    BOOST_TEST(tape.gradient(s, x).is_empty());
    BOOST_TEST(tape.gradient(x * x, s).is_empty());
    BOOST_TEST(tape.gradient(i + i, i).is_empty());
  });
}

BOOST_AUTO_TEST_CASE(several_targets_add_up) {  // A7
  in_each_place([](Eager& e) {
    Expr x = f64(e, 3), y = f64(e, 2);
    GradientTape tape;
    tape.watch(x);
    tape.watch(y);
    const std::vector<Expr> d = tape.gradient({2.0 * x, 3.0 * y}, {x, y});
    BOOST_TEST(number(d[0]) == 2);
    BOOST_TEST(number(d[1]) == 3);
  });
}

BOOST_AUTO_TEST_CASE(output_gradients_weigh_the_targets) {  // A8
  in_each_place([](Eager& e) {
    Expr x = f64(e, 3), y = f64(e, 2);
    GradientTape tape;
    tape.watch(x);
    Expr loss = x * y;
    BOOST_TEST(number(tape.gradient({loss, x}, x, {.output_gradients = {f64(e, 1), f64(e, 2)}})) ==
               4);
  });
}

BOOST_AUTO_TEST_CASE(a_tape_gives_one_gradient_unless_it_is_persistent) {  // A11, A12
  in_each_place([](Eager& e) {
    Expr x = f64(e, 3);
    GradientTape once;
    once.watch(x);
    Expr y = x * x;
    BOOST_TEST(number(once.gradient(y, x)) == 6);
    BOOST_CHECK_EXCEPTION(once.gradient(y, x), Error, [](const Error& error) {
      return says(error, Code::failed_precondition, {"tape_test.cpp", "used up", "persistent"});
    });

    GradientTape tape({.persistent = true});
    tape.watch(x);
    y = x * x;
    Expr z = y * y;
    BOOST_TEST(number(tape.gradient(z, x)) == 108);
    BOOST_TEST(number(tape.gradient(y, x)) == 6);
  });
}

BOOST_AUTO_TEST_CASE(tapes_nest) {  // A15
  in_each_place([](Eager& e) {
    Expr x = f64(e, 3);
    GradientTape outer;
    outer.watch(x);
    Expr y = x * x, inner_gradient;
    {
      GradientTape inner;
      inner.watch(y);
      Expr z = y * 2.0;
      inner_gradient = inner.gradient(z, y);
    }
    BOOST_TEST(number(inner_gradient) == 2);
    BOOST_TEST(number(outer.gradient(y + inner_gradient, x)) == 6);
  });
}

BOOST_AUTO_TEST_CASE(a_source_may_lie_between) {  // A17
  in_each_place([](Eager& e) {
    Expr x = f64(e, 3);
    GradientTape tape;
    tape.watch(x);
    Expr y = x * x, z = y * y;
    const std::vector<Expr> d = tape.gradient(z, {x, y});
    BOOST_TEST(number(d[0]) == 108);
    BOOST_TEST(number(d[1]) == 18);
  });
}

BOOST_AUTO_TEST_CASE(a_tape_that_records_cannot_be_started) {  // A19
  in_each_place([](Eager&) {
    GradientTape tape;
    BOOST_CHECK_EXCEPTION(tape.start(), Error, [](const Error& error) {
      return says(error, Code::failed_precondition, {"records already", "tape_test.cpp"});
    });
  });
}

BOOST_AUTO_TEST_CASE(nothing_is_recorded_while_it_is_stopped) {  // A20
  in_each_place([](Eager& e) {
    Expr x = f64(e, 2);
    GradientTape tape({.persistent = true});
    tape.watch(x);
    Expr y;
    {
      const auto stopped = tape.stop_recording();
      y = x * x;
    }
    Expr z = x * x;
    BOOST_TEST(tape.gradient(y, x).is_empty());
    BOOST_TEST(number(tape.gradient(z, x)) == 4);
  });
}

BOOST_AUTO_TEST_CASE(end_of_pause_restarts_no_used_started_or_stopped_tape) {  // A20
  in_each_place([](Eager& e) {
    Expr x = f64(e, 2);
    {
      GradientTape used;
      used.watch(x);
      Expr y = x * x;
      const auto pause = used.stop_recording();
      BOOST_TEST(number(used.gradient(y, x)) == 4);
    }
    {
      GradientTape started({.persistent = true});
      started.watch(x);
      Expr y;
      {
        const auto pause = started.stop_recording();
        started.start();
      }
      y = x * x;
      BOOST_TEST(number(started.gradient(y, x)) == 4);
    }
    GradientTape stopped({.persistent = true});
    stopped.watch(x);
    {
      const auto pause = stopped.stop_recording();
      const auto within = stopped.stop_recording();
    }
    Expr recorded = x * x;
    stopped.stop();
    { const auto pause = stopped.stop_recording(); }
    BOOST_TEST(stopped.gradient(x * x, x).is_empty());
    BOOST_TEST(number(stopped.gradient(recorded, x)) == 4);
  });
}

BOOST_AUTO_TEST_CASE(a_watched_value_that_was_recorded_keeps_its_path) {
  in_each_place([](Eager& e) {
    Expr x = f64(e, 3);
    GradientTape tape;
    tape.watch(x);
    Expr y = x * x;
    tape.watch(y);
    const std::vector<Expr> d = tape.gradient(y * y, {x, y});
    BOOST_TEST(number(d[0]) == 108);
    BOOST_TEST(number(d[1]) == 18);
  });
}

BOOST_AUTO_TEST_CASE(variables_are_watched_when_they_are_read) {  // A22
  in_each_place([](Eager& e) {
    Variable v = e.variable("v", Tensor::scalar(2.0));
    GradientTape tape;
    BOOST_TEST(tape.watched_variables().empty());
    Expr y = v.read() * 2.0;
    BOOST_REQUIRE_EQUAL(tape.watched_variables().size(), 1U);
    BOOST_TEST(tape.watched_variables()[0].name() == "v");
    tape.reset();
    BOOST_TEST(tape.watched_variables().empty());
    y = v.read() * 3.0;
    BOOST_TEST(number(tape.gradient(y, v)) == 3);
  });
}

BOOST_AUTO_TEST_CASE(only_given_variables_are_watched_if_asked_so) {  // A23
  in_each_place([](Eager& e) {
    Variable a = e.variable("a", Tensor::scalar(1.0)), b = e.variable("b", Tensor::scalar(1.0));
    GradientTape tape({.watch_variables = false});
    tape.watch(b);
    Expr y = square(a.read()), z = b.read() * b.read() * b.read();
    const std::vector<Expr> d = tape.gradient({y, z}, {a, b});
    BOOST_TEST(d[0].is_empty());
    BOOST_TEST(number(d[1]) == 3);
  });
}

BOOST_AUTO_TEST_CASE(a_gradient_may_be_taken_while_it_records) {  // A25
  for (const bool persistent : {false, true}) {
    Eager e;
    Expr v = f64(e, 3);
    GradientTape tape({.persistent = persistent});
    tape.watch(v);
    Expr y = 2.0 * v;
    BOOST_TEST(number(tape.gradient(y, v)) == 2);
  }
}

BOOST_AUTO_TEST_CASE(unconnected_gradient_is_none_zeros_or_refused) {  // A26
  in_each_place([](Eager& e) {
    Expr x = matrix(e, {1, 2, 3, 4}, {2, 2}), z = f64(e, 1);
    GradientTape tape({.persistent = true});
    tape.watch(x);
    tape.watch(z);
    Expr y = z * 2.0;
    BOOST_TEST(tape.gradient(y, x).is_empty());
    BOOST_TEST(numbers(tape.gradient(y, x, {.unconnected = Unconnected::zeros})) ==
               Numbers(4, 0.0));
    BOOST_CHECK_EXCEPTION(tape.gradient(y, x, {.unconnected = Unconnected::refused}), Error,
                          [](const Error& error) {
                            return says(error, Code::invalid_argument,
                                        {"source 0", "Unconnected::zeros", "tape_test.cpp"});
                          });
  });
}

BOOST_AUTO_TEST_CASE(cpp_may_look_at_values_and_choose) {  // A28
  Eager e;
  Variable a = e.variable("a", Tensor::scalar(2.0)), b = e.variable("b", Tensor::scalar(3.0)),
           c = e.variable("c", Tensor::scalar(5.0));
  GradientTape tape;
  Expr most = a.read();
  for (const Variable& v : {b, c})
    if (Expr next = v.read(); next > most) most = next;
  const std::vector<Expr> d = tape.gradient(most, {a, b, c});
  BOOST_TEST(d[0].is_empty());
  BOOST_TEST(d[1].is_empty());
  BOOST_TEST(number(d[2]) == 1);
}

BOOST_AUTO_TEST_CASE(gradient_of_where_chooses_element_by_element) {  // A32
  in_each_place([](Eager& e) {
    Expr x = matrix(e, {5, 50}, {2});
    GradientTape tape;
    tape.watch(x);
    Expr y = where(x < 10.0, x, x * x);
    BOOST_TEST(numbers(tape.gradient(y, x)) == (Numbers{1, 100}));
  });
}

BOOST_AUTO_TEST_CASE(pairs_go_in_as_targets_and_structures_as_sources) {  // A34
  in_each_place([](Eager& e) {
    Expr x = f64(e, 4), z = f64(e, 7);
    GradientTape tape({.persistent = true});
    tape.watch(std::pair(x, z));
    BOOST_TEST(number(tape.gradient(std::pair(x, 2.0 * x), x)) == 3);
    const auto [dx, dz] = tape.gradient(x * z, std::pair(x, z));
    BOOST_TEST(number(dx) == 7);
    BOOST_TEST(number(dz) == 4);
  });
}

BOOST_AUTO_TEST_CASE(gradients_have_gradients) {  // A35
  in_each_place([](Eager& e) {
    Expr x = f64(e, 0);
    GradientTape outer;
    outer.watch(x);
    Expr first;
    {
      GradientTape inner;
      inner.watch(x);
      first = inner.gradient(exp(x), x);
    }
    BOOST_TEST(number(outer.gradient(first, x)) == 1);

    Expr y = f64(e, 3);
    GradientTape second;
    second.watch(y);
    {
      GradientTape inner;
      inner.watch(y);
      first = inner.gradient(y * y, y);
    }
    BOOST_TEST(number(second.gradient(first, y)) == 2);

    // the cross-entropy of one class is flat, to second order too
    Expr logits = matrix(e, {0}, {1, 1}), labels = e.constant(Tensor::of<std::int64_t>({0}));
    GradientTape third;
    third.watch(logits);
    {
      GradientTape inner;
      inner.watch(logits);
      first = inner.gradient(sum(cross_entropy(logits, labels)), logits);
    }
    BOOST_TEST(numbers(third.gradient(first, logits)) == Numbers{0});
  });
}

BOOST_AUTO_TEST_CASE(one_persistent_tape_gives_second_derivatives) {
  Eager e;
  Expr x = f64(e, 1);
  GradientTape tape({.persistent = true});
  tape.watch(x);
  Expr y = cos(x);
  const double expected[] = {std::cos(1), -std::sin(1), -std::cos(1), std::sin(1), std::cos(1)};
  for (const double want : expected) {
    BOOST_CHECK_CLOSE(number(y), want, 1e-10);
    y = tape.gradient(y, x);
  }
}

BOOST_AUTO_TEST_CASE(a_path_ends_at_argmax) {  // A37
  in_each_place([](Eager& e) {
    Expr x = matrix(e, {1, 2}, {2});
    GradientTape tape;
    tape.watch(x);
    Expr y = stop_gradient(cast(argmax(x, 0), DType::f64));
    BOOST_TEST(tape.gradient(y, x).is_empty());
  });
}

BOOST_AUTO_TEST_CASE(rows_of_a_table_stay_sparse_and_add_up) {  // A39
  in_each_place([](Eager& e) {
    Variable table = e.variable("table", Tensor::zeros(DType::f64, {3, 2}));
    GradientTape tape({.persistent = true});
    Expr t = table.read();
    Expr of_rows = sum(gather(t, e.constant(Tensor::of<std::int64_t>({0, 2})), 0) *
                       matrix(e, {1, 2, 3, 4}, {2, 2}));
    Expr of_all = sum(t * matrix(e, {0, 0, 5, 6, 7, 8}, {3, 2}));
    const std::vector<Cotangent> rows = tape.cotangents(of_rows, table);
    BOOST_TEST(rows[0].is_sparse());
    BOOST_TEST(numbers(tape.gradient(of_rows + of_all, table)) == (Numbers{1, 2, 5, 6, 10, 12}));
  });
}

BOOST_AUTO_TEST_CASE(eager_control_flow_has_gradients) {  // A40
  in_each_place([](Eager& e) {
    Expr x = f64(e, 3);
    {
      GradientTape tape;
      tape.watch(x);
      Expr y = cond(
          x < x, [&] { return x; }, [&] { return x * x; });
      BOOST_TEST(number(tape.gradient(y, x)) == 6);
    }
    Expr z = f64(e, 2);
    GradientTape tape;
    tape.watch(z);
    auto [i, y] = while_loop([](Expr n, Expr) { return n < 3; },
                             [](Expr n, Expr v) {
                               return std::tuple{n + 1, v * 2.0};
                             },
                             std::tuple{e.constant(std::int64_t{1}), z});
    BOOST_TEST(number(tape.gradient(y, z)) == 4);
  });
}

BOOST_AUTO_TEST_CASE(lists_have_gradients) {
  Eager e;
  Expr xs = matrix(e, {1, 2, 3}, {3});
  GradientTape tape;
  tape.watch(xs);
  Expr ys = scan([](Expr s, Expr x) { return s + x * x; }, xs, f64(e, 0));
  BOOST_TEST(numbers(tape.gradient(sum(ys), xs)) == (Numbers{6, 8, 6}));
}

BOOST_AUTO_TEST_CASE(custom_gradients_take_the_place_of_the_ops_own) {  // B7, B8
  in_each_place([](Eager& e) {
    Variable x = e.variable("x", Tensor::scalar(2.0));
    std::vector<double> losses;
    for (int step = 0; step < 5; ++step) {
      GradientTape tape;
      Expr v = x.read(), y = 2.0 * v;
      Expr loss = with_gradient(y, {v}, [](const Expr& dy, const auto&, const Expr&) {
        return std::vector<Expr>{2.0 * dy};
      });
      losses.push_back(number(loss));
      x.assign_sub(0.25 * tape.gradient(loss, x));
    }
    BOOST_TEST(losses == (Numbers{4, 3, 2, 1, 0}));

    const auto tripled = [](const Expr& v) {
      return with_gradient(identity(v), {v}, [](const Expr& dy, const auto&, const Expr&) {
        return std::vector<Expr>{3.0 * dy};
      });
    };
    Expr z = f64(e, 1);
    GradientTape tape;
    tape.watch(z);
    BOOST_TEST(number(tape.gradient(tripled(tripled(z)), z)) == 9);
  });
}

BOOST_AUTO_TEST_CASE(an_error_of_a_gradient_function_reaches_the_caller) {  // B10
  in_each_place([](Eager& e) {
    Expr x = f64(e, 1);
    GradientTape tape;
    tape.watch(x);
    Expr y = with_gradient(x * 2.0, {x}, [](const Expr&, const auto&, const Expr&) {
      throw Error(Code::aborted, "no such luck");
      return std::vector<Expr>();
    });
    BOOST_CHECK_EXCEPTION(tape.gradient(y, x), Error, [](const Error& error) {
      return says(error, Code::aborted, {"no such luck", "tape_test.cpp"});
    });
  });
}

BOOST_AUTO_TEST_CASE(an_actor_on_the_path_is_refused) {
  Eager e;
  Expr x = f64(e, 1);
  GradientTape tape({.persistent = true});
  tape.watch(x);
  Expr y = actor_node(e, "twice", {x}, {{DType::f64, Shape{}}},
                      [](std::span<const Tensor> in, std::span<Tensor> out) {
                        out[0] = Tensor::scalar(2 * in[0].item<double>());
                      })[0];
  BOOST_CHECK_EXCEPTION(tape.gradient(y, x), Error, [](const Error& error) {
    return says(error, Code::unimplemented, {"has no gradient", "tape_test.cpp"});
  });
  BOOST_TEST(number(tape.gradient(y, x, {.unconnected = Unconnected::zeros})) == 0);
}

BOOST_AUTO_TEST_CASE(complex_targets_need_their_output_gradient) {
  Eager e;
  Expr x = e.constant(Tensor::scalar(std::complex<double>(1, 2)));
  GradientTape tape({.persistent = true});
  tape.watch(x);
  Expr y = x * x;
  BOOST_CHECK_EXCEPTION(tape.gradient(y, x), Error, [](const Error& error) {
    return says(error, Code::invalid_argument, {"target 0", "output gradient"});
  });
  BOOST_TEST(
      !tape.gradient(y, x,
                     {.output_gradients = {e.constant(Tensor::scalar(std::complex<double>(1, 0)))}})
           .is_empty());
}

BOOST_AUTO_TEST_CASE(complex_targets_of_a_graph_need_their_output_gradient) {
  Graph g;
  Expr x = g.input("x", DType::c128, {}),
       one = g.constant(Tensor::scalar(std::complex<double>(1, 0)));
  GradientTape tape({.persistent = true});
  tape.watch(x);
  Expr y = x * x;
  BOOST_CHECK_EXCEPTION(tape.gradient({y, y}, x, {.output_gradients = {one, Expr()}}), Error,
                        [](const Error& error) {
                          return says(error, Code::invalid_argument,
                                      {"tape_test.cpp", "target 1", "output gradient"});
                        });
  BOOST_TEST(!tape.gradient({y, y}, x, {.output_gradients = {one, one}}).is_empty());
}

BOOST_AUTO_TEST_CASE(gradients_have_the_structure_of_any_source) {
  struct Layer {
    Variable w, b;
    auto members() { return std::tie(w, b); }
  };
  struct Inputs {
    std::vector<Expr> flat;
    std::vector<std::vector<Expr>> nested;
    auto members() { return std::tie(flat, nested); }
  };
  in_each_scope([](Eager& e) {
    const std::vector<Layer> layers = {
        {e.variable("w0", Tensor::scalar(2.0)), e.variable("b0", Tensor::scalar(3.0))},
        {e.variable("w1", Tensor::scalar(4.0)), e.variable("b1", Tensor::scalar(5.0))}};
    const Inputs in{{f64(e, 6)}, {{f64(e, 7), f64(e, 8)}, {}, {f64(e, 9)}}};
    GradientTape tape({.persistent = true});
    tape.watch(in);
    Expr y = in.flat[0] * in.nested[0][1] * in.nested[2][0];
    for (const Layer& l : layers) y = y + l.w.read() * l.b.read();
    const auto of_layers = tape.gradient(y, layers);
    BOOST_TEST(number(std::get<0>(of_layers[0])) == 3);
    BOOST_TEST(number(std::get<1>(of_layers[1])) == 4);
    const Inputs d = tape.gradient(y, in);
    BOOST_TEST(number(d.flat[0]) == 72);
    BOOST_TEST(d.nested[0][0].is_empty());
    BOOST_TEST(number(d.nested[0][1]) == 54);
    BOOST_TEST(d.nested[1].empty());
    BOOST_TEST(number(d.nested[2][0]) == 48);
    BOOST_TEST(number(tape.gradient(in, in).flat[0]) == 1);  // targets, too
    BOOST_TEST(number(tape.jacobian(y, in).nested[2][0]) == 48);
  });
}

BOOST_AUTO_TEST_CASE(an_output_gradient_must_fit_its_target) {
  in_each_scope([](Eager& e) {
    const Expr x = matrix(e, {1, 2}, {2});
    auto staged = function("staged", [](Expr v) { return v * 2.0; });
    for (const bool is_staged : {false, true})
      for (const Expr& dy : {matrix(e, {1, 2, 3}, {3}), e.constant(Tensor::of<float>({1, 2})),
                             e.constant(Tensor::of<std::int64_t>({1, 2}))}) {
        GradientTape tape;
        tape.watch(x);
        const Expr y = is_staged ? staged(x) : x * 2.0;
        BOOST_CHECK_EXCEPTION(tape.gradient({x, y}, x, {.output_gradients = {Expr(), dy}}), Error,
                              [&](const Error& error) {
                                return says(error, Code::invalid_argument,
                                            {"tape_test.cpp", "output gradient of target 1",
                                             "f64[2]", dy.spec().text()});
                              });
      }
  });
}

BOOST_AUTO_TEST_CASE(wrong_numbers_of_output_gradients_are_refused) {
  Eager e;
  Expr x = f64(e, 1);
  GradientTape tape;
  tape.watch(x);
  BOOST_CHECK_EXCEPTION(
      tape.gradient({x, x * x}, x, {.output_gradients = {f64(e, 1)}}), Error,
      [](const Error& error) {
        return says(error, Code::invalid_argument, {"1 output gradients", "2 targets"});
      });
}

// ---- with optimizers, and as gradients of graphs built by hand

BOOST_AUTO_TEST_CASE(optimizers_take_the_gradients_of_a_tape) {
  Eager e;
  Variable w = e.variable("w", Tensor::scalar(0.0));
  for (int step = 0; step < 50; ++step) {
    GradientTape tape;
    Expr loss = square(w.read() - 3.0);
    const std::vector<Expr> d = tape.gradient(loss, {w});
    Sgd({.learning_rate = 0.1}).apply(d, {w});
  }
  BOOST_CHECK_CLOSE(number(w.read()), 3.0, 0.01);
}

BOOST_AUTO_TEST_CASE(a_tape_differentiates_a_graph_that_is_built_by_hand) {
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  GradientTape tape;
  tape.watch(x);
  Expr y = x * x * x;
  Expr d = tape.gradient(y, x);
  BOOST_TEST(Eager().run(g, {{x, Tensor::scalar(2.0)}}, {d})[0].item<double>() == 12);
}

BOOST_AUTO_TEST_CASE(given_variables_of_a_graph_that_is_built_by_hand_are_watched) {
  Graph g;
  Variable a = g.variable("a", Tensor::scalar(2.0)), b = g.variable("b", Tensor::scalar(3.0));
  GradientTape tape({.watch_variables = false});
  tape.watch(b);
  tape.watch(b);
  BOOST_REQUIRE_EQUAL(tape.watched_variables().size(), 1U);
  BOOST_TEST(tape.watched_variables()[0].name() == "b");
  Expr y = a.read() * square(b.read());
  const std::vector<Expr> d = tape.gradient(y, {a, b});
  BOOST_TEST(d[0].is_empty());
  BOOST_REQUIRE(!d[1].is_empty());
  BOOST_TEST(Eager().run(g, {}, {d[1]})[0].item<double>() == 12);
}

// ---- memory

BOOST_AUTO_TEST_CASE(kept_records_have_memory_for_few_values) {
  TapeRecords records;
  const auto filled_and_cleared = [&](std::size_t entries) {
    for (std::size_t i = 0; i < entries; ++i) {
      records.next();
      const auto number = static_cast<std::int32_t>(i);
      records.values.set(Edge{number, 0}, number);
    }
    records.clear();
    return records.values.capacity();
  };
  BOOST_TEST(filled_and_cleared(100) >= 100U);
  BOOST_TEST(filled_and_cleared(TapeRecords::kMostKept + 1) == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
