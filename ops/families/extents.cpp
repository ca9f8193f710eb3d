#include <troupe/ops/families/extents.hpp>

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include <troupe/functions.hpp>

namespace troupe {

Expr integer_vector(const Composite& c, const Operand& scalar, const std::string& what) {
  if (scalar.is_number())
    return c.reader().constant(
        Tensor::of<std::int64_t>({scalar.number_as(DType::i64, what + " ").item<std::int64_t>()}));
  const Expr e = scalar.is_expr() ? scalar.expr() : c.reader().constant(scalar.literal());
  const ValueSpec spec = e.spec();
  c.require(!spec.is_list() && (spec.dtype == DType::i32 || spec.dtype == DType::i64) &&
                (!spec.shape.has_rank() || spec.shape.is_scalar()),
            fmt::format("{} must be a number or an i32 or i64 scalar, not {}", what, spec.text()));
  return reshape(cast(e, DType::i64), Shape{1});
}

Expr extents_vector(const Composite& c, const detail::Extents& shape) {
  if (const auto& vector = shape.vector()) {
    const Expr e = vector->is_expr() ? vector->expr() : c.reader().constant(vector->literal());
    const ValueSpec spec = e.spec();
    c.require(!spec.is_list() && (spec.dtype == DType::i32 || spec.dtype == DType::i64) &&
                  spec.shape.rank() == 1 && spec.shape[0] >= 0,
              fmt::format("a vector of extents must be i32 or i64 of known length, not {}; give "
                          "scalars in braces",
                          spec.text()));
    c.require(
        spec.shape[0] <= Shape::kMaxRank,
        fmt::format("a shape has at most {} dimensions, not {}", Shape::kMaxRank, spec.shape[0]));
    return cast(e, DType::i64);
  }
  std::vector<Expr> parts;
  for (std::size_t i = 0; i < shape.extents().size(); ++i)
    parts.push_back(integer_vector(c, shape.extents()[i], fmt::format("extent {}", i)));
  return parts.size() == 1 ? parts[0] : concat(parts, 0);
}

Attrs extents_attrs(const Composite& c, const detail::Extents& shape) {
  Shape known = shape.known();
  std::vector<std::int64_t> open;
  if (const auto& vector = shape.vector()) {
    const Shape of = vector->is_expr() ? vector->expr().shape() : vector->literal().shape();
    known = Shape(std::vector<std::int64_t>(static_cast<std::size_t>(of[0]), kAny));
  }
  for (std::size_t i = 0; i < shape.extents().size(); ++i)
    if (shape.extents()[i].is_number() && known[static_cast<int>(i)] < 0)
      open.push_back(static_cast<std::int64_t>(i));
  c.require_fits(known);
  return Attrs{{"shape", known}, {"open", std::move(open)}};
}

Shape extents_given(const Attrs& attrs, const std::vector<std::int64_t>& extents) {
  const Shape& known = attrs.get<Shape>("shape");
  const auto& open = attrs.get<std::vector<std::int64_t>>("open");
  if (std::ssize(extents) != known.rank())
    throw Error(Code::invalid_argument,
                fmt::format("there are {} extents for shape {}", extents.size(), known.text()));
  for (int i = 0; i < known.rank(); ++i) {
    const std::int64_t e = extents[static_cast<std::size_t>(i)];
    if (e == kAny && std::find(open.begin(), open.end(), i) != open.end()) continue;
    if (e < 0 || (known[i] >= 0 && known[i] != e))
      throw Error(Code::invalid_argument,
                  fmt::format("extent {} is {}, which is none of {}", i, e, known.text()));
  }
  return Shape(extents);
}

Shape reshaped(const Shape& wanted, const Shape& x) {
  int last = -1;  // the open extent that follows from the others
  for (int i = 0; i < wanted.rank(); ++i)
    if (wanted[i] < 0) last = i;
  if (!x.has_rank()) return wanted;
  // An extent that is taken over is left out on both sides: it may be 0, or not known yet.
  Shape out = wanted, given, asked;
  for (int i = 0; i < std::max(wanted.rank(), x.rank()); ++i) {
    const bool is_taken = i < last && i < wanted.rank() && wanted[i] < 0;
    if (is_taken && i >= x.rank())
      throw Error(Code::invalid_argument,
                  fmt::format("extent {} of {} would be that of {}, which has none there", i,
                              wanted.text(), x.text()));
    if (is_taken) out.set(i, x[i]);
    else {
      if (i < x.rank()) given.push_back(x[i]);
      if (i < wanted.rank() && i != last) asked.push_back(wanted[i]);
    }
  }
  const std::int64_t elements = given.elements(), known = asked.elements();
  if (elements < 0) return out;
  if (last < 0 ? known != elements : known == 0 || elements % known != 0)
    throw Error(Code::invalid_argument,
                fmt::format("{} elements cannot take shape {}",
                            x.elements() < 0 ? x.text() + "'s" : std::to_string(x.elements()),
                            wanted.text()));
  if (last >= 0) out.set(last, elements / known);
  return out;
}

}  // namespace troupe
