// `troupe node` as a process, for tests.
#pragma once

#include <string>
#include <vector>

#include <troupe/test/examples/process.hpp>

namespace troupe::test {

inline std::string binary() { return (fs::canonical("/proc/self/exe").parent_path().parent_path() / "troupe").string(); }

/// A node that listens.
struct NodeProcess {
  NodeProcess(const Folder& folder, const std::string& name, std::vector<std::string> more = {}) : process(folder.path(), arguments(name, std::move(more))) {
    BOOST_REQUIRE(process.read_until("\n"));
    const std::string line = process.seen().substr(0, process.seen().find('\n'));
    address = line.substr(line.find("tcp://"));
    address = address.substr(0, address.find(' '));
  }
  static std::vector<std::string> arguments(const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> all{binary(), "node", "--listen", "tcp://127.0.0.1:0", "--name", name, "--workers", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Process process;
  std::string address;
};

}  // namespace troupe::test
