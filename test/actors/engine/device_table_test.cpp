// DeviceTable: devices on first use, refusals, devices with streams, memory by name.
#include <troupe/actors/engine/device_table.hpp>

#include <boost/test/unit_test.hpp>

#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(device_table_test)

BOOST_AUTO_TEST_CASE(table_makes_a_device_once) {
  WorkerPool pool(1);
  DeviceTable devices({.pool = &pool, .seed = 1});
  Device& first = devices.get("cpu:0");
  BOOST_TEST(first.name() == "cpu:0");
  BOOST_TEST(&devices.get("cpu:0") == &first);
  BOOST_TEST(&devices.get("cpu:1") != &first);
  const std::string why = refusal([&] { devices.get("tpu:0"); }, Code::not_found);
  BOOST_TEST(why.find("there is no device 'tpu:0'") != std::string::npos, why);
  refusal([&] { devices.get("/node:a/cpu:0"); }, Code::not_found);
}

BOOST_AUTO_TEST_CASE(table_knows_whether_devices_have_streams) {
  WorkerPool pool(1);
  DeviceTable devices({.pool = &pool, .seed = 1});
  BOOST_TEST(devices.are_synchronous());
  devices.get("cpu:0");
  BOOST_TEST(devices.are_synchronous());
  BOOST_TEST(!devices.poll());
  devices.get("sim:0");
  BOOST_TEST(!devices.are_synchronous());
  devices.synchronize();
}

BOOST_AUTO_TEST_CASE(table_reports_memory_by_names_in_full) {
  WorkerPool pool(1);
  DeviceTable devices({.pool = &pool, .seed = 1});
  devices.get("sim:0");
  devices.get("cpu:0");
  std::vector<std::string> names;
  for (const auto& device : devices.snapshot("a")) names.push_back(device.name);
  BOOST_TEST(names == (std::vector<std::string>{"/node:a/cpu:0", "/node:a/sim:0"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(table_states_memory_of_devices_that_are_not_made) {
  DeviceSetup setup;
  setup.sim.memory_limit = 1 << 20;
  DeviceTable devices(setup);
  CostOptions costs;
  devices.add_memory(costs, {"sim:0", "sim:1", "cpu:0", "/node:b/sim:0"});
  BOOST_REQUIRE(costs.devices.size() == 2u);
  BOOST_TEST(costs.devices[0].first == "sim:0");
  BOOST_TEST(costs.devices[1].second.memory_bytes == std::uint64_t{1} << 20);
  devices.add_memory(costs, {"sim:0"});  // it is given
  BOOST_TEST(costs.devices.size() == 2u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
