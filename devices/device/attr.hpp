// Attributes: constants of an operation that are fixed when the graph is built.
//
//   Attrs a{{"axis", std::int64_t{1}}, {"keep_dims", true}};
//   a.get<std::int64_t>("axis");
//
// An `Attrs` is a value: cheap to copy (shared, never changed once shared).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <troupe/devices/base/dtype.hpp>
#include <troupe/devices/base/shape.hpp>
#include <troupe/devices/tensor/tensor.hpp>

namespace troupe::detail {

/// An attribute that only lives in memory (a program, a user's function, a state); files name it
/// instead.
class AttrObject {
 public:
  virtual ~AttrObject() = default;
  /// Shown where attributes are printed.
  virtual std::string text() const = 0;
};

using AttrValue =
    std::variant<bool, std::int64_t, double, std::string, DType, Shape, std::vector<std::int64_t>,
                 Tensor, std::shared_ptr<const AttrObject>>;

std::string text_of(const AttrValue& value);
/// Same alternative, same value; tensors bit for bit, objects by identity.
bool equal(const AttrValue& a, const AttrValue& b);

class Attrs {
 public:
  using Entry = std::pair<std::string, AttrValue>;

  Attrs() = default;
  Attrs(std::initializer_list<Entry> entries);

  bool empty() const { return !entries_; }
  const AttrValue* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// Throws internal if there is no attribute of that name and type: signatures are checked when a
  /// node is made.
  template <class T>
  const T& get(std::string_view name) const {
    const AttrValue* value = find(name);
    const T* typed = value ? std::get_if<T>(value) : nullptr;
    if (!typed) missing(name);
    return *typed;
  }
  template <class T>
  T get_or(std::string_view name, T fallback) const {
    const AttrValue* value = find(name);
    const T* typed = value ? std::get_if<T>(value) : nullptr;
    return typed ? *typed : fallback;
  }
  void set(std::string_view name, AttrValue value);

  /// Sorted by name.
  const std::vector<Entry>& entries() const;
  friend bool operator==(const Attrs& a, const Attrs& b);
  std::string text() const;

 private:
  [[noreturn]] void missing(std::string_view name) const;
  std::shared_ptr<const std::vector<Entry>> entries_;  // sorted by name; shared by copies
};

}  // namespace troupe::detail
