// The devices of one node, for plans that are made without an engine.
#pragma once

#include <memory>
#include <string>

#include <troupe/actors/placement/constraint.hpp>
#include <troupe/actors/plan/plan.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/device.hpp>

namespace troupe::test {

struct Finder final : DeviceFinder {
  explicit Finder(std::string n) : name(std::move(n)) {}
  Device* find(const std::string& full) override {
    return node_of(full) == name ? device.get() : nullptr;
  }
  std::string node() const override { return name; }
  std::string name;
  std::unique_ptr<Device> device = make_cpu_device({});
};

}  // namespace troupe::test
