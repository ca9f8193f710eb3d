// A network in one thread, on a virtual clock, with every kind of fault, chosen by a seed.
//
//   SimulatedNetwork network(seed);
//   auto a = network.make_transport({.name = "a", .incarnation = 1, .address = "sim://a"});
//   a->start(listener);
//   network.at(3s, [&] { network.partition({"a"}); });  network.at(8s, [&] { network.heal(); });
//   while (network.step()) {}  // one event: a wire frame, a request or a time-out
//
// The transports run the router, sessions and wire format of those on ZeroMQ; only the link is
// simulated. Wire frames take a random time, in order within a connection. A connection that breaks
// loses its wire frames in flight. The node that dialled is notified after a while, and the other
// one never or when it sends. Bulk channels come up late or never, overtake their connection and
// are overtaken, and carry a wire frame in pieces. With most of them direct records go directly,
// and no break loses a direct record. A partition delays wire frames. A user's request on a
// priority is served after a random while, so that priorities overtake each other.
//
// Threads: one, which makes these calls and steps. Equal seeds and equal calls give equal
// schedules. With heartbeats there is always a next event: bound a loop by its goal and by `now`.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include <troupe/cluster/transport/router.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

struct SimulationOptions {
  Time least_delay = std::chrono::microseconds(50), most_delay = std::chrono::milliseconds(5);
  double bulk = 0.8;    // the share of connections that ask for a bulk channel
  double shared = 0.7;  // the share among them with nodes of one host, which send directly
  RouterOptions router = {};
};

class SimulatedNetwork {
 public:
  explicit SimulatedNetwork(std::uint64_t seed, SimulationOptions options = {});
  ~SimulatedNetwork();
  SimulatedNetwork(const SimulatedNetwork&) = delete;
  SimulatedNetwork& operator=(const SimulatedNetwork&) = delete;

  /// `self.address` is `sim://NAME` or empty. `stop` steps the network until the peers have what
  /// was sent.
  std::unique_ptr<Transport> make_transport(PeerInfo self);

  /// Runs the next event; false if there is none.
  bool step();
  Time now() const;
  /// Calls `what` at that time, or at once if it is past.
  void at(Time when, std::function<void()> what);

  /// These nodes and the others do not reach each other any more, until `heal`; an earlier
  /// partition ends.
  void partition(std::set<std::string> names);
  /// So do these two, with each other alone.
  void cut(const std::string& a, const std::string& b);
  void heal();
  /// Delays each wire frame between these two by `delay`, plus ns_per_byte for each byte.
  void slow_down(const std::string& a, const std::string& b, Time delay, double ns_per_byte);
  /// Breaks every connection of this node.
  void break_connections(const std::string& name);
  /// Breaks those that have a bulk channel, as they do when that breaks.
  void break_bulk_channels(const std::string& name);
  /// Ends this node without a word. Its transport does nothing any more.
  void kill(const std::string& name);

  std::uint64_t events() const;          // run so far
  std::uint64_t frames_lost() const;     // by connections that broke
  std::uint64_t frames_stalled() const;  // by partitions
  // times a wire frame waited on a bulk channel for one of the connection
  std::uint64_t bulk_waits() const;
  std::uint64_t bulk_breaks() const;     // bulk channels broken by break_bulk_channels
  std::uint64_t direct_records() const;  // sent by send_direct

  class World;

 private:
  std::shared_ptr<World> world_;
};

}  // namespace troupe
