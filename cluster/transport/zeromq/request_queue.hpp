// Requests of other threads to the router's, and the bell that wakes it.
//
//   // any thread:
//   RequestQueue requests;  requests.put(ConnectRequest{address});
//   // the transport's thread, which owns the other end; hear(), if the bell has rung:
//   requests.take(taken);
//   if (requests.fall_asleep()) { poll(requests.bell(), …);  requests.wake_up(); }
//
// Invariants: 1. requests are taken in the order in which they were put in; 2. the first request
// after `fall_asleep` has returned true rings the bell; 3. after `close` none is taken.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <sys/eventfd.h>
#include <unistd.h>

#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/cluster/transport/transport.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

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

/// Requests from any thread to the router's. A thread that is about to block announces it, looks
/// once more, and blocks. A sender puts its request in first, and rings if it finds the
/// announcement. In the order of the seq_cst operations one of the two sees the other.
class RequestQueue {
 public:
  RequestQueue() : bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (bell_.get() < 0)
      throw Error(Code::resource_exhausted, "no descriptor is left for an eventfd");
  }
  void put(Request request) {
    {
      std::lock_guard lock(mutex_);
      if (is_closed_) return;
      waiting_.push_back(std::move(request));
      is_empty_.store(false, std::memory_order_seq_cst);
    }
    if (is_asleep_.load(std::memory_order_seq_cst) &&
        is_asleep_.exchange(false, std::memory_order_seq_cst)) {
      const std::uint64_t one = 1;
      [[maybe_unused]] const auto written = ::write(bell_.get(), &one, sizeof one);
    }
  }
  /// Closes the queue: waiting requests are dropped, and so are later ones.
  void close() {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
    waiting_.clear();
  }
  /// Is nothing there that was put in before this call? For the taker.
  bool is_empty() const { return is_empty_.load(std::memory_order_seq_cst); }
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
  void wake_up() { is_asleep_.store(false, std::memory_order_seq_cst); }
  /// Clears the bell. It is readable until then, and would wake the thread once more.
  void hear() {
    std::uint64_t rings;
    [[maybe_unused]] const auto got = ::read(bell_.get(), &rings, sizeof rings);
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

}  // namespace troupe
