// The pass that chooses the loops that stay whole.
//
//   program = keep_resident(std::move(program), {.is_on = true}, &told);
//   // told: "while_loop 'train' (train.cpp:41): resident, compiled"
//   //       "while_loop 'find' (find.cpp:7): lowered: Print 'Print_3' (find.cpp:9) has effects"
//
// A While that may becomes a ResidentLoop with the same sub-graphs, whose further outputs are what
// its condition tells the check of its comparisons. README.md has the rules.
#pragma once

#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/program.hpp>

namespace troupe {

struct ResidentOptions {
  bool is_on = false;
  std::string off_because;  // if not: the reason, which `told` gets for every loop
  // empty: scalar steps become machine code; else the reason why they are interpreted
  std::string interpreted_because = {};
};

/// Changes one program, whose sub-graphs were changed before.
Program keep_resident(Program program, const ResidentOptions& options,
                      std::vector<std::string>* told = nullptr);

/// Returns why a While cannot stay whole; empty: it can.
std::string why_lowered(const Graph& graph, std::int32_t loop);

/// Returns the first device that something in the graph is constrained to and that is not the CPU
/// of the node `here`; empty: there is none.
std::string other_device(const Graph& graph, const std::string& here);

// ---- shared with the program that it becomes

/// True if a value is one element in a register.
bool is_resident_scalar(const ValueSpec& spec);
/// True if the node is a loop that was chosen.
bool is_resident_loop(const Node& node);
/// True if the node's results are computed in registers.
bool is_scalar_step(const Graph& graph, const Node& node);
/// True if all of a condition is computed in registers.
bool is_all_scalar(const SubGraph& sub);

}  // namespace troupe
