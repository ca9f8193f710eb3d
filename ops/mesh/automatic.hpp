// Chooses a layout: the one under which a step is predicted to be fastest within the memory of each
// device.
//
//   const mesh::LayoutChoice best = mesh::automatic_layout(g, {x, y}, {loss, step}, mesh);
//   engine.compile(g, {x, y}, {loss, step}, {.mesh = Partitioning{best.mesh, best.layout}});
//   std::puts(best.text().c_str());             // and why, against the next best
//
// The prediction is of the program that each device would run: its kernels, its collectives, and
// its peak of live bytes in the program's order. Layouts are searched by branch and bound: a layout
// that is begun is left if its kernels alone take longer than the second best one found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <troupe/ops/graph/graph.hpp>
#include <troupe/ops/mesh/mesh.hpp>

namespace troupe::mesh {

struct LayoutOptions {
  double flops_per_ns = 50;          // matrix products and convolutions on one device
  double bytes_per_ns = 10;          // other kernels
  double kernel_ns = 500;            // each kernel costs so much besides
  double link_latency_ns = 2'000;    // each collective waits so long
  double link_bytes_per_ns = 10;     // each device sends so much
  std::int64_t memory = 0;           // bytes on a device; 0: no limit
  int max_axes = 3;                  // the most axes that a chosen mesh has
  std::int64_t max_tried = 100'000;  // layouts that are predicted or refused; then the best so far
};

/// The work of a device in one step.
struct LayoutCost {
  double kernels_ns = 0, collectives_ns = 0;
  std::int64_t peak_bytes = 0;
  double ns() const { return kernels_ns + collectives_ns; }
};

struct LayoutChoice {
  Mesh mesh;
  Layout layout;
  LayoutCost cost;
  std::string runner_up;  // the layout that is predicted to be next, of all that were predicted
  LayoutCost runner_up_cost;
  int variables = 0;          // pairs of a dimension and an axis that divides it
  std::int64_t tried = 0;     // layouts that were predicted in full
  bool is_exhaustive = true;  // false: max_tried ended the search
  std::string text() const;
};

/// Predicts a layout. Throws invalid_argument if a tensor does not fit it.
LayoutCost predict(const Graph& graph, const std::vector<Expr>& feeds,
                   const std::vector<Expr>& fetches, const Partitioning& partitioning,
                   const LayoutOptions& options = {});
/// Throws resource_exhausted if no layout that was tried fits the memory, naming what the smallest
/// one needs.
LayoutChoice automatic_layout(const Graph& graph, const std::vector<Expr>& feeds,
                              const std::vector<Expr>& fetches, const Mesh& mesh,
                              const LayoutOptions& options = {});
/// Chooses the mesh, too: the devices in one to `max_axes` axes, named `axis0`, `axis1`, ..., of
/// falling sizes. If predictions are equal, the one with fewer axes is taken.
LayoutChoice automatic_layout(const Graph& graph, const std::vector<Expr>& feeds,
                              const std::vector<Expr>& fetches,
                              const std::vector<std::string>& devices,
                              const LayoutOptions& options = {});

/// Rules that a layout of this mesh may have: the axis divides the dimension.
std::vector<Layout::Rule> possible_rules(const Graph& graph, const Mesh& mesh);
/// All layouts of one tensor of these dimensions: no two of them on one axis, sizes aside.
std::vector<Layout> layouts_of(const std::vector<std::string>& dims, const Mesh& mesh);

namespace detail {

/// An operation as a schedule sees it: the values that it reads, by number, and the bytes that its
/// own value takes.
struct ScheduledOp {
  std::vector<std::size_t> inputs;
  std::int64_t bytes = 0;
  bool is_final = false;  // its value stays
};
/// An order with a low peak: each time the ready operation that adds least to the live bytes, the
/// first of equals.
std::vector<std::size_t> schedule(const std::vector<ScheduledOp>& ops);

}  // namespace detail

}  // namespace troupe::mesh
