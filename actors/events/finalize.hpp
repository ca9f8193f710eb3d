// Finalize: completes retractions of a source, and enforces M, the time that state reaches back.
//
// The cut is the largest sync less M. An insert that begins before the cut begins at the cut, or is
// dropped if it ends by then. A retraction to a time before the cut shrinks to the cut: it is never
// dropped while its event lives, which else lived for ever. M = kForever: no cut.
//
// Users' keys become keys of the query here. A retraction that overtakes its insert is parked until
// the insert comes, or a guarantee excludes it; then it is dropped, counted and named. Refused,
// counted and named: an empty lifetime, a second insert of a key, a retraction that lengthens.
// A retraction may be longer than an earlier one of its key, which overtook it: it has no effect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include <troupe/actors/events/operator.hpp>

namespace troupe::events {

class Finalize final : public Operator {
 public:
  /// `inserts_only`: the source sends no retractions, so no table of events is kept.
  Finalize(std::string name, const Schema& schema, bool inserts_only, KeySource keys)
      : Operator(std::move(name), schema, 1), inserts_only_(inserts_only), keys_(keys) {}

  /// With a larger M, events after the cut are whole.
  Time set_consistency(const Consistency& level) override {
    const bool is_larger = level.memory > memory_;
    memory_ = level.memory;
    return is_larger ? cut_ : kNever;
  }

 private:
  struct Known {
    Key key;  // behind this operator
    Time begin, end;
    bool is_shrunk;  // by a retraction, so that longer ones were overtaken
    Row payload;
  };
  struct Parked {
    Time end;
    bool was_late;  // before the cut when it came: its insert may have been dropped, or was
  };

  void process(std::size_t input, Batch batch) override;
  Time advance(Time g) override;
  void insert(Batch& batch, std::size_t i);
  void retract(const Batch& batch, std::size_t i);
  void forget(Time g);
  void refuse(std::string sentence);

  Time memory_ = kForever;
  const bool inserts_only_;
  KeySource keys_;
  Time max_sync_ = kNever;
  Time cut_ = kNever;
  std::unordered_map<Key, Known> known_;    // by the user's key
  std::unordered_map<Key, Parked> parked_;  // by the user's key
  std::size_t swept_ = 0;                   // known events after the last sweep
  Time parked_until_ = kForever;            // least end of the parked
};

}  // namespace troupe::events
