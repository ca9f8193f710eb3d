// Functions of a program that a pass changes: a copy of each that is called, its body changed once.
//
//   node.attrs.set("function", refer_to(*functions.made_of(*function)));   // for each call
//   functions.finish(out.graph, [&](const SubGraph& body) { return in_sub_graph(body); });
//
// A copy is there before its body, which waits its turn: a chain of calls may be long, and come
// back. A change of a body may call for more copies. Threads: one.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

class ChangedFunctions {
 public:
  /// Returns the copy of the function.
  FunctionDef* made_of(const FunctionDef& function) {
    auto [it, is_new] = made_.try_emplace(&function);
    if (!is_new) return it->second.get();
    FunctionDef* made = (it->second = std::make_shared<FunctionDef>(function)).get();
    made->derived.clear();
    if (function.base) made->base = made_of(*function.base);
    made->body = nullptr;
    if (function.body) waiting_.push_back(&function);
    return made;
  }

  /// Changes the bodies of all copies, and makes the copies the functions of the graph.
  template <class Change>
  void finish(Graph& graph, Change change) {
    while (!waiting_.empty()) {
      const FunctionDef* function = waiting_.back();
      waiting_.pop_back();
      made_.at(function)->body = change(*function->body);
    }
    std::vector<std::shared_ptr<FunctionDef>> functions;
    for (auto& [from, made] : made_) functions.push_back(made);
    analyse(functions);
    graph.set_functions(std::move(functions));
  }

 private:
  std::map<const FunctionDef*, std::shared_ptr<FunctionDef>> made_;
  std::vector<const FunctionDef*> waiting_;  // functions whose bodies have yet to be changed
};

}  // namespace troupe
