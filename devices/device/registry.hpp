// The kinds of devices that this process has. A kind is one folder: it implements `Device` and
// registers itself with an object of static lifetime; nothing else names the kind.
//
//   const RegisterDeviceKind registered({
//       .name = "gpu", .devices = "gpu:0 to gpu:3",
//       .has = [](std::int32_t index) { return index < 4; },
//       .make = [](const std::string& name, std::int32_t index, const DeviceSetup& setup) {
//         ... }});
//
// A plug-in (plugin.hpp) registers its kind when a device is first looked up.
//
// Threads: any. Ownership: the process; a kind is never removed, so that references stay valid.
// Invariants: 1. a name belongs to one kind; a second registration throws already_exists. 2. A
// device is made only for an index that `has` accepts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/device.hpp>

namespace troupe {

/// The options of an engine that concern its devices.
struct DeviceSetup {
  WorkerPool* pool = nullptr;  // threads for the blocks of a kernel; null: the caller alone
  std::uint64_t seed = 0;      // seeds all random draws of the device
  SwapOptions swap = {};
  GpuOptions gpu = {};
  SimOptions sim = {};  // for simulated devices; their factory sets name, seed and swap
};

struct DeviceKind {
  /// Lower-case letters: `cpu`. Kernels are registered for `Device::kind`, which may differ.
  std::string name;
  /// Names the devices of the kind in errors: `cpu:0 to cpu:99, which share its cores`.
  std::string devices;
  /// True for the indices that exist.
  std::function<bool(std::int32_t index)> has;
  /// Makes one device. Throws if the hardware refuses.
  std::function<std::unique_ptr<Device>(const std::string& name, std::int32_t index,
                                        const DeviceSetup& setup)>
      make;
  /// True if values of the host can be used here directly. Queues, user actors and consoles live on
  /// such a device.
  bool is_host = false;
  /// Returns the memory of a device that is not made yet, in bytes; 0: not known or no limit. May
  /// be empty. The cost model reads it.
  std::function<std::uint64_t(const DeviceSetup& setup)> memory = {};
};

/// Throws invalid_argument for a name that is not lower-case letters or functions that are missing,
/// and already_exists for a name that is taken.
const DeviceKind& register_device_kind(DeviceKind kind);
/// Null if no such kind is registered.
const DeviceKind* find_device_kind(std::string_view name);
/// In the order of their names.
std::vector<const DeviceKind*> device_kinds();

/// Makes the device of this short name, `cpu:1`. Throws not_found with the names that exist.
std::unique_ptr<Device> make_device(const std::string& name, const DeviceSetup& setup);

/// Registers a kind while it is constructed: an object of static lifetime in the kind's folder.
struct RegisterDeviceKind {
  explicit RegisterDeviceKind(DeviceKind kind) { register_device_kind(std::move(kind)); }
};

}  // namespace troupe
