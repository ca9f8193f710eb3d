// Expressions: the one value type users see. An `Expr` is a reference to its reader plus what the
// reader knows it by: an edge of a graph under construction, or a value computed at once.
//
//   Graph g;
//   Expr x = g.input("x", DType::f32, {kAny, 784});
//   Expr y = relu(matmul(x, w) + b) * 2.0;
//
// Every function takes `Operand`s: an expression, a variable, a tensor or a literal, with the line
// where the user wrote it. Literals take the dtype of the expression they meet.
// Lifetime: an expression must not outlive its reader (the `Graph` or `Eager` it came from).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <troupe/devices/device/attr.hpp>

namespace troupe {

class Reader;
class Variable;

/// Output `output` of node `node` of a graph.
struct Edge {
  std::int32_t node = -1;
  std::int32_t output = 0;
  friend bool operator==(Edge, Edge) = default;
  friend auto operator<=>(Edge, Edge) = default;
};

/// What is known of a value while a graph is built: of a tensor, or of a list and its elements.
struct ValueSpec {
  /// Depth of a list whose elements are of any kind (what a recursive call saves).
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
  /// Is whatever `other` describes described by this too?
  bool covers(const ValueSpec& other) const {
    return depth == other.depth &&
           (depth == kAnyDepth || (dtype == other.dtype && shape.covers(other.shape)));
  }
  friend bool operator==(const ValueSpec&, const ValueSpec&) = default;
  /// `f32[2,?]`, `list(f32[2])`.
  std::string text() const;
};

/// What a value that is there is known to be.
ValueSpec spec_of_value(const Value& value);
/// Is `value` what `spec` says? False for nothing.
bool fits(const Value& value, const ValueSpec& spec);

class Expr {
 public:
  Expr() = default;
  Expr(Reader* reader, Edge edge) : reader_(reader), edge_(edge) {}
  Expr(Reader* reader, Value value) : reader_(reader), value_(std::move(value)) {}
  /// A value that `mark` tells from its equals; no node is called that.
  Expr(Reader* reader, Value value, Edge mark)
      : reader_(reader), edge_(mark), value_(std::move(value)) {}

  explicit operator bool() const = delete;  // a graph has no value yet: use where() or cond()
  bool is_empty() const { return reader_ == nullptr; }
  /// Throws failed_precondition on an empty expression.
  Reader& reader() const;
  Edge edge() const { return edge_; }

  DType dtype() const;
  /// May have unknown extents in a graph.
  Shape shape() const;
  ValueSpec spec() const;
  /// The tensor of an eager expression; throws failed_precondition on a graph's, and on a list.
  const Tensor& value() const;
  /// What an eager expression holds, tensor or list; throws failed_precondition on a graph's.
  const Value& held() const;

 private:
  Reader* reader_ = nullptr;
  Edge edge_;
  Value value_;
};

/// What a function of the DSL accepts, and where the user wrote it.
class Operand {
 public:
  using At = std::source_location;
  Operand(Expr e, Site at = At::current()) : expr_(std::move(e)), site_(at) {}       // NOLINT
  Operand(const Variable& v, Site at = At::current());                               // NOLINT
  Operand(Tensor t, Site at = At::current()) : literal_(std::move(t)), site_(at) {}  // NOLINT
  template <class T>
  requires std::is_arithmetic_v<T> Operand(T literal, Site at = At::current())
      : literal_(widened(literal)), is_number_(true), site_(at) {}  // NOLINT

  /// What stands for an expression, such as a TensorArray.
  template <class T>
  requires(!std::is_arithmetic_v<T> && !std::is_same_v<T, Expr> &&
           std::is_convertible_v<const T&, Expr>) Operand(const T& e, Site at = At::current())
      : Operand(static_cast<Expr>(e), at) {}  // NOLINT

  bool is_expr() const { return !expr_.is_empty(); }
  const Expr& expr() const { return expr_; }
  const Tensor& literal() const { return literal_; }
  /// A C++ number, which adapts its dtype; a tensor keeps its own.
  bool is_number() const { return is_number_; }
  /// The number as an element of `wanted`: of an integer dtype to the last digit, of a floating one
  /// rounded. Throws invalid_argument, which opens with `whose` and ends with `advice`, where
  /// `wanted` does not hold it.
  Tensor number_as(DType wanted, std::string_view whose = {}, std::string_view advice = {}) const;
  /// The same, written at `site`.
  Operand at(const Site& site) const {
    Operand o = *this;
    o.site_ = site;
    return o;
  }
  /// The same, but a number keeps the dtype it is written in: an index among operands of other
  /// dtypes.
  Operand as_written() const {
    Operand o = *this;
    o.is_number_ = false;
    return o;
  }
  const Site& site() const { return site_; }

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
  Site site_;
};

/// Outputs of one operation; most have one.
using Exprs = std::vector<Expr>;

/// The one way to make an operation: finds the innermost reader among the operands and hands it
/// op, inputs and attributes; the reader evaluates now, appends to its graph, or records.
/// Throws not_found for an unknown op and invalid_argument, naming op and line, for wrong inputs.
Exprs bind_op(std::string_view op, std::initializer_list<Operand> operands, Attrs attrs = {});
Exprs bind_op(std::string_view op, std::span<const Operand> operands, Attrs attrs,
              const Site& site);
/// The same for ops of one output.
Expr bind1(std::string_view op, std::initializer_list<Operand> operands, Attrs attrs = {});
Expr bind1(std::string_view op, std::span<const Operand> operands, Attrs attrs, const Site& site);

}  // namespace troupe
