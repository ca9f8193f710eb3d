// One graph of a traced function, and where it runs: what the function's cache holds.
//
//   const Where where = where_of(scope);
//   if (trace.runs(where) && trace.covers(arguments) && trace.form.is_same(form)) ...
//
// Threads: a trace does not change once it is in the cache, but for `defined_in`, which
// `Tracing::mutex` guards.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/eager/staged.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/tracing.hpp>

namespace troupe::detail {

// The place in which a function runs.
struct Where {
  const EagerHost* host = nullptr;        // null: on the calling thread
  std::vector<std::string> devices = {};  // device scopes around the call, outer ones first

  bool is_same(const Where& o) const { return host == o.host && devices == o.devices; }
};

// One graph of a function, with the values that it captures besides its arguments.
struct Trace {
  std::vector<ValueSpec> arguments;
  std::vector<std::size_t> ends;
  ArgumentForm form;  // refers to `ends`
  Where where;
  std::shared_ptr<StagedFunction> staged;  // takes arguments and captures, yields results
  Exprs captures;                          // values from outside
  std::vector<bool> yields;                // one a result: is it an expression?
  const Eager* scope = nullptr;            // in which it was traced; it may have ended
  std::string reason;                      // why no graph before it served, for people
  // As a function of graphs that call it, by their ids.
  std::map<std::uint64_t, std::weak_ptr<const FunctionDef>> defined_in;

  bool runs(const Where& at) const { return where.is_same(at); }
  bool covers(const Exprs& given) const {
    if (given.size() != arguments.size()) return false;
    for (std::size_t i = 0; i < given.size(); ++i)
      if (!is_covered(given[i], arguments[i])) return false;
    return true;
  }

 private:
  // Without making a spec of an eager tensor: each call asks.
  static bool is_covered(const Expr& e, const ValueSpec& by) {
    if (e.reader().depth() > 0 || by.is_list() || e.held().is_list()) return by.covers(e.spec());
    const Tensor& t = e.held().tensor();
    return t.dtype() == by.dtype && by.shape.covers(t.shape());
  }
};

// A captured value of an eager scope has no reader: that scope may have ended. Each call takes it
// into its own.
inline Exprs captured_by(Eager& scope, const Exprs& captures) {
  Exprs out;
  out.reserve(captures.size());
  for (const Expr& e : captures) out.push_back(e.is_empty() ? Expr(&scope, e.held(), e.edge()) : e);
  return out;
}

inline Where where_of(Eager& scope) {
  Where where{scope.host()};
  if (Tracing* const around = Tracing::active()) where.devices = around->devices();
  else if (const Device* device = scope.other_device()) where.devices.push_back(device->name());
  return where;
}

// Open device scopes of a graph, inside one another.
class DeviceScopes {
 public:
  DeviceScopes(Graph& graph, const std::vector<std::string>& devices) {
    for (const std::string& device : devices)
      open_.emplace_back(new Graph::Scope(graph.on_device(device)));
  }
  DeviceScopes(DeviceScopes&&) = delete;
  ~DeviceScopes() {
    while (!open_.empty()) open_.pop_back();
  }

 private:
  std::vector<std::unique_ptr<Graph::Scope>> open_;
};

inline std::string text_of(const std::vector<ValueSpec>& tensors,
                           const std::vector<HostArgument>& host) {
  std::string text = "(";
  for (const ValueSpec& s : tensors) text += (text.size() > 1 ? ", " : "") + s.text();
  for (std::size_t i = 0; i < host.size(); ++i)
    text += (i == 0 ? (tensors.empty() ? "" : "; ") : ", ") + host[i].text;
  return text + ")";
}

inline bool differ_in_extents(const ValueSpec& a, const ValueSpec& b) {
  return a.dtype == b.dtype && a.depth == b.depth && a.shape.has_rank() && b.shape.has_rank() &&
         a.shape.rank() == b.shape.rank();
}

}  // namespace troupe::detail
