// Select, project and union: operators without state. A retraction is mapped like its insert,
// because it carries the payload.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <troupe/actors/events/formula.hpp>
#include <troupe/actors/events/operator.hpp>

namespace troupe::events {

/// Keeps the events for which an integer formula is not 0.
class Select final : public Operator {
 public:
  /// Throws Error (invalid_argument) for a formula of another type.
  Select(std::string name, const Schema& schema, const Formula& condition);

 private:
  void process(std::size_t input, Batch batch) override;
  const BoundFormula condition_;
};

using Projection = std::vector<std::pair<std::string, Formula>>;

/// Makes the payload anew of formulas with names.
class Project final : public Operator {
 public:
  Project(std::string name, const Schema& schema, const Projection& fields);

 private:
  void process(std::size_t input, Batch batch) override;
  std::vector<BoundFormula> formulas_;
};

/// All events of two or more streams of one schema. The streams may share events: keys of later
/// inputs are moved into ranges of their own.
class Union final : public Operator {
 public:
  /// `creators`: the first of `Union::kCreators` numbers for keys of later inputs.
  Union(std::string name, const Schema& schema, std::size_t inputs, std::uint16_t creators);
  static constexpr std::uint16_t kCreators = 256;

 private:
  void process(std::size_t input, Batch batch) override;
  Key renamed(std::size_t input, Key key);

  std::uint16_t next_;
  const std::uint16_t end_;
  // creator of a key's range, by input and original creator
  std::unordered_map<std::uint64_t, Key> ranges_;
};

}  // namespace troupe::events
