// The simulated stream device, with functions to drive it by hand.
//
//   auto device = make_sim_device({.manual = true});
//   auto stream = device->make_stream();
//   device->primitives().fill(*stream, one, View(t));   // nothing has happened yet
//   step(*stream);                                      // now it has
//
// Kernels are the CPU's, run later by one thread a stream, each piece after a seeded random delay.
// A piece of work holds raw pointers only, as a GPU's would: it keeps no tensor alive. Freed blocks
// are overwritten in the compute stream's order, so that a breach of these rules shows as NaN (Note
// [Simulated memory] in devices/NOTES.md):
// 1. Work on another stream waits for an event of the compute stream recorded after the tensor was
//    allocated (and filled).
// 2. A tensor used on another stream is kept until an event of that stream, recorded after the use,
//    has passed.
// A view that lies in no live block of the device is refused at once: host memory is foreign here.
//
// Errors. The first error of a stream's work becomes its status; work behind it is skipped until
// the status was reported: by the first event recorded behind it, or by synchronize, whichever
// comes first. A stream that waited for an event which reported an error takes that error on.
//
// Time. Streams also keep a virtual clock (Note [Simulated time] in devices/NOTES.md).
#pragma once

#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/device.hpp>

namespace troupe {

/// A piece of work on the virtual clock, in nanoseconds.
struct SimSpan {
  std::string stream;  // `compute`, or `copies 1` …
  std::string what;    // the primitive; `copy_to_host`, `copy_from_host`
  double begin, end;
};
/// Returns the work that a device made with `is_traced` has run, each stream's in order. Throws
/// invalid_argument for any other device.
std::vector<SimSpan> trace_of(Device& device);
/// The virtual time that a simulated device's compute stream has got to. Throws invalid_argument
/// for any other device.
double virtual_time(Device& device);

/// Runs the next piece of work of a manual device's stream; false if there is none, or if it waits
/// for an event that has not passed. Throws invalid_argument for any other stream.
bool step(Stream& stream);

}  // namespace troupe
