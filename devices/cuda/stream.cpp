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

void CudaStream::time(bool on) {
  if (on && !timer_) timer_ = std::make_unique<WorkTimer>(queue_);
  is_timing_ = on;
}

void CudaStream::hold() {
  if (queue_->stretches()) queue_->stretches()->hold(is_timing_ ? timer_.get() : nullptr, &label_);
}

void CudaStream::flush() {
  queue_->flush();
  if (queue_->stretches()) queue_->stretches()->end();
}

std::vector<TimedWork> CudaStream::take_timed() {
  return timer_ ? timer_->take() : std::vector<TimedWork>();
}

}  // namespace troupe::cuda
