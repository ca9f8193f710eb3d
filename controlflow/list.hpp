// Lists in the language users write: values that hold tensors in order, or other lists.
//
//   Expr list = list_empty(g, {DType::f32, Shape{2}});
//   list = list_push(list, x);
//   auto [rest, last] = list_pop(list);
//
// A list is an `Expr` whose `spec().depth` is 1 or more. It is a value like any other: every
// function yields a new list and leaves the old one as it was, at the cost that
// devices/list/list.hpp states. `TensorArray` is the same under the names of the field.
//
// An element's shape fits the list's, which may have unknown extents (`Shape::unknown()`: elements
// of any shape). Other elements are refused while the graph is built, or when it runs. Indices
// are scalars, i32 or i64, in [0, length): out_of_range otherwise; negative ones do not count from
// the end. An element that was never written reads as zeros where the list's element shape is known
// in full, and is an error (failed_precondition) where it is not. The gradient with respect to a
// list is a list: element i for element i; those that it lacks are zero. Errors of a run name the
// node, its line and the index.
#pragma once

#include <vector>

#include <troupe/ops/graph/expr.hpp>
#include <troupe/ops/graph/reader.hpp>

namespace troupe {

/// An empty list of elements like `element` (itself a list's spec, for lists of lists).
Expr list_empty(detail::Reader& reader, const ValueSpec& element,
                std::source_location at = std::source_location::current());
/// An empty list whose elements may be tensors and lists of any kind; `list_pop` and `list_read`
/// take the spec that they yield. Gradients pass through it if `dtype` carries them.
Expr list_of_any(detail::Reader& reader, DType dtype = DType::f32,
                 std::source_location at = std::source_location::current());
/// A list of `size` (a scalar) elements that are not written yet.
Expr list_reserve(detail::Reader& reader, Operand size, const ValueSpec& element,
                  std::source_location at = std::source_location::current());

/// The list with `value` as one more element.
Expr list_push(Operand list, Operand value);

namespace detail {

struct Popped {
  Expr list;
  Expr value;
};

}  // namespace detail

/// The list without its last element, and that. Throws out_of_range on an empty list.
detail::Popped list_pop(Operand list);
/// list_pop for a list of any kind. The element must fit `value`: invalid_argument in the run if it
/// does not.
detail::Popped list_pop(Operand list, const ValueSpec& value);

/// Element `index`; the list keeps it.
Expr list_read(Operand list, Operand index);
Expr list_read(Operand list, Operand index, const ValueSpec& value);
/// The list with `value` as element `index`, which must not have been written (failed_precondition
/// in the run). `dynamic_size`: an index past the end makes the list longer.
Expr list_write(Operand list, Operand index, Operand value, bool dynamic_size = false);
/// The number of elements, an i64 scalar.
Expr list_length(Operand list);

/// All elements, of one shape S, as one tensor [length, S...].
Expr list_stack(Operand list);
/// The slices [S...] of x [n, S...] along axis 0, as a list of n.
Expr list_unstack(Operand x);
/// Elements `indices` [k], of one shape S, as one tensor [k, S...].
Expr list_gather(Operand list, Operand indices);
/// A list with slice i of x [k, S...] as element indices[i]. No index may come twice. Its length is
/// `size`, or one more than the largest index.
Expr list_scatter(Operand indices, Operand x, Operand size);
Expr list_scatter(Operand indices, Operand x);
/// `list` with these elements written.
Expr list_scatter_into(Operand list, Operand indices, Operand x, bool dynamic_size = false);
/// The elements, of shapes [n_i, S...], one after the other: [sum of n_i, S...].
Expr list_concat(Operand list);
/// x [n, S...] cut along axis 0 into pieces of `lengths` [k] rows, which sum to n.
Expr list_split(Operand x, Operand lengths);
/// The leading extents of all elements, [length], i64: with them `list_split` undoes a concat.
Expr list_extents(Operand list);

/// An array of tensors, each written once and read any number of times: a handle on a list.
///
///   TensorArray ta(g, {.dtype = DType::f32, .size = 3});
///   ta = ta.write(0, x);              // a new value; the old array has not changed
///   Expr all = ta.stack();
///
/// It converts to and from an `Expr`, so that it may be a loop's variable.
class TensorArray {
 public:
  using At = std::source_location;
  struct Options {
    DType dtype = DType::f32;
    Shape element_shape = Shape::unknown();
    Operand size = 0;           // a scalar
    bool dynamic_size = false;  // writing past the end makes it longer
  };
  explicit TensorArray(detail::Reader& reader, const Options& options, At at = At::current())
      : list_(list_reserve(reader, options.size, {options.dtype, options.element_shape}, at)),
        dynamic_size_(options.dynamic_size) {}
  /// Throws invalid_argument unless `list` is a list of tensors.
  TensorArray(Expr list, bool dynamic_size = false);  // NOLINT

  operator Expr() const { return list_; }  // NOLINT
  const Expr& list() const { return list_; }
  DType dtype() const { return list_.dtype(); }
  Shape element_shape() const { return list_.shape(); }
  bool is_dynamic() const { return dynamic_size_; }

  TensorArray write(Operand index, Operand value) const {
    return {list_write(list_at(index), index, value, dynamic_size_), dynamic_size_};
  }
  Expr read(Operand index) const { return list_read(list_at(index), index); }
  Expr size(At at = At::current()) const { return list_length(Operand(list_, at)); }
  Expr stack(At at = At::current()) const { return list_stack(Operand(list_, at)); }
  Expr concat(At at = At::current()) const { return list_concat(Operand(list_, at)); }
  Expr gather(Operand indices) const { return list_gather(list_at(indices), indices); }
  TensorArray scatter(Operand indices, Operand x) const {
    return {list_scatter_into(list_at(indices), indices, x, dynamic_size_), dynamic_size_};
  }
  /// An array of x's slices, or pieces, instead of this one's elements; dtype and element shape
  /// must be this one's.
  TensorArray unstack(Operand x) const { return filled(list_unstack(x), x.site()); }
  TensorArray split(Operand x, Operand lengths) const {
    return filled(list_split(x, lengths), x.site());
  }

 private:
  Operand list_at(const Operand& beside) const { return Operand(list_).at(beside.site()); }
  TensorArray filled(Expr list, const detail::Site& site) const;
  Expr list_;
  bool dynamic_size_ = false;
};

}  // namespace troupe
