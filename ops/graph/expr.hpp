// Expressions: the one value type of users. An `Expr` is a reference to its reader plus its
// identity there: an edge of a graph under construction, or a value computed at once.
//
//   Graph g;
//   Expr x = g.input("x", DType::f32, {kAny, 784});
//   Expr y = relu(matmul(x, w) + b) * 2.0;
//
// Every function takes `Operand`s: an expression, a variable, a tensor or a literal, with the line
// where the user wrote it. Literals take the dtype of the expression they meet.
//
//   x[0];  x[{1, -1}];  x[{{}, {n, {}}}];       // elements and slices, as in Python (`Expr`)
//   y += 1.0;  is_low && !is_empty;             // both sides are computed, element by element
// Lifetime: an expression must not outlive its reader (the `Graph` or `Eager` it came from).
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <troupe/devices/device/attr.hpp>

namespace troupe {

namespace detail {

class Reader;

}  // namespace detail

class Variable;
class Expr;

namespace detail {
class Index;
class Interval;

/// False, once T is known: the condition of a static_assert in a template that must not be used.
template <class T>
inline constexpr bool kNever = false;

/// The element of an empty list: `f({})` means f() for a constructor that takes such a list, and is
/// not taken for a copy.
struct Nothing {
  Nothing() = delete;
};

/// C++ values that are often given in the place of an operand, and are none.
template <class T>
inline constexpr bool is_mistaken = std::is_convertible_v<const T&, std::string_view>;
template <class T, class A>
inline constexpr bool is_mistaken<std::vector<T, A>> = std::is_arithmetic_v<T>;
template <class T, std::size_t N>
inline constexpr bool is_mistaken<T[N]> = std::is_arithmetic_v<T>;
/// Output `output` of node `node` of a graph.
struct Edge {
  std::int32_t node = -1;
  std::int32_t output = 0;
  friend bool operator==(Edge, Edge) = default;
  friend auto operator<=>(Edge, Edge) = default;
};

}  // namespace detail

/// The known properties of a value while a graph is built: a tensor, or a list and its elements.
struct ValueSpec {
  /// Depth of a list whose elements are of any kind (the saved values of a recursive call).
  static constexpr std::uint8_t kAnyDepth = 255;

  DType dtype = DType::f32;
  Shape shape;
  // 0: a tensor; n: a list of values of depth n-1; dtype and shape are the innermost tensors'
  std::uint8_t depth = 0;
  bool is_list() const { return depth > 0; }
  /// The spec of a list's elements.
  ValueSpec element() const {
    return {dtype, shape, static_cast<std::uint8_t>(depth == kAnyDepth ? kAnyDepth : depth - 1)};
  }
  ValueSpec list_of() const {
    return {dtype, shape, static_cast<std::uint8_t>(depth == kAnyDepth ? kAnyDepth : depth + 1)};
  }
  /// True if every value with the spec `other` fits this spec too.
  bool covers(const ValueSpec& other) const {
    return depth == other.depth &&
           (depth == kAnyDepth || (dtype == other.dtype && shape.covers(other.shape)));
  }
  friend bool operator==(const ValueSpec&, const ValueSpec&) = default;
  /// `f32[2,?]`, `list(f32[2])`.
  std::string text() const;
};

namespace detail {

/// Returns the exact spec of a computed value.
ValueSpec spec_of_value(const Value& value);
/// Returns true if `value` agrees with `spec`; false for an empty value.
bool fits(const Value& value, const ValueSpec& spec);

}  // namespace detail

/// A reference to a value. No conversion to bool: a graph has no value yet, use where() or cond().
class Expr {
 public:
  Expr() = default;
  Expr(detail::Reader* reader, detail::Edge edge) : reader_(reader), edge_(edge) {}
  Expr(detail::Reader* reader, detail::Value value) : reader_(reader), value_(std::move(value)) {}
  /// A value that `mark` identifies among equal values; `mark` is no node's edge.
  Expr(detail::Reader* reader, detail::Value value, detail::Edge mark)
      : reader_(reader), edge_(mark), value_(std::move(value)) {}

  /// True if an eager scalar is true, or a number other than 0. Throws invalid_argument unless it
  /// is one element, and failed_precondition, naming the op and its line, for a graph's expression,
  /// which has no value yet: use where(), cond() or while_loop().
  explicit operator bool() const;
  bool is_empty() const { return reader_ == nullptr; }
  /// Throws failed_precondition on an empty expression.
  detail::Reader& reader() const;
  detail::Edge edge() const { return edge_; }

  DType dtype() const;
  /// May have unknown extents in a graph.
  Shape shape() const;
  ValueSpec spec() const;
  /// The tensor of an eager expression; throws failed_precondition on a graph's, and on a list.
  const Tensor& value() const;
  /// The value of an eager expression, tensor or list; throws failed_precondition on a graph's.
  const detail::Value& held() const;

  /// The element of axis 0 at an index, without that axis: `x[0]`, `x[-1]`, `x[i]`. The index is a
  /// number or an i32 or i64 scalar in [-extent, extent). Another index fails with out_of_range,
  /// when the program runs if it is not known before. The rank must be known.
  Expr operator[](const detail::Index& index) const;
  /// The elements [begin, end) of axis 0: `x[{1, -1}]`. Bounds are numbers or i32 or i64 scalars,
  /// or `{}`, which is the axis's own: `x[{n, {}}]`. As in Python a negative one counts from the
  /// end, one beyond an end is cut to it, and none are left unless begin < end.
  Expr operator[](const detail::Interval& interval) const;
  /// Slices of the first axes, `{}` for all of an axis: `x[{{}, {1, -1}}]`.
  Expr operator[](std::initializer_list<detail::Interval> intervals) const;

 private:
  detail::Reader* reader_ = nullptr;
  detail::Edge edge_;
  detail::Value value_;
};

/// An argument of a DSL function, with the line where the user wrote it.
class Operand {
 public:
  using At = std::source_location;
  Operand(Expr e, detail::Site at = At::current()) : expr_(std::move(e)), site_(at) {}  // NOLINT
  Operand(const Variable& v, detail::Site at = At::current());                          // NOLINT
  Operand(Tensor t, detail::Site at = At::current())
      : literal_(std::move(t)), site_(at) {}  // NOLINT
  template <class T>
  requires std::is_arithmetic_v<T> Operand(T literal, detail::Site at = At::current())
      : literal_(widened(literal)), is_number_(true), site_(at) {}  // NOLINT

  /// Types that convert to an expression, such as a TensorArray.
  template <class T>
  requires(!std::is_arithmetic_v<T> && !std::is_same_v<T, Expr> &&
           std::is_convertible_v<const T&, Expr>)
      Operand(const T& e, detail::Site at = At::current())
      : Operand(static_cast<Expr>(e), at) {}  // NOLINT

  /// Fails to compile with a message that names the right argument.
  template <class T>
  requires(detail::is_mistaken<T> && !std::is_convertible_v<const T&, Expr>)
      Operand(const T&, detail::Site = At::current()) {  // NOLINT
    static_assert(detail::kNever<T>,
                  "an operand is an expression, a variable, a tensor or a number; make a tensor of "
                  "other values: Tensor::of(vector, Shape{n}), Tensor::string(text)");
  }

  bool is_expr() const { return !expr_.is_empty(); }
  const Expr& expr() const { return expr_; }
  const Tensor& literal() const { return literal_; }
  /// A C++ number, which adapts its dtype; a tensor keeps its own.
  bool is_number() const { return is_number_; }
  /// The number as an element of `wanted`: of an integer dtype to the last digit, of a floating one
  /// rounded. Throws invalid_argument, which opens with `whose` and ends with `advice`, if `wanted`
  /// cannot represent it.
  Tensor number_as(DType wanted, std::string_view whose = {}, std::string_view advice = {}) const;
  /// Returns this operand as if the user had written it at `site`.
  Operand at(const detail::Site& site) const {
    Operand o = *this;
    o.site_ = site;
    return o;
  }
  /// Returns this operand with the dtype that its number was written in: an index among operands
  /// of other dtypes.
  Operand as_written() const {
    Operand o = *this;
    o.is_number_ = false;
    return o;
  }
  const detail::Site& site() const { return site_; }

 private:
  template <class T>
  static Tensor widened(T literal) {
    if constexpr (std::is_same_v<T, bool>) return Tensor::scalar(literal);
    else if constexpr (!std::is_integral_v<T>) return Tensor::scalar(static_cast<double>(literal));
    else if (!std::in_range<std::int64_t>(literal))
      return Tensor::scalar(static_cast<std::uint64_t>(literal));
    else return Tensor::scalar(static_cast<std::int64_t>(literal));
  }
  Expr expr_;
  Tensor literal_;
  bool is_number_ = false;
  detail::Site site_;
};

namespace detail {

/// The line of a bracket. Explicit, so that `{}` beside a number is a bound and not a line.
struct Line {
  Site site;
  explicit Line(const std::source_location& at) : site(at) {}
};

/// The index of `x[i]`.
class Index {
 public:
  template <class T>
  requires std::is_convertible_v<const T&, Operand> Index(
      const T& index, Line line = Line(std::source_location::current()))
      : operand(Operand(index).at(line.site)) {}  // NOLINT
  Operand operand;
};

/// A bound of a slice: an operand, or open.
class Bound {
 public:
  Bound() = default;
  Bound(std::nullopt_t) {}  // NOLINT
  template <class T>
  requires std::is_convertible_v<const T&, Operand> Bound(const T& bound)
      : operand(Operand(bound)) {}  // NOLINT
  std::optional<Operand> operand;
};

/// [begin, end) of an axis; by default all of it.
class Interval {
 public:
  Interval(std::source_location at = std::source_location::current()) : line(at) {}
  Interval(Bound begin_, Bound end_, Line at = Line(std::source_location::current()))
      : begin(std::move(begin_)), end(std::move(end_)), line(at) {}
  Bound begin, end;
  Line line;
};

/// A shape that may stand on values: `{n, 4}` with n an i32 or i64 scalar, a vector of extents such
/// as `shape_of(y)`, or a Shape. A number may be kAny, whose meaning is that of the function.
class Extents {
 public:
  Extents(const Shape& shape,
          const std::source_location& at = std::source_location::current())  // NOLINT
      : known_(shape), site_(at) {}
  Extents(std::initializer_list<Operand> extents,
          const std::source_location& at = std::source_location::current());
  template <class T>
  requires(!std::is_arithmetic_v<T> && !std::is_same_v<T, Shape> && !is_mistaken<T> &&
           std::is_convertible_v<const T&, Operand>)
      Extents(const T& vector,
              const std::source_location& at = std::source_location::current())  // NOLINT
      : vector_(Operand(vector).at(at)), known_(Shape::unknown()), site_(at) {}

  /// The extents that are numbers, and kAny for others; all, where `is_known`.
  const Shape& known() const { return known_; }
  bool is_known() const { return extents_.empty() && !vector_; }
  /// One operand an axis, or none where the shape is known or is a vector.
  const std::vector<Operand>& extents() const { return extents_; }
  const std::optional<Operand>& vector() const { return vector_; }
  const Site& site() const { return site_; }

 private:
  std::vector<Operand> extents_;
  std::optional<Operand> vector_;
  Shape known_;
  Site site_;
};

/// Axes of a reduction: `{0, 1}`, a vector, or a single number; none given: all.
class Axes {
 public:
  Axes() = default;
  Axes(std::initializer_list<std::int64_t> axes) : axes_(axes) {}
  Axes(std::vector<std::int64_t> axes) : axes_(std::move(axes)) {}  // NOLINT
  template <std::integral T>
  requires(!std::is_same_v<T, bool>) Axes(T axis) : axes_{static_cast<std::int64_t>(axis)} {}
  operator const std::vector<std::int64_t>&() const { return axes_; }  // NOLINT
  auto begin() const { return axes_.begin(); }
  auto end() const { return axes_.end(); }

 private:
  std::vector<std::int64_t> axes_;
};

}  // namespace detail

/// `x = x + y` and so on: x names the result from then on. Earlier nodes of a graph stay as they
/// are.
Expr& operator+=(Expr& x, Operand y);
Expr& operator-=(Expr& x, Operand y);
Expr& operator*=(Expr& x, Operand y);
Expr& operator/=(Expr& x, Operand y);

// Exact overloads, because C++ would otherwise convert expressions to bool. Both sides are
// computed. Errors carry the line of an operand's own op.
Expr operator&&(const Expr& x, const Expr& y);
Expr operator&&(const Expr& x, bool y);
Expr operator&&(bool x, const Expr& y);
Expr operator||(const Expr& x, const Expr& y);
Expr operator||(const Expr& x, bool y);
Expr operator||(bool x, const Expr& y);
Expr operator!(const Expr& x);

/// For people: `f32[2, ?]` of a graph's expression; an eager one's value.
std::ostream& operator<<(std::ostream& out, const Expr& e);

namespace detail {

template <class T>
inline constexpr bool is_expression =
    std::is_same_v<T, Expr> || std::is_same_v<T, Variable> || std::is_same_v<T, Operand>;
/// An expression meets something that is no operand.
template <class A, class B>
concept Mismatch = (is_expression<A> && !std::is_convertible_v<const B&, Operand>) ||
                   (is_expression<B> && !std::is_convertible_v<const A&, Operand>);
template <class A, class B>
Expr refuse_operand() {
  static_assert(
      kNever<A>,
      "an operator of expressions meets a value that is no operand; give an expression, a "
      "variable, a tensor or a number: of a vector of expressions stack(...), of other "
      "values Tensor::of(vector, Shape{n})");
  return {};
}

}  // namespace detail

// Operators of an expression and a type that is no operand fail to compile, with a message.
template <class A, class B>
requires detail::Mismatch<A, B> Expr operator+(const A&, const B&) {
  return detail::refuse_operand<A, B>();
}
template <class A, class B>
requires detail::Mismatch<A, B> Expr operator-(const A&, const B&) {
  return detail::refuse_operand<A, B>();
}
template <class A, class B>
requires detail::Mismatch<A, B> Expr operator*(const A&, const B&) {
  return detail::refuse_operand<A, B>();
}
template <class A, class B>
requires detail::Mismatch<A, B> Expr operator/(const A&, const B&) {
  return detail::refuse_operand<A, B>();
}
template <class A, class B>
requires detail::Mismatch<A, B> Expr operator%(const A&, const B&) {
  return detail::refuse_operand<A, B>();
}
template <class A, class B>
requires detail::Mismatch<A, B> Expr operator<(const A&, const B&) {
  return detail::refuse_operand<A, B>();
}
template <class A, class B>
requires detail::Mismatch<A, B> Expr operator<=(const A&, const B&) {
  return detail::refuse_operand<A, B>();
}
template <class A, class B>
requires detail::Mismatch<A, B> Expr operator>(const A&, const B&) {
  return detail::refuse_operand<A, B>();
}
template <class A, class B>
requires detail::Mismatch<A, B> Expr operator>=(const A&, const B&) {
  return detail::refuse_operand<A, B>();
}
template <class A, class B>
requires detail::Mismatch<A, B> Expr operator==(const A&, const B&) {
  return detail::refuse_operand<A, B>();
}
template <class A, class B>
requires detail::Mismatch<A, B> Expr operator!=(const A&, const B&) {
  return detail::refuse_operand<A, B>();
}
template <class A, class B>
requires detail::Mismatch<A, B> Expr operator&&(const A&, const B&) {
  return detail::refuse_operand<A, B>();
}
template <class A, class B>
requires detail::Mismatch<A, B> Expr operator||(const A&, const B&) {
  return detail::refuse_operand<A, B>();
}

/// Outputs of one operation; most have one.
using Exprs = std::vector<Expr>;

namespace detail {

/// The one way to make an operation: finds the innermost reader among the operands and hands it
/// op, inputs and attributes; the reader evaluates now, appends to its graph, or records.
/// Throws not_found for an unknown op and invalid_argument, naming op and line, for wrong inputs.
Exprs bind_op(std::string_view op, std::initializer_list<Operand> operands, Attrs attrs = {});
Exprs bind_op(std::string_view op, std::span<const Operand> operands, Attrs attrs,
              const Site& site);
/// Makes an operation of one output.
Expr bind1(std::string_view op, std::initializer_list<Operand> operands, Attrs attrs = {});
Expr bind1(std::string_view op, std::span<const Operand> operands, Attrs attrs, const Site& site);

}  // namespace detail

}  // namespace troupe
