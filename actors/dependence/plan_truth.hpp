// The true causes among the channels of a node, as the plan's edges have them.
//
//   Edges truth = plan_truth(describe(plan), "a", {{{3, 'k'}, "m"}, {{3, 's'}, "send m"}});
//
// A channel is the kernels (k), sends (s) or receives (r) of a program's node. One causes another
// if a path leads there and none of it is a channel itself.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include <troupe/actors/dependence/evaluation.hpp>
#include <troupe/actors/plan/plan_description.hpp>

namespace troupe::dependence {

/// A node of the program, and which of its events.
using ChannelPlace = std::pair<std::int32_t, char>;

/// `node`: the one whose recorders have the channels; empty: the only one.
Edges plan_truth(const detail::PlanDescription& plan, const std::string& node,
                 const std::map<ChannelPlace, std::string>& channels);

}  // namespace troupe::dependence
