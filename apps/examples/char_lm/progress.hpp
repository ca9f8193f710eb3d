// A run's own lines: one at each validation and, on a terminal, a bar that moves. On a
// pipe a line at least every ten seconds, also while one step takes longer.
//
//   Progress progress;
//   progress.step(120, 1000, loss, validation, characters_a_second);
//   progress.line("...");
//
// Threads: any; one of its own looks each second whether a line is due.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

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

  static constexpr std::chrono::seconds kSilence{10};  // on a pipe, at most

  Progress() : Progress(isatty(STDOUT_FILENO), Clock::now, {}) {
    looks_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      while (!ended_.wait_for(lock, std::chrono::seconds(1), [this] { return is_over_; }))
        tick_now();
    });
  }
  /// For tests: `now` is the clock, `print` gets the lines, and `tick` is called by hand.
  Progress(bool is_terminal, std::function<Clock::time_point()> now,
           std::function<void(const std::string&)> print)
      : is_terminal_(is_terminal), now_(std::move(now)), print_(std::move(print)), printed_(now_()),
        stepped_(printed_) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    {
      std::lock_guard lock(mutex_);
      is_over_ = true;
      ended_.notify_all();
    }
    if (looks_.joinable()) looks_.join();
    clear();
  }

  /// Moves the bar, ten times a second at most; on a pipe prints a line if one is due.
  void step(std::int64_t step, std::int64_t steps, double loss, double validation, double speed) {
    std::lock_guard lock(mutex_);
    auto now = now_();
    stepped_ = now;
    if (!is_terminal_) {
      last_ = fmt::format("step {:>7} of {}  loss {:.3f}  {} chars/s", with_commas(step),
                          with_commas(steps), loss, with_commas(static_cast<std::int64_t>(speed)));
      if (now - printed_ >= kSilence) put(last_);
      return;
    }
    if (now < next_) return;
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
    std::lock_guard lock(mutex_);
    clear();
    put(text);
  }
  /// Prints a line if none was printed for so long, because one step takes that long.
  void tick() {
    std::lock_guard lock(mutex_);
    tick_now();
  }

 private:
  void tick_now() {
    const auto now = now_();
    if (is_terminal_ || now - printed_ < kSilence) return;
    put(fmt::format("{}no step has ended for {} s", last_.empty() ? "" : last_ + "; ",
                    std::chrono::duration_cast<std::chrono::seconds>(now - stepped_).count()));
  }
  void put(const std::string& text) {
    printed_ = now_();
    if (print_) return print_(text);
    fmt::print("{}\n", text);
    std::fflush(stdout);
  }
  void clear() {
    if (std::exchange(is_drawn_, false)) fmt::print("\r\x1b[K");
    std::fflush(stdout);
  }
  static int columns() {
    winsize size{};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  }
  const bool is_terminal_;
  const std::function<Clock::time_point()> now_;
  const std::function<void(const std::string&)> print_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable ended_;
  bool is_over_ = false, is_drawn_ = false;
  Clock::time_point next_{}, printed_{}, stepped_{};
  std::string last_;  // the latest step, as a line; empty: there was none
  std::thread looks_;
};

}  // namespace troupe::char_lm
