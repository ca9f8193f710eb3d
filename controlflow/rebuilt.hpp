// Results in the structure of a value that is at hand, as gradients are in that of their sources.
// Lengths of vectors come from the value, so vectors may be nested and there may be several.
//
//   std::pair<std::vector<Expr>, std::vector<std::vector<Expr>>> weights;
//   auto gradients = rebuilt(weights, exprs);   // a pair of the same vectors
//
// Variables, numbers and tensors come out as expressions. A struct whose members have other types
// then, as one of variables, comes out as a tuple of its members. A struct's parts that `members()`
// leaves out come out as the default constructor makes them: they may differ between values that
// share one traced graph.
#pragma once

#include <array>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <troupe/controlflow/structure.hpp>

namespace troupe::detail {

/// Lengths of vectors, outer ones first.
using Lengths = std::vector<std::size_t>;

/// How a T is taken apart, measured and rebuilt. This one: a value that is one expression, or no
/// structure.
template <class T>
struct Rebuilds {
  static constexpr bool is_known =
      Structure<T>::is_known && Structure<T>::count() == 1 && Structure<T>::vectors() == 0;
  using Type = Expr;
  static void flatten(const T& value, Operands& out, const Site& at) {
    Structure<T>::flatten(value, out, at);
  }
  static void measure(const T&, Lengths&) {}
  static Expr build(const T&, const Expr*& next) { return *next++; }
};

template <class T>
using Rebuilt = typename Rebuilds<std::decay_t<T>>::Type;

template <class... T>
struct Rebuilds<std::tuple<T...>> {
  static constexpr bool is_known = (Rebuilds<T>::is_known && ...);
  using Type = std::tuple<typename Rebuilds<T>::Type...>;
  static void flatten(const std::tuple<T...>& t, Operands& out, const Site& at) {
    std::apply([&](const T&... part) { (Rebuilds<T>::flatten(part, out, at), ...); }, t);
  }
  static void measure(const std::tuple<T...>& t, Lengths& out) {
    std::apply([&](const T&... part) { (Rebuilds<T>::measure(part, out), ...); }, t);
  }
  // Braces: in order.
  static Type build(const std::tuple<T...>& t, [[maybe_unused]] const Expr*& next) {
    return std::apply([&](const T&... part) { return Type{Rebuilds<T>::build(part, next)...}; }, t);
  }
};

template <class A, class B>
struct Rebuilds<std::pair<A, B>> {
  static constexpr bool is_known = Rebuilds<A>::is_known && Rebuilds<B>::is_known;
  using Type = std::pair<typename Rebuilds<A>::Type, typename Rebuilds<B>::Type>;
  static void flatten(const std::pair<A, B>& p, Operands& out, const Site& at) {
    Rebuilds<A>::flatten(p.first, out, at);
    Rebuilds<B>::flatten(p.second, out, at);
  }
  static void measure(const std::pair<A, B>& p, Lengths& out) {
    Rebuilds<A>::measure(p.first, out);
    Rebuilds<B>::measure(p.second, out);
  }
  static Type build(const std::pair<A, B>& p, const Expr*& next) {
    return Type{Rebuilds<A>::build(p.first, next), Rebuilds<B>::build(p.second, next)};
  }
};

template <class T, std::size_t N>
struct Rebuilds<std::array<T, N>> {
  static constexpr bool is_known = Rebuilds<T>::is_known;
  using Type = std::array<typename Rebuilds<T>::Type, N>;
  static void flatten(const std::array<T, N>& a, Operands& out, const Site& at) {
    for (const T& part : a) Rebuilds<T>::flatten(part, out, at);
  }
  static void measure(const std::array<T, N>& a, Lengths& out) {
    for (const T& part : a) Rebuilds<T>::measure(part, out);
  }
  static Type build(const std::array<T, N>& a, const Expr*& next) {
    Type made;
    for (std::size_t i = 0; i < N; ++i) made[i] = Rebuilds<T>::build(a[i], next);
    return made;
  }
};

template <class T>
requires(!std::is_arithmetic_v<T>) struct Rebuilds<std::vector<T>> {
  static constexpr bool is_known = Rebuilds<T>::is_known;
  using Type = std::vector<typename Rebuilds<T>::Type>;
  static void flatten(const std::vector<T>& v, Operands& out, const Site& at) {
    for (const T& part : v) Rebuilds<T>::flatten(part, out, at);
  }
  static void measure(const std::vector<T>& v, Lengths& out) {
    out.push_back(v.size());
    for (const T& part : v) Rebuilds<T>::measure(part, out);
  }
  static Type build(const std::vector<T>& v, const Expr*& next) {
    Type made;
    made.reserve(v.size());
    for (const T& part : v) made.push_back(Rebuilds<T>::build(part, next));
    return made;
  }
};

template <class M>
struct RebuildsMembers;
template <class... M>
struct RebuildsMembers<std::tuple<M&...>> {
  static constexpr bool is_known = (Rebuilds<std::remove_cv_t<M>>::is_known && ...);
  static constexpr bool stays = (std::is_same_v<Rebuilt<M>, std::remove_cv_t<M>> && ...);
  using Tuple = std::tuple<Rebuilt<M>...>;
};

/// A struct with `auto members() { return std::tie(...); }`.
template <class T>
requires requires(T& t) { t.members(); }
struct Rebuilds<T> {
  using Members = RebuildsMembers<decltype(std::declval<T&>().members())>;
  static constexpr bool is_known = Members::is_known;
  using Type = std::conditional_t<Members::stays, T, typename Members::Tuple>;
  static void flatten(const T& s, Operands& out, const Site& at) {
    std::apply([&]<class... M>(
                   M&... part) { (Rebuilds<std::remove_cv_t<M>>::flatten(part, out, at), ...); },
               const_cast<T&>(s).members());
  }
  static void measure(const T& s, Lengths& out) {
    std::apply(
        [&]<class... M>(M&... part) { (Rebuilds<std::remove_cv_t<M>>::measure(part, out), ...); },
        const_cast<T&>(s).members());
  }
  static Type build(const T& s, const Expr*& next) {
    auto parts = std::apply(
        [&]<class... M>(M&... part) {
          return typename Members::Tuple{Rebuilds<std::remove_cv_t<M>>::build(part, next)...};
        },
        const_cast<T&>(s).members());
    if constexpr (Members::stays) {
      T made{};
      made.members() = std::move(parts);
      return made;
    } else {
      return parts;
    }
  }
};

template <class T>
inline constexpr bool is_rebuilt = Rebuilds<std::decay_t<T>>::is_known;

/// Returns these expressions, of which there are as many as the value has, in its structure.
template <class T>
Rebuilt<T> rebuilt(const T& like, const Exprs& es) {
  static_assert(is_rebuilt<T>,
                "values of this type are no structure of expressions; give an expression, or a "
                "tuple, pair, array or vector of such, or a struct of expressions with `auto "
                "members() { return std::tie(...); }`");
  const Expr* next = es.data();
  return Rebuilds<std::decay_t<T>>::build(like, next);
}

}  // namespace troupe::detail
