// Planted faults: mistakes in lowering and in the executor, with which a test shows that it detects
// them (test/faults/planted_faults.cpp). The library has none: there `is_planted` is false at
// compile time. The test compiles the files that include this with TROUPE_PLANTED_FAULTS and
// selects the fault.
#pragma once

namespace troupe {

enum class Planted {
  none,
  dropped_dead_token,    // one of several users of a dead value gets no dead token
  wrong_iteration,       // a NextIteration's token goes to the newest iteration
  early_exit,            // a loop yields its first iteration's value
  merge_of_the_dead,     // a Merge takes the first token, dead or live
  enter_not_replayed,    // a constant Enter is there in iteration 0 only
  window_off_by_one,     // one iteration more is opened than there are iteration states
  child_forgotten,       // an iteration is done though a loop in it goes on
  order_not_threaded,    // effects of different iterations are not ordered
  exit_not_withheld,     // dead tokens leave with every iteration
  nested_switch_turned,  // a Switch in a branch or body sends to the other side
  pivot_forgotten,       // a node without inputs of its branch or iteration does not wait for it
  read_hides_write,      // only the first of several reads after a write waits for it
  call_not_waited_for,   // ops ordered after a call start with it
  // opening a loop's second iteration throws: no mistake, but the effect of a lack of memory
  exception_in_turn,
  path_turned,  // a token to another partition names its iterations inside out
};

#ifdef TROUPE_PLANTED_FAULTS
extern Planted planted_fault;  // set before the first engine is made
inline bool is_planted(Planted fault) { return planted_fault == fault; }
#else
constexpr bool is_planted(Planted) { return false; }
#endif

}  // namespace troupe
