#include <troupe/cluster/bulk_tcp.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace troupe {

namespace {

constexpr std::size_t kMagic = 8;
constexpr std::size_t kGreeting = kMagic + wire::Bulk::kSecretBytes;
constexpr char kShown[kMagic + 1] = "troupe-b", kTaken[kMagic + 1] = "troupe+b";
constexpr std::uint64_t kListener = 0;  // what epoll reports for it
constexpr int kReads = 64;              // of one channel before the others have their turn

/// In the same time whatever the two are.
bool is_same(const wire::Bulk::Secret& a, const std::byte* b) {
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

}  // namespace

struct BulkTcp::Channel {
  Channel(std::uint64_t number, Connection c, OwnedDescriptor socket, Router& router, const std::optional<SealKeys>& keys)
      : id(number), connection(c), fd(std::move(socket)), out(keys), in(router, c, keys) {}
  const std::uint64_t id;
  const Connection connection;
  OwnedDescriptor fd;
  enum class State { connecting, greeting, open, closed } state = State::connecting;
  std::array<std::byte, kGreeting> greeting{};  // to be shown, then what is answered
  std::size_t greeted = 0;
  Time deadline{};  // to be open
  BulkWriter out;
  BulkReader in;
  std::uint32_t watched = 0;  // events
  bool is_watched = false;
  bool is_full = false;       // the socket takes no more for now
};

struct BulkTcp::Stranger {
  std::uint64_t id;
  OwnedDescriptor fd;
  Time deadline;
  std::array<std::byte, kGreeting> shown{};
  std::size_t bytes = 0;
  bool is_leaving = false;  // was a channel, and what it says is not heard any more
};

BulkTcp::BulkTcp(Router& router, const Carrier& clock, BulkTcpOptions options)
    : router_(router), clock_(clock), options_(std::move(options)), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (epoll_.get() < 0) throw Error(Code::resource_exhausted, "no descriptor is left for an epoll");
}
BulkTcp::~BulkTcp() = default;

void BulkTcp::stop() {
  strangers_.clear();
  listening_ = OwnedDescriptor();
}

// ---- coming up

void BulkTcp::listen(const std::string& address, bool is_port_chosen) {
  const std::size_t colon = address.rfind(':');
  const auto at = [&](int port) { return listen_at(fmt::format("{}:{}", address.substr(0, colon), port), options_.congestion); };
  const int next = std::atoi(address.c_str() + colon + 1) + 1;
  ListeningSocket socket;
  if (options_.port != 0) {
    socket = at(options_.port);
  } else {
    try {
      socket = at(is_port_chosen && next < 65536 ? next : 0);
    } catch (const Error&) {
      socket = at(0);
    }
  }
  listening_ = std::move(socket.fd);
  where_ = options_.port_outside != 0 ? fmt::format("{}", options_.port_outside) : socket.address.substr(socket.address.rfind(':') + 1);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListener}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listening_.get(), &event);
}

wire::Bulk BulkTcp::offer(Connection connection, const std::optional<SealKeys>& keys) {
  close(connection);
  wire::Bulk terms;
  terms.where = where_;
  terms.ticket = random_share();
  offers_[connection] = {terms.ticket, keys};
  return terms;
}

OwnedDescriptor BulkTcp::prepared(OwnedDescriptor fd) const {
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto stall = static_cast<unsigned>(std::chrono::duration_cast<std::chrono::milliseconds>(options_.stall).count());
  setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &stall, sizeof stall);
  set_congestion(fd.get(), options_.congestion);
  return fd;
}

BulkTcp::Channel& BulkTcp::add(Connection connection, OwnedDescriptor fd, const std::optional<SealKeys>& keys) {
  const std::uint64_t id = next_id_++;
  by_connection_[connection] = id;
  return *channels_.emplace(id, std::make_unique<Channel>(id, connection, prepared(std::move(fd)), router_, keys)).first->second;
}

void BulkTcp::open(Connection connection, const std::string& dialled, const wire::Bulk& answer, const std::optional<SealKeys>& keys) {
  close(connection);
  if (answer.where.empty() || answer.where.size() > 5 || answer.where.find_first_not_of("0123456789") != std::string::npos) return router_.dropped();
  try {
    Channel& c = add(connection, connect_to(fmt::format("{}:{}", dialled.substr(0, dialled.rfind(':')), answer.where)), keys);
    std::memcpy(c.greeting.data(), kShown, kMagic);
    std::memcpy(c.greeting.data() + kMagic, answer.ticket.data(), answer.ticket.size());
    c.deadline = clock_.now() + options_.patience;
    watch(c);
  } catch (const Error&) {
    // Without a bulk channel everything goes over the connection.
  }
}

/// Shows the ticket, and hears that it was taken.
void BulkTcp::greet(Channel& c) {
  if (c.state == Channel::State::connecting) {
    while (c.greeted < kGreeting) {
      const ssize_t n = ::send(c.fd.get(), c.greeting.data() + c.greeted, kGreeting - c.greeted, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) return;
      if (n <= 0) return close(c.connection);  // nobody is there: it never was
      c.greeted += static_cast<std::size_t>(n);
    }
    c.state = Channel::State::greeting;
    c.greeted = 0;
    watch(c);
  }
  while (c.greeted < kMagic) {
    const ssize_t n = recv(c.fd.get(), c.greeting.data() + c.greeted, kMagic - c.greeted, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return close(c.connection);
    c.greeted += static_cast<std::size_t>(n);
  }
  if (std::memcmp(c.greeting.data(), kTaken, kMagic) != 0) {
    router_.dropped();
    return close(c.connection);
  }
  c.state = Channel::State::open;
  router_.bulk_opened(c.connection);
}

void BulkTcp::accept_all() {
  for (;;) {
    OwnedDescriptor fd(accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.get() < 0) return;
    if (strangers_.size() >= kStrangers) {
      router_.dropped();
      dismiss(strangers_.begin()->first);
    }
    const std::uint64_t id = next_id_++;
    epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) continue;
    auto stranger = std::make_unique<Stranger>();
    stranger->id = id;
    stranger->fd = std::move(fd);
    stranger->deadline = clock_.now() + options_.patience;
    strangers_.emplace(id, std::move(stranger));
  }
}

void BulkTcp::hear(Stranger& s) {
  if (s.is_leaving) {
    std::byte unheard[16 << 10];
    if (const ssize_t n = recv(s.fd.get(), unheard, sizeof unheard, MSG_DONTWAIT); n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) dismiss(s.id);
    return;
  }
  const ssize_t n = recv(s.fd.get(), s.shown.data() + s.bytes, kGreeting - s.bytes, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) s.bytes += static_cast<std::size_t>(n);
  if (n > 0 && s.bytes < kGreeting && std::memcmp(s.shown.data(), kShown, std::min(s.bytes, kMagic)) == 0) return;
  if (n > 0 && s.bytes == kGreeting && std::memcmp(s.shown.data(), kShown, kMagic) == 0) return admit(s);
  if (s.bytes != 0) router_.dropped();
  dismiss(s.id);
}

void BulkTcp::admit(Stranger& s) {
  const std::uint64_t id = s.id;
  for (auto& [connection, offer] : offers_) {
    if (!is_same(offer.ticket, s.shown.data() + kMagic)) continue;
    const Connection at = connection;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, s.fd.get(), nullptr);
    Channel& c = add(at, std::move(s.fd), offer.keys);
    offers_.erase(at);  // good once
    dismiss(id);
    c.state = Channel::State::open;
    // An empty socket takes so few bytes.
    if (::send(c.fd.get(), kTaken, kMagic, MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(kMagic)) return close(at);
    watch(c);
    return router_.bulk_opened(at);
  }
  router_.dropped();
  dismiss(id);
}

void BulkTcp::dismiss(std::uint64_t id) { strangers_.erase(id); }

// ---- frames

bool BulkTcp::send(Connection connection, const Ref<OutFrame>& frame) {
  const auto found = by_connection_.find(connection);
  if (found == by_connection_.end()) return false;
  Channel& c = *channels_.at(found->second);
  c.out.add(frame);
  flush(c);
  return c.state == Channel::State::open;
}

void BulkTcp::flush(Channel& c) {
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
    if (n >= 0)
      c.out.wrote(static_cast<std::size_t>(n));
    else if (errno == EAGAIN)
      c.is_full = true;
    else if (errno != EINTR)
      c.state = Channel::State::closed;
    if (c.state == Channel::State::closed) return;
  }
  watch(c);
}

void BulkTcp::receive(Channel& c) {
  for (int reads = 0; reads < kReads && c.state == Channel::State::open; ++reads) {
    const std::span<std::byte> room = c.in.room();
    if (room.empty()) break;
    const ssize_t n = recv(c.fd.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (n <= 0 || !c.in.got(static_cast<std::size_t>(n))) {
      c.state = Channel::State::closed;
      break;
    }
  }
}

/// Tells epoll what to look for.
void BulkTcp::watch(Channel& c) {
  std::uint32_t events = 0;
  if (c.state == Channel::State::connecting || c.is_full) events |= EPOLLOUT;
  if (c.state != Channel::State::connecting && !c.in.is_waiting()) events |= EPOLLIN;
  if (c.is_watched && events == c.watched) return;
  epoll_event event{.events = events, .data = {.u64 = c.id}};
  epoll_ctl(epoll_.get(), std::exchange(c.is_watched, true) ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c.fd.get(), &event);
  c.watched = events;
}

bool BulkTcp::work() {
  epoll_event events[32];
  const int n = epoll_wait(epoll_.get(), events, 32, 0);
  for (int i = 0; i < n; ++i) {
    const std::uint64_t id = events[i].data.u64;
    if (id == kListener) {
      accept_all();
    } else if (const auto stranger = strangers_.find(id); stranger != strangers_.end()) {
      hear(*stranger->second);
    } else if (const auto found = channels_.find(id); found != channels_.end()) {
      Channel& c = *found->second;
      if (c.state == Channel::State::connecting || c.state == Channel::State::greeting) greet(c);
      if (c.state == Channel::State::open && (events[i].events & EPOLLOUT)) {
        c.is_full = false;
        flush(c);
      }
      if (c.state == Channel::State::open && (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))) {
        if (c.in.is_waiting())
          c.state = Channel::State::closed;  // the peer is gone, and would be reported without end
        else
          receive(c);
      }
    }
  }
  bool worked = n > 0;
  const Time now = clock_.now();
  std::vector<Channel*> all;
  for (const auto& [id, c] : channels_) all.push_back(c.get());
  for (Channel* c : all) {
    if (c->state == Channel::State::open && c->in.is_waiting()) {
      if (!c->in.retry()) c->state = Channel::State::closed;
      if (!c->in.is_waiting()) worked = true;
    }
    if (c->state == Channel::State::open) watch(*c);
    if (c->state == Channel::State::closed) broken(*c);
    if ((c->state == Channel::State::connecting || c->state == Channel::State::greeting) && now >= c->deadline) close(c->connection);
  }
  while (!strangers_.empty() && strangers_.begin()->second->deadline <= now) dismiss(strangers_.begin()->first);
  closed_.clear();
  return worked;
}

/// One that was open: the connection breaks with it.
void BulkTcp::broken(Channel& c) {
  const Connection connection = c.connection;
  if (!by_connection_.contains(connection)) return;
  close(connection);
  router_.bulk_broken(connection);
}

/// Says that nothing more comes, and stays until the other says so too: closing at once with bytes unread would take back
/// what was said last.
void BulkTcp::retire(OwnedDescriptor fd) {
  if (shutdown(fd.get(), SHUT_WR) != 0) return;
  auto leaving = std::make_unique<Stranger>();
  leaving->id = next_id_++;
  leaving->deadline = clock_.now() + options_.patience;
  leaving->is_leaving = true;
  epoll_event event{.events = EPOLLIN, .data = {.u64 = leaving->id}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd.get(), &event) != 0) return;
  leaving->fd = std::move(fd);
  strangers_.emplace(leaving->id, std::move(leaving));
}

void BulkTcp::close(Connection connection) {
  offers_.erase(connection);
  const auto found = by_connection_.find(connection);
  if (found == by_connection_.end()) return;
  const auto channel = channels_.find(found->second);
  if (channel->second->state == Channel::State::open) retire(std::move(channel->second->fd));
  channel->second->state = Channel::State::closed;
  channel->second->fd = OwnedDescriptor();
  closed_.push_back(std::move(channel->second));
  channels_.erase(channel);
  by_connection_.erase(found);
}

}  // namespace troupe
