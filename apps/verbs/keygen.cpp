#include <troupe/apps/verbs/verbs.hpp>

#include <fmt/format.h>

#include <troupe/cluster/transport/net/keys.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe::verbs {

int keygen(const KeygenOptions& options) {
  std::string name = options.name;
  if (name.empty() && is_key(options.authorize))
    throw Misuse(
        "name the owner of the key: --name, the node's own name ('troupe keygen' on that node "
        "prints it)");
  if (name.empty()) name = host_name();
  try {
    if (options.authorize.empty()) {
      const KeyPair own = make_keys(options.folder, name);
      fmt::print("{} {}\n", own.public_key, name);
      fmt::print(stderr,
                 "the key of {} is in {}; on each node it is to reach: troupe keygen --authorize "
                 "'{}' --name {}\n",
                 name, options.folder, own.public_key, name);
    } else {
      authorize(options.folder, options.authorize, name);
      fmt::print("{} may connect to nodes that use {}\n", name, options.folder);
    }
  } catch (const Error& e) { throw Misuse(e.what()); }
  return 0;
}

}  // namespace troupe::verbs
