// Stock CAF runs on our pool as it does on its own: requests, timeouts, delays, detached and
// blocking actors, printing, and the system's end. Stepped, it runs one message a step on virtual
// time.
#include <troupe/actors/runtime/lean_actor.hpp>
#include <troupe/actors/runtime/scheduler_module.hpp>

#include <boost/test/unit_test.hpp>

#include <caf/all.hpp>

#include <atomic>
#include <future>
#include <iostream>
#include <latch>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace troupe;
using namespace std::chrono_literals;

/// Answers n with n+1; on a string it says it with aout; "crash" throws.
class Server : public caf::event_based_actor {
 public:
  explicit Server(caf::actor_config& config) : event_based_actor(config) {
    set_exception_handler([](caf::scheduled_actor*, std::exception_ptr&) {
      return caf::make_error(caf::sec::runtime_error);
    });
  }
  caf::behavior make_behavior() override {
    return {
        [](int n) { return n + 1; },
        [this](const std::string& text) {
          if (text == "crash") throw std::runtime_error(text);
          caf::aout(this) << text << std::endl;
        },
    };
  }
};

/// Never answers.
class Silent : public caf::event_based_actor {
 public:
  explicit Silent(caf::actor_config& config) : event_based_actor(config) {}
  caf::behavior make_behavior() override {
    return {[this](int) { return make_response_promise<int>(); }};
  }
};

/// Asks `server` and writes down what comes of it.
class Client : public caf::event_based_actor {
 public:
  Client(caf::actor_config& config, std::vector<std::string>& log)
      : event_based_actor(config), log_(log) {}
  caf::behavior make_behavior() override {
    return {
        [this](const caf::actor& server, int n) {
          request(server, 10s, n)
              .then([this](int m) { log_.push_back(std::to_string(m)); },
                    [this](caf::error& e) { log_.push_back(to_string(e)); });
        },
        [this](caf::tick_atom) { delayed_send(this, 1s, caf::ok_atom_v); },
        [this](caf::ok_atom) { log_.push_back("ok"); },
    };
  }

 private:
  std::vector<std::string>& log_;
};

/// Two of them keep each other busy for ever.
class Restless : public caf::event_based_actor {
 public:
  Restless(caf::actor_config& config, std::atomic<int>& alive)
      : event_based_actor(config), alive_(alive) {
    ++alive_;
  }
  ~Restless() override { --alive_; }
  caf::behavior make_behavior() override {
    return {[this](const caf::actor& other) { send(other, caf::actor(this)); }};
  }

 private:
  std::atomic<int>& alive_;
};

class LeanRestless : public LeanActor<int> {
 public:
  LeanRestless(caf::actor_config& config, std::atomic<int>& alive)
      : LeanActor(config), alive_(alive) {
    ++alive_;
  }
  ~LeanRestless() override { --alive_; }
  void receive(int&) override { send(0); }

 private:
  std::atomic<int>& alive_;
};

class Blocking : public caf::blocking_actor {
 public:
  Blocking(caf::actor_config& config, caf::actor peer, std::promise<int>& result)
      : blocking_actor(config), peer_(std::move(peer)), result_(result) {}
  void act() override {
    request(peer_, caf::infinite, 1)
        .receive([this](int n) { result_.set_value(n); }, [](caf::error&) {});
  }

 private:
  caf::actor peer_;
  std::promise<int>& result_;
};

struct System {
  WorkerPool pool;
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;

  template <class How>
  explicit System(How how) : pool(how) {
    SchedulerModule::load(config, pool);
    system = std::make_unique<caf::actor_system>(config);
  }
};

/// std::cout goes to a string while this lives.
struct Captured {
  std::ostringstream text;
  std::streambuf* old = std::cout.rdbuf(text.rdbuf());
  ~Captured() { std::cout.rdbuf(old); }
};

void stop(const caf::actor& actor) { caf::anon_send_exit(actor, caf::exit_reason::user_shutdown); }

}  // namespace

BOOST_AUTO_TEST_SUITE(scheduler_stepped)

BOOST_AUTO_TEST_CASE(a_step_is_one_message) {
  System s(Deterministic{5});
  std::vector<std::string> log;
  auto client = s.system->spawn<Client>(log);
  s.pool.run_all();
  for (int i = 0; i < 3; ++i) caf::anon_send(client, caf::ok_atom_v);
  for (std::size_t i = 1; i <= 3; ++i) {
    BOOST_CHECK(s.pool.step());
    BOOST_TEST(log.size() == i);
  }
  stop(client);
  s.pool.run_all();
}

BOOST_AUTO_TEST_CASE(requests_time_out_on_virtual_time) {
  System s(Deterministic{5});
  std::vector<std::string> log;
  auto client = s.system->spawn<Client>(log);
  auto server = s.system->spawn<Server>();
  auto silent = s.system->spawn<Silent>();
  caf::anon_send(client, server, 1);
  s.pool.run_all();
  BOOST_TEST(log.size() == 1u);
  BOOST_TEST(log[0] == "2");
  caf::anon_send(client, silent, 1);
  s.pool.run_all();
  SchedulerModule::of(*s.system)->advance_time(9s);
  s.pool.run_all();
  BOOST_TEST(log.size() == 1u);
  SchedulerModule::of(*s.system)->advance_time(2s);
  s.pool.run_all();
  BOOST_TEST(log.size() == 2u);
  BOOST_CHECK(log[1].find("timeout") != std::string::npos);
  for (const auto& actor : {client, server, silent}) stop(actor);
  s.pool.run_all();
}

BOOST_AUTO_TEST_CASE(delayed_messages_come_on_virtual_time) {
  System s(Deterministic{5});
  std::vector<std::string> log;
  auto client = s.system->spawn<Client>(log);
  caf::anon_send(client, caf::tick_atom_v);
  s.pool.run_all();
  BOOST_TEST(log.size() == 0u);
  SchedulerModule::of(*s.system)->advance_time(1s);
  s.pool.run_all();
  BOOST_TEST(log.size() == 1u);
  stop(client);
  s.pool.run_all();
}

BOOST_AUTO_TEST_CASE(two_systems_share_a_pool) {
  WorkerPool pool(Deterministic{9});
  caf::actor_system_config one, two;
  SchedulerModule::load(one, pool);
  SchedulerModule::load(two, pool);
  std::atomic<int> alive{0};
  caf::actor_system a(one);
  a.await_actors_before_shutdown(false);
  auto survivor = lean_spawn<LeanRestless>(a, alive);
  survivor->send(0);
  {
    caf::actor_system b(two);
    lean_spawn<LeanRestless>(b, alive)->send(0);
    for (int i = 0; i < 50; ++i) BOOST_REQUIRE(pool.step());
    BOOST_TEST(alive.load() == 2);
  }
  BOOST_TEST(alive.load() == 1);
  BOOST_TEST(SchedulerModule::of(a)->outstanding() > 0u);  // and goes on
}

BOOST_AUTO_TEST_CASE(the_end_of_a_stepped_system_ends_its_actors) {
  std::atomic<int> alive{0};
  {
    System s(Deterministic{5});
    s.system->await_actors_before_shutdown(false);
    auto one = s.system->spawn<Restless>(alive), two = s.system->spawn<Restless>(alive);
    caf::anon_send(one, two);
    lean_spawn<LeanRestless>(*s.system, alive)->send(0);
    for (int i = 0; i < 50; ++i) BOOST_REQUIRE(s.pool.step());
    BOOST_TEST(alive.load() == 3);
  }
  BOOST_TEST(alive.load() == 0);
}

BOOST_AUTO_TEST_CASE(aout_prints_at_a_step) {
  Captured out;
  System s(Deterministic{5});
  auto server = s.system->spawn<Server>();
  caf::anon_send(server, std::string("hello"));
  BOOST_TEST(out.text.str() == "");
  s.pool.run_all();
  BOOST_TEST(out.text.str() == "hello\n");
  stop(server);
  s.pool.run_all();
}

BOOST_AUTO_TEST_SUITE_END()

// ---- real threads ------------------------------------------------------------------------------

BOOST_AUTO_TEST_SUITE(scheduler_threads)

BOOST_AUTO_TEST_CASE(a_system_comes_and_goes) {
  for (int i = 0; i < 20; ++i) System s(2);
}

BOOST_AUTO_TEST_CASE(lean_actors_still_busy_at_the_end_are_ended) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> alive{0};
    {
      System s(2);
      for (int i = 0; i < 10; ++i) lean_spawn<LeanRestless>(*s.system, alive)->send(0);
    }
    BOOST_TEST(alive.load() == 0);
  }
}

BOOST_AUTO_TEST_CASE(requests_and_crashes, *boost::unit_test::label("stock_caf")) {
  System s(2);
  caf::scoped_actor self(*s.system);
  auto server = self->spawn<Server, caf::monitored>();
  for (int i = 0; i < 1000; ++i) {
    int got = 0;
    self->request(server, caf::infinite, i).receive([&](int n) { got = n; }, [](caf::error&) {});
    BOOST_REQUIRE(got == i + 1);
  }
  self->send(server, std::string("crash"));
  caf::error down;
  self->receive([&](caf::down_msg& message) { down = message.reason; });
  BOOST_CHECK(down == caf::sec::runtime_error);
}

BOOST_AUTO_TEST_CASE(timeouts_and_delays, *boost::unit_test::label("stock_caf")) {
  System s(2);
  caf::scoped_actor self(*s.system);
  auto silent = s.system->spawn<Silent>();
  bool timed_out = false;
  self->request(silent, 1ms, 1)
      .receive([](int) {}, [&](caf::error& e) { timed_out = e == caf::sec::request_timeout; });
  BOOST_CHECK(timed_out);
  self->delayed_send(self, 1ms, 7);
  int got = 0;
  self->receive([&](int n) { got = n; });
  BOOST_TEST(got == 7);
  stop(silent);
}

BOOST_AUTO_TEST_CASE(detached_and_blocking_actors, *boost::unit_test::label("stock_caf")) {
  System s(2);
  auto detached = s.system->spawn<Server, caf::detached>();
  std::promise<int> result;
  s.system->spawn<Blocking>(detached, result);
  BOOST_TEST(result.get_future().get() == 2);
  caf::scoped_actor self(*s.system);
  stop(detached);
  self->wait_for(detached);
}

BOOST_AUTO_TEST_CASE(system_prints_pending_output_before_it_ends,
                     *boost::unit_test::label("stock_caf")) {
  Captured out;
  {
    System s(2);
    auto server = s.system->spawn<Server>();
    caf::anon_send(server, std::string("last words"));
    stop(server);
  }
  BOOST_TEST(out.text.str() == "last words\n");
}

BOOST_AUTO_TEST_CASE(the_system_ends_with_actors_alive, *boost::unit_test::label("stock_caf")) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> alive{0};
    {
      System s(2);
      s.system->await_actors_before_shutdown(false);
      auto one = s.system->spawn<Restless>(alive), two = s.system->spawn<Restless>(alive);
      caf::anon_send(one, two);
    }
    BOOST_TEST(alive.load() == 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
