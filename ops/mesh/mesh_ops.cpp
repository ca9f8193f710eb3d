// Operations of programs that are cut over a mesh. NameDims stands in users' programs. The others
// stand in an SPMD program (spmd.hpp) alone, which `expand` makes a program over devices of; they
// have no kernels.
#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/mesh/functions.hpp>
#include <troupe/ops/mesh/names.hpp>

namespace troupe {

using Integers = std::vector<std::int64_t>;

namespace {

// The shape that the dimensions make. Throws invalid_argument unless x may have it.
Shape named_shape(const Attrs& attrs, const Shape& x) {
  const auto& text = attrs.get<std::string>("dims");
  mesh::detail::DimTable dims;
  Shape shape;
  if (!text.empty() || (x.has_rank() && x.rank() == 1)) {
    const mesh::detail::Axes axes = mesh::detail::parse_axes(text, dims, "here");
    if (axes.size() > Shape::kMaxRank)
      throw Error(Code::invalid_argument, fmt::format("'{}' names more axes than there are", text));
    for (const mesh::detail::Axis& axis : axes) shape.push_back(dims.extent(axis));
  }
  if (!shape.is_compatible(x))
    throw Error(Code::invalid_argument,
                fmt::format("dimensions '{}' do not name the axes of {}", text, x.text()));
  return shape;
}

// Another node may have sent attributes that no pass has made.
int axis_of(const Shape& x, std::int64_t axis) {
  if (!x.has_rank() || axis < 0 || axis >= x.rank())
    throw Error(Code::invalid_argument, fmt::format("{} has no axis {}", x.text(), axis));
  return static_cast<int>(axis);
}
void require_parts(std::int64_t parts) {
  if (parts < 1 || parts > std::int64_t{1} << 20)
    throw Error(Code::invalid_argument, fmt::format("{} parts; there are 1 to 2^20", parts));
}
void split_axis(Shape& shape, std::int64_t along, std::int64_t parts) {
  const int axis = axis_of(shape, along);
  require_parts(parts);
  if (shape[axis] != kAny && shape[axis] % parts != 0)
    throw Error(Code::invalid_argument,
                fmt::format("axis {} of {} is not cut into {}", axis, shape.text(), parts));
  if (shape[axis] != kAny) shape.set(axis, shape[axis] / parts);
}
void join_axis(Shape& shape, std::int64_t along, std::int64_t parts) {
  const int axis = axis_of(shape, along);
  require_parts(parts);
  if (shape[axis] == kAny) return;
  if (shape[axis] > (std::int64_t{1} << 40))
    throw Error(Code::invalid_argument, fmt::format("{} parts of {}", parts, shape.text()));
  shape.set(axis, shape[axis] * parts);
}

}  // namespace

TROUPE_OP(NameDims) {
  op.doc("The input, whose axes have names for a mesh's layout.");
  op.inputs(1);
  op.takes_strings();
  op.attr<std::string>("dims");
  op.infer([](Inference& c) {
    const Shape shape = named_shape(c.attrs(), c.shape(0));
    c.output(c.dtype(0), shape.merge(c.shape(0)));
  });
  op.gradient([](Gradient& g) { g.set(0, mesh::detail::named_as(g.dy(), g.x())); });
  op.run([](KernelContext& c, const Attrs& attrs) {
    named_shape(attrs, c.input(0).shape());
    c.set(0, std::move(c.all_inputs()[0]));
  });
}

TROUPE_OP(MeshCoordinate) {
  op.doc("The position of the device along a mesh axis.");
  op.inputs(0);
  op.attr<std::int64_t>("mesh_axis");
  op.not_differentiable();
  op.infer([](Inference& c) { c.output(DType::i64, Shape{}); });
}

TROUPE_OP(MeshSlice) {
  op.doc("The device's piece along each of `axes`, cut into `parts` along `mesh_axes`.");
  op.inputs(1);
  op.attr<Integers>("mesh_axes");
  op.attr<Integers>("axes");
  op.attr<Integers>("parts");
  op.not_differentiable();
  op.infer([](Inference& c) {
    Shape shape = c.shape(0);
    const auto &axes = c.attrs().get<Integers>("axes"), &parts = c.attrs().get<Integers>("parts");
    if (axes.size() != parts.size()) throw Error(Code::invalid_argument, "axes are not all cut");
    for (std::size_t i = 0; i < axes.size(); ++i) split_axis(shape, axes[i], parts[i]);
    c.output(c.dtype(0), shape);
  });
}

TROUPE_OP(MeshAllReduce) {
  op.doc("The combination over the devices along a mesh axis.");
  op.inputs(1);
  op.attr<std::int64_t>("mesh_axis");
  op.attr<std::int64_t>("combine");
  op.not_differentiable();
  op.infer([](Inference& c) { c.output(c.input(0)); });
}

TROUPE_OP(MeshReduceScatter) {
  op.doc("The device's piece along `axis` of the sum over the devices along a mesh axis.");
  op.inputs(1);
  op.attr<std::int64_t>("mesh_axis");
  op.attr<std::int64_t>("axis");
  op.attr<std::int64_t>("parts");
  op.not_differentiable();
  op.infer([](Inference& c) {
    Shape shape = c.shape(0);
    split_axis(shape, c.attrs().get<std::int64_t>("axis"), c.attrs().get<std::int64_t>("parts"));
    c.output(c.dtype(0), shape);
  });
}

TROUPE_OP(MeshAllGather) {
  op.doc("The pieces of the devices along a mesh axis, joined along `axis`.");
  op.inputs(1);
  op.attr<std::int64_t>("mesh_axis");
  op.attr<std::int64_t>("axis");
  op.attr<std::int64_t>("parts");
  op.not_differentiable();
  op.infer([](Inference& c) {
    Shape shape = c.shape(0);
    join_axis(shape, c.attrs().get<std::int64_t>("axis"), c.attrs().get<std::int64_t>("parts"));
    c.output(c.dtype(0), shape);
  });
}

TROUPE_OP(MeshAllToAll) {
  op.doc("Pieces along `split_axis` go to the devices along a mesh axis, and join along `axis`.");
  op.inputs(1);
  op.attr<std::int64_t>("mesh_axis");
  op.attr<std::int64_t>("split_axis");
  op.attr<std::int64_t>("axis");
  op.attr<std::int64_t>("parts");
  op.not_differentiable();
  op.infer([](Inference& c) {
    Shape shape = c.shape(0);
    const std::int64_t parts = c.attrs().get<std::int64_t>("parts");
    split_axis(shape, c.attrs().get<std::int64_t>("split_axis"), parts);
    join_axis(shape, c.attrs().get<std::int64_t>("axis"), parts);
    c.output(c.dtype(0), shape);
  });
}

TROUPE_OP(MeshShift) {
  op.doc("The value of the device `by` places before along a mesh axis; zeros if there is none.");
  op.inputs(1);
  op.attr<std::int64_t>("mesh_axis");
  op.attr<std::int64_t>("by");
  op.attr<bool>("wrap");
  op.not_differentiable();
  op.infer([](Inference& c) { c.output(c.input(0)); });
}

TROUPE_OP(MeshExport) {
  op.doc("The whole value in one place: axis i is cut along mesh axis `mesh_axes`[i], or -1.");
  op.inputs(1);
  op.attr<Integers>("mesh_axes");
  op.attr<Integers>("parts");
  op.not_differentiable();
  op.infer([](Inference& c) {
    Shape shape = c.shape(0);
    const auto& parts = c.attrs().get<Integers>("parts");
    for (std::size_t i = 0; i < parts.size(); ++i)
      join_axis(shape, static_cast<std::int64_t>(i), parts[i]);
    c.output(c.dtype(0), shape);
  });
}

}  // namespace troupe
