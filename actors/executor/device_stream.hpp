// DeviceStream: the compute stream of a partition's device, and copies to and from it.
//
// On a synchronous device values are on the host, and copies do nothing. On a stream device the
// partition waits while the stream is full, so that a loop's work and buffers do not pile up there.
// While the partition traces, a device that can time its work has its times recorded.
//
// Threads: the partition's turn. Invariants: 1. the stream is full while it has not reached
// kBatches events, one after each kBatch kernels; 2. the path to a peer is looked for once.
#pragma once

#include <cstdint>
#include <memory>

#include <troupe/actors/executor/partition_driver.hpp>
#include <troupe/actors/executor/partition_observer.hpp>
#include <troupe/actors/executor/run_failures.hpp>
#include <troupe/devices/device/activity.hpp>

namespace troupe {

class DeviceStream {
 public:
  DeviceStream(Device& device, PartitionDriver& driver, PartitionObserver& observer,
               RunFailures& failures)
      : device_(device), driver_(driver), observer_(observer), failures_(failures),
        stream_(device.compute_stream()) {}

  bool is_synchronous() const { return device_.is_synchronous(); }
  Stream& stream() { return *stream_; }

  /// Copies a tensor; a list stays where it is.
  void copy_to_device(Value& value);
  /// Copies a value that comes from outside of the partition, a list with all its elements. A copy
  /// that fails makes the run fail, and the value stays where it is.
  void copy_to_device_or_fail(Run& run, Value& value, std::int32_t source);
  /// Starts a copy to the host, which is complete when the stream has reached it.
  Tensor start_copy_to_host(const Tensor& on_device);
  /// Starts a copy to another device of this process, in that device's order: nothing waits for it
  /// on the host. Empty if the two have no path to each other, or the copy cannot be started.
  Tensor start_copy_to_peer(const Tensor& on_device, Device& peer);

  /// While one lives, launches of the calling thread may be held, to start as one graph.
  class Held {
   public:
    explicit Held(DeviceStream& stream) : stream_(stream.is_synchronous() ? nullptr : &stream) {
      if (stream_) stream_->stream().hold();
    }
    ~Held() {
      if (stream_) stream_->stream().flush();
    }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    DeviceStream* const stream_;
  };

  /// Begins or ends the timing of work on the device.
  void time(bool on);
  /// The work enqueued from now on belongs to this firing.
  void label(const WorkLabel& label) {
    if (timed_) [[unlikely]]
      timed_->label(label);
  }
  /// Records the timed work that has ended.
  void record_timed();

  /// Counts a kernel of the run that was enqueued.
  void count_kernel(const Ref<Run>& run);
  void event_done() { --batches_; }
  /// True if the stream takes no more kernels for now.
  bool is_full() const { return batches_ >= kBatches; }

 private:
  static constexpr int kBatch = 256;
  static constexpr int kBatches = 4;

  /// A handle on a peer's compute queue; null: it has no path from here.
  struct Peer {
    Device* device;
    std::unique_ptr<Stream> stream;
  };

  void copy_token_to_device(Value& value);
  Stream* stream_of(Device& peer);

  Device& device_;
  PartitionDriver& driver_;
  PartitionObserver& observer_;
  RunFailures& failures_;
  std::unique_ptr<Stream> stream_;
  TimedStream* timed_ = nullptr;  // `stream_` while it times its work
  std::vector<Peer> peers_;       // receivers of tokens so far
  int in_batch_ = 0;              // kernels enqueued since the last event
  int batches_ = 0;               // events that the stream has not reached
};

}  // namespace troupe
