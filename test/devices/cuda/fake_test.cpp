// The fake CUDA runtime: order, memory, errors, and the faults that it names.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <cuda.h>

#include <troupe/devices/cuda/kernels/launch.hpp>
#include <troupe/test/support/cuda/fake_cuda.hpp>
#include <troupe/test/support/cuda/host_grid.hpp>

BOOST_AUTO_TEST_SUITE(fake_test)

namespace {

using troupe::cuda::launch;

#define OK(call) BOOST_REQUIRE_EQUAL(cudaGetErrorName(call), "cudaSuccess")
#define ERROR_IS(call, name) BOOST_TEST(std::string(cudaGetErrorName(call)) == #name)

__global__ void fill_with(float* x, float value) { x[threadIdx.x] = value; }

/// A step of a loop that a graph runs until `n` steps are done.
__global__ void halve(float* x, int* i, int n, cudaGraphConditionalHandle goes_on) {
  if (threadIdx.x == 0) cudaGraphSetConditional(goes_on, static_cast<unsigned>(++*i < n));
  x[threadIdx.x] = x[threadIdx.x] * 0.5f + 1;
}

/// Waits in vain.
__global__ void wait_apart() {
  if (threadIdx.x % 2) __syncthreads();
  else __syncwarp();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A fake machine, two streams, and memory on both sides.
struct Machine {
  static constexpr std::size_t kFloats = 64, kBytes = kFloats * sizeof(float);

  explicit Machine(const fake_cuda::Options& options = {.seed = 3, .max_delay_us = 20}) {
    fake_cuda::reset(options);
    OK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithPriority(&copies, cudaStreamNonBlocking, -1));
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    OK(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
    void* p = nullptr;
    OK(cudaHostAlloc(&p, kBytes, cudaHostAllocDefault));
    host = static_cast<float*>(p);
    OK(cudaMallocAsync(&p, kBytes, compute));
    x = static_cast<float*>(p);
  }
  Machine(const Machine&) = delete;
  ~Machine() {
    if (host != nullptr) cudaFreeHost(host);
    fake_cuda::reset();
  }

  void fill(float value) { OK(launch(compute, dim3(1), dim3(64), 0, fill_with, x, value)); }
  /// Work of the compute stream waits until `open` is called.
  void close_gate() {
    std::shared_future<void> opened = gate.get_future().share();
    OK(fake_cuda::enqueue(
        compute, [opened] { opened.wait(); }, "gate"));
  }
  void open() { gate.set_value(); }

  cudaStream_t compute = nullptr, copies = nullptr;
  cudaEvent_t event = nullptr, copied = nullptr;
  float *host = nullptr, *x = nullptr;
  std::promise<void> gate;
};

std::vector<std::string> violations() { return fake_cuda::report().violations; }

void check_one_violation(const std::string& part) {
  const std::vector<std::string> all = violations();
  BOOST_REQUIRE_EQUAL(all.size(), 1u);
  BOOST_TEST(has(all[0], part), all[0]);
}

using WriteValue32 = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

WriteValue32 write_value_entry() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  OK(cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &entry, 12000, cudaEnableDefault,
                                      &found));
  BOOST_TEST((found == cudaDriverEntryPointSuccess) == (entry != nullptr));
  return reinterpret_cast<WriteValue32>(entry);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_swap_out_behind_events_is_right) {
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    Machine m({.seed = seed});
    m.fill(3);
    OK(cudaEventRecord(m.event, m.compute));
    OK(cudaStreamWaitEvent(m.copies, m.event, 0));
    OK(cudaMemcpyAsync(m.host, m.x, Machine::kBytes, cudaMemcpyDeviceToHost, m.copies));
    OK(cudaEventRecord(m.copied, m.copies));
    OK(cudaStreamWaitEvent(m.compute, m.copied, 0));
    OK(cudaFreeAsync(m.x, m.compute));
    OK(cudaEventSynchronize(m.copied));
    for (std::size_t i = 0; i < Machine::kFloats; ++i) BOOST_REQUIRE_EQUAL(m.host[i], 3);
    OK(cudaStreamSynchronize(m.compute));
    const fake_cuda::Report r = fake_cuda::report();
    BOOST_TEST(r.violations.empty());
    BOOST_TEST(r.pageable_copies.empty());
    BOOST_TEST(r.devices[0].live_blocks == 0u);
    BOOST_TEST(r.launches == 1u);
    BOOST_TEST(r.copies == 1u);
    BOOST_TEST(r.syncs == 2u);
  }
}

// Planted faults. TSan and ASan report them as races and as a use after poisoning.
#if !defined(__SANITIZE_THREAD__)
BOOST_AUTO_TEST_CASE(a_copy_that_does_not_wait_sees_no_number) {
  Machine m;
  OK(cudaStreamSynchronize(m.compute));  // the memory is there
  m.close_gate();
  m.fill(3);
  OK(cudaMemcpyAsync(m.host, m.x, Machine::kBytes, cudaMemcpyDeviceToHost, m.copies));
  OK(cudaStreamSynchronize(m.copies));
  BOOST_TEST(std::isnan(m.host[7]));
  m.open();
}

BOOST_AUTO_TEST_CASE(a_write_before_the_allocation_is_lost) {
  Machine m;
  OK(cudaStreamSynchronize(m.compute));
  m.close_gate();
  void* late = nullptr;
  OK(cudaMallocAsync(&late, Machine::kBytes, m.compute));
  OK(cudaMemsetAsync(late, 0, Machine::kBytes, m.copies));  // without a wait
  OK(cudaStreamSynchronize(m.copies));
  m.open();
  OK(cudaMemcpyAsync(m.host, late, Machine::kBytes, cudaMemcpyDeviceToHost, m.compute));
  OK(cudaStreamSynchronize(m.compute));
  BOOST_TEST(std::isnan(m.host[7]));
}
#endif

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
BOOST_AUTO_TEST_CASE(a_block_freed_before_its_copy_is_named) {
  Machine m;
  m.fill(3);
  OK(cudaStreamSynchronize(m.compute));
  std::promise<void> freed;
  std::shared_future<void> is_freed = freed.get_future().share();
  OK(fake_cuda::enqueue(
      m.copies, [is_freed] { is_freed.wait(); }, "gate"));
  OK(cudaMemcpyAsync(m.host, m.x, Machine::kBytes, cudaMemcpyDeviceToHost, m.copies));
  OK(cudaFreeAsync(m.x, m.compute));  // does not wait for the copy
  OK(cudaStreamSynchronize(m.compute));
  freed.set_value();
  OK(cudaStreamSynchronize(m.copies));
  BOOST_TEST(std::isnan(m.host[7]));
  check_one_violation("freed before the stream came to it");
}
#endif

BOOST_AUTO_TEST_CASE(events_report_completed_work) {
  Machine m;
  cudaEvent_t begin = nullptr, end = nullptr;
  OK(cudaEventCreateWithFlags(&begin, cudaEventDefault));
  OK(cudaEventCreateWithFlags(&end, cudaEventDefault));
  OK(cudaEventQuery(m.event));  // never recorded
  OK(cudaEventRecord(begin, m.compute));
  m.close_gate();
  OK(cudaEventRecord(m.event, m.compute));
  OK(cudaEventRecord(end, m.compute));
  ERROR_IS(cudaEventQuery(m.event), cudaErrorNotReady);
  ERROR_IS(cudaStreamQuery(m.compute), cudaErrorNotReady);
  float ms = -1;
  ERROR_IS(cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
  ERROR_IS(cudaGetLastError(), cudaErrorNotReady);
  ERROR_IS(cudaGetLastError(), cudaSuccess);
  m.open();
  OK(cudaEventSynchronize(end));
  OK(cudaEventQuery(m.event));
  OK(cudaEventElapsedTime(&ms, begin, end));
  BOOST_TEST(ms >= 0);
  ERROR_IS(cudaEventElapsedTime(&ms, begin, m.event), cudaErrorInvalidResourceHandle);
  OK(cudaStreamSynchronize(m.compute));
  OK(cudaStreamQuery(m.compute));
  BOOST_TEST(violations().empty());
}

BOOST_AUTO_TEST_CASE(a_chain_over_two_streams_keeps_its_order) {
  Machine m({.seed = 11, .max_delay_us = 30});
  std::vector<int> order;  // written by both streams, which the events order
  for (int i = 0; i < 40; i += 2) {
    for (const int turn : {0, 1}) {
      const cudaStream_t me = turn == 0 ? m.compute : m.copies;
      const cudaEvent_t mine = turn == 0 ? m.event : m.copied;
      OK(fake_cuda::enqueue(
          me, [&order, i, turn] { order.push_back(i + turn); }, "step"));
      OK(cudaEventRecord(mine, me));
      OK(cudaStreamWaitEvent(turn == 0 ? m.copies : m.compute, mine, 0));
    }
  }
  OK(cudaStreamSynchronize(m.compute));
  BOOST_REQUIRE_EQUAL(order.size(), 40u);
  BOOST_TEST(std::is_sorted(order.begin(), order.end()));
}

BOOST_AUTO_TEST_CASE(values_are_written_in_order) {
  Machine m;
  void* word = nullptr;
  OK(cudaHostAlloc(&word, sizeof(std::uint32_t), cudaHostAllocDefault));
  std::atomic_ref number(*static_cast<std::uint32_t*>(word));
  number = 0;
  const WriteValue32 write = write_value_entry();
  BOOST_REQUIRE(write != nullptr);
  for (std::uint32_t i = 1; i <= 20; ++i) {
    OK(cudaMemcpyAsync(m.host, m.x, Machine::kBytes, cudaMemcpyDeviceToHost, m.compute));
    BOOST_TEST(write(m.compute, reinterpret_cast<CUdeviceptr>(word), i, 0) == CUDA_SUCCESS);
  }
  while (number.load(std::memory_order_acquire) < 20) std::this_thread::yield();
  BOOST_TEST(std::isnan(m.host[0]));  // TSan: ordered by the number
  BOOST_TEST(fake_cuda::report().write_values == 20u);
  OK(cudaStreamSynchronize(m.compute));
  OK(cudaFreeHost(word));
  std::uint32_t pageable = 0;
  BOOST_TEST(write(m.compute, reinterpret_cast<CUdeviceptr>(&pageable), 1, 0) ==
             CUDA_ERROR_INVALID_VALUE);
  check_one_violation("neither pinned nor device memory");
  fake_cuda::reset({.has_write_value = false});
  BOOST_TEST((write_value_entry() == nullptr));
}

BOOST_AUTO_TEST_CASE(memory_is_limited_and_pools_keep_theirs) {
  Machine m({.memory = 1 << 20});
  void *p = nullptr, *q = nullptr;
  const std::uint64_t before = fake_cuda::report().devices[0].allocated;
  BOOST_TEST(before == Machine::kBytes);
  OK(cudaMalloc(&p, 500 << 10));
  ERROR_IS(cudaMalloc(&q, 600 << 10), cudaErrorMemoryAllocation);
  BOOST_TEST(q == nullptr);
  ERROR_IS(cudaGetLastError(), cudaErrorMemoryAllocation);
  OK(cudaFree(p));
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool = nullptr;
  OK(cudaMemPoolCreate(&pool, &properties));
  std::uint64_t never = ~0ull, reserved = 0;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &never));
  OK(cudaMallocFromPoolAsync(&p, 700 << 10, pool, m.compute));
  OK(cudaFreeAsync(p, m.compute));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  BOOST_TEST(reserved == std::uint64_t{700 << 10});
  ERROR_IS(cudaMalloc(&q, 400 << 10), cudaErrorMemoryAllocation);  // the memory pool has it
  OK(cudaMallocFromPoolAsync(&p, 600 << 10, pool, m.compute));     // from what it keeps
  OK(cudaFreeAsync(p, m.compute));
  OK(cudaMemPoolTrimTo(pool, 0));
  OK(cudaMalloc(&q, 400 << 10));
  std::size_t free = 0, total = 0;
  OK(cudaMemGetInfo(&free, &total));
  BOOST_TEST(total == std::size_t{1 << 20});
  BOOST_TEST(free == total - (400 << 10) - Machine::kBytes);
  BOOST_TEST(fake_cuda::report().devices[0].peak == before + (700 << 10));
  OK(cudaFree(q));
  OK(cudaMemPoolDestroy(pool));
  BOOST_TEST(violations().empty());
  BOOST_TEST(fake_cuda::report().devices[0].allocated == before);
}

BOOST_AUTO_TEST_CASE(freed_memory_leaves_once_enough_is_kept) {
  Machine m({.max_delay_us = 0, .kept_freed_bytes = 1 << 20});
  for (int i = 0; i < 50; ++i) {
    void* p = nullptr;
    OK(cudaMallocAsync(&p, 256 << 10, m.compute));
    OK(cudaMemsetAsync(p, i, 256 << 10, m.compute));
    OK(cudaFreeAsync(p, m.compute));
    OK(cudaStreamSynchronize(m.compute));
  }
  BOOST_TEST(violations().empty());
  BOOST_TEST(fake_cuda::report().devices[0].live_blocks == 1u);
}

BOOST_AUTO_TEST_CASE(planted_failures_come_when_planned) {
  Machine m;
  fake_cuda::fail("cudaMallocAsync", cudaErrorMemoryAllocation, 1);
  fake_cuda::fail("cudaLaunchKernel", cudaErrorLaunchOutOfResources);
  fake_cuda::fail("a product", cudaErrorInvalidValue);
  void *p = nullptr, *q = nullptr;
  OK(cudaMallocAsync(&p, 8, m.compute));
  ERROR_IS(cudaMallocAsync(&q, 8, m.compute), cudaErrorMemoryAllocation);
  OK(cudaMallocAsync(&q, 8, m.compute));
  ERROR_IS(launch(m.compute, dim3(1), dim3(64), 0, fill_with, m.x, 1.0f),
           cudaErrorLaunchOutOfResources);
  ERROR_IS(fake_cuda::enqueue(
               m.compute, [] {}, "a product"),
           cudaErrorInvalidValue);
  ERROR_IS(cudaPeekAtLastError(), cudaErrorInvalidValue);
  ERROR_IS(launch(m.compute, dim3(1), dim3(64, 32), 0, fill_with, m.x, 1.0f),
           cudaErrorInvalidConfiguration);
  ERROR_IS(launch(m.compute, dim3(1), dim3(64), 100 << 10, fill_with, m.x, 1.0f),
           cudaErrorInvalidConfiguration);
  BOOST_TEST(fake_cuda::report().launches == 0u);
  BOOST_TEST(cudaGetErrorString(cudaErrorIllegalAddress) ==
             std::string("an illegal memory access was encountered"));
}

BOOST_AUTO_TEST_CASE(a_sticky_error_stays_and_hangs_nothing) {
  Machine m({.devices = 2});
  OK(cudaStreamSynchronize(m.compute));
  std::memset(m.host, 0, Machine::kBytes);
  m.close_gate();
  m.fill(3);
  OK(cudaMemcpyAsync(m.host, m.x, Machine::kBytes, cudaMemcpyDeviceToHost, m.compute));
  OK(cudaEventRecord(m.event, m.compute));
  std::thread waits([&] {  // as a thread that watches an event
    ERROR_IS(cudaEventSynchronize(m.event), cudaErrorIllegalAddress);
  });
  fake_cuda::make_sticky(0, cudaErrorIllegalAddress);
  m.open();
  waits.join();
  void* p = nullptr;
  ERROR_IS(cudaMallocAsync(&p, 8, m.compute), cudaErrorIllegalAddress);
  ERROR_IS(cudaStreamSynchronize(m.compute), cudaErrorIllegalAddress);
  ERROR_IS(cudaEventQuery(m.event), cudaErrorIllegalAddress);
  ERROR_IS(cudaGetLastError(), cudaErrorIllegalAddress);
  ERROR_IS(cudaGetLastError(), cudaErrorIllegalAddress);
  BOOST_TEST(m.host[0] == 0);  // the copy did not run
  OK(cudaSetDevice(1));        // the other device works
  OK(cudaMalloc(&p, 8));
  OK(cudaFree(p));
  ERROR_IS(cudaGetLastError(), cudaSuccess);
  OK(cudaSetDevice(0));
  ERROR_IS(cudaStreamDestroy(m.compute), cudaErrorIllegalAddress);
  fake_cuda::reset();
}

BOOST_AUTO_TEST_CASE(a_kernel_that_hangs_breaks_its_device) {
  Machine m;
  OK(launch(m.compute, dim3(1), dim3(64), 0, wait_apart));
  ERROR_IS(cudaStreamSynchronize(m.compute), cudaErrorLaunchFailure);
  check_one_violation("32 threads wait in __syncwarp at fake_test.cpp:");
}

BOOST_AUTO_TEST_CASE(two_devices_are_apart) {
  Machine m({.devices = 2, .memory = 1 << 20});
  int number = 0, can = 0;
  OK(cudaGetDeviceCount(&number));
  BOOST_TEST(number == 2);
  m.fill(5);
  OK(cudaEventRecord(m.event, m.compute));
  OK(cudaSetDevice(1));
  OK(cudaDeviceCanAccessPeer(&can, 1, 0));
  BOOST_TEST(can == 1);
  OK(cudaDeviceEnablePeerAccess(0, 0));
  ERROR_IS(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
  cudaStream_t second = nullptr;
  OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  void* y = nullptr;
  OK(cudaMalloc(&y, 900 << 10));  // the limit is each device's own
  OK(cudaStreamWaitEvent(second, m.event, 0));
  OK(cudaMemcpyPeerAsync(y, 1, m.x, 0, Machine::kBytes, second));
  OK(cudaMemcpyAsync(m.host, y, Machine::kBytes, cudaMemcpyDeviceToHost, second));
  OK(cudaStreamSynchronize(second));
  BOOST_TEST(m.host[63] == 5);
  BOOST_TEST(violations().empty());
  ERROR_IS(launch(m.compute, dim3(1), dim3(64), 0, fill_with, m.x, 1.0f),
           cudaErrorInvalidResourceHandle);
  check_one_violation("cudaLaunchKernel on device 0 while device 1 is current");
  ERROR_IS(cudaSetDevice(2), cudaErrorInvalidDevice);
  OK(cudaFree(y));
}

BOOST_AUTO_TEST_CASE(pageable_copies_are_staged_and_listed) {
  Machine m;
  m.close_gate();
  std::vector<float> values(Machine::kFloats, 2);
  OK(cudaMemcpyAsync(m.x, values.data(), Machine::kBytes, cudaMemcpyHostToDevice, m.compute));
  std::fill(values.begin(), values.end(), 0.0f);  // the call has taken them
  m.open();
  BOOST_TEST(fake_cuda::report().syncs == 0u);
  OK(cudaMemcpyAsync(values.data(), m.x, Machine::kBytes, cudaMemcpyDeviceToHost, m.compute));
  BOOST_TEST(values[9] == 2);  // the call has waited
  const fake_cuda::Report r = fake_cuda::report();
  BOOST_TEST(r.syncs == 1u);
  BOOST_REQUIRE_EQUAL(r.pageable_copies.size(), 2u);
  BOOST_TEST(r.pageable_copies[0] == "cudaMemcpyAsync of 256 bytes from pageable memory");
  BOOST_TEST(r.violations.empty());
}

BOOST_AUTO_TEST_CASE(fake_device_names_forbidden_calls) {
  const auto violates = [](const std::string& part, auto act) {
    Machine m;
    act(m);
    OK(cudaStreamSynchronize(m.copies));
    cudaGetLastError();
    check_one_violation(part);
  };
  violates("uses the default stream", [](Machine& m) {
    ERROR_IS(cudaMemsetAsync(m.x, 0, 8, nullptr), cudaErrorInvalidResourceHandle);
  });
  violates("cudaGetDevice is called by work of a stream", [](Machine& m) {
    OK(fake_cuda::enqueue(
        m.copies,
        [] {
          int device = 0;
          cudaGetDevice(&device);
        },
        "work"));
  });
  violates("cudaLaunchHostFunc is called", [](Machine& m) {
    OK(cudaLaunchHostFunc(
        m.copies, [](void*) {}, nullptr));
  });
  violates("cudaDeviceSynchronize is called", [](Machine&) { OK(cudaDeviceSynchronize()); });
  violates("cudaMemcpyAsync uses a block that was freed", [](Machine& m) {
    OK(cudaFreeAsync(m.x, m.compute));
    ERROR_IS(cudaMemcpyAsync(m.host, m.x, 8, cudaMemcpyDeviceToHost, m.copies),
             cudaErrorInvalidValue);
  });
  violates("cudaFreeAsync of a block that was freed", [](Machine& m) {
    OK(cudaFreeAsync(m.x, m.compute));
    ERROR_IS(cudaFreeAsync(m.x, m.compute), cudaErrorInvalidValue);
  });
  violates("the destination is not the memory that the kind says", [](Machine& m) {
    ERROR_IS(cudaMemcpyAsync(m.host, m.x, 8, cudaMemcpyHostToDevice, m.copies),
             cudaErrorInvalidValue);
  });
  violates("uses a stream that was destroyed", [](Machine& m) {
    OK(cudaStreamDestroy(m.compute));
    ERROR_IS(cudaStreamSynchronize(m.compute), cudaErrorInvalidResourceHandle);
  });
}

BOOST_AUTO_TEST_CASE(a_captured_loop_stays_on_the_device) {
  Machine m;
  void* counter = nullptr;
  OK(cudaMallocAsync(&counter, sizeof(int), m.compute));
  OK(cudaMemsetAsync(counter, 0, sizeof(int), m.compute));
  OK(cudaMemsetAsync(m.x, 0, Machine::kBytes, m.compute));
  cudaGraph_t graph = nullptr, same = nullptr;
  OK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle goes_on = 0;
  OK(cudaGraphConditionalHandleCreate(&goes_on, graph, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams node = {};
  node.type = cudaGraphNodeTypeConditional;
  node.conditional.handle = goes_on;
  node.conditional.type = cudaGraphCondTypeWhile;
  node.conditional.size = 1;
  cudaGraphNode_t added = nullptr;
  OK(cudaGraphAddNode(&added, graph, nullptr, nullptr, 0, &node));
  const cudaGraph_t body = node.conditional.phGraph_out[0];
  OK(cudaStreamBeginCaptureToGraph(m.compute, body, nullptr, nullptr, 0,
                                   cudaStreamCaptureModeThreadLocal));
  OK(launch(m.compute, dim3(1), dim3(32), 0, halve, m.x, static_cast<int*>(counter), 50, goes_on));
  OK(cudaStreamEndCapture(m.compute, &same));
  BOOST_TEST(same == body);
  cudaGraphExec_t executable = nullptr;
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphLaunch(executable, m.compute));
  OK(cudaMemcpyAsync(m.host, m.x, Machine::kBytes, cudaMemcpyDeviceToHost, m.compute));
  OK(cudaMemcpyAsync(m.host + 63, counter, sizeof(int), cudaMemcpyDeviceToHost, m.compute));
  OK(cudaGraphExecDestroy(executable));  // while it may still run
  OK(cudaStreamSynchronize(m.compute));
  BOOST_TEST(__builtin_bit_cast(int, m.host[63]) == 50);
  BOOST_TEST(std::fabs(m.host[31] - 2) < 1e-6f);
  BOOST_TEST(violations().empty());
  BOOST_TEST(fake_cuda::report().live_graphs == 0u);
}

BOOST_AUTO_TEST_CASE(a_capture_spans_streams_and_refuses_to_wait) {
  Machine m;
  OK(cudaStreamSynchronize(m.compute));
  OK(cudaStreamBeginCapture(m.compute, cudaStreamCaptureModeThreadLocal));
  m.fill(1);
  OK(cudaEventRecord(m.event, m.compute));
  OK(cudaStreamWaitEvent(m.copies, m.event, 0));
  OK(cudaMemcpyAsync(m.host, m.x, Machine::kBytes, cudaMemcpyDeviceToHost, m.copies));
  cudaGraph_t graph = nullptr;
  OK(cudaStreamEndCapture(m.compute, &graph));
  BOOST_TEST(fake_cuda::report().copies == 1u);
  BOOST_TEST(std::isnan(m.host[0]));  // nothing has run
  cudaGraphExec_t executable = nullptr;
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphLaunch(executable, m.copies));
  OK(cudaStreamSynchronize(m.copies));
  BOOST_TEST(m.host[0] == 1);
  OK(cudaStreamBeginCapture(m.compute, cudaStreamCaptureModeThreadLocal));
  void* p = nullptr;
  ERROR_IS(cudaMalloc(&p, 8), cudaErrorStreamCaptureUnsupported);
  ERROR_IS(cudaStreamSynchronize(m.compute), cudaErrorStreamCaptureUnsupported);
  ERROR_IS(cudaStreamEndCapture(m.compute, &graph), cudaErrorStreamCaptureInvalidated);
  BOOST_TEST(violations().size() == 2u);
}

BOOST_AUTO_TEST_CASE(a_capture_records_and_a_broken_one_refuses_calls) {
  Machine m;
  OK(cudaStreamSynchronize(m.compute));
  const std::uint64_t before = fake_cuda::report().launches;
  cudaGraph_t graph = nullptr;
  OK(cudaStreamBeginCapture(m.compute, cudaStreamCaptureModeThreadLocal));
  OK(launch(m.compute, dim3(1), dim3(64), 0, fill_with, m.x, 5.f));
  OK(cudaStreamEndCapture(m.compute, &graph));
  OK(cudaStreamSynchronize(m.compute));
  BOOST_TEST(fake_cuda::report().launches == before);
  BOOST_TEST(fake_cuda::report().captured == 1u);
  OK(cudaGraphDestroy(graph));
  // A call that allocates breaks what the thread captures: later calls of the capture are refused.
  OK(cudaStreamBeginCapture(m.compute, cudaStreamCaptureModeThreadLocal));
  void* p = nullptr;
  ERROR_IS(cudaMalloc(&p, 8), cudaErrorStreamCaptureUnsupported);
  ERROR_IS(launch(m.compute, dim3(1), dim3(64), 0, fill_with, m.x, 5.f),
           cudaErrorStreamCaptureInvalidated);
  ERROR_IS(cudaMemsetAsync(m.x, 0, Machine::kBytes, m.compute), cudaErrorStreamCaptureInvalidated);
  ERROR_IS(cudaStreamEndCapture(m.compute, &graph), cudaErrorStreamCaptureInvalidated);
  BOOST_TEST(graph == nullptr);
  OK(launch(m.compute, dim3(1), dim3(64), 0, fill_with, m.x, 5.f));
  // A capture ends on the thread that began it.
  OK(cudaStreamBeginCapture(m.compute, cudaStreamCaptureModeThreadLocal));
  cudaError_t elsewhere = cudaSuccess;
  std::thread([&] { elsewhere = cudaStreamEndCapture(m.compute, &graph); }).join();
  BOOST_TEST(elsewhere == cudaErrorStreamCaptureWrongThread);
  ERROR_IS(cudaStreamEndCapture(m.compute, &graph), cudaErrorStreamCaptureInvalidated);
  BOOST_TEST(violations().size() == 2u);
}

BOOST_AUTO_TEST_CASE(an_update_changes_later_launches_of_like_graphs) {
  Machine m;
  const auto capture = [&](float value, int launches, bool with_memset = false) {
    cudaGraph_t graph = nullptr;
    OK(cudaStreamBeginCapture(m.copies, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches; ++i)
      OK(launch(m.copies, dim3(1), dim3(64), 0, fill_with, m.x, value));
    if (with_memset) OK(cudaMemsetAsync(m.x, 0, 4, m.copies));
    OK(cudaStreamEndCapture(m.copies, &graph));
    return graph;
  };
  const cudaGraph_t first = capture(1, 2), second = capture(2, 2), longer = capture(3, 3),
                    other = capture(4, 1, true);
  cudaGraphExec_t executable = nullptr;
  OK(cudaGraphInstantiate(&executable, first, 0));
  OK(cudaGraphLaunch(executable, m.compute));
  OK(cudaMemcpyAsync(m.host, m.x, 4, cudaMemcpyDeviceToHost, m.compute));
  cudaGraphExecUpdateResultInfo info = {};
  OK(cudaGraphExecUpdate(executable, second, &info));  // the launch before keeps its arguments
  BOOST_TEST(info.result == cudaGraphExecUpdateSuccess);
  OK(cudaGraphLaunch(executable, m.compute));
  OK(cudaMemcpyAsync(m.host + 1, m.x, 4, cudaMemcpyDeviceToHost, m.compute));
  ERROR_IS(cudaGraphExecUpdate(executable, longer, &info), cudaErrorGraphExecUpdateFailure);
  BOOST_TEST(info.result == cudaGraphExecUpdateErrorTopologyChanged);
  ERROR_IS(cudaGraphExecUpdate(executable, other, &info), cudaErrorGraphExecUpdateFailure);
  BOOST_TEST(info.result == cudaGraphExecUpdateErrorNodeTypeChanged);
  OK(cudaStreamSynchronize(m.compute));
  BOOST_TEST(m.host[0] == 1);
  BOOST_TEST(m.host[1] == 2);
  BOOST_TEST(fake_cuda::report().graph_updates == 1u);
  for (const cudaGraph_t graph : {first, second, longer, other}) OK(cudaGraphDestroy(graph));
  OK(cudaGraphExecDestroy(executable));
  BOOST_TEST(fake_cuda::report().live_graphs == 0u);
  BOOST_TEST(violations().empty());
}

BOOST_AUTO_TEST_CASE(a_reset_ends_streams_behind_their_work) {
  std::atomic<int> done{0};
  fake_cuda::reset({.max_delay_us = 100});
  for (int i = 0; i < 5; ++i) {
    cudaStream_t stream = nullptr;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int k = 0; k < 5; ++k)
      OK(fake_cuda::enqueue(
          stream, [&done] { ++done; }, "work"));
    if (i % 2) OK(cudaStreamDestroy(stream));
  }
  fake_cuda::reset();
  BOOST_TEST(done == 25);
  BOOST_TEST(fake_cuda::report().live_streams == 0u);
}

#undef OK
#undef ERROR_IS

BOOST_AUTO_TEST_SUITE_END()
