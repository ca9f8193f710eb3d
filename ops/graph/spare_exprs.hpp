// The memory of results that were used up, for the next op of the thread: an op that computes at
// once returns a vector, of which most callers take the one expression.
//
//   Exprs out = SpareExprs::take();      // empty; its memory is that of an earlier one
//   SpareExprs::give(std::move(out));
//
// Threads: each has its own. Invariant: what is kept holds no value, and memory for kMost
// expressions at most.
#pragma once

#include <cstddef>
#include <utility>

#include <troupe/ops/graph/expr.hpp>

namespace troupe::detail {

class SpareExprs {
 public:
  static Exprs take() { return is_over() ? Exprs() : std::move(kept().exprs); }
  static void give(Exprs&& used) {
    constexpr std::size_t kMost = 16;
    used.clear();
    if (!is_over() && used.capacity() <= kMost) kept().exprs = std::move(used);
  }

 private:
  struct Kept {
    Exprs exprs;
    ~Kept() { is_over() = true; }
  };
  static Kept& kept() {
    static thread_local Kept mine;
    return mine;
  }
  // The thread has ended: what is kept for it is gone.
  static bool& is_over() {
    static thread_local bool over = false;
    return over;
  }
};

}  // namespace troupe::detail
