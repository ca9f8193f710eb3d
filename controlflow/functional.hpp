// Control flow for users: conditionals and loops as functions of expressions. Each makes one node
// that holds sub-graphs; what the lambdas use of the outside is captured by itself, variables by
// reference.
//
//   Expr y = cond(x > 0.0, [&] { return sqrt(x); }, [&] { return -x; });
//   auto [i, s] = while_loop([&](Expr i, Expr) { return i < 10; },
//                            [&](Expr i, Expr s) { return std::tuple{i + 1, s + i}; },
//                            std::tuple{g.constant(0), g.constant(0)});
//   when(i == 9, [&] { best.assign(s); });
//   Expr states = scan([&](Expr h, Expr x) { return tanh(matmul(h, w) + x); }, xs, h0);
//
// On eager values they run at once: the predicate is looked at, and the lambda called. What a
// branch that is not taken would yield is not known then, so only a graph compares branches; loops
// keep to the same rules in both. Over no elements the step of a scan or map is called all the
// same, to know what it would yield; then it has no effect and draws nothing. Errors: what does not
// fit throws invalid_argument while building, naming the loop, the variable and the user's line. In
// the taken branch and in every iteration all effects happen, in order.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <troupe/controlflow/structure.hpp>
#include <troupe/ops/graph/reader.hpp>

namespace troupe {

struct CondOptions {
  std::string name = {};
};

struct WhileOptions {
  std::string name = {};
  /// How far iterations may run ahead of the oldest that is not done, on each device by itself;
  /// more than 65,536 count as that. Between two devices more may be on their way of what is small:
  /// EdgeOptions::ahead.
  int parallel_iterations = 32;
  /// A number, -1 for none; or an i32 or i64 scalar, where less than 0 is 0. The condition is asked
  /// once more than the body runs.
  Operand maximum_iterations = -1;
  /// What a variable's shape may become, by its place among the flattened variables; where nothing
  /// is given, every iteration must keep the shape it starts with.
  std::vector<std::optional<Shape>> shape_invariants = {};
  bool back_prop = true;  // false: no gradient goes through
};

struct ScanOptions {
  std::string name = {};
  int parallel_iterations = 32;
  bool reverse = false;
  /// What a part of the state may become, by its place among the flattened ones; where nothing is
  /// given, it keeps its shape.
  std::vector<std::optional<Shape>> shape_invariants = {};
  bool back_prop = true;  // false: no gradient goes through
};

namespace detail {
using Condition = std::function<Expr(const Exprs&)>;
using Branch = std::function<Operands()>;
using LoopBody = std::function<Operands(const Exprs&)>;

Exprs switch_case(const Operand& index, const std::vector<Branch>& branches,
                  const CondOptions& options, const char* what, const Site& at);
Exprs while_loop(Reader* reader, const Operands& initial, const Condition& condition,
                 const LoopBody& body, const WhileOptions& options, const Site& at);
/// `step`: (state..., element...) to (state..., output...); yields (final state..., stacked
/// outputs...).
Exprs scan(const Operands& elements, const Operands& initial, const LoopBody& step,
           std::size_t outputs, const ScanOptions& options, const char* what, const Site& at);
}  // namespace detail

/// `then()` if the predicate (bool, scalar) holds, else `otherwise()`; both yield the same
/// structure.
template <class Then, class Else>
auto cond(Operand predicate, Then then, Else otherwise, const CondOptions& options = {},
          std::source_location at = std::source_location::current()) {
  using Result = std::invoke_result_t<Then&>;
  static_assert(is_same_structure<Result, std::invoke_result_t<Else&>>,
                "cond: its branches yield different structures; let both yield the same struct, "
                "pair, tuple, array or vector");
  auto branch = [at](auto& f) { return detail::Branch([&f, at] { return flattened(f(), at); }); };
  return built<Result>(
      detail::switch_case(predicate, {branch(otherwise), branch(then)}, options, "cond", at));
}

/// `then()`, for its effects, if the predicate holds; yields whether it did, once they have
/// happened.
template <class Then>
Expr when(Operand predicate, Then then, const CondOptions& options = {},
          std::source_location at = std::source_location::current()) {
  auto branch = [at](bool holds, auto effects) {
    return detail::Branch([=] {
      effects();
      return Operands{Operand(Tensor::scalar(holds), at)};
    });
  };
  return detail::switch_case(predicate, {branch(false, [] {}), branch(true, [&then] { then(); })},
                             options, "when", at)[0];
}

/// The branch numbered `index` (i32 or i64, scalar); the last one if there is none of that number.
template <class F>
auto switch_case(Operand index, std::vector<F> branches, const CondOptions& options = {},
                 std::source_location at = std::source_location::current()) {
  using Result = std::invoke_result_t<F&>;
  std::vector<detail::Branch> made;
  for (F& f : branches) made.push_back([&f, at] { return flattened(f(), at); });
  return built<Result>(detail::switch_case(index, made, options, "switch_case", at));
}

/// While `condition(variables)` (bool, scalar) holds: variables = body(variables). Yields the last
/// ones. A run whose loop ends only because the condition compares NaN, which no number is above or
/// below, fails with invalid_argument; one that asks is_finite or is_nan decides itself. At once,
/// `condition` is called once more when it has compared floats and yielded false, unless it changes
/// states or draws.
template <class Condition, class Body, class Variables>
Built<Variables> while_loop(Reader* reader, Condition condition, Body body,
                            const Variables& initial, const WhileOptions& options = {},
                            std::source_location at = std::source_location::current()) {
  using V = Built<Variables>;
  using Next = decltype(detail::apply_to(body, std::declval<V>()));
  static_assert(is_same_structure<Next, V>,
                "while_loop: its body yields another structure than its initial value has; let it "
                "yield the same struct, pair, tuple, array or vector");
  return built<V>(detail::while_loop(
      reader, flattened(initial, at),
      [&](const Exprs& v) -> Expr { return detail::apply_to(condition, built<V>(v)); },
      [&](const Exprs& v) { return flattened(detail::apply_to(body, built<V>(v)), at); }, options,
      at));
}
/// Where an initial value is an expression, the reader follows from it.
template <class Condition, class Body, class Variables>
requires(!std::is_pointer_v<Condition>) Built<Variables> while_loop(
    Condition condition, Body body, const Variables& initial, const WhileOptions& options = {},
    std::source_location at = std::source_location::current()) {
  return while_loop(static_cast<Reader*>(nullptr), condition, body, initial, options, at);
}

/// state = step(state, element) over axis 0 of the elements, which are equally long there; yields
/// all states, stacked. With `reverse` from the last element to the first; the states stand where
/// their elements do.
template <class Step, class Elements, class State>
Built<State> scan(Step step, const Elements& elements, const State& initial,
                  const ScanOptions& options = {},
                  std::source_location at = std::source_location::current()) {
  using S = Built<State>;
  using E = Built<Elements>;
  static_assert(is_same_structure<std::invoke_result_t<Step&, S, E>, S>,
                "scan: its step yields another structure than the initial state has; let it "
                "yield the same struct, pair, tuple, array or vector");
  Operands first = flattened(initial, at);
  Exprs all = detail::scan(
      flattened(elements, at), first,
      [&](const Exprs& v) {
        Exprs state(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(first.size()));
        Exprs element(v.begin() + static_cast<std::ptrdiff_t>(first.size()), v.end());
        Operands out = flattened(step(built<S>(state), built<E>(element)), at);
        Operands twice = out;  // the next state, and an output
        twice.insert(twice.end(), out.begin(), out.end());
        return twice;
      },
      first.size(), options, "scan", at);
  return built<S>(Exprs(all.begin() + static_cast<std::ptrdiff_t>(first.size()), all.end()));
}

/// `f(element)` of every element of axis 0, stacked. Of no elements, extents that the graph does
/// not know count as 0.
template <class F, class Elements>
auto map(F f, const Elements& elements, const ScanOptions& options = {},
         std::source_location at = std::source_location::current()) {
  using E = Built<Elements>;
  using R = std::decay_t<decltype(detail::apply_to(f, std::declval<E>()))>;
  return built<R>(detail::scan(
      flattened(elements, at), {},
      [&](const Exprs& v) { return flattened(detail::apply_to(f, built<E>(v)), at); }, 0, options,
      "map", at));
}

/// state = step(state, element) over axis 0 of the elements, from the first; yields the last state.
template <class Step, class Elements, class State>
Built<State> fold_left(Step step, const Elements& elements, const State& initial,
                       ScanOptions options = {},
                       std::source_location at = std::source_location::current()) {
  using S = Built<State>;
  using E = Built<Elements>;
  static_assert(is_same_structure<std::invoke_result_t<Step&, S, E>, S>,
                "fold: its step yields another structure than the initial state has; let it "
                "yield the same struct, pair, tuple, array or vector");
  Operands first = flattened(initial, at);
  return built<S>(detail::scan(
      flattened(elements, at), first,
      [&](const Exprs& v) {
        Exprs state(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(first.size()));
        Exprs element(v.begin() + static_cast<std::ptrdiff_t>(first.size()), v.end());
        return flattened(step(built<S>(state), built<E>(element)), at);
      },
      first.size(), options, "fold", at));
}
/// The same from the last element to the first.
template <class Step, class Elements, class State>
Built<State> fold_right(Step step, const Elements& elements, const State& initial,
                        ScanOptions options = {},
                        std::source_location at = std::source_location::current()) {
  options.reverse = !options.reverse;
  return fold_left(step, elements, initial, options, at);
}

}  // namespace troupe
