// Not under tsan: it has one thread.
// Gradients of lists on a tape: at once, of code that a function traced, inside such code, and of
// second order; against differences.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>

#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/controlflow/list.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/eager_scopes.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(tape_list_test)

namespace {

/// A scalar of x [4].
using ListCode = std::function<Expr(detail::Reader&, const Expr& x)>;

const ValueSpec kElement{DType::f64, Shape{}};

Expr element(const Expr& x, std::int64_t i) { return gather(x, i); }

// Each element a different slope.
Expr weighed(const Expr& x) {
  return sum(x * x * x.reader().current().constant(Tensor::of<double>({1, 2, 4, 8}, {4})));
}

struct ListRow {
  const char* name;
  ListCode code;
};

const std::vector<ListRow>& list_rows() {
  static const std::vector<ListRow> all = {
      {"push and stack",
       [](detail::Reader& r, const Expr& x) {
         Expr list = list_empty(r, kElement);
         for (std::int64_t i = 0; i < 4; ++i) list = list_push(list, element(x, 3 - i));
         return weighed(list_stack(list));
       }},
      {"unstack, read one element twice",
       [](detail::Reader&, const Expr& x) {
         const Expr list = list_unstack(x);
         return list_read(list, 1) * list_read(list, 1) * list_read(list, 2);
       }},
      {"a list that two others go on from",
       [](detail::Reader& r, const Expr& x) {
         const Expr list = list_push(list_empty(r, kElement), element(x, 0));
         const Expr one = list_push(list, element(x, 1)), two = list_push(list, element(x, 2));
         return product(list_stack(one)) + 3.0 * product(list_stack(two));
       }},
      {"pop",
       [](detail::Reader&, const Expr& x) {
         const auto last = list_pop(list_unstack(x));
         const auto third = list_pop(last.list);
         return last.value * third.value * sum(square(list_stack(third.list)));
       }},
      {"write, also past the end",
       [](detail::Reader& r, const Expr& x) {
         Expr list = list_reserve(r, 2, kElement);
         list = list_write(list, 1, element(x, 0));
         list = list_write(list, 0, element(x, 1) * element(x, 0));
         list = list_write(list, 2, element(x, 2), true);
         list = list_write(list, 3, sin(element(x, 3)), true);
         return weighed(list_stack(list));
       }},
      {"gather one element twice",
       [](detail::Reader& r, const Expr& x) {
         const Expr places = r.constant(Tensor::of<std::int64_t>({2, 0, 2, 3}, {4}));
         return weighed(list_gather(list_unstack(x), places));
       }},
      {"scatter",
       [](detail::Reader& r, const Expr& x) {
         const Expr places = r.constant(Tensor::of<std::int64_t>({2, 0, 3, 1}, {4}));
         return weighed(list_stack(list_scatter(places, x)));
       }},
      {"scatter into",
       [](detail::Reader& r, const Expr& x) {
         const Expr list = list_push(list_empty(r, kElement), element(x, 3));
         const Expr places = r.constant(Tensor::of<std::int64_t>({2, 1}, {2}));
         const Expr more = list_scatter_into(list, places, slice(x, {0}, {2}), true);
         return product(list_stack(more)) + element(x, 2);
       }},
      {"split and concat",
       [](detail::Reader& r, const Expr& x) {
         const Expr lengths = r.constant(Tensor::of<std::int64_t>({1, 3}, {2}));
         const Expr parts = list_split(x, lengths);
         return weighed(list_concat(parts)) * sum(list_read(parts, 1));
       }},
      {"a list of lists",
       [](detail::Reader& r, const Expr& x) {
         const Expr inner = list_unstack(x);
         Expr outer = list_push(list_empty(r, {DType::f64, Shape{}, 1}), inner);
         outer = list_push(outer, list_push(inner, element(x, 0) * element(x, 3)));
         return weighed(list_stack(list_read(outer, 0))) * list_read(list_read(outer, 1), 4);
       }},
      {"a loop that pushes",
       [](detail::Reader& r, const Expr& x) {
         const auto [n, list] =
             while_loop([](Expr i, Expr) { return i < 4; },
                        [&](Expr i, Expr l) {
                          return std::tuple{i + 1, list_push(l, gather(x, i) * gather(x, 3 - i))};
                        },
                        std::tuple{r.constant(std::int64_t{0}), list_empty(r, kElement)});
         return weighed(list_stack(list)) * cast(n, DType::f64);
       }},
      {"a loop that pops",
       [](detail::Reader&, const Expr& x) {
         const Expr list = list_unstack(x);
         const auto [rest, total] = while_loop([](Expr l, Expr) { return list_length(l) > 1; },
                                               [](Expr l, Expr p) {
                                                 const auto popped = list_pop(l);
                                                 return std::tuple{popped.list, p * popped.value};
                                               },
                                               std::tuple{list, sum(x)});
         return total + list_read(rest, 0);
       }},
      {"branches that yield lists",
       [](detail::Reader& r, const Expr& x) {
         const Expr list = cond(
             sum(x) > 0.0, [&] { return list_push(list_empty(r, kElement), sum(square(x))); },
             [&] { return list_unstack(x); });
         return list_read(list, 0) * element(x, 1);
       }},
  };
  return all;
}

const Numbers kAt{0.7, -0.4, 1.3, 0.9};
Tensor start(const Numbers& v) { return Tensor::of(v, Shape{4}); }

Numbers differences(const std::function<double(const Numbers&)>& f) {
  constexpr double kStep = 1e-5;
  Numbers out;
  for (std::size_t i = 0; i < kAt.size(); ++i) {
    Numbers up = kAt, down = kAt;
    up[i] += kStep;
    down[i] -= kStep;
    out.push_back((f(up) - f(down)) / (2 * kStep));
  }
  return out;
}

void require_near(const Numbers& got, const Numbers& wanted, const std::string& where) {
  BOOST_REQUIRE_EQUAL(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    BOOST_TEST(std::abs(got[i] - wanted[i]) <= 1e-7 * std::max(1.0, std::abs(wanted[i])),
               where << ": " << got[i] << " at " << i << ", not " << wanted[i]);
}

Expr gradient_at(const ListCode& code, const Expr& x) {
  GradientTape tape;
  tape.watch(x);
  return tape.gradient(code(x.reader(), x), x, {.unconnected = Unconnected::zeros});
}

}  // namespace

namespace {

void check_first(Eager& e, const ListRow& row) {
  const Numbers wanted =
      differences([&](const Numbers& at) { return number(row.code(e, e.constant(start(at)))); });
  const Expr x = e.constant(start(kAt));
  require_near(numbers(gradient_at(row.code, x)), wanted, "at once");
  auto staged = function("staged", [&](Expr v) { return row.code(e.current(), v); });
  require_near(numbers(gradient_at([&](auto&, const Expr& v) { return staged(v); }, x)), wanted,
               "of a traced function");
  auto inside = function("inside", [&](Expr v) {
    return gradient_at([&](auto&, const Expr& a) { return row.code(e.current(), a); }, v);
  });
  require_near(numbers(inside(x)), wanted, "inside a traced function");
}

}  // namespace

BOOST_AUTO_TEST_CASE(first_derivatives_are_the_differences) {
  for (const ListRow& row : list_rows()) {
    BOOST_TEST_CONTEXT(row.name) {
      in_each_scope([&](Eager& e) { check_first(e, row); });
    }
  }
}

BOOST_AUTO_TEST_CASE(second_derivatives_are_the_differences) {
  Eager e;
  const Expr weights = e.constant(Tensor::of<double>({1, -2, 0.5, 3}, {4}));
  for (const ListRow& row : list_rows()) {
    BOOST_TEST_CONTEXT(row.name) {
      const ListCode slope = [&](auto&, const Expr& x) {
        return sum(gradient_at(row.code, x) * weights);
      };
      const Numbers wanted =
          differences([&](const Numbers& at) { return number(slope(e, e.constant(start(at)))); });
      require_near(numbers(gradient_at(slope, e.constant(start(kAt)))), wanted, "at once");
    }
  }
}

BOOST_AUTO_TEST_CASE(elements_that_nothing_reads_have_zeros) {
  in_each_scope([](Eager& e) {
    const Expr x = e.constant(start(kAt));
    const ListCode reads_one = [](auto&, const Expr& v) { return list_read(list_unstack(v), 2); };
    BOOST_TEST(numbers(gradient_at(reads_one, x)) == (Numbers{0, 0, 1, 0}));
    const ListCode counts = [](auto&, const Expr& v) {
      return cast(list_length(list_unstack(v)), DType::f64);
    };
    BOOST_TEST(numbers(gradient_at(counts, x)) == (Numbers{0, 0, 0, 0}));
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
