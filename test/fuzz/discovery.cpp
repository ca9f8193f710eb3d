// libFuzzer: what an environment and a list of peers say, and addresses that other nodes tell. The
// first byte says what it is. Instruments: cluster/membership/discovery.cpp
// cluster/transport/net/tcp_socket.cpp
#include <map>
#include <sstream>

#include <troupe/cluster/membership/discovery.hpp>
#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/test/fuzz/input.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

// Lines of NAME=VALUE.
Environment environment_of(const std::string& text) {
  std::map<std::string, std::string> variables;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (const auto equal = line.find('='); equal != std::string::npos)
      variables[line.substr(0, equal)] = line.substr(equal + 1);
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() || found->second.empty() ? std::nullopt
                                                             : std::optional(found->second);
  };
}

void check_full(const std::string& text) {
  const std::string full = full_address(text);
  if (full.starts_with("tcp://") && full_address(full) != full) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const std::string zero(1, '\0');
  seed(zero + "gpu[01-03,7],login,a[1-2]b[3-4]");
  seed("\1worker1:7117");
  seed("\1tcp://[::1]:7117");
  seed("\2# peers\nworker1\ntcp://10.0.0.7:7117 # the second\n");
  seed("\3SLURM_PROCID=3\nSLURM_STEP_NODELIST=gpu[01-03]\nSLURM_JOB_NAME=train\n");
  seed("\3OMPI_COMM_WORLD_RANK=1\nTROUPE_JOIN=a:1, b\nTROUPE_NAME=x\n");
  seed("\3KUBERNETES_SERVICE_HOST=10.0.0.1\nHOSTNAME=worker-2\nTROUPE_SERVICE=troupe\n");
  seed("\3PMI_RANK=4\n");
  seed("\4tcp://0.0.0.0:7117");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  Input in(data, size);
  const unsigned what = in.next() % 5;
  const std::string text = in.rest();
  std::istringstream lines(text);
  try {
    switch (what) {
      case 0:
        for (const std::string& host : expand_hosts(text))
          if (host.empty()) std::abort();
        break;
      case 1: check_full(text); break;
      case 2:
        for (const std::string& address : parse_peer_list(lines, "peers")) check_full(address);
        break;
      case 3: discover(environment_of(text)); break;
      default:
        if (is_any_host(text)) with_host(text, "::1");
        check_address(text);
        if (host_of(text).empty()) std::abort();
    }
  } catch (const Error&) {}
  return 0;
}
