// A session with one peer, as the router keeps it: its two priorities, its connection and its
// time-outs.
//
// Threads: the transport's. Ownership: PeerTable; to be changed, an entry is got from there.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <troupe/cluster/transport/dial_table.hpp>
#include <troupe/cluster/transport/frame_link.hpp>
#include <troupe/cluster/transport/session.hpp>
#include <troupe/cluster/transport/transport.hpp>
#include <troupe/cluster/transport/wire.hpp>

namespace troupe::detail {

struct PeerEntry {
  // Hello came ─► pending ── Ready ─► open ── end() ─► closing ── Gone, time over ─► forgotten
  // answer came ────────────────────► open ── give_up(): Bye, Refuse, away ────────► forgotten
  //
  // pending: the peer has dialled; the listener does not know of it. open: connected() was called.
  // closing: lost() was called, unless this node leaves; the rest is sent.
  // `attached`, beside it: the handshake of the current connection is done.
  enum class State { pending, open, closing };
  /// A direct record of an earlier connection.
  struct Direct {
    std::uint64_t after;
    std::vector<std::byte> bytes;
  };

  PeerEntry(Peer number, PeerInfo peer_info, std::uint64_t session_number, std::uint64_t window)
      : peer(number), info(std::move(peer_info)), id(session_number), session(window) {}

  /// The silence of a connection is counted from it, if no wire frame has come yet.
  Time silent_since() const { return std::max(last_heard, redialled); }

  Peer peer;
  PeerInfo info;
  std::string key;  // the peer proved it when it connected, and has to prove it again
  std::uint64_t id;
  Session session;
  State state = State::pending;
  std::string dialled;        // the address; empty if the peer dials
  Connection connection = 0;  // none: it broke
  bool attached = false;      // its handshake is done
  bool farewell = false;      // Bye has been sent on this connection
  bool is_mute = false;       // nothing is sent any more
  bool is_touched = false;    // PeerTable: it may have changed
  Time timer = Time::max();   // PeerTable: no later than its next time-out
  bool is_to_flush = false;   // it has messages that are not in wire frames yet
  // bytes of messages; bytes_in counts partial messages too
  std::uint64_t bytes_out = 0, bytes_in = 0;
  std::uint64_t data_in = 0;  // messages of data priority that the listener has had
  // its connection took no more while the listener could not be called
  bool has_failed = false;

  // dropped in favour of this session while it is pending; tried again if it is never confirmed
  std::vector<Dial> dropped_dials;

  // a bulk channel was agreed on: the peer may use it before it is known here that it is open
  bool may_have_bulk = false;
  bool has_bulk = false;        // it is open
  std::uint64_t bulk_from = 0;  // bytes of bulk from which on a wire frame goes there
  // the wire frame that is coming by it: its priority, its bytes that are to come, and those of
  // them that have been here before
  Lane bulk_lane{};
  std::uint64_t bulk_left = 0, bulk_skipped = 0;
  bool bulk_is_copy = false;

  std::shared_ptr<DirectSource> direct;  // null: there is none
  // direct records of earlier connections, whose preceding messages are still to come again
  std::deque<Direct> direct_before;

  // sent by the peer; some wire frames before it are still on their way
  std::optional<wire::Bye> bye;
  Status why;  // reason in the Bye to the peer
  // while this node leaves: when the bulk channel has brought something last
  Time heard_beside{};
  Time last_heard{};  // last wire frame of the ZeroMQ connection; not of the bulk channel
  Time last_sent{};   // last wire frame sent on it
  Time since{};       // pending: its start; open and detached: the break; closing: its start
  Time redial_at{};   // next redial, if this node dialled
  Time redialled{};   // last redial: `silence` counts from here until a wire frame arrives
  Time wait{};        // delay before the next redial; 0 after a handshake
  Time ack_at{};      // when unacknowledged wire frames are acknowledged at the latest
};

}  // namespace troupe::detail
