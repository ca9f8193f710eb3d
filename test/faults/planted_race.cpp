// Two lean actors that share plain ints, on purpose. Under TSan this program must fail: that shows
// that the scheduler's own synchronisation does not hide what two actors do at the same time.
//
//   planted_race      exit status 66 under TSan, 0 otherwise
#include <troupe/actors/runtime/lean_actor.hpp>
#include <troupe/actors/runtime/scheduler_module.hpp>

#include <atomic>
#include <cstdio>
#include <latch>

namespace {

using namespace troupe;

/// Shared by two actors, which no actor should do.
struct Shared {
  std::atomic<int> present{0};  // relaxed: brings the two together and orders nothing
  // many: TSan misses two accesses of one word at the very same moment
  int plain[256] = {};
};

class Culprit : public LeanActor<int> {
 public:
  Culprit(caf::actor_config& config, Shared& shared, std::latch& finished)
      : LeanActor(config), shared_(shared), finished_(finished) {}

  void receive(int&) override {
    shared_.present.fetch_add(1, std::memory_order_relaxed);
    while (shared_.present.load(std::memory_order_relaxed) < 2) {}
    for (int& one : shared_.plain) ++one;
    finished_.count_down();
  }

 private:
  Shared& shared_;
  std::latch& finished_;
};

}  // namespace

int main() {
  Shared shared;
  std::latch finished(2);
  WorkerPool pool(2);
  caf::actor_system_config config;
  SchedulerModule::load(config, pool);
  caf::actor_system system(config);
  auto one = lean_spawn<Culprit>(system, shared, finished),
       two = lean_spawn<Culprit>(system, shared, finished);
  one->send(0);
  two->send(0);
  finished.wait();
  std::printf("%d\n", shared.plain[0]);
}
