#include <troupe/actors/observe/queue_users.hpp>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <troupe/ops/graph/op.hpp>

namespace troupe::detail {

std::string queue_text(const StateSpec& state) {
  if (state.kind != StateSpec::Kind::fifo_queue && state.kind != StateSpec::Kind::shuffling_queue)
    return {};
  return fmt::format("{} '{}'",
                     state.kind == StateSpec::Kind::fifo_queue ? "queue" : "shuffling queue",
                     state.name);
}

QueueUses queue_uses(const Graph& program) {
  std::set<std::string> filled, emptied;
  for (const Node& n : program.nodes()) {
    if (n.state < 0 || n.op->effect == Effect::none || n.op->effect == Effect::read) continue;
    const std::string queue = queue_text(program.states()[static_cast<std::size_t>(n.state)]);
    if (queue.empty()) continue;
    if (n.op->effect != Effect::dequeue) filled.insert(queue);
    if (n.op->effect != Effect::enqueue) emptied.insert(queue);
  }
  return {{filled.begin(), filled.end()}, {emptied.begin(), emptied.end()}};
}

QueueUsers::QueueUsers(const Graph& program)
    : program_(program), users_(static_cast<std::size_t>(program.size())) {
  for (std::int32_t id = 0; id < program.size(); ++id) {
    for (const Edge e : program.node(id).inputs)
      users_[static_cast<std::size_t>(e.node)].push_back(id);
    for (const std::int32_t c : program.node(id).controls)
      users_[static_cast<std::size_t>(c)].push_back(id);
    if (const Node& n = program.node(id);
        n.state >= 0 && n.op->effect != Effect::none && n.op->effect != Effect::read)
      of_state_[n.state].push_back(id);
  }
}

// Drops the `others` that cannot fire before `node` has fired. The search ends at the last of them.
void QueueUsers::drop_behind(std::int32_t node, std::vector<std::int32_t>& others) {
  seen_.resize(users_.size());
  ++search_;
  const auto waits = [&](std::int32_t id) {
    return seen_[static_cast<std::size_t>(id)] == search_;
  };
  const auto has_to_wait = [&](std::int32_t id) {
    const Node& n = program_.node(id);
    constexpr std::string_view kOther[] = {"Call", "Argument", "Return"};
    if (std::find(std::begin(kOther), std::end(kOther), n.op->name) != std::end(kOther))
      return false;
    return n.op->name != "Merge" || std::all_of(n.inputs.begin(), n.inputs.end(), [&](Edge e) {
             return program_.node(e.node).op->name == "NextIteration" || waits(e.node);
           });
  };
  std::vector<std::int32_t> next{node};
  seen_[static_cast<std::size_t>(node)] = search_;
  while (!next.empty() && !others.empty()) {
    const std::int32_t id = next.back();
    next.pop_back();
    for (const std::int32_t user : users_[static_cast<std::size_t>(id)]) {
      if (waits(user) || !has_to_wait(user)) continue;
      seen_[static_cast<std::size_t>(user)] = search_;
      next.push_back(user);
      if (program_.node(user).state == program_.node(node).state) std::erase(others, user);
    }
  }
}

std::vector<std::int32_t> QueueUsers::may_end(std::int32_t node, bool is_outermost) {
  const Node& waiting = program_.node(node);
  const Effect opposite = waiting.op->effect == Effect::dequeue ? Effect::enqueue : Effect::dequeue;
  std::vector<std::int32_t> others;
  for (const std::int32_t id : of_state_.at(waiting.state))
    if (const Effect effect = program_.node(id).op->effect;
        effect == opposite || effect == Effect::write)
      others.push_back(id);
  if (is_outermost) drop_behind(node, others);
  return others;
}

}  // namespace troupe::detail
