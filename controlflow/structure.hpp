// Structured values: what loop variables, branch results and scanned elements may be: an
// expression, or tuples, pairs, arrays, vectors and structs of such, nested at will.
//
//   struct State { Expr h, c; auto members() { return std::tie(h, c); } };
//   State last = while_loop(condition, step, State{h0, c0});
//
// Where values go in, literals, tensors and variables stand for expressions; what comes out are
// expressions in the same structure.
#pragma once

#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <troupe/ops/graph/expr.hpp>
#include <troupe/ops/graph/variable.hpp>

namespace troupe {

using Operands = std::vector<Operand>;

/// How T is taken apart into operands and, as `Built`, put together from `count()` expressions.
template <class T, class = void>
struct Structure;

template <>
struct Structure<Expr> {
  using Built = Expr;
  static std::size_t count() { return 1; }
  static void flatten(const Expr& e, Operands& out, const Site& at) { out.emplace_back(e, at); }
  static Expr build(const Expr*& next) { return *next++; }
};

template <class T>
requires std::is_arithmetic_v<T> || std::is_same_v<T, Tensor> || std::is_same_v<T, Variable> ||
    std::is_same_v<T, Operand> || std::is_convertible_v<const T&, Expr>  // a TensorArray
struct Structure<T> {
  using Built = Expr;
  static std::size_t count() { return 1; }
  static void flatten(const T& value, Operands& out, const Site& at) {
    if constexpr (std::is_same_v<T, Operand>) out.push_back(value);
    else out.emplace_back(value, at);
  }
  static Expr build(const Expr*& next) { return *next++; }
};

template <class... T>
struct Structure<std::tuple<T...>> {
  using Built = std::tuple<typename Structure<T>::Built...>;
  static std::size_t count() { return (std::size_t{0} + ... + Structure<T>::count()); }
  static void flatten(const std::tuple<T...>& t, Operands& out, const Site& at) {
    std::apply([&](const T&... part) { (Structure<T>::flatten(part, out, at), ...); }, t);
  }
  // Braces: in order.
  static Built build(const Expr*& next) { return Built{Structure<T>::build(next)...}; }
};

template <class A, class B>
struct Structure<std::pair<A, B>> {
  using Built = std::pair<typename Structure<A>::Built, typename Structure<B>::Built>;
  static std::size_t count() { return Structure<A>::count() + Structure<B>::count(); }
  static void flatten(const std::pair<A, B>& p, Operands& out, const Site& at) {
    Structure<A>::flatten(p.first, out, at);
    Structure<B>::flatten(p.second, out, at);
  }
  static Built build(const Expr*& next) {
    return Built{Structure<A>::build(next), Structure<B>::build(next)};
  }
};

template <class T, std::size_t N>
struct Structure<std::array<T, N>> {
  using Built = std::array<typename Structure<T>::Built, N>;
  static std::size_t count() { return N * Structure<T>::count(); }
  static void flatten(const std::array<T, N>& a, Operands& out, const Site& at) {
    for (const T& part : a) Structure<T>::flatten(part, out, at);
  }
  static Built build(const Expr*& next) {
    Built built;
    for (auto& part : built) part = Structure<T>::build(next);
    return built;
  }
};

/// Only of one-expression parts: how many there are is not in the type.
template <>
struct Structure<Exprs> {
  using Built = Exprs;
  static void flatten(const Exprs& es, Operands& out, const Site& at) {
    for (const Expr& e : es) out.emplace_back(e, at);
  }
};

/// A struct with `auto members() { return std::tie(...); }`.
template <class T>
struct Structure<T, std::void_t<decltype(std::declval<T&>().members())>> {
  using Built = T;
  static std::size_t count() {
    T sample;
    return std::apply(
        []<class... M>(M&...) { return (std::size_t{0} + ... + Structure<M>::count()); },
        sample.members());
  }
  static void flatten(const T& s, Operands& out, const Site& at) {
    std::apply([&]<class... M>(
                   M&... part) { (Structure<std::remove_cv_t<M>>::flatten(part, out, at), ...); },
               const_cast<T&>(s).members());
  }
  static T build(const Expr*& next) {
    T built;
    std::apply([&]<class... M>(M&... part) { ((part = Structure<M>::build(next)), ...); },
               built.members());
    return built;
  }
};

template <class T>
using Built = typename Structure<std::decay_t<T>>::Built;

/// True if values of both types come out as the same structure of expressions: a pair is no tuple,
/// and a struct is only itself. Parts are matched by position, which two structs of equally many
/// parts would get wrong.
template <class A, class B>
inline constexpr bool is_same_structure = std::is_same_v<Built<A>, Built<B>>;

template <class T>
Operands flattened(const T& value, const Site& at) {
  Operands out;
  Structure<std::decay_t<T>>::flatten(value, out, at);
  return out;
}

/// Throws invalid_argument unless there are as many as T is made of.
template <class T>
Built<T> built(const Exprs& es) {
  if constexpr (std::is_same_v<std::decay_t<T>, Exprs>) {
    return es;
  } else {
    if (const std::size_t wanted = Structure<std::decay_t<T>>::count(); es.size() != wanted)
      throw Error(Code::invalid_argument, std::to_string(es.size()) +
                                              " values are given for a structure of " +
                                              std::to_string(wanted) + "; give as many");
    const Expr* next = es.data();
    return Structure<std::decay_t<T>>::build(next);
  }
}

namespace detail {
template <class T>
struct is_tuple : std::false_type {};
template <class... T>
struct is_tuple<std::tuple<T...>> : std::true_type {};

/// f(value), or f(parts...) for a tuple.
template <class F, class T>
decltype(auto) apply_to(F& f, T&& value) {
  if constexpr (is_tuple<std::decay_t<T>>::value) return std::apply(f, std::forward<T>(value));
  else return f(std::forward<T>(value));
}
}  // namespace detail

}  // namespace troupe
