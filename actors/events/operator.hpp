// An operator: batches in at numbered inputs, batches out at one output.
//
//   class Select : public Operator { void process(std::size_t input, Batch batch) override; ... };
//   op->receive(0, std::move(batch), out);           // appends what it sends to `out`
//
// The base counts messages, follows the guarantees of the inputs, and cuts output into batches.
//
// Threads: one at a time. Ownership: a run owns its operators.
//
// Invariants
// 1. The output depends on the messages, not on how they are cut into batches, up to logical
//    equivalence; equivalent inputs give equivalent outputs ("well-behaved").
// 2. After the guarantee g was sent, no message with sync <= g is sent.
// 3. Rows that no future change can touch are dropped (`is_settled`), so state is bounded by the
//    lifetimes that are open, and by M.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <troupe/actors/events/batch.hpp>
#include <troupe/actors/events/consistency.hpp>

namespace troupe::events {

/// The work of an operator so far. Times are in the unit of the stream.
struct Counters {
  std::string name;
  std::uint64_t events_in = 0;          ///< inserts
  std::uint64_t retractions_in = 0;     ///< retractions
  std::uint64_t events_out = 0;         ///< inserts
  std::uint64_t retractions_out = 0;    ///< retractions
  std::uint64_t blocked = 0;            ///< messages that were buffered
  double blocking = 0;                  ///< time they were buffered, summed
  std::uint64_t state = 0;              ///< events remembered now
  std::uint64_t peak_state = 0;         ///< events remembered, at most
  std::uint64_t state_bytes = 0;        ///< bytes of `state`, by Operator::event_bytes
  std::uint64_t peak_bytes = 0;         ///< bytes of `peak_state`
  std::uint64_t clipped = 0;            ///< messages later than M, moved to the cut
  std::uint64_t dropped = 0;            ///< messages without effect: later than M, or no insert
  std::uint64_t refused = 0;            ///< messages that make no sense
  std::vector<std::string> complaints;  ///< the first 16 sentences about `dropped` and `refused`
};

/// Issues the keys of one creator of rows. Creators of a query have different numbers.
class KeySource {
 public:
  explicit KeySource(std::uint16_t creator) : next_(static_cast<Key>(creator) << kBits) {}
  Key next() { return next_++; }
  static constexpr int kBits = 48;

 private:
  Key next_;
};

class Operator {
 public:
  Operator(std::string name, Schema schema, std::size_t inputs)
      : schema_(std::move(schema)), guarantees_(inputs, kNever), pending_(schema_) {
    counters_.name = std::move(name);
  }
  virtual ~Operator() = default;
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;

  /// Takes a batch and appends to `out` what follows from it: batches of at most Batch::kMost
  /// messages, the last of them with the new guarantee. Throws Error that names the operator.
  void receive(std::size_t input, Batch batch, std::vector<Batch>& out);

  /// Sets the level of the query; operators that know no level ignore it. Between two `receive`.
  /// Returns the time from which the output is as at this level; kNever: at once.
  virtual Time set_consistency(const Consistency&) { return kNever; }
  /// Returns how long after an event its begin still matters, beyond its lifetime: a window.
  virtual Time reach() const { return 0; }

  const std::string& name() const { return counters_.name; }
  const Schema& schema() const { return schema_; }  // the output's
  const Counters& counters() const { return counters_; }

 protected:
  /// Handles the messages of a batch. The guarantee of the inputs rises after it.
  virtual void process(std::size_t input, Batch batch) = 0;
  /// Called when the least guarantee of the inputs has risen to `g`. Returns the output's.
  virtual Time advance(Time g) { return g; }

  /// The batch that output is appended to.
  Batch& output() {
    if (pending_.size() >= Batch::kMost) flush();
    return pending_;
  }
  /// Sends a whole batch behind what was sent.
  void pass(Batch batch);
  void count_state(std::uint64_t state);
  /// Returns the bytes that an event takes in the state, without those of its text.
  virtual std::size_t event_bytes() const { return row_bytes(schema_); }
  static std::size_t row_bytes(const Schema& schema) {
    constexpr std::size_t kKeyAndTimes = 4 * sizeof(Time);
    return kKeyAndTimes + schema.size() * sizeof(Value);
  }
  void complain(std::string sentence);
  Time guarantee() const { return guarantee_; }  // the least of the inputs
  Counters counters_;

 private:
  void flush();

  const Schema schema_;
  std::vector<Time> guarantees_;  // by input
  Time guarantee_ = kNever;
  Time sent_ = kNever;  // guarantee of the output
  Batch pending_;
  std::vector<Batch>* out_ = nullptr;  // during `receive`
};

}  // namespace troupe::events
