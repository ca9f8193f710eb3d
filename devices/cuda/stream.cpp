#include <troupe/devices/cuda/stream.hpp>

#include <fmt/format.h>

namespace troupe::cuda {

void CudaStream::wait(const std::shared_ptr<Event>& event) {
  const auto* const point = dynamic_cast<const PointEvent*>(event.get());
  if (!point && event->is_done()) return;
  if (!point)
    throw Error(Code::internal,
                fmt::format("a stream of {} cannot wait for an event of another kind of device",
                            device_.name()));
  queue_->wait(*point);
}

}  // namespace troupe::cuda
