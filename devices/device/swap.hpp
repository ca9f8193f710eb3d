// Swapping: values that a loop saves for its gradient move to host memory while the device is full.
//
//   // a device with a memory limit makes its own swapper
//   Swapper swapper(device, {.threshold = 64 << 10, .fill_level = 0.7});
//   List saved(DType::f32, {64, 256});
//   saved.mark_saved(&swapper);
//   saved.push(h);  ...  saved.pop();    // the same tensor, wherever it was meanwhile
//
// A marked list keeps a `Saved` handle in place of each tensor whose buffer is worth swapping. The
// buffer behind the handle is a parcel. Several handles may share one parcel (the same tensor in
// two lists, views of one). See Note [Swapping] in devices/NOTES.md for the states of a parcel.
//
// Threads: any; one mutex a device guards all parcels, the copy streams and the counters. It is
// never held while a stream is waited for, and nothing called under it comes back here.
//
// Invariants, argued in Note [Swapped buffers] in devices/NOTES.md:
// 1. A device buffer leaves its parcel behind the last copy of it, in the compute stream's order.
// 2. A copy out starts behind the work that wrote the buffer. A copy in starts behind the last use
//    of its block, and behind the copy out that it reads.
// 3. A buffer with other holders is not started out.
// 4. The host's copy stays until the copy out has ended.
// 5. No thread waits for a stream.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include <troupe/devices/device/device.hpp>
#include <troupe/devices/tensor/tensor.hpp>

namespace troupe::detail {

struct SwapCounters {
  std::uint64_t out = 0, out_bytes = 0;  // copies to the host
  std::uint64_t in = 0, in_bytes = 0;    // copies back
  std::uint64_t ahead = 0;    // copies back that started before the element was requested
  std::uint64_t again = 0;    // went out without a copy: the host had one
  std::uint64_t on_host = 0;  // bytes there now
  std::uint64_t peak_on_host = 0;
  std::uint64_t made_room = 0;  // allocations that did not fit until memory was given back
};

/// Stands in a marked list in place of a tensor. It never leaves the list.
class Saved final : public Value {
 public:
  /// The tensor, on its device. Throws resource_exhausted if there is no room for it.
  Tensor tensor() const;
  /// The tensor where it is now: on the host if it was swapped out. There its elements are
  /// valid once the compute stream has passed the work enqueued now.
  Tensor peek() const;
  /// Starts to bring it back, if it is away and there is room.
  void approach() const;
  std::size_t bytes() const;

  static const Saved& of(const Value& v) { return static_cast<const Saved&>(v); }

 private:
  friend class Swapper;
  class Body;
  Body& body() const;
};
static_assert(sizeof(Saved) == sizeof(Value));

class Swapper {
 public:
  Swapper(Device& device, const SwapOptions& options);
  ~Swapper();

  /// Returns the list's element: a `Saved`, or the tensor itself if it is not worth swapping.
  Value admit(Tensor tensor);
  /// Gives back memory of swapped-out buffers, enough for `bytes` bytes if there is as much; false
  /// if no memory was left to give.
  bool make_room(std::size_t bytes);
  SwapCounters counters() const;
  const SwapOptions& options() const { return options_; }
  /// For an error's message: the swapped-out bytes, and the remedy.
  std::string advice() const;

  /// The copy streams, for tests that drive a device by hand.
  Stream& copies_out() { return *out_; }
  Stream& copies_in() { return *in_; }

 private:
  friend class Saved;
  struct Parcel;
  using Parcels = std::list<Parcel>;

  Parcel& parcel_of(Ref<Buffer> buffer);
  void release(Parcel& parcel) noexcept;
  void fetch(Parcel& parcel);
  void approach(Parcel& parcel);
  void start_in(Parcel& parcel, Ref<Buffer> buffer);
  bool start_out(Parcel& parcel);
  bool start_oldest_out(const Parcel* newest);
  bool give_back_one();
  void give_back(Parcel& parcel);
  void become_newest(Parcel& parcel);
  void trim(const Parcel* newest);
  void settle(Parcel& parcel);
  Ref<Buffer> host_buffer(std::size_t bytes);
  bool is_above(double level, std::uint64_t but_for) const;
  std::string what_helps() const;

  Device& device_;
  const SwapOptions options_;
  mutable std::mutex mutex_;  // guards everything below, and all parcels
  std::unique_ptr<Stream> compute_, out_, in_;
  Parcels resident_, leaving_, away_;                     // oldest first
  std::unordered_map<const Buffer*, Parcel*> by_buffer_;  // parcels that have a device buffer
  std::uint64_t leaving_bytes_ = 0;
  bool host_is_full_ = false;  // the last copy out found no room there
  SwapCounters counters_;
};

}  // namespace troupe::detail
