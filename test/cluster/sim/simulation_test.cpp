// Not under tsan: one thread steps the simulation.
// Thousands of schedules of the simulated network: connections that break, partitions, nodes that
// die and start anew. Whatever happens, each message arrives at most once, in order on its
// priority, between connected() and lost(); and all of them arrive where nothing worse happened
// than that connections broke.
#include <troupe/cluster/transport/sim/simulated.hpp>
#include <troupe/test/support/one_thread.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <map>
#include <random>

#include <fmt/format.h>

BOOST_AUTO_TEST_SUITE(simulation_test, TROUPE_ONE_THREAD)

namespace {

using namespace troupe;
using namespace std::chrono_literals;

struct Said {
  std::uint64_t session, number;  // unique for a connection as its sender knows it; of its priority
};

Message message_of(const Said& said, std::size_t bytes) {
  Message m;
  m.head.resize(sizeof said);
  std::memcpy(m.head.data(), &said, sizeof said);
  Tensor t = Tensor::empty(DType::u8, Shape{static_cast<std::int64_t>(bytes)});
  std::memset(t.raw_mutable(), static_cast<int>(said.number % 251), bytes);
  m.tensors.push_back(std::move(t));
  return m;
}

/// A node that sends to all peers that it is connected with, and checks the messages it receives.
class Talker final : public TransportListener {
 public:
  struct Conversation {
    std::string with;
    std::uint64_t session = 0;  // ours, as we tell the other
    std::uint64_t sent[2] = {}, heard[2] = {};
    std::uint64_t their_session = 0;  // 0: not known yet
    bool is_over = false;
  };

  Talker(SimulatedNetwork& network, std::string name, std::uint64_t incarnation,
         std::vector<std::string>& log)
      : name_(std::move(name)), log_(log),
        transport(network.make_transport({.name = name_,
                                          .incarnation = incarnation,
                                          .address = "sim://" + name_,
                                          .engine = ""})),
        network_(network), next_session_(incarnation * 1'000'000 + 1) {
    transport->start(*this);
  }

  void connected(Peer peer, const PeerInfo& info) override {
    for (const auto& [number, talk] : talks)
      if (talk.with == info.name && !talk.is_over) fail("connected twice to " + info.name);
    if (talks.contains(peer)) fail("a peer's number is used again");
    talks[peer] = {.with = info.name, .session = next_session_++};
    log_.push_back(fmt::format("{} {} connected {}", network_.now().count(), name_, info.name));
  }
  void refused(const std::string& address, const Status&) override {
    log_.push_back(fmt::format("{} {} refused {}", network_.now().count(), name_, address));
  }
  void received(Peer peer, Lane lane, Message m) override {
    const Said said = hear(peer, lane, m.head);
    if (m.tensors.size() != 1) return fail("no tensor");
    const Tensor& t = m.tensors[0];
    for (const std::int64_t i : {std::int64_t{0}, t.elements() - 1})
      if (t.elements() > 0 && t.data<std::uint8_t>()[i] != said.number % 251)
        return fail("another tensor");
    if (answers && said.number % 5 == 0) {  // an answer that goes at once, or with what comes later
      say(peer, lane, said.number % 3 * 700);
      transport->flush(peer);
    }
  }
  /// In its order among the messages of data priority.
  void received_direct(Peer peer, std::span<const std::byte> record) override {
    const Said said = hear(peer, Lane::data, record);
    ++direct;
    if (answers && said.number % 5 == 0) say(peer, Lane::data, 0);
  }
  Said hear(Peer peer, Lane lane, std::span<const std::byte> head) {
    Said said{};
    const auto found = talks.find(peer);
    if (found == talks.end() || found->second.is_over) return fail("a message of nobody"), said;
    Conversation& talk = found->second;
    if (head.size() != sizeof said) return fail("a head of another size"), said;
    std::memcpy(&said, head.data(), sizeof said);
    if (talk.their_session == 0) talk.their_session = said.session;
    if (said.session != talk.their_session) return fail("a message of another session"), said;
    std::uint64_t& heard = talk.heard[static_cast<int>(lane)];
    if (said.number != heard)
      return fail(fmt::format("message {} instead of {}", said.number, heard)), said;
    ++heard;
    log_.push_back(
        fmt::format("{} {} heard {} {}", network_.now().count(), name_, said.session, said.number));
    return said;
  }
  void lost(Peer peer, const Status& why) override {
    const auto found = talks.find(peer);
    if (found == talks.end() || found->second.is_over) return fail("lost what was not connected");
    found->second.is_over = true;
    log_.push_back(fmt::format("{} {} lost {}: {}", network_.now().count(), name_,
                               found->second.with, why.message()));
  }

  void say(Peer peer, Lane lane, std::size_t bytes) {
    Conversation& talk = talks.at(peer);
    // Two of three that may go directly try to.
    if (lane == Lane::data && talk.sent[static_cast<int>(lane)] % 3 != 0) {
      const Said said{talk.session, talk.sent[static_cast<int>(lane)]};
      if (transport->send_direct(peer, std::as_bytes(std::span(&said, 1)))) {
        ++talk.sent[static_cast<int>(lane)];
        return;
      }
    }
    transport->send(peer, lane,
                    message_of({talk.session, talk.sent[static_cast<int>(lane)]++}, bytes));
  }
  Conversation* with(const std::string& name) {
    for (auto& [peer, talk] : talks)
      if (talk.with == name && !talk.is_over) return &talk;
    return nullptr;
  }

  std::map<Peer, Conversation> talks;
  std::string wrong;         // the first thing that should not have happened
  std::uint64_t direct = 0;  // heard
  bool answers = true;

 private:
  void fail(const std::string& what) {
    if (wrong.empty()) wrong = fmt::format("{} at {}: {}", name_, network_.now().count(), what);
  }

  std::string name_;
  std::vector<std::string>& log_;

 public:
  std::unique_ptr<Transport> transport;

 private:
  SimulatedNetwork& network_;
  std::uint64_t next_session_;
};

}  // namespace

// The bytes that wait for a peer are bounded: a peer that sends requests but does not read its
// answers is lost.
BOOST_AUTO_TEST_CASE(a_peer_that_reads_too_little_is_lost) {
  SimulationOptions options;
  options.router.window = 4 << 10;
  options.router.most_waiting = 100;
  SimulatedNetwork network(1, options);
  std::vector<std::string> log;
  Talker a(network, "a", 1, log), b(network, "b", 1, log);
  b.answers = false;
  const auto until = [&](auto done) {
    for (const Time end = network.now() + 5s; network.now() < end && !done();)
      if (!network.step()) break;
    return done();
  };
  a.transport->connect("sim://b");
  BOOST_REQUIRE(until([&] { return a.with("b") && b.with("a"); }));
  const Peer peer = a.talks.begin()->first;
  for (int i = 0; i < 90; ++i) a.say(peer, Lane::data, 100);
  BOOST_REQUIRE(until([&] { return b.with("a")->heard[static_cast<int>(Lane::data)] == 90; }));
  BOOST_TEST(!a.talks.at(peer).is_over);
  network.slow_down("a", "b", 1s, 0);
  for (int i = 0; i < 2000; ++i) a.say(peer, Lane::data, 100);
  BOOST_TEST(until([&] { return a.talks.at(peer).is_over; }));
  BOOST_TEST(log.back().find("b takes too little of what it is sent: ") != std::string::npos,
             log.back());
  BOOST_TEST(a.wrong.empty(), a.wrong);
}

namespace {

struct Totals {
  std::uint64_t schedules = 0, heard = 0, reconnects = 0, lost_frames = 0, stalled_frames = 0,
                losses = 0, waited = 0, dropped = 0;
  std::uint64_t bulk_bytes = 0, bulk_waits = 0, bulk_breaks = 0, direct = 0;
};

/// How much goes wrong.
enum class Trouble { breaks, all };

/// One schedule; what is wrong with it, or nothing.
std::string run(std::uint64_t seed, Trouble trouble, Totals& totals,
                std::vector<std::string>& log) {
  SimulationOptions options;
  options.router.window = 128 << 10;  // small, so that it binds
  options.router.least_bulk = 16 << 10;
  SimulatedNetwork network(seed, options);
  std::mt19937_64 random(seed * 3 + 1);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  const std::size_t count = 2 + below(3);
  std::vector<std::string> names;
  std::vector<std::unique_ptr<Talker>> talkers;
  for (std::size_t i = 0; i < count; ++i) {
    names.push_back(fmt::format("n{}", i));
    talkers.push_back(std::make_unique<Talker>(network, names[i], 1, log));
  }
  const auto connect_all = [&] {
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t j = 0; j < count; ++j)
        if (i != j && (below(3) != 0 || i < j)) talkers[i]->transport->connect("sim://" + names[j]);
  };
  const auto run_for = [&](Time span) {
    bool rang = false;
    network.at(network.now() + span, [&] { rang = true; });
    while (!rang && network.step()) {}
  };
  const auto wrong = [&]() -> std::string {
    for (const auto& t : talkers)
      if (!t->wrong.empty()) return t->wrong;
    return {};
  };

  connect_all();
  std::uint64_t incarnation = 1;
  const std::size_t acts = 30 + below(40);
  for (std::size_t act = 0; act < acts && wrong().empty(); ++act) {
    const std::size_t who = below(count);
    Talker& talker = *talkers[who];
    switch (below(trouble == Trouble::all ? 17 : 12)) {
      case 8:
      case 9: network.break_connections(names[who]); break;
      case 10: run_for(Time(below(800) * 1'000'000)); break;
      case 11: network.break_bulk_channels(names[who]); break;
      case 12: network.partition({names[who]}); break;
      case 13: run_for(Time(below(15) * 1'000'000'000)); break;
      case 14: network.heal(); break;
      case 15:
        if (!talker.talks.empty())
          talker.transport->disconnect(std::prev(talker.talks.end())->first,
                                       Status(Code::aborted, "enough"));
        if (below(2)) connect_all();
        break;
      case 16: {
        network.kill(names[who]);
        for (const auto& [peer, talk] : talker.talks) totals.heard += talk.heard[0] + talk.heard[1];
        if (below(2)) run_for(Time(below(8) * 1'000'000'000));
        talkers[who] = nullptr;
        talkers[who] = std::make_unique<Talker>(network, names[who], ++incarnation, log);
        connect_all();
        break;
      }
      default:
        for (const auto& [peer, talk] : talker.talks)
          for (std::uint64_t n = below(20); n > 0; --n)
            talker.say(peer, below(3) ? Lane::data : Lane::control,
                       below(10) ? below(3000) : below(300'000));
        totals.waited += talker.transport->counters().unsent_bytes > 0;
    }
    run_for(Time(below(8) * 1'000'000));
  }
  // The network heals: all nodes are connected again, and messages in flight arrive.
  network.heal();
  run_for(20s);
  for (int i = 0; i < 2; ++i) {
    connect_all();
    run_for(8s);
  }
  if (!wrong().empty()) return wrong();

  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = 0; j < count; ++j) {
      if (i == j) continue;
      Talker::Conversation *mine = talkers[i]->with(names[j]), *theirs = talkers[j]->with(names[i]);
      if (!mine || !theirs)
        return fmt::format("{} and {} are not connected in the end", names[i], names[j]);
      for (const int lane : {0, 1}) {
        if (mine->sent[lane] != theirs->heard[lane])
          return fmt::format("{} said {} on lane {}, {} heard {}", names[i], mine->sent[lane], lane,
                             names[j], theirs->heard[lane]);
      }
    }
  for (const auto& t : talkers) {
    for (const auto& [peer, talk] : t->talks) {
      totals.losses += talk.is_over;
      totals.heard += talk.heard[0] + talk.heard[1];
    }
    const TransportCounters c = t->transport->counters();
    totals.reconnects += c.reconnects;
    totals.dropped += c.dropped;
    totals.bulk_bytes += c.bulk_bytes_in;
    totals.direct += t->direct;
    if (c.unsent_bytes != 0 || c.unacknowledged_bytes != 0)
      return "something is unsent or unacknowledged in the end";
  }
  ++totals.schedules;
  totals.lost_frames += network.frames_lost();
  totals.stalled_frames += network.frames_stalled();
  totals.bulk_waits += network.bulk_waits();
  totals.bulk_breaks += network.bulk_breaks();
  return {};
}

// A tenth under sanitizers, as of the random programs.
std::uint64_t schedules() {
  const char* wanted = std::getenv("TROUPE_SCHEDULES");
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr std::uint64_t kUsual = 100;
#else
  constexpr std::uint64_t kUsual = 1000;
#endif
  return wanted ? std::strtoull(wanted, nullptr, 10) : kUsual;
}

void run_many(Trouble trouble, Totals& totals) {
  for (std::uint64_t seed = 1; seed <= schedules(); ++seed) {
    std::vector<std::string> log;
    const std::string wrong = run(seed, trouble, totals, log);
    BOOST_REQUIRE_MESSAGE(wrong.empty(), "seed " << seed << ": " << wrong);
  }
  BOOST_TEST_MESSAGE(
      fmt::format("{} schedules: {} messages, {} reconnects, {} frames lost, {} stalled, {} peers "
                  "lost, {} times waiting; "
                  "by bulk channels {} bytes, {} waits for their turn, {} broken; {} went directly",
                  totals.schedules, totals.heard, totals.reconnects, totals.lost_frames,
                  totals.stalled_frames, totals.losses, totals.waited, totals.bulk_bytes,
                  totals.bulk_waits, totals.bulk_breaks, totals.direct));
  BOOST_TEST(totals.heard > 0);
  BOOST_TEST(totals.reconnects > 0);
  BOOST_TEST(totals.lost_frames > 0);
  BOOST_TEST(totals.waited > 0);
  BOOST_TEST(totals.dropped == 0);
  BOOST_TEST(totals.bulk_bytes > 0);
  BOOST_TEST(totals.bulk_waits > 0);
  BOOST_TEST(totals.bulk_breaks > 0);
  BOOST_TEST(totals.direct > 0);
}

BOOST_AUTO_TEST_CASE(broken_connections_lose_nothing) {
  Totals totals;
  run_many(Trouble::breaks, totals);
  BOOST_TEST(totals.losses == 0);
}

BOOST_AUTO_TEST_CASE(partitions_deaths_and_farewells_leave_every_session_whole) {
  Totals totals;
  run_many(Trouble::all, totals);
  BOOST_TEST(totals.stalled_frames > 0);
  BOOST_TEST(totals.losses > 0);
}

BOOST_AUTO_TEST_CASE(simulation_repeats_the_schedule_of_a_seed) {
  for (const std::uint64_t seed : {3, 4, 5}) {
    Totals totals;
    std::vector<std::string> first, second, other;
    run(seed, Trouble::all, totals, first);
    run(seed, Trouble::all, totals, second);
    run(seed + 100, Trouble::all, totals, other);
    BOOST_TEST(!first.empty());
    BOOST_TEST((first == second));
    BOOST_TEST((first != other));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
