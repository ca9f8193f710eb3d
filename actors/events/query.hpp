// A standing query: sources, operators, outputs, and the level of consistency.
//
//   Query q;
//   Stream trades = q.source("trades", {{"symbol", Type::text}, {"price", Type::real}});
//   q.output("busy", trades.select(field("price") > 5.0)
//                        .tumbling(60)
//                        .aggregate({"symbol"}, {count("trades"), mean("price")})
//                        .select(field("trades") > 100));
//   q.set_consistency(Consistency::strong());
//   DirectRun run(q);                              // or RunningQuery: operators as actors
//
// A wrong query throws Error where it is built, and the message names the operator. A stream may be
// used any number of times. `Stream` is a handle; the query must outlive it. A query is a value
// that any number of runs may start from; each run makes operators of its own.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <troupe/actors/events/alter_lifetime.hpp>
#include <troupe/actors/events/formula.hpp>
#include <troupe/actors/events/operator.hpp>
#include <troupe/actors/events/partition.hpp>
#include <troupe/actors/events/stateless.hpp>
#include <troupe/actors/events/totals.hpp>

namespace troupe::events {

class Pattern;
class Query;
struct MatchOptions;

struct SourceOptions {
  /// The source sends no retractions, so it needs no table of its events.
  bool inserts_only = false;
  /// The source is idle while its guarantee is that long behind the greatest one of the others.
  /// Then the guarantee follows at this distance, and later messages that break it are refused,
  /// counted and named. kForever: the query waits for the source.
  Time idle_after = kForever;
};

/// The name of a source in a query's text, and its events.
struct EventType {
  std::string name;
  Schema schema;
  SourceOptions options = {};
};

/// A query as text in CEDR's language (language.hpp), from which another node makes it anew.
struct QueryText {
  std::string text;
  std::vector<EventType> types;
  Time second = 1;  ///< units of time in a second
};

class Stream {
 public:
  const Schema& schema() const;
  /// Names the operator, for reports and errors. Names are unique in a query.
  Stream named(std::string name) const;

  Stream select(const Formula& condition) const;
  Stream project(const Projection& fields) const;
  Stream sliding(Time size) const { return alter_lifetime(Lifetimes::sliding(size)); }
  Stream hopping(Time hop, Time size) const {
    return alter_lifetime(Lifetimes::hopping(hop, size));
  }
  Stream tumbling(Time size) const { return alter_lifetime(Lifetimes::tumbling(size)); }
  /// The rows of [from, to), cut to it.
  Stream slice(Time from, Time to) const { return alter_lifetime(Lifetimes::clip(from, to)); }
  Stream alter_lifetime(Lifetimes lifetimes) const;
  /// Lifetimes of sessions: of a group, events that begin less than `gap` apart.
  Stream session(Time gap, const std::vector<std::string>& group_by = {}) const;
  /// Pairs that agree in `keys`, by name on both sides.
  Stream join(const Stream& right, const std::vector<std::string>& keys = {}) const {
    return join(right, keys, keys);
  }
  Stream join(const Stream& right, const std::vector<std::string>& left_keys,
              const std::vector<std::string>& right_keys) const;
  /// All events of both; the schemas must be equal.
  Stream unite(const Stream& other) const;
  /// The events of this stream, less as many equal ones of the other; the schemas must be equal.
  Stream subtract(const Stream& other) const;
  /// The rows of the `most` greatest values of `by`, of each group and at each time.
  Stream top(std::int64_t most, const std::string& by,
             const std::vector<std::string>& group_by = {}) const;
  Stream aggregate(const std::vector<std::string>& group_by,
                   const std::vector<AggregateSpec>& specs) const;
  Stream count(const std::vector<std::string>& group_by = {}) const {
    return aggregate(group_by, {events::count()});
  }

 private:
  friend class Query;
  friend Stream match(const Pattern& pattern, const MatchOptions& options);
  Division by_group(const std::vector<std::string>& group_by) const;
  void demand_schema_of(const Stream& other, const char* verb) const;
  Stream(Query* query, std::size_t step) : query_(query), step_(step) {}
  Query* query_;
  std::size_t step_;
};

class Query {
 public:
  Query() = default;
  Query(const Query&) = default;
  Query& operator=(const Query&) = default;

  /// Throws Error (already_exists) for a name in use.
  Stream source(const std::string& name, const Schema& schema, SourceOptions options = {});
  void output(const std::string& name, const Stream& stream);
  /// Throws Error (invalid_argument) unless B <= M.
  void set_consistency(const Consistency& level);
  const Consistency& consistency() const { return level_; }

  /// Returns the text that `parse_query` made it from; null if there is none, or if operators were
  /// added since.
  const std::shared_ptr<const QueryText>& text() const { return text_; }
  /// Returns the plan, a line an operator: `select#3 <- trades.finalize: (price > 5)`. A placed
  /// operator has its node behind its name: `match#4/1 on b <- ...`.
  std::string explain() const;

  // For runs.
  struct Step {
    std::string name;
    std::string what;  // for `explain`
    std::vector<std::size_t> inputs;
    std::function<std::unique_ptr<Operator>(const std::string& name)> make;
    Schema schema;                            // its output's
    Division division;                        // how its rows depend on each other
    int partition = -1;                       // which of several copies; -1: it is one
    std::shared_ptr<const Split> split = {};  // its consumers of a partition get a share
    std::string node = {};                    // runs it; empty: the caller's
  };
  struct Port {
    std::string name;
    std::size_t step;
    Time idle_after = kForever;  // a source's
  };
  struct Consumer {
    std::size_t step, input;
    int partition;  // share of the output; -1: all
    bool is_last;   // the last one that takes these rows
  };
  const std::vector<Step>& steps() const { return steps_; }      // inputs come before users
  const std::vector<Port>& sources() const { return sources_; }  // the step takes what users feed
  const std::vector<Port>& outputs() const { return outputs_; }  // the step makes what users get
  /// By step, the inputs that take its output.
  std::vector<std::vector<Consumer>> consumers() const;
  /// Returns its position. Throws Error (not_found) that lists the sources.
  std::size_t source_index(const std::string& name) const;

 private:
  friend class Stream;
  friend Stream match(const Pattern& pattern, const MatchOptions& options);
  using Maker = std::function<std::unique_ptr<Operator>(const std::string& name)>;
  /// Without a division each row stands by itself and keeps the columns of its input.
  Stream add(const std::string& kind, std::string what, std::vector<std::size_t> inputs, Maker make,
             std::optional<Division> division = {});
  Stream add_named(std::string name, std::string what, std::vector<std::size_t> inputs, Maker make,
                   std::optional<Division> division = {});
  friend Query partitioned(const Query& query, std::size_t partitions);
  friend Query placed(const Query& query, const std::vector<std::string>& nodes,
                      std::size_t partitions);
  friend Query parse_query(const std::string& text, const std::vector<EventType>& types,
                           Time second);
  Query divided(const std::vector<std::vector<std::size_t>>& columns, std::size_t partitions) const;
  void demand_new(const std::string& name) const;
  KeySource keys();
  std::uint16_t creators(std::uint16_t count);

  std::vector<Step> steps_;
  std::vector<Port> sources_, outputs_;
  Consistency level_;
  std::uint16_t next_creator_ = 1;
  std::shared_ptr<const QueryText> text_;
};

}  // namespace troupe::events
