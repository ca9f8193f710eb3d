// Loop variables to which each iteration adds: gradients of values from outside, losses of parts of
// a batch. If the summands are partial, so is the variable, and devices sum once, after the loop. A
// variable without names is then on the devices too, and not in one place.
//
//   acc = acc + dw      dw: partial over `data`      acc: partial over `data` in all iterations
#include <troupe/ops/mesh/lowering.hpp>

#include <algorithm>

#include <troupe/devices/base/internal.hpp>

namespace troupe::mesh::detail {
namespace {

bool only_names(const Node& n) {
  return n.op->name == "NameDims" || n.op->name == "EnsureShape" || n.op->name == "Identity";
}

bool are_zeros(const Tensor& t) {
  constexpr std::int64_t kMost = 1 << 16;
  if (t.dtype() == DType::string || t.elements() > kMost) return false;
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (t.at(i) != 0) return false;
  return true;
}

// How often nodes and results of a sub-graph take each value.
std::map<Edge, int> uses_in(const SubGraph& sub) {
  std::map<Edge, int> uses;
  for (const Node& n : sub.graph.nodes())
    for (Edge e : n.inputs) ++uses[e];
  for (Edge e : sub.outputs) ++uses[e];
  return uses;
}

bool is_plain_add(const Node& n) {
  return n.op->name == "Add" && n.device.empty() && n.controls.empty();
}

}  // namespace

bool Lowering::is_zero(Edge e) const {
  const Node* n = &from_.node(e.node);
  while (only_names(*n)) n = &from_.node(n->inputs[0].node);
  if (n->op->name == "Constant" || n->op->name == "Fill")
    return are_zeros(n->attrs.get<Tensor>("value"));
  return n->op->name == "FillLike" && n->attrs.get<double>("value") == 0;
}

Lowering::Accumulators Lowering::accumulators_of(const LoopParts& parts) const {
  Accumulators found;
  const Graph& body = parts.body.graph;
  const std::map<Edge, int> uses = uses_in(parts.body), in_condition = uses_in(parts.condition);
  for (std::size_t k = 0; k < parts.variables; ++k) {
    const ValueSpec& spec = parts.spec(k);
    const Edge variable = parts.body.inputs[k];
    const auto count = uses.find(variable);
    if (spec.is_list() || !spec.shape.is_known() || !is_floating(spec.dtype) ||
        count == uses.end() || count->second != 1 ||
        in_condition.contains(parts.condition.inputs[k]) ||
        (k < parts.given && !is_zero(node().inputs[k])))
      continue;
    // From the variable's one use along values that have one use each, to the next value.
    Accumulator sum;
    Edge at = variable;
    for (std::int32_t id = variable.node + 1; id < body.size() && at != parts.body.outputs[k];
         ++id) {
      const Node& n = body.node(id);
      const auto input = std::find(n.inputs.begin(), n.inputs.end(), at);
      if (input == n.inputs.end()) continue;
      if (!is_plain_add(n) && !only_names(n)) break;
      if (is_plain_add(n) && sum.add < 0) {
        sum.add = id;
        sum.input = static_cast<std::size_t>(input - n.inputs.begin());
      }
      at = {id, 0};
      if (const auto next = uses.find(at); next == uses.end() || next->second != 1) break;
    }
    if (at == parts.body.outputs[k] && sum.add >= 0) found.emplace(k, std::move(sum));
  }
  return found;
}

Lowering::Accumulator* Lowering::accumulator_here() {
  if (!accumulators_) return nullptr;
  for (auto& [k, sum] : *accumulators_)
    if (sum.add == at_) return &sum;
  return nullptr;
}

// The variable's value is partial as the summand is, if their sum may stay so.
void Lowering::begin_sum(const Accumulator& sum) {
  Laid& variable = input(sum.input);
  const Laid& summand = input(1 - sum.input);
  const bool are_alike =
      variable.splits == summand.splits || (!variable.has_splits() && !summand.has_splits());
  if (are_alike && !summand.is_once && !summand.is_constant &&
      variable.axes.size() == summand.axes.size())
    variable.is_partial = summand.is_partial;
}

void Lowering::end_sum(Accumulator& sum, const std::vector<char>& partial) {
  Laid& variable = input(sum.input);
  if (partial != variable.is_partial)
    variable.is_partial.assign(static_cast<std::size_t>(mesh_.rank()), 0);
  if (variable.has_partials()) sum.is_partial = partial;
  // A variable without names would have to follow a summand in one place to all devices.
  sum.is_apart = !input(1 - sum.input).is_once || names_.has_name(variable.axes);
}

// The next value of an accumulator that is partial.
std::optional<Lowering::Edge> Lowering::partial_result(std::size_t variable, Edge e,
                                                       const Laid& wanted) {
  if (!accumulators_) return std::nullopt;
  const auto it = accumulators_->find(variable);
  if (it == accumulators_->end() || it->second.is_partial.empty()) return std::nullopt;
  const Laid& v = value(e);
  if (v.is_partial == it->second.is_partial && v.splits == wanted.splits && !v.is_once)
    return v.edge;
  it->second.is_apart = false;
  return std::nullopt;
}

}  // namespace troupe::mesh::detail
