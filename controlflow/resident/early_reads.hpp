// Reads of variables in a loop that is to stay whole: one read a variable before the loop, whose
// value the loop captures. RESIDENT.md, Note [Early reads], says which loops allow that.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

struct EarlyReads {
  std::vector<Node> reads;  // one a variable, without inputs and control edges
  Node loop;                // its last inputs, {-1, 0}, stand for the reads
};

/// Returns the loop without the reads of its body and of the branches in it; empty: there are none
/// that can be moved.
std::optional<EarlyReads> early_reads(const Node& loop);

/// Returns why reads in the loop stay in it: the loop may go on, or end, because of one. Empty:
/// none decides that.
std::string why_reads_stay(const Node& loop);

}  // namespace troupe
