// Example programs as a shell starts them: arguments in, exit code and output out.
#pragma once

#include <boost/test/unit_test.hpp>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/temp_directory.hpp>

namespace troupe::test {

namespace fs = std::filesystem;

/// Returns the path of an example in the build; sanitized builds have none.
inline std::string example(const std::string& name) {
  return (fs::canonical("/proc/self/exe").parent_path().parent_path() / "examples" / name).string();
}

/// A precondition of cases that run an example.
struct Built {
  std::string name;
  boost::test_tools::assertion_result operator()(boost::unit_test::test_unit_id) const {
    boost::test_tools::assertion_result result(fs::exists(example(name)));
    result.message() << "this build has no example " << name;
    return result;
  }
};

struct Outcome {
  int code = -1;  // exit status; 128 + the signal's number if a signal ended the process
  std::string out, error;
};

/// A running program whose output waits in a small pipe until it is read: it cannot run ahead.
class Process {
 public:
  Process(const std::string& folder, std::vector<std::string> arguments)
      : error_path_(folder + "/.stderr") {
    int ends[2];
    BOOST_REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    pid_ = fork();
    BOOST_REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      int error = open(error_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      dup2(ends[1], STDOUT_FILENO);
      dup2(error, STDERR_FILENO);
      if (chdir(folder.c_str()) == 0) execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    out_ = ends[0];
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(out_);
  }

  /// Reads until `text` has come; false if the output ended before.
  bool read_until(const std::string& text) {
    while (seen_.find(text) == std::string::npos)
      if (!read_some()) return false;
    return true;
  }
  const std::string& seen() const { return seen_; }
  pid_t pid() const { return pid_; }
  void interrupt(int signal) { kill(pid_, signal); }
  Outcome finish() {
    while (read_some()) {}
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    Outcome o{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), seen_,
              read_file(error_path_)};
    fs::remove(error_path_);
    return o;
  }

 private:
  bool read_some() {
    char block[512];
    ssize_t n = ::read(out_, block, sizeof block);
    if (n > 0) seen_.append(block, static_cast<std::size_t>(n));
    return n > 0;
  }
  std::string error_path_;
  std::string seen_;
  pid_t pid_ = -1;
  int out_ = -1;
};

inline Outcome run(const std::string& folder, std::vector<std::string> arguments) {
  return Process(folder, std::move(arguments)).finish();
}

}  // namespace troupe::test
