#include <troupe/devices/cuda/runtime/stretches.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

#include <troupe/devices/cuda/runtime/call.hpp>
#include <troupe/devices/cuda/runtime/work_timer.hpp>

namespace troupe::cuda {
namespace {

// A hash of the bytes, which only saves comparisons.
std::uint64_t hash_of(const HeldCall& call) {
  std::uint64_t hash = reinterpret_cast<std::uintptr_t>(call.issue) ^ call.size;
  std::size_t i = 0;
  for (; i + 8 <= call.size; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, call.bytes + i, 8);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  for (; i < call.size; ++i) hash = (hash ^ call.bytes[i]) * 0x100000001B3ull;
  return hash;
}

}  // namespace

bool holds(cudaStream_t stream) {
  const Stretches::Holding& mine = Stretches::holding();
  return mine.stretches && mine.stream == stream;
}

cudaError_t take(const HeldCall& call) { return Stretches::holding().stretches->take(call); }

// ---- rows of calls

void Stretches::Row::clear() {
  calls.clear();
  bytes.clear();
  keeps.clear();
  origins.clear();
  counted = 0;
}

void Stretches::Row::push(const HeldCall& call, std::shared_ptr<const void> kept) {
  constexpr std::size_t kAligned = 16;
  const std::size_t at = (bytes.size() + kAligned - 1) / kAligned * kAligned;
  bytes.resize(at + call.size);
  std::memcpy(bytes.data() + at, call.bytes, call.size);
  calls.push_back({call.issue, at, call.size, hash_of(call)});
  keeps.push_back(std::move(kept));
}

void Stretches::Row::pop() {
  bytes.resize(calls.back().at);
  calls.pop_back();
  keeps.pop_back();
  if (origins.size() > calls.size()) origins.pop_back();
}

bool Stretches::Row::has_equal(std::size_t i, const Row& other, std::size_t j) const {
  const Call &a = calls[i], &b = other.calls[j];
  return a.hash == b.hash && a.issue == b.issue && a.size == b.size &&
         std::memcmp(bytes.data() + a.at, other.bytes.data() + b.at, a.size) == 0;
}

bool Stretches::Row::begins_with(const Row& other) const {
  if (other.calls.size() > calls.size()) return false;
  // The last first: it is the one that differs.
  for (std::size_t i = other.calls.size(); i-- > 0;)
    if (!has_equal(i, other, i)) return false;
  return true;
}

Stretches::Row Stretches::Row::part(std::size_t first, std::size_t last) const {
  Row row;
  for (std::size_t i = first; i < last; ++i)
    row.push({calls[i].issue, bytes.data() + calls[i].at, calls[i].size}, keeps[i]);
  return row;
}

// ---- taking calls

void Stretches::hold(WorkTimer* timer, const WorkLabel* label) {
  holding() = {this, stream_, nullptr, timer, label};
}

void Stretches::end() {
  if (are_held()) holding() = {};
}

bool Stretches::is_following() {
  Stretches* const mine = holding().stretches;
  if (!mine) return false;
  const std::lock_guard lock(mine->mutex_);
  return mine->is_held_;
}

cudaError_t Stretches::take(const HeldCall& call, std::shared_ptr<const void> keeps) {
  const std::lock_guard lock(mutex_);
  const cudaError_t error = take_locked(call, std::move(keeps));
  if (is_held_) {
    now_.origins.resize(now_.calls.size() - 1);
    now_.origins.push_back(holding().origin ? *holding().origin : Origin());
  }
  has_any_.store(!now_.calls.empty() || !failures_.empty(), std::memory_order_relaxed);
  return error;
}

void Stretches::count() {
  const std::lock_guard lock(mutex_);
  if (is_held_) ++now_.counted;
}

cudaError_t Stretches::take_locked(const HeldCall& call, std::shared_ptr<const void> keeps) {
  if (now_.calls.empty()) return begin(call, std::move(keeps));
  now_.push(call, keeps);
  const std::size_t i = now_.calls.size() - 1;
  if (!is_held_) {
    // A known stretch may begin in the middle of one that was not seen before.
    if (!is_first_of_any(i)) {
      const cudaError_t error = now_.issue(i, stream_);
      if (error != cudaSuccess) now_.clear();
      else if (now_.calls.size() == kMostCalls) finish();
      return error;
    }
    now_.pop();
    finish();
    return begin(call, std::move(keeps));
  }
  const auto goes_on = [&](const Known& known) {
    return i < known.row.calls.size() && now_.has_equal(i, known.row, i);
  };
  if (goes_on(*followed_)) return cudaSuccess;
  if (const Iterator other = find(now_); other != known_.end()) {
    followed_ = other;
    return cudaSuccess;
  }
  const Iterator left = followed_;
  const bool is_cut = i < left->row.calls.size() &&
                      now_.calls[i].issue == left->row.calls[i].issue &&
                      now_.calls[i].size == left->row.calls[i].size;
  if (is_cut) ++left->misses;
  now_.pop();
  // `finish` may forget stretches, but not one that it has just used.
  left->used = ++stretches_;
  finish();
  if (is_cut && left->misses > left->replays) cut(left, i);
  return begin(call, std::move(keeps));
}

// The first call of a stretch.
cudaError_t Stretches::begin(const HeldCall& call, std::shared_ptr<const void> keeps) {
  now_.push(call, std::move(keeps));
  followed_ = is_off_ ? known_.end() : find(now_);
  is_held_ = followed_ != known_.end();
  if (is_held_) return cudaSuccess;
  const cudaError_t error = now_.issue(0, stream_);
  if (error != cudaSuccess || is_off_) now_.clear();
  return error;
}

// Returns the known stretch that begins like this; of several the one used last.
Stretches::Iterator Stretches::find(const Row& beginning) {
  Iterator best = known_.end();
  for (auto it = known_.begin(); it != known_.end(); ++it)
    if (it->row.begins_with(beginning) && (best == known_.end() || it->used > best->used))
      best = it;
  return best;
}

bool Stretches::is_first_of_any(std::size_t call) const {
  return std::any_of(known_.begin(), known_.end(),
                     [&](const Known& k) { return k.row.has_equal(0, now_, call); });
}

// ---- the end of a stretch

std::vector<HeldFailure> Stretches::flush() {
  if (!now_.calls.empty()) finish();
  has_any_.store(false, std::memory_order_relaxed);
  return std::exchange(failures_, {});
}

// Starts what is held, and remembers the stretch.
void Stretches::finish() {
  if (is_held_) {
    Iterator exact = known_.begin();
    while (exact != known_.end() &&
           !(exact->row.calls.size() == now_.calls.size() && exact->row.begins_with(now_)))
      ++exact;
    const bool is_known = exact != known_.end();
    if (is_known) exact->used = ++stretches_;
    if (!is_known || !replay(*exact)) issue_all();
    if (!is_known) remember(now_);
  } else {
    remember(now_);
  }
  now_.clear();
  is_held_ = false;
}

void Stretches::issue_all() {
  for (std::size_t i = 0; i < now_.calls.size(); ++i) {
    const Origin& origin = now_.origins[i];
    if (origin.fault && origin.fault->is_set()) continue;  // its run has failed meanwhile
    const cudaError_t error = now_.issue(i, stream_);
    if (error == cudaSuccess) continue;
    cudaGetLastError();
    failures_.push_back({error, origin});
  }
}

void Stretches::remember(const Row& row) {
  // Stretches of a program in which none repeats are not worth comparing.
  constexpr std::uint64_t kMostUnrepeated = 10'000;
  if (row.calls.size() < kLeastCalls || is_off_) return;
  is_off_ = ++unrepeated_ > kMostUnrepeated;
  if (known_.size() >= kMostKnown)
    forget(std::min_element(known_.begin(), known_.end(),
                            [](const Known& a, const Known& b) { return a.used < b.used; }));
  known_.emplace_back();
  known_.back().row = row;
  known_.back().row.origins.clear();
  known_.back().row.counted = 0;
  known_.back().used = ++stretches_;
}

void Stretches::forget(Iterator known) {
  if (followed_ == known) followed_ = known_.end();
  release(*known);
  known_.erase(known);
}

// Its graph may serve another stretch. A launch of it may be under way: it is destroyed only when
// the stream has nothing to do.
void Stretches::release(Known& known) {
  if (!known.graph) return;
  spare_.emplace_back();
  spare_.back().row = known.row;
  spare_.back().graph = std::exchange(known.graph, nullptr);
  --counters_.graphs;
  constexpr std::size_t kMostSpare = 8;
  if (spare_.size() <= kMostSpare) return;
  if (cudaStreamQuery(stream_) != cudaSuccess) {
    cudaGetLastError();
    return;
  }
  for (; spare_.size() > kMostSpare; spare_.pop_front()) cudaGraphExecDestroy(spare_.front().graph);
}

// The call at `at` differs from run to run: the calls behind it are a stretch of their own. The
// calls before it have been remembered as one.
void Stretches::cut(Iterator known, std::size_t at) {
  const Row rest = known->row.part(at + 1, known->row.calls.size());
  forget(known);
  const bool is_there = std::any_of(known_.begin(), known_.end(), [&](const Known& k) {
    return k.row.calls.size() == rest.calls.size() && k.row.begins_with(rest);
  });
  if (!is_there) remember(rest);
}

// ---- graphs

// Returns false if the calls must be made as they are.
bool Stretches::replay(Known& known) {
  if (known.is_refused || now_.calls.size() < kLeastCalls) return false;
  if (!known.graph && !capture(known)) return false;
  const Holding& mine = holding();
  WorkTimer* const timer = mine.stretches == this ? mine.timer : nullptr;
  cudaEvent_t begin = nullptr;
  try {
    if (timer) begin = timer->begin();
  } catch (...) {  // a failed device: its work has no times
  }
  const cudaError_t error = cudaGraphLaunch(known.graph, stream_);
  if (error != cudaSuccess) {
    cudaGetLastError();
    if (timer) timer->drop(begin);
    release(known);
    spare_.back().row.clear();  // for no other stretch
    ++counters_.failed;
    known.is_refused = true;
    return false;
  }
  const std::size_t launches = known.row.calls.size();
  if (timer)
    timer->end(begin, "graph", false, {.node = -1, .run = mine.label ? mine.label->run : 0},
               static_cast<std::int64_t>(launches));
  meter_.add_graph(now_.counted);
  ++known.replays;
  ++replays_;
  unrepeated_ = 0;
  return true;
}

bool Stretches::capture(Known& known) {
  // Captures that bring fewer than two replays each cost more than launches.
  constexpr std::uint64_t kTried = 64;
  if (counters_.captured >= kTried && replays_ < 2 * counters_.captured) {
    is_off_ = true;
    return false;
  }
  cudaError_t error = cudaSuccess;
  if (!captures_) error = cudaStreamCreateWithFlags(&captures_, cudaStreamNonBlocking);
  cudaGraph_t graph = nullptr;
  if (error == cudaSuccess) {
    error = cudaStreamBeginCapture(captures_, cudaStreamCaptureModeThreadLocal);
    if (error == cudaSuccess) {
      for (std::size_t i = 0; i < known.row.calls.size() && error == cudaSuccess; ++i)
        error = known.row.issue(i, captures_);
      const cudaError_t ended = cudaStreamEndCapture(captures_, &graph);
      if (error == cudaSuccess) error = ended;
    }
  }
  if (error == cudaSuccess) known.graph = make_executable(known.row, graph);
  if (graph) cudaGraphDestroy(graph);
  if (!known.graph) {
    cudaGetLastError();
    end_captures();
    known.is_refused = true;
    ++counters_.failed;
    return false;
  }
  ++counters_.captured;
  ++counters_.graphs;
  if (counters_.graphs > kMostGraphs) {
    Known* oldest = nullptr;
    for (Known& k : known_)
      if (k.graph && &k != &known && (!oldest || k.used < oldest->used)) oldest = &k;
    if (oldest) release(*oldest);
  }
  return true;
}

// A graph of the same kernels takes the new arguments for less than a new one costs. Launches of it
// that are under way keep the old ones.
cudaGraphExec_t Stretches::make_executable(const Row& row, cudaGraph_t graph) {
  const auto is_alike = [&](const Known& k) {
    return std::equal(k.row.calls.begin(), k.row.calls.end(), row.calls.begin(), row.calls.end(),
                      [](const Call& a, const Call& b) { return a.issue == b.issue; });
  };
  const auto like = std::find_if(spare_.begin(), spare_.end(), is_alike);
  if (like != spare_.end()) {
    cudaGraphExecUpdateResultInfo result = {};
    if (cudaGraphExecUpdate(like->graph, graph, &result) == cudaSuccess) {
      const cudaGraphExec_t executable = like->graph;
      spare_.erase(like);
      ++counters_.updated;
      return executable;
    }
    cudaGetLastError();
    like->row.clear();  // for no other stretch
  }
  cudaGraphExec_t executable = nullptr;
  return cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess ? executable : nullptr;
}

// After a capture that failed: the stream must not go on capturing.
void Stretches::end_captures() {
  if (!captures_) return;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  for (int i = 0; i < 2; ++i) {
    if (cudaStreamIsCapturing(captures_, &status) != cudaSuccess) cudaGetLastError();
    if (status == cudaStreamCaptureStatusNone) return;
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(captures_, &graph) != cudaSuccess) cudaGetLastError();
    if (graph) cudaGraphDestroy(graph);
  }
  captures_ = nullptr;  // it stays with the process
  is_off_ = true;
}

Stretches::Counters Stretches::counters() const {
  const std::lock_guard lock(mutex_);
  Counters now = counters_;
  now.known = known_.size();
  return now;
}

Stretches::~Stretches() {
  end();
  try {
    const OnDevice on(device_);
    for (auto* all : {&known_, &spare_})
      for (Known& k : *all)
        if (k.graph) cudaGraphExecDestroy(k.graph);
    if (captures_) cudaStreamDestroy(captures_);
  } catch (...) {  // a failed device
  }
}

}  // namespace troupe::cuda
