#include <troupe/controlflow/list_ops.hpp>

#include <fmt/format.h>

namespace troupe {

Expr list_concat(Operand list) { return bind1("ListConcat", {list}); }
Expr list_extents(Operand list) { return bind1("ListExtents", {list}); }

namespace {

void require_rows(const Inference& c, int list) {
  require_tensor_list(c, list);
  c.require(!c.shape(list).has_rank() || c.shape(list).rank() > 0,
            "scalars are not concatenated; stack them");
}

// Returns the shape of element i, written or not.
Shape shape_of_element(const List& list, std::int64_t i) {
  const Value v = list.peek(i);
  Shape shape = v.has_value() ? v.tensor().shape() : list.element_shape();
  if (!shape.is_known())
    throw Error(Code::failed_precondition,
                fmt::format("element {} of the {} was never written; its shape is not known, so "
                            "zeros cannot stand for it",
                            i, list.text()));
  if (shape.is_scalar())
    throw Error(
        Code::invalid_argument,
        fmt::format("element {} is a scalar; only elements of rank 1 or more are concatenated", i));
  return shape;
}

// Returns the shape of the concatenation.
Shape concatenated_shape(const List& list) {
  Shape rows = list.element_shape();
  if (rows.has_rank()) rows.set(0, 0);
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < list.length(); ++i) {
    Shape own = shape_of_element(list, i);
    total += own[0];
    own.set(0, 0);
    if (!own.is_compatible(rows) || (i > 0 && own != rows))
      throw Error(
          Code::invalid_argument,
          fmt::format("element {} has shape {}, which differs from element 0's in more than axis 0",
                      i, shape_of_element(list, i).text()));
    rows = own;
  }
  if (!rows.is_known())
    throw Error(Code::failed_precondition,
                fmt::format("the {} is empty, and its elements' shape is not known", list.text()));
  rows.set(0, total);
  return rows;
}

}  // namespace

Tensor concatenated(KernelContext& c, const List& list) {
  return joined_rows(c, list, concatenated_shape(list), [&](Rows& rows) {
    for (std::int64_t i = 0; i < list.length(); ++i) {
      if (const Value& v = list.read(i); v.has_value()) rows.add(v.tensor());
      else rows.add_zeros(shape_of_element(list, i).elements());
    }
  });
}

TROUPE_OP(ListConcat) {
  op.doc("The elements of the list one after the other along axis 0.");
  op.inputs(1);
  op.takes_lists();
  op.takes_strings();
  op.infer([](Inference& c) {
    require_rows(c, 0);
    Shape shape = c.shape(0);
    if (shape.has_rank()) shape.set(0, kAny);
    c.output(c.dtype(0), shape);
  });
  op.gradient([](Gradient& g) { g.set(0, split_as(g.x(0), g.dy(), list_extents(g.x(0)))); });
  op.run([](KernelContext& c) { c.set(0, concatenated(c, list_input(c, 0))); });
}

TROUPE_OP(ListConcatLike) {
  op.doc(
      "The elements of the list as pieces, of the extents in the second input, of a tensor like "
      "the third; zeros where there are none.");
  op.inputs(2, 3);
  op.shape_only({2});
  op.takes_lists();
  spec_attrs(op);
  op.infer([](Inference& c) {
    require_rows(c, 0);
    require_integers(c, 1, 1, "lengths");
    c.output(inferred_like(c, 2));
  });
  op.gradient([](Gradient& g) { g.set(0, split_as(g.x(0), g.dy(), g.x(1))); });
  op.kernel([](const KernelSetup& s) {
    return with_host_inputs({1}, [attrs = s.attrs](KernelContext& c) {
      const List& list = list_input(c, 0);
      Shape shape = spec_like(c, attrs, 2).shape;
      std::int64_t row = shape.without(0).elements(), i = 0;
      Rows rows(c, list.dtype(), shape);
      for (std::int64_t n : integers_of(c.input(1))) {
        const Value& v = list.find(i++);
        if (!v.has_value()) rows.add_zeros(n * row);
        else if (v.tensor().elements() == n * row) rows.add(v.tensor());
        else
          throw Error(Code::invalid_argument, fmt::format("element {} is {}, not {} rows of {}",
                                                          i - 1, text_of(v), n, shape.text()));
      }
      c.set(0, rows.finish());
    });
  });
}

TROUPE_OP(ListExtents) {
  op.doc("The leading extent of each element of the list, an i64 vector.");
  op.inputs(1);
  op.shape_only({0});
  op.takes_lists();
  op.takes_strings();
  op.not_differentiable();
  op.infer([](Inference& c) {
    require_rows(c, 0);
    c.output(DType::i64, Shape{kAny});
  });
  op.run([](KernelContext& c) {
    const List& list = list_input(c, 0);
    std::vector<std::int64_t> extents;
    for (std::int64_t i = 0; i < list.length(); ++i)
      extents.push_back(shape_of_element(list, i)[0]);
    c.set(0, Tensor::of(extents, Shape{list.length()}));
  });
}

}  // namespace troupe
