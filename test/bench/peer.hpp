// A peer, a script in Python or a program, as a co-process: started once, then asked for one
// repetition at a time, so that ours and theirs alternate.
//
//   Peer torch("torch", "mlp_torch.py", {"1"});        // scripts/peers/mlp_torch.py 1
//   Peer starpu("StarPU", Command{{path, "2"}});       // test/bench/peers/*.cpp, built
//   if (torch.is_here()) c.theirs.push_back(torch.ask("steps 50")[0]);
//
// Protocol, one line each way: the peer opens with `ready <version> <blas>` (tab-separated) or
// `missing <why>`; it answers a request with numbers, separated by spaces, or with `error <why>`.
// The interpreter is $TROUPE_PEERS, else .peers/bin/python in the source tree; scripts are in
// $TROUPE_PEER_SCRIPTS, else in the source tree. No GPU is shown to a peer that does not ask for
// one. $TROUPE_PEER_LIBRARY_PATH is its LD_LIBRARY_PATH, where ours is for our programs alone.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <thread>

#include <troupe/test/bench/bench.hpp>

extern char** environ;

namespace troupe::bench {

/// A program and its arguments; empty: it was not built, for want of its library.
struct Command {
  std::vector<std::string> words;
};

class Peer {
 public:
  enum class Shown : std::uint8_t { cores, gpu };
  /// `threads` is what its libraries may use; the script sets the same explicitly.
  Peer(std::string name, const std::string& script, std::vector<std::string> arguments,
       int threads = 1, Shown shown = Shown::cores)
      : name_(std::move(name)), shown_(shown) {
    const char *chosen = std::getenv("TROUPE_PEERS"), *folder = std::getenv("TROUPE_PEER_SCRIPTS");
    const std::string python = chosen ? chosen : TROUPE_SOURCE_DIR "/.peers/bin/python",
                      scripts = folder ? folder : TROUPE_SOURCE_DIR "/scripts/peers";
    arguments.insert(arguments.begin(), {python, scripts + "/" + script});
    if (access(python.c_str(), X_OK) == 0) start(python, arguments, threads);
    greet();
  }
  /// `threads` of a program are among its arguments.
  Peer(std::string name, Command command) : name_(std::move(name)) {
    if (!command.words.empty() && access(command.words.front().c_str(), X_OK) == 0)
      start(command.words.front(), command.words, 1);
    greet();
  }
  Peer(const Peer&) = delete;
  ~Peer() {
    if (to_) std::fclose(to_);  // the end of its input ends a peer
    if (from_) std::fclose(from_);
    if (process_ > 0) waitpid(process_, nullptr, 0);
  }

  bool is_here() const { return is_here_; }
  const std::string& name() const { return name_; }
  /// Returns the text for `peer`: `what`, or that the peer is not installed.
  std::string label(const std::string& what) const {
    return is_here_ ? what : name_ + " (not installed)";
  }
  const std::string& version() const { return version_; }
  const std::string& blas() const { return blas_; }
  void describe(Comparison& c, const std::string& what) const {
    c.peer = label(what);
    c.peer_version = version_;
    c.blas = blas_;
  }

  /// One repetition. A peer that fails ends the benchmark: its figures would mean nothing.
  std::vector<double> ask(const std::string& request) {
    std::fprintf(to_, "%s\n", request.c_str());
    std::fflush(to_);
    std::istringstream words(line());
    std::vector<double> out;
    for (double value; words >> value;) out.push_back(value);
    if (out.empty()) {
      std::fprintf(stderr, "%s answered '%s' with '%s'\n", name_.c_str(), request.c_str(),
                   words.str().c_str());
      std::exit(1);
    }
    // Its worker threads spin a little before they sleep; ours shall not run against them.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return out;
  }

 private:
  void start(const std::string& program, std::vector<std::string>& arguments, int threads) {
    signal(SIGPIPE, SIG_IGN);
    int down[2], up[2];
    if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, down[0], 0);
    posix_spawn_file_actions_adddup2(&files, up[1], 1);
    // Each name once: the dynamic loader takes the last entry of a name, getenv the first.
    std::vector<std::string> environment = {
        "OMP_NUM_THREADS=" + std::to_string(threads), "MKL_NUM_THREADS=" + std::to_string(threads),
        "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
    if (shown_ == Shown::cores) environment.emplace_back("CUDA_VISIBLE_DEVICES=");
    if (const char* path = std::getenv("TROUPE_PEER_LIBRARY_PATH"))
      environment.push_back("LD_LIBRARY_PATH=" + std::string(path));
    const std::size_t chosen = environment.size();
    for (char** e = environ; *e; ++e) {
      const std::string entry = *e, name = entry.substr(0, entry.find('=') + 1);
      const auto end = environment.begin() + static_cast<std::ptrdiff_t>(chosen);
      if (std::none_of(environment.begin(), end,
                       [&](const std::string& c) { return c.starts_with(name); }))
        environment.push_back(entry);
    }
    std::vector<char*> args, env;
    for (std::string& a : arguments) args.push_back(a.data());
    for (std::string& e : environment) env.push_back(e.data());
    args.push_back(nullptr);
    env.push_back(nullptr);
    if (posix_spawn(&process_, program.c_str(), &files, nullptr, args.data(), env.data()) != 0)
      process_ = -1;
    posix_spawn_file_actions_destroy(&files);
    close(down[0]);
    close(up[1]);
    to_ = fdopen(down[1], "w");
    from_ = fdopen(up[0], "r");
  }

  void greet() {
    if (!from_) return;
    std::istringstream words(line());
    std::string word;
    std::getline(words, word, '\t');
    is_here_ = word == "ready";
    std::getline(words, version_, '\t');
    std::getline(words, blas_, '\t');
    if (!is_here_) std::fprintf(stderr, "%s: %s\n", name_.c_str(), words.str().c_str());
    if (!is_here_) version_.clear();
  }

  std::string line() {
    std::string out;
    for (int c = std::fgetc(from_); c != EOF && c != '\n'; c = std::fgetc(from_))
      out += static_cast<char>(c);
    return out;
  }

  std::string name_, version_, blas_;
  Shown shown_ = Shown::cores;
  bool is_here_ = false;
  pid_t process_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

}  // namespace troupe::bench
