// Frames: the role of each node of a lowered program in a plan, and the loop that it is in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

/// The limit of iterations of a loop that are open at once, or ahead of their receiver, for any
/// option. An instance allocates an index for each at its start.
inline constexpr std::int64_t kMostOpen = 1 << 16;

/// A loop of the program, or a function's body; number 0 has the nodes outside of all of these.
struct Frame {
  std::string name;
  std::uint64_t key = 0;
  std::int32_t parent = -1;
  std::int32_t depth = 0;
  std::int32_t window = 1;
  std::int32_t leader = -1;  // the partition of its LoopCond
  const FunctionDef* function = nullptr;
};

enum class Role : std::uint8_t {
  kernel,
  identity,
  switch_,
  merge,
  trigger,
  enter,
  exit,
  next,
  loop_merge,
  alias,
  constant,
  feed,
  call,
  argument,
  return_
};

/// Returns the number of the feed of each fed node.
std::map<std::int32_t, std::int32_t> numbered(const std::vector<Edge>& feeds);

/// Throws invalid_argument, naming both nodes, where inputs of one node come from different frames,
/// and for loops that cannot work. Refers to the graph and to `partition`.
class Frames {
 public:
  Frames(const Graph& g, const std::map<std::int32_t, std::int32_t>& fed,
         const std::vector<std::int32_t>& partition);

  Role role(std::int32_t id) const { return role_[static_cast<std::size_t>(id)]; }
  std::int32_t frame(std::int32_t id) const {
    return frame_[static_cast<std::size_t>(id)] < 0 ? 0 : frame_[static_cast<std::size_t>(id)];
  }
  const std::vector<Frame>& all() const { return frames_; }
  /// The edge that `e` merely repeats.
  Edge resolve(Edge e) const {
    while (role(e.node) == Role::alias) e = g_.node(e.node).inputs[0];
    return e;
  }
  /// Known to its users without a token.
  bool is_constant(Edge e) const { return role(resolve(e).node) == Role::constant; }

 private:
  static constexpr std::int32_t kNone = -1;  // frame of nodes without tokens: constants

  bool is_same_each_time(std::int32_t id) const;
  Role role_of(std::int32_t id) const;
  std::int32_t find_frame(std::int32_t id);
  std::int32_t entered(const Node& n, std::int32_t parent, std::int32_t id);
  std::int32_t called(const FunctionDef& function);
  std::string place(std::int32_t frame) const;
  void check_loop(std::int32_t merge, std::int32_t next) const;
  void check_enters() const;

  const Graph& g_;
  const std::vector<std::int32_t>& partition_;
  std::vector<Role> role_;
  std::vector<std::int32_t> frame_;
  std::vector<Frame> frames_;
  std::map<std::int32_t, std::int32_t> is_closed_;  // a loop's Merge: its NextIteration
};

}  // namespace troupe
