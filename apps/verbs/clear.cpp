// troupe clear: drops a container, which programs keep on nodes of a cluster.
#include <troupe/apps/verbs/verbs.hpp>

#include <chrono>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/apps/verbs/terminal.hpp>
#include <troupe/cluster/node/node.hpp>

namespace troupe::verbs {

int clear(const ClearFlags& flags) {
  if (flags.container.empty())
    throw Misuse(
        "name a container (NodeOptions::container); states without one end with their program");
  Cleared done;
  as_guest("clear", flags.guest, [&](ClusterNode& here) {
    here.wait_for(flags.on, std::chrono::seconds(flags.guest.patience));
    done = here.clear_container(flags.container, flags.on);
  });
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
