// Not under tsan: its processes run on ZeroMQ, which is not instrumented.
// `troupe node --keys` as processes: admitted nodes, the errors of refused ones, and the results of
// a scan of its ports.
#include <boost/test/unit_test.hpp>

#include <sys/resource.h>
#include <sys/stat.h>

#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/net/keys.hpp>
#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/test/process/client.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/test/process/scan.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(keyed_nodes_test)

namespace {

/// Limits descriptors, for this process and those that it starts; 0: no limit.
void limit_descriptors(rlim_t most) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = most == 0 ? files.rlim_max : most;
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

BOOST_AUTO_TEST_CASE(three_processes_with_keys, *boost::unit_test::label("stock_zmq")) {
  const KeyFolders keys({"a", "b", "c"});
  Folder folder_b, folder_c;
  NodeProcess b(folder_b, "b", {"--keys", keys["b"]}),
      c(folder_c, "c", {"--keys", keys["c"], "--join", b.address});
  auto a = client("a", c.address, read_keys(keys["a"]));
  a->wait_for({"b", "c"}, std::chrono::seconds(60));
  BOOST_TEST(sum_on(*a, "b") == 8);
  BOOST_TEST(sum_on(*a, "c") == 8);
  for (NodeProcess* p : {&b, &c}) {
    p->process.interrupt(SIGTERM);
    const Outcome left = p->process.finish();
    BOOST_TEST(left.code == 0, left.error);
  }
}

BOOST_AUTO_TEST_CASE(a_refused_node_gets_a_remedy, *boost::unit_test::label("stock_zmq")) {
  const KeyFolders keys({"a", "b"}), others({"c"});
  authorize(others["c"], read_keys(keys["b"]).own.public_key, "b");
  const std::string key_of_c = read_keys(others["c"]).own.public_key;
  Folder folder_b, folder;
  NodeProcess b(folder_b, "b", {"--keys", keys["b"]});
  const auto refused = [&](std::vector<std::string> more, int code = 1) {
    std::vector<std::string> all{binary(), "node", "--workers", "1", "--patience", "0"};
    const auto otherwise = [&](const char* flag, const char* value) {
      if (std::find(more.begin(), more.end(), flag) == more.end())
        all.insert(all.end(), {flag, value});
    };
    otherwise("--name", "c");
    otherwise("--listen", "tcp://127.0.0.1:0");
    all.insert(all.end(), more.begin(), more.end());
    const Outcome o = run(folder.path(), all);
    BOOST_TEST(o.code == code, o.error);
    return o.error;
  };
  const std::string no_keys = refused({"--join", b.address});
  BOOST_TEST(has(no_keys, "start this one with --keys"), no_keys);
  const std::string not_authorized = refused({"--join", b.address, "--keys", others["c"]});
  BOOST_TEST(has(not_authorized, "troupe keygen --authorize '" + key_of_c + "' --name c"),
             not_authorized);
  const std::string name_of_a = refused({"--join", b.address, "--keys", keys["b"], "--name", "a"});
  BOOST_TEST(has(name_of_a, "the name a belongs to another key"), name_of_a);
  const std::string no_folder = refused({"--keys", folder / "none"}, 2);
  BOOST_TEST(has(no_folder, "'troupe keygen --keys " + (folder / "none") + "' makes one"),
             no_folder);
  const std::string remote = refused({"--listen", "tcp://0.0.0.0:0"}, 2);
  BOOST_TEST(has(remote, "without keys nothing is encrypted"), remote);
  const std::string to_remote = refused({"--join", "tcp://192.0.2.1:7117"}, 2);
  BOOST_TEST(has(to_remote, "without keys nothing is encrypted"), to_remote);
  chmod((others["c"] + "/node.key").c_str(), 0644);
  const std::string open = refused({"--join", b.address, "--keys", others["c"]}, 2);
  BOOST_TEST(has(open, "chmod 600"), open);
  chmod((others["c"] + "/node.key").c_str(), 0600);
  // Another user that can write to one of these is in.
  for (const std::string& path : {others["c"] + "/authorized", others["c"]}) {
    struct ::stat before {};
    BOOST_REQUIRE(::stat(path.c_str(), &before) == 0);
    for (const ::mode_t others_write : {0020u, 0002u}) {
      chmod(path.c_str(), (before.st_mode & 07777) | others_write);
      const std::string why = refused({"--join", b.address, "--keys", others["c"]}, 2);
      BOOST_TEST(has(why, "others can write to the "), why);
      BOOST_TEST(has(why, "'chmod go-w " + path + "'"), why);
    }
    chmod(path.c_str(), before.st_mode & 07777);
  }
  const std::string token = folder / "token";
  write_file(token, "sixteen characters and more");
  chmod(token.c_str(), 0620);
  const std::string of_token = refused({"--http", "0", "--http-token-file", token}, 2);
  BOOST_TEST(has(of_token, "'chmod go-w " + token + "'"), of_token);
  b.process.interrupt(SIGTERM);
  const Outcome left = b.process.finish();
  BOOST_TEST(left.code == 0, left.error);
  // b tells of the one key that it has turned away, once.
  const std::string told = "was turned away: its key ";
  BOOST_TEST(has(left.error, told + key_of_c + " is not authorized here"), left.error);
  BOOST_TEST(left.error.find(told) == left.error.rfind(told), left.error);
}

// One with an empty part, about which no server is asked, so that none has to answer here.
BOOST_AUTO_TEST_CASE(a_name_that_does_not_resolve_is_named, *boost::unit_test::label("stock_zmq")) {
  const KeyFolders keys({"a"});
  const std::string why = "tcp://nobody..here:7117: the name nobody..here does not resolve (";
  for (const bool has_keys : {false, true}) {
    Folder folder;
    const auto line = [&](const char* patience, std::vector<std::string> more = {}) {
      std::vector<std::string> all{binary(), "node", "--listen",  "tcp://127.0.0.1:0",
                                   "--name", "a",    "--workers", "1"};
      all.insert(all.end(), {"--join", "nobody..here", "--patience", patience});
      if (has_keys) all.insert(all.end(), {"--keys", keys["a"]});
      all.insert(all.end(), more.begin(), more.end());
      return all;
    };
    const Outcome at_once = run(folder.path(), line("0"));
    BOOST_TEST(at_once.code == 1);
    BOOST_TEST(has(at_once.error, "no node could be joined: " + why), at_once.error);
    // The name may be resolvable later: a node that is to wait names the reason, and waits.
    Process waiting(folder.path(), line("600"));
    for (int ms = 0; ms < 60'000 && !has(read_file(folder / ".stderr"), "\n"); ++ms) usleep(1000);
    waiting.interrupt(SIGTERM);
    const Outcome ended = waiting.finish();
    BOOST_TEST(ended.code == 0);
    BOOST_TEST(has(ended.error, "no node could be joined yet: " + why), ended.error);
    // Other nodes can be asked: no wait is in vain, and each is accounted for.
    const Outcome two = run(folder.path(), line("0", {"--join", "127.0.0.1:1"}));
    BOOST_TEST(two.code == 1);
    BOOST_TEST(has(two.error, why), two.error);
    auto a = client("a", "nobody..here:7117",
                    has_keys ? std::optional(read_keys(keys["a"])) : std::nullopt);
    const std::string in_vain =
        refusal([&] { a->wait_for({"b"}, std::chrono::milliseconds(1)); }, Code::deadline_exceeded);
    BOOST_TEST(has(in_vain, "timed out waiting for b; " + why), in_vain);
  }
}

BOOST_AUTO_TEST_CASE(a_scan_of_its_ports_obtains_nothing_and_runs_nothing,
                     *boost::unit_test::label("stock_zmq")) {
  limit_descriptors(0);
  for (const bool has_keys : {true, false}) {
    const KeyFolders keys({"a", "scanned"});
    Folder folder;
    NodeProcess node(folder, "scanned",
                     has_keys ? std::vector<std::string>{"--keys", keys["scanned"]}
                              : std::vector<std::string>{});
    auto a =
        client("a", node.address, has_keys ? std::optional(read_keys(keys["a"])) : std::nullopt);
    a->wait_for({"scanned"}, std::chrono::seconds(60));
    std::vector<OwnedDescriptor> left_open;
    scan(node.process.pid(), port_of(node.address), "scanned", has_keys, left_open);
    BOOST_TEST(made_on(*a, "scanned") == 0u, "plans or runs");
    // With all of them still there: connected nodes work on, and a node with a key is admitted.
    BOOST_TEST(sum_on(*a, "scanned") == 8);
    BOOST_TEST(made_on(*a, "scanned") > 0u);
    BOOST_TEST((a->nodes() == std::vector<std::string>{"a", "scanned"}));
    a.reset();
    a = client("a", node.address, has_keys ? std::optional(read_keys(keys["a"])) : std::nullopt);
    a->wait_for({"scanned"}, std::chrono::seconds(60));
    BOOST_TEST(sum_on(*a, "scanned") == 8);
    left_open.clear();
    node.process.interrupt(SIGTERM);
    const Outcome left = node.process.finish();
    BOOST_TEST(left.code == 0, left.error);
    BOOST_TEST(has(left.error, "ended in their handshake"), left.error);
  }
}

BOOST_AUTO_TEST_CASE(connected_nodes_work_on_while_strangers_take_all_descriptors,
                     *boost::unit_test::label("stock_zmq")) {
  const KeyFolders keys({"a", "b"});
  Folder folder;
  limit_descriptors(100);
  NodeProcess node(folder, "b", {"--keys", keys["b"]});
  limit_descriptors(0);
  const auto used = [&] {
    return std::distance(
        fs::directory_iterator("/proc/" + std::to_string(node.process.pid()) + "/fd"),
        fs::directory_iterator());
  };
  auto a = client("a", node.address, read_keys(keys["a"]));
  a->wait_for({"b"}, std::chrono::seconds(60));
  BOOST_TEST(sum_on(*a, "b") == 8);  // all that a connection needs is there
  std::vector<OwnedDescriptor> left_open;
  // It hangs up on them after a while, so more come until none is free.
  std::ptrdiff_t most = 0;
  for (int round = 0; round < 50 && most < 100; ++round) {
    for (int i = 0; i < 100; ++i) left_open.push_back(connected_to(port_of(node.address)));
    most = std::max(most, used());
  }
  BOOST_TEST(most >= 100);
  BOOST_TEST(sum_on(*a, "b") == 8);
  left_open.clear();
  a.reset();
  a = client("a", node.address, read_keys(keys["a"]));
  a->wait_joined(std::chrono::seconds(60));
  BOOST_TEST(sum_on(*a, "b") == 8);
  node.process.interrupt(SIGTERM);
  const Outcome left = node.process.finish();
  BOOST_TEST(left.code == 0, left.error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
