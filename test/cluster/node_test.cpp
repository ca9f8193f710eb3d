// Programs over several nodes of one process.
#include <boost/test/unit_test.hpp>

#include <troupe/test/cluster/nodes.hpp>
#include <troupe/test/controlflow/everywhere.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(node_test)

BOOST_AUTO_TEST_CASE(half_of_an_expression_on_another_node) {
  Nodes nodes(2);
  Graph g;
  Expr x = g.input("x", DType::f32, {2}), a = g.input("a", DType::f32, {2});
  Expr y;
  {
    auto there = g.on_device("/node:b/cpu:0");
    y = x * a;
  }
  Expr z = y + 1.0;
  Function f = nodes.engine().compile(g, {x, a}, {z, y});
  BOOST_TEST_MESSAGE(f.explain());
  for (int run = 0; run < 3; ++run)
    compare(f({Tensor::of<float>({1, 2}), Tensor::of<float>({3, 4})}), {{4, 9}, {3, 8}}, "two nodes");
  BOOST_TEST(nodes[0].counters().messages_out > 0u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
