// Unused loop variables, results and arguments are removed; invariant nodes of loops move before
// them. Values, draws and effects stay.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <string>
#include <vector>

#include <troupe/controlflow/drop_unused_outputs.hpp>
#include <troupe/controlflow/move_invariant.hpp>
#include <troupe/test/ops/passes.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(unused_work_test)

namespace {

using Pair = std::tuple<Expr, Expr>;
using Triple = std::tuple<Expr, Expr, Expr>;
const ValueSpec kReal{DType::f64, Shape{}};

int nodes_in(const Graph& g, std::string_view op) {
  int n = 0;
  for (const Node& node : g.nodes()) {
    n += node.op->name == op;
    for (const auto& sub : subgraphs_of(node)) n += nodes_in(sub->graph, op);
  }
  return n;
}
// Counts those in functions, too.
int nodes_of(const Program& p, std::string_view op) {
  int n = nodes_in(p.graph, op);
  for (const auto& f : p.graph.functions())
    if (f->body) n += nodes_in(f->body->graph, op);
  return n;
}
Program needed(const Graph& g, const std::vector<Expr>& fetches,
               const std::vector<Expr>& feeds = {}) {
  std::vector<Edge> in, out;
  for (const Expr& e : feeds) in.push_back(e.edge());
  for (const Expr& e : fetches) out.push_back(e.edge());
  return prune(g, in, out);
}
/// Drops what is unused, and compares the values.
Program dropped(const Graph& g, const std::vector<Expr>& fetches,
                const std::vector<Expr>& feeds = {}, const std::vector<Tensor>& values = {}) {
  const Program before = needed(g, fetches, feeds);
  Program after = drop_unused_outputs(before);
  same_values(before, after, values, "drop_unused_outputs");
  return after;
}
/// Moves invariant nodes of all loops, the inner ones first, as the pipeline does.
Program moved_in(const Program& p);
std::shared_ptr<const SubGraph> moved_in(const SubGraph& sub) {
  Program p = moved_in(Program{sub.graph, sub.inputs, sub.outputs});
  auto made = std::make_shared<SubGraph>(std::move(p.graph));
  made->inputs = std::move(p.feeds);
  made->outputs = std::move(p.fetches);
  return made;
}
Program moved_in(const Program& p) {
  Rewriter rewriter(p);
  for (std::int32_t id = 0; id < p.graph.size(); ++id) {
    Node node = rewriter.translated(id);
    std::vector<std::shared_ptr<const SubGraph>> graphs;
    for (const auto& sub : subgraphs_of(node)) graphs.push_back(moved_in(*sub));
    if (!graphs.empty()) node.attrs.set("graphs", make_subgraphs(std::move(graphs)));
    rewriter.replace(id, std::move(node));
  }
  return move_invariant(rewriter.finish());
}
Program moved(const Graph& g, const std::vector<Expr>& fetches, const std::vector<Expr>& feeds,
              const std::vector<Tensor>& values) {
  const Program before = needed(g, fetches, feeds);
  Program after = moved_in(before);
  same_values(before, after, values, "move_invariant");
  return after;
}
Tensor square_of(double v) { return Tensor::of(std::vector<double>(9, v), {3, 3}); }

/// The engine's values with all passes and with none agree; returns them.
std::vector<Tensor> everywhere_alike(const Graph& g, const std::vector<Expr>& feeds,
                                     const std::vector<Expr>& fetches,
                                     const std::vector<Tensor>& values) {
  Engine with({.workers = 1}), without({.workers = 1});
  std::vector<Tensor> a = with.compile(g, feeds, fetches)(values),
                      b = without.compile(g, feeds, fetches, {.optimize = false})(values);
  for (std::size_t i = 0; i < a.size(); ++i)
    BOOST_CHECK_MESSAGE(identical(a[i], b[i]), a[i].text() << " and " << b[i].text());
  return a;
}

}  // namespace

// ---- unused work

BOOST_AUTO_TEST_CASE(a_loop_variable_that_is_not_fetched) {  // U1
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3});
  auto [i, s, h] = while_loop([](Expr n, Expr, Expr) { return n < 4; },
                              [&](Expr n, Expr v, Expr m) {
                                return Triple{n + 1, v + 1.0, matmul(m, x)};
                              },
                              Triple{g.constant(0), g.constant(0.5), x});
  BOOST_TEST(nodes_of(dropped(g, {s}, {x}, {square_of(0.5)}), "MatMul") == 0);
  BOOST_TEST(nodes_of(dropped(g, {s, h}, {x}, {square_of(0.5)}), "MatMul") == 1);
  everywhere_alike(g, {x}, {s}, {square_of(0.5)});
}

BOOST_AUTO_TEST_CASE(variables_that_feed_each_other_and_nothing_else) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3});
  auto [i, a, b] = while_loop([](Expr n, Expr, Expr) { return n < 4; },
                              [&](Expr n, Expr v, Expr m) {
                                return Triple{n + 1, matmul(m, x), matmul(v, x)};
                              },
                              Triple{g.constant(0), x, x});
  BOOST_TEST(nodes_of(dropped(g, {i}, {x}, {square_of(1)}), "MatMul") == 0);
  BOOST_TEST(nodes_of(dropped(g, {a}, {x}, {square_of(1)}), "MatMul") == 2);
}

BOOST_AUTO_TEST_CASE(nodes_that_a_condition_or_an_effect_reads_stay) {
  Graph g;
  Expr x = g.input("x", DType::f64, {});
  Variable v = g.variable("v", Tensor::scalar(0.0));
  auto [i, a, b] = while_loop([](Expr, Expr u, Expr) { return u < 100.0; },
                              [&](Expr n, Expr u, Expr w) {
                                Graph::Scope then = g.after({v.assign_add(w)});
                                return Triple{n + 1, u * 2.0, w + x};
                              },
                              Triple{g.constant(0), x, x});
  const Program p = dropped(g, {i}, {x}, {Tensor::scalar(3.0)});
  const Node* loop = nullptr;
  for (const Node& n : p.graph.nodes())
    if (n.op->name == "While") loop = &n;
  BOOST_REQUIRE(loop);
  BOOST_TEST(loop->outputs.size() == 3u);
}

BOOST_AUTO_TEST_CASE(results_of_branches_and_maps) {  // U2
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3}), p = g.input("p", DType::boolean, {});
  auto [cheap, dear] = cond(
      p,
      [&] {
        return Pair{x + 1.0, matmul(x, x)};
      },
      [&] {
        return Pair{x - 1.0, matmul(x + 1.0, x)};
      });
  BOOST_TEST(
      nodes_of(dropped(g, {cheap}, {x, p}, {square_of(1), Tensor::scalar(true)}), "MatMul") == 0);
  BOOST_TEST(
      nodes_of(dropped(g, {dear}, {x, p}, {square_of(1), Tensor::scalar(false)}), "MatMul") == 2);
  auto [row, product] = map(
      [&](Expr r) {
        return Pair{r * 2.0, matmul(reshape(r, {1, 3}), x)};
      },
      x);
  BOOST_TEST(nodes_of(dropped(g, {row}, {x}, {square_of(2)}), "MatMul") == 0);
  BOOST_TEST(nodes_of(dropped(g, {product}, {x}, {square_of(2)}), "MatMul") == 1);
}

BOOST_AUTO_TEST_CASE(results_of_scans_and_folds) {  // U2
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3}), zero = g.constant(0.0);
  const auto products = [&](const Expr& fetch) {
    return nodes_of(dropped(g, {fetch}, {x}, {square_of(0.5)}), "MatMul");
  };
  const auto step = [&](Pair state, Expr row) {
    auto [count, all] = state;
    return Pair{count + 1.0, matmul(all, x) + row};
  };
  auto [counts, all] = scan(step, x, Pair{zero, x});
  BOOST_TEST(products(counts) == 0);
  BOOST_TEST(products(all) == 1);
  auto [count, sum_of_all] = fold_left(step, x, Pair{zero, x});
  BOOST_TEST(products(count) == 0);
  BOOST_TEST(products(sum_of_all) == 1);
  // the cell's second state is no output
  const auto rnn = dynamic_rnn(
      [&](Pair state, Expr in) {
        auto [h, c] = state;
        return Pair{h + in, matmul(c, x)};
      },
      reshape(x, {3, 1, 3}), Pair{g.zeros(DType::f64, {1, 3}), g.zeros(DType::f64, {1, 3})});
  BOOST_TEST(products(rnn.outputs) == 0);
  BOOST_TEST(products(std::get<1>(rnn.state)) == 1);
  everywhere_alike(g, {x}, {counts, count, rnn.outputs}, {square_of(0.5)});
}

BOOST_AUTO_TEST_CASE(results_of_a_choice_of_three) {  // U2
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3}), which = g.input("which", DType::i32, {});
  const auto branch = [&](double by) {
    return [&, by] { return Exprs{x + by, matmul(x, x + by)}; };
  };
  const std::vector<std::function<Exprs()>> branches{branch(1), branch(2), branch(3)};
  const Exprs made = switch_case(which, branches);
  for (const std::int32_t k : {0, 1, 2}) {
    const std::vector<Tensor> values{square_of(0.5), Tensor::scalar(k)};
    BOOST_TEST(nodes_of(dropped(g, {made[0]}, {x, which}, values), "MatMul") == 0);
    BOOST_TEST(nodes_of(dropped(g, {made[1]}, {x, which}, values), "MatMul") == 3);
    everywhere_alike(g, {x, which}, {made[0]}, values);
  }
}

BOOST_AUTO_TEST_CASE(results_and_arguments_of_calls) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3}), k = g.input("k", DType::f64, {3, 3});
  const ValueSpec m{DType::f64, Shape{3, 3}};
  GraphFunction<Pair(Expr, Expr)> f(g, "f", {m, m}, [&](Expr a, Expr b) {
    return Pair{a + 1.0, matmul(b, k)};
  });
  auto [cheap, dear] = f(x, matmul(x, x));
  const std::vector<Tensor> values{square_of(1), square_of(2)};
  // neither the product in the body nor the one that it is given
  BOOST_TEST(nodes_of(dropped(g, {cheap}, {x, k}, values), "MatMul") == 0);
  BOOST_TEST(nodes_of(dropped(g, {dear}, {x, k}, values), "MatMul") == 2);
  // a version for each set of results
  auto [cheap_too, dear_too] = f(x * 2.0, x);
  const Program both = dropped(g, {cheap, dear_too}, {x, k}, values);
  BOOST_TEST(nodes_of(both, "MatMul") == 1);
  BOOST_TEST(both.graph.functions().size() == 2u);
  everywhere_alike(g, {x, k}, {cheap, dear_too}, values);
}

BOOST_AUTO_TEST_CASE(a_value_from_outside_that_only_an_unused_result_reads) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3});
  Expr outer = matmul(x, x);
  const ValueSpec m{DType::f64, Shape{3, 3}};
  GraphFunction<Pair(Expr)> f(g, "f", {m}, [&](Expr a) { return Pair{a + x, a + outer}; });
  auto [cheap, dear] = f(x);
  BOOST_TEST(nodes_of(dropped(g, {cheap}, {x}, {square_of(1)}), "MatMul") == 0);
  BOOST_TEST(nodes_of(dropped(g, {dear}, {x}, {square_of(1)}), "MatMul") == 1);
}

BOOST_AUTO_TEST_CASE(results_of_a_recursion) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3}), n = g.input("n", DType::i64, {});
  const ValueSpec m{DType::f64, Shape{3, 3}}, count{DType::i64, Shape{}};
  GraphFunction<Pair(Expr, Expr)> f(g, "f", {count, m}, {m, m});
  f.define([&](Expr i, Expr a) {
    return cond(
        i <= std::int64_t{0},
        [&] {
          return Pair{a, a};
        },
        [&] {
          auto [p, q] = f(i - 1, a);
          return Pair{p + 1.0, matmul(q, a)};
        });
  });
  auto [cheap, dear] = f(n, x);
  const std::vector<Tensor> values{square_of(0.5), Tensor::scalar(std::int64_t{3})};
  BOOST_TEST(nodes_of(dropped(g, {cheap}, {x, n}, values), "MatMul") == 0);
  BOOST_TEST(nodes_of(dropped(g, {dear}, {x, n}, values), "MatMul") == 1);
  everywhere_alike(g, {x, n}, {cheap}, values);
  everywhere_alike(g, {x, n}, {dear}, values);
}

BOOST_AUTO_TEST_CASE(nested_in_each_other) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3}), p = g.input("p", DType::boolean, {});
  const ValueSpec m{DType::f64, Shape{3, 3}};
  const auto loop = [&](Expr a, Expr b, std::function<Pair(Expr, Expr)> body) {
    auto [i, u, v] = while_loop([](Expr n, Expr, Expr) { return n < 3; },
                                [&](Expr n, Expr s, Expr t) {
                                  auto [c, d] = body(s, t);
                                  return Triple{n + 1, c, d};
                                },
                                Triple{g.constant(0), a, b});
    return Pair{u, v};
  };
  GraphFunction<Pair(Expr, Expr)> f(g, "f", {m, m}, [&](Expr a, Expr b) {
    return loop(a, b, [&](Expr s, Expr t) {
      return cond(
          p, [&] { return loop(s, t, [&](Expr q, Expr r) {
                     return Pair{q + x, matmul(r, x)};
                   }); },
          [&] {
            return Pair{s, t};
          });
    });
  });
  auto [cheap, dear] = f(x, x);
  const std::vector<Tensor> values{square_of(0.25), Tensor::scalar(true)};
  BOOST_TEST(nodes_of(dropped(g, {cheap}, {x, p}, values), "MatMul") == 0);
  BOOST_TEST(nodes_of(dropped(g, {dear}, {x, p}, values), "MatMul") == 1);
  everywhere_alike(g, {x, p}, {cheap}, values);
}

BOOST_AUTO_TEST_CASE(draws_that_stay_keep_their_bits) {
  Graph g;
  auto [i, a, b] = while_loop([](Expr n, Expr, Expr) { return n < 3; },
                              [&](Expr n, Expr s, Expr t) {
                                Expr one = g.random_normal({4}, DType::f64),
                                     two = g.random_normal({4}, DType::f64);
                                return Triple{n + 1, s + two, t * one};
                              },
                              Triple{g.constant(0), g.constant(Tensor::zeros(DType::f64, {4})),
                                     g.constant(Tensor::zeros(DType::f64, {4}))});
  everywhere_alike(g, {}, {a}, {});
  everywhere_alike(g, {}, {a, b}, {});
}

BOOST_AUTO_TEST_CASE(effects_that_only_an_unused_value_led_to_happen) {
  for (const bool is_optimized : {true, false}) {
    Graph g;
    Variable v = g.variable("v", Tensor::scalar(1.0));
    Expr wrote = v.assign(g.constant(5.0));
    auto [i, s, h] = while_loop([](Expr n, Expr, Expr) { return n < 3; },
                                [&](Expr n, Expr a, Expr b) {
                                  return Triple{n + 1, a + 1.0, b * 2.0};
                                },
                                Triple{g.constant(0), g.constant(0.0), wrote + 1.0});
    Engine engine({.workers = 1});
    BOOST_TEST(engine.compile(g, {}, {s}, {.optimize = is_optimized})({})[0].item<double>() == 3);
    BOOST_TEST(engine.get(v).item<double>() == 5);
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_what_is_left) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3});
  auto [i, s, h] = while_loop([](Expr n, Expr, Expr) { return n < 3; },
                              [&](Expr n, Expr a, Expr b) {
                                return Triple{n + 1, tanh(a * x), matmul(b, x)};
                              },
                              Triple{g.constant(0), x, x});
  Expr d = gradients(sum(s), x)[0];
  const Program p = dropped(g, {d}, {x}, {square_of(0.5)});
  BOOST_TEST(nodes_of(p, "MatMul") == 0);
  everywhere_alike(g, {x}, {d}, {square_of(0.5)});
}

BOOST_AUTO_TEST_CASE(explain_lists_removed_and_moved_nodes) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3});
  auto [i, s, h] = while_loop([](Expr n, Expr, Expr) { return n < 4; },
                              [&](Expr n, Expr v, Expr m) {
                                return Triple{n + 1, v + reduce_max(matmul(x, x)), matmul(m, x)};
                              },
                              Triple{g.constant(0), g.constant(0.0), x}, {.name = "train"});
  Engine engine({.workers = 1});
  const std::string text = engine.compile(g, {x}, {s}).explain();
  BOOST_TEST(text.find("removed variables 0, 2 of 3") == std::string::npos, text);
  BOOST_TEST(text.find("removed variable 2 of 3") != std::string::npos, text);
  BOOST_TEST(text.find("While 'train' (") != std::string::npos, text);
  BOOST_TEST(text.find("moved before it: MatMul 'train/MatMul_") != std::string::npos, text);
}

// ---- invariant nodes

BOOST_AUTO_TEST_CASE(products_of_captured_values_move) {  // U3
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3});
  auto [i, v] = while_loop([](Expr n, Expr) { return n < 50; },
                           [&](Expr n, Expr s) {
                             return Pair{n + 1, s + reduce_max(matmul(x, x))};
                           },
                           Pair{g.constant(0), g.constant(0.0)});
  const Program p = moved(g, {v}, {x}, {square_of(0.5)});
  BOOST_TEST(count(p, "MatMul") == 1);
  BOOST_TEST(count(p, "Max") == 1);
  BOOST_TEST(nodes_of(p, "MatMul") == 1);
  BOOST_TEST(count(p, "Case") == 0);
  everywhere_alike(g, {x}, {v, i}, {square_of(0.5)});
}

// By its origin a draw keeps its bits, and by its site an error names the user's line.
BOOST_AUTO_TEST_CASE(moved_nodes_keep_their_origin_and_line) {
  Graph g;
  Expr x = g.input("x", DType::f64, {kAny, kAny}), n = g.input("n", DType::i32, {});
  std::uint64_t origin = 0;
  const unsigned line = __LINE__ + 4;
  auto [i, v] = while_loop(
      [&](Expr k, Expr) { return k < n; },
      [&](Expr k, Expr s) {
        Expr product = matmul(x, x);
        origin = static_cast<const Graph&>(product.reader()).node(product.edge().node).origin;
        return Pair{k + 1, s + reduce_max(product)};
      },
      Pair{g.constant(0), g.constant(0.0)});
  const Program p = moved(g, {v}, {x, n}, {square_of(0.5), Tensor::scalar(std::int32_t{3})});
  int found = 0;
  const std::function<void(const Graph&)> look = [&](const Graph& in) {
    for (const Node& node : in.nodes()) {
      for (const auto& sub : subgraphs_of(node))
        if (node.op->name != "While") look(sub->graph);  // it has left the body
      if (node.op->name != "MatMul") continue;
      ++found;
      BOOST_TEST(node.origin == origin);
      BOOST_TEST(node.site.line == line);
    }
  };
  look(p.graph);
  BOOST_TEST(found == 1);
  Engine engine({.workers = 1});
  const std::string why = refusal(
      [&] {
        engine.compile(g, {x, n},
                       {v})({Tensor::zeros(DType::f64, {2, 3}), Tensor::scalar(std::int32_t{3})});
      },
      Code::invalid_argument);
  BOOST_TEST(why.find("MatMul") != std::string::npos, why);
  BOOST_TEST(why.find("unused_work_test.cpp:" + std::to_string(line)) != std::string::npos, why);
}

BOOST_AUTO_TEST_CASE(out_of_several_loops_and_through_unchanged_variables) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3});
  auto [i, v, w] = while_loop([](Expr n, Expr, Expr) { return n < 3; },
                              [&](Expr n, Expr s, Expr kept) {
                                auto [j, t] =
                                    while_loop([](Expr m, Expr) { return m < 3; },
                                               [&](Expr m, Expr u) {
                                                 return Pair{m + 1, u + sum(matmul(x, kept))};
                                               },
                                               Pair{g.constant(0), s});
                                return Triple{n + 1, t, kept};
                              },
                              Triple{g.constant(0), g.constant(0.0), x});
  const Program p = moved(g, {v}, {x}, {square_of(0.5)});
  BOOST_TEST(count(p, "MatMul") == 1);
  everywhere_alike(g, {x}, {v, w}, {square_of(0.5)});
}

BOOST_AUTO_TEST_CASE(nodes_that_can_fail_move_behind_the_first_predicate) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3}), n = g.input("n", DType::i64, {}),
       at = g.input("at", DType::i64, {2});
  auto [i, v] =
      while_loop([&](Expr j, Expr) { return j < n; },
                 [&](Expr j, Expr s) {
                   return Pair{j + 1, s + matmul(gather(x, at), x)};
                 },
                 Pair{g.constant(std::int64_t{0}), g.constant(Tensor::zeros(DType::f64, {2, 3}))});
  const auto values = [&](std::int64_t iterations, std::int64_t index) {
    return std::vector<Tensor>{square_of(0.5), Tensor::scalar(iterations),
                               Tensor::of<std::int64_t>({0, index})};
  };
  const Program p = moved(g, {v}, {x, n, at}, values(3, 2));
  BOOST_TEST(count(p, "Case") == 1);
  BOOST_TEST(nodes_of(p, "Gather") == 1);
  everywhere_alike(g, {x, n, at}, {v}, values(3, 1));
  // out of range, in a loop that does not run
  everywhere_alike(g, {x, n, at}, {v}, values(0, 7));
  Engine engine({.workers = 1});
  refusal([&] { engine.compile(g, {x, n, at}, {v})(values(1, 7)); }, Code::out_of_range);
}

BOOST_AUTO_TEST_CASE(a_loop_that_is_known_to_run_needs_no_guard) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3}), at = g.input("at", DType::i64, {2});
  auto [i, v] = while_loop([&](Expr j, Expr) { return j < 5; },
                           [&](Expr j, Expr s) {
                             return Pair{j + 1, s + gather(x, at)};
                           },
                           Pair{g.constant(0), g.constant(Tensor::zeros(DType::f64, {2, 3}))});
  const std::vector<Tensor> values{square_of(0.5), Tensor::of<std::int64_t>({0, 2})};
  const Program p = moved(g, {v}, {x, at}, values);
  BOOST_TEST(count(p, "Case") == 0);
  BOOST_TEST(count(p, "Gather") == 1);
  // and one over as many rows as the shape says
  Expr rows = map([&](Expr r) { return r + sum(gather(x, at)); }, x);
  const Program q = moved(g, {rows}, {x, at}, values);
  BOOST_TEST(count(q, "Case") == 0);
  BOOST_TEST(count(q, "Gather") == 1);
}

BOOST_AUTO_TEST_CASE(a_predicate_that_costs_or_draws_is_not_asked_twice) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3}), at = g.input("at", DType::i64, {2});
  auto [i, v] = while_loop(
      [&](Expr j, Expr) { return cast(j, DType::f64) < g.random_uniform({}, DType::f64) * 5.0; },
      [&](Expr j, Expr s) {
        return Pair{j + 1, s + gather(x, at)};
      },
      Pair{g.constant(0), g.constant(Tensor::zeros(DType::f64, {2, 3}))});
  const std::vector<Tensor> values{square_of(0.5), Tensor::of<std::int64_t>({0, 2})};
  const Program p = moved(g, {v}, {x, at}, values);
  BOOST_TEST(count(p, "Case") == 0);
  BOOST_TEST(count(p, "Gather") == 0);
  everywhere_alike(g, {x, at}, {v, i}, values);
}

BOOST_AUTO_TEST_CASE(draws_and_reads_of_variables_stay_in_the_loop) {
  Graph g;
  Variable w = g.variable("w", square_of(0.5));
  auto [i, v] = while_loop([&](Expr j, Expr) { return j < 3; },
                           [&](Expr j, Expr s) {
                             Expr noise = matmul(g.random_normal({3, 3}, DType::f64), w.read());
                             return Pair{j + 1, s + noise};
                           },
                           Pair{g.constant(0), g.constant(Tensor::zeros(DType::f64, {3, 3}))});
  const Program p = moved(g, {v}, {}, {});
  BOOST_TEST(count(p, "MatMul") == 0);
  everywhere_alike(g, {}, {v}, {});
}

BOOST_AUTO_TEST_CASE(intermediate_results_of_a_fused_chain_stay) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3}), c = g.input("c", DType::f64, {});
  auto [i, v] = while_loop([&](Expr j, Expr) { return j < 3; },
                           [&](Expr j, Expr s) {
                             // an affine map, something large made of something small
                             return Pair{j + 1, s + (x * 2.0 + 1.0) + broadcast_to(c, {3, 3})};
                           },
                           Pair{g.constant(0), x});
  const std::vector<Tensor> values{square_of(0.5), Tensor::scalar(2.0)};
  const Program p = moved(g, {v}, {x, c}, values);
  BOOST_TEST(count(p, "Mul") == 0);
  BOOST_TEST(count(p, "BroadcastLike") == 0);
  // nodes that take long move, and nodes that feed no chain
  auto [k, u] = while_loop([&](Expr j, Expr) { return j < 3; },
                           [&](Expr j, Expr s) {
                             return Pair{j + 1, matmul(s + exp(x), x * 2.0)};
                           },
                           Pair{g.constant(0), x});
  const Program q = moved(g, {u}, {x, c}, values);
  BOOST_TEST(count(q, "Exp") == 1);
  BOOST_TEST(count(q, "Mul") == 1);
  BOOST_TEST(count(q, "MatMul") == 0);
}

BOOST_AUTO_TEST_CASE(whole_branches_loops_and_calls_move) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3}), n = g.input("n", DType::i64, {});
  const ValueSpec m{DType::f64, Shape{3, 3}};
  GraphFunction<Expr(Expr)> f(g, "f", {m}, [&](Expr a) { return matmul(a, x); });
  auto [i, v] =
      while_loop([&](Expr j, Expr) { return j < n; },
                 [&](Expr j, Expr s) {
                   Expr rows = map([&](Expr r) { return r * 2.0; }, x);
                   Expr chosen = cond(
                       n > std::int64_t{2}, [&] { return matmul(x, x); }, [&] { return x; });
                   return Pair{j + 1, s + f(x) + rows + chosen};
                 },
                 Pair{g.constant(std::int64_t{0}), x});
  const std::vector<Tensor> values{square_of(0.5), Tensor::scalar(std::int64_t{3})};
  const Program p = moved(g, {v}, {x, n}, values);
  BOOST_TEST(count(p, "Case") == 1);
  for (const Node& node : p.graph.nodes())
    if (node.op->name == "While") BOOST_TEST(nodes_in(subgraphs_of(node)[1]->graph, "Call") == 0);
  everywhere_alike(g, {x, n}, {v}, values);
  everywhere_alike(g, {x, n}, {v}, {square_of(0.5), Tensor::scalar(std::int64_t{0})});
}

BOOST_AUTO_TEST_CASE(nodes_keep_their_device_and_gradients_their_bits) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3});
  auto [i, v] = while_loop([&](Expr j, Expr) { return j < 3; },
                           [&](Expr j, Expr s) {
                             auto there = g.on_device("cpu:1");
                             return Pair{j + 1, tanh(s * matmul(x, x))};
                           },
                           Pair{g.constant(0), x});
  Expr d = gradients(sum(v), x)[0];
  const std::vector<Tensor> values{square_of(0.25)};
  const Program p = moved(g, {v, d}, {x}, values);
  for (const Node& node : p.graph.nodes())
    if (node.op->name == "MatMul") BOOST_TEST(node.device == "cpu:1");
  Engine with({.workers = 1, .devices = {"cpu:0", "cpu:1"}}),
      without({.workers = 1, .devices = {"cpu:0", "cpu:1"}});
  const auto a = with.compile(g, {x}, {v, d})(values),
             b = without.compile(g, {x}, {v, d}, {.optimize = false})(values);
  for (std::size_t k = 0; k < a.size(); ++k) BOOST_TEST(identical(a[k], b[k]));
}

BOOST_AUTO_TEST_CASE(conditions_give_up_what_never_changes) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3, 3});
  auto [i, v] = while_loop([&](Expr, Expr s) { return s < sum(matmul(x, x)); },
                           [&](Expr j, Expr s) {
                             return Pair{j + 1, s + 1.0};
                           },
                           Pair{g.constant(0), g.constant(0.0)});
  const Program p = moved(g, {v, i}, {x}, {square_of(0.5)});
  BOOST_TEST(count(p, "MatMul") == 1);
  BOOST_TEST(nodes_of(p, "MatMul") == 1);
  everywhere_alike(g, {x}, {v, i}, {square_of(0.5)});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
