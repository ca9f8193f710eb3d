// Gradient tapes: gradients of C++ code that runs eagerly.
//
//   Eager e(engine);
//   Variable w = e.variable("w", ...);
//   GradientTape tape;                                // records from here on
//   Expr loss = mean(square(matmul(x, w) - y));
//   Expr dw = tape.gradient(loss, w);                 // ends the recording
//
// A tape records the ops of this thread on watched values: eager values given to `watch`, and
// automatically the floating variables that are read. Inside a traced function, and of a graph that
// is built by hand, the gradient is more nodes of that graph (gradients.hpp). A call of a traced
// function is one entry, whose gradient is that function's staged backward program.
// The gradient code is ordinary ops: an outer tape records it, so that gradients of gradients need
// nothing else. A tape holds the values that it recorded until it is used, reset or destroyed; a
// persistent one gives any number of gradients and records on.
// Threads: a tape belongs to the thread that made it. Errors name the op of the user's code whose
// gradient failed, and its line.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/controlflow/rebuilt.hpp>
#include <troupe/ops/eager/bind_observer.hpp>

namespace troupe {

class Eager;
namespace detail {

struct StagedFunction;
struct TapeEntry;
class TapeRecords;

}  // namespace detail

struct TapeOptions {
  /// Its gradients may be computed any number of times; it keeps its records.
  bool persistent = false;
  /// Floating variables are watched when they are read; false: only those given to `watch`.
  bool watch_variables = true;
};

struct TapeGradientOptions {
  /// The result for an x that no gradient reaches: an empty expression (`absent` and `none`), or
  /// zeros (`zeros`). `refused`: invalid_argument, even if no target depends on it.
  Unconnected unconnected = Unconnected::absent;
  /// The cotangent of each target; empty: ones for all; an empty expression: ones.
  std::vector<Expr> output_gradients = {};
};

struct JacobianOptions {
  /// As of TapeGradientOptions; zeros have the shape of the Jacobian.
  Unconnected unconnected = Unconnected::absent;
  /// One program computes all rows, in parallel iterations. False: they are computed one by one,
  /// eagerly by one gradient each, for which the tape must be persistent.
  bool parallel = true;
};

namespace detail {

// Takes a structure of sources apart: variables stay variables, where `flattened` would read them.
template <class T>
void add_sources(const T& source, std::vector<Independent>& out) {
  if constexpr (std::is_same_v<T, Expr> || std::is_same_v<T, Variable>) {
    out.emplace_back(source);
  } else if constexpr (requires { const_cast<T&>(source).members(); }) {
    std::apply([&](const auto&... part) { (add_sources(part, out), ...); },
               const_cast<T&>(source).members());
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](const auto&... part) { (add_sources(part, out), ...); }, source);
  } else if constexpr (requires { source.begin(), source.end(); }) {
    for (const auto& part : source) add_sources(part, out);
  } else {
    static_assert(std::is_same_v<T, Expr>,
                  "a tape watches, and differentiates with respect to, expressions, variables and "
                  "structures of them; make an expression of host data with Eager::constant");
  }
}

/// The targets of a gradient: an expression, several, or a structure of them.
class Targets {
 public:
  Targets(const Expr& y) : ys_{y} {}                    // NOLINT
  Targets(std::initializer_list<Expr> ys) : ys_(ys) {}  // NOLINT
  Targets(const std::vector<Expr>& ys) : ys_(ys) {}     // NOLINT
  template <class T>
  requires(!std::is_convertible_v<const T&, Expr> && !std::is_convertible_v<const T&, Exprs>)
      Targets(const T& structure) {  // NOLINT
    static_assert(is_rebuilt<T>, "a target is an expression, or a structure of expressions");
    Operands parts;
    Rebuilds<std::decay_t<T>>::flatten(structure, parts, Site());
    for (const Operand& o : parts)
      if (o.is_expr()) ys_.push_back(o.expr());
  }
  const std::vector<Expr>& ys() const { return ys_; }

 private:
  std::vector<Expr> ys_;
};

}  // namespace detail

class GradientTape final : private detail::BindObserver {
 public:
  using At = std::source_location;

  /// Records from here on.
  explicit GradientTape(const TapeOptions& options = {}, At at = At::current());
  ~GradientTape();

  /// Records from now on the values that are computed from these. Values that are not floating or
  /// complex have no gradient, and are ignored. `T`: an expression, a variable, or a structure.
  template <class T>
  void watch(const T& what) {
    std::vector<detail::Independent> sources;
    detail::add_sources(what, sources);
    for (const detail::Independent& s : sources) watch_one(s);
  }
  /// The variables that it watches and that were read or given to `watch`, in that order.
  std::vector<Variable> watched_variables() const;

  /// Nothing is recorded while the result lives. Its end starts the tape again if it recorded
  /// before, and is neither used up nor started since.
  class Stopped {
   public:
    explicit Stopped(GradientTape& tape) : tape_(tape), recorded_(tape.is_active()) {
      tape_.stop();
    }
    Stopped(Stopped&&) = delete;
    ~Stopped() {
      if (recorded_ && !tape_.is_used_ && !tape_.is_active()) tape_.start();
    }

   private:
    GradientTape& tape_;
    const bool recorded_;
  };
  [[nodiscard]] Stopped stop_recording() { return Stopped(*this); }
  /// Throws failed_precondition if it records already, or was used up.
  void start(At at = At::current());
  /// Ends the recording; gradients of recorded values can still be taken.
  void stop();
  /// Drops its records and its watched values; records from here on.
  void reset();

  /// d(sum of the targets) / dx for each source, in the source's structure, shape and dtype. Throws
  /// failed_precondition if the tape is used up: it is not persistent, and gave its gradient.
  template <class X>
  requires(std::is_same_v<X, Expr> || std::is_same_v<X, Variable>) Expr
      gradient(const detail::Targets& targets, const X& source,
               const TapeGradientOptions& options = {}, At at = At::current()) {
    return dense(cotangents(targets, detail::Independents(source), options, at))[0];
  }
  std::vector<Expr> gradient(const detail::Targets& targets, const detail::Independents& sources,
                             const TapeGradientOptions& options = {}, At at = At::current()) {
    return dense(cotangents(targets, sources, options, at));
  }
  template <class S>
  requires(!std::is_same_v<S, Expr> && !std::is_same_v<S, Variable> &&
           !std::is_convertible_v<const S&, detail::Independents>)
      detail::Rebuilt<S> gradient(const detail::Targets& targets, const S& sources,
                                  const TapeGradientOptions& options = {}, At at = At::current()) {
    std::vector<detail::Independent> flat;
    detail::add_sources(sources, flat);
    return detail::rebuilt(sources,
                           dense(cotangents(targets, detail::Independents(flat), options, at)));
  }
  /// dy / dx for each source, in the source's structure: [y's extents..., x's extents...]. Throws
  /// as `gradient` does; invalid_argument if y is not floating.
  template <class X>
  requires(std::is_same_v<X, Expr> || std::is_same_v<X, Variable>) Expr
      jacobian(const Expr& y, const X& source, const JacobianOptions& options = {},
               At at = At::current()) {
    return jacobians(y, detail::Independents(source), options, at)[0];
  }
  std::vector<Expr> jacobian(const Expr& y, const detail::Independents& sources,
                             const JacobianOptions& options = {}, At at = At::current()) {
    return jacobians(y, sources, options, at);
  }
  template <class S>
  requires(!std::is_same_v<S, Expr> && !std::is_same_v<S, Variable> &&
           !std::is_convertible_v<const S&, detail::Independents>)
      detail::Rebuilt<S> jacobian(const Expr& y, const S& sources,
                                  const JacobianOptions& options = {}, At at = At::current()) {
    std::vector<detail::Independent> flat;
    detail::add_sources(sources, flat);
    return detail::rebuilt(sources, jacobians(y, detail::Independents(flat), options, at));
  }
  /// The Jacobian of each example: of y [b, m...] with respect to x [b, n...], where y's row i
  /// depends on x's row i alone, [b, m..., n...]. Throws invalid_argument unless both have a rank
  /// of at least 2 and the same first extent.
  Expr batch_jacobian(const Expr& y, const Expr& x, const JacobianOptions& options = {},
                      At at = At::current());

  /// Like `gradient`, but rows that a gather used stay sparse.
  std::vector<detail::Cotangent> cotangents(const detail::Targets& targets,
                                            const detail::Independents& sources,
                                            const TapeGradientOptions& options = {},
                                            At at = At::current());

 private:
  class Sweep;
  struct Pause {
    std::uint64_t from, to;  // build-time ids
  };

  void watch_one(const detail::Independent& source);
  void watch_state(const detail::State* key, Variable variable);
  bool watches(const detail::State* key) const;
  void computed(const Computed& firing) override;
  bool records(const detail::StagedFunction& function, std::span<const Expr> inputs,
               Eager& scope) override;
  void called(const std::shared_ptr<detail::StagedFunction>& function, std::span<const Expr> inputs,
              std::span<const Expr> outputs, Eager& scope) override;
  std::shared_ptr<detail::StagedFunction> forward_of(
      const std::shared_ptr<detail::StagedFunction>& function) override;
  // Enters the outputs of the entry made last.
  void enter(const detail::TapeEntry& entry);

  std::vector<detail::Cotangent> of_values(const std::vector<Expr>& ys,
                                           const detail::Independents& xs,
                                           const TapeGradientOptions& options,
                                           const detail::Site& at);
  std::vector<detail::Cotangent> of_graph(Graph& graph, const std::vector<Expr>& ys,
                                          const detail::Independents& xs,
                                          const TapeGradientOptions& options,
                                          const detail::Site& at);
  // Refuses a tape that is used up; one that is not persistent is from now on.
  void begin_use(const detail::Site& at);
  Expr unreached(const detail::Independent& x, std::size_t i, Unconnected unconnected,
                 const detail::Site& at) const;
  std::vector<Expr> jacobians(const Expr& y, const detail::Independents& xs,
                              const JacobianOptions& options, const detail::Site& at);
  // One gradient of y a row, stacked; empty where none arrives. The cotangent of row i is 1 at the
  // places of y that have the number i.
  std::vector<Expr> rows(const Expr& y, const detail::Independents& xs, const Expr& count,
                         const Expr& places, const JacobianOptions& options,
                         const detail::Site& at);
  static std::vector<Expr> dense(const std::vector<detail::Cotangent>& cotangents);

  const TapeOptions options_;
  const detail::Site made_at_;
  detail::Site used_at_;
  bool is_used_ = false;
  // The number of values that it watches, in the place of an entry's.
  static constexpr std::int32_t kWatched = 0x7fffffff;
  std::unique_ptr<detail::TapeRecords> records_;
  std::vector<std::pair<const detail::State*, Variable>> variables_;
  // In a graph that was being built when the tape was made: what it did not record.
  Graph* graph_ = nullptr;
  std::vector<Pause> pauses_;
  std::vector<Expr> watched_in_graph_;
};

}  // namespace troupe
