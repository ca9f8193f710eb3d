#include <troupe/actors/engine/device_table.hpp>

#include <algorithm>

#include <troupe/devices/base/device_name.hpp>
#include <troupe/devices/device/swap.hpp>

namespace troupe {

DeviceTable::~DeviceTable() {
  if (setup_.pool && polled_[0].load(std::memory_order_relaxed)) setup_.pool->stop_polling();
}

Device& DeviceTable::get(const std::string& name) {
  std::lock_guard lock(mutex_);
  const auto it = devices_.find(name);
  if (it != devices_.end()) return *it->second;
  Device& device = *devices_.emplace(name, make_device(name, setup_)).first->second;
  if (device.is_synchronous()) return device;
  const auto free = std::find_if(polled_.begin(), polled_.end(), [](const auto& d) {
    return d.load(std::memory_order_relaxed) == nullptr;
  });
  if (free != polled_.end()) free->store(&device, std::memory_order_release);
  if (free == polled_.begin() && setup_.pool) setup_.pool->poll_with(*this);
  return device;
}

bool DeviceTable::poll() {
  bool any = false;
  for (const auto& entry : polled_) {
    Device* const device = entry.load(std::memory_order_acquire);
    if (!device) break;
    any = device->poll() || any;
  }
  return any;
}

void DeviceTable::add_memory(CostOptions& costs, const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (!node_of(name).empty()) continue;  // the setup of another node is not known
    const DeviceKind* const kind = find_device_kind(kind_of(name));
    const std::uint64_t bytes = kind && kind->memory ? kind->memory(setup_) : 0;
    const bool is_given = std::any_of(costs.devices.begin(), costs.devices.end(),
                                      [&](const auto& d) { return d.first == name; });
    if (bytes == 0 || is_given) continue;
    costs.devices.emplace_back(name, costs.device);
    costs.devices.back().second.memory_bytes = bytes;
  }
}

bool DeviceTable::are_synchronous() {
  std::lock_guard lock(mutex_);
  return std::all_of(devices_.begin(), devices_.end(),
                     [](const auto& d) { return d.second->is_synchronous(); });
}

void DeviceTable::synchronize() {
  std::lock_guard lock(mutex_);
  for (const auto& [name, device] : devices_) try {
      device->compute_stream()->synchronize();
    } catch (...) {  // the failed work has no run that waits for it
    }
}

std::vector<DeviceSnapshot> DeviceTable::snapshot(const std::string& node) {
  std::vector<DeviceSnapshot> all;
  std::lock_guard lock(mutex_);
  for (const auto& [name, device] : devices_)
    all.push_back({device->counters(), full_name(name, node)});
  return all;
}

}  // namespace troupe
