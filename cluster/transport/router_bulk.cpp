// The router's part of wire frames that arrive by the bulk channel, or leave by it.
#include <troupe/cluster/transport/router.hpp>

namespace troupe::detail {

namespace {

constexpr std::size_t kSkipped = 64 << 10;

}  // namespace

Peer Router::bulk_opened(Connection connection, std::uint64_t from,
                         std::shared_ptr<DirectSource> direct) {
  Entry* entry = peers_.at(connection);
  if (!entry) return 0;
  entry->has_bulk = true;
  entry->bulk_from = from;
  close_direct(*entry);  // an earlier channel, if its end was not reported
  if (entry->state == State::closing) return 0;
  entry->direct = std::move(direct);
  open_direct(*entry);
  return entry->peer;
}

// ---- direct records

// Not before what came directly by connections before has been taken: so at most a ring's direct
// records are kept here.
void Router::open_direct(Entry& entry) {
  if (entry.state == State::open && entry.direct && entry.direct_before.empty())
    entry.direct->open(entry.data_in);
}

std::size_t Router::take_direct(Connection connection, std::size_t most) {
  Entry* const entry = peers_.at(connection);
  return entry ? take_direct(*entry, most) : 0;
}

// Takes all direct records that do not wait for a message: at most `most` from the ring, if the
// rest can wait. Direct records that are sent meanwhile may be among them.
std::size_t Router::take_direct(Entry& entry, std::size_t most) {
  if (entry.state != State::open) return 0;
  std::size_t taken = 0;
  for (; !entry.direct_before.empty(); ++taken) {
    if (entry.direct_before.front().after > entry.data_in) return taken;
    deliver_direct(entry, entry.direct_before.front().bytes);
    entry.direct_before.pop_front();
    open_direct(entry);
  }
  if (!entry.direct) return taken;
  entry.direct->look();
  for (; taken < most; ++taken) {
    const std::optional<DirectRecord> record = entry.direct->first();
    if (!record || record->after > entry.data_in) break;
    deliver_direct(entry, record->bytes);
    entry.direct->take();
  }
  return taken;
}

void Router::deliver_direct(Entry& entry, std::span<const std::byte> record) {
  ++counters_.messages_in;
  counters_.bytes_in += record.size();
  entry.bytes_in += record.size();
  copied_before_ += record.size();
  listener_.received_direct(entry.peer, record);
}

// The connection goes, or the session ends: whatever the peer knows to have sent is taken, or kept
// until the messages before it have come again.
void Router::close_direct(Entry& entry) {
  const std::shared_ptr<DirectSource> direct = std::exchange(entry.direct, nullptr);
  if (!direct || entry.state != State::open) return;
  direct->close();
  for (; const std::optional<DirectRecord> record = direct->first(); direct->take())
    entry.direct_before.push_back({record->after, {record->bytes.begin(), record->bytes.end()}});
  if (!leaving_) take_direct(entry);
}

void Router::bulk_broken(Connection connection) {
  Entry* entry = peers_.at(connection);
  if (!entry) return;
  // The peer closes the channel when it has taken our Bye, without the wire frames that it has not
  // got yet if it leaves too; its Gone is on the way. A peer that stays and misses wire frames
  // hangs up on the connection as well, and asks for them on the next.
  if (entry->state == State::closing && entry->farewell) entry->has_bulk = false;
  else detach(*entry);
}

/// Only what goes over the connection itself counts as having said something: silence is to tell
/// when that is dead.
bool Router::transmit(Entry& entry, const Ref<OutFrame>& frame) {
  if (entry.has_bulk && frame->bulk_bytes >= entry.bulk_from &&
      frame->header.size() <= kBulkHeader) {
    counters_.bulk_bytes_out += frame->bulk_bytes;
    return link_.send_bulk(entry.connection, frame);
  }
  entry.last_sent = link_.now();
  return link_.send(entry.connection, frame);
}

bool Router::send_ack(Entry& entry) {
  entry.session.note_acked();
  const Ref<OutFrame> ack(new OutFrame);
  ack->header = wire::encode(wire::Ack{entry.session.received()});
  ack->is_urgent = true;
  if (entry.has_bulk) return link_.send_bulk(entry.connection, ack);
  entry.last_sent = link_.now();
  return link_.send(entry.connection, ack);
}

void Router::arrived(Entry& entry, bool had_unacked, const Status& s) {
  if (!s.ok()) {
    dropped(s.message());
    return end(entry, s);
  }
  take_direct(entry);  // direct records that were sent behind them
  if (!had_unacked || entry.session.has_one_unacked())
    entry.ack_at = link_.now() + options_.acknowledge;
  if (entry.bye && entry.session.has_received(entry.bye->sent))
    return on_bye(entry, wire::Bye(*entry.bye));
  pump(entry);
  if (entry.session.has_many_unacked() && entry.attached && !send_ack(entry)) detach(entry);
}

Router::BulkTurn Router::bulk_frame(Connection connection, std::span<const std::byte> header,
                                    std::uint64_t bulk_bytes, bool is_copy) {
  Entry* entry = peers_.at(connection);
  if (!entry || !entry->has_bulk) return BulkTurn::broken;
  note_heard_beside(*entry);
  const auto refuse = [&] {
    dropped("a record that is no frame of messages, or an acknowledgement of what was not sent");
    detach(*entry);
    return BulkTurn::broken;
  };
  if (!wire::decode(header, options_.limits, decoded_).ok()) return refuse();
  if (const auto* ack = std::get_if<wire::Ack>(&decoded_.frame)) {
    if (bulk_bytes != 0 || !entry->session.take_ack(ack->received)) return refuse();
    pump(*entry);
    return peers_.at(connection) ? BulkTurn::taken : BulkTurn::broken;
  }
  auto* data = std::get_if<wire::Data>(&decoded_.frame);
  if (!data || bulk_bytes > options_.limits.message_bytes) return refuse();
  if (entry->state == State::pending) return BulkTurn::later;
  if (entry->state == State::open && entry->session.has_taken(*data)) return refuse();
  if (entry->state == State::open && !entry->session.is_turn_of(*data)) return BulkTurn::later;
  if (!entry->session.take_ack(data->received)) return refuse();
  entry->bulk_left = bulk_bytes;
  entry->bulk_skipped = 0;
  entry->bulk_is_copy = is_copy;
  entry->bulk_lane = data->lane;
  if (entry->state == State::open) {
    const bool had_unacked = entry->session.has_unacked();
    Status s = entry->session.begin_bulk(*data, header.subspan(decoded_.header_bytes),
                                         entry->bulk_skipped, delivery(*entry));
    if (s.ok() && entry->bulk_skipped > bulk_bytes)
      s = Status(Code::data_loss, "a frame is shorter than it was");
    if (s.ok() && entry->bulk_skipped == bulk_bytes)
      s = entry->session.end_bulk(data->lane, delivery(*entry));
    arrived(*entry, had_unacked, s);
  } else {
    pump(*entry);
  }
  if (!peers_.at(connection)) return BulkTurn::broken;
  return bulk_bytes == 0 ? BulkTurn::taken : BulkTurn::open;
}

std::span<std::byte> Router::bulk_room(Connection connection, std::size_t most) {
  Entry* entry = peers_.at(connection);
  if (!entry || entry->bulk_left == 0) return {};
  most = std::min<std::size_t>(most, entry->bulk_left);
  if (entry->bulk_skipped == 0 && entry->state == State::open) {
    const std::span<std::byte> room = entry->session.bulk_room(entry->bulk_lane, most);
    if (!room.empty()) return room;
    arrived(*entry, true, entry->session.no_room(entry->bulk_lane));
    // The rest is skipped: the session's last word goes by the connection, and shall not be
    // overtaken by the channel's end.
    entry = peers_.at(connection);
    if (!entry || entry->state == State::open) return {};
  }
  skipped_.resize(kSkipped);
  if (entry->bulk_skipped != 0) most = std::min<std::size_t>(most, entry->bulk_skipped);
  return std::span(skipped_).first(std::min(most, kSkipped));
}

bool Router::bulk_borrow(Connection connection, const LentBytes& lent) {
  Entry* entry = peers_.at(connection);
  if (!entry || entry->bulk_skipped != 0 || entry->state != State::open ||
      !entry->session.borrow(entry->bulk_lane, lent))
    return false;
  entry->bulk_is_copy = false;
  return true;
}

void Router::bulk_filled(Connection connection, std::size_t bytes) {
  Entry* entry = peers_.at(connection);
  if (!entry) return;
  note_heard_beside(*entry);
  counters_.bulk_bytes_in += bytes;
  entry->bulk_left -= bytes;
  if (entry->bulk_skipped != 0) {
    entry->bulk_skipped -= bytes;
    return;
  }
  if (entry->state != State::open) return;
  entry->bytes_in += bytes;
  const bool had_unacked = entry->session.has_unacked();
  Status s =
      entry->session.bulk_filled(entry->bulk_lane, bytes, entry->bulk_is_copy, delivery(*entry));
  if (s.ok() && entry->bulk_left == 0)
    s = entry->session.end_bulk(entry->bulk_lane, delivery(*entry));
  if (!s.ok() || entry->bulk_left == 0) arrived(*entry, had_unacked, s);
}

}  // namespace troupe::detail
