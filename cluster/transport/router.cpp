#include <troupe/cluster/transport/router.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace troupe::detail {

namespace {

double seconds(Time t) { return std::chrono::duration<double>(t).count(); }

}  // namespace

Router::Router(PeerInfo self, RouterOptions options, FrameLink& link, TransportListener& listener)
    : self_(std::move(self)), options_(options), link_(link), listener_(listener),
      peers_([this](const Entry& entry) { return due_of(entry); }), dials_(options_.answer),
      next_session_(options.session_seed * 0x9e3779b97f4a7c15ull + self_.incarnation + 1) {
  if (self_.engine.empty()) self_.engine = engine_version();
}

// ---- what the user asks for

void Router::send(Peer peer, Lane lane, Message message) {
  Entry* const found = peers_.find(peer);
  if (!found || found->state != State::open) return;
  Entry& entry = *found;
  const std::uint64_t bytes = bytes_of(message);
  ++counters_.messages_out;
  counters_.bytes_out += bytes;
  entry.bytes_out += bytes;
  entry.session.add(lane, std::move(message));
  if (!std::exchange(entry.is_to_flush, true)) to_flush_.push_back(peer);
}

void Router::flush() {
  while (!to_flush_.empty()) {  // a listener that is called for a broken connection may send more
    flushing_.swap(to_flush_);
    for (const Peer peer : flushing_) {
      Entry* const entry = peers_.find(peer);
      if (!entry) continue;
      entry->is_to_flush = false;
      pump(*entry);
    }
    flushing_.clear();
  }
}

void Router::flush(Peer peer) {
  if (delivering_ && delivering_->has_more_to_deliver()) return;
  Entry* const found = peers_.find(peer);
  if (!found) return;
  Entry& entry = *found;
  if (entry.state != State::open || !entry.attached || entry.is_mute || entry.has_failed) return;
  while (const Ref<OutFrame> frame = entry.session.next())
    if (!transmit(entry, frame)) {
      entry.has_failed = true;
      if (!std::exchange(entry.is_to_flush, true)) to_flush_.push_back(peer);
      return;
    }
}

void Router::disconnect(Peer peer, const Status& why) {
  Entry* const entry = peers_.find(peer);
  if (entry && entry->state == State::open) end(*entry, why);
}

void Router::leave() {
  leaving_ = true;
  for (const Connection connection : dials_.clear()) link_.close(connection);
  const Status why(Code::unavailable, fmt::format("{} has left", self_.name));
  std::vector<Peer> all;
  for (const auto& [peer, entry] : peers_.all()) all.push_back(peer);
  for (const Peer peer : all) {
    Entry* const entry = peers_.find(peer);
    if (entry->state == State::pending) forget(*entry);
    else if (entry->state == State::open) end(*entry, why);
  }
}

// ---- wire frames

void Router::frame(Connection connection, std::span<const std::byte> header,
                   std::span<const std::byte> bulk) {
  if (Status s = wire::decode(header, options_.limits, decoded_); !s.ok())
    return dropped(s.message());
  if (!bulk.empty() && !std::holds_alternative<wire::Data>(decoded_.frame))
    return dropped("payload behind a frame that has none");
  if (const auto* h = std::get_if<wire::Hello>(&decoded_.frame))
    return h->is_answer ? on_answer(connection, *h) : on(connection, *h);
  if (const auto* refuse = std::get_if<wire::Refuse>(&decoded_.frame))
    return on(connection, *refuse);
  Entry* entry = peers_.at(connection);
  if (!entry) {
    // A wire frame that was in flight when its session ended is no offence.
    if (std::holds_alternative<wire::Bye>(decoded_.frame)) say(connection, wire::Gone{});
    return;
  }
  // A redialled connection has proved nothing about the session before its answer: only an answer,
  // or a refusal by the session's key, counts.
  if (!entry->attached && !entry->dialled.empty())
    return dropped("a frame before the answer to a dial");
  entry->last_heard = link_.now();
  if (auto* data = std::get_if<wire::Data>(&decoded_.frame))
    return on_data(*entry, *data, header, decoded_.header_bytes, bulk);
  if (std::holds_alternative<wire::Ready>(decoded_.frame)) return confirm(*entry);
  if (const auto* ack = std::get_if<wire::Ack>(&decoded_.frame)) {
    if (!entry->session.take_ack(ack->received))
      return dropped("an acknowledgement of what was not sent");
    return pump(*entry);
  }
  if (const auto* bye = std::get_if<wire::Bye>(&decoded_.frame)) return on_bye(*entry, *bye);
  if (entry->state == State::closing) forget(*entry);  // Gone
}

void Router::on_data(Entry& entry, wire::Data& data, std::span<const std::byte> header,
                     std::size_t header_bytes, std::span<const std::byte> bulk) {
  if (entry.state == State::pending || !entry.session.take_ack(data.received))
    return dropped(
        "messages in a session that has not begun, or with an acknowledgement of what was not "
        "sent");
  if (entry.state == State::closing) return pump(entry);  // the listener is gone
  if (entry.session.has_taken(data))
    return dropped("a frame that had been taken: repeated on a new connection, or played again");
  const bool had_unacked = entry.session.has_unacked();
  entry.bytes_in += header.size() - header_bytes + bulk.size();
  const std::uint64_t cost = wire::cost_of(header.size(), bulk.size());
  arrived(entry, had_unacked,
          entry.session.accept(data, header.subspan(header_bytes), bulk, cost, entry.may_have_bulk,
                               delivery(entry)));
}

/// The peer has ended the session; what it sent before may still be on its way.
void Router::on_bye(Entry& entry, const wire::Bye& bye) {
  if (entry.state == State::open && !entry.session.has_received(bye.sent)) {
    entry.bye = bye;
    return;
  }
  // The acknowledgement goes before the end of the bulk channel, so that the peer that sent the Bye
  // can tell that its messages have arrived.
  if (entry.has_bulk) send_ack(entry);
  say(entry.connection, wire::Gone{});
  give_up(entry, bye.why);
}

// ---- sessions

void Router::confirm(Entry& entry) {
  if (entry.state == State::pending) {
    entry.state = State::open;
    entry.dropped_dials.clear();
    link_.session_opened(entry.peer);
    link_.met(entry.connection, entry.info.address);
    listener_.connected(entry.peer, entry.info);
    open_direct(entry);
  }
  if (!entry.attached) attach(entry, {});
}

void Router::attach(Entry& entry, const wire::Received& received) {
  entry.attached = true;
  entry.farewell = false;
  entry.wait = Time::zero();
  entry.last_sent = link_.now();
  if (!entry.session.attach(received))
    return end(entry, Status(Code::data_loss, "the peer has received what was not sent"));
  pump(entry);
}

void Router::pump(Entry& entry) {
  if (!entry.attached || entry.is_mute) return;
  if (entry.has_failed) return detach(entry);
  while (const Ref<OutFrame> frame = entry.session.next())
    if (!transmit(entry, frame)) return detach(entry);
  if (entry.state == State::closing && !entry.farewell && entry.session.is_all_sent()) {
    entry.farewell = true;
    if (!say(entry.connection, wire::Bye{entry.why, entry.session.sent()})) detach(entry);
  }
}

void Router::detach(Entry& entry) {
  close_direct(entry);
  if (entry.connection != 0) {
    peers_.disconnect(entry.connection);
    link_.close(entry.connection);
  }
  const Time now = link_.now();
  if (entry.attached) {
    if (entry.state == State::open) entry.since = now;
    ++counters_.reconnects;
    if (entry.state == State::open && !leaving_) listener_.broken(entry.peer);
  }
  entry.connection = 0;
  entry.attached = entry.has_bulk = entry.may_have_bulk = entry.has_failed = false;
  entry.bye.reset();  // it comes again
  entry.bulk_left = 0;
  entry.redial_at = now + entry.wait;
}

void Router::redial(Entry& entry) {
  entry.wait = std::clamp(entry.wait * 2, options_.redial, options_.heartbeat);
  entry.redialled = link_.now();
  peers_.connect(entry, link_.dial(entry.dialled));
  wire::Hello h = hello(entry.id, true, entry.session.received());
  h.bulk = link_.ask_for_bulk(entry.connection);
  say(entry.connection, h);
}

void Router::end(Entry& entry, const Status& why) {
  close_direct(entry);
  link_.session_over(entry.peer);
  entry.state = State::closing;
  entry.why = why;
  entry.since = link_.now();
  const Peer peer = entry.peer;
  pump(entry);
  if (!leaving_) listener_.lost(peer, why);
}

void Router::replace(Entry& entry) {
  if (entry.state == State::pending) {
    say(entry.connection,
        wire::Refuse{self_.name, Status(Code::already_exists, "connected already"), true});
    return forget(entry);
  }
  const Status why(Code::unavailable, fmt::format("{} has started anew", entry.info.name));
  if (entry.attached) say(entry.connection, wire::Bye{why});
  give_up(entry, why);
}

void Router::give_up(Entry& entry, const Status& why) {
  const Peer peer = entry.peer;
  const bool was_open = entry.state == State::open;
  close_direct(entry);
  forget(entry);
  if (was_open && !leaving_) listener_.lost(peer, why);
}

void Router::forget(Entry& entry) {
  copied_before_ += entry.session.copied_bytes();
  link_.session_over(entry.peer);
  if (!leaving_)
    for (Dial& dial : entry.dropped_dials)
      dials_.retry(std::move(dial), link_.now() + options_.redial);
  if (entry.connection != 0) {
    peers_.disconnect(entry.connection);
    link_.close(entry.connection);
  }
  peers_.erase(entry);
}

void Router::broken(Connection connection, const Status& why) {
  if (const std::optional<Dial> dial = dials_.take(connection))
    return listener_.refused(dial->address, why);
  Entry* entry = peers_.at(connection);
  if (!entry) return;
  // A peer that leaves too may hang up before this node reads its Gone. Everything has been sent,
  // and the peer is no longer there to receive it again.
  if (leaving_ && entry->state == State::closing && entry->farewell && !entry->attached)
    return forget(*entry);
  // One that is pending here may be open for the peer already, which then resumes it.
  detach(*entry);
}

void Router::expel(const std::function<bool(const std::string& key)>& is_out) {
  std::vector<Peer> out;
  for (const auto& [peer, entry] : peers_.all())
    if (is_out(entry->key)) out.push_back(peer);
  for (const Peer peer : out) {
    Entry* const found = peers_.find(peer);
    if (!found) continue;
    Entry& entry = *found;
    const Status why(
        Code::failed_precondition,
        fmt::format("the key of {} is not authorized at {} any more", entry.info.name, self_.name));
    if (!entry.attached) {
      give_up(entry, why);
      continue;
    }
    // Notified, and then nothing more. Its connection stays until the peer has received the Bye,
    // because the end of the bulk channel would overtake it.
    const bool was_open = entry.state == State::open;
    link_.session_over(entry.peer);
    entry.state = State::closing;
    if (entry.direct) entry.direct->close();
    entry.direct.reset();  // its direct records are ignored from now on
    entry.is_mute = entry.farewell = true;
    entry.since = link_.now();
    if (!say(entry.connection, wire::Bye{why})) detach(entry);
    if (was_open && !leaving_) listener_.lost(peer, why);
  }
}

// ---- time

void Router::tick() {
  const Time now = link_.now();
  if (now >= listener_due_ && !leaving_) listener_due_ = listener_.tick(now);
  for (const Connection connection : dials_.unanswered(now)) {
    link_.close(connection);
    broken(connection, Status(Code::deadline_exceeded,
                              fmt::format("no answer within {} s", seconds(options_.answer))));
  }
  for (Dial& dial : dials_.take_retries(now)) {
    if (dials_.is_over(dial, now))
      listener_.refused(
          dial.address,
          Status(Code::deadline_exceeded,
                 "an earlier connection has not ended there, or was never confirmed"));
    else start_dial(std::move(dial));
  }
  peers_.settle();
  while (Entry* const entry = peers_.pop_due(now)) tick(*entry);
}

void Router::tick(Entry& entry) {
  const Time now = link_.now();
  if (entry.state == State::closing && now >= drained_at(entry)) return forget(entry);
  if (entry.state == State::pending && now - entry.since >= options_.answer) return forget(entry);
  if (entry.state == State::open && entry.session.waiting() > options_.most_waiting)
    return end(entry,
               Status(Code::resource_exhausted,
                      fmt::format("{} takes too little of what it is sent: {} messages wait for it",
                                  entry.info.name, entry.session.waiting())));
  if (entry.connection != 0 && now - entry.silent_since() >= options_.silence) detach(entry);
  if (!entry.attached) {
    if (entry.state == State::open && now - entry.since >= options_.away)
      return give_up(
          entry, Status(Code::unavailable, fmt::format("{} did not come back within {} s",
                                                       entry.info.name, seconds(options_.away))));
    if (entry.connection == 0 && !entry.dialled.empty() && now >= entry.redial_at) redial(entry);
    return;
  }
  if (now - entry.last_sent >= options_.heartbeat) {
    entry.session.note_acked();
    entry.last_sent = now;
    if (!say(entry.connection, wire::Ack{entry.session.received()})) detach(entry);
  } else if (entry.session.has_unacked() && now >= entry.ack_at) {
    if (!send_ack(entry)) detach(entry);
  }
}

// A node that leaves waits `farewell` for a peer from which nothing has come, neither by the
// connection nor by the bulk channel, which has most acknowledgements: such a peer has died, or was
// stopped.
Time Router::drained_at(const Entry& entry) const {
  const Time all = entry.since + options_.drain;
  if (!leaving_) return all;
  const Time quiet = std::max({entry.since, entry.last_heard, entry.heard_beside});
  const std::size_t unacknowledged = entry.attached ? entry.session.kept_bytes() : 0;
  // Much data may take longer to be acknowledged on a slow connection. A peer that lives sends a
  // wire frame each heartbeat meanwhile.
  constexpr std::size_t kMuch = std::size_t{1} << 18;
  if (unacknowledged > kMuch) return std::min(all, quiet + options_.heartbeat + options_.farewell);
  return std::min(all, quiet + (unacknowledged == 0 ? 1 : 2) * options_.farewell);
}

/// Returns the first time at which `tick` has to look at this entry.
Time Router::due_of(const Entry& entry) const {
  Time first = Time::max();
  const auto at = [&](Time t) { first = std::min(first, t); };
  if (entry.state == State::closing) at(drained_at(entry));
  if (entry.state == State::pending) at(entry.since + options_.answer);
  if (entry.state == State::open && entry.session.waiting() > options_.most_waiting)
    at(Time::zero());
  if (entry.connection != 0) at(entry.silent_since() + options_.silence);
  if (entry.attached) {
    at(entry.last_sent + options_.heartbeat);
    if (entry.session.has_unacked()) at(entry.ack_at);
  } else {
    if (entry.state == State::open) at(entry.since + options_.away);
    if (entry.connection == 0 && !entry.dialled.empty()) at(entry.redial_at);
  }
  return first;
}

Time Router::due() {
  const Time of_listener = leaving_ ? Time::max() : listener_due_;
  return std::min({of_listener, dials_.due(), peers_.due()});
}

// ---- small things

bool Router::say(Connection connection, const wire::Frame& frame) {
  const Ref<OutFrame> out(new OutFrame);
  out->header = wire::encode(frame);
  return link_.send(connection, out);
}

Connection Router::connection_of(Peer peer) const {
  const Entry* entry = peers_.look(peer);
  return entry ? entry->connection : 0;
}

TransportCounters Router::counters() const {
  TransportCounters all = counters_;
  all.copied_bytes = copied_before_;
  for (const auto& [peer, entry] : peers_.all()) {
    all.copied_bytes += entry->session.copied_bytes();
    all.unsent_bytes += entry->session.unsent_bytes();
    all.unacknowledged_bytes += entry->session.kept_bytes();
  }
  return all;
}

std::vector<PeerCounters> Router::peers() const {
  std::vector<PeerCounters> all;
  for (const auto& [peer, entry] : peers_.all())
    if (entry->state == State::open)
      all.push_back({peer, entry->bytes_out, entry->bytes_in, entry->session.unsent_bytes(),
                     entry->session.kept_bytes(), entry->last_heard});
  return all;
}

}  // namespace troupe::detail
