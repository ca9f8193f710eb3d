// libFuzzer: what the client's verbs hear over HTTP. The first byte says which verb asks, the
// second how it is answered; then what is answered to the first path that it asks for, to the
// second, and so on, zeros between them. Instruments: apps/verbs/client.cpp
// apps/verbs/inspect_verbs.cpp apps/verbs/top.cpp apps/verbs/metrics.cpp apps/verbs/report.cpp
// apps/verbs/terminal.cpp apps/verbs/service.cpp cluster/inspect/report_page.cpp
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/apps/verbs/client.hpp>
#include <troupe/cluster/inspect/inspection_server.hpp>
#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/test/fuzz/input.hpp>
#include <troupe/test/fuzz/node_a.hpp>
#include <troupe/troupe.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace std::string_literals;

namespace troupe::verbs {

// Returns no token, as if there were no file. Otherwise, all of `troupe node` would be linked.
std::string token_of(const std::string&) { return {}; }

}  // namespace troupe::verbs

namespace {

/// Answers each path with bytes of its own, and hangs up.
class Answering {
 public:
  Answering() : listening_(listen_at("tcp://127.0.0.1:0", "")), thread_([this] { serve(); }) {}
  std::string url() const { return "http" + listening_.address.substr(3); }
  void answer(std::vector<std::string> all) {
    std::lock_guard lock(mutex_);
    answers_ = std::move(all);
    paths_.clear();
  }

 private:
  [[noreturn]] void serve() {
    for (;;) {
      pollfd one{listening_.fd.get(), POLLIN, 0};
      poll(&one, 1, -1);
      const OwnedDescriptor fd(accept4(listening_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
      const std::string asked = asked_of(fd.get()),
                        answer = next_of(asked.substr(0, asked.find_first_of("?\r", 4)));
      ::send(fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      shutdown(fd.get(), SHUT_WR);
      // It has heard all when it hangs up, and the port is free at once.
      for (char rest[256]; recv(fd.get(), rest, sizeof rest, 0) > 0;) {}
      const linger at_once{1, 0};
      setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
  }
  static std::string asked_of(int fd) {
    std::string head;
    char block[4096];
    for (ssize_t n;
         head.find("\r\n\r\n") == std::string::npos && (n = recv(fd, block, sizeof block, 0)) > 0;)
      head.append(block, static_cast<std::size_t>(n));
    return head;
  }
  std::string next_of(const std::string& path) {
    std::lock_guard lock(mutex_);
    const auto known = std::find(paths_.begin(), paths_.end(), path);
    const auto which = static_cast<std::size_t>(known - paths_.begin());
    if (known == paths_.end()) paths_.push_back(path);
    return which < answers_.size() ? answers_[which] : std::string();
  }

  ListeningSocket listening_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::string> answers_, paths_;
  std::jthread thread_;
};

/// Captures the output from here on.
class Printed {
 public:
  Printed() : memory_(memfd_create("printed", MFD_CLOEXEC)) {
    if (memory_ < 0 || dup2(memory_, STDOUT_FILENO) < 0) std::abort();
  }
  std::string take() {
    std::fflush(stdout);
    std::string text(static_cast<std::size_t>(lseek(memory_, 0, SEEK_CUR)), '\0');
    if (pread(memory_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
        ftruncate(memory_, 0) != 0)
      std::abort();
    lseek(memory_, 0, SEEK_SET);
    return text;
  }

 private:
  const int memory_;
};

struct Asked {
  int (*verb)(const verbs::LookFlags&);
  const char* what;  // LookFlags::what
  bool is_json, is_dot;
  const char* out;
};
const Asked kAsked[] = {
    {verbs::ps, "", false, false, ""},
    {verbs::top, "", false, false, ""},
    {verbs::top, "", true, false, ""},
    {verbs::inspect, "a/1:0", false, false, ""},
    {verbs::inspect, "w", false, false, ""},
    {verbs::graph, "", false, false, ""},
    {verbs::graph, "a/1", false, true, ""},
    {verbs::diagnose, "", false, false, ""},
    {verbs::trace, "", false, false, "/dev/null"},
    {verbs::trace, "", true, false, "/dev/null"},
    {verbs::metrics, "", false, false, ""},
    {verbs::metrics, "", true, false, ""},
    {verbs::report, "a/1", false, false, ""},
    {verbs::diagnose, "", true, false, ""},
};
constexpr const char* kStatus[] = {"200 OK", "404 Not Found", "401 Unauthorized",
                                   "503 Service Unavailable"};

/// The answers of a node that has run a program, and has another run that waits.
class Served {
 public:
  Served() {
    Expr x = graph_.input("x", DType::f32, {2});
    auto [n, s] = while_loop([](Expr i, Expr) { return i < 3; },
                             [](Expr i, Expr t) {
                               return std::tuple{i + 1, tanh(t)};
                             },
                             std::tuple{graph_.constant(0), x});
    program_ = node_.engine().compile(graph_, {x}, {s});
    program_({Tensor::of<float>({1, 2})});
    Queue jobs = waiting_.fifo_queue("jobs", {{DType::f32, {}}}, 2);
    waits_ = node_.engine().compile(waiting_, {}, {jobs.dequeue()[0]});
    run_ = waits_.start({});
    flags_.node = server_.address();
  }
  std::string operator()(const std::string& path) const { return verbs::fetch(flags_, path, 20); }

 private:
  InProcessNetwork network_;
  ClusterNode node_{node_a(network_)};
  Graph graph_, waiting_;
  Function program_, waits_;
  RunHandle run_;
  InspectionServer server_{node_, {}};
  verbs::LookFlags flags_;
};

void seed_of(unsigned verb, unsigned how, const std::vector<std::string>& answers) {
  seed(fmt::format("{}{}{}", static_cast<char>(verb), static_cast<char>(how),
                   fmt::join(answers, std::string_view("\0", 1))));
}

/// The answers, as the second byte says: bodies of a status, or all that is said.
std::vector<std::string> answers_of(unsigned how, const std::string& text) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin <= text.size() && all.size() < 8;) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    all.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (how % 8 >= 4) return all;
  for (std::string& answer : all)
    answer = fmt::format("HTTP/1.1 {}\r\n{}: {}\r\nContent-Length: {}\r\n\r\n{}", kStatus[how % 4],
                         kInspectionHeader, kInspectionVersion, answer.size(), answer);
  return all;
}

// People are shown text; lines of HTML and JSON are as they came.
void check(const Asked& asked, const std::string& printed) {
  if (asked.is_json || asked.verb == verbs::report) return;
  std::string lines = printed;
  std::replace(lines.begin(), lines.end(), '\n', ' ');
  if (verbs::printable(lines) == lines) return;
  std::fprintf(stderr, "printed as it came: %s\n", lines.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const Served node;
  const std::string state = node("/api/state"), plan = node("/api/plan?id=a/1"),
                    counters = node("/api/counters?plan=a/1&since=0");
  const std::string diagnosis = node("/api/diagnose"), of_a = node("/api/actor?id=a/1:0"),
                    of_waiting = node("/api/actor?id=a/2:0");
  const std::string metrics = node("/metrics").substr(0, 8000),
                    events = node("/api/events?limit=3"),
                    gone = R"({"error":"there is no 'a/1:0'"})";
  seed_of(0, 0, {state}), seed_of(1, 0, {state, plan, counters}),
      seed_of(2, 0, {state, plan, counters});
  seed_of(3, 0, {of_a}), seed_of(3, 0, {of_waiting}), seed_of(3, 1, {gone, state, plan}),
      seed_of(4, 0, {state, plan, of_a});
  seed_of(5, 0, {state, plan}), seed_of(6, 0, {plan}), seed_of(7, 0, {diagnosis}),
      seed_of(13, 0, {diagnosis});
  for (const unsigned verb : {8u, 9u})
    seed_of(verb, 0,
            {R"({"traceEvents":[],"otherData":{"events":0,"covered_ns":0,"asked_ns":1000000000,)"
             R"("lost":0,"thinned":3}})"});
  seed_of(10, 0, {metrics}), seed_of(11, 0, {metrics}),
      seed_of(12, 0, {state, events, plan, counters, "null", diagnosis});
  seed_of(0, 2, {R"({"error":"a token is needed"})"}), seed_of(0, 3, {"busy"});
  seed_of(7, 4,
          {"HTTP/1.1 200 OK\r\nTroupe-Inspection: 2\r\nTransfer-Encoding: "
           "chunked\r\n\r\n24\r\n{\"runs\":0,\"doing\":[],\"verdicts\":[]}\r\n0\r\n\r\n"});
  seed_of(0, 4, {"HTTP/1.0 302 Found\r\nLocation: /\r\nConnection: close\r\n\r\n"}),
      seed_of(0, 4, {"SSH-2.0-OpenSSH_9\r\n"}),
      seed_of(0, 4, {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"});
  seed_of(0, 4, {"HTTP/1.1 200 OK\r\nTroupe-Inspection: 2\r\nContent-Encoding: gzip\r\n\r\n"});
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static Answering& answering = *new Answering;  // for as long as the process, as its thread is
  static Printed printed;
  Input in(data, size);
  const Asked& asked = kAsked[in.next() % std::size(kAsked)];
  const unsigned how = in.next();
  answering.answer(answers_of(how, in.rest()));
  try {
    asked.verb({.node = answering.url(),
                .json = asked.is_json,
                .patience = 1,
                .every = 0,
                .what = asked.what,
                .dot = asked.is_dot,
                .out = asked.out});
  } catch (const std::exception& e) {
    // As main.cpp prints it.
    if (verbs::printable(e.what()).empty()) std::abort();
  }
  check(asked, printed.take());
  return 0;
}
