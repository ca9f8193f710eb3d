#include <algorithm>

#include <troupe/autodiff/control_step.hpp>
#include <troupe/controlflow/list_ops.hpp>

namespace troupe {
namespace control {

Expr refined(const Expr& e, const ValueSpec& spec) {
  ValueSpec is = e.spec();
  if (is.depth == ValueSpec::kAnyDepth || spec.covers(is)) return e;
  return e.reader().bind(find_op("EnsureShape"), std::span<const Expr>(&e, 1), attrs_of(spec),
                         Site())[0];
}

Expr OuterValues::in(std::size_t i, SubGraph& sub, const Expr& outer, const ValueSpec& spec) {
  auto& graph = static_cast<Graph&>(outer.reader());
  const Node& source = graph.node(outer.edge().node);
  if (source.op->name == "Constant" && source.controls.empty() &&
      !carries_gradient(source.outputs[0].dtype)) {
    graph.build_on(outer.edge());
    return sub.graph.constant(source.attrs.get<Tensor>("value"));
  }
  const auto [place, is_unknown] =
      place_.emplace(std::pair{&outer.reader(), outer.edge()}, values_.size());
  const std::size_t k = place->second;
  if (is_unknown) {
    values_.push_back(outer);
    specs_.push_back(spec);
  }
  auto [it, is_new] = arguments_[i].emplace(k, Edge{});
  if (is_new) it->second = sub.graph.argument(spec, Site()).edge();
  return sub.graph.expr(it->second);
}

}  // namespace control

std::size_t captures_begin(const Node& node) {
  if (node.op->name == "Call") return node.inputs.size();
  return node.op->name == "While"
             ? static_cast<std::size_t>(node.attrs.get<std::int64_t>("variables"))
             : 1;
}

ControlCotangents differentiate_control(const ControlStep& step) {
  const std::string& op = step.graph.node(step.id).op->name;
  if (op == "While") return control::differentiate_while(step);
  if (op == "Case") return control::differentiate_case(step);
  if (op == "Call") return control::differentiate_call(step);
  throw Error(Code::unimplemented, op + " has no gradient");
}

}  // namespace troupe
