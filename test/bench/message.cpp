// Nanoseconds a message between two actors in ping-pong, ours against stock CAF's.
//
// Every message enters the receiver's inbox, and the receiver is resumed by the scheduler for it;
// running the receiver inside the sender's turn would not count. The lean actors count their turns,
// and the benchmark stops with an error if turns and messages differ.
#include <troupe/actors/runtime/lean_actor.hpp>
#include <troupe/actors/runtime/scheduler_module.hpp>
#include <troupe/test/bench/bench.hpp>

#include <fmt/format.h>
#include <caf/all.hpp>

#include <cstdlib>
#include <future>

namespace {

using namespace troupe;
constexpr std::int64_t kMessages = 2'000'000;  // one way each
constexpr int kRepetitions = 7;

class LeanPlayer : public LeanActor<std::int64_t> {
 public:
  using LeanActor::LeanActor;
  LeanRef<LeanPlayer> other;
  std::promise<void>* finished = nullptr;
  std::int64_t messages = 0;
  std::int64_t turns = 0;

  void receive(std::int64_t& left) override {
    ++messages;
    if (left == 0) finished->set_value();
    else other->send(left - 1);
  }
  bool continue_turn() override {
    ++turns;
    return false;
  }
};

double lean_ping_pong(int workers) {
  WorkerPool pool(workers);
  caf::actor_system_config config;
  SchedulerModule::load(config, pool);
  caf::actor_system system(config);
  std::promise<void> finished;
  std::int64_t messages = 0, turns = 0;
  double took = 0;
  {
    auto ping = lean_spawn<LeanPlayer>(system), pong = lean_spawn<LeanPlayer>(system);
    ping->other = pong;
    pong->other = ping;
    ping->finished = pong->finished = &finished;
    const double start = bench::now_ns();
    ping->send(kMessages);
    finished.get_future().wait();
    took = bench::now_ns() - start;
    while (SchedulerModule::of(system)->outstanding() != 0) std::this_thread::yield();
    messages = ping->messages + pong->messages;
    turns = ping->turns + pong->turns;
    ping->other = {};
    pong->other = {};
  }
  if (messages != kMessages + 1 || turns != messages) {
    std::fprintf(stderr, "%lld messages took %lld turns\n", static_cast<long long>(messages),
                 static_cast<long long>(turns));
    std::exit(1);
  }
  return took / static_cast<double>(messages);
}

class StockPlayer : public caf::event_based_actor {
 public:
  StockPlayer(caf::actor_config& config, std::promise<void>& finished)
      : event_based_actor(config), finished_(finished) {}

  caf::behavior make_behavior() override {
    return {
        [this](const caf::actor& other, std::int64_t left) {
          other_ = other;
          if (left > 0) send(other_, left);
        },
        [this](std::int64_t left) {
          if (left == 0) finished_.set_value();
          else send(other_, left - 1);
        },
    };
  }

 private:
  std::promise<void>& finished_;
  caf::actor other_;
};

double stock_ping_pong(int workers) {
  caf::actor_system_config config;
  config.set("scheduler.max-threads", static_cast<std::int64_t>(workers));
  caf::actor_system system(config);
  std::promise<void> finished;
  auto ping = system.spawn<StockPlayer>(finished), pong = system.spawn<StockPlayer>(finished);
  const double start = bench::now_ns();
  caf::anon_send(pong, ping, std::int64_t{0});
  caf::anon_send(ping, pong, kMessages);
  finished.get_future().wait();
  const double took = bench::now_ns() - start;
  caf::anon_send_exit(ping, caf::exit_reason::kill);
  caf::anon_send_exit(pong, caf::exit_reason::kill);
  return took / static_cast<double>(kMessages);
}

}  // namespace

int main() {
  for (const int workers : {1, 2}) {
    bench::Comparison c{.name = "message_" + std::to_string(workers) + "_workers",
                        .unit = "ns",
                        .peer = "stock CAF ping-pong",
                        .peer_version = fmt::format("{}.{}.{}", CAF_MAJOR_VERSION,
                                                    CAF_MINOR_VERSION, CAF_PATCH_VERSION),
                        .budget = workers == 1 ? 0.2 : 0.5,
                        .threads = workers,
                        .speed_up = false,
                        .ours = {},
                        .theirs = {}};
    for (int i = 0; i < kRepetitions; ++i) {
      c.ours.push_back(lean_ping_pong(workers));
      c.theirs.push_back(stock_ping_pong(workers));
    }
    c.print();
  }
}
