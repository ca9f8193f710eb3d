// A trivial while_loop over one to four processes on this machine, which share memory; `tcp` and
// `sealed`: as if they were on two, over TCP on loopback, and with keys, so that all is sealed.
//
// `dependent`: the counter is advanced on one process and compared with its bound on another, so
// every iteration waits for a round trip. The peer is that round trip with nothing but our
// transport of the same kind, in the same run (budget: ≥ 0.8 × 1/RTT). Beside it, without a budget,
// stands the round trip of bare ZeroMQ over TCP: `times_zeromq`. `independent`: each process adds 1
// to a value of its own; only the predicate goes round. It should take as long on four processes as
// on one, up to the cores there are. A run is long, because beginning and ending one on two
// processes takes as long as a thousand iterations (`null_step` measures that). Beside two
// processes stands the time of two unrelated processes at once, as the limit of the machine
// (`_of_two_alone`, budget: ≥ 0.9 of the rate of the slower of these). `barrier`: the counter waits
// for all of these values each time. `_plain`: both kinds on two processes with the iteration
// window that DESIGN §6 and §8 have and no more (`EdgeOptions::ahead` = 0): no process is sent a
// token of an iteration that `parallel_iterations` does not admit there yet, however small it is.
// The peer is the loop with the default iteration window; without a budget. `dist_loop profile
// [independent|barrier|dependent] [processes] [window] [shared|tcp|sealed] [times] [iterations]`
// runs one of them for a profiler.
#include <array>
#include <map>
#include <thread>

#include <zmq.h>

#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/processes.hpp>

namespace {

using namespace troupe;
constexpr int kMost = 4, kIterations = 2000, kRepetitions = 5;
// pairs of the loop and its peer: the host moves cores about for a second at a time, and with it
// either
constexpr int kPairs = 15;
// iterations of a fifth of a microsecond each: together longer than a transport remembers that
// others wanted its core
constexpr int kSteady = 100 * kIterations;
constexpr int kOfTwo = 31;  // pairs of such
// iterations of a few microseconds at most: beginning a run takes as long as some hundred of them,
// and a host gives back its cores so long after they were idle
constexpr int kMany = 10 * kIterations;

enum class Kind { dependent, independent, barrier };

class Loop {
 public:
  Loop(Engine& engine, Kind kind, const std::vector<std::string>& devices, int window) {
    limit_ = graph_.input("limit", DType::i32, {});
    std::vector<Expr> initial{graph_.constant(0)};
    for (std::size_t d = 0; kind != Kind::dependent && d < devices.size(); ++d)
      initial.push_back(graph_.constant(0));
    const auto last = while_loop(
        [&](std::vector<Expr> v) { return v[0] < limit_; },
        [&](std::vector<Expr> v) {
          for (std::size_t d = 1; d < v.size(); ++d) {
            auto there = graph_.on_device(devices[d - 1]);
            v[d] = v[d] + 1;
          }
          auto there = graph_.on_device(kind == Kind::dependent ? devices.back() : devices.front());
          Expr next = v[0] + 1;
          if (kind == Kind::barrier)
            for (std::size_t d = 1; d < v.size(); ++d) next = maximum(next, v[d]);
          v[0] = next;
          return v;
        },
        initial, {.parallel_iterations = window});
    run_ = engine.compile(graph_, {limit_}, {last});
    ns(kIterations / 10);
  }
  /// Returns the time of an iteration.
  double ns(int iterations) {
    const double start = bench::now_ns();
    const std::vector<Tensor> out = run_({Tensor::scalar<std::int32_t>(iterations)});
    const double took = bench::now_ns() - start;
    for (const Tensor& t : out)
      if (t.item<std::int32_t>() != iterations) {
        std::fprintf(stderr, "dist_loop: a wrong value\n");
        std::exit(1);
      }
    return took / iterations;
  }
  const Function& function() const { return run_; }

 private:
  Graph graph_;
  Expr limit_;
  Function run_;
};

/// A process that answers what it gets, 64 B, by ZeroMQ over TCP on loopback. `make`: makes there
/// what puts the answer in its place.
class ZeroMqPeer {
 public:
  using Bytes = std::array<char, 64>;
  template <class Make>
  explicit ZeroMqPeer(Make make)
      : child_([make](const std::string& address, const auto&) {
          void* context = zmq_ctx_new();
          void* socket = zmq_socket(context, ZMQ_PAIR);
          zmq_connect(socket, address.c_str());
          auto answer = make();
          Bytes bytes;
          for (int n; (n = zmq_recv(socket, bytes.data(), bytes.size(), 0)) > 0;) {
            answer(bytes);
            zmq_send(socket, bytes.data(), static_cast<std::size_t>(n), 0);
          }
          zmq_close(socket);
          zmq_ctx_term(context);
        }) {}
  ~ZeroMqPeer() {
    zmq_send(socket_, "", 0, 0);  // the end
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  void start() {
    context_ = zmq_ctx_new();
    socket_ = zmq_socket(context_, ZMQ_PAIR);
    const int patience_ms = 60'000;  // the other may have ended with an error
    bench::require(zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &patience_ms, sizeof patience_ms) == 0,
                   "zmq_setsockopt");
    bench::require(zmq_bind(socket_, "tcp://127.0.0.1:*") == 0, "zmq_bind");
    char address[64] = {};
    std::size_t size = sizeof address;
    bench::require(zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, address, &size) == 0,
                   "zmq_getsockopt");
    child_.start(address);
  }
  void ask(const Bytes& bytes) { zmq_send(socket_, bytes.data(), bytes.size(), 0); }
  void hear(Bytes& bytes) {
    bench::require(
        zmq_recv(socket_, bytes.data(), bytes.size(), 0) == static_cast<int>(bytes.size()),
        "zmq_recv");
  }
  double round_trip_ns(int count) {
    Bytes bytes{};
    const double start = bench::now_ns();
    for (int i = 0; i < count; ++i) {
      ask(bytes);
      hear(bytes);
    }
    return (bench::now_ns() - start) / count;
  }

 private:
  bench::Child child_;
  void* context_ = nullptr;
  void* socket_ = nullptr;
};

/// A process with a loop of its own, which runs while one does here.
class Beside {
 public:
  void start() { peer_.start(); }
  /// Returns the time of an iteration of the slower of both; `here`: the same loop, in this process
  /// alone.
  double ns(Loop& here, int window, int iterations) {
    const Asked asked{window, iterations};
    ZeroMqPeer::Bytes bytes{};
    std::memcpy(bytes.data(), &asked, sizeof asked);
    peer_.ask(bytes);
    const double ours = here.ns(iterations);
    peer_.hear(bytes);
    double theirs = 0;
    std::memcpy(&theirs, bytes.data(), sizeof theirs);
    return std::max(ours, theirs);
  }

 private:
  struct Asked {
    int window, iterations;
  };
  ZeroMqPeer peer_{[] {
    auto engine = std::make_shared<Engine>(EngineOptions{.workers = 1});
    return
        [engine, loops = std::map<int, std::unique_ptr<Loop>>()](ZeroMqPeer::Bytes& bytes) mutable {
          Asked asked;
          std::memcpy(&asked, bytes.data(), sizeof asked);
          auto& loop = loops[asked.window];
          if (!loop)
            loop = std::make_unique<Loop>(*engine, Kind::independent,
                                          std::vector<std::string>{"cpu:0"}, asked.window);
          const double ns = loop->ns(asked.iterations);
          std::memcpy(bytes.data(), &ns, sizeof ns);
        };
  }};
};

/// Returns the number of messages that this node has sent and received.
std::uint64_t messages(const ClusterNode& node) {
  const TransportCounters c = node.counters();
  return c.messages_out + c.messages_in;
}

std::vector<std::string> first(const bench::Processes& workers, int processes) {
  std::vector<std::string> devices{"cpu:0"};
  for (int i = 1; i < processes; ++i)
    devices.push_back(workers.device(static_cast<std::size_t>(i) - 1));
  return devices;
}

/// A cluster whose nodes are connected in one way, and a round trip by that connection.
struct Link {
  Link(const char* its_name, const ZeroMqOptions& options, int processes)
      : name(its_name), echo(options), workers(processes, options) {}
  void start() {
    node = workers.join();
    echo.start();
    echo.round_trip_ns(1000);
  }
  const char* name;
  bench::Echo echo;
  bench::Processes workers;
  std::unique_ptr<ClusterNode> node;
};

/// One more node of this process, in whose programs no partition is further ahead of another than
/// `parallel_iterations`.
std::unique_ptr<ClusterNode> join_plain(const Link& link) {
  NodeOptions o{
      .name = "plain", .transport = bench::listening_transport({}), .join = {link.node->address()}};
  o.engine.workers = 1;
  o.engine.edges.ahead = 0;
  auto node = std::make_unique<ClusterNode>(std::move(o));
  node->wait_for(link.workers.names(), std::chrono::seconds(60));
  return node;
}

void plain(const Link& link, ClusterNode& node, Kind kind, int window) {
  const std::vector<std::string> devices = first(link.workers, 2);
  Loop ours(node.engine(), kind, devices, window),
      theirs(link.node->engine(), kind, devices, window);
  bench::Comparison c{
      .name = (kind == Kind::dependent ? "dist_loop_dependent_plain_"
                                       : "dist_loop_independent_plain_") +
              std::to_string(window),
      .unit = "us",
      .peer = "the same, small tokens up to " + std::to_string(EdgeOptions{}.ahead) + " ahead",
      .threads = 2,
      .speed_up = true};
  for (int i = 0; i < kPairs; ++i) {
    c.ours.push_back(ours.ns(kMany) / 1e3);
    c.theirs.push_back(theirs.ns(kMany) / 1e3);
  }
  const std::uint64_t before = messages(node);
  ours.ns(kIterations);
  c.also = {{"iterations_s", 1e6 / bench::median(c.ours)},
            {"messages", static_cast<double>(messages(node) - before) / kIterations}};
  c.note = "nobody is further ahead than parallel_iterations, 2 processes";
  c.print();
}

void dependent(Link& link, int window, ZeroMqPeer& zeromq) {
  Loop loop(link.node->engine(), Kind::dependent, first(link.workers, 2), window);
  bench::Comparison c{.name = link.name + ("_" + std::to_string(window)),
                      .unit = "us",
                      .peer = "round trip of the bare transport",
                      .budget = 0.8,
                      .threads = 2,
                      .speed_up = true};
  std::vector<double> zeromq_us;
  for (int i = 0; i < kPairs; ++i) {
    c.ours.push_back(loop.ns(kMany) / 1e3);
    c.theirs.push_back(link.echo.round_trip_ns(kMany) / 1e3);
  }
  for (int i = 0; i < kRepetitions; ++i)
    zeromq_us.push_back(zeromq.round_trip_ns(kIterations) / 1e3);
  const std::uint64_t before = messages(*link.node);
  loop.ns(kIterations);
  c.also = {{"iterations_s", 1e6 / bench::median(c.ours)},
            {"messages", static_cast<double>(messages(*link.node) - before) / kIterations},
            {"zeromq_tcp_us", bench::median(zeromq_us)},
            {"times_zeromq", bench::median(zeromq_us) / bench::median(c.ours)}};
  c.note = "an iteration that waits for one round trip, 2 processes";
  c.print();
}

/// `connected`: over two processes; `alone`: the same on this one, while `beside` runs its own.
void of_two_alone(Loop& connected, Beside& beside, Loop& alone, int window, int cores) {
  bench::Comparison c{.name = "dist_loop_independent_" + std::to_string(window) + "_of_two_alone",
                      .unit = "us",
                      .peer = "the slower of two that are not connected",
                      .budget = 0.9,
                      .threads = 2,
                      .speed_up = true};
  connected.ns(kSteady);
  beside.ns(alone, window, kSteady);
  for (int i = 0; i < kOfTwo; ++i) {
    c.ours.push_back(connected.ns(kSteady) / 1e3);
    c.theirs.push_back(beside.ns(alone, window, kSteady) / 1e3);
  }
  c.also = {{"cores", static_cast<double>(cores)}};
  c.note = cores < 2 ? "more processes than cores" : "independent iterations on 2 processes";
  c.print();
}

}  // namespace

int main(int argc, char** argv) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const auto argument = [&](int i, const char* otherwise) {
    return std::string(argc > i ? argv[i] : otherwise);
  };
  if (argument(1, "") == "profile") {
    const std::string what = argument(2, "dependent");
    const int processes = std::atoi(argument(3, "2").c_str());
    const std::string by = argument(5, "shared");
    bench::Processes workers(processes - 1, by == "sealed"
                                                ? bench::with_keys({.shared_memory = false})
                                                : ZeroMqOptions{.shared_memory = by == "shared"});
    auto node = workers.join();
    Loop loop(node->engine(),
              what == "dependent" ? Kind::dependent
              : what == "barrier" ? Kind::barrier
                                  : Kind::independent,
              first(workers, processes), std::atoi(argument(4, "32").c_str()));
    const int iterations = std::atoi(argument(7, "20000").c_str());
    for (int i = std::atoi(argument(6, "10").c_str()); i > 0; --i) {
      const std::uint64_t before = messages(*node);
      const double ns = loop.ns(iterations);
      std::printf("%.4g us an iteration, %.3g messages\n", ns / 1e3,
                  static_cast<double>(messages(*node) - before) / iterations);
    }
    return 0;
  }
  Link links[] = {
      Link("dist_loop_dependent", {}, kMost - 1),
      Link("dist_loop_dependent_tcp", {.shared_memory = false}, 1),
      // processes first: nothing here has a thread yet
      Link("dist_loop_dependent_sealed", bench::with_keys({.shared_memory = false}), 1)};
  ZeroMqPeer zeromq([] { return [](ZeroMqPeer::Bytes&) {}; });
  Beside beside;
  for (Link& link : links) link.start();
  zeromq.start();
  beside.start();
  zeromq.round_trip_ns(1000);
  for (Link& link : links)
    for (const int window : {1, 8, 32}) dependent(link, window, zeromq);
  const Link& here = links[0];
  for (const Kind kind : {Kind::independent, Kind::barrier})
    for (const int window : {1, 8, 32}) {
      // In turns, up and down, as the host moves cores about; each after a run that is not timed,
      // because its processes have been idle.
      std::vector<std::unique_ptr<Loop>> loops;
      std::vector<std::vector<double>> us(kMost);
      const double began_ns = bench::now_ns(), began_pressure_us = bench::pressure_us();
      for (int processes = 1; processes <= kMost; ++processes)
        loops.push_back(std::make_unique<Loop>(here.node->engine(), kind,
                                               first(here.workers, processes), window));
      for (int i = 0; i < kPairs; ++i)
        for (std::size_t turn = 0; turn < loops.size(); ++turn) {
          const std::size_t p = i % 2 ? loops.size() - 1 - turn : turn;
          const int iterations = kind == Kind::independent ? kSteady : kIterations;
          loops[p]->ns(iterations);
          us[p].push_back(loops[p]->ns(iterations) / 1e3);
        }
      for (const int processes : {1, 2, 3, 4}) {
        const std::string name =
            kind == Kind::barrier ? "dist_loop_barrier_" : "dist_loop_independent_";
        bench::Comparison c{
            .name = name + std::to_string(window) + "_on_" + std::to_string(processes),
            .unit = "us",
            .peer = processes > 2    ? "the same on 2 processes"
                    : processes == 2 ? "the same on 1 process"
                                     : "none",
            .threads = processes,
            .speed_up = true,
            .began_ns = began_ns,
            .began_pressure_us = began_pressure_us};
        c.ours = us[static_cast<std::size_t>(processes) - 1];
        if (processes > 1) c.theirs = us[processes == 2 ? 0 : 1];
        c.also = {{"iterations_s", 1e6 / bench::median(c.ours)},
                  {"cores", static_cast<double>(cores)}};
        if (processes == 2)
          c.note = "the predicate's message to the other process, where there was none before";
        if (processes > cores) c.note = "more processes than cores";
        c.print();
      }
      if (kind == Kind::independent) of_two_alone(*loops[1], beside, *loops[0], window, cores);
    }
  const auto windowed = join_plain(here);
  for (const Kind kind : {Kind::dependent, Kind::independent})
    for (const int window : {1, 8, 32}) plain(here, *windowed, kind, window);
}
