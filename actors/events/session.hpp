// Session: the lifetime of each event becomes that of its session. Events of a group are in one
// session if each begins less than `gap` after the one before it.
//
//   stream.session(30, {"user"}).count({"user"})     // [first begin, last begin + gap)
//
// A later event lengthens the session, so all rows of the session are sent anew, once a batch. The
// guarantee of the output stays before sessions that may still grow backwards into it: a strong
// query sends a session when it is complete. Only begins matter.
//
// State: the sessions that an event after the guarantee can join.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <troupe/actors/events/operator.hpp>
#include <troupe/actors/events/row_hash.hpp>

namespace troupe::events {

class Session final : public Operator {
 public:
  /// Throws Error for an unknown field, and unless `gap` is 1 or more.
  Session(std::string name, const Schema& schema, Time gap,
          const std::vector<std::string>& group_by, KeySource keys);
  Time reach() const override { return gap_; }

 private:
  struct Entry {
    Time begin;
    Key key;  // as in the input
    Row row;
    bool is_sent = false;
    Key sent_key = 0;
    Time sent_begin = 0, sent_end = 0;
  };
  struct Span {
    Time end;
    std::vector<Entry> entries;  // ascending by begin
    bool is_dirty = true;
  };
  using Spans = std::map<Time, Span>;  // by begin; they do not overlap
  using Groups = std::unordered_map<Row, Spans, RowHash, RowEqual>;

  void process(std::size_t input, Batch batch) override;
  Time advance(Time g) override;
  void insert(Groups::value_type& group, Entry entry);
  void remove(Groups::value_type& group, Time begin, Key key);
  void add_span(Groups::value_type& group, std::vector<Entry> entries);
  std::vector<Entry> take_span(Groups::value_type& group, Spans::iterator it);
  void send_changes(Spans& spans);
  void send(Time begin, Time end, Entry& entry);
  void unsend(const Entry& entry);

  const Time gap_;
  const std::vector<std::size_t> group_columns_;
  KeySource keys_;
  Groups groups_;
  std::set<Groups::value_type*> dirty_;
  std::multiset<Time> begins_;                                  // all sessions'
  std::set<std::tuple<Time, Time, Groups::value_type*>> ends_;  // end, begin, group
  std::size_t events_ = 0;
  Row key_;  // group of the message in hand
};

}  // namespace troupe::events
