#include <troupe/actors/observe/loop_condition.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <troupe/ops/graph/pointwise.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe {

LoopConditionAnalysis::LoopConditionAnalysis(const Graph& program) : program_(program) {
  for (std::int32_t id = 0; id < program.size(); ++id) {
    if (program.node(id).op->name == "NextIteration") closed_[program.node(id).inputs[1].node] = id;
    if (program.node(id).op->name == "LoopCond" &&
        program.node(id).attrs.get_or("structured", false))
      deciding_.push_back(source_of(program.node(id).inputs[0]));
  }
}

// Returns the output that makes the value; nodes that only route pass it on.
Edge LoopConditionAnalysis::source_of(Edge e) const {
  for (;;) {
    const std::string& op = program_.node(e.node).op->name;
    if (op != "Identity" && op != "Switch" && op != "LoopCond") return e;
    e = program_.node(e.node).inputs[0];
  }
}

// Returns true if the loop variable of this Merge is unchanged in the next iteration.
bool LoopConditionAnalysis::is_handed_on(std::int32_t merge, std::int32_t next) const {
  return source_of(program_.node(next).inputs[0]) == Edge{merge, 0};
}

bool LoopConditionAnalysis::is_same_for_ever(std::int32_t node) const {
  constexpr std::size_t kMost = 4096;
  std::vector<std::int32_t> cone{node};
  std::unordered_set<std::int32_t> seen{node};
  const auto add = [&](std::int32_t id) {
    if (seen.insert(id).second) cone.push_back(id);
  };
  for (std::size_t i = 0; i < cone.size(); ++i) {
    if (cone.size() > kMost) return false;
    const Node& n = program_.node(cone[i]);
    const std::string& op = n.op->name;
    if (op == "Enter") {  // a value from outside; inner loops' Enters are behind an Exit
      if (!n.attrs.get<bool>("constant")) return false;
      continue;
    }
    if (const auto it = closed_.find(cone[i]); it != closed_.end()) {
      if (!is_handed_on(cone[i], it->second)) return false;
      continue;
    }
    const bool only_routes = op == "Switch" || op == "Merge" || op == "LoopCond" ||
                             op == "Identity" || op == "ControlTrigger";
    if (!only_routes && (!n.op->is_pure() || n.state >= 0 || !subgraphs_of(n).empty()))
      return false;
    for (const Edge e : n.inputs) {
      // whether this is the first iteration
      if (e.output == 1 && closed_.contains(e.node)) return false;
      add(e.node);
    }
    for (const std::int32_t c : n.controls) add(c);
  }
  return true;
}

// Returns the variables of its own loop that determine a node's value. Returns none if the value
// also depends on states, queues, draws, calls or users' actors, because these are not repeatable.
std::vector<std::int32_t> LoopConditionAnalysis::made_of(std::int32_t node) const {
  constexpr std::size_t kMost = 1 << 15, kMostVariables = 64;
  struct Place {
    std::int32_t node;
    int depth;  // inner loops around the node
  };
  std::vector<std::int32_t> variables;
  std::vector<Place> cone{{node, 0}};
  std::unordered_set<std::int32_t> seen{node};
  for (std::size_t i = 0; i < cone.size(); ++i) {
    if (cone.size() > kMost) return {};
    const auto [id, depth] = cone[i];
    const Node& n = program_.node(id);
    const std::string& op = n.op->name;
    int before = depth;
    if (op == "Enter" && before-- == 0) continue;
    if (op == "Exit") ++before;
    const bool only_routes = op == "Enter" || op == "Exit" || op == "Switch" || op == "Merge" ||
                             op == "NextIteration" || op == "LoopCond" || op == "Identity" ||
                             op == "ControlTrigger";
    if (!only_routes && (!n.op->is_pure() || n.state >= 0 || !subgraphs_of(n).empty())) return {};
    const auto add = [&](std::int32_t from) {
      if (seen.insert(from).second) cone.push_back({from, before});
    };
    for (const Edge e : n.inputs) {
      // whether this is the first iteration
      if (e.output == 1 && depth == 0 && closed_.contains(e.node)) return {};
      add(e.node);
    }
    for (const std::int32_t c : n.controls) add(c);
    const auto it = closed_.find(id);
    if (it == closed_.end()) continue;
    add(it->second);
    if (depth > 0 || is_handed_on(id, it->second)) continue;
    if (variables.size() == kMostVariables || program_.spec({id, 0}).depth > 0) return {};
    variables.push_back(it->second);
  }
  return variables;
}

// Traces a predicate back through scalar computations: the instructions of the nodes' programs.
class ConditionTracer {
 public:
  explicit ConditionTracer(const LoopConditionAnalysis& loops)
      : loops_(loops), graph_(loops.program_) {}

  Followed follow(Edge predicate) {
    if (const auto it = loops_.closed_.find(predicate.node);
        it != loops_.closed_.end() && predicate.output == 0) {
      carried_truth(it->first, Followed::Watch{});
    } else {
      truth(predicate);
    }
    if (!is_within_bounds_) out_ = {};
    return std::move(out_);
  }

 private:
  using Term = Decision::Term;
  static constexpr std::size_t kTerms = 64;
  // How a number goes on from iteration to iteration (decision.hpp); `line`: an integer with even
  // steps.
  enum class Pace : std::uint8_t { any, same, line, one_way };
  struct Instruction {
    std::int32_t node;
    std::int16_t at;
  };
  struct Carried {
    std::int32_t merge, comparison;
  };

  const ScalarProgram* program(std::int32_t node) {
    const auto [it, is_new] = programs_.try_emplace(node);
    const Node& n = graph_.node(node);
    if (is_new && (n.op->pointwise || n.op->name == "Fused")) it->second = program_of(graph_, n);
    return it->second.get();
  }
  const ScalarInstruction& code(Instruction i) {
    return program(i.node)->code[static_cast<std::size_t>(i.at)];
  }
  Instruction operand(Instruction i, std::size_t n) { return {i.node, code(i).operand[n]}; }
  Edge input(Instruction i) {
    return loops_.source_of(
        graph_.node(i.node).inputs[static_cast<std::size_t>(code(i).operand[0])]);
  }
  // The instruction that makes this value; -1: it is not computed of scalars.
  Instruction maker(Edge e) {
    const ScalarProgram* p = program(e.node);
    return {e.node, p && static_cast<std::size_t>(e.output) < p->results.size()
                        ? p->results[static_cast<std::size_t>(e.output)]
                        : std::int16_t{-1}};
  }
  // The loop's variable that this is; -1: none.
  std::int32_t variable(Edge e) const {
    return e.output == 0 && loops_.closed_.contains(e.node) ? e.node : -1;
  }
  Edge next_of(std::int32_t merge) const {
    return loops_.source_of(graph_.node(loops_.closed_.at(merge)).inputs[0]);
  }
  bool stays(Edge e) {
    if (const auto it = loops_.closed_.find(e.node); it != loops_.closed_.end())
      return e.output == 0 && loops_.is_handed_on(e.node, it->second);
    const auto [it, is_new] = stays_.try_emplace(e.node);
    if (is_new) it->second = loops_.is_same_for_ever(e.node);
    return it->second;
  }
  bool may_go_on() {
    constexpr int kSteps = 4096;
    return ++steps_ < kSteps;
  }

  // ---- truths

  void add(Term::Kind kind, std::int32_t comparison = -1) {
    if (out_.decision.terms.size() == kTerms) is_within_bounds_ = false;
    if (is_within_bounds_) out_.decision.terms.push_back({kind, comparison});
  }

  std::int32_t compare(const Comparison& c, Followed::Watch watch) {
    if (out_.watches.size() == kTerms) is_within_bounds_ = false;
    if (!is_within_bounds_) return 0;
    watch.comparison = static_cast<std::int32_t>(out_.decision.comparisons.size());
    out_.decision.comparisons.push_back(c);
    out_.watches.push_back(std::move(watch));
    return watch.comparison;
  }

  std::shared_ptr<const ScalarProgram> up_to(Instruction i) {
    auto side = std::make_shared<ScalarProgram>(*program(i.node));
    side->code.resize(static_cast<std::size_t>(i.at) + 1);
    side->results = {i.at};
    return side;
  }
  Followed::Watch watch(Instruction left) { return {left.node, 0, up_to(left), nullptr}; }
  Followed::Watch watch(Instruction left, Instruction right) {
    return {left.node, 0, up_to(left), up_to(right)};
  }

  void truth(Edge e) {
    const Instruction i = maker(e);
    i.at < 0 ? add(Term::Kind::unknown) : truth(i);
  }

  void truth(Instruction i) {
    if (!may_go_on()) is_within_bounds_ = false;
    if (!is_within_bounds_) return;
    const ScalarInstruction& c = code(i);
    switch (c.op) {
      case ScalarOp::logical_not: truth(operand(i, 0)), add(Term::Kind::negates); return;
      case ScalarOp::logical_and:
        truth(operand(i, 0)), truth(operand(i, 1)), add(Term::Kind::both);
        return;
      case ScalarOp::logical_or:
        truth(operand(i, 0)), truth(operand(i, 1)), add(Term::Kind::either);
        return;
      case ScalarOp::eq:
      case ScalarOp::ne:
      case ScalarOp::lt:
      case ScalarOp::le:
      case ScalarOp::gt:
      case ScalarOp::ge: comparison(i); return;
      case ScalarOp::input: truth_that_comes_in(i); return;
      default: add(Term::Kind::unknown);
    }
  }

  void truth_that_comes_in(Instruction i) {
    const Edge e = input(i);
    const std::int32_t merge = variable(e);
    if (const Instruction made = maker(e);
        made.at >= 0 && code(made).op >= ScalarOp::eq && code(made).op <= ScalarOp::ge) {
      truth(made);
    } else if (stays(e)) {
      Comparison c = bare_truth();
      c.course = Comparison::Course::same;
      add(Term::Kind::compares, compare(c, watch(i)));
    } else if (merge >= 0 && carried_ && carried_->merge == merge) {
      add(Term::Kind::before, carried_->comparison);
    } else if (merge >= 0) {
      carried_ ? add(Term::Kind::unknown) : carried_truth(merge, watch(i));
    } else {
      truth(e);
    }
  }

  static Comparison bare_truth() {
    Comparison c;
    c.relation = Comparison::Relation::ne;
    c.is_truth = true;
    return c;
  }

  void carried_truth(std::int32_t merge, Followed::Watch watch) {
    Comparison c = bare_truth();
    c.course = Comparison::Course::carried;
    carried_ = Carried{merge, compare(c, std::move(watch))};
    truth(next_of(merge));
    add(Term::Kind::keeps, carried_->comparison);
    carried_.reset();
  }

  void comparison(Instruction i) {
    static_assert(static_cast<int>(ScalarOp::ge) - static_cast<int>(ScalarOp::eq) == 5);
    constexpr Comparison::Relation kRelations[] = {
        Comparison::Relation::eq, Comparison::Relation::ne, Comparison::Relation::lt,
        Comparison::Relation::le, Comparison::Relation::gt, Comparison::Relation::ge};
    const Instruction left = operand(i, 0), right = operand(i, 1);
    const DType type = code(left).type;
    if (is_complex(type)) return add(Term::Kind::unknown);  // is more than a number
    const Pace l = pace(left), r = pace(right);
    Comparison c;
    c.relation = kRelations[static_cast<int>(code(i).op) - static_cast<int>(ScalarOp::eq)];
    if (l == Pace::same && r == Pace::same) {
      c.course = Comparison::Course::same;
      c.is_truth = type == DType::boolean;
    } else if (type == DType::boolean) {
      add(Term::Kind::unknown);
      return;
    } else if (is_signed_integer(type) && l != Pace::any && r != Pace::any) {
      c.course = Comparison::Course::exact;
    } else if (is_floating(type) && ((l == Pace::one_way && r == Pace::same) ||
                                     (l == Pace::same && r == Pace::one_way))) {
      c.course = Comparison::Course::one_way;
    }
    constexpr double kWholeDoubles = 0x1p53;
    if (is_integer(type))
      c.whole_below =
          std::min(kWholeDoubles, std::exp2(static_cast<double>(8 * size_of(type) - 1)));
    add(Term::Kind::compares, compare(c, watch(left, right)));
  }

  // ---- numbers

  Pace pace(Edge e) {
    if (!may_go_on()) return Pace::any;
    if (stays(e)) return Pace::same;
    if (const std::int32_t merge = variable(e); merge >= 0) {
      // the value during the recursion, because variables may be updated by each other
      const auto [known, is_new] = paces_.try_emplace(merge, Pace::any);
      if (!is_new) return known->second;
      const DType type = graph_.spec(e).dtype;
      if (!is_step(next_of(merge), merge)) return Pace::any;
      return paces_[merge] = is_signed_integer(type) ? Pace::line
                             : is_floating(type)     ? Pace::one_way
                                                     : Pace::any;
    }
    const Instruction i = maker(e);
    return i.at < 0 ? Pace::any : pace(i);
  }

  Pace pace(Instruction i) {
    if (!may_go_on()) return Pace::any;
    const ScalarInstruction& c = code(i);
    if (c.op == ScalarOp::constant) return Pace::same;
    if (c.op == ScalarOp::input) return pace(input(i));
    std::vector<Pace> of;
    for (std::size_t n = 0; n < static_cast<std::size_t>(arity(c.op)); ++n)
      of.push_back(pace(operand(i, n)));
    const auto are_all = [&](Pace p) {
      return std::all_of(of.begin(), of.end(), [&](Pace q) { return q == p || q == Pace::same; });
    };
    const auto moving = std::count_if(of.begin(), of.end(), [](Pace p) { return p != Pace::same; });
    if (moving == 0) return Pace::same;
    const bool is_whole = is_signed_integer(c.type) && are_all(Pace::line),
               is_rounded = is_floating(c.type) && are_all(Pace::one_way) && moving == 1;
    switch (c.op) {
      case ScalarOp::neg: return is_whole ? Pace::line : is_rounded ? Pace::one_way : Pace::any;
      case ScalarOp::add:
      case ScalarOp::sub: return is_whole ? Pace::line : is_rounded ? Pace::one_way : Pace::any;
      case ScalarOp::mul:
        return is_whole && moving == 1 ? Pace::line : is_rounded ? Pace::one_way : Pace::any;
      case ScalarOp::cast: {
        const DType from = code(operand(i, 0)).type;
        // a narrower one wraps around before the wider one does
        if (is_whole && from == c.type) return Pace::line;
        return is_rounded && is_floating(from) ? Pace::one_way : Pace::any;
      }
      default: return Pace::any;
    }
  }

  // Returns true if the value is the variable plus or minus constants, or, for floats, any non-
  // decreasing function of the variable. A float variable with this update that begins to rise, or
  // to fall, does so for ever, because rounding is monotonic too.
  bool is_step(Edge e, std::int32_t merge) {
    if (variable(e) >= 0) return e.node == merge;
    const Instruction i = maker(e);
    return i.at >= 0 && is_step(i, merge);
  }

  bool is_step(Instruction i, std::int32_t merge) {
    if (!may_go_on()) return false;
    const ScalarInstruction& c = code(i);
    switch (c.op) {
      case ScalarOp::input: return is_step(input(i), merge);
      case ScalarOp::add:
        return (is_step(operand(i, 0), merge) && pace(operand(i, 1)) == Pace::same) ||
               (is_step(operand(i, 1), merge) && pace(operand(i, 0)) == Pace::same);
      case ScalarOp::sub: return is_step(operand(i, 0), merge) && pace(operand(i, 1)) == Pace::same;
      case ScalarOp::mul:
        return is_floating(c.type) &&
               ((is_step(operand(i, 0), merge) && is_positive(operand(i, 1))) ||
                (is_step(operand(i, 1), merge) && is_positive(operand(i, 0))));
      case ScalarOp::div:
        return is_floating(c.type) && is_step(operand(i, 0), merge) && is_positive(operand(i, 1));
      case ScalarOp::cast:
        return is_floating(c.type) && is_floating(code(operand(i, 0)).type) &&
               is_step(operand(i, 0), merge);
      default: return false;
    }
  }

  // Returns true for a finite constant above 0.
  bool is_positive(Instruction i) {
    const ScalarInstruction& c = code(i);
    if (c.op == ScalarOp::constant) return c.constant > 0 && std::isfinite(c.constant);
    if (c.op != ScalarOp::input) return false;
    Edge e = input(i);
    while (graph_.node(e.node).op->name == "Enter" &&
           graph_.node(e.node).attrs.get<bool>("constant"))
      e = loops_.source_of(graph_.node(e.node).inputs[0]);
    if (graph_.node(e.node).op->name != "Constant") return false;
    const Tensor& value = graph_.node(e.node).attrs.get<Tensor>("value");
    return is_floating(value.dtype()) && value.elements() == 1 && value.at(0) > 0 &&
           std::isfinite(value.at(0));
  }

  const LoopConditionAnalysis& loops_;
  const Graph& graph_;
  std::unordered_map<std::int32_t, std::shared_ptr<const ScalarProgram>> programs_;
  Followed out_;
  std::unordered_map<std::int32_t, Pace> paces_;  // by loop variable
  std::unordered_map<std::int32_t, bool> stays_;
  std::optional<Carried> carried_;  // the boolean whose update is being traced
  int steps_ = 0;
  bool is_within_bounds_ = true;
};

// Returns the output that decides.
std::optional<Edge> LoopConditionAnalysis::decides(std::int32_t predicate) const {
  std::optional<Edge> one;
  for (const Edge e : deciding_) {
    if (e.node != source_of({predicate, 0}).node) continue;
    if (one && *one != e) return std::nullopt;  // two loops go by two results of one program
    one = e;
  }
  return one;
}

Followed LoopConditionAnalysis::follow(std::int32_t predicate) const {
  const std::optional<Edge> one = decides(predicate);
  if (!one) return {};
  Followed followed = ConditionTracer(*this).follow(*one);
  followed.variables = made_of(one->node);
  return followed;
}

}  // namespace troupe
