// A process that runs until it is told to end: signals, and notifications to systemd.
#pragma once

#include <csignal>
#include <functional>
#include <string>

namespace troupe::verbs {

/// From here on SIGTERM and SIGINT wait to be asked for, in threads that are started later too.
sigset_t block_endings();
/// Notifies systemd, if systemd started this process (`Type=notify`); sd_notify(3) has the words.
void notify_service(const std::string& what);
/// Calls `late`, on a thread of its own, if it is still there after so many seconds; without one it
/// ends the process with status 1, saying so. Dropping it gives the all-clear.
class Deadline {
 public:
  explicit Deadline(int seconds);
  Deadline(int seconds, std::function<void()> late);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  struct Watch;
  Watch* watch_;
};

}  // namespace troupe::verbs
