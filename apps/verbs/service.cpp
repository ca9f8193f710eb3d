#include <troupe/apps/verbs/service.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace troupe::verbs {

sigset_t block_endings() {
  sigset_t endings;
  sigemptyset(&endings);
  sigaddset(&endings, SIGTERM);
  sigaddset(&endings, SIGINT);
  pthread_sigmask(SIG_BLOCK, &endings, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // the reader of the output may be gone before
  return endings;
}

void notify_service(const std::string& what) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (!path || (*path != '/' && *path != '@') || std::strlen(path) >= sizeof to.sun_path) return;
  std::strcpy(to.sun_path, path);
  if (*path == '@') to.sun_path[0] = '\0';  // an abstract name
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  sendto(fd, what.data(), what.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to),
         length);
  close(fd);
}

struct Deadline::Watch {
  std::mutex mutex;  // guards is_over
  std::condition_variable over;
  bool is_over = false;
  std::thread thread;
};

Deadline::Deadline(int seconds)
    : Deadline(seconds, [seconds] {
        // print throws if it is closed
        std::fputs(
            fmt::format("troupe: it did not come to an end within {} s, and is ended as it is\n",
                        seconds)
                .c_str(),
            stderr);
        std::fflush(nullptr);
        _exit(1);
      }) {}

Deadline::Deadline(int seconds, std::function<void()> late) : watch_(new Watch) {
  watch_->thread = std::thread([w = watch_, seconds, late = std::move(late)] {
    std::unique_lock lock(w->mutex);
    if (!w->over.wait_for(lock, std::chrono::seconds(seconds), [&] { return w->is_over; })) late();
  });
}

Deadline::~Deadline() {
  {
    std::lock_guard lock(watch_->mutex);
    watch_->is_over = true;
    watch_->over.notify_one();
  }
  watch_->thread.join();
  delete watch_;
}

}  // namespace troupe::verbs
