#include <troupe/actors/plan_part.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <troupe/ops/function_def.hpp>
#include <troupe/ops/node_index.hpp>
#include <troupe/ops/op.hpp>
#include <troupe/ops/specs_attr.hpp>

namespace troupe {
namespace {

std::map<std::int32_t, std::int32_t> numbered(const std::vector<Edge>& feeds) {
  std::map<std::int32_t, std::int32_t> fed;
  for (Edge e : feeds) fed.emplace(e.node, static_cast<std::int32_t>(fed.size()));
  return fed;
}

}  // namespace

PlanParts::PlanParts(const Plan& plan, const Placed& placed)
    : plan_(plan), placed_(placed), fed_(numbered(placed.program.feeds)), frames_(placed.program.graph, fed_, plan.partition_of), nodes_of_(plan.nodes.size()),
      partitions_of_(plan.nodes.size()) {
  for (std::size_t p = 0; p < plan.partitions.size(); ++p) partitions_of_[at(plan.partitions[p].node)].push_back(static_cast<std::int32_t>(p));
  for (std::size_t id = 0; id < plan.partition_of.size(); ++id) nodes_of_[at(plan.partitions[at(plan.partition_of[id])].node)].push_back(static_cast<std::int32_t>(id));
  find_units();
}

bool PlanParts::is_divisible() const {
  return plan_.queues == QueueUses() && std::none_of(plan_.partitions.begin(), plan_.partitions.end(), [](const PartitionPlan& p) { return p.has_cut_function; });
}

void PlanParts::find_units() {
  const Graph& g = placed_.program.graph;
  unit_.resize(at(g.size()));
  nodes_in_.resize(frames_.all().size());
  for (std::int32_t id = 0; id < g.size(); ++id) {
    std::int32_t f = frames_.frame(frames_.role(id) == Role::exit ? g.node(id).inputs[0].node : id);
    while (f > 0 && !frames_.all()[at(f)].function && frames_.all()[at(f)].parent > 0) f = frames_.all()[at(f)].parent;
    unit_[at(id)] = f;
    if (f > 0) nodes_in_[at(f)].push_back(id);
  }
}

// One part, as it is put together.
class PartMaker {
 public:
  PartMaker(const PlanParts& of, std::int32_t node) : of_(of), g_(of.placed_.program.graph), node_(node) {}

  Placed make() {
    for (const std::int32_t id : of_.nodes_of_[at(node_)]) keep(id);
    for (Edge e : of_.placed_.program.fetches)
      if (is_fetched_here(of_.frames_.resolve(e).node)) keep(e.node);
    while (!kept_.empty()) {
      const std::int32_t id = kept_.back();
      kept_.pop_back();
      for (Edge e : g_.node(id).inputs) take(e.node);
      for (std::int32_t c : g_.node(id).controls) take(c);
    }
    auto part = std::make_shared<PlanPart>();
    part->nodes = of_.plan_.nodes;
    add_partitions(*part);
    add_nodes(*part);
    add_edges(*part);
    add_ends();
    made_.part = std::move(part);
    return std::move(made_);
  }

 private:
  enum class As : std::uint8_t { itself, elsewhere };

  // With all of the loop or function that it is in, and the functions that are called there.
  void keep(std::int32_t id) {
    const auto [known, is_new] = there_.try_emplace(id, As::itself);
    if (!is_new && known->second == As::itself) return;
    known->second = As::itself;
    kept_.push_back(id);
    keep_unit(of_.unit_[at(id)]);
    if (of_.frames_.role(id) == Role::call) {
      const FunctionDef* called = function_of(g_.node(id));
      const auto& all = of_.frames_.all();
      for (std::size_t f = 1; f < all.size(); ++f)
        if (all[f].function == called) keep_unit(static_cast<std::int32_t>(f));
    }
  }

  void keep_unit(std::int32_t unit) {
    if (unit == 0 || !units_.insert(unit).second) return;
    for (const std::int32_t id : of_.nodes_in_[at(unit)]) keep(id);
  }

  // Somebody who is kept takes its value, or waits for it.
  void take(std::int32_t id) {
    const Role role = of_.frames_.role(id);
    if (role == Role::alias || role == Role::constant || role == Role::feed) keep(id);
    else there_.try_emplace(id, As::elsewhere);
  }

  std::int32_t partition_of(std::int32_t id) const { return of_.plan_.partition_of[at(id)]; }

  void add_partitions(PlanPart& part) {
    for (const auto& [id, as] : there_) places_.emplace(partition_of(id), 0);
    for (const std::int32_t p : of_.partitions_of_[at(node_)])
      for (const PartitionPlan::Send& s : of_.plan_.partitions[at(p)].sends) places_.emplace(s.partition, 0);
    for (auto& [p, place] : places_) {
      place = static_cast<std::int32_t>(part.partitions.size());
      part.partitions.push_back({of_.plan_.partitions[at(p)].name, p});
    }
  }

  void add_nodes(PlanPart& part) {
    Graph& made = made_.program.graph;
    std::vector<std::shared_ptr<FunctionDef>> functions;
    for (const auto& f : g_.functions())
      if (std::any_of(there_.begin(), there_.end(), [&](const auto& n) { return n.second == As::itself && refers_to(g_.node(n.first), *f); })) functions.push_back(f);
    made.set_functions(std::move(functions));
    for (const auto& [id, as] : there_) {
      Node n = as == As::itself ? g_.node(id) : elsewhere(id);
      for (Edge& e : n.inputs) e.node = here(e.node);
      for (std::int32_t& c : n.controls) c = here(c);
      if (n.state >= 0) n.state = state(n.state);
      part.numbers.push_back(id);
      made_.device.push_back(of_.placed_.device[at(id)]);
      made.append(std::move(n));
      places_of_nodes_.emplace(id, static_cast<std::int32_t>(part.numbers.size()) - 1);
    }
  }

  // A NextIteration names a Merge before it: whatever is named stands there already.
  std::int32_t here(std::int32_t id) const { return places_of_nodes_.at(id); }

  static bool refers_to(const Node& n, const FunctionDef& f) {
    return std::any_of(n.attrs.entries().begin(), n.attrs.entries().end(), [&](const auto& entry) {
      const auto* object = std::get_if<std::shared_ptr<const AttrObject>>(&entry.second);
      return object && object->get() == &f;
    });
  }

  std::int32_t state(std::int32_t number) {
    const auto [known, is_new] = states_.try_emplace(number, 0);
    if (is_new) known->second = made_.program.graph.declare(g_.states()[at(number)], Site());
    return known->second;
  }

  Node elsewhere(std::int32_t id) const {
    const Node& real = g_.node(id);
    Node n;
    n.op = &find_op("Elsewhere");
    n.attrs.set("op", real.op->name);
    n.attrs.set("leaves_loop", of_.frames_.role(id) == Role::exit);
    n.attrs.set("outputs", make_specs_attr(real.outputs));
    n.outputs = real.outputs;
    n.name = g_.name_of(id);
    n.site = real.site;
    n.origin = real.origin;
    return n;
  }

  // What leaves for other nodes from outside of loops, whoever uses it there; and the other ends of all cut edges.
  void add_edges(PlanPart& part) {
    for (const std::int32_t p : of_.partitions_of_[at(node_)]) {
      const PartitionPlan& mine = of_.plan_.partitions[at(p)];
      for (const PartitionPlan::Send& s : mine.sends) {
        part.receives.push_back(s.receive);
        if (s.frame == 0 && !of_.plan_.is_on(s.partition, node_))
          part.outs.push_back({here(s.source), of_.plan_.partitions[at(s.partition)].receives[at(s.receive)].output, places_.at(s.partition)});
      }
      for (const PartitionPlan::Receive& r : mine.receives) part.sends.push_back(r.send);
    }
  }

  // Each keeps its place; those of others name no node.
  void add_ends() {
    const Program& whole = of_.placed_.program;
    for (Edge e : whole.feeds) made_.program.feeds.push_back(there_.contains(e.node) ? Edge{here(e.node), e.output} : Edge{-1, 0});
    for (Edge e : whole.fetches) made_.program.fetches.push_back(is_fetched_here(of_.frames_.resolve(e).node) ? Edge{here(e.node), e.output} : Edge{-1, 0});
    made_.default_device = of_.placed_.default_device;
    made_.edge_bytes = of_.placed_.edge_bytes;
  }

  // A fed fetch is the first partition's.
  bool is_fetched_here(std::int32_t id) const {
    const std::int32_t p = of_.frames_.role(id) == Role::feed ? 0 : partition_of(id);
    return of_.plan_.is_on(p, node_);
  }

  const PlanParts& of_;
  const Graph& g_;
  const std::int32_t node_;
  std::map<std::int32_t, As> there_;
  std::vector<std::int32_t> kept_;  // whose inputs have not been looked at
  std::set<std::int32_t> units_;
  std::map<std::int32_t, std::int32_t> places_;           // of the whole plan's partitions
  std::map<std::int32_t, std::int32_t> places_of_nodes_;  // of the whole program's
  std::map<std::int32_t, std::int32_t> states_;
  Placed made_;
};

Placed PlanParts::of(std::int32_t node) const { return is_divisible() ? PartMaker(*this, node).make() : placed_; }

}  // namespace troupe
