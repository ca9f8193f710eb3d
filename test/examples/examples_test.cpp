// Every numbered example runs, checks its own result and says so by its exit code.
#include <troupe/test/examples/process.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(examples_test)

void runs(const std::string& name) {
  Folder folder;
  Outcome o = run(folder.path(), {example(name)});
  BOOST_TEST(o.code == 0, name << " said:\n" << o.out << o.error);
  BOOST_TEST(!o.out.empty());
  BOOST_TEST(o.error == "");
  BOOST_TEST(folder.files().empty());
}

BOOST_AUTO_TEST_CASE(hello_graph, *boost::unit_test::precondition(Built{"hello_graph"})) { runs("hello_graph"); }
BOOST_AUTO_TEST_CASE(linear_regression, *boost::unit_test::precondition(Built{"linear_regression"})) { runs("linear_regression"); }
BOOST_AUTO_TEST_CASE(own_actor, *boost::unit_test::precondition(Built{"own_actor"})) { runs("own_actor"); }

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
