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
  op.doc("Where the device stands along a mesh axis.");
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
    for (std::size_t i = 0; i < axes.size(); ++i)
      shape.set(static_cast<int>(axes[i]), shape[static_cast<int>(axes[i])] / parts[i]);
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
    const int axis = static_cast<int>(c.attrs().get<std::int64_t>("axis"));
    shape.set(axis, shape[axis] / c.attrs().get<std::int64_t>("parts"));
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
    const int axis = static_cast<int>(c.attrs().get<std::int64_t>("axis"));
    shape.set(axis, shape[axis] * c.attrs().get<std::int64_t>("parts"));
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
    const int split = static_cast<int>(c.attrs().get<std::int64_t>("split_axis")),
              joined = static_cast<int>(c.attrs().get<std::int64_t>("axis"));
    shape.set(split, shape[split] / parts);
    shape.set(joined, shape[joined] * parts);
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
      shape.set(static_cast<int>(i), shape[static_cast<int>(i)] * parts[i]);
    c.output(c.dtype(0), shape);
  });
}

}  // namespace troupe
