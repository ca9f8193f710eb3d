// Expressions over the fields of an event, evaluated a column at a time.
//
//   using events::field;
//   stream.select(field("price") * field("size") > 1000.0 && field("symbol") == "ABC");
//
// Integers and reals mix to reals, `/` is real division, comparisons and `&&`, `||`, `!` give the
// integers 0 and 1. Integer arithmetic wraps around, and `x % 0` is 0: no event can fail a query.
// `Formula` is a value; `bind` resolves names against a schema and throws Error for a wrong one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <troupe/actors/events/batch.hpp>

namespace troupe::events {

class BoundFormula;

class Formula {
 public:
  enum class Op : std::uint8_t {
    field,
    constant,
    add,
    sub,
    mul,
    div,
    mod,
    eq,
    ne,
    lt,
    le,
    gt,
    ge,
    both,
    either,
    no
  };

  Formula(int value) : Formula(Value(std::int64_t{value})) {}  // NOLINT: constants are formulas
  Formula(std::int64_t value) : Formula(Value(value)) {}       // NOLINT
  Formula(double value) : Formula(Value(value)) {}             // NOLINT
  Formula(const char* value) : Formula(Value(std::string(value))) {}  // NOLINT
  Formula(std::string value) : Formula(Value(std::move(value))) {}    // NOLINT
  explicit Formula(Value value);
  Formula(Op op, Formula left, Formula right);
  static Formula of_field(std::string name);

  /// Throws Error (not_found, invalid_argument) that names the field or the types.
  BoundFormula bind(const Schema& schema) const;
  /// Returns it as text, for plans: `(price > 5)`.
  std::string text() const;
  /// Returns the parts that `&&` joins; the formula alone if there is no `&&` outermost.
  std::vector<Formula> conjuncts() const;
  /// Returns the names of its fields, each once.
  std::vector<std::string> fields() const;
  /// Returns the two names of `field == field`, else nothing.
  std::optional<std::pair<std::string, std::string>> equal_fields() const;

 private:
  friend class BoundFormula;
  struct Node;
  explicit Formula(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

/// Returns the value of a field of the event.
inline Formula field(std::string name) { return Formula::of_field(std::move(name)); }

inline Formula operator+(Formula a, Formula b) { return {Formula::Op::add, a, b}; }
inline Formula operator-(Formula a, Formula b) { return {Formula::Op::sub, a, b}; }
inline Formula operator*(Formula a, Formula b) { return {Formula::Op::mul, a, b}; }
inline Formula operator/(Formula a, Formula b) { return {Formula::Op::div, a, b}; }
inline Formula operator%(Formula a, Formula b) { return {Formula::Op::mod, a, b}; }
inline Formula operator==(Formula a, Formula b) { return {Formula::Op::eq, a, b}; }
inline Formula operator!=(Formula a, Formula b) { return {Formula::Op::ne, a, b}; }
inline Formula operator<(Formula a, Formula b) { return {Formula::Op::lt, a, b}; }
inline Formula operator<=(Formula a, Formula b) { return {Formula::Op::le, a, b}; }
inline Formula operator>(Formula a, Formula b) { return {Formula::Op::gt, a, b}; }
inline Formula operator>=(Formula a, Formula b) { return {Formula::Op::ge, a, b}; }
inline Formula operator&&(Formula a, Formula b) { return {Formula::Op::both, a, b}; }
inline Formula operator||(Formula a, Formula b) { return {Formula::Op::either, a, b}; }
inline Formula operator!(Formula a) { return {Formula::Op::no, a, Formula(0)}; }

/// A formula of one schema.
class BoundFormula {
 public:
  Type type() const { return type_; }
  /// Returns a value a message.
  Column evaluate(const Batch& batch) const;
  /// Returns the value for fields that stand somewhere else, by column.
  using Lookup = std::function<const Value&(std::size_t field)>;
  Value evaluate(const Lookup& at) const;
  /// Returns 1 for messages for which an integer formula is not 0.
  std::vector<std::uint8_t> marks(const Batch& batch) const;
  /// Returns the column if the formula is a field alone, else -1.
  int only_field() const;

 private:
  friend class Formula;
  struct Operand;
  Operand operand(const Batch& batch) const;
  const Value& peek(const Lookup& at, Value& own) const;
  Operand combine(const Operand& a, const Operand& b, std::size_t n) const;

  Formula::Op op_ = Formula::Op::constant;
  Type type_ = Type::integer;
  std::size_t field_ = 0;
  Value constant_;
  std::shared_ptr<const BoundFormula> left_, right_;
};

}  // namespace troupe::events
