// Arguments of traced functions that are no tensors, as part of the key of a trace.
//
// By value: numbers, enums, strings, shapes, pointers (of smart ones the pointer), pairs, tuples,
// optionals, variants, ranges of such, and copies of what has std::hash and ==. A variable is its
// host and name; a captureless lambda or an empty struct is its type. All others are known by
// address: equal ones at other addresses are others, and a temporary object does not compile.
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <troupe/ops/graph/variable.hpp>

namespace troupe::detail {

struct HostArgument {
  std::string key = {};   // equal for equal values
  std::string text = {};  // for people
  // values that are compared by ==, and how
  struct Object {
    std::shared_ptr<const void> value;
    bool (*is_same)(const void* a, const void* b);
  };
  std::vector<Object> objects = {};

  bool operator==(const HostArgument& o) const {
    if (key != o.key || objects.size() != o.objects.size()) return false;
    for (std::size_t i = 0; i < objects.size(); ++i)
      if (objects[i].is_same != o.objects[i].is_same ||
          !objects[i].is_same(objects[i].value.get(), o.objects[i].value.get()))
        return false;
    return true;
  }
};

void add_host(const Shape& value, HostArgument& out);
/// Appends the host, or the scope if it has none, and the name of a variable.
void add_host(const Variable& value, HostArgument& out);

template <class T>
struct is_complex_number : std::false_type {};
template <class T>
struct is_complex_number<std::complex<T>> : std::true_type {};

template <class T>
concept HostText = std::is_convertible_v<const T&, std::string> ||
    std::is_convertible_v<const T&, std::string_view>;

template <class T>
concept HostPointer = std::is_pointer_v<T> || requires(const T& p) {
  typename T::element_type;
  p.get();
  static_cast<bool>(p);
};

template <class T>
concept HostOptional = requires(const T& o) {
  typename T::value_type;
  o.has_value();
  *o;
};

template <class T>
struct is_variant : std::false_type {};
template <class... T>
struct is_variant<std::variant<T...>> : std::true_type {};

template <class T>
concept HostTuple = requires {
  std::tuple_size<T>::value;
};

template <class T>
concept HostHashed = std::is_copy_constructible_v<T> && requires(const T& a) {
  { std::hash<T>()(a) } -> std::convertible_to<std::size_t>;
  { a == a } -> std::convertible_to<bool>;
};

template <class T>
concept HostRange = requires(const T& r) {
  typename T::value_type;
  r.begin();
  r.end();
  r.size();
};

/// True if the address of a value of this type, or of a part of it, is a part of the key.
template <class T>
struct IsByAddress;
template <class T>
inline constexpr bool is_by_address = IsByAddress<std::remove_cvref_t<T>>::value;

template <class... T>
constexpr bool some_by_address(const std::tuple<T...>*) {
  return (is_by_address<T> || ...);
}
template <class A, class B>
constexpr bool some_by_address(const std::pair<A, B>*) {
  return is_by_address<A> || is_by_address<B>;
}
template <class T, std::size_t N>
constexpr bool some_by_address(const std::array<T, N>*) {
  return is_by_address<T>;
}
template <class... T>
constexpr bool some_by_address(const std::variant<T...>*) {
  return (is_by_address<T> || ...);
}

template <class T>
struct IsByAddress {
  static constexpr bool find() {
    if constexpr (std::is_enum_v<T> || std::is_arithmetic_v<T> || HostText<T> ||
                  std::is_same_v<T, Variable> || std::is_same_v<T, Shape> ||
                  is_complex_number<T>::value || HostPointer<T>)
      return false;
    else if constexpr (HostTuple<T> || is_variant<T>::value)
      return some_by_address(static_cast<const T*>(nullptr));
    else if constexpr (HostOptional<T>) return is_by_address<typename T::value_type>;
    else if constexpr (HostHashed<T>) return false;
    else if constexpr (HostRange<T>) return is_by_address<typename T::value_type>;
    else return !std::is_empty_v<T>;
  }
  static constexpr bool value = find();
};

template <class T>
void add_bytes(const T& value, HostArgument& out) {
  out.key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
void add_host(const T& value, HostArgument& out) {
  static_assert(!std::is_same_v<T, Expr>,
                "this argument of a traced function holds expressions and is no structure of them; "
                "pass them beside it, or give it `auto members() { return std::tie(...); }`");
  if constexpr (std::is_enum_v<T>) {
    add_host(static_cast<std::underlying_type_t<T>>(value), out);
  } else if constexpr (std::is_same_v<T, long double>) {
    char digits[64];  // its bytes have gaps
    std::snprintf(digits, sizeof digits, "%La;", value);
    out.key += digits;
    out.text += std::to_string(value);
  } else if constexpr (std::is_arithmetic_v<T>) {
    add_bytes(value, out);
    out.text += std::to_string(value);
  } else if constexpr (is_complex_number<T>::value) {
    add_host(value.real(), out);
    out.text += "+i";
    add_host(value.imag(), out);
  } else if constexpr (HostText<T>) {
    using Text = std::conditional_t<std::is_convertible_v<const T&, std::string>, std::string,
                                    std::string_view>;
    const Text text = value;
    out.key += std::to_string(text.size()) + ':';
    out.key += text;
    out.text += '\'';
    out.text += text;
    out.text += '\'';
  } else if constexpr (std::is_pointer_v<T>) {
    add_bytes(reinterpret_cast<std::uintptr_t>(value), out);
    out.text += "a pointer";
  } else if constexpr (HostPointer<T>) {
    add_host(value.get(), out);
    // The copy keeps the object, so that no other one has its address later.
    if constexpr (std::is_copy_constructible_v<T>)
      out.objects.push_back(
          {std::make_shared<const T>(value), [](const void*, const void*) { return true; }});
  } else if constexpr (HostTuple<T>) {
    out.text += '(';
    std::apply([&](const auto&... part) { ((add_host(part, out), out.text += ' '), ...); }, value);
    out.text += ')';
  } else if constexpr (is_variant<T>::value) {
    add_bytes(value.index(), out);
    std::visit([&](const auto& part) { add_host(part, out); }, value);
  } else if constexpr (HostOptional<T>) {
    out.key += value.has_value() ? 'y' : 'n';
    if (value.has_value()) add_host(*value, out);
    else out.text += "nothing";
  } else if constexpr (HostHashed<T>) {
    add_bytes(std::hash<T>()(value), out);
    out.objects.push_back({std::make_shared<const T>(value), [](const void* a, const void* b) {
                             return static_cast<bool>(*static_cast<const T*>(a) ==
                                                      *static_cast<const T*>(b));
                           }});
    out.text += "an object";
  } else if constexpr (HostRange<T>) {
    add_bytes(static_cast<std::uint64_t>(value.size()), out);
    for (const auto& part : value) {
      out.text += ' ';
      add_host(part, out);
    }
  } else if constexpr (std::is_empty_v<T>) {
    out.text += "an object";  // its type is in the key
  } else {
    add_bytes(reinterpret_cast<std::uintptr_t>(&value), out);
    out.text += "an object";
  }
}

}  // namespace troupe::detail
