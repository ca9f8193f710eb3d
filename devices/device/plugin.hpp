// Plug-ins: shared libraries that bring a kind of device, loaded where its hardware is.
//
//   extern "C" const troupe::DevicePlugin* troupe_device_plugin() {       // in the library
//     static const troupe::DevicePlugin plugin{
//         .abi = troupe::kDevicePluginAbi, .name = "gpu", .load = register_gpu,
//         .examine = examine_gpu};
//     return &plugin;
//   }
//
// The registry (registry.hpp) loads plug-ins when a device is first looked up. A plug-in whose
// folder has a descriptor (devices/*/plugin.def) is opened only if the driver of its hardware can
// be opened, from the folder of libtroupe or, failing that, by the system's search path.
// TROUPE_DEVICE_PLUGINS, a list of files with ':' between them, replaces the descriptors: these are
// opened without a check of drivers.
//
// Threads: any; the first caller loads, others wait. Ownership: a library is never closed, because
// kernels and devices of it may live as long as the process.
#pragma once

#include <string>
#include <vector>

namespace troupe {

/// The version of the interfaces in devices/ that a plug-in is compiled against. Raise it when one
/// changes.
inline constexpr int kDevicePluginAbi = 3;

/// A library that a plug-in opens, and the outcome of a small computation with it.
struct PluginPart {
  std::string name;     // `cuBLASLt`
  std::string version;  // and its file, as far as known
  std::string problem;  // and the remedy; empty: it works
};

/// The entry `troupe_device_plugin` of a library returns one; it lives as long as the process.
struct DevicePlugin {
  int abi;           // kDevicePluginAbi of the headers that it was compiled with
  const char* name;  // the kind of devices: `gpu`
  /// Registers its kinds (registry.hpp). Throws Error that names the missing part.
  void (*load)();
  /// Opens each library that the plug-in uses and tries it. Throws nothing.
  std::vector<PluginPart> (*examine)();
};

/// The outcome of loading one plug-in.
struct PluginReport {
  std::string kind;  // `gpu`
  std::string file;  // as it was opened; empty if it was not
  // the reason why its devices are missing, and the remedy; empty: it is loaded
  std::string problem;
  const DevicePlugin* plugin = nullptr;  // if it is loaded
};

/// Loads plug-ins, once a process, and returns the outcome of each.
const std::vector<PluginReport>& load_device_plugins();

}  // namespace troupe
