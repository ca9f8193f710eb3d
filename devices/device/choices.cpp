#include <troupe/devices/device/choices.hpp>

namespace troupe::detail {

// Here, so that plug-ins and the engine have one description of the class.
ChoosingDevice::~ChoosingDevice() = default;

}  // namespace troupe::detail
