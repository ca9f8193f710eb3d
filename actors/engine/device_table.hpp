// The devices of an engine, made on first use by the kinds in devices/device/registry.hpp.
//
//   DeviceTable devices({.pool = &pool, .seed = 1});
//   Device& device = devices.get("cpu:0");
//
// Threads: any. Ownership: the table owns its devices, which live until it is destroyed; the pool
// must outlive it.
// Invariants: 1. a short name belongs to one device; 2. a device that was returned stays; 3.
// workers of the pool poll the devices with streams, and none does any more when these are
// destroyed.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <troupe/actors/observe/snapshot.hpp>
#include <troupe/actors/placement/cost_options.hpp>
#include <troupe/devices/device/registry.hpp>
#include <troupe/devices/threads/worker_pool.hpp>

namespace troupe {

class DeviceTable final : private Poller {
 public:
  explicit DeviceTable(DeviceSetup setup) : setup_(std::move(setup)) {}
  ~DeviceTable();

  /// Returns the device of this short name. Throws not_found as `make_device` does.
  Device& get(const std::string& name);
  /// Adds to `costs` the memory of the devices in `names` whose kind states it. An entry of the
  /// name is not replaced.
  void add_memory(CostOptions& costs, const std::vector<std::string>& names) const;
  /// True if no device has streams that run by themselves.
  bool are_synchronous();
  /// Polls the devices (Device::poll). Returns true if one had something to do.
  bool poll() override;
  /// Waits until all streams are empty. Errors of their work are dropped.
  void synchronize();
  /// Returns the counters of each device, with its name in full on `node`.
  std::vector<DeviceSnapshot> snapshot(const std::string& node);

 private:
  static constexpr std::size_t kPolled = 32;

  const DeviceSetup setup_;
  std::mutex mutex_;  // guards devices_
  std::map<std::string, std::unique_ptr<Device>> devices_;
  // the first devices with streams; an entry is written once, and publishes the device
  std::array<std::atomic<Device*>, kPolled> polled_{};
};

}  // namespace troupe
