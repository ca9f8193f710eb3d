// A program on a terminal of its own, and what stands on its screen.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <boost/test/unit_test.hpp>

#include <troupe/devices/base/internal.hpp>

namespace troupe::test {

class Terminal {
 public:
  Terminal(std::vector<std::string> arguments, unsigned short rows, unsigned short columns)
      : rows_(rows), columns_(columns) {
    winsize size{rows, columns, 0, 0};
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    int slave = -1;
    BOOST_REQUIRE(openpty(&master_, &slave, nullptr, nullptr, &size) == 0);
    tcgetattr(slave, &before_);
    pid_ = fork();
    BOOST_REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      close(master_);
      login_tty(slave);
      execv(argv[0], argv.data());
      _exit(127);
    }
    slave_ = slave;  // kept open, so that what the program leaves behind can be looked at
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    hang_up();
  }

  /// Reads until `holds` of what has come since the last call; false if it ended before.
  template <class Holds>
  bool read_until_it(Holds holds) {
    seen_.clear();
    while (!holds())
      if (!take()) return false;
    return true;
  }
  bool read_until(const std::string& text) {
    return read_until_it([&] { return seen_.find(text) != std::string::npos; });
  }
  const std::string& seen() const { return seen_; }
  void type(const std::string& keys) {
    BOOST_REQUIRE(::write(master_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
  }
  void resize(unsigned short rows, unsigned short columns) {
    rows_ = rows, columns_ = columns;
    const winsize size{rows, columns, 0, 0};
    BOOST_REQUIRE(ioctl(master_, TIOCSWINSZ, &size) == 0);
  }
  void signal(int number) { kill(pid_, number); }
  void hang_up() {
    if (slave_ >= 0) close(slave_);
    if (master_ >= 0) close(master_);
    slave_ = master_ = -1;
  }
  /// The program's exit status; 128 and the signal's number if one ended it.
  int finish() {
    const int ended = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    pollfd in[] = {{ended, POLLIN, 0}, {master_, POLLIN, 0}};
    // a process whose output is not read does not end
    while (ended >= 0 && poll(in, 2, -1) > 0 && in[0].revents == 0) take();
    if (ended >= 0) close(ended);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  /// Returns the rest of the output of a program that has ended.
  std::string rest() {
    close(slave_);
    slave_ = -1;
    read_until_it([] { return false; });
    return all_;
  }
  /// Do keys act and show again as they did?
  bool is_as_it_was() const {
    termios now{};
    tcgetattr(slave_, &now);
    return now.c_lflag == before_.c_lflag && now.c_iflag == before_.c_iflag &&
           now.c_oflag == before_.c_oflag && now.c_cc[VSUSP] == before_.c_cc[VSUSP];
  }

 private:
  bool take() {
    char block[4096];
    const ssize_t n = ::read(master_, block, sizeof block);
    if (n <= 0) return false;
    seen_.append(block, static_cast<std::size_t>(n));
    all_.append(block, static_cast<std::size_t>(n));
    return true;
  }

  unsigned short rows_, columns_;
  int master_ = -1, slave_ = -1;
  termios before_{};
  pid_t pid_ = -1;
  std::string seen_, all_;
};

/// Rows as they were drawn last, without colours: `ESC [ row ; 1 H` says where one begins.
inline std::map<int, std::string> screen_of(const std::string& output) {
  std::map<int, std::string> rows;
  int row = 0;
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (output[i] != '\x1b') {
      rows[row] += output[i];
      continue;
    }
    const std::size_t begin = i + 2;
    std::size_t end = begin;
    while (end < output.size() && (output[end] < '@' || output[end] > '~')) ++end;
    const std::string arguments = output.substr(begin, end - begin);
    if (end < output.size() && output[end] == 'H')
      row = arguments.empty() ? 1 : std::stoi(arguments), rows[row].clear();
    i = end;
  }
  return rows;
}

}  // namespace troupe::test
