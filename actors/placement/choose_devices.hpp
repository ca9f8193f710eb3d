// Which device each node goes to that no constraint decides for: what the cost model predicts to
// end earliest.
//
// First HEFT (Topcuoglu, Hariri, Wu, 2002): in order of what is left after them, nodes go where
// they end earliest, transfers included and if their values fit. Then one unit after another is
// tried elsewhere, as long as the whole forecast gets better and there is time. What comes out is
// compared with all of it on the default device: it is never predicted to be worse than that. A
// unit stays together: what users colocated; a loop of the outermost level, but for what is
// constrained in it.
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

/// One choice a node; what only moves tokens has no device and no allowed ones. Returns the device
/// of each, -1 for those. Throws resource_exhausted if what is best does not fit the memory there
/// is, saying what takes the most.
std::vector<std::int32_t> choose_devices(const Program& program, const CostModel& model,
                                         std::size_t home, const std::vector<Choice>& choices);

}  // namespace troupe
