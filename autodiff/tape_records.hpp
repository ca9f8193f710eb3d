// The records of a tape: ops and calls in order, and which values they yield.
//
//   std::unique_ptr<TapeRecords> records = TapeRecords::take();   // of an earlier tape, emptied
//   TapeEntry& entry = records->next();                           // empty, with the memory it had
//   TapeRecords::give(std::move(records));
//
// A thread keeps the records of its last tape, so that a tape that records as many ops as the one
// before allocates nothing. Threads: one at a time. Invariant: kept records hold no value, and
// memory for kMostKept entries at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <troupe/autodiff/value_map.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe::detail {

struct StagedFunction;

/// One op, or one call of a staged function, that was computed.
struct TapeEntry {
  const OpDef* op = nullptr;  // null: a call
  Attrs attrs;
  Exprs inputs, outputs;
  std::vector<bool> active;  // inputs
  Site site;
  const State* read = nullptr;  // the variable that a read reads
  // a call's function, and its versions that yield more; the last of them ran
  std::vector<std::shared_ptr<StagedFunction>> versions;

  /// Empties it, and keeps the memory of its vectors.
  void reset() {
    op = nullptr;
    attrs = {};
    inputs.clear();
    outputs.clear();
    active.clear();
    site = {};
    read = nullptr;
    versions.clear();
  }
};

class TapeRecords {
 public:
  static constexpr std::size_t kMostKept = 1 << 14;

  /// Values that the tape watches or recorded, with the number of their entry.
  ValueMap values;

  /// One more entry, at the end; references to others stay valid.
  TapeEntry& next() {
    if (used_ == entries_.size()) entries_.emplace_back();
    return entries_[used_++];
  }
  const TapeEntry& operator[](std::size_t i) const { return entries_[i]; }
  std::size_t size() const { return used_; }
  void clear() {
    for (; used_ > 0; --used_) entries_[used_ - 1].reset();
    values.clear();
    if (entries_.size() <= kMostKept) return;
    entries_.clear();
    values = {};
  }

  static std::unique_ptr<TapeRecords> take() {
    if (!is_over() && kept()) return std::move(kept());
    return std::make_unique<TapeRecords>();
  }
  static void give(std::unique_ptr<TapeRecords> records) {
    if (!records) return;
    records->clear();
    if (!is_over()) kept() = std::move(records);
  }

 private:
  struct Kept {
    std::unique_ptr<TapeRecords> records;
    ~Kept() { is_over() = true; }
  };
  static std::unique_ptr<TapeRecords>& kept() {
    static thread_local Kept mine;
    return mine.records;
  }
  // The thread has ended: what is kept for it is gone.
  static bool& is_over() {
    static thread_local bool over = false;
    return over;
  }

  std::deque<TapeEntry> entries_;  // emptied ones behind the first `used_`
  std::size_t used_ = 0;
};

}  // namespace troupe::detail
