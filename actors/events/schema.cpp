#include <troupe/actors/events/schema.hpp>

#include <cmath>
#include <functional>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::events {

const char* name_of(Type type) {
  constexpr const char* names[] = {"integer", "real", "text"};
  return names[static_cast<std::size_t>(type)];
}

std::string text_of(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return fmt::format("\"{}\"", *text);
  if (const auto* real = std::get_if<double>(&value)) return fmt::format("{}", *real);
  return fmt::format("{}", std::get<std::int64_t>(value));
}

std::string text_of(const Row& row) {
  std::string out = "(";
  for (const Value& value : row) out += (out.size() > 1 ? ", " : "") + text_of(value);
  return out + ")";
}

/// All values that are no number are one.
std::size_t hash_of(double value) { return std::isnan(value) ? 0 : std::hash<double>()(value); }
std::size_t hash_of(const std::string& value) { return std::hash<std::string>()(value); }

bool ValueOrder::operator()(const Value& a, const Value& b) const {
  const double* x = std::get_if<double>(&a);
  const double* y = std::get_if<double>(&b);
  if (!x || !y || !(std::isnan(*x) || std::isnan(*y))) return a < b;
  return !std::isnan(*x) && std::isnan(*y);
}

Schema::Schema(std::vector<Field> fields) : fields_(std::move(fields)) {
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i].name.empty())
      throw Error(Code::invalid_argument, "a schema has a field without a name; name it");
    for (std::size_t j = 0; j < i; ++j)
      if (fields_[i].name == fields_[j].name)
        throw Error(Code::already_exists,
                    fmt::format("a schema has two fields '{}'; rename one", fields_[i].name));
  }
}

bool Schema::has(const std::string& name) const {
  for (const Field& field : fields_)
    if (field.name == name) return true;
  return false;
}

std::size_t Schema::index(const std::string& name) const {
  for (std::size_t i = 0; i < fields_.size(); ++i)
    if (fields_[i].name == name) return i;
  throw Error(Code::not_found,
              fmt::format("field '{}' is not in {}; name one of these", name, text()));
}

std::string Schema::text() const {
  std::string out = "(";
  for (const Field& field : fields_)
    out += fmt::format("{}{} {}", out.size() > 1 ? ", " : "", field.name, name_of(field.type));
  return out + ")";
}

}  // namespace troupe::events
