// PlanCache: the compiled graphs that `Engine::run` uses again, and all plans that are alive.
//
//   PlanCache plans;
//   if (auto hit = plans.find(key)) return hit;
//   plans.add(compiled);                 // every plan, also the parts of other nodes' plans
//   plans.keep(std::move(key), compiled);
//
// Threads: any. Ownership: the cache shares the plans that it keeps, at most `kMost` of them; all
// others it refers to weakly, and their functions own them. A plan is destroyed outside the lock.
// Invariants: 1. the least recently used plan goes first; 2. besides the newest, kept plans hold at
// most `kMostBytes` of constants; 3. after `close` nothing is kept, and no plan names its engine.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <troupe/actors/engine/compiled_plan.hpp>

namespace troupe {

class PlanCache {
 public:
  static constexpr std::size_t kMost = 64;                   // plans that are kept
  static constexpr std::uint64_t kMostBytes = 256ull << 20;  // bytes of constants of kept plans

  struct Key {
    std::uint64_t graph = 0;
    std::uint64_t version = 0;
    std::vector<Edge> feeds, fetches;
    friend bool operator==(const Key&, const Key&) = default;
  };

  /// Returns the kept plan of this key, which becomes the most recently used; null if there is none
  /// or one of its nodes was lost.
  std::shared_ptr<CompiledPlan> find(const Key& key);
  /// Keeps a plan as the most recently used one.
  void keep(Key key, std::shared_ptr<CompiledPlan> compiled);
  /// Remembers a plan that functions own.
  void add(const std::shared_ptr<CompiledPlan>& compiled);
  /// Returns all that are alive, the newest last.
  std::vector<std::shared_ptr<CompiledPlan>> alive();
  /// Returns how many plans are kept.
  std::size_t kept();
  /// Drops the kept plans and takes the engine from all; returns those that are alive.
  std::vector<std::shared_ptr<CompiledPlan>> close();

 private:
  using Kept = std::list<std::pair<Key, std::shared_ptr<CompiledPlan>>>;

  std::mutex mutex_;  // guards kept_, all_ and `engine` of all plans; nothing is called under it
  Kept kept_;         // the most recently used first
  std::vector<std::weak_ptr<CompiledPlan>> all_;
};

}  // namespace troupe
