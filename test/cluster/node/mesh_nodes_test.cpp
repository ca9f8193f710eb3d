// Meshes whose devices are on several nodes: each node runs instances of one program for its own
// devices, with the bits of nodes that are copied to the devices, and devices of two nodes meet by
// one message in each direction.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/cluster/faulty.hpp>
#include <troupe/test/support/cluster/mesh_networks.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace troupe::test::meshes;

BOOST_AUTO_TEST_SUITE(mesh_nodes_test)

namespace {

struct Perceptron : TwoLayers {
  static constexpr std::int64_t kRows = 64;
  Perceptron() : TwoLayers({kRows, 6, 8, 4}, Adam({.learning_rate = 0.05})) {}
  static std::vector<double> train(const Function& f, int steps) {
    return losses_of(f, steps, counted({kRows, 6}, 0.01, -0.7), counted({kRows, 4}, -0.01, 0.8));
  }
};

// Device i is on the node of the i-th letter.
std::vector<std::string> devices_on(const std::string& nodes) {
  std::vector<std::string> devices;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    devices.push_back(fmt::format("/node:{}/cpu:{}", nodes[i], i));
  return devices;
}
Partitioning cut(const std::string& axes, const std::string& layout, const std::string& nodes) {
  return {Mesh(axes, devices_on(nodes)), Layout(layout)};
}

bool says(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    if (text.find(part) == std::string::npos) {
      BOOST_TEST_MESSAGE("'" << part << "' is not in:\n" << text);
      return false;
    }
  return true;
}

}  // namespace

BOOST_AUTO_TEST_CASE(nodes_run_instances_with_the_bits_of_copies) {
  for (const auto& [axes, layout] :
       {std::pair("p:8", "batch:p"), std::pair("r:4;c:2", "batch:r;hidden:c"),
        std::pair("p:8", "batch:p;slots/hidden:p")})
    for (const std::string on : {"aaaabbbb", "abababab", "aaabbccc", "bbbbcccc"}) {
      const Partitioning p = cut(axes, layout, on);
      Perceptron one, other;
      Nodes by_instances(3), by_copies(3);
      const Function f = one.compile(by_instances.engine(), p),
                     g = other.compile(by_copies.engine(), p, kCopies);
      BOOST_TEST(
          says(f.explain(), {fmt::format("8 devices on {} nodes run instances of one program",
                                         on == "aaabbccc" ? 3 : 2)}));
      const std::string what = fmt::format("{}, {}", on, layout);
      BOOST_TEST_CONTEXT(what) {
        const std::vector<double> wanted = Perceptron::train(g, 4);
        BOOST_TEST(Perceptron::train(f, 4) == wanted, boost::test_tools::per_element());
        BOOST_TEST(wanted[3] < wanted[0]);
        BOOST_TEST(by_instances.engine().variables() == by_copies.engine().variables(),
                   boost::test_tools::per_element());
        for (const std::string& name : by_copies.engine().variables())
          BOOST_TEST(identical(by_instances.engine().get(name), by_copies.engine().get(name)),
                     name);
      }
    }
}

BOOST_AUTO_TEST_CASE(plans_and_messages_do_not_grow_with_devices_of_nodes) {
  std::vector<std::size_t> nodes;
  std::vector<int> sent;
  for (const int each : {1, 4, 16}) {
    std::atomic<int> messages{0};
    Nodes two(2, {}, Between::handles, {}, [&](const std::string&, std::unique_ptr<Transport> t) {
      return std::make_unique<FaultyTransport>(
          std::move(t), [&](Peer peer, Lane lane, Message m, const FaultyTransport::Send& send) {
            messages += is_a<MeshValues>(m);
            send(peer, lane, std::move(m));
          });
    });
    const std::string on = std::string(static_cast<std::size_t>(each), 'a') +
                           std::string(static_cast<std::size_t>(each), 'b');
    Perceptron net;
    CompileOptions options;
    options.mesh = cut(fmt::format("p:{}", 2 * each), "batch:p", on);
    const auto compiled = two.engine().impl().compile(net.g, {net.x.edge(), net.t.edge()},
                                                      {net.loss.edge(), net.step.edge()}, options);
    const detail::Plan& plan = *compiled->troupe.plan;
    BOOST_REQUIRE(plan.compiled);
    std::size_t all = 0;
    for (const detail::PartitionPlan& p : plan.compiled->partitions)
      for (const detail::FramePlan& f : p.frames) all += f.nodes.size();
    nodes.push_back(all);
    // This node has instances for its own devices alone.
    std::size_t instances = 0;
    for (const detail::PartitionPlan& p : plan.partitions) instances += !p.frames.empty();
    BOOST_TEST(instances == plan.compiled->partitions.size() - 1 + static_cast<std::size_t>(each));
    Perceptron again;
    const Function f = again.compile(two.engine(), *options.mesh);
    Perceptron::train(f, 1);
    messages = 0;
    Perceptron::train(f, 1);
    sent.push_back(messages);
  }
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    BOOST_TEST(nodes[i] == nodes[0]);
    BOOST_TEST(sent[i] == sent[0]);
  }
  // The pieces of two feeds; one all-reduce, of the gradients and the loss; that groups of updates
  // are done on b.
  BOOST_TEST(sent[0] == 11);
}

// Each of the nodes adds a piece, and sends it to the others.
BOOST_AUTO_TEST_CASE(large_sums_over_nodes_go_in_pieces_with_the_bits_of_copies) {
  for (const std::string on : {"abc", "aabcbc"}) {
    std::atomic<int> messages{0};
    std::atomic<std::uint64_t> bytes{0};
    Nodes by_instances(
        3, {}, Between::handles, {}, [&](const std::string&, std::unique_ptr<Transport> t) {
          return std::make_unique<FaultyTransport>(
              std::move(t),
              [&](Peer peer, Lane lane, Message m, const FaultyTransport::Send& send) {
                if (is_a<MeshValues>(m)) ++messages, bytes += bytes_of(m);
                send(peer, lane, std::move(m));
              });
        });
    Nodes by_copies(3);
    const auto build = [](Graph& g) {
      MeshCase c;
      const Dim m{"m", 130}, k{"k", 6}, n{"n", 131};
      const Expr y = mesh::einsum({input(c, g, "x", counted({130, 6}, 0.37, -9), {m, k}),
                                   input(c, g, "w", counted({6, 131}, -0.11, 3), {k, n})},
                                  {m, n});
      c.fetches = {y, mesh::sum(y * y, {m, n})};
      return c;
    };
    Graph one, other;
    const Partitioning p = cut(fmt::format("p:{}", on.size()), "k:p", on);
    const MeshCase c = build(one);
    check_bits(run(by_instances.engine(), one, c, p),
               run(by_copies.engine(), other, build(other), p, kCopies), on);
    const std::uint64_t whole = 8 * 130 * 131, feeds = 8 * (130 + 131) * 6;
    // pieces to be added, and sums of them; feeds for two nodes
    BOOST_TEST(messages == 6 + 6 + 4);
    if (on == "abc") {
      BOOST_TEST(bytes >= 4 * whole);
      BOOST_TEST(bytes <= 4 * whole + feeds + 4096);
    }
  }
}

BOOST_AUTO_TEST_CASE(members_on_other_nodes_end_when_a_run_is_cancelled) {
  Nodes nodes(2);
  check_cancelled_members_end(nodes.engine(), cut("p:4", "batch:p", "aabb"));
}

BOOST_AUTO_TEST_CASE(a_run_names_the_node_of_its_mesh_that_is_lost) {
  Nodes nodes(2);
  Waiting w;
  const Function take = w.compile(nodes.engine(), cut("p:4", "batch:p", "aabb"));
  RunHandle waits = take.start({}, {});
  nodes.remove(1);
  const Status status = waits.wait();
  BOOST_TEST((status.code() == Code::unavailable));
  BOOST_TEST(
      says(status.message(), {"node 'b' was lost", "awaited from it: ", "mesh_networks.hpp:"}));
  // The plan is made anew when the node is back.
  nodes.add("b");
  nodes[0].wait_for({"a", "b"}, std::chrono::seconds(60));
  w.check_goes_on(nodes.engine(), take);
}

BOOST_AUTO_TEST_CASE(an_error_of_an_instance_elsewhere_names_node_device_and_line) {
  Nodes nodes(2);
  const Dim batch{"batch", 4}, row{"row", 3}, k{"k", 4};
  Graph g;
  MeshCase c;
  const Expr at = g.input("ids", DType::i64, {4});
  c.feeds.emplace_back(at, Tensor::of<std::int64_t>({0, 1, 7, 0}, {4}));
  const Expr table = input(c, g, "table", counted({3, 4}), {row, k});
  const Expr rows = mesh::named(gather(table, mesh::named(at, {batch})), {batch, k});
  c.fetches = {mesh::sum(rows * rows, {batch, k})};
  const Partitioning p = cut("p:4", "batch:p", "aabb");
  BOOST_CHECK_EXCEPTION(run(nodes.engine(), g, c, p), Error, [&](const Error& e) {
    return e.code() == Code::out_of_range &&
           says(e.what(), {"node 'b'", "mesh_nodes_test.cpp:", " on /node:b/cpu:2", "7"});
  });
  c.feeds[0].second = Tensor::of<std::int64_t>({0, 1, 2, 0}, {4});
  BOOST_TEST(run(nodes.engine(), g, c, p)[0].at(0) == 14 + 126 + 366 + 14.0);
}

BOOST_AUTO_TEST_CASE(a_node_that_sends_no_values_of_its_devices_is_disconnected) {
  const std::vector<std::pair<std::string, void (*)(MeshValues&)>> faults{
      {"of no mesh", [](MeshValues& m) { m.place.key += 1000; }},
      {"of other devices", [](MeshValues& m) { m.values.push_back(m.values[0]); }},
      {"no value", [](MeshValues& m) { m.values[0] = Tensor(); }}};
  for (const auto& [why, fault] : faults) {
    Nodes nodes(
        2, {}, Between::handles, {}, [&](const std::string& name, std::unique_ptr<Transport> t) {
          return std::make_unique<FaultyTransport>(
              std::move(t),
              [&fault, name](Peer peer, Lane lane, Message m, const FaultyTransport::Send& send) {
                if (auto values = name == "b" ? as<MeshValues>(m) : std::nullopt) {
                  fault(*values);
                  m = written(*values);
                }
                send(peer, lane, std::move(m));
              });
        });
    Perceptron net;
    const Function f = net.compile(nodes.engine(), cut("p:4", "batch:p", "aabb"));
    BOOST_CHECK_EXCEPTION(Perceptron::train(f, 1), Error, [&](const Error& e) {
      return e.code() == Code::unavailable && says(e.what(), {"node 'b' was lost", why});
    });
  }
}

BOOST_AUTO_TEST_SUITE_END()
