#include <troupe/actors/executor/frame_state.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace troupe {

void FrameState::reset() {
  for (Value& v : invariants) v.reset();
  waiting.clear();
  future.clear();  // also tokens of a faulty node for iterations that never began
  on_way.clear();
  has_large = is_advancing = false;
  run_state = nullptr;
}

std::string tag_of(const IterationState& iteration) {
  constexpr int kNamed = 8;
  std::string tag;
  int named = 0;
  for (const IterationState* it = &iteration; it->instance->parent; it = it->instance->parent) {
    if (named++ == kNamed) return "..., " + tag;
    const FrameState& instance = *it->instance;
    const std::string here =
        !instance.frame->function
            ? fmt::format("iteration {} of loop '{}'", it->number, instance.frame->name)
        : instance.caller
            ? fmt::format("a call of '{}'", instance.frame->name)
            : fmt::format("a call of '{}', {} deep", instance.frame->name, instance.depth);
    tag = tag.empty() ? here : here + ", " + tag;
  }
  return tag;
}

std::int64_t number_in_path(const IterationState& iteration) {
  return iteration.instance->frame->function ? iteration.instance->call : iteration.number;
}

Path path_to(const IterationState& iteration) {
  Path path;
  path.depth = iteration.instance->frame->depth;
  const IterationState* it = &iteration;
  for (std::int32_t d = path.depth; d > 0; --d, it = it->instance->parent)
    path.number[d - 1] = number_in_path(*it);
  return path;
}

int compare_order(const IterationState& a, const IterationState& b) {
  const std::int32_t depth_a = a.instance->frame->depth, depth_b = b.instance->frame->depth;
  if (depth_a != depth_b) {
    const bool a_is_deeper = depth_a > depth_b;
    const int around =
        a_is_deeper ? compare_order(*a.instance->parent, b) : compare_order(a, *b.instance->parent);
    return around != 0 ? around : a_is_deeper ? 1 : -1;
  }
  if (a.instance == b.instance) return a.number < b.number ? -1 : a.number > b.number;
  return depth_a == 0 ? 0 : compare_order(*a.instance->parent, *b.instance->parent);
}

bool is_oldest(const IterationState& iteration) {
  for (const IterationState* i = &iteration; i; i = i->instance->parent)
    if (i->number != i->instance->oldest) return false;
  return true;
}

FrameState& FramePool::take_root(FrameState* root, RunState& run) {
  if (!root) {
    root = instances_.emplace_back(std::make_unique<FrameState>()).get();
    root->frame = &mine_.frames[0];
    root->ring.resize(1);
  }
  root->received.assign(static_cast<std::size_t>(root->frame->receives), 0);
  root->run_state = &run;
  root->oldest = root->opened = 0;
  return *root;
}

FrameState& FramePool::take(IterationState& parent, std::int32_t number, std::uint64_t now) {
  const FramePlan& frame = mine_.frames[static_cast<std::size_t>(number)];
  auto& spare = spare_instances_[static_cast<std::size_t>(number)];
  if (spare.empty()) {
    FrameState& fresh = *instances_.emplace_back(std::make_unique<FrameState>());
    fresh.frame = &frame;
    fresh.number = number;
    fresh.ring.resize(std::bit_ceil(static_cast<std::size_t>(frame.window)));
    fresh.received.resize(fresh.known_places() * static_cast<std::size_t>(frame.receives));
    fresh.exited.resize(frame.exits.size());
    fresh.invariants.resize(static_cast<std::size_t>(frame.invariants));
    fresh.invariant_came.resize(static_cast<std::size_t>(frame.invariants));
    spare.push_back(&fresh);
  }
  FrameState& i = *spare.back();
  spare.pop_back();
  i.run_state = parent.instance->run_state;
  i.parent = &parent;
  i.caller = nullptr;
  i.depth = parent.instance->depth;
  i.oldest = i.opened = 0;
  i.counted = now;
  i.enters_pending = frame.enters;
  i.invariants_pending = frame.invariants;
  i.has_dead_invariant = i.must_open = false;
  i.execution = ++executions_;
  i.compared.clear();
  i.recurrence.forget();
  i.granted = frame.granted;
  std::fill(i.received.begin(), i.received.end(), 0);
  std::fill(i.exited.begin(), i.exited.end(), 0);
  std::fill(i.invariant_came.begin(), i.invariant_came.end(), 0);
  return i;
}

void FramePool::add_iteration(const FrameState& instance) {
  const FramePlan& frame = *instance.frame;
  IterationState& fresh = *iterations_.emplace_back(std::make_unique<IterationState>());
  fresh.values.resize(static_cast<std::size_t>(frame.slots));
  fresh.children.resize(static_cast<std::size_t>(frame.children));
  fresh.awaited.resize(frame.nodes.size());
  spare_iterations_[static_cast<std::size_t>(instance.number)].push_back(&fresh);
}

}  // namespace troupe
