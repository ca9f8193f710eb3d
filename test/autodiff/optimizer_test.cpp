// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Optimizers against the papers' formulas written out on doubles, dense and by rows.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <limits>

#include <troupe/autodiff/check.hpp>
#include <troupe/autodiff/loss_scale.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(optimizer_test, TROUPE_ONE_THREAD)

namespace {

using Numbers = std::vector<double>;
namespace tools = boost::test_tools;

/// One step on one element, given its gradient and its slots.
using Rule = std::function<double(double w, double g, Numbers& slots, int t)>;

Rule sgd_rule(double rate) {
  return [=](double w, double g, Numbers&, int) { return w - rate * g; };
}
Rule momentum_rule(double rate, double momentum, bool nesterov) {
  return [=](double w, double g, Numbers& s, int) {
    s[0] = momentum * s[0] + g;
    return w - rate * (nesterov ? g + momentum * s[0] : s[0]);
  };
}
Rule adam_rule(double rate, double b1, double b2, double epsilon) {
  return [=](double w, double g, Numbers& s, int t) {
    s[0] = b1 * s[0] + (1 - b1) * g;
    s[1] = b2 * s[1] + (1 - b2) * g * g;
    double m = s[0] / (1 - std::pow(b1, t)), v = s[1] / (1 - std::pow(b2, t));
    return w - rate * m / (std::sqrt(v) + epsilon);
  };
}
Rule adamw_rule(double rate, double decay) {
  return [adam = adam_rule(rate, 0.8, 0.95, 1e-6), rate, decay](
             double w, double g, Numbers& s, int t) { return adam(w, g, s, t) - rate * decay * w; };
}
Rule rmsprop_rule(double rate, double decay, double epsilon, double momentum, bool centered) {
  return [=](double w, double g, Numbers& s, int) {
    s[0] = decay * s[0] + (1 - decay) * g * g;
    s[1] = decay * s[1] + (1 - decay) * g;
    const double step = g / (std::sqrt(s[0] - (centered ? s[1] * s[1] : 0)) + epsilon);
    s[2] = momentum * s[2] + step;
    return w - rate * s[2];
  };
}
Rule adagrad_rule(double rate, double epsilon) {
  return [=](double w, double g, Numbers& s, int) {
    s[0] += g * g;
    return w - rate * g / (std::sqrt(s[0]) + epsilon);
  };
}

struct Named {
  std::string name;
  std::shared_ptr<Optimizer> optimizer;
  Rule rule;
  double initial_slot = 0;
};

std::vector<Named> all_optimizers() {
  return {
      {"sgd", std::make_shared<Sgd>(SgdOptions{.learning_rate = 0.1}), sgd_rule(0.1)},
      {"momentum",
       std::make_shared<Momentum>(MomentumOptions{.learning_rate = 0.05, .momentum = 0.8}),
       momentum_rule(0.05, 0.8, false)},
      {"nesterov",
       std::make_shared<Momentum>(
           MomentumOptions{.learning_rate = 0.05, .momentum = 0.8, .nesterov = true}),
       momentum_rule(0.05, 0.8, true)},
      {"adam", std::make_shared<Adam>(AdamOptions{.learning_rate = 0.03}),
       adam_rule(0.03, 0.9, 0.999, 1e-8)},
      {"adamw",
       std::make_shared<AdamW>(AdamWOptions{.learning_rate = 0.03,
                                            .beta1 = 0.8,
                                            .beta2 = 0.95,
                                            .epsilon = 1e-6,
                                            .weight_decay = 0.2}),
       adamw_rule(0.03, 0.2)},
      {"rmsprop", std::make_shared<RmsProp>(RmsPropOptions{.learning_rate = 0.02}),
       rmsprop_rule(0.02, 0.99, 1e-8, 0, false)},
      {"rmsprop with momentum",
       std::make_shared<RmsProp>(
           RmsPropOptions{.learning_rate = 0.02, .decay = 0.9, .epsilon = 1e-6, .momentum = 0.7}),
       rmsprop_rule(0.02, 0.9, 1e-6, 0.7, false)},
      {"centered rmsprop",
       std::make_shared<RmsProp>(
           RmsPropOptions{.learning_rate = 0.02, .decay = 0.8, .momentum = 0.5, .centered = true}),
       rmsprop_rule(0.02, 0.8, 1e-8, 0.5, true)},
      {"adagrad", std::make_shared<Adagrad>(AdagradOptions{.learning_rate = 0.3}),
       adagrad_rule(0.3, 1e-7), 0.1},
  };
}

}  // namespace

BOOST_AUTO_TEST_CASE(dense_steps_follow_the_formulas) {
  for (const Named& o : all_optimizers()) {
    Graph g;
    Variable w = g.variable("w", Tensor::of<double>({1, -2, 3}));
    Expr loss = sum(square(w) * g.constant(Tensor::of<double>({1, 2, 0.5})));
    Expr step = o.optimizer->minimize(loss, {w});
    Eager run;
    Numbers expected{1, -2, 3}, scale{2, 4, 1};
    std::vector<Numbers> slots(3, Numbers(3, o.initial_slot));
    for (int t = 1; t <= 5; ++t) {
      double before = 0;
      for (int i = 0; i < 3; ++i) before += expected[i] * expected[i] * scale[i] / 2;
      std::vector<Tensor> out = run.run(g, {}, {step, loss});
      // the loss of the old variables
      BOOST_TEST(out[1].item<double>() == before, tools::tolerance(1e-12));
      for (int i = 0; i < 3; ++i)
        expected[i] = o.rule(expected[i], scale[i] * expected[i], slots[i], t);
      BOOST_TEST_CONTEXT(o.name << " step " << t)
      BOOST_TEST(run.get(g, "w").to_vector<double>() == expected, tools::tolerance(1e-12)
                                                                      << tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(sparse_steps_touch_used_rows_once_with_their_sum) {
  for (const Named& o : all_optimizers()) {
    Graph g;
    Variable table = g.variable("table", Tensor::of<double>({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2}));
    Expr indices = g.input("indices", DType::i64, {3});
    Expr loss =
        sum(gather(table, indices) * g.constant(Tensor::of<double>({1, 2, 3, 4, 5, 6}, {3, 2})));
    BOOST_REQUIRE(cotangents(loss, table)[0].is_sparse());
    Expr step = o.optimizer->minimize(loss, {table});
    Eager run;
    Numbers expected{1, 2, 3, 4, 5, 6, 7, 8};
    std::vector<Numbers> slots(8, Numbers(3, o.initial_slot));
    const std::vector<std::vector<std::int64_t>> used{{2, 0, 2}, {1, 1, 1}, {0, 3, 0}};
    for (int t = 1; t <= 3; ++t) {
      const auto& rows = used[static_cast<std::size_t>(t - 1)];
      Numbers gradient(8, 0);
      std::vector<bool> touched(8, false);
      for (int k = 0; k < 3; ++k)
        for (int j = 0; j < 2; ++j)
          gradient[rows[k] * 2 + j] += k * 2 + j + 1, touched[rows[k] * 2 + j] = true;
      for (int i = 0; i < 8; ++i)
        if (touched[i]) expected[i] = o.rule(expected[i], gradient[i], slots[i], t);
      run.run(g, {{indices, Tensor::of(rows, Shape{3})}}, {step});
      BOOST_TEST_CONTEXT(o.name << " step " << t)
      BOOST_TEST(run.get(g, "table").to_vector<double>() == expected, tools::tolerance(1e-12)
                                                                          << tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(exact_sparse_steps_equal_dense_ones) {
  for (const Named& o : all_optimizers()) {
    if (o.name != "sgd" && o.name != "adagrad") continue;
    Numbers results[2];
    for (bool sparse : {false, true}) {
      Graph g;
      Variable table = g.variable("table", Tensor::of<double>({1, 2, 3, 4, 5, 6}, {3, 2}));
      Expr loss =
          sum(square(gather(table, g.constant(Tensor::of<std::int32_t>({1, 1, 0, 1}, {2, 2})))));
      Expr step = sparse ? o.optimizer->minimize(loss, {table})
                         : o.optimizer->apply(gradients(loss, table), {table});
      Eager run;
      for (int t = 0; t < 4; ++t) run.run(g, {}, {step});
      results[sparse] = run.get(g, "table").to_vector<double>();
    }
    BOOST_TEST(results[0] == results[1], tools::tolerance(1e-13) << tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(all_updates_of_a_step_see_the_old_values) {
  // Each variable's gradient is the other's value: a step that saw an updated one would differ.
  Graph g;
  Variable a = g.variable("a", Tensor::scalar(2.0)), b = g.variable("b", Tensor::scalar(5.0));
  Expr step = Sgd({.learning_rate = 0.1}).minimize(a * b, {a, b});
  Eager run;
  run.run(g, {}, {step});
  BOOST_TEST(run.get(g, "a").item<double>() == 1.5);
  BOOST_TEST(run.get(g, "b").item<double>() == 4.8);
}

BOOST_AUTO_TEST_CASE(slots_are_named_variables) {
  Graph g;
  Variable w = g.variable("layer/w", DType::f16, {2}, Initializer::constant(1));
  Expr step = Adam().minimize(sum(square(w)), {w});
  std::vector<std::string> names;
  for (const StateSpec& s : g.states()) names.push_back(s.name + " " + s.values[0].text());
  BOOST_TEST(
      names == (std::vector<std::string>{"layer/w f16[2]", "layer/w/adam/m f32[2]",
                                         "layer/w/adam/v f32[2]", "layer/w/adam/step i64[]"}),
      tools::per_element());
  Eager run;
  run.run(g, {}, {step});
  run.run(g, {}, {step});
  BOOST_TEST(run.get(g, "layer/w/adam/step").item<std::int64_t>() == 2);
  BOOST_TEST(run.get(g, "layer/w").at(0) < 1);
}

BOOST_AUTO_TEST_CASE(tiny_gradients_move_half_precision_variables) {
  for (const Named& o : all_optimizers()) {
    if (o.name != "adam") continue;
    Graph g;
    Variable w = g.variable("w", DType::f16, {1}, Initializer::constant(1));
    Expr step = o.optimizer->minimize(sum(w * 6e-5), {w});  // its square is 0 in f16
    Eager run;
    run.run(g, {}, {step});
    BOOST_TEST(run.get(g, "w").at(0) == 1 - 0.03, tools::tolerance(1e-3));
  }
}

// The mean of equal gradients grows up to them, and rounded squares may then be below its square.
BOOST_AUTO_TEST_CASE(a_gradient_without_spread_makes_no_nan) {
  Graph g;
  Variable w = g.variable("w", DType::f32, {1}, Initializer::constant(0));
  Expr step = RmsProp({.decay = 0.5, .centered = true}).minimize(sum(w * 0.3), {w});
  Eager run;
  for (int i = 0; i < 100; ++i) run.run(g, {}, {step});
  BOOST_TEST(run.get(g, "w").at(0) < 0);
}

BOOST_AUTO_TEST_CASE(slots_live_where_their_variable_does) {
  Graph g;
  Variable w;
  {
    auto there = g.on_device("cpu:1");
    w = g.variable("w", DType::f32, {2}, Initializer::constant(1));
  }
  Momentum().minimize(sum(square(w)), {w});
  for (const StateSpec& s : g.states()) BOOST_TEST(s.device == "cpu:1");
}

BOOST_AUTO_TEST_CASE(a_rate_may_be_an_expression) {
  Graph g;
  Variable w = g.variable("w", DType::f32, {}, Initializer::constant(1));
  Expr rate = g.input("rate", DType::f64, {});
  Expr step = Sgd({.learning_rate = rate}).minimize(w * 2.0, {w});
  Eager run;
  run.run(g, {{rate, Tensor::scalar(0.25)}}, {step});
  BOOST_TEST(run.get(g, "w").item<float>() == 0.5f);
}

BOOST_AUTO_TEST_CASE(optimizer_leaves_variables_that_the_loss_does_not_use) {
  Graph g;
  Variable w = g.variable("w", Tensor::scalar(1.0)), idle = g.variable("idle", Tensor::scalar(3.0));
  Eager run;
  run.run(g, {}, {Momentum().minimize(square(w), {w, idle})});
  BOOST_TEST(run.get(g, "idle").item<double>() == 3);
  const unsigned line = __LINE__ + 1;
  BOOST_CHECK_EXCEPTION(Sgd().minimize(square(w), {idle}), Error, [&](const Error& e) {
    return std::string(e.what()).find("optimizer_test.cpp:" + std::to_string(line)) !=
           std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(update_nodes_carry_the_callers_line) {
  Graph g;
  Variable w = g.variable("w", Tensor::scalar(1.0));
  Expr loss = square(w);
  std::vector<Cotangent> d = cotangents(loss, w);
  std::int32_t before = g.size();
  Adam().apply(d, {w});
  const unsigned line = __LINE__ - 1;
  for (std::int32_t id = before; id < g.size(); ++id) BOOST_TEST(g.node(id).site.line == line);
}

BOOST_AUTO_TEST_CASE(clipping_scales_all_by_the_global_norm) {
  Graph g;
  Expr a = g.constant(Tensor::of<double>({3, 0})), b = g.constant(Tensor::scalar(4.0));
  Exprs clipped = clip_by_global_norm(Exprs{a, b, Expr()}, 1.0);
  BOOST_TEST(clipped[2].is_empty());
  std::vector<Tensor> out = evaluate_eagerly(
      g, {},
      {clipped[0], clipped[1], clip_by_global_norm(Exprs{a, b}, 10.0)[0], global_norm({a, b})});
  BOOST_TEST(out[0].to_vector<double>() == (Numbers{0.6, 0}), tools::tolerance(1e-15)
                                                                  << tools::per_element());
  BOOST_TEST(out[1].item<double>() == 0.8, tools::tolerance(1e-15));
  // not a bit is changed
  BOOST_TEST(out[2].to_vector<double>() == (Numbers{3, 0}), tools::per_element());
  BOOST_TEST(out[3].item<double>() == 5);
  // Squares that f32 does not hold.
  const Exprs huge{g.constant(Tensor::of<float>({3e30f, -4e30f}))};
  std::vector<Tensor> cut =
      evaluate_eagerly(g, {}, {global_norm({huge[0]}), clip_by_global_norm(huge, 1.0)[0]});
  BOOST_TEST(std::abs(cut[0].at(0) / 5e30 - 1) < 1e-6);
  BOOST_TEST(std::abs(cut[1].at(1) + 0.8) < 1e-6);
  // Squares that f64 does not hold.
  for (const double unit : {1e200, 1e-200}) {
    const Exprs far{g.constant(Tensor::of<double>({3 * unit, 0})),
                    g.constant(Tensor::scalar(-4 * unit))};
    cut =
        evaluate_eagerly(g, {}, {global_norm({far[0], far[1]}), clip_by_global_norm(far, unit)[1]});
    BOOST_TEST(cut[0].at(0) == 5 * unit, tools::tolerance(1e-15));
    BOOST_TEST(cut[1].at(0) == -0.8 * unit, tools::tolerance(1e-15));
  }
}

// It is not hidden: training that went wrong is to be seen.
BOOST_AUTO_TEST_CASE(a_norm_that_is_not_finite_makes_all_nan) {
  Graph g;
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Expr clipped = clip_by_global_norm(Exprs{g.constant(Tensor::of<double>({bad, 0}))}, 1.0)[0];
    for (const double x : evaluate_eagerly(g, {}, {clipped})[0].to_vector<double>())
      BOOST_TEST(std::isnan(x));
  }
  for (const double norm : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
    BOOST_TEST(
        refusal([&] { clip_by_global_norm(Exprs{g.constant(1.0)}, norm); }, Code::invalid_argument)
            .find("must be positive") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(gradients_of_another_shape_are_refused) {
  Graph g;
  Variable w = g.variable("w", DType::f32, {3}, Initializer::constant(1));
  const std::string why =
      refusal([&] { Sgd({.learning_rate = 0.1}).apply(Exprs{g.constant(1.f)}, {w}); },
              Code::invalid_argument);
  BOOST_TEST(why.find("optimizer_test.cpp") != std::string::npos, why);
  BOOST_TEST(why.find("the gradient of variable 'w' must be f32[3], as it is, not f32[]") !=
                 std::string::npos,
             why);
}

// A variable computed in f32 and stored as f16 takes either; nothing else is converted unasked.
BOOST_AUTO_TEST_CASE(gradients_of_another_dtype_are_refused) {
  Graph g;
  Variable w = g.variable("w", DType::f32, {3}, Initializer::constant(1)),
           half = g.variable("half", DType::f16, {3}, Initializer::constant(1));
  const Expr ones = g.constant(Tensor::of<double>({1, 1, 1}));
  const Sgd sgd({.learning_rate = 0.1});
  const std::string why = refusal([&] { sgd.apply(Exprs{ones}, {w}); }, Code::invalid_argument);
  BOOST_TEST(why.find("optimizer_test.cpp") != std::string::npos, why);
  BOOST_TEST(why.find("the gradient of variable 'w' must be f32[3], as it is, not f64[3]") !=
                 std::string::npos,
             why);
  refusal([&] { sgd.apply(Exprs{ones}, {half}); }, Code::invalid_argument);
  for (const DType dtype : {DType::f16, DType::f32})
    BOOST_TEST(!sgd.apply(Exprs{cast(ones, dtype)}, {half}).is_empty());
}

BOOST_AUTO_TEST_CASE(clipping_counts_duplicate_rows_once) {
  Graph g;
  Expr table = g.input("table", DType::f64, {4, 1});
  Expr rows = gather(table, g.constant(Tensor::of<std::int64_t>({1, 3, 1})));
  Expr loss = sum(rows * g.constant(Tensor::of<double>({1, 4, 2}, {3, 1})));  // rows 1: 3, 3: 4
  std::vector<Cotangent> d = cotangents(loss, table);
  std::vector<Cotangent> clipped = clip_by_global_norm(d, 1.0);
  BOOST_TEST(clipped[0].is_sparse());
  std::vector<Tensor> out = evaluate_eagerly(g, {{table, Tensor::zeros(DType::f64, {4, 1})}},
                                             {global_norm(d), clipped[0].to_dense()});
  BOOST_TEST(out[0].item<double>() == 5);
  BOOST_TEST(out[1].to_vector<double>() == (Numbers{0, 0.6, 0, 0.8}), tools::tolerance(1e-15)
                                                                          << tools::per_element());
}

BOOST_AUTO_TEST_CASE(half_precision_norms_do_not_overflow) {
  Graph g;
  Expr big = cast(g.constant(Tensor::of<double>({3000, 4000})), DType::f16);
  BOOST_TEST(evaluate_eagerly(g, {}, {global_norm({big})})[0].item<float>() == 5000.f);
}

BOOST_AUTO_TEST_CASE(options_that_make_no_step_are_refused_with_the_line) {
  Graph g;
  const Variable w = g.variable("w", Tensor::of<float>({1, 2}));
  const Expr loss = sum(square(w));
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  const auto refuses = [&](const Optimizer& optimizer, const std::string& option) {
    const std::string why = refusal([&] { optimizer.minimize(loss, {w}); }, Code::invalid_argument);
    BOOST_TEST(why.find(option) != std::string::npos, why);
    BOOST_TEST(why.find("optimizer_test.cpp:") != std::string::npos, why);
  };
  refuses(Sgd({.learning_rate = nan}), "learning_rate");
  refuses(Adam({.learning_rate = infinity}), "learning_rate");
  refuses(Adam({.beta1 = 1}), "beta1");
  refuses(Adam({.beta2 = -0.5}), "beta2");
  refuses(Adam({.epsilon = nan}), "epsilon");
  refuses(Momentum({.momentum = -1}), "momentum");
  refuses(AdamW({.beta1 = 1}), "beta1");
  refuses(AdamW({.weight_decay = -0.1}), "weight_decay");
  refuses(RmsProp({.decay = 1}), "decay");
  refuses(RmsProp({.momentum = nan}), "momentum");
  refuses(Adagrad({.initial_accumulator = -1}), "initial_accumulator");
  refuses(Adagrad({.epsilon = infinity}), "epsilon");
  BOOST_TEST(g.states().size() == 1u);               // a refused optimizer leaves no state
  Sgd({.learning_rate = -1.0}).minimize(loss, {w});  // climbs
}

BOOST_AUTO_TEST_CASE(minimize_refuses_a_loss_of_many_numbers) {  // D6
  Graph g;
  const Variable w = g.variable("w", Tensor::of<float>({1, 2}));
  const LossScale scale(g, "scale");
  const Expr open = g.input("open", DType::f32, Shape{kAny}),
             unknown = g.input("unknown", DType::f32, Shape::unknown());
  for (const Expr& loss : {square(w), square(w) * sum(open) + 0.0 * sum(w), open * sum(w)}) {
    const std::string why = refusal([&] { Sgd().minimize(loss, {w}); }, Code::invalid_argument),
                      scaled = refusal([&] { scale.minimize(Sgd(), loss, {w}); },
                                       Code::invalid_argument);
    for (const char* part : {"minimize at optimizer_test.cpp:", "mean(loss)", "sum(loss)", "f32["})
      for (const std::string& text : {why, scaled})
        BOOST_TEST(text.find(part) != std::string::npos, text);
  }
  Sgd().minimize(reshape(sum(w), {1, 1}), {w});
  const Expr step = Sgd({.learning_rate = 1.0}).minimize(unknown * sum(w), {w});
  Eager run;
  const std::string why = refusal(
      [&] {
        run.run(g, {{unknown, Tensor::of<float>({1, 2})}}, {step});
      },
      Code::invalid_argument);
  BOOST_TEST(why.find("mean(loss) or sum(loss)") != std::string::npos, why);
  run.run(g, {{unknown, Tensor::scalar(3.f)}}, {step});
  BOOST_TEST(run.get(g, "w").at(0) == 1 - 3);
}

BOOST_AUTO_TEST_CASE(a_variable_that_is_named_twice_is_refused) {
  Graph g;
  const Variable w = g.variable("w", Tensor::of<float>({1, 2}));
  const std::string why = refusal(
      [&] {
        Sgd().minimize(sum(square(w)), {w, w});
      },
      Code::invalid_argument);
  BOOST_TEST(why.find("variable 'w' is named twice") != std::string::npos, why);
  refusal([&] { Sgd().minimize(sum(square(w)), {Variable()}); }, Code::invalid_argument);
  BOOST_TEST(refusal([] { global_norm({}); }, Code::invalid_argument).find("optimizer_test.cpp:") !=
             std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
