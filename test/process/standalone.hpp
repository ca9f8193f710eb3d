// `troupe node --standalone 3` as processes, for tests.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <troupe/test/process/node_process.hpp>

namespace troupe::test {

/// The processes whose parent is this one.
inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> all;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string text;
    std::getline(file, text);
    const auto close = text.rfind(')');
    if (close == std::string::npos) continue;
    std::istringstream rest(text.substr(close + 2));
    char state = 0;
    pid_t of = 0;
    rest >> state >> of;
    if (of == parent && state != 'Z') all.push_back(static_cast<pid_t>(std::stol(text)));
  }
  return all;
}

/// A cluster of three processes, with the one that watches over them.
struct Standalone {
  Standalone() {
    BOOST_REQUIRE(process.read_until("3 nodes in this cluster\n"));
    nodes = children_of(process.pid());
    BOOST_REQUIRE(nodes.size() == 3u);
  }
  /// The addresses of the nodes, in the order in which they printed them.
  std::vector<std::string> addresses() const {
    std::vector<std::string> all;
    const std::string& said = process.seen();
    for (std::size_t at = said.find("tcp://"); at != std::string::npos;
         at = said.find("tcp://", at + 1))
      all.push_back(said.substr(at, said.find_first_of(" \n", at) - at));
    return all;
  }
  Folder folder;
  Process process{folder.path(), {binary(), "node", "--standalone", "3", "--workers", "1"}};
  std::vector<pid_t> nodes;
};

}  // namespace troupe::test
