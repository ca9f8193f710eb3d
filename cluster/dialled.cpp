#include <troupe/cluster/dialled.hpp>

#include <fmt/format.h>

#include <troupe/cluster/tcp_socket.hpp>

namespace troupe {

namespace {

constexpr int kEvents = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                        ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

}  // namespace

Dialled::Dialled(zmq::context_t& context, Gate& gate, const ZeroMqOptions& options, Connection number, std::string address)
    : context_(context), gate_(gate), options_(options), name_(std::to_string(number)), address_(std::move(address)) {
  gate_.check_reach(address_);
  keys_ = gate_.keys_of(address_);
  if (keys_.empty()) throw Error(Code::failed_precondition, "no key is authorized here, not even this node's own");
  attempt();
}

Dialled::~Dialled() {
  if (state_ != State::accepted) socket_.set(zmq::sockopt::linger, 0);
  zmq_socket_monitor(socket_.handle(), nullptr, 0);
}

void Dialled::attempt() {
  if (socket_) {
    socket_.set(zmq::sockopt::linger, 0);
    zmq_socket_monitor(socket_.handle(), nullptr, 0);
  }
  state_ = State::nothing;
  refusal_.reset();
  socket_ = zmq::socket_t(context_, zmq::socket_type::dealer);
  configure(socket_, options_.router.answer);
  socket_.set(zmq::sockopt::reconnect_ivl, -1);
  // For these alone: where it is set, ZeroMQ looks for an IPv6 address of each name, and tries no other.
  if (is_ipv6(address_)) socket_.set(zmq::sockopt::ipv6, 1);
  gate_.present(socket_, keys_[attempts_]);
  monitor_.emplace(context_, socket_, fmt::format("{}-{}", name_, attempts_), kEvents);
  socket_.connect(address_);
  ++attempts_;
}

bool Dialled::send(const Ref<OutFrame>& frame) {
  if (state_ == State::accepted) return send_frame(socket_, frame);
  early_.push_back(frame);
  return true;
}

Status Dialled::watch() {
  for (SocketEvent event; monitor_->next(event);)
    if (Status over = take(event); !over.ok()) return over;
  return Status();
}

Status Dialled::take(const SocketEvent& event) {
  switch (event.what) {
    case ZMQ_EVENT_CONNECTED:
      state_ = State::connected;
      reached_ = peer_of(event.value);
      set_congestion(event.value, options_.congestion);
      return Status();
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
      state_ = State::accepted;
      key_ = keys_[attempts_ - 1];
      gate_.remember(address_, key_);
      for (const Ref<OutFrame>& frame : early_)
        if (!send_frame(socket_, frame)) break;  // `disconnected` follows
      early_.clear();
      return Status();
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
      refusal_ = event;
      return Status();
    case ZMQ_EVENT_DISCONNECTED:
      if (state_ == State::accepted) return Status(Code::unavailable, fmt::format("the connection to {} broke", address_));
      if (!refusal_) return Status();
      // Who listens hangs up on a key that is not its own, without a word.
      if (refusal_->what != ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL || attempts_ == keys_.size()) return gate_.why_not(address_, *refusal_);
      attempt();
      return Status();
    default:
      return state_ == State::nothing ? Status(Code::unavailable, fmt::format("nobody answers at {}", address_)) : Status();
  }
}

}  // namespace troupe
