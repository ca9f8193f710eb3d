#include <troupe/actors/plan/plan_part.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <troupe/actors/frames/frames.hpp>
#include <troupe/actors/observe/queue_users.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/specs_attr.hpp>

namespace troupe {

// The tables from which all parts are made.
struct PlanParts::Whole {
  Whole(const Plan& p, const Placed& from)
      : plan(p), placed(from), fed(numbered(from.program.feeds)),
        frames(from.program.graph, fed, p.partition_of), nodes_on(p.nodes.size()) {
    is_divisible =
        !plan.compiled && std::none_of(plan.partitions.begin(), plan.partitions.end(),
                                       [](const PartitionPlan& q) { return q.has_cut_function; });
    for (std::size_t f = 1; f < frames.all().size(); ++f)
      if (const FunctionDef* function = frames.all()[f].function)
        frame_of.emplace(function, static_cast<std::int32_t>(f));
    if (plan.queues != QueueUses()) queue_users.emplace(from.program.graph);
    unit_of.resize(plan.partition_of.size());
    nodes_in.resize(frames.all().size());
    for (std::int32_t id = 0; id < placed.program.graph.size(); ++id) {
      nodes_on[at(plan.partitions[at(plan.partition_of[at(id)])].node)].push_back(id);
      unit_of[at(id)] = find_unit(id);
      if (unit_of[at(id)] > 0) nodes_in[at(unit_of[at(id)])].push_back(id);
    }
  }

  std::int32_t find_unit(std::int32_t id) const {
    std::int32_t f = frames.frame(
        frames.role(id) == Role::exit ? placed.program.graph.node(id).inputs[0].node : id);
    while (f > 0 && !frames.all()[at(f)].function && frames.all()[at(f)].parent > 0)
      f = frames.all()[at(f)].parent;
    return f;
  }

  const Plan& plan;
  const Placed& placed;
  const std::map<std::int32_t, std::int32_t> fed;
  const Frames frames;
  bool is_divisible = false;
  std::vector<std::vector<std::int32_t>> nodes_on;  // by node of the cluster
  // by node: the outermost loop or function that it is in, or leaves; 0: none
  std::vector<std::int32_t> unit_of;
  std::vector<std::vector<std::int32_t>> nodes_in;  // by unit
  std::map<const FunctionDef*, std::int32_t> frame_of;
  mutable std::optional<QueueUsers> queue_users;  // if there are any queues
};

namespace {

// Makes one part.
class PartMaker {
 public:
  PartMaker(const PlanParts::Whole& of, std::int32_t node)
      : of_(of), g_(of.placed.program.graph), node_(node) {}

  Placed make() {
    for (const std::int32_t id : of_.nodes_on[at(node_)]) keep(id);
    for (Edge e : of_.placed.program.fetches)
      if (is_fetched_here(of_.frames.resolve(e).node)) keep(e.node);
    while (!kept_.empty()) {
      const std::int32_t id = kept_.back();
      kept_.pop_back();
      for (Edge e : g_.node(id).inputs) take(e.node);
      for (std::int32_t c : g_.node(id).controls) take(c);
    }
    auto part = std::make_shared<PlanPart>();
    part->nodes = of_.plan.nodes;
    add_partitions(*part);
    add_nodes(*part);
    add_edges(*part);
    add_waits(*part);
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
    keep_unit(of_.unit_of[at(id)]);
    if (of_.frames.role(id) == Role::call) keep_unit(of_.frame_of.at(function_of(g_.node(id))));
  }

  void keep_unit(std::int32_t unit) {
    if (unit == 0 || !units_.insert(unit).second) return;
    for (const std::int32_t id : of_.nodes_in[at(unit)]) keep(id);
  }

  // Adds a node whose value a kept node takes or awaits.
  void take(std::int32_t id) {
    const Role role = of_.frames.role(id);
    if (role == Role::alias || role == Role::constant || role == Role::feed) keep(id);
    else there_.try_emplace(id, As::elsewhere);
  }

  std::int32_t partition_of(std::int32_t id) const { return of_.plan.partition_of[at(id)]; }

  void add_partitions(PlanPart& part) {
    for (const auto& [id, as] : there_) places_.emplace(partition_of(id), 0);
    for (const std::int32_t p : of_.plan.partitions_on[at(node_)])
      for (const PartitionPlan::Send& s : of_.plan.partitions[at(p)].sends)
        places_.emplace(s.partition, 0);
    for (auto& [p, place] : places_) {
      place = static_cast<std::int32_t>(part.partitions.size());
      part.partitions.push_back({of_.plan.partitions[at(p)].name, p});
    }
  }

  void add_nodes(PlanPart& part) {
    Graph& made = made_.program.graph;
    std::set<const FunctionDef*> used;
    for (const auto& [id, as] : there_)
      if (const Role role = of_.frames.role(id);
          as == As::itself &&
          (role == Role::call || role == Role::argument || role == Role::return_))
        used.insert(function_of(g_.node(id)));
    std::vector<std::shared_ptr<FunctionDef>> functions;
    if (!used.empty())
      for (const auto& f : g_.functions())
        if (used.contains(f.get())) functions.push_back(f);
    made.set_functions(std::move(functions));
    for (const auto& [id, as] : there_) {
      Node n = as == As::itself ? g_.node(id) : elsewhere(id);
      for (Edge& e : n.inputs) e.node = here(e.node);
      for (std::int32_t& c : n.controls) c = here(c);
      if (n.state >= 0) n.state = state(n.state);
      part.numbers.push_back(id);
      made_.device.push_back(of_.placed.device[at(id)]);
      made.append(std::move(n));
      places_of_nodes_.emplace(id, static_cast<std::int32_t>(part.numbers.size()) - 1);
    }
  }

  // Returns the node's index in the part. A NextIteration names a Merge before it, so every node
  // that is named has been added.
  std::int32_t here(std::int32_t id) const { return places_of_nodes_.at(id); }

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
    n.attrs.set("leaves_loop", of_.frames.role(id) == Role::exit);
    n.attrs.set("outputs", make_specs_attr(real.outputs));
    n.outputs = real.outputs;
    n.name = g_.name_of(id);
    n.site = real.site;
    n.origin = real.origin;
    return n;
  }

  // Adds the outputs that leave for other nodes from outside of loops, and the other ends of all
  // cut edges.
  void add_edges(PlanPart& part) {
    for (const std::int32_t p : of_.plan.partitions_on[at(node_)]) {
      const PartitionPlan& mine = of_.plan.partitions[at(p)];
      for (const PartitionPlan::Send& s : mine.sends) {
        part.receives.push_back(s.receive);
        if (s.frame == 0 && !of_.plan.is_on(s.partition, node_))
          part.outs.push_back({here(s.source),
                               of_.plan.partitions[at(s.partition)].receives[at(s.receive)].output,
                               places_.at(s.partition)});
      }
      for (const PartitionPlan::Receive& r : mine.receives) part.sends.push_back(r.send);
    }
  }

  // Adds the nodes that may end each wait. They can be anywhere in the program, so only the node
  // that has the whole program can find them.
  void add_waits(PlanPart& part) {
    part.queues = of_.plan.queues;
    if (!of_.queue_users) return;
    for (const std::int32_t id : of_.nodes_on[at(node_)]) {
      const Node& n = g_.node(id);
      if (n.state < 0 || (n.op->effect != Effect::enqueue && n.op->effect != Effect::dequeue))
        continue;
      PlanPart::Wait& wait = part.waits.emplace_back();
      wait.node = here(id);
      for (const std::int32_t other : of_.queue_users->may_end(id, of_.frames.frame(id) == 0)) {
        // this partition cannot observe whether a node of another one has fired
        if (partition_of(other) != partition_of(id)) {
          wait.ended_by = {-1};
          break;
        }
        wait.ended_by.push_back(here(other));
      }
    }
  }

  // Adds feeds and fetches. Each keeps its index; one that only other nodes use names no node.
  void add_ends() {
    const Program& whole = of_.placed.program;
    for (Edge e : whole.feeds)
      made_.program.feeds.push_back(there_.contains(e.node) ? Edge{here(e.node), e.output}
                                                            : Edge{-1, 0});
    for (Edge e : whole.fetches)
      made_.program.fetches.push_back(
          is_fetched_here(of_.frames.resolve(e).node) ? Edge{here(e.node), e.output} : Edge{-1, 0});
    made_.default_device = of_.placed.default_device;
    made_.edge_bytes = of_.placed.edge_bytes;
    made_.edge_ahead = of_.placed.edge_ahead;
  }

  // A fed fetch is the first partition's.
  bool is_fetched_here(std::int32_t id) const {
    const std::int32_t p = of_.frames.role(id) == Role::feed ? 0 : partition_of(id);
    return of_.plan.is_on(p, node_);
  }

  const PlanParts::Whole& of_;
  const Graph& g_;
  const std::int32_t node_;
  std::map<std::int32_t, As> there_;
  std::vector<std::int32_t> kept_;  // nodes whose inputs have yet to be visited
  std::set<std::int32_t> units_;
  std::map<std::int32_t, std::int32_t> places_;           // by partition of the whole plan
  std::map<std::int32_t, std::int32_t> places_of_nodes_;  // by node of the whole program
  std::map<std::int32_t, std::int32_t> states_;
  Placed made_;
};

}  // namespace

PlanParts::PlanParts(const Plan& plan, const Placed& placed)
    : whole_(std::make_unique<const Whole>(plan, placed)) {}
PlanParts::~PlanParts() = default;

// An edge within this node has both ends here. Any other edge has one end here, and its number at
// the other end comes with the part.
void number_ends(Plan& plan, const PlanPart& part) {
  auto receive = part.receives.begin(), send = part.sends.begin();
  const auto next = [](auto& it, auto end) {
    if (it == end)
      throw Error(Code::data_loss, "a part of a program has more edges than other ends of them");
    return *it++;
  };
  for (PartitionPlan& p : plan.partitions) {
    if (p.node != plan.here) continue;
    for (PartitionPlan::Send& s : p.sends)
      if (const std::int32_t number = next(receive, part.receives.end());
          !plan.is_on(s.partition, plan.here))
        s.receive = number;
    for (PartitionPlan::Receive& r : p.receives)
      if (const std::int32_t number = next(send, part.sends.end());
          !plan.is_on(r.partition, plan.here))
        r.send = number;
  }
  if (receive != part.receives.end() || send != part.sends.end())
    throw Error(Code::data_loss, "a part of a program has fewer edges than other ends of them");
}

std::int32_t Plan::node_of_number(std::int32_t number) const {
  if (!is_part()) return number >= 0 && number < program.graph.size() ? number : -1;
  const auto it = std::lower_bound(numbers.begin(), numbers.end(), number);
  return it != numbers.end() && *it == number ? static_cast<std::int32_t>(it - numbers.begin())
                                              : -1;
}

std::int32_t Plan::partition_of_number(std::int32_t number) const {
  if (!is_part()) return number >= 0 && at(number) < partitions.size() ? number : -1;
  const auto it =
      std::lower_bound(partitions.begin(), partitions.end(), number,
                       [](const PartitionPlan& p, std::int32_t n) { return p.number < n; });
  return it != partitions.end() && it->number == number
             ? static_cast<std::int32_t>(it - partitions.begin())
             : -1;
}

bool PlanParts::is_divisible() const { return whole_->is_divisible; }
Placed PlanParts::of(std::int32_t node) const { return PartMaker(*whole_, node).make(); }

}  // namespace troupe
