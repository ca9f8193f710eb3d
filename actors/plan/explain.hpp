// What a plan is predicted to do, as text. actors/placement/PLACEMENT.md reads one.
#pragma once

#include <span>
#include <string>

#include <troupe/actors/placement/cost_model.hpp>
#include <troupe/actors/plan/pipeline.hpp>
#include <troupe/actors/plan/plan.hpp>

namespace troupe {

/// The same text for the same plan and costs. `home`: the device where feeds come from and fetches
/// go.
std::string explain(const Plan& plan, std::span<const PassReport> passes, const CostOptions& costs,
                    const Measured& measured, const std::string& home);

}  // namespace troupe
