// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Passes: each keeps every value bit for bit, and has its intended effect.
#include <boost/test/unit_test.hpp>

#include <functional>

#include <fmt/format.h>

#include <troupe/autodiff/optimizer.hpp>
#include <troupe/controlflow/drop_unused_outputs.hpp>
#include <troupe/controlflow/lower.hpp>
#include <troupe/controlflow/merge_variables.hpp>
#include <troupe/controlflow/move_invariant.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/pointwise.hpp>
#include <troupe/test/ops/passes.hpp>
#include <troupe/test/support/callable.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(passes_test, TROUPE_ONE_THREAD)

namespace {

struct Pass {
  const char* name;
  Program (*run)(Program);
};
const std::vector<Pass> kPasses{
    {"move_invariant", [](Program p) { return move_invariant(std::move(p)); }},
    {"merge_variables", [](Program p) { return merge_variables(std::move(p)); }},
    {"drop_unused_outputs", [](Program p) { return drop_unused_outputs(std::move(p)); }},
    {"lower", [](Program p) { return lower(std::move(p)); }},
    {"fold_constants", fold_constants},
    {"simplify", simplify},
    {"merge_common", merge_common},
    {"fuse_pointwise", fuse_pointwise},
    {"fuse_updates", fuse_updates},
    {"fuse_slices", fuse_slices},
    {"fuse_reductions", fuse_reductions},
    {"order_updates", order_updates},
    {"order_gradients", order_gradients}};

// A training step of a small network: products, reductions, broadcasting, state, random draws,
// sparse rows.
struct Training {
  Graph g;
  Expr x, labels;
  std::vector<Edge> feeds, fetches;
  explicit Training(DType t) {
    x = g.input("x", t, {kAny, 4});
    labels = g.input("labels", DType::i64, {kAny});
    Variable w = g.variable("w", t, {4, 5}, Initializer::normal(0, 1, 1)),
             b = g.variable("b", t, {5}, Initializer::constant(0.1));
    Variable table = g.variable("table", t, {3, 4}, Initializer::normal(0, 1, 2));
    Expr h = gelu(matmul(x + gather(table, labels), w) + b) * 1.0;
    Expr noise = g.random_normal({5}, t) * 0.1;
    Expr twice = tanh(h) + tanh(h) * noise;
    Expr loss = mean(cross_entropy(twice + cast(exp(g.constant(0.5)), t), labels));
    Expr step = Adam().minimize(loss, {w, b, table});
    feeds = {x.edge(), labels.edge()};
    fetches = {loss.edge(), step.edge(), (w.read() * 1.0).edge(), table.read().edge()};
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_training_step_is_the_same_after_each_pass_and_all) {
  for (DType t : {DType::f32, DType::f64}) {
    Training model(t);
    auto draw = [&](const Shape& s) { return Initializer::normal(0, 1, 9).make("x", t, s); };
    std::vector<Tensor> feeds{draw({6, 4}), Tensor::of<std::int64_t>({0, 2, 1, 1, 0, 2})};
    Program p = prune(model.g, model.feeds, model.fetches), all = p;
    for (const Pass& pass : kPasses) {
      same_values(p, pass.run(p), feeds, pass.name);
      all = pass.run(all);
      same_values(p, all, feeds, fmt::format("all passes up to {}", pass.name));
    }
    BOOST_TEST(all.graph.size() < p.graph.size());
    BOOST_TEST(count(all, "Fused") > 0);
  }
}

BOOST_AUTO_TEST_CASE(pruning_keeps_what_is_needed) {
  Graph g;
  Expr x = g.input("x", DType::f32, {2});
  Expr y = exp(x), first = sin(x);
  auto order = g.after({first});
  Expr z = y * 2.0;
  exp(z);
  Program p = prune(g, {x.edge()}, {z.edge()});
  BOOST_TEST(count(p, "Exp") == 1);
  BOOST_TEST(count(p, "Sin") == 1);  // z is to start after it
  BOOST_TEST(count(prune(g, {y.edge()}, {y.edge()}), "Exp") == 0);
}

BOOST_AUTO_TEST_CASE(constants_fold_but_nothing_else) {
  Graph g;
  Variable v = g.variable("v", Tensor::scalar(1.f));
  Expr c = g.constant(2.f), x = g.input("x", DType::f32, {});
  Expr folded = exp(c) * 3.0 + 1.0, kept = g.random_normal({}) + v + x,
       big = g.zeros(DType::f32, {1 << 21});
  Program p = fold_constants(prune(g, {x.edge()}, {folded.edge(), kept.edge(), big.edge()}));
  p = prune(p.graph, p.feeds, p.fetches);
  BOOST_TEST(p.graph.node(p.fetches[0].node).op->name == "Constant");
  BOOST_TEST(count(p, "Exp") == 0);
  BOOST_TEST(count(p, "RandomNormal") == 1);
  BOOST_TEST(count(p, "ReadVariable") == 1);
  BOOST_TEST(count(p, "Fill") == 1);  // too large to keep
}

BOOST_AUTO_TEST_CASE(node_that_fails_when_folded_is_kept_and_fails_when_run) {
  Graph g;
  Expr y = gather(g.constant(Tensor::of<float>({1, 2})), g.constant(Tensor::of<std::int64_t>({7})));
  Program p = fold_constants(prune(g, {}, {y.edge()}));
  BOOST_TEST(count(p, "Gather") == 1);
  BOOST_CHECK_THROW(Eager().run(p, {}), Error);
}

BOOST_AUTO_TEST_CASE(arithmetic_that_changes_nothing_goes) {
  Graph g;
  Expr x = g.input("x", DType::f32, {3});
  Expr y = -(-(identity(x) * 1.0 / 1.0 - 0.0));
  Program p = simplify(prune(g, {x.edge()}, {y.edge(), (x + 0.0).edge(), (x * 0.0).edge()}));
  BOOST_TEST((p.fetches[0] == p.feeds[0]));
  p = prune(p.graph, p.feeds, p.fetches);
  BOOST_TEST(count(p, "Add") == 1);  // -0 + 0 is 0: not the same bits
  BOOST_TEST(count(p, "Mul") == 1);  // NaN * 0
  BOOST_TEST(count(p, "Neg") == 0);
  p = simplify(prune(g, {x.edge()}, {(x - -0.0).edge()}));
  BOOST_TEST(count(p, "Sub") == 1);  // -0 - -0 is 0
}

BOOST_AUTO_TEST_CASE(a_known_shape_keeps_nothing_that_has_it) {
  Graph g;
  Expr x = g.input("x", DType::f32, {2, 3}), open = g.input("open", DType::f32, {kAny, 2});
  Expr y = reshape_like(x, exp(reshape(x, {3, 2}))), z = reshape_like(x, exp(open));
  Program p = simplify(prune(g, {x.edge(), open.edge()}, {y.edge(), z.edge()}));
  p = prune(p.graph, p.feeds, p.fetches);
  BOOST_TEST(count(p, "ReshapeLike") == 1);
  BOOST_TEST(count(p, "Exp") == 1);
  Tensor in = Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const std::vector<Tensor> got = Eager().run(p, {in, Tensor::zeros(DType::f32, {3, 2})});
  for (const Tensor& t : got)
    BOOST_TEST((t.shape() == Shape{3, 2} && t.to_vector<float>() == in.to_vector<float>()));
}

// An op that is there for its shape is computed though the shape is known.
BOOST_AUTO_TEST_CASE(a_known_shape_of_what_has_an_effect) {
  Graph g;
  Variable v = g.variable("v", Tensor::of<float>({0, 0, 0, 0, 0, 0}, {3, 2}));
  Expr x = g.input("x", DType::f32, {2, 3});
  Expr y = reshape_like(x, v.assign_add(reshape(x, {3, 2})));
  Program p = simplify(prune(g, {x.edge()}, {y.edge()}));
  p = prune(p.graph, p.feeds, p.fetches);
  BOOST_TEST(count(p, "ReshapeLike") == 0);
  BOOST_TEST(count(p, "AssignAdd") == 1);
}

BOOST_AUTO_TEST_CASE(a_value_of_the_shape_of_what_has_an_effect) {
  Graph g;
  Variable v = g.variable("v", Tensor::of<float>({0, 0, 0, 0}, {2, 2})),
           w = g.variable("w", Tensor::of<float>({0, 0, 0, 0}, {2, 2})),
           u = g.variable("u", Tensor::of<float>({0, 0, 0, 0}, {2, 2}));
  Expr x = g.input("x", DType::f32, {2, 2}), row = g.input("row", DType::f32, {2});
  Expr same = bind_op("ReshapeLike", {x, v.assign_add(x)})[0],
       summed = bind_op("SumTo", {x, w.assign_add(x)})[0],
       repeated = broadcast_like(row, u.assign_add(x)) * x;
  Program p =
      simplify(prune(g, {x.edge(), row.edge()}, {same.edge(), summed.edge(), repeated.edge()}));
  p = prune(p.graph, p.feeds, p.fetches);
  BOOST_TEST(count(p, "AssignAdd") == 3);
}

BOOST_AUTO_TEST_CASE(equal_nodes_merge_unless_they_draw_differ_or_stand_elsewhere) {
  Graph g;
  Expr x = g.input("x", DType::f32, {3});
  Variable v = g.variable("v", Tensor::of<float>({1, 2, 3}));
  Expr there;
  {
    auto device = g.on_device("cpu:1");
    there = exp(x);
  }
  std::vector<Edge> fetches{
      (x + exp(x)).edge(),   (exp(x) + x).edge(),
      there.edge(),          (g.random_normal({3}) + g.random_normal({3})).edge(),
      sum(x, {0}).edge(),    sum(x, {0}, true).edge(),
      v.read().edge(),       v.assign_add(x).edge(),
      v.assign_add(x).edge()};
  Program p = merge_common(prune(g, {x.edge()}, fetches));
  BOOST_TEST((p.fetches[0] == p.fetches[1]));  // operands of Add may be swapped
  BOOST_TEST(count(prune(p.graph, p.feeds, p.fetches), "Exp") == 2);
  BOOST_TEST(count(p, "RandomNormal") == 2);
  BOOST_TEST(count(p, "Sum") == 2);
  BOOST_TEST(count(p, "AssignAdd") == 2);
}

// Zeros of either sign are not the same.
BOOST_AUTO_TEST_CASE(constants_that_differ_in_the_sign_of_zero_stay_apart) {
  Graph g;
  Expr x = g.input("x", DType::f32, {2}), y = g.input("y", DType::f32, {2});
  const std::vector<Expr> of{1.0 / fill_like(x, 0.0), 1.0 / fill_like(x, -0.0),
                             1.0 / maximum(x, y),     1.0 / maximum(y, x),
                             1.0 / minimum(x, y),     1.0 / minimum(y, x)};
  std::vector<Edge> fetches;
  for (const Expr& e : of) fetches.push_back(e.edge());
  const Program plain = prune(g, {x.edge(), y.edge()}, fetches), merged = merge_common(plain);
  BOOST_TEST(count(merged, "Maximum") == 2);
  const std::vector<Tensor> feeds{Tensor::of<float>({0.f, -0.f}), Tensor::of<float>({-0.f, 0.f})};
  same_values(plain, merged, feeds, "merged");
  const std::vector<Tensor> all = Eager().run(merged, feeds);
  BOOST_TEST(all[0].at(0) == INFINITY);
  BOOST_TEST(all[1].at(0) == -INFINITY);
}

BOOST_AUTO_TEST_CASE(chains_fuse_into_one_node_with_the_same_bits) {
  for (DType t : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    Graph g;
    Expr x = g.input("x", t, {kAny, 7}), y = g.input("y", t, {kAny, 7});
    Expr shared = exp(x * 0.5);  // two consumers: stays a node
    Expr z = where(x > y, gelu(shared) * y, square(shared - y) / 3.0) + maximum(x, 0.25);
    std::vector<Edge> feeds{x.edge(), y.edge()};
    Program p = prune(g, feeds, {z.edge(), shared.edge()}), fused = fuse_pointwise(p);
    auto draw = [&](const char* name) {
      return Initializer::normal(0, 1, 5).make(name, t, {9, 7});
    };
    same_values(p, fused, {draw("x"), draw("y")}, std::string(name_of(t)));
    Program only = prune(fused.graph, fused.feeds, fused.fetches);
    BOOST_TEST(count(only, "Gelu") + count(only, "Where") + count(only, "Maximum") +
                   count(only, "Div") ==
               0);
  }
}

BOOST_AUTO_TEST_CASE(fusion_leaves_shared_remote_and_broadcast_nodes) {
  Graph g;
  Expr x = g.input("x", DType::f32, {4, 3}), small = g.input("s", DType::f32, {3});
  Expr broadcast_operand = x * exp(small);  // would compute exp 12 times instead of 3
  Expr remote;
  {
    auto device = g.on_device("cpu:1");
    remote = exp(x);
  }
  Expr across = remote + 1.0;
  // sin may have one row
  Expr open = g.input("open", DType::f32, {kAny, 3}), fetched = sin(open),
       after_fetched = fetched * x;
  // counters run ahead
  Expr n = g.input("n", DType::f32, Shape{}), counter = n + 1.0, after_counter = sqrt(counter) * n;
  Program p = fuse_pointwise(prune(g, {x.edge(), small.edge(), open.edge(), n.edge()},
                                   {broadcast_operand.edge(), across.edge(), fetched.edge(),
                                    after_fetched.edge(), counter.edge(), after_counter.edge()}));
  BOOST_TEST(count(p, "Exp") == 2);
  BOOST_TEST(count(p, "Sin") == 1);
  BOOST_TEST(count(p, "Add") == 2);
}

BOOST_AUTO_TEST_CASE(a_fused_node_yields_what_others_look_at) {
  Graph g;
  Expr x = g.input("x", DType::f32, {5, 3}), y = g.input("y", DType::f32, {5, 3});
  Expr a = sigmoid(x), b = tanh(y), c = a * b + x, d = c * sin(a);
  Program p = prune(g, {x.edge(), y.edge()},
                    {a.edge(), c.edge(), d.edge(), sum(a).edge(), sum(b).edge()}),
          fused = fuse_pointwise(p);
  auto draw = [&](const char* name) {
    return Initializer::normal(0, 1, 5).make(name, DType::f32, {5, 3});
  };
  same_values(p, fused, {draw("x"), draw("y")}, "four results");
  Program only = prune(fused.graph, fused.feeds, fused.fetches);
  BOOST_TEST(count(only, "Fused") == 1);
  BOOST_TEST(count(only, "Sigmoid") + count(only, "Tanh") + count(only, "Sin") == 0);
}

BOOST_AUTO_TEST_CASE(slices_are_read_and_written_where_they_are) {
  for (DType t : {DType::f16, DType::f32, DType::f64})
    for (const std::int64_t units : {32, 48, 50}) {  // 50: no whole number of packets
      Graph g;
      Expr x = g.input("x", t, {3, 5, 4 * units}), row = g.input("row", t, {4 * units}),
           c = g.input("c", t, {3, 5, units}), one = g.input("one", t, {1, 1, units});
      Exprs gates = split(x + row, {units, units, units, units}, -1);
      Expr cell = sigmoid(gates[1]) * c + sigmoid(gates[0]) * tanh(gates[2]),
           h = sigmoid(gates[3]) * tanh(cell) + one;
      Expr joined = concat({h * cell, cell - c, h * h, h * 0.5}, 2);
      // one half is an operand of a matrix product, which is no such node: it stays
      Exprs halves = split(x, {2 * units, 2 * units}, 2);
      Expr squares = square(halves[0]), first = matmul(halves[1], transpose(halves[1], {0, 2, 1}));
      Program p = prune(g, {x.edge(), row.edge(), c.edge(), one.edge()},
                        {h.edge(), joined.edge(), sum(cell).edge(), squares.edge(), first.edge()});
      Program sliced = fuse_slices(fuse_pointwise(p));
      auto draw = [&](const char* name, const Shape& s) {
        return Initializer::normal(0, 1, 5).make(name, t, s);
      };
      const std::vector<Tensor> feeds{draw("x", {3, 5, 4 * units}), draw("row", {4 * units}),
                                      draw("c", {3, 5, units}), draw("one", {1, 1, units})};
      same_values(p, sliced, feeds, fmt::format("{}, {} units", name_of(t), units));
      Program only = prune(sliced.graph, sliced.feeds, sliced.fetches);
      BOOST_TEST(count(only, "FusedSlices") == 1);
      BOOST_TEST(count(only, "Concat") == 0);
      BOOST_TEST(count(only, "Split") == 1);
      BOOST_TEST(count(only, "Add") == 0);
    }
}

// Gates of a recurrent cell that a user cuts out one by one.
BOOST_AUTO_TEST_CASE(slices_of_columns_are_read_where_they_are) {
  for (const DType t : {DType::f32, DType::f64}) {
    Graph g;
    Expr x = g.input("x", t, {3, 5, 120}), y = g.input("y", t, {3, 5, 120}),
         row = g.input("row", t, {120}), wide = x + row, shared = y * 2.0;
    const auto gate = [](const Expr& of, std::int64_t k) {
      return slice(of, {0, 0, 40 * k}, {-1, 5, 40});
    };
    Expr z = sigmoid(gate(wide, 0) + gate(y, 0)), r = sigmoid(gate(wide, 1) + gate(y, 1)),
         made = tanh(slice(wide, {0, 0, -40}, {3, 5, -1}) + r * gate(y, 2));
    // pieces that overlap: what is cut is computed once
    Expr overlapping =
        exp(slice(shared, {0, 0, 0}, {3, 5, 80})) * sin(slice(shared, {0, 0, 40}, {3, 5, 80}));
    // rows that are cut, too few columns, and a slice that is fetched
    Expr cut = exp(slice(x, {1, 0, 0}, {2, 5, 40})), few = exp(slice(x, {0, 0, 2}, {3, 5, 8})),
         fetched = gate(y, 1), of_fetched = sin(fetched);
    Program p = prune(g, {x.edge(), y.edge(), row.edge()},
                      {((1.0 - z) * made).edge(), cut.edge(), few.edge(), fetched.edge(),
                       of_fetched.edge(), overlapping.edge()});
    Program sliced = fuse_slices(fuse_pointwise(p));
    const auto draw = [&](const char* name, const Shape& s) {
      return Initializer::normal(0, 1, 5).make(name, t, s);
    };
    same_values(p, sliced, {draw("x", {3, 5, 120}), draw("y", {3, 5, 120}), draw("row", {120})},
                std::string(name_of(t)));
    Program only = prune(sliced.graph, sliced.feeds, sliced.fetches);
    BOOST_TEST(count(only, "FusedSlices") == 2);
    BOOST_TEST(count(only, "Slice") == 3);
    BOOST_TEST(count(only, "Add") == 0);
    BOOST_TEST(count(only, "Mul") == 1);
  }
}

BOOST_AUTO_TEST_CASE(slicing_leaves_open_small_and_fetched_tensors) {
  Graph g;
  Expr x = g.input("x", DType::f32, {4, 96}), open = g.input("open", DType::f32, {kAny, 96}),
       few = g.input("few", DType::f32, {4, 6});
  Expr wide = x + 1.0;  // fetched: computed anyway
  Exprs a = split(wide, {48, 48}, 1), b = split(open, {48, 48}, 1), c = split(few, {3, 3}, 1),
        d = split(exp(x), {48, 48}, 1), e = split(x, {2, 2}, 0);
  // a piece that three compute with
  Expr twice = tanh(d[0]) * sum(d[1]), again = matmul(transpose(sin(d[0]), {1, 0}), cos(d[0]));
  // one of its inputs is looked at
  Expr fetched = exp(a[0]), joined = concat({fetched, fetched * 2.0}, 1);
  Program p =
      prune(g, {x.edge(), open.edge(), few.edge()},
            {wide.edge(), (a[0] * a[1]).edge(), (b[0] * b[1]).edge(), (c[0] * c[1]).edge(),
             twice.edge(), again.edge(), (e[0] * e[1]).edge(), fetched.edge(), joined.edge()});
  Program sliced = fuse_slices(p);
  auto draw = [&](const char* name, const Shape& s) {
    return Initializer::normal(0, 1, 5).make(name, DType::f32, s);
  };
  same_values(p, sliced, {draw("x", {4, 96}), draw("open", {4, 96}), draw("few", {4, 6})}, "alone");
  Program only = prune(sliced.graph, sliced.feeds, sliced.fetches);
  BOOST_TEST(count(only, "Exp") == 1);  // once for both pieces; that of a piece is sliced
  BOOST_TEST(count(only, "Add") == 1);
  BOOST_TEST(count(only, "Split") == 4);  // a goes
  BOOST_TEST(count(only, "Concat") == 1);
  same_values(p, fuse_slices(fuse_pointwise(p)),
              {draw("x", {4, 96}), draw("open", {1, 96}), draw("few", {4, 6})}, "after fusion");
}

// The pieces are known, and what is cut is not: a Split refuses what they do not sum to, and slices
// would reach beyond it.
BOOST_AUTO_TEST_CASE(a_split_of_what_has_any_width_stays) {
  Graph g;
  Expr x = g.input("x", DType::f32, {4, kAny});
  Exprs halves = split(x, {48, 48}, 1);
  Program p = prune(g, {x.edge()}, {(halves[0] * tanh(halves[1])).edge()}),
          sliced = fuse_slices(fuse_pointwise(p));
  same_values(p, sliced, {Initializer::normal(0, 1, 5).make("x", DType::f32, {4, 96})},
              "as wide as they are");
  BOOST_CHECK_THROW(Eager().run(sliced, {Tensor::zeros(DType::f32, {4, 64})}), Error);
}

// No pass makes this program; a program from elsewhere must not read beyond an operand that is
// broadcast in parts.
BOOST_AUTO_TEST_CASE(slices_have_one_row_for_all_or_each_its_own) {
  const auto run = [](const Shape& other) {
    Graph g;
    Expr a = g.input("a", DType::f32, {3, 2, 32}), b = g.input("b", DType::f32, other);
    ScalarProgram program;
    ScalarInstruction add{};
    add.op = ScalarOp::add;
    add.type = DType::f32;
    add.operand[0] = append_input(program, DType::f32);
    add.operand[1] = append_input(program, DType::f32);
    program.code.push_back(add);
    program.results = {2};
    Node n;
    n.op = &find_op("FusedSlices");
    n.inputs = {a.edge(), b.edge()};
    n.attrs = Attrs{{"program", std::shared_ptr<const AttrObject>(std::make_shared<ProgramAttr>(
                                    std::make_shared<const ScalarProgram>(std::move(program))))},
                    {"columns", std::int64_t{32}},
                    {"starts", std::vector<std::int64_t>{-1, -1}},
                    {"outputs", std::vector<std::int64_t>{0}}};
    n.outputs = {ValueSpec{DType::f32, Shape{3, 2, 32}}};
    const Edge sum_of_both{g.append(std::move(n)), 0};
    return Eager().run(
        prune(g, {a.edge(), b.edge()}, {sum_of_both}),
        {Tensor::zeros(DType::f32, {3, 2, 32}), Tensor::zeros(DType::f32, other)})[0];
  };
  for (const Shape& whole : {Shape{3, 2, 32}, Shape{32}, Shape{1, 1, 32}, Shape{}})
    BOOST_TEST((run(whole).shape() == Shape{3, 2, 32}));
  for (const Shape& in_part : {Shape{2, 32}, Shape{3, 1, 32}}) {
    const std::string why = refusal([&] { run(in_part); }, Code::invalid_argument);
    BOOST_TEST(why.find("has neither one row for all 6 nor as many") != std::string::npos, why);
  }
}

BOOST_AUTO_TEST_CASE(a_reduction_is_taken_as_its_operand_is_made) {
  struct Case {
    Shape shape;
    std::vector<std::int64_t> axes;
  };
  // Few elements, made together; rows and columns in several chunks, columns in several tiles; many
  // short rows; axes apart; no elements.
  const std::vector<Case> cases{{{5, 6, 7}, {}},        {{5, 6, 7}, {0}},     {{5, 6, 7}, {2}},
                                {{5, 6, 7}, {0, 2}},    {{17}, {0}},          {{3, 50'000}, {1}},
                                {{150'001}, {}},        {{300, 1500}, {0}},   {{700, 1030}, {-2}},
                                {{150, 40, 30}, {1}},   {{40'000, 5}, {0}},   {{20'000, 7}, {1}},
                                {{60, 50, 60}, {0, 2}}, {{2, 60, 1500}, {1}}, {{0, 4}, {0}},
                                {{4, 0}, {0}},          {{40, 1000}, {1}}};
  const auto check = [&](DType t, const Case& c, const char* what,
                         const Callable<Expr(const Expr&, const std::vector<std::int64_t>&)>&
                             reduced) {
    Graph g;
    Shape row = c.shape;
    for (int i = 0; i + 1 < row.rank(); ++i) row.set(i, 1);
    Expr x = g.input("x", t, c.shape), of_all = g.input("row", t, row);
    Program p = prune(g, {x.edge(), of_all.edge()}, {reduced(x * of_all - x * x, c.axes).edge()}),
            fused = fuse_reductions(fuse_pointwise(p));
    auto draw = [&](const char* name, const Shape& s) {
      std::vector<double> values;
      for (std::int64_t i = 0; i < s.elements(); ++i)
        values.push_back(static_cast<double>((i * 7919 + 13) % 31 - 15) / (is_floating(t) ? 8 : 1) +
                         (name[0] == 'x'));
      return Eager().run(prune(g, {}, {cast(g.constant(Tensor::of(values, s)), t).edge()}), {})[0];
    };
    same_values(p, fused, {draw("x", c.shape), draw("row", row)},
                fmt::format("{} of {} {}", what, name_of(t), c.shape.text()));
    BOOST_TEST(count(fused, "FusedReduce") == 1, what << " of " << name_of(t));
    BOOST_TEST(count(fused, "Fused") == 0);
  };
  for (const Case& c : cases)
    for (DType t : {DType::f16, DType::f32, DType::f64, DType::i32, DType::c64}) {
      check(t, c, "sum", [](const Expr& y, const auto& axes) { return sum(y, axes); });
      check(t, c, "product",
            [](const Expr& y, const auto& axes) { return product(y, axes, true); });
      if (t != DType::i32)
        check(t, c, "mean", [](const Expr& y, const auto& axes) { return mean(y, axes, true); });
      if (t == DType::c64) continue;
      check(t, c, "any", [](const Expr& y, const auto& axes) { return any(y > 0.0, axes); });
      check(t, c, "all", [](const Expr& y, const auto& axes) { return all(y < 3.0, axes); });
      if (t != DType::i32)
        check(t, c, "logsumexp",
              [](const Expr& y, const auto& axes) { return logsumexp(y, axes); });
      if (c.shape.elements() == 0) continue;
      check(t, c, "max", [](const Expr& y, const auto& axes) { return reduce_max(y, axes); });
      check(t, c, "min", [](const Expr& y, const auto& axes) { return reduce_min(y, axes); });
      if (c.axes.size() == 1)
        check(t, c, "argmax", [](const Expr& y, const auto& axes) { return argmax(y, axes[0]); });
      if (c.axes.size() == 1)
        check(t, c, "argmin", [](const Expr& y, const auto& axes) { return argmin(y, axes[0]); });
    }
}

BOOST_AUTO_TEST_CASE(fused_reduction_stores_its_operand_for_other_readers) {
  Graph g;
  const Shape shape{300, 500};
  Expr x = g.input("x", DType::f32, shape), bias = g.input("bias", DType::f32, {500}),
       open = g.input("open", DType::f32, {kAny, 3});
  // a product looks at it, too
  Expr dy = tanh(x) * 0.5, by_product = matmul(dy, transpose(x, {1, 0}));
  Expr also = exp(x) + bias, squares = also * also, twice = sum(squares) + mean(squares, {0});
  Expr of_columns = sum_to(dy, bias), of_open = sum(open * 2.0, {1});
  const std::vector<Edge> feeds{x.edge(), bias.edge(), open.edge()};
  Program p = prune(
              g, feeds,
              {by_product.edge(), of_columns.edge(), of_open.edge(), also.edge(), twice.edge()}),
          fused = fuse_reductions(fuse_pointwise(p));
  auto draw = [&](const char* name, const Shape& s) {
    return Initializer::normal(0, 1, 5).make(name, DType::f32, s);
  };
  same_values(p, fused, {draw("x", shape), draw("bias", {500}), draw("open", {7, 3})}, "beside");
  Program only = prune(fused.graph, fused.feeds, fused.fetches);
  BOOST_TEST(count(only, "FusedReduce") == 3);
  BOOST_TEST(count(only, "SumTo") == 0);
  BOOST_TEST(count(only, "Sum") + count(only, "Mean") == 1);  // one reduction goes into a node
}

BOOST_AUTO_TEST_CASE(operands_of_pointwise_nodes_are_not_repeated_first) {
  Graph g;
  Expr x = g.input("x", DType::f32, {4, 3}), row = g.input("row", DType::f32, {3});
  Expr repeated = broadcast_like(row, x), fetched = broadcast_like(row * 2.0, x);
  Program p = prune(g, {x.edge(), row.edge()},
                    {(repeated * x).edge(), fetched.edge(), (fetched + x).edge(),
                     (broadcast_like(row * 3.0, x) * 2.0).edge()});
  Program simple = simplify(p), only = prune(simple.graph, simple.feeds, simple.fetches);
  // one is fetched, the other's user has no other operand of the shape
  BOOST_TEST(count(only, "BroadcastLike") == 2);
  auto draw = [&](const char* name, const Shape& s) {
    return Initializer::normal(0, 1, 5).make(name, DType::f32, s);
  };
  same_values(p, simple, {draw("x", {4, 3}), draw("row", {3})}, "repeated");
}

BOOST_AUTO_TEST_CASE(no_fused_node_waits_for_itself_or_for_what_comes_later) {
  Graph g;
  Expr x = g.input("x", DType::f32, {4, 4});
  // round is behind a by way of the product
  Expr a = exp(x), through = matmul(a, a), round = through * a;
  Expr early = sin(x), other = matmul(x, x), late = other + early;  // early need not wait for other
  Program p = prune(g, {x.edge()}, {round.edge(), sum(early).edge(), late.edge()}),
          fused = fuse_pointwise(p);
  same_values(p, fused, {Initializer::normal(0, 1, 5).make("x", DType::f32, {4, 4})},
              "by way of products");
  BOOST_TEST(count(fused, "Exp") == 1);
  BOOST_TEST(count(fused, "Sin") == 1);
}

BOOST_AUTO_TEST_CASE(large_trees_fuse_within_bounds) {
  Graph g;
  std::vector<Edge> feeds;
  std::vector<Tensor> values;
  std::vector<Expr> level;
  for (int i = 0; i < 64; ++i) {
    Expr x = g.input(fmt::format("x{}", i), DType::f32, {5});
    feeds.push_back(x.edge());
    values.push_back(Initializer::normal(0, 1, 7).make(fmt::format("x{}", i), DType::f32, {5}));
    level.push_back(tanh(x));
  }
  while (level.size() > 1) {
    std::vector<Expr> next;
    for (std::size_t i = 0; i + 1 < level.size(); i += 2)
      next.push_back(level[i] * 0.5 + level[i + 1]);
    level = next;
  }
  Program p = prune(g, feeds, {level[0].edge()}), fused = fuse_pointwise(p);
  same_values(p, fused, values, "a tree of 64 inputs");
  BOOST_TEST(fused.graph.size() < p.graph.size() / 2);
  // A long chain, longer than one fused node may be.
  Expr y = g.expr(feeds[0]);
  for (int i = 0; i < 500; ++i) y = i % 2 ? tanh(y) : y * 1.01;
  Program chain = prune(g, {feeds[0]}, {y.edge()});
  same_values(chain, fuse_pointwise(chain), {values[0]}, "a chain of 500");
}

BOOST_AUTO_TEST_CASE(state_order_is_made_explicit) {
  Graph g;
  Variable v = g.variable("v", Tensor::scalar(1.f)), other = g.variable("u", Tensor::scalar(1.f));
  Expr r1 = v.read(), r2 = v.read(), w1 = v.assign_add(1.0), elsewhere = other.assign_add(1.0),
       r3 = v.read(), w2 = v.assign_sub(2.0);
  Program p = lower(
      prune(g, {}, {r1.edge(), r2.edge(), w1.edge(), elsewhere.edge(), r3.edge(), w2.edge()}));
  auto waits = [&](int later, int earlier) {
    const auto& c = p.graph.node(p.fetches[static_cast<std::size_t>(later)].node).controls;
    return std::find(c.begin(), c.end(), p.fetches[static_cast<std::size_t>(earlier)].node) !=
           c.end();
  };
  BOOST_TEST(!waits(1, 0));  // reads do not order against reads
  BOOST_TEST(waits(2, 0));
  BOOST_TEST(waits(2, 1));
  BOOST_TEST(!waits(3, 2));  // another state
  BOOST_TEST(waits(4, 2));
  BOOST_TEST(waits(5, 4));
}

BOOST_AUTO_TEST_CASE(enqueues_do_not_wait_for_dequeues) {
  Graph g;
  Queue q = g.fifo_queue("q", {{DType::f32, Shape{}}}, 2);
  Expr in = q.enqueue({1.0}), out = q.dequeue()[0], in2 = q.enqueue({2.0}), close = q.close();
  Program p = lower(prune(g, {}, {in.edge(), out.edge(), in2.edge(), close.edge()}));
  auto controls = [&](int i) {
    return p.graph.node(p.fetches[static_cast<std::size_t>(i)].node).controls.size();
  };
  BOOST_TEST(controls(1) == 0);
  BOOST_TEST(controls(2) == 1);  // the other enqueue
  BOOST_TEST(controls(3) >= 2);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
