#include <troupe/ops/composite.hpp>

#include <fmt/format.h>

namespace troupe {
namespace {

Reader& innermost(std::string_view name, std::initializer_list<Operand> operands) {
  Reader* found = nullptr;
  for (const Operand& o : operands)
    if (o.is_expr() && (!found || o.expr().reader().depth() > found->depth())) found = &o.expr().reader();
  if (!found) throw Error(Code::invalid_argument, fmt::format("{} at {}: at least one operand must be an expression", name, operands.begin()->site().text()));
  return *found;
}

}  // namespace

Composite::Composite(std::string_view name, std::initializer_list<Operand> operands)
    : name_(name), reader_(innermost(name, operands)), site_(reader_.site_for(operands.begin()->site())), at_(reader_, site_) {
  DType first = DType::f32;
  for (const Operand& o : operands)
    if (o.is_expr()) {
      first = o.expr().dtype();
      break;
    }
  for (const Operand& o : operands) {
    if (o.is_expr()) inputs_.push_back(&o.expr().reader() == &reader_ ? o.expr() : reader_.adopt(o.expr(), site_));
    else inputs_.push_back(reader_.constant(o.is_number() ? Tensor::scalar_as(first, o.literal().at(0)) : o.literal()));
  }
}

void Composite::require(bool condition, const std::string& message) const {
  if (!condition) throw Error(Code::invalid_argument, fmt::format("{} at {}: {}", name_, site_.text(), message));
}

int Composite::rank(std::size_t i) const {
  require(inputs_[i].shape().has_rank(), fmt::format("needs the rank of operand {}; give it a shape", i));
  return inputs_[i].shape().rank();
}

std::int64_t Composite::extent(std::size_t i, std::int64_t axis) const {
  const int r = rank(i);
  require(axis >= -r && axis < r, fmt::format("operand {} has no axis {}: {}", i, axis, inputs_[i].shape().text()));
  const std::int64_t e = inputs_[i].shape()[static_cast<int>(axis < 0 ? axis + r : axis)];
  require(e >= 0, fmt::format("needs the extent of operand {} along axis {} while the graph is built: {}", i, axis, inputs_[i].shape().text()));
  return e;
}

}  // namespace troupe
