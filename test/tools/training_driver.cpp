// The driver of a small training on the nodes of a cluster, for tests that kill it.
//
//   training_driver NAME ADDRESS STEPS PAUSE_MS
//
// It prints the lines of the training's log, and `at N` before each step, before which it pauses.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <troupe/cluster.hpp>
#include <troupe/test/support/cluster/small_training.hpp>
#include <troupe/troupe.hpp>

using namespace troupe;

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  NodeOptions options;
  options.name = argv[1];
  options.join = {argv[2]};
  options.labels = "placement=named";  // another driver has no replicas here
  options.engine.seed = 5;
  options.engine.workers = 1;
  options.transport = [](PeerInfo self) {
    self.address = "tcp://127.0.0.1:0";
    return make_zeromq_transport(std::move(self), {});
  };
  const auto pause = std::chrono::milliseconds(std::atoi(argv[4]));
  const auto say = [](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  };
  try {
    ClusterNode node(std::move(options));
    node.wait_for({"b", "c", "d"}, std::chrono::seconds(60));
    Training training(node,
                      {.replicas = test::kTrainingReplicas, .name = "demo", .every = 5, .log = say},
                      test::small_network, [&](std::int64_t step) {
                        say("at " + std::to_string(step));
                        std::this_thread::sleep_for(pause);
                        return test::small_rows(step);
                      });
    training.run(std::atoll(argv[3]));
  } catch (const Error& e) {
    say(e.what());
    return 1;
  }
  say("done");
  return 0;
}
