#include <troupe/autodiff/forward_backward_split.hpp>

#include <algorithm>
#include <optional>

#include <troupe/functions.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {

ForwardBackwardSplit::ForwardBackwardSplit(std::shared_ptr<SubGraph> both, std::int32_t forward,
                                           std::vector<Edge> results, std::vector<Recompute> free)
    : both_(std::move(both)), forward_(forward), results_(std::move(results)),
      free_(std::move(free)), needed_(troupe::at(both_->graph.size()), 0), hoisted_(needed_) {
  find_needed();
  find_hoisted();
  find_saved();
}

bool ForwardBackwardSplit::is_constant(std::int32_t id) const {
  return graph().node(id).op->name == "Constant";
}

void ForwardBackwardSplit::find_needed() {
  for (Edge e : results_) needed_[troupe::at(e.node)] = 1;
  for (std::int32_t id = graph().size() - 1; id >= forward_; --id) {
    // a user's gradient function may have effects
    if (has_effect(graph().node(id))) needed_[troupe::at(id)] = 1;
    if (needed_[troupe::at(id)])
      for (Edge e : graph().node(id).inputs) needed_[troupe::at(e.node)] = 1;
  }
}

// True only for shapes and arithmetic on them: small values that replace possibly large ones.
bool ForwardBackwardSplit::can_be_hoisted(const Node& node) const {
  if (!node.op->is_pure() || node.op->evaluate || node.inputs.empty()) return false;
  for (const ValueSpec& s : node.outputs)
    if (s.is_list() || !is_integer(s.dtype) || !s.shape.has_rank() || s.shape.rank() > 1)
      return false;
  bool is_worth_it = false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    std::int32_t from = node.inputs[i].node;
    if (is_constant(from)) continue;
    if (!is_forward(from) ? !hoisted_[troupe::at(from)] : !node.op->takes_only_shape(i))
      return false;
    is_worth_it = is_worth_it || !is_forward(from) || !is_free(from);
  }
  return is_worth_it;
}

void ForwardBackwardSplit::find_hoisted() {
  for (std::int32_t id = forward_; id < graph().size(); ++id)
    hoisted_[troupe::at(id)] = needed_[troupe::at(id)] && can_be_hoisted(graph().node(id));
}

void ForwardBackwardSplit::use(Edge e, bool is_shape) {
  bool must_be_saved = is_forward(e.node) ? !is_free(e.node) : hoisted_[troupe::at(e.node)];
  if (!must_be_saved) return;
  is_shape = is_shape && !graph().spec(e).is_list();
  auto [it, is_new] = use_of_.emplace(e, uses_.size());
  if (is_new) uses_.emplace_back(e, is_shape);
  else uses_[it->second].second = uses_[it->second].second && is_shape;
}

// Forward nodes that are copied may have operands that are saved.
void ForwardBackwardSplit::use_operands_of_copies() {
  Flags is_copied(troupe::at(forward_), 0);
  const auto reach = [&](Edge e) {
    if (is_forward(e.node) && free_[troupe::at(e.node)] == Recompute::copied)
      is_copied[troupe::at(e.node)] = 1;
  };
  for (std::int32_t id = forward_; id < graph().size(); ++id) {
    const Node& node = graph().node(id);
    if (!needed_[troupe::at(id)] || hoisted_[troupe::at(id)]) continue;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (!node.op->takes_only_shape(i)) reach(node.inputs[i]);
  }
  for (Edge e : results_) reach(e);
  for (std::int32_t id = forward_ - 1; id >= 0; --id) {
    if (!is_copied[troupe::at(id)]) continue;
    const Node& node = graph().node(id);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      use(node.inputs[i], node.op->takes_only_shape(i));
      reach(node.inputs[i]);
    }
  }
}

void ForwardBackwardSplit::find_saved() {
  for (std::int32_t id = forward_; id < graph().size(); ++id) {
    const Node& node = graph().node(id);
    if (!needed_[troupe::at(id)] || hoisted_[troupe::at(id)]) continue;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      use(node.inputs[i], node.op->takes_only_shape(i));
  }
  for (Edge e : results_) use(e, false);
  use_operands_of_copies();
  for (auto& [e, is_shape] : uses_) {
    ValueSpec spec = graph().spec(e);
    if (is_shape && spec.shape.is_known()) continue;
    if (is_shape) spec = {DType::i64, Shape{spec.shape.has_rank() ? spec.shape.rank() : kAny}};
    saved_.push_back({e, is_shape, spec});
  }
}

std::shared_ptr<SubGraph> ForwardBackwardSplit::forward_part(Graph& outer,
                                                             std::vector<Edge>& saved) const {
  auto part = std::make_shared<SubGraph>(both_, outer, forward_);
  // Operands of saved values have smaller ids: they are found downwards, and appended upwards. No
  // recursion: they may be a long chain.
  Flags is_put(troupe::at(graph().size()), 0);
  for (const Saved& s : saved_) is_put[troupe::at(s.value.node)] = 1;
  for (std::int32_t id = graph().size() - 1; id >= forward_; --id)
    if (is_put[troupe::at(id)])
      for (Edge e : graph().node(id).inputs) is_put[troupe::at(e.node)] = 1;
  std::map<std::int32_t, std::int32_t> at;  // by node: the appended copy
  auto place = [&](std::int32_t id) { return is_forward(id) ? id : at.at(id); };
  for (std::int32_t id = forward_; id < graph().size(); ++id) {
    if (!is_put[troupe::at(id)]) continue;
    Node node = graph().node(id);
    for (Edge& e : node.inputs) e.node = place(e.node);
    node.controls.clear();
    at[id] = part->graph.append(std::move(node));
  }
  for (const Saved& s : saved_) {
    Edge value{place(s.value.node), s.value.output};
    saved.push_back(s.is_shape ? shape_of(part->graph.expr(value)).edge() : value);
  }
  return part;
}

bool ForwardBackwardSplit::is_saved_as(const Saved& saved, Edge edge) const {
  if (edge.node >= forward_) return false;
  const Node& there = graph().node(edge.node);
  if (saved.is_shape) return there.op->name == "ShapeOf" && there.inputs[0] == saved.value;
  if (is_forward(saved.value.node)) return saved.value == edge;
  const Node& node = graph().node(saved.value.node);
  return node.op == there.op && node.inputs == there.inputs && node.attrs == there.attrs &&
         saved.value.output == edge.output;
}

std::vector<Edge> ForwardBackwardSplit::backward_part(SubGraph& to,
                                                      const std::function<Expr(Edge)>& given,
                                                      const Exprs& restored) const {
  std::map<Edge, Edge> at, blanks;
  for (std::size_t i = 0; i < saved_.size(); ++i)
    if (!saved_[i].is_shape) at[saved_[i].value] = restored[i].edge();

  auto blank = [&](Edge e) {
    if (auto it = blanks.find(e); it != blanks.end()) return it->second;
    ValueSpec spec = graph().spec(e);
    Exprs shape;
    for (std::size_t i = 0; i < saved_.size(); ++i)
      if (saved_[i].is_shape && saved_[i].value == e) shape.push_back(restored[i]);
    Expr made = to.graph.bind(find_op("Blank"), shape,
                              Attrs{{"dtype", spec.dtype}, {"shape", spec.shape}}, Site())[0];
    return blanks[e] = made.edge();
  };
  // Returns the copy's edge if it exists or does not need a copy of its node; else none.
  auto known = [&](Edge e, bool is_shape) -> std::optional<Edge> {
    if (auto it = at.find(e); it != at.end()) return it->second;
    const bool is_given = is_forward(e.node) ? free_[troupe::at(e.node)] == Recompute::given
                                             : graph().node(e.node).op->name == "Input";
    if (is_given) return at[e] = given(e).edge();
    if (!is_forward(e.node) || is_free(e.node)) return {};
    if (!is_shape) throw Error(Code::internal, graph().describe(e.node) + " was to be saved");
    return blank(e);
  };
  // Copies a node after its operands, which may be a long chain: nodes that wait for their inputs
  // are on an explicit stack.
  struct Copying {
    std::int32_t id;
    Node node;
    std::size_t next = 0;  // index of its next input
  };
  std::vector<Copying> waiting;
  auto copy = [&](Edge wanted) -> Edge {
    if (auto e = known(wanted, false)) return *e;
    waiting.push_back({wanted.node, graph().node(wanted.node)});
    while (!waiting.empty()) {
      Copying& c = waiting.back();
      if (c.next < c.node.inputs.size()) {
        Edge& input = c.node.inputs[c.next];
        if (auto e = known(input, c.node.op->takes_only_shape(c.next))) input = *e, ++c.next;
        else waiting.push_back({input.node, graph().node(input.node)});
        continue;
      }
      c.node.controls.clear();
      const auto outputs = static_cast<std::int32_t>(c.node.outputs.size());
      const std::int32_t id = to.graph.append(std::move(c.node));
      for (std::int32_t o = 0; o < outputs; ++o) at.try_emplace({c.id, o}, Edge{id, o});
      waiting.pop_back();
    }
    return at.at(wanted);
  };
  for (std::int32_t id = forward_; id < graph().size(); ++id) {
    const Node& node = graph().node(id);
    if (!needed_[troupe::at(id)] || hoisted_[troupe::at(id)] || node.op->name == "Input") continue;
    if (node.outputs.empty()) throw Error(Code::internal, graph().describe(id) + " yields nothing");
    copy({id, 0});
  }
  std::vector<Edge> out;
  for (Edge e : results_) out.push_back(copy(e));
  return out;
}

}  // namespace troupe
