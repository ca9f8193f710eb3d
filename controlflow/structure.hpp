// Structured values, the types of loop variables, branch results and scanned elements: an
// expression, or tuples, pairs, arrays, vectors and structs of expressions, nested at will. There
// is at most one vector, whose length follows from the number of values.
//
//   struct State { Expr h, c; auto members() { return std::tie(h, c); } };
//   State last = while_loop(condition, step, State{h0, c0});
//
// Inputs may be literals, tensors and variables instead of expressions; outputs are expressions in
// the same structure.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <troupe/ops/graph/expr.hpp>
#include <troupe/ops/graph/variable.hpp>

namespace troupe::detail {

using Operands = std::vector<Operand>;

/// How T is taken apart into operands and, as `Built`, put together from expressions: `count()` of
/// them outside of vectors, and `unit()` for each element of its vector, of which there are
/// `vectors()`. `build` gets how many the vector has. This one: no structure.
template <class T, class = void>
struct Structure {
  using Built = T;
  static constexpr bool is_known = false;
  static constexpr std::size_t count() { return 0; }
  static constexpr std::size_t unit() { return 0; }
  static constexpr int vectors() { return 0; }
};

template <class T>
using Built = typename Structure<std::decay_t<T>>::Built;

/// Members that structures of one expression share.
struct OfOne {
  using Built = Expr;
  static constexpr bool is_known = true;
  static constexpr std::size_t count() { return 1; }
  static constexpr std::size_t unit() { return 0; }
  static constexpr int vectors() { return 0; }
  static Expr build(const Expr*& next, std::size_t) { return *next++; }
};

/// Members that structures of these parts share.
template <class... T>
struct OfParts {
  static constexpr bool is_known = (Structure<T>::is_known && ...);
  static constexpr std::size_t count() { return (std::size_t{0} + ... + Structure<T>::count()); }
  static constexpr std::size_t unit() { return (std::size_t{0} + ... + Structure<T>::unit()); }
  static constexpr int vectors() { return (0 + ... + Structure<T>::vectors()); }
};

template <class T>
struct MembersOf {
  static constexpr bool is_known = false;
};
template <class... M>
struct MembersOf<std::tuple<M&...>> : OfParts<std::remove_cv_t<M>...> {
  static constexpr bool is_known =
      ((Structure<M>::is_known && std::is_same_v<typename Structure<M>::Built, M>)&&...);
};

template <>
struct Structure<Expr> : detail::OfOne {
  static void flatten(const Expr& e, Operands& out, const Site& at) { out.emplace_back(e, at); }
};

template <class T>
requires std::is_arithmetic_v<T> || std::is_same_v<T, Tensor> || std::is_same_v<T, Variable> ||
    std::is_same_v<T, Operand> || std::is_convertible_v<const T&, Expr>  // a TensorArray
struct Structure<T> : detail::OfOne {
  static void flatten(const T& value, Operands& out, const Site& at) {
    if constexpr (std::is_same_v<T, Operand>) out.push_back(value);
    else out.emplace_back(value, at);
  }
};

template <class... T>
struct Structure<std::tuple<T...>> : detail::OfParts<T...> {
  using Built = std::tuple<typename Structure<T>::Built...>;
  static void flatten(const std::tuple<T...>& t, Operands& out, const Site& at) {
    std::apply([&](const T&... part) { (Structure<T>::flatten(part, out, at), ...); }, t);
  }
  // Braces: in order.
  static Built build([[maybe_unused]] const Expr*& next, [[maybe_unused]] std::size_t length) {
    return Built{Structure<T>::build(next, length)...};
  }
};

template <class A, class B>
struct Structure<std::pair<A, B>> : detail::OfParts<A, B> {
  using Built = std::pair<typename Structure<A>::Built, typename Structure<B>::Built>;
  static void flatten(const std::pair<A, B>& p, Operands& out, const Site& at) {
    Structure<A>::flatten(p.first, out, at);
    Structure<B>::flatten(p.second, out, at);
  }
  static Built build(const Expr*& next, std::size_t length) {
    return Built{Structure<A>::build(next, length), Structure<B>::build(next, length)};
  }
};

template <class T, std::size_t N>
struct Structure<std::array<T, N>> {
  using Built = std::array<typename Structure<T>::Built, N>;
  static constexpr bool is_known = Structure<T>::is_known;
  static constexpr std::size_t count() { return N * Structure<T>::count(); }
  static constexpr std::size_t unit() { return N * Structure<T>::unit(); }
  static constexpr int vectors() { return static_cast<int>(N) * Structure<T>::vectors(); }
  static void flatten(const std::array<T, N>& a, Operands& out, const Site& at) {
    for (const T& part : a) Structure<T>::flatten(part, out, at);
  }
  static Built build(const Expr*& next, std::size_t length) {
    Built built;
    for (auto& part : built) part = Structure<T>::build(next, length);
    return built;
  }
};

/// How many elements there are is not in the type.
template <class T>
requires(!std::is_arithmetic_v<T>) struct Structure<std::vector<T>> {
  using Built = std::vector<typename Structure<T>::Built>;
  static constexpr bool is_known = Structure<T>::is_known && Structure<T>::vectors() == 0;
  static constexpr std::size_t count() { return 0; }
  static constexpr std::size_t unit() { return Structure<T>::count(); }
  static constexpr int vectors() { return 1; }
  static void flatten(const std::vector<T>& v, Operands& out, const Site& at) {
    for (const T& part : v) Structure<T>::flatten(part, out, at);
  }
  static Built build(const Expr*& next, std::size_t length) {
    Built built;
    for (std::size_t i = 0; i < length; ++i) built.push_back(Structure<T>::build(next, 0));
    return built;
  }
};

/// A struct with `auto members() { return std::tie(...); }`.
template <class T>
struct Structure<T, std::void_t<decltype(std::declval<T&>().members())>>
    : detail::MembersOf<decltype(std::declval<T&>().members())> {
  using Built = T;
  static void flatten(const T& s, Operands& out, const Site& at) {
    std::apply([&]<class... M>(
                   M&... part) { (Structure<std::remove_cv_t<M>>::flatten(part, out, at), ...); },
               const_cast<T&>(s).members());
  }
  static T build(const Expr*& next, std::size_t length) {
    T built;
    std::apply([&]<class... M>(M&... part) { ((part = Structure<M>::build(next, length)), ...); },
               built.members());
    return built;
  }
};

/// True if values of both types come out as the same structure of expressions: a pair is no tuple,
/// and a struct is only itself. Parts are matched by position, which two structs of equally many
/// parts would get wrong.
template <class A, class B>
inline constexpr bool is_same_structure = std::is_same_v<Built<A>, Built<B>>;

/// Returns true if T is a structure. If not, one static_assert names the remedy, and the caller
/// stops.
template <class T>
constexpr bool require_structure() {
  using S = Structure<std::decay_t<T>>;
  if constexpr (!S::is_known) {
    static_assert(kNever<T>,
                  "values of this type are no structure of expressions; give an expression, or a "
                  "tuple, pair, array or vector of such, or a struct of expressions with `auto "
                  "members() { return std::tie(...); }`");
    return false;
  } else if constexpr (S::vectors() > 1) {
    static_assert(kNever<T>,
                  "a structure holds at most one vector, since lengths are not in its type; join "
                  "the vectors, or use std::array");
    return false;
  } else {
    return true;
  }
}

/// Declares the result of a call that does not compile.
template <class T>
T never_made();

template <class T>
Operands flattened(const T& value, const Site& at) {
  Operands out;
  if constexpr (detail::require_structure<T>()) Structure<std::decay_t<T>>::flatten(value, out, at);
  return out;
}

/// Throws invalid_argument unless there are as many as T is made of.
template <class T>
Built<T> built(const Exprs& es) {
  using S = Structure<std::decay_t<T>>;
  if constexpr (!detail::require_structure<T>()) {
    return detail::never_made<Built<T>>();
  } else {
    constexpr std::size_t fixed = S::count(), unit = S::vectors() > 0 ? S::unit() : 0;
    const bool fits =
        unit == 0 ? es.size() == fixed : es.size() >= fixed && (es.size() - fixed) % unit == 0;
    if (!fits)
      throw Error(Code::invalid_argument, std::to_string(es.size()) +
                                              " values are given for a structure of " +
                                              std::to_string(fixed) + "; give as many");
    const Expr* next = es.data();
    return S::build(next, unit == 0 ? 0 : (es.size() - fixed) / unit);
  }
}

template <class T>
struct is_tuple : std::false_type {};
template <class... T>
struct is_tuple<std::tuple<T...>> : std::true_type {};

/// f(before..., value), or f(before..., parts...) for a tuple.
template <class F, class T, class... Before>
decltype(auto) apply_to(F& f, T&& value, const Before&... before) {
  if constexpr (is_tuple<std::decay_t<T>>::value)
    return std::apply(
        [&]<class... Part>(Part&&... part) -> decltype(auto) {
          return f(before..., std::forward<Part>(part)...);
        },
        std::forward<T>(value));
  else return f(before..., std::forward<T>(value));
}

/// True if F can be called with these arguments.
template <class F, class T, class... Before>
struct Applies : std::is_invocable<F&, const Before&..., T> {};
template <class F, class... T, class... Before>
struct Applies<F, std::tuple<T...>, Before...> : std::is_invocable<F&, const Before&..., T...> {};
template <class F, class T, class... Before>
inline constexpr bool applies = Applies<F, T, Before...>::value;

}  // namespace troupe::detail
