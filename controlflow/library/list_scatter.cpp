#include <troupe/controlflow/list_ops.hpp>

#include <fmt/format.h>

namespace troupe {

Expr list_scatter_into(Operand list, Operand indices, Operand x, bool dynamic_size) {
  return bind1("ListScatter", {list, indices.as_written(), x},
               Attrs{{"dynamic_size", dynamic_size}});
}

namespace {
Expr scattered(const Operand& indices, const Operand& x, const Operand& size, bool grows) {
  if (!x.is_expr())
    throw Error(Code::invalid_argument,
                fmt::format("list_scatter at {}: x must be an expression", x.site().text()));
  ValueSpec element = x.expr().spec();
  element.shape = element.shape.has_rank() && element.shape.rank() > 0 ? element.shape.without(0)
                                                                       : Shape::unknown();
  Operand list = Operand(reserved(x.expr().reader(), size, element, x.site())).at(x.site());
  return list_scatter_into(list, indices, x, grows);
}

// x's slices at indices that are as many.
void infer_scatter(Inference& c) {
  require_tensor_list(c, 0);
  require_integers(c, 1, 1, "indices");
  require_tensor(c, 2, "the scattered tensor");
  const Shape& x = c.shape(2);
  c.require(!x.has_rank() || x.rank() > 0, "a scalar has no slices");
  require_element_shape(c, 0, c.dtype(2), x.has_rank() ? x.without(0) : x);
  c.require(!x.has_rank() || !c.shape(1).has_rank() || Shape{x[0]}.is_compatible(c.shape(1)),
            fmt::format("{} indices for the slices of {}", c.shape(1).text(), x.text()));
  c.output(c.input(0));
}

std::vector<std::int64_t> scatter_indices(KernelContext& c) {
  std::vector<std::int64_t> indices = integers_of(c.input(1));
  if (c.input(2).shape()[0] != static_cast<std::int64_t>(indices.size()))
    throw Error(Code::invalid_argument, fmt::format("{} indices for the slices of {}",
                                                    indices.size(), c.input(2).shape().text()));
  return indices;
}

void scatter_gradient(Gradient& g) {
  if (!g.needs(2)) return;
  std::vector<Operand> operands{g.dy(), g.x(1)};
  Attrs attrs = attrs_like(g.x(2), operands);
  g.set(2, bind1("ListGatherLike", operands, attrs, operands[0].site()));
}
}  // namespace

Expr list_scatter(Operand indices, Operand x, Operand size) {
  return scattered(indices, x, size, false);
}
Expr list_scatter(Operand indices, Operand x) { return scattered(indices, x, 0, true); }

TROUPE_OP(ListScatter) {
  op.doc("The list with slices of the third input written at the indices in the second.");
  op.inputs(3);
  op.takes_lists();
  op.takes_strings();
  op.attr<bool>("dynamic_size", false);
  op.infer(infer_scatter);
  op.gradient([](Gradient& g) {
    if (g.needs(0)) g.set(0, bind1("ListErase", {g.dy(), g.x(1)}));
    scatter_gradient(g);
  });
  op.kernel([](const KernelSetup& s) {
    return with_host_inputs({1}, [grows = s.attrs.get<bool>("dynamic_size")](KernelContext& c) {
      List list = take_list(c, 0);
      std::int64_t slice = 0;
      for (std::int64_t i : scatter_indices(c)) {
        if (grows && i >= list.length()) list.reach(i);
        list.write(i, slice_of(c.input(2), slice++));
      }
      c.set(0, std::move(list));
    });
  });
}

TROUPE_OP(ListScatterAdd) {
  op.doc(
      "The list with slices of the third input added at the indices in the second; it grows to "
      "hold them.");
  op.inputs(3);
  op.takes_lists();
  op.infer(infer_scatter);
  op.gradient([](Gradient& g) {
    g.set(0, g.cotangent());
    scatter_gradient(g);
  });
  op.kernel([](const KernelSetup&) {
    return with_host_inputs({1}, [](KernelContext& c) {
      List list = take_list(c, 0);
      std::int64_t slice = 0;
      for (std::int64_t i : scatter_indices(c)) {
        list.reach(i);
        list.put(i, sum_of_values(c, list.take(i), slice_of(c.input(2), slice++)));
      }
      c.set(0, std::move(list));
    });
  });
}

TROUPE_OP(ListErase) {
  op.doc("The list without the elements at the indices in the second input, where it has them.");
  op.inputs(2);
  op.takes_lists();
  op.takes_strings();
  op.infer([](Inference& c) {
    require_list(c, 0);
    require_tensor(c, 1, "indices");
    c.require_index(1, "indices");
    c.output(c.input(0));
  });
  op.gradient([](Gradient& g) { g.set(0, bind1("ListErase", {g.dy(), g.x(1)})); });
  op.kernel([](const KernelSetup&) {
    return with_host_inputs({1}, [](KernelContext& c) {
      List list = take_list(c, 0);
      for (std::int64_t i : integers_of(c.input(1)))
        if (list.slot(i).has_value()) list.take(i);
      c.set(0, std::move(list));
    });
  });
}

}  // namespace troupe
