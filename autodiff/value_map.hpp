// A map from values to small numbers, for tapes; a value's mark is its key. Open addressing in one
// array, because a tape looks up each input of each op that is computed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <troupe/ops/graph/expr.hpp>

namespace troupe::detail {

class ValueMap {
 public:
  static constexpr std::int32_t kNone = -1;

  /// kNone if it is not there.
  std::int32_t find(Edge mark) const {
    if (slots_.empty()) return kNone;
    for (std::size_t i = home(mark);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].number == kNone) return kNone;
      if (slots_[i].mark == mark) return slots_[i].number;
    }
  }
  /// Maps `mark` to `number`, 0 or more, and replaces an earlier number.
  void set(Edge mark, std::int32_t number) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    for (std::size_t i = home(mark);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].number != kNone && slots_[i].mark != mark) continue;
      size_ += slots_[i].number == kNone;
      slots_[i] = {mark, number};
      return;
    }
  }
  /// Keeps memory for as many, unless it was made for far more.
  void clear() {
    if (slots_.size() > 64 * (size_ + 1)) slots_.clear();
    std::fill(slots_.begin(), slots_.end(), Slot());
    size_ = 0;
  }
  bool empty() const { return size_ == 0; }
  /// The number of slots for which it has memory.
  std::size_t capacity() const { return slots_.size(); }

 private:
  struct Slot {
    Edge mark;
    std::int32_t number = kNone;
  };

  std::size_t home(Edge mark) const {
    const std::uint64_t id = static_cast<std::uint64_t>(static_cast<std::uint32_t>(mark.node)) |
                             static_cast<std::uint64_t>(mark.output) << 32;
    return (id * 0x9E3779B97F4A7C15ull >> 32) & (slots_.size() - 1);
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : 2 * slots_.size());
    old.swap(slots_);
    size_ = 0;
    for (const Slot& s : old)
      if (s.number != kNone) set(s.mark, s.number);
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace troupe::detail
