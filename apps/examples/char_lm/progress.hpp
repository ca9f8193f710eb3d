// What a run shows of itself: a line at each validation and, on a terminal, a bar that moves.
//
//   Progress progress(steps);
//   progress.step(120, loss, characters_a_second);
//   progress.line("...");
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace troupe::char_lm {

/// 1234567 as 1,234,567.
inline std::string with_commas(std::int64_t n) {
  std::string s = std::to_string(n);
  for (int i = static_cast<int>(s.size()) - 3; i > (n < 0 ? 1 : 0); i -= 3) s.insert(i, ",");
  return s;
}

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  Progress() : is_terminal_(isatty(STDOUT_FILENO)) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  /// Moves the bar, ten times a second at most.
  void step(std::int64_t step, std::int64_t steps, double loss, double validation, double speed) {
    auto now = Clock::now();
    if (!is_terminal_ || now < next_) return;
    next_ = now + std::chrono::milliseconds(100);
    std::string text = fmt::format(" {}/{}  loss {:.2f}  validation {:.2f} bits/char  {} chars/s",
                                   with_commas(step), with_commas(steps), loss, validation,
                                   with_commas(static_cast<std::int64_t>(speed)));
    int room = std::min(30, columns() - static_cast<int>(text.size()) - 3);
    std::string bar;
    if (room >= 5) {
      int done = static_cast<int>(static_cast<double>(room) * static_cast<double>(step) /
                                  static_cast<double>(std::max<std::int64_t>(1, steps)));
      bar = fmt::format("[{}{}]", std::string(done, '#'), std::string(room - done, '.'));
    }
    fmt::print("\r\x1b[K{}", (bar + text).substr(0, columns() - 1));
    std::fflush(stdout);
    is_drawn_ = true;
  }

  /// A line that stays.
  void line(const std::string& text) {
    clear();
    fmt::print("{}\n", text);
    std::fflush(stdout);
  }

 private:
  void clear() {
    if (std::exchange(is_drawn_, false)) fmt::print("\r\x1b[K");
    std::fflush(stdout);
  }
  static int columns() {
    winsize size{};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  }
  bool is_terminal_;
  bool is_drawn_ = false;
  Clock::time_point next_{};
};

}  // namespace troupe::char_lm
