#include <troupe/ops/graph/composite.hpp>

#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include <troupe/functions.hpp>

namespace troupe::detail {
namespace {

Reader& innermost_of_all(std::string_view name, std::initializer_list<Operand> operands) {
  std::size_t at = 0;
  for (const Operand& o : operands) {
    if (!o.is_expr() && !o.literal().has_value())
      throw Error(Code::invalid_argument,
                  fmt::format("{} at {}: operand {} holds nothing: it is an Expr or a Tensor that "
                              "was never given a value",
                              name, o.site().text(), at));
    ++at;
  }
  Reader* found = nullptr;
  for (const Operand& o : operands)
    if (o.is_expr() && (!found || o.expr().reader().depth() > found->depth()))
      found = &o.expr().reader();
  if (!found)
    throw Error(Code::invalid_argument,
                fmt::format("{} at {}: at least one operand must be an expression", name,
                            operands.begin()->site().text()));
  return *found;
}

// The compiler's name of a user function has brackets; the name of a DSL function has none.
bool is_of_a_composite(const Site& site) {
  return *site.function && !std::strchr(site.function, '(');
}

// The outermost of functions within functions.
Site named(Site site, std::string_view name) {
  if (!is_of_a_composite(site)) site.function = name.data();
  return site;
}

}  // namespace

std::string within(const Site& site) {
  return is_of_a_composite(site) ? fmt::format(" in {}", site.function) : "";
}

Composite::Composite(std::string_view name, std::initializer_list<Operand> operands)
    : name_(name), reader_(innermost_of_all(name, operands).current()),
      site_(named(reader_.site_for(operands.begin()->site()), name)), at_(reader_, site_) {
  DType first = DType::f32;
  for (const Operand& o : operands)
    if (o.is_expr()) {
      first = o.expr().dtype();
      break;
    }
  for (const Operand& o : operands) {
    if (o.is_expr())
      inputs_.push_back(&o.expr().reader() == &reader_ ? o.expr() : reader_.adopt(o.expr(), site_));
    else
      inputs_.push_back(reader_.constant(
          o.is_number() ? o.at(site_).number_as(first, fmt::format("{} ", site_.function))
                        : o.literal()));
  }
}

Composite::Composite(std::string_view name, Reader& in, std::source_location at)
    : name_(name), reader_(in.current()), site_(named(reader_.site_for(Site(at)), name)),
      at_(reader_, site_) {}

void Composite::require(bool condition, const std::string& message) const {
  if (condition) return;
  const bool is_outermost = name_ == site_.function;
  throw Error(Code::invalid_argument, fmt::format("{} at {}: {}{}", site_.function, site_.text(),
                                                  is_outermost ? "" : name_ + ": ", message));
}

void Composite::require_floating(std::size_t i) const {
  require(is_floating(inputs_[i].dtype()),
          fmt::format("needs a floating dtype, not {}", name_of(inputs_[i].dtype())));
}

void Composite::require_floating_or_complex(std::size_t i) const {
  if (!is_complex(inputs_[i].dtype())) require_floating(i);
}

void Composite::require_numbers(std::size_t i) const {
  require(inputs_[i].dtype() != DType::string, "strings are not computed with");
}

int Composite::rank(std::size_t i) const {
  require(inputs_[i].shape().has_rank(),
          fmt::format("needs the rank of operand {}; give it a shape", i));
  return inputs_[i].shape().rank();
}

int Composite::axis(std::size_t i, std::int64_t axis) const {
  const int r = rank(i);
  require(axis >= -r && axis < r,
          fmt::format("{} has no axis {}", inputs_[i].shape().text(), axis));
  return static_cast<int>(axis < 0 ? axis + r : axis);
}

std::int64_t Composite::extent(std::size_t i, std::int64_t axis) const {
  const int r = rank(i);
  require(axis >= -r && axis < r,
          fmt::format("operand {} has no axis {}: {}", i, axis, inputs_[i].shape().text()));
  const std::int64_t e = inputs_[i].shape()[static_cast<int>(axis < 0 ? axis + r : axis)];
  require(e >= 0,
          fmt::format("needs the extent of operand {} along axis {} while the graph is built: {}",
                      i, axis, inputs_[i].shape().text()));
  return e;
}

void Composite::require_fits(const Shape& made) const {
  std::int64_t elements = 1;
  for (std::int64_t e : made)
    if (e >= 0) {
      require(!__builtin_mul_overflow(elements, e, &elements) && elements <= std::int64_t{1} << 40,
              fmt::format("a result of shape {} fits nowhere", made.text()));
    }
}

Expr Composite::source(std::string_view op, Attrs attrs) const {
  return reader_.bind(find_op(op), {}, std::move(attrs), site_)[0];
}

Expr Composite::shaped_as(std::size_t i, std::size_t j) const {
  const Shape a = inputs_[j].shape(), b = inputs_[i].shape();
  if (b.rank() == 0) return inputs_[i];
  require(a.is_compatible(b), fmt::format("{} and {} differ in shape", a.text(), b.text()));
  if (a.is_known() && b.is_known()) return inputs_[i];
  return bind1("MatchExtents", {inputs_[i], inputs_[j]}, Attrs{{"function", name_}});
}

Expr Composite::with_extent(const Expr& x, int axis, const Expr& other, int of,
                            const std::string& what) const {
  const std::int64_t a = other.shape()[of], b = x.shape()[axis];
  require(a < 0 || b < 0 || a == b,
          fmt::format("{} is {} in one place and {} in another", what, a, b));
  if (a >= 0 && b >= 0) return x;
  return bind1("MatchExtents", {x, other},
               Attrs{{"function", name_},
                     {"what", what},
                     {"axis", std::int64_t{axis}},
                     {"of", std::int64_t{of}}});
}

Expr widened_half(const Expr& x) {
  return x.dtype() == DType::f16 || x.dtype() == DType::bf16 ? cast(x, DType::f32) : x;
}

Expr scale_of_squares(const Expr& sums) {
  // With 2^600 either way the squares of all that f64 holds, and sums of 2^170 of them, are normal
  // numbers, but for those that another outweighs by more than f64's digits.
  Expr q = stop_gradient(sums);
  return where(q == std::numeric_limits<double>::infinity(), 0x1p-600,
               where(q < 0x1p-900, 0x1p600, ones_like(q)));
}

Expr exchanged_with_last(const Expr& x, int axis) {
  const int rank = x.shape().rank();
  if (axis == rank - 1) return x;
  std::vector<std::int64_t> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<std::size_t>(axis)], order.back());
  return transpose(x, order);
}

Operand counted(const Operand& x) {
  return x.is_expr() && x.expr().dtype() == DType::boolean ? Operand(cast(x, DType::i64), x.site())
                                                           : x;
}

}  // namespace troupe::detail
