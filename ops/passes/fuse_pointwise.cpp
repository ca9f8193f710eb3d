#include <troupe/ops/graph/program.hpp>

#include <algorithm>

#include <troupe/ops/graph/made_by.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/pointwise.hpp>

// Pointwise nodes of one shape join into groups, and each group becomes one node `Fused`, with an
// output for every member that is used outside: a chain is read and written once, however long it
// is.
//
// A node joins the groups of its operands, in the order of ids; the group takes the place of its
// last member.
// 1. Shapes are equal as far as they are known: a small operand that is broadcast would be
//    recomputed for every element. A member that is used outside has a shape known in full: unknown
//    extents may differ.
// 2. Every outside user of a member comes after the last member. So no group waits for itself.
// 3. A value that is used outside waits for nothing new: all inputs of its group come before it,
//    constants aside. Scalars that are used outside do not join: counters and predicates must run
//    ahead.

namespace troupe::detail {
namespace {

constexpr std::size_t kMaxInputs = 12;  // limits of a fused node
constexpr std::size_t kMaxResults = 8;
constexpr std::size_t kMaxInstructions = 96;

class Fusion {
 public:
  explicit Fusion(const Program& program)
      : program_(program), g_(program.graph), group_of_(size(), -1), consumers_(size()),
        is_kept_(size(), 0), is_fetched_(size(), 0) {
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      for (Edge e : g_.node(id).inputs)
        if (auto& c = consumers_[at(e.node)]; c.empty() || c.back() != id) c.push_back(id);
      for (std::int32_t c : g_.node(id).controls) is_kept_[at(c)] = 1;
      if (!g_.node(id).controls.empty()) is_kept_[at(id)] = 1;
    }
    for (Edge e : program.fetches) is_fetched_[at(e.node)] = 1;
  }

  Program run() {
    for (std::int32_t id = 0; id < g_.size(); ++id)
      if (is_pointwise(id)) gather(id);
    Rewriter rewriter(program_);
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      const std::int32_t group = group_of_[at(id)];
      if (group < 0 || groups_[at(group)].members.size() == 1) rewriter.keep(id);
      else if (groups_[at(group)].members.back() == id) emit(rewriter, groups_[at(group)].members);
    }
    return rewriter.finish();
  }

 private:
  struct Group {
    std::vector<std::int32_t> members;  // ascending
    std::size_t instructions = 0;
  };

  std::size_t size() const { return at(g_.size()); }
  bool is_pointwise(std::int32_t id) const {
    const Node& n = g_.node(id);
    return (n.op->pointwise || n.op->name == "Fused") && n.outputs.size() == 1;
  }

  void gather(std::int32_t id) {
    const auto mine = static_cast<std::int32_t>(groups_.size());
    groups_.push_back({{id}, program_of(g_, g_.node(id))->code.size()});
    group_of_[at(id)] = mine;
    // The inputs of one operand's group may be members of another's: repeat until none joins.
    for (bool has_joined = true; has_joined;) {
      has_joined = false;
      for (Edge e : g_.node(id).inputs) {
        const std::int32_t theirs = group_of_[at(e.node)];
        if (theirs < 0 || theirs == mine || !may_join(groups_[at(theirs)], groups_[at(mine)], id))
          continue;
        join(theirs, mine);
        has_joined = true;
      }
    }
  }

  void join(std::int32_t from, std::int32_t to) {
    Group &a = groups_[at(from)], &b = groups_[at(to)];
    for (std::int32_t m : a.members) group_of_[at(m)] = to;
    b.members.insert(b.members.end(), a.members.begin(), a.members.end());
    std::sort(b.members.begin(), b.members.end());
    b.instructions += a.instructions;
    a = {};
  }

  /// True if `group`, which `id` reads, may join the one that ends in `id`.
  bool may_join(const Group& group, const Group& mine, std::int32_t id) const {
    const Node &node = g_.node(id), &other = g_.node(group.members[0]);
    const Shape& shape = node.outputs[0].shape;
    if (!shape.has_rank() || !(shape == other.outputs[0].shape) || node.device != other.device)
      return false;
    if (group.instructions + mine.instructions > kMaxInstructions) return false;
    for (std::int32_t m : group.members)
      if (is_kept_[at(m)]) return false;
    std::vector<std::int32_t> all = group.members;
    all.insert(all.end(), mine.members.begin(), mine.members.end());
    const std::vector<Edge> inputs = inputs_of(all);
    if (inputs.size() > kMaxInputs) return false;
    std::size_t seen = 1;
    std::int32_t first_seen = id;
    for (std::int32_t m : all) {
      if (m == id || !is_seen(m, all)) continue;
      if (is_kept_[at(id)] || !shape.is_known() || shape.elements() <= 1) return false;
      for (std::int32_t c : consumers_[at(m)])
        if (c < id && std::find(all.begin(), all.end(), c) == all.end()) return false;
      first_seen = std::min(first_seen, m);
      ++seen;
    }
    if (seen == 1) return true;
    return seen <= kMaxResults && std::all_of(inputs.begin(), inputs.end(), [&](Edge e) {
             return e.node < first_seen || is_constant(e.node);
           });
  }

  bool is_constant(std::int32_t id) const {
    return g_.node(id).op->name == "Constant" && g_.node(id).controls.empty();
  }
  /// True if a node outside of `members` uses `id`, or if it is fetched.
  bool is_seen(std::int32_t id, const std::vector<std::int32_t>& members) const {
    if (is_fetched_[at(id)]) return true;
    const auto& c = consumers_[at(id)];
    return std::any_of(c.begin(), c.end(), [&](std::int32_t who) {
      return std::find(members.begin(), members.end(), who) == members.end();
    });
  }
  /// Returns the members' inputs from elsewhere, each once.
  std::vector<Edge> inputs_of(const std::vector<std::int32_t>& members) const {
    std::vector<Edge> inputs;
    for (std::int32_t m : members)
      for (Edge e : g_.node(m).inputs)
        if (std::find(members.begin(), members.end(), e.node) == members.end() &&
            std::find(inputs.begin(), inputs.end(), e) == inputs.end())
          inputs.push_back(e);
    return inputs;
  }

  void emit(Rewriter& rewriter, const std::vector<std::int32_t>& members) const {
    const std::vector<Edge> inputs = inputs_of(members);
    ScalarProgram program;
    for (Edge e : inputs) append_input(program, g_.spec(e).dtype);
    std::vector<std::int16_t> result_of(members.size());
    auto place_of = [&](Edge e) {
      auto m = std::find(members.begin(), members.end(), e.node);
      if (m != members.end()) return result_of[static_cast<std::size_t>(m - members.begin())];
      return static_cast<std::int16_t>(std::find(inputs.begin(), inputs.end(), e) - inputs.begin());
    };
    Node node = rewriter.translated(members.back());
    node.outputs.clear();
    std::vector<std::int32_t> seen;
    std::string parts;
    for (std::size_t k = 0; k < members.size(); ++k) {
      const Node& member = g_.node(members[k]);
      const auto computed = program_of(g_, member);
      add_parts(parts, member.attrs, *computed, program.code.size());
      std::vector<std::int16_t> operands;
      for (Edge e : member.inputs) operands.push_back(place_of(e));
      result_of[k] = append(program, *computed, operands)[0];
      if (k + 1 < members.size() && !is_seen(members[k], members)) continue;
      program.results.push_back(result_of[k]);
      node.outputs.push_back(member.outputs[0]);
      seen.push_back(members[k]);
    }
    node.op = &find_op("Fused");
    node.attrs =
        Attrs{{"program", std::shared_ptr<const AttrObject>(std::make_shared<ProgramAttr>(
                              std::make_shared<const ScalarProgram>(std::move(program))))}};
    set_parts(node.attrs, std::move(parts));
    node.inputs.clear();
    for (Edge e : inputs) node.inputs.push_back(rewriter.at(e));
    const std::int32_t id = rewriter.graph().append(std::move(node));
    for (std::size_t k = 0; k < seen.size(); ++k)
      rewriter.alias(seen[k], {Edge{id, static_cast<std::int32_t>(k)}}, id);
  }

  const Program& program_;
  const Graph& g_;
  std::vector<Group> groups_;
  std::vector<std::int32_t> group_of_;  // -1: not pointwise
  std::vector<std::vector<std::int32_t>> consumers_;
  std::vector<char> is_kept_;  // waits for a control edge, or is waited for by one
  std::vector<char> is_fetched_;
};

}  // namespace

Program fuse_pointwise(Program program) { return Fusion(program).run(); }

}  // namespace troupe::detail
