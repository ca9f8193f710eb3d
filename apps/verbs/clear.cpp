// troupe clear: drops a container, which programs keep on nodes of a cluster. The verb is a node of
// that cluster for as long as this takes, so that only peers that may connect may clear: a node's
// HTTP interface only reads.
#include <troupe/apps/verbs/verbs.hpp>

#include <chrono>

#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/apps/verbs/terminal.hpp>
#include <troupe/cluster/membership/discovery.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/net/keys.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>

namespace troupe::verbs {

int clear(const ClearFlags& flags) {
  if (flags.container.empty())
    throw Misuse(
        "name a container (NodeOptions::container); states without one end with their program");
  NodeOptions options = guest_options("clear", flags.join, flags.keys);
  const auto patience = std::chrono::seconds(flags.patience);
  Cleared done;
  try {
    ClusterNode here(std::move(options));
    here.wait_joined(patience);
    here.wait_for(flags.on, patience);
    done = here.clear_container(flags.container, flags.on);
  } catch (const Error& error) {
    throw std::runtime_error(printable(error.what()));  // peers contribute to the text
  }
  fmt::print("{} state{} of container '{}' dropped on {}\n", done.states,
             done.states == 1 ? "" : "s", printable(flags.container),
             printable(fmt::format("{}", fmt::join(flags.on, ", "))));
  if (done.kept.empty()) return 0;
  throw std::runtime_error(
      printable(fmt::format("{} keep{} container '{}' as {} own, which only a program there clears "
                            "(ClusterNode::clear_container)",
                            fmt::join(done.kept, ", "), done.kept.size() == 1 ? "s" : "",
                            flags.container, done.kept.size() == 1 ? "its" : "their")));
}

}  // namespace troupe::verbs
