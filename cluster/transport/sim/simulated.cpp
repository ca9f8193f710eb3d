#include <troupe/cluster/transport/sim/simulated.hpp>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <queue>
#include <random>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include <troupe/cluster/transport/sim/simulated_direct.hpp>

namespace troupe {

namespace {

class SimulatedTransport;

/// One of the two directions of a connection.
struct Direction {
  SimulatedTransport* to = nullptr;  // null: not connected yet, or no longer
  Time last{};                       // when the wire frame before arrives
  std::deque<Ref<OutFrame>> frames;  // on their way: an arrival takes the first
};

/// One of the two directions of a bulk channel, whose wire frames arrive in pieces.
struct BulkDirection : Direction {
  std::size_t arrived = 0;    // bytes of the first wire frame's bulk
  bool is_begun = false;      // it has had its turn
  bool is_under_way = false;  // an event will move its first wire frame
  bool is_open = false;       // the receiver knows of the channel
};

struct SimulatedConnection {
  std::string from, address;
  Direction forward, back;  // from the one that dialled, and to it
  BulkDirection bulk_forward, bulk_back;
  const std::shared_ptr<SimulatedDirect> direct_forward = std::make_shared<SimulatedDirect>(),
                                         direct_back = std::make_shared<SimulatedDirect>();
  bool has_bulk = false;
  bool is_shared = false;  // its nodes are of one host
  bool is_broken = false;
  bool acceptor_notices = false;  // if it is broken, the acceptor learns it when it sends
  std::string acceptor;
};

// A node's own number of a connection: even where it dialled, odd where it accepted.
constexpr Connection dialler_of(std::uint64_t number) { return 2 * number; }
constexpr Connection acceptor_of(std::uint64_t number) { return 2 * number + 1; }

}  // namespace

class SimulatedNetwork::World {
 public:
  World(std::uint64_t seed_number, SimulationOptions simulation)
      : seed(seed_number), options(simulation), random(seed_number) {}

  struct Event {
    Time when;
    std::uint64_t number;  // orders events of equal time, the lowest first
    std::function<void()> what;
    bool operator<(const Event& o) const {
      return std::tie(o.when, o.number) < std::tie(when, number);
    }
  };
  struct Stalled {
    std::uint64_t connection;
    bool forward;
    enum class Kind { frame, bulk, direct } kind = Kind::frame;
  };

  // most bytes in a piece of a bulk channel's wire frame
  static constexpr std::size_t kPiece = 64 << 10;
  struct Slow {
    Time delay;
    double ns_per_byte;
  };

  void at(Time when, std::function<void()> what) {
    events.push({std::max(when, now), ++event_number, std::move(what)});
  }
  Time delay() {
    return Time(std::uniform_int_distribution<Time::rep>(options.least_delay.count(),
                                                         options.most_delay.count())(random));
  }
  bool chance(double p) { return std::bernoulli_distribution(p)(random); }
  bool step() {
    if (events.empty()) return false;
    Event event = events.top();
    events.pop();
    now = event.when;
    ++done;
    event.what();
    return true;
  }
  bool is_cut(const std::string& a, const std::string& b) const {
    return apart.contains(a) != apart.contains(b) || cut_links.contains(std::minmax(a, b));
  }
  // Returns the time that a slow link adds for so many bytes.
  Time added(const SimulatedConnection& l, std::size_t bytes) const {
    if (slow_links.empty()) return {};
    const std::string to =
        l.acceptor.empty() ? l.address.substr(std::string_view("sim://").size()) : l.acceptor;
    auto slow = slow_links.find(std::minmax(l.from, to));
    return slow == slow_links.end()
               ? Time()
               : slow->second.delay + Time(static_cast<Time::rep>(slow->second.ns_per_byte *
                                                                  static_cast<double>(bytes)));
  }

  SimulatedConnection* connection(std::uint64_t number) {
    const auto found = connections.find(number);
    return found == connections.end() ? nullptr : &found->second;
  }
  void send(std::uint64_t number, bool forward, const Ref<OutFrame>& frame) {
    (forward ? connections.at(number).forward : connections.at(number).back)
        .frames.push_back(frame);
    schedule(number, forward);
  }
  void schedule(std::uint64_t number, bool forward) {
    Direction& d = forward ? connections.at(number).forward : connections.at(number).back;
    d.last = std::max(d.last, now + delay() +
                                  added(connections.at(number),
                                        d.frames.empty() ? 0
                                                         : d.frames.back()->header.size() +
                                                               d.frames.back()->bulk_bytes));
    at(d.last, [this, number, forward] { arrive(number, forward); });
  }
  void arrive(std::uint64_t number, bool forward);
  void send_bulk(std::uint64_t number, bool forward, const Ref<OutFrame>& frame) {
    BulkDirection& d =
        forward ? connections.at(number).bulk_forward : connections.at(number).bulk_back;
    d.frames.push_back(frame);
    schedule_bulk(number, forward, d);
  }
  void schedule_bulk(std::uint64_t number, bool forward, BulkDirection& d) {
    if (d.frames.empty() || std::exchange(d.is_under_way, true)) return;
    at(now + delay() +
           added(connections.at(number), std::min(kPiece, d.frames.front()->bulk_bytes)),
       [this, number, forward] { arrive_bulk(number, forward); });
  }
  void arrive_bulk(std::uint64_t number, bool forward);
  bool send_direct(std::uint64_t number, bool forward, std::uint64_t after,
                   std::span<const std::byte> record, bool may_wait) {
    SimulatedConnection* const l = connection(number);
    if (!l || !(forward ? l->direct_forward : l->direct_back)->write(after, record, may_wait))
      return false;
    ++direct_records;
    at(now + delay(), [this, number, forward] { arrive_direct(number, forward); });
    return true;
  }
  void arrive_direct(std::uint64_t number, bool forward);
  void open_bulk(std::uint64_t number);
  void break_connection(std::uint64_t number);
  void break_bulk(std::uint64_t number);
  void heal();

  const std::uint64_t seed;
  const SimulationOptions options;
  std::mt19937_64 random;
  Time now = std::chrono::seconds(1);
  std::priority_queue<Event> events;
  std::uint64_t event_number = 0, done = 0, lost = 0, stalled_frames = 0, bulk_waits = 0,
                bulk_breaks = 0, direct_records = 0;
  std::map<std::uint64_t, SimulatedConnection> connections;
  std::uint64_t next_connection = 1;
  std::map<std::string, SimulatedTransport*> listening;  // by address
  std::vector<SimulatedTransport*> nodes;
  std::set<std::string> apart;
  std::set<std::pair<std::string, std::string>> cut_links;  // the lesser name first
  std::map<std::pair<std::string, std::string>, Slow> slow_links;
  std::deque<Stalled> stalled;
};

namespace {

class SimulatedTransport final : public Transport, public FrameLink {
 public:
  SimulatedTransport(std::shared_ptr<SimulatedNetwork::World> world, PeerInfo info)
      : world_(std::move(world)), self(std::move(info)) {
    if (self.engine.empty()) self.engine = engine_version();
  }
  ~SimulatedTransport() override {
    stop();
    *is_here_ = false;
  }

  void start(TransportListener& listener) override {
    if (router) throw Error(Code::failed_precondition, "the transport was started before");
    if (!self.address.empty()) {
      if (!self.address.starts_with("sim://"))
        throw Error(
            Code::invalid_argument,
            fmt::format("an address in the simulation is sim://NAME, not {}", self.address));
      if (!world_->listening.emplace(self.address, this).second)
        throw Error(Code::unavailable, fmt::format("the address {} is taken", self.address));
    }
    RouterOptions options = world_->options.router;
    options.session_seed = world_->seed;
    router = std::make_unique<Router>(self, options, *this, listener);
    world_->nodes.push_back(this);
    reschedule();
  }

  void stop() override {
    if (!router) return;
    serve_until(next_request_);
    router->leave();
    reschedule();
    while (router && !router->is_idle() && world_->step()) {}
    vanish();
  }

  std::string address() const override { return self.address; }
  void connect(const std::string& address) override {
    request(0, false, [address](Router& r) { r.connect(address); });
  }
  void send(Peer peer, Lane lane, Message message) override {
    check_sendable(message);
    if (const auto to = data_messages_.find(peer); to != data_messages_.end() && lane == Lane::data)
      ++to->second;
    auto shared = std::make_shared<Message>(std::move(message));
    request(static_cast<std::size_t>(lane), true,
            [=](Router& r) { r.send(peer, lane, std::move(*shared)); });
  }
  bool send_direct(Peer peer, std::span<const std::byte> record, bool may_wait) override {
    const auto to = data_messages_.find(peer);
    if (!router || to == data_messages_.end()) return false;
    const Connection connection = router->connection_of(peer);
    if (!world_->send_direct(connection / 2, connection % 2 == 0, to->second, record, may_wait))
      return false;
    ++direct_records_;
    direct_bytes_[peer] += record.size();
    return true;
  }
  /// Flushes every other time; else sent messages wait as before. Requests other than messages
  /// always wait, because the listener may be called for them.
  void flush(Peer peer) override {
    if (!router || next_request_ % 2 == 0) return;
    for (std::size_t lane = 0; lane < wire::kLanes; ++lane)
      while (!requests_[lane].empty() && requests_[lane].front().is_message) serve(lane);
    router->flush(peer);
  }
  void disconnect(Peer peer, const Status& why) override {
    if (!router) return;
    // Behind everything that was asked for before.
    world_->at(world_->now, here([this, peer, why, before = next_request_] {
                 serve_until(before);
                 router->disconnect(peer, why);
                 reschedule();
               }));
  }
  TransportCounters counters() const override {
    TransportCounters all = router ? router->counters() : last_;
    all.messages_out += direct_records_;
    for (const auto& [peer, bytes] : direct_bytes_) all.bytes_out += bytes;
    return all;
  }
  std::vector<PeerCounters> peers() const override {
    std::vector<PeerCounters> all = router ? router->peers() : std::vector<PeerCounters>();
    for (PeerCounters& p : all)
      if (const auto direct = direct_bytes_.find(p.peer); direct != direct_bytes_.end())
        p.bytes_out += direct->second;
    return all;
  }

  // ---- FrameLink

  Connection dial(const std::string& address) override {
    const std::uint64_t number = world_->next_connection++;
    SimulatedConnection& l = world_->connections[number];
    l.from = self.name;
    l.address = address;
    l.back.to = this;
    l.acceptor_notices = world_->chance(0.5);
    return dialler_of(number);
  }
  bool send(Connection connection, const Ref<OutFrame>& frame) override {
    const bool forward = connection % 2 == 0;
    const SimulatedConnection* l = world_->connection(connection / 2);
    if (!l) return false;
    if (l->is_broken) {
      ++world_->lost;
      return forward || !l->acceptor_notices;
    }
    world_->send(connection / 2, forward, frame);
    return true;
  }
  void close(Connection connection) override {
    // Wire frames that were sent before still arrive; answers do not.
    SimulatedConnection* l = world_->connection(connection / 2);
    if (!l) return;
    (connection % 2 == 0 ? l->back : l->forward).to = nullptr;
    if (!l->forward.to && !l->back.to) world_->connections.erase(connection / 2);
  }
  Time now() const override { return world_->now; }

  wire::Bulk ask_for_bulk(Connection) override {
    wire::Bulk ask;
    ask.kinds = world_->chance(world_->options.bulk);
    return ask;
  }
  wire::Bulk answer_bulk(Connection, const wire::Bulk& ask) override { return ask; }
  void open_bulk(Connection connection, const wire::Bulk& answer) override {
    // One in ten leads nowhere, as behind a firewall.
    if (answer.kinds != 0 && world_->chance(0.9))
      world_->at(world_->now + world_->delay(),
                 [world = world_.get(), number = connection / 2] { world->open_bulk(number); });
  }
  bool send_bulk(Connection connection, const Ref<OutFrame>& frame) override {
    const SimulatedConnection* l = world_->connection(connection / 2);
    if (!l) return false;
    if (l->is_broken) return true;  // the break is about to be reported
    world_->send_bulk(connection / 2, connection % 2 == 0, frame);
    return true;
  }

  void session_opened(Peer peer) override { data_messages_.emplace(peer, 0); }
  void session_over(Peer peer) override { data_messages_.erase(peer); }

  // ---- called by the world

  void bulk_opened(Connection connection, std::shared_ptr<DirectSource> direct) {
    router->bulk_opened(connection, world_->options.router.least_bulk, std::move(direct));
    reschedule();
  }
  void take_direct(Connection connection) {
    router->take_direct(connection);
    reschedule();
  }
  void bulk_broken(Connection connection) {
    router->bulk_broken(connection);
    reschedule();
  }
  /// Moves up to `most` bytes of the first wire frame; false if it has to wait for its turn.
  bool move_bulk(Connection connection, BulkDirection& d, std::size_t most) {
    const Ref<OutFrame> frame = d.frames.front();
    auto turn = Router::BulkTurn::open;
    if (!d.is_begun) turn = router->bulk_frame(connection, frame->header, frame->bulk_bytes);
    if (turn == Router::BulkTurn::later) return false;
    // The router's call may have ended the connection, and the direction with it.
    if (turn == Router::BulkTurn::broken || !router->knows(connection)) return reschedule(), true;
    d.is_begun = turn == Router::BulkTurn::open;
    while (d.is_begun && most > 0) {
      const std::span<std::byte> room = router->bulk_room(connection, most);
      if (room.empty()) break;
      std::memcpy(room.data(), static_cast<const std::byte*>(frame->bulk) + d.arrived, room.size());
      d.arrived += room.size();
      most -= room.size();
      const bool is_last = d.arrived == frame->bulk_bytes;
      if (is_last) d.is_begun = false;
      router->bulk_filled(connection, room.size());
      if (!router->knows(connection)) return reschedule(), true;
    }
    if (!d.is_begun) {
      d.frames.pop_front();
      d.arrived = 0;
    }
    reschedule();
    return true;
  }

  void frame(Connection connection, const OutFrame& f) {
    router->frame(connection, f.header, {static_cast<const std::byte*>(f.bulk), f.bulk_bytes});
    reschedule();
  }
  void broken(Connection connection, const Status& why) {
    router->broken(connection, why);
    reschedule();
  }
  /// Takes part in nothing any more.
  void vanish() {
    if (!router) return;
    last_ = router->counters();
    if (!self.address.empty()) world_->listening.erase(self.address);
    std::erase(world_->nodes, this);
    for (auto& [number, l] : world_->connections)
      for (Direction* d : {&l.forward, &l.back})
        if (d->to == this) d->to = nullptr;
    for (auto& lane : requests_) lane.clear();
    router.reset();
  }
  /// Does nothing once this transport is gone.
  std::function<void()> here(std::function<void()> what) {
    return [this, is_here = is_here_, what = std::move(what)] {
      if (*is_here && router) what();
    };
  }

 private:
  struct Request {
    std::uint64_t number;
    bool is_message;
    std::function<void(Router&)> what;
  };

  void request(std::size_t lane, bool is_message, std::function<void(Router&)> what) {
    if (!router) return;
    requests_[lane].push_back({next_request_++, is_message, std::move(what)});
    taken_up_[lane] = std::max(taken_up_[lane], world_->now + world_->delay() / 4);
    world_->at(taken_up_[lane], here([this, lane] {
                 if (requests_[lane].empty()) return;  // served before its time
                 serve(lane);
                 reschedule();
               }));
  }
  void serve(std::size_t lane) {
    const Request next = std::move(requests_[lane].front());
    requests_[lane].pop_front();
    next.what(*router);
  }
  void serve_until(std::uint64_t number) {
    for (std::size_t lane = 0; lane < wire::kLanes; ++lane)
      while (!requests_[lane].empty() && requests_[lane].front().number < number) serve(lane);
  }
  /// Sends what there is, and sees to it that the router's next time-out is an event.
  void reschedule() {
    router->flush();
    const Time due = router->due();
    if (due == Time::max() || (tick_ > world_->now && tick_ <= due)) return;
    tick_ = std::max(due, world_->now + Time(1));
    world_->at(tick_, here([this] {
                 if (world_->now < router->due()) return reschedule();
                 router->tick();
                 reschedule();
               }));
  }

  const std::shared_ptr<SimulatedNetwork::World> world_;

 public:
  PeerInfo self;
  std::unique_ptr<Router> router;  // null: not started, stopped or killed

 private:
  std::deque<Request> requests_[wire::kLanes];
  Time taken_up_[wire::kLanes] = {};
  std::uint64_t next_request_ = 0;
  std::uint64_t direct_records_ = 0;  // sent
  std::map<Peer, std::uint64_t> direct_bytes_;
  // sent so far to those that there is a session with
  std::map<Peer, std::uint64_t> data_messages_;
  Time tick_{};
  TransportCounters last_;
  const std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);
};

}  // namespace

void SimulatedNetwork::World::arrive(std::uint64_t number, bool forward) {
  const auto at_number = connections.find(number);
  if (at_number == connections.end()) return;  // closed by both
  SimulatedConnection& l = at_number->second;
  Direction& d = forward ? l.forward : l.back;
  if (d.frames.empty()) return;  // lost with the connection
  if (forward && l.acceptor.empty()) {
    const auto found = listening.find(l.address);
    if (found == listening.end()) return break_connection(number);
    if (!is_cut(l.from, found->second->self.name)) {
      l.acceptor = found->second->self.name;
      d.to = found->second;
    }
  }
  if (l.acceptor.empty() || is_cut(l.from, l.acceptor)) {
    ++stalled_frames;
    stalled.push_back({number, forward});
    return;
  }
  const Ref<OutFrame> frame = std::move(d.frames.front());
  d.frames.pop_front();
  if (d.to) d.to->frame(forward ? acceptor_of(number) : dialler_of(number), *frame);
  else ++lost;
}

void SimulatedNetwork::World::open_bulk(std::uint64_t number) {
  SimulatedConnection* l = connection(number);
  if (!l || l->is_broken || l->acceptor.empty() || is_cut(l->from, l->acceptor) || !l->forward.to ||
      !l->back.to)
    return;
  l->has_bulk = l->bulk_forward.is_open = true;
  l->is_shared = chance(options.shared);
  l->forward.to->bulk_opened(acceptor_of(number), l->is_shared ? l->direct_forward : nullptr);
  at(now + delay(), [this, number] {
    SimulatedConnection* opened = connection(number);
    if (!opened || opened->is_broken || !opened->back.to) return;
    opened->bulk_back.is_open = true;
    opened->back.to->bulk_opened(dialler_of(number),
                                 opened->is_shared ? opened->direct_back : nullptr);
  });
}

void SimulatedNetwork::World::arrive_direct(std::uint64_t number, bool forward) {
  SimulatedConnection* const l = connection(number);
  if (!l) return;
  if (is_cut(l->from, l->acceptor)) {
    ++stalled_frames;
    stalled.push_back({number, forward, Stalled::Kind::direct});
    return;
  }
  SimulatedTransport* const to = (forward ? l->forward : l->back).to;
  if (to) to->take_direct(forward ? acceptor_of(number) : dialler_of(number));
}

void SimulatedNetwork::World::arrive_bulk(std::uint64_t number, bool forward) {
  SimulatedConnection* l = connection(number);
  if (!l) return;
  BulkDirection& d = forward ? l->bulk_forward : l->bulk_back;
  d.is_under_way = false;
  if (d.frames.empty()) return;
  if (is_cut(l->from, l->acceptor)) {
    ++stalled_frames;
    stalled.push_back({number, forward, Stalled::Kind::bulk});
    return;
  }
  SimulatedTransport* to = (forward ? l->forward : l->back).to;
  if (!to) {
    lost += std::exchange(d.frames, {}).size();
    return;
  }
  const std::size_t some = std::uniform_int_distribution<std::size_t>(1, kPiece)(random);
  if (d.is_open)
    bulk_waits += !to->move_bulk(forward ? acceptor_of(number) : dialler_of(number), d, some);
  if (connection(number)) schedule_bulk(number, forward, d);
}

void SimulatedNetwork::World::break_bulk(std::uint64_t number) {
  if (!connections.at(number).has_bulk || connections.at(number).is_broken) return;
  ++bulk_breaks;
  break_connection(number);
  // The end of the bulk channel is seen by both.
  at(now + delay(), [this, number] {
    const SimulatedConnection* broken = connection(number);
    if (broken && broken->forward.to) broken->forward.to->bulk_broken(acceptor_of(number));
  });
}

void SimulatedNetwork::World::break_connection(std::uint64_t number) {
  SimulatedConnection& l = connections.at(number);
  if (l.is_broken) return;
  l.is_broken = true;
  for (Direction* d : {&l.forward, &l.back, static_cast<Direction*>(&l.bulk_forward),
                       static_cast<Direction*>(&l.bulk_back)})
    lost += std::exchange(d->frames, {}).size();
  at(now + delay(), [this, number] {
    const SimulatedConnection* broken = connection(number);
    if (broken && broken->back.to)
      broken->back.to->broken(
          dialler_of(number),
          Status(Code::unavailable, fmt::format("no node answers at {}", broken->address)));
  });
}

void SimulatedNetwork::World::heal() {
  apart.clear();
  cut_links.clear();
  std::deque<Stalled> held;
  held.swap(stalled);
  for (const Stalled& s : held) {
    SimulatedConnection* l = connection(s.connection);
    if (!l) continue;
    switch (s.kind) {
      case Stalled::Kind::frame: schedule(s.connection, s.forward); break;
      case Stalled::Kind::bulk:
        schedule_bulk(s.connection, s.forward, s.forward ? l->bulk_forward : l->bulk_back);
        break;
      case Stalled::Kind::direct:
        at(now + delay(),
           [this, number = s.connection, forward = s.forward] { arrive_direct(number, forward); });
        break;
    }
  }
}

SimulatedNetwork::SimulatedNetwork(std::uint64_t seed, SimulationOptions options)
    : world_(std::make_shared<World>(seed, options)) {}
// Events hold the world's transports by address: they end with the network, not with the last
// transport.
SimulatedNetwork::~SimulatedNetwork() { world_->events = {}; }

std::unique_ptr<Transport> SimulatedNetwork::make_transport(PeerInfo self) {
  return std::make_unique<SimulatedTransport>(world_, std::move(self));
}

bool SimulatedNetwork::step() { return world_->step(); }
Time SimulatedNetwork::now() const { return world_->now; }
void SimulatedNetwork::at(Time when, std::function<void()> what) {
  world_->at(when, std::move(what));
}

void SimulatedNetwork::partition(std::set<std::string> names) {
  world_->heal();
  world_->apart = std::move(names);
}
void SimulatedNetwork::cut(const std::string& a, const std::string& b) {
  world_->cut_links.insert(std::minmax(a, b));
}
void SimulatedNetwork::heal() { world_->heal(); }
void SimulatedNetwork::slow_down(const std::string& a, const std::string& b, Time delay,
                                 double ns_per_byte) {
  world_->slow_links.insert_or_assign(std::minmax(a, b), World::Slow{delay, ns_per_byte});
}

void SimulatedNetwork::break_connections(const std::string& name) {
  for (auto& [number, l] : world_->connections)
    if (l.from == name || l.acceptor == name) world_->break_connection(number);
}

void SimulatedNetwork::break_bulk_channels(const std::string& name) {
  for (auto& [number, l] : world_->connections)
    if (l.from == name || l.acceptor == name) world_->break_bulk(number);
}

void SimulatedNetwork::kill(const std::string& name) {
  break_connections(name);
  const std::vector<SimulatedTransport*> nodes = world_->nodes;
  for (SimulatedTransport* node : nodes)
    if (node->self.name == name) node->vanish();
}

std::uint64_t SimulatedNetwork::events() const { return world_->done; }
std::uint64_t SimulatedNetwork::frames_lost() const { return world_->lost; }
std::uint64_t SimulatedNetwork::bulk_waits() const { return world_->bulk_waits; }
std::uint64_t SimulatedNetwork::bulk_breaks() const { return world_->bulk_breaks; }
std::uint64_t SimulatedNetwork::direct_records() const { return world_->direct_records; }
std::uint64_t SimulatedNetwork::frames_stalled() const { return world_->stalled_frames; }

}  // namespace troupe
