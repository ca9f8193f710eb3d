#include <troupe/cluster/transport/zeromq/transport_loop.hpp>

#include <algorithm>
#include <utility>

#include <sys/epoll.h>

#include <troupe/devices/base/spin.hpp>

namespace troupe {

namespace {

// from one look at sockets without news to the next
constexpr auto kIdleLook = std::chrono::microseconds(100);
constexpr std::uint32_t kBell = 0, kBulk = 1, kZeroMq = 2;  // these wake the thread
constexpr auto kTick = std::chrono::milliseconds(1);
constexpr std::size_t kRingLooks = 40;  // at one channel's memory
constexpr std::size_t kInARow = 16;     // direct records, until others have their turn

}  // namespace

void TransportLoop::start(Router& router) {
  router_ = &router;
  thread_ = std::thread([this] { run(); });
}

void TransportLoop::stop() {
  if (!thread_.joinable()) return;
  requests_.put(LeaveRequest{});
  thread_.join();
}

void TransportLoop::run() {
  running_ = this;
  for (;;) {
    bool worked = false;
    {
      std::lock_guard lock(turn_);
      worked |= serve_requests();
      const Time t = link_.now();
      BulkChannels* const bulk = link_.bulk();
      // A look at sockets costs calls of the kernel, and over ZeroMQ's hardly anything comes once
      // all have channels.
      const bool is_beside = bulk && bulk->channels() >= link_.connections();
      const bool looks_everywhere = t >= next_look_ || !is_beside;
      if (looks_everywhere) {
        worked |= link_.receive();
        next_look_ = t + kIdleLook;
      }
      const bool has_moved = bulk && bulk->work(looks_everywhere || bulk->has_sockets() ||
                                                std::exchange(bulk_rang_, false));
      if (has_moved && is_beside) spin_policy_.expect(t);
      worked |= has_moved;
      worked |= link_.report_failures();
      if (t >= next_tick_) {
        link_.watch();
        router_->tick();
        next_tick_ = t + kTick;
      }
      if (is_leaving_ && router_->is_idle()) break;
      worked = worked || !wait_awake(t, is_beside) || !link_.is_quiet();
      router_->flush();
      // sending may have taken the news from a socket
      worked = worked || !link_.was_asked();
    }
    if (!worked) block();
  }
  requests_.close();
  link_.stop();
}

bool TransportLoop::serve_requests() {
  requests_.take(taken_);
  for (Request& request : taken_) std::visit([this](auto& r) { serve(r); }, request);
  const bool any = !taken_.empty();
  taken_.clear();
  if (any) router_->flush();
  return any;
}

// Small messages are worth waiting for awake: a wake-up takes longer than they do. The chunks of
// large ones are, too, where all goes beside ZeroMQ; elsewhere a look for them takes the core from
// ZeroMQ's thread. Nothing is if other threads want the core.
bool TransportLoop::wait_awake(Time t, bool is_beside) {
  const TransportCounters& c = router_->traffic();
  if (spin_policy_.has_moved(t, c.messages_out + c.messages_in, c.bytes_out + c.bytes_in,
                             is_beside || shares_memory()))
    return false;
  if (spin_policy_.has_rested(t)) return true;
  if (poll_rings()) return false;
  std::this_thread::yield();
  spin_policy_.yielded(t, link_.now());
  return false;
}

// Returns true if something has come by shared memory in about the time that a yield takes, which
// sees nothing meanwhile. If mostly nothing came, as with more processes than cores, the loop tries
// this once in a while only. Direct records are taken here and now, a few in a row, because the
// next is often the answer to their answer. A turn around all sources takes a fifth of the time of
// serving them.
bool TransportLoop::poll_rings() {
  if (!shares_memory() || !spin_policy_.is_patient()) return false;
  BulkChannels& bulk = *link_.bulk();
  const std::size_t looks = kRingLooks / bulk.rings();
  std::size_t heard = 0;
  for (std::size_t left = looks; left > 0 && heard < kInARow; --left) {
    if (const std::size_t n = bulk.take_direct(kInARow - heard)) {
      router_->flush();
      heard += n;
      left = looks;
    }
    if (bulk.has_news() || !requests_.is_empty()) {
      spin_policy_.looked(true);
      return true;
    }
    pause_core();
  }
  spin_policy_.looked(heard != 0);
  return heard != 0;
}

// Blocks by one call of the kernel: zmq_poll asks each socket in turn, with two calls for each,
// before and after.
void TransportLoop::block() {
  if (link_.has_new_sockets()) {
    try {
      watch_sockets();
    } catch (const Error&) {  // no descriptor is left; until there is one, it looks by itself
      sleep_ = OwnedDescriptor();
      link_.expect_news();
      next_tick_ = next_look_ = Time::zero();
      std::this_thread::sleep_for(kIdleLook);
      return;
    }
  }
  BulkChannels* const bulk = link_.bulk();
  const Time due = std::min(router_->due(), link_.due());
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(due - link_.now());
  // ms; the end of a peer's connection is polled, not reported
  const long most = is_leaving_ ? 20 : 1000;
  const long ms = std::clamp<long>(static_cast<long>(wait.count()), 0, most);
  if (!requests_.fall_asleep()) return;
  epoll_event events[8];
  int n = 0;
  if (!bulk || bulk->fall_asleep()) n = epoll_wait(sleep_.get(), events, 8, static_cast<int>(ms));
  if (bulk) bulk->wake_up();
  requests_.wake_up();
  next_look_ = link_.now() + kIdleLook;
  if (n == 0) next_tick_ = Time::zero();
  for (int i = 0; i < n; ++i) {
    if (events[i].data.u32 == kBell) requests_.hear();
    bulk_rang_ |= events[i].data.u32 == kBulk;
    if (events[i].data.u32 != kZeroMq) continue;
    link_.expect_news();
    next_tick_ = next_look_ = Time::zero();
  }
}

void TransportLoop::watch_sockets() {
  sleep_ = OwnedDescriptor(epoll_create1(EPOLL_CLOEXEC));
  const auto add = [&](int fd, std::uint32_t what) {
    epoll_event event{.events = EPOLLIN, .data = {.u32 = what}};
    if (epoll_ctl(sleep_.get(), EPOLL_CTL_ADD, fd, &event) != 0 && errno != EEXIST)
      throw Error(Code::resource_exhausted, "no descriptor is left to wait with");
  };
  add(requests_.bell(), kBell);
  if (const BulkChannels* bulk = link_.bulk()) add(bulk->descriptor(), kBulk);
  for (const int fd : link_.descriptors()) add(fd, kZeroMq);
  link_.note_watched();
}

}  // namespace troupe
