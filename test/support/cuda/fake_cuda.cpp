// Options, reports and planted failures; what every call does first.
#include <troupe/test/support/cuda/fake_cuda.hpp>

#include <cstdlib>
#include <stdexcept>

#include <troupe/test/support/cuda/fake_state.hpp>

namespace fake_cuda {

namespace {

constexpr std::size_t kMaxTexts = 200;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != 0 ? std::strtoull(text, nullptr, 0) : otherwise;
}

Options options_from_environment() {
  Options o;
  o.seed = number_from("TROUPE_FAKE_CUDA_SEED", o.seed);
  o.max_delay_us = static_cast<std::uint32_t>(number_from("TROUPE_FAKE_CUDA_DELAY_US", 0));
  o.devices = static_cast<int>(number_from("TROUPE_FAKE_CUDA_DEVICES", 1));
  o.memory = number_from("TROUPE_FAKE_CUDA_MEMORY", o.memory);
  return o;
}

void check(const Options& o) {
  if (o.devices < 0 || o.devices > kMaxDevices)
    throw std::invalid_argument("fake_cuda has " + std::to_string(o.devices) +
                                " devices; use 0 to " + std::to_string(kMaxDevices));
}

}  // namespace

State::State(const Options& o) : options(o) {
  for (int i = 0; i < kMaxDevices; ++i)
    devices[i].default_pool = std::make_unique<CUmemPoolHandle_st>(i);
}

State& state() {
  static State& one = [&]() -> State& {
    const Options options = options_from_environment();
    check(options);
    return *new State(options);
  }();
  return one;
}

int& current_device() {
  static thread_local int device = 0;
  return device;
}

bool& is_in_work() {
  static thread_local bool is = false;
  return is;
}

int& captures_begun() {
  static thread_local int number = 0;
  return number;
}

void violate(std::string what) {
  State& s = state();
  std::lock_guard lock(s.texts);
  if (s.violations.size() < kMaxTexts) s.violations.push_back(std::move(what));
}

cudaError_t& last_error() {
  static thread_local cudaError_t error = cudaSuccess;
  return error;
}

cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess) last_error() = error;
  return error;
}

cudaError_t sticky_error(int device) {
  return static_cast<cudaError_t>(state().devices[device].sticky.load(std::memory_order_relaxed));
}

cudaError_t planted(const char* name) {
  State& s = state();
  if (!s.has_failures.load(std::memory_order_relaxed)) return cudaSuccess;
  std::lock_guard lock(s.plans);
  cudaError_t answer = cudaSuccess;
  auto [it, end] = s.failures.equal_range(name);
  while (it != end) {
    auto& [calls_to_go, error] = it->second;
    if (calls_to_go-- > 0) {
      ++it;
      continue;
    }
    answer = error;
    it = s.failures.erase(it);
  }
  return answer;
}

cudaError_t enter(const char* name, int device) {
  if (is_in_work()) {
    violate(std::string(name) + " is called by work of a stream");
    return result(cudaErrorNotPermitted);
  }
  if (state().options.devices == 0) return result(cudaErrorNoDevice);
  if (const cudaError_t error = sticky_error(device)) return result(error);
  return result(planted(name));
}

cudaError_t enter(const char* name) { return enter(name, current_device()); }

cudaError_t enter(const char* name, cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
    violate(std::string(name) + " uses the default stream");
    return result(cudaErrorInvalidResourceHandle);
  }
  if (!stream->is_alive.load(std::memory_order_relaxed)) {
    violate(std::string(name) + " uses a stream that was destroyed");
    return result(cudaErrorInvalidResourceHandle);
  }
  return enter(name, stream->device);
}

cudaError_t enter(const char* name, cudaEvent_t event) {
  if (event == nullptr || !event->is_alive.load(std::memory_order_relaxed)) {
    violate(std::string(name) + " uses an event that was destroyed");
    return result(cudaErrorInvalidResourceHandle);
  }
  return enter(name, event->device);
}

cudaError_t check_current(const char* name, int device) {
  if (current_device() == device) return cudaSuccess;
  violate(std::string(name) + " on device " + std::to_string(device) + " while device " +
          std::to_string(current_device()) + " is current");
  return result(cudaErrorInvalidResourceHandle);
}

cudaError_t check_no_capture(const char* name) {
  if (captures_begun() == 0) return cudaSuccess;
  violate(std::string(name) + " while the thread captures");
  State& s = state();
  std::lock_guard lock(s.handles);
  for (CUstream_st& stream : s.streams)
    if (stream.capture != nullptr && stream.capture_thread.load() == std::this_thread::get_id())
      stream.is_capture_invalid = true;
  return result(cudaErrorStreamCaptureUnsupported);
}

void reset(const Options& options) {
  check(options);
  State& s = state();
  {
    std::lock_guard lock(s.handles);
    for (CUstream_st& stream : s.streams)
      if (stream.is_alive.exchange(false, std::memory_order_relaxed)) stream.end();
    for (CUevent_st& event : s.events) event.is_alive = false;
    for (CUmemPoolHandle_st& pool : s.pools) pool.is_alive = false;
    s.next_stream = 0;
  }
  while (const std::uint32_t running = s.running.load(std::memory_order_acquire))
    sleep_on(s.running, running);
  free_all_graphs();
  free_all_memory();
  {
    std::scoped_lock lock(s.texts, s.plans);
    s.violations.clear();
    s.pageable_copies.clear();
    s.failures.clear();
    s.has_failures = false;
  }
  for (Device& device : s.devices) device.sticky = cudaSuccess;
  Counts& c = s.counts;
  for (auto* counter :
       {&c.allocations, &c.launches, &c.captured, &c.graph_launches, &c.graph_updates, &c.host_work,
        &c.copies, &c.write_values, &c.records, &c.waits, &c.queries, &c.syncs, &c.live_streams,
        &c.live_events, &c.live_pools, &c.live_graphs})
    *counter = 0;
  s.options = options;
  s.max_shared_bytes = kSharedBytes;
  last_error() = cudaSuccess;
  current_device() = 0;
  captures_begun() = 0;
}

void fail(const std::string& name, cudaError_t error, int after) {
  State& s = state();
  std::lock_guard lock(s.plans);
  s.failures.emplace(name, std::pair(after, error));
  s.has_failures.store(true, std::memory_order_relaxed);
}

void make_sticky(int device, cudaError_t error) {
  if (is_device(device)) state().devices[device].sticky.store(error, std::memory_order_relaxed);
}

Report report() {
  State& s = state();
  Report r;
  {
    std::lock_guard lock(s.memory);
    for (int i = 0; i < s.options.devices; ++i)
      r.devices.push_back({s.devices[i].allocated, s.devices[i].peak, s.devices[i].live_blocks});
    r.pinned = s.pinned_bytes;
  }
  {
    std::lock_guard lock(s.texts);
    r.pageable_copies = s.pageable_copies;
    r.violations = s.violations;
  }
  r.live_streams = s.counts.live_streams;
  r.live_events = s.counts.live_events;
  r.live_pools = s.counts.live_pools;
  r.live_graphs = s.counts.live_graphs;
  r.allocations = s.counts.allocations;
  r.launches = s.counts.launches;
  r.captured = s.counts.captured;
  r.graph_launches = s.counts.graph_launches;
  r.graph_updates = s.counts.graph_updates;
  r.host_work = s.counts.host_work;
  r.copies = s.counts.copies;
  r.write_values = s.counts.write_values;
  r.records = s.counts.records;
  r.waits = s.counts.waits;
  r.queries = s.counts.queries;
  r.syncs = s.counts.syncs;
  return r;
}

}  // namespace fake_cuda
