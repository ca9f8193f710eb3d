#include <troupe/actors/executor/call_table.hpp>

#include <algorithm>

namespace troupe {

void CallTable::start(std::size_t frames, std::int32_t call_depth, std::size_t peers) {
  call_depth_ = call_depth;
  if (slots_.size() < frames) slots_.resize(frames);
  over_.assign(peers, 0);
  is_drained = false;
}

CallSlot* CallTable::free_slot(std::int32_t function, std::int32_t depth, std::int64_t& call) {
  const std::int64_t first = std::int64_t{depth - 1} * Plan::kCalls;
  for (std::int64_t k = 0; k < Plan::kCalls; ++k) {
    CallSlot& slot = *slot_of(function, first + k);
    if (slot.open) continue;
    call = slot.ended << kSlotBits | (first + k);
    return &slot;
  }
  return nullptr;
}

CallSlot* CallTable::slot_of(std::int32_t function, std::int64_t call) {
  const auto slot = static_cast<std::size_t>(call & kSlotMask);
  const std::size_t depth = slot / Plan::kCalls, which = slot % Plan::kCalls;
  if (depth >= static_cast<std::size_t>(call_depth_)) return nullptr;
  auto& by_depth = slots_[static_cast<std::size_t>(function)];
  if (depth >= by_depth.size()) by_depth.resize(depth + 1);
  if (which >= by_depth[depth].size()) by_depth[depth].resize(which + 1);
  return &by_depth[depth][which];
}

bool CallTable::are_all_over() const {
  return std::all_of(over_.begin(), over_.end(), [](char over) { return over != 0; });
}

void CallTable::clear() {
  for (auto& by_depth : slots_)
    for (auto& slots : by_depth)
      for (CallSlot& slot : slots) {
        slot.open = nullptr;
        slot.ended = 0;
        slot.early.clear();
      }
}

}  // namespace troupe
