#include <troupe/actors/plan/pass_order.hpp>

#include <algorithm>
#include <chrono>
#include <map>

#include <fmt/format.h>

#include <troupe/controlflow/changed_functions.hpp>
#include <troupe/controlflow/check_nan_predicates.hpp>
#include <troupe/controlflow/drop_unused_outputs.hpp>
#include <troupe/controlflow/inline_branches.hpp>
#include <troupe/controlflow/inline_calls.hpp>
#include <troupe/controlflow/lower.hpp>
#include <troupe/controlflow/merge_variables.hpp>
#include <troupe/controlflow/move_invariant.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/mesh/cost.hpp>
#include <troupe/ops/mesh/instances.hpp>
#include <troupe/ops/mesh/join_all_reduces.hpp>
#include <troupe/ops/mesh/spmd.hpp>
#include <troupe/ops/passes/watch_finite.hpp>

namespace troupe {
namespace {

using Level = Pass::Level;

// A pass that treats every program alike.
template <Program (*pass)(Program)>
Program plain(Program program, Level, const PassRequest&) {
  return pass(std::move(program));
}

// Reads the caller's graph, which stays as it is, in the place of a program.
Program take_needed(Program, Level, const PassRequest& request) {
  return prune(request.graph, request.feeds, request.fetches, request.options.keep);
}

// Sub-graphs keep nodes with effects; the outermost graph does if the caller asks for it.
Program drop_unneeded(Program program, Level level, const PassRequest& request) {
  return prune(program.graph, program.feeds, program.fetches,
               level == Level::sub_graph ? Keep::effects : request.options.keep);
}

Program drop_unused_values(Program program, Level, const PassRequest& request) {
  return drop_unused_outputs(std::move(program), request.told);
}

Program move_invariant_nodes(Program program, Level, const PassRequest& request) {
  return move_invariant(std::move(program), request.told);
}

Program merge_equal_variables(Program program, Level, const PassRequest& request) {
  return merge_variables(std::move(program), request.told);
}

Program keep_loops_resident(Program program, Level, const PassRequest& request) {
  return keep_resident(std::move(program), request.options.resident, request.told);
}

Program lower_rest(Program program, Level, const PassRequest&) { return lower(std::move(program)); }

Program lower_precision(Program program, Level, const PassRequest& request) {
  return mixed_precision(program, *request.options.low);
}

Program cut_over_mesh(Program program, Level, const PassRequest& request) {
  mesh::detail::VariableHomes* const homes = request.options.homes;
  program.graph.reserve_origins(request.graph.origins());
  if (!request.options.mesh) return mesh::detail::join_variables(std::move(program), *homes, {});
  mesh::detail::SpmdProgram spmd = mesh::detail::to_spmd(program, *request.options.mesh, homes);
  spmd = mesh::detail::join_all_reduces(std::move(spmd));
  if (request.options.warnings) *request.options.warnings = spmd.warnings;
  if (request.told) {
    request.told->insert(request.told->end(), spmd.told.begin(), spmd.told.end());
    for (std::string& line : mesh::detail::explained(spmd, *request.options.mesh))
      request.told->push_back(std::move(line));
  }
  return mesh::detail::one_program(std::move(spmd));
}

// The nodes that all devices run become those of instances, if they can.
Program run_by_instances(Program program, Level, const PassRequest& request) {
  const auto& nodes = program.graph.nodes();
  if (std::none_of(nodes.begin(), nodes.end(),
                   [](const Node& n) { return n.device == mesh::detail::kEveryDevice; }))
    return program;
  const mesh::Mesh& mesh = request.options.mesh->mesh;
  const std::string why = mesh::detail::why_not_instances(program);
  const int hosts = mesh::detail::nodes_of(mesh);
  const std::string on = hosts > 1 ? fmt::format(" on {} nodes", hosts) : "";
  if (request.told)
    request.told->push_back(
        why.empty()
            ? fmt::format("{} devices{} run instances of one program", mesh.size(), on)
            : fmt::format("nodes are copied to {} devices{}, because {}", mesh.size(), on, why));
  return why.empty() ? mesh::detail::by_instances(program, mesh) : program;
}

// The first device has the values of those that all devices compute: others need not.
Program expand_over_mesh(Program program, Level, const PassRequest& request) {
  const auto& nodes = program.graph.nodes();
  if (std::none_of(nodes.begin(), nodes.end(),
                   [](const Node& n) { return n.device == mesh::detail::kEveryDevice; }))
    return program;
  program = mesh::detail::expand(program, request.options.mesh->mesh);
  if (request.options.optimize) program = drop_unused_outputs(std::move(program), nullptr);
  return prune(program.graph, program.feeds, program.fetches, request.options.keep);
}

// States keep their numbers through all passes; a sub-graph's program does not hold them.
Program fuse_updates_at(Program program, Level level, const PassRequest& request) {
  return level == Level::sub_graph ? fuse_updates_in(program, request.graph.states())
                                   : fuse_updates(std::move(program));
}

bool always(const PassOptions&) { return true; }
bool optimizing(const PassOptions& o) { return o.optimize; }
bool on_mesh(const PassOptions& o) {
  return o.mesh != nullptr || (o.homes != nullptr && o.homes->has_any);
}
bool over_devices(const PassOptions& o) { return o.mesh != nullptr; }
bool watching(const PassOptions& o) { return o.check_finite; }
bool choosing_loops(const PassOptions& o) {
  return o.resident.is_on || !o.resident.off_because.empty();
}
bool keeping_loops(const PassOptions& o) { return o.resident.is_on; }
bool in_low_precision(const PassOptions& o) { return o.optimize && o.low; }

constexpr auto kEverywhere = Pass::Scope::everywhere, kTopLevel = Pass::Scope::top_level;

constexpr Pass kPasses[] = {
    {"prune", "first: it takes what the fetches need from the caller's graph", kTopLevel, always,
     take_needed},
    {"drop_unused_outputs", "before all others: they need not look at what it removes", kTopLevel,
     optimizing, drop_unused_values},
    {"inline_branches",
     "after drop_unused_outputs, which drops what conditionals save for no gradient, and before "
     "mesh, which sums what a conditional yields",
     kEverywhere, always, plain<inline_branches>},
    {"mesh", "before all that joins nodes: its rules are those of single operations", kTopLevel,
     on_mesh, cut_over_mesh},
    {"fold_constants", "before simplify, which looks for constants", kEverywhere, optimizing,
     plain<fold_constants>},
    {"simplify", "before merge_common: fewer forms of one value", kEverywhere, optimizing,
     plain<simplify>},
    {"mixed_precision",
     "after fold_constants, which is exact, and before merge_common, which merges its casts",
     kEverywhere, in_low_precision, lower_precision},
    {"move_invariant",
     "after fold_constants and simplify, which reveal the initial values of loops, and before "
     "merge_common, which merges equal nodes of several loops",
     kEverywhere, optimizing, move_invariant_nodes},
    {"merge_variables",
     "after fold_constants and simplify, which reveal equal variables, and before merge_common, "
     "which merges what equal variables compute",
     kEverywhere, optimizing, merge_equal_variables},
    {"drop_unused_outputs",
     "after move_invariant and merge_variables, which leave variables that only feed themselves",
     kTopLevel, optimizing, drop_unused_values},
    {"merge_common", "before fusion, which hides what nodes have in common", kEverywhere,
     optimizing, plain<merge_common>},
    {"check_nan_predicates",
     "after all that decides in which bits a condition computes, so that the second look sees the "
     "same bits, and before fusion, which hides what it compares",
     kEverywhere, always, plain<check_nan_predicates>},
    {"name_parts", "before fusion, in which nodes lose their names", kEverywhere, watching,
     plain<name_parts>},
    {"fuse_pointwise", "after all that looks at single ops", kEverywhere, optimizing,
     plain<fuse_pointwise>},
    {"fuse_updates", "after fuse_pointwise, which makes one node of what an update is made of",
     kEverywhere, optimizing, fuse_updates_at},
    {"fuse_slices", "after fuse_pointwise: whole groups take their operands out of wider ones",
     kEverywhere, optimizing, plain<fuse_slices>},
    {"fuse_reductions",
     "last of those that also run in sub-graphs: what is left of the groups is known", kEverywhere,
     optimizing, plain<fuse_reductions>},
    {"prune",
     "after folding, merging and fusion, which leave nodes without users, and before "
     "order_updates, which waits for users",
     kEverywhere, always, drop_unneeded},
    {"order_updates", "after all fusion, which leaves nodes that others wait for alone", kTopLevel,
     optimizing, plain<order_updates>},
    {"order_gradients", "after order_updates, by which an update may wait for more", kTopLevel,
     optimizing, plain<order_gradients>},
    {"instances",
     "after all that looks at single nodes: they see one program, however many devices there are, "
     "and before the second mesh, which copies to the devices what cannot run by instances",
     kTopLevel, over_devices, run_by_instances},
    {"mesh",
     "after all that looks at single nodes: they see one program, however many devices there are",
     kTopLevel, over_devices, expand_over_mesh},
    {"inline_calls",
     "after check_nan_predicates, which looks into no call, and before keep_resident, which keeps "
     "no loop with a call",
     kTopLevel, keeping_loops, plain<inline_calls>},
    {"keep_resident",
     "after all that changes sub-graphs, and before lower, which takes the other loops apart",
     kEverywhere, choosing_loops, keep_loops_resident},
    {"lower",
     "last of those that change what is computed: the others see functional nodes as nodes, and "
     "keep the program order of effects that "
     "it makes explicit",
     kTopLevel, always, lower_rest},
    {"watch_finite", "after lower: it follows values through loops and calls", kTopLevel, watching,
     plain<watch_finite>},
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

// Applies a pass to a program, before that to the sub-graphs of its functional nodes and to the
// functions that it calls, each once. Programs are handed on, not copied.
class Everywhere {
 public:
  Everywhere(const Pass& pass, const PassRequest& request) : pass_(pass), request_(request) {}

  Program apply(Program program) {
    Program out = with_sub_graphs_changed(std::move(program));
    out = pass_.run(std::move(out), Level::outermost, request_);
    functions_.finish(out.graph, [&](const SubGraph& body) { return in_sub_graph(body); });
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
        node.attrs.set("function", refer_to(*functions_.made_of(*function)));
      std::vector<std::shared_ptr<const SubGraph>> graphs;
      for (const auto& sub : subgraphs_of(node)) graphs.push_back(in_sub_graph(*sub));
      if (!graphs.empty()) node.attrs.set("graphs", make_subgraphs(std::move(graphs)));
      rewriter.replace(id, std::move(node));
    }
    return rewriter.finish();
  }

  std::shared_ptr<const SubGraph> in_sub_graph(const SubGraph& sub) {
    Program changed =
        pass_.run(with_sub_graphs_changed(Program{sub.graph, sub.inputs, sub.outputs}),
                  Level::sub_graph, request_);
    auto fresh = std::make_shared<SubGraph>(std::move(changed.graph));
    fresh->inputs = std::move(changed.feeds);
    fresh->outputs = std::move(changed.fetches);
    return fresh;
  }

  const Pass& pass_;
  const PassRequest& request_;
  ChangedFunctions functions_;
};

void refuse_unknown(const std::vector<std::string>& skip) {
  for (const std::string& name : skip) {
    std::string known;
    bool found = false;
    for (const Pass& pass : kPasses) {
      if (pass.is_required()) continue;
      found = found || name == pass.name;
      if (known.find(pass.name) != std::string::npos) continue;  // it runs twice
      known += (known.empty() ? "" : ", ") + std::string(pass.name);
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
                 const std::vector<Edge>& fetches, const PassOptions& options,
                 const std::vector<std::string>& skip, std::vector<PassReport>* reports) {
  refuse_unknown(skip);
  if (options.low && !options.optimize)
    throw Error(Code::invalid_argument,
                "CompileOptions::mixed_precision is a pass, and CompileOptions::optimize or "
                "EngineOptions::optimize leaves out all of them; leave both at true, and name what "
                "is to be left out in skip_passes");
  if (!options.takes_lists) {
    refuse_lists(graph, feeds, "fed; feed the tensors it is made of");
    refuse_lists(graph, fetches, "fetched; fetch what is read from it, stacked or concatenated");
  }
  using Clock = std::chrono::steady_clock;
  std::vector<std::string> changes;
  const PassRequest request{graph, feeds, fetches, options, &changes};
  Program program;
  std::int32_t before = graph.size();
  for (const Pass& pass : kPasses) {
    if (!pass.enabled(request.options) ||
        (!pass.is_required() && std::find(skip.begin(), skip.end(), pass.name) != skip.end()))
      continue;
    const auto start = Clock::now();
    program = pass.scope == Pass::Scope::everywhere
                  ? Everywhere(pass, request).apply(std::move(program))
                  : pass.run(std::move(program), Level::outermost, request);
    verify(program, pass.name);
    const std::int32_t after = program.graph.size();
    if (reports)
      reports->push_back({pass.name, before, after,
                          std::chrono::duration<double>(Clock::now() - start).count(),
                          std::exchange(changes, {})});
    changes.clear();
    before = after;
  }
  return program;
}

}  // namespace troupe
