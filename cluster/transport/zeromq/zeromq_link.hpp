// Moves wire frames over ZeroMQ's sockets, and over the bulk channels beside them.
//
//   ZeroMqLink link(name, options);
//   const std::string address = link.listen("tcp://127.0.0.1:0");
//   link.open(router, address, after_frame);
//   while (...) { link.receive();  link.watch(); }     // by TransportLoop
//
// Sockets: one ROUTER that listens, one DEALER for each connection that was dialled. ZeroMQ's own
// reconnection is switched off, because it does not report the messages that it lost: another
// DEALER replaces a connection that breaks.
//
// Threads: the transport's thread, after `open`. `after_frame` is called after every wire frame of
// a socket, and sends what answers it.
//
// Invariants:
// 1. A number of a connection is never used again.
// 2. With keys, nothing of a connection reaches the router before both ends have proved theirs.
// 3. Failures are reported to the router from `watch` and `report_failures`, never from a call by
//    the router (FrameLink).
// 4. `is_quiet` is true only if every socket had nothing when it was last asked, and nothing was
//    done with one since. Only then does a descriptor report news.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zmq.hpp>

#include <troupe/cluster/transport/channel/bulk_channels.hpp>
#include <troupe/cluster/transport/channel/direct_senders.hpp>
#include <troupe/cluster/transport/zeromq/accept_table.hpp>
#include <troupe/cluster/transport/zeromq/connection_authorizer.hpp>
#include <troupe/cluster/transport/zeromq/outbound_connection.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>

namespace troupe {

class ZeroMqLink final : public FrameLink {
 public:
  ZeroMqLink(const std::string& name, ZeroMqOptions options);

  const ZeroMqOptions& options() const { return options_; }
  /// Opens the authorizer, and listens at an address, if it is not empty. Returns the address with
  /// the port that was chosen. Throws unavailable if it is taken.
  std::string listen(const std::string& address);
  /// Connects the link and its router, which outlives the calls; opens the bulk channels.
  /// `address`: of `listen`.
  void open(Router& router, const std::string& address, std::function<void()> after_frame);
  void stop();

  // ---- for the transport's loop

  /// Takes wire frames from all sockets; false if there were none.
  bool receive();
  /// True if no socket has anything, and their descriptors report what comes (invariant 4).
  bool is_quiet();
  bool was_asked() const { return was_asked_; }
  /// A socket may have something: `is_quiet` asks them all.
  void expect_news() { was_asked_ = false; }
  /// Reports connections that have failed; false if there were none.
  bool report_failures();
  /// Reads what ZeroMQ reports of connections, and answers the questions of the authorizer.
  void watch();
  /// When `watch` is due at the latest.
  Time due() const;
  std::size_t connections() const { return outbound_.size() + accepted_.size(); }
  /// True if the sockets are others than when `note_watched` was called.
  bool has_new_sockets() const { return has_new_sockets_; }
  void note_watched() { has_new_sockets_ = false; }
  /// The descriptors that report that a socket may have something.
  std::vector<int> descriptors();

  /// Null if there are none.
  BulkChannels* bulk() { return bulk_ ? &*bulk_ : nullptr; }
  const BulkChannels* bulk() const { return bulk_ ? &*bulk_ : nullptr; }
  DirectSenders& senders() { return senders_; }
  const DirectSenders& senders() const { return senders_; }
  /// Adds the link's own counters.
  void count(TransportCounters& all) const;

  // ---- FrameLink
  Time now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
  Connection dial(const std::string& address) override;
  bool send(Connection connection, const Ref<OutFrame>& frame) override;
  void close(Connection connection) override;
  std::string key_of(Connection connection) const override;
  std::string reachable(Connection connection, const std::string& told) const override;
  Status admits(Connection connection, const std::string& name) const override;
  wire::Bulk ask_for_bulk(Connection connection) override;
  wire::Bulk answer_bulk(Connection connection, const wire::Bulk& ask) override;
  void open_bulk(Connection connection, const wire::Bulk& answer) override;
  bool send_bulk(Connection connection, const Ref<OutFrame>& frame) override {
    return bulk_->send(connection, frame);
  }
  void session_opened(Peer peer) override { senders_.opened(peer); }
  void session_over(Peer peer) override { senders_.over(peer); }
  void met(Connection connection, const std::string& address) override;

 private:
  /// With keys, both ends have proved theirs before any wire frame, so every Hello is between two
  /// that have, and encrypted.
  bool seals() const { return options_.seal || authorizer_.has_keys(); }
  bool receive_from_listening();
  bool receive_from(Connection connection);
  bool take_bulk(zmq::socket_t& socket, bool is_there);
  Connection connection_of(std::string_view routing_id, std::string_view key,
                           zmq::message_t& message);
  void ended(Connection connection);
  void count_broken_off();
  void log_losses();

  ZeroMqOptions options_;
  zmq::context_t context_;
  ConnectionAuthorizer authorizer_;
  Lookups lookups_;
  DirectSenders senders_;
  Router* router_ = nullptr;  // null before `open`
  std::function<void()> after_frame_;
  bool is_port_chosen_ = false;  // true: the address to listen at names a port
  std::optional<BulkChannels> bulk_;
  zmq::socket_t listening_;
  std::map<Connection, OutboundConnection> outbound_;
  AcceptTable accepted_;
  Connection next_ = 1;
  std::vector<std::pair<Connection, Status>> failures_;  // not reported yet
  std::vector<Connection> arrivals_;                     // memory of `receive`
  zmq::message_t second_;                                // part of the message that is being read
  bool was_asked_ = false;                               // invariant 4
  bool has_new_sockets_ = true;
  RateLimitedLog drop_log_, break_log_;
  std::uint64_t broken_off_ = 0;
  std::deque<std::pair<Peer, Time>> ended_;  // peers whose connection has, and when that is counted
};

}  // namespace troupe
