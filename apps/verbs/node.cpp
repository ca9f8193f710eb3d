// troupe node: this machine as a node of a cluster, until SIGTERM or SIGINT.
#include <troupe/apps/verbs/verbs.hpp>

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include <unistd.h>

#include <troupe/cluster/discovery.hpp>
#include <troupe/cluster/node.hpp>
#include <troupe/cluster/zeromq.hpp>

namespace troupe::verbs {

namespace {

std::string host_name() {
  char name[256] = "node";
  gethostname(name, sizeof name - 1);
  return name;
}

// From here on these signals wait for `sigwait`, in threads that are started later too.
sigset_t block_endings() {
  sigset_t endings;
  sigemptyset(&endings);
  sigaddset(&endings, SIGTERM);
  sigaddset(&endings, SIGINT);
  pthread_sigmask(SIG_BLOCK, &endings, nullptr);
  return endings;
}

void demand_address(const std::string& address, const char* flag) {
  if (!address.starts_with("tcp://") || address.rfind(':') <= 5) throw Misuse(fmt::format("{} takes an address such as tcp://127.0.0.1:7117, not '{}'", flag, address));
}

}  // namespace

int node(const NodeFlags& flags) {
  demand_address(flags.listen, "--listen");
  NodeOptions options;
  ZeroMqOptions tcp;
  tcp.log = [](const std::string& line) { fmt::print(stderr, "troupe: {}\n", line); };
  try {
    if (!flags.keys.empty()) tcp.keys = read_keys(flags.keys);
    const Discovery found = discover(environment_of_process());
    options.name = !flags.name.empty() ? flags.name : !found.name.empty() ? found.name : host_name();
    for (const std::string& address : flags.join) options.join.push_back(full_address(address));
    if (!flags.peers.empty())
      for (const std::string& address : read_peer_list(flags.peers))
        if (address != flags.listen) options.join.push_back(address);
    if (flags.join.empty() && flags.peers.empty()) options.join = found.join;
  } catch (const Error& error) {
    throw Misuse(error.what());
  }
  const sigset_t endings = block_endings();
  options.engine.workers = flags.workers;
  options.transport = [&](PeerInfo self) {
    self.address = flags.listen;
    return make_zeromq_transport(std::move(self), tcp);
  };
  std::unique_ptr<ClusterNode> here;
  try {
    here = std::make_unique<ClusterNode>(std::move(options));
    here->wait_joined(std::chrono::seconds(flags.patience));
  } catch (const Error& error) {
    if (error.code() != Code::invalid_argument && error.code() != Code::unavailable && error.code() != Code::failed_precondition) throw;
    throw Misuse(error.what());
  }
  fmt::print("node '{}' listens at {}\n", here->name(), here->address());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&endings, &signal);
  fmt::print("node '{}' leaves\n", here->name());
  return 0;
}

}  // namespace troupe::verbs
