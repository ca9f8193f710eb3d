#include <troupe/ops/mesh/flow.hpp>

#include <map>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/specs_attr.hpp>

namespace troupe::mesh::detail {
namespace {

const std::vector<ValueSpec>& implicit_of(const Node& node) {
  const auto& object = node.attrs.get<std::shared_ptr<const AttrObject>>("implicit");
  return static_cast<const SpecsAttr&>(*object).specs;
}

// Inputs, a blank, outputs: L a list, E an element, S elements along a new axis, I other values.
const std::map<std::string_view, std::string_view>& roles() {
  static const std::map<std::string_view, std::string_view> known{
      {"ListEmpty", " L"},        {"ListReserve", "I L"},      {"ListPush", "LE L"},
      {"ListPop", "L LE"},        {"ListRead", "LI E"},        {"ListReadLike", "LIE E"},
      {"ListWrite", "LIE L"},     {"ListPut", "LIE L"},        {"ListAccumulate", "LIE L"},
      {"ListTake", "LIE LE"},     {"ListErase", "LI L"},       {"ListSum", "LL L"},
      {"ListStack", "L S"},       {"ListStackLike", "LS S"},   {"ListUnstack", "S L"},
      {"ListGather", "LI S"},     {"ListGatherLike", "LIS S"}, {"ListScatter", "LIS L"},
      {"ListScatterAdd", "LIS L"}};
  return known;
}

}  // namespace

LoopParts::LoopParts(const Node& node)
    : condition(*subgraphs_of(node)[0]), body(*subgraphs_of(node)[1]),
      given(static_cast<std::size_t>(node.attrs.get<std::int64_t>("variables"))),
      variables(body.outputs.size()), captures(body.inputs.size() - variables),
      implicit(implicit_of(node)) {}

const ValueSpec& LoopParts::spec(std::size_t variable) const {
  return body.graph.spec(body.inputs[variable]);
}

// A loop with a check of its end is not cut: a later pass adds the check.
bool is_loop(const Node& node) {
  return node.op->name == "While" && subgraphs_of(node).size() == 2;
}
bool is_branch(const Node& node) { return node.op->name == "Case"; }

std::optional<ListRoles> list_roles(const Node& node) {
  if (node.op->name == "EnsureShape" && node.outputs[0].is_list())
    return ListRoles{{ListRole::list}, {ListRole::list}};
  const auto it = roles().find(node.op->name);
  if (it == roles().end()) return std::nullopt;
  ListRoles made;
  std::vector<ListRole>* part = &made.inputs;
  for (const char c : it->second) {
    if (c == ' ') part = &made.outputs;
    else
      part->push_back(c == 'L'   ? ListRole::list
                      : c == 'E' ? ListRole::element
                      : c == 'S' ? ListRole::stacked
                                 : ListRole::other);
  }
  made.inputs.resize(node.inputs.size(), ListRole::other);  // the last may be left out
  return made;
}

bool is_list_product(const Node& node) { return node.op->name == "ListProduct"; }

bool has_axes(const ValueSpec& spec) {
  return spec.depth <= 1 && spec.shape.is_known() && spec.dtype != DType::string;
}

}  // namespace troupe::mesh::detail
