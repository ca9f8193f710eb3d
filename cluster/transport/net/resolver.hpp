// Resolves HOST of `tcp://HOST:PORT` to numeric addresses. Each look-up has a thread of its own,
// for which no thread waits: a resolver whose servers are silent takes a minute. An address that is
// numeric already, or means all, is there at once.
//
//   Lookups lookups;
//   auto asked = lookups.ask("tcp://node7:7117", now);  // joins a look-up that is under way
//   if (asked->is_done()) for (const std::string& address : asked->found()) …
//
// Threads: one, unless a function says otherwise.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

class Lookup {
 public:
  /// Throws resource_exhausted.
  explicit Lookup(const std::string& address);
  Lookup(const Lookup&) = delete;

  bool is_done() const;
  /// Readable when it is done; -1: it was at once.
  int bell() const;
  /// Once it is done: `tcp://` addresses, none of which has a name, those of IPv4 first. Throws
  /// not_found, in the resolver's words, where the name does not resolve, unavailable or
  /// resource_exhausted if that is not known.
  const std::vector<std::string>& found() const;
  /// Once it is done: would `found` throw nothing?
  bool is_good() const;

 private:
  struct Answer;
  std::shared_ptr<Answer> answer_;  // shared with the thread
};

class Lookups {
 public:
  using Time = std::chrono::nanoseconds;
  // time for which an answer is kept that no caller has taken, from the last request for it
  static constexpr Time kKept = std::chrono::seconds(10);
  // time for which a taken answer is kept, in case its taker had little time left
  static constexpr Time kFresh = std::chrono::seconds(2);
  static constexpr std::size_t kAtOnce = 64;  // threads

  /// Throws resource_exhausted.
  std::shared_ptr<Lookup> ask(const std::string& address, Time now);
  /// Notes that the answer was taken. A request much later, or after an error, starts a new
  /// look-up.
  void taken(const std::string& address, Time now, bool is_good);

 private:
  struct Asked {
    std::shared_ptr<Lookup> lookup;
    Time until;  // the answer is kept, once it is there
  };
  std::map<std::string, Asked> all_;
};

}  // namespace troupe
