// The training whose step this thread compiles or runs: plans that it makes for other nodes carry
// its driver and epoch, and a node that has accepted a later driver refuses them.
//
//   const FenceScope scope({"demo", 3, "a"});
//   Function step = node.engine().compile(graph, feeds, fetches);
//
// Threads: a scope is its thread's. Scopes nest.
#pragma once

#include <utility>

#include <troupe/cluster/protocol/messages.hpp>

namespace troupe {

class FenceScope {
 public:
  explicit FenceScope(Fence fence) : before_(std::exchange(current_, std::move(fence))) {}
  ~FenceScope() { current_ = std::move(before_); }
  FenceScope(const FenceScope&) = delete;
  FenceScope& operator=(const FenceScope&) = delete;

  /// Outside of scopes it is of no training.
  static const Fence& current() { return current_; }

 private:
  static thread_local Fence current_;
  Fence before_;
};

}  // namespace troupe
