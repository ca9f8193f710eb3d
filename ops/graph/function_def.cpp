#include <troupe/ops/graph/function_def.hpp>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

namespace troupe::detail {
namespace {

// Adds the effects of a body's own nodes and of its sub-graphs; effects of calls are added later.
void add_from(FunctionDef& f, const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    f.has_draws = f.has_draws || node.op->random;
    if (const FunctionDef* callee = function_of(node)) {
      if (std::find(f.callees.begin(), f.callees.end(), callee) == f.callees.end())
        f.callees.push_back(callee);
      continue;
    }
    if (node.state >= 0 && node.op->effect != Effect::none)
      merge_effect(f.effects, node.state, node.op->effect);
    f.has_effect = f.has_effect || has_own_effect(node);
    for (const auto& sub : subgraphs_of(node)) add_from(f, sub->graph);
  }
}

void take_over(FunctionDef& f, const FunctionDef& callee) {
  for (auto [state, effect] : callee.effects) merge_effect(f.effects, state, effect);
  f.has_draws = f.has_draws || callee.has_draws;
  f.has_effect = f.has_effect || callee.has_effect;
}

// Sets the properties that follow from the body alone, without its calls.
void scan(FunctionDef& f) {
  f.callees.clear();
  f.effects.clear();
  f.has_draws = f.has_effect = f.is_recursive = false;
  if (f.body) add_from(f, f.body->graph);
}

// Functions that call each other, all of them or none, after those that they call besides: the
// strongly connected components of the calls (Tarjan, 1972). No recursion: chains of calls are
// long.
class Circles {
 public:
  explicit Circles(const std::vector<std::shared_ptr<FunctionDef>>& functions) {
    for (const auto& f : functions) known_.emplace(f.get(), Mark{f.get()});
    for (const auto& f : functions)
      if (known_.at(f.get()).number < 0) visit(known_.at(f.get()));
  }
  const std::vector<std::vector<FunctionDef*>>& all() const { return circles_; }

 private:
  struct Mark {
    FunctionDef* function;
    int number = -1;  // in the order of the visits; -1: not yet visited
    int lowest = -1;  // the first reachable function that is in no cycle yet
    bool is_open = false;
    std::size_t next = 0;  // the index of the next callee
  };

  void open(Mark& m) {
    m.number = m.lowest = visited_++;
    m.is_open = true;
    path_.push_back(&m);
    open_.push_back(&m);
  }

  void visit(Mark& first) {
    open(first);
    while (!path_.empty()) {
      Mark& m = *path_.back();
      if (m.next < m.function->callees.size()) {
        // A function of another program calls nothing of this one.
        const auto it = known_.find(m.function->callees[m.next++]);
        if (it == known_.end()) continue;
        if (it->second.number < 0) open(it->second);
        else if (it->second.is_open) m.lowest = std::min(m.lowest, it->second.number);
        continue;
      }
      path_.pop_back();
      if (!path_.empty()) path_.back()->lowest = std::min(path_.back()->lowest, m.lowest);
      if (m.lowest == m.number) close(m);
    }
  }

  void close(const Mark& first) {
    circles_.emplace_back();
    for (bool is_first = false; !is_first;) {
      Mark& m = *open_.back();
      open_.pop_back();
      m.is_open = false;
      circles_.back().push_back(m.function);
      is_first = &m == &first;
    }
  }

  std::unordered_map<const FunctionDef*, Mark> known_;
  std::vector<Mark*> path_, open_;
  std::vector<std::vector<FunctionDef*>> circles_;
  int visited_ = 0;
};

bool calls_itself(const FunctionDef& f) {
  return std::find(f.callees.begin(), f.callees.end(), &f) != f.callees.end();
}

// Adds the properties of the called functions to those of each body.
void settle(const std::vector<std::shared_ptr<FunctionDef>>& functions) {
  const Circles circles(functions);
  for (const std::vector<FunctionDef*>& circle : circles.all()) {
    FunctionDef& first = *circle[0];
    for (FunctionDef* f : circle) {
      f->is_recursive = circle.size() > 1 || calls_itself(*f);
      if (f != &first) take_over(first, *f);
      for (const FunctionDef* callee : f->callees) take_over(first, *callee);
    }
    for (FunctionDef* f : circle)
      if (f != &first) take_over(*f, first);
  }
}

}  // namespace

const FunctionDef* function_of(const Attrs& attrs) {
  const AttrValue* value = attrs.find("function");
  const auto* object = value ? std::get_if<std::shared_ptr<const AttrObject>>(value) : nullptr;
  return object ? dynamic_cast<const FunctionDef*>(object->get()) : nullptr;
}

std::shared_ptr<const AttrObject> refer_to(const FunctionDef& function) {
  return std::shared_ptr<const AttrObject>(std::shared_ptr<void>(), &function);
}

std::vector<const FunctionDef*> reachable_from(const FunctionDef& function) {
  std::vector<const FunctionDef*> found{&function};
  std::unordered_set<const FunctionDef*> known{&function};
  for (std::size_t i = 0; i < found.size(); ++i)
    for (const FunctionDef* callee : found[i]->callees)
      if (known.insert(callee).second) found.push_back(callee);
  return found;
}

std::string too_deep(const FunctionDef& function, int limit, const Site& site) {
  return fmt::format(
      "function '{}' ({}) is called at {} inside {} calls, which is the limit: does its recursion "
      "end?",
      function.name, function.site.text(), site.text(), limit);
}

void analyse(const std::vector<std::shared_ptr<FunctionDef>>& functions) {
  for (const auto& f : functions) scan(*f);
  settle(functions);
}

void analyse_defined(FunctionDef& function,
                     const std::vector<std::shared_ptr<FunctionDef>>& functions) {
  scan(function);
  const bool is_called = std::any_of(functions.begin(), functions.end(), [&](const auto& f) {
    return std::find(f->callees.begin(), f->callees.end(), &function) != f->callees.end();
  });
  if (is_called) return settle(functions);
  for (const FunctionDef* callee : function.callees) take_over(function, *callee);
}

}  // namespace troupe::detail
