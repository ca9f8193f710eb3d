#include <troupe/actors/engine/plan_cache.hpp>

#include <algorithm>

namespace troupe {

std::shared_ptr<CompiledPlan> PlanCache::find(const Key& key) {
  Kept broken;  // destroyed outside the lock
  std::lock_guard lock(mutex_);
  const auto it = std::find_if(kept_.begin(), kept_.end(),
                               [&](const auto& entry) { return entry.first == key; });
  if (it == kept_.end()) return nullptr;
  const bool is_broken = it->second->is_broken();
  Kept& to = is_broken ? broken : kept_;
  to.splice(to.begin(), kept_, it);
  return is_broken ? nullptr : it->second;
}

void PlanCache::keep(Key key, std::shared_ptr<CompiledPlan> compiled) {
  Kept oldest;  // destroyed outside the lock
  std::lock_guard lock(mutex_);
  kept_.emplace_front(std::move(key), std::move(compiled));
  std::uint64_t bytes = 0;
  for (auto it = std::next(kept_.begin()); it != kept_.end(); ++it)
    bytes += it->second->constant_bytes;
  while (kept_.size() > kMost || (kept_.size() > 1 && bytes > kMostBytes)) {
    bytes -= kept_.back().second->constant_bytes;
    oldest.splice(oldest.end(), kept_, std::prev(kept_.end()));
  }
}

void PlanCache::add(const std::shared_ptr<CompiledPlan>& compiled) {
  std::lock_guard lock(mutex_);
  std::erase_if(all_, [](const auto& weak) { return weak.expired(); });
  all_.push_back(compiled);
}

std::vector<std::shared_ptr<CompiledPlan>> PlanCache::alive() {
  std::vector<std::shared_ptr<CompiledPlan>> alive;
  std::lock_guard lock(mutex_);
  for (const auto& weak : all_)
    // A plan that instances are made of has no actors of its own, and is not listed.
    if (auto compiled = weak.lock();
        compiled && compiled->engine && !compiled->troupe.partitions.empty())
      alive.push_back(std::move(compiled));
  return alive;
}

std::size_t PlanCache::kept() {
  std::lock_guard lock(mutex_);
  return kept_.size();
}

std::vector<std::shared_ptr<CompiledPlan>> PlanCache::close() {
  Kept kept;  // destroyed outside the lock
  std::vector<std::shared_ptr<CompiledPlan>> alive;
  std::lock_guard lock(mutex_);
  kept.swap(kept_);
  for (const auto& weak : all_)
    if (auto compiled = weak.lock()) {
      compiled->engine = nullptr;
      alive.push_back(std::move(compiled));
    }
  return alive;
}

}  // namespace troupe
