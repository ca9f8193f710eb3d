// troupe clear: drops what programs keep in a container, on nodes of a cluster. It is a node of that cluster for as long as this takes, so that
// who may connect may clear, and nobody else: what a node serves over HTTP only reads.
#include <troupe/apps/verbs/verbs.hpp>

#include <chrono>

#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/apps/verbs/terminal.hpp>
#include <troupe/cluster/discovery.hpp>
#include <troupe/cluster/keys.hpp>
#include <troupe/cluster/node.hpp>
#include <troupe/cluster/zeromq.hpp>

namespace troupe::verbs {

int clear(const ClearFlags& flags) {
  if (flags.container.empty()) throw Misuse("name a container, as programs do (NodeOptions::container); what they keep without one goes with them");
  NodeOptions options;
  ZeroMqOptions tcp;
  try {
    if (!flags.keys.empty()) tcp.keys = read_keys(flags.keys);
    for (const std::string& address : flags.join) options.join.push_back(full_address(address));
  } catch (const Error& error) {
    throw Misuse(error.what());
  }
  options.name = fmt::format("clear-{}-{}", host_name(), ::getpid());  // no node's, which it would take the place of
  options.engine.workers = 1;
  options.transport = [&](PeerInfo self) { return make_zeromq_transport(std::move(self), tcp); };  // it listens nowhere
  const auto patience = std::chrono::seconds(flags.patience);
  std::size_t dropped = 0;
  try {
    ClusterNode here(std::move(options));
    here.wait_joined(patience);
    here.wait_for(flags.on, patience);
    dropped = here.clear_container(flags.container, flags.on);
  } catch (const Error& error) {
    throw std::runtime_error(printable(error.what()));  // peers have a say in it
  }
  fmt::print("{} state{} of container '{}' dropped on {}\n", dropped, dropped == 1 ? "" : "s", printable(flags.container), printable(fmt::format("{}", fmt::join(flags.on, ", "))));
  return 0;
}

}  // namespace troupe::verbs
