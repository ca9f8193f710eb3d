// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Everything inside everything: programs longer than the rows of `cases`, their gradients, and
// those of their gradients. Values everywhere are the interpreter's, gradients those of
// differences.
#include <boost/test/unit_test.hpp>

#include <troupe/ops/graph/custom_gradient.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(composed_test)

namespace {

using V = std::vector<double>;

const ValueSpec kCount{DType::i64, Shape{}}, kReal{DType::f64, Shape{}};

/// A program under construction: f64 inputs with their values, what is fetched, and gradients that
/// are to be compared.
class Piece {
 public:
  explicit Piece(Graph& graph) : g(graph) {}
  Graph& g;

  Expr input(const V& v, const Shape& shape) { return input(Tensor::of(v, shape), shape); }
  Expr input(const V& v) { return input(v, Shape{static_cast<std::int64_t>(v.size())}); }
  Expr input(double v) { return input(Tensor::scalar(v), Shape{}); }
  Expr input(const Tensor& value, const Shape& told) {
    Expr x = g.input("x" + std::to_string(feeds.size()), value.dtype(), told);
    feeds.emplace_back(x, value);
    return x;
  }
  Expr count(std::int64_t n) { return g.constant(n); }
  void fetch(const Expr& e) { fetches.push_back(e); }

  /// dy/dx of the scalar y for all inputs of f64; with `order` 2 those of a sum of their squares,
  /// too.
  void differentiate(const Expr& y, int order = 2) {
    std::vector<Expr> xs;
    for (const auto& [x, value] : feeds)
      if (value.dtype() == DType::f64) xs.push_back(x);
    std::vector<Expr> dys = gradients(y, xs);
    checks.push_back({y, xs, dys});
    if (order < 2) return;
    Expr squares = sum(square(dys[0]));
    for (std::size_t i = 1; i < dys.size(); ++i) squares = squares + 0.5 * sum(square(dys[i]));
    differentiate(squares, order - 1);
  }

  struct Check {
    Expr y;
    std::vector<Expr> xs, dys;
  };
  Feeds feeds;
  std::vector<Expr> fetches;
  std::vector<Check> checks;

  std::vector<Expr> all() const {
    std::vector<Expr> out = fetches;
    for (const Check& c : checks) {
      out.push_back(c.y);
      out.insert(out.end(), c.dys.begin(), c.dys.end());
    }
    return out;
  }
};

void compare_with_differences(Piece& p) {
  for (const Piece::Check& c : p.checks) {
    std::vector<Tensor> dys = Eager().run(p.g, p.feeds, c.dys);
    for (std::size_t i = 0; i < c.xs.size(); ++i) {
      auto fed = std::find_if(p.feeds.begin(), p.feeds.end(),
                              [&](const auto& f) { return f.first.edge() == c.xs[i].edge(); });
      const Tensor x = fed->second;
      BOOST_REQUIRE(dys[i].shape() == x.shape());
      for (std::int64_t e = 0; e < x.elements(); ++e) {
        auto y_at = [&](double shift) {
          V v = x.to_vector<double>();
          v[static_cast<std::size_t>(e)] += shift;
          fed->second = Tensor::of(v, x.shape());
          const double y = Eager().run(p.g, p.feeds, {c.y})[0].item<double>();
          fed->second = x;
          return y;
        };
        constexpr double kStep = 1e-4;
        const double slope =
            (8 * (y_at(kStep) - y_at(-kStep)) - (y_at(2 * kStep) - y_at(-2 * kStep))) /
            (12 * kStep);
        BOOST_TEST(
            std::abs(slope - dys[i].at(e)) <= 2e-6 * std::max(1.0, std::abs(slope)),
            "input " << i << "[" << e << "]: " << dys[i].at(e) << ", by differences " << slope);
      }
    }
  }
}

void agree(const std::function<void(Piece&)>& build) {
  std::vector<V> expected;
  {
    Graph g;
    Piece p(g);
    build(p);
    for (const Tensor& t : Eager().run(g, p.feeds, p.all())) expected.push_back(numbers(t));
    compare_with_differences(p);
  }
  for (const Setting& s : all_settings()) {
    Graph g;
    Piece p(g);
    build(p);
    Somewhere there(s);
    compare(there.engine().run(g, p.feeds, p.all()), expected, s.name);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_branch_in_a_loop_in_a_scan) {
  agree([](Piece& p) {
    Expr xs = p.input({0.5, -0.7, 1.2, 0.3}), a = p.input(0.8), b = p.input(-0.4);
    Expr states = scan(
        [&](Expr state, Expr x) {
          auto [i, v] =
              while_loop([](Expr n, Expr u) { return logical_and(n < 4, u < 3.0); },
                         [&](Expr n, Expr u) {
                           return std::tuple{n + 1, cond(
                                                        u * x > 0.1, [&] { return u * a + sin(x); },
                                                        [&] { return u - b * x * u; })};
                         },
                         std::tuple{p.count(0), state + x}, {.maximum_iterations = 3});
          return v + cast(i, DType::f64) * 0.1;
        },
        xs, p.g.constant(0.3));
    p.differentiate(sum(square(states)));
  });
}

// The deciding value is no operation of the loop's own, but leaves an inner loop or a branch; or it
// is a loop that is itself decided so.
BOOST_AUTO_TEST_CASE(a_loop_decides_whether_another_goes_on) {
  using Counts = GraphFunction<Expr(Expr)>;
  const auto is_below = [](Piece& p, const Expr& n, int limit) {  // by counting up to it
    return std::get<1>(while_loop([&](Expr m, Expr) { return m < n; },
                                  [&](Expr m, Expr) {
                                    return std::tuple{m + 1, m + 1 < limit};
                                  },
                                  std::tuple{p.count(0), p.g.constant(true)}));
  };
  const std::pair<const char*, std::function<Expr(Piece&, const Counts&, Expr)>> ways[] = {
      {"a loop", [&](Piece& p, const Counts&, Expr n) { return is_below(p, n, 5); }},
      {"a function", [](Piece&, const Counts& counts, Expr n) { return counts(n); }},
      {"a branch",
       [&](Piece& p, const Counts&, Expr n) {
         return cond(
             n < 2, [&] { return p.g.constant(true); }, [&] { return n < 5; });
       }},
      {"a loop in a branch",
       [&](Piece& p, const Counts&, Expr n) {
         return cond(
             n < 2, [&] { return is_below(p, n, 9); }, [&] { return is_below(p, n, 5); });
       }},
      {"a loop that a loop decides on",
       [&](Piece& p, const Counts&, Expr n) {
         return std::get<1>(while_loop([&](Expr m, Expr) { return is_below(p, m + 3, 6); },
                                       [&](Expr m, Expr) {
                                         return std::tuple{m + 1, n + m < 7};
                                       },
                                       std::tuple{p.count(0), n < 5}));
       }},
      {"an element of what a scan makes", [&](Piece& p, const Counts&, Expr n) {
         return reshape(slice(scan([](Expr before, Expr k) { return logical_and(before, k < 5); },
                                   n + reshape(p.count(0), {1}), p.g.constant(true)),
                              {0}, {1}),
                        Shape{});
       }}};
  for (const auto& [name, goes_on] : ways)
    for (const int window : {1, 4}) BOOST_TEST_CONTEXT(name << ", window " << window) {
        agree([&](Piece& p) {
          Expr x = p.input(0.7), w = p.input(1.1);
          Counts counts(p.g, "counts", {kCount}, {ValueSpec{DType::boolean, Shape{}}});
          counts.define([&](Expr n) {
            return cond(
                n < 2, [&] { return n < 5; }, [&] { return logical_and(n < 5, counts(n - 1)); });
          });
          auto [n, y] = while_loop([&](Expr i, Expr) { return goes_on(p, counts, i); },
                                   [&](Expr i, Expr u) {
                                     return std::tuple{i + 1, u * w + sin(x)};
                                   },
                                   std::tuple{p.count(0), x}, {.parallel_iterations = window});
          p.fetch(n);
          p.differentiate(y);
        });
      }
}

// The deciding value is equal in each iteration, so the loop has none, or as many as it may.
BOOST_AUTO_TEST_CASE(loop_condition_depends_on_a_value_from_outside) {
  const std::pair<const char*, std::function<Expr(Expr)>> ways[] = {
      {"a value", [](Expr e) { return e; }},
      {"its identity", [](Expr e) { return identity(e); }},
      {"what is computed of it", [](Expr e) { return logical_and(e, e); }}};
  for (const auto& [name, made] : ways)
    for (const int most : {0, 3}) BOOST_TEST_CONTEXT(name << ", at most " << most) {
        agree([&](Piece& p) {
          Expr x = p.input(0.7), w = p.input(1.1);
          const Expr never = sum(x) > 100.0, now = sum(x) > -100.0;
          const auto run = [&](Expr decides, Expr from) {
            WhileOptions options;
            if (most > 0) options.maximum_iterations = most;
            auto [n, y] = while_loop([&](Expr, Expr) { return made(decides); },
                                     [&](Expr m, Expr u) {
                                       return std::tuple{m + 1, u * w + sin(x)};
                                     },
                                     std::tuple{p.count(0), from}, options);
            p.fetch(n);
            return y;
          };
          Expr y = run(never, x);
          if (most > 0) y = run(now, y);
          auto [i, z] = while_loop([](Expr k, Expr) { return k < 4; },
                                   [&](Expr k, Expr u) {
                                     const Expr is_first = k < 0;
                                     WhileOptions options;
                                     if (most > 0) options.maximum_iterations = most;
                                     auto [m, v] =
                                         while_loop([&](Expr, Expr) { return made(is_first); },
                                                    [&](Expr j, Expr s) {
                                                      return std::tuple{j + 1, s * w};
                                                    },
                                                    std::tuple{p.count(0), u * 0.5}, options);
                                     return std::tuple{k + 1 + m, v + x};
                                   },
                                   std::tuple{p.count(0), y});
          p.fetch(i);
          p.differentiate(z);
        });
      }
}

BOOST_AUTO_TEST_CASE(loops_that_end_early_fill_one_list) {
  agree([](Piece& p) {
    Expr x = p.input(1.1), w = p.input({0.3, 0.6});
    auto [i, list, v] =
        while_loop([](Expr n, Expr, Expr) { return n < 5; },
                   [&](Expr n, Expr l, Expr u) {
                     auto [j, inner, filled] = while_loop(
                         [](Expr m, Expr t, Expr) { return logical_and(sum(t) < 4.0, m < 6); },
                         [&](Expr m, Expr t, Expr k) {
                           return std::tuple{m + 1, t * x + w, list_push(k, t * w)};
                         },
                         std::tuple{p.count(0), u, l}, {.maximum_iterations = 3});
                     return std::tuple{n + 1, filled, inner * 0.7};
                   },
                   std::tuple{p.count(0), list_empty(p.g, {DType::f64, Shape{2}}), w * 0.5},
                   {.maximum_iterations = 4});
    p.fetch(list_length(list));
    p.differentiate(sum(square(list_stack(list))) + sum(v));
  });
}

BOOST_AUTO_TEST_CASE(loops_without_iterations) {
  for (std::int64_t most : {-1, 0})
    agree([most](Piece& p) {
      Expr x = p.input({1, 2}), a = p.input(2.0);
      Expr end = most < 0 ? p.input(Tensor::scalar(std::int64_t{0}), Shape{}) : p.count(10);
      auto [i, v, l] = while_loop([&](Expr n, Expr, Expr) { return n < end; },
                                  [&](Expr n, Expr t, Expr k) {
                                    return std::tuple{n + 1, t * a, list_push(k, sum(t) * a)};
                                  },
                                  std::tuple{p.count(0), x, list_empty(p.g, kReal)},
                                  {.maximum_iterations = most});
      auto [k, u] = while_loop([](Expr n, Expr) { return n < 3; },
                               [&](Expr n, Expr from) {
                                 auto [j, t] = while_loop([&](Expr m, Expr) { return m < n - 1; },
                                                          [&](Expr m, Expr r) {
                                                            return std::tuple{m + 1, sin(r) * a};
                                                          },
                                                          std::tuple{p.count(0), from});
                                 return std::tuple{n + 1, t + sum(x)};
                               },
                               std::tuple{p.count(0), a});
      p.fetch(list_stack(l));
      p.differentiate(sum(v * v * v) + u);
    });
}

BOOST_AUTO_TEST_CASE(elements_that_change_their_shape) {
  agree([](Piece& p) {
    Expr x = p.input({1, 2, 3, 4});
    auto [i, list, last] =
        while_loop([](Expr n, Expr, Expr) { return n < 3; },
                   [&](Expr n, Expr l, Expr v) {
                     Expr longer = concat({v, v * 1.1}, 0);
                     return std::tuple{n + 1, list_push(l, longer * sum(x)), longer};
                   },
                   std::tuple{p.count(0), list_empty(p.g, {DType::f64, Shape{kAny}}), x},
                   {.shape_invariants = {{}, {}, Shape{kAny}}});
    p.fetch(list_extents(list));
    p.differentiate(sum(square(list_concat(list))) * 1e-4);
  });
}

// In a body of an unknown rank, reductions over some axes included.
BOOST_AUTO_TEST_CASE(values_of_unknown_ranks) {
  agree([](Piece& p) {
    Expr x = p.input(Tensor::of<double>({1.5, 0.2}), Shape::unknown()),
         w = p.input(Tensor::of<double>({.1, .2, .3, .4}, {2, 2}), Shape::unknown());
    auto [i, v] =
        while_loop([](Expr n, Expr) { return n < 3; },
                   [&](Expr n, Expr u) {
                     return std::tuple{n + 1, cond(
                                                  mod(n, 2) == 0, [&] { return u * sum(w, {0}); },
                                                  [&] { return u + mean(w, {1}); })};
                   },
                   std::tuple{p.count(0), x}, {.shape_invariants = {{}, Shape::unknown()}});
    p.differentiate(sum(v * v));
  });
}

BOOST_AUTO_TEST_CASE(indices_of_branches_in_and_out_of_range) {
  agree([](Piece& p) {
    Expr x = p.input(0.9);
    auto [i, v] =
        while_loop([](Expr n, Expr) { return n < 7; },
                   [&](Expr n, Expr u) {
                     std::vector<std::function<Expr()>> branches{
                         [&] { return u * x; }, [&] { return sin(u) + x; },
                         [&] { return p.g.constant(0.4) + 0.0 * u; }, [&] { return u * 1.1; }};
                     return std::tuple{n + 1, switch_case(n - 1, branches)};
                   },
                   std::tuple{p.count(0), x});
    p.differentiate(v);
  });
}

BOOST_AUTO_TEST_CASE(
    training_inside_of_a_scan) {  // gradients in bodies and branches, differentiated again
  agree([](Piece& p) {
    Expr w = p.input({.3, .1}), rate = p.input(0.1), xs = p.input({1, 2, .5, -1, .3, .7}, {3, 2});
    Expr weights = scan(
        [&](Expr v, Expr x) {
          Expr loss =
              square(sum(v * x) - 1.0) +
              cond(
                  sum(x) > 1.1,
                  [&] { return sum(v * v * v) + 0.1 * sum(gradients(sum(sin(v * x)), {v})[0]); },
                  [&] { return sum(exp(v)); });
          return v - rate * gradients(loss, {v})[0];
        },
        xs, w);
    p.differentiate(sum(square(weights)));
  });
}

BOOST_AUTO_TEST_CASE(recursion_in_a_loop_in_recursion_in_a_loop) {
  agree([](Piece& p) {
    Expr x = p.input(0.6), a = p.input(1.1);
    GraphFunction<Expr(Expr, Expr)> f(p.g, "f", {kCount, kReal}, {kReal});
    f.define([&](Expr n, Expr v) {
      return cond(
          n <= 0, [&] { return v * a; },
          [&] {
            auto [i, u] = while_loop([&](Expr k, Expr) { return k < n; },
                                     [&](Expr k, Expr t) {
                                       return std::tuple{k + 1, f(n - 1 - k, sin(t) + x * 0.1)};
                                     },
                                     std::tuple{p.count(0), v});
            return u;
          });
    });
    auto [i, v] = while_loop([](Expr n, Expr) { return n < 2; },
                             [&](Expr n, Expr u) {
                               return std::tuple{n + 1, f(n + 2, u)};
                             },
                             std::tuple{p.count(0), x});
    p.differentiate(v);
  });
}

BOOST_AUTO_TEST_CASE(order_and_coordinates_in_a_loop) {
  agree([](Piece& p) {
    Expr x = p.input({0.5, -0.3, 0.9, 0.1}), w = p.input({.1, .2, .3, .4, .5, .6, .7, .8}, {4, 2});
    auto [i, v] = while_loop(
        [](Expr n, Expr) { return n < 3; },
        [&](Expr n, Expr u) {
          Exprs top = top_k(u, 2);
          Expr moved = scatter_add(sort(u)[0] * 0.5, top[1], top[0] * sum(gather(w, top[1]), {1}));
          return std::tuple{n + 1, moved + cast(n, DType::f64) * gather(u, p.count(1))};
        },
        std::tuple{p.count(0), x});
    p.differentiate(sum(v * v));
  });
}

BOOST_AUTO_TEST_CASE(a_loop_in_a_predicate_with_effects) {
  agree([](Piece& p) {
    Expr x = p.input(1.1);
    Variable looks = p.g.variable("looks", Tensor::scalar(std::int64_t{0}));
    auto [i, v] = while_loop(
        [&](Expr n, Expr u) {
          looks.assign_add(1);
          auto [j, t] = while_loop(
              [](Expr m, Expr r) {
                return cond(
                    r < 2.0, [&] { return m < 3; }, [&] { return m < 1; });
              },
              [&](Expr m, Expr r) {
                return std::tuple{m + 1, r * u};
              },
              std::tuple{p.count(0), u});
          return t + cast(n, DType::f64) < 9.0;
        },
        [&](Expr n, Expr u) {
          return std::tuple{n + 1, u * x};
        },
        std::tuple{p.count(0), x});
    p.differentiate(v);
    auto after = p.g.after({v});
    p.fetch(looks.read());
    p.fetch(i);
  });
}

BOOST_AUTO_TEST_CASE(lists_that_fork_in_each_iteration) {
  agree([](Piece& p) {
    Expr x = p.input(0.8), first = list_push(list_empty(p.g, kReal), x);
    auto [i, a, b] =
        while_loop([](Expr n, Expr, Expr) { return n < 4; },
                   [&](Expr n, Expr l, Expr m) {
                     Expr longer = list_push(l, list_read(m, list_length(m) - 1) * x);
                     return std::tuple{n + 1, list_push(l, sum(list_stack(m))), longer};
                   },
                   std::tuple{p.count(0), first, first});
    p.differentiate(sum(list_stack(a)) * sum(square(list_stack(b))));
  });
}

BOOST_AUTO_TEST_CASE(loop_scatters_gathers_splits_and_joins_an_array) {
  agree([](Piece& p) {
    Expr x = p.input({0.8, -0.4, 0.6});
    const auto places = [&](std::vector<std::int64_t> v) {
      return p.g.constant(Tensor::of(v, Shape{3}));
    };
    auto [i, y] = while_loop([](Expr n, Expr) { return n < 3; },
                             [&](Expr n, Expr v) {
                               // the first twice
                               const Expr turned = list_scatter(places({2, 0, 1}), v),
                                          twice = list_gather(turned, places({0, 2, 0}));
                               const Expr pieces = list_split(twice * x, places({1, 0, 2}));
                               return std::tuple{n + 1, sin(reshape(list_concat(pieces), {3})) +
                                                            v * list_read(turned, n)};
                             },
                             std::tuple{p.count(0), x});
    p.differentiate(sum(square(y)));
  });
}

BOOST_AUTO_TEST_CASE(lists_of_lists_and_a_machine_with_a_stack) {
  agree([](Piece& p) {
    Expr x = p.input({0.8, 0.2, 0.5, 1.5});
    auto [i, rows] =
        while_loop([](Expr n, Expr) { return n < 3; },
                   [&](Expr n, Expr all) {
                     auto [j, row] = while_loop(
                         [&](Expr m, Expr) { return m <= n; },
                         [&](Expr m, Expr r) {
                           return std::tuple{m + 1, list_push(r, gather(x, m) * gather(x, n))};
                         },
                         std::tuple{p.count(0), list_empty(p.g, kReal)});
                     return std::tuple{n + 1, list_push(all, row)};
                   },
                   std::tuple{p.count(0), list_empty(p.g, kReal.list_of())});
    auto [k, product] =
        while_loop([](Expr n, Expr) { return n < 3; },
                   [every = rows](Expr n, Expr s) {
                     return std::tuple{n + 1, s + sum(square(list_stack(list_read(every, n)))) * s};
                   },
                   std::tuple{p.count(0), p.g.constant(1.0)});
    auto [stack, total] = while_loop(
        [](Expr l, Expr) { return list_length(l) > 1; },
        [&](Expr l, Expr s) {
          auto [rest, a] = list_pop(l);
          auto [below, b] = list_pop(rest);
          Expr left = below, one = a, other = b;
          return std::tuple{cond(
                                one > other, [&] { return list_push(left, one * other); },
                                [&] { return list_push(left, one - other); }),
                            s + one};
        },
        std::tuple{list_unstack(x), p.g.constant(0.0)});
    p.differentiate(product + list_read(stack, 0) * total);
  });
}

BOOST_AUTO_TEST_CASE(complex_variables_of_a_loop) {
  agree([](Piece& p) {
    Expr a = p.input({0.3, 0.4}), b = p.input({-0.2, 0.9}), z = complex(a, b);
    auto [i, last, all] =
        while_loop([](Expr n, Expr, Expr) { return n < 4; },
                   [&](Expr n, Expr u, Expr l) {
                     Expr next = cond(
                         sum(real(u)) > 0.2, [&] { return sqrt(u * u + z); },
                         [&] { return exp(u * 0.5) + conjugate(z); });
                     return std::tuple{n + 1, next, list_push(l, next)};
                   },
                   std::tuple{p.count(0), z, list_empty(p.g, {DType::c128, Shape{2}})});
    Expr stacked = list_stack(all);
    p.differentiate(sum(square(real(stacked)) + real(stacked) * imaginary(stacked) * 0.3) +
                    sum(abs(last)));
  });
}

BOOST_AUTO_TEST_CASE(folds_of_structures_and_of_nothing) {
  agree([](Piece& p) {
    Expr x = p.input({1, 2, 3}), y = p.input({1, 2, 3, 4, 5, 6}, {3, 2}),
         none = p.input(Tensor::empty(DType::i64, {0}), Shape{kAny});
    auto [s, t] = fold_right(
        [](std::pair<Expr, std::tuple<Expr>> state, std::tuple<Expr, Expr> e) {
          auto [ex, ey] = e;
          return std::pair{state.first * ex + sum(ey),
                           std::tuple{std::get<0>(state.second) + ey * state.first}};
        },
        std::tuple{x, y}, std::pair{p.g.constant(1.0), std::tuple{p.g.zeros(DType::f64, {2})}});
    Expr mapped = map([&](Expr e) { return cast(e, DType::f64) * sum(x); }, none),
         folded = fold_left([&](Expr state, Expr e) { return state * cast(e, DType::f64); }, none,
                            sum(y));
    p.fetch(mapped);
    p.differentiate(s + 0.01 * sum(std::get<0>(t)) + sum(mapped) + folded);
  });
}

BOOST_AUTO_TEST_CASE(a_users_gradient_that_looks_outside) {
  agree([](Piece& p) {
    Expr x = p.input(0.7), a = p.input(1.3);
    auto [i, v] = while_loop(
        [](Expr n, Expr) { return n < 3; },
        [&](Expr n, Expr u) {
          Expr y = with_gradient(u * u * a, {u, a}, [](Expr dy, const std::vector<Expr>& in, Expr) {
            return std::vector<Expr>{dy * 2.0 * in[0] * in[1], dy * in[0] * in[0]};
          });
          return std::tuple{n + 1, sin(y)};
        },
        std::tuple{p.count(0), x});
    p.differentiate(v);
    // Not what differences say: dy a, with an a of the outside.
    auto [j, w] = while_loop(
        [](Expr n, Expr) { return n < 3; },
        [&](Expr n, Expr u) {
          return std::tuple{
              n + 1, with_gradient(sin(u), {u}, [&](Expr dy, const std::vector<Expr>&, Expr) {
                return std::vector<Expr>{dy * a};
              })};
        },
        std::tuple{p.count(0), x});
    Expr d = gradients(w, {x})[0];
    p.fetch(d - a * a * a);
    p.fetch(gradients(d, {a})[0] - 3.0 * a * a);
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
