// The connections of an inspection server: one thread accepts and gathers the heads of requests, a
// few serve those that are complete.
//
//   // until it is dropped:
//   HttpAcceptor acceptor(listening, {.serve = 4, .wait = 60, .head = 5},
//                       [](int socket, std::string head) { ... });
//
//   accepted ──► sends its head ──► waits for its turn ──► served, hung up on
//                  │                 └ more than `wait`: 503 at once
//                  ├ more than kMostHeads: 503 to the oldest
//                  └ longer than `head`: 408
//
// 1. A slow sender holds a descriptor, never a thread, and is dismissed for a later connection: it
//    blocks no other.
// 2. At most kMostHeads + wait + serve descriptors are open.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace troupe {

class HttpAcceptor {
 public:
  static constexpr std::size_t kMostHeads = 256;
  struct Limits {
    int serve;  // threads
    int wait;   // requests
    int head;   // seconds
  };
  /// Called on several threads. The socket does not block, and is hung up on afterwards.
  using Serve = std::function<void(int socket, std::string head)>;

  /// `listening`: closed in the end.
  HttpAcceptor(int listening, Limits limits, Serve answer);
  /// Waits for callers that are being served; hangs up on others.
  ~HttpAcceptor();
  HttpAcceptor(const HttpAcceptor&) = delete;
  HttpAcceptor& operator=(const HttpAcceptor&) = delete;

 private:
  struct Caller {
    int socket = -1;
    std::chrono::steady_clock::time_point until;
    std::string said;
  };
  void receive();
  void accept_all();
  bool is_done(Caller& caller);
  void pass_on(Caller& caller);
  int patience() const;
  void work();

  const int listening_, ending_;  // an eventfd
  const Limits limits_;
  const Serve answer_;
  std::list<Caller> callers_;  // used by the receiving thread only, in order of arrival
  std::mutex mutex_;           // guards what follows
  std::condition_variable changed_;
  std::deque<Caller> complete_;
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace troupe
