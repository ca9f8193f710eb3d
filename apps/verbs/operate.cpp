// troupe cancel, troupe drain: an operator's wishes to a running cluster. Each is a node of that
// cluster for as long as this takes: a key that may connect may ask, and no other. The HTTP server
// of a node only reads.
#include <troupe/apps/verbs/verbs.hpp>

#include <chrono>
#include <functional>

#include <unistd.h>

#include <fmt/format.h>

#include <troupe/apps/verbs/terminal.hpp>
#include <troupe/cluster/membership/discovery.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/net/keys.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>

namespace troupe::verbs {

NodeOptions guest_options(const std::string& verb, const std::vector<std::string>& join,
                          const std::string& keys) {
  NodeOptions options;
  ZeroMqOptions tcp;
  try {
    if (!keys.empty()) tcp.keys = read_keys(keys);
    for (const std::string& address : join) options.join.push_back(full_address(address));
    if (options.join.empty()) options.join = joined_by(environment_of_process());
    if (options.join.empty()) options.join = {full_address("127.0.0.1")};
  } catch (const Error& error) { throw Misuse(error.what()); }
  // another node's name would be refused
  options.name = fmt::format("{}-{}-{}", verb, host_name(), ::getpid());
  options.labels = "placement=named";  // no program is to go here meanwhile
  options.engine.workers = 1;
  // it listens nowhere
  options.transport = [tcp](PeerInfo self) { return make_zeromq_transport(std::move(self), tcp); };
  return options;
}

namespace {

void in_cluster(const char* verb, const OperateFlags& flags,
                const std::function<void(ClusterNode&)>& ask) {
  NodeOptions options = guest_options(verb, flags.join, flags.keys);
  try {
    ClusterNode here(std::move(options));
    here.wait_joined(std::chrono::seconds(flags.patience));
    ask(here);
  } catch (const Error& error) {
    if (error.code() == Code::invalid_argument) throw Misuse(printable(error.what()));
    throw std::runtime_error(printable(error.what()));  // peers contribute to the text
  }
}

}  // namespace

int cancel(const OperateFlags& flags) {
  const auto slash = flags.what.rfind('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == flags.what.size() ||
      flags.what.find_first_not_of("0123456789", slash + 1) != std::string::npos)
    throw Misuse(printable(fmt::format(
        "'{}' is no run: a run is NODE/NUMBER, as 'troupe ps' lists them", flags.what)));
  in_cluster("cancel", flags, [&](ClusterNode& here) { here.cancel_run(flags.what); });
  fmt::print("run {} is cancelled\n", printable(flags.what));
  return 0;
}

int drain(const OperateFlags& flags) {
  std::size_t runs = 0;
  in_cluster("drain", flags, [&](ClusterNode& here) { runs = here.drain(flags.what); });
  fmt::print(
      "node '{}' takes no new partitions, and exits when its runs have ended: {} under way\n",
      printable(flags.what), runs);
  return 0;
}

}  // namespace troupe::verbs
