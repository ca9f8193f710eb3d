// CallTable: the calls of one run to functions that lie in several partitions, and the calls that
// wait for a free slot.
//
//   std::int64_t call;
//   if (CallSlot* slot = calls.free_slot(function, depth, call)) slot->open = &instance;
//   else calls.block({&iteration, &node});
//   ...
//   calls.slot_of(function, call)->end();
//
// A slot is (function, depth of the call, which of `Plan::kCalls`). The number of a call is (its
// slot, how many calls ended there before), so a token names a call of one slot without ambiguity.
// The protocol is Note [Calls over partitions] in PROTOCOL.md.
//
// Threads: the partition's turn. Invariants: 1. a slot holds at most one open call; 2. two calls of
// a run never share a number; 3. after `clear` no call is open and no number was used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <troupe/actors/executor/frame_state.hpp>
#include <troupe/actors/executor/future_tokens.hpp>
#include <troupe/actors/executor/ready_queue.hpp>

namespace troupe {

/// Calls of a function that follow each other, equally deep.
struct CallSlot {
  FrameState* open = nullptr;
  std::int64_t ended = 0;  // calls that have ended here
  FutureTokens early;      // tokens of the next call that overtook the token that begins it
  void end() {
    open = nullptr;
    ++ended;
  }
};

class CallTable {
 public:
  /// Begins a run: `frames` of the partition, calls of at most that depth, `peers` that send
  /// `over`.
  void start(std::size_t frames, std::int32_t call_depth, std::size_t peers);

  /// Returns a free slot for a call that is `depth` deep, and the call's number. Null: none is
  /// free.
  CallSlot* free_slot(std::int32_t function, std::int32_t depth, std::int64_t& call);
  /// Returns the slot of a call. Null: no call has that number.
  CallSlot* slot_of(std::int32_t function, std::int64_t call);
  /// Returns the calls that ended in the slot before the one with that number.
  static std::int64_t calls_before(std::int64_t call) { return call >> kSlotBits; }
  /// Returns how deep the call with that number is.
  static std::int32_t depth_of(std::int64_t call) {
    return static_cast<std::int32_t>((call & kSlotMask) / Plan::kCalls) + 1;
  }

  /// Keeps a Call for which no slot is free.
  void block(ReadyNode call) { blocked_.push_back(call); }
  /// Passes blocked Calls that `is_next` to `enable`: the first one, or all with `all`.
  template <class IsNext, class Enable>
  void unblock(bool all, IsNext is_next, Enable enable) {
    for (std::size_t k = 0; k < blocked_.size();) {
      const ReadyNode call = blocked_[k];
      if (!all && !is_next(call)) {
        ++k;
        continue;
      }
      enable(call);
      blocked_.erase(blocked_.begin() + static_cast<std::ptrdiff_t>(k));
      if (!all) break;
    }
  }
  const std::vector<ReadyNode>& blocked() const { return blocked_; }

  /// Notes that a peer makes no more outer calls. False: that was known.
  bool note_over(std::int32_t place) {
    return !std::exchange(over_[static_cast<std::size_t>(place)], 1);
  }
  bool is_over(std::int32_t place) const { return over_[static_cast<std::size_t>(place)] != 0; }
  /// True if no peer makes outer calls any more.
  bool are_all_over() const;

  /// Everything of the run here has fired, except calls that peers may still make.
  bool is_drained = false;
  /// The parent of all calls that other partitions made. Its count starts at 1, so it never ends.
  IterationState elsewhere;

  /// Forgets the calls of a run that has ended; storage stays.
  void clear();
  void clear_blocked() { blocked_.clear(); }

 private:
  static constexpr int kSlotBits = 32;
  static constexpr std::int64_t kSlotMask = (std::int64_t{1} << kSlotBits) - 1;

  std::int32_t call_depth_ = 0;
  std::vector<std::vector<std::vector<CallSlot>>> slots_;  // by frame, depth, slot
  std::vector<ReadyNode> blocked_;
  std::vector<char> over_;  // by `Receive::place`
};

}  // namespace troupe
