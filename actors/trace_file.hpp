// A trace of one node in a file: Chrome's format, which Perfetto reads. Over several nodes it is the inspection server's
// (cluster/inspection_trace.cpp).
#pragma once

#include <string>
#include <vector>

#include <troupe/actors/plan.hpp>

namespace troupe {

/// What the partitions of a plan have recorded. False if the file cannot be written.
bool write_trace(const std::string& path, const Plan& plan, const std::vector<PartitionSnapshot>& partitions);

}  // namespace troupe
