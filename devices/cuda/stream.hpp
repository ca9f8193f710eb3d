// A handle on a queue of a GPU, with the fault that errors of its work go to.
#pragma once

#include <memory>

#include <troupe/devices/cuda/runtime/queue.hpp>
#include <troupe/devices/device/device.hpp>

namespace troupe::cuda {

class CudaStream final : public Stream {
 public:
  CudaStream(Device& device, std::shared_ptr<Queue> queue)
      : device_(device), queue_(std::move(queue)) {}
  Device& device() override { return device_; }
  void attribute(std::shared_ptr<Fault> fault, std::int64_t node) override {
    origin_ = {std::move(fault), node};
  }
  std::shared_ptr<Event> record() override { return queue_->record(); }
  std::shared_ptr<Event> mark() override { return queue_->mark(); }
  /// Throws internal for an event of another kind of device.
  void wait(const std::shared_ptr<Event>& event) override;
  void synchronize() override { queue_->synchronize(); }

  Queue& queue() { return *queue_; }
  const Origin& origin() const { return origin_; }
  /// Work that belongs to a run which has failed is not enqueued.
  bool skips() const { return origin_.fault && origin_.fault->is_set(); }

  static CudaStream& of(Stream& stream) { return static_cast<CudaStream&>(stream); }

 private:
  Device& device_;
  const std::shared_ptr<Queue> queue_;
  Origin origin_;
};

}  // namespace troupe::cuda
