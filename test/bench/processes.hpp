// Processes of one machine that are nodes of a cluster, over TCP on loopback and shared memory, and
// one that only echoes.
//
//   Processes workers(3);             // forked at once: before this process starts a thread
//   auto node = workers.join();       // this process's node, connected with all of them
//   node->engine().compile(...)       // on "/node:w1/cpu:0" ...
#pragma once

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <semaphore>
#include <string>
#include <vector>

#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>
#include <troupe/test/bench/bench.hpp>
#include <troupe/test/bench/keyed.hpp>

namespace troupe::bench {

inline void require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

/// A process that gets an address and runs until its end of the socket closes.
class Child {
 public:
  template <class Body>
  explicit Child(Body body) {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
    pid_ = fork();
    require(pid_ >= 0, "fork");
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // the socket does not close where others hold that end
      close(ends[0]);
      std::array<char, 64> address{};
      if (::read(ends[1], address.data(), address.size()) == static_cast<ssize_t>(address.size())) {
        body(std::string(address.data()), [&] {
          char end;
          while (::read(ends[1], &end, 1) > 0) {}
        });
      }
      _exit(0);
    }
    close(ends[1]);
    fd_ = ends[0];
  }
  Child(Child&& other) noexcept : pid_(other.pid_), fd_(std::exchange(other.fd_, -1)) {}
  ~Child() {
    if (fd_ < 0) return;
    // closing is not enough: processes forked after this one hold the same end
    shutdown(fd_, SHUT_RDWR);
    close(fd_);
    kill(pid_, SIGCONT);
    waitpid(pid_, nullptr, 0);
  }
  /// Sends a signal. One that is stopped is ended by the destructor, too.
  void signal(int number) const { kill(pid_, number); }
  void start(const std::string& address) {
    std::array<char, 64> text{};
    std::memcpy(text.data(), address.data(), std::min(address.size(), text.size() - 1));
    require(::write(fd_, text.data(), text.size()) == static_cast<ssize_t>(text.size()),
            "a child has ended");
  }

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
};

/// The transport of a node that listens on a port of its own, on loopback.
inline auto listening_transport(const ZeroMqOptions& options) {
  return [options](PeerInfo self) {
    self.address = "tcp://127.0.0.1:0";
    return make_zeromq_transport(std::move(self), options);
  };
}

/// Nodes w1 .. wN, each a process with one worker. With `state`, each keeps checkpoints in a folder
/// of its name there.
class Processes {
 public:
  explicit Processes(int count, const ZeroMqOptions& options = {}, const std::string& state = {})
      : options_(options) {
    children_.reserve(static_cast<std::size_t>(count));
    for (int i = 1; i <= count; ++i) {
      names_.push_back("w" + std::to_string(i));
      children_.emplace_back([name = names_.back(), options, state](const std::string& address,
                                                                    const auto& wait) {
        NodeOptions o{.name = name, .transport = listening_transport(options), .join = {address}};
        o.engine.workers = 1;
        if (!state.empty()) o.state = state + "/" + name;
        ClusterNode node(std::move(o));
        wait();
      });
    }
  }
  const std::vector<std::string>& names() const { return names_; }
  std::string device(std::size_t i) const { return "/node:" + names_[i] + "/cpu:0"; }
  void signal(std::size_t i, int number) const { children_[i].signal(number); }

  /// This process's node, "driver".
  std::unique_ptr<ClusterNode> join() {
    NodeOptions o{.name = "driver", .transport = listening_transport(options_)};
    o.engine.workers = 1;
    auto node = std::make_unique<ClusterNode>(std::move(o));
    for (Child& c : children_) c.start(node->address());
    node->wait_for(names_, std::chrono::seconds(60));
    return node;
  }

 private:
  ZeroMqOptions options_;
  std::vector<std::string> names_;
  std::vector<Child> children_;
};

/// A process that sends back what it gets, with nothing but the transport: what a round trip takes.
class Echo final : public TransportListener {
 public:
  explicit Echo(const ZeroMqOptions& options = {})
      : options_(options), child_([options](const std::string& address, const auto& wait) {
          class Back final : public TransportListener {
           public:
            Transport* transport = nullptr;
            void connected(detail::Peer, const PeerInfo&) override {}
            void refused(const std::string&, const Status&) override {}
            void lost(detail::Peer, const Status&) override {}
            void received(detail::Peer peer, Lane lane, Message message) override {
              transport->send(peer, lane, std::move(message));
            }
          } back;
          auto transport = make_zeromq_transport(
              {.name = "echo", .incarnation = 1, .address = "", .engine = ""}, options);
          back.transport = transport.get();
          transport->start(back);
          transport->connect(address);
          wait();
          transport->stop();
        }) {}
  ~Echo() {
    if (transport_) transport_->stop();
  }
  void start() {
    transport_ = listening_transport(options_)(
        {.name = "caller", .incarnation = 1, .address = "", .engine = ""});
    transport_->start(*this);
    child_.start(transport_->address());
    peer_ = connected_.get_future().get();
  }
  void connected(detail::Peer peer, const PeerInfo&) override { connected_.set_value(peer); }
  void refused(const std::string&, const Status&) override {}
  void lost(detail::Peer, const Status&) override {}
  void received(detail::Peer peer, Lane lane, Message message) override {
    if (--left_ > 0) transport_->send(peer, lane, std::move(message));
    else back_.release();
  }
  /// Returns the round trip of a head of 64 bytes, on the transport's own thread.
  double round_trip_ns(int count) {
    left_ = count;
    const double start = now_ns();
    transport_->send(peer_, Lane::data, {std::vector<std::byte>(64), {}});
    back_.acquire();
    return (now_ns() - start) / count;
  }

 private:
  ZeroMqOptions options_;
  Child child_;
  std::unique_ptr<Transport> transport_;
  std::promise<detail::Peer> connected_;
  std::binary_semaphore back_{0};
  int left_ = 0;
  detail::Peer peer_ = 0;
};

}  // namespace troupe::bench
