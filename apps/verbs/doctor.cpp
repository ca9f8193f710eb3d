// troupe doctor: describes this machine, lists missing parts, and checks that the engine computes.
#include <troupe/apps/verbs/verbs.hpp>

#include <fmt/format.h>

#include <string>
#include <vector>

#include <troupe/apps/verbs/libraries.hpp>
#include <troupe/apps/verbs/machine.hpp>
#include <troupe/devices/base/device_name.hpp>
#include <troupe/devices/device/device.hpp>
#include <troupe/devices/device/plugin.hpp>
#include <troupe/devices/device/registry.hpp>
#include <troupe/troupe.hpp>

namespace troupe::verbs {

namespace {

/// d/dw of sum(relu(x · w)²) on a device; empty if the result is right, else the error.
std::string self_test(const std::string& device) {
  Graph g;
  const Expr x = g.input("x", DType::f32, {2, 2});
  const Expr w = g.input("w", DType::f32, {2, 1});
  const Expr loss = sum(square(relu(matmul(x, w))));
  const Expr slope = gradients(loss, w)[0];
  EngineOptions options;
  options.default_device = device;
  Engine engine(options);
  const auto out = engine.run(
      g, {{x, Tensor::of({1.f, 2.f, -3.f, 1.f}, {2, 2})}, {w, Tensor::of({1.f, 1.f}, {2, 1})}},
      {loss, slope});
  // x · w = (3, -2), of which relu keeps 3: the loss is 9 and its slope 2 · 3 · (1, 2).
  const float* d = out[1].data<float>();
  if (out[0].item<float>() == 9 && d[0] == 6 && d[1] == 12) return {};
  return fmt::format(
      "a small graph gave a loss of {} (want 9) and a slope of ({}, {}) (want (6, 12))",
      out[0].item<float>(), d[0], d[1]);
}

std::string run_self_test(const std::string& device) {
  try {
    return self_test(device);
  } catch (const std::exception& error) { return error.what(); }
}

void line(const char* what, const std::string& text) { fmt::print("{:<14}{}\n", what, text); }

/// Prints whether a plug-in is loaded, and a line for each library that it uses.
void examine_plugin(const PluginReport& report, std::vector<std::string>& amiss) {
  line("GPU plug-in", report.problem.empty() ? report.file : "not loaded: " + report.problem);
  if (!report.plugin) return;
  for (const PluginPart& part : report.plugin->examine()) {
    const std::string version = part.version.empty() ? "not found" : part.version;
    line(part.name.c_str(), part.problem.empty() ? version : "FAILED: " + part.problem);
    if (!part.problem.empty())
      amiss.push_back(fmt::format("{} of the GPU failed: {}", part.name, part.problem));
  }
}

/// Prints the report, with a sentence for each problem.
std::vector<std::string> examine() {
  std::vector<std::string> amiss;
  line("troupe", fmt::format("{} ({})", TROUPE_VERSION, compiler()));
  line("processor", processor());
  line("features", processor_features());
  line("kernels",
       fmt::format("x86-64 level {} (TROUPE_CPU_LEVEL forces a lower one)", name_of(cpu_level())));
  line("cores", cores());
  line("memory", memory());
  line("huge pages", huge_pages());
  for (const Library& library : libraries())
    line(library.name.c_str(),
         library.version + (library.file.empty() ? "" : " in " + library.file));
  line("GPU", gpu());
  if (cpu_level() == CpuLevel::portable || cpu_level() == CpuLevel::v2)
    amiss.push_back("the CPU kernels run below x86-64-v3: expect a fraction of the speed");
  for (const PluginReport& plugin : load_device_plugins()) examine_plugin(plugin, amiss);
  std::vector<std::string> devices{std::string(kHostDevice)};
  for (const PluginReport& plugin : load_device_plugins())
    if (const DeviceKind* kind = find_device_kind(plugin.kind); kind && kind->has(0))
      devices.push_back(plugin.kind + ":0");
  for (const std::string& device : devices) {
    const std::string failure = run_self_test(device);
    line("self-test",
         fmt::format("{}: {}", device,
                     failure.empty() ? "a graph and its gradient are right" : "FAILED"));
    if (!failure.empty())
      amiss.push_back(fmt::format("the self-test on {} failed: {}", device, failure));
  }
  return amiss;
}

}  // namespace

int doctor() {
  const auto amiss = examine();
  for (const std::string& what : amiss) fmt::print("amiss: {}\n", what);
  fmt::print("{}\n", amiss.empty() ? "All is well." : "Degraded.");
  return amiss.empty() ? 0 : 1;
}

}  // namespace troupe::verbs
