// AlterLifetime: gives events new lifetimes; windows are lifetimes.
//
//   sliding(w)      [begin, min(end, begin + w))
//   hopping(h, w)   [begin rounded down to a multiple of h, + w); tumbling(w) = hopping(w, w)
//   extend()        [begin, forever): the inserts alone
//   deletes()       [end, forever): what has ended
//   clip(a, b)      [max(begin, a), min(end, b)): the slice of a table
//
// A window sees how events are packaged: it is the one operator for which a row cut in two is not
// the row. All but `deletes` depend on the end only where a retraction shrinks it, so they need no
// state.
#pragma once

#include <cstddef>
#include <unordered_map>

#include <troupe/actors/events/operator.hpp>

namespace troupe::events {

struct Lifetimes {
  enum class Kind : std::uint8_t { sliding, hopping, extend, deletes, clip };
  Kind kind;
  Time size = 0, hop = 1;
  Time from = kNever, to = kForever;

  /// Each throws Error (invalid_argument) for sizes below 1 and an empty slice.
  static Lifetimes sliding(Time size);
  static Lifetimes hopping(Time hop, Time size);
  static Lifetimes tumbling(Time size) { return hopping(size, size); }
  static Lifetimes extend() { return {Kind::extend}; }
  static Lifetimes deletes() { return {Kind::deletes}; }
  static Lifetimes clip(Time from, Time to);

  /// Returns the new lifetime of an event [begin, end) with begin < end; that of a slice may be
  /// empty.
  struct Span {
    Time begin, end;
  };
  Span of(Time begin, Time end) const;
  std::string text() const;
};

class AlterLifetime final : public Operator {
 public:
  AlterLifetime(std::string name, const Schema& schema, Lifetimes lifetimes, KeySource keys)
      : Operator(std::move(name), schema, 1), lifetimes_(lifetimes), keys_(keys) {}
  Time reach() const override;

 private:
  struct Moved {
    Key key;
    Time end;
  };
  void process(std::size_t input, Batch batch) override;
  Time advance(Time g) override;
  void process_deletes(const Batch& batch, std::size_t i);
  bool shrink(Batch& batch, std::size_t i) const;

  const Lifetimes lifetimes_;
  KeySource keys_;
  std::unordered_map<Key, Moved> moved_;  // for deletes: output by input key
  std::size_t swept_ = 0;
};

}  // namespace troupe::events
