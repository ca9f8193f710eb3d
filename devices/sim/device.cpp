#include <troupe/devices/device.hpp>
namespace troupe {
std::unique_ptr<Device> make_sim_device(const SimOptions& options) {
  throw Error(Code::unavailable, "the simulated device is not built yet: " + options.name);
}
}  // namespace troupe
