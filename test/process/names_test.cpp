// Not under asan and tsan: it watches processes of the binary that other suites run in one process.
// Names of nodes: names with an address of IPv6 only, with several, and names that no server
// resolves. Each case runs in a namespace whose /etc/hosts and /etc/resolv.conf it has written. A
// case that the system does not permit is skipped.
#include <boost/test/unit_test.hpp>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <fstream>

#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>
#include <troupe/test/process/apart.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(names_test)

namespace {

using namespace std::chrono_literals;

constexpr const char* kIpv6 = "ip link set lo up && ip -6 addr show dev lo | grep -q ::1";

constexpr const char* kSilent =
    "ip link set lo up && ip -6 addr show dev lo | grep -q ::1 && ip link add lost type veth peer "
    "name void && ip addr add 10.78.0.1/24 dev lost && ip link set lost up && ip link set void up "
    "&& ip neigh add 10.78.0.2 lladdr 02:00:00:00:00:02 dev lost nud permanent";

/// The resolver's own files.
class Names {
 public:
  Names(const std::string& hosts, const std::string& servers) {
    shell("cp -a /etc " + (folder_ / "etc") + " && cd " + (folder_ / "etc") +
          " && rm -f hosts resolv.conf nsswitch.conf");
    put("hosts", hosts);
    put("resolv.conf", servers);
    put("nsswitch.conf", "hosts: files dns\n");
    shell("mount --bind " + (folder_ / "etc") + " /etc");
  }

 private:
  void put(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / ("etc/" + name)) << text;
  }
  Folder folder_;
};

/// A name server that hears, and says nothing.
class SilentServer {
 public:
  SilentServer() : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(53);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    BOOST_REQUIRE(bind(fd_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  }
  /// Waits until it is.
  bool was_asked() const {
    pollfd question{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    return poll(&question, 1, 60'000) == 1;
  }

 private:
  OwnedDescriptor fd_;
};

// For what one tries before it gives up: more than any case takes.
constexpr const char* kPatient = "nameserver 127.0.0.1\noptions timeout:30 attempts:5\n";

std::unique_ptr<ClusterNode> joining(std::vector<std::string> addresses,
                                     const std::optional<Keys>& keys = {}) {
  NodeOptions o;
  o.name = "a";
  o.join = std::move(addresses);
  o.engine.workers = 1;
  o.transport = [&keys](PeerInfo self) {
    self.address = "tcp://127.0.0.1:0";
    ZeroMqOptions options;
    options.keys = keys;
    return make_zeromq_transport(std::move(self), std::move(options));
  };
  return std::make_unique<ClusterNode>(std::move(o));
}

float sum_on_b(ClusterNode& a) {
  Graph g;
  Expr y;
  {
    auto there = g.on_device("/node:b/cpu:0");
    y = sum(g.ones(DType::f32, {3}));
  }
  return a.engine().run(g, {}, {y})[0].item<float>();
}

std::string port_of(const std::string& address) { return address.substr(address.rfind(':')); }

}  // namespace

BOOST_AUTO_TEST_CASE(one_that_has_an_address_of_ipv6_only,
                     *boost::unit_test::label("stock_zmq") *
                         boost::unit_test::precondition(Permitted{kIpv6})) {
  Apart apart;
  Names names("127.0.0.1 localhost\n::1 six\n", "");
  Folder folder;
  NodeProcess b(folder, "b", {}, "tcp://[::1]:0");
  auto a = joining({"tcp://six" + port_of(b.address)});
  a->wait_for({"b"}, 60s);
  BOOST_TEST(sum_on_b(*a) == 3);
}

// The first address that is tried has no listener.
BOOST_AUTO_TEST_CASE(one_that_has_several_addresses,
                     *boost::unit_test::label("stock_zmq") *
                         boost::unit_test::precondition(Permitted{kIpv6})) {
  Apart apart;
  Names names("127.0.0.1 localhost\n::1 many\n127.0.0.2 many\n127.0.0.3 many\n", "");
  for (const char* listen : {"tcp://127.0.0.3:0", "tcp://[::1]:0"}) {
    Folder folder;
    NodeProcess b(folder, "b", {}, listen);
    auto a = joining({"tcp://many" + port_of(b.address)});
    a->wait_for({"b"}, 60s);
    BOOST_TEST(sum_on_b(*a) == 3);
    a.reset();
    b.process.interrupt(SIGTERM);
    BOOST_TEST(b.process.finish().code == 0);
    auto nobody = joining({"tcp://many" + port_of(b.address)});
    const std::string why = refusal([&] { nobody->wait_for({"b"}, 6s); }, Code::deadline_exceeded);
    BOOST_TEST(why.find("no node answers at tcp://many" + port_of(b.address)) != std::string::npos,
               why);
  }
}

// All packets to the first address that is tried are lost silently.
BOOST_AUTO_TEST_CASE(a_name_with_a_silent_first_address,
                     *boost::unit_test::label("stock_zmq") *
                         boost::unit_test::precondition(Permitted{kSilent})) {
  Apart apart;
  shell(kSilent);
  Names names("127.0.0.1 localhost\n10.78.0.2 many\n::1 many\n10.78.0.1 refuses\n::1 refuses\n",
              "");
  const KeyFolders keys({"a", "b"});
  Folder folder;
  NodeProcess b(folder, "b", {"--keys", keys["b"]}, "tcp://[::1]:0");
  // A node that is refused at an answering address reports it, though the next address has no
  // listener.
  const KeyFolders others({"c", "b"});
  Folder second;
  NodeProcess there(second, "b", {"--keys", keys["b"]}, "tcp://10.78.0.1:0");
  const Outcome refused =
      run(second.path(),
          {binary(), "node", "--listen", "tcp://127.0.0.1:0", "--name", "c", "--keys", others["c"],
           "--join", "refuses" + port_of(there.address), "--patience", "0"});
  BOOST_TEST(refused.code == 1);
  BOOST_TEST(refused.error.find("keygen") != std::string::npos, refused.error);
  auto a = joining({"tcp://many" + port_of(b.address)}, read_keys(keys["a"]));
  a->wait_for({"b"}, 100s);
  BOOST_TEST(sum_on_b(*a) == 3);
}

// A node that joins by other peers goes on meanwhile. A node that joins by nothing else reports the
// name it waits for, and is done long before the resolver is.
BOOST_AUTO_TEST_CASE(a_silent_name_server_blocks_no_node,
                     *boost::unit_test::label("stock_zmq") *
                         boost::unit_test::precondition(Permitted{"true"})) {
  Apart apart;
  SilentServer server;
  Names names("127.0.0.1 localhost\n", kPatient);
  Folder folder;
  NodeProcess b(folder, "b");
  auto a = joining({"tcp://silent.example:7117", b.address});
  a->wait_for({"b"}, 60s);
  BOOST_TEST(sum_on_b(*a) == 3);
  BOOST_TEST(server.was_asked());
  const Outcome both =
      run(folder.path(), {binary(), "node", "--listen", "tcp://127.0.0.1:0", "--join",
                          "silent.example:7117", "--join", "127.0.0.1:1", "--patience", "0"});
  BOOST_TEST(both.code == 1);
  BOOST_TEST((both.error.find(
                  "the resolver of names does not answer; tcp://127.0.0.1:1: no node answers") !=
              std::string::npos),
             both.error);
  const Outcome alone = run(folder.path(), {binary(), "node", "--listen", "tcp://127.0.0.1:0",
                                            "--join", "silent.example:7117", "--patience", "0"});
  BOOST_TEST(alone.code == 1);
  BOOST_TEST(alone.error.find("no node could be joined: tcp://silent.example:7117: the resolver of "
                              "names does not answer") != std::string::npos,
             alone.error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
