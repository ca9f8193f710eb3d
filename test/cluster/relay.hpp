// A TCP relay of the tests' own: what connects to it reaches `target`, until the test cuts the connections.
#pragma once

#include <troupe/cluster/tcp_socket.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace troupe::test {

class Relay {
 public:
  explicit Relay(const std::string& target)
      : port_(std::stoi(target.substr(target.rfind(':') + 1))), listening_(listen_at("tcp://127.0.0.1:0", "")), bell_(eventfd(0, EFD_CLOEXEC)) {
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
  /// From now on it remembers everything that goes over it.
  void tap() { is_tapped_ = true; }
  std::string seen() const {
    std::lock_guard lock(mutex_);
    return seen_;
  }
  std::uint64_t cuts() const { return cut_.load(); }  // connections that were cut

 private:
  struct Line {
    OwnedDescriptor ends[2];
  };

  void ring() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = write(bell_.get(), &one, sizeof one);
  }

  void run() {
    std::vector<Line> lines;
    std::vector<char> buffer(1 << 16);
    std::uint64_t cuts = 0;
    while (!is_over_) {
      std::vector<pollfd> polled = {{bell_.get(), POLLIN, 0}, {listening_.fd.get(), POLLIN, 0}};
      for (const Line& l : lines)
        for (const OwnedDescriptor& end : l.ends) polled.push_back({end.get(), POLLIN, 0});
      if (poll(polled.data(), polled.size(), -1) < 0) continue;
      if (polled[0].revents) {
        std::uint64_t rings;
        [[maybe_unused]] const auto n = read(bell_.get(), &rings, sizeof rings);
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
            is_open = pass(lines[i].ends[end].get(), lines[i].ends[1 - end].get(), buffer);
        if (is_open) left.push_back(std::move(lines[i]));
      }
      lines = std::move(left);
      if (polled[1].revents) take(lines);
    }
  }

  void take(std::vector<Line>& lines) const {
    OwnedDescriptor from(accept(listening_.fd.get(), nullptr, nullptr));
    if (from.get() < 0 || is_down_) return;
    OwnedDescriptor to(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in target{};
    target.sin_family = AF_INET;
    target.sin_port = htons(static_cast<std::uint16_t>(port_));
    target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr generic;
    std::memcpy(&generic, &target, sizeof generic);
    if (connect(to.get(), &generic, sizeof target) != 0) return;
    lines.push_back({{std::move(from), std::move(to)}});
  }

  bool pass(int from, int to, std::vector<char>& buffer) {
    const ssize_t n = read(from, buffer.data(), buffer.size());
    if (n <= 0) return false;
    if (is_tapped_) {
      std::lock_guard lock(mutex_);
      seen_.append(buffer.data(), static_cast<std::size_t>(n));
    }
    for (ssize_t at = 0; at < n;) {
      const ssize_t sent = send(to, buffer.data() + at, static_cast<std::size_t>(n - at), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += sent;
    }
    return true;
  }

  static void reset(int fd) {
    const linger now{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }

  const int port_;
  ListeningSocket listening_;
  OwnedDescriptor bell_;
  std::thread thread_;
  mutable std::mutex mutex_;  // guards seen_
  std::string seen_;
  std::atomic<bool> is_over_{false}, is_down_{false}, is_tapped_{false};  // publish nothing but themselves
  std::atomic<std::uint64_t> cuts_wanted_{0}, cut_{0};
};

}  // namespace troupe::test
