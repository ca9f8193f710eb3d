#include <troupe/cluster/inspect/http_acceptor.hpp>

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include <troupe/cluster/inspect/inspection_json.hpp>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostSaid = 32 << 10;  // bytes of a head
constexpr int kBacklog = 512;                // connections that wait in the kernel to be accepted

// Unread bytes are dropped first: closing over them would take back the last answer.
void hang_up(int socket) {
  char block[4096];
  for (int i = 0; i < 8 && ::recv(socket, block, sizeof block, MSG_DONTWAIT) > 0; ++i) {}
  ::shutdown(socket, SHUT_RDWR);
  ::close(socket);
}

void dismiss(int socket, const char* status, const char* sentence) {
  const std::string body = error_json(sentence);
  const std::string answer = fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nRetry-After: "
      "1\r\nConnection: close\r\n\r\n{}",
      status, body.size(), body);
  (void)!::send(socket, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  hang_up(socket);
}

}  // namespace

HttpAcceptor::HttpAcceptor(int listening, Limits limits, Serve answer)
    : listening_(listening), ending_(::eventfd(0, EFD_CLOEXEC)), limits_(limits),
      answer_(std::move(answer)) {
  ::fcntl(listening_, F_SETFL, O_NONBLOCK);
  ::listen(listening_, kBacklog);
  threads_.emplace_back([this] { receive(); });
  for (int i = 0; i < limits_.serve; ++i) threads_.emplace_back([this] { work(); });
}

HttpAcceptor::~HttpAcceptor() {
  {
    std::lock_guard lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  ::eventfd_write(ending_, 1);
  for (std::thread& t : threads_) t.join();
  for (const Caller& c : callers_) hang_up(c.socket);
  for (const Caller& c : complete_) hang_up(c.socket);
  ::close(listening_);
  ::close(ending_);
}

void HttpAcceptor::receive() {
  std::vector<pollfd> all;
  for (;;) {
    all = {{ending_, POLLIN, 0}, {listening_, POLLIN, 0}};
    for (const Caller& c : callers_) all.push_back({c.socket, POLLIN, 0});
    if (::poll(all.data(), all.size(), patience()) < 0) continue;  // a signal
    if (all[0].revents != 0) return;
    auto said = all.begin() + 2;
    for (auto c = callers_.begin(); c != callers_.end(); ++said)
      c = said->revents != 0 && is_done(*c) ? callers_.erase(c) : std::next(c);
    for (; !callers_.empty() && callers_.front().until <= Clock::now(); callers_.pop_front()) {
      Caller& late = callers_.front();
      // a browser's spare connection: no answer to a question to come
      if (late.said.empty()) hang_up(late.socket);
      else
        dismiss(late.socket, "408 Request Timeout",
                "the head of the request was too long in coming");
    }
    if (all[1].revents != 0) accept_all();
  }
}

// Returns the milliseconds until the first caller is late; -1: there is none.
int HttpAcceptor::patience() const {
  if (callers_.empty()) return -1;
  return static_cast<int>(std::max<std::int64_t>(
      0,
      std::chrono::ceil<std::chrono::milliseconds>(callers_.front().until - Clock::now()).count()));
}

// Connections that wait in the kernel have mostly sent their request. So each is read before an
// earlier caller is dismissed for it.
void HttpAcceptor::accept_all() {
  const auto give_way = [&] {
    if (!is_done(callers_.front()))
      dismiss(callers_.front().socket, "503 Service Unavailable",
              "too many connections: come back in a second");
    callers_.pop_front();
  };
  for (int i = 0; i < kBacklog; ++i) {
    const int socket = ::accept4(listening_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      if (errno != EMFILE && errno != ENFILE) return;
      if (!callers_.empty()) give_way();
      else
        std::this_thread::sleep_for(
            std::chrono::milliseconds(10));  // others of this process hold them all
      return;
    }
    Caller caller{socket, Clock::now() + std::chrono::seconds(limits_.head), {}};
    if (is_done(caller)) continue;
    if (callers_.size() == kMostHeads) give_way();
    callers_.push_back(std::move(caller));
  }
}

// Reads the available bytes; true if the connection was passed on, dismissed, or is gone.
bool HttpAcceptor::is_done(Caller& caller) {
  char block[4096];
  const ssize_t n = ::recv(caller.socket, block, sizeof block, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) {
    ::close(caller.socket);
    return true;
  }
  const std::size_t before = caller.said.size();
  caller.said.append(block, static_cast<std::size_t>(n));
  if (caller.said.find("\r\n\r\n", before < 3 ? 0 : before - 3) != std::string::npos)
    pass_on(caller);
  else if (caller.said.size() > kMostSaid)
    dismiss(caller.socket, "431 Request Header Fields Too Large",
            "the head of the request is too long");
  else return false;
  return true;
}

void HttpAcceptor::pass_on(Caller& caller) {
  {
    std::lock_guard lock(mutex_);
    if (complete_.size() < static_cast<std::size_t>(limits_.wait)) {
      complete_.push_back(std::move(caller));
      changed_.notify_one();
      return;
    }
  }
  dismiss(caller.socket, "503 Service Unavailable", "too many requests: come back in a second");
}

void HttpAcceptor::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !complete_.empty() || is_ending_; });
    if (is_ending_) return;
    Caller caller = std::move(complete_.front());
    complete_.pop_front();
    lock.unlock();
    try {
      answer_(caller.socket, std::move(caller.said));
    } catch (...) {
      // Out of memory, mostly. This caller is hung up on; others are served.
    }
    hang_up(caller.socket);
    lock.lock();
  }
}

}  // namespace troupe
