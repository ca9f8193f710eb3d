// troupe cancel, troupe drain: an operator's wishes to a running cluster.
#include <troupe/apps/verbs/verbs.hpp>

#include <fmt/format.h>

#include <troupe/apps/verbs/terminal.hpp>
#include <troupe/cluster/node/node.hpp>

namespace troupe::verbs {

int cancel(const OperateFlags& flags) {
  const auto slash = flags.what.rfind('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == flags.what.size() ||
      flags.what.find_first_not_of("0123456789", slash + 1) != std::string::npos)
    throw Misuse(printable(fmt::format(
        "'{}' is no run: a run is NODE/NUMBER, as 'troupe ps' lists them", flags.what)));
  as_guest("cancel", flags.guest, [&](ClusterNode& here) { here.cancel_run(flags.what); });
  fmt::print("run {} is cancelled\n", printable(flags.what));
  return 0;
}

int drain(const OperateFlags& flags) {
  std::size_t runs = 0;
  as_guest("drain", flags.guest, [&](ClusterNode& here) { runs = here.drain(flags.what); });
  fmt::print(
      "node '{}' takes no new partitions, and exits when its runs have ended: {} under way\n",
      printable(flags.what), runs);
  return 0;
}

}  // namespace troupe::verbs
