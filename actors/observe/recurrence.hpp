// Recurrence: finds loops whose deciding values repeat, and which therefore never end.
//
// *Argument.* The predicate depends on some loop variables alone, and deterministically (no draws,
// states, queues, calls, users' actors). If an iteration begins with the values of an earlier one,
// it and all later ones repeat what followed then. The loop went on between the two, so it goes on
// for ever. Examples: a search that converged before it met its tolerance, a loss that became NaN,
// a counter that wraps around.
//
// After a snapshot, the values that begin iterations are kept for a while as digests of 128 bits.
// They are compared with the digest of one iteration, which is replaced by a later one each time
// the distance has doubled (Brent, 1980). A period of n iterations is found within 3n of its
// beginning, in constant memory. Different states have equal digests with a probability of some
// 2^-128.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/tensor/tensor.hpp>

namespace troupe {

class Recurrence {
 public:
  /// Begins a loop with that many deciding variables and at most `window` open iterations.
  void begin(std::size_t variables, std::size_t window);
  /// Ends the loop.
  void forget() { variables_ = 0, period_ = seen_ = 0; }
  bool is_new() const { return variables_ == 0; }
  /// Adds the value of a variable with which iteration `n` begins. Each is added at most once, in
  /// any order. `bytes` is the remaining budget of bytes to read. A value that is not a number on
  /// the host, or exceeds the budget, is skipped, and its iteration with it.
  void see(std::int64_t n, std::size_t variable, const Value& value, std::size_t& bytes);
  /// Returns the iterations after which all values repeat; 0: no period was seen.
  std::int64_t period() const { return period_; }
  /// Returns the iterations of which all variables were seen.
  std::int64_t seen() const { return seen_; }

 private:
  struct Digest {
    std::uint64_t a = 0, b = 0;
    friend bool operator==(const Digest&, const Digest&) = default;
  };
  struct State {
    std::int64_t iteration = -1;
    std::size_t variables = 0;  // variables added so far
    Digest sum;                 // sum of their digests, because they come in any order
  };
  static Digest digest(std::size_t variable, const Tensor& value);
  void compare(const State& state);

  std::size_t variables_ = 0;
  std::vector<State> open_;  // iteration n at n mod size
  State mark_;               // the state that later ones are compared with
  std::int64_t reach_ = 1;   // iterations after which `mark_` is replaced
  std::int64_t period_ = 0, seen_ = 0;
};

}  // namespace troupe
