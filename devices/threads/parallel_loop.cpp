#include <troupe/devices/threads/parallel_loop.hpp>

#include <troupe/devices/base/spin.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

namespace troupe::detail {

void ParallelLoop::run(WorkerPool& pool, int blocks, Body body, const void* f, int helpers) {
  body_ = body;
  f_ = f;
  blocks_ = blocks;
  claimed_.store(0, std::memory_order_relaxed);
  from_last_.store(0, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  open_.store(true, std::memory_order_seq_cst);
  const int missing = std::min(helpers, blocks - 1) - invited_.load(std::memory_order_seq_cst);
  if (missing > 0) {
    invited_.fetch_add(missing, std::memory_order_seq_cst);
    pool.inject({&accept, this}, missing);
  }
  work(true);
  open_.store(false, std::memory_order_seq_cst);
  for (Spin spin; inside_.load(std::memory_order_seq_cst) != 0;) spin.wait();
  if (failed_.load(std::memory_order_relaxed))
    std::rethrow_exception(std::exchange(error_, nullptr));
}

void ParallelLoop::accept(void* object, Worker&) {
  auto& loop = *static_cast<ParallelLoop*>(object);
  loop.invited_.fetch_sub(1, std::memory_order_seq_cst);
  loop.inside_.fetch_add(1, std::memory_order_seq_cst);
  if (loop.open_.load(std::memory_order_seq_cst)) loop.work(false);
  loop.inside_.fetch_sub(1, std::memory_order_seq_cst);
}

void ParallelLoop::work(bool is_caller) {
  for (int mine = 0; claimed_.fetch_add(1, std::memory_order_relaxed) < blocks_; ++mine) {
    const int block =
        is_caller ? mine : blocks_ - 1 - from_last_.fetch_add(1, std::memory_order_relaxed);
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      body_(f_, block);
    } catch (...) {
      if (!failed_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();
    }
  }
}

void WorkerPool::run_blocks(int blocks, ParallelLoop::Body body, const void* f) {
  if (deterministic_) return run_blocks_seeded(blocks, body, f);
  if (blocks <= 1 || size() == 1) {
    for (int block = 0; block < blocks; ++block) body(f, block);
    return;
  }
  struct Loan {
    WorkerPool& pool;
    ParallelLoop& loop = pool.borrow_loop();
    ~Loan() { pool.give_back(loop); }
  } loan{*this};
  loan.loop.run(*this, blocks, body, f, size() - 1);
}

void WorkerPool::run_blocks_seeded(int blocks, ParallelLoop::Body body, const void* f) {
  std::vector<int> order(static_cast<std::size_t>(std::max(blocks, 0)));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), choice_);
  for (const int block : order) body(f, block);
}

ParallelLoop& WorkerPool::borrow_loop() {
  const std::lock_guard guard(loops_mutex_);
  if (idle_loops_ == nullptr) return *loops_.emplace_back(std::make_unique<ParallelLoop>());
  return *std::exchange(idle_loops_, idle_loops_->next_idle);
}

void WorkerPool::give_back(ParallelLoop& loop) {
  const std::lock_guard guard(loops_mutex_);
  loop.next_idle = std::exchange(idle_loops_, &loop);
}

}  // namespace troupe::detail
