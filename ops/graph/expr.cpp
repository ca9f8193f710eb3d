#include <troupe/ops/graph/expr.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <ostream>
#include <string>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/list/list.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/reader.hpp>
#include <troupe/ops/graph/spare_exprs.hpp>
#include <troupe/ops/graph/tracing.hpp>
#include <troupe/ops/graph/variable.hpp>

namespace troupe {

std::string ValueSpec::text() const {
  if (depth == kAnyDepth) return "list(any)";
  std::string text = fmt::format("{}{}", name_of(dtype), shape.text());
  for (int i = 0; i < depth; ++i) text = "list(" + text + ")";
  return text;
}

namespace detail {

ValueSpec spec_of_value(const Value& value) {
  if (value.is_list()) return {value.dtype(), value.list().element_shape(), value.list().depth()};
  return {value.dtype(), value.tensor().shape()};
}

bool fits(const Value& value, const ValueSpec& spec) {
  if (!value.has_value()) return false;
  ValueSpec is = spec_of_value(value);
  return is.depth == spec.depth && (spec.depth == ValueSpec::kAnyDepth ||
                                    (is.dtype == spec.dtype && is.shape.is_compatible(spec.shape)));
}

}  // namespace detail

Reader& Expr::reader() const {
  if (!reader_)
    throw Error(Code::failed_precondition,
                "an empty expression was used; take what an op returned");
  return *reader_;
}
ValueSpec Expr::spec() const { return reader().spec_of(*this); }
DType Expr::dtype() const { return spec().dtype; }
Shape Expr::shape() const { return spec().shape; }
const Value& Expr::held() const {
  if (!reader_ && !value_.has_value()) reader();
  if (value_.has_value()) return value_;
  const auto* graph = dynamic_cast<const Graph*>(reader_);
  const std::string what = graph ? graph->describe(edge_.node) : "a graph's expression";
  if (const Tracing* const trace = Tracing::active())
    throw Error(Code::failed_precondition,
                fmt::format("{} has no value while {} is traced; return it and read the result, or "
                            "read it in a host_callback",
                            what, trace->name()));
  throw Error(
      Code::failed_precondition,
      fmt::format("{} has no value while the graph is built; run the graph and fetch it", what));
}
const Tensor& Expr::value() const {
  if (held().is_list())
    throw Error(Code::failed_precondition,
                "a list is no tensor; read, stack or concatenate it first");
  return value_.tensor();
}

Operand::Operand(const Variable& v, Site at) : expr_(v.read(at)), site_(at) {}

namespace {
void become(Expr& x, const char* op, const Operand& y) { x = bind1(op, {Operand(x, y.site()), y}); }
}  // namespace

Expr& operator+=(Expr& x, Operand y) { return become(x, "Add", y), x; }
Expr& operator-=(Expr& x, Operand y) { return become(x, "Sub", y), x; }
Expr& operator*=(Expr& x, Operand y) { return become(x, "Mul", y), x; }
Expr& operator/=(Expr& x, Operand y) { return become(x, "Div", y), x; }

namespace detail {

Extents::Extents(std::initializer_list<Operand> extents, const std::source_location& at)
    : site_(at) {
  std::vector<std::int64_t> known;
  bool has_values = false;
  for (const Operand& e : extents) {
    const bool is_number = e.is_number();
    has_values = has_values || !is_number;
    known.push_back(is_number ? e.number_as(DType::i64, "the shape ").item<std::int64_t>() : kAny);
  }
  known_ = Shape(known, at);
  if (has_values) extents_.assign(extents.begin(), extents.end());
}

}  // namespace detail

namespace {

// Returns `value` as a T; none if T cannot represent it.
template <class T, class Written>
std::optional<T> exactly(Written value) {
  if constexpr (std::is_floating_point_v<Written>) {
    if (value != std::trunc(value) || value < -0x1p63 || value >= 0x1p64) return {};
    return value < 0 ? exactly<T>(static_cast<std::int64_t>(value))
                     : exactly<T>(static_cast<std::uint64_t>(value));
  } else {
    return std::in_range<T>(value) ? std::optional<T>(static_cast<T>(value)) : std::nullopt;
  }
}

std::optional<Tensor> held(const Tensor& number, DType wanted) {
  if (number.dtype() == wanted) return number;
  if (is_integer(wanted))
    return visit_dtype(wanted, [&]<class T>(type_tag<T>) -> std::optional<Tensor> {
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        std::optional<T> value;
        switch (number.dtype()) {
          case DType::i64: value = exactly<T>(number.item<std::int64_t>()); break;
          case DType::u64: value = exactly<T>(number.item<std::uint64_t>()); break;
          default: value = exactly<T>(number.at(0));
        }
        if (value) return Tensor::scalar(*value);
      }
      return {};
    });
  if (wanted == DType::boolean || wanted == DType::string) return {};
  return Tensor::scalar_as(wanted, number.at(0));
}

std::string written_text(const Tensor& number) {
  switch (number.dtype()) {
    case DType::i64: return std::to_string(number.item<std::int64_t>());
    case DType::u64: return std::to_string(number.item<std::uint64_t>());
    case DType::boolean: return number.item<bool>() ? "true" : "false";
    default: return fmt::format("{:g}", number.at(0));
  }
}

}  // namespace

Tensor Operand::number_as(DType wanted, std::string_view whose, std::string_view advice) const {
  if (std::optional<Tensor> number = held(literal_, wanted)) return *std::move(number);
  throw Error(Code::invalid_argument,
              fmt::format("{}at {}: the literal {} is no {}{}", whose, site_.text(),
                          written_text(literal_), name_of(wanted), advice));
}

namespace {

Reader& innermost(std::span<const Operand> operands, std::string_view op, const Site& site) {
  if (operands.empty())
    throw Error(
        Code::invalid_argument,
        fmt::format("{} at {}: there are no operands; give it at least one", op, site.text()));
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (!operands[i].is_expr() && !operands[i].literal().has_value())
      throw Error(Code::invalid_argument,
                  fmt::format("{} at {}: operand {} holds nothing: it is an Expr or a Tensor that "
                              "was never given a value",
                              op, site.text(), i));
  Reader* reader = nullptr;
  for (const Operand& o : operands)
    if (o.is_expr() && (!reader || o.expr().reader().depth() > reader->depth()))
      reader = &o.expr().reader();
  if (!reader)
    throw Error(
        Code::invalid_argument,
        fmt::format(
            "{} at {}: none of the operands is an expression; start from a Graph or an Eager scope",
            op, site.text()));
  return *reader;
}

// A number, written at `line`, takes the dtype of the expression it meets; one that would change
// its value is refused.
Tensor literal_as(const Operand& o, DType wanted, std::string_view op, const Site& line) {
  const std::string whose = fmt::format("{}{} ", op, within(line));
  if (wanted == DType::string)
    throw Error(Code::invalid_argument,
                fmt::format("{}at {}: the number {} meets strings, which are not computed with",
                            whose, line.text(), written_text(o.literal())));
  return o.at(line).number_as(wanted, whose, "; cast the other operand");
}

DType dtype_for_literals(std::span<const Operand> operands) {
  DType first = DType::f32;
  bool found = false;
  for (const Operand& o : operands) {
    if (o.is_number()) continue;
    DType t = o.is_expr() ? o.expr().dtype() : o.literal().dtype();
    if (t != DType::boolean) return t;
    if (!found) first = t, found = true;
  }
  // All expressions are conditions: the first other number decides by its written dtype.
  for (const Operand& o : operands)
    if (o.is_number() && o.literal().dtype() != DType::boolean)
      return o.literal().dtype() == DType::f64 ? DType::f32 : o.literal().dtype();
  return first;
}

Expr only(Exprs&& results) {
  Expr first = std::move(results[0]);
  SpareExprs::give(std::move(results));
  return first;
}

}  // namespace

namespace detail {

Exprs bind_op(std::string_view op, std::span<const Operand> operands, Attrs attrs,
              const Site& site) {
  const OpDef& def = find_op(op);
  Reader& reader = innermost(operands, op, site).current();
  reader.require_open(op, site);
  // this many need no memory from the heap
  std::array<Expr, 3> few;
  std::vector<Expr> many;
  std::span<Expr> inputs(few.data(), std::min(operands.size(), few.size()));
  if (operands.size() > few.size()) many.resize(operands.size()), inputs = many;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Operand& o = operands[i];
    if (o.is_expr())
      // another reader's is adopted where it is known which op it is for
      inputs[i] = o.expr();
    else
      inputs[i] =
          reader.adopt(Expr(nullptr, o.is_number() ? literal_as(o, dtype_for_literals(operands), op,
                                                                reader.site_for(o.site()))
                                                   : o.literal()),
                       o.site());
  }
  return reader.bind(def, inputs, std::move(attrs), site);
}

Exprs bind_op(std::string_view op, std::initializer_list<Operand> operands, Attrs attrs) {
  return bind_op(op, std::span<const Operand>(operands.begin(), operands.size()), std::move(attrs),
                 operands.size() ? operands.begin()->site() : Site());
}
Expr bind1(std::string_view op, std::initializer_list<Operand> operands, Attrs attrs) {
  return only(bind_op(op, operands, std::move(attrs)));
}
Expr bind1(std::string_view op, std::span<const Operand> operands, Attrs attrs, const Site& site) {
  return only(bind_op(op, operands, std::move(attrs), site));
}

}  // namespace detail

namespace {

// An operand with the line that made it, because an operator has no argument for its own.
Operand with_line(const Expr& e) {
  const auto* graph = e.is_empty() ? nullptr : dynamic_cast<const Graph*>(&e.reader());
  return Operand(e, graph ? graph->node(e.edge().node).site : Site());
}
Expr joined(const char* op, const Operand& x, const Operand& y) { return bind1(op, {x, y}); }

}  // namespace

Expr operator&&(const Expr& x, const Expr& y) {
  return joined("LogicalAnd", with_line(x), with_line(y));
}
Expr operator&&(const Expr& x, bool y) {
  return joined("LogicalAnd", with_line(x), Operand(y, with_line(x).site()));
}
Expr operator&&(bool x, const Expr& y) {
  return joined("LogicalAnd", Operand(x, with_line(y).site()), with_line(y));
}
Expr operator||(const Expr& x, const Expr& y) {
  return joined("LogicalOr", with_line(x), with_line(y));
}
Expr operator||(const Expr& x, bool y) {
  return joined("LogicalOr", with_line(x), Operand(y, with_line(x).site()));
}
Expr operator||(bool x, const Expr& y) {
  return joined("LogicalOr", Operand(x, with_line(y).site()), with_line(y));
}
Expr operator!(const Expr& x) { return bind1("LogicalNot", {with_line(x)}); }

}  // namespace troupe
