// Control flow for users: conditionals and loops as functions of expressions. Each makes one node
// that holds sub-graphs; outer values in lambdas are captured automatically, variables by
// reference.
//
//   Expr y = cond(x > 0.0, [&] { return sqrt(x); }, [&] { return -x; });
//   auto [i, s] = while_loop([&](Expr i, Expr) { return i < 10; },
//                            [&](Expr i, Expr s) { return std::tuple{i + 1, s + i}; },
//                            std::tuple{g.constant(0), g.constant(0)});
//   Expr last = for_loop(0, n, [&](Expr i, Expr s) { return s + i; }, g.constant(0));
//   when(i == 9, [&] { best.assign(s); });
//   Expr z = case_of({{x > 1.0, [&] { return x; }}, {x < -1.0, [&] { return -x; }}},
//                    [&] { return x * x; });
//   Expr states = scan([&](Expr h, Expr x) { return tanh(matmul(h, w) + x); }, xs, h0);
//
// On eager values they run at once: the predicate is read, and the lambda called. The results of a
// branch that is not taken are unknown then, so only a graph compares branches; loops keep to the
// same rules in both. If there are no elements, the step of a scan or map is called once to find
// the specs of its results; then it has no effect and draws nothing. Errors: values of the wrong
// spec throw invalid_argument while building, naming the loop, the variable and the user's line. In
// the taken branch and in every iteration all effects happen, in order.
#pragma once

#include <functional>
#include <initializer_list>
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
  /// How far iterations may run ahead of the oldest unfinished one, on each device by itself; at
  /// most 65,536. Between two devices more small tokens may be in flight: EdgeOptions::ahead.
  int parallel_iterations = 32;
  /// A number, -1 for no limit; or an i32 or i64 scalar, which counts as 0 if it is negative. The
  /// condition is evaluated once more than the body.
  Operand maximum_iterations = -1;
  /// The shapes that variables may take, by index among the flattened variables. A variable without
  /// an entry must keep its initial shape.
  std::vector<std::optional<Shape>> shape_invariants = {};
  bool back_prop = true;  // false: no gradient goes through
};

struct ForOptions {
  std::string name = {};
  /// A number other than 0, or an i32 or i64 scalar; below 0 the loop counts down.
  Operand step = 1;
  int parallel_iterations = 32;
  std::vector<std::optional<Shape>> shape_invariants = {};  // as in WhileOptions
  bool back_prop = true;                                    // false: no gradient goes through
};

struct ScanOptions {
  std::string name = {};
  int parallel_iterations = 32;
  bool reverse = false;
  /// The shapes that parts of the state may take, by index among the flattened parts. A part
  /// without an entry keeps its shape.
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
                 const LoopBody& body, const WhileOptions& options, const Site& at,
                 const char* what = "while_loop");
/// `body`: (variables..., counter) to (variables...).
Exprs for_loop(Reader* reader, const Operand& begin, const Operand& end, const Operands& initial,
               const LoopBody& body, const ForOptions& options, const Site& at);
/// One branch a predicate; the last branch where none holds.
Exprs case_of(const Operands& predicates, const std::vector<Branch>& branches,
              const CondOptions& options, const Site& at);
/// `step`: (state..., element...) to (state..., output...); yields (final state..., stacked
/// outputs...).
Exprs scan(const Operands& elements, const Operands& initial, const LoopBody& step,
           std::size_t outputs, const ScanOptions& options, const char* what, const Site& at);

/// True if F can be called without arguments and yields a structure.
template <class F>
constexpr bool require_branch() {
  if constexpr (!std::is_invocable_v<F&>) {
    static_assert(kNever<F>, "a branch is a function without parameters: write [&] { return x; }");
    return false;
  } else {
    return require_structure<std::invoke_result_t<F&>>();
  }
}
/// The type that it yields; void if it is no branch.
template <class F>
struct ResultOf {
  using type = void;
};
template <class F>
requires std::is_invocable_v<F&>
struct ResultOf<F> : std::invoke_result<F&> {
};

/// True if the functions of a loop fit its variables. W: the type of the initial variables.
template <class Condition, class Body, class W>
constexpr bool require_while() {
  if constexpr (!require_structure<W>()) {
    return false;
  } else if constexpr (!applies<Condition, Built<W>>) {
    static_assert(kNever<Condition>,
                  "while_loop: its condition does not take the loop variables; let it have one "
                  "parameter for each part of the initial tuple, or one for another structure");
    return false;
  } else if constexpr (!std::is_convertible_v<decltype(apply_to(std::declval<Condition&>(),
                                                                std::declval<Built<W>>())),
                                              Expr>) {
    static_assert(kNever<Condition>,
                  "while_loop: its condition yields no expression; compare loop variables, as in "
                  "i < 10");
    return false;
  } else if constexpr (!applies<Body, Built<W>>) {
    static_assert(kNever<Body>,
                  "while_loop: its body does not take the loop variables; let it have one "
                  "parameter for each part of the initial tuple, or one for another structure");
    return false;
  } else {
    using Next = decltype(apply_to(std::declval<Body&>(), std::declval<Built<W>>()));
    constexpr bool is_same = is_same_structure<Next, Built<W>>;
    static_assert(is_same,
                  "while_loop: its body yields another structure than its initial value has; let "
                  "it yield the same struct, pair, tuple, array or vector");
    return is_same;
  }
}

template <class Body, class W>
constexpr bool require_for() {
  if constexpr (!require_structure<W>()) {
    return false;
  } else if constexpr (!applies<Body, Built<W>, Expr>) {
    static_assert(kNever<Body>,
                  "for_loop: its body does not take the counter and the loop variables; let it "
                  "have one parameter for the counter, then one for each part of the initial "
                  "tuple, or one for another structure");
    return false;
  } else {
    using Next = decltype(apply_to(std::declval<Body&>(), std::declval<Built<W>>(),
                                   std::declval<const Expr&>()));
    constexpr bool is_same = is_same_structure<Next, Built<W>>;
    static_assert(is_same,
                  "for_loop: its body yields another structure than its initial value has; let it "
                  "yield the same struct, pair, tuple, array or vector");
    return is_same;
  }
}

/// The functions whose step `require_step` checks.
enum class StepOf { scan, fold, dynamic_rnn };
template <StepOf what, class Step, class Elements, class State>
constexpr bool require_step() {
  if constexpr (!require_structure<Elements>() || !require_structure<State>()) {
    return false;
  } else if constexpr (!std::is_invocable_v<Step&, Built<State>, Built<Elements>>) {
    static_assert(kNever<Step>,
                  "scan, fold and dynamic_rnn: the step does not take the state and the element; "
                  "let it have these two parameters, each a structure as it was given");
    return false;
  } else {
    constexpr bool is_same =
        is_same_structure<std::invoke_result_t<Step&, Built<State>, Built<Elements>>, State>;
    static_assert(is_same || what != StepOf::scan,
                  "scan: its step yields another structure than the initial state has; let it "
                  "yield the same struct, pair, tuple, array or vector");
    static_assert(is_same || what != StepOf::fold,
                  "fold: its step yields another structure than the initial state has; let it "
                  "yield the same struct, pair, tuple, array or vector");
    static_assert(is_same || what != StepOf::dynamic_rnn,
                  "dynamic_rnn: its cell yields another structure than the initial state has; let "
                  "it yield the same struct, pair, tuple, array or vector");
    return is_same;
  }
}

/// A predicate and its branch; R: the result type of the other branches.
template <class R>
struct Case {
  template <class F>
  Case(Operand p, F f) : predicate(std::move(p)) {
    if constexpr (require_branch<F>() && !std::is_void_v<R>) {
      static_assert(is_same_structure<std::invoke_result_t<F&>, R>,
                    "case_of: its branches yield different structures; let all yield the same "
                    "struct, pair, tuple, array or vector");
      branch = [f, at = predicate.site()]() mutable { return flattened(f(), at); };
    }
  }
  Operand predicate;
  Branch branch;
};
}  // namespace detail

/// `then()` if the predicate (bool, scalar) holds, else `otherwise()`; both yield the same
/// structure.
template <class Then, class Else>
auto cond(Operand predicate, Then then, Else otherwise, const CondOptions& options = {},
          std::source_location at = std::source_location::current()) {
  if constexpr (!detail::require_branch<Then>() || !detail::require_branch<Else>()) {
    return detail::never_made<Expr>();
  } else {
    using Result = std::invoke_result_t<Then&>;
    static_assert(detail::is_same_structure<Result, std::invoke_result_t<Else&>>,
                  "cond: its branches yield different structures; let both yield the same struct, "
                  "pair, tuple, array or vector");
    auto branch = [at](auto& f) {
      return detail::Branch([&f, at] { return detail::flattened(f(), at); });
    };
    return detail::built<Result>(
        detail::switch_case(predicate, {branch(otherwise), branch(then)}, options, "cond", at));
  }
}

/// `then()`, for its effects, if the predicate holds; yields whether it did, once they have
/// happened.
template <class Then>
Expr when(Operand predicate, Then then, const CondOptions& options = {},
          std::source_location at = std::source_location::current()) {
  if constexpr (!std::is_invocable_v<Then&>) {
    static_assert(detail::kNever<Then>,
                  "when: its effects are a function without parameters: write [&] { ... }");
    return {};
  } else {
    auto branch = [at](bool holds, auto effects) {
      return detail::Branch([=] {
        effects();
        return detail::Operands{Operand(Tensor::scalar(holds), at)};
      });
    };
    return detail::switch_case(predicate, {branch(false, [] {}), branch(true, [&then] { then(); })},
                               options, "when", at)[0];
  }
}

/// The branch numbered `index` (i32 or i64, scalar); the last one if there is none of that number.
template <class F>
auto switch_case(Operand index, std::vector<F> branches, const CondOptions& options = {},
                 std::source_location at = std::source_location::current()) {
  if constexpr (!detail::require_branch<F>()) {
    return detail::never_made<Expr>();
  } else {
    using Result = std::invoke_result_t<F&>;
    std::vector<detail::Branch> made;
    for (F& f : branches) made.push_back([&f, at] { return detail::flattened(f(), at); });
    return detail::built<Result>(detail::switch_case(index, made, options, "switch_case", at));
  }
}

/// The branch of the first predicate (bool scalars, all of which are computed) that holds, else
/// `otherwise()`; all yield the same structure.
///   case_of({{x > 1.0, [&] { return x; }}, {x < -1.0, [&] { return -x; }}}, [&] { return x * x; })
template <class Otherwise>
auto case_of(std::initializer_list<detail::Case<typename detail::ResultOf<Otherwise>::type>> cases,
             Otherwise otherwise, const CondOptions& options = {},
             std::source_location at = std::source_location::current()) {
  if constexpr (!detail::require_branch<Otherwise>()) {
    return detail::never_made<Expr>();
  } else {
    detail::Operands predicates;
    std::vector<detail::Branch> branches;
    for (const auto& c : cases) {
      predicates.push_back(c.predicate);
      branches.push_back(c.branch);
    }
    branches.push_back([&] { return detail::flattened(otherwise(), at); });
    return detail::built<std::invoke_result_t<Otherwise&>>(
        detail::case_of(predicates, branches, options, at));
  }
}

/// While `condition(variables)` (bool, scalar) holds: variables = body(variables). Yields the last
/// ones. A run whose loop ends only because the condition compares NaN, which no number is above or
/// below, fails with invalid_argument; a condition may use is_finite or is_nan instead. At once,
/// `condition` is called once more when it has compared floats and yielded false, unless it changes
/// states or draws.
template <class Condition, class Body, class Variables>
detail::Built<Variables> while_loop(detail::Reader* reader, Condition condition, Body body,
                                    const Variables& initial, const WhileOptions& options = {},
                                    std::source_location at = std::source_location::current()) {
  using V = detail::Built<Variables>;
  if constexpr (!detail::require_while<Condition, Body, Variables>()) {
    return detail::never_made<V>();
  } else {
    return detail::built<V>(detail::while_loop(
        reader, detail::flattened(initial, at),
        [&](const Exprs& v) -> Expr { return detail::apply_to(condition, detail::built<V>(v)); },
        [&](const Exprs& v) {
          return detail::flattened(detail::apply_to(body, detail::built<V>(v)), at);
        },
        options, at));
  }
}
/// Finds the reader by an initial value that is an expression.
template <class Condition, class Body, class Variables>
requires(!std::is_pointer_v<Condition>) detail::Built<Variables> while_loop(
    Condition condition, Body body, const Variables& initial, const WhileOptions& options = {},
    std::source_location at = std::source_location::current()) {
  return while_loop(static_cast<detail::Reader*>(nullptr), condition, body, initial, options, at);
}

/// variables = body(i, variables) for i = begin, begin + step, ... before end, or after it where
/// the step is below 0. Yields the last variables: the initial ones where there is no such i.
/// Begin, end and step are numbers or i32 or i64 scalars of one dtype, which is that of i; numbers
/// alone are i64. They are computed once; end - begin must be an i64. A run with a step of 0 fails
/// with invalid_argument.
template <class Body, class Variables>
detail::Built<Variables> for_loop(detail::Reader* reader, Operand begin, Operand end, Body body,
                                  const Variables& initial, const ForOptions& options = {},
                                  std::source_location at = std::source_location::current()) {
  using V = detail::Built<Variables>;
  if constexpr (!detail::require_for<Body, Variables>()) {
    return detail::never_made<V>();
  } else {
    return detail::built<V>(detail::for_loop(
        reader, begin, end, detail::flattened(initial, at),
        [&](const Exprs& v) {
          return detail::flattened(
              detail::apply_to(body, detail::built<V>(Exprs(v.begin(), v.end() - 1)), v.back()),
              at);
        },
        options, at));
  }
}
/// The reader follows from a bound or an initial value that is an expression.
template <class Body, class Variables>
detail::Built<Variables> for_loop(Operand begin, Operand end, Body body, const Variables& initial,
                                  const ForOptions& options = {},
                                  std::source_location at = std::source_location::current()) {
  return for_loop(static_cast<detail::Reader*>(nullptr), begin, end, body, initial, options, at);
}

/// state = step(state, element) over axis 0 of the elements, which are equally long there; yields
/// all states, stacked. With `reverse` from the last element to the first; the states stand where
/// their elements do.
template <class Step, class Elements, class State>
detail::Built<State> scan(Step step, const Elements& elements, const State& initial,
                          const ScanOptions& options = {},
                          std::source_location at = std::source_location::current()) {
  using S = detail::Built<State>;
  using E = detail::Built<Elements>;
  if constexpr (!detail::require_step<detail::StepOf::scan, Step, Elements, State>()) {
    return detail::never_made<S>();
  } else {
    detail::Operands first = detail::flattened(initial, at);
    Exprs all = detail::scan(
        detail::flattened(elements, at), first,
        [&](const Exprs& v) {
          Exprs state(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(first.size()));
          Exprs element(v.begin() + static_cast<std::ptrdiff_t>(first.size()), v.end());
          detail::Operands out =
              detail::flattened(step(detail::built<S>(state), detail::built<E>(element)), at);
          detail::Operands twice = out;  // the next state, and an output
          twice.insert(twice.end(), out.begin(), out.end());
          return twice;
        },
        first.size(), options, "scan", at);
    return detail::built<S>(
        Exprs(all.begin() + static_cast<std::ptrdiff_t>(first.size()), all.end()));
  }
}

/// `f(element)` of every element of axis 0, stacked. If there are no elements, extents that the
/// graph does not know count as 0.
template <class F, class Elements>
auto map(F f, const Elements& elements, const ScanOptions& options = {},
         std::source_location at = std::source_location::current()) {
  using E = detail::Built<Elements>;
  if constexpr (!detail::require_structure<Elements>()) {
    return detail::never_made<Expr>();
  } else if constexpr (!detail::applies<F, E>) {
    static_assert(detail::kNever<F>,
                  "map: its function does not take the element; let it have one parameter for each "
                  "part of a tuple, or one for another structure");
    return detail::never_made<Expr>();
  } else {
    using R = std::decay_t<decltype(detail::apply_to(f, std::declval<E>()))>;
    if constexpr (!detail::require_structure<R>()) return detail::never_made<Expr>();
    else
      return detail::built<R>(detail::scan(
          detail::flattened(elements, at), {},
          [&](const Exprs& v) {
            return detail::flattened(detail::apply_to(f, detail::built<E>(v)), at);
          },
          0, options, "map", at));
  }
}

/// state = step(state, element) over axis 0 of the elements, from the first; yields the last state.
template <class Step, class Elements, class State>
detail::Built<State> fold_left(Step step, const Elements& elements, const State& initial,
                               ScanOptions options = {},
                               std::source_location at = std::source_location::current()) {
  using S = detail::Built<State>;
  using E = detail::Built<Elements>;
  if constexpr (!detail::require_step<detail::StepOf::fold, Step, Elements, State>()) {
    return detail::never_made<S>();
  } else {
    detail::Operands first = detail::flattened(initial, at);
    return detail::built<S>(detail::scan(
        detail::flattened(elements, at), first,
        [&](const Exprs& v) {
          Exprs state(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(first.size()));
          Exprs element(v.begin() + static_cast<std::ptrdiff_t>(first.size()), v.end());
          return detail::flattened(step(detail::built<S>(state), detail::built<E>(element)), at);
        },
        first.size(), options, "fold", at));
  }
}
/// fold_left from the last element to the first.
template <class Step, class Elements, class State>
detail::Built<State> fold_right(Step step, const Elements& elements, const State& initial,
                                ScanOptions options = {},
                                std::source_location at = std::source_location::current()) {
  options.reverse = !options.reverse;
  return fold_left(step, elements, initial, options, at);
}

}  // namespace troupe
