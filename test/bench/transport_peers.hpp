// Peers of the transport: ZeroMQ used by hand, bare sockets. Each sends from this process to one of
// its own, which gets over a pipe the messages to expect, and answers there once it has all of
// them.
#pragma once

#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/test/bench/bench.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <zmq.h>

namespace troupe::bench {

inline constexpr std::size_t kChunk = 1 << 20;
inline constexpr const char* kCongestion = "cubic";

inline void require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "transport: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

struct Order {
  std::uint64_t bytes = 0, count = 0;  // no messages: end
  bool echo = false;
  std::uint32_t pause_us = 0;  // pause of a slow consumer, for each message
  bool read = false;           // each message, and then say so
};
/// Processor time of this process.
inline double cpu_ns() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto ns = [](const timeval& t) {
    return 1e9 * static_cast<double>(t.tv_sec) + 1e3 * static_cast<double>(t.tv_usec);
  };
  return ns(used.ru_utime) + ns(used.ru_stime);
}

/// As fast as memory is read: a sum that is not used.
inline void read_all(const void* data, std::size_t bytes) {
  std::uint64_t sums[8] = {};
  const auto* p = static_cast<const unsigned char*>(data);
  for (std::size_t at = 0; at + sizeof sums <= bytes; at += sizeof sums) {
    std::uint64_t words[8];
    std::memcpy(words, p + at, sizeof words);
    for (int i = 0; i < 8; ++i) sums[i] += words[i];
  }
  asm volatile("" : : "r"(sums) : "memory");
}

struct Report {
  std::uint64_t copied = 0, received = 0;
  double cpu = cpu_ns();
};

/// The costs of a run, by the clock and by both processes' processor time; the latter is more
/// reliable on a busy machine.
struct Took {
  double ns = 0, cpu = 0;
};
/// Starts when it is made.
class Watch {
 public:
  explicit Watch(double other_cpu) : start_(now_ns()), cpu_(cpu_ns() + other_cpu) {}
  Took stop(double ns, double other_cpu) const {
    return {ns - start_, cpu_ns() + other_cpu - cpu_};
  }

 private:
  double start_, cpu_;
};

/// A pipe to the other process.
class Wire {
 public:
  explicit Wire(int fd) : fd_(fd) {}
  template <class T>
  void put(const T& value) {
    require(write(fd_, &value, sizeof value) == sizeof value, "the pipe is closed");
  }
  template <class T>
  T get() {
    T value;
    require(read(fd_, &value, sizeof value) == static_cast<ssize_t>(sizeof value),
            "the pipe is closed");
    return value;
  }
  void put_text(const std::string& text) {
    std::array<char, 64> fixed{};
    std::memcpy(fixed.data(), text.data(), text.size());
    put(fixed);
  }
  std::string get_text() { return get<std::array<char, 64>>().data(); }

 private:
  int fd_;
};

/// Runs `receiver` in a process of its own.
inline Wire spawn(const std::function<void(Wire)>& receiver) {
  int ends[2];
  require(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    receiver(Wire(ends[1]));
    _exit(0);
  }
  close(ends[1]);
  return Wire(ends[0]);
}

/// One way of moving `bytes` bytes `count` times to another process, and back.
class ByHand {
 public:
  /// The socket of either process: sends and receives whole messages.
  class End {
   public:
    virtual ~End() = default;
    virtual void send(std::vector<std::byte>& data) = 0;
    virtual void receive(std::vector<std::byte>& data) = 0;
  };

  Took one_way(std::uint64_t bytes, std::uint64_t count) {
    begin({.bytes = bytes, .count = count});
    const Watch watch(report_.cpu);
    for (std::uint64_t i = 0; i < count; ++i) end_->send(source_);
    report_ = wire_.get<Report>();
    return watch.stop(now_ns(), report_.cpu);
  }
  double round_trip_ns(std::uint64_t bytes, std::uint64_t count) {
    begin({.bytes = bytes, .count = count, .echo = true});
    const double start = now_ns();
    for (std::uint64_t i = 0; i < count; ++i) {
      end_->send(source_);
      end_->receive(source_);
    }
    const double took = now_ns() - start;
    report_ = wire_.get<Report>();
    return took / static_cast<double>(count);
  }
  ~ByHand() { wire_.put(Order{}); }

 protected:
  /// `dial` makes the end of the receiving process.
  explicit ByHand(const std::function<std::unique_ptr<End>(Wire&)>& dial)
      : wire_(spawn([dial](Wire wire) { serve(wire, *dial(wire)); })) {}
  Wire wire_;
  std::unique_ptr<End> end_;

 private:
  void begin(const Order& order) {
    source_.resize(order.bytes, std::byte{7});
    wire_.put(order);
    wire_.get<char>();
  }
  static void serve(Wire& wire, End& end) {
    std::vector<std::byte> whole;
    for (auto order = wire.get<Order>(); order.count != 0; order = wire.get<Order>()) {
      whole.resize(order.bytes);
      wire.put('r');
      for (std::uint64_t i = 0; i < order.count; ++i) {
        end.receive(whole);
        if (order.echo) end.send(whole);
      }
      wire.put(Report{});
    }
  }

  std::vector<std::byte> source_;
  Report report_;
};

// ---- ZeroMQ

struct CurveKeys {
  char public_key[41], secret_key[41];
};

class ZeroMqEnd final : public ByHand::End {
 public:
  ZeroMqEnd(void* context, int type, const CurveKeys* keys, bool serves)
      : context_(context), socket_(zmq_socket(context, type)), type_(type) {
    if (!keys) return;
    const int on = serves;
    zmq_setsockopt(socket_, ZMQ_CURVE_SERVER, &on, sizeof on);
    zmq_setsockopt(socket_, ZMQ_CURVE_SECRETKEY, keys->secret_key, 41);
    if (!serves) zmq_setsockopt(socket_, ZMQ_CURVE_PUBLICKEY, keys->public_key, 41);
    if (!serves) zmq_setsockopt(socket_, ZMQ_CURVE_SERVERKEY, keys->public_key, 41);
  }
  ~ZeroMqEnd() override {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  /// Listens, with the congestion control that the sockets it accepts inherit.
  std::string bind() {
    ListeningSocket at = listen_at("tcp://127.0.0.1:0", kCongestion);
    const int fd = at.fd.release();
    zmq_setsockopt(socket_, ZMQ_USE_FD, &fd, sizeof fd);
    require(zmq_bind(socket_, at.address.c_str()) == 0, "bind");
    return at.address;
  }
  void dial(const std::string& address) {
    zmq_connect(socket_, address.c_str());
    zmq_send(socket_, "hello", 5, 0);
  }
  void greet() {
    char hello[256];
    id_.assign(hello, static_cast<std::size_t>(zmq_recv(socket_, hello, sizeof hello, 0)));
    if (type_ == ZMQ_ROUTER) zmq_recv(socket_, hello, sizeof hello, 0);
  }
  void send(std::vector<std::byte>& data) override {
    for (std::size_t at = 0; at < data.size(); at += kChunk)
      send(data.data() + at, std::min(kChunk, data.size() - at));
  }
  void receive(std::vector<std::byte>& data) override {
    zmq_msg_t message;
    zmq_msg_init(&message);
    for (std::size_t at = 0; at < data.size(); at += zmq_msg_size(&message)) {
      if (type_ == ZMQ_ROUTER) zmq_msg_recv(&message, socket_, 0);  // the sender's identity
      require(zmq_msg_recv(&message, socket_, 0) >= 0, "zmq_msg_recv");
      std::memcpy(data.data() + at, zmq_msg_data(&message), zmq_msg_size(&message));
    }
    zmq_msg_close(&message);
  }

 private:
  void send(std::byte* data, std::size_t bytes) {
    if (type_ == ZMQ_ROUTER) zmq_send(socket_, id_.data(), id_.size(), ZMQ_SNDMORE);
    zmq_msg_t message;
    if (bytes <= 1024) {
      zmq_msg_init_size(&message, bytes);
      std::memcpy(zmq_msg_data(&message), data, bytes);
    } else {
      zmq_msg_init_data(
          &message, data, bytes, [](void*, void*) {}, nullptr);
    }
    require(zmq_msg_send(&message, socket_, 0) >= 0, "zmq_msg_send");
  }

  void* context_;
  void* socket_;
  const int type_;
  std::string id_;
};

class ZeroMqByHand final : public ByHand {
 public:
  /// Types of the sender, which listens, and of the receiver; with keys for both, under CURVE.
  ZeroMqByHand(int ours, int theirs, const CurveKeys* keys = nullptr)
      : ByHand([theirs, keys](Wire& wire) {
          auto end = std::make_unique<ZeroMqEnd>(zmq_ctx_new(), theirs, keys, false);
          end->dial(wire.get_text());
          return end;
        }) {
    auto end = std::make_unique<ZeroMqEnd>(zmq_ctx_new(), ours, keys, true);
    wire_.put_text(end->bind());
    end->greet();
    end_ = std::move(end);
  }
};

// ---- bare sockets

class BareEnd final : public ByHand::End {
 public:
  explicit BareEnd(int fd) : fd_(fd) {
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~BareEnd() override { close(fd_); }
  void send(std::vector<std::byte>& data) override {
    for (std::size_t at = 0; at < data.size();)
      at += moved(write(fd_, data.data() + at, data.size() - at), "write");
  }
  void receive(std::vector<std::byte>& data) override {
    for (std::size_t at = 0; at < data.size();)
      at += moved(read(fd_, data.data() + at, data.size() - at), "read");
  }

 private:
  static std::size_t moved(ssize_t n, const char* what) {
    require(n > 0, what);
    return static_cast<std::size_t>(n);
  }
  int fd_;
};

class BareTcp final : public ByHand {
 public:
  BareTcp()
      : ByHand([](Wire& wire) {
          const int port = wire.get<int>();
          const int fd = socket(AF_INET, SOCK_STREAM, 0);
          sockaddr_in to{};
          to.sin_family = AF_INET;
          to.sin_port = htons(static_cast<std::uint16_t>(port));
          to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
          require(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0, "connect");
          set_congestion(fd, kCongestion);
          return std::make_unique<BareEnd>(fd);
        }) {
    ListeningSocket at = listen_at("tcp://127.0.0.1:0", kCongestion);
    wire_.put(std::atoi(at.address.substr(at.address.rfind(':') + 1).c_str()));
    int fd;
    do fd = accept(at.fd.get(), nullptr, nullptr);
    while (fd < 0 && errno == EAGAIN);
    require(fd >= 0, "accept");
    end_ = std::make_unique<BareEnd>(fd);
  }
};

}  // namespace troupe::bench
