// Does what decides whether a loop goes on come back?
//
// If the predicate depends on nothing but some variables of the loop, and what is computed of them
// always comes out the same (no draws, states, queues, calls, users' actors), then an iteration
// that begins with the same values of these as an earlier one goes as that did, and so do all that
// follow: since the loop has gone on from the one to the other, it goes on for ever. So ends no
// search that converged before it was as near as it should be, no loss that became NaN, no counter
// that goes round.
//
// While somebody looks, the values that begin iterations are kept as digests of 128 bits, and
// compared with those of one iteration, a later one each time the distance has doubled (Brent,
// 1980): a round of n iterations is found within 3n of its beginning, in constant memory. Two
// different states have the same digest with a probability of some 2^-128.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/tensor/tensor.hpp>

namespace troupe {

class Recurrence {
 public:
  /// A loop begins that has so many of these variables, and at most so many iterations open at
  /// once.
  void begin(std::size_t variables, std::size_t window);
  /// There is none any more.
  void forget() { variables_ = 0, period_ = seen_ = 0; }
  bool is_new() const { return variables_ == 0; }
  /// With this value of that variable iteration `n` begins; each is seen at most once, in any
  /// order. `bytes` is what may be read yet. What is no number on the host, or larger than that, is
  /// left out, and its iteration with it.
  void see(std::int64_t n, std::size_t variable, const Value& value, std::size_t& bytes);
  /// After so many iterations all is as it was; 0: it was not seen to be.
  std::int64_t period() const { return period_; }
  /// Iterations seen whole.
  std::int64_t seen() const { return seen_; }

 private:
  struct Digest {
    std::uint64_t a = 0, b = 0;
    friend bool operator==(const Digest&, const Digest&) = default;
  };
  struct State {
    std::int64_t iteration = -1;
    std::size_t variables = 0;  // that have come
    Digest sum;                 // of theirs: they come in any order
  };
  static Digest digest(std::size_t variable, const Tensor& value);
  void compare(const State& state);

  std::size_t variables_ = 0;
  std::vector<State> open_;  // iteration n at n mod size
  State mark_;               // what others are compared with
  std::int64_t reach_ = 1;   // iterations after which another is
  std::int64_t period_ = 0, seen_ = 0;
};

}  // namespace troupe
