// The ordered list of passes, and the runner that times, names and can skip each.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <troupe/ops/graph/program.hpp>

namespace troupe {

struct Pass {
  const char* name;
  const char* reason;  // why it stands where it stands
  Program (*run)(Program);
  bool is_required = false;  // correctness, not speed: never skipped
};

/// In the order in which they run.
std::span<const Pass> passes();

struct PassReport {
  std::string name;
  std::int32_t nodes_before = 0;
  std::int32_t nodes_after = 0;
  double seconds = 0;
};

/// Prunes to feeds and fetches and runs the passes. After each pass the program is verified: inputs
/// before their users, every edge's output there; a violation throws internal naming the pass.
/// `low`: mixed precision, after folding, which is exact, and before what is common is merged,
/// casts among it.
Program optimize(const Graph& graph, const std::vector<Edge>& feeds,
                 const std::vector<Edge>& fetches, bool all_passes,
                 const std::vector<std::string>& skip, std::vector<PassReport>* reports,
                 std::optional<DType> low = {});

}  // namespace troupe
