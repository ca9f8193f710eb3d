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
  /// An execution that has ended well.
  void give_back(std::unique_ptr<ResidentRun> run);

  const ResidentProgram& program() const { return program_; }
  /// `train/1`.
  const std::string& name() const { return program_.loops()[0].name; }
  /// Executions that have begun.
  std::uint64_t executions() const { return counts_.executions.load(kRelaxed); }
  /// Iterations besides the first of each execution, of those under way too.
  std::uint64_t iterations() const { return counts_.iterations.load(kRelaxed); }
  /// Executions that have ended well, and their iterations.
  std::uint64_t ended_executions() const { return ended_.executions.load(kRelaxed); }
  std::uint64_t ended_iterations() const { return ended_.iterations.load(kRelaxed); }

 private:
  static constexpr auto kRelaxed = std::memory_order_relaxed;

  const ResidentProgram program_;
  ResidentCounts counts_, ended_;
  std::mutex mutex_;  // guards spare_
  std::vector<std::unique_ptr<ResidentRun>> spare_;
};

}  // namespace troupe
