#include <troupe/cluster/transport/zeromq/zeromq.hpp>

#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include <malloc.h>
#include <sys/epoll.h>

#include <fmt/format.h>
#include <zmq.hpp>

#include <troupe/cluster/transport/channel/bulk_channels.hpp>
#include <troupe/cluster/transport/channel/direct_lines.hpp>
#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/cluster/transport/zeromq/dialled.hpp>
#include <troupe/cluster/transport/zeromq/gate.hpp>
#include <troupe/cluster/transport/zeromq/request_queue.hpp>
#include <troupe/cluster/transport/zeromq/wakefulness.hpp>
#include <troupe/cluster/transport/zeromq/zeromq_socket.hpp>
#include <troupe/devices/base/spin.hpp>

namespace troupe {

namespace {

// what is smaller is gathered, and so copied all the same
constexpr std::size_t kLeastLent = 16 << 10;
// after what came before the end of a connection was there
constexpr Time kFarewellRead = std::chrono::milliseconds(100);
// frames taken from one socket before the others have their turn
constexpr int kFramesATurn = 64;
// from one look at sockets that have nothing to say to the next
constexpr auto kIdleLook = std::chrono::microseconds(100);
constexpr std::uint32_t kBell = 0, kBulk = 1, kZeroMq = 2;  // what wakes the thread
constexpr auto kTick = std::chrono::milliseconds(1);
constexpr std::size_t kRingLooks = 40;  // at one channel's memory
constexpr std::size_t kInARow = 16;     // records, until others have their turn

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

/// What ZeroMQ knows of the connection that a message came by; empty: nothing.
std::string_view property(zmq::message_t& message, const char* name) {
  const char* text = zmq_msg_gets(message.handle(), name);
  return text ? text : std::string_view();
}

std::span<const std::byte> bytes_of(const zmq::message_t& m) {
  return {static_cast<const std::byte*>(m.data()), m.size()};
}

class ZeroMqTransport final : public Transport, private Carrier {
 public:
  ZeroMqTransport(PeerInfo self, ZeroMqOptions options)
      : self_(std::move(self)), options_(std::move(options)), context_(1),
        gate_(self_.name, std::exchange(options_.keys, {}), options_.log,
              [this](Connection c) { ended(c); }) {
    if (self_.engine.empty()) self_.engine = engine_version();
    keep_freed_chunks();
    context_.set(zmq::ctxopt::max_sockets, context_.get(zmq::ctxopt::socket_limit));
  }
  ~ZeroMqTransport() override { stop(); }

  void start(TransportListener& listener) override {
    if (router_) throw Error(Code::failed_precondition, "the transport was started before");
    gate_.open(context_);
    bool is_port_chosen = false;
    if (!self_.address.empty()) {
      gate_.check_reach(self_.address);
      ListeningSocket at = listen_at(self_.address, options_.congestion);
      listening_ = zmq::socket_t(context_, zmq::socket_type::router);
      configure(listening_, options_.router.answer);
      gate_.guard(context_, listening_);
      listening_.set(zmq::sockopt::router_mandatory, 1);
      const int fd = at.fd.get();
      if (zmq_setsockopt(listening_.handle(), ZMQ_USE_FD, &fd, sizeof fd) != 0)
        throw Error(Code::internal, "ZeroMQ takes no socket");
      listening_.bind(at.address);
      at.fd.release();  // ZeroMQ closes it
      is_port_chosen = !self_.address.ends_with(":0");
      self_.address = at.address;
    }
    options_.router.session_seed = static_cast<std::uint64_t>(now().count());
    router_ =
        std::make_unique<Router>(self_, options_.router, static_cast<Carrier&>(*this), listener);
    if (options_.bulk) {
      if (seals()) seal_ciphers();  // says here, to who opens the transport, that there are none
      bulk_.emplace(*router_, static_cast<const Carrier&>(*this), lines_,
                    BulkSocketOptions{.port = options_.bulk_port,
                                      .port_outside = options_.bulk_port_outside,
                                      .congestion = options_.congestion,
                                      .stall = options_.router.away,
                                      .shared_memory = options_.shared_memory,
                                      .slab_bytes = options_.slab_bytes,
                                      .seal_boxes = options_.seal_boxes});
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
    const auto pass = [&] {
      // A listener's answer goes with what its turn sends, unless something that was sent before it
      // waits.
      if (running_ == this && taken_.empty() && requests_.is_empty())
        router_->send(peer, lane, std::move(message));
      else requests_.put(SendRequest{peer, lane, std::move(message)});
    };
    if (lane == Lane::data) lines_.in_order(peer, pass);
    else pass();
  }
  bool send_direct(Peer peer, std::span<const std::byte> record, bool may_wait) override {
    return lines_.send(peer, record, may_wait);
  }
  void flush(Peer peer) override {
    if (running_ == this) router_->flush(peer);
  }
  Tensor empty_for(Peer peer, DType dtype, const Shape& shape) override {
    std::unique_lock lock(turn_, std::defer_lock);
    if (running_ != this) lock.lock();
    const Ref<LendingSlab> slab =
        bulk_ ? bulk_->slab(router_->connection_of(peer)) : Ref<LendingSlab>();
    if (lock) lock.unlock();
    std::size_t bytes = 0;
    const bool is_sane =
        shape.is_known() &&
        !__builtin_mul_overflow(static_cast<std::size_t>(shape.elements()), size_of(dtype), &bytes);
    Ref<Buffer> memory =
        is_sane && slab && bytes > kLeastLent ? slab->allocate(bytes) : Ref<Buffer>();
    return memory ? Tensor::on_buffer(std::move(memory), 0, nullptr, dtype, shape)
                  : Tensor::empty(dtype, shape);
  }
  void disconnect(Peer peer, const Status& why) override {
    requests_.put(DisconnectRequest{peer, why});
  }

  TransportCounters counters() const override {
    if (!router_) return {};
    if (running_ == this) return count();
    std::lock_guard lock(turn_);
    return count();
  }
  std::vector<PeerCounters> peers() const override {
    if (!router_) return {};
    std::unique_lock lock(turn_, std::defer_lock);
    if (running_ != this) lock.lock();
    std::vector<PeerCounters> all = router_->peers();
    lines_.count(all);
    return all;
  }

 private:
  /// Who was accepted, by the routing id that ZeroMQ tells with each message, and by the key that
  /// was proved.
  struct Accepted {
    Connection connection;
    std::string key, host;
  };

  TransportCounters count() const {
    TransportCounters all = router_->counters();
    all.turned_away = gate_.turned_away();
    all.broken_off = broken_off_;
    lines_.count(all);
    if (bulk_) all.copied_bytes += bulk_->copied_bytes();
    return all;
  }

  // ---- Carrier

  Time now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }

  Connection dial(const std::string& address) override {
    was_asked_ = false;
    const Connection connection = next_++;
    try {
      dialled_.try_emplace(connection, context_, gate_, lookups_, options_, connection, address,
                           now());
      sockets_are_stale_ = true;
    } catch (const Error& e) {
      failures_.emplace_back(connection, Status(e));
    } catch (const zmq::error_t& e) {
      failures_.emplace_back(connection,
                             Status(Code::unavailable, fmt::format("{}: {}", address, e.what())));
    }
    return connection;
  }

  bool send(Connection connection, const Ref<OutFrame>& frame) override {
    was_asked_ = false;
    try {
      if (const auto found = dialled_.find(connection); found != dialled_.end())
        return found->second.send(frame);
      const auto id = routing_ids_.find(connection);
      if (id == routing_ids_.end()) return false;
      const zmq::const_buffer to(id->second.data(), id->second.size());
      return listening_.send(to, zmq::send_flags::dontwait | zmq::send_flags::sndmore) &&
             send_frame(listening_, frame);
    } catch (const zmq::error_t&) {
      return false;  // EHOSTUNREACH: the peer's connection is gone
    }
  }

  void close(Connection connection) override {
    if (bulk_) bulk_->close(connection);
    if (dialled_.erase(connection) != 0) {
      sockets_are_stale_ = true;
    } else if (const auto id = routing_ids_.find(connection); id != routing_ids_.end()) {
      accepted_.erase(id->second);
      routing_ids_.erase(id);
    }
  }

  std::string key_of(Connection connection) const override {
    if (const auto found = dialled_.find(connection); found != dialled_.end())
      return found->second.key();
    const auto id = routing_ids_.find(connection);
    return id == routing_ids_.end() ? std::string() : accepted_.at(id->second).key;
  }

  /// Who listens at all addresses of its machine is reached at the one it was seen with.
  std::string reachable(Connection connection, const std::string& told) const override {
    if (!is_any_host(told)) return told;
    if (const auto found = dialled_.find(connection); found != dialled_.end())
      return with_host(told, host_of(found->second.address_of_node()));
    const auto id = routing_ids_.find(connection);
    return id == routing_ids_.end() ? told : with_host(told, accepted_.at(id->second).host);
  }

  Status admits(Connection connection, const std::string& name) const override {
    return gate_.admits(key_of(connection), name);
  }

  /// With keys nothing is said or heard before both ends have proved theirs, so every Hello is
  /// between two that have, and encrypted.
  bool seals() const { return options_.seal || gate_.has_keys(); }

  wire::Bulk ask_for_bulk(Connection connection) override {
    return bulk_ ? bulk_->ask(connection, seals()) : wire::Bulk();
  }
  wire::Bulk answer_bulk(Connection connection, const wire::Bulk& ask) override {
    return bulk_ ? bulk_->answer(connection, ask, seals()) : wire::Bulk();
  }
  void open_bulk(Connection connection, const wire::Bulk& answer) override {
    const auto found = dialled_.find(connection);
    if (bulk_ && found != dialled_.end() && !found->second.reached().empty())
      bulk_->open(connection, found->second.reached(), answer);
  }
  bool send_bulk(Connection connection, const Ref<OutFrame>& frame) override {
    return bulk_->send(connection, frame);
  }
  void session_opened(Peer peer) override { lines_.opened(peer); }
  void session_over(Peer peer) override { lines_.over(peer); }

  // ---- the router's thread

  void run() {
    running_ = this;
    for (;;) {
      bool worked = false;
      {
        std::lock_guard lock(turn_);
        worked |= serve_requests();
        const Time t = now();
        // A look at sockets costs calls of the kernel, and over ZeroMQ's hardly anything comes once
        // all have channels.
        const bool is_beside = bulk_ && bulk_->channels() >= dialled_.size() + routing_ids_.size();
        const bool looks_everywhere = t >= next_look_ || !is_beside;
        if (looks_everywhere) {
          worked |= receive();
          next_look_ = t + kIdleLook;
        }
        const bool has_moved = bulk_ && bulk_->work(looks_everywhere || bulk_->has_sockets() ||
                                                    std::exchange(bulk_rang_, false));
        if (has_moved && is_beside) awake_.expect(t);
        worked |= has_moved;
        worked |= report_failures();
        if (t >= next_tick_) {
          watch();
          router_->tick();
          next_tick_ = t + kTick;
        }
        if (is_leaving_ && router_->is_idle()) break;
        worked = worked || !has_rested(t, is_beside) || !is_quiet();
        router_->flush();
        worked = worked || !was_asked_;  // what was sent may have taken the news from a socket
      }
      if (!worked) block();
    }
    requests_.close();
    dialled_.clear();
    if (listening_) listening_.close();
    if (bulk_) bulk_->stop();
  }

  /// Have ZeroMQ's sockets nothing to say, and will their descriptors tell when they have? These
  /// tell of what is new since a socket was last asked until it had nothing; and whatever is done
  /// with a socket may take the news from them.
  bool is_quiet() {
    if (was_asked_) return true;
    watch();
    was_asked_ = true;
    return !receive() && was_asked_;
  }

  bool shares_memory() const { return bulk_ && bulk_->shares_memory(); }

  /// Is it time to block? Small messages are worth waiting for awake: a wake-up takes longer than
  /// they do. So are the chunks of large ones where all goes beside ZeroMQ; else they are not, and
  /// to look for them takes the core from ZeroMQ's thread. Nor is anything if other threads want
  /// the core too.
  bool has_rested(Time t, bool is_beside) {
    const TransportCounters& c = router_->traffic();
    if (awake_.has_moved(t, c.messages_out + c.messages_in, c.bytes_out + c.bytes_in,
                         is_beside || shares_memory()))
      return false;
    if (awake_.has_rested(t)) return true;
    if (has_come_soon()) return false;
    std::this_thread::yield();
    awake_.yielded(t, now());
    return false;
  }

  /// Has something come by shared memory in about the time that a yield takes, which is blind
  /// meanwhile? Where mostly nothing did, as when there are more processes than cores, it is waited
  /// for so once in a while only. Records are heard here and now, a few in a row, for the next is
  /// often their answer's answer: a turn around all that there is to look at takes as long as a
  /// fifth of what they do.
  bool has_come_soon() {
    if (!shares_memory() || !awake_.is_patient()) return false;
    const std::size_t looks = kRingLooks / bulk_->rings();
    std::size_t heard = 0;
    for (std::size_t left = looks; left > 0 && heard < kInARow; --left) {
      if (const std::size_t n = bulk_->take_direct(kInARow - heard)) {
        router_->flush();
        heard += n;
        left = looks;
      }
      if (bulk_->has_news() || !requests_.is_empty()) {
        awake_.looked(true);
        return true;
      }
      pause_core();
    }
    awake_.looked(heard != 0);
    return heard != 0;
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
    if (any) was_asked_ = false;  // not to the end, perhaps
    return any;
  }

  bool receive_from_listening() {
    int frames = 0;
    for (zmq::message_t id, header; frames < kFramesATurn; ++frames) {
      if (!listening_.recv(id, zmq::recv_flags::dontwait)) break;
      if (!id.more() || !listening_.recv(header, zmq::recv_flags::dontwait)) continue;
      const bool is_whole = take_bulk(listening_, header.more());
      const std::string_view key =
          gate_.has_keys() ? property(header, "User-Id") : std::string_view();
      // ZeroMQ would let in whoever comes if the gate did not answer
      if (gate_.has_keys() && key.empty()) {
        router_->dropped("a message without a key");
        continue;
      }
      const Connection connection =
          connection_of({static_cast<const char*>(id.data()), id.size()}, key, header);
      if (is_whole) router_->frame(connection, bytes_of(header), bytes_of(second_));
      else router_->dropped("a message of more than two parts");
      // an answer goes out before we look for more: each look costs a call of the kernel
      if (!serve_requests()) router_->flush();
      // A stranger that said nothing of use is not remembered.
      if (!router_->knows(connection)) close(connection);
    }
    return frames > 0;
  }

  bool receive_from(Connection connection) {
    int frames = 0;
    for (zmq::message_t header; frames < kFramesATurn; ++frames) {
      const auto found = dialled_.find(connection);  // a frame may end it
      if (found == dialled_.end() ||
          !found->second.socket().recv(header, zmq::recv_flags::dontwait))
        break;
      if (take_bulk(found->second.socket(), header.more()))
        router_->frame(connection, bytes_of(header), bytes_of(second_));
      else router_->dropped("a message of more than two parts");
      if (!serve_requests()) router_->flush();
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

  /// Whoever connects chooses its routing id, its key it does not: another key is another
  /// connection.
  Connection connection_of(std::string_view routing_id, std::string_view key,
                           zmq::message_t& message) {
    std::string id(routing_id);
    if (const auto found = accepted_.find(id); found != accepted_.end()) {
      const Connection before = found->second.connection;
      if (found->second.key == key) return before;
      router_->broken(before, Status(Code::unavailable, "another node has taken its place"));
      close(before);
    }
    if (const std::string_view socket = property(message, "__fd"); !socket.empty())
      gate_.heard(std::atoi(socket.data()), next_);
    routing_ids_.emplace(next_, id);
    accepted_.emplace(std::move(id), Accepted{next_, std::string(key),
                                              std::string(property(message, "Peer-Address"))});
    return next_++;
  }

  bool report_failures() {
    if (failures_.empty()) return false;
    const auto failures = std::exchange(failures_, {});
    for (const auto& [connection, why] : failures) {
      router_->broken(connection, why);
      close(connection);
    }
    return true;
  }

  /// What ZeroMQ says of the connections that were dialled, and of those who come to the gate.
  void watch() {
    was_asked_ = false;
    for (auto& [connection, d] : dialled_) {
      const std::size_t before = d.sockets();
      try {
        if (Status over = d.watch(now()); !over.ok())
          failures_.emplace_back(connection, std::move(over));
      } catch (const zmq::error_t& e) {
        failures_.emplace_back(connection, Status(Code::unavailable, e.what()));
      }
      if (d.sockets() != before) sockets_are_stale_ = true;
    }
    if (gate_.watch(now()))
      router_->expel([this](const std::string& key) { return !gate_.knows(key); });
    for (const auto& [connection, why] : std::exchange(failures_, {})) {
      router_->broken(connection, why);
      close(connection);
    }
    count_broken_off();
    told_drops_.tell(now(), router_->traffic().dropped, options_.log, [&](std::uint64_t more) {
      return fmt::format("dropped {} of what came here, {} in all; the last was {}", more,
                         router_->traffic().dropped, router_->last_drop());
    });
    told_breaks_.tell(now(), broken_off_, options_.log, [&](std::uint64_t more) {
      return fmt::format(
          "connections that ended in the middle of a session: {}, {} in all; who it was has died, "
          "or the way to it, or it claimed more than is taken",
          more, broken_off_);
    });
  }

  /// ZeroMQ hangs up on who claims too much, and says no more of that than of who is gone. Who
  /// leaves has said so before, which is read by then.
  void ended(Connection connection) {
    if (const Peer peer = router_->in_session(connection))
      ended_.emplace_back(peer, now() + kFarewellRead);
  }
  void count_broken_off() {
    for (; !ended_.empty() && ended_.front().second <= now(); ended_.pop_front())
      broken_off_ += router_->is_in_session(ended_.front().first);
  }

  /// By one call of the kernel: to ask each socket in turn, as zmq_poll does, takes two for each,
  /// before and after.
  void block() {
    if (sockets_are_stale_) {
      try {
        watch_sockets();
      } catch (const Error&) {  // no descriptor is left; until there is one, it looks by itself
        sleep_ = OwnedDescriptor();
        was_asked_ = false;
        next_tick_ = next_look_ = Time::zero();
        std::this_thread::sleep_for(kIdleLook);
        return;
      }
    }
    Time due = router_->due();
    for (const auto& [connection, d] : dialled_) due = std::min(due, d.due());
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(due - now());
    // ms; that a peer has hung up is looked for, not told
    const long most = is_leaving_ ? 20 : 1000;
    const long ms = std::clamp<long>(static_cast<long>(wait.count()), 0, most);
    if (!requests_.fall_asleep()) return;
    epoll_event events[8];
    int n = 0;
    if (!bulk_ || bulk_->fall_asleep())
      n = epoll_wait(sleep_.get(), events, 8, static_cast<int>(ms));
    if (bulk_) bulk_->wake_up();
    requests_.wake_up();
    next_look_ = now() + kIdleLook;
    if (n == 0) next_tick_ = Time::zero();
    for (int i = 0; i < n; ++i) {
      if (events[i].data.u32 == kBell) requests_.hear();
      bulk_rang_ |= events[i].data.u32 == kBulk;
      if (events[i].data.u32 != kZeroMq) continue;
      was_asked_ = false;
      next_tick_ = next_look_ = Time::zero();
    }
  }

  void watch_sockets() {
    sleep_ = OwnedDescriptor(epoll_create1(EPOLL_CLOEXEC));
    const auto add = [&](int fd, std::uint32_t what) {
      epoll_event event{.events = EPOLLIN, .data = {.u32 = what}};
      if (epoll_ctl(sleep_.get(), EPOLL_CTL_ADD, fd, &event) != 0 && errno != EEXIST)
        throw Error(Code::resource_exhausted, "no descriptor is left to wait with");
    };
    const auto add_socket = [&](void* socket) {
      int fd = -1;
      std::size_t size = sizeof fd;
      zmq_getsockopt(socket, ZMQ_FD, &fd, &size);
      add(fd, kZeroMq);
    };
    add(requests_.bell(), kBell);
    if (bulk_) add(bulk_->descriptor(), kBulk);
    if (listening_) add_socket(listening_.handle());
    for (void* handle : gate_.handles()) add_socket(handle);
    for (auto& [connection, d] : dialled_) {
      add_socket(d.socket().handle());
      add_socket(d.monitor());
      // is looked after as they are; of one name two may have the same
      if (d.bell() >= 0) add(d.bell(), kZeroMq);
    }
    sockets_are_stale_ = false;
  }

  PeerInfo self_;
  ZeroMqOptions options_;
  zmq::context_t context_;
  Gate gate_;
  Lookups lookups_;
  RequestQueue requests_;
  DirectLines lines_;
  std::thread thread_;
  // whose router's thread this is
  static inline constinit thread_local const ZeroMqTransport* running_ = nullptr;
  // guards router_ while the router's thread works; others only read its counters
  mutable std::mutex turn_;

  // Of the router's thread.
  std::unique_ptr<Router> router_;
  std::optional<BulkChannels> bulk_;
  zmq::socket_t listening_;
  std::map<Connection, Dialled> dialled_;
  std::unordered_map<Connection, std::string> routing_ids_;  // of those that were accepted
  std::unordered_map<std::string, Accepted> accepted_;
  Connection next_ = 1;
  std::vector<std::pair<Connection, Status>> failures_;
  std::vector<Request> taken_;
  std::vector<Connection> arrivals_;
  zmq::message_t second_;
  OwnedDescriptor sleep_;          // an epoll of all that wakes the thread
  bool sockets_are_stale_ = true;  // in it
  bool bulk_rang_ = false;         // a channel's socket has something
  Told told_drops_, told_breaks_;
  std::uint64_t broken_off_ = 0;
  std::deque<std::pair<Peer, Time>> ended_;  // whose connection has, and when that is counted
  bool was_asked_ = false;  // each of ZeroMQ's sockets, and nothing was done with one since
  bool is_leaving_ = false;
  Time next_tick_{}, next_look_{};
  Wakefulness awake_{options_.spin};
};

}  // namespace

std::unique_ptr<Transport> make_zeromq_transport(PeerInfo self, ZeroMqOptions options) {
  return std::unique_ptr<Transport>(new ZeroMqTransport(std::move(self), std::move(options)));
}

}  // namespace troupe
