// `troupe node --keys` as processes: who gets in, what those are told who do not, and what a scan of its ports brings to light.
#include <boost/test/unit_test.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include <troupe/cluster/keys.hpp>
#include <troupe/cluster/node.hpp>
#include <troupe/cluster/tcp_socket.hpp>
#include <troupe/cluster/zeromq.hpp>
#include <troupe/test/apps/node_process.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(keyed_nodes_test)

namespace {

using namespace std::string_literals;

bool contains(const std::string& all, const std::string& part) { return all.find(part) != std::string::npos; }

std::unique_ptr<ClusterNode> client(const std::string& name, const std::string& join, std::optional<Keys> keys) {
  NodeOptions o;
  o.name = name;
  o.join = {join};
  o.engine.workers = 1;
  o.membership.period *= 10;  // processes under load, on a real clock
  o.membership.timeout *= 10;
  o.transport = [&](PeerInfo self) {
    self.address = "tcp://127.0.0.1:0";
    ZeroMqOptions options;
    options.keys = keys;
    return make_zeromq_transport(std::move(self), options);
  };
  return std::make_unique<ClusterNode>(std::move(o));
}

/// How many plans that node has, and runs that are under way or over.
std::size_t made_on(const ClusterNode& a, const std::string& name) {
  const ClusterReport report = a.inspect({}, std::chrono::seconds(60), name);
  BOOST_REQUIRE(report.size() == 1u);
  BOOST_REQUIRE_MESSAGE(report[0].has_answered, report[0].why);
  const EngineSnapshot& engine = report[0].report.engine;
  return engine.plans.size() + engine.runs.size() + engine.recent.size() + engine.errors.size();
}

double sum_on(ClusterNode& here, const std::string& node) {
  Graph g;
  Expr y;
  {
    auto there = g.on_device("/node:" + node + "/cpu:0");
    y = matmul(g.ones(DType::f32, {8, 8}), g.ones(DType::f32, {8, 8}));
  }
  return here.engine().run(g, {}, {y})[0].at(0);
}

// ---- a scan

sockaddr_in loopback(int port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return to;
}

OwnedDescriptor connected_to(int port) {
  const sockaddr_in to = loopback(port);
  sockaddr generic;
  std::memcpy(&generic, &to, sizeof generic);
  OwnedDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  BOOST_REQUIRE(fd.get() >= 0);
  BOOST_REQUIRE(connect(fd.get(), &generic, sizeof to) == 0);
  return fd;
}

/// All that comes back until the other end hangs up, which it does when we have nothing more to say; we wait for `first`
/// bytes before we say that.
std::string probe(int port, const std::string& say, std::size_t first) {
  const OwnedDescriptor fd = connected_to(port);
  [[maybe_unused]] const auto sent = send(fd.get(), say.data(), say.size(), MSG_NOSIGNAL);
  std::string got;
  if (first == 0) shutdown(fd.get(), SHUT_WR);
  char block[4096];
  for (;;) {
    pollfd readable{fd.get(), POLLIN, 0};
    BOOST_REQUIRE(poll(&readable, 1, 100'000) == 1);
    const ssize_t n = ::read(fd.get(), block, sizeof block);
    if (n <= 0) return got;
    got.append(block, static_cast<std::size_t>(n));
    if (got.size() >= first) shutdown(fd.get(), SHUT_WR);
  }
}

/// Ports on which a process listens, whatever the address.
std::set<int> ports_of(pid_t pid) {
  std::set<std::string> sockets;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    std::error_code gone;
    sockets.insert(fs::read_symlink(entry.path(), gone).string());
  }
  std::set<int> ports;
  for (const char* table : {"/net/tcp", "/net/tcp6", "/net/udp", "/net/udp6"}) {
    std::ifstream file("/proc/" + std::to_string(pid) + table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string w[10];
      for (std::string& word : w) words >> word;
      const bool waits = w[3] == "0A" || contains(table, "udp");
      if (waits && sockets.contains("socket:[" + w[9] + "]")) ports.insert(std::stoi(w[1].substr(w[1].rfind(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

std::string greeting(const std::string& mechanism, char minor = 0) {
  std::string g = "\xff\0\0\0\0\0\0\0\1\x7f\x03"s + minor + mechanism;
  return g + std::string(64 - g.size(), '\0');
}

std::string framed(char flags, const std::string& body) { return {flags + std::string(1, static_cast<char>(body.size())) + body}; }

const std::string kReadyDealer = framed(4, "\5READY\x0bSocket-Type\0\0\0\6DEALER\x08Identity\0\0\0\0"s);
const std::string kReadyRouter = framed(4, "\5READY\x0bSocket-Type\0\0\0\6ROUTER\x08Identity\0\0\0\0"s);

/// What scanners say, and what somebody says who knows ZeroMQ.
std::vector<std::string> phrases() {
  std::minstd_rand random(7);
  std::string noise(65536, '\0');
  for (char& c : noise) c = static_cast<char>(random() >> 8);
  const std::string message = framed(0, "\x96\5\1\0\0\0\x90");  // Data from nowhere
  return {"",
          "\r\n",
          "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
          "SSH-2.0-scan\r\n",
          "\x16\x03\x01\0\xa5\1\0\0\xa1\x03\x03"s,
          "*1\r\n$4\r\nINFO\r\n",
          std::string(4096, '\0'),
          std::string(4096, '\xff'),
          noise,
          "\xff\0\0\0\0\0\0\0\1\x7f"s,
          "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x03",
          greeting("NULL"),
          greeting("PLAIN"),
          greeting("GSSAPI"),
          greeting("CURVE"),
          greeting("NULL") + kReadyDealer + message,
          greeting("NULL", 1) + kReadyDealer + message,
          greeting("PLAIN") + framed(4, "\5HELLO\1a\1b"),
          greeting("CURVE") + framed(4, "\5HELLO\1\0"s + std::string(192, 'x')),
          greeting("CURVE") + kReadyDealer + message,
          greeting("CURVE") + "\6\0\0\0\0\x7f\xff\xff\xff"s + std::string(1000, 'x'),  // a command of 2 GiB
          "\1\0\1\x06stolen"s,                                                          // ZMTP 1.0
          "\xff\0\0\0\0\0\0\0\1\x7f\1\5\0\0\0\6\x93\5\1\1\1\1"s,                        // ZMTP 2.0
          "\1\0"s + std::string(100, '\2')};
}

int port_of(const NodeProcess& node) { return std::stoi(node.address.substr(node.address.rfind(':') + 1)); }

/// Scans every port of a node and leaves connections open on each; what came back is a greeting of ZeroMQ, or nothing. The
/// one for large payload says nothing to whoever has no ticket.
void scan(NodeProcess& node, const std::string& name, bool has_keys, std::vector<OwnedDescriptor>& left_open) {
  std::set<int> ports = ports_of(node.process.pid());
  const int port = port_of(node);
  BOOST_REQUIRE(ports.erase(port) == 1u);
  BOOST_REQUIRE(ports.size() == 1u);
  const int bulk = *ports.begin();
  for (const std::string& phrase : phrases()) BOOST_TEST(probe(bulk, phrase, 0).empty());
  for (int i = 0; i < 300; ++i) left_open.push_back(connected_to(bulk));
  const std::string ours = greeting(has_keys ? "CURVE" : "NULL", 1);
  std::size_t probes = 0, bytes = 0, longest = 0;
  for (const std::string& phrase : phrases()) {
    const std::string got = probe(port, phrase, phrase.starts_with(greeting(has_keys ? "CURVE" : "NULL")) ? ours.size() : 0);
    ++probes;
    bytes += got.size();
    longest = std::max(longest, got.size());
    BOOST_TEST(!contains(got, name));
    BOOST_TEST(!contains(got, std::string(engine_version())));
    std::string rest = got.substr(std::min(got.size(), ours.size()));
    // The eleventh byte says the version of the protocol, which a newer node tells an older one as it knows it.
    const std::size_t same = std::min<std::size_t>(got.size(), 10);
    BOOST_TEST(got.substr(0, same) == ours.substr(0, same));
    if (has_keys) BOOST_TEST(rest.size() == 0u);
    if (!has_keys && !rest.empty()) BOOST_TEST(rest == kReadyRouter);
  }
  BOOST_TEST_MESSAGE(fmt::format("{}: {} probes, {} bytes came back, {} at most", node.address, probes, bytes, longest));
  BOOST_TEST(longest >= ours.size());  // it does answer
  for (int i = 0; i < 1500; ++i) {
    left_open.push_back(connected_to(port));
    if (i % 3 != 0) {
      const std::string half = i % 3 == 1 ? greeting(has_keys ? "CURVE" : "NULL") : "\xff\0\0"s;
      [[maybe_unused]] const auto sent = send(left_open.back().get(), half.data(), half.size(), MSG_NOSIGNAL);
    }
  }
}

/// Of descriptors, for this process and those that it starts; 0: as many as may be.
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
  NodeProcess b(folder_b, "b", {"--keys", keys["b"]}), c(folder_c, "c", {"--keys", keys["c"], "--join", b.address});
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

BOOST_AUTO_TEST_CASE(who_is_not_let_in_is_told_what_to_do, *boost::unit_test::label("stock_zmq")) {
  const KeyFolders keys({"a", "b"}), others({"c"});
  authorize(others["c"], read_keys(keys["b"]).own.public_key, "b");
  Folder folder_b, folder;
  NodeProcess b(folder_b, "b", {"--keys", keys["b"]});
  const auto refused = [&](std::vector<std::string> more) {
    std::vector<std::string> all{binary(), "node", "--workers", "1", "--patience", "0"};
    const auto otherwise = [&](const char* flag, const char* value) {
      if (std::find(more.begin(), more.end(), flag) == more.end()) all.insert(all.end(), {flag, value});
    };
    otherwise("--name", "c");
    otherwise("--listen", "tcp://127.0.0.1:0");
    all.insert(all.end(), more.begin(), more.end());
    const Outcome o = run(folder.path(), all);
    BOOST_TEST(o.code == 2, o.error);
    return o.error;
  };
  const std::string no_keys = refused({"--join", b.address});
  BOOST_TEST(contains(no_keys, "start this one with --keys"), no_keys);
  const std::string not_authorized = refused({"--join", b.address, "--keys", others["c"]});
  BOOST_TEST(contains(not_authorized, "troupe keygen --authorize '" + read_keys(others["c"]).own.public_key + "' --name c"), not_authorized);
  const std::string name_of_a = refused({"--join", b.address, "--keys", keys["b"], "--name", "a"});
  BOOST_TEST(contains(name_of_a, "the name a belongs to another key"), name_of_a);
  const std::string no_folder = refused({"--keys", folder / "none"});
  BOOST_TEST(contains(no_folder, "'troupe keygen --keys " + (folder / "none") + "' makes one"), no_folder);
  const std::string remote = refused({"--listen", "tcp://0.0.0.0:0"});
  BOOST_TEST(contains(remote, "without keys nothing is encrypted"), remote);
  const std::string to_remote = refused({"--join", "tcp://192.0.2.1:7117"});
  BOOST_TEST(contains(to_remote, "without keys nothing is encrypted"), to_remote);
  chmod((others["c"] + "/node.key").c_str(), 0644);
  const std::string open = refused({"--join", b.address, "--keys", others["c"]});
  BOOST_TEST(contains(open, "chmod 600"), open);
  b.process.interrupt(SIGTERM);
  const Outcome left = b.process.finish();
  BOOST_TEST(left.code == 0, left.error);
  BOOST_TEST(contains(left.error, "was turned away: its key " + read_keys(keys["a"]).own.public_key) == false, left.error);
}

BOOST_AUTO_TEST_CASE(a_scan_of_its_ports_obtains_nothing_and_runs_nothing, *boost::unit_test::label("stock_zmq")) {
  limit_descriptors(0);
  for (const bool has_keys : {true, false}) {
    const KeyFolders keys({"a", "scanned"});
    Folder folder;
    NodeProcess node(folder, "scanned", has_keys ? std::vector<std::string>{"--keys", keys["scanned"]} : std::vector<std::string>{});
    auto a = client("a", node.address, has_keys ? std::optional(read_keys(keys["a"])) : std::nullopt);
    a->wait_for({"scanned"}, std::chrono::seconds(60));
    std::vector<OwnedDescriptor> left_open;
    scan(node, "scanned", has_keys, left_open);
    BOOST_TEST(made_on(*a, "scanned") == 0u, "plans or runs");
    // With all of them still there: who was connected works on, and who has a key gets in.
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
    BOOST_TEST(contains(left.error, "ended in their handshake"), left.error);
  }
}

BOOST_AUTO_TEST_CASE(strangers_take_all_its_descriptors_and_who_is_connected_works_on, *boost::unit_test::label("stock_zmq")) {
  const KeyFolders keys({"a", "b"});
  Folder folder;
  limit_descriptors(100);
  NodeProcess node(folder, "b", {"--keys", keys["b"]});
  limit_descriptors(0);
  const auto used = [&] { return std::distance(fs::directory_iterator("/proc/" + std::to_string(node.process.pid()) + "/fd"), fs::directory_iterator()); };
  auto a = client("a", node.address, read_keys(keys["a"]));
  a->wait_for({"b"}, std::chrono::seconds(60));
  BOOST_TEST(sum_on(*a, "b") == 8);  // all that a connection needs is there
  std::vector<OwnedDescriptor> left_open;
  // It hangs up on them after a while, so more come until none is free.
  std::ptrdiff_t most = 0;
  for (int round = 0; round < 50 && most < 100; ++round) {
    for (int i = 0; i < 100; ++i) left_open.push_back(connected_to(port_of(node)));
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
