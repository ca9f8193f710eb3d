// Not under tsan: its processes run on ZeroMQ, which is not instrumented.
// A user's own programs as nodes, in processes of their own: what they bring to the cluster, and
// what is said where it is missing.
#include <boost/test/unit_test.hpp>

#include <unistd.h>

#include <csignal>
#include <memory>
#include <vector>

#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/tools/own_op.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(own_node_test)

namespace {

constexpr auto kPatience = std::chrono::seconds(60);

std::unique_ptr<ClusterNode> client(const std::string& join) {
  NodeOptions o;
  o.name = "a";
  o.join = {join};
  o.transport = [](PeerInfo self) {
    self.address = "tcp://127.0.0.1:0";
    return make_zeromq_transport(std::move(self));
  };
  return std::make_unique<ClusterNode>(std::move(o));
}

/// The user's program, which brings TestWhere and the "own counter".
struct OwnNode {
  OwnNode(const Folder& folder, const std::string& name, const std::string& join)
      : process(folder.path(),
                {(fs::canonical("/proc/self/exe").parent_path() / "tools" / "own_node").string(),
                 name, join}) {
    BOOST_REQUIRE(process.read_until("\n"));
  }
  Process process;
};

Expr where(Graph& g, const std::string& device, const Expr& x) {
  auto there = g.on_device(device);
  return x.reader().bind(find_op("TestWhere"), std::vector<Expr>{x}, {},
                         std::source_location::current())[0];
}

}  // namespace

// Three processes: this one, a user's program, and a plain `troupe node` that lacks what both of
// them have.
BOOST_AUTO_TEST_CASE(a_program_brings_its_own_ops_and_actors,
                     *boost::unit_test::label("stock_zmq")) {
  Folder of_plain, of_own;
  NodeProcess plain(of_plain, "plain");
  OwnNode own(of_own, "own", plain.address);
  auto a = client(plain.address);
  a->wait_for({"plain", "own"}, kPatience);

  Graph g;
  Expr x = g.input("x", DType::f32, {2}), here = where(g, "/node:a/cpu:0", x),
       there = where(g, "/node:own/cpu:0", x * 2.0);
  const Function both = a->engine().compile(g, {x}, {here, there});
  const std::vector<Tensor> pids = both({Tensor::of<float>({1, 2})});
  BOOST_TEST(pids[0].item<std::int64_t>() == getpid());
  BOOST_TEST(pids[1].item<std::int64_t>() == own.process.pid());
  BOOST_TEST(times_where == 1);

  // An actor that stands nowhere but there, with what it remembers.
  const auto count = [&](const std::string& node) {
    Graph counted;
    auto scope = counted.on_device("/node:" + node + "/cpu:0");
    return a->engine().run(
        counted, {},
        actor_node(counted, "own counter", {}, {{DType::i64, Shape{}}, {DType::i64, Shape{}}},
                   [](std::span<const Tensor>, std::span<Tensor> out) {
                     for (Tensor& t : out) t = Tensor::scalar<std::int64_t>(-1);
                   }));
  };
  for (std::int64_t n = 0; n < 3; ++n) {
    const auto counted = count("own");
    BOOST_TEST(counted[0].item<std::int64_t>() == n);
    BOOST_TEST(counted[1].item<std::int64_t>() == own.process.pid());
  }

  // A node without the actor reports its name and the user's line before anything has run anywhere.
  const std::string no_actor = refusal([&] { count("plain"); }, Code::not_found);
  BOOST_TEST(says(no_actor, {"node 'plain'", "user actor 'own counter'", "own_node_test.cpp"}),
             no_actor);
  Graph lacking;
  Expr y = lacking.input("y", DType::f32, {2}), first = where(lacking, "/node:a/cpu:0", y),
       missing = where(lacking, "/node:plain/cpu:0", y);
  const std::string no_op = refusal(
      [&] {
        a->engine().compile(lacking, {y}, {first, missing});
      },
      Code::not_found);
  BOOST_TEST(says(no_op, {"node 'plain'", "no op 'TestWhere'", "own_node_test.cpp"}), no_op);
  BOOST_TEST(times_where == 1);
  // all goes on
  BOOST_TEST(both({Tensor::of<float>({1, 2})})[1].item<std::int64_t>() == own.process.pid());

  own.process.interrupt(SIGTERM);
  BOOST_TEST(own.process.finish().code == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
