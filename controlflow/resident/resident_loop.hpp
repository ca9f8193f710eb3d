// The kernel of a loop that stays whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <troupe/controlflow/resident/resident_run.hpp>

namespace troupe {

/// A runner takes an execution and advances it slice by slice, so that other work gets its turn.
/// `run` does the whole at once. Threads: any.
class ResidentKernel final : public Kernel {
 public:
  ResidentKernel(const Attrs& attrs, std::uint64_t origin, std::span<const ValueSpec> inputs,
                 Device& device)
      : program_(attrs, origin, inputs, device) {}

  /// Throws failed_precondition if a kernel in it ends later: only a runner waits for that.
  void run(KernelContext& c) override;

  std::unique_ptr<ResidentRun> take();
  /// One that has ended well; its iterations count.
  void give_back(std::unique_ptr<ResidentRun> run);

  const ResidentProgram& program() const { return program_; }
  /// `train/1`.
  const std::string& name() const { return program_.loops()[0].name; }
  std::uint64_t executions() const { return executions_.load(std::memory_order_relaxed); }
  /// Counts those of all executions that have ended well.
  std::uint64_t iterations() const { return iterations_.load(std::memory_order_relaxed); }

 private:
  const ResidentProgram program_;
  std::atomic<std::uint64_t> executions_{0}, iterations_{0};  // counts; they publish nothing
  std::mutex mutex_;                                          // guards spare_
  std::vector<std::unique_ptr<ResidentRun>> spare_;
};

}  // namespace troupe
