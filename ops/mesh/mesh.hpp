// Meshes: devices in rows and columns, dimensions with names, and the rules that lay one along the
// other (Mesh-TensorFlow, NeurIPS 2018).
//
//   using namespace troupe::mesh;
//   const Dim batch{"batch", 64}, in{"in", 784}, hidden{"hidden", 512};
//   Expr x = named(g.input("x", DType::f32, {64, 784}), {batch, in});
//   Expr h = relu(einsum({x, w}, {batch, hidden}));        // over `in`, which the result lacks
//
//   const Mesh mesh("rows:2;cols:2", {"cpu:0", "cpu:1", "cpu:2", "cpu:3"});
//   engine.compile(g, {x}, {h}, {.mesh = Partitioning{mesh, Layout("batch:rows;hidden:cols")}});
//
// A program is written once, for whole tensors. A layout maps dimensions to the axes of the mesh
// along which they are split. The compiler cuts the tensors, and inserts the collectives that the
// cuts need. A layout changes no result but by the rounding of sums that cross devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::mesh {

/// A dimension of a tensor, or an axis of a mesh.
struct Dim {
  std::string name;
  std::int64_t size = 0;
  friend bool operator==(const Dim&, const Dim&) = default;
};
using Dims = std::vector<Dim>;

/// Reads "batch:64;in:784"; pairs end with `;`, `.`, `,` or a blank. Throws invalid_argument for a
/// pair without a size, a size below 1, and a name that comes twice.
Dims parse_dims(std::string_view text);
/// "batch:64;in:784".
std::string text_of(const Dims& dims);

/// Devices in a grid. The last axis is the innermost: devices beside each other in the list differ
/// in it, so that an axis with much traffic belongs last.
class Mesh {
 public:
  /// Throws invalid_argument unless the devices are as many as the axes' sizes make, each once.
  Mesh(Dims axes, std::vector<std::string> devices);
  Mesh(std::string_view axes, std::vector<std::string> devices)
      : Mesh(parse_dims(axes), std::move(devices)) {}

  const Dims& axes() const { return axes_; }
  int rank() const { return static_cast<int>(axes_.size()); }
  /// The number of devices.
  int size() const { return static_cast<int>(devices_.size()); }
  const std::vector<std::string>& devices() const { return devices_; }
  const std::string& device(int i) const { return devices_[static_cast<std::size_t>(i)]; }
  /// The axis of this name, or -1.
  int axis(std::string_view name) const;
  /// The place of a device along `axis`.
  std::int64_t coordinate(int device, int axis) const;
  /// The devices that differ from `device` along `axis` alone, in the axis's order.
  std::vector<int> line(int device, int axis) const;
  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  Dims axes_;
  std::vector<std::string> devices_;
};

/// Rules that split dimensions along axes of a mesh. A dimension without a rule is whole on each
/// device.
class Layout {
 public:
  using Rule = std::pair<std::string, std::string>;  // dimension, axis

  Layout() = default;
  /// Reads "batch:rows;hidden:cols", with the separators of `parse_dims`. Throws invalid_argument
  /// for a rule without an axis, and for a dimension with two rules.
  explicit Layout(std::string_view rules);
  explicit Layout(std::vector<Rule> rules);

  const std::vector<Rule>& rules() const { return rules_; }
  /// The axis that a dimension is split along; none: it is whole.
  std::optional<std::string> axis_of(std::string_view dimension) const;
  /// For each dimension the axis of `mesh` it is split along, or -1. Throws invalid_argument for a
  /// rule whose axis the mesh lacks, for a size that the axis does not divide, and for two
  /// dimensions on one axis, naming dimension and axis.
  std::vector<int> axes_of(const Dims& dims, const Mesh& mesh) const;
  std::string text() const;
  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  std::vector<Rule> rules_;
};

/// How a program is cut: a compile option.
struct Partitioning {
  Mesh mesh;
  Layout layout;
  friend bool operator==(const Partitioning&, const Partitioning&) = default;
};

}  // namespace troupe::mesh
