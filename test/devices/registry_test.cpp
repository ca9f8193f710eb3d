// The registry of device kinds: a kind that a test registers, names that are refused.
#include <boost/test/unit_test.hpp>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/devices/base/device_name.hpp>
#include <troupe/devices/device/registry.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(registry_test)

namespace {

// Kinds made of the two that there are: one with host memory, one with streams.
int made_kinds = 0;
const RegisterDeviceKind kTwin({
    .name = "twin",
    .devices = "twin:0 and twin:1",
    .has = [](std::int32_t index) { return index < 2; },
    .make =
        [](const std::string& name, std::int32_t, const DeviceSetup& setup) {
          ++made_kinds;
          return make_cpu_device({.pool = setup.pool, .name = name});
        },
    .is_host = true,
});
const RegisterDeviceKind kStreamed({
    .name = "streamed",
    .devices = "streamed:0",
    .has = [](std::int32_t index) { return index == 0; },
    .make = [](const std::string& name, std::int32_t,
               const DeviceSetup&) { return make_sim_device({.name = name}); },
    .memory = [](const DeviceSetup&) { return std::uint64_t{12'345}; },
});

DeviceKind copy_of_twin() { return *find_device_kind("twin"); }

std::string refusal_of(const std::string& name) {
  return refusal([&] { make_device(name, {}); }, Code::not_found);
}

}  // namespace

BOOST_AUTO_TEST_CASE(kind_made_by_a_test_runs_a_graph) {
  const int before = made_kinds;
  for (const char* name : {"twin:1", "streamed:0"}) {
    Graph g;
    Expr x = g.input("x", DType::f32, {3});
    Expr y;
    {
      auto there = g.on_device(name);
      y = exp(x) * 2.0;
    }
    Engine engine({.deterministic = true});
    const Function f = engine.compile(g, {x}, {y + 1.0});
    const Tensor out = f({Tensor::of<float>({0, 0, 0})})[0];
    BOOST_TEST(out.at(1) == 3);
    BOOST_TEST(engine.device(name).name() == name);
    BOOST_TEST(f.explain().find(name) != std::string::npos);
  }
  BOOST_TEST(made_kinds == before + 1);
}

// A queue holds values of the host. It stays on a device of the test's own kind if that is one of
// the host's, and moves to cpu:0 otherwise.
BOOST_AUTO_TEST_CASE(kind_with_host_memory_holds_queues) {
  for (const char* name : {"twin:0", "streamed:0"}) {
    Graph g;
    auto there = g.on_device(name);
    const troupe::Queue queue = g.fifo_queue("q", {{DType::f32, {}}}, 4);
    Expr put = queue.enqueue({g.constant(7.f)});
    Engine engine({.deterministic = true});
    engine.run(g, {}, {put});
    BOOST_TEST(engine.run(g, {}, {queue.dequeue()[0]})[0].at(0) == 7);
  }
}

BOOST_AUTO_TEST_CASE(known_memory_of_a_kind_is_explained) {
  Engine engine({.deterministic = true, .default_device = "streamed:0"});
  Graph g;
  Expr x = g.input("x", DType::f32, {3});
  const std::string text = engine.compile(g, {x}, {x + 1.0}).explain();
  BOOST_TEST(text.find("of 12.1 KiB") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(unknown_kind_is_refused_with_a_list) {
  const std::string why = refusal_of("tpu:0");
  for (const char* part :
       {"there is no device 'tpu:0'; this machine has cpu:0 to cpu:99, which share its cores, ",
        "simulated sim:N", "twin:0 and twin:1", "; name one of these"})
    BOOST_TEST(why.find(part) != std::string::npos, why);
}

BOOST_AUTO_TEST_CASE(bad_index_of_a_kind_is_refused) {
  for (const char* name : {"cpu:100", "cpu:07", "cpu:", "cpu", "twin:2", "twin:*", "cpu:1x",
                           "/node:a/cpu:0", "sim:1234567890", ""}) {
    const std::string why = refusal_of(name);
    BOOST_TEST(
        why.find("there is no device '" + std::string(name) + "'; this machine has cpu:0") == 0u,
        why);
    BOOST_TEST((why.find("; name one of these") != std::string::npos) == std::string(name).empty(),
               why);
  }
}

BOOST_AUTO_TEST_CASE(registration_of_a_bad_kind_is_refused) {
  BOOST_TEST(refusal([] { register_device_kind(copy_of_twin()); }, Code::already_exists) ==
             "the device kind 'twin' is registered already; load its plug-in once");
  for (const char* name : {"", "Twin", "twin:", "twin0", "a/b"}) {
    DeviceKind kind = copy_of_twin();
    kind.name = name;
    refusal([&] { register_device_kind(kind); }, Code::invalid_argument);
  }
  DeviceKind kind = copy_of_twin();
  kind.name = "incomplete";
  kind.make = {};
  refusal([&] { register_device_kind(kind); }, Code::invalid_argument);
  BOOST_TEST(!find_device_kind("incomplete"));
}

BOOST_AUTO_TEST_CASE(device_name_is_taken_apart) {
  BOOST_TEST(kind_of("/node:w/sim:12") == "sim");
  BOOST_TEST(kind_of("/node:w") == "cpu");
  BOOST_TEST(kind_of("cpu:*") == "cpu");
  BOOST_TEST((index_of("/node:w/sim:12") == 12));
  BOOST_TEST((index_of("sim:999999999") == 999'999'999));
  for (const char* name : {"sim:", "sim:*", "sim:01", "Sim:1", ":1", "sim:1:2", "sim:9999999999"})
    BOOST_TEST(!index_of(name).has_value(), name);
  BOOST_TEST(is_any_index("cpu:*"));
  BOOST_TEST(!is_any_index("cpu:1*"));
  for (const char* name : {"gpu:*", "gpu:07", "gpu:12345678901"})
    BOOST_TEST(looks_like_device(name), name);
  for (const char* name : {"gpu", "gpu:", ":0", "gpu:1x", "g1:0"})
    BOOST_TEST(!looks_like_device(name), name);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
