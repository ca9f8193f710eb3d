#include <troupe/actors/plan/pipeline.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>

#include <fmt/format.h>

#include <troupe/controlflow/drop_unused.hpp>
#include <troupe/controlflow/lower.hpp>
#include <troupe/controlflow/watch_predicates.hpp>
#include <troupe/ops/graph/function_def.hpp>

namespace troupe {
namespace {

constexpr Pass kPasses[] = {
    {"drop_unused", "first: what it removes need not be looked at", drop_unused},
    {"fold_constants", "before simplify, which looks for constants", fold_constants},
    {"simplify", "before merge_common: fewer forms of one value", simplify},
    {"merge_common", "before fusion, which hides what nodes have in common", merge_common},
    {"watch_predicates",
     "after what decides in which bits a condition computes, so that what is looked at once more "
     "is the same, and before fusion, which hides what it compares",
     watch_predicates, true},
    {"fuse_pointwise", "after all that looks at single ops", fuse_pointwise},
    {"fuse_updates", "after fuse_pointwise, which makes one node of what an update is made of",
     fuse_updates},
    {"fuse_slices", "after fuse_pointwise: whole groups take their operands out of wider ones",
     fuse_slices},
    {"fuse_reductions",
     "last of those that also run in sub-graphs: what is left of the groups is known",
     fuse_reductions},
    {"order_updates", "after all fusion, which leaves nodes that others wait for alone",
     order_updates},
    {"order_gradients", "after order_updates, by which an update may wait for more",
     order_gradients},
    {"lower",
     "last: the others see functional nodes as nodes, and keep the program order of effects that "
     "it makes explicit",
     lower, true},
};

void verify(const Program& p, const char* pass) {
  auto check = [&](bool holds, std::int32_t id, const char* what) {
    if (!holds)
      throw Error(Code::internal,
                  fmt::format("pass {} left a program where {} of node {}", pass, what, id));
  };
  for (std::int32_t id = 0; id < p.graph.size(); ++id) {
    const Node& n = p.graph.node(id);
    for (Edge e : n.inputs) {
      check(e.node >= 0 && e.node < id, id, "an input does not precede its user: input");
      check(e.output < static_cast<std::int32_t>(p.graph.node(e.node).outputs.size()), id,
            "an input names no output: input");
    }
    for (std::int32_t c : n.controls)
      check(c >= 0 && c < id, id, "a control edge does not precede its user: control edge");
  }
  for (Edge e : p.fetches)
    check(e.node >= 0 && e.node < p.graph.size(), e.node, "a fetch is missing: fetch");
}

bool is_functional(const Node& node) { return bool(node.op->evaluate); }

// Applies `change` to a program, before that to the sub-graphs of its functional nodes and to the
// functions that it calls, each once. Programs are handed on, not copied.
class Everywhere {
 public:
  using Change = std::function<Program(Program)>;
  enum class Whom : std::uint8_t { all, sub_graphs };
  explicit Everywhere(Change change, Whom whom = Whom::all)
      : change_(std::move(change)), whom_(whom) {}

  Program apply(Program program) {
    Program out = with_sub_graphs_changed(std::move(program));
    if (whom_ == Whom::all) out = change_(std::move(out));
    std::vector<std::shared_ptr<FunctionDef>> functions;
    for (auto& [from, made] : made_) functions.push_back(made);
    analyse(functions);
    out.graph.set_functions(std::move(functions));
    return out;
  }

 private:
  Program with_sub_graphs_changed(Program program) {
    if (std::none_of(program.graph.nodes().begin(), program.graph.nodes().end(), is_functional))
      return program;
    Rewriter rewriter(program);
    for (std::int32_t id = 0; id < program.graph.size(); ++id) {
      Node node = rewriter.translated(id);
      if (const FunctionDef* function = function_of(node))
        node.attrs.set("function", refer_to(*made_of(*function)));
      std::vector<std::shared_ptr<const SubGraph>> graphs;
      for (const auto& sub : subgraphs_of(node)) graphs.push_back(in_sub_graph(*sub));
      if (!graphs.empty()) node.attrs.set("graphs", make_subgraphs(std::move(graphs)));
      rewriter.replace(id, std::move(node));
    }
    return rewriter.finish();
  }

  std::shared_ptr<const SubGraph> in_sub_graph(const SubGraph& sub) {
    Program changed = change_(with_sub_graphs_changed(Program{sub.graph, sub.inputs, sub.outputs}));
    auto fresh = std::make_shared<SubGraph>(std::move(changed.graph));
    fresh->inputs = std::move(changed.feeds);
    fresh->outputs = std::move(changed.fetches);
    return fresh;
  }

  // There before its body is: a call of it may be in there.
  FunctionDef* made_of(const FunctionDef& function) {
    auto [it, is_new] = made_.try_emplace(&function);
    if (!is_new) return it->second.get();
    FunctionDef* made = (it->second = std::make_shared<FunctionDef>(function)).get();
    made->derived.clear();
    if (function.base) made->base = made_of(*function.base);
    if (function.body) made->body = in_sub_graph(*function.body);
    return made;
  }

  const Change change_;
  const Whom whom_;
  std::map<const FunctionDef*, std::shared_ptr<FunctionDef>> made_;
};

// Sub-graphs keep what has effects, the outermost graph only what its fetches need.
Program prune_all(Program program) {
  Program inner =
      Everywhere([](const Program& p) { return prune(p.graph, p.feeds, p.fetches, Keep::effects); },
                 Everywhere::Whom::sub_graphs)
          .apply(std::move(program));
  return prune(inner.graph, inner.feeds, inner.fetches, Keep::fetches);
}

Program fuse_all_updates(Program program) {
  const Graph states = program.graph.blank();
  return fuse_updates(
      Everywhere([&](const Program& p) { return fuse_updates_in(p, states.states()); },
                 Everywhere::Whom::sub_graphs)
          .apply(std::move(program)));
}

void refuse_unknown(const std::vector<std::string>& skip) {
  for (const std::string& name : skip) {
    std::string known;
    bool found = false;
    for (const Pass& pass : kPasses) {
      if (pass.is_required) continue;
      known += (known.empty() ? "" : ", ") + std::string(pass.name);
      found = found || name == pass.name;
    }
    if (!found)
      throw Error(Code::invalid_argument, fmt::format("CompileOptions::skip_passes: there is no "
                                                      "pass '{}' that can be skipped; there are {}",
                                                      name, known));
  }
}

void refuse_lists(const Graph& graph, const std::vector<Edge>& edges, const char* why) {
  for (Edge e : edges)
    if (graph.spec(e).is_list())
      throw Error(Code::invalid_argument,
                  fmt::format("{} yields a list, which is not {}", graph.describe(e.node), why));
}

}  // namespace

std::span<const Pass> passes() { return kPasses; }

Program optimize(const Graph& graph, const std::vector<Edge>& feeds,
                 const std::vector<Edge>& fetches, bool all_passes,
                 const std::vector<std::string>& skip, std::vector<PassReport>* reports,
                 std::optional<DType> low) {
  refuse_unknown(skip);
  if (low && !all_passes)
    throw Error(Code::invalid_argument,
                "CompileOptions::mixed_precision is a pass, and CompileOptions::optimize or "
                "EngineOptions::optimize leaves out all of them; leave both at true, and name what "
                "is to be left out in skip_passes");
  refuse_lists(graph, feeds, "fed; feed the tensors it is made of");
  refuse_lists(graph, fetches, "fetched; fetch what is read from it, stacked or concatenated");
  using Clock = std::chrono::steady_clock;
  auto report = [&](const char* name, std::int32_t before, std::int32_t after,
                    Clock::time_point start) {
    if (reports)
      reports->push_back(
          {name, before, after, std::chrono::duration<double>(Clock::now() - start).count()});
  };
  auto start = Clock::now();
  Program program = prune(graph, feeds, fetches);
  report("prune", graph.size(), program.graph.size(), start);
  bool is_pruned = false;  // once more, behind what leaves nodes without users
  for (const Pass& pass : kPasses) {
    bool skipped = !all_passes || std::find(skip.begin(), skip.end(), pass.name) != skip.end();
    if (low && all_passes && pass.run == merge_common) {
      start = Clock::now();
      std::int32_t before = program.graph.size();
      program = Everywhere([low](const Program& p) {
                  return mixed_precision(p, *low);
                }).apply(std::move(program));
      verify(program, "mixed_precision");
      report("mixed_precision", before, program.graph.size(), start);
    }
    if (skipped && !pass.is_required) continue;
    // what folding and merging left without users goes
    if (!is_pruned &&
        (pass.run == order_updates || pass.run == order_gradients || pass.run == lower)) {
      is_pruned = true;
      start = Clock::now();
      std::int32_t before = program.graph.size();
      program = prune_all(std::move(program));
      report("prune", before, program.graph.size(), start);
    }
    start = Clock::now();
    std::int32_t before = program.graph.size();
    program = pass.run == lower || pass.run == order_updates || pass.run == order_gradients
                  ? pass.run(std::move(program))
              : pass.run == fuse_updates ? fuse_all_updates(std::move(program))
                                         : Everywhere(pass.run).apply(std::move(program));
    verify(program, pass.name);
    report(pass.name, before, program.graph.size(), start);
  }
  return program;
}

}  // namespace troupe
