// The plan of a pattern: its nodes in a list, the conditions at the lowest node that has their
// events, the correlation key, and the payload of matches. Made once a query; runs share it.
//
// Invariant: a node stands behind its parts, so the last one is the whole pattern.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <troupe/actors/events/pattern.hpp>

namespace troupe::events {

struct MatchPlan {
  /// An event of the pattern.
  struct Leaf {
    std::string variable;
    std::size_t input, node;
    Schema schema;  // with the variable before each name
    std::vector<std::size_t> key_columns = {};
    std::vector<BoundFormula> filters = {};  // over `schema`
    int occurrence_column = -1;
    Row blank = {};  // stands for an event that a match lacks
  };
  struct Condition {
    BoundFormula formula;             // over the fields of all leaves
    std::vector<std::size_t> leaves;  // all of them have an event, or it holds
    std::uint64_t parts;              // bits of the node's parts with these leaves
  };
  struct Part {
    std::size_t node;
    Selection selection;
    bool is_consumed;
  };
  struct Node {
    Pattern::Kind kind;
    Time within;
    std::size_t count;  // sequence and at_least: parts a match; unless: as in Pattern::Node
    std::vector<Part> parts = {};
    std::vector<Condition> conditions = {};
    std::size_t leaf = 0;                   // if it is an event
    std::vector<std::size_t> leaves = {};   // all below
    std::vector<std::size_t> visible = {};  // contributors
    std::size_t contributors = 1;           // at least
    Time span = 0;                          // from the root time to the begin, at most
    Time keeps = 0;  // how long before the guarantee its instances are needed
    bool has_modes = false;
    bool gives_end = false;  // an event whose end may be that of an output
  };
  struct JointField {
    std::size_t leaf, column;
  };
  std::vector<Leaf> leaves;
  std::vector<Node> nodes;
  std::vector<JointField> fields;  // for formulas; then root, contributors, occurrence
  std::vector<std::string> key_names;
  std::vector<BoundFormula> output;
  bool names_contributors = false;  // the output does
  Schema schema;                    // the output's

  std::size_t root_field() const { return fields.size(); }
  std::size_t contributors_field() const { return fields.size() + 1; }
  std::size_t occurrence_field() const { return fields.size() + 2; }
  const Node& top() const { return nodes.back(); }
  /// Events of a match agree in the correlation key.
  Division division() const;
};

/// `input_of`: the operator's input of each event, in order of the pattern. Throws Error.
MatchPlan plan_match(const Pattern& pattern, const MatchOptions& options,
                     const std::vector<std::size_t>& input_of);

}  // namespace troupe::events
