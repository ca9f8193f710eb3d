// Not under tsan: one thread steps the simulation.
// Membership in a simulated network on a virtual clock: messages are delayed, lost and overtake
// each other, nodes are killed, delayed, cut off and started again. `TROUPE_SEED=n` repeats one
// schedule.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <memory>
#include <queue>
#include <set>

#include <troupe/cluster/membership/membership.hpp>
#include <troupe/devices/base/error.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/share.hpp>

using namespace troupe;
using troupe::test::seeds;
using troupe::test::todays_seeds;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(membership_test, TROUPE_ONE_THREAD)

namespace {

using Time = Membership::Time;

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed) {}

  struct Node final : MembershipHost {
    World& world;
    std::string name;
    std::unique_ptr<Membership> membership;
    Time held_until{};  // until then it neither hears nor ticks; what comes waits
    bool is_alive = true;
    int superseded_by = 0;
    std::map<std::string, MemberState> told;        // the last state that `changed` reported
    std::vector<std::string> deaths;                // the members that it ever considered dead
    std::set<std::string> suspected;                // the members that it ever suspected
    std::map<std::string, std::uint64_t> sessions;  // by name: with which life

    Node(World& w, std::string n) : world(w), name(std::move(n)) {}
    void send(const Member& to, MembershipMessage message) override {
      world.send(*this, to, std::move(message));
    }
    void changed(const Member& m) override {
      told[m.name] = m.state;
      if (m.state == MemberState::dead) deaths.push_back(m.name);
      if (m.state == MemberState::suspect) suspected.insert(m.name);
      if (!m.is_up()) sessions.erase(m.name);
    }
    void superseded(const Member&) override { ++superseded_by; }
    bool has_session(const Member& m) const override {
      const auto it = sessions.find(m.name);
      return it != sessions.end() && it->second == m.incarnation;
    }
  };

  Node& start(const std::string& name, const std::string& contact = {},
              const MembershipOptions& options = {}) {
    auto node = std::make_unique<Node>(*this, name);
    Member self{.name = name, .incarnation = ++starts_, .address = "sim://" + name};
    node->membership = std::make_unique<Membership>(self, *node, options, random_());
    Node& n = *node;
    if (nodes_.contains(name)) old_.push_back(std::move(nodes_[name]));
    nodes_[name] = std::move(node);
    if (!contact.empty()) n.membership->join(now_, nodes_[contact]->membership->self());
    wake(n, now_);
    return n;
  }
  Node& operator[](const std::string& name) { return *nodes_.at(name); }
  void kill(const std::string& name) { nodes_.at(name)->is_alive = false; }
  void hold(const std::string& name, Time by) { nodes_.at(name)->held_until = now_ + by; }
  void cut(std::function<bool(const std::string&, const std::string&)> is_cut) {
    is_cut_ = std::move(is_cut);
  }
  void lose(int percent) { lost_ = percent; }
  /// Sees each message, also those that a cut or a loss swallows.
  std::function<void(const Node& from, const Member& to, const MembershipMessage&)> watch;
  Time now() const { return now_; }
  std::uint64_t messages() const { return messages_; }

  void run_for(Time span) {
    run_until(now_ + span, [] { return false; });
  }
  /// Until `done`, looked at after every event; false if that did not come within the time.
  bool run_until(Time end, const std::function<bool()>& done) {
    while (!events_.empty() && events_.top().at <= end) {
      Event e = events_.top();
      events_.pop();
      now_ = std::max(now_, e.at);
      e.act();
      if (done()) return true;
    }
    now_ = end;
    return done();
  }

  std::vector<Node*> live() {
    std::vector<Node*> all;
    for (auto& [name, node] : nodes_)
      if (node->is_alive) all.push_back(node.get());
    return all;
  }
  /// Does every live node hold exactly the live ones for alive?
  bool agrees() {
    const std::vector<Node*> all = live();
    for (Node* n : all) {
      if (n->membership->count_up() != all.size()) return false;
      for (Node* m : all)
        if (const Member* known = n->membership->find(m->name);
            !known || known->state != MemberState::alive ||
            known->incarnation != m->membership->self().incarnation)
          return false;
    }
    return true;
  }

 private:
  struct Event {
    Time at;
    std::uint64_t number;
    std::function<void()> act;
    bool operator<(const Event& o) const {
      return std::pair(at, number) > std::pair(o.at, o.number);
    }
  };

  void at(Time when, std::function<void()> act) { events_.push({when, next_++, std::move(act)}); }
  void wake(Node& n, Time when) {
    at(when, [this, &n] {
      if (!n.is_alive) return;
      if (now_ < n.held_until) return wake(n, n.held_until);
      const Time next = n.membership->tick(now_);
      if (next != Time::max()) wake(n, std::max(next, now_ + 1ms));
    });
  }
  void send(Node& from, const Member& to, MembershipMessage message) {
    ++messages_;
    if (watch) watch(from, to, message);
    if (static_cast<int>(random_() % 100) < lost_) return;
    if (is_cut_ && is_cut_(from.name, to.name)) return;
    deliver(now_ + Time(static_cast<std::int64_t>(random_() % 20'000'000)), from.membership->self(),
            to.name, std::move(message));
  }
  void deliver(Time when, const Member& from, const std::string& to, MembershipMessage message) {
    at(when, [this, from, to, message = std::move(message)] {
      Node& n = *nodes_.at(to);
      if (!n.is_alive) return;
      if (now_ < n.held_until) return deliver(n.held_until, from, to, message);
      n.sessions[from.name] = from.incarnation;
      n.membership->receive(now_, from, message);
    });
  }

  std::mt19937_64 random_;
  std::map<std::string, std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Node>> old_;
  std::priority_queue<Event> events_;
  std::function<bool(const std::string&, const std::string&)> is_cut_;
  Time now_{};
  std::uint64_t next_ = 0, starts_ = 0, messages_ = 0;
  int lost_ = 0;
};

std::string name_of_node(int i) { return "n" + std::to_string(i); }

/// n0 to n(count-1), joined through n0 and known to each other.
void gather(World& w, int count) {
  w.start("n0");
  for (int i = 1; i < count; ++i) w.start(name_of_node(i), "n0");
  BOOST_REQUIRE(w.run_until(w.now() + 60s, [&] { return w.agrees(); }));
}

}  // namespace

// Whatever is said that there are: so many are known.
BOOST_AUTO_TEST_CASE(membership_ignores_members_above_its_limit) {
  World w(1);
  World::Node& a = w.start("a", {}, {.most_members = 3});
  MembershipMessage news{.kind = MembershipMessage::Kind::news};
  for (int i = 0; i < 10; ++i)
    news.members.push_back({.name = "x" + std::to_string(i), .incarnation = 1, .address = {}});
  a.membership->receive(w.now(), {.name = "b", .incarnation = 1, .address = {}}, news);
  BOOST_TEST(a.membership->members().size() == 4u);
  BOOST_TEST((a.membership->find("b") != nullptr && a.membership->find("x1") != nullptr &&
              a.membership->find("x9") == nullptr));
}

BOOST_AUTO_TEST_CASE(a_joined_node_is_known_to_all) {
  World w(1);
  gather(w, 8);
  for (World::Node* n : w.live()) {
    BOOST_TEST(n->membership->members().size() == 8u);
    BOOST_TEST(n->told.size() == 7u);
    BOOST_TEST(n->membership->find("n3")->address == "sim://n3");
  }
}

BOOST_AUTO_TEST_CASE(a_killed_node_is_dead_for_all_within_the_bound) {
  for (std::uint64_t seed = 1; seed <= 60 / troupe::test::kShare; ++seed) {
    const int count = seed % 3 == 0 ? 2 : 2 + static_cast<int>(seed % 11);
    World w(seed);
    gather(w, count);
    const Time bound = w["n0"].membership->detection_bound(static_cast<std::size_t>(count));
    const Time killed = w.now();
    w.kill("n1");
    BOOST_TEST_CONTEXT("seed " << seed << ", " << count << " nodes") {
      BOOST_TEST(w.run_until(killed + bound, [&] { return w.agrees(); }));
      BOOST_TEST_MESSAGE(count << " nodes agree after " << (w.now() - killed) / 1ms
                               << " ms, at the latest after " << bound / 1ms);
      for (World::Node* n : w.live()) BOOST_TEST((n->told["n1"] == MemberState::dead));
    }
  }
}

// No gossip helps two nodes: it is each one's own pings that tell.
BOOST_AUTO_TEST_CASE(a_suspect_that_answers_is_not_dead) {
  World w(5);
  gather(w, 3);
  w.hold("n1", 1800ms);  // longer than a ping's period, shorter than a suspicion lasts
  bool was_suspect = false;
  w.run_until(w.now() + 20s, [&] {
    was_suspect = was_suspect || w["n0"].told["n1"] == MemberState::suspect;
    return false;
  });
  BOOST_TEST(was_suspect);
  BOOST_TEST(w["n1"].membership->counters().refuted > 0u);
  BOOST_TEST(w["n0"].deaths.empty());
  BOOST_TEST(w.agrees());
}

BOOST_AUTO_TEST_CASE(a_delayed_node_suspects_no_node) {
  World w(6);
  gather(w, 4);
  w.hold("n2", 5min);
  w.run_for(5min + 30s);
  BOOST_TEST(w["n2"].membership->counters().held_up > 0u);
  BOOST_TEST(w["n2"].deaths.empty());
  // it was dead meanwhile, and came back by its own word
  BOOST_TEST((w["n0"].told["n2"] == MemberState::alive));
  BOOST_TEST(w["n0"].deaths.size() == 1u);
  BOOST_TEST(w.agrees());
}

BOOST_AUTO_TEST_CASE(a_leaving_node_has_left_and_is_not_dead) {
  World w(7);
  gather(w, 6);
  w["n4"].membership->leave(w.now());
  w.kill("n4");
  BOOST_TEST(w.run_until(w.now() + 10s, [&] { return w.agrees(); }));
  for (World::Node* n : w.live()) {
    BOOST_TEST((n->told["n4"] == MemberState::left));
    BOOST_TEST(n->deaths.empty());
  }
}

// Its sessions end, for it ends them, or the others leave too.
BOOST_AUTO_TEST_CASE(a_node_that_has_left_suspects_no_node) {
  World w(7);
  gather(w, 3);
  Membership& leaver = *w["n1"].membership;
  leaver.leave(w.now());
  for (const char* other : {"n0", "n2"}) leaver.suspect(w.now(), other);
  for (const char* other : {"n0", "n2"})
    BOOST_TEST((leaver.find(other)->state == MemberState::alive));
  BOOST_TEST(leaver.counters().suspicions == 0u);
  w["n0"].membership->suspect(w.now(), "n2");
  BOOST_TEST((w["n0"].told["n2"] == MemberState::suspect));
}

BOOST_AUTO_TEST_CASE(a_restarted_node_is_a_new_incarnation) {
  World w(8);
  gather(w, 4);
  w.kill("n3");
  w.run_for(500ms);  // no node has noticed yet
  const std::uint64_t before = w["n0"].membership->find("n3")->incarnation;
  w.start("n3", "n1");
  BOOST_TEST(w.run_until(w.now() + 10s, [&] { return w.agrees(); }));
  BOOST_TEST(w["n0"].membership->find("n3")->incarnation > before);
}

BOOST_AUTO_TEST_CASE(two_of_one_name_do_not_stay) {
  World w(9);
  gather(w, 3);
  World::Node& first = w["n2"];
  MembershipMessage from_the_other{.kind = MembershipMessage::Kind::ping, .number = 1};
  Member other = first.membership->self();
  other.incarnation += 100;
  from_the_other.members.push_back(other);
  first.membership->receive(w.now(), w["n0"].membership->self(), from_the_other);
  BOOST_TEST(first.superseded_by == 1);
}

BOOST_AUTO_TEST_CASE(halves_of_a_cut_network_find_each_other_again) {
  World w(10);
  gather(w, 6);
  auto side = [](const std::string& n) { return n < "n3"; };
  w.cut([side](const std::string& a, const std::string& b) { return side(a) != side(b); });
  w.run_for(60s);
  for (World::Node* n : w.live()) BOOST_TEST(n->membership->count_up() == 3u);
  w.cut(nullptr);
  BOOST_TEST(w.run_until(w.now() + 60s, [&] { return w.agrees(); }));
}

// Some nodes are cut off for 5 to 15 s, each for itself or together, in both directions or in one.
// No node that stayed in holds another such node for dead, whatever the returning ones say.
BOOST_AUTO_TEST_CASE(a_node_that_was_cut_off_ends_no_other) {
  const auto [first, count] = seeds(200);
  std::uint64_t doubted = 0, deaths = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      std::mt19937_64 dice(seed * 91);
      World w(seed);
      const int nodes = 3 + static_cast<int>(dice() % 10);
      gather(w, nodes);
      const int cut = 1 + static_cast<int>(dice() % static_cast<std::uint64_t>((nodes + 1) / 2));
      const bool is_together = dice() % 2 == 0;
      const std::uint64_t ways = dice() % 4;  // 0 and 1: both; 2: to the others; 3: from them
      const auto is_off = [=](const std::string& n) { return std::stoi(n.substr(1)) < cut; };
      w.cut([=](const std::string& a, const std::string& b) {
        const bool out = is_off(a) && !(is_together && is_off(b)),
                   in = is_off(b) && !(is_together && is_off(a));
        return (out && ways != 3) || (in && ways != 2);
      });
      w.run_for(5s + Time(static_cast<std::int64_t>(dice() % 10'000'000'000)));
      w.cut(nullptr);
      BOOST_TEST(w.run_until(w.now() + 60s, [&] { return w.agrees(); }));
      w.run_for(10s);
      BOOST_TEST(w.agrees());
      for (World::Node* n : w.live()) {
        doubted += n->membership->counters().doubted;
        deaths += n->deaths.size();
        if (is_off(n->name)) continue;
        for (const std::string& dead : n->deaths)
          BOOST_TEST(is_off(dead), n->name << " held " << dead << " for dead");
      }
    }
  }
  if (count >= 100)
    BOOST_TEST((doubted > 0 && deaths > 0), doubted << " doubted, " << deaths << " dead");
}

// It cannot tell on which side the fault is, and says nothing until it has asked.
BOOST_AUTO_TEST_CASE(a_lone_node_that_was_cut_off_accuses_no_other) {
  for (const std::uint64_t seed : todays_seeds(60)) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      std::mt19937_64 dice(seed * 17);
      World w(seed);
      const int nodes = 3 + static_cast<int>(seed % 14);
      gather(w, nodes);
      w.cut([](const std::string& a, const std::string& b) { return a == "n0" || b == "n0"; });
      w.run_for(5s + Time(static_cast<std::int64_t>(dice() % 10'000'000'000)));
      BOOST_TEST(!w["n0"].suspected.empty());
      w.cut(nullptr);
      BOOST_TEST(w.run_until(w.now() + 60s, [&] { return w.agrees(); }));
      w.run_for(10s);
      for (World::Node* n : w.live())
        if (n->name != "n0")
          for (const std::string& other : n->suspected)
            BOOST_TEST(other == "n0", n->name << " suspected " << other);
    }
  }
}

// As long as it gets no answer it accuses a node to that node only; the death of one that died
// meanwhile is reported in the end.
BOOST_AUTO_TEST_CASE(membership_reports_a_withheld_death_that_is_true) {
  for (const std::uint64_t seed : todays_seeds(20)) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      World w(seed);
      gather(w, 5);
      int accusations = 0;  // by n0 of n1, sent to another
      w.watch = [&](const World::Node& from, const Member& to, const MembershipMessage& message) {
        if (from.name != "n0" || to.name == "n1") return;
        for (const Member& m : message.members)
          accusations += m.name == "n1" && m.state == MemberState::dead;
      };
      w.cut([](const std::string& a, const std::string& b) { return a == "n0" || b == "n0"; });
      w.run_for(3s);
      w.kill("n1");
      w.run_for(12s);
      BOOST_TEST((w["n0"].told["n1"] == MemberState::dead));
      BOOST_TEST(accusations == 0);
      w.cut(nullptr);
      BOOST_TEST(w.run_until(w.now() + 60s, [&] { return w.agrees(); }));
      BOOST_TEST(w.run_until(w.now() + 60s, [&] { return accusations > 0; }));
    }
  }
}

// Lost and late messages, nodes delayed for less than a suspicion, one killed, one started, one
// that leaves.
BOOST_AUTO_TEST_CASE(members_agree_in_the_end_under_random_faults) {
  std::uint64_t refuted = 0, deaths = 0;
  const auto [first, count] = seeds(300);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      std::mt19937_64 dice(seed * 77);
      World w(seed);
      const int nodes = 2 + static_cast<int>(dice() % 7);
      gather(w, nodes);
      w.lose(static_cast<int>(dice() % 30));
      for (int event = 0; event < 8; ++event) {
        w.run_for(Time(static_cast<std::int64_t>(dice() % 4'000'000'000)));
        const std::string name =
            name_of_node(static_cast<int>(dice() % static_cast<std::uint64_t>(nodes)));
        const std::size_t alive = w.live().size();
        switch (dice() % 4) {
          case 0: w.hold(name, Time(static_cast<std::int64_t>(dice() % 3'000'000'000))); break;
          case 1:
            if (alive > 2) w.kill(name);
            break;
          case 2:
            if (!w[name].is_alive) w.start(name, w.live().front()->name);
            break;
          case 3: {
            const auto cut = name;
            w.cut(
                [cut](const std::string& a, const std::string& b) { return a == cut || b == cut; });
            w.run_for(Time(static_cast<std::int64_t>(dice() % 2'000'000'000)));
            w.cut(nullptr);
            break;
          }
        }
      }
      w.lose(0);
      BOOST_TEST(w.run_until(w.now() + 120s, [&] { return w.agrees(); }));
      for (World::Node* n : w.live()) {
        refuted += n->membership->counters().refuted;
        deaths += n->membership->counters().deaths;
      }
    }
  }
  if (count >= 100)
    BOOST_TEST((refuted > 0 && deaths > 0), refuted << " refuted, " << deaths << " dead");
}

// The load of a node does not grow with the cluster, but for the news that all have to hear.
BOOST_AUTO_TEST_CASE(a_node_sends_as_much_in_a_large_cluster) {
  double a_node_and_period[2];
  for (int k : {0, 1}) {
    const int count = k == 0 ? 16 : 128;
    World w(20 + static_cast<std::uint64_t>(k));
    gather(w, count);
    w.run_for(10s);
    const std::uint64_t before = w.messages();
    w.run_for(20s);
    a_node_and_period[k] = static_cast<double>(w.messages() - before) / count / 40;
  }
  BOOST_TEST_MESSAGE("messages a node and period: " << a_node_and_period[0] << " of 16 nodes, "
                                                    << a_node_and_period[1] << " of 128");
  BOOST_TEST(a_node_and_period[1] < 1.2 * a_node_and_period[0]);
}

BOOST_AUTO_TEST_CASE(options_that_make_no_sense_are_refused) {
  World w(1);
  BOOST_CHECK_THROW(w.start("a", {}, {.period = 100ms, .timeout = 100ms}), Error);
  BOOST_TEST(refusal([&] { w.start("a", {}, {.helpers = -1}); }, Code::invalid_argument)
                 .find("the membership option helpers is -1; it must be 0 or more") !=
             std::string::npos);
  BOOST_TEST(refusal([&] { w.start("a", {}, {.sync_periods = 0}); }, Code::invalid_argument)
                 .find("the membership option sync_periods is 0; it must be 1 or more") !=
             std::string::npos);
  BOOST_CHECK_THROW(w.start(""), Error);
}

// By the time that an operator gives; the parts of it stay in proportion.
BOOST_AUTO_TEST_CASE(the_time_of_a_suspicion_is_chosen) {
  for (const Time after : {Time(100ms), Time(1500ms), Time(20s)}) {
    const MembershipOptions o = suspecting_after(after);
    BOOST_TEST((o.suspicion == after));
    BOOST_TEST((o.timeout < o.period && o.period < after));
  }
  BOOST_TEST((suspecting_after(1500ms).period == MembershipOptions().period));
  BOOST_TEST((suspecting_after(1500ms).timeout == MembershipOptions().timeout));
  BOOST_TEST(suspecting_after(1500ms).sync_periods == MembershipOptions().sync_periods);
  for (const Time wrong : {Time(99ms), Time(-1s), Time(2h)})
    BOOST_CHECK_THROW(suspecting_after(wrong), Error);
}

// A process that was killed breaks its connections, which is reported at once.
BOOST_AUTO_TEST_CASE(a_killed_member_is_dead_within_two_seconds) {
  for (const std::uint64_t seed : todays_seeds(20))
    for (const int count : {2, 3, 5, 12}) {
      World w(seed);
      gather(w, count);
      const std::string dies = name_of_node(count - 1);
      w.kill(dies);
      for (World::Node* n : w.live()) n->membership->suspect(w.now(), dies);
      w.run_for(2s);
      for (World::Node* n : w.live()) {
        const Member* m = n->membership->find(dies);
        BOOST_TEST((m && m->state == MemberState::dead), seed << ", " << count);
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()
