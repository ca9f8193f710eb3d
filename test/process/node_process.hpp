// `troupe node` as a process, for tests.
#pragma once

#include <csignal>
#include <map>
#include <string>
#include <vector>

#include <troupe/cluster/transport/net/keys.hpp>
#include <troupe/test/support/process.hpp>

namespace troupe::test {

inline std::string binary() {
  return (fs::canonical("/proc/self/exe").parent_path().parent_path() / "troupe").string();
}

/// Folders of keys of nodes that have each authorized all others.
class KeyFolders {
 public:
  explicit KeyFolders(const std::vector<std::string>& names) {
    std::map<std::string, std::string> open;
    for (const std::string& n : names) open[n] = make_keys(folder_ / n, n).public_key;
    for (const std::string& n : names)
      for (const auto& [other, key] : open) authorize(folder_ / n, key, other);
  }
  std::string operator[](const std::string& name) const { return folder_ / name; }

 private:
  Folder folder_;
};

/// While it lives a write to a connection that is closed is an error, as httplib's clients take it
/// to be, and no signal; the library's own writes ask for that each, so that programs without this
/// are not ended either.
class NoSigpipe {
 public:
  NoSigpipe() : before_(std::signal(SIGPIPE, SIG_IGN)) {}
  ~NoSigpipe() { std::signal(SIGPIPE, before_); }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  void (*before_)(int);
};

/// A node that listens. `before`: a command that starts it.
struct NodeProcess {
  NodeProcess(const Folder& folder, const std::string& name, std::vector<std::string> more = {},
              const std::string& listen = "tcp://127.0.0.1:0", std::vector<std::string> before = {})
      : process(folder.path(), arguments(name, std::move(more), listen, std::move(before))) {
    BOOST_REQUIRE(process.read_until("\n"));
    const std::string line = process.seen().substr(0, process.seen().find('\n'));
    address = line.substr(line.find("tcp://"));
    address = address.substr(0, address.find(' '));
  }
  static std::vector<std::string> arguments(const std::string& name, std::vector<std::string> more,
                                            const std::string& listen,
                                            std::vector<std::string> all) {
    all.insert(all.end(), {binary(), "node", "--listen", listen, "--name", name, "--workers", "1"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Process process;
  std::string address;
};

}  // namespace troupe::test
