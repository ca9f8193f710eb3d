// Functions inside a graph: built once, called from anywhere in it, from their own bodies too.
//
//   GraphFunction<Expr(Expr)> square(g, "square", {{DType::f32, Shape{}}},
//                                    [](Expr x) { return x * x; });
//   Expr y = square(square(x));
//
//   const ValueSpec count{DType::i64, Shape{}};
//   GraphFunction<Expr(Expr)> factorial(g, "factorial", {count}, {count});  // parameters, results
//   factorial.define([&](Expr n) {
//     return cond(n <= 1, [&] { return g.constant(1); }, [&] { return n * factorial(n - 1); });
//   });
//
// A function that calls itself, or is called before it is defined, is declared first. Parameters
// and results have the types of loop variables (structure.hpp); specs are given flattened. Values
// of the outermost graph that a body uses come to it by themselves, variables by reference. A call
// happens once all its arguments are there; all effects of the body happen, in program order with
// those around the call. `EngineOptions::call_depth` limits how deep calls nest. A function of an
// Eager scope runs its body at once. Errors: values of the wrong spec throw invalid_argument while
// building, naming the function and the user's line. Lifetime: a handle must not outlive its
// reader; copies are the same function.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <troupe/controlflow/structure.hpp>
#include <troupe/ops/graph/reader.hpp>

namespace troupe {

namespace detail {

class FunctionDef;

}  // namespace detail

class Graph;

namespace detail {

/// The untyped function behind the typed handle GraphFunction.
class NamedFunction {
 public:
  using Body = std::function<Operands(const Exprs&)>;
  /// The numbers of parameters and results in its signature; -1: any number.
  struct Counts {
    std::int64_t takes = -1, yields = -1;
  };
  /// `results`: none if they follow from the body.
  NamedFunction(Reader& reader, std::string name, std::vector<ValueSpec> parameters,
                std::optional<std::vector<ValueSpec>> results, Counts counts, const Site& at);

  void define(Body body, const Site& at);
  Exprs call(const Operands& arguments, const Site& at);

 private:
  void define_in_graph(const Body& body, const Site& at);
  Exprs call_in_graph(Graph& here, const Operands& arguments, const Site& at);
  Exprs call_at_once(const Operands& arguments, const Site& at);
  Expr environment(Graph& here, const Site& at);
  Expr as_argument(Reader& reader, const Operand& o, std::size_t i) const;
  std::string title() const;
  std::string title(const Site& at) const;
  [[noreturn]] void refuse(const std::string& title, const std::string& why) const;
  void require_yields(std::size_t values, const char* what, const Site& at) const;

  Reader& reader_;
  Graph* graph_;  // null: eager
  std::string name_;
  Site declared_at_;
  std::vector<ValueSpec> parameters_;
  std::optional<std::vector<ValueSpec>> results_;
  Counts counts_;
  FunctionDef* function_ = nullptr;  // in the graph; null: eager
  Body body_;                        // set for an eager function
  int depth_ = 0;                    // calls of an eager function that are running
};

}  // namespace detail

template <class Signature>
class GraphFunction;

template <class Result, class... Parameters>
class GraphFunction<Result(Parameters...)> {
 public:
  using At = std::source_location;
  /// The type of an argument: for an expression also a literal, a tensor, a variable.
  template <class P>
  using Given =
      std::conditional_t<std::is_same_v<std::decay_t<P>, Expr>, Operand, const std::decay_t<P>&>;

  /// Declares it; `define` has to follow.
  GraphFunction(detail::Reader& reader, const std::string& name, std::vector<ValueSpec> parameters,
                std::vector<ValueSpec> results, At at = At::current())
      : function_(std::make_shared<detail::NamedFunction>(reader, name, std::move(parameters),
                                                          std::move(results), counts(), at)) {}
  /// Declares and defines it; the results follow from the body, which therefore cannot call it.
  template <class Body>
  requires(!std::is_convertible_v<Body, std::vector<ValueSpec>>)
      GraphFunction(detail::Reader& reader, const std::string& name,
                    std::vector<ValueSpec> parameters, Body body, At at = At::current())
      : function_(std::make_shared<detail::NamedFunction>(reader, name, std::move(parameters),
                                                          std::nullopt, counts(), at)) {
    define(std::move(body), at);
  }

  /// `body`: of the parameters, to the results. Once.
  template <class Body>
  void define(Body body, At at = At::current()) {
    if constexpr (!std::is_invocable_v<Body&, detail::Built<Parameters>...>) {
      static_assert(detail::kNever<Body>,
                    "GraphFunction: its body does not take the parameters of its signature");
    } else {
      constexpr bool is_same =
          detail::is_same_structure<std::invoke_result_t<Body&, detail::Built<Parameters>...>,
                                    Result>;
      static_assert(is_same,
                    "GraphFunction: its body yields another structure than its signature; let it "
                    "yield the same struct, pair, tuple, array or vector");
      if constexpr (is_same)
        function_->define(
            [body, at](const Exprs& all) mutable {
              return detail::flattened(apply(body, all), at);
            },
            at);
    }
  }

  detail::Built<Result> operator()(Given<Parameters>... arguments, At at = At::current()) const {
    detail::Operands operands;
    (detail::Structure<std::decay_t<Given<Parameters>>>::flatten(arguments, operands, at), ...);
    return detail::built<Result>(function_->call(operands, at));
  }

 private:
  using All = std::tuple<std::decay_t<Parameters>...>;

  template <class T>
  static std::int64_t values_in() {
    using S = detail::Structure<std::decay_t<T>>;
    return S::vectors() > 0 ? -1 : static_cast<std::int64_t>(S::count());
  }
  static detail::NamedFunction::Counts counts() { return {values_in<All>(), values_in<Result>()}; }
  template <class Body>
  static decltype(auto) apply(Body& body, const Exprs& all) {
    return std::apply(body, detail::built<All>(all));
  }

  std::shared_ptr<detail::NamedFunction> function_;
};

}  // namespace troupe
