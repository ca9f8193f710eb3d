#include <troupe/cluster/transport/channel/bulk_sockets.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <troupe/cluster/transport/net/local_socket.hpp>

namespace troupe {

namespace {

constexpr std::size_t kGreetingMagic = 8;
constexpr std::size_t kGreeting = kGreetingMagic + wire::Bulk::kSecretBytes;
constexpr char kShown[kGreetingMagic + 1] = "troupe-b", kTaken[kGreetingMagic + 1] = "troupe+b";
constexpr std::uint64_t kListener = 0, kLocalListener = 1;  // epoll reports these for them
// bytes of a ring between two words to the other: it copies while we do
constexpr std::size_t kStep = 128 << 10;
constexpr std::size_t kBytesATurn = 8 << 20;  // bytes
constexpr std::size_t kRecordsATurn = 64;     // direct records that were sent directly
constexpr int kReads = 64;  // reads of one channel before the others have their turn

/// In the same time whatever the two are.
bool is_same(const wire::Bulk::Secret& a, const std::byte* b) {
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

/// Checks that a channel can be there: a unix socket's name, or a port.
bool is_place(const std::string& where, bool is_local) {
  if (is_local)
    return !where.empty() && where.size() <= 64 &&
           where.find_first_not_of("0123456789abcdef") == std::string::npos;
  std::uint16_t port = 0;
  const char* const end = where.data() + where.size();
  const auto [rest, error] = std::from_chars(where.data(), end, port);
  return where.size() <= 5 && error == std::errc() && rest == end && port != 0;
}

}  // namespace

struct BulkSockets::Channel {
  Channel(std::uint64_t number, Connection c, OwnedDescriptor socket, bool local, Router& router,
          const std::optional<SealKeys>& keys)
      : id(number), connection(c), fd(std::move(socket)), is_local(local), out(keys),
        in(router, c, keys, local) {}
  const std::uint64_t id;
  const Connection connection;
  OwnedDescriptor fd;
  const bool is_local;
  enum class State { connecting, greeting, open, closed } state = State::connecting;
  std::array<std::byte, kGreeting> greeting{};  // the ticket to present, then the answer to it
  std::size_t greeted = 0;
  Time deadline{};  // to be open
  BulkWriter out;
  BulkReader in;
  std::uint32_t watched = 0;  // events
  bool is_watched = false;
  bool has_opened = false;
  bool is_full = false;  // the socket takes no more for now, or the ring
  std::shared_ptr<SharedRings> rings;
  Peer peer = 0;  // once it is open
};

struct BulkSockets::Stranger {
  std::uint64_t id;
  OwnedDescriptor fd;
  Time deadline;
  std::array<std::byte, kGreeting> shown{};
  std::size_t bytes = 0;
  bool is_local = false;
};

BulkSockets::BulkSockets(Router& router, const FrameLink& clock, DirectSenders& senders,
                         BulkSocketOptions options)
    : router_(router), clock_(clock), senders_(senders), options_(std::move(options)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (epoll_.get() < 0) throw Error(Code::resource_exhausted, "no descriptor is left for an epoll");
}
BulkSockets::~BulkSockets() = default;

void BulkSockets::stop() {
  strangers_.clear();
  retired_.clear();
  listening_ = OwnedDescriptor();
  local_ = OwnedDescriptor();
}

// ---- coming up

void BulkSockets::listen(const std::string& address, bool is_port_chosen) {
  const std::size_t colon = address.rfind(':');
  const auto at = [&](int port) {
    return listen_at(fmt::format("{}:{}", address.substr(0, colon), port), options_.congestion);
  };
  const int next = std::atoi(address.c_str() + colon + 1) + 1;
  ListeningSocket socket;
  if (options_.port != 0) {
    socket = at(options_.port);
  } else {
    try {
      socket = at(is_port_chosen && next < 65536 ? next : 0);
    } catch (const Error&) { socket = at(0); }
  }
  listening_ = std::move(socket.fd);
  where_ = options_.port_outside != 0 ? fmt::format("{}", options_.port_outside)
                                      : socket.address.substr(socket.address.rfind(':') + 1);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListener}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listening_.get(), &event);
  if (!options_.shared_memory) return;
  const SealShare name_bytes = random_share();
  for (const std::byte b : std::span(name_bytes).first(16))
    where_locally_ += fmt::format("{:02x}", static_cast<unsigned>(b));
  OwnedDescriptor local = listen_locally("troupe-" + where_locally_);
  if (local.get() < 0) return;
  event.data.u64 = kLocalListener;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, local.get(), &event);
  local_ = std::move(local);
}

wire::Bulk BulkSockets::offer(Connection connection, bool is_local,
                              const std::optional<SealKeys>& keys) {
  close(connection);
  wire::Bulk terms;
  terms.where = is_local ? where_locally_ : where_;
  terms.ticket = random_share();
  offers_[connection] = {terms.ticket, is_local, keys};
  return terms;
}

OwnedDescriptor BulkSockets::prepared(OwnedDescriptor fd) const {
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto stall = static_cast<unsigned>(
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.stall).count());
  setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &stall, sizeof stall);
  set_congestion(fd.get(), options_.congestion);
  return fd;
}

BulkSockets::Channel& BulkSockets::add(Connection connection, OwnedDescriptor fd, bool is_local,
                                       const std::optional<SealKeys>& keys) {
  const std::uint64_t id = next_id_++;
  by_connection_[connection] = id;
  if (!is_local) fd = prepared(std::move(fd));
  return *channels_
              .emplace(id, std::make_unique<Channel>(id, connection, std::move(fd), is_local,
                                                     router_, keys))
              .first->second;
}

void BulkSockets::open(Connection connection, const std::string& dialled, bool is_local,
                       const wire::Bulk& answer, const std::optional<SealKeys>& keys) {
  close(connection);
  if (!is_place(answer.where, is_local)) return router_.dropped("a bulk channel at no place");
  try {
    OwnedDescriptor fd;
    if (is_local) {
      fd = connect_locally("troupe-" + answer.where);
      if (fd.get() < 0 || !is_own(fd.get())) return;
    } else {
      fd = connect_to(fmt::format("{}:{}", dialled.substr(0, dialled.rfind(':')), answer.where));
    }
    Channel& c = add(connection, std::move(fd), is_local, keys);
    std::memcpy(c.greeting.data(), kShown, kGreetingMagic);
    std::memcpy(c.greeting.data() + kGreetingMagic, answer.ticket.data(), answer.ticket.size());
    c.deadline = clock_.now() + options_.patience;
    watch(c);
  } catch (const Error&) {
    // Without a bulk channel everything goes over the connection.
  }
}

/// Presents the ticket, and waits for the answer that it was taken.
void BulkSockets::greet(Channel& c) {
  if (c.state == Channel::State::connecting) {
    while (c.greeted < kGreeting) {
      const ssize_t n = ::send(c.fd.get(), c.greeting.data() + c.greeted, kGreeting - c.greeted,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) return;
      if (n <= 0) return close(c.connection);  // the other end is gone, or never was there
      c.greeted += static_cast<std::size_t>(n);
    }
    c.state = Channel::State::greeting;
    c.greeted = 0;
    watch(c);
  }
  std::vector<OwnedDescriptor> memory;
  while (c.greeted < kGreetingMagic) {
    const ssize_t n = receive_descriptors(c.fd.get(), c.greeting.data() + c.greeted,
                                          kGreetingMagic - c.greeted, memory);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return close(c.connection);
    c.greeted += static_cast<std::size_t>(n);
  }
  if (std::memcmp(c.greeting.data(), kTaken, kGreetingMagic) != 0) {
    router_.dropped("an end of a bulk channel that answers wrongly");
    return close(c.connection);
  }
  try {
    if (c.is_local) share_memory(c, std::move(memory));
  } catch (const Error&) {
    router_.dropped("shared memory that is none");
    return close(c.connection);
  }
  opened(c);
}

void BulkSockets::opened(Channel& c) {
  c.state = Channel::State::open;
  watch(c);
  c.has_opened = true;
  rings_ += c.rings != nullptr;
  ++open_;
  c.peer = router_.bulk_opened(
      c.connection, 0,
      c.rings ? std::shared_ptr<DirectSource>(c.rings, &c.rings->direct_in()) : nullptr);
  if (c.peer != 0 && c.rings) senders_.add(c.peer, *c.rings, c.fd.get());
}

void BulkSockets::take_spare() {
  if (spare_.get() < 0) spare_ = OwnedDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void BulkSockets::hear_listeners(bool whether) {
  for (const auto& [fd, id] :
       {std::pair{listening_.get(), kListener}, std::pair{local_.get(), kLocalListener}}) {
    epoll_event event{.events = whether ? std::uint32_t{EPOLLIN} : 0, .data = {.u64 = id}};
    if (fd >= 0) epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  }
}

void BulkSockets::accept_all(int listening) {
  constexpr int kTurn = 64;
  constexpr auto kRest = std::chrono::milliseconds(100);
  take_spare();
  for (int accepted = 0; accepted < kTurn; ++accepted) {
    OwnedDescriptor fd(accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.get() < 0 && (errno == EMFILE || errno == ENFILE) && spare_.get() >= 0) {
      // No descriptor is left, and a waiting connection would keep this thread awake. One
      // connection is accepted with the spare descriptor, and closed.
      spare_ = OwnedDescriptor();
      fd = OwnedDescriptor(accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      fd = OwnedDescriptor();
      take_spare();
      router_.dropped("a connection for which there was no descriptor left");
      continue;
    }
    // Another thread took the spare descriptor meanwhile, so no connection can even be closed.
    if (fd.get() < 0 && (errno == EMFILE || errno == ENFILE)) {
      hear_listeners(false);
      deaf_until_ = clock_.now() + kRest;
    }
    if (fd.get() < 0) return;
    const bool is_local = listening == local_.get();
    if (is_local && !is_own(fd.get())) {
      router_.dropped("a local connection of another user");
      continue;
    }
    if (strangers_.size() >= kStrangers) {
      router_.dropped(
          "the oldest of too many connections to the bulk port that have shown nothing");
      dismiss(strangers_.begin()->first);
    }
    const std::uint64_t id = next_id_++;
    epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) continue;
    auto stranger = std::make_unique<Stranger>();
    stranger->id = id;
    stranger->is_local = is_local;
    stranger->fd = std::move(fd);
    stranger->deadline = clock_.now() + options_.patience;
    strangers_.emplace(id, std::move(stranger));
  }
}

void BulkSockets::hear(std::uint64_t id, Retired& retired) {
  std::byte unheard[16 << 10];
  if (const ssize_t n = recv(retired.fd.get(), unheard, sizeof unheard, MSG_DONTWAIT);
      n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
    retired_.erase(id);
}

void BulkSockets::hear(Stranger& s) {
  const ssize_t n = recv(s.fd.get(), s.shown.data() + s.bytes, kGreeting - s.bytes, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) s.bytes += static_cast<std::size_t>(n);
  if (n > 0 && s.bytes < kGreeting &&
      std::memcmp(s.shown.data(), kShown, std::min(s.bytes, kGreetingMagic)) == 0)
    return;
  if (n > 0 && s.bytes == kGreeting && std::memcmp(s.shown.data(), kShown, kGreetingMagic) == 0)
    return admit(s);
  if (s.bytes != 0) router_.dropped("a connection to the bulk port that shows no ticket");
  dismiss(s.id);
}

void BulkSockets::admit(Stranger& s) {
  const std::uint64_t id = s.id;
  for (auto& [connection, offer] : offers_) {
    if (offer.is_local != s.is_local || !is_same(offer.ticket, s.shown.data() + kGreetingMagic))
      continue;
    const Connection at = connection;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, s.fd.get(), nullptr);
    Channel& c = add(at, std::move(s.fd), offer.is_local, offer.keys);
    offers_.erase(at);  // good once
    dismiss(id);
    // An empty socket takes so few bytes.
    if (c.is_local ? !share_memory(c)
                   : ::send(c.fd.get(), kTaken, kGreetingMagic, MSG_NOSIGNAL | MSG_DONTWAIT) !=
                         static_cast<ssize_t>(kGreetingMagic))
      return close(at);
    return opened(c);
  }
  router_.dropped("a ticket that was not issued, or used before");
  dismiss(id);
}

/// Creates the rings, and a slab from which either side lends, at the node that was dialled.
bool BulkSockets::share_memory(Channel& c) {
  try {
    c.rings = std::make_shared<SharedRings>(SharedRings::create());
    const OwnedDescriptor ours = make_slab(options_.slab_bytes),
                          theirs = make_slab(options_.slab_bytes);
    c.out.use(LendingSlab::open(ours));
    c.in.use(BorrowedSlab::open(theirs));
    const int all[] = {c.rings->descriptor(), theirs.get(), ours.get()};
    return send_descriptors(c.fd.get(), kTaken, kGreetingMagic, all);
  } catch (const Error&) { return false; }
}

void BulkSockets::share_memory(Channel& c, std::vector<OwnedDescriptor> told) {
  if (told.size() != 3) throw Error(Code::data_loss, "rings and two slabs were to come");
  c.rings = std::make_shared<SharedRings>(SharedRings::open(std::move(told[0])));
  c.out.use(LendingSlab::open(told[1]));
  c.in.use(BorrowedSlab::open(told[2]));
}

void BulkSockets::dismiss(std::uint64_t id) { strangers_.erase(id); }

// ---- wire frames

bool BulkSockets::send(Connection connection, const Ref<OutFrame>& frame) {
  const auto found = by_connection_.find(connection);
  if (found == by_connection_.end()) return false;
  Channel& c = *channels_.at(found->second);
  c.out.add(frame);
  flush(c);
  return c.state == Channel::State::open;
}

Ref<LendingSlab> BulkSockets::slab(Connection connection) const {
  const auto found = by_connection_.find(connection);
  return found == by_connection_.end() ? Ref<LendingSlab>()
                                       : channels_.at(found->second)->out.slab();
}

void BulkSockets::ring(Channel& c) {
  // A socket that is full of bells needs no other.
  if (::send(c.fd.get(), "!", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN &&
      errno != EINTR)
    c.state = Channel::State::closed;
}

void BulkSockets::flush_ring(Channel& c) {
  iovec pieces[24];
  c.is_full = false;
  for (;;) {
    const std::uint64_t lent_before = c.out.copied_bytes();
    const std::size_t n = c.out.pieces(pieces);
    copied_bytes_ += c.out.copied_bytes() - lent_before;
    if (n == 0) return;
    const std::span<std::byte> space = c.rings->space();
    if (c.rings->is_broken()) c.state = Channel::State::closed;
    if (space.empty()) {
      if (c.state == Channel::State::closed) return;
      c.is_full = c.rings->sleep_until_space();
      if (c.is_full) return;
      continue;
    }
    const std::size_t most = std::min(space.size(), kStep);
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < n && bytes < most; ++i) {
      const std::size_t part = std::min(pieces[i].iov_len, most - bytes);
      std::memcpy(space.data() + bytes, pieces[i].iov_base, part);
      bytes += part;
    }
    copied_bytes_ += bytes;
    c.out.wrote(bytes);
    if (c.rings->publish(bytes)) ring(c);
  }
}

void BulkSockets::receive_ring(Channel& c) {
  std::size_t left = kBytesATurn;
  while (left > 0 && c.state == Channel::State::open) {
    const std::span<const std::byte> from = c.rings->bytes();
    if (c.rings->is_broken()) c.state = Channel::State::closed;
    if (from.empty()) return;
    const std::span<std::byte> room = c.in.room();
    if (room.empty()) return;
    const std::size_t bytes = std::min({room.size(), from.size(), kStep, left});
    std::memcpy(room.data(), from.data(), bytes);
    left -= bytes;
    if (c.rings->consume(bytes)) ring(c);
    if (!c.in.got(bytes)) c.state = Channel::State::closed;
  }
}

// Takes direct records of one channel at a time: a direct record may close channels, this one too.
std::size_t BulkSockets::take_direct(std::size_t most) {
  for (const auto& [id, c] : channels_)
    if (c->rings && c->state == Channel::State::open && c->rings->direct_in().has_news())
      return router_.take_direct(c->connection, most);
  return 0;
}

bool BulkSockets::has_news() const {
  for (const auto& [id, c] : channels_)
    if (c->rings &&
        ((!c->in.is_waiting() && !c->rings->bytes().empty()) || c->rings->direct_in().has_news()))
      return true;
  return false;
}

bool BulkSockets::fall_asleep() {
  for (const auto& [id, c] : channels_)
    if (c->rings && !c->rings->sleep_until_bytes(!c->in.is_waiting())) {
      wake_up();
      return false;
    }
  return true;
}

void BulkSockets::wake_up() {
  for (const auto& [id, c] : channels_)
    if (c->rings) c->rings->wake_up();
}

void BulkSockets::flush(Channel& c) {
  if (c.rings) return flush_ring(c);
  iovec pieces[24];
  while (!c.is_full) {
    msghdr message{};
    message.msg_iov = pieces;
    try {
      const std::uint64_t before = c.out.copied_bytes();
      message.msg_iovlen = c.out.pieces(pieces);
      copied_bytes_ += c.out.copied_bytes() - before;
    } catch (const Error&) {  // the key is used up
      c.state = Channel::State::closed;
      return;
    }
    if (message.msg_iovlen == 0) break;
    const ssize_t n = sendmsg(c.fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) c.out.wrote(static_cast<std::size_t>(n));
    else if (errno == EAGAIN) c.is_full = true;
    else if (errno != EINTR) c.state = Channel::State::closed;
    if (c.state == Channel::State::closed) return;
  }
  watch(c);
}

void BulkSockets::receive(Channel& c) {
  if (c.rings) {  // bells
    char heard[64];
    const ssize_t n = recv(c.fd.get(), heard, sizeof heard, MSG_DONTWAIT);
    receive_ring(c);
    // Bytes that lie in the ring were sent before the end.
    if (n == 0 && (c.rings->bytes().empty() || c.in.is_waiting())) c.state = Channel::State::closed;
    if (n < 0 && errno != EAGAIN && errno != EINTR) c.state = Channel::State::closed;
    return;
  }
  for (int reads = 0; reads < kReads && c.state == Channel::State::open; ++reads) {
    iovec rooms[2];
    msghdr message{};
    message.msg_iov = rooms;
    message.msg_iovlen = c.in.rooms(rooms);
    if (message.msg_iovlen == 0) return;
    const std::size_t most = rooms[0].iov_len + (message.msg_iovlen == 2 ? rooms[1].iov_len : 0);
    const ssize_t n = recvmsg(c.fd.get(), &message, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0 || !c.in.got(static_cast<std::size_t>(n))) {
      c.state = Channel::State::closed;
      return;
    }
    if (static_cast<std::size_t>(n) < most) return;  // the socket had no more
  }
}

/// Tells epoll what to look for.
void BulkSockets::watch(Channel& c) {
  std::uint32_t events = 0;
  if (c.state == Channel::State::connecting || (c.is_full && !c.rings)) events |= EPOLLOUT;
  if (c.state != Channel::State::connecting && (c.rings || !c.in.is_waiting())) events |= EPOLLIN;
  if (c.is_watched && events == c.watched) return;
  epoll_event event{.events = events, .data = {.u64 = c.id}};
  epoll_ctl(epoll_.get(), std::exchange(c.is_watched, true) ? EPOLL_CTL_MOD : EPOLL_CTL_ADD,
            c.fd.get(), &event);
  c.watched = events;
}

bool BulkSockets::work(bool looks_at_sockets) {
  epoll_event events[32];
  const int n = looks_at_sockets ? epoll_wait(epoll_.get(), events, 32, 0) : 0;
  for (int i = 0; i < n; ++i) {
    const std::uint64_t id = events[i].data.u64;
    if (id == kListener || id == kLocalListener) {
      accept_all(id == kListener ? listening_.get() : local_.get());
    } else if (const auto stranger = strangers_.find(id); stranger != strangers_.end()) {
      hear(*stranger->second);
    } else if (const auto retired = retired_.find(id); retired != retired_.end()) {
      hear(id, retired->second);
    } else if (const auto found = channels_.find(id); found != channels_.end()) {
      Channel& c = *found->second;
      if (c.state == Channel::State::connecting || c.state == Channel::State::greeting) greet(c);
      if (c.state == Channel::State::open && (events[i].events & EPOLLOUT)) {
        c.is_full = false;
        flush(c);
      }
      if (c.state == Channel::State::open && (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))) {
        if (c.in.is_waiting() && !c.rings)
          c.state = Channel::State::closed;  // the peer is gone, and would be reported without end
        else receive(c);
      }
    }
  }
  bool worked = n > 0;
  const Time now = clock_.now();
  if (deaf_until_ != Time{} && now >= deaf_until_) {
    deaf_until_ = Time{};
    hear_listeners(true);
  }
  all_.clear();
  for (const auto& [id, c] : channels_) all_.push_back(c.get());
  for (Channel* c : all_) {
    if (c->state == Channel::State::open && c->in.is_waiting()) {
      if (!c->in.retry()) c->state = Channel::State::closed;
      worked |= !c->in.is_waiting();
    }
    if (c->state == Channel::State::open && c->rings) {
      if (c->is_full && !c->rings->space().empty()) flush_ring(*c);
      if (!c->rings->bytes().empty() && !c->in.is_waiting()) {
        receive_ring(*c);
        worked = true;
      }
      if (c->rings->direct_in().has_any())
        worked |= router_.take_direct(c->connection, kRecordsATurn) != 0;
      if (c->rings->is_broken() || c->rings->direct_in().is_broken())
        c->state = Channel::State::closed;
    }
    if (c->state == Channel::State::open) watch(*c);
    if (c->state == Channel::State::closed) broken(*c);
    if ((c->state == Channel::State::connecting || c->state == Channel::State::greeting) &&
        now >= c->deadline)
      close(c->connection);
  }
  while (!strangers_.empty() && strangers_.begin()->second->deadline <= now)
    dismiss(strangers_.begin()->first);
  while (!retired_.empty() && retired_.begin()->second.deadline <= now)
    retired_.erase(retired_.begin());
  closed_.clear();
  return worked;
}

/// One that was open: the connection breaks with it.
void BulkSockets::broken(Channel& c) {
  const Connection connection = c.connection;
  if (!by_connection_.contains(connection)) return;
  close(connection);
  router_.bulk_broken(connection);
}

/// Announces the end, and stays until the other end does so too: to close at once with unread bytes
/// would take back the last bytes sent.
void BulkSockets::retire(OwnedDescriptor fd) {
  if (shutdown(fd.get(), SHUT_WR) != 0) return;
  const std::uint64_t id = next_id_++;
  epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd.get(), &event) != 0) return;
  retired_.emplace(id, Retired{std::move(fd), clock_.now() + options_.patience});
}

void BulkSockets::close(Connection connection) {
  offers_.erase(connection);
  const auto found = by_connection_.find(connection);
  if (found == by_connection_.end()) return;
  const auto channel = channels_.find(found->second);
  if (channel->second->peer != 0 && channel->second->rings)
    senders_.remove(channel->second->peer, *channel->second->rings);
  if (channel->second->has_opened) --open_;
  if (channel->second->rings && channel->second->has_opened) --rings_;
  if (channel->second->state == Channel::State::open) retire(std::move(channel->second->fd));
  channel->second->state = Channel::State::closed;
  channel->second->fd = OwnedDescriptor();
  closed_.push_back(std::move(channel->second));
  channels_.erase(channel);
  by_connection_.erase(found);
}

}  // namespace troupe
