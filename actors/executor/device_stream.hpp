// DeviceStream: the compute stream of a partition's device, and copies to and from it.
//
// On a synchronous device values are on the host, and copies do nothing. On a stream device the
// stream takes up to kBatches batches of kBatch kernels that it has not run; then the partition
// waits for it, so that a loop's work and buffers do not pile up there.
//
// Threads: the partition's turn.
#pragma once

#include <cstdint>
#include <memory>

#include <troupe/actors/executor/partition_driver.hpp>
#include <troupe/actors/executor/partition_observer.hpp>
#include <troupe/actors/executor/run_failures.hpp>

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
  std::vector<Peer> peers_;  // receivers of tokens so far
  int in_batch_ = 0;         // kernels enqueued since the last event
  int batches_ = 0;          // events that the stream has not reached
};

}  // namespace troupe
