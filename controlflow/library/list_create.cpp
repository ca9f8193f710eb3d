#include <troupe/controlflow/list_ops.hpp>
#include <troupe/devices/device/swap.hpp>

namespace troupe {

Expr list_empty(Reader& reader, const ValueSpec& element, std::source_location at) {
  return reader.bind(find_op("ListEmpty"), {}, attrs_of(element.list_of()), at)[0];
}

Expr list_of_saved(Reader& reader, const ValueSpec& element, std::source_location at) {
  Attrs attrs = attrs_of(element.list_of());
  attrs.set("saved", true);
  return reader.bind(find_op("ListEmpty"), {}, attrs, at)[0];
}

Expr list_of_any(Reader& reader, DType dtype, std::source_location at) {
  return reader.bind(find_op("ListEmpty"), {},
                     attrs_of({dtype, Shape::unknown(), ValueSpec::kAnyDepth}), at)[0];
}

Expr list_reserve(Reader& reader, Operand size, const ValueSpec& element, std::source_location at) {
  return reserved(reader, size, element, at);
}

Expr reserved(Reader& reader, const Operand& size, const ValueSpec& element, const Site& site) {
  Operand n = size.is_expr() ? size : Operand(reader.adopt(Expr(nullptr, size.literal()), site));
  return bind1("ListReserve", std::span<const Operand>(&n, 1), attrs_of(element.list_of()), site);
}

namespace {
// The attributes are those of the list, not of its elements.
ValueSpec created(Inference& c) {
  c.require(c.attrs().get<std::int64_t>("depth") > 0, "a list has a depth of at least 1");
  return spec_of(c.attrs());
}
List create(KernelContext& c, const Attrs& attrs, bool is_saved) {
  ValueSpec spec = spec_of(attrs);
  List list(spec.dtype, spec.shape, spec.depth);
  Swapper* swapper = c.device().swapper();
  if (is_saved || (swapper && swapper->options().all_lists)) list.mark_saved(swapper);
  return list;
}
}  // namespace

TROUPE_OP(ListEmpty) {
  op.doc("A list of no elements.");
  op.inputs(0);
  spec_attrs(op);
  op.attr<bool>("saved", false);  // a gradient keeps values in it: they may be swapped out
  op.infer([](Inference& c) { c.output(created(c)); });
  op.run([](KernelContext& c, const Attrs& attrs) {
    c.set(0, create(c, attrs, attrs.get<bool>("saved")));
  });
}

TROUPE_OP(ListReserve) {
  op.doc("A list with the number of elements in the input, none of them written.");
  op.inputs(1);
  op.not_differentiable();
  spec_attrs(op);
  op.infer([](Inference& c) {
    require_integers(c, 0, 0, "the size");
    c.output(created(c));
  });
  op.kernel([](const KernelSetup& s) {
    return with_host_inputs({0}, [attrs = s.attrs](KernelContext& c) {
      List list = create(c, attrs, false);
      list.grow(integer_of(c.input(0)));
      c.set(0, std::move(list));
    });
  });
}

}  // namespace troupe
