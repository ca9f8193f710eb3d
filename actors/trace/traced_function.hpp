// Traced functions: C++ code over expressions that is staged into a graph when it is first called,
// and from then on runs as a compiled program.
//
//   auto step = function("step", [&](Expr x, Expr y) {
//     GradientTape tape;
//     Expr loss = mean(square(matmul(x, w) - y));
//     Sgd({.learning_rate = 0.1}).apply({tape.gradient(loss, w)}, {w});
//     return loss;
//   });
//   Expr loss = step(x, y);          // eager values in, eager values out
//
// The first call traces the code: it runs once, on expressions of a new graph. Later calls with an
// equal key run the compiled graph. The key is the dtype and shape of each tensor argument, the
// structure of the arguments, the types and values of host arguments (host_argument.hpp), and the
// device. After a second shape of one rank, extents that differ become unknown (`relax_shapes`).
// The code uses variables from outside by reference, and eager tensors by value, as of the first
// call. Effects happen in program order; only the first trace creates variables. C++'s `if` and
// `while` on a traced value throw: use cond, where, while_loop.
// Called inside another traced function, or with values of a graph, it becomes a function of that
// graph. It runs on the engine of its arguments' scope; without tensor arguments, of
// `FunctionOptions::scope` or the thread's innermost scope; without an engine, on this thread.
// Threads: any number may call one function. Ownership: copies are the same function.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <troupe/actors/trace/host_argument.hpp>
#include <troupe/controlflow/rebuilt.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/tracing.hpp>

namespace troupe {

struct FunctionOptions {
  /// The dtype and shape of each tensor argument, flattened; extents may be unknown. One graph is
  /// made; arguments that do not fit are refused.
  std::vector<ValueSpec> signature = {};
  /// The dtype and shape of each result, flattened. Needed by a function that calls itself with
  /// arguments like those that it is traced for; the call becomes one of a function of the graph.
  std::vector<ValueSpec> results = {};
  /// Extents that differ between calls become unknown. False: a graph for each shape.
  bool relax_shapes = true;
  /// Graphs kept at most; the one that was made first goes first.
  std::size_t max_traces = 256;
  /// The scope in which it runs if no argument has one; null: the innermost one of the thread.
  Eager* scope = nullptr;
  /// Gets the warning that a function is traced again and again; empty: standard error.
  std::function<void(const std::string&)> warn = {};
};

namespace detail {

struct StagedFunction;

/// All of the key that does not follow from the tensors.
struct ArgumentForm {
  const char* types = nullptr;             // identifies the types that the code is given
  std::span<const std::size_t> ends = {};  // by argument: the end of its tensors
  std::vector<HostArgument> host = {};
  bool is_same(const ArgumentForm& o) const {
    return types == o.types && std::equal(ends.begin(), ends.end(), o.ends.begin(), o.ends.end()) &&
           host == o.host;
  }
};

/// Has one address for each list of types.
template <class... T>
inline char kTypes = 0;

/// A trace for a reader that writes or sends it.
struct TracedProgram {
  std::string name;                        // `step`
  std::shared_ptr<StagedFunction> staged;  // takes arguments and captures, yields results
  Exprs captures;
  std::vector<bool> yields;  // one a result: is it an expression?
  Eager* scope = nullptr;    // has its variables
};

class TracedFunction {
 public:
  /// Returns the code's results for these expressions, flattened; an operand that holds nothing
  /// stands for an empty expression.
  using Body = std::function<Operands(const Exprs& tensors)>;

  TracedFunction(std::string name, FunctionOptions options, const Site& at);
  ~TracedFunction();

  /// One expression for each that the code yields, empty where it yields nothing.
  Exprs call(const Operands& tensors, const ArgumentForm& form, const Body& body, const Site& at);
  int traces() const;
  std::uint64_t evictions() const;
  std::vector<std::string> signatures() const;
  /// Traces if need be.
  std::shared_ptr<const Graph> graph(const Operands& tensors, const ArgumentForm& form,
                                     const Body& body, const Site& at);
  std::string explain(const Operands& tensors, const ArgumentForm& form, const Body& body,
                      const Site& at);
  TracedProgram program(const Operands& tensors, const ArgumentForm& form, const Body& body,
                        const Site& at);
  /// The one trace that there is. Throws failed_precondition if there is none, or several.
  TracedProgram only_program();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

/// The parameters of code; void: it is generic, and takes anything.
template <class F, class = void>
struct ParametersOf {
  template <std::size_t>
  using At = void;
};
template <class F>
struct SignatureOf;
template <class R, class C, class... P>
struct SignatureOf<R (C::*)(P...) const> {
  using Parameters = std::tuple<P...>;
};
template <class R, class C, class... P>
struct SignatureOf<R (C::*)(P...)> {
  using Parameters = std::tuple<P...>;
};
template <class R, class... P>
struct SignatureOf<R (*)(P...)> {
  using Parameters = std::tuple<P...>;
};
template <class F>
struct ParametersOf<F, std::void_t<decltype(&F::operator())>> {
  template <std::size_t I>
  using At = std::tuple_element_t<I, typename SignatureOf<decltype(&F::operator())>::Parameters>;
};
template <class R, class... P>
struct ParametersOf<R (*)(P...)> {
  template <std::size_t I>
  using At = std::tuple_element_t<I, std::tuple<P...>>;
};

/// The value that the code is given for an argument of type A if its parameter is a P (void: any).
template <class A, class P>
struct Given {
  using D = std::decay_t<const A&>;
  using Q = std::decay_t<P>;
  // Structures of expressions that have several vectors: their lengths are those of the argument.
  static constexpr bool is_nested() {
    if constexpr (!is_one_structure<D>() && is_rebuilt<D>)
      return std::is_same_v<Rebuilt<D>, D> && (std::is_void_v<P> || std::is_convertible_v<D, P>);
    else return false;
  }
  template <class T>
  static constexpr bool is_one_structure() {
    return Structure<T>::is_known && Structure<T>::vectors() <= 1;
  }
  static constexpr bool is_tensor() {
    if constexpr (is_nested()) return true;
    else if constexpr (!std::is_void_v<P>) {
      if constexpr (is_one_structure<Q>() && is_one_structure<D>())
        return std::is_convertible_v<typename Structure<Q>::Built, P>;
      else return false;
    } else {
      return is_one_structure<D>() && !std::is_arithmetic_v<D> && !std::is_same_v<D, Variable>;
    }
  }
  static auto type() {
    if constexpr (is_nested()) return std::type_identity<D>();
    else if constexpr (!is_tensor())
      return std::type_identity<std::conditional_t<std::is_array_v<A>, D, const D&>>();
    else if constexpr (std::is_void_v<P>) return std::type_identity<typename Structure<D>::Built>();
    else return std::type_identity<typename Structure<Q>::Built>();
  }
  using Type = typename decltype(type())::type;

  static void add(const D& argument, Operands& tensors, std::vector<HostArgument>& host,
                  const Site& at) {
    if constexpr (is_nested()) {
      Lengths lengths;
      Rebuilds<D>::measure(argument, lengths);
      add_host(lengths, host.emplace_back());
      Rebuilds<D>::flatten(argument, tensors, at);
    } else if constexpr (is_tensor()) Structure<D>::flatten(argument, tensors, at);
    else add_host(argument, host.emplace_back());
  }
  /// `parts`: the expressions that stand for the argument.
  static Type take(const D& argument, const Exprs& parts) {
    if constexpr (is_nested()) return rebuilt(argument, parts);
    else if constexpr (!is_tensor()) return argument;
    else return built<std::conditional_t<std::is_void_v<P>, D, Q>>(parts);
  }
};

}  // namespace detail

template <class F>
class Traced {
 public:
  using At = std::source_location;

  Traced(std::string name, F body, FunctionOptions options, At at)
      : core_(std::make_shared<detail::TracedFunction>(std::move(name), std::move(options), at)),
        body_(std::make_shared<F>(std::move(body))), made_at_(at) {}

  /// Returns the results of the code as expressions in its structure: eager ones for eager
  /// arguments, expressions of a graph for arguments of that graph. Throws the errors of tracing
  /// and of the run, naming the user's line.
  template <class... A>
  auto operator()(A&&... arguments) const {
    require_lasting<A...>(std::index_sequence_for<A...>());
    using Result = decltype(result(std::index_sequence_for<A...>(), arguments...));
    const Exprs out = use(
        std::index_sequence_for<A...>(),
        [&](const auto&... parts) { return core_->call(parts...); }, arguments...);
    if constexpr (!std::is_void_v<Result>) return detail::built<Result>(out);
  }

  /// How often the code was traced.
  int traces() const { return core_->traces(); }
  /// Graphs that were dropped to keep to `max_traces`.
  std::uint64_t evictions() const { return core_->evictions(); }
  /// One line a graph: `(f32[?, 3], f32[3]; 4)`, host arguments last.
  std::vector<std::string> signatures() const { return core_->signatures(); }
  /// The graph that a call with these arguments runs; traced if need be. Nothing runs.
  template <class... A>
  std::shared_ptr<const Graph> graph(A&&... arguments) const {
    require_lasting<A...>(std::index_sequence_for<A...>());
    return use(
        std::index_sequence_for<A...>(),
        [&](const auto&... parts) { return core_->graph(parts...); }, arguments...);
  }
  /// The program that a call with these arguments runs; traced if need be.
  template <class... A>
  detail::TracedProgram program(A&&... arguments) const {
    require_lasting<A...>(std::index_sequence_for<A...>());
    return use(
        std::index_sequence_for<A...>(),
        [&](const auto&... parts) { return core_->program(parts...); }, arguments...);
  }
  detail::TracedProgram only_program() const { return core_->only_program(); }
  /// Describes the graphs, one a line with the reason for its trace and `*` before the one that a
  /// call with these arguments runs, then that graph's program as `Function::explain` does.
  template <class... A>
  std::string explain(A&&... arguments) const {
    require_lasting<A...>(std::index_sequence_for<A...>());
    return use(
        std::index_sequence_for<A...>(),
        [&](const auto&... parts) { return core_->explain(parts...); }, arguments...);
  }

 private:
  static constexpr std::size_t kUsual = 16;  // tensors for which the memory is taken at once

  template <class A, std::size_t I>
  using Given = detail::Given<A, typename detail::ParametersOf<F>::template At<I>>;

  template <class... A, std::size_t... I>
  static constexpr void require_lasting(std::index_sequence<I...>) {
    static_assert(
        ((std::is_lvalue_reference_v<A> || Given<std::remove_cvref_t<A>, I>::is_tensor() ||
          !detail::is_by_address<std::decay_t<A>>)&&...),
        "this argument of a traced function is known by its address, and is a temporary "
        "object; pass a variable, or give its type std::hash and ==");
  }

  // Never called; gives the type of the code's result.
  template <std::size_t... I, class... A>
  static auto result(std::index_sequence<I...>, const A&...)
      -> std::invoke_result_t<F&, typename Given<A, I>::Type...>;

  template <std::size_t... I, class Use, class... A>
  auto use(std::index_sequence<I...>, Use with, const A&... arguments) const {
    const detail::Site at(made_at_);
    detail::Operands tensors;
    tensors.reserve(kUsual);
    // the ends of the arguments' tensors
    std::array<std::size_t, sizeof...(A) + 1> ends{};
    detail::ArgumentForm form{&detail::kTypes<std::decay_t<typename Given<A, I>::Type>...>, ends};
    ((Given<A, I>::add(arguments, tensors, form.host, at), ends[I + 1] = tensors.size()), ...);
    const auto code = [&](const Exprs& exprs) {
      [[maybe_unused]] const auto parts = [&](std::size_t i) {
        const auto first = exprs.begin();
        return Exprs(first + static_cast<std::ptrdiff_t>(ends[i]),
                     first + static_cast<std::ptrdiff_t>(ends[i + 1]));
      };
      std::tuple<typename Given<A, I>::Type...> given{Given<A, I>::take(arguments, parts(I))...};
      if constexpr (std::is_void_v<decltype(std::apply(*body_, std::move(given)))>) {
        std::apply(*body_, std::move(given));
        return detail::Operands();
      } else {
        return detail::flattened(std::apply(*body_, std::move(given)), at);
      }
    };
    // by reference, which takes no memory from the heap
    return with(tensors, form, detail::TracedFunction::Body(std::ref(code)), at);
  }

  std::shared_ptr<detail::TracedFunction> core_;
  std::shared_ptr<F> body_;
  std::source_location made_at_;
};

/// Makes a traced function of C++ code: a lambda, a function object or a function.
template <class F>
Traced<std::decay_t<F>> function(std::string name, F&& body, FunctionOptions options = {},
                                 std::source_location at = std::source_location::current()) {
  return {std::move(name), std::decay_t<F>(std::forward<F>(body)), std::move(options), at};
}

/// While it lives, this thread traces nothing: eager scopes compute at once, also inside the code
/// of a traced function.
using InitScope = detail::Tracing::Suspended;

}  // namespace troupe
