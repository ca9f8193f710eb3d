// The node that a verb is for as long as it takes: a key that may connect may ask, and no other.
// The HTTP server of a node only reads.
#include <troupe/apps/verbs/verbs.hpp>

#include <chrono>
#include <utility>

#include <unistd.h>

#include <fmt/format.h>

#include <troupe/apps/verbs/terminal.hpp>
#include <troupe/cluster/membership/discovery.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/net/keys.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>

namespace troupe::verbs {
namespace {

NodeOptions guest_options(const std::string& verb, const GuestFlags& flags) {
  NodeOptions options;
  ZeroMqOptions tcp;
  try {
    if (!flags.keys.empty()) tcp.keys = read_keys(flags.keys);
    for (const std::string& address : flags.join) options.join.push_back(full_address(address));
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

}  // namespace

void as_guest(const std::string& verb, const GuestFlags& flags,
              const std::function<void(ClusterNode& here)>& use) {
  NodeOptions options = guest_options(verb, flags);
  try {
    ClusterNode here(std::move(options));
    here.wait_joined(std::chrono::seconds(flags.patience));
    use(here);
  } catch (const Error& error) {
    if (error.code() == Code::invalid_argument) throw Misuse(printable(error.what()));
    throw std::runtime_error(printable(error.what()));  // peers contribute to the text
  }
}

}  // namespace troupe::verbs
