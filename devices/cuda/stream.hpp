// A handle on a queue of a GPU, with the fault that errors of its work go to. Its work may be timed
// by the device (devices/device/activity.hpp).
#pragma once

#include <memory>

#include <troupe/devices/cuda/runtime/queue.hpp>
#include <troupe/devices/cuda/runtime/work_timer.hpp>
#include <troupe/devices/device/activity.hpp>
#include <troupe/devices/device/device.hpp>

namespace troupe::cuda {

class CudaStream final : public Stream, public TimedStream {
 public:
  CudaStream(Device& device, std::shared_ptr<Queue> queue)
      : device_(device), queue_(std::move(queue)) {}
  ~CudaStream() override {
    if (holds()) flush();
  }
  Device& device() override { return device_; }
  void attribute(std::shared_ptr<Fault> fault, std::int64_t node) override {
    origin_ = {std::move(fault), node};
  }
  std::shared_ptr<Event> record() override { return queue_->record(); }
  std::shared_ptr<Event> mark() override { return queue_->mark(); }
  /// Throws internal for an event of another kind of device.
  void wait(const std::shared_ptr<Event>& event) override;
  void synchronize() override { queue_->synchronize(); }
  void hold() override;
  void flush() override;

  void time(bool on) override;
  void label(const WorkLabel& label) override { label_ = label; }
  std::vector<TimedWork> take_timed() override;
  std::int64_t clock_error_ns() const override { return timer_ ? timer_->clock_error_ns() : 0; }

  Queue& queue() { return *queue_; }
  /// True if the calling thread's launches may be held.
  bool holds() const { return queue_->stretches() && queue_->stretches()->are_held(); }
  const Origin& origin() const { return origin_; }
  /// Work that belongs to a run which has failed is not enqueued.
  bool skips() const { return origin_.fault && origin_.fault->is_set(); }

  static CudaStream& of(Stream& stream) { return static_cast<CudaStream&>(stream); }

 private:
  friend class TimedPiece;

  Device& device_;
  const std::shared_ptr<Queue> queue_;
  Origin origin_;
  WorkLabel label_;
  bool is_timing_ = false;
  std::unique_ptr<WorkTimer> timer_;  // kept when timing ends, for the work under way
};

/// A piece of a stream's work, from its construction to its destruction, if the stream is timed. A
/// stretch of launches that are held is a piece by itself.
class TimedPiece {
 public:
  TimedPiece(CudaStream& stream, const char* name, bool is_copy)
      : stream_(stream), name_(name), is_copy_(is_copy),
        begin_(stream.is_timing_ && !(stream.holds() && Stretches::is_following())
                   ? stream.timer_->begin()
                   : nullptr) {}
  /// It enqueued something; else it is dropped.
  void enqueued() { has_work_ = true; }
  ~TimedPiece() {
    if (!begin_) return;
    const bool is_held = stream_.holds() && Stretches::is_following();
    if (has_work_ && !is_held) stream_.timer_->end(begin_, name_, is_copy_, stream_.label_);
    else stream_.timer_->drop(begin_);
  }
  TimedPiece(const TimedPiece&) = delete;
  TimedPiece& operator=(const TimedPiece&) = delete;

 private:
  CudaStream& stream_;
  const char* const name_;
  const bool is_copy_;
  bool has_work_ = false;
  const cudaEvent_t begin_;
};

}  // namespace troupe::cuda
