// Specs, gradients and kernels that operations on lists share.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <troupe/controlflow/list.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/list/list.hpp>
#include <troupe/ops/families/host_inputs.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

// ---- inference

void require_list(const Inference& c, int i);
/// A list of tensors.
void require_tensor_list(const Inference& c, int i);
void require_tensor(const Inference& c, int i, std::string_view what);
/// An i32 or i64 tensor of that rank.
void require_integers(const Inference& c, int i, int rank, std::string_view what);
/// Input `value` may be an element of list `list`.
void require_element(const Inference& c, int list, int value);
/// Throws unless a tensor of `shape` may be an element.
void require_element_shape(const Inference& c, int list, DType dtype, const Shape& shape);
/// `[n, element...]`.
Shape with_leading(std::int64_t n, const Shape& element);

/// Declares the attributes dtype, shape and depth of a value (depth 0: a tensor); `spec_of` reads
/// them.
void spec_attrs(OpBuilder& op);
namespace detail {

Attrs attrs_of(const ValueSpec& spec);

}  // namespace detail

ValueSpec spec_of(const Attrs& attrs);

/// Returns the spec of `list_pop` and `list_read` if the caller gives none. Throws for a list of
/// any kind, naming the line.
ValueSpec element_of(const Operand& list);
/// Returns the attributes' spec; throws unless an element of list `list` may have it.
ValueSpec inferred_element(const Inference& c, int list);
/// Throws invalid_argument unless the element fits the attributes' spec.
void check_element(const Value& element, const Attrs& attrs);

/// Returns the operand to write into a list: true and false stay bools beside an index that is a
/// number.
inline Operand element_operand(const Operand& value) {
  return value.literal().dtype() == DType::boolean ? value.as_written() : value;
}
/// The length of lists that must be of one length.
Expr common_length(const std::vector<Operand>& lists, const Site& site);
/// `list_reserve`, at a line.
Expr reserved(Reader& reader, const Operand& size, const ValueSpec& element, const Site& site);

// ---- gradients

/// Returns the attributes of an op that makes zeros like x. Appends x to its operands, as the last
/// input, only if the attributes do not suffice: a value kept for its shape alone is costly.
Attrs attrs_like(const Expr& x, std::vector<Operand>& operands);
/// Returns the spec of such an op's output: the attributes' spec, with the shape of input `like` if
/// there is one.
ValueSpec inferred_like(const Inference& c, int like);
/// Returns that spec when the op runs.
ValueSpec spec_like(KernelContext& c, const Attrs& attrs, int like);

/// The slices of a stack's cotangent, as the cotangent of the stacked list.
Expr unstacked_as(const Expr& list, const Expr& x);
/// The pieces of a concatenation's cotangent, cut by `lengths`.
Expr split_as(const Expr& list, const Expr& x, const Expr& lengths);
/// Element `index` of a cotangent of a list, taken out of it: {the rest, dL/dx}. `index` an
/// expression.
Exprs take_cotangent(const Expr& dlist, const Operand& index, const Expr& x);

/// Declares an op from (list, index, value) to the list with that element changed.
void declare_element_at(OpBuilder& op);
/// The gradient of such an op that sets the element to the value.
void set_element_gradient(Gradient& g);

/// An empty list in which a gradient keeps values: they may be swapped out.
Expr list_of_saved(Reader& reader, const ValueSpec& element,
                   std::source_location at = std::source_location::current());

// ---- kernels

inline List take_list(KernelContext& c, int i) {
  return std::move(c.all_inputs()[static_cast<std::size_t>(i)].list());
}
inline const List& list_input(KernelContext& c, int i) {
  return c.all_inputs()[static_cast<std::size_t>(i)].list();
}
/// Slice i of axis 0; shares the buffer.
Tensor slice_of(const Tensor& t, std::int64_t i);
/// Zeros on the firing's device, or an empty list. The shape must be known.
Value zeros(KernelContext& c, const ValueSpec& spec);
/// Returns a + b of two tensors or lists; an empty value is zero. May overwrite an operand without
/// other references.
Value sum_of_values(KernelContext& c, Value a, Value b);
/// The element, or zeros if it was not written. Throws failed_precondition if their shape is not
/// known.
Value read_or_zeros(KernelContext& c, const List& list, std::int64_t i, const ValueSpec& spec);

/// Writes tensors one after the other into a new one.
class Rows {
 public:
  Rows(KernelContext& c, DType dtype, const Shape& shape)
      : c_(c), out_(c.allocate(dtype, shape)), view_(out_) {}
  void add(const Tensor& piece);
  void add_zeros(std::int64_t elements);
  Tensor finish();

 private:
  View next(const Shape& shape);
  KernelContext& c_;
  Tensor out_;
  View view_;
  std::size_t written_ = 0;  // bytes
};

/// All of a list in order, as a tensor of `shape`, which `write` fills; not twice while others hold
/// the list as it is.
template <class Write>
Tensor joined_rows(KernelContext& c, const List& list, const Shape& shape, Write write) {
  if (Tensor known = list.joined(); known.has_value() && known.elements() == shape.elements())
    return known.reshaped(shape);
  Rows rows(c, list.dtype(), shape);
  write(rows);
  Tensor made = rows.finish();
  if (!list.is_sole_holder()) list.keep_joined(made);
  return made;
}

/// All elements along axis 0, zeros for one that was not written. Throws if they do not fit each
/// other.
Tensor concatenated(KernelContext& c, const List& list);

/// The one shape of the elements `which` of a list; throws, naming the element, if they differ or
/// if one was not written and the list's element shape is not known.
Shape shape_of_all(const List& list, std::span<const std::int64_t> which);

}  // namespace troupe
