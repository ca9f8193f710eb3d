#include <troupe/controlflow/list_ops.hpp>

#include <fmt/format.h>

#include <troupe/ops/graph/pointwise.hpp>

namespace troupe {

// ---- inference

void require_list(const Inference& c, int i) {
  c.require(c.input(i).is_list(),
            fmt::format("input {} must be a list, not {}", i, c.input(i).text()));
}

void require_tensor_list(const Inference& c, int i) {
  c.require(c.input(i).depth == 1,
            fmt::format("input {} must be a list of tensors, not {}", i, c.input(i).text()));
}

void require_tensor(const Inference& c, int i, std::string_view what) {
  c.require(!c.input(i).is_list(),
            fmt::format("{} must be a tensor, not {}", what, c.input(i).text()));
}

void require_integers(const Inference& c, int i, int rank, std::string_view what) {
  require_tensor(c, i, what);
  c.require_index(i, what);
  c.require_rank(i, rank, what);
}

void require_element(const Inference& c, int list, int value) {
  const ValueSpec& l = c.input(list);
  const ValueSpec& v = c.input(value);
  if (l.depth == ValueSpec::kAnyDepth) return;
  c.require(v.depth == l.depth - 1 && v.dtype == l.dtype && v.shape.is_compatible(l.shape),
            fmt::format("{} is no element of {}", v.text(), l.text()));
}

void require_element_shape(const Inference& c, int list, DType dtype, const Shape& shape) {
  const ValueSpec& l = c.input(list);
  c.require(dtype == l.dtype && shape.is_compatible(l.shape),
            fmt::format("{} is no element of {}", ValueSpec{dtype, shape}.text(), l.text()));
}

Shape with_leading(std::int64_t n, const Shape& element) {
  return element.has_rank() ? element.with_inserted(0, n) : Shape::unknown();
}

void spec_attrs(OpBuilder& op) {
  op.attr<DType>("dtype");
  op.attr<Shape>("shape");
  op.attr<std::int64_t>("depth");
}

namespace detail {

Attrs attrs_of(const ValueSpec& spec) {
  return {{"dtype", spec.dtype}, {"shape", spec.shape}, {"depth", std::int64_t{spec.depth}}};
}

}  // namespace detail

ValueSpec spec_of(const Attrs& attrs) {
  return {attrs.get<DType>("dtype"), attrs.get<Shape>("shape"),
          static_cast<std::uint8_t>(attrs.get<std::int64_t>("depth"))};
}

ValueSpec element_of(const Operand& list) {
  if (!list.is_expr() || !list.expr().spec().is_list())
    throw Error(Code::invalid_argument,
                fmt::format("at {}: a list is wanted, not {}", list.site().text(),
                            list.is_expr() ? list.expr().spec().text() : std::string("a literal")));
  ValueSpec spec = list.expr().spec();
  if (spec.depth == ValueSpec::kAnyDepth)
    throw Error(
        Code::invalid_argument,
        fmt::format("at {}: give the dtype and shape of elements read from a list of any kind",
                    list.site().text()));
  return spec.element();
}

ValueSpec inferred_element(const Inference& c, int list) {
  ValueSpec l = c.input(list), e = spec_of(c.attrs());
  if (l.depth == ValueSpec::kAnyDepth) return e;
  c.require(e.depth == l.depth - 1 && e.dtype == l.dtype && e.shape.is_compatible(l.shape),
            fmt::format("{} is no element of {}", e.text(), l.text()));
  e.shape = e.shape.merge(l.shape);
  return e;
}

void check_element(const Value& element, const Attrs& attrs) {
  if (ValueSpec wanted = spec_of(attrs); !fits(element, wanted))
    throw Error(Code::invalid_argument,
                fmt::format("the element is {}, not {}", text_of(element), wanted.text()));
}

// ---- gradients

Attrs attrs_like(const Expr& x, std::vector<Operand>& operands) {
  ValueSpec spec = x.spec();
  if (!spec.is_list() && !spec.shape.is_known()) operands.emplace_back(x);
  return attrs_of(spec);
}

ValueSpec inferred_like(const Inference& c, int like) {
  ValueSpec spec = spec_of(c.attrs());
  if (c.inputs() > like) spec.shape = c.shape(like);
  else c.require(spec.is_list() || spec.shape.is_known(), "needs a shape, or an input of it");
  return spec;
}

ValueSpec spec_like(KernelContext& c, const Attrs& attrs, int like) {
  ValueSpec spec = spec_of(attrs);
  if (c.inputs() > like) spec.shape = c.input(like).shape();
  return spec;
}

Exprs take_cotangent(const Expr& dlist, const Operand& index, const Expr& x) {
  std::vector<Operand> operands{dlist, index};
  Attrs attrs = attrs_like(x, operands);
  return bind_op("ListTake", operands, std::move(attrs), operands[0].site());
}

// ---- kernels

Tensor slice_of(const Tensor& t, std::int64_t i) {
  return t.rows(i, i + 1).reshaped(t.shape().without(0));
}

Value zeros(KernelContext& c, const ValueSpec& spec) {
  if (spec.is_list()) return List(spec.dtype, spec.shape, spec.depth);
  if (spec.dtype == DType::string) return Tensor::zeros(spec.dtype, spec.shape);
  Tensor zero = Tensor::scalar_as(spec.dtype, 0);
  if (spec.shape.is_scalar()) return zero;
  Tensor out = c.allocate(spec.dtype, spec.shape);
  c.primitives().fill(c.stream(), zero, View(out));
  return out;
}

namespace {

Value sum_of_tensors(KernelContext& c, Value a, Value b) {
  if (a.is_list() || b.is_list() || a.dtype() != b.dtype() ||
      a.tensor().shape() != b.tensor().shape())
    throw Error(Code::invalid_argument,
                fmt::format("{} and {} of one element cannot be added", text_of(a), text_of(b)));
  DType types[2] = {a.dtype(), b.dtype()};
  // The program is kept for ever where it is typed, as work enqueued on a stream needs.
  std::unique_ptr<Kernel> add =
      make_pointwise_kernel(find_op("Add").pointwise->program(types, Attrs()));
  Value in[2] = {std::move(a), std::move(b)}, out[1];
  KernelContext context(in, out, c.device(), c.stream(), c.run());
  add->run(context);
  return std::move(out[0]);
}

// Lists within lists wait on the heap until those within them are added: they may be nested deep.
Value sum_of_lists(KernelContext& c, List a, List b) {
  struct Open {
    List a, b;  // elements of b from `next` on are not yet added to a
    std::int64_t next;
  };
  std::vector<Open> open;
  const auto begin = [&](List x, List y) {
    if (x.length() == 0 || (y.length() > 0 && !x.is_sole_holder() && y.is_sole_holder()))
      std::swap(x, y);
    x.grow(y.length());
    open.push_back({std::move(x), std::move(y), 0});
  };
  begin(std::move(a), std::move(b));
  for (;;) {
    Open& top = open.back();
    if (top.next == top.b.length()) {
      List sum = std::move(top.a);
      open.pop_back();
      if (open.empty()) return sum;
      open.back().a.put(open.back().next++, std::move(sum));
      continue;
    }
    Value more = top.b.read(top.next);
    if (more.has_value()) {
      Value known = top.a.take(top.next);
      if (known.is_list() && more.is_list()) {
        begin(std::move(known.list()), std::move(more.list()));
        continue;
      }
      top.a.put(top.next, known.has_value() ? sum_of_tensors(c, std::move(known), std::move(more))
                                            : std::move(more));
    }
    ++top.next;
  }
}

}  // namespace

Value sum_of_values(KernelContext& c, Value a, Value b) {
  if (!a.has_value()) return b;
  if (!b.has_value()) return a;
  if (a.is_list() && b.is_list()) return sum_of_lists(c, std::move(a.list()), std::move(b.list()));
  return sum_of_tensors(c, std::move(a), std::move(b));
}

namespace {
[[noreturn]] void never_written(const List& list, std::int64_t i) {
  throw Error(Code::failed_precondition,
              fmt::format("element {} of the {} was never written; its shape is not known, so "
                          "zeros cannot stand for it",
                          i, list.text()));
}
}  // namespace

Value read_or_zeros(KernelContext& c, const List& list, std::int64_t i, const ValueSpec& spec) {
  const Value& v = list.read(i);
  if (v.has_value()) return v;
  ValueSpec zero = spec;
  if (zero.depth == 0 && !zero.shape.is_known()) zero.shape = list.element_shape();
  if (zero.depth == 0 && !zero.shape.is_known()) never_written(list, i);
  return zeros(c, zero);
}

View Rows::next(const Shape& shape) {
  View v(static_cast<unsigned char*>(view_.data) + written_, view_.dtype, shape);
  written_ += v.bytes();
  if (written_ > view_.bytes())
    throw Error(Code::internal, fmt::format("more rows than {} holds", view_.shape.text()));
  return v;
}

void Rows::add(const Tensor& piece) {
  View to = next(piece.shape());
  if (to.elements()) c_.primitives().copy(c_.stream(), piece, to);
}

void Rows::add_zeros(std::int64_t elements) {
  View to = next(Shape{elements});
  if (view_.dtype == DType::string) return static_cast<void>(std::memset(to.data, 0, to.bytes()));
  if (elements) c_.primitives().fill(c_.stream(), Tensor::scalar_as(view_.dtype, 0), to);
}

Tensor Rows::finish() {
  return out_.dtype() == DType::string ? out_.with_own_text() : std::move(out_);
}

Shape shape_of_all(const List& list, std::span<const std::int64_t> which) {
  Shape shape = list.element_shape();
  std::int64_t first = -1;
  for (std::int64_t i : which) {
    const Value v = list.peek(i);
    if (!v.has_value()) {
      // Not from other elements: this one might have had another shape.
      if (!list.element_shape().is_known()) never_written(list, i);
      continue;
    }
    const Shape& own = v.tensor().shape();
    if (first >= 0 && own != shape)
      throw Error(
          Code::invalid_argument,
          fmt::format(
              "elements {} and {} have shapes {} and {}; only elements of one shape make a tensor",
              first, i, shape.text(), own.text()));
    if (first < 0) first = i, shape = own;
  }
  // Without elements, unknown extents count as 0: the tensor is empty anyway.
  if (which.empty() && shape.has_rank())
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (shape[axis] < 0) shape.set(axis, 0);
  if (!shape.is_known())
    throw Error(Code::failed_precondition,
                fmt::format("no element of the {} is requested, and their shape is not known",
                            list.text()));
  return shape;
}

void declare_element_at(OpBuilder& op) {
  op.inputs(3);
  op.takes_lists();
  op.takes_strings();
  op.infer([](Inference& c) {
    require_list(c, 0);
    require_integers(c, 1, 0, "the index");
    require_element(c, 0, 2);
    c.output(c.input(0));
  });
}

void set_element_gradient(Gradient& g) {
  Exprs d = take_cotangent(g.dy(), g.x(1), g.x(2));
  g.set(0, d[0]);
  g.set(2, d[1]);
}

}  // namespace troupe
