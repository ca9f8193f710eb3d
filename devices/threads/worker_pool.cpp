#include <troupe/devices/threads/worker_pool.hpp>

#include <troupe/devices/base/error.hpp>
#include <troupe/devices/base/signals.hpp>
#include <troupe/devices/base/spin.hpp>
#include <troupe/devices/threads/parallel_loop.hpp>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace troupe::detail {
namespace {

using namespace std::chrono_literals;
constexpr auto kSearchTime = 30us;  // arriving from sleep takes 22 µs: shorter parks too eagerly
constexpr auto kStuckAfter = 5us;   // an owner that finishes no job for this long is stuck
// for the watcher, and when others search already: see kStuckAfter
constexpr auto kBriefSearch = 10us;
// ms; a lone job's longest wait behind a job that was not known to be long
constexpr int kLongestWatch = 8;
constexpr int kPausesPerLook = 16;   // looking at a ring takes its cache line from the owner
constexpr int kPausesForPlace = 96;  // a searcher looks at wanted_ once in kPausesPerLook
// a worker with a full ring looks at the shared queue this often
constexpr unsigned kFairness = 64;

/// Adds a time to a counter that only the calling thread writes.
void add_ns(std::atomic<std::uint64_t>& counter, std::chrono::steady_clock::time_point from,
            std::chrono::steady_clock::time_point to) {
  const std::chrono::nanoseconds took = to - from;
  counter.store(counter.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(took.count()),
                std::memory_order_relaxed);
}

}  // namespace

// ---- one worker --------------------------------------------------------------------------------

Worker::Worker(WorkerPool& pool, int index, bool threaded)
    : pool_(&pool), index_(index), ring_(threaded) {}

void Worker::live() {
  SignalsBlocked::for_good();
  current_ = this;
  thread_id_ = gettid();
  Job job;
  while (next(job) || search(job)) execute(job);
}

void Worker::execute(Job job) {
  job.run(job.object, *this);
  jobs_.store(jobs_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

bool Worker::next(Job& job) {
  if (++tick_ % kFairness == 0 && pool_->take_injected(job)) return true;
  return ring_.pop(job) || pool_->take_injected(job);
}

/// Looks for work until some is found (true) or the pool stops with nothing left (false).
bool Worker::search(Job& job) {
  pool_->state_.fetch_add(WorkerPool::kSearching, std::memory_order_seq_cst);
  for (;;) {
    auto began = Clock::now();
    const auto crowd = WorkerPool::searching(pool_->state_.load(std::memory_order_relaxed));
    const bool watched = std::exchange(brief_, false),
               brief = watched || 2 * crowd > static_cast<std::uint64_t>(pool_->size()) + 1;
    const auto deadline = began + (brief ? kBriefSearch : kSearchTime);
    do {
      if (look_around(job)) {
        if (watched) pool_->watch_ms_.store(1, std::memory_order_relaxed);
        leave_search();
        count_search(began, true);
        return true;
      }
      if (pool_->wanted_.load(std::memory_order_relaxed) == WorkerPool::kAnybody) {
        lend();
        began = Clock::now();
      }
    } while (ring_.length() == 0 && Clock::now() < deadline);
    const bool is_left = ring_.pop(job);  // by a caller worker
    count_search(began, is_left);
    if (is_left) {
      leave_search();
      return true;
    }
    if (pool_->stopping_.load(std::memory_order_seq_cst) && !pool_->work_visible()) {
      pool_->state_.fetch_sub(WorkerPool::kSearching, std::memory_order_seq_cst);
      return false;
    }
    if (watched)
      pool_->watch_ms_.store(
          std::min(2 * pool_->watch_ms_.load(std::memory_order_relaxed), kLongestWatch),
          std::memory_order_relaxed);
    park();
    if (ring_.pop(job)) {  // by a caller worker
      leave_search();
      return true;
    }
  }
}

/// At the end of a search; not on the way of a worker that has work.
void Worker::count_search(Clock::time_point began, bool found) {
  searches_.store(searches_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (found) finds_.store(finds_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  add_ns(search_ns_, began, Clock::now());
}

/// The worker is awake, or about to be woken; under idle_mutex_.
void Worker::count_sleep() {
  if (parked_since_ != Clock::time_point{}) add_ns(sleep_ns_, parked_since_, Clock::now());
  parked_since_ = {};
}

/// One look at every victim's ring, with the shared queue watched closely meanwhile.
bool Worker::look_around(Job& job) {
  pool_->poll();
  for (int i = 1; i < pool_->size(); ++i) {
    auto& victim = *pool_->workers_[static_cast<std::size_t>((index_ + i) % pool_->size())];
    if (steal_from(victim, job)) return true;
  }
  for (int i = 0; i < kPausesPerLook; ++i) {
    if (pool_->take_injected(job)) return true;
    pause_core();
  }
  return false;
}

bool Worker::steal_from(Worker& victim, Job& job) {
  const auto length = victim.ring_.length();
  if (length == 0) return false;
  bool stuck = false;
  if (length == 1) {
    const auto jobs = victim.jobs_.load(std::memory_order_relaxed);
    auto& seen = sightings_[static_cast<std::size_t>(victim.index_)];
    if (seen.jobs != jobs || seen.since == Clock::time_point{}) seen = {jobs, Clock::now()};
    stuck = Clock::now() - seen.since > kStuckAfter;
  }
  if (!victim.ring_.steal(job, stuck ? 1 : 2)) return false;
  steals_.store(steals_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return true;
}

/// F1, F2: the last searcher answers for the jobs whose submitters relied on it.
void Worker::leave_search() {
  const auto before = pool_->state_.fetch_sub(WorkerPool::kSearching, std::memory_order_seq_cst);
  if (WorkerPool::searching(before) != 1 || WorkerPool::parked(before) == 0) return;
  const bool unwatched = pool_->watcher_.load(std::memory_order_seq_cst) == nullptr;
  if (unwatched || pool_->work_visible()) pool_->wake_if_asleep();
}

/// W1, W2 and the sleep. Enters and returns counted as searching.
void Worker::park() {
  bool watching = false;
  {
    const std::lock_guard guard(pool_->idle_mutex_);
    notified_ = false;  // no thread notifies a worker that is not in parked_
    pool_->parked_.push_back(this);
    parked_since_ = Clock::now();
    watching = pool_->watcher_.load(std::memory_order_relaxed) == nullptr &&
               pool_->parked_.size() < pool_->workers_.size();
    if (watching) pool_->watcher_.store(this, std::memory_order_seq_cst);
    pool_->state_.fetch_add(WorkerPool::kParked - WorkerPool::kSearching,
                            std::memory_order_seq_cst);
  }
  const bool stay = !pool_->work_visible() && !pool_->stopping_.load(std::memory_order_seq_cst);
  if (!stay && pool_->unpark(*this)) return;
  sleep(watching);
}

/// Hands this worker's slot to the caller worker that asked for one. Enters and returns counted as
/// searching, as which the caller worker takes over.
void Worker::lend() {
  {
    const std::lock_guard guard(mutex_);
    notified_ = false;  // no thread notifies a worker that is not in parked_
  }
  auto asked = WorkerPool::kAnybody;
  if (pool_->wanted_.compare_exchange_strong(asked, reinterpret_cast<std::uintptr_t>(this),
                                             std::memory_order_acq_rel))
    sleep(false);
}

void Worker::sleep(bool watching) {
  parks_.store(parks_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  std::unique_lock lock(mutex_);
  const auto notified = [this] { return notified_; };
  if (watching &&
      !wake_.wait_for(lock, pool_->watch_ms_.load(std::memory_order_relaxed) * 1ms, notified)) {
    lock.unlock();
    brief_ = true;
    if (pool_->unpark(*this)) return;
    brief_ = false;
    lock.lock();  // a waker was faster: its notification is on the way
  }
  wake_.wait(lock, notified);
  add_ns(wake_ns_, notified_at_, Clock::now());
  if (allowed_) sched_setaffinity(0, sizeof *allowed_, &*allowed_);
  allowed_.reset();
}

/// Has the sleeping thread wake on another core than this one, if it may run on one. Else the
/// kernel of a virtual machine often wakes it on the waker's own, because it takes an idle virtual
/// core for one that the host has suspended, and moves it on milliseconds later (measured: 2 to 4
/// ms; so 50 to 75 µs).
void Worker::keep_off(int core) {
  cpu_set_t allowed;
  if (sched_getaffinity(thread_id_, sizeof allowed, &allowed) != 0) return;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<std::size_t>(core), &others);
  if (CPU_COUNT(&others) == 0 || CPU_EQUAL(&others, &allowed)) return;
  if (sched_setaffinity(thread_id_, sizeof others, &others) != 0) return;
  const std::lock_guard guard(mutex_);
  allowed_ = allowed;
}

/// The signal comes after the unlock, so that the sleeper does not wake into a held mutex.
void Worker::notify() {
  {
    const std::lock_guard guard(mutex_);
    notified_ = true;
    notified_at_ = Clock::now();
  }
  wake_.notify_one();
}

// ---- the pool ----------------------------------------------------------------------------------

WorkerPool::WorkerPool(int workers) : deterministic_(false) {
  if (workers < 1) throw std::invalid_argument("a worker pool needs at least one worker");
  for (int i = 0; i < workers; ++i) workers_.emplace_back(new Worker(*this, i, true));
  parked_.reserve(workers_.size());
  for (auto& worker : workers_) worker->sightings_.resize(workers_.size());
  int started = 0;
  try {
    for (auto& worker : workers_) {
      worker->thread_ = std::thread([&worker] { worker->live(); });
      ++started;
    }
  } catch (const std::exception& e) {
    stop();
    throw Error(Code::resource_exhausted,
                fmt::format("only {} of {} workers could be started, as the system gives no more "
                            "threads ({}); ask for fewer",
                            started, workers, e.what()));
  }
}

WorkerPool::WorkerPool(Deterministic how) : deterministic_(true), choice_(how.seed) {
  workers_.emplace_back(new Worker(*this, 0, false));
}

WorkerPool::~WorkerPool() {
  if (deterministic_) {
    run_all();
    return;
  }
  stop();
}

void WorkerPool::stop() {
  stopping_.store(true, std::memory_order_seq_cst);
  while (parked(state_.load(std::memory_order_seq_cst)) != 0) wake_one();
  for (auto& worker : workers_)
    if (worker->thread_.joinable()) worker->thread_.join();  // not those that were never started
}

void WorkerPool::poll() {
  if (poller_.load(std::memory_order_relaxed) == nullptr) return;
  polling_.fetch_add(1, std::memory_order_seq_cst);
  if (Poller* const poller = poller_.load(std::memory_order_seq_cst)) poller->poll();
  polling_.fetch_sub(1, std::memory_order_seq_cst);
}

void WorkerPool::stop_polling() {
  poller_.store(nullptr, std::memory_order_seq_cst);
  while (polling_.load(std::memory_order_seq_cst) != 0) pause_core();
}

void WorkerPool::submit(Job job) {
  auto* worker = Worker::current();
  own(worker) ? worker->submit(job) : inject(job);
}

void WorkerPool::submit_elsewhere(Job job) { inject(job); }

void WorkerPool::inject(Job job, int copies) {
  {
    const std::lock_guard guard(inject_mutex_);
    for (int i = 0; i < copies; ++i) queue_.push(job);
    injected_.store(queue_.size(), std::memory_order_seq_cst);
  }
  wake_if_asleep();
}

bool WorkerPool::take_injected(Job& job) {
  if (injected_.load(std::memory_order_seq_cst) == 0) return false;
  const std::lock_guard guard(inject_mutex_);
  if (queue_.size() == 0) return false;
  job = queue_.pop();
  injected_.store(queue_.size(), std::memory_order_seq_cst);
  return true;
}

void WorkerPool::wake_one() {
  Worker* const chosen = take_parked(Taker::thread);
  if (chosen == nullptr) return;
  wakes_.fetch_add(1, std::memory_order_relaxed);
  chosen->keep_off(sched_getcpu());
  chosen->notify();
}

/// The worker parked last (its cache is the warmest), the watcher only if it is alone; null if none
/// is parked. From now on it counts as searching.
Worker* WorkerPool::take_parked(Taker taker) {
  const std::lock_guard guard(idle_mutex_);
  if (parked_.empty()) return nullptr;
  const auto* watcher = watcher_.load(std::memory_order_relaxed);
  if (parked_.back() == watcher && parked_.size() > 1) std::swap(parked_.back(), parked_.front());
  Worker* const chosen = parked_.back();
  parked_.pop_back();
  // a caller worker, whose run may be short, looks at no clock
  if (taker == Taker::thread) chosen->count_sleep();
  chosen->parked_since_ = {};
  if (chosen == watcher) watcher_.store(nullptr, std::memory_order_seq_cst);
  state_.fetch_add(kSearching - kParked, std::memory_order_seq_cst);
  return chosen;
}

/// The slot of a worker that searches and hands it over within about a microsecond; null if none
/// does.
Worker* WorkerPool::take_searching() {
  auto wanted = kNobody;
  if (searching(state_.load(std::memory_order_relaxed)) == 0 ||
      !wanted_.compare_exchange_strong(wanted, kAnybody, std::memory_order_relaxed))
    return nullptr;
  for (int i = 0; i < kPausesForPlace && wanted_.load(std::memory_order_relaxed) == kAnybody; ++i)
    pause_core();
  wanted = kAnybody;
  if (wanted_.compare_exchange_strong(wanted, kNobody, std::memory_order_acquire)) return nullptr;
  wanted_.store(kNobody, std::memory_order_relaxed);
  return reinterpret_cast<Worker*>(wanted);
}

/// Takes back the slot of a worker whose own thread sleeps; it counts as searching. The thread
/// goes on sleeping, parked, if there is nothing for it to do or to watch (invariant 5).
void WorkerPool::give_back(Worker& worker) {
  bool stay = worker.ring_.length() == 0;
  if (stay) {
    const std::lock_guard guard(idle_mutex_);
    const bool watched = watcher_.load(std::memory_order_relaxed) != nullptr ||
                         parked_.size() + 1 == workers_.size();
    auto state = state_.load(std::memory_order_relaxed);
    do stay = watched || searching(state) > 1;
    // W1
    while (stay && !state_.compare_exchange_weak(state, state + kParked - kSearching,
                                                 std::memory_order_seq_cst));
    if (stay) parked_.push_back(&worker);
  }
  if (!stay) {
    wakes_.fetch_add(1, std::memory_order_relaxed);
    worker.notify();
  } else if (work_visible()) {  // W2
    wake_if_asleep();
  }
}

/// A parked worker takes itself back; false if a waker has taken it already.
bool WorkerPool::unpark(Worker& self) {
  const std::lock_guard guard(idle_mutex_);
  const auto found = std::find(parked_.begin(), parked_.end(), &self);
  if (found == parked_.end()) return false;
  parked_.erase(found);
  self.count_sleep();
  if (watcher_.load(std::memory_order_relaxed) == &self)
    watcher_.store(nullptr, std::memory_order_seq_cst);
  state_.fetch_add(kSearching - kParked, std::memory_order_seq_cst);
  return true;
}

bool WorkerPool::work_visible() const {
  if (injected_.load(std::memory_order_seq_cst) != 0) return true;
  return std::any_of(workers_.begin(), workers_.end(),
                     [](auto& worker) { return worker->ring_.length() > 1; });
}

// ---- a caller that works -----------------------------------------------------------------------

CallerWorker::CallerWorker(WorkerPool& pool, Stepped stepped) {
  if (Worker::current_ != nullptr) return;
  if (pool.deterministic()) {
    if (stepped == Stepped::drawn && pool.choice_() % 2 == 0)
      Worker::current_ = worker_ = pool.workers_.front().get();
    return;
  }
  worker_ = pool.take_parked(WorkerPool::Taker::caller_worker);
  if (worker_ == nullptr) worker_ = pool.take_searching();
  if (worker_ == nullptr) return;
  worker_->leave_search();
  Worker::current_ = worker_;
}

CallerWorker::~CallerWorker() {
  if (worker_ == nullptr) return;
  Worker::current_ = nullptr;
  if (worker_->pool_->deterministic()) return;
  worker_->pool_->state_.fetch_add(WorkerPool::kSearching, std::memory_order_seq_cst);
  worker_->pool_->give_back(*worker_);
}

void CallerWorker::run(bool (*done)(const void*), const void* condition) {
  Worker& self = *worker_;
  Job job;
  for (;;) {
    while (!done(condition) && self.next(job)) self.execute(job);
    if (done(condition)) return;
    self.pool_->state_.fetch_add(WorkerPool::kSearching, std::memory_order_seq_cst);
    const auto began = Worker::Clock::now(), deadline = began + kSearchTime;
    bool found = false;
    while (!(found = self.look_around(job)) && !done(condition) &&
           Worker::Clock::now() < deadline) {}
    self.leave_search();
    self.count_search(began, found);
    if (!found) return;
    self.execute(job);
  }
}

void CallerWorker::run_some(int most) {
  Job job;
  while (most-- > 0 && worker_->ring_.pop(job)) worker_->execute(job);
}

// ---- a test's steps ----------------------------------------------------------------------------

bool WorkerPool::step() {
  Job job;
  {
    const std::lock_guard guard(inject_mutex_);
    if (queue_.size() == 0) return false;
    std::swap(queue_.at(0), queue_.at(choice_() % queue_.size()));
    job = queue_.pop();
    injected_.store(queue_.size(), std::memory_order_seq_cst);
  }
  auto* const outer = std::exchange(Worker::current_, workers_.front().get());
  workers_.front()->execute(job);
  Worker::current_ = outer;
  return true;
}

std::size_t WorkerPool::run_all() {
  std::size_t steps = 0;
  while (step()) ++steps;
  return steps;
}

PoolCounters WorkerPool::counters() const {
  PoolCounters sum;
  for (const auto& worker : workers_) {
    sum.jobs += worker->jobs_.load(std::memory_order_relaxed);
    sum.steals += worker->steals_.load(std::memory_order_relaxed);
    sum.parks += worker->parks_.load(std::memory_order_relaxed);
    sum.offers += worker->offers_.load(std::memory_order_relaxed);
    sum.searches += worker->searches_.load(std::memory_order_relaxed);
    sum.finds += worker->finds_.load(std::memory_order_relaxed);
    sum.search_ns += worker->search_ns_.load(std::memory_order_relaxed);
    sum.wake_ns += worker->wake_ns_.load(std::memory_order_relaxed);
  }
  const std::lock_guard guard(idle_mutex_);
  for (const auto& worker : workers_)
    sum.sleep_ns += worker->sleep_ns_.load(std::memory_order_relaxed);
  for (const Worker* worker : parked_)
    if (worker->parked_since_ != Worker::Clock::time_point{})
      sum.sleep_ns += static_cast<std::uint64_t>(
          std::chrono::nanoseconds(Worker::Clock::now() - worker->parked_since_).count());
  sum.wakes = wakes_.load(std::memory_order_relaxed);
  return sum;
}

int WorkerPool::attach(void* user) {
  for (int slot = 0; slot < kSlots; ++slot) {
    void* free = nullptr;
    if (attached_[static_cast<std::size_t>(slot)].compare_exchange_strong(
            free, user, std::memory_order_acq_rel))
      return slot;
  }
  throw std::length_error("all slots of this worker pool are taken");
}

void WorkerPool::detach(int slot) {
  attached_[static_cast<std::size_t>(slot)].store(nullptr, std::memory_order_release);
}

// ---- the shared queue --------------------------------------------------------------------------

void WorkerPool::JobQueue::push(Job job) {
  if (size_ == slots_.size()) {
    std::vector<Job> larger(2 * size_);
    for (std::size_t i = 0; i < size_; ++i) larger[i] = at(i);
    slots_.swap(larger);
    first_ = 0;
  }
  at(size_++) = job;
}

Job WorkerPool::JobQueue::pop() {
  const Job job = at(0);
  first_ = (first_ + 1) & (slots_.size() - 1);
  --size_;
  return job;
}

}  // namespace troupe::detail
