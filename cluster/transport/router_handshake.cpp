// The router's handshakes: dialling, answering, and the decision between two nodes that dial each
// other. The wire frames of a session between the node that dials (D) and the node that accepts
// (A); WIRE.md has all of them:
//
//     D                                    A
//     Hello{session, received} ─────────►      A knows D, and on a resumed session what D has got
//     ◄───────── Hello{answer, received}       D knows A, likewise
//     Ready ────────────────────────────►      both have decided on this connection (on a resumed
//                                              session A sends from its answer on)
//     ◄──────── Data, Ack, … ───────────►
//     (the connection breaks: D dials again, resumes = true; both repeat unacknowledged wire
//     frames)
//     Bye{sent} ────────────────────────►      counts when so many wire frames have arrived
//     ◄───────────────────────────── Gone
//
// Two nodes may dial each other at the same time, and must end with one connection. The dialling
// node learns the other's name from the answer. If it then holds an unconfirmed session that the
// other has dialled, the dial of the node whose name comes first goes on, and each node drops the
// other dial. Both see the same two sessions, so both decide alike. A dial that was dropped is
// tried again if the other session is never confirmed. A Hello is refused as redundant if a session
// with that name and incarnation is open and may be resumed. A Hello of another incarnation is
// refused while the connection of the old session is up and was heard within `silence`; after that
// it replaces the session. A node that is refused as redundant, but has no session with the other
// node, dials again after `redial`.
#include <troupe/cluster/transport/router.hpp>

#include <utility>

#include <fmt/format.h>

namespace troupe::detail {

void Router::connect(const std::string& address) {
  if (leaving_) return;
  for (const auto& [peer, entry] : peers_.all())
    if (entry->state == State::open &&
        (entry->info.address == address || entry->dialled == address))
      return;
  if (dials_.has(address)) return;
  if (!self_.address.empty() && address == self_.address)
    return listener_.refused(
        address, Status(Code::already_exists, fmt::format("{} is this node itself", self_.name)));
  start_dial({.address = address, .began = link_.now()});
}

void Router::start_dial(Dial dial) {
  dial.session = next_session_++;
  const Connection connection = link_.dial(dial.address);
  wire::Hello h = hello(dial.session, false, {});
  h.bulk = link_.ask_for_bulk(connection);
  dials_.add(connection, std::move(dial));
  say(connection, h);
}

void Router::on(Connection connection, const wire::Hello& h) {
  const auto refuse = [&](Code code, std::string why, bool redundant = false) {
    say(connection, wire::Refuse{self_.name, Status(code, std::move(why)), redundant});
  };
  if (h.version != wire::kVersion)
    return refuse(Code::failed_precondition,
                  fmt::format("{} speaks version {} of the protocol, not {}", self_.name,
                              wire::kVersion, h.version));
  if (leaving_ && !h.resumes)
    return refuse(Code::unavailable, fmt::format("{} is leaving", self_.name));
  if (Status why = check_peer(self_, h.info); !why.ok()) return refuse(why.code(), why.message());
  if (Status why = link_.admits(connection, h.info.name); !why.ok()) {
    dropped(why.message());
    return refuse(why.code(), why.message());
  }
  const std::string key = link_.key_of(connection);

  const auto is_resumed = [&](const Entry& entry) {
    return entry.id == h.session && entry.info.incarnation == h.info.incarnation &&
           entry.key == key && entry.dialled.empty();
  };
  if (Entry* const entry = peers_.named(h.info.name, is_resumed))
    return resume(*entry, connection, h);
  if (h.resumes) {
    const Entry* other = peers_.named(h.info.name);
    if (other && other->info.incarnation > h.info.incarnation)
      return refuse(Code::unavailable,
                    fmt::format("{} has given up this session, for another node '{}' has started "
                                "later; give each a name of its own",
                                self_.name, h.info.name));
    return refuse(Code::unavailable, fmt::format("{} has given up this session", self_.name));
  }
  if (Entry* known = peers_.named(h.info.name)) {
    if (known->key != key) {
      dropped("a node with the name of another, and with another key");
      return refuse(Code::already_exists,
                    fmt::format("another node, with another key, has the name {} at {}",
                                h.info.name, self_.name));
    }
    // A session that the other dialled, and that has no connection now, is over for it, or it would
    // resume that one. One that we dialled may be just about to be resumed.
    const bool is_over = !known->attached && known->dialled.empty();
    if (known->state == State::open && !is_over && known->info.incarnation == h.info.incarnation)
      return refuse(Code::already_exists, fmt::format("{} is connected already", h.info.name),
                    true);
    if (known->info.incarnation != h.info.incarnation && is_answering(*known))
      return refuse(Code::already_exists, why_taken(*known));
    replace(*known);
  }
  Entry& entry =
      peers_.add(std::make_unique<Entry>(next_peer_++, h.info, h.session, options_.window));
  entry.info.address = link_.reachable(connection, h.info.address);
  entry.key = key;
  entry.session.limit_window(h.window);
  peers_.connect(entry, connection);
  entry.last_heard = entry.since = link_.now();
  answer(entry, h, false);
}

// A process that died has broken its connection, and one that was stopped says nothing: their name
// may be used again. Else two supervisors that restart would end each other's node for ever.
bool Router::is_answering(const Entry& entry) const {
  return entry.state == State::open && entry.attached &&
         link_.now() - entry.silent_since() < options_.silence;
}

std::string Router::why_taken(const Entry& entry) const {
  return fmt::format(
      "another node '{}'{} is connected with {} and answers; give each a name of its "
      "own, or end that one first",
      entry.info.name, entry.info.address.empty() ? "" : " at " + entry.info.address, self_.name);
}

// A connection of a session that the peer has dialled before.
void Router::resume(Entry& entry, Connection connection, const wire::Hello& h) {
  if (entry.connection != connection) detach(entry);
  peers_.connect(entry, connection);
  answer(entry, h, true);
  entry.last_heard = link_.now();
  if (entry.state != State::pending) attach(entry, h.received);
}

void Router::on_answer(Connection connection, const wire::Hello& answer) {
  if (const std::optional<std::uint64_t> session = dials_.session(connection)) {
    if (answer.session != *session && answer.version == wire::kVersion)
      return dropped("an answer to another session");
    return establish(connection, *dials_.take(connection), answer);
  }
  Entry* entry = peers_.at(connection);
  if (!entry || entry->dialled.empty() || entry->attached || answer.session != entry->id ||
      link_.key_of(connection) != entry->key)
    return dropped("an answer without a request");
  entry->last_heard = link_.now();
  say(connection, wire::Ready{});
  open_bulk(*entry, answer);
  attach(*entry, answer.received);
}

void Router::establish(Connection connection, Dial dial, const wire::Hello& answer) {
  const std::string key = link_.key_of(connection);
  Status why = check_peer(self_, answer.info);
  if (why.ok()) why = link_.admits(connection, answer.info.name);
  if (answer.version != wire::kVersion)
    why = Status(Code::failed_precondition, fmt::format("speaks version {} of the protocol, not {}",
                                                        answer.version, wire::kVersion));
  const auto abandon = [&](const Status& reason, bool redundant = false) {
    say(connection, wire::Refuse{self_.name, reason, redundant});
    link_.close(connection);
  };
  Entry* known = peers_.named(answer.info.name);
  if (known && known->key != key)
    why = Status(
        Code::already_exists,
        fmt::format("another node, with another key, has the name {} too", answer.info.name));
  if (!why.ok()) {
    abandon(why);
    return listener_.refused(dial.address, why);
  }
  if (known) {
    const bool is_same = known->info.incarnation == answer.info.incarnation;
    const bool is_pending = known->state == State::pending;
    if (is_same && (!is_pending || answer.info.name < self_.name)) {
      abandon(Status(Code::already_exists, "connected already"), true);
      if (is_pending) known->dropped_dials.push_back(std::move(dial));
      return;
    }
    if (!is_same && is_answering(*known)) {
      why = Status(Code::already_exists, why_taken(*known));
      abandon(why);
      return listener_.refused(dial.address, why);
    }
    replace(*known);
  }
  Entry& entry =
      peers_.add(std::make_unique<Entry>(next_peer_++, answer.info, dial.session, options_.window));
  entry.key = key;
  entry.info.address = link_.reachable(connection, answer.info.address);
  entry.session.limit_window(answer.window);
  peers_.connect(entry, connection);
  entry.dialled = std::move(dial.address);
  entry.last_heard = link_.now();
  say(connection, wire::Ready{});
  open_bulk(entry, answer);
  confirm(entry);
}

void Router::on(Connection connection, const wire::Refuse& refuse) {
  if (std::optional<Dial> dial = dials_.take(connection)) {
    link_.close(connection);
    if (!refuse.redundant) return listener_.refused(dial->address, refuse.why);
    if (Entry* const other = peers_.named(refuse.name)) {
      if (other->state == State::pending) other->dropped_dials.push_back(std::move(*dial));
      return;
    }
    // The other still holds a session that ended here; it is about to be notified.
    return dials_.retry(std::move(*dial), link_.now() + options_.redial);
  }
  Entry* entry = peers_.at(connection);
  if (!entry) return;
  if (!entry->attached && link_.key_of(connection) != entry->key) {
    dropped("a refusal of a session by a node with another key");
    return detach(*entry);  // the session's node may be back at the next dial
  }
  if (entry->state == State::open) give_up(*entry, refuse.why);
  else forget(*entry);
}

// ---- wire frames of the handshake

wire::Hello Router::hello(std::uint64_t session, bool resumes,
                          const wire::Received& received) const {
  return {.is_answer = false,
          .version = wire::kVersion,
          .info = self_,
          .session = session,
          .resumes = resumes,
          .window = options_.window,
          .received = received,
          .bulk = {}};
}

void Router::answer(Entry& entry, const wire::Hello& to, bool resumes) {
  wire::Hello h = hello(entry.id, resumes, entry.session.received());
  h.is_answer = true;
  h.bulk = link_.answer_bulk(entry.connection, to.bulk);
  entry.may_have_bulk = h.bulk.kinds != 0;
  entry.has_bulk = false;
  say(entry.connection, h);
}

void Router::open_bulk(Entry& entry, const wire::Hello& answer) {
  entry.may_have_bulk = answer.bulk.kinds != 0;
  if (entry.may_have_bulk) link_.open_bulk(entry.connection, answer.bulk);
}

}  // namespace troupe::detail
