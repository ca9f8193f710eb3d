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

TROUPE_OP(NameDims) {
  op.doc("The input, whose axes have names for a mesh's layout.");
  op.inputs(1);
  op.takes_strings();
  op.attr<std::string>("dims");
  op.infer([](Inference& c) {
    mesh::detail::DimTable dims;
    const mesh::detail::Axes axes =
        mesh::detail::parse_axes(c.attrs().get<std::string>("dims"), dims, "here");
    Shape shape;
    const bool is_scalar = c.attrs().get<std::string>("dims").empty() && c.shape(0).is_scalar();
    for (const mesh::detail::Axis& axis : axes)
      if (!is_scalar) shape.push_back(dims.extent(axis));
    c.require(shape.is_compatible(c.shape(0)), [&] {
      return fmt::format("dimensions {} do not name the axes of {}", dims.text(axes),
                         c.input(0).text());
    });
    c.output(c.dtype(0), shape.merge(c.shape(0)));
  });
  op.gradient([](Gradient& g) { g.set(0, mesh::detail::named_as(g.dy(), g.x())); });
  op.run([](KernelContext& c) { c.set(0, std::move(c.all_inputs()[0])); });
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
