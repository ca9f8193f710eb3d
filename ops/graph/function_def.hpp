// Functions of a graph: sub-graphs with a name and a signature, which Call nodes refer to, those in
// their own bodies too. A function may be called before it is defined; its parameters and results
// are known when it is declared.
//
// Ownership: the outermost graph owns its functions. The attribute `function` of a Call node refers
// to one and does not own it, because a function's body may hold calls of it. A pass that changes
// bodies makes functions of the program it yields. The environment: values of the outermost graph
// that bodies use come to them in a list of any kind, the last parameter, made where a call is
// bound outside of all functions; a call inside a function passes on that function's list. So a
// call that was bound before its function's body was finished needs no change. Invariant: a
// function's effects, draws and recursion are right once it and all that it calls are defined;
// `Graph::define` updates them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <troupe/ops/graph/subgraph.hpp>

namespace troupe::detail {

class FunctionDef final : public AttrObject {
 public:
  std::string text() const override { return name; }

  std::string name;
  Site site;                          // line of the declaration
  std::vector<ValueSpec> parameters;  // the environment, if it has one, is the last
  std::vector<ValueSpec> results;
  std::shared_ptr<const SubGraph> body;  // null: declared only

  /// A value of the outermost graph that the body uses, and its index in the environment.
  struct Captured {
    Edge outer;
    std::int64_t slot;
  };
  std::vector<Captured> captured;

  // The flags and effects below cover the body and all functions that it calls.
  std::vector<const FunctionDef*> callees;  // called by the body itself
  bool is_recursive = false;                // a call of it leads to another
  bool has_draws = false;
  bool has_effect = false;  // a call must run even if its results are unused
  Effects effects;

  /// The function that this one extends: this one yields the results of `base`, then more. Null if
  /// it extends none.
  const FunctionDef* base = nullptr;
  /// Functions made from this one, by their purpose.
  std::map<std::string, std::vector<const FunctionDef*>> derived;
};

/// Returns the function that a Call node calls; null for other nodes.
const FunctionDef* function_of(const Attrs& attrs);
inline const FunctionDef* function_of(const Node& node) { return function_of(node.attrs); }
/// The value of a Call node's attribute `function`.
std::shared_ptr<const AttrObject> refer_to(const FunctionDef& function);

/// All functions that a call of `function` may reach, itself first.
std::vector<const FunctionDef*> reachable_from(const FunctionDef& function);

/// Returns the error message of a call that is nested more than `limit` deep.
std::string too_deep(const FunctionDef& function, int limit, const Site& site);

/// Updates callees, effects, draws and recursion of the functions, in time linear in bodies and
/// calls.
void analyse(const std::vector<std::shared_ptr<FunctionDef>>& functions);
/// Does the same after one of them was given its body; the others were up to date.
void analyse_defined(FunctionDef& function,
                     const std::vector<std::shared_ptr<FunctionDef>>& functions);

}  // namespace troupe::detail
