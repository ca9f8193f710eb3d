#include <troupe/cluster/training/arrival_loop.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/cluster/node/fence_scope.hpp>

namespace troupe::detail {

ArrivalLoop::ArrivalLoop(Engine& engine, const Graph& graph, const ArrivalStep& arrivals,
                         const std::vector<Expr>& feeds, std::vector<Expr> fetches, Data data,
                         std::int64_t life, Fence fence)
    : engine_(engine), counts_(arrivals.counts), drops_late_(arrivals.drops_late),
      feeds_each_(feeds.size() / arrivals.sent.size()), data_(std::move(data)), life_(life),
      fence_(std::move(fence)), queued_(arrivals.sent.size()), replicas_(arrivals.sent.size()) {
  if (feeds.size() != feeds_each_ * replicas_.size())
    throw Error(Code::invalid_argument,
                fmt::format("Training: a step has {} feeds for {} replicas; give as many of each "
                            "replica, replica by replica",
                            feeds.size(), replicas_.size()));
  fetches.push_back(arrivals.applied);
  fetches.push_back(arrivals.train);
  update_ = engine.compile(graph, {arrivals.ticket}, fetches);
  for (std::size_t r = 0; r < replicas_.size(); ++r) {
    const auto first = feeds.begin() + static_cast<std::ptrdiff_t>(r * feeds_each_);
    std::vector<Expr> own(first, first + static_cast<std::ptrdiff_t>(feeds_each_));
    own.push_back(arrivals.ticket);
    replicas_[r].program = engine.compile(graph, own, {arrivals.sent[r]});
  }
}

ArrivalLoop::~ArrivalLoop() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    cancel_all();
  }
  changed_.notify_all();
  for (Replica& replica : replicas_)
    if (replica.thread.joinable()) replica.thread.join();
}

void ArrivalLoop::begin() {
  if (!drops_late_) {
    const Tensor counts = engine_.get(counts_);
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      replicas_[r].next = counts.data<std::int64_t>()[r] + queued_.at(r);
      open_ += queued_[r];
    }
  }
  for (std::size_t r = 0; r < replicas_.size(); ++r)
    replicas_[r].thread = std::thread([this, r] { work(r); });
}

std::vector<Tensor> ArrivalLoop::step(std::int64_t step) {
  if (!replicas_[0].thread.joinable()) begin();
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (error_) std::rethrow_exception(error_);
      current_ = step;
      is_paused_ = false;
    }
    changed_.notify_all();
    std::vector<Tensor> fetched;
    try {
      RunOptions options;
      options.step = step;
      RunHandle run = update_.start({ticket(step)}, options);  // may block
      {
        const std::lock_guard lock(mutex_);
        updating_ = std::move(run);
        is_updating_ = true;
        if (error_) updating_.cancel();
      }
      updating_.wait();
      const std::lock_guard lock(mutex_);
      is_updating_ = false;
      fetched = updating_.get();
    } catch (...) {
      fail(std::current_exception());
      const std::lock_guard lock(mutex_);
      std::rethrow_exception(error_);
    }
    fetched.pop_back();
    const bool is_applied = fetched.back().item<bool>();
    fetched.pop_back();
    if (!is_applied) continue;
    {
      const std::lock_guard lock(mutex_);
      if (!drops_late_) --open_;
    }
    changed_.notify_all();
    return fetched;
  }
}

void ArrivalLoop::pause(std::chrono::nanoseconds patience) {
  std::unique_lock lock(mutex_);
  is_paused_ = true;
  const auto has_batch = [](const Replica& replica) { return replica.has_batch; };
  const bool are_done = changed_.wait_for(lock, patience, [&] {
    return is_ending_ || std::none_of(replicas_.begin(), replicas_.end(), has_batch);
  });
  if (error_) std::rethrow_exception(error_);
  if (are_done) return;
  std::vector<std::size_t> late;
  for (std::size_t r = 0; r < replicas_.size(); ++r)
    if (replicas_[r].has_batch) late.push_back(r);
  throw Error(
      Code::deadline_exceeded,
      fmt::format("Training: a checkpoint with queues or actors of the program waits for the "
                  "batches under way, and replicas {} did not end theirs within {} s; let no batch "
                  "wait for a later update, or set TrainingOptions::patience",
                  fmt::join(late, ", "),
                  std::chrono::duration_cast<std::chrono::seconds>(patience).count()));
}

void ArrivalLoop::work(std::size_t r) {
  const FenceScope scope(fence_);
  Replica& replica = replicas_[r];
  std::int64_t batch = 0;
  try {
    while (next_batch(r, batch)) {
      RunOptions options;
      options.step = batch;
      RunHandle run = replica.program.start(feeds_of(r, batch), options);  // may block
      {
        const std::lock_guard lock(mutex_);
        replica.run = std::move(run);
        if (is_ending_) return replica.run.cancel();
        replica.is_running = true;
      }
      const Status status = replica.run.wait();
      {
        const std::lock_guard lock(mutex_);
        replica.is_running = false;
        if (is_ending_) return;
        // `pause` waits on for the error of a run, which `fail` sets.
        replica.has_batch = !status.ok();
      }
      status.throw_if_error();
      changed_.notify_all();
    }
  } catch (...) { fail(std::current_exception()); }
}

bool ArrivalLoop::may_begin(std::size_t r) const {
  if (current_ < 0 || is_paused_) return false;
  if (drops_late_) return replicas_[r].next <= current_;
  return turns_.front() == r &&
         open_ < ArrivalStep::kRoom * static_cast<std::int64_t>(replicas_.size());
}

bool ArrivalLoop::next_batch(std::size_t r, std::int64_t& batch) {
  Replica& replica = replicas_[r];
  {
    std::unique_lock lock(mutex_);
    turns_.push_back(r);
    changed_.wait(lock, [&] { return is_ending_ || may_begin(r); });
    if (is_ending_) return false;
    std::erase(turns_, r);
    if (!drops_late_) ++open_;
    batch = drops_late_ ? current_ : replica.next;
    replica.next = batch + 1;
    replica.has_batch = true;
  }
  changed_.notify_all();  // another replica is the first of `turns_`
  return true;
}

Tensor ArrivalLoop::ticket(std::int64_t step) const {
  return Tensor::of<std::int64_t>({life_, step}, {2});
}

std::vector<Tensor> ArrivalLoop::feeds_of(std::size_t r, std::int64_t batch) {
  std::vector<Tensor> all = [&] {
    const std::lock_guard lock(data_mutex_);
    return data_(batch);
  }();
  if (all.size() != feeds_each_ * replicas_.size())
    throw Error(Code::invalid_argument,
                fmt::format("Training: step {} has {} values for {} feeds; give one of each", batch,
                            all.size(), feeds_each_ * replicas_.size()));
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(r * feeds_each_);
  std::vector<Tensor> own(
      std::make_move_iterator(first),
      std::make_move_iterator(first + static_cast<std::ptrdiff_t>(feeds_each_)));
  own.push_back(ticket(batch));
  return own;
}

void ArrivalLoop::fail(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_ && !is_ending_) error_ = std::move(error);
    is_ending_ = true;
    cancel_all();
  }
  changed_.notify_all();
}

void ArrivalLoop::cancel_all() {
  if (is_updating_) updating_.cancel();
  for (Replica& replica : replicas_)
    if (replica.is_running) replica.run.cancel();
}

}  // namespace troupe::detail
