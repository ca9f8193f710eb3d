// The list of passes: the runner follows it and nothing else.
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include <troupe/actors/plan/pass_order.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(pass_order_test, TROUPE_ONE_THREAD)

namespace {

struct Small {
  Graph g;
  std::vector<Edge> feeds, fetches;
  Small() {
    Expr x = g.input("x", DType::f32, {4, 4});
    Expr y = exp(matmul(x, x) * 1.0) + g.constant(2.f) * 3.0;
    sin(x);  // not needed
    feeds = {x.edge()};
    fetches = {y.edge()};
  }
};

std::vector<std::string> names_of(const std::vector<PassReport>& reports) {
  std::vector<std::string> names;
  for (const PassReport& r : reports) names.push_back(r.name);
  return names;
}

std::vector<std::string> enabled_by(const PassOptions& options) {
  std::vector<std::string> names;
  for (const Pass& pass : passes())
    if (pass.enabled(options)) names.push_back(pass.name);
  return names;
}

std::vector<PassReport> reports_of(const PassOptions& options,
                                   const std::vector<std::string>& skip = {}) {
  const Small of;
  std::vector<PassReport> reports;
  optimize(of.g, of.feeds, of.fetches, options, skip, &reports);
  return reports;
}

}  // namespace

BOOST_AUTO_TEST_CASE(runner_follows_the_list) {
  const mesh::Partitioning one{mesh::Mesh("all:1", {"cpu:0"}), mesh::Layout()};
  const PassOptions all{.optimize = true,
                        .low = DType::bf16,
                        .check_finite = true,
                        .resident = {true, {}},
                        .mesh = &one},
      none{};
  BOOST_TEST(enabled_by(all).size() == passes().size());
  BOOST_TEST(names_of(reports_of(all)) == enabled_by(all), boost::test_tools::per_element());
  BOOST_TEST(names_of(reports_of(none)) == enabled_by(none), boost::test_tools::per_element());
  const std::vector<std::string> required{"prune", "inline_branches", "check_nan_predicates",
                                          "prune", "lower"};
  BOOST_TEST(enabled_by(none) == required, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(each_optional_pass_can_be_skipped) {
  const PassOptions all{
      .optimize = true, .low = DType::bf16, .check_finite = true, .resident = {true, {}}};
  for (const Pass& pass : passes()) {
    if (pass.is_required()) continue;
    std::vector<std::string> rest = enabled_by(all);
    std::erase(rest, pass.name);
    BOOST_TEST(rest.size() < passes().size());
    BOOST_TEST(names_of(reports_of(all, {pass.name})) == rest, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(reports_count_from_the_callers_graph) {
  const Small of;
  const std::vector<PassReport> reports = reports_of({.optimize = true});
  BOOST_TEST(reports.front().nodes_before == of.g.size());
  BOOST_TEST(reports.front().nodes_after < of.g.size());
  for (std::size_t i = 1; i < reports.size(); ++i)
    BOOST_TEST(reports[i].nodes_before == reports[i - 1].nodes_after, reports[i].name);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
