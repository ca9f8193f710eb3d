// The connections that others have dialled, by number and by the routing id that ZeroMQ puts before
// each of their messages.
//
//   accepted.add(connection, routing_id, key, host);
//   const AcceptTable::Accepted* known = accepted.find(routing_id);
//
// Threads: the transport's.
//
// Invariant: a connection has one routing id, and a routing id at most one connection. The other
// end chooses its routing id, but not its key: an id with another key is another connection.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>

#include <troupe/cluster/transport/frame_link.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

class AcceptTable {
 public:
  struct Accepted {
    Connection connection = 0;
    std::string key;   // proved by the other end; empty without keys
    std::string host;  // address from which it connected
  };

  std::size_t size() const { return routing_ids_.size(); }
  /// Null if there is none.
  const Accepted* find(const std::string& routing_id) const {
    const auto found = accepted_.find(routing_id);
    return found == accepted_.end() ? nullptr : &found->second;
  }
  const Accepted* find(Connection connection) const {
    const std::string* id = routing_id(connection);
    return id ? &accepted_.at(*id) : nullptr;
  }
  const std::string* routing_id(Connection connection) const {
    const auto found = routing_ids_.find(connection);
    return found == routing_ids_.end() ? nullptr : &found->second;
  }
  void add(Connection connection, std::string routing_id, std::string key, std::string host) {
    routing_ids_.emplace(connection, routing_id);
    accepted_.emplace(std::move(routing_id), Accepted{connection, std::move(key), std::move(host)});
  }
  void erase(Connection connection) {
    const auto found = routing_ids_.find(connection);
    if (found == routing_ids_.end()) return;
    accepted_.erase(found->second);
    routing_ids_.erase(found);
  }

 private:
  std::unordered_map<Connection, std::string> routing_ids_;
  std::unordered_map<std::string, Accepted> accepted_;  // by routing id
};

}  // namespace troupe
