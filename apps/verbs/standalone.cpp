// troupe node --standalone N: a cluster on this machine, as N processes that this one starts and
// ends.
//
//   supervisor ──fork──► local-1, which others join ──► its first line has the address
//              ──fork──► local-2 … local-N, which join it
//
// It has no engine and one thread. The nodes' output passes through it. It restarts none. A node
// that ends before all are there takes the others along; later it is lost, and the others go on.
// The supervisor takes all along, however it ends.
#include <troupe/apps/verbs/verbs.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <troupe/apps/verbs/service.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe::verbs {

namespace {

constexpr int kToEnd = 30'000;  // ms for the nodes to end by themselves; they allow themselves less

struct Child {
  std::string name;
  pid_t pid = -1;      // -1: it has ended, and been waited for
  int out = -1;        // its output; -1: closed
  std::string unread;  // start of an incomplete line
  bool is_there = false;
  std::string address;  // it listens there; empty before it does
};

class Supervisor {
 public:
  explicit Supervisor(const NodeFlags& flags) : flags_(flags) {
    sigset_t heard = block_endings();
    sigaddset(&heard, SIGCHLD);
    sigprocmask(SIG_BLOCK, &heard, nullptr);
    signals_ = signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_ < 0) throw std::runtime_error("no descriptor is left for a signalfd");
  }

  int run() {
    start(0, flags_.join);
    while (are_left()) {
      if (!wait() && is_ending_) signal_all(SIGKILL);
      read_signals();
      for (std::size_t i = 0; i < children_.size(); ++i) read(i);
    }
    return status_;
  }

 private:
  std::vector<std::string> arguments(std::size_t i, const std::vector<std::string>& join) const {
    std::vector<std::string> all{"troupe",          "node",
                                 "--name",          name(i),
                                 "--workers",       std::to_string(flags_.workers),
                                 "--patience",      std::to_string(flags_.patience),
                                 "--suspect-after", fmt::format("{}", flags_.suspect_after)};
    auto add = [&](const char* flag, const std::string& value) {
      if (!value.empty()) all.insert(all.end(), {flag, value});
    };
    // One address is the first one's; otherwise any port will do.
    add("--listen",
        i == 0 && flags_.listen != NodeFlags().listen ? flags_.listen : "tcp://127.0.0.1:0");
    add("--keys", flags_.keys);
    add("--labels", flags_.labels);
    add("--http-token-file", flags_.http_token);
    add("--log", flags_.log);
    add("--flight", flags_.flight);
    if (!flags_.state.empty()) add("--state", flags_.state + "/" + name(i));
    for (const std::string& address : join) add("--join", address);
    if (i == 0) add("--peers", flags_.peers);
    if (!flags_.http.empty()) {
      const Endpoint first = endpoint(flags_.http);
      add("--http",
          fmt::format("{}:{}", first.host, first.port == 0 ? 0 : first.port + static_cast<int>(i)));
    }
    return all;
  }
  std::string name(std::size_t i) const {
    return fmt::format("{}-{}", flags_.name.empty() ? "local" : flags_.name, i + 1);
  }

  void start(std::size_t i, const std::vector<std::string>& join) {
    std::vector<std::string> all = arguments(i, join);
    std::vector<char*> argv;
    for (std::string& a : all) argv.push_back(a.data());
    argv.push_back(nullptr);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no descriptor is left for a pipe");
    const pid_t parent = getpid(), pid = fork();
    if (pid < 0)
      throw std::runtime_error(fmt::format("no process can be started: {}", std::strerror(errno)));
    if (pid == 0) {
      // It does not outlive its supervisor, even one that is killed, or was before this line.
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) _exit(1);
      dup2(ends[1], STDOUT_FILENO);
      sigset_t none;
      sigemptyset(&none);
      sigprocmask(SIG_SETMASK, &none, nullptr);
      setpgid(0, 0);  // Ctrl-C reaches the supervisor, which passes it on
      unsetenv("NOTIFY_SOCKET");
      execv("/proc/self/exe", argv.data());
      _exit(127);
    }
    close(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    children_.push_back({name(i), pid, ends[0], {}, false, {}});
  }

  bool are_left() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& c) { return c.pid > 0 || c.out >= 0; });
  }
  /// False: nothing has come for as long as the nodes may take to end.
  bool wait() {
    std::vector<pollfd> all{{signals_, POLLIN, 0}};
    for (const Child& c : children_)
      if (c.out >= 0) all.push_back({c.out, POLLIN, 0});
    return poll(all.data(), all.size(), is_ending_ ? kToEnd : -1) != 0;
  }

  void read_signals() {
    for (signalfd_siginfo info; ::read(signals_, &info, sizeof info) == sizeof info;)
      if (info.ssi_signo != SIGCHLD) end();
    for (Child& c : children_) {
      int how = 0;
      if (c.pid <= 0 || waitpid(c.pid, &how, WNOHANG) != c.pid) continue;
      c.pid = -1;
      const bool is_well = is_ending_ && WIFEXITED(how) && WEXITSTATUS(how) == 0;
      if (is_well) continue;
      // If a node ends with 2 before it listens, its arguments make no sense: they are this
      // process's.
      status_ = std::max(
          status_, WIFEXITED(how) && WEXITSTATUS(how) == 2 && !c.is_there && !is_ending_ ? 2 : 1);
      // By fputs, which does not throw where stderr is closed.
      std::fputs(
          fmt::format("troupe: node '{}' {}{}\n", c.name,
                      WIFSIGNALED(how) ? fmt::format("was killed by signal {}", WTERMSIG(how))
                                       : fmt::format("ended with status {}", WEXITSTATUS(how)),
                      consequence(c))
              .c_str(),
          stderr);
      if (!is_whole_) end();
    }
  }
  /// Returns the consequence of the end of one, as the rest of a sentence.
  std::string consequence(const Child& ended) const {
    if (is_ending_) return {};
    if (!is_whole_) return "; the others are ended too";
    for (const Child& c : children_)
      if (c.pid > 0)
        return fmt::format(
            "; the others go on without it; 'troupe node --name {} --listen tcp://127.0.0.1:0 "
            "--join {}{}' starts it again",
            ended.name, c.address,
            flags_.keys.empty() ? "" : fmt::format(" --keys '{}'", flags_.keys));
    return "; it was the last one";
  }

  void end() {
    if (std::exchange(is_ending_, true)) return;
    notify_service("STOPPING=1");
    signal_all(SIGTERM);
  }
  void signal_all(int signal) {
    for (const Child& c : children_)
      if (c.pid > 0) kill(c.pid, signal);
  }

  void read(std::size_t i) {
    char text[4096];
    while (children_[i].out >= 0) {
      const ssize_t n = ::read(children_[i].out, text, sizeof text);
      if (n < 0) return;  // nothing more for now
      if (n == 0) {
        close(std::exchange(children_[i].out, -1));
        return;
      }
      children_[i].unread.append(text, static_cast<std::size_t>(n));
      for (std::size_t end; (end = children_[i].unread.find('\n')) != std::string::npos;
           children_[i].unread.erase(0, end + 1))
        said(i, children_[i].unread.substr(0, end));
    }
  }

  // The first line of each is where it listens.
  void said(std::size_t i, const std::string& line) {
    fmt::print("{}\n", line);
    if (!std::exchange(children_[i].is_there, true) && !is_ending_) {
      const auto all = static_cast<std::size_t>(flags_.standalone);
      const std::string address = line.substr(std::min(line.find("tcp://"), line.size()));
      children_[i].address = address.substr(0, address.find(' '));
      if (i == 0) {
        const std::string first = children_[0].address;
        for (std::size_t k = 1; k < all; ++k) start(k, {first});
      }
      const auto there = std::count_if(children_.begin(), children_.end(),
                                       [](const Child& c) { return c.is_there; });
      if (static_cast<std::size_t>(there) == all) {
        is_whole_ = true;
        fmt::print("{} node{} in this cluster\n", all, all == 1 ? "" : "s");
        notify_service("READY=1");
      }
    }
    std::fflush(stdout);
  }

  const NodeFlags flags_;
  int signals_ = -1;
  std::vector<Child> children_;
  bool is_ending_ = false;
  bool is_whole_ = false;  // all were there: one that ends now is lost, and no more
  int status_ = 0;
};

}  // namespace

int standalone(const NodeFlags& flags) {
  if (flags.standalone > 256)
    throw Misuse(fmt::format("--standalone takes up to 256 nodes, not {}", flags.standalone));
  if (!flags.http.empty() && endpoint(flags.http).port + flags.standalone - 1 > 65535)
    throw Misuse(
        fmt::format("--http takes a port for each node, from the one it is given: of {} nodes that "
                    "is {} at most, not {}",
                    flags.standalone, 65536 - flags.standalone, endpoint(flags.http).port));
  return Supervisor(flags).run();
}

}  // namespace troupe::verbs
