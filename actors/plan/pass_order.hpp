// The ordered list of passes, and the runner that times, names and can skip each.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <troupe/controlflow/resident/keep_resident.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/program.hpp>
#include <troupe/ops/mesh/mesh.hpp>
#include <troupe/ops/mesh/variables.hpp>

namespace troupe {

/// The parts of the compile options that decide which passes run.
struct PassOptions {
  bool optimize = false;                     // the passes that make a program faster
  std::optional<DType> low = {};             // mixed precision: store products in this dtype
  Keep keep = Keep::fetches;                 // the outermost program's effects that run
  bool takes_lists = false;                  // lists are accepted as feeds and fetches
  bool check_finite = false;                 // fused nodes keep the names of their parts
  ResidentOptions resident = {};             // loops that stay whole
  const mesh::Partitioning* mesh = nullptr;  // the program is cut over a mesh
  // variables that the engine stores in pieces, and those that the program begins to; null: none
  mesh::detail::VariableHomes* homes = nullptr;
  std::vector<std::string>* warnings = nullptr;  // sentences for the user; null: none
};

/// The request of a caller: its graph, which no pass changes, its feeds and its fetches.
struct PassRequest {
  const Graph& graph;
  const std::vector<Edge>& feeds;
  const std::vector<Edge>& fetches;
  PassOptions options = {};
  // a line for each node that passes removed or moved; null: no report
  std::vector<std::string>* told = nullptr;
};

struct Pass {
  /// `everywhere`: first on the sub-graphs of functional nodes and the bodies of functions, then on
  /// the outermost program. `top_level`: on the outermost program alone.
  enum class Scope : std::uint8_t { everywhere, top_level };
  /// The program that a pass is given.
  enum class Level : std::uint8_t { outermost, sub_graph };

  const char* name;
  const char* reason;  // for its place in the list
  Scope scope;
  bool (*enabled)(const PassOptions&);
  Program (*run)(Program, Level, const PassRequest&);

  /// Correctness needs a pass that runs without optimisation; it is never skipped.
  bool is_required() const { return enabled({}); }
};

/// In the order in which they run.
std::span<const Pass> passes();

struct PassReport {
  std::string name;
  std::int32_t nodes_before = 0;
  std::int32_t nodes_after = 0;
  double seconds = 0;
  std::vector<std::string> changes = {};  // a line for each node that it removed or moved
};

/// Runs the passes that are enabled and not in `skip`. After each pass the program is verified:
/// inputs before their users, every edge's output there; a violation throws internal naming the
/// pass. Lists are refused as feeds and fetches unless `takes_lists`.
Program optimize(const Graph& graph, const std::vector<Edge>& feeds,
                 const std::vector<Edge>& fetches, const PassOptions& options,
                 const std::vector<std::string>& skip = {},
                 std::vector<PassReport>* reports = nullptr);

}  // namespace troupe
