// choose_devices: chooses a device for each node that no constraint decides, so that the run is
// predicted to end earliest.
//
// First HEFT (Topcuoglu, Hariri, Wu, 2002): nodes are placed by descending upward rank, each on the
// device where it ends earliest, transfers included, if its values fit. Then one unit after another
// is tried on other devices, while the whole forecast improves and time is left. The result is
// compared with all units on the default device, and is never predicted to be worse. The nodes of a
// unit stay together: nodes that users colocated, or an outermost loop without the nodes in it that
// have constraints.
#pragma once

#include <cstdint>
#include <vector>

#include <troupe/actors/placement/forecast.hpp>

namespace troupe {

struct Choice {
  std::int32_t device = -1;           // decided already; -1: not
  std::vector<std::int32_t> allowed;  // else one of these, the one preferred first
  std::int32_t group = -1;            // nodes of one group go together; -1: none
};

/// Chooses devices. `choices` has one entry for each node; a node that only moves tokens has no
/// device and no allowed ones. Returns the device of each node, -1 for nodes that only move tokens.
/// Throws resource_exhausted if the best placement does not fit the memory, naming the largest
/// values.
std::vector<std::int32_t> choose_devices(const Program& program, const CostModel& model,
                                         std::size_t home, const std::vector<Choice>& choices);

}  // namespace troupe
