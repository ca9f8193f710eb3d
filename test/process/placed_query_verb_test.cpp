// Not under tsan: its processes run on ZeroMQ, which is not instrumented.
// `troupe query --on`: the operators of a query in processes of other nodes.
#include <boost/test/unit_test.hpp>

#include <fstream>

#include <troupe/test/process/node_process.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(placed_query_verb_test)

BOOST_AUTO_TEST_CASE(query_on_nodes_prints_the_rows_of_a_local_one,
                     *boost::unit_test::label("stock_zmq")) {
  Folder folder, folder_b;
  NodeProcess b(folder_b, "b"), c(folder, "c", {"--join", b.address});
  std::ofstream up(folder / "up.csv"), down(folder / "down.csv");
  up << "time,m\n", down << "time,m\n";
  for (int i = 0; i < 600; ++i) {
    up << i * 7 % 500 << ",m" << i % 9 << "\n";
    down << i * 11 % 500 << ",m" << i % 9 << "\n";
  }
  up.close(), down.close();
  std::vector<std::string> query{
      binary(),
      "query",
      "EVENT E WHEN SEQUENCE(up x, down y, 5) WHERE CorrelationKey(m, EQUAL) OUTPUT x.m AS m",
      "--source",
      "up=" + (folder / "up.csv"),
      "--source",
      "down=" + (folder / "down.csv")};
  const Outcome here = run(folder.path(), query);
  BOOST_TEST(here.code == 0, here.error);
  BOOST_TEST(here.out.size() > 100u);
  query.insert(query.end(), {"--on", "b", "--on", "c", "--partitions", "2", "--join", b.address});
  const Outcome there = run(folder.path(), query);
  BOOST_TEST(there.code == 0, there.error);
  BOOST_TEST(there.out == here.out);

  for (std::string& argument : query)
    if (argument == "c") argument = "x";
  query.insert(query.end(), {"--patience", "1"});
  const Outcome unknown = run(folder.path(), query);
  BOOST_TEST(unknown.code == 1, unknown.error);
  BOOST_TEST((unknown.error.find("waiting for x") != std::string::npos), unknown.error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
