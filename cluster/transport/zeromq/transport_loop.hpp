// The transport's thread: serves requests of other threads, sockets, bulk channels and time-outs in
// turn, and blocks when nothing has come for a while.
//
//   TransportLoop loop(link, spin);  loop.start(router);
//   loop.put(ConnectRequest{address});                       // any thread
//   if (loop.is_free()) router.send(...);                    // within a call of the listener
//   const auto lock = loop.hold();  router.counters();       // any thread: the loop waits
//   loop.stop();
//
// One turn:
//   requests ─► sockets ─► bulk channels ─► failures ─► time-outs ─► flush ─► block if idle
//
// The thread looks at sockets and requests for `spin` before it blocks (SpinPolicy): a wake-up
// costs more than most messages.
//
// Threads: `run` is the transport's thread; the other calls come from any.
//
// Invariants:
// 1. Only the transport's thread calls Router and link. It holds turn_, except in `block` and at
//    the link's stop, where it changes nothing that other threads read. Other threads read
//    counters, and find a peer's slab, with turn_ held.
// 2. Before it blocks, the thread has found the queue of requests empty, and all sockets quiet, and
//    is marked asleep: a request that comes later rings the bell.
#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <troupe/cluster/transport/router.hpp>
#include <troupe/cluster/transport/zeromq/request_queue.hpp>
#include <troupe/cluster/transport/zeromq/spin_policy.hpp>
#include <troupe/cluster/transport/zeromq/zeromq_link.hpp>

namespace troupe {

class TransportLoop {
 public:
  TransportLoop(ZeroMqLink& link, Time spin) : link_(link), spin_policy_(spin) {}

  /// `router` outlives the thread.
  void start(Router& router);
  /// Ends all sessions, and the thread.
  void stop();

  /// Puts in a request, and wakes the thread if it blocks.
  void put(Request request) { requests_.put(std::move(request)); }
  /// True on the transport's thread.
  bool is_current() const { return running_ == this; }
  /// True if this thread may call the router at once, because no request is before it.
  bool is_free() const { return is_current() && taken_.empty() && requests_.is_empty(); }
  /// Keeps the loop from working; on its own thread it holds nothing.
  std::unique_lock<std::mutex> hold() const {
    return is_current() ? std::unique_lock<std::mutex>() : std::unique_lock(turn_);
  }
  /// Serves requests, or sends what answers a wire frame: each look for more wire frames costs a
  /// call of the kernel.
  void serve_or_flush() {
    if (!serve_requests()) router_->flush();
  }

 private:
  void run();
  bool serve_requests();
  void serve(ConnectRequest& r) { router_->connect(r.address); }
  void serve(SendRequest& r) { router_->send(r.peer, r.lane, std::move(r.message)); }
  void serve(DisconnectRequest& r) { router_->disconnect(r.peer, r.why); }
  void serve(LeaveRequest&) {
    is_leaving_ = true;
    router_->leave();
  }
  bool shares_memory() const { return link_.bulk() && link_.bulk()->shares_memory(); }
  /// Waits awake for a moment, and delivers direct records meanwhile. Returns true if it is time to
  /// block.
  bool wait_awake(Time t, bool is_beside);
  bool poll_rings();
  void block();
  void watch_sockets();

  static inline constinit thread_local const TransportLoop* running_ = nullptr;

  ZeroMqLink& link_;
  RequestQueue requests_;
  std::thread thread_;
  mutable std::mutex turn_;  // guards router and link: invariant 1

  // Used by the transport's thread only.
  Router* router_ = nullptr;  // null before `start`
  std::vector<Request> taken_;
  OwnedDescriptor sleep_;   // an epoll of all that wakes the thread
  bool bulk_rang_ = false;  // a channel's socket has something
  bool is_leaving_ = false;
  Time next_tick_{}, next_look_{};
  SpinPolicy spin_policy_;
};

}  // namespace troupe
