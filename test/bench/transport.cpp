// Tensors between two processes over TCP on loopback: one way from 64 B to 256 MiB, and the round trip of 64 B.
//
// Peers, in the same run, with the same congestion control: ZeroMQ used by hand as well as it can be (1 MiB chunks that
// refer to the tensor's memory; the receiver puts them together in a warm buffer, because that is what a tensor is),
// and bare sockets; all keep freed memory, as our transport makes malloc do. Each receiver is a process of its own, told over a pipe what will come, and answers there once it
// has all of it: what is timed is from the first send to that answer. `transport profile BYTES` runs our side alone.
#include <troupe/cluster/tcp_socket.hpp>
#include <troupe/cluster/zeromq.hpp>
#include <troupe/test/bench/bench.hpp>

#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <semaphore>

#include <zmq.h>

namespace {

using namespace troupe;
constexpr std::size_t kChunk = 1 << 20;
constexpr const char* kCongestion = "cubic";

void require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "transport: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

// ---- the two processes

struct Order {
  std::uint64_t bytes = 0, count = 0;  // no messages: end
  bool echo = false;
  std::uint32_t pause_us = 0;  // of a slow consumer, for each message
};
/// Processor time of this process.
double cpu_ns() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto ns = [](const timeval& t) { return 1e9 * static_cast<double>(t.tv_sec) + 1e3 * static_cast<double>(t.tv_usec); };
  return ns(used.ru_utime) + ns(used.ru_stime);
}

struct Report {
  std::uint64_t copied = 0, received = 0;
  double cpu = cpu_ns();
};

/// What a run took, on the clock and of both processes' processor time; the latter tells more on a busy machine.
struct Took {
  double ns = 0, cpu = 0;
};
/// Starts when it is made.
class Watch {
 public:
  explicit Watch(double other_cpu) : start_(bench::now_ns()), cpu_(cpu_ns() + other_cpu) {}
  Took stop(double ns, double other_cpu) const { return {ns - start_, cpu_ns() + other_cpu - cpu_}; }

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
    require(read(fd_, &value, sizeof value) == static_cast<ssize_t>(sizeof value), "the pipe is closed");
    return value;
  }

 private:
  int fd_;
};

/// Runs `receiver` in a process of its own.
Wire spawn(const std::function<void(Wire)>& receiver) {
  int ends[2];
  require(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
  if (fork() == 0) {
    close(ends[0]);
    receiver(Wire(ends[1]));
    _exit(0);
  }
  close(ends[1]);
  return Wire(ends[0]);
}

// ---- ours

class Receiver final : public TransportListener {
 public:
  Transport* transport = nullptr;
  std::atomic<std::uint64_t> left{0};
  Order order;
  std::binary_semaphore done{0};
  void connected(Peer, const PeerInfo&) override {}
  void refused(const std::string&, const Status& why) override { require(false, why.message().c_str()); }
  void lost(Peer, const Status&) override {}
  void received(Peer peer, Lane lane, Message message) override {
    if (order.echo) transport->send(peer, lane, std::move(message));
    if (order.pause_us) usleep(order.pause_us);
    if (left.fetch_sub(1) == 1) done.release();
  }
};

void receive_ours(Wire wire) {
  Receiver receiver;
  auto transport = make_zeromq_transport({.name = "receiver", .incarnation = 1, .address = "", .engine = ""});
  receiver.transport = transport.get();
  transport->start(receiver);
  char address[64] = {};
  std::memcpy(address, wire.get<std::array<char, 64>>().data(), sizeof address);
  transport->connect(address);
  for (;;) {
    receiver.order = wire.get<Order>();
    if (receiver.order.count == 0) break;
    receiver.left = receiver.order.count;
    wire.put('r');
    receiver.done.acquire();
    const TransportCounters c = transport->counters();
    wire.put(Report{.copied = c.copied_bytes, .received = c.bytes_in});
  }
  transport->stop();
}

class Sender final : public TransportListener {
 public:
  Sender() : wire_(spawn(receive_ours)) {
    transport = make_zeromq_transport({.name = "sender", .incarnation = 1, .address = "tcp://127.0.0.1:0", .engine = ""});
    transport->start(*this);
    std::array<char, 64> address{};
    std::memcpy(address.data(), transport->address().data(), transport->address().size());
    wire_.put(address);
    peer_ = connected_.get_future().get();
  }
  ~Sender() {
    wire_.put(Order{});
    transport->stop();
  }
  void connected(Peer peer, const PeerInfo&) override { connected_.set_value(peer); }
  void refused(const std::string&, const Status&) override {}
  void lost(Peer, const Status&) override {}
  void received(Peer peer, Lane lane, Message message) override {
    if (--round_trips_ > 0)
      transport->send(peer, lane, std::move(message));
    else
      back_.release();
  }

  Took one_way(std::uint64_t bytes, std::uint64_t count) {
    const Tensor t = tensor(bytes);
    wire_.put(Order{.bytes = bytes, .count = count});
    wire_.get<char>();
    const Watch watch(report.cpu);
    for (std::uint64_t i = 0; i < count; ++i) transport->send(peer_, Lane::data, {std::vector<std::byte>(16), {t}});
    report = wire_.get<Report>();
    return watch.stop(bench::now_ns(), report.cpu);
  }
  double round_trip_ns(std::uint64_t bytes, std::uint64_t count) {
    const Tensor t = tensor(bytes);
    wire_.put(Order{.bytes = bytes, .count = count, .echo = true});
    wire_.get<char>();
    round_trips_ = static_cast<std::int64_t>(count);
    const double start = bench::now_ns();
    transport->send(peer_, Lane::data, {std::vector<std::byte>(16), {t}});
    back_.acquire();
    const double took = bench::now_ns() - start;
    report = wire_.get<Report>();
    return took / static_cast<double>(count);
  }
  /// The most bytes that the network held of ours while the receiver took `pause_us` for each message.
  std::pair<std::uint64_t, std::uint64_t> slow_consumer(std::uint64_t bytes, std::uint64_t count, std::uint32_t pause_us) {
    wire_.put(Order{.bytes = bytes, .count = count, .pause_us = pause_us});
    wire_.get<char>();
    const Tensor t = tensor(bytes);
    std::uint64_t held = 0, waiting = 0;
    const std::uint64_t before = transport->counters().messages_out;
    for (std::uint64_t i = 0; i < count; ++i) transport->send(peer_, Lane::data, {std::vector<std::byte>(16), {t}});
    for (TransportCounters c{.unsent_bytes = 1}; c.unsent_bytes + c.unacknowledged_bytes != 0 || c.messages_out < before + count;
         c = transport->counters()) {
      held = std::max(held, c.unacknowledged_bytes);
      waiting = std::max(waiting, c.unsent_bytes);
      usleep(500);
    }
    report = wire_.get<Report>();
    return {held, waiting};
  }
  static Tensor tensor(std::uint64_t bytes) {
    Tensor t = Tensor::empty(DType::u8, Shape{static_cast<std::int64_t>(bytes)});
    std::memset(t.raw_mutable(), 7, bytes);
    return t;
  }

  std::unique_ptr<Transport> transport;
  Report report;

 private:
  std::promise<Peer> connected_;
  std::binary_semaphore back_{0};
  std::int64_t round_trips_ = 0;
  Wire wire_;
  Peer peer_ = 0;
};

// ---- ZeroMQ by hand

/// A ZeroMQ socket that listens here, with the congestion control that the sockets it accepts inherit.
void* bind_socket(void* context, int type, std::string& address) {
  void* socket = zmq_socket(context, type);
  ListeningSocket at = listen_at("tcp://127.0.0.1:0", kCongestion);
  const int fd = at.fd.release();
  zmq_setsockopt(socket, ZMQ_USE_FD, &fd, sizeof fd);
  require(zmq_bind(socket, at.address.c_str()) == 0, "bind");
  address = at.address;
  return socket;
}

class ZeroMqByHand {
 public:
  /// Types of the sender, which listens, and of the receiver.
  ZeroMqByHand(int ours, int theirs)
      : wire_(spawn([theirs](Wire wire) { receive(wire, theirs); })), context_(zmq_ctx_new()), is_router_(ours == ZMQ_ROUTER) {
    std::string address;
    socket_ = bind_socket(context_, ours, address);
    std::array<char, 64> text{};
    std::memcpy(text.data(), address.data(), address.size());
    wire_.put(text);
    char hello[256];
    id_.assign(hello, static_cast<std::size_t>(zmq_recv(socket_, hello, sizeof hello, 0)));
    if (is_router_) zmq_recv(socket_, hello, sizeof hello, 0);
  }
  ~ZeroMqByHand() {
    wire_.put(Order{});
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  Took one_way(std::uint64_t bytes, std::uint64_t count) {
    source_.resize(bytes, std::byte{7});
    wire_.put(Order{.bytes = bytes, .count = count});
    wire_.get<char>();
    const Watch watch(report_.cpu);
    for (std::uint64_t i = 0; i < count; ++i)
      for (std::uint64_t at = 0; at < bytes; at += kChunk) send(source_.data() + at, std::min<std::uint64_t>(kChunk, bytes - at));
    report_ = wire_.get<Report>();
    return watch.stop(bench::now_ns(), report_.cpu);
  }
  double round_trip_ns(std::uint64_t bytes, std::uint64_t count) {
    source_.resize(bytes, std::byte{7});
    wire_.put(Order{.bytes = bytes, .count = count, .echo = true});
    wire_.get<char>();
    const double start = bench::now_ns();
    for (std::uint64_t i = 0; i < count; ++i) {
      send(source_.data(), bytes);
      char ignored[256];
      if (is_router_) zmq_recv(socket_, ignored, sizeof ignored, 0);
      zmq_recv(socket_, ignored, sizeof ignored, 0);
    }
    const double took = bench::now_ns() - start;
    report_ = wire_.get<Report>();
    return took / static_cast<double>(count);
  }

 private:
  void send(std::byte* data, std::size_t bytes) {
    if (is_router_) zmq_send(socket_, id_.data(), id_.size(), ZMQ_SNDMORE);
    zmq_msg_t message;
    if (bytes <= 1024) {
      zmq_msg_init_size(&message, bytes);
      std::memcpy(zmq_msg_data(&message), data, bytes);
    } else {
      zmq_msg_init_data(&message, data, bytes, [](void*, void*) {}, nullptr);
    }
    require(zmq_msg_send(&message, socket_, 0) >= 0, "zmq_msg_send");
  }
  static void receive(Wire wire, int type) {
    void* context = zmq_ctx_new();
    void* socket = zmq_socket(context, type);
    const auto address = wire.get<std::array<char, 64>>();
    zmq_connect(socket, address.data());
    zmq_send(socket, "hello", 5, 0);
    std::vector<std::byte> whole;
    for (;;) {
      const auto order = wire.get<Order>();
      if (order.count == 0) break;
      whole.resize(order.bytes);
      wire.put('r');
      zmq_msg_t message;
      zmq_msg_init(&message);
      for (std::uint64_t i = 0; i < order.count; ++i) {
        for (std::uint64_t at = 0; at < order.bytes;) {
          require(zmq_msg_recv(&message, socket, 0) >= 0, "zmq_msg_recv");
          std::memcpy(whole.data() + at, zmq_msg_data(&message), zmq_msg_size(&message));
          at += zmq_msg_size(&message);
        }
        if (order.echo) zmq_send(socket, whole.data(), order.bytes, 0);
      }
      zmq_msg_close(&message);
      wire.put(Report{});
    }
    zmq_close(socket);
    zmq_ctx_term(context);
  }

  Wire wire_;
  void* context_;
  void* socket_ = nullptr;
  bool is_router_;
  std::string id_;
  std::vector<std::byte> source_;
  Report report_;
};

// ---- bare sockets

class BareTcp {
 public:
  BareTcp() : wire_(spawn(receive)) {
    ListeningSocket at = listen_at("tcp://127.0.0.1:0", kCongestion);
    wire_.put(std::atoi(at.address.substr(at.address.rfind(':') + 1).c_str()));
    do fd_ = accept(at.fd.get(), nullptr, nullptr);
    while (fd_ < 0 && errno == EAGAIN);
    require(fd_ >= 0, "accept");
    no_delay(fd_);
  }
  ~BareTcp() {
    wire_.put(Order{});
    close(fd_);
  }
  Took one_way(std::uint64_t bytes, std::uint64_t count) {
    source_.resize(bytes, std::byte{7});
    wire_.put(Order{.bytes = bytes, .count = count});
    wire_.get<char>();
    const Watch watch(report_.cpu);
    for (std::uint64_t i = 0; i < count; ++i) put(fd_, source_);
    report_ = wire_.get<Report>();
    return watch.stop(bench::now_ns(), report_.cpu);
  }
  double round_trip_ns(std::uint64_t bytes, std::uint64_t count) {
    source_.resize(bytes, std::byte{7});
    wire_.put(Order{.bytes = bytes, .count = count, .echo = true});
    wire_.get<char>();
    const double start = bench::now_ns();
    for (std::uint64_t i = 0; i < count; ++i) {
      put(fd_, source_);
      get(fd_, source_);
    }
    const double took = bench::now_ns() - start;
    report_ = wire_.get<Report>();
    return took / static_cast<double>(count);
  }

 private:
  static void no_delay(int fd) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  static void put(int fd, const std::vector<std::byte>& data) {
    for (std::size_t at = 0; at < data.size();) {
      const ssize_t n = write(fd, data.data() + at, data.size() - at);
      require(n > 0, "write");
      at += static_cast<std::size_t>(n);
    }
  }
  static void get(int fd, std::vector<std::byte>& data) {
    for (std::size_t at = 0; at < data.size();) {
      const ssize_t n = read(fd, data.data() + at, data.size() - at);
      require(n > 0, "read");
      at += static_cast<std::size_t>(n);
    }
  }
  static void receive(Wire wire) {
    const int port = wire.get<int>();
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    require(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0, "connect");
    set_congestion(fd, kCongestion);
    no_delay(fd);
    std::vector<std::byte> whole;
    for (;;) {
      const auto order = wire.get<Order>();
      if (order.count == 0) break;
      whole.resize(order.bytes);
      wire.put('r');
      for (std::uint64_t i = 0; i < order.count; ++i) {
        get(fd, whole);
        if (order.echo) put(fd, whole);
      }
      wire.put(Report{});
    }
    close(fd);
  }

  Wire wire_;
  int fd_ = -1;
  std::vector<std::byte> source_;
  Report report_;
};

struct Size {
  const char* name;
  std::uint64_t bytes, count;
  double of_zeromq, of_tcp;  // budgets: our throughput ÷ theirs
};
constexpr Size kSizes[] = {{"64B", 64, 200'000, 0, 0},
                           {"64KiB", 64 << 10, 8'000, 0, 0},
                           {"1MiB", 1 << 20, 1'000, 0.95, 0.7},
                           {"16MiB", 16 << 20, 64, 0.95, 0.8},
                           {"256MiB", 256 << 20, 4, 0.95, 0.8}};

double gb_s(const Size& size, double ns) { return static_cast<double>(size.bytes * size.count) / ns; }

void one_way(const Size& size, Sender& ours, ZeroMqByHand& zeromq, BareTcp& tcp, int repetitions) {
  int major, minor, patch;
  zmq_version(&major, &minor, &patch);
  // ns a KiB, so that a ratio ours ÷ peer bounded from above says what throughput peer ÷ ours bounded from below does.
  bench::Comparison z{.name = std::string("transport_") + size.name, .unit = "ns/KiB", .peer = "ZeroMQ, chunked by hand",
                      .peer_version = std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch),
                      .budget = size.of_zeromq, .threads = 2, .speed_up = true};
  bench::Comparison t{.name = z.name + "_tcp", .unit = "ns/KiB", .peer = "bare TCP", .budget = size.of_tcp, .threads = 2, .speed_up = true};
  const double kib = static_cast<double>(size.bytes * size.count) / 1024;
  std::vector<double> cpu_ours, cpu_zeromq, cpu_tcp;
  double copies = 0;
  for (int i = -1; i < repetitions; ++i) {
    const std::uint64_t copied_before = ours.transport->counters().copied_bytes;
    const Report before = ours.report;
    const Took o = ours.one_way(size.bytes, size.count), p = zeromq.one_way(size.bytes, size.count), q = tcp.one_way(size.bytes, size.count);
    if (i < 0) continue;  // to warm up
    copies = static_cast<double>(ours.transport->counters().copied_bytes - copied_before + ours.report.copied - before.copied) /
             static_cast<double>(ours.report.received - before.received);
    z.ours.push_back(o.ns / kib);
    t.ours.push_back(o.ns / kib);
    z.theirs.push_back(p.ns / kib);
    t.theirs.push_back(q.ns / kib);
    cpu_ours.push_back(o.cpu);
    cpu_zeromq.push_back(p.cpu);
    cpu_tcp.push_back(q.cpu);
  }
  z.also = {{"gb_s", 1.024e3 / bench::median(z.ours)}, {"peer_gb_s", 1.024e3 / bench::median(z.theirs)},
            {"cpu_ratio", bench::median(cpu_zeromq) / bench::median(cpu_ours)}, {"copies_per_byte", copies}};
  t.also = {{"gb_s", 1.024e3 / bench::median(t.ours)}, {"peer_gb_s", 1.024e3 / bench::median(t.theirs)},
            {"cpu_ratio", bench::median(cpu_tcp) / bench::median(cpu_ours)}};
  z.print();
  t.print();
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int repetitions = 5;
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_TOP_PAD, 16 << 20);
  if (argc == 3 && std::string(argv[1]) == "profile") {
    Sender ours;
    BareTcp bare;
    for (const Size& size : kSizes)
      if (std::string(argv[2]) == size.name)
        for (int i = 0; i < 10; ++i) {
          const Took o = ours.one_way(size.bytes, size.count), t = bare.one_way(size.bytes, size.count);
          std::printf("%s %.3g GB/s, %.3g by processor time; TCP %.3g, %.3g\n", size.name, gb_s(size, o.ns), gb_s(size, o.cpu), gb_s(size, t.ns), gb_s(size, t.cpu));
        }
    if (std::string(argv[2]) == "rtt")
      for (int i = 0; i < 10; ++i) std::printf("%.3g us\n", ours.round_trip_ns(64, 5000) / 1e3);
    return 0;
  }
  Sender ours;
  ZeroMqByHand pair(ZMQ_PAIR, ZMQ_PAIR), router(ZMQ_ROUTER, ZMQ_DEALER);
  BareTcp tcp;
  for (const Size& size : kSizes) one_way(size, ours, pair, tcp, repetitions);

  bench::Comparison r{.name = "transport_rtt_64B", .unit = "us", .peer = "ZeroMQ ROUTER-DEALER", .budget = 1.2};
  bench::Comparison p{.name = "transport_rtt_64B_pair", .unit = "us", .peer = "ZeroMQ PAIR"};
  bench::Comparison b{.name = "transport_rtt_64B_tcp", .unit = "us", .peer = "bare TCP"};
  for (int i = 0; i < repetitions; ++i) {
    r.ours.push_back(ours.round_trip_ns(64, 5000) / 1e3);
    p.ours.push_back(r.ours.back());
    b.ours.push_back(r.ours.back());
    r.theirs.push_back(router.round_trip_ns(64, 5000) / 1e3);
    p.theirs.push_back(pair.round_trip_ns(64, 5000) / 1e3);
    b.theirs.push_back(tcp.round_trip_ns(64, 5000) / 1e3);
  }
  r.print();
  p.print();
  b.print();

  const auto window = static_cast<double>(RouterOptions{}.window) / (1 << 20);
  bench::Comparison slow{.name = "transport_slow_consumer", .unit = "MiB", .peer = "none", .budget_value = window};
  const auto [held, waiting] = ours.slow_consumer(1 << 20, 200, 2000);
  slow.ours.push_back(static_cast<double>(held) / (1 << 20));
  slow.also = {{"waiting_mib", static_cast<double>(waiting) / (1 << 20)}, {"bound", held >= (RouterOptions{}.window >> 1) && waiting > 0}};
  slow.note = "held by the network of a sender whose receiver takes 2 ms a MiB; bound: the limit was reached";
  slow.print();
}
