#include <troupe/actors/events/match_plan.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::events {
namespace {

using PlanKind = Pattern::Kind;

[[noreturn]] void plan_refuse(const std::string& sentence) {
  throw Error(Code::invalid_argument, sentence);
}

bool plan_negates(PlanKind kind) {
  return kind == PlanKind::unless || kind == PlanKind::without || kind == PlanKind::cancel_when;
}

bool plan_contains(const std::vector<std::size_t>& all, std::size_t one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

/// Builds a plan step by step: nodes, keys, conditions, output.
class MatchPlanner {
 public:
  MatchPlanner(const MatchOptions& options, const std::vector<std::size_t>& input_of)
      : options_(options), input_of_(input_of) {}

  MatchPlan plan(const Pattern& pattern) {
    add(pattern, 0);
    keep(plan_.nodes.size() - 1, 0);
    mark_ends(plan_.nodes.size() - 1);
    index_fields();
    std::vector<Formula> conditions = all_conditions();
    choose_keys(conditions);
    for (const Formula& condition : conditions) place(condition);
    set_output();
    return std::move(plan_);
  }

 private:
  static constexpr int kDeepest = 64;
  static constexpr std::size_t kMostParts = 64, kMostEvents = 64;

  std::size_t add(const Pattern& pattern, int depth);
  void add_event(const Pattern::Node& of, MatchPlan::Node& node);
  void check(const Pattern& pattern, const MatchPlan::Node& node) const;
  void measure(MatchPlan::Node& node) const;
  void keep(std::size_t node, Time before);
  void mark_ends(std::size_t node);
  void index_fields();
  std::vector<Formula> all_conditions() const;
  void choose_keys(std::vector<Formula>& conditions);
  void place(const Formula& condition);
  void set_output();
  std::size_t leaf_of(const std::string& field) const;
  Schema joint_schema(bool has_more) const;
  std::uint64_t mark_companions();

  const MatchOptions& options_;
  const std::vector<std::size_t>& input_of_;
  MatchPlan plan_;
  std::map<std::string, std::size_t> field_index_;  // into plan_.fields
  Schema joint_;                                    // all plan_.fields
  std::vector<std::uint64_t> companions_;           // by leaf: bits of those bound whenever it is
};

std::size_t MatchPlanner::add(const Pattern& pattern, int depth) {
  if (depth > kDeepest)
    plan_refuse(fmt::format("a pattern is nested deeper than {}; cut it in two", kDeepest));
  const Pattern::Node& of = pattern.node();
  MatchPlan::Node node{of.kind, of.within, static_cast<std::size_t>(of.count)};
  if (of.kind == PlanKind::sequence) node.count = of.parts.size();
  for (const Pattern& part : of.parts) {
    const std::size_t index = add(part, depth + 1);
    node.parts.push_back({index, part.selection(), part.is_consumed()});
    node.has_modes |= part.selection() != Selection::each || part.is_consumed();
    const auto& below = plan_.nodes[index].leaves;
    node.leaves.insert(node.leaves.end(), below.begin(), below.end());
  }
  if (of.kind == PlanKind::event) add_event(of, node);
  check(pattern, node);
  measure(node);
  plan_.nodes.push_back(std::move(node));
  return plan_.nodes.size() - 1;
}

void MatchPlanner::add_event(const Pattern::Node& of, MatchPlan::Node& node) {
  if (of.variable.empty()) plan_refuse("an event of a pattern has no variable; name it");
  if (plan_.leaves.size() == kMostEvents)
    plan_refuse(fmt::format("a pattern has more than {} events; cut it in two", kMostEvents));
  for (const MatchPlan::Leaf& leaf : plan_.leaves)
    if (leaf.variable == of.variable)
      plan_refuse(fmt::format("two events of a pattern are '{}'; rename one", of.variable));
  std::vector<Field> fields;
  for (const Field& field : of.stream->schema().fields())
    fields.push_back({of.variable + "." + field.name, field.type});
  node.leaf = plan_.leaves.size();
  node.leaves = {node.leaf};
  MatchPlan::Leaf leaf{of.variable, input_of_[node.leaf], plan_.nodes.size(),
                       Schema(std::move(fields))};
  const Schema& schema = of.stream->schema();
  if (schema.has("occurrence") && schema[schema.index("occurrence")].type == Type::integer)
    leaf.occurrence_column = static_cast<int>(schema.index("occurrence"));
  for (const Field& field : schema.fields())
    leaf.blank.push_back(field.type == Type::integer ? Value(std::int64_t{0})
                         : field.type == Type::real  ? Value(0.0)
                                                     : Value(std::string()));
  plan_.leaves.push_back(std::move(leaf));
}

void MatchPlanner::check(const Pattern& pattern, const MatchPlan::Node& node) const {
  const bool combines = node.kind == PlanKind::sequence || node.kind == PlanKind::at_least;
  if (combines && (node.parts.empty() || node.parts.size() > kMostParts))
    plan_refuse(fmt::format("{} has {} parts; give it from 1 to {}", pattern.text(),
                            node.parts.size(), kMostParts));
  if (node.kind == PlanKind::at_least && (node.count < 1 || node.count > node.parts.size()))
    plan_refuse(fmt::format("{} needs {} of {} parts; name a number from 1 to {}", pattern.text(),
                            pattern.node().count, node.parts.size(), node.parts.size()));
  if ((combines || node.kind == PlanKind::unless) && node.within < 1)
    plan_refuse(fmt::format("{} has a window of {}; give 1 or more", pattern.text(), node.within));
  if (!plan_negates(node.kind)) return;
  if (node.has_modes)
    plan_refuse(
        fmt::format("{} selects or consumes; SEQUENCE, ATLEAST, ALL and ANY can", pattern.text()));
  const MatchPlan::Node& present = plan_.nodes[node.parts[0].node];
  if (node.kind == PlanKind::without && present.kind != PlanKind::sequence &&
      present.kind != PlanKind::at_least)
    plan_refuse(
        fmt::format("{} guards no sequence; give NOT an event and a SEQUENCE, ATLEAST or "
                    "ALL",
                    pattern.text()));
  if (node.kind == PlanKind::unless && node.count > present.contributors)
    plan_refuse(fmt::format("{} begins at contributor {} of {}; name an earlier one",
                            pattern.text(), node.count, present.contributors));
}

/// Sets what depends on the parts.
void MatchPlanner::measure(MatchPlan::Node& node) const {
  if (node.kind == PlanKind::event) {
    node.visible = node.leaves;
    return;
  }
  const bool negates = plan_negates(node.kind);
  std::vector<std::size_t> contributors;
  for (const MatchPlan::Part& part : node.parts) {
    const MatchPlan::Node& of = plan_.nodes[part.node];
    node.visible.insert(node.visible.end(), of.visible.begin(), of.visible.end());
    node.span = std::max(node.span, of.span);
    contributors.push_back(of.contributors);
    if (negates) break;
  }
  node.span = later(node.span, node.within);
  std::sort(contributors.begin(), contributors.end());
  const std::size_t taken = negates ? 1 : node.count;
  node.contributors =
      std::accumulate(contributors.begin(),
                      contributors.begin() + static_cast<std::ptrdiff_t>(taken), std::size_t{0});
}

/// Sets how long instances are kept, if those of this node are needed `before` the guarantee.
void MatchPlanner::keep(std::size_t index, Time before) {
  plan_.nodes[index].keeps = before;
  const MatchPlan::Node& node = plan_.nodes[index];
  Time reach = node.within;
  if (plan_negates(node.kind))  // back to a contributor, or to the root time
    reach = std::max(reach, plan_.nodes[node.parts[0].node].span);
  for (const MatchPlan::Part& part : node.parts) keep(part.node, later(before, reach));
}

/// An output of these kinds ends with an event of its first part.
void MatchPlanner::mark_ends(std::size_t index) {
  MatchPlan::Node& node = plan_.nodes[index];
  if (node.kind == PlanKind::event) node.gives_end = true;
  else if (node.kind == PlanKind::unless || node.kind == PlanKind::cancel_when)
    mark_ends(node.parts[0].node);
}

void MatchPlanner::index_fields() {
  for (std::size_t l = 0; l < plan_.leaves.size(); ++l)
    for (std::size_t c = 0; c < plan_.leaves[l].schema.size(); ++c) {
      field_index_.emplace(plan_.leaves[l].schema[c].name, plan_.fields.size());
      plan_.fields.push_back({l, c});
    }
  joint_ = joint_schema(false);
}

Schema MatchPlanner::joint_schema(bool has_more) const {
  std::vector<Field> fields;
  for (const MatchPlan::JointField& field : plan_.fields)
    fields.push_back(plan_.leaves[field.leaf].schema[field.column]);
  if (has_more) {
    fields.push_back({"root", Type::integer});
    fields.push_back({"contributors", Type::text});
    bool has_occurrence = true;
    for (const std::size_t l : plan_.top().visible)
      has_occurrence &= plan_.leaves[l].occurrence_column >= 0;
    if (has_occurrence) fields.push_back({"occurrence", Type::integer});
  }
  return Schema(std::move(fields));
}

std::vector<Formula> MatchPlanner::all_conditions() const {
  std::vector<Formula> all;
  if (options_.where) all = options_.where->conjuncts();
  const auto name = [&](std::size_t leaf, const std::string& attribute) {
    const std::string full = plan_.leaves[leaf].variable + "." + attribute;
    plan_.leaves[leaf].schema.index(full);  // throws
    return field(full);
  };
  for (const std::string& attribute : options_.equal)
    for (std::size_t l = 1; l < plan_.leaves.size(); ++l)
      all.push_back(name(0, attribute) == name(l, attribute));
  const auto are_visible = [&](std::size_t a, std::size_t b) {
    for (const MatchPlan::Node& node : plan_.nodes) {
      if (!plan_contains(node.leaves, a) || !plan_contains(node.leaves, b)) continue;
      int seen = 0;
      for (const MatchPlan::Part& part : node.parts) {
        const auto& visible = plan_.nodes[part.node].visible;
        seen += plan_contains(visible, a) + plan_contains(visible, b);
      }
      return seen == 2;
    }
    return false;
  };
  for (const std::string& attribute : std::set(options_.unique.begin(), options_.unique.end()))
    for (std::size_t a = 0; a < plan_.leaves.size(); ++a)
      for (std::size_t b = 0; b < a; ++b)
        if (are_visible(a, b)) all.push_back(name(b, attribute) != name(a, attribute));
  return all;
}

std::size_t MatchPlanner::leaf_of(const std::string& name) const {
  const auto it = field_index_.find(name);
  if (it != field_index_.end()) return plan_.fields[it->second].leaf;
  joint_.index(name);  // throws
  return 0;
}

/// Sets `companions_`, and returns the leaves that all matches have.
std::uint64_t MatchPlanner::mark_companions() {
  const auto& nodes = plan_.nodes;
  std::vector<std::uint64_t> always(nodes.size()), given(nodes.size());
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const bool is_whole = !plan_negates(nodes[n].kind) && nodes[n].count == nodes[n].parts.size();
    if (nodes[n].kind == PlanKind::event) always[n] = std::uint64_t{1} << nodes[n].leaf;
    for (std::size_t p = 0; p < nodes[n].parts.size(); ++p)
      if (is_whole || (plan_negates(nodes[n].kind) && p == 0))
        always[n] |= always[nodes[n].parts[p].node];
  }
  companions_.resize(plan_.leaves.size());
  for (std::size_t n = nodes.size(); n-- > 0;) {
    given[n] |= always[n];
    for (const MatchPlan::Part& part : nodes[n].parts) given[part.node] = given[n];
    if (nodes[n].kind == PlanKind::event) companions_[nodes[n].leaf] = given[n];
  }
  return always.back();
}

/// Fields that equations connect, over all events: these equations become the key. Events that a
/// match may lack connect nothing: an equation with one of them holds without it. One of these
/// joins a class by an equation with an event that is bound whenever it is.
void MatchPlanner::choose_keys(std::vector<Formula>& conditions) {
  std::vector<std::size_t> up(plan_.fields.size());  // union-find over joint fields
  std::iota(up.begin(), up.end(), std::size_t{0});
  const auto root = [&](std::size_t f) {
    while (up[f] != f) f = up[f] = up[up[f]];
    return f;
  };
  const auto type = [&](std::size_t f) {
    return plan_.leaves[plan_.fields[f].leaf].schema[plan_.fields[f].column].type;
  };
  const auto ends = [&](const Formula& c) -> std::optional<std::pair<std::size_t, std::size_t>> {
    const auto names = c.equal_fields();
    if (!names || !field_index_.contains(names->first) || !field_index_.contains(names->second))
      return std::nullopt;
    const std::pair both{field_index_.at(names->first), field_index_.at(names->second)};
    if (type(both.first) != type(both.second)) return std::nullopt;
    return both;
  };
  const std::uint64_t always = mark_companions();
  const auto leaf = [&](std::size_t f) { return plan_.fields[f].leaf; };
  const auto has = [](std::uint64_t leaves, std::size_t l) { return (leaves >> l & 1) != 0; };
  std::vector<std::uint8_t> is_placed(up.size());  // stands in its class
  for (std::size_t f = 0; f < up.size(); ++f) is_placed[f] = has(always, leaf(f));
  const auto connect = [&](std::size_t f, std::size_t g) {
    up[root(f)] = root(g);
    is_placed[f] = is_placed[g] = 1;
  };
  for (const std::string& attribute : options_.equal)
    for (std::size_t l = 1; l < plan_.leaves.size(); ++l) {
      const auto at = [&](std::size_t of) {
        return field_index_.at(plan_.leaves[of].variable + "." + attribute);
      };
      if (type(at(0)) == type(at(l))) connect(at(0), at(l));
    }
  std::vector<std::pair<std::size_t, std::size_t>> equations;
  for (const Formula& condition : conditions)
    if (const auto both = ends(condition)) equations.push_back(*both);
  for (const auto& [f, g] : equations)
    if (has(always, leaf(f)) && has(always, leaf(g))) connect(f, g);
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (auto [f, g] : equations) {
      if (is_placed[f] == is_placed[g]) continue;
      if (!is_placed[f]) std::swap(f, g);
      if (!has(companions_[leaf(g)], leaf(f))) continue;
      connect(f, g);
      has_changed = true;
    }
  }
  std::map<std::size_t, std::map<std::size_t, std::size_t>> classes;  // root: leaf: field
  for (std::size_t f = 0; f < up.size(); ++f) classes[root(f)].emplace(plan_.fields[f].leaf, f);
  std::set<std::size_t> chosen;
  if (plan_.leaves.size() == 1) {  // no equation says it
    MatchPlan::Leaf& only = plan_.leaves[0];
    for (const std::string& attribute : options_.equal) {
      plan_.key_names.push_back(only.variable + "." + attribute);
      only.key_columns.push_back(only.schema.index(plan_.key_names.back()));
    }
    return;
  }
  for (const auto& [of, fields] : classes) {
    if (fields.size() != plan_.leaves.size()) continue;
    for (const auto& [of_leaf, f] : fields) {
      plan_.leaves[of_leaf].key_columns.push_back(plan_.fields[f].column);
      chosen.insert(f);
    }
    const std::size_t f = fields.at(0);
    plan_.key_names.push_back(plan_.leaves[0].schema[plan_.fields[f].column].name);
  }
  std::erase_if(conditions, [&](const Formula& condition) {
    const auto both = ends(condition);
    return both && chosen.contains(both->first) && chosen.contains(both->second) &&
           root(both->first) == root(both->second);
  });
}

/// Puts a condition where all its events first are together.
void MatchPlanner::place(const Formula& condition) {
  std::vector<std::size_t> leaves;
  for (const std::string& name : condition.fields())
    if (const std::size_t l = leaf_of(name); !plan_contains(leaves, l)) leaves.push_back(l);
  if (leaves.empty())
    plan_refuse(fmt::format("the condition {} names no event; compare a field such as {}",
                            condition.text(), plan_.leaves[0].schema[0].name));
  const Schema& schema = leaves.size() == 1 ? plan_.leaves[leaves[0]].schema : joint_;
  BoundFormula bound = condition.bind(schema);
  if (bound.type() != Type::integer)
    plan_refuse(fmt::format("the condition {} is {}; compare it with a value", condition.text(),
                            name_of(bound.type())));
  if (leaves.size() == 1) {
    plan_.leaves[leaves[0]].filters.push_back(std::move(bound));
    return;
  }
  for (MatchPlan::Node& node : plan_.nodes) {
    std::uint64_t parts = 0;
    std::size_t below = 0, seen = 0;
    for (const std::size_t l : leaves) {
      below += plan_contains(node.leaves, l);
      for (std::size_t p = 0; p < node.parts.size(); ++p)
        if (plan_contains(plan_.nodes[node.parts[p].node].visible, l)) {
          parts |= std::uint64_t{1} << p;
          ++seen;
        }
    }
    if (below < leaves.size()) continue;
    if (seen < leaves.size())
      plan_refuse(
          fmt::format("the condition {} names an absent event and one outside of its "
                      "negation; compare it with events that the negation guards",
                      condition.text()));
    node.conditions.push_back({std::move(bound), std::move(leaves), parts});
    return;
  }
}

void MatchPlanner::set_output() {
  const Schema joint = joint_schema(true);
  Projection output = options_.output;
  if (output.empty()) {
    for (const std::size_t l : plan_.top().visible)
      for (const Field& f : plan_.leaves[l].schema.fields())
        output.emplace_back(f.name, field(f.name));
    output.emplace_back("root", field("root"));
    output.emplace_back("contributors", field("contributors"));
    if (joint.has("occurrence")) output.emplace_back("occurrence", field("occurrence"));
  }
  std::vector<Field> fields;
  for (const auto& [name, formula] : output) {
    for (const std::string& used : formula.fields()) {
      plan_.names_contributors |= used == "contributors";
      if (const auto it = field_index_.find(used);
          it != field_index_.end() &&
          !plan_contains(plan_.top().visible, plan_.fields[it->second].leaf))
        plan_refuse(
            fmt::format("the output '{}' uses {}, which is of an absent event; use fields "
                        "of events that occur",
                        name, used));
    }
    plan_.output.push_back(formula.bind(joint));
    fields.push_back({name, plan_.output.back().type()});
  }
  plan_.schema = Schema(std::move(fields));
}

}  // namespace

Division MatchPlan::division() const {
  Division division;
  for (const Leaf& leaf : leaves) division.sides.push_back({leaf.input, leaf.key_columns});
  division.made.assign(key_names.size(), -1);
  for (std::size_t o = 0; o < output.size(); ++o) {
    const int of = output[o].only_field();
    if (of < 0 || static_cast<std::size_t>(of) >= fields.size()) continue;
    const auto [leaf, column] = fields[static_cast<std::size_t>(of)];
    const auto& columns = leaves[leaf].key_columns;
    const auto it = std::find(columns.begin(), columns.end(), column);
    if (it != columns.end())
      division.made[static_cast<std::size_t>(it - columns.begin())] = static_cast<int>(o);
  }
  return division;
}

MatchPlan plan_match(const Pattern& pattern, const MatchOptions& options,
                     const std::vector<std::size_t>& input_of) {
  return MatchPlanner(options, input_of).plan(pattern);
}

}  // namespace troupe::events
