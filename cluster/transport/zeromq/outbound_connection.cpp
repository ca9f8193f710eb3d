#include <troupe/cluster/transport/zeromq/outbound_connection.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <troupe/cluster/transport/net/tcp_socket.hpp>

namespace troupe {

namespace {

constexpr int kEvents = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED |
                        ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                        ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                        ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

}  // namespace

OutboundConnection::OutboundConnection(zmq::context_t& context, ConnectionAuthorizer& authorizer,
                                       Lookups& lookups, const ZeroMqOptions& options,
                                       Connection number, std::string address, Time now)
    : context_(context), authorizer_(authorizer), lookups_(lookups), options_(options),
      name_(std::to_string(number)), address_(std::move(address)), began_(now) {
  check_address(address_);
  if (is_in_numbers(address_)) authorizer_.check_reach(address_);
  keys_ = authorizer_.keys_of(address_);
  if (keys_.empty())
    throw Error(Code::failed_precondition, "no key is authorized here, not even this node's own");
  lookup_ = lookups_.ask(address_, now);
  prepare();
  if (lookup_->is_done()) look(now);
}

OutboundConnection::~OutboundConnection() {
  if (state_ != State::accepted) socket_.set(zmq::sockopt::linger, 0);
  zmq_socket_monitor(socket_.handle(), nullptr, 0);
}

void OutboundConnection::prepare() {
  if (socket_) {
    socket_.set(zmq::sockopt::linger, 0);
    zmq_socket_monitor(socket_.handle(), nullptr, 0);
  }
  state_ = State::nothing;
  refusal_.reset();
  socket_ = zmq::socket_t(context_, zmq::socket_type::dealer);
  configure(socket_, options_.router.answer);
  socket_.set(zmq::sockopt::reconnect_ivl, -1);
  authorizer_.present(socket_, keys_[key_tried_]);
  monitor_.emplace(context_, socket_, fmt::format("{}-{}", name_, sockets_++), kEvents);
}

void OutboundConnection::attempt() {
  const std::string& to = targets_[target_];
  if (is_ipv6(to)) socket_.set(zmq::sockopt::ipv6, 1);
  socket_.connect(to);
}

// Throws the resolver's error.
void OutboundConnection::look(Time now) {
  const std::shared_ptr<Lookup> answered = std::exchange(lookup_, nullptr);
  lookups_.taken(address_, now, answered->is_good());
  targets_ = answered->found();
  for (const std::string& target : targets_) authorizer_.check_reach(target, address_);
  attempt();
  share(now);
}

// Shares the time among the addresses, so that a silent one does not use it up.
void OutboundConnection::share(Time now) {
  give_up_at_ = now + std::max(Time::zero(), began_ + patience() - now) /
                          static_cast<std::int64_t>(targets_.size() - target_);
}

OutboundConnection::Time OutboundConnection::due() const {
  if (lookup_) return began_ + patience();
  return state_ == State::nothing && (target_ + 1 < targets_.size() || !why_not_.ok())
             ? give_up_at_
             : Time::max();
}

bool OutboundConnection::send(const Ref<OutFrame>& frame) {
  if (state_ == State::accepted) return send_frame(socket_, frame);
  early_.push_back(frame);
  return true;
}

Status OutboundConnection::watch(Time now) {
  if (lookup_ && lookup_->is_done()) {
    try {
      look(now);
    } catch (const Error& e) { return Status(e); }
  }
  // Checked before the dial counts as unanswered, so that the reason names the resolver. A later
  // answer of the resolver stays there for the next dial.
  if (lookup_ && now - began_ >= patience())
    return Status(Code::not_found, "the resolver of names does not answer");
  for (SocketEvent event; monitor_->next(event);)
    if (Status over = take(event, now); !over.ok()) return over;
  return now >= due() && !try_next(now) ? why_not_ : Status();
}

bool OutboundConnection::try_next(Time now) {
  if (target_ + 1 >= targets_.size()) return false;
  ++target_;
  key_tried_ = 0;  // another node may listen there
  prepare();
  attempt();
  share(now);
  return true;
}

Status OutboundConnection::take(const SocketEvent& event, Time now) {
  switch (event.what) {
    case ZMQ_EVENT_CONNECTED:
      state_ = State::connected;
      reached_ = peer_of(event.value);
      set_congestion(event.value, options_.congestion);
      return Status();
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
      state_ = State::accepted;
      key_ = keys_[key_tried_];
      authorizer_.remember(address_, key_);
      for (const Ref<OutFrame>& frame : early_)
        if (!send_frame(socket_, frame)) break;  // `disconnected` follows
      early_.clear();
      return Status();
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH: refusal_ = event; return Status();
    case ZMQ_EVENT_DISCONNECTED:
      if (state_ == State::accepted)
        return Status(Code::unavailable, fmt::format("the connection to {} broke", address_));
      if (!refusal_) return Status();
      // A listener hangs up on a key that is not its own, without a reason.
      if (refusal_->what != ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL ||
          key_tried_ + 1 == keys_.size()) {
        if (why_not_.ok()) why_not_ = authorizer_.why_not(address_, *refusal_);
        return try_next(now) ? Status() : why_not_;
      }
      ++key_tried_;
      prepare();
      attempt();
      return Status();
    default:
      if (state_ != State::nothing) return Status();
      if (try_next(now)) return Status();
      return why_not_.ok()
                 ? Status(Code::unavailable, fmt::format("no node answers at {}", address_))
                 : why_not_;
  }
}

}  // namespace troupe
