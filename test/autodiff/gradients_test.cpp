// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Reverse mode over graphs: connected values, sums, sparse gradients, refusals.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include <troupe/autodiff/check.hpp>
#include <troupe/autodiff/differentiate.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/custom_gradient.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(gradients_test, TROUPE_ONE_THREAD)

namespace {

Tensor vec(std::initializer_list<double> v) { return Tensor::of<double>(v); }

std::vector<double> values(const Graph& g, const Expr& e, const Feeds& feeds = {}) {
  return evaluate_eagerly(g, feeds, {e})[0].to_vector<double>();
}
double value(const Graph& g, const Expr& e, const Feeds& feeds = {}) {
  return evaluate_eagerly(g, feeds, {e})[0].item<double>();
}

int nodes_of(const Graph& g, std::string_view op, std::int32_t from = 0) {
  int n = 0;
  for (std::int32_t id = from; id < g.size(); ++id) n += g.node(id).op->name == op;
  return n;
}

bool says(const Error& e, Code code, std::initializer_list<std::string> parts) {
  std::string text = e.what();
  for (const std::string& p : parts)
    if (text.find(p) == std::string::npos) {
      BOOST_TEST_MESSAGE(text);
      return false;
    }
  return e.code() == code;
}

}  // namespace

BOOST_AUTO_TEST_CASE(paths_add_up) {
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  Expr a = x * x, b = x * 3.0, y = a * b + a;  // 3x^3 + x^2
  Expr d = gradients(y, x)[0];
  BOOST_TEST(value(g, d, {{x, Tensor::scalar(2.0)}}) == 3 * 3 * 4 + 2 * 2);
}

// Reductions of unknown ranks, of any order, and of empty tensors.
BOOST_AUTO_TEST_CASE(reductions_of_what_has_no_known_rank) {
  using Reduce = std::function<Expr(const Expr&, std::vector<std::int64_t>)>;
  const Reduce all[] = {[](const Expr& x, auto axes) { return sum(x, axes); },
                        [](const Expr& x, auto axes) { return mean(x, axes); },
                        [](const Expr& x, auto axes) { return product(x, axes); },
                        [](const Expr& x, auto axes) { return reduce_max(x, axes); },
                        [](const Expr& x, auto axes) { return logsumexp(x, axes); }};
  for (const Reduce& reduced : all)
    for (const std::vector<std::int64_t>& axes : {std::vector<std::int64_t>{0}, {-1}, {0, 2}})
      for (const Tensor& at : {Tensor::of<double>({.5, 1, -2, 3, .25, 4, -1, 2}, {2, 2, 2}),
                               Tensor::of<double>({.5, 1, -2, 3, .25, 4}, {1, 2, 3})}) {
        std::vector<double> found[2];
        for (bool is_known : {false, true}) {
          Graph g;
          Expr x = g.input("x", DType::f64, is_known ? at.shape() : Shape::unknown());
          Expr d = gradients(sum(square(reduced(x, axes))), x)[0];
          for (const Expr& e : {d, gradients(sum(d * d), x)[0]})
            for (double v : values(g, e, {{x, at}})) found[is_known].push_back(v);
        }
        BOOST_REQUIRE_EQUAL(found[0].size(), found[1].size());
        for (std::size_t i = 0; i < found[0].size(); ++i)
          BOOST_TEST(std::abs(found[0][i] - found[1][i]) <=
                     1e-12 * std::max(1.0, std::abs(found[1][i])));
      }
  Graph g;
  Expr x = g.input("x", DType::f64, Shape::unknown()), d = gradients(sum(sum(x, {1}) * 2.0), x)[0];
  BOOST_TEST((evaluate_eagerly(g, {{x, Tensor::empty(DType::f64, {0, 3})}}, {d})[0].shape() ==
              Shape{0, 3}));
}

BOOST_AUTO_TEST_CASE(several_ys_with_weights) {
  Graph g;
  Expr x = g.input("x", DType::f64, {2});
  Expr w = g.constant(vec({10, 100}));
  Expr d = gradients({square(x), x}, x, {w, Expr()})[0];
  BOOST_TEST(values(g, d, {{x, vec({1, 2})}}) == (std::vector<double>{21, 401}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_gradient_of_y_itself_is_one) {
  Graph g;
  Expr x = g.input("x", DType::f64, {kAny});
  BOOST_TEST(values(g, gradients(x, x)[0], {{x, vec({5, 6})}}) == (std::vector<double>{1, 1}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(an_inner_value_and_what_it_comes_from) {
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  Expr inner = x * 2.0;
  Exprs d = gradients(inner * inner, {inner, x});
  Feeds feeds{{x, Tensor::scalar(3.0)}};
  BOOST_TEST(value(g, d[0], feeds) == 12);
  BOOST_TEST(value(g, d[1], feeds) == 24);
}

BOOST_AUTO_TEST_CASE(an_x_asked_for_twice) {
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  Exprs d = gradients(square(x), {x, x});
  BOOST_TEST(value(g, d[0] + d[1], {{x, Tensor::scalar(3.0)}}) == 12);
}

BOOST_AUTO_TEST_CASE(unconnected_inputs_have_zero_gradients_or_are_refused) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3}), u = g.input("u", DType::f64, {2, kAny});
  Variable v = g.variable("v", DType::f64, {2}, Initializer::constant(1));
  Expr y = sum(x);
  Exprs zeros = gradients(y, {u, v});
  BOOST_TEST(
      values(g, zeros[0], {{u, Tensor::of<double>({1, 2}, {2, 1})}}) == (std::vector<double>{0, 0}),
      boost::test_tools::per_element());
  BOOST_TEST(values(g, zeros[1]) == (std::vector<double>{0, 0}), boost::test_tools::per_element());
  std::int32_t before = g.size();
  Exprs none = gradients(y, {u, v}, {.unconnected = Unconnected::none});
  BOOST_TEST(none[0].is_empty());
  BOOST_TEST(none[1].is_empty());
  BOOST_TEST(g.size() == before);  // nothing on a path: nothing is built
}

BOOST_AUTO_TEST_CASE(an_x_made_after_y) {
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  Expr y = x * 2.0, later = y + 1.0;
  BOOST_TEST(gradients(y, later, {.unconnected = Unconnected::none})[0].is_empty());
}

BOOST_AUTO_TEST_CASE(gradients_end_at_stop_gradient) {
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  Expr y = x * stop_gradient(x * x) + floor(x) * x;
  BOOST_TEST(value(g, gradients(y, x)[0], {{x, Tensor::scalar(1.5)}}) == 1.5 * 1.5 + 1);
}

BOOST_AUTO_TEST_CASE(integers_carry_none) {
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  Expr y = x * cast(cast(x, DType::i32), DType::f64);
  BOOST_TEST(value(g, gradients(y, x)[0], {{x, Tensor::scalar(2.5)}}) == 2);
}

BOOST_AUTO_TEST_CASE(a_variable_is_the_sum_of_its_reads) {
  Graph g;
  Variable w = g.variable("w", vec({1, 2}));
  Expr x = g.input("x", DType::f64, {2});
  Expr y = w * x + square(w);
  BOOST_TEST(nodes_of(g, "ReadVariable") == 2);
  BOOST_TEST(
      values(g, gradients(sum(y), w)[0], {{x, vec({10, 20})}}) == (std::vector<double>{12, 24}),
      boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(only_what_is_on_a_path_is_differentiated) {
  Graph g;
  Expr x = g.input("x", DType::f64, {}), u = g.input("u", DType::f64, {});
  Expr aside = exp(u);
  for (int i = 0; i < 10; ++i) aside = exp(aside);
  Expr y = x * aside;
  std::int32_t before = g.size();
  gradients(y, x);
  BOOST_TEST(nodes_of(g, "Exp", before) == 0);
  BOOST_TEST(nodes_of(g, "Mul", before) == 1);
}

BOOST_AUTO_TEST_CASE(gradients_sum_back_only_operands_that_may_be_broadcast) {
  Graph g;
  Expr x = g.input("x", DType::f64, {kAny, 3}), b = g.input("b", DType::f64, {3});
  std::int32_t before = g.size();
  Exprs d = gradients(sum((x + b) * 2.0), {x, b});
  BOOST_TEST(nodes_of(g, "SumTo", before) == 1);  // b's; x has its own shape whatever the batch is
  BOOST_TEST(values(g, d[1], {{x, Tensor::zeros(DType::f64, {5, 3})}, {b, vec({1, 2, 3})}}) ==
                 (std::vector<double>{10, 10, 10}),
             boost::test_tools::per_element());
  // Extents that are not known may turn out to be 1.
  Expr p = g.input("p", DType::f64, {kAny}), q = g.input("q", DType::f64, {kAny});
  Exprs e = gradients(sum(p * q), {p, q});
  BOOST_TEST(values(g, e[0], {{p, vec({7})}, {q, vec({1, 2})}}) == (std::vector<double>{3}),
             boost::test_tools::per_element());
  BOOST_TEST(values(g, e[1], {{p, vec({7})}, {q, vec({1, 2})}}) == (std::vector<double>{7, 7}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(gradients_of_gradients) {
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  Expr y = sin(x), d = y;
  for (int i = 0; i < 4; ++i) d = gradients(d, x)[0];
  BOOST_TEST(value(g, d, {{x, Tensor::scalar(0.7)}}) == std::sin(0.7),
             boost::test_tools::tolerance(1e-15));
}

BOOST_AUTO_TEST_CASE(a_graph_that_was_run_can_still_be_differentiated) {
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  Expr y = square(x);
  Feeds feeds{{x, Tensor::scalar(3.0)}};
  BOOST_TEST(value(g, y, feeds) == 9);
  BOOST_TEST(value(g, gradients(y, x)[0], feeds) == 6);
  BOOST_TEST(value(g, y, feeds) == 9);
}

BOOST_AUTO_TEST_CASE(gathered_rows_stay_sparse) {
  Graph g;
  Variable table = g.variable("table", Tensor::of<double>({1, 2, 3, 4, 5, 6}, {3, 2}));
  Expr indices = g.constant(Tensor::of<std::int64_t>({2, 0, 2}));
  Expr again = g.constant(Tensor::of<std::int32_t>({1, 1, 0, 2}, {2, 2}));
  Expr y = sum(square(gather(table, indices))) + sum(gather(table, again));
  Cotangent c = cotangents(y, table)[0];
  BOOST_REQUIRE(c.is_sparse());
  BOOST_TEST((c.indices.shape() == Shape{7}));
  BOOST_TEST((c.values.shape() == Shape{7, 2}));
  std::vector<double> dense = values(g, gradients(y, table)[0]);
  BOOST_TEST(dense == (std::vector<double>{2 + 1, 4 + 1, 2, 2, 20 + 1, 24 + 1}),
             boost::test_tools::per_element());
  // A dense use beside it makes the whole dense.
  Cotangent mixed = cotangents(y + sum(table.read()), table)[0];
  BOOST_REQUIRE(!mixed.is_sparse());
  BOOST_TEST(values(g, mixed.dense)[0] == 4);
}

BOOST_AUTO_TEST_CASE(rows_of_a_gather_pass_an_identity) {
  Graph g;
  Expr table = g.input("table", DType::f64, {3, 2});
  Expr y = sum(gather(identity(table), g.constant(Tensor::of<std::int64_t>({1}))));
  BOOST_TEST(cotangents(y, table)[0].is_sparse());
}

BOOST_AUTO_TEST_CASE(a_users_own_gradient) {
  Graph g;
  Expr x = g.input("x", DType::f64, {2});
  Expr y = with_gradient(round(x), {x},
                         [](const Expr& dy, const Exprs&, const Expr&) { return Exprs{dy * 7.0}; });
  Feeds feeds{{x, vec({1.4, 2.6})}};
  BOOST_TEST(values(g, y, feeds) == (std::vector<double>{1, 3}), boost::test_tools::per_element());
  BOOST_TEST(values(g, gradients(sum(y), x)[0], feeds) == (std::vector<double>{7, 7}),
             boost::test_tools::per_element());
  // The error for surplus gradients names the line of the value.
  Graph other;
  Expr foreign = other.input("x", DType::f32, Shape{3});
  Expr three = g.input("three", DType::f32, Shape{3});
  const auto refused = [&](const GradientFunction& gradient) {
    return refusal([&] { gradients(sum(with_gradient(three * 1.0, {three}, gradient)), three); },
                   Code::invalid_argument);
  };
  BOOST_TEST(refused([](const Expr& dy, const Exprs&, const Expr&) {
               return Exprs{sum(dy)};
             }).find("with respect to xs[0] is f32[]; it must be f32[3]") != std::string::npos);
  BOOST_TEST(refused([](const Expr& dy, const Exprs&, const Expr&) {
               return Exprs{cast(dy, DType::f64)};
             }).find("f64[3]; it must be f32[3]") != std::string::npos);
  BOOST_TEST(refused([&](const Expr&, const Exprs&, const Expr&) {
               return Exprs{foreign};
             }).find("gradients_test.cpp") != std::string::npos);
  BOOST_TEST(refusal([&] { gradients(three, foreign); }, Code::invalid_argument)
                 .find("gradients at gradients_test.cpp") != std::string::npos);
  Expr wrong = with_gradient(round(x), {x}, [](const Expr& dy, const Exprs&, const Expr&) {
    return Exprs{dy, dy};
  });
  const int line = __LINE__ - 3;
  BOOST_CHECK_EXCEPTION(gradients(sum(wrong), x), Error, [&](const Error& e) {
    return says(e, Code::invalid_argument,
                {"WithGradient", "2 gradients for 1", fmt::format("gradients_test.cpp:{}", line)});
  });
}

BOOST_AUTO_TEST_CASE(slopes_at_edges) {
  Graph g;
  Expr x = g.input("x", DType::f64, {kAny}), y = g.input("y", DType::f64, {kAny});
  auto slopes = [&](const Expr& f, const Expr& of, Tensor tx, Tensor ty) {
    return values(g, gradients(sum(f), of)[0], {{x, tx}, {y, ty}});
  };
  auto each = boost::test_tools::per_element();
  using V = std::vector<double>;
  // Among equals the largest shares its slope; of two operands the first has it all.
  BOOST_TEST(slopes(reduce_max(x), x, vec({1, 3, 3}), vec({0})) == (V{0, 0.5, 0.5}), each);
  BOOST_TEST(slopes(maximum(x, y), x, vec({1, 2, 3}), vec({2, 2, 2})) == (V{0, 1, 1}), each);
  BOOST_TEST(slopes(maximum(x, y), y, vec({1, 2, 3}), vec({2, 2, 2})) == (V{1, 0, 0}), each);
  BOOST_TEST(slopes(relu(x), x, vec({-1, 0, 1}), vec({0})) == (V{0, 0, 1}), each);
  BOOST_TEST(slopes(abs(x), x, vec({-1, 0, 1}), vec({0})) == (V{-1, 0, 1}), each);
  // x^0 is 1 everywhere; 0^y is flat in y.
  BOOST_TEST(slopes(pow(x, y), x, vec({0, 0, 0, 3}), vec({0, 1, 2, 0})) == (V{0, 1, 0, 0}), each);
  BOOST_TEST(slopes(pow(x, y), y, vec({0, 0, -2}), vec({1, 2, 2})) == (V{0, 0, 0}), each);
  BOOST_TEST(slopes(mod(x, y), y, vec({7, -7}), vec({3, 3})) == (V{-2, 3}), each);
  BOOST_TEST(slopes(product(x), x, vec({2, 0, 3}), vec({0})) == (V{0, 6, 0}), each);
  BOOST_TEST(slopes(product(x), x, vec({0, 0, 3}), vec({0})) == (V{0, 0, 0}), each);
  BOOST_TEST(slopes(clip(x, 0, 1), x, vec({-1, 0.5, 2}), vec({0})) == (V{0, 1, 0}), each);
}

BOOST_AUTO_TEST_CASE(one_step_serves_eager_values_too) {
  // The calls of a tape: the gradient functions of graphs, computing at once.
  Eager e;
  Expr x = e.constant(Tensor::of<double>({1, 2, 3, 4}, {2, 2})), b = e.constant(vec({10, 20})),
       y = x * b;
  std::vector<Cotangent> d =
      differentiate(find_op("Mul"), {}, {{x, b}, {y}, {Cotangent(ones_like(y))}, {true, true}});
  BOOST_TEST(d[0].dense.value().to_vector<double>() == (std::vector<double>{10, 20, 10, 20}),
             boost::test_tools::per_element());
  BOOST_TEST(d[1].dense.value().to_vector<double>() == (std::vector<double>{4, 6}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(zero_size_one_element_and_scalars) {
  for (const Shape& s : {Shape{}, Shape{1}, Shape{0}, Shape{3, 0}}) {
    Graph g;
    Expr x = g.input("x", DType::f64, s);
    Expr d = gradients(sum(exp(x) * 2.0), x)[0];
    Tensor t = evaluate_eagerly(g, {{x, Tensor::zeros(DType::f64, s)}}, {d})[0];
    BOOST_TEST((t.shape() == s));
    for (double v : t.to_vector<double>()) BOOST_TEST(v == 2);
  }
}

BOOST_AUTO_TEST_CASE(nodes_carry_the_forward_line_scope_and_device) {
  Graph g;
  Expr x = g.input("x", DType::f32, {2});
  Expr y;
  {
    auto there = g.on_device("cpu:7");
    y = tanh(x);
  }
  const unsigned line = __LINE__ - 2;
  Expr loss = sum(y);
  std::int32_t before = g.size();
  gradients(loss, x);
  bool found = false;
  for (std::int32_t id = before; id < g.size(); ++id) {
    BOOST_TEST(g.name_of(id).starts_with("gradients/"));
    BOOST_TEST(g.node(id).site.text().starts_with("gradients_test.cpp:"));
    found = found || (g.node(id).op->name == "Square" && g.node(id).site.line == line &&
                      g.node(id).device == "cpu:7");
  }
  BOOST_TEST(found);
}

BOOST_AUTO_TEST_CASE(wrong_programs_are_refused) {
  Graph g, other;
  Expr x = g.input("x", DType::f64, {2}), i = g.input("i", DType::i32, {2}),
       alien = other.input("a", DType::f64, {});
  Expr y = sum(x);
  auto refuses = [&](auto f, Code code, std::initializer_list<std::string> parts) {
    BOOST_CHECK_EXCEPTION(f(), Error, [&](const Error& e) { return says(e, code, parts); });
  };
  refuses([&] { gradients(sum(i), x); }, Code::invalid_argument,
          {"y is i32", "Sum", "gradients_test.cpp"});
  refuses([&] { gradients(y, i); }, Code::invalid_argument, {"'i'", "is i32"});
  refuses([&] { gradients(y, alien); }, Code::invalid_argument, {"not of the graph"});
  refuses([&] { gradients({y}, x, {x}); }, Code::invalid_argument, {"dy of", "f64[]", "f64[2]"});
  refuses([&] { gradients({y, y}, x, {y}); }, Code::invalid_argument, {"2 ys have 1 dys"});
  refuses([&] { gradients(std::vector<Expr>{}, x); }, Code::invalid_argument, {"there is no y"});
  refuses([&] { gradients(Expr(), x); }, Code::failed_precondition, {"empty expression"});
  Eager eager;
  Expr value = eager.constant(1.0);
  refuses([&] { gradients(value, value); }, Code::invalid_argument, {"tape"});
  Expr z = g.input("z", DType::c128, {});
  refuses([&] { gradients(z * cast(y, DType::c128), x); }, Code::invalid_argument,
          {"y is c128", "complex ones whose dy is given"});
  refuses([&] { gradients({z * cast(y, DType::c128)}, x, {Expr()}); }, Code::invalid_argument,
          {"y is c128", "complex ones whose dy is given"});
}

BOOST_AUTO_TEST_CASE(two_gradients_of_one_line_are_checked_for_the_xs_of_each) {
  Graph g;
  Expr x = g.input("x", DType::f64, {}), y = g.input("y", DType::f64, {});
  const auto build = [&](const Expr& first) {
    (void)while_loop([](Expr z) { return z < 9.0; },
                     [&](Expr z) {
                       Expr all = z;
                       for (const Expr& of : {x, y}) all = all + gradients(2.0 * z, of)[0];
                       return all;
                     },
                     first);
  };
  for (const Expr& first : {x, y}) {
    const std::string why = refusal([&] { build(first * 2.0); }, Code::invalid_argument);
    BOOST_TEST(why.find("which depends on Input") != std::string::npos, why);
  }
  build(g.constant(2.0));
}

BOOST_AUTO_TEST_CASE(a_hundred_thousand_operations) {
  Graph g;
  Expr x = g.input("x", DType::f32, {3});
  Expr y = x;
  for (int i = 0; i < 100000; ++i) y = i % 2 ? y * 1.0001 : tanh(y);
  std::int32_t before = g.size();
  auto start = std::chrono::steady_clock::now();
  gradients(sum(y), x);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("gradients: {} nodes differentiated in {:.3f} s\n", before, seconds);
  BOOST_TEST(g.size() - before < 400000);
}

BOOST_AUTO_TEST_CASE(gradients_refuse_empty_arguments_with_the_line) {
  Graph g;
  const Expr x = g.input("x", DType::f64, Shape{});
  const auto says = [](auto f, const std::string& part, Code code = Code::failed_precondition) {
    const std::string why = refusal(f, code);
    BOOST_TEST(why.find(part) != std::string::npos, why);
    BOOST_TEST(why.find("gradients_test.cpp:") != std::string::npos, why);
  };
  says([&] { gradients(Expr(), x); }, "a y is an empty expression");
  says([&] { gradients(x, {x, Expr()}); }, "x 1 is an empty expression");
  says([&] { gradients(x, Variable()); }, "x 0 is a variable that was never declared",
       Code::invalid_argument);
  says([&] { with_gradient(x, {x}, nullptr); }, "the gradient's function is empty",
       Code::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
