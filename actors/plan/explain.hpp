// explain: a plan's predicted behaviour as text. actors/placement/PLACEMENT.md explains an example.
#pragma once

#include <span>
#include <string>

#include <troupe/actors/placement/cost_model.hpp>
#include <troupe/actors/plan/pass_order.hpp>
#include <troupe/actors/plan/plan.hpp>

namespace troupe {

/// Returns the text. It depends on nothing but the arguments. `home`: the device where feeds come
/// from and fetches go.
std::string explain(const Plan& plan, std::span<const PassReport> passes, const CostOptions& costs,
                    const Measured& measured, const std::string& home);

}  // namespace troupe
