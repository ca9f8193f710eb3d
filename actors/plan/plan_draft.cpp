#include <troupe/actors/plan/plan_draft.hpp>

#include <utility>

#include <troupe/ops/graph/function_def.hpp>

namespace troupe {

std::int32_t PlanDraft::part(std::int32_t q, std::int32_t frame) {
  std::int32_t& known = parts[at(q)][at(frame)];
  if (known >= 0) return known;
  const Frame& f = frames->all()[at(frame)];
  std::int32_t parent = frame == 0 || f.function ? -1 : part(q, f.parent);
  PartitionPlan& p = partition(q);
  FramePlan made;
  made.name = f.name;
  made.key = f.key;
  made.parent = parent;
  made.depth = f.depth;
  made.window = f.window;
  made.function = f.function;
  if (f.function) made.arguments.resize(f.function->parameters.size());
  if (parent >= 0) made.child_slot = p.frames[at(parent)].children++;
  known = static_cast<std::int32_t>(p.frames.size());
  p.frames.push_back(std::move(made));
  return known;
}

bool PlanDraft::fires(std::int32_t id) const {
  switch (frames->role(id)) {
    case Role::kernel:
    case Role::identity:
    case Role::switch_:
    case Role::merge:
    case Role::trigger:
    case Role::call:
    case Role::return_: return true;
    case Role::constant: return is_materialized[at(id)];
    default: return false;
  }
}

}  // namespace troupe
