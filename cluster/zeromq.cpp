#include <troupe/cluster/zeromq.hpp>

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <variant>

#include <malloc.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <fmt/format.h>
#include <zmq.hpp>

#include <troupe/cluster/bulk_channels.hpp>
#include <troupe/cluster/tcp_socket.hpp>

namespace troupe {

namespace {

constexpr std::int64_t kFrameBytes = 16 << 20;   // ZeroMQ refuses larger parts: no frame of ours comes near
constexpr int kTurn = 64;               // frames taken from one socket before the others have their turn
constexpr unsigned kLook = 8;           // turns from one look at sockets that are not busy to the next
constexpr auto kTick = std::chrono::milliseconds(1);
constexpr std::uint64_t kSmall = 32 << 10;               // bytes of a message whose arrival is waited for awake
constexpr auto kCrowded = std::chrono::microseconds(50);  // others had the core for so long when it was offered
constexpr auto kCrowdedFor = std::chrono::milliseconds(20);
constexpr int kLinger = 500;            // ms, for the last frame of a connection that ends well

struct ConnectRequest {
  std::string address;
};
struct SendRequest {
  Peer peer;
  Lane lane;
  Message message;
};
struct DisconnectRequest {
  Peer peer;
  Status why;
};
struct LeaveRequest {};
using Request = std::variant<ConnectRequest, SendRequest, DisconnectRequest, LeaveRequest>;

/// ZeroMQ's thread allocates a block for each chunk that arrives. As malloc is, it gives freed ones back to the system
/// as soon as a few lie together, and a quarter of all pages were fetched anew; each costs more than its transfer.
void keep_freed_chunks() {
  static std::once_flag once;
  std::call_once(once, [] {
    mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most it accepts
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    mallopt(M_TOP_PAD, 16 << 20);
  });
}

std::span<const std::byte> bytes_of(const zmq::message_t& m) { return {static_cast<const std::byte*>(m.data()), m.size()}; }

/// A part that refers to the frame's memory, which ZeroMQ's thread releases.
zmq::message_t part(const Ref<OutFrame>& frame, const void* data, std::size_t bytes) {
  if (bytes <= 32) return zmq::message_t(data, bytes);  // it lies in ZeroMQ's handle
  frame->retain();
  return zmq::message_t(
      const_cast<void*>(data), bytes, [](void*, void* hint) { static_cast<OutFrame*>(hint)->release(); }, frame.get());
}

/// Requests from any thread to the router's. A thread that is about to block says so, looks once more, and blocks; who
/// puts a request in first, and finds it said, rings: in the order of the seq_cst operations one of the two sees the other.
class RequestQueue {
 public:
  RequestQueue() : bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (bell_.get() < 0) throw Error(Code::resource_exhausted, "no descriptor is left for an eventfd");
  }
  void put(Request request) {
    {
      std::lock_guard lock(mutex_);
      if (is_closed_) return;
      waiting_.push_back(std::move(request));
      is_empty_.store(false, std::memory_order_seq_cst);
    }
    if (is_asleep_.load(std::memory_order_seq_cst) && is_asleep_.exchange(false, std::memory_order_seq_cst)) {
      const std::uint64_t one = 1;
      [[maybe_unused]] const auto written = write(bell_.get(), &one, sizeof one);
    }
  }
  /// Nobody takes requests any more: those that wait are dropped, and so are others.
  void close() {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
    waiting_.clear();
  }
  /// All that wait, into `out`, which is empty.
  void take(std::vector<Request>& out) {
    if (is_empty_.load(std::memory_order_seq_cst)) return;
    std::lock_guard lock(mutex_);
    out.swap(waiting_);
    is_empty_.store(true, std::memory_order_seq_cst);
  }
  /// False: there is a request, do not block.
  bool fall_asleep() {
    is_asleep_.store(true, std::memory_order_seq_cst);
    if (is_empty_.load(std::memory_order_seq_cst)) return true;
    wake_up();
    return false;
  }
  void wake_up() {
    is_asleep_.store(false, std::memory_order_seq_cst);
    std::uint64_t rings;
    [[maybe_unused]] const auto got = read(bell_.get(), &rings, sizeof rings);
  }
  int bell() const { return bell_.get(); }

 private:
  OwnedDescriptor bell_;
  std::mutex mutex_;
  std::vector<Request> waiting_;
  bool is_closed_ = false;
  std::atomic<bool> is_empty_{true};    // hint for the taker; what it takes is guarded by the mutex
  std::atomic<bool> is_asleep_{false};  // the taker blocks, or is about to
};

class ZeroMqTransport final : public Transport, private Carrier {
 public:
  ZeroMqTransport(PeerInfo self, ZeroMqOptions options) : self_(std::move(self)), options_(std::move(options)), context_(1) {
    if (self_.engine.empty()) self_.engine = engine_version();
    keep_freed_chunks();
    context_.set(zmq::ctxopt::max_sockets, context_.get(zmq::ctxopt::socket_limit));
  }
  ~ZeroMqTransport() override { stop(); }

  void start(TransportListener& listener) override {
    if (router_) throw Error(Code::failed_precondition, "the transport was started before");
    bool is_port_chosen = false;
    if (!self_.address.empty()) {
      check_reach(self_.address);
      ListeningSocket at = listen_at(self_.address, options_.congestion);
      listening_ = zmq::socket_t(context_, zmq::socket_type::router);
      configure(listening_);
      listening_.set(zmq::sockopt::router_mandatory, 1);
      const int fd = at.fd.get();
      if (zmq_setsockopt(listening_.handle(), ZMQ_USE_FD, &fd, sizeof fd) != 0) throw Error(Code::internal, "ZeroMQ takes no socket");
      listening_.bind(at.address);
      at.fd.release();  // ZeroMQ closes it
      is_port_chosen = !self_.address.ends_with(":0");
      self_.address = at.address;
    }
    options_.router.session_seed = static_cast<std::uint64_t>(now().count());
    router_ = std::make_unique<Router>(self_, options_.router, static_cast<Carrier&>(*this), listener);
    if (options_.bulk) {
      bulk_.emplace(*router_, static_cast<const Carrier&>(*this),
                    BulkSocketOptions{.port = options_.bulk_port, .port_outside = options_.bulk_port_outside, .congestion = options_.congestion, .stall = options_.router.silence, .shared_memory = options_.shared_memory});
      if (!self_.address.empty()) bulk_->listen(self_.address, is_port_chosen);
    }
    thread_ = std::thread([this] { run(); });
  }

  void stop() override {
    if (!thread_.joinable()) return;
    requests_.put(LeaveRequest{});
    thread_.join();
  }

  std::string address() const override { return self_.address; }
  void connect(const std::string& address) override { requests_.put(ConnectRequest{address}); }
  void send(Peer peer, Lane lane, Message message) override {
    check_sendable(message);
    requests_.put(SendRequest{peer, lane, std::move(message)});
  }
  void disconnect(Peer peer, const Status& why) override { requests_.put(DisconnectRequest{peer, why}); }

  TransportCounters counters() const override {
    if (!router_) return {};
    std::unique_lock lock(turn_, std::defer_lock);
    if (thread_.get_id() != std::this_thread::get_id()) lock.lock();
    TransportCounters all = router_->counters();
    if (bulk_) all.copied_bytes += bulk_->copied_bytes();
    return all;
  }

 private:
  struct Dialled {
    zmq::socket_t socket, monitor;
    std::string address;
    bool is_connected = false;
  };

  void check_reach(const std::string& address) const {
    if (!options_.allow_remote && !is_loopback(address))
      throw Error(Code::failed_precondition, fmt::format("{} is not on loopback, and nothing would be encrypted", address));
  }

  static void configure(zmq::socket_t& socket) {
    socket.set(zmq::sockopt::sndhwm, 0);  // the window bounds what is handed over
    socket.set(zmq::sockopt::rcvhwm, 1000);
    socket.set(zmq::sockopt::maxmsgsize, kFrameBytes);
    socket.set(zmq::sockopt::tcp_keepalive, 1);
    socket.set(zmq::sockopt::linger, kLinger);
  }

  // ---- Carrier

  Time now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }

  Connection dial(const std::string& address) override {
    const Connection connection = next_++;
    try {
      check_reach(address);
      Dialled d{zmq::socket_t(context_, zmq::socket_type::dealer), zmq::socket_t(context_, zmq::socket_type::pair), address};
      configure(d.socket);
      d.socket.set(zmq::sockopt::reconnect_ivl, -1);
      const std::string events = fmt::format("inproc://monitor-{}", connection);
      zmq_socket_monitor(d.socket.handle(), events.c_str(), ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_CONNECT_RETRIED);
      d.monitor.connect(events);
      d.socket.connect(address);
      dialled_.emplace(connection, std::move(d));
      pollers_are_stale_ = true;
    } catch (const Error& e) {
      failures_.emplace_back(connection, Status(e));
    } catch (const zmq::error_t& e) {
      failures_.emplace_back(connection, Status(Code::unavailable, fmt::format("{}: {}", address, e.what())));
    }
    return connection;
  }

  bool send(Connection connection, const Ref<OutFrame>& frame) override {
    const bool has_bulk = frame->bulk_bytes != 0;
    const auto more = zmq::send_flags::dontwait | zmq::send_flags::sndmore;
    try {
      zmq::socket_t* socket = &listening_;
      if (const auto found = dialled_.find(connection); found != dialled_.end()) {
        socket = &found->second.socket;
      } else {
        const auto id = routing_ids_.find(connection);
        if (id == routing_ids_.end()) return false;
        if (!socket->send(zmq::const_buffer(id->second.data(), id->second.size()), more)) return false;
      }
      zmq::message_t header = part(frame, frame->header.data(), frame->header.size());
      if (!socket->send(header, has_bulk ? more : zmq::send_flags::dontwait)) return false;
      if (!has_bulk) return true;
      zmq::message_t bulk = part(frame, frame->bulk, frame->bulk_bytes);
      return socket->send(bulk, zmq::send_flags::dontwait).has_value();
    } catch (const zmq::error_t&) {
      return false;  // EHOSTUNREACH: the peer's connection is gone
    }
  }

  void close(Connection connection) override {
    if (bulk_) bulk_->close(connection);
    if (const auto found = dialled_.find(connection); found != dialled_.end()) {
      Dialled& d = found->second;
      if (!d.is_connected) d.socket.set(zmq::sockopt::linger, 0);
      zmq_socket_monitor(d.socket.handle(), nullptr, 0);
      dialled_.erase(found);
      pollers_are_stale_ = true;
    } else if (const auto id = routing_ids_.find(connection); id != routing_ids_.end()) {
      by_routing_id_.erase(id->second);
      routing_ids_.erase(id);
    }
  }

  /// Has the peer proved who it is, and does ZeroMQ encrypt what is said?
  bool is_authenticated(Connection) const { return options_.seal; }

  wire::Bulk ask_for_bulk(Connection connection) override { return bulk_ ? bulk_->ask(connection, is_authenticated(connection)) : wire::Bulk(); }
  wire::Bulk answer_bulk(Connection connection, const wire::Bulk& ask) override {
    return bulk_ ? bulk_->answer(connection, ask, is_authenticated(connection)) : wire::Bulk();
  }
  void open_bulk(Connection connection, const wire::Bulk& answer) override {
    const auto found = dialled_.find(connection);
    if (bulk_ && found != dialled_.end()) bulk_->open(connection, found->second.address, answer);
  }
  bool send_bulk(Connection connection, const Ref<OutFrame>& frame) override { return bulk_->send(connection, frame); }

  // ---- the router's thread

  void run() {
    for (;;) {
      bool worked = false;
      {
        std::lock_guard lock(turn_);
        worked |= serve_requests();
        // A look at sockets costs calls of the kernel, one at shared memory does not.
        const bool looks_everywhere = turns_++ % kLook == 0;
        if (looks_everywhere || !shares_memory()) worked |= receive();
        bulk_is_busy_ = bulk_ && bulk_->work(looks_everywhere || bulk_is_busy_);
        worked |= bulk_is_busy_;
        worked |= report_failures();
        const Time t = now();
        if (t >= next_tick_) {
          watch();
          router_->tick();
          next_tick_ = t + kTick;
        }
        if (is_leaving_ && router_->is_idle()) break;
        worked = worked || !has_rested(t);
      }
      if (!worked) block();
    }
    requests_.close();
    dialled_.clear();
    if (listening_) listening_.close();
    if (bulk_) bulk_->stop();
  }

  bool shares_memory() const { return bulk_ && bulk_->shares_memory(); }

  /// Is it time to block? Small messages are worth waiting for awake: a wake-up takes longer than they do. Chunks of large
  /// ones are not, and take the core from ZeroMQ's thread, unless they come by shared memory; nor is anything if other threads
  /// want the core too.
  bool has_rested(Time t) {
    const TransportCounters& c = router_->traffic();
    const std::uint64_t messages = c.messages_in + c.messages_out, bytes = c.bytes_in + c.bytes_out;
    if (messages != messages_) {
      const bool is_small = bytes - bytes_ < (messages - messages_) * kSmall || shares_memory();
      messages_ = messages;
      bytes_ = bytes;
      rest_at_ = is_small && t >= crowded_until_ ? t + options_.spin : t;
      return false;
    }
    if (t >= rest_at_) return true;
    std::this_thread::yield();
    if (now() - t > kCrowded) {
      crowded_until_ = t + kCrowdedFor;
      rest_at_ = t;
    }
    return false;
  }

  bool serve_requests() {
    requests_.take(taken_);
    for (Request& request : taken_) std::visit([this](auto& r) { serve(r); }, request);
    const bool any = !taken_.empty();
    taken_.clear();
    if (any) router_->flush();
    return any;
  }
  void serve(ConnectRequest& r) { router_->connect(r.address); }
  void serve(SendRequest& r) { router_->send(r.peer, r.lane, std::move(r.message)); }
  void serve(DisconnectRequest& r) { router_->disconnect(r.peer, r.why); }
  void serve(LeaveRequest&) {
    is_leaving_ = true;
    router_->leave();
  }

  bool receive() {
    bool any = false;
    if (listening_) any |= receive_from_listening();
    arrivals_.clear();
    for (const auto& [connection, d] : dialled_) arrivals_.push_back(connection);
    for (const Connection connection : arrivals_) any |= receive_from(connection);
    return any;
  }

  bool receive_from_listening() {
    int frames = 0;
    for (zmq::message_t id, header; frames < kTurn; ++frames) {
      if (!listening_.recv(id, zmq::recv_flags::dontwait)) break;
      if (!id.more() || !listening_.recv(header, zmq::recv_flags::dontwait)) continue;
      const bool is_whole = take_bulk(listening_, header.more());
      const std::string_view name(static_cast<const char*>(id.data()), id.size());
      const Connection connection = connection_of(name);
      if (is_whole)
        router_->frame(connection, bytes_of(header), bytes_of(second_));
      else
        router_->dropped();
      serve_requests();  // an answer goes out before we look for more: each look costs a call of the kernel
      // A stranger that said nothing of use is not remembered.
      if (!router_->knows(connection)) close(connection);
    }
    return frames > 0;
  }

  bool receive_from(Connection connection) {
    int frames = 0;
    for (zmq::message_t header; frames < kTurn; ++frames) {
      const auto found = dialled_.find(connection);  // a frame may end it
      if (found == dialled_.end() || !found->second.socket.recv(header, zmq::recv_flags::dontwait)) break;
      if (take_bulk(found->second.socket, header.more()))
        router_->frame(connection, bytes_of(header), bytes_of(second_));
      else
        router_->dropped();
      serve_requests();
    }
    return frames > 0;
  }

  /// The second part into second_; false if there are more than two.
  bool take_bulk(zmq::socket_t& socket, bool is_there) {
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

  Connection connection_of(std::string_view routing_id) {
    const auto [found, is_new] = by_routing_id_.try_emplace(std::string(routing_id), next_);
    if (is_new) routing_ids_.emplace(next_++, found->first);
    return found->second;
  }

  bool report_failures() {
    if (failures_.empty()) return false;
    const auto failures = std::exchange(failures_, {});
    for (const auto& [connection, why] : failures) router_->broken(connection, why);
    return true;
  }

  /// What ZeroMQ says of the connections that were dialled.
  void watch() {
    for (auto& [connection, d] : dialled_) {
      zmq::message_t event, where;
      while (d.monitor.recv(event, zmq::recv_flags::dontwait)) {
        [[maybe_unused]] const auto got = d.monitor.recv(where, zmq::recv_flags::dontwait);
        std::uint16_t what;
        std::int32_t value;
        if (event.size() < sizeof what + sizeof value) continue;
        std::memcpy(&what, event.data(), sizeof what);
        std::memcpy(&value, static_cast<const char*>(event.data()) + sizeof what, sizeof value);
        if (what == ZMQ_EVENT_CONNECTED) {
          d.is_connected = true;
          set_congestion(value, options_.congestion);
        } else if (d.is_connected && what == ZMQ_EVENT_DISCONNECTED) {
          failures_.emplace_back(connection, Status(Code::unavailable, fmt::format("the connection to {} broke", d.address)));
        } else if (!d.is_connected && what != ZMQ_EVENT_DISCONNECTED) {
          failures_.emplace_back(connection, Status(Code::unavailable, fmt::format("nobody answers at {}", d.address)));
        }
      }
    }
    for (const auto& [connection, why] : std::exchange(failures_, {})) {
      router_->broken(connection, why);
      close(connection);
    }
  }

  void block() {
    if (pollers_are_stale_) {
      pollers_ = {{nullptr, requests_.bell(), ZMQ_POLLIN, 0}};
      if (bulk_) pollers_.push_back({nullptr, bulk_->descriptor(), ZMQ_POLLIN, 0});
      if (listening_) pollers_.push_back({listening_.handle(), 0, ZMQ_POLLIN, 0});
      for (auto& [connection, d] : dialled_) {
        pollers_.push_back({d.socket.handle(), 0, ZMQ_POLLIN, 0});
        pollers_.push_back({d.monitor.handle(), 0, ZMQ_POLLIN, 0});
      }
      pollers_are_stale_ = false;
    }
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(router_->due() - now());
    const long ms = std::clamp<long>(static_cast<long>(wait.count()), 0, 1000);
    if (!requests_.fall_asleep()) return;
    if (!bulk_ || bulk_->fall_asleep()) zmq_poll(pollers_.data(), static_cast<int>(pollers_.size()), ms);
    if (bulk_) bulk_->wake_up();
    requests_.wake_up();
    next_tick_ = Time::zero();
    turns_ = 0;  // what woke us may be a socket
  }

  PeerInfo self_;
  ZeroMqOptions options_;
  zmq::context_t context_;
  RequestQueue requests_;
  std::thread thread_;
  mutable std::mutex turn_;  // guards router_ while the router's thread works; others only read its counters

  // Of the router's thread.
  std::unique_ptr<Router> router_;
  std::optional<BulkChannels> bulk_;
  zmq::socket_t listening_;
  std::map<Connection, Dialled> dialled_;
  std::unordered_map<Connection, std::string> routing_ids_;  // of those that were accepted
  std::unordered_map<std::string, Connection> by_routing_id_;
  Connection next_ = 1;
  std::vector<std::pair<Connection, Status>> failures_;
  std::vector<Request> taken_;
  std::vector<Connection> arrivals_;
  zmq::message_t second_;
  std::vector<zmq_pollitem_t> pollers_;
  bool pollers_are_stale_ = true;
  bool is_leaving_ = false;
  unsigned turns_ = 0;
  bool bulk_is_busy_ = false;  // it did something in the last turn
  Time next_tick_{}, rest_at_{}, crowded_until_{};
  std::uint64_t messages_ = 0, bytes_ = 0;  // as of the last turn that moved any
};

}  // namespace

std::unique_ptr<Transport> make_zeromq_transport(PeerInfo self, ZeroMqOptions options) {
  return std::unique_ptr<Transport>(new ZeroMqTransport(std::move(self), std::move(options)));
}

}  // namespace troupe
