// A lean actor is a CAF actor: it ends, links, monitors and bounces like one; and its inbox keeps
// every message, in each sender's order, without allocating.
#include <troupe/actors/runtime/lean_actor.hpp>
#include <troupe/actors/runtime/scheduler_module.hpp>

#include <boost/test/unit_test.hpp>

#include <caf/all.hpp>

#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace troupe;
using namespace std::chrono_literals;

/// A system whose every step the test takes.
struct Stepped {
  WorkerPool pool{Deterministic{11}};
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> owned;
  caf::actor_system& system;

  Stepped()
      : owned((SchedulerModule::load(config, pool), new caf::actor_system(config))),
        system(*owned) {
    system.await_actors_before_shutdown(false);
  }
  void run() { pool.run_all(); }
};

/// A system on real threads.
struct Threaded {
  WorkerPool pool;
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> owned;
  caf::actor_system& system;

  explicit Threaded(int workers)
      : pool(workers), owned((SchedulerModule::load(config, pool), new caf::actor_system(config))),
        system(*owned) {}
  void settle() {
    while (SchedulerModule::of(system)->outstanding() != 0) std::this_thread::yield();
  }
};

caf::error reason(const char* what) {
  return caf::make_error(caf::sec::runtime_error, std::string(what));
}

/// Events that a Listener has seen. Declared before the system, because the system's end may still
/// end the probe.
struct Log {
  std::vector<std::string> received;
  std::vector<caf::error> downs;
  std::vector<caf::error> ends;
  int turns = 0;
};

/// Acts on words: "quit", "throw", anything else is only logged. Logs what it gets.
class Listener : public LeanActor<std::string> {
 public:
  Listener(caf::actor_config& config, Log& log) : LeanActor(config), log_(log) {}
  using InboxActor::demonitor;
  using InboxActor::monitor;
  int more_turns = 0;

 protected:
  void receive(std::string& word) override {
    log_.received.push_back(word);
    if (word == "quit") quit();
    if (word == "fail") quit(reason("failed"));
    if (word == "throw") throw std::runtime_error("thrown");
  }
  void receive_control(caf::mailbox_element& element) override {
    if (element.content().match_elements<caf::down_msg>())
      log_.downs.push_back(element.content().get_as<caf::down_msg>(0).reason);
    else if (element.content().match_elements<int>())
      reply(element, element.content().get_as<int>(0) + 1);
    else LeanActor::receive_control(element);
  }
  bool continue_turn() override {
    ++log_.turns;
    return more_turns-- > 0;
  }
  void ended(const caf::error& why) override { log_.ends.push_back(why); }

 private:
  Log& log_;
};

/// A stock actor that watches others and repeats the messages that it gets about them.
class Watcher : public caf::event_based_actor {
 public:
  Watcher(caf::actor_config& config, std::vector<caf::error>& downs,
          std::vector<caf::error>& answers)
      : event_based_actor(config), answers_(answers) {
    set_down_handler([&downs](caf::down_msg& down) { downs.push_back(down.reason); });
  }
  caf::behavior make_behavior() override {
    return {
        [this](caf::ok_atom, const caf::actor& whom) { monitor(whom); },
        [this](caf::link_atom, const caf::actor& whom) { link_to(whom); },
        [this](caf::get_atom, const caf::actor& whom, int value) {
          request(whom, caf::infinite, value)
              .then([this](int) { answers_.emplace_back(); },
                    [this](caf::error& e) { answers_.push_back(e); });
        },
    };
  }

 private:
  std::vector<caf::error>& answers_;
};

template <class Actor>
caf::actor as_actor(const LeanRef<Actor>& ref) {
  return caf::actor_cast<caf::actor>(ref.strong());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(lean_actor)

BOOST_AUTO_TEST_CASE(messages_arrive_in_order_one_a_step) {
  Log log;
  Stepped s;
  auto probe = lean_spawn<Listener>(s.system, log);
  for (const char* word : {"a", "b", "c"}) BOOST_CHECK(probe->send(word));
  BOOST_TEST(log.received.size() == 0u);
  s.pool.step();
  BOOST_TEST(log.received.size() == 1u);
  s.run();
  BOOST_TEST(log.received == (std::vector<std::string>{"a", "b", "c"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(continue_turn_asks_for_more_turns) {
  Log log;
  Stepped s;
  auto probe = lean_spawn<Listener>(s.system, log);
  probe->more_turns = 3;
  probe->send("a");
  s.run();
  BOOST_TEST(log.turns == 4);
}

/// Adds up; a turn of its own can be taken. Less than nothing is thrown.
class Sum final : public LeanActor<int> {
 public:
  using LeanActor::LeanActor;
  bool take(int n) {
    struct What {
      Sum& self;
      int n;
    } what{*this, n};
    return take_turn([](void* w) { static_cast<What*>(w)->self.receive(static_cast<What*>(w)->n); },
                     &what);
  }
  std::int64_t sum = 0;
  int turns = 0;

 protected:
  void receive(int& n) override {
    if (n < 0) throw std::runtime_error("less than nothing");
    sum += n;
  }
  bool continue_turn() override { return ++turns, false; }
};

BOOST_AUTO_TEST_CASE(a_thread_in_a_workers_place_runs_a_waiting_actor) {
  Stepped s;
  const auto actor = lean_spawn<Sum>(s.system);
  const auto on_a_worker = [&](std::function<void()> what) {
    s.pool.submit({[](void* f, Worker&) { (*static_cast<std::function<void()>*>(f))(); }, &what});
    BOOST_TEST(s.pool.step());
  };
  on_a_worker([&] {
    for (int n = 1; n <= 3; ++n) {
      BOOST_TEST(actor->take(n));
      BOOST_TEST(actor->turns == n);
    }
    BOOST_TEST(actor->sum == 6);
    actor->send(10);
    BOOST_TEST(!actor->take(1));  // it has been woken
    BOOST_TEST(actor->sum == 6);
  });
  s.run();
  BOOST_TEST(actor->sum == 16);
  on_a_worker([&] {
    BOOST_TEST(actor->take(4));
    BOOST_TEST(actor->take(-1));  // which ends it
    BOOST_TEST(!actor->take(1));
    BOOST_TEST(!actor->send(1));
  });
  BOOST_TEST(actor->sum == 20);
  BOOST_TEST(SchedulerModule::of(s.system)->outstanding() == 0u);
}

BOOST_AUTO_TEST_CASE(turns_that_are_taken_race_with_messages_and_nothing_is_lost) {
  constexpr int kMessages = 50'000;
  Threaded s(2);
  const auto actor = lean_spawn<Sum>(s.system);
  std::thread sender([&] {
    for (int i = 0; i < kMessages; ++i) actor->send(1);
  });
  std::int64_t taken = 0;
  for (int i = 0; i < kMessages; ++i)
    if (CallerWorker worker(s.pool); worker) {
      taken += actor->take(1);
      worker.run_some(4);
    }
  sender.join();
  s.settle();
  BOOST_TEST(actor->sum == kMessages + taken);
}

BOOST_AUTO_TEST_CASE(quitting_sends_a_lean_monitor_the_reason) {
  Log log, watching;
  Stepped s;
  auto probe = lean_spawn<Listener>(s.system, log);
  auto watcher = lean_spawn<Listener>(s.system, watching);
  watcher->monitor(probe.strong());
  probe->send("fail");
  probe->send("late");
  s.run();
  BOOST_REQUIRE(watching.downs.size() == 1u);
  BOOST_CHECK(watching.downs[0] == reason("failed"));
  BOOST_TEST(log.received.size() == 1u);
  BOOST_REQUIRE(log.ends.size() == 1u);
  BOOST_CHECK(log.ends[0] == reason("failed"));
  BOOST_CHECK(!probe->send("later"));
  watcher->monitor(probe.strong());  // a dead actor: notified at once
  s.run();
  BOOST_TEST(watching.downs.size() == 2u);
}

BOOST_AUTO_TEST_CASE(a_monitor_can_be_taken_back) {
  Log log, watching;
  Stepped s;
  auto probe = lean_spawn<Listener>(s.system, log),
       watcher = lean_spawn<Listener>(s.system, watching);
  watcher->monitor(probe.strong());
  watcher->demonitor(probe.strong());
  probe->send("quit");
  s.run();
  BOOST_TEST(watching.downs.size() == 0u);
}

BOOST_AUTO_TEST_CASE(an_exception_ends_the_actor_with_its_message) {
  Log log, watching;
  Stepped s;
  auto probe = lean_spawn<Listener>(s.system, log),
       watcher = lean_spawn<Listener>(s.system, watching);
  watcher->monitor(probe.strong());
  probe->send("throw");
  probe->send("late");
  s.run();
  BOOST_REQUIRE(watching.downs.size() == 1u);
  BOOST_CHECK(watching.downs[0] == caf::sec::runtime_error);
  BOOST_CHECK(to_string(watching.downs[0]).find("thrown") != std::string::npos);
  BOOST_TEST(log.received.size() == 1u);
}

BOOST_AUTO_TEST_CASE(an_exit_message_ends_the_actor) {
  Log log, watching;
  Stepped s;
  auto probe = lean_spawn<Listener>(s.system, log),
       watcher = lean_spawn<Listener>(s.system, watching);
  watcher->monitor(probe.strong());
  caf::anon_send_exit(as_actor(probe), caf::exit_reason::kill);
  probe->send("late");
  s.run();
  BOOST_REQUIRE(watching.downs.size() == 1u);
  BOOST_CHECK(watching.downs[0] == caf::exit_reason::kill);
  BOOST_TEST(log.received.size() == 0u);
}

BOOST_AUTO_TEST_CASE(links_between_lean_actors_end_both_unless_normal) {
  for (const bool abnormal : {true, false}) {
    Log one, two;
    Stepped s;
    auto a = lean_spawn<Listener>(s.system, one), b = lean_spawn<Listener>(s.system, two);
    a->link_to(as_actor(b));
    a->send(abnormal ? "fail" : "quit");
    s.run();
    BOOST_TEST(one.ends.size() == 1u);
    BOOST_TEST(two.ends.size() == (abnormal ? 1u : 0u));
  }
}

BOOST_AUTO_TEST_CASE(the_last_reference_ends_the_actor_as_unreachable) {
  Log log, watching;
  Stepped s;
  auto watcher = lean_spawn<Listener>(s.system, watching);
  {
    auto probe = lean_spawn<Listener>(s.system, log);
    watcher->monitor(probe.strong());
    auto copy = probe;
    probe = std::move(copy);
  }
  BOOST_REQUIRE(log.ends.size() == 1u);
  BOOST_CHECK(log.ends[0] == caf::exit_reason::unreachable);
}

BOOST_AUTO_TEST_CASE(pending_messages_keep_the_actor_until_they_are_handled) {
  Log log;
  Stepped s;
  lean_spawn<Listener>(s.system, log)->send("a");
  BOOST_TEST(log.ends.size() == 0u);
  s.run();
  BOOST_TEST(log.received.size() == 1u);
  BOOST_TEST(log.ends.size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_request_is_answered) {
  Log log;
  Stepped s;
  auto probe = lean_spawn<Listener>(s.system, log);
  caf::scoped_actor self(s.system);
  auto answer = self->request(as_actor(probe), caf::infinite, 41);
  s.run();
  int got = 0;
  answer.receive([&](int value) { got = value; }, [](caf::error&) {});
  BOOST_TEST(got == 42);
}

BOOST_AUTO_TEST_CASE(requests_that_are_unexpected_late_or_waiting_get_an_error) {
  Log log;
  Stepped s;
  auto probe = lean_spawn<Listener>(s.system, log);
  caf::scoped_actor self(s.system);
  caf::error error;
  const auto expect = [&](auto& answer) {
    answer.receive([](int) {}, [&](caf::error& e) { error = e; });
    return error;
  };
  auto unexpected = self->request(as_actor(probe), caf::infinite, std::string("?"));
  s.run();
  BOOST_CHECK(expect(unexpected) == caf::sec::unexpected_message);
  probe->send("quit");
  auto waiting = self->request(as_actor(probe), caf::infinite, 1);
  s.run();
  BOOST_CHECK(expect(waiting) == caf::sec::request_receiver_down);
  auto late = self->request(as_actor(probe), caf::infinite, 1);
  BOOST_CHECK(expect(late) == caf::sec::request_receiver_down);
}

// ---- with stock actors -------------------------------------------------------------------------

BOOST_AUTO_TEST_CASE(a_stock_actor_monitors_a_lean_one) {
  Log log;
  std::vector<caf::error> downs, answers;
  Stepped s;
  auto probe = lean_spawn<Listener>(s.system, log);
  auto watcher = s.system.spawn<Watcher>(downs, answers);
  caf::anon_send(watcher, caf::ok_atom_v, as_actor(probe));
  s.run();
  probe->send("fail");
  s.run();
  BOOST_REQUIRE(downs.size() == 1u);
  BOOST_CHECK(downs[0] == reason("failed"));
  caf::anon_send_exit(watcher, caf::exit_reason::kill);
  s.run();
}

BOOST_AUTO_TEST_CASE(a_lean_actor_monitors_a_stock_one) {
  Log log;
  std::vector<caf::error> downs, answers;
  Stepped s;
  auto probe = lean_spawn<Listener>(s.system, log);
  auto watched = s.system.spawn<Watcher>(downs, answers);
  probe->monitor(caf::actor_cast<caf::strong_actor_ptr>(watched));
  caf::anon_send_exit(watched, caf::exit_reason::kill);
  s.run();
  BOOST_REQUIRE(log.downs.size() == 1u);
  BOOST_CHECK(log.downs[0] == caf::exit_reason::kill);
}

BOOST_AUTO_TEST_CASE(links_between_stock_and_lean_kill_both_ways) {
  for (const bool lean_first : {true, false}) {
    Log log, watching;
    std::vector<caf::error> downs, answers;
    Stepped s;
    auto probe = lean_spawn<Listener>(s.system, log),
         observer = lean_spawn<Listener>(s.system, watching);
    auto stock = s.system.spawn<Watcher>(downs, answers);
    observer->monitor(probe.strong());
    observer->monitor(caf::actor_cast<caf::strong_actor_ptr>(stock));
    caf::anon_send(stock, caf::link_atom_v, as_actor(probe));
    s.run();
    if (lean_first) probe->send("fail");
    else caf::anon_send(stock, caf::exit_msg{stock.address(), reason("failed")});
    s.run();
    BOOST_REQUIRE(watching.downs.size() == 2u);
    BOOST_CHECK(watching.downs[0] == reason("failed"));
    BOOST_CHECK(watching.downs[1] == reason("failed"));
  }
}

BOOST_AUTO_TEST_CASE(stock_requests_are_answered_or_bounced) {
  Log log;
  std::vector<caf::error> downs, answers;
  Stepped s;
  auto probe = lean_spawn<Listener>(s.system, log);
  auto asker = s.system.spawn<Watcher>(downs, answers);
  caf::anon_send(asker, caf::get_atom_v, as_actor(probe), 1);
  s.run();
  probe->send("quit");
  s.run();
  caf::anon_send(asker, caf::get_atom_v, as_actor(probe), 1);
  s.run();
  BOOST_REQUIRE(answers.size() == 2u);
  BOOST_CHECK(!answers[0]);
  BOOST_CHECK(answers[1] == caf::sec::request_receiver_down);
  caf::anon_send_exit(asker, caf::exit_reason::kill);
  s.run();
}

BOOST_AUTO_TEST_CASE(lean_actors_run_on_cafs_own_scheduler_too,
                     *boost::unit_test::label("stock_caf")) {
  Log log;
  caf::actor_system_config config;
  config.set("scheduler.max-threads", std::int64_t{2});
  caf::actor_system system(config);
  BOOST_CHECK(SchedulerModule::of(system) == nullptr);
  auto probe = lean_spawn<Listener>(system, log);
  probe->send("a");
  probe->send("fail");
  caf::scoped_actor self(system);
  self->wait_for(as_actor(probe));
  BOOST_TEST(log.received.size() == 2u);
}

BOOST_AUTO_TEST_SUITE_END()

// ---- real threads ------------------------------------------------------------------------------

BOOST_AUTO_TEST_SUITE(lean_actor_threads)

namespace {

/// A message that is counted while it lives.
struct Counted {
  static inline std::atomic<int> alive{0};
  int sender, number;
  Counted(int from, int n) : sender(from), number(n) {
    alive.fetch_add(1, std::memory_order_relaxed);
  }
  Counted(Counted&& other) : Counted(other.sender, other.number) {}
  ~Counted() { alive.fetch_sub(1, std::memory_order_relaxed); }
};

/// Checks each sender's order with plain members: two turns at once would be a race and a miscount.
class Sequencer : public LeanActor<Counted> {
 public:
  Sequencer(caf::actor_config& config, int senders, std::latch& finished)
      : LeanActor(config), next_(static_cast<std::size_t>(senders)), done_(finished) {}
  int out_of_order = 0;
  int quit_after = -1;

 protected:
  void receive(Counted& message) override {
    auto& next = next_[static_cast<std::size_t>(message.sender)];
    out_of_order += message.number != next;
    next = message.number + 1;
    if (quit_after-- == 0) quit();
    if (quit_after < 0) done_.count_down();
  }

 private:
  std::vector<int> next_;
  std::latch& done_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(many_senders_keep_their_order) {
  constexpr int senders = 4, each = 5000;
  std::latch done(senders * each);
  Threaded t(2);
  auto sequencer = lean_spawn<Sequencer>(t.system, senders, done);
  std::vector<std::thread> threads;
  for (int s = 0; s < senders; ++s)
    threads.emplace_back([&, s] {
      for (int i = 0; i < each; ++i) sequencer->send(s, i);
    });
  for (auto& thread : threads) thread.join();
  done.wait();
  t.settle();
  BOOST_TEST(sequencer->out_of_order == 0);
  BOOST_TEST(Counted::alive.load() == 0);
}

BOOST_AUTO_TEST_CASE(messages_that_race_with_the_end_are_freed) {
  Threaded t(2);
  for (int round = 0; round < 200; ++round) {
    std::latch done(1);
    auto sequencer = lean_spawn<Sequencer>(t.system, 2, done);
    sequencer->quit_after = 50;
    int refused = 0;
    std::thread other([&] {
      for (int i = 0; i < 100; ++i) refused += !sequencer->send(1, i);
    });
    for (int i = 0; i < 100; ++i) sequencer->send(0, i);
    other.join();
    done.wait();
    t.settle();
    BOOST_REQUIRE(!sequencer->send(0, 0));
    BOOST_REQUIRE(sequencer->out_of_order == 0);
    BOOST_REQUIRE(Counted::alive.load() == 0);
  }
}

namespace {

/// Passes a token round; owns nothing of its neighbours but a reference.
class Runner : public LeanActor<int> {
 public:
  Runner(caf::actor_config& config, std::latch& finished) : LeanActor(config), done_(finished) {}
  LeanRef<Runner> next;
  std::uint64_t seen = 0;

 protected:
  void receive(int& left) override {
    ++seen;
    if (left == 0) return done_.count_down();
    next->send(left - 1);
  }

 private:
  std::latch& done_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(tokens_run_round_a_ring_on_several_workers) {
  constexpr int runners = 16, tokens = 8, hops = 3000;
  std::latch done(tokens);
  Threaded t(3);
  std::vector<LeanRef<Runner>> ring;
  for (int i = 0; i < runners; ++i) ring.push_back(lean_spawn<Runner>(t.system, done));
  for (std::size_t i = 0; i < runners; ++i) ring[i]->next = ring[(i + 1) % runners];
  for (std::size_t i = 0; i < tokens; ++i) ring[i]->send(hops);
  done.wait();
  t.settle();
  std::uint64_t seen = 0;
  for (auto& runner : ring) {
    seen += runner->seen;
    runner->next = {};
  }
  BOOST_TEST(seen == tokens * (hops + 1u));
}

BOOST_AUTO_TEST_CASE(producer_on_another_thread_reuses_node_memory) {
  struct Wide {  // a size that no other test uses, so that its node pool starts empty
    int number;
    char padding[300];
  };
  struct Sink : LeanActor<Wide> {
    Sink(caf::actor_config& config, std::atomic<int>& counter) : LeanActor(config), seen(counter) {}
    void receive(Wide&) override { seen.fetch_add(1); }
    std::atomic<int>& seen;
  };
  using Pool = Sink::Pool;
  constexpr int batch = 500, batches = 400;
  std::atomic<int> seen{0};
  Threaded t(1);
  auto sink = lean_spawn<Sink>(t.system, seen);
  const auto before = Pool::allocations();
  std::thread producer([&] {
    for (int b = 0; b < batches; ++b) {
      for (int i = 0; i < batch; ++i) sink->send(Wide{i, {}});
      while (seen.load() < (b + 1) * batch) std::this_thread::yield();
    }
  });
  producer.join();
  t.settle();
  const auto made = Pool::allocations() - before;
  BOOST_CHECK_GT(made, 0u);
  // 200,000 messages were sent
  BOOST_CHECK_LE(made, static_cast<std::uint64_t>(batch + 3 * Pool::kMagazine));
}

// Ends when messages were received in the job of the one before. Without that it hangs: each is
// sent when the last one was received, so each costs a job. Few jobs are not counted yet.
BOOST_AUTO_TEST_CASE(worker_waits_for_a_message_that_comes_soon) {
  struct Waiting : LeanActor<int> {
    Waiting(caf::actor_config& config, std::atomic<std::uint64_t>& counter)
        : LeanActor(config), seen(counter) {}
    void receive(int&) override { seen.fetch_add(1); }
    bool awaits_soon() const override { return true; }
    std::atomic<std::uint64_t>& seen;
  };
  std::atomic<std::uint64_t> seen{0};
  Threaded t(2);
  t.settle();
  const auto before = t.pool.counters().jobs;
  auto actor = lean_spawn<Waiting>(t.system, seen);
  constexpr std::uint64_t kUncounted = 8;
  std::uint64_t sent = 0;
  do {
    actor->send(1);
    ++sent;
    while (seen.load() < sent) std::this_thread::yield();
  } while (t.pool.counters().jobs - before + kUncounted >= sent);
  BOOST_CHECK_EQUAL(seen.load(), sent);
}

BOOST_AUTO_TEST_SUITE_END()
