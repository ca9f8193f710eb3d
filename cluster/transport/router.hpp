// Handshakes, sessions, reconnects and time-outs of a transport: all but the moving of bytes.
// ZeroMQ and the simulation run this router over different links, so results of the simulation
// hold for both.
//
//   Router router(self, options, link, listener);
//   router.connect("tcp://10.0.0.7:7117");                     // the user's requests
//   router.send(peer, lane, message);  …  router.flush();
//   router.frame(connection, header, bulk);                    // the link's reports
//   router.broken(connection, why);
//   router.bulk_frame(connection, header, bytes);              // a bulk channel (router_bulk.cpp)
//   router.tick();                                             // at router.due(), or sooner
//
// Sessions and their time-outs are in PeerTable, unanswered dials in DialTable. The handshakes, and
// the drawing of a session's wire frames, are in router_handshake.cpp.
//
// Threads: one. Within a call of the listener, `send` and `flush(peer)` may be called. All other
// requests must wait until the call has returned.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <troupe/cluster/transport/dial_table.hpp>
#include <troupe/cluster/transport/frame_link.hpp>
#include <troupe/cluster/transport/peer_table.hpp>
#include <troupe/cluster/transport/transport.hpp>
#include <troupe/cluster/transport/wire.hpp>

namespace troupe {

struct RouterOptions {
  // session quota: bytes a priority and peer that the network may hold unacknowledged
  std::uint64_t window = 8 << 20;
  detail::wire::Limits limits = {};
  detail::Time heartbeat = std::chrono::seconds(1);  // a wire frame is sent at least so often
  // a connection that is silent for so long is closed
  detail::Time silence = std::chrono::seconds(4);
  detail::Time away = std::chrono::seconds(10);  // a peer without a connection for so long is lost
  // for the first answer to a dial, and for the Ready that confirms an accepted session
  detail::Time answer = std::chrono::seconds(5);
  // after the first failed redial; doubles up to `heartbeat`. The first after a break is at once
  detail::Time redial = std::chrono::milliseconds(50);
  // for a peer to take the remaining wire frames when we end a session
  detail::Time drain = std::chrono::seconds(5);
  // for a peer that is silent, when this node leaves; twice as long for one that has not got all
  // wire frames, and 1 s more for one that lacks more than 256 KiB
  detail::Time farewell = std::chrono::milliseconds(300);
  // longest delay of an acknowledgement, during which more wire frames may arrive
  detail::Time acknowledge = std::chrono::milliseconds(2);
  // A bulk channel of the simulation carries wire frames of at least so much bulk. The bulk
  // channels over sockets carry all.
  std::uint64_t least_bulk = 32 << 10;
  // messages for a peer; one that takes so little that more wait is lost
  std::size_t most_waiting = 1 << 20;
  std::uint64_t session_seed = 0;  // numbers of sessions follow from it
};

namespace detail {

class Router {
 public:
  Router(PeerInfo self, RouterOptions options, FrameLink& link, TransportListener& listener);

  void connect(const std::string& address);
  void send(Peer peer, Lane lane, Message message);
  /// Puts sent messages into wire frames: after several calls of `send`, so that small messages
  /// share one.
  void flush();
  /// Flushes one peer, also within a call of the listener. The listener is not called meanwhile:
  /// the next `flush` notices a broken connection. If the listener is about to get more messages of
  /// the same wire frame, nothing is sent: answers to these messages go with it.
  void flush(Peer peer);
  void disconnect(Peer peer, const Status& why);
  /// Ends all sessions. `is_idle` returns true when the peers have got all messages, or their time
  /// has passed.
  void leave();
  bool is_idle() const { return peers_.is_empty(); }

  /// Valid during the call only.
  void frame(Connection connection, std::span<const std::byte> header,
             std::span<const std::byte> bulk);
  void broken(Connection connection, const Status& why);
  /// Ends the sessions whose peers have proved a key for which this holds: it may not connect any
  /// more.
  void expel(const std::function<bool(const std::string& key)>& is_out);

  // Calls for the bulk channel beside a connection.

  /// Starts to use the bulk channel. From here on it breaks with the connection, and the connection
  /// with it. `from`: bytes of bulk from which on a wire frame goes there. `direct`: the source of
  /// the peer's direct records, or null. Returns the peer; 0: the peer is gone.
  Peer bulk_opened(Connection connection, std::uint64_t from,
                   std::shared_ptr<DirectSource> direct = nullptr);
  Peer bulk_opened(Connection connection) { return bulk_opened(connection, options_.least_bulk); }
  /// Delivers direct records that may be delivered, at most `most` from the ring. Returns their
  /// number.
  std::size_t take_direct(Connection connection, std::size_t most = kAllDirect);
  void bulk_broken(Connection connection);
  // wire frames of larger headers do not go there
  static constexpr std::size_t kBulkHeader = 256 << 10;
  enum class BulkTurn {
    taken,   // there is no more to it
    open,    // its bulk goes to the memory of bulk_room
    later,   // it waits for a wire frame of the connection: ask again when one has come
    broken,  // the connection is closed
  };
  /// A wire frame begins, of which `bulk_bytes` of bulk follow. `is_copy`: they are copied on their
  /// way to bulk_room.
  BulkTurn bulk_frame(Connection connection, std::span<const std::byte> header,
                      std::uint64_t bulk_bytes, bool is_copy = false);
  /// Returns the memory for the next bytes, up to `most`. Empty: the wire frame is complete, or the
  /// connection is closed.
  std::span<std::byte> bulk_room(Connection connection, std::size_t most);
  void bulk_filled(Connection connection, std::size_t bytes);
  void bulk_copied(std::size_t bytes) { copied_before_ += bytes; }
  /// The bulk lies in memory that is lent: true if it can stay there, and is filled then; else it
  /// is copied to bulk_room.
  bool bulk_borrow(Connection connection, const LentBytes& lent);

  /// Counts a drop, by the link too, and stores the reason.
  void dropped(std::string_view why) {
    ++counters_.dropped;
    last_drop_ = why;
  }
  /// Returns the reason of the last drop.
  const std::string& last_drop() const { return last_drop_; }
  void tick();
  /// Returns the latest time for the next `tick`. The cost does not grow with the connections.
  Time due();
  /// Returns the connection by which a peer is reached now; 0: there is none.
  Connection connection_of(Peer peer) const;
  /// Is this connection one of its own?
  bool knows(Connection connection) const {
    return peers_.look(connection) != nullptr || dials_.contains(connection);
  }
  /// The peer of a session that goes on; 0: it is of none.
  Peer in_session(Connection connection) const {
    const Entry* entry = peers_.look(connection);
    return entry && entry->state == State::open ? entry->peer : 0;
  }
  /// By whatever connection, or waiting for one.
  bool is_in_session(Peer peer) const {
    const Entry* entry = peers_.look(peer);
    return entry && entry->state == State::open;
  }

  TransportCounters counters() const;
  std::vector<PeerCounters> peers() const;
  /// The part of them that costs nothing to know: messages and bytes, in and out.
  const TransportCounters& traffic() const { return counters_; }

 private:
  using Entry = PeerEntry;
  using State = PeerEntry::State;

  // router_handshake.cpp
  void on(Connection connection, const wire::Hello& hello);
  void on_answer(Connection connection, const wire::Hello& answer);
  void on(Connection connection, const wire::Refuse& refuse);
  void start_dial(Dial dial);
  void establish(Connection connection, Dial dial, const wire::Hello& answer);
  void resume(Entry& entry, Connection connection, const wire::Hello& hello);
  wire::Hello hello(std::uint64_t session, bool resumes, const wire::Received& received) const;
  void answer(Entry& entry, const wire::Hello& to, bool resumes);
  bool is_answering(const Entry& entry) const;
  std::string why_taken(const Entry& entry) const;  // the name of an entry
  void open_bulk(Entry& entry, const wire::Hello& answer);

  // router.cpp, router_bulk.cpp
  void on_data(Entry& entry, wire::Data& data, std::span<const std::byte> header,
               std::size_t header_bytes, std::span<const std::byte> bulk);
  void on_bye(Entry& entry, const wire::Bye& bye);
  /// After wire frames have arrived: acknowledges them, if they are many, and ends a session that
  /// was to end behind them.
  void arrived(Entry& entry, bool had_unacked, const Status& s);
  bool transmit(Entry& entry, const Ref<OutFrame>& frame);
  bool send_ack(Entry& entry);
  auto delivery(Entry& entry) {
    return [this, &entry, peer = entry.peer](Lane lane, Message m) {
      take_direct(entry);  // direct records that were sent before it
      ++counters_.messages_in;
      counters_.bytes_in += bytes_of(m);
      delivering_ = &entry.session;
      listener_.received(peer, lane, std::move(m));
      delivering_ = nullptr;
      if (lane != Lane::data) return;
      ++entry.data_in;
      if (entry.direct) entry.direct->have_come(entry.data_in);
    };
  }
  static constexpr std::size_t kAllDirect = ~std::size_t{0};
  std::size_t take_direct(Entry& entry, std::size_t most = kAllDirect);
  void deliver_direct(Entry& entry, std::span<const std::byte> record);
  void open_direct(Entry& entry);
  void close_direct(Entry& entry);
  /// Something has come by the bulk channel: only a node that leaves asks for the time.
  void note_heard_beside(Entry& entry) {
    if (leaving_) entry.heard_beside = link_.now();
  }
  void confirm(Entry& entry);
  void attach(Entry& entry, const wire::Received& received);
  void pump(Entry& entry);
  void detach(Entry& entry);
  void redial(Entry& entry);
  void replace(Entry& entry);                     // by another session with the same node
  void give_up(Entry& entry, const Status& why);  // lost, and forgotten
  void forget(Entry& entry);
  void end(Entry& entry, const Status& why);  // lost, and drained
  bool say(Connection connection, const wire::Frame& frame);
  void tick(Entry& entry);
  Time due_of(const Entry& entry) const;
  Time drained_at(const Entry& entry) const;  // when a closing session is forgotten

  PeerInfo self_;
  const RouterOptions options_;
  FrameLink& link_;
  TransportListener& listener_;
  PeerTable peers_;
  DialTable dials_;
  std::vector<Peer> to_flush_, flushing_;
  const Session* delivering_ = nullptr;  // whose message the listener has
  Peer next_peer_ = 1;
  std::uint64_t next_session_;
  bool leaving_ = false;
  Time listener_due_{};  // at once
  TransportCounters counters_;
  std::string last_drop_;
  wire::Decoded decoded_;            // the wire frame that is being read
  std::vector<std::byte> skipped_;   // memory for bytes that no session awaits
  std::uint64_t copied_before_ = 0;  // by sessions that are forgotten, and of what came directly
};

}  // namespace detail

}  // namespace troupe
