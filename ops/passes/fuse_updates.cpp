#include <troupe/ops/graph/program.hpp>

#include <algorithm>

#include <troupe/ops/graph/made_by.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/pointwise.hpp>
#include <troupe/ops/graph/subgraph.hpp>

// The value of a variable's update goes into the update, if it is pointwise and has no other user:
//
//   dw, rate ─► Mul ─► AssignSub w          dw, rate ─► UpdateVariable w: w - dw * rate
//
// so that a step reads the gradient and the variable once and writes in place, without a value
// between. A read of the variable itself (momenta, weight decay) becomes the value that is updated,
// if no other write stands between the two. Updates of one state take turns, in a loop from one
// iteration to the next: there only nodes that are limited by memory, not by arithmetic, go in.

namespace troupe::detail {
namespace {

constexpr std::size_t kMostInputs = 14;

class Updates {
 public:
  Updates(const Program& program, const std::vector<StateSpec>& states, bool may_repeat)
      : program_(program), g_(program.graph), states_(states), may_repeat_(may_repeat),
        users_(size(), 0), has_order_(size(), 0), written_before_(size(), -1) {
    std::vector<std::int32_t> last(states.size(), -1);
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      if (n.state >= 0) written_before_[at(id)] = last[at(n.state)];
      if (n.state >= 0 && n.op->effect == Effect::write) last[at(n.state)] = id;
      if (n.op->evaluate)  // its sub-graphs and functions
        for (const auto& [state, effect] : effects_of(n))
          if (effect == Effect::write) last[at(state)] = id;
      for (Edge e : g_.node(id).inputs) ++users_[at(e.node)];
      for (std::int32_t c : g_.node(id).controls) has_order_[at(c)] = 1;
      if (!g_.node(id).controls.empty()) has_order_[at(id)] = 1;
    }
    for (Edge e : program.fetches) ++users_[at(e.node)];
  }

  Program run() {
    std::vector<char> goes(size(), 0);
    for (std::int32_t id = 0; id < g_.size(); ++id)
      if (may_take_in(id)) goes[at(g_.node(id).inputs[0].node)] = 1;
    Rewriter rewriter(program_);
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      if (goes[at(id)]) continue;  // stands in the update, which comes after
      if (!g_.node(id).inputs.empty() && goes[at(g_.node(id).inputs[0].node)]) emit(rewriter, id);
      else rewriter.keep(id);
    }
    return rewriter.finish();
  }

 private:
  std::size_t size() const { return at(g_.size()); }

  bool is_update(const Node& n) const {
    return n.op->name == "AssignVariable" || n.op->name == "AssignAdd" || n.op->name == "AssignSub";
  }
  bool is_own_read(Edge e, const Node& update) const {
    return g_.node(e.node).state == update.state && g_.node(e.node).op->name == "ReadVariable";
  }

  bool may_take_in(std::int32_t id) const {
    const Node& update = g_.node(id);
    if (!is_update(update)) return false;
    const std::int32_t from = update.inputs[0].node;
    const Node& value = g_.node(from);
    const Shape& shape = update.outputs[0].shape;
    const DType type = update.outputs[0].dtype;
    // halves are computed in f32, which an update is not typed for
    if (type != DType::f32 && type != DType::f64 && !is_integer(type)) return false;
    if (!(value.op->pointwise || value.op->name == "Fused") || value.outputs.size() != 1 ||
        value.inputs.size() > kMostInputs)
      return false;
    const std::string& home = states_[at(update.state)].device;
    if (users_[at(from)] != 1 || has_order_[at(from)] || value.device != update.device ||
        home != value.device || value.outputs[0].dtype != update.outputs[0].dtype)
      return false;
    if (!shape.is_known() || !(value.outputs[0].shape == shape) || shape.elements() <= 1)
      return false;
    bool reads_itself = false;
    for (Edge e : value.inputs) {
      const Node& n = g_.node(e.node);
      if (n.state != update.state || n.state < 0) continue;
      if (!is_own_read(e, update) || has_order_[at(e.node)] || n.device != update.device ||
          written_before_[at(id)] > e.node)
        return false;
      reads_itself = true;
    }
    // A plain assignment stores its value without a copy: fusion gains nothing. A value that reads
    // the variable takes turns with the updates in any case.
    return reads_itself || (update.op->name != "AssignVariable" &&
                            !(may_repeat_ && takes_long(*program_of(g_, value))));
  }

  static bool takes_long(const ScalarProgram& program) {
    return std::any_of(program.code.begin(), program.code.end(), [](const ScalarInstruction& i) {
      return (i.op >= ScalarOp::exp && i.op <= ScalarOp::sigmoid) || i.op == ScalarOp::pow ||
             i.op == ScalarOp::atan2;
    });
  }

  void emit(Rewriter& rewriter, std::int32_t id) const {
    const Node &update = g_.node(id), &value = g_.node(update.inputs[0].node);
    const DType type = update.outputs[0].dtype;
    ScalarProgram program;
    const std::int16_t old = append_input(program, type);
    Node node = rewriter.translated(id);
    node.inputs.clear();
    std::vector<std::int16_t> operands;
    for (Edge e : value.inputs) {
      if (is_own_read(e, update)) {
        operands.push_back(old);
        continue;
      }
      operands.push_back(append_input(program, g_.spec(e).dtype));
      node.inputs.push_back(rewriter.at(e));
    }
    std::string parts;
    const auto computed = program_of(g_, value);
    add_parts(parts, value.attrs, *computed, program.code.size());
    std::int16_t result = append(program, *computed, operands)[0];
    if (update.op->name != "AssignVariable") {
      ScalarInstruction change{};
      change.op = update.op->name == "AssignAdd" ? ScalarOp::add : ScalarOp::sub;
      change.type = type;
      change.operand[0] = old;
      change.operand[1] = result;
      result = static_cast<std::int16_t>(program.code.size());
      program.code.push_back(change);
      if (!parts.empty()) add_part(parts, result, part_text(update.attrs));
    }
    set_parts(node.attrs, std::move(parts));
    program.results.push_back(result);
    node.op = &find_op("UpdateVariable");
    node.attrs.set("program", std::shared_ptr<const AttrObject>(std::make_shared<ProgramAttr>(
                                  std::make_shared<const ScalarProgram>(std::move(program)))));
    rewriter.replace(id, std::move(node));
  }

  const Program& program_;
  const Graph& g_;
  const std::vector<StateSpec>& states_;
  const bool may_repeat_;  // in a loop, perhaps
  std::vector<std::int32_t> users_;
  std::vector<char> has_order_;  // the node has a control edge in or out
  // by node with a state: the last node before it that writes the state
  std::vector<std::int32_t> written_before_;
};

}  // namespace

Program fuse_updates(Program program) {
  return Updates(program, program.graph.states(), false).run();
}
Program fuse_updates_in(const Program& sub_graph, const std::vector<StateSpec>& states) {
  return Updates(sub_graph, states, true).run();
}

}  // namespace troupe::detail
