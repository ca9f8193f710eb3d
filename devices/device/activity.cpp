#include <troupe/devices/device/activity.hpp>

namespace troupe::detail {

// Here, so that plug-ins and the engine have one description of the class.
TimedStream::~TimedStream() = default;

}  // namespace troupe::detail
