// Programs placed over three nodes, for tests: where the nodes of an op went.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <troupe/actors/placement/placement.hpp>
#include <troupe/actors/plan/pass_order.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test::placed {

inline const std::string kA = "/node:a/cpu:0", kB = "/node:b/cpu:0", kC = "/node:c/cpu:0";

inline PlacementOptions three_nodes(Placement policy = Placement::constraints) {
  PlacementOptions o{.default_device = "cpu:0", .here = "a"};
  o.policy = policy;
  o.nodes = {{"a", ""}, {"c", "gpu=no room=3"}, {"b", "gpu=yes room=3"}};
  return o;
}

inline Program lowered(const Graph& g, const std::vector<Expr>& feeds,
                       const std::vector<Expr>& fetches) {
  std::vector<Edge> in, out;
  for (const Expr& e : feeds) in.push_back(e.edge());
  for (const Expr& e : fetches) out.push_back(e.edge());
  return optimize(g, in, out, {.optimize = true});
}

/// Returns the devices on which the nodes of an op were placed.
inline std::multiset<std::string> devices_of(const Placed& placed, const std::string& op) {
  std::multiset<std::string> found;
  for (std::int32_t id = 0; id < placed.program.graph.size(); ++id)
    if (placed.program.graph.node(id).op->name == op)
      found.insert(placed.device[static_cast<std::size_t>(id)]);
  return found;
}
using Devices = std::multiset<std::string>;

inline void is(const Devices& found, const Devices& expected, const std::string& what) {
  BOOST_TEST_CONTEXT(what) BOOST_TEST(found == expected, boost::test_tools::per_element());
}

inline bool says(const std::string& text, const std::vector<std::string>& parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [&](const std::string& p) { return text.find(p) != std::string::npos; });
}

/// A chain of products, each a few milliseconds.
inline Expr chain(Expr x, int products) {
  for (int i = 0; i < products; ++i) x = matmul(x, x);
  return x;
}

}  // namespace troupe::test::placed
