// Tracing: while a traced function runs its C++ code, the binds of this thread on eager scopes go
// into the function's graph instead of being computed.
//
//   Tracing tracing(graph, callbacks);     // until the end of the scope
//   body(arguments);                       // expressions of `graph`
//
// A graph is the program's value of the trace: eager values that the code uses come in as silent
// inputs (`capture`), states by name. Threads: a trace belongs to the thread that opened it; traces
// nest, and the innermost one counts.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <troupe/ops/graph/expr.hpp>

namespace troupe {

class Eager;
class Graph;
namespace detail {

struct StateSpec;

class Tracing {
 public:
  /// Requests that a trace answers.
  struct Callbacks {
    /// The expression of the graph that stands for a value of an eager scope, or of a graph around
    /// the trace; the same one for the same value.
    std::function<Expr(const Expr& outside, const Site& site)> capture;
    /// A state was declared on an eager scope. Throws to refuse it.
    std::function<void(const StateSpec& spec, const Site& site)> declared;
    /// A variable of this name is about to be declared, whose first value is an expression of the
    /// graph. Throws to refuse it; empty: it is not refused.
    std::function<void(const std::string& name, const Site& site)> starts_as_expression = {};
    /// A variable that was declared gets `initial`, an expression of the graph, as its first value.
    std::function<void(const StateSpec& spec, const Expr& initial, const Site& site)> initialized =
        {};
  };

  /// `caller`: the outermost graph that the traced function is called in; null: an eager scope.
  /// `scope`: the eager scope that the code is traced in, whose states it may use; null: any.
  Tracing(Graph& graph, const Graph* caller, std::string name, Callbacks callbacks,
          Eager* scope = nullptr)
      : graph_(graph), caller_(caller), name_(std::move(name)), callbacks_(std::move(callbacks)),
        scope_(scope), outer_(std::exchange(innermost(), this)) {}
  Tracing(Tracing&&) = delete;
  ~Tracing() { innermost() = outer_; }

  /// The innermost trace of this thread; null: eager scopes compute.
  static Tracing* active() { return innermost(); }

  /// One thread traces at a time, in all functions: a trace may call other functions, in any order.
  /// It is locked before the mutex of any staged graph. Code that is traced must not wait for
  /// another thread that traces.
  static std::recursive_mutex& mutex() {
    static std::recursive_mutex one;
    return one;
  }

  /// While it lives, this thread traces nothing, and eager scopes compute.
  class Suspended {
   public:
    Suspended() : trace_(std::exchange(innermost(), nullptr)) {}
    Suspended(Suspended&&) = delete;
    ~Suspended() { innermost() = trace_; }

   private:
    Tracing* const trace_;
  };

  /// The outermost graph of the trace.
  Graph& graph() const { return graph_; }
  /// True if `root` is the graph of a trace, or of a caller, around this trace. Its values come in
  /// like those of eager scopes.
  bool is_within(const Graph& root) const {
    for (const Tracing* t = this; t; t = t->outer_)
      if (t->caller_ == &root) return true;
    return false;
  }
  /// `function 'step' (train.cpp:41)`.
  const std::string& name() const { return name_; }
  const Callbacks& callbacks() const { return callbacks_; }
  Eager* scope() const { return scope_; }
  /// The device scopes that are open in the code, outer ones first: functions that it calls run
  /// there, too.
  std::vector<std::string>& devices() { return devices_; }

 private:
  static Tracing*& innermost() {
    static thread_local Tracing* trace = nullptr;
    return trace;
  }

  Graph& graph_;
  const Graph* const caller_;
  const std::string name_;
  const Callbacks callbacks_;
  Eager* const scope_;
  std::vector<std::string> devices_;
  Tracing* const outer_;
};

}  // namespace detail

}  // namespace troupe
