// A user's own program that is a node: it brings ops (own_op.hpp, cancelled_op.hpp) and an actor,
// the "own counter", and goes on until SIGTERM.
//
//   own_node NAME [ADDRESS to join [repeats]]
//
// repeats: its transport is faulty (faulty.hpp), and says tokens and grants again, and others that
// no run can ask for.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include <troupe/cluster.hpp>
#include <troupe/test/support/cluster/faulty.hpp>
#include <troupe/test/tools/cancelled_op.hpp>
#include <troupe/test/tools/own_op.hpp>
#include <troupe/troupe.hpp>

using namespace troupe;

namespace {

/// How many firings there were before, and in which process.
struct Counter final : NodeActor {
  std::int64_t n = 0;
  void receive(std::span<const Tensor>, std::span<Tensor> out) override {
    out[0] = Tensor::scalar(n++);
    out[1] = Tensor::scalar<std::int64_t>(getpid());
  }
};

}  // namespace

int main(int argc, char** argv) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, nullptr);  // before there are threads, which inherit it
  register_actor("own counter", [] { return std::make_unique<Counter>(); });
  NodeOptions options;
  options.name = argc > 1 ? argv[1] : "own";
  if (argc > 2) options.join = {argv[2]};
  options.engine.workers = 2;  // so that it can be asked what a kernel has seen that does not end
  const bool repeats = argc > 3 && std::string_view(argv[3]) == "repeats";
  test::Repeater repeater(1);
  options.transport = [&](PeerInfo self) -> std::unique_ptr<Transport> {
    self.address = "tcp://127.0.0.1:0";
    auto transport = make_zeromq_transport(std::move(self));
    if (!repeats) return transport;
    return std::make_unique<test::FaultyTransport>(std::move(transport), std::ref(repeater));
  };
  const ClusterNode here(std::move(options));
  std::printf("node '%s' at %s\n", here.name().c_str(), here.address().c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&ends, &signal);
  return 0;
}
