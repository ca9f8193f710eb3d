// OccurrenceIngress: takes versions of facts in the provider's order, and makes messages of them.
//
//   OccurrenceIngress ingress(schema);                      // of the payload
//   ingress.add(1, 0, kForever, 1, row, batch);             // fact 1 holds [0, inf), asserted at 1
//   ingress.add(1, 0, 5, 3, row, batch);                    // at 3: it ended at 5
//
// A version has a **valid** time [begin, end), and an **occurrence** time, when its provider has
// asserted it. The table of all versions with occurrence <= o is the provider's table as at o. A
// version that only shortens is a retraction. One that moves, lengthens or changes the payload
// removes the event and inserts another one under a new key. An empty valid time removes the fact.
// An older version that comes later has no effect, and is counted, as is one that would change what
// a guarantee has settled. A fact that a guarantee has settled is forgotten, with its occurrence: a
// later version of it is that of a new fact.
//
// With `keeps_occurrence` the payload has the field `occurrence` behind the others, for slices
// `@[a, b)` of the language; then each version is an event of its own.
//
// State: the facts that a change after the guarantee can touch. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include <troupe/actors/events/batch.hpp>

namespace troupe::events {

class OccurrenceIngress {
 public:
  explicit OccurrenceIngress(const Schema& schema, bool keeps_occurrence = false);

  /// The schema of the messages.
  const Schema& schema() const { return schema_; }
  /// Appends the messages of a version to a batch of `schema()`.
  void add(std::uint64_t fact, Time begin, Time end, Time occurrence, const Row& payload,
           Batch& batch);
  /// Sets the guarantee of the batch, and drops the facts that it settles.
  void guarantee(Time g, Batch& batch);
  std::uint64_t overtaken() const { return overtaken_; }  ///< versions without effect
  std::size_t facts() const { return facts_.size(); }

 private:
  struct Fact {
    Key key;
    Time begin, end, occurrence;
    Row payload;
  };
  Schema schema_;
  const bool keeps_occurrence_;
  Key next_ = 1;
  std::uint64_t overtaken_ = 0;
  Time guarantee_ = kNever;
  std::unordered_map<std::uint64_t, Fact> facts_;
};

}  // namespace troupe::events
