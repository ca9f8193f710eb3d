// Short ways to write events, queries and tables of the case rows.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <troupe/actors/events/direct_run.hpp>
#include <troupe/actors/events/table.hpp>

namespace troupe::test {

inline events::Value in(std::int64_t n) { return events::Value(n); }
inline events::Value tx(const char* text) { return events::Value(std::string(text)); }

/// Runs a query of sources `left` and `right` (or `left` alone) and keeps its output.
struct Ran {
  explicit Ran(const events::Query& query)
      : run(query,
            [this](std::size_t, const events::Batch& batch) {
              output.add(batch);
              text += events::text_of(batch);
            }),
        plan(query) {}

  events::Batch batch(std::size_t source) const {
    return events::Batch(plan.steps()[plan.sources()[source].step].schema);
  }
  void insert(std::size_t source, events::Key key, events::Time begin, events::Time end,
              events::Row row) {
    events::Batch b = batch(source);
    b.insert(key, begin, end, row);
    run.feed(source, std::move(b));
  }
  void retract(std::size_t source, events::Key key, events::Time end) {
    events::Batch b = batch(source);
    b.retract(key, end);
    run.feed(source, std::move(b));
  }
  void guarantee(std::size_t source, events::Time g) {
    events::Batch b = batch(source);
    b.guarantee = g;
    run.feed(source, std::move(b));
  }
  /// Returns all that was sent since the last call.
  std::string sent() { return std::exchange(text, ""); }
  events::Table table() const { return events::canonical(output); }
  std::string coalesced() const { return events::text_of(events::coalesce(table())); }
  events::Counters of(const std::string& name) const {
    for (const events::Counters& c : run.counters())
      if (c.name == name) return c;
    BOOST_FAIL("there is no operator " << name);
    return {};
  }

  events::History output;
  std::string text;
  events::DirectRun run;
  events::Query plan;
};

}  // namespace troupe::test
