// Tensors between two processes of one host, over TCP on loopback and by shared memory: one way
// from 64 B to 256 MiB, the round trip of 64 B, sealed.
//
// Peers, in the same run, with the same congestion control: ZeroMQ used by hand as well as it can
// be (1 MiB chunks that refer to the tensor's memory; the receiver joins them in a warm buffer,
// because a tensor is contiguous), bare sockets, and memcpy; all keep freed memory, as our
// transport makes malloc do. The time runs from the first send to the answer that all has arrived;
// rows `_copies` count the bytes that either end copies in user space. `transport profile SIZE|rtt
// [tcp|shm|offset|sealed]` runs our side alone.
#include <troupe/cluster/transport/zeromq/zeromq.hpp>
#include <troupe/test/bench/keyed.hpp>
#include <troupe/test/bench/transport_peers.hpp>

#include <malloc.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <future>
#include <memory>
#include <semaphore>

namespace {

using namespace troupe;
using bench::ByHand, bench::Order, bench::Report, bench::require, bench::Took, bench::Watch,
    bench::Wire, bench::ZeroMqByHand;

// ---- ours

class Receiver final : public TransportListener {
 public:
  Transport* transport = nullptr;
  std::atomic<std::uint64_t> left{0};
  Order order;
  std::binary_semaphore done{0};
  void connected(Peer, const PeerInfo&) override {}
  void refused(const std::string&, const Status& why) override {
    require(false, why.message().c_str());
  }
  void lost(Peer, const Status&) override {}
  void received(Peer peer, Lane lane, Message message) override {
    if (order.echo) transport->send(peer, lane, std::move(message));
    if (order.pause_us) usleep(order.pause_us);
    if (order.read) {
      bench::read_all(message.tensors[0].raw(), message.tensors[0].bytes());
      message = {};
      transport->send(peer, Lane::control, {});
    }
    if (left.fetch_sub(1) == 1) done.release();
  }
};

void receive_ours(Wire wire, const ZeroMqOptions& options) {
  Receiver receiver;
  auto transport = make_zeromq_transport(
      {.name = "receiver", .incarnation = 1, .address = "", .engine = ""}, options);
  receiver.transport = transport.get();
  transport->start(receiver);
  transport->connect(wire.get_text());
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
  explicit Sender(const ZeroMqOptions& options)
      : wire_(bench::spawn([options](Wire wire) { receive_ours(wire, options); })) {
    transport = make_zeromq_transport(
        {.name = "sender", .incarnation = 1, .address = "tcp://127.0.0.1:0", .engine = ""},
        options);
    transport->start(*this);
    wire_.put_text(transport->address());
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
    if (lane == Lane::control) free_.release();
    else if (--round_trips_ > 0) transport->send(peer, lane, std::move(message));
    else back_.release();
  }

  Took one_way(std::uint64_t bytes, std::uint64_t count) {
    const Tensor t = tensor(bytes);
    wire_.put(Order{.bytes = bytes, .count = count});
    wire_.get<char>();
    const Watch watch(report.cpu);
    for (std::uint64_t i = 0; i < count; ++i)
      transport->send(peer_, Lane::data, {std::vector<std::byte>(16), {t}});
    report = wire_.get<Report>();
    return watch.stop(bench::now_ns(), report.cpu);
  }
  /// Tensors that are made where the receiver reads them, each freed before the next: one piece of
  /// memory, warm as its peer's is.
  Took by_offset(std::uint64_t bytes, std::uint64_t count) {
    wire_.put(Order{.bytes = bytes, .count = count, .read = true});
    wire_.get<char>();
    const Watch watch(report.cpu);
    for (std::uint64_t i = 0; i < count; ++i) {
      free_.acquire();
      // no list in braces: that holds the tensor for a while, and it would be copied
      Message m{std::vector<std::byte>(16), {}};
      m.tensors.push_back(
          transport->empty_for(peer_, DType::u8, Shape{static_cast<std::int64_t>(bytes)}));
      transport->send(peer_, Lane::data, std::move(m));
    }
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
  /// The most bytes that the network buffered of ours while the receiver took `pause_us` for each
  /// message.
  struct Slow {
    // bytes: on their way at most, not sent yet at most, of this process's memory
    std::uint64_t held, waiting, grown;
  };
  Slow slow_consumer(std::uint64_t bytes, std::uint64_t count, std::uint32_t pause_us) {
    wire_.put(Order{.bytes = bytes, .count = count, .pause_us = pause_us});
    wire_.get<char>();
    const Tensor t = tensor(bytes);
    std::uint64_t held = 0, waiting = 0, most = 0;
    const std::uint64_t resident = resident_bytes();
    const std::uint64_t before = transport->counters().messages_out;
    for (std::uint64_t i = 0; i < count; ++i)
      transport->send(peer_, Lane::data, {std::vector<std::byte>(16), {t}});
    for (TransportCounters c{.unsent_bytes = 1};
         c.unsent_bytes + c.unacknowledged_bytes != 0 || c.messages_out < before + count;
         c = transport->counters()) {
      held = std::max(held, c.unacknowledged_bytes);
      waiting = std::max(waiting, c.unsent_bytes);
      most = std::max(most, resident_bytes());
      usleep(500);
    }
    report = wire_.get<Report>();
    return {held, waiting, most > resident ? most - resident : 0};
  }
  static std::uint64_t resident_bytes() {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
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
  std::binary_semaphore free_{1};
  std::int64_t round_trips_ = 0;
  Wire wire_;
  Peer peer_ = 0;
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

double gb_s(const Size& size, double ns) {
  return static_cast<double>(size.bytes * size.count) / ns;
}

/// ours ÷ theirs as ns a KiB, so that the ratio is that of throughputs.
std::string version_of(const std::string& peer) {
  if (!peer.starts_with("ZeroMQ")) return "same build";
  int major = 0, minor = 0, patch = 0;
  zmq_version(&major, &minor, &patch);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

struct Rows {
  Rows(const std::string& name, const std::string& peer, double budget)
      : row{.name = name,
            .unit = "ns/KiB",
            .peer = peer,
            .peer_version = version_of(peer),
            .budget = budget,
            .threads = 2,
            .speed_up = true} {}
  void add(const Size& size, const Took& ours, const Took& theirs) {
    const double kib = static_cast<double>(size.bytes * size.count) / 1024;
    row.ours.push_back(ours.ns / kib);
    row.theirs.push_back(theirs.ns / kib);
    cpu_ours.push_back(ours.cpu);
    cpu_theirs.push_back(theirs.cpu);
  }
  void print() {
    row.also.insert(row.also.begin(),
                    {{"gb_s", 1.024e3 / bench::median(row.ours)},
                     {"peer_gb_s", 1.024e3 / bench::median(row.theirs)},
                     {"cpu_ratio", bench::median(cpu_theirs) / bench::median(cpu_ours)}});
    row.print();
  }
  bench::Comparison row;
  std::vector<double> cpu_ours, cpu_theirs;
};

/// Copies in user space of what was sent and received since it was made, at either end.
class Copies {
 public:
  struct PerByte {  // per byte of heads and tensors
    double sender, receiver;
  };
  explicit Copies(const Sender& sender)
      : sender_(sender), before_(sender.report),
        copied_(sender.transport->counters().copied_bytes) {}
  PerByte per_byte() const {
    const auto received = static_cast<double>(sender_.report.received - before_.received);
    return {static_cast<double>(sender_.transport->counters().copied_bytes - copied_) / received,
            static_cast<double>(sender_.report.copied - before_.copied) / received};
  }

 private:
  const Sender& sender_;
  const Report before_;
  const std::uint64_t copied_;
};

/// The budget of copies applies to an end: the end that makes more of them has the value, to a
/// hundredth, because headers and acknowledgements are copied too and are no bytes of a message.
/// Sealed or gathered bytes are written once at either end, so `both_ends` is up to 2.
struct CopyRow {
  explicit CopyRow(const std::string& of)
      : row{.name = of + "_copies",
            .unit = "copies/B",
            .peer = "none",
            .threads = 2,
            .budget_value = 1} {}
  void add(Copies::PerByte c) {
    row.ours.push_back(std::round(100 * std::max(c.sender, c.receiver)) / 100);
    sender.push_back(c.sender);
    receiver.push_back(c.receiver);
  }
  void print() {
    const double s = bench::median(sender), r = bench::median(receiver);
    row.also = {{"sender", s}, {"receiver", r}, {"both_ends", s + r}};
    row.note = "in user space, of a byte of heads and tensors, at the end that copies more";
    row.print();
  }
  bench::Comparison row;
  std::vector<double> sender, receiver;
};

void one_way(const Size& size, Sender& ours, ByHand& zeromq, ByHand& tcp, int repetitions) {
  Rows z(std::string("transport_") + size.name, "ZeroMQ, chunked by hand", size.of_zeromq),
      t(z.row.name + "_tcp", "bare TCP", size.of_tcp);
  CopyRow copies(z.row.name);
  for (int i = -1; i < repetitions; ++i) {
    const Copies counted(ours);
    const Took o = ours.one_way(size.bytes, size.count), p = zeromq.one_way(size.bytes, size.count),
               q = tcp.one_way(size.bytes, size.count);
    if (i < 0) continue;  // to warm up
    copies.add(counted.per_byte());
    z.add(size, o, p);
    t.add(size, o, q);
  }
  z.print();
  t.print();
  copies.print();
}

/// Against one peer, which `theirs` runs once.
template <class Mine, class Theirs>
void against(const std::string& name, const std::string& peer, double budget, const Size& size,
             Sender& ours, int repetitions, Mine mine, Theirs theirs) {
  Rows r(name, peer, budget);
  CopyRow copies(name);
  for (int i = -1; i < repetitions; ++i) {
    const Copies counted(ours);
    const Took o = mine(), t = theirs();
    if (i < 0) continue;
    copies.add(counted.per_byte());
    r.add(size, o, t);
  }
  r.print();
  copies.print();
}

/// A copy from one warm buffer to another.
Took copy(const Size& size) {
  static std::vector<std::byte> from, to;
  from.resize(size.bytes, std::byte{7});
  to.resize(size.bytes, std::byte{8});
  const Watch watch(0);
  for (std::uint64_t i = 0; i < size.count; ++i) {
    std::memcpy(to.data(), from.data(), size.bytes);
    asm volatile("" : : "r"(to.data()) : "memory");
  }
  return watch.stop(bench::now_ns(), 0);
}

/// All of a warm buffer.
Took read_warm(const Size& size) {
  static const std::vector<std::byte> from(size.bytes, std::byte{7});
  const Watch watch(0);
  for (std::uint64_t i = 0; i < size.count; ++i) bench::read_all(from.data(), size.bytes);
  return watch.stop(bench::now_ns(), 0);
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int repetitions = 5;
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_TOP_PAD, 16 << 20);
  const ZeroMqOptions over_tcp{.shared_memory = false}, by_memory{},
      sealed = bench::with_keys(over_tcp);
  if (argc >= 3 && std::string(argv[1]) == "profile") {
    const std::string how = argc > 3 ? argv[3] : "tcp";
    Sender ours(how == "shm" || how == "offset" ? by_memory : how == "sealed" ? sealed : over_tcp);
    bench::BareTcp bare;
    for (const Size& size : kSizes)
      if (std::string(argv[2]) == size.name)
        for (int i = 0; i < 10; ++i) {
          const bool is_offset = how == "offset";
          const Took o = is_offset ? ours.by_offset(size.bytes, size.count)
                                   : ours.one_way(size.bytes, size.count);
          const Took t = how == "shm" ? copy(size)
                         : is_offset  ? read_warm(size)
                                      : bare.one_way(size.bytes, size.count);
          std::printf("%s %.3g GB/s, %.3g by processor time; %s %.3g, %.3g\n", size.name,
                      gb_s(size, o.ns), gb_s(size, o.cpu),
                      how == "shm" ? "memcpy"
                      : is_offset  ? "read"
                                   : "bare TCP",
                      gb_s(size, t.ns), gb_s(size, t.cpu));
        }
    if (std::string(argv[2]) == "rtt")
      for (int i = 0; i < 10; ++i) std::printf("%.3g us\n", ours.round_trip_ns(64, 5000) / 1e3);
    return 0;
  }
  const Size& large = kSizes[3];
  {
    Sender memory(by_memory);
    against(
        "transport_shm_16MiB", "memcpy, warm", 0.6, large, memory, repetitions,
        [&] { return memory.one_way(large.bytes, large.count); }, [&] { return copy(large); });
    against(
        "transport_shm_by_offset_16MiB", "a warm read", 0.6, large, memory, repetitions,
        [&] { return memory.by_offset(large.bytes, large.count); },
        [&] { return read_warm(large); });
    bench::Comparison r{
        .name = "transport_shm_rtt_64B", .unit = "us", .peer = "none", .budget_value = 15};
    for (int i = 0; i < repetitions; ++i) r.ours.push_back(memory.round_trip_ns(64, 5000) / 1e3);
    r.print();
  }
  {
    static bench::CurveKeys keys;
    require(zmq_curve_keypair(keys.public_key, keys.secret_key) == 0, "ZeroMQ has no CURVE");
    Sender under_keys(sealed);
    ZeroMqByHand curve(ZMQ_PAIR, ZMQ_PAIR, &keys);
    against(
        "transport_sealed_16MiB", "ZeroMQ CURVE, chunked by hand", 2, large, under_keys,
        repetitions, [&] { return under_keys.one_way(large.bytes, large.count); },
        [&] { return curve.one_way(large.bytes, large.count); });
  }
  Sender ours(over_tcp);
  ZeroMqByHand pair(ZMQ_PAIR, ZMQ_PAIR), router(ZMQ_ROUTER, ZMQ_DEALER);
  bench::BareTcp tcp;
  for (const Size& size : kSizes) one_way(size, ours, pair, tcp, repetitions);

  bench::Comparison r{.name = "transport_rtt_64B",
                      .unit = "us",
                      .peer = "ZeroMQ ROUTER-DEALER",
                      .peer_version = version_of("ZeroMQ"),
                      .budget = 1.2};
  bench::Comparison p{.name = "transport_rtt_64B_pair",
                      .unit = "us",
                      .peer = "ZeroMQ PAIR",
                      .peer_version = version_of("ZeroMQ")};
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
  bench::Comparison slow{
      .name = "transport_slow_consumer", .unit = "MiB", .peer = "none", .budget_value = window};
  constexpr std::uint64_t kCount = 200;
  const Sender::Slow s = ours.slow_consumer(1 << 20, kCount, 2000);
  const bool is_bound = s.held >= (RouterOptions{}.window >> 1) && s.waiting > 0;
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  // A run in which no message was delayed proves no bound.
  slow.ours.push_back(is_bound ? mib(std::max(s.held, s.grown)) : static_cast<double>(kCount));
  slow.also = {{"waiting_mib", mib(s.waiting)},
               {"held_mib", mib(s.held)},
               {"grown_mib", mib(s.grown)},
               {"bound", is_bound}};
  slow.note =
      "on its way from a sender whose receiver takes 2 ms a MiB, or what the sender's memory grew "
      "by, whichever is more; bound: the limit was reached";
  slow.print();
}
