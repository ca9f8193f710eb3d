// FutureTokens: tokens that wait in a frame's instance for an iteration that is not open yet.
// Tokens are bucketed by iteration: opening one reads only its own bucket. Threads: the partition's
// turn. Invariants: 1. an entry is in one bucket, taken, or free, to be used again; 2. `empty` is
// true only if all are free; 3. an `add` that throws adds nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <troupe/actors/executor/partition_messages.hpp>

namespace troupe {

class FutureTokens {
 public:
  static constexpr std::int32_t kNone = -1;

  bool empty() const { return count_ == 0; }

  /// Adds a token to the bucket `place`, of `places`. If memory is short this throws, and the
  /// token is unchanged.
  Token& add(std::size_t place, std::size_t places, Token&& token) {
    if (first_.size() < places) first_.resize(places, kNone);
    if (spare_ == kNone) {
      entries_.emplace_back();
      spare_ = static_cast<std::int32_t>(entries_.size()) - 1;
    }
    Entry& e = entries_[static_cast<std::size_t>(spare_)];
    std::swap(first_[place], spare_);
    std::swap(e.next, spare_);
    e.token = std::move(token);
    ++count_;
    return e.token;
  }

  /// True if `is_it` holds for a token of the bucket.
  template <class Is>
  bool any_of(std::size_t place, Is is_it) const {
    for (std::int32_t i = place < first_.size() ? first_[place] : kNone; i != kNone;
         i = entries_[static_cast<std::size_t>(i)].next)
      if (is_it(entries_[static_cast<std::size_t>(i)].token)) return true;
    return false;
  }

  /// Empties a bucket and returns the first of its entries, or kNone. The caller may add tokens
  /// while it handles them.
  std::int32_t take(std::size_t place) {
    return place < first_.size() ? std::exchange(first_[place], kNone) : kNone;
  }
  /// Returns the token of a taken entry. The reference is valid until a token is added.
  Token& token(std::int32_t entry) { return entries_[static_cast<std::size_t>(entry)].token; }
  /// Returns the taken entry after this one, or kNone.
  std::int32_t after(std::int32_t entry) const {
    return entries_[static_cast<std::size_t>(entry)].next;
  }
  /// Moves a taken entry into the bucket of another iteration.
  void put_back(std::int32_t entry, std::size_t place) {
    entries_[static_cast<std::size_t>(entry)].next = std::exchange(first_[place], entry);
  }
  /// Frees a taken entry.
  void drop(std::int32_t entry) {
    Entry& e = entries_[static_cast<std::size_t>(entry)];
    e.token = Token{};
    e.next = std::exchange(spare_, entry);
    --count_;
  }

  /// Drops all tokens; their storage stays.
  void clear() {
    if (empty()) return;
    entries_.clear();
    first_.assign(first_.size(), kNone);
    spare_ = kNone;
    count_ = 0;
  }

 private:
  struct Entry {
    Token token{};
    std::int32_t next = kNone;
  };
  std::vector<Entry> entries_;
  std::vector<std::int32_t> first_;  // by slot
  std::int32_t spare_ = kNone;
  std::size_t count_ = 0;
};

}  // namespace troupe
