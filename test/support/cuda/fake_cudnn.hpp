// A stand-in for cuDNN: descriptors, heuristics, plans and executions of convolutions by the C API.
//
//   fake_cudnn::reset({.recommends = false});
//   ...                                            // the code under test calls cudnn_library()
//   BOOST_TEST(fake_cudnn::report().planned == 1u);
//
// An execution interprets the plan's operation in the stream's order, in double. The heuristics
// recommend five engines, of which a caller that wants equal bits, full f32 and little memory may
// take the last alone:
//
//   0  refuses to become a plan
//   1  is not deterministic: it fills its result with NaN
//   2  rounds operands of f32 to 10 bits
//   3  wants 2^40 bytes of workspace
//   4  does what is asked, and fills its workspace with 0xFF
//
// A call that cuDNN refuses returns cuDNN's status and is a violation of fake_cuda, unless a test
// planned it. Threads: as cuDNN's.
#pragma once

#include <cstdint>

#include <cudnn.h>

namespace fake_cudnn {

struct Options {
  bool is_missing = false;  // the library cannot be opened
  std::size_t version = 91900;
  cudnnStatus_t created = CUDNN_STATUS_SUCCESS;   // the answer to cudnnCreate
  cudnnStatus_t executed = CUDNN_STATUS_SUCCESS;  // the answer to an execution
  bool recommends = true;                         // else only the fallback has engines
  bool has_fallback = true;
  bool restores = true;  // else serialized plans are refused
};

struct Report {
  std::uint64_t planned = 0, restored = 0, executed = 0;
  std::int64_t live_descriptors = 0, live_handles = 0;
};

/// No call may be in progress.
void reset(const Options& options = {});
Report report();

}  // namespace fake_cudnn
