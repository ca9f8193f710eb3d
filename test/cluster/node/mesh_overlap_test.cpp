// Sums of gradients that cross devices while the backward pass goes on.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <troupe/test/support/temp_directory.hpp>
#include <troupe/troupe.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(mesh_overlap_test)

// Two gradients of 20 MiB are more than one joined sum may be: the sum of the last layer's gradient
// begins before the first layer's gradient is computed.
BOOST_AUTO_TEST_CASE(first_sum_of_gradients_begins_within_the_backward_pass) {
  const mesh::Dim batch{"batch", 4}, in{"in", 2048}, hidden{"hidden", 2560}, out{"out", 2048};
  Graph g;
  const Expr x = mesh::named(g.input("x", DType::f32, {4, 2048}), {batch, in});
  const auto weights = [&](const char* name, const mesh::Dim& from, const mesh::Dim& to) {
    return mesh::named(g.variable(name, Tensor::zeros(DType::f32, {from.size, to.size})).read(),
                       {from, to});
  };
  const Expr first = weights("first", in, hidden), last = weights("last", hidden, out);
  const Expr h = mesh::named(tanh(matmul(x, first)), {batch, hidden});
  const Expr y = mesh::named(matmul(h, last), {batch, out});
  Engine engine({.deterministic = true});
  const Function f = engine.compile(
      g, {x}, gradients(sum(y * y), {first, last}),
      {.mesh = mesh::Partitioning{mesh::Mesh("p:2", {"cpu:0", "cpu:1"}), mesh::Layout("batch:p")}});
  Folder folder;
  f({Tensor::zeros(DType::f32, {4, 2048})}, {.trace = folder / "trace.json"});
  while (engine.take_step()) {}

  struct Order {
    double first_sum = 1e300, last_product = 0;  // us
    int sums = 0;
  };
  std::map<int, Order> devices;  // by track
  const auto trace = nlohmann::json::parse(read_file(folder / "trace.json"), nullptr, false);
  BOOST_REQUIRE(!trace.is_discarded());
  for (const auto& e : trace["traceEvents"]) {
    if (e.value("cat", std::string()) != "firing") continue;
    const std::string name = e["name"];
    const double at = e["ts"];
    Order& order = devices[e["tid"]];
    if (name.starts_with("MeshAllReduce")) {
      ++order.sums;
      order.first_sum = std::min(order.first_sum, at);
    } else if (name.starts_with("MatMul 'gradients/")) {
      order.last_product = std::max(order.last_product, at);
    }
  }
  std::erase_if(devices, [](const auto& d) { return d.second.sums == 0; });
  BOOST_TEST(devices.size() == 2u);
  for (const auto& [track, order] : devices) {
    BOOST_TEST(order.sums == 2);
    BOOST_TEST(order.first_sum < order.last_product);
  }
}

BOOST_AUTO_TEST_SUITE_END()
