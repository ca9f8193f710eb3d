#include <troupe/controlflow/build.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/list/list.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/specs_attr.hpp>

namespace troupe {
namespace {

std::string capped(const std::string& name, const char* op) { return name.empty() ? op : name; }

}  // namespace

Operands SubGraphBuilder::add(std::string what, const std::vector<ValueSpec>& arguments,
                              const std::function<Operands(const Exprs&)>& build) {
  auto sub = std::make_shared<SubGraph>(outer_, std::move(what));
  struct Close {
    Graph& graph;
    ~Close() { graph.close(); }
  } close{sub->graph};
  Exprs in;
  for (const ValueSpec& spec : arguments) {
    in.push_back(sub->graph.argument(spec, site_));
    sub->inputs.push_back(in.back().edge());
  }
  graphs_.push_back(sub);
  Operands out = build(in);
  for (Operand& o : out) {
    if (o.is_number()) continue;
    Expr e = o.is_expr() ? o.expr() : Expr(nullptr, o.literal());
    if (!o.is_expr() || &e.reader() != &sub->graph)
      o = Operand(sub->graph.adopt(e, o.site()), o.site());
  }
  return out;
}

Expr SubGraphBuilder::argument(int i, const ValueSpec& spec) {
  SubGraph& sub = *graphs_[static_cast<std::size_t>(i)];
  Expr e = sub.graph.argument(spec, site_);
  sub.inputs.push_back(e.edge());
  return e;
}

void SubGraphBuilder::set_outputs(int i, const Operands& results,
                                  const std::vector<DType>& dtypes) {
  SubGraph& sub = *graphs_[static_cast<std::size_t>(i)];
  for (std::size_t k = 0; k < results.size(); ++k) {
    const Operand& o = results[k];
    Expr e =
        o.is_number()
            ? sub.graph.adopt(
                  Expr(nullptr,
                       o.number_as(dtypes[k], fmt::format("{}: value {} ", sub.graph.what(), k))),
                  o.site())
            : o.expr();
    sub.outputs.push_back(e.edge());
  }
}

ValueSpec SubGraphBuilder::output_spec(int i, std::size_t output) const {
  const SubGraph& sub = *graphs_[static_cast<std::size_t>(i)];
  return sub.graph.spec(sub.outputs[output]);
}

Exprs SubGraphBuilder::finish() {
  Exprs all;
  for (const auto& sub : graphs_) {
    for (const Graph::Capture& c : sub->graph.captures()) {
      if (sub->graph.node(c.inner.node).op->name == "Constant") continue;
      if (std::none_of(all.begin(), all.end(),
                       [&](const Expr& e) { return e.edge() == c.outer.edge(); }))
        all.push_back(c.outer);
    }
    controls_.insert(controls_.end(), sub->graph.outer_controls().begin(),
                     sub->graph.outer_controls().end());
  }
  for (const auto& sub : graphs_) {
    for (const Expr& e : all) {
      const auto& captures = sub->graph.captures();
      auto it = std::find_if(captures.begin(), captures.end(),
                             [&](const Graph::Capture& c) { return c.outer.edge() == e.edge(); });
      sub->inputs.push_back(it != captures.end() ? it->inner
                                                 : sub->graph.argument(e.spec(), site_).edge());
    }
    sub->graph.seal();
  }
  return all;
}

ValueSpec common_spec(const ValueSpec& a, const ValueSpec& b) {
  if (a.depth == ValueSpec::kAnyDepth && b.depth == ValueSpec::kAnyDepth) return a;
  if (a.depth != b.depth || a.dtype != b.dtype)
    throw Error(Code::invalid_argument, fmt::format("{} and {}", a.text(), b.text()));
  return {a.dtype, a.shape.common(b.shape), a.depth};
}

Value implicit_value(const ValueSpec& spec) {
  if (spec.is_list()) return List(spec.dtype, spec.shape, spec.depth);
  return Tensor::scalar_as(spec.dtype, 0);
}

namespace {

// Binds with the scope's name and the sub-graphs' outer controls.
Exprs bind_after(Graph& graph, const char* op, const Exprs& inputs, Attrs attrs,
                 const std::vector<std::int32_t>& controls, const Site& site) {
  std::vector<std::unique_ptr<Graph::Scope>> scopes;
  for (std::int32_t c : controls)
    scopes.emplace_back(new Graph::Scope(graph.after({Expr(&graph, Edge{c, 0})})));
  return graph.bind(find_op(op), inputs, std::move(attrs), site);
}

}  // namespace

Exprs bind_while(Graph& graph, const WhileParts& p, const Site& site) {
  Exprs inputs = p.initial;
  inputs.insert(inputs.end(), p.captures.begin(), p.captures.end());
  Attrs attrs{{"graphs", make_subgraphs(p.graphs)},
              {"variables", static_cast<std::int64_t>(p.initial.size())},
              {"implicit", make_specs_attr(p.implicit)},
              {"parallel_iterations", std::int64_t{p.parallel_iterations}},
              {"back_prop", p.back_prop},
              {"label", capped(p.name, "while_loop")}};
  return bind_after(graph, "While", inputs, std::move(attrs), p.controls, site);
}

Exprs bind_case(Graph& graph, const Expr& index,
                std::vector<std::shared_ptr<const SubGraph>> branches, const Exprs& captures,
                const std::string& name, const std::vector<std::int32_t>& controls,
                const Site& site, bool recomputes) {
  Exprs inputs{index};
  inputs.insert(inputs.end(), captures.begin(), captures.end());
  const auto results = static_cast<std::int64_t>(branches[0]->outputs.size());
  Attrs attrs{{"graphs", make_subgraphs(std::move(branches))},
              {"results", results},
              {"label", capped(name, "cond")}};
  if (recomputes) attrs.set("recompute", true);
  return bind_after(graph, "Case", inputs, std::move(attrs), controls, site);
}

Exprs bind_call(Graph& graph, const FunctionDef& function, const Exprs& inputs, const Site& site) {
  return graph.bind(find_op("Call"), inputs, Attrs{{"function", refer_to(function)}}, site);
}

ValueSpec any_list() { return {DType::f32, Shape::unknown(), ValueSpec::kAnyDepth}; }

WhileView::WhileView(const Node& node)
    : condition(*subgraphs_of(node)[0]), body(*subgraphs_of(node)[1]),
      variables(static_cast<int>(body.outputs.size())),
      explicit_variables(static_cast<int>(node.attrs.get<std::int64_t>("variables"))),
      captures(static_cast<int>(node.inputs.size()) - explicit_variables),
      implicit(static_cast<const SpecsAttr&>(
                   *node.attrs.get<std::shared_ptr<const AttrObject>>("implicit"))
                   .specs),
      parallel_iterations(static_cast<int>(node.attrs.get<std::int64_t>("parallel_iterations"))),
      back_prop(node.attrs.get<bool>("back_prop")),
      numbers(node.attrs.get_or<std::vector<std::int64_t>>("numbers", {})) {}

double predicate_of(const Node& node, const Tensor& value) {
  if (value.shape().elements() != 1)
    throw Error(
        Code::invalid_argument,
        fmt::format("{} '{}' ({}): its predicate must be a scalar, not {}", node.op->name,
                    node.attrs.get<std::string>("label"), node.site.text(), value.shape().text()));
  return value.at(0);
}

bool has_loops(const Program& program) {
  const auto& nodes = program.graph.nodes();
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const Node& n) { return n.op->name == "While"; });
}

Program change_loops(Program program, const std::function<void(const ChangedLoop&)>& change) {
  if (!has_loops(program)) return program;
  Rewriter rewriter(program);
  for (std::int32_t id = 0; id < program.graph.size(); ++id) {
    Node node = rewriter.translated(id);
    if (node.op->name == "While") change({node, rewriter, program.graph, id});
    rewriter.replace(id, std::move(node));
  }
  return rewriter.finish();
}

void declare_loop_attributes(OpBuilder& op) {
  op.attr<std::int64_t>("variables");
  op.attr<std::shared_ptr<const AttrObject>>("implicit");
  op.attr<std::int64_t>("parallel_iterations", 32);
  op.attr<bool>("back_prop", true);
  op.attr<std::string>("label");
  // by which errors name its variables, if a pass has removed others
  op.attr<std::vector<std::int64_t>>("numbers", {});
  op.attr<std::string>("compared", "");  // by the condition, where a pass has added a check of it
}

}  // namespace troupe
