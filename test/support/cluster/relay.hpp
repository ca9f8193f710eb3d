// A TCP relay of the tests' own: what connects to it reaches `target`, after a while if the test
// says so, until it cuts the connections.
#pragma once

#include <troupe/cluster/transport/net/tcp_socket.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::test {

class Relay {
 public:
  explicit Relay(const std::string& target, const std::string& at = "tcp://127.0.0.1:0")
      : host_(host_of(target)), port_(std::stoi(target.substr(target.rfind(':') + 1))),
        listening_(listen_at(at, "")), bell_(eventfd(0, EFD_CLOEXEC)) {
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    is_over_ = true;
    ring();
    thread_.join();
  }
  std::string address() const { return listening_.address; }
  /// Resets every connection; with `stay_down`, accepts no other.
  void cut(bool stay_down = false) {
    is_down_ = stay_down;
    cuts_wanted_.fetch_add(1);
    ring();
  }
  /// Data that arrives from now on is forwarded with this delay.
  void delay(std::chrono::milliseconds by) {
    delay_ = by;
    ring();
  }
  std::uint64_t delayed_bytes() const { return delayed_.load(); }
  /// Bytes of one connection, in order.
  struct Piece {
    bool is_answer;  // sent to the side that connected
    std::string bytes;
  };
  using Talk = std::vector<Piece>;

  /// From now on it remembers everything that goes over it.
  void tap() { is_tapped_ = true; }
  /// All connections so far, in the order in which they were opened.
  std::vector<Talk> talks() const {
    std::lock_guard lock(mutex_);
    return talks_;
  }
  std::string seen() const {
    std::string all;
    for (const Talk& talk : talks())
      for (const Piece& piece : talk) all += piece.bytes;
    return all;
  }
  /// Sends these bytes to the target, after the bytes that the first open connection has sent.
  void insert(const std::string& bytes) {
    {
      std::lock_guard lock(mutex_);
      inserted_ += bytes;
    }
    ring();
  }
  std::uint64_t cuts() const { return cut_.load(); }  // connections that were cut

 private:
  using Clock = std::chrono::steady_clock;
  struct Late {
    Clock::time_point due;
    std::string bytes;
  };
  struct Line {
    OwnedDescriptor ends[2];
    std::size_t talk;               // in talks_
    std::deque<Late> late[2] = {};  // to which end
  };

  void ring() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(bell_.get(), &one, sizeof one);
  }

  void run() {
    std::vector<Line> lines;
    std::vector<char> buffer(1 << 16);
    std::uint64_t cuts = 0;
    while (!is_over_) {
      std::vector<pollfd> polled = {{bell_.get(), POLLIN, 0}, {listening_.fd.get(), POLLIN, 0}};
      for (const Line& l : lines)
        for (const OwnedDescriptor& end : l.ends) polled.push_back({end.get(), POLLIN, 0});
      if (poll(polled.data(), polled.size(), wait(lines)) < 0) continue;
      if (polled[0].revents) {
        std::uint64_t rings;
        [[maybe_unused]] const auto n = ::read(bell_.get(), &rings, sizeof rings);
        std::lock_guard lock(mutex_);
        if (!lines.empty() && !inserted_.empty())
          lines[0].late[1].push_back({Clock::now(), std::exchange(inserted_, {})});
      }
      if (const std::uint64_t wanted = cuts_wanted_.load(); wanted != cuts) {
        cuts = wanted;
        cut_ += lines.size();
        for (const Line& l : lines)
          for (const OwnedDescriptor& end : l.ends) reset(end.get());
        lines.clear();
        continue;
      }
      std::vector<Line> left;
      for (std::size_t i = 0; i < lines.size(); ++i) {
        bool is_open = true;
        for (const int end : {0, 1})
          if (polled[2 + 2 * i + static_cast<std::size_t>(end)].revents && is_open)
            is_open = pass(lines[i], end, buffer);
        for (const int end : {0, 1}) is_open = is_open && deliver(lines[i], end);
        if (is_open) left.push_back(std::move(lines[i]));
      }
      lines = std::move(left);
      if (polled[1].revents) take(lines);
    }
  }

  void take(std::vector<Line>& lines) {
    OwnedDescriptor from(accept(listening_.fd.get(), nullptr, nullptr));
    if (from.get() < 0 || is_down_) return;
    OwnedDescriptor to(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in target{};
    target.sin_family = AF_INET;
    target.sin_port = htons(static_cast<std::uint16_t>(port_));
    inet_pton(AF_INET, host_.c_str(), &target.sin_addr);
    sockaddr generic;
    std::memcpy(&generic, &target, sizeof generic);
    if (connect(to.get(), &generic, sizeof target) != 0) return;
    std::lock_guard lock(mutex_);
    lines.push_back({{std::move(from), std::move(to)}, talks_.size(), {}});
    talks_.emplace_back();
  }

  /// Milliseconds until something late is due; -1: nothing is.
  static int wait(const std::vector<Line>& lines) {
    auto first = Clock::time_point::max();
    for (const Line& l : lines)
      for (const auto& late : l.late)
        if (!late.empty()) first = std::min(first, late.front().due);
    if (first == Clock::time_point::max()) return -1;
    return std::max<int>(
        0, static_cast<int>(
               std::chrono::ceil<std::chrono::milliseconds>(first - Clock::now()).count()));
  }

  bool pass(Line& line, int end, std::vector<char>& buffer) {
    const ssize_t n = ::read(line.ends[end].get(), buffer.data(), buffer.size());
    if (n <= 0) return false;
    const std::chrono::milliseconds by = delay_;
    if (by.count() != 0) delayed_ += static_cast<std::uint64_t>(n);
    if (is_tapped_) {
      std::lock_guard lock(mutex_);
      Talk& talk = talks_[line.talk];
      if (talk.empty() || talk.back().is_answer != (end == 1)) talk.push_back({end == 1, {}});
      talk.back().bytes.append(buffer.data(), static_cast<std::size_t>(n));
    }
    line.late[1 - end].push_back(
        {Clock::now() + by, std::string(buffer.data(), static_cast<std::size_t>(n))});
    return true;
  }

  static bool deliver(Line& line, int end) {
    std::deque<Late>& late = line.late[end];
    for (; !late.empty() && late.front().due <= Clock::now(); late.pop_front()) {
      const std::string& bytes = late.front().bytes;
      for (std::size_t at = 0; at < bytes.size();) {
        const ssize_t sent =
            send(line.ends[end].get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        at += static_cast<std::size_t>(sent);
      }
    }
    return true;
  }

  static void reset(int fd) {
    const linger now{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }

  const std::string host_;
  const int port_;
  ListeningSocket listening_;
  OwnedDescriptor bell_;
  std::thread thread_;
  mutable std::mutex mutex_;  // guards talks_ and inserted_
  std::vector<Talk> talks_;
  std::string inserted_;
  // publish nothing but themselves
  std::atomic<bool> is_over_{false}, is_down_{false}, is_tapped_{false};
  std::atomic<std::chrono::milliseconds> delay_{std::chrono::milliseconds(0)};
  std::atomic<std::uint64_t> cuts_wanted_{0}, cut_{0}, delayed_{0};
};

}  // namespace troupe::test
