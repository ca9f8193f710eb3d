// The payload of events: named fields, each of one type.
//
//   const Schema trade{{"symbol", Type::text}, {"price", Type::real}};
//   trade.index("price");                         // 1; throws Error for a name that is not there
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <variant>
#include <vector>

namespace troupe::events {

enum class Type : std::uint8_t { integer, real, text };

const char* name_of(Type type);

/// The alternatives are in the order of `Type`.
using Value = std::variant<std::int64_t, double, std::string>;
using Row = std::vector<Value>;

inline Type type_of(const Value& value) { return static_cast<Type>(value.index()); }
/// Returns the value as users read it: `7`, `0.5`, `"abc"`.
std::string text_of(const Value& value);
/// Returns `(7, "abc")`.
std::string text_of(const Row& row);
inline std::size_t hash_of(std::int64_t value) {
  const std::uint64_t x = static_cast<std::uint64_t>(value) * 0x9E3779B97F4A7C15ULL;
  return static_cast<std::size_t>(x ^ (x >> 32));
}
std::size_t hash_of(double value);
std::size_t hash_of(const std::string& value);
inline std::size_t hash_of(const Value& value) {
  return std::visit([](const auto& own) { return hash_of(own); }, value);
}
/// A total order, in which a real that is no number comes after all others.
struct ValueOrder {
  bool operator()(const Value& a, const Value& b) const;
};

struct Field {
  std::string name;
  Type type;
  bool operator==(const Field&) const = default;
};

/// Field names are unique and not empty; the constructor throws Error otherwise.
class Schema {
 public:
  Schema() = default;
  Schema(std::initializer_list<Field> fields) : Schema(std::vector<Field>(fields)) {}
  explicit Schema(std::vector<Field> fields);

  std::size_t size() const { return fields_.size(); }
  const Field& operator[](std::size_t i) const { return fields_[i]; }
  const std::vector<Field>& fields() const { return fields_; }
  bool has(const std::string& name) const;
  /// Throws Error (not_found) that lists the fields.
  std::size_t index(const std::string& name) const;
  /// Returns `(symbol text, price real)`.
  std::string text() const;
  bool operator==(const Schema&) const = default;

 private:
  std::vector<Field> fields_;
};

}  // namespace troupe::events
