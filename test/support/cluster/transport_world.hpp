// Worlds in which transports under test meet: one for each implementation, with the same interface,
// and a listener that records its calls.
#pragma once

#include <troupe/cluster/transport/sim/in_process.hpp>
#include <troupe/cluster/transport/sim/simulated.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::test {

/// Rings whenever a recorder has heard something; its mutex guards all of them.
struct Bell {
  std::mutex mutex;
  std::condition_variable rings;
};

class RecordingListener final : public TransportListener {
 public:
  struct Got {
    Peer peer;
    Lane lane;
    Message message;
  };
  explicit RecordingListener(Bell& bell) : bell_(bell) {}

  std::vector<std::pair<Peer, PeerInfo>> peers;
  std::vector<std::pair<std::string, Status>> refusals;
  std::vector<Got> got;
  std::vector<std::pair<Peer, Status>> losses;
  std::vector<std::string> log;  // "connected a", "lost a", in order
  std::size_t direct = 0;        // messages received that were sent by send_direct
  std::size_t breaks = 0;
  /// Called, without the mutex, before a message is written down.
  std::function<void(Peer, Lane, const Message&)> on_message;

  void connected(Peer peer, const PeerInfo& info) override {
    note([&] {
      peers.emplace_back(peer, info);
      log.push_back("connected " + info.name);
    });
  }
  void refused(const std::string& address, const Status& why) override {
    note([&] { refusals.emplace_back(address, why); });
  }
  void received(Peer peer, Lane lane, Message message) override {
    if (on_message) on_message(peer, lane, message);
    note([&] { got.push_back({peer, lane, std::move(message)}); });
  }
  /// Written down as a message of data priority without tensors: it means the same.
  void received_direct(Peer peer, std::span<const std::byte> record) override {
    Message message{{record.begin(), record.end()}, {}};
    if (on_message) on_message(peer, Lane::data, message);
    note([&] {
      got.push_back({peer, Lane::data, std::move(message)});
      ++direct;
    });
  }
  void lost(Peer peer, const Status& why) override {
    note([&] {
      losses.emplace_back(peer, why);
      for (const auto& [number, info] : peers)
        if (number == peer) log.push_back("lost " + info.name);
    });
  }

  void broken(Peer) override {
    note([&] { ++breaks; });
  }

  Peer peer_named(const std::string& name) const {
    Peer last = 0;
    for (const auto& [number, info] : peers)
      if (info.name == name) last = number;
    return last;
  }

 private:
  template <class F>
  void note(F&& f) {
    std::lock_guard lock(bell_.mutex);
    f();
    bell_.rings.notify_all();
  }

  Bell& bell_;
};

/// Waits for what threads do; ten times as long as it could take on a machine under load.
template <class Done>
bool wait_until(Bell& bell, Done done) {
  std::unique_lock lock(bell.mutex);
  return bell.rings.wait_for(lock, std::chrono::seconds(100), done);
}

struct InProcessWorld {
  static constexpr bool has_threads = true;
  InProcessNetwork network;
  Bell bell;

  std::string free_address(const std::string& name) { return "inproc://" + name; }
  std::unique_ptr<Transport> make(PeerInfo self) { return network.make_transport(std::move(self)); }
  template <class Done>
  bool until(Done done) {
    return wait_until(bell, done);
  }
};

struct SteppedWorld {
  static constexpr bool has_threads = false;
  InProcessNetwork network{InProcessNetwork::Delivery::stepped};
  Bell bell;

  std::string free_address(const std::string& name) { return "inproc://" + name; }
  std::unique_ptr<Transport> make(PeerInfo self) { return network.make_transport(std::move(self)); }
  template <class Done>
  bool until(Done done) {
    while (!done())
      if (!network.step()) return done();
    return true;
  }
};

struct SimulatedWorld {
  static constexpr bool has_threads = false;
  explicit SimulatedWorld(std::uint64_t seed = 7, const SimulationOptions& options = {})
      : network(seed, options) {}
  SimulatedNetwork network;
  Bell bell;

  std::string free_address(const std::string& name) { return "sim://" + name; }
  std::unique_ptr<Transport> make(PeerInfo self) { return network.make_transport(std::move(self)); }
  template <class Done>
  bool until(Done done) {
    const Time end = network.now() + std::chrono::seconds(100);
    while (!done() && network.now() < end)
      if (!network.step()) break;
    return done();
  }
};

/// Over TCP. The time-outs are the real ones, but for those a test waits for.
struct ZeroMqWorld {
  static constexpr bool has_threads = true;
  Bell bell;

  /// Returns port 1, which never has a listener, for the absent node; else any free port.
  std::string free_address(const std::string& name) {
    return name == "nobody" ? "tcp://127.0.0.1:1" : "tcp://127.0.0.1:0";
  }
  std::unique_ptr<Transport> make(PeerInfo self) { return make_zeromq_transport(std::move(self)); }
  template <class Done>
  bool until(Done done) {
    return wait_until(bell, done);
  }
};

/// Like ZeroMqWorld with everything over ZeroMQ, and with payload sealed.
struct NoBulkWorld : ZeroMqWorld {
  std::unique_ptr<Transport> make(PeerInfo self) {
    return make_zeromq_transport(std::move(self), {.bulk = false});
  }
};
struct SealedWorld : ZeroMqWorld {
  std::unique_ptr<Transport> make(PeerInfo self) {
    return make_zeromq_transport(std::move(self), {.shared_memory = false, .seal = true});
  }
};
/// Over TCP as between two hosts: without shared memory.
struct TcpWorld : ZeroMqWorld {
  std::unique_ptr<Transport> make(PeerInfo self) {
    return make_zeromq_transport(std::move(self), {.shared_memory = false});
  }
};

/// A message that its number tells apart, of so many bytes of payload.
inline Message numbered(std::uint64_t number, std::size_t bytes) {
  Message m;
  m.head.resize(sizeof number);
  std::memcpy(m.head.data(), &number, sizeof number);
  Tensor t = Tensor::empty(DType::u8, Shape{static_cast<std::int64_t>(bytes)});
  std::memset(t.raw_mutable(), static_cast<int>(number % 251), bytes);
  m.tensors.push_back(std::move(t));
  return m;
}

inline bool is_numbered(const Message& m, std::uint64_t number) {
  if (m.head.size() != sizeof number || std::memcmp(m.head.data(), &number, sizeof number) != 0)
    return false;
  const auto* bytes = m.tensors.at(0).data<std::uint8_t>();
  return std::all_of(bytes, bytes + m.tensors[0].elements(),
                     [&](std::uint8_t b) { return b == number % 251; });
}

}  // namespace troupe::test
