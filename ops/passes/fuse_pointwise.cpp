#include <troupe/ops/program.hpp>

#include <troupe/ops/pointwise.hpp>

// A pointwise node whose every consumer is one and the same pointwise node joins it: the tree that
// ends in the last consumer becomes one node `Fused`. Joining needs equal shapes as far as they are
// known: a small operand that is broadcast would be recomputed for every element.

namespace troupe {
namespace {

constexpr std::size_t kMaxInputs = 8;      // of a fused node
constexpr std::size_t kMaxInstructions = 96;

struct Use {
  std::int32_t consumer = -1;  // the only one, if `count` is 1
  int count = 0;
};

std::shared_ptr<const ScalarProgram> program_of(const Graph& g, const Node& n) {
  if (n.op->name == "Fused")
    return static_cast<const ProgramAttr&>(*n.attrs.get<std::shared_ptr<const AttrObject>>("program")).program;
  DType types[3];
  for (std::size_t i = 0; i < n.inputs.size(); ++i) types[i] = g.spec(n.inputs[i]).dtype;
  return n.op->pointwise->program({types, n.inputs.size()}, n.attrs);
}

// Removes inputs that occur twice.
void unify_inputs(std::vector<Edge>& inputs, ScalarProgram& program) {
  std::vector<Edge> kept;
  std::vector<std::int16_t> moved;
  std::vector<DType> types;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::size_t k = 0;
    while (k < kept.size() && kept[k] != inputs[i]) ++k;
    if (k == kept.size()) {
      kept.push_back(inputs[i]);
      types.push_back(program.inputs[i]);
    }
    moved.push_back(static_cast<std::int16_t>(k));
  }
  for (ScalarInstruction& i : program.code)
    if (i.op == ScalarOp::input) i.operand[0] = moved[static_cast<std::size_t>(i.operand[0])];
  inputs = std::move(kept);
  program.inputs = std::move(types);
}

}  // namespace

Program fuse_pointwise(const Program& program) {
  const Graph& g = program.graph;
  std::vector<Use> uses(static_cast<std::size_t>(g.size()));
  for (std::int32_t id = 0; id < g.size(); ++id) {
    for (Edge e : g.node(id).inputs) {
      Use& u = uses[static_cast<std::size_t>(e.node)];
      if (u.consumer != id) ++u.count;
      u.consumer = id;
    }
    for (std::int32_t c : g.node(id).controls) uses[static_cast<std::size_t>(c)].count += 2;  // must stay a node
  }
  for (Edge e : program.fetches) uses[static_cast<std::size_t>(e.node)].count += 2;

  // absorbed[id]: id is computed inside its only consumer.
  std::vector<char> absorbed(static_cast<std::size_t>(g.size()), 0);
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    const Use& u = uses[static_cast<std::size_t>(id)];
    if (!n.op->pointwise || u.count != 1 || !n.controls.empty()) continue;
    const Node& consumer = g.node(u.consumer);
    if (!consumer.op->pointwise || consumer.device != n.device) continue;
    const Shape &mine = n.outputs[0].shape, &theirs = consumer.outputs[0].shape;
    if (!mine.has_rank() || !(mine == theirs)) continue;
    absorbed[static_cast<std::size_t>(id)] = 1;
  }

  Rewriter rewriter(program);
  struct Pending {
    std::vector<Edge> inputs;  // new edges
    std::shared_ptr<const ScalarProgram> program;
  };
  std::vector<Pending> pending(static_cast<std::size_t>(g.size()));
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const Node& old = g.node(id);
    if (!old.op->pointwise) {
      rewriter.keep(id);
      continue;
    }
    Pending mine{{}, program_of(g, old)};
    bool joined = false;
    std::vector<Edge> inputs = old.inputs;  // old edges, until resolved
    // Absorb the operands that were marked, unless the node would grow past its bounds.
    std::vector<Edge> resolved(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (!absorbed[static_cast<std::size_t>(inputs[i].node)]) resolved[i] = rewriter.at(inputs[i]);
    std::vector<std::int32_t> producers(inputs.size(), -1);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (absorbed[static_cast<std::size_t>(inputs[i].node)]) producers[i] = inputs[i].node;
    for (std::size_t i = 0; i < producers.size();) {
      if (producers[i] < 0) {
        ++i;
        continue;
      }
      Pending& producer = pending[static_cast<std::size_t>(producers[i])];
      std::int32_t from = producers[i];
      bool fits = resolved.size() - 1 + producer.inputs.size() <= kMaxInputs &&
                  mine.program->code.size() + producer.program->code.size() <= kMaxInstructions;
      if (fits) {
        mine.program = std::make_shared<const ScalarProgram>(compose(*mine.program, static_cast<int>(i), *producer.program));
        resolved.erase(resolved.begin() + static_cast<std::ptrdiff_t>(i));
        producers.erase(producers.begin() + static_cast<std::ptrdiff_t>(i));
        for (Edge e : producer.inputs) {
          resolved.push_back(e);
          producers.push_back(-1);
        }
        joined = true;
        // The same producer twice (x * x): both become the same instructions; unified below.
        continue;
      }
      // Too large: the producer becomes a node after all.
      if (rewriter.control_at(from) < 0) {
        Node node = g.node(from);
        if (producer.program->code.size() != program_of(g, node)->code.size() || node.inputs.size() != producer.inputs.size()) {
          node.op = &find_op("Fused");
          node.attrs = Attrs{{"program", std::shared_ptr<const AttrObject>(std::make_shared<ProgramAttr>(producer.program))}};
        }
        node.inputs = producer.inputs;
        rewriter.replace(from, std::move(node));
      }
      resolved[i] = rewriter.at(Edge{from, 0});
      producers[i] = -1;
      ++i;
    }
    if (joined) {
      ScalarProgram unified = *mine.program;
      unify_inputs(resolved, unified);
      mine.program = std::make_shared<const ScalarProgram>(std::move(unified));
    }
    mine.inputs = resolved;
    if (absorbed[static_cast<std::size_t>(id)]) {
      pending[static_cast<std::size_t>(id)] = std::move(mine);
      continue;
    }
    Node node = rewriter.translated(id);
    node.inputs = mine.inputs;
    if (joined) {
      node.op = &find_op("Fused");
      node.attrs = Attrs{{"program", std::shared_ptr<const AttrObject>(std::make_shared<ProgramAttr>(mine.program))}};
    }
    rewriter.replace(id, std::move(node));
  }
  return rewriter.finish();
}

}  // namespace troupe
