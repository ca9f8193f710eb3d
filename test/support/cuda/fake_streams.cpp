// Streams and their threads, and events.
#include <chrono>
#include <thread>

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <troupe/test/support/cuda/fake_state.hpp>

using namespace fake_cuda;

// ---- waiting: TSan sees no order in a futex

void fake_cuda::sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void fake_cuda::wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

void Mark::pass() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  when_ns_.store(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(),
                 std::memory_order_relaxed);
  passed_.store(1, std::memory_order_release);
  wake_all(passed_);
  end_use();
}

bool Mark::is_passed() const {
  // An acquire that finds nothing would still order for TSan.
  return passed_.load(std::memory_order_relaxed) != 0 &&
         passed_.load(std::memory_order_acquire) != 0;
}

void Mark::wait() const {
  while (!is_passed()) sleep_on(passed_, 0);
}

Mark& Marks::take() {
  for (Mark& mark : all_) {
    if (mark.users_.load(std::memory_order_relaxed) != 0) continue;
    mark.passed_.store(0, std::memory_order_relaxed);
    mark.begin_use();
    return mark;
  }
  Mark& mark = all_.emplace_back();
  mark.begin_use();
  return mark;
}

// ---- a stream's queue and its thread

CUstream_st::CUstream_st(int on_device, int its_number, const Options& options)
    : device(on_device), number(its_number), max_delay_us(options.max_delay_us), tail_(new Item),
      head_(tail_), random_(options.seed * 1000003 + static_cast<unsigned>(its_number) + 1) {
  state().running.fetch_add(1, std::memory_order_relaxed);
  std::thread([this] { live(); }).detach();
}

void CUstream_st::append(Item* item) {
  tail_->next.store(item, std::memory_order_release);
  tail_ = item;
  ++pushed_;
  arrivals_.fetch_add(1, std::memory_order_relaxed);
  wake_all(arrivals_);
}

void CUstream_st::push(Work work, bool is_always) {
  std::lock_guard lock(producers_);
  append(new Item{.work = std::move(work), .is_always = is_always});
}

void CUstream_st::push(Mark& mark) {
  std::lock_guard lock(producers_);
  append(new Item{.mark = &mark});
}

Mark& CUstream_st::push_mark() {
  std::lock_guard lock(producers_);
  Mark& mark = marks_.take();
  mark.begin_use();
  append(new Item{.mark = &mark});
  return mark;
}

void CUstream_st::end() {
  std::lock_guard lock(producers_);
  append(new Item{.is_end = true});
}

bool CUstream_st::is_idle() {
  std::lock_guard lock(producers_);
  return done_.load(std::memory_order_relaxed) == pushed_ &&
         done_.load(std::memory_order_acquire) == pushed_;
}

CUstream_st::Item& CUstream_st::take() {
  for (;;) {
    // Relaxed: an acquire would order calls behind later arrivals before this item. x86 keeps the
    // order of the loads, and the fence keeps the compiler's.
    const std::uint32_t arrivals = arrivals_.load(std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (Item* next = head_->next.load(std::memory_order_acquire)) {
      delete head_;
      head_ = next;
      return *next;
    }
    sleep_on(arrivals_, arrivals);
  }
}

void CUstream_st::live() {
  pthread_setname_np(pthread_self(), ("stream " + std::to_string(number)).c_str());
  for (;;) {
    Item& item = take();
    if (item.is_end) break;
    if (max_delay_us != 0)
      usleep(static_cast<useconds_t>(random_.next() % (max_delay_us + std::uint64_t{1})));
    if (item.work && (item.is_always || sticky_error(device) == cudaSuccess)) work(item.work);
    item.work = nullptr;
    done_.fetch_add(1, std::memory_order_release);
    // Last, so that the stream is idle for what the mark wakes.
    if (item.mark != nullptr) item.mark->pass();
  }
  delete head_;
  State& s = state();
  s.running.fetch_sub(1, std::memory_order_release);
  wake_all(s.running);
}

void CUstream_st::work(const Work& what) {
  is_in_work() = true;
  try {
    what(random_);
  } catch (const std::exception& e) {
    violate(std::string("a kernel failed: ") + e.what());
    make_sticky(device, cudaErrorLaunchFailure);
  }
  is_in_work() = false;
}

void fake_cuda::add_work(cudaStream_t stream, Work work, NodeKind kind) {
  if (Graph* graph = stream->capture) {
    Node& node = graph->nodes.emplace_back();
    node.work = std::move(work);
    node.kind = kind;
    return;
  }
  stream->push(std::move(work));
}

cudaError_t fake_cuda::check_capture(cudaStream_t stream) {
  if (stream->capture == nullptr || !stream->is_capture_invalid) return cudaSuccess;
  return result(cudaErrorStreamCaptureInvalidated);
}

cudaError_t fake_cuda::check_not_capturing(const char* name, cudaStream_t stream) {
  if (stream->capture == nullptr) return cudaSuccess;
  violate(std::string(name) + " on a stream that captures");
  stream->is_capture_invalid = true;
  return result(cudaErrorStreamCaptureUnsupported);
}

void fake_cuda::wait_for_device(int device) {
  State& s = state();
  std::vector<Mark*> marks;
  {
    std::lock_guard lock(s.handles);
    for (CUstream_st& stream : s.streams)
      if (stream.device == device && stream.is_alive) marks.push_back(&stream.push_mark());
  }
  count(s.counts.syncs);
  for (Mark* mark : marks) {
    mark->wait();
    mark->end_use();
  }
}

// ---- streams

namespace {

cudaError_t make_stream(cudaStream_t* stream, unsigned flags) {
  if (flags != cudaStreamNonBlocking) violate("a stream waits for the default stream");
  State& s = state();
  std::lock_guard lock(s.handles);
  *stream = &s.streams.emplace_back(current_device(), s.next_stream++, s.options);
  count(s.counts.live_streams);
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  FAKE_CUDA_ENTER("cudaStreamCreateWithFlags");
  return make_stream(stream, flags);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  FAKE_CUDA_ENTER("cudaStreamCreateWithPriority");
  return make_stream(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const cudaError_t refused = enter("cudaStreamDestroy", stream);
  if (refused != cudaSuccess && (is_in_work() || refused != sticky_error(stream->device)))
    return refused;
  if (stream->capture != nullptr) violate("a stream is destroyed while it captures");
  // As the driver does, returns at once; the stream ends behind its work.
  stream->is_alive = false;
  stream->end();
  count(state().counts.live_streams, -1);
  return refused;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  FAKE_CUDA_ENTER("cudaStreamSynchronize", stream);
  if (const cudaError_t error = check_not_capturing("cudaStreamSynchronize", stream)) return error;
  count(state().counts.syncs);
  Mark& mark = stream->push_mark();
  mark.wait();
  mark.end_use();
  return result(sticky_error(stream->device));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  FAKE_CUDA_ENTER("cudaStreamQuery", stream);
  if (const cudaError_t error = check_not_capturing("cudaStreamQuery", stream)) return error;
  count(state().counts.queries);
  return result(stream->is_idle() ? sticky_error(stream->device) : cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  FAKE_CUDA_ENTER("cudaStreamWaitEvent", stream);
  if (event == nullptr || !event->is_alive) return enter("cudaStreamWaitEvent", event);
  std::lock_guard lock(event->mutex);
  if (event->captured_in != nullptr) {
    if (stream->capture == nullptr) stream->capture = event->captured_in;  // it joins the capture
    return cudaSuccess;
  }
  if (stream->capture != nullptr) {
    violate("a stream that captures waits for an event outside of the capture");
    stream->is_capture_invalid = true;
    return result(cudaErrorStreamCaptureIsolation);
  }
  count(state().counts.waits);
  if (event->last == nullptr) return cudaSuccess;
  Mark* mark = event->last;
  mark->begin_use();
  stream->push(
      [mark](Random&) {
        mark->wait();
        mark->end_use();
      },
      true);
  return cudaSuccess;
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  FAKE_CUDA_ENTER("cudaEventCreateWithFlags");
  State& s = state();
  std::lock_guard lock(s.handles);
  *event = &s.events.emplace_back(current_device(), (flags & cudaEventDisableTiming) == 0);
  count(s.counts.live_events);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const cudaError_t refused = enter("cudaEventDestroy", event);
  if (refused != cudaSuccess &&
      (event == nullptr || is_in_work() || refused != sticky_error(event->device)))
    return refused;
  event->is_alive = false;
  count(state().counts.live_events, -1);
  return refused;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  FAKE_CUDA_ENTER("cudaEventRecord", stream);
  if (event == nullptr || !event->is_alive) return enter("cudaEventRecord", event);
  if (event->device != stream->device) {
    violate("cudaEventRecord on a stream of another device than the event's");
    return result(cudaErrorInvalidResourceHandle);
  }
  std::lock_guard lock(event->mutex);
  event->captured_in = stream->capture;
  if (event->captured_in != nullptr) return cudaSuccess;
  count(state().counts.records);
  Mark& mark = event->marks.take();
  event->last = &mark;
  stream->push(mark);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  FAKE_CUDA_ENTER("cudaEventQuery", event);
  count(state().counts.queries);
  std::lock_guard lock(event->mutex);
  if (event->captured_in != nullptr) return result(cudaErrorCapturedEvent);
  if (event->last != nullptr && !event->last->is_passed()) return result(cudaErrorNotReady);
  return result(sticky_error(event->device));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  FAKE_CUDA_ENTER("cudaEventSynchronize", event);
  count(state().counts.syncs);
  Mark* mark = nullptr;
  {
    std::lock_guard lock(event->mutex);
    if (event->captured_in != nullptr) return result(cudaErrorCapturedEvent);
    mark = event->last;
    if (mark != nullptr) mark->begin_use();
  }
  if (mark != nullptr) {
    mark->wait();
    mark->end_use();
  }
  return result(sticky_error(event->device));
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  FAKE_CUDA_ENTER("cudaEventElapsedTime", start);
  FAKE_CUDA_ENTER("cudaEventElapsedTime", end);
  std::int64_t when[2] = {};
  for (int i = 0; i < 2; ++i) {
    const cudaEvent_t event = i == 0 ? start : end;
    std::lock_guard lock(event->mutex);
    if (!event->has_timing || event->last == nullptr || start->device != end->device)
      return result(cudaErrorInvalidResourceHandle);
    if (!event->last->is_passed()) return result(cudaErrorNotReady);
    when[i] = event->last->when_ns();
  }
  *ms = static_cast<float>(static_cast<double>(when[1] - when[0]) * 1e-6);
  return cudaSuccess;
}

}  // extern "C"
