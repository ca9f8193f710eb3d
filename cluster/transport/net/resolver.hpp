// Who HOST of `tcp://HOST:PORT` is, in numbers. A name is asked about by a thread of its own, which
// nobody waits for: a resolver whose servers are silent takes a minute. An address that is one
// already, or means all, is there at once.
//
//   Lookups lookups;
//   auto asked = lookups.ask("tcp://node7:7117", now);   // who is asked about already is not asked about twice
//   if (asked->is_done()) for (const std::string& address : asked->found()) …
//
// Threads: one, but for what is said otherwise.
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
  /// not_found, in the resolver's words, where the name does not resolve, unavailable and
  /// resource_exhausted where that cannot be told.
  const std::vector<std::string>& found() const;
  /// Once it is done: would `found` throw nothing?
  bool is_good() const;

 private:
  struct Answer;
  std::shared_ptr<Answer> answer_;  // that the thread has too
};

class Lookups {
 public:
  using Time = std::chrono::nanoseconds;
  // an answer that came when nobody was there to take it, from when it was last asked for
  static constexpr Time kKept = std::chrono::seconds(10);
  // one that was taken, for who took it had little time left
  static constexpr Time kFresh = std::chrono::seconds(2);
  static constexpr std::size_t kAtOnce = 64;  // threads

  /// Throws resource_exhausted.
  std::shared_ptr<Lookup> ask(const std::string& address, Time now);
  /// The answer was taken: who asks much later, or after one that was an error, asks anew.
  void taken(const std::string& address, Time now, bool is_good);

 private:
  struct Asked {
    std::shared_ptr<Lookup> lookup;
    Time until;  // the answer is kept, once it is there
  };
  std::map<std::string, Asked> all_;
};

}  // namespace troupe
