// Logical places of a mesh on physical devices: tiles of tiles, so that neighbours along the last
// axes stay close.
//
//   // four hosts of eight devices; each has a box of 2x4 of the mesh
//   mesh::Mesh m = mesh::over_hosts(mesh::parse_dims("data:4;model:8"), hosts);
//
// Errors: invalid_argument.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <troupe/ops/mesh/mesh.hpp>

namespace troupe::mesh {

/// A grid of equal tiles, each of them a tile of the next level: its shape in logical axes, and the
/// shape of the same number of tiles in physical ones.
struct TilingLevel {
  std::vector<std::int64_t> logical, physical;
};

/// For each logical place in row-major order the row-major number of its physical place. `levels`:
/// outermost first. An axis is as long as the product of its extents in all levels. Throws unless
/// all levels have the same axes, and each as many logical as physical tiles.
std::vector<std::int64_t> hierarchical_tiling(const std::vector<TilingLevel>& levels);

/// A mesh over the devices of several hosts. Each host has a box of the mesh, as long as possible
/// along the last axis, then along the one before it: the last axes stay on a host. Throws if hosts
/// have different numbers of devices, or if no box of so many tiles the mesh, naming both.
Mesh over_hosts(const Dims& axes, const std::vector<std::vector<std::string>>& hosts);

}  // namespace troupe::mesh
