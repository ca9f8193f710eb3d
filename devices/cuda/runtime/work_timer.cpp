#include <troupe/devices/cuda/runtime/work_timer.hpp>

#include <chrono>
#include <utility>

#include <troupe/devices/cuda/runtime/call.hpp>

namespace troupe::cuda {
namespace {

std::int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// A stream that has no other work, so that its events pass at once.
class IdleStream {
 public:
  explicit IdleStream(Queue& queue) {
    queue.check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  }
  ~IdleStream() { cudaStreamDestroy(stream_); }
  IdleStream(const IdleStream&) = delete;
  IdleStream& operator=(const IdleStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace

WorkTimer::WorkTimer(std::shared_ptr<Queue> queue, double far)
    : queue_(std::move(queue)), far_(far) {
  const OnDevice on(queue_->device());
  compare_clocks();
}

WorkTimer::~WorkTimer() {
  for (const Piece& p : pieces_) spare_.push_back(p.begin), spare_.push_back(p.end);
  if (base_) spare_.push_back(base_);
  for (cudaEvent_t e : spare_) cudaEventDestroy(e);
}

cudaEvent_t WorkTimer::event() {
  if (!spare_.empty()) {
    cudaEvent_t e = spare_.back();
    spare_.pop_back();
    return e;
  }
  cudaEvent_t e = nullptr;
  queue_->check(cudaEventCreateWithFlags(&e, cudaEventDefault), "making an event");
  return e;
}

// The shortest of some round trips has the least error: the event passed within it.
void WorkTimer::compare_clocks() {
  constexpr int kTrips = 5;
  const IdleStream idle(*queue_);
  for (int i = 0; i < kTrips; ++i) {
    cudaEvent_t e = event();
    const std::int64_t before = now_ns();
    cudaError_t error = cudaEventRecord(e, idle.get());
    if (error == cudaSuccess) error = cudaEventSynchronize(e);
    const std::int64_t after = now_ns();
    if (error != cudaSuccess) {
      spare_.push_back(e);
      queue_->check(error, "comparing a GPU's clock with the host's");
    }
    const std::int64_t half = (after - before + 1) / 2;
    if (base_ && half >= error_ns_) {
      spare_.push_back(e);
      continue;
    }
    if (base_) spare_.push_back(base_);
    base_ = e;
    base_ns_ = static_cast<double>(before + half);
    error_ns_ = half;
  }
}

cudaEvent_t WorkTimer::begin() {
  if (pieces_.size() >= kMost) return nullptr;
  cudaEvent_t e = event();
  if (const cudaError_t error = cudaEventRecord(e, queue_->handle()); error != cudaSuccess) {
    spare_.push_back(e);
    queue_->check(error, "recording an event");
  }
  return e;
}

void WorkTimer::end(cudaEvent_t begin, const char* name, bool is_copy, const WorkLabel& label,
                    std::int64_t launches) noexcept {
  if (!begin) return;
  try {
    cudaEvent_t e = event();
    if (cudaEventRecord(e, queue_->handle()) == cudaSuccess) {
      pieces_.push_back({begin, e, {name, launches, is_copy, label, 0, 0}});
      return;
    }
    cudaGetLastError();
    spare_.push_back(e);
  } catch (...) {  // a failed device: its work has no times
  }
  spare_.push_back(begin);
}

void WorkTimer::drop(cudaEvent_t begin) noexcept {
  if (begin) spare_.push_back(begin);
}

double WorkTimer::ns_between(cudaEvent_t from, cudaEvent_t to) {
  float ms = 0;
  queue_->check(cudaEventElapsedTime(&ms, from, to), "reading an event's time");
  return static_cast<double>(ms) * 1e6;
}

std::vector<TimedWork> WorkTimer::take() {
  const OnDevice on(queue_->device());
  std::vector<TimedWork> done;
  while (!pieces_.empty()) {
    Piece& piece = pieces_.front();
    const cudaError_t state = cudaEventQuery(piece.end);
    if (state != cudaSuccess) {
      cudaGetLastError();
      if (state != cudaErrorNotReady) queue_->check(state, "asking for an event");
      break;
    }
    const double from_base = ns_between(base_, piece.begin),
                 length = ns_between(piece.begin, piece.end);
    piece.work.begin_ns = static_cast<std::int64_t>(base_ns_ + from_base);
    piece.work.length_ns = static_cast<std::int64_t>(length);
    done.push_back(piece.work);
    spare_.push_back(piece.begin);
    if (from_base + length > far_) {
      base_ns_ += from_base + length;
      spare_.push_back(std::exchange(base_, piece.end));
    } else {
      spare_.push_back(piece.end);
    }
    pieces_.pop_front();
  }
  return done;
}

}  // namespace troupe::cuda
