// A CUDA runtime without a device, for tests: it defines the entry points that the plug-in calls.
//
//   fake_cuda::reset({.seed = 3, .devices = 2});
//   fake_cuda::fail("cudaMallocFromPoolAsync", cudaErrorMemoryAllocation, 2);
//   ...                                                  // the code under test calls cuda*
//   BOOST_TEST(fake_cuda::report().violations.empty());
//
// A stream is a thread that works after seeded delays. Device memory is host memory. Kernels that
// g++ has compiled run through host_grid. A call that a real device answers with an error, a hang
// or wrong numbers is a violation, which the report names.
//
// Without `reset`, the options come from the environment at the first call: TROUPE_FAKE_CUDA_SEED,
// _DELAY_US (0 if unset), _DEVICES and _MEMORY (bytes).
//
// Threads: every function may be called from any thread, except where it says otherwise.
// Ownership: handles and memory stay the fake's. A use after the end is a violation, not a crash.
// Invariants and limits: README.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

namespace fake_cuda {

inline constexpr int kMaxDevices = 8;

struct Options {
  std::uint64_t seed = 1;           // orders delays, threads and blocks; 0: kernels run in order
  std::uint32_t max_delay_us = 50;  // before each piece of a stream's work
  int devices = 1;                  // at most kMaxDevices
  std::uint64_t memory = std::uint64_t{1} << 30;  // bytes a device
  // Freed memory stays readable as 0xFF, and poisoned under ASan, up to this many bytes.
  std::uint64_t kept_freed_bytes = std::uint64_t{256} << 20;
  bool has_write_value = true;  // the driver has cuStreamWriteValue32 and 64
  bool has_peer_access = true;
};

/// Ends all streams behind their work, frees device memory and clears the report, planted failures
/// and sticky errors. Live pinned memory stays, because a process caches it beyond its devices. No
/// call may be in progress. A handle that is used afterwards is a violation.
void reset(const Options& options = {});

/// Plants a failure: the call of `name` after the next `after` calls does nothing and returns
/// `error`. Launches are "cudaLaunchKernel"; `enqueue` answers to its `name` argument.
void fail(const std::string& name, cudaError_t error, int after = 0);

/// From now on each call on `device` returns `error`, and queued work does not run, as behind an
/// illegal address. Events and stream waits pass, so that nothing hangs.
void make_sticky(int device, cudaError_t error);

struct DeviceReport {
  // bytes taken from the device's memory; memory pools count what they hold
  std::uint64_t allocated = 0;
  std::uint64_t peak = 0;  // the largest `allocated`
  std::uint64_t live_blocks = 0;
};

struct Report {
  std::vector<DeviceReport> devices;
  std::uint64_t live_streams = 0, live_events = 0, live_pools = 0,
                live_graphs = 0;  // and executables
  std::uint64_t pinned = 0;       // bytes
  // Calls that were accepted.
  std::uint64_t allocations = 0;  // by any call for device memory
  std::uint64_t launches = 0, graph_launches = 0;
  std::uint64_t host_work = 0;      // `enqueue`
  std::uint64_t captured = 0;       // launches and host work that a capture recorded
  std::uint64_t graph_updates = 0;  // executables that took another graph's arguments
  std::uint64_t copies = 0, write_values = 0;
  std::uint64_t records = 0, waits = 0;  // with events
  std::uint64_t queries = 0;             // for events and streams
  std::uint64_t syncs = 0;  // calls that block the caller, large pageable copies included
  // Texts, at most 200 each.
  std::vector<std::string> pageable_copies;
  std::vector<std::string> violations;
};
Report report();

/// Enqueues a piece of host work in the stream's order, as a launch would be: for stand-ins of
/// cuBLASLt and of compiled programs. The work may not call CUDA. If it throws, the device gets a
/// sticky cudaErrorLaunchFailure.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work, const char* name);

}  // namespace fake_cuda
