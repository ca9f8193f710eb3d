// Places of a mesh on physical devices: tiles of tiles.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <troupe/ops/mesh/tiling.hpp>
#include <troupe/test/support/cluster/meshes.hpp>

using namespace troupe;
using namespace troupe::test::meshes;

BOOST_AUTO_TEST_SUITE(mesh_tiling_test)

BOOST_AUTO_TEST_CASE(a_tiling_uses_each_device_once) {  // L13
  using Levels = std::vector<mesh::TilingLevel>;
  const auto check_permutation = [](const Levels& levels, std::int64_t size) {
    std::vector<std::int64_t> numbers = mesh::hierarchical_tiling(levels);
    BOOST_REQUIRE(static_cast<std::int64_t>(numbers.size()) == size);
    std::sort(numbers.begin(), numbers.end());
    for (std::int64_t i = 0; i < size; ++i) BOOST_TEST(numbers[static_cast<std::size_t>(i)] == i);
  };
  // 8x8x2 devices
  check_permutation({{{128}, {8, 8, 2}}}, 128);
  check_permutation({{{16, 8}, {8, 8, 2}}}, 128);
  check_permutation({{{4, 4}, {4, 4, 1}}, {{2, 4}, {2, 2, 2}}}, 128);
  check_permutation({{{2, 2, 2}, {2, 2, 2}}, {{4, 2, 2}, {4, 4, 1}}}, 128);
  check_permutation({{{1, 4}, {2, 2, 1}}, {{4, 1}, {2, 2, 1}}, {{4, 2}, {2, 2, 2}}}, 128);
  // 9x15x7 devices
  check_permutation({{{45, 21}, {9, 15, 7}}}, 945);
  check_permutation({{{3, 5}, {3, 5, 1}}, {{9, 7}, {3, 3, 7}}}, 945);
}

BOOST_AUTO_TEST_CASE(a_tile_of_the_last_level_is_one_box_of_devices) {
  // Pairs of devices beside each other: 2x2 tiles of 1x2 logical places on a row of eight devices.
  const std::vector<std::int64_t> numbers =
      mesh::hierarchical_tiling({{{2, 2}, {4}}, {{1, 2}, {2}}});
  const std::vector<std::int64_t> wanted{0, 1, 2, 3, 4, 5, 6, 7};
  BOOST_TEST(numbers == wanted, boost::test_tools::per_element());
  const std::vector<std::int64_t> boxes = mesh::hierarchical_tiling({{{2, 1}, {2}}, {{2, 2}, {4}}});
  BOOST_TEST(boxes == wanted, boost::test_tools::per_element());
  const std::vector<std::int64_t> columns =
      mesh::hierarchical_tiling({{{1, 2}, {2}}, {{2, 2}, {4}}});
  const std::vector<std::int64_t> by_column{0, 1, 4, 5, 2, 3, 6, 7};
  BOOST_TEST(columns == by_column, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_last_axes_stay_on_a_host) {
  const auto hosts = [](int count, int each) {
    std::vector<std::vector<std::string>> all(static_cast<std::size_t>(count));
    for (int h = 0; h < count; ++h)
      for (int d = 0; d < each; ++d)
        all[static_cast<std::size_t>(h)].push_back("/node:" + std::string(1, char('a' + h)) +
                                                   "/cpu:" + std::to_string(d));
    return all;
  };
  const auto host_of = [](const mesh::Mesh& m, int device) { return m.device(device)[6]; };
  {
    const mesh::Mesh m = mesh::over_hosts({{"data", 2}, {"model", 4}}, hosts(2, 4));
    for (int device = 0; device < m.size(); ++device)
      for (int other : m.line(device, 1)) BOOST_TEST(host_of(m, other) == host_of(m, device));
  }
  {
    // A host has two rows of three: its six devices are no whole number of lines of six.
    const mesh::Mesh m = mesh::over_hosts({{"data", 4}, {"model", 3}}, hosts(2, 6));
    for (int device = 0; device < m.size(); ++device)
      for (int other : m.line(device, 1)) BOOST_TEST(host_of(m, other) == host_of(m, device));
  }
  {
    // Half a line on each host, and two of the halves.
    const mesh::Mesh m = mesh::over_hosts({{"data", 2}, {"model", 4}}, hosts(4, 2));
    BOOST_TEST(m.device(0) == "/node:a/cpu:0");
    BOOST_TEST(m.device(1) == "/node:a/cpu:1");
    BOOST_TEST(m.device(2) == "/node:b/cpu:0");
    BOOST_TEST(m.device(4) == "/node:c/cpu:0");
  }
  {
    // Rows of six over hosts of four: boxes of two rows and two columns.
    const mesh::Mesh m = mesh::over_hosts({{"data", 2}, {"model", 6}}, hosts(3, 4));
    BOOST_TEST(m.device(0) == "/node:a/cpu:0");
    BOOST_TEST(m.device(1) == "/node:a/cpu:1");
    BOOST_TEST(m.device(2) == "/node:b/cpu:0");
    BOOST_TEST(m.device(6) == "/node:a/cpu:2");
  }
}

BOOST_AUTO_TEST_CASE(tilings_that_do_not_fit_are_refused) {
  check_refused([] { mesh::hierarchical_tiling({}); }, {"has no level"});
  check_refused(
      [] {
        mesh::hierarchical_tiling({{{2, 2}, {2}}});
      },
      {"4 logical tiles, 2x2, and 2 physical ones, 2"});
  check_refused(
      [] {
        mesh::hierarchical_tiling({{{2}, {2}}, {{1, 2}, {2}}});
      },
      {"different numbers of axes"});
  check_refused([] { mesh::hierarchical_tiling({{{0}, {0}}}); }, {"the extent 0"});
  check_refused([] { mesh::over_hosts({{"p", 2}}, {}); }, {"has no host"});
  check_refused(
      [] {
        mesh::over_hosts({{"p", 3}}, {{"cpu:0", "cpu:1"}, {"cpu:2"}});
      },
      {"2 devices of one host and 1 of another"});
  check_refused(
      [] {
        mesh::over_hosts({{"p", 3}}, {{"cpu:0", "cpu:1"}});
      },
      {"mesh p:3 has 3 places", "1 hosts with 2 devices each"});
}

BOOST_AUTO_TEST_SUITE_END()
