// Collectives: values of all members of a group of devices are combined, or change places.
//
//   using namespace troupe::collective;
//   const Group replicas("replicas", {"/node:a/cpu:0", "/node:b/cpu:0", "/node:c/cpu:0"});
//   Exprs gradients;                                 // one of each member, made on its device
//   gradients = all_reduce(replicas, gradients, Combine::mean);   // again one of each member
//
// A program of Troupe is one graph over all devices, so a collective is a part of that graph: it
// takes a vector of one expression a member, and yields one a member, on the member's device. It is
// made of operations that have gradients, and so has one. A call that does not fit (another number
// of expressions, other dtypes or shapes) is refused while the graph is built, naming the lines of
// both operands.
//
// Order: members are combined in one order, that of a binary tree over the group, not in order of
// arrival. So results have the same bits in every run, by any algorithm and on any devices. The
// README lists the algorithms.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include <troupe/ops/graph/expr.hpp>

namespace troupe::collective {

using CollectiveAt = std::source_location;

/// Devices by name, of one process or of several nodes, each once.
class Group {
 public:
  /// Throws invalid_argument for a group without a name, of fewer than two devices, or with a
  /// device twice.
  Group(std::string name, std::vector<std::string> devices,
        CollectiveAt at = CollectiveAt::current());

  const std::string& name() const { return name_; }
  int size() const { return static_cast<int>(devices_.size()); }
  const std::vector<std::string>& devices() const { return devices_; }
  const std::string& device(int member) const { return devices_[static_cast<std::size_t>(member)]; }

 private:
  std::string name_;
  std::vector<std::string> devices_;
};

enum class Combine : std::uint8_t { sum, mean, min, max, product };

/// Each member gets x.
Exprs broadcast(const Group& group, const Expr& x, CollectiveAt at = CollectiveAt::current());
/// Member `root` gets the combination of all xs, which have one dtype and shape. The mean is of
/// floating or complex values.
Expr reduce(const Group& group, const Exprs& xs, int root, Combine how = Combine::sum,
            CollectiveAt at = CollectiveAt::current());
/// Each member gets the combination of all.
Exprs all_reduce(const Group& group, const Exprs& xs, Combine how = Combine::sum,
                 CollectiveAt at = CollectiveAt::current());
/// Each member gets its piece of the combination along `axis`, whose extent the members divide.
Exprs reduce_scatter(const Group& group, const Exprs& xs, std::int64_t axis = 0,
                     Combine how = Combine::sum, CollectiveAt at = CollectiveAt::current());
/// Each member gets all xs, joined along `axis`, along which they may differ.
Exprs all_gather(const Group& group, const Exprs& xs, std::int64_t axis = 0,
                 CollectiveAt at = CollectiveAt::current());
/// Member i gets the i-th pieces along `split_axis` of all, joined along `concat_axis`.
Exprs all_to_all(const Group& group, const Exprs& xs, std::int64_t split_axis,
                 std::int64_t concat_axis, CollectiveAt at = CollectiveAt::current());
/// Member i gets the x of member i - by; the last members' go to the first.
Exprs shift(const Group& group, const Exprs& xs, int by = 1,
            CollectiveAt at = CollectiveAt::current());
/// Yields the values of xs, each there when all are.
Exprs barrier(const Group& group, const Exprs& xs, CollectiveAt at = CollectiveAt::current());

}  // namespace troupe::collective
