#include <troupe/cluster/transport/zeromq/zeromq_link.hpp>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include <malloc.h>

#include <fmt/format.h>

#include <troupe/cluster/transport/net/tcp_socket.hpp>

namespace troupe {

namespace {

// after what came before the end of a connection was there
constexpr Time kFarewellRead = std::chrono::milliseconds(100);
// wire frames taken from one socket before the others have their turn
constexpr int kFramesATurn = 64;

/// ZeroMQ's thread allocates a block for each chunk that arrives. As malloc is, it gives freed ones
/// back to the system as soon as a few lie together, and a quarter of all pages were fetched anew;
/// each costs more than its transfer.
void keep_freed_chunks() {
  static std::once_flag once;
  std::call_once(once, [] {
    mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most it accepts
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    mallopt(M_TOP_PAD, 16 << 20);
  });
}

/// Returns a property of the connection that a message came by; empty: ZeroMQ has none.
std::string_view property(zmq::message_t& message, const char* name) {
  const char* text = zmq_msg_gets(message.handle(), name);
  return text ? text : std::string_view();
}

std::span<const std::byte> bytes_of(const zmq::message_t& m) {
  return {static_cast<const std::byte*>(m.data()), m.size()};
}

}  // namespace

ZeroMqLink::ZeroMqLink(const std::string& name, ZeroMqOptions options)
    : options_(std::move(options)), context_(1),
      authorizer_(name, std::exchange(options_.keys, {}), options_.log,
                  [this](Connection c) { ended(c); }) {
  keep_freed_chunks();
  context_.set(zmq::ctxopt::max_sockets, context_.get(zmq::ctxopt::socket_limit));
}

std::string ZeroMqLink::listen(const std::string& address) {
  authorizer_.open(context_);
  if (address.empty()) return {};
  authorizer_.check_reach(address);
  ListeningSocket at = listen_at(address, options_.congestion);
  listening_ = zmq::socket_t(context_, zmq::socket_type::router);
  configure(listening_, options_.router.answer);
  authorizer_.guard(context_, listening_);
  listening_.set(zmq::sockopt::router_mandatory, 1);
  const int fd = at.fd.get();
  if (zmq_setsockopt(listening_.handle(), ZMQ_USE_FD, &fd, sizeof fd) != 0)
    throw Error(Code::internal, "ZeroMQ takes no socket");
  listening_.bind(at.address);
  at.fd.release();  // ZeroMQ closes it
  is_port_chosen_ = !address.ends_with(":0");
  return at.address;
}

void ZeroMqLink::open(Router& router, const std::string& address,
                      std::function<void()> after_frame) {
  router_ = &router;
  after_frame_ = std::move(after_frame);
  if (!options_.bulk) return;
  if (seals()) seal_ciphers();  // throws here, where the transport is opened, if there are none
  bulk_.emplace(router, static_cast<const FrameLink&>(*this), senders_,
                BulkSocketOptions{.port = options_.bulk_port,
                                  .port_outside = options_.bulk_port_outside,
                                  .congestion = options_.congestion,
                                  .stall = options_.router.away,
                                  .shared_memory = options_.shared_memory,
                                  .slab_bytes = options_.slab_bytes,
                                  .seal_boxes = options_.seal_boxes});
  if (!address.empty()) bulk_->listen(address, is_port_chosen_);
}

void ZeroMqLink::stop() {
  outbound_.clear();
  if (listening_) listening_.close();
  if (bulk_) bulk_->stop();
}

void ZeroMqLink::count(TransportCounters& all) const {
  all.turned_away = authorizer_.turned_away();
  all.broken_off = broken_off_;
  senders_.count(all);
  if (bulk_) all.copied_bytes += bulk_->copied_bytes();
}

// ---- connections

Connection ZeroMqLink::dial(const std::string& address) {
  was_asked_ = false;
  const Connection connection = next_++;
  try {
    outbound_.try_emplace(connection, context_, authorizer_, lookups_, options_, connection,
                          address, now());
    has_new_sockets_ = true;
  } catch (const Error& e) {
    failures_.emplace_back(connection, Status(e));
  } catch (const zmq::error_t& e) {
    failures_.emplace_back(connection,
                           Status(Code::unavailable, fmt::format("{}: {}", address, e.what())));
  }
  return connection;
}

bool ZeroMqLink::send(Connection connection, const Ref<OutFrame>& frame) {
  was_asked_ = false;
  try {
    if (const auto found = outbound_.find(connection); found != outbound_.end())
      return found->second.send(frame);
    const std::string* id = accepted_.routing_id(connection);
    if (!id) return false;
    const zmq::const_buffer to(id->data(), id->size());
    return listening_.send(to, zmq::send_flags::dontwait | zmq::send_flags::sndmore) &&
           send_frame(listening_, frame);
  } catch (const zmq::error_t&) {
    return false;  // EHOSTUNREACH: the peer's connection is gone
  }
}

void ZeroMqLink::close(Connection connection) {
  if (bulk_) bulk_->close(connection);
  // ZeroMQ cannot close one accepted connection: it is forgotten, and its later wire frames belong
  // to no session.
  if (outbound_.erase(connection) != 0) has_new_sockets_ = true;
  else accepted_.erase(connection);
}

std::string ZeroMqLink::key_of(Connection connection) const {
  if (const auto found = outbound_.find(connection); found != outbound_.end())
    return found->second.key();
  const AcceptTable::Accepted* accepted = accepted_.find(connection);
  return accepted ? accepted->key : std::string();
}

// A node that listens at all addresses of its machine is reached at the one where it was seen.
std::string ZeroMqLink::reachable(Connection connection, const std::string& told) const {
  if (!is_any_host(told)) return told;
  if (const auto found = outbound_.find(connection); found != outbound_.end())
    return with_host(told, host_of(found->second.address_of_node()));
  const AcceptTable::Accepted* accepted = accepted_.find(connection);
  return accepted ? with_host(told, accepted->host) : told;
}

// A node that has dialled this one, and is dialled after a cut, is asked for no other key.
void ZeroMqLink::met(Connection connection, const std::string& address) {
  if (const std::string key = key_of(connection); !key.empty() && !address.empty())
    authorizer_.remember(address, key);
}

Status ZeroMqLink::admits(Connection connection, const std::string& name) const {
  return authorizer_.admits(key_of(connection), name);
}

Connection ZeroMqLink::connection_of(std::string_view routing_id, std::string_view key,
                                     zmq::message_t& message) {
  std::string id(routing_id);
  if (const AcceptTable::Accepted* known = accepted_.find(id)) {
    const Connection before = known->connection;
    if (known->key == key) return before;
    router_->broken(before, Status(Code::unavailable, "another node has taken its place"));
    close(before);
  }
  if (const std::string_view socket = property(message, "__fd"); !socket.empty())
    authorizer_.heard(std::atoi(socket.data()), next_);
  accepted_.add(next_, std::move(id), std::string(key),
                std::string(property(message, "Peer-Address")));
  return next_++;
}

// ---- bulk channels

wire::Bulk ZeroMqLink::ask_for_bulk(Connection connection) {
  return bulk_ ? bulk_->ask(connection, seals()) : wire::Bulk();
}

wire::Bulk ZeroMqLink::answer_bulk(Connection connection, const wire::Bulk& ask) {
  return bulk_ ? bulk_->answer(connection, ask, seals()) : wire::Bulk();
}

void ZeroMqLink::open_bulk(Connection connection, const wire::Bulk& answer) {
  const auto found = outbound_.find(connection);
  if (bulk_ && found != outbound_.end() && !found->second.reached().empty())
    bulk_->open(connection, found->second.reached(), answer);
}

// ---- wire frames

bool ZeroMqLink::is_quiet() {
  if (was_asked_) return true;
  watch();
  was_asked_ = true;
  return !receive() && was_asked_;
}

bool ZeroMqLink::receive() {
  bool any = false;
  if (listening_) any |= receive_from_listening();
  arrivals_.clear();
  for (const auto& [connection, d] : outbound_) arrivals_.push_back(connection);
  for (const Connection connection : arrivals_) any |= receive_from(connection);
  if (any) was_asked_ = false;  // not to the end, perhaps
  return any;
}

bool ZeroMqLink::receive_from_listening() {
  int frames = 0;
  for (zmq::message_t id, header; frames < kFramesATurn; ++frames) {
    if (!listening_.recv(id, zmq::recv_flags::dontwait)) break;
    if (!id.more() || !listening_.recv(header, zmq::recv_flags::dontwait)) continue;
    const bool is_whole = take_bulk(listening_, header.more());
    const std::string_view key =
        authorizer_.has_keys() ? property(header, "User-Id") : std::string_view();
    // ZeroMQ lets in every connection if the authorizer does not answer
    if (authorizer_.has_keys() && key.empty()) {
      router_->dropped("a message without a key");
      continue;
    }
    const Connection connection =
        connection_of({static_cast<const char*>(id.data()), id.size()}, key, header);
    if (is_whole) router_->frame(connection, bytes_of(header), bytes_of(second_));
    else router_->dropped("a message of more than two parts");
    after_frame_();
    // A stranger that sent nothing of use is not remembered.
    if (!router_->knows(connection)) close(connection);
  }
  return frames > 0;
}

bool ZeroMqLink::receive_from(Connection connection) {
  int frames = 0;
  for (zmq::message_t header; frames < kFramesATurn; ++frames) {
    const auto found = outbound_.find(connection);  // a wire frame may end it
    if (found == outbound_.end() || !found->second.socket().recv(header, zmq::recv_flags::dontwait))
      break;
    if (take_bulk(found->second.socket(), header.more()))
      router_->frame(connection, bytes_of(header), bytes_of(second_));
    else router_->dropped("a message of more than two parts");
    after_frame_();
  }
  return frames > 0;
}

/// Reads the second part into second_; returns false if there are more than two.
bool ZeroMqLink::take_bulk(zmq::socket_t& socket, bool is_there) {
  second_.rebuild();
  if (!is_there) return true;
  [[maybe_unused]] const auto got = socket.recv(second_, zmq::recv_flags::dontwait);
  if (!second_.more()) return true;
  zmq::message_t surplus;
  do {
    if (!socket.recv(surplus, zmq::recv_flags::dontwait)) break;
  } while (surplus.more());
  return false;
}

// ---- failures

bool ZeroMqLink::report_failures() {
  if (failures_.empty()) return false;
  for (const auto& [connection, why] : std::exchange(failures_, {})) {
    router_->broken(connection, why);
    close(connection);
  }
  return true;
}

void ZeroMqLink::watch() {
  was_asked_ = false;
  for (auto& [connection, d] : outbound_) {
    const std::size_t before = d.sockets();
    try {
      if (Status over = d.watch(now()); !over.ok())
        failures_.emplace_back(connection, std::move(over));
    } catch (const zmq::error_t& e) {
      failures_.emplace_back(connection, Status(Code::unavailable, e.what()));
    }
    if (d.sockets() != before) has_new_sockets_ = true;
  }
  if (authorizer_.watch(now()))
    router_->expel([this](const std::string& key) { return !authorizer_.knows(key); });
  report_failures();
  count_broken_off();
  log_losses();
}

void ZeroMqLink::log_losses() {
  drop_log_.tell(now(), router_->traffic().dropped, options_.log, [&](std::uint64_t more) {
    return fmt::format("dropped {} of what came here, {} in all; the last was {}", more,
                       router_->traffic().dropped, router_->last_drop());
  });
  break_log_.tell(now(), broken_off_, options_.log, [&](std::uint64_t more) {
    return fmt::format(
        "connections that ended in the middle of a session: {}, {} in all; the peer or the network "
        "failed, or it announced more than is accepted",
        more, broken_off_);
  });
}

// ZeroMQ closes a connection that announces an oversized message; its event looks like a normal
// disconnect. The Bye of a peer that leaves has been read by the time this counts.
void ZeroMqLink::ended(Connection connection) {
  if (const Peer peer = router_->in_session(connection))
    ended_.emplace_back(peer, now() + kFarewellRead);
}

void ZeroMqLink::count_broken_off() {
  for (; !ended_.empty() && ended_.front().second <= now(); ended_.pop_front())
    broken_off_ += router_->is_in_session(ended_.front().first);
}

Time ZeroMqLink::due() const {
  Time due = Time::max();
  for (const auto& [connection, d] : outbound_) due = std::min(due, d.due());
  return due;
}

std::vector<int> ZeroMqLink::descriptors() {
  std::vector<int> all;
  const auto add_socket = [&](void* socket) {
    int fd = -1;
    std::size_t size = sizeof fd;
    zmq_getsockopt(socket, ZMQ_FD, &fd, &size);
    all.push_back(fd);
  };
  if (listening_) add_socket(listening_.handle());
  for (void* handle : authorizer_.handles()) add_socket(handle);
  for (auto& [connection, d] : outbound_) {
    add_socket(d.socket().handle());
    add_socket(d.monitor());
    // watched as they are; two of one name may have the same
    if (d.bell() >= 0) all.push_back(d.bell());
  }
  return all;
}

}  // namespace troupe
