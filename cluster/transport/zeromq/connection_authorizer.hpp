// The authorizer decides the nodes that may connect over ZeroMQ. Closed by default: without keys
// there is loopback only (`check_reach`); with keys every connection is CurveZMQ (RFC 26), between
// two parties that each have the other's public key in their list.
//
//   ConnectionAuthorizer authorizer("worker1", keys, log);
//   authorizer.open(context);            // before anything listens
//   authorizer.guard(context, listening);  // demands a key of each connection
//   for (const std::string& key : authorizer.keys_of(address)) authorizer.present(dialling, key);
//   authorizer.watch(now);               // ZeroMQ's questions: may this key connect?
//   authorizer.admits(key, name);        // may the node with this key have this name?
//
// With CurveZMQ a dialling node must know the key of the other end before it sends anything. The
// node tries the keys of its list in turn, until the other end proves to hold one. First comes the
// key that was proved at this address before, by either end, then its own if nodes may share it
// (else it comes last). A
// wrong guess ends a handshake of one message, which the other end counts. It discloses nothing to
// a stranger: neither our key nor the guessed one. So addresses carry no keys, and addresses that
// an attacker puts in a list cost time only.
//
// A connection that ends without a byte of the other end is not counted: a cut ends healthy ones
// so. A node may not use a name that the list gives to other keys than its own.
//
// Threads: the transport's. Invariants: 1. without keys only loopback is reached, in either
// direction; 2. with keys, only a key of the list connects.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <zmq.hpp>

#include <troupe/cluster/transport/frame_link.hpp>
#include <troupe/cluster/transport/net/keys.hpp>
#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/cluster/transport/zeromq/zeromq_socket.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe {

/// Takes one line, without its end, for a person to read.
using Log = std::function<void(const std::string& line)>;

/// Logs a growing count, a line a minute at most, whatever comes here.
class RateLimitedLog {
 public:
  /// `line`: makes the line for the number of new events since the last line.
  template <class Line>
  void tell(Time now, std::uint64_t all, const Log& log, Line line) {
    if (all == told_ || now < next_) return;
    if (log) log(line(all - told_));
    told_ = all;
    next_ = now + std::chrono::minutes(1);
  }

 private:
  std::uint64_t told_ = 0;
  Time next_{};
};

class ConnectionAuthorizer {
 public:
  /// `ended` is called when a connection that had sent something has ended, at either end; perhaps
  /// before all its bytes were read.
  ConnectionAuthorizer(std::string name, std::optional<Keys> keys, Log log,
                       std::function<void(Connection)> ended)
      : name_(std::move(name)), keys_(std::move(keys)), log_(std::move(log)),
        ended_(std::move(ended)) {}

  bool has_keys() const { return keys_.has_value(); }
  /// Throws failed_precondition if the address may not be reached, or reach this node: without
  /// keys, only loopback may.
  void check_reach(const std::string& address) const { check_reach(address, address); }
  /// Checks an address that `told` stands for.
  void check_reach(const std::string& address, const std::string& told) const;

  void open(zmq::context_t& context);
  /// Before it is bound.
  void guard(zmq::context_t& context, zmq::socket_t& listening);
  void present(zmq::socket_t& dialling, const std::string& their_key) const;
  /// Returns the keys that a listener at this address may hold, likely ones first; one empty key if
  /// there are no keys.
  std::vector<std::string> keys_of(const std::string& address) const;
  /// Bounded: peers name addresses.
  void remember(const std::string& address, const std::string& key);

  /// Answers ZeroMQ's questions, counts refused connections, and rereads the file now and then.
  /// Returns true if keys that could connect no longer may.
  bool watch(Time now);
  std::vector<void*> handles();

  /// The connection that was accepted with this descriptor has sent something.
  void heard(int socket, Connection connection);

  bool knows(const std::string& key) const { return !keys_ || keys_->authorized.contains(key); }
  Status admits(const std::string& key, const std::string& name) const;
  /// Why the other end of a dialled connection has turned us away.
  Status why_not(const std::string& address, const SocketEvent& event) const;

  std::uint64_t turned_away() const { return turned_away_; }

 private:
  void answer();
  bool decide(const std::string& key, const std::string& address);
  void count();
  void ended(int socket);
  bool reload();
  void log(const std::string& line) const {
    if (log_) log_(line);
  }

  std::string name_;
  std::optional<Keys> keys_;
  Log log_;
  std::function<void(Connection)> ended_;
  zmq::socket_t questions_;  // REP: ZAP (RFC 27)
  std::optional<SocketMonitor> monitor_;
  std::map<std::string, std::string> found_;  // the key that was proved at an address
  std::set<std::string> strangers_;           // keys whose refusal was logged; bounded
  std::string stamp_;                         // stamp of the list's file when it was read
  Time look_at_{};
  // descriptors of accepted connections that have said nothing yet, with a copy of each that tells
  // after its end whether any byte came
  std::map<int, OwnedDescriptor> silent_;
  std::map<int, Connection> heard_;  // and of the others
  std::uint64_t turned_away_ = 0;
  RateLimitedLog told_;
  bool is_told_ = false;      // a handshake has ended, and is counted, whose connection ends next
  std::uint64_t failed_ = 0;  // other failed handshakes, whose connections have still to end
};

}  // namespace troupe
