// The kernels that an eager scope keeps: one for each op, attributes, and dtypes and shapes of the
// inputs, so that a bind like an earlier one infers nothing and allocates nothing.
//
// Threads: one at a time. Invariant: at most kLimit are kept; when one more is needed, all of them
// are dropped, and counted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <troupe/ops/graph/node_types.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe::detail {

class KernelCache {
 public:
  static constexpr std::size_t kLimit = 4096;

  /// A kernel with the op, attributes and specs that it was made for.
  struct Prepared {
    Prepared(const OpDef& op, Attrs given, Attrs all, std::vector<ValueSpec> inputs,
             std::vector<ValueSpec> outputs, Device& device);
    /// With a kernel that computes on another node.
    Prepared(const OpDef& op, Attrs given, Attrs all, std::vector<ValueSpec> inputs,
             std::vector<ValueSpec> outputs, std::unique_ptr<Kernel> kernel);

    const OpDef& op;
    const Attrs given;  // as the caller gave them
    const Attrs all;    // with the defaults of the op
    const std::vector<ValueSpec> inputs;
    const std::vector<ValueSpec> outputs;
    const NodeTypes types;
    const std::unique_ptr<Kernel> kernel;
    std::uint64_t hash = 0;
  };

  KernelCache() : buckets_(kBuckets) {}

  /// True if a kernel of this op may serve more than one bind: it draws nothing, has no state, and
  /// no attribute whose comparison would read a tensor or an object.
  static bool can_keep(const OpDef& op, const Attrs& attrs);
  /// True if no attribute is a tensor or an object.
  static bool is_plain(const Attrs& attrs);
  /// Null: it was never made, or was dropped.
  Prepared* find(const OpDef& op, const Attrs& attrs, std::span<const Expr> inputs);
  Prepared& add(std::unique_ptr<Prepared> prepared);

  std::size_t size() const { return size_; }
  /// How many were made, and how many were dropped to make room.
  std::uint64_t made() const { return made_; }
  std::uint64_t dropped() const { return dropped_; }

 private:
  static constexpr std::size_t kBuckets = 1024;  // a power of two

  std::vector<std::vector<std::unique_ptr<Prepared>>> buckets_;
  std::size_t size_ = 0;
  std::uint64_t made_ = 0, dropped_ = 0;
};

}  // namespace troupe::detail
