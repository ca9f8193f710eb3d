// The connections that a router has dialled and that have no session yet.
//
//   dials.add(connection, {.address = address, .session = number, .began = now});
//   // it was answered, refused or broke
//   if (std::optional<Dial> dial = dials.take(connection)) ...
//
// Threads: the transport's. Invariant: a dial is under way by its connection, or waits for `again`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <troupe/cluster/transport/frame_link.hpp>

namespace troupe::detail {

struct Dial {
  std::string address;
  std::uint64_t session = 0;
  Time began{};
  Time again{};  // when to dial once more, of a dial that waits
};

class DialTable {
 public:
  /// `answer`: the time for the first answer to a dial.
  explicit DialTable(Time answer) : answer_(answer) {}

  bool contains(Connection connection) const { return dials_.contains(connection); }
  bool has(const std::string& address) const;
  void add(Connection connection, Dial dial);
  /// The session of a dial under way; nothing if there is none.
  std::optional<std::uint64_t> session(Connection connection) const;
  std::optional<Dial> take(Connection connection);
  /// Tries a dial again at that time.
  void retry(Dial dial, Time again);
  /// Forgets all; returns the connections.
  std::vector<Connection> clear();

  bool is_over(const Dial& dial, Time now) const { return now - dial.began >= answer_; }
  /// Dials that have had no answer in time.
  std::vector<Connection> unanswered(Time now);
  /// Dials to try again, or whose time is over; the others stay.
  std::vector<Dial> take_retries(Time now);
  /// Returns the time at which a dial may be due.
  Time due() const;

 private:
  const Time answer_;
  std::map<Connection, Dial> dials_;
  std::vector<Dial> retries_;
  Time due_ = Time::max();  // no later than the first of dials_ has to be answered
};

}  // namespace troupe::detail
