// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Passes over updates of variables: fused, in order, and on the variable's device.
#include <boost/test/unit_test.hpp>

#include <functional>

#include <fmt/format.h>

#include <troupe/controlflow/lower.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/pointwise.hpp>
#include <troupe/test/ops/passes.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(update_passes_test, TROUPE_ONE_THREAD)

BOOST_AUTO_TEST_CASE(operands_of_an_update_are_fused_into_it) {
  Graph g;
  Expr x = g.input("x", DType::f32, {4, 3});
  auto variable = [&](const char* name) {
    return g.variable(name, DType::f32, {4, 3}, Initializer::normal(0, 1, 3));
  };
  Variable w = variable("w"), m = variable("m"), seen = variable("seen"), twice = variable("twice"),
           row = variable("row");
  Expr stepped = w.assign_sub(sin(x) * 0.1), moved = m.assign(0.9 * m.read() + 0.1 * x);
  Expr change = cos(x), changed = seen.assign_add(change);  // fetched, too
  Expr before = twice.read();
  // another write in between
  Expr first = twice.assign_add(x * 2.0), second = twice.assign_add(before * 3.0);
  // the update has another shape
  Expr summed = row.assign_add(sum(x, {0}) * 2.0);
  Program p = prune(g, {x.edge()},
                    {stepped.edge(), moved.edge(), change.edge(), changed.edge(), first.edge(),
                     second.edge(), summed.edge()});
  Program fused = fuse_updates(fuse_pointwise(p));
  BOOST_TEST(count(fused, "UpdateVariable") == 3);
  BOOST_TEST(count(fused, "AssignVariable") == 0);
  BOOST_TEST(count(fused, "AssignAdd") == 3);
  same_values(p, fused, {Initializer::normal(0, 1, 5).make("x", DType::f32, {4, 3})}, "updates");
}

// A weight is read for the product and for the gradient of what comes before: the update waits for
// both, and changes it where it lies.
BOOST_AUTO_TEST_CASE(an_update_waits_for_holders_of_its_variable) {
  Graph g;
  Expr x = g.input("x", DType::f32, {4, 80});
  Variable w = g.variable("w", DType::f32, {80, 80}, Initializer::normal(0, 1, 3)),
           small = g.variable("small", DType::f32, {80}, Initializer::constant(0));
  Expr y = matmul(x, w.read()), seen = matmul(y, reshape(w.read(), {80, 80}), false, true),
       later = small.assign_add(sum(y, {0}));
  Expr updated = w.assign_sub(matmul(x, y, true));
  Expr after = matmul(seen, w.read());
  Program p = prune(g, {x.edge()}, {updated.edge(), seen.edge(), later.edge(), after.edge()}),
          ordered = order_updates(p);
  same_values(p, ordered, {Initializer::normal(0, 1, 5).make("x", DType::f32, {4, 80})}, "ordered");
  std::vector<std::string> awaited;
  for (const Node& n : ordered.graph.nodes())
    if (n.op->name == "AssignSub")
      for (const std::int32_t c : n.controls) awaited.push_back(ordered.graph.node(c).op->name);
  BOOST_TEST(awaited == (std::vector<std::string>{"MatMul", "Reshape", "MatMul"}),
             boost::test_tools::per_element());
  for (const Node& n : ordered.graph.nodes())
    if (n.op->name == "AssignAdd") BOOST_TEST(n.controls.empty());
  // A queue could be filled by what waits.
  g.fifo_queue("q", {{DType::f32, Shape{4}}}, 2);
  const Program unordered = order_updates(prune(g, {x.edge()}, {updated.edge(), seen.edge()}));
  BOOST_TEST(count(unordered, "AssignSub") == 1);
  for (const Node& n : unordered.graph.nodes()) BOOST_TEST(n.controls.empty());
}

// Two layers, their gradients large: the first one's waits for the second's update, if that does
// not need it, and what errors go through for the second's.
BOOST_AUTO_TEST_CASE(large_gradients_are_computed_one_after_the_other) {
  constexpr std::int64_t n = 256;
  enum class Kind { plain, few_rows, clipped, fetched, small };
  for (const Kind kind : {Kind::plain, Kind::few_rows, Kind::clipped, Kind::fetched, Kind::small}) {
    const std::int64_t rows = kind == Kind::few_rows ? n - 1 : n,
                       width = kind == Kind::small ? n - 1 : n;
    Graph g;
    Expr x = g.input("x", DType::f32, {rows, width});
    Variable w1 = g.variable("w1", DType::f32, {width, width}, Initializer::normal(0, 0.1, 3)),
             w2 = g.variable("w2", DType::f32, {width, width}, Initializer::normal(0, 0.1, 4));
    Expr h = matmul(x, w1.read()), y = matmul(h, w2.read());
    Expr d2 = matmul(h, y, true), d1 = matmul(x, matmul(y, w2.read(), false, true), true);
    Expr factor = kind == Kind::clipped ? 1.0 / (sum(square(d1)) + sum(square(d2)))
                                        : g.constant(Tensor::scalar(0.5f));
    Expr first = w1.assign_sub(d1 * factor), second = w2.assign_sub(d2 * factor),
         after = w1.read() + w2.read();
    std::vector<Edge> fetches{y.edge(), first.edge(), second.edge(), after.edge()};
    if (kind == Kind::fetched) fetches.push_back(d2.edge());
    const Program p = order_updates(fuse_updates(fuse_pointwise(prune(g, {x.edge()}, fetches)))),
                  ordered = order_gradients(p);
    same_values(p, ordered, {Initializer::normal(0, 1, 5).make("x", DType::f32, {rows, width})},
                "ordered");
    std::vector<std::string> waited;  // for, by products
    for (const Node& node : ordered.graph.nodes())
      if (node.op->name == "MatMul")
        for (const std::int32_t c : node.controls) waited.push_back(ordered.graph.node(c).op->name);
    std::vector<std::string> expected;
    if (kind == Kind::plain) expected = {"MatMul", "UpdateVariable"};
    // the matrix that errors are multiplied with is smaller than the gradient
    if (kind == Kind::few_rows) expected = {"UpdateVariable"};
    BOOST_TEST(waited == expected, boost::test_tools::per_element());
    BOOST_TEST(ordered.graph.size() == p.graph.size());
  }
}

// A product of errors with a variable's old value waits for the variable's gradient, which derives
// from the same cotangent; no other use of the variable does.
BOOST_AUTO_TEST_CASE(product_of_errors_waits_for_the_gradient_beside_it) {
  constexpr std::int64_t n = 256;
  enum class Kind { beside, of_something_else, of_the_new_value, for_another_device, first };
  for (const Kind kind : {Kind::beside, Kind::of_something_else, Kind::of_the_new_value,
                          Kind::for_another_device, Kind::first}) {
    Graph g;
    Expr x = g.input("x", DType::f32, {n, n}), dy = tanh(x);
    Variable w1 = g.variable("w1", DType::f32, {n, n}, Initializer::normal(0, 0.1, 3)),
             w2 = g.variable("w2", DType::f32, {n, n}, Initializer::normal(0, 0.1, 4));
    const auto gradient = [&] { return matmul(x, reshape(dy, {-1, n}), true); };
    const auto through = [&] {
      return matmul(kind == Kind::of_something_else ? exp(dy) : dy, w2.read(), false, true);
    };
    Expr d2, dx, u2;
    if (kind == Kind::first) dx = through(), d2 = gradient();
    else d2 = gradient();
    if (kind == Kind::of_the_new_value) u2 = w2.assign_sub(d2);
    if (kind != Kind::first) dx = through();
    if (kind != Kind::of_the_new_value) u2 = w2.assign_sub(d2);
    Expr u1 = w1.assign_sub(matmul(x, exp(dx), true)), seen = [&] {
      auto there = g.on_device(kind == Kind::for_another_device ? "cpu:1" : "");
      return sum(dx);
    }();
    const Program p = order_updates(
                      fuse_updates(prune(g, {x.edge()}, {u1.edge(), u2.edge(), seen.edge()}))),
                  ordered = order_gradients(p);
    same_values(p, ordered, {Initializer::normal(0, 0.1, 5).make("x", DType::f32, {n, n})},
                "beside");
    int found = 0, waiting = 0;
    for (const Node& node : ordered.graph.nodes()) {
      if (node.op->name != "MatMul" ||
          ordered.graph.node(node.inputs[1].node).op->name != "ReadVariable")
        continue;
      ++found;
      for (const std::int32_t c : node.controls)
        waiting += ordered.graph.node(c).op->name == "MatMul";
    }
    BOOST_TEST(found == 1);
    BOOST_TEST(waiting == (kind == Kind::beside ? 1 : 0), "kind " << int(kind));
  }
}

// Updates on either device that need the other's: each wait alone would do, both would make a
// circle.
BOOST_AUTO_TEST_CASE(gradients_on_two_devices_do_not_form_a_wait_cycle) {
  constexpr std::int64_t n = 256;
  Graph g;
  Expr x = g.input("x", DType::f32, {n, n});
  const auto variable = [&](const std::string& name, const char* device) {
    auto scope = g.on_device(device);
    return g.variable(name, DType::f32, {n, n}, Initializer::normal(0, 0.1, 3));
  };
  const auto product = [&](const char* device, double factor) {
    auto scope = g.on_device(device);
    return matmul(x, x * factor);
  };
  const auto update = [&](Variable& v, const char* device, const Expr& by) {
    auto scope = g.on_device(device);
    return v.assign_sub(by);
  };
  Variable w1 = variable("w1", "cpu:0"), w2 = variable("w2", "cpu:0"), q1 = variable("q1", "cpu:1"),
           q2 = variable("q2", "cpu:1");
  Expr g1 = product("cpu:0", 0.1), h1 = product("cpu:1", 0.2), g2 = product("cpu:0", 0.3),
       h2 = product("cpu:1", 0.4);
  Expr u2 = update(w2, "cpu:0", g2), v2 = update(q2, "cpu:1", h2);
  Expr u1 = update(w1, "cpu:0", g1 * sum(v2)), v1 = update(q1, "cpu:1", h1 * sum(u2));
  for (const bool is_fused : {false, true}) {
    Program p = prune(g, {x.edge()}, {u1.edge(), v1.edge(), u2.edge(), v2.edge()});
    if (is_fused) p = fuse_updates(fuse_pointwise(std::move(p)));
    const Program ordered = order_gradients(p);
    BOOST_TEST(ordered.graph.size() == p.graph.size());
    same_values(p, ordered, {Initializer::normal(0, 0.1, 5).make("x", DType::f32, {n, n})},
                "two devices");
  }
}

BOOST_AUTO_TEST_CASE(gradients_beside_control_flow_are_left_as_they_are) {
  constexpr std::int64_t n = 256;
  for (const bool has_loop : {false, true}) {
    Graph g;
    Expr x = g.input("x", DType::f32, {n, n});
    Variable w1 = g.variable("w1", DType::f32, {n, n}, Initializer::constant(0)),
             w2 = g.variable("w2", DType::f32, {n, n}, Initializer::constant(0));
    Expr g1 = matmul(x, x), g2 = matmul(x, x, true);
    std::vector<Edge> fetches;
    if (has_loop)
      fetches.push_back(
          while_loop([](Expr v) { return v < 10.0; }, [](Expr v) { return v * 2.0; }, sum(x))
              .edge());
    fetches.push_back(w1.assign_sub(g1).edge());
    fetches.push_back(w2.assign_sub(g2).edge());
    const Program ordered = order_gradients(prune(g, {x.edge()}, fetches));
    int waits = 0;
    for (const Node& node : ordered.graph.nodes())
      waits += node.op->name == "MatMul" && !node.controls.empty();
    BOOST_TEST(waits == (has_loop ? 0 : 1));
  }
}

BOOST_AUTO_TEST_CASE(updates_of_every_dtype) {
  for (DType t : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i8, DType::i32,
                  DType::i64, DType::u8, DType::u64, DType::c64, DType::boolean}) {
    Graph g;
    const bool is_bool = t == DType::boolean,
               is_fused = !is_bool && !is_complex(t) && t != DType::f16 && t != DType::bf16;
    auto in = [&](const Tensor& x) { return Eager().run(g, {}, {cast(g.constant(x), t)})[0]; };
    const Tensor start = in(Tensor::of<float>({1, 0, 3, 4}));
    Expr x = g.input("x", t, {4}), one = g.input("one", t, {1});
    Variable added = g.variable("added", start), taken = g.variable("taken", start),
             set = g.variable("set", start);
    Exprs fetches{set.assign(is_bool ? logical_xor(set.read(), x) : set.read() * x + one)};
    if (!is_bool)
      fetches.insert(fetches.end(), {added.assign_add(x * one * 3), taken.assign_sub(x * x + one)});
    for (const Variable& v : {added, taken, set}) fetches.push_back(v.read());
    std::vector<Edge> edges;
    for (const Expr& e : fetches) edges.push_back(e.edge());
    Program p = prune(g, {x.edge(), one.edge()}, edges), fused = fuse_updates(fuse_pointwise(p));
    BOOST_TEST(count(fused, "UpdateVariable") == (is_fused ? 3 : 0), name_of(t));
    same_values(p, fused, {in(Tensor::of<float>({2, 1, 0, 7})), in(Tensor::of<float>({1}))},
                std::string(name_of(t)));
  }
}

BOOST_AUTO_TEST_CASE(updates_that_control_edges_hold_apart) {
  Graph g;
  Expr x = g.input("x", DType::f32, {4});
  auto variable = [&](const char* name) {
    return g.variable(name, DType::f32, {4}, Initializer::normal(0, 1, 3));
  };
  Variable a = variable("a"), b = variable("b"), c = variable("c"), d = variable("d");
  Expr first = a.assign_add(x * 2.0);
  Expr waits, waited, moved;
  {
    auto later = g.after({first});
    waits = x * 3.0;  // the value waits: it stays what it is
  }
  Expr second = b.assign_add(waits);
  Expr value = x * 4.0;
  {
    auto later = g.after({value});  // the value is waited for
    waited = c.assign_sub(value);
  }
  Expr next = d.read() * 0.5 + x;
  {
    auto later = g.after({second});  // the update waits: it still does, with its value in it
    moved = d.assign(next);
  }
  Program p = prune(g, {x.edge()}, {first.edge(), second.edge(), waited.edge(), moved.edge()}),
          fused = fuse_updates(fuse_pointwise(p));
  same_values(p, fused, {Initializer::normal(0, 1, 5).make("x", DType::f32, {4})}, "held apart");
  BOOST_TEST(count(fused, "UpdateVariable") == 2);
  BOOST_TEST(count(fused, "AssignAdd") == 1);
  BOOST_TEST(count(fused, "AssignSub") == 1);
  for (const Node& n : fused.graph.nodes())
    if (n.op->name == "UpdateVariable" && g.states()[static_cast<std::size_t>(n.state)].name == "d")
      BOOST_TEST(n.controls.size() == 1);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
