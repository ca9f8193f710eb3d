// WatchedKernel: a kernel whose floating results are checked (CompileOptions::check_finite).
//
// It fails its firing if a result is worse than all operands: infinite from finite ones, or NaN
// from others. Operands are checked only if the plan says that the user may have made them
// infinite or NaN; all others were checked where they were made. On a device with asynchronous
// work the partition checks copies of the results instead (`look`). Threads: as any kernel.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <troupe/devices/device/kernel.hpp>
#include <troupe/devices/tensor/finite.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/ops/graph/made_by.hpp>

namespace troupe {

class WatchedKernel final : public Kernel {
 public:
  /// `node` has the attribute `kWatched`.
  WatchedKernel(std::unique_ptr<Kernel> kernel, const Node& node);

  void run(KernelContext& c) override;
  /// Throws invalid_argument if one of the results, on the host, is not finite and the first so.
  /// For results whose operands have been released.
  void look(std::span<const Value> results) const;

 private:
  static constexpr std::size_t kMostHeld = 16;
  using Operands = std::span<const Value>;

  void look(std::span<const Value> results, Finiteness operands, Operands held) const;
  [[noreturn]] void refuse(const Tensor& result, const WorstElement& worst, Finiteness operands,
                           const std::string& who) const;
  std::string culprit(const Tensor& result, std::int64_t element, std::size_t which, Operands held,
                      bool& is_first) const;

  const std::unique_ptr<Kernel> kernel_;
  const bool may_be_given_;  // its operands may be infinite or NaN
  const bool makes_;         // its own constants are not finite
  const std::string op_;
  std::string subject_;  // empty: its own name
  std::vector<Part> parts_;
  std::shared_ptr<const ScalarProgram> program_;  // null: the node is not fused
  std::int64_t reduced_ = -1;                     // the result that a fused reduction reduces
  bool is_stored_ = true;
};

/// Throws invalid_argument if a feed is not finite, by its name.
void require_finite_feed(const Tensor& feed, const std::string& name, const std::string& site);

}  // namespace troupe
