#include <troupe/cluster/transport/sim/in_process.hpp>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <variant>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

namespace {

class InProcessTransport;

struct Refusal {
  std::string address;
  Status why;
};
struct Arrival {
  Lane lane;
  Message message;
};
struct Loss {
  std::string name;
  Status why;
};
struct Delivery {
  Peer peer;
  std::variant<PeerInfo, Refusal, Arrival, Loss> what;
};

struct Link {
  InProcessTransport* to;
  Peer back;  // our number there
  std::string name;
  std::uint64_t waiting_bytes = 0;  // arrived from there, not yet delivered here
};

}  // namespace

// One mutex guards the hub and the queues and links of all its transports; listeners are called
// without it. A process holds few transports, and they exchange handles.
class InProcessNetwork::Hub {
 public:
  explicit Hub(bool is_stepped) : stepped(is_stepped) {}

  const bool stepped;
  std::mutex mutex;
  std::map<std::string, InProcessTransport*> listening;  // by address
  std::vector<InProcessTransport*> started;
  std::size_t turn = 0;  // whose step is next
};

namespace {

class InProcessTransport final : public Transport {
 public:
  InProcessTransport(std::shared_ptr<InProcessNetwork::Hub> hub, PeerInfo self)
      : hub_(std::move(hub)), self_(std::move(self)) {
    if (self_.engine.empty()) self_.engine = engine_version();
  }
  ~InProcessTransport() override { stop(); }

  void start(TransportListener& listener) override {
    std::lock_guard lock(hub_->mutex);
    if (listener_) throw Error(Code::failed_precondition, "the transport was started before");
    if (!self_.address.empty()) {
      if (!self_.address.starts_with("inproc://"))
        throw Error(
            Code::invalid_argument,
            fmt::format("an address within a process is inproc://NAME, not {}", self_.address));
      if (!hub_->listening.emplace(self_.address, this).second)
        throw Error(Code::unavailable, fmt::format("the address {} is taken", self_.address));
    }
    hub_->started.push_back(this);
    listener_ = &listener;
    if (!hub_->stepped) thread_ = std::thread([this] { deliver_all(); });
  }

  void stop() override {
    {
      std::lock_guard lock(hub_->mutex);
      if (!listener_ || stopped_) return;
      stopped_ = true;
      while (!links_.empty())
        unlink(links_.begin()->first,
               Status(Code::unavailable, fmt::format("{} has left", self_.name)));
      urgent_.clear();
      queue_.clear();
      if (!self_.address.empty()) hub_->listening.erase(self_.address);
      std::erase(hub_->started, this);
      ready_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

  std::string address() const override { return self_.address; }

  void connect(const std::string& address) override {
    std::lock_guard lock(hub_->mutex);
    if (!listener_ || stopped_) return;
    const auto found = hub_->listening.find(address);
    if (found == hub_->listening.end())
      return refuse(address, Status(Code::unavailable, "no node listens at " + address));
    InProcessTransport& other = *found->second;
    if (Status why = check_peer(self_, other.self_); !why.ok()) return refuse(address, why);
    for (const auto& [peer, link] : links_)
      if (link.to == &other) return;
    supersede(other.self_);
    other.supersede(self_);
    const Peer mine = next_++, theirs = other.next_++;
    links_.emplace(mine, Link{&other, theirs, other.self_.name});
    other.links_.emplace(theirs, Link{this, mine, self_.name});
    push(urgent_, {mine, other.self_});
    other.push(other.urgent_, {theirs, self_});
  }

  void send(Peer peer, Lane lane, Message message) override {
    check_sendable(message);
    const std::uint64_t bytes = bytes_of(message);
    std::lock_guard lock(hub_->mutex);
    const auto found = links_.find(peer);
    if (found == links_.end()) return;
    ++counters_.messages_out;
    counters_.bytes_out += bytes;
    InProcessTransport& other = *found->second.to;
    const Peer back = found->second.back;
    other.links_.at(back).waiting_bytes += bytes;
    other.push(lane == Lane::control ? other.urgent_ : other.queue_,
               {back, Arrival{lane, std::move(message)}});
  }

  void disconnect(Peer peer, const Status& why) override {
    std::lock_guard lock(hub_->mutex);
    if (links_.contains(peer)) unlink(peer, why);
  }

  std::chrono::nanoseconds now() const override { return {}; }

  TransportCounters counters() const override {
    std::lock_guard lock(hub_->mutex);
    TransportCounters all = counters_;
    for (const auto& [peer, link] : links_)
      all.unsent_bytes += link.to->links_.at(link.back).waiting_bytes;
    return all;
  }

  bool has_events() const { return !urgent_.empty() || !queue_.empty(); }

  /// Calls what the first is for; `lock` holds the hub's mutex, and does so again on return.
  void deliver_one(std::unique_lock<std::mutex>& lock) {
    std::deque<Delivery>& from = urgent_.empty() ? queue_ : urgent_;
    Delivery delivery = std::move(from.front());
    from.pop_front();
    if (const auto* arrival = std::get_if<Arrival>(&delivery.what)) {
      const std::uint64_t bytes = bytes_of(arrival->message);
      ++counters_.messages_in;
      counters_.bytes_in += bytes;
      if (const auto link = links_.find(delivery.peer); link != links_.end())
        link->second.waiting_bytes -= bytes;
    }
    lock.unlock();
    std::visit([&](auto& what) { call(delivery.peer, what); }, delivery.what);
    lock.lock();
  }

 private:
  void call(Peer peer, const PeerInfo& info) { listener_->connected(peer, info); }
  void call(Peer, const Refusal& refusal) { listener_->refused(refusal.address, refusal.why); }
  void call(Peer peer, Arrival& arrival) {
    listener_->received(peer, arrival.lane, std::move(arrival.message));
  }
  void call(Peer peer, const Loss& loss) { listener_->lost(peer, loss.why); }

  void deliver_all() {
    std::unique_lock lock(hub_->mutex);
    while (!stopped_) {
      if (has_events()) deliver_one(lock);
      else ready_.wait(lock);
    }
  }

  void push(std::deque<Delivery>& queue, Delivery delivery) {
    queue.push_back(std::move(delivery));
    ready_.notify_one();
  }

  void refuse(const std::string& address, Status why) {
    push(urgent_, {0, Refusal{address, std::move(why)}});
  }

  /// Ends a link at both ends. `lost` comes behind the messages of both priorities: it waits in the
  /// slower queue.
  void unlink(Peer peer, const Status& why) {
    const Link link = links_.extract(peer).mapped();
    push(queue_, {peer, Loss{link.name, why}});
    link.to->push(link.to->queue_, {link.back, Loss{self_.name, why}});
    link.to->links_.erase(link.back);
  }

  /// Before a node of a name is connected, an earlier one of that name is lost: what still waits of
  /// it comes first.
  void supersede(const PeerInfo& newcomer) {
    for (const auto& [peer, link] : links_)
      if (link.name == newcomer.name) {
        unlink(peer, Status(Code::unavailable, fmt::format("{} has started anew", newcomer.name)));
        break;
      }
    std::vector<Peer> ended;
    for (const Delivery& delivery : queue_)
      if (const auto* loss = std::get_if<Loss>(&delivery.what); loss && loss->name == newcomer.name)
        ended.push_back(delivery.peer);
    for (const Peer peer : ended) {
      const auto moved = std::stable_partition(queue_.begin(), queue_.end(),
                                               [&](const Delivery& e) { return e.peer != peer; });
      urgent_.insert(urgent_.end(), std::make_move_iterator(moved),
                     std::make_move_iterator(queue_.end()));
      queue_.erase(moved, queue_.end());
    }
  }

  const std::shared_ptr<InProcessNetwork::Hub> hub_;
  PeerInfo self_;
  TransportListener* listener_ = nullptr;
  std::thread thread_;
  // Guarded by the hub's mutex.
  bool stopped_ = false;
  std::condition_variable ready_;
  std::deque<Delivery> urgent_, queue_;  // connections and Lane::control; Lane::data and losses
  std::map<Peer, Link> links_;
  Peer next_ = 1;
  TransportCounters counters_;
};

}  // namespace

InProcessNetwork::InProcessNetwork(Delivery delivery)
    : hub_(std::make_shared<Hub>(delivery == Delivery::stepped)) {}
InProcessNetwork::~InProcessNetwork() = default;

std::unique_ptr<Transport> InProcessNetwork::make_transport(PeerInfo self) {
  return std::make_unique<InProcessTransport>(hub_, std::move(self));
}

bool InProcessNetwork::step() {
  if (!hub_->stepped)
    throw Error(Code::failed_precondition, "this network delivers on threads of its own");
  std::unique_lock lock(hub_->mutex);
  const std::size_t n = hub_->started.size();
  for (std::size_t i = 0; i < n; ++i) {
    InProcessTransport* transport = hub_->started[(hub_->turn + i) % n];
    if (!transport->has_events()) continue;
    hub_->turn = (hub_->turn + i + 1) % n;
    transport->deliver_one(lock);
    return true;
  }
  return false;
}

}  // namespace troupe
