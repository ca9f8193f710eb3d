#include <troupe/ops/collectives/collectives.hpp>

#include <algorithm>
#include <bit>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/device_name.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe::collective {
namespace {

// Bytes from which a value is large: below, latency decides.
constexpr std::int64_t kLarge = 64 * 1024;
// Bytes of a piece below which k (k - 1) messages of pieces take longer than fewer whole values.
constexpr std::int64_t kPiece = 32 * 1024;
// Members from which one member no longer takes in the small values of all others in turn.
constexpr int kMany = 8;

// One call: its name, its group, and its operands, checked.
class Collective {
 public:
  Collective(const char* what, const Group& group, const Exprs& xs, const Site& site)
      : what_(what), group_(group), site_(site) {
    if (static_cast<int>(xs.size()) != group.size())
      refuse(fmt::format("it has {} members and got {} expressions; give one of each member",
                         group.size(), xs.size()));
    for (std::size_t i = 0; i < xs.size(); ++i)
      if (xs[i].is_empty()) refuse(fmt::format("expression {} is empty", i));
    graph_ = dynamic_cast<Graph*>(&xs[0].reader());
    for (const Expr& x : xs)
      if (x.spec().is_list()) refuse("lists are not combined; give tensors");
    here_.emplace(xs[0].reader(), site);
  }

  /// Requires one dtype, and shapes that differ along `axis` at most; -1: not at all.
  void require_alike(const Exprs& xs, std::int64_t axis = -1) const {
    for (std::size_t i = 1; i < xs.size(); ++i) {
      const Shape a = xs[0].shape(), b = xs[i].shape();
      bool is_alike = xs[0].dtype() == xs[i].dtype();
      if (a.has_rank() && b.has_rank()) {
        is_alike = is_alike && a.rank() == b.rank();
        for (int d = 0; is_alike && d < a.rank(); ++d)
          is_alike = d == axis || a[d] < 0 || b[d] < 0 || a[d] == b[d];
      }
      if (!is_alike)
        refuse(fmt::format("member {} on {} has {} of {}, and member 0 on {} has {} of {}", i,
                           group_.device(static_cast<int>(i)), xs[i].spec().text(), source(xs[i]),
                           group_.device(0), xs[0].spec().text(), source(xs[0])));
    }
  }
  /// The axis counted from the front. Throws unless there is such an axis.
  std::int64_t axis_of(const Expr& x, std::int64_t axis) const {
    if (!x.shape().has_rank()) refuse("it needs a known rank; reshape the operands");
    const std::int64_t at = axis < 0 ? axis + x.shape().rank() : axis;
    if (at < 0 || at >= x.shape().rank())
      refuse(fmt::format("there is no axis {} in {}", axis, x.spec().text()));
    return at;
  }
  /// The extent along `axis` of one member's piece. Throws unless the members divide the extent.
  std::int64_t piece_of(const Expr& x, std::int64_t axis) const {
    const std::int64_t extent = x.shape()[static_cast<int>(axis)];
    if (extent < 0)
      refuse(fmt::format("the extent of axis {} in {} must be known", axis, x.spec().text()));
    if (extent % group_.size() != 0)
      refuse(fmt::format("{} members do not divide the extent {} of axis {} in {}", group_.size(),
                         extent, axis, x.spec().text()));
    return extent / group_.size();
  }
  void require_combines(const Expr& x, Combine how) const {
    if (how == Combine::mean && !is_floating(x.dtype()) && !is_complex(x.dtype()))
      refuse(
          fmt::format("a mean of {} is not defined; cast to a floating dtype", name_of(x.dtype())));
  }

  /// Calls `f` with nodes constrained to the member's device. Eager values stay on their device.
  template <class F>
  auto on(int member, F f) const {
    if (!graph_) return f();
    const auto there = graph_->on_device(group_.device(member));
    return f();
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Code::invalid_argument, fmt::format("{} over group '{}' ({}): {}", what_,
                                                    group_.name(), site_.text(), why));
  }

 private:
  std::string source(const Expr& x) const {
    const Graph* const graph = dynamic_cast<const Graph*>(&x.reader());
    return graph ? graph->describe(x.edge().node) : "an eager value";
  }

  const char* what_;
  const Group& group_;
  const Site site_;
  Graph* graph_ = nullptr;
  std::optional<Reader::AtSite> here_;  // the nodes carry the caller's line
};

Expr combine_two(const Expr& a, const Expr& b, Combine how) {
  switch (how) {
    case Combine::min: return minimum(a, b);
    case Combine::max: return maximum(a, b);
    case Combine::product: return a * b;
    default: return a + b;
  }
}

// See Note [Order of members]: of n members the first 2^k are combined with the rest, where 2^k is
// the largest power of two below n.
std::size_t first_part(std::size_t n) { return std::bit_ceil(n) / 2; }

Expr combine_all(std::span<const Expr> xs, Combine how) {
  if (xs.size() == 1) return xs[0];
  const std::size_t first = first_part(xs.size());
  return combine_two(combine_all(xs.first(first), how), combine_all(xs.subspan(first), how), how);
}

Expr averaged(const Expr& all, std::size_t members, Combine how) {
  return how == Combine::mean ? all * (1.0 / static_cast<double>(members)) : all;
}

Expr combine(const Exprs& xs, Combine how) {
  return averaged(combine_all(xs, how), xs.size(), how);
}

// Combines on `root` in two levels: members of another node that are neighbours in the order are
// combined there, so that one value of them crosses. The order stays, and with it the bits.
class ToRoot {
 public:
  ToRoot(const Collective& c, const Group& group, const Exprs& xs, int root, Combine how)
      : c_(c), group_(group), xs_(xs), root_(root), how_(how) {}
  Expr run() const {
    const Expr all = part(0, xs_.size());
    return c_.on(root_, [&] { return averaged(all, xs_.size(), how_); });
  }

 private:
  // The combination of n members from `begin` on.
  Expr part(std::size_t begin, std::size_t n) const {
    if (n == 1) return xs_[begin];
    if (is_of_another_node(begin, n)) {
      // Roots of a node's pieces take turns, so that its devices share the work.
      const auto there = static_cast<int>(begin + static_cast<std::size_t>(root_) % n);
      return c_.on(there, [&] { return combine_all(std::span(xs_).subspan(begin, n), how_); });
    }
    const std::size_t first = first_part(n);
    const Expr a = part(begin, first), b = part(begin + first, n - first);
    return c_.on(root_, [&] { return combine_two(a, b, how_); });
  }
  bool is_of_another_node(std::size_t begin, std::size_t n) const {
    const std::string_view node = node_of(group_.devices()[begin]);
    if (node == node_of(group_.device(root_))) return false;
    const auto devices = std::span(group_.devices()).subspan(begin, n);
    return std::all_of(devices.begin(), devices.end(),
                       [&](const std::string& device) { return node_of(device) == node; });
  }

  const Collective& c_;
  const Group& group_;
  const Exprs& xs_;
  const int root_;
  const Combine how_;
};

Expr combine_on(const Collective& c, const Group& group, const Exprs& xs, int root, Combine how) {
  return ToRoot(c, group, xs, root, how).run();
}

// `count` elements along `axis` from `begin` on.
Expr piece(const Expr& x, std::int64_t axis, std::int64_t begin, std::int64_t count) {
  const Shape shape = x.shape();
  std::vector<std::int64_t> starts(static_cast<std::size_t>(shape.rank()), 0), extents;
  for (int d = 0; d < shape.rank(); ++d) extents.push_back(d == axis ? count : shape[d]);
  starts[static_cast<std::size_t>(axis)] = begin;
  return slice(x, starts, extents);
}

Exprs on_each(const Collective& c, const Group& group, const Expr& x) {
  Exprs out;
  for (int i = 0; i < group.size(); ++i) out.push_back(c.on(i, [&] { return identity(x); }));
  return out;
}

// True if all members compute in one process's memory, so that each reads the others' values where
// they are.
bool is_of_one_memory(const Group& group) {
  return std::all_of(group.devices().begin(), group.devices().end(), [&](const std::string& d) {
    return node_of(d) == node_of(group.device(0)) && is_on_host(d);
  });
}

// ---- algorithms of all_reduce; each yields the bits of `combine`

// Each member sends its value to all others: one message's time, k (k - 1) messages.
Exprs by_exchange(const Collective& c, const Group& group, const Exprs& xs, Combine how) {
  Exprs out;
  for (int i = 0; i < group.size(); ++i) out.push_back(c.on(i, [&] { return combine(xs, how); }));
  return out;
}

// The first member takes in all and sends the result to each: 2 (k - 1) messages.
Exprs by_one(const Collective& c, const Group& group, const Exprs& xs, Combine how) {
  return on_each(c, group, combine_on(c, group, xs, 0, how));
}

// Recursive doubling (Thakur et al., IJHPCA 2005): in round r member i exchanges with member
// i xor 2^r, so that log2(k) messages follow each other. k is a power of two.
Exprs by_doubling(const Collective& c, const Exprs& xs, Combine how) {
  Exprs have = xs;
  for (std::size_t distance = 1; distance < xs.size(); distance *= 2) {
    Exprs next;
    for (std::size_t i = 0; i < xs.size(); ++i)
      next.push_back(c.on(static_cast<int>(i), [&] {
        return combine_two(have[i & ~distance], have[i | distance], how);
      }));
    have = std::move(next);
  }
  for (std::size_t i = 0; i < xs.size(); ++i)
    have[i] = c.on(static_cast<int>(i), [&] { return averaged(have[i], xs.size(), how); });
  return have;
}

// Up a binary tree of members and down again: 2 (k - 1) messages, 2 log2(k) after each other.
class ByTree {
 public:
  ByTree(const Collective& c, const Exprs& xs, Combine how) : c_(c), xs_(xs), how_(how) {}
  Exprs run() {
    out_.resize(xs_.size());
    down(0, xs_.size(), c_.on(0, [&] { return averaged(up(0, xs_.size()), xs_.size(), how_); }));
    return std::move(out_);
  }

 private:
  // The combination of n members from `begin` on, on the first of them.
  Expr up(std::size_t begin, std::size_t n) {
    if (n == 1) return xs_[begin];
    const std::size_t first = first_part(n);
    const Expr a = up(begin, first), b = up(begin + first, n - first);
    return c_.on(static_cast<int>(begin), [&] { return combine_two(a, b, how_); });
  }
  void down(std::size_t begin, std::size_t n, const Expr& all) {
    if (n == 1) {
      out_[begin] = all;
      return;
    }
    const std::size_t first = first_part(n), other = begin + first;
    down(other, n - first, c_.on(static_cast<int>(other), [&] { return identity(all); }));
    down(begin, first, all);
  }

  const Collective& c_;
  const Exprs& xs_;
  const Combine how_;
  Exprs out_;
};

// Member j combines the j-th of k pieces, and each joins all: each link carries 2n(k-1)/k bytes.
Exprs by_pieces(const Collective& c, const Group& group, const Exprs& xs, Combine how) {
  const std::int64_t k = group.size(), n = xs[0].shape().elements();
  Exprs flat, combined, out;
  for (int i = 0; i < k; ++i)
    flat.push_back(c.on(i, [&] { return reshape(xs[static_cast<std::size_t>(i)], {n}); }));
  for (std::int64_t j = 0; j < k; ++j) {
    const std::int64_t begin = n * j / k, count = n * (j + 1) / k - begin;
    Exprs pieces;
    for (int i = 0; i < k; ++i)
      pieces.push_back(
          c.on(i, [&] { return piece(flat[static_cast<std::size_t>(i)], 0, begin, count); }));
    combined.push_back(combine_on(c, group, pieces, static_cast<int>(j), how));
  }
  for (int i = 0; i < k; ++i)
    out.push_back(c.on(
        i, [&] { return reshape_like(concat(combined, 0), xs[static_cast<std::size_t>(i)]); }));
  return out;
}

}  // namespace

Group::Group(std::string name, std::vector<std::string> devices, CollectiveAt at)
    : name_(std::move(name)), devices_(std::move(devices)) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Code::invalid_argument,
                fmt::format("group '{}' ({}) {}", name_, Site(at).text(), why));
  };
  if (name_.empty()) refuse("has no name; give it one, for errors");
  if (devices_.size() < 2)
    refuse(fmt::format("has {} device; a collective needs two or more", devices_.size()));
  for (auto it = devices_.begin(); it != devices_.end(); ++it)
    if (std::find(devices_.begin(), it, *it) != it)
      refuse(fmt::format("has the device {} twice; name each once", *it));
}

Exprs broadcast(const Group& group, const Expr& x, CollectiveAt at) {
  const Collective c("broadcast", group, Exprs(static_cast<std::size_t>(group.size()), x), at);
  return on_each(c, group, x);
}

Expr reduce(const Group& group, const Exprs& xs, int root, Combine how, CollectiveAt at) {
  const Collective c("reduce", group, xs, at);
  c.require_alike(xs);
  c.require_combines(xs[0], how);
  if (root < 0 || root >= group.size()) c.refuse(fmt::format("there is no member {}", root));
  return combine_on(c, group, xs, root, how);
}

Exprs all_reduce(const Group& group, const Exprs& xs, Combine how, CollectiveAt at) {
  const Collective c("all_reduce", group, xs, at);
  c.require_alike(xs);
  c.require_combines(xs[0], how);
  const Shape shape = xs[0].shape();
  const int k = group.size();
  const std::int64_t bytes =
      shape.is_known() ? shape.elements() * static_cast<std::int64_t>(size_of(xs[0].dtype())) : 0;
  // Gradients add up in the order of the members' consumers, so they have the bits of the program
  // over nodes only where that one adds in this order, too.
  const bool is_in_order =
      k == 2 ? how == Combine::sum || how == Combine::mean : k < kMany || bytes >= k * kPiece;
  if (bytes >= kLarge && is_in_order && is_of_one_memory(group)) return by_one(c, group, xs, how);
  // Two send as many bytes so as by pieces, and join none.
  if (k == 2) return by_exchange(c, group, xs, how);
  if (bytes >= k * kPiece) return by_pieces(c, group, xs, how);
  if (k < kMany) return by_one(c, group, xs, how);
  if (std::has_single_bit(static_cast<unsigned>(k))) return by_doubling(c, xs, how);
  return ByTree(c, xs, how).run();
}

Exprs reduce_scatter(const Group& group, const Exprs& xs, std::int64_t axis, Combine how,
                     CollectiveAt at) {
  const Collective c("reduce_scatter", group, xs, at);
  c.require_alike(xs);
  c.require_combines(xs[0], how);
  axis = c.axis_of(xs[0], axis);
  const std::int64_t count = c.piece_of(xs[0], axis);
  Exprs out;
  for (int j = 0; j < group.size(); ++j) {
    Exprs pieces;
    for (int i = 0; i < group.size(); ++i)
      pieces.push_back(
          c.on(i, [&] { return piece(xs[static_cast<std::size_t>(i)], axis, j * count, count); }));
    out.push_back(combine_on(c, group, pieces, j, how));
  }
  return out;
}

Exprs all_gather(const Group& group, const Exprs& xs, std::int64_t axis, CollectiveAt at) {
  const Collective c("all_gather", group, xs, at);
  axis = c.axis_of(xs[0], axis);
  c.require_alike(xs, axis);
  Exprs out;
  for (int i = 0; i < group.size(); ++i) out.push_back(c.on(i, [&] { return concat(xs, axis); }));
  return out;
}

Exprs all_to_all(const Group& group, const Exprs& xs, std::int64_t split_axis,
                 std::int64_t concat_axis, CollectiveAt at) {
  const Collective c("all_to_all", group, xs, at);
  c.require_alike(xs);
  split_axis = c.axis_of(xs[0], split_axis);
  concat_axis = c.axis_of(xs[0], concat_axis);
  const std::int64_t count = c.piece_of(xs[0], split_axis);
  Exprs out;
  for (int j = 0; j < group.size(); ++j) {
    Exprs pieces;
    for (int i = 0; i < group.size(); ++i)
      pieces.push_back(c.on(
          i, [&] { return piece(xs[static_cast<std::size_t>(i)], split_axis, j * count, count); }));
    out.push_back(c.on(j, [&] { return concat(pieces, concat_axis); }));
  }
  return out;
}

Exprs shift(const Group& group, const Exprs& xs, int by, CollectiveAt at) {
  const Collective c("shift", group, xs, at);
  const int k = group.size();
  Exprs out;
  for (int i = 0; i < k; ++i) {
    const int from = ((i - by) % k + k) % k;
    out.push_back(c.on(i, [&] { return identity(xs[static_cast<std::size_t>(from)]); }));
  }
  return out;
}

Exprs barrier(const Group& group, const Exprs& xs, CollectiveAt at) {
  const Collective c("barrier", group, xs, at);
  auto* const graph = dynamic_cast<Graph*>(&xs[0].reader());
  if (!graph) return xs;  // eager values are there
  Exprs out;
  const auto behind = [&](const auto& self, std::size_t i) -> void {
    if (i < xs.size()) {
      const auto scope = graph->after({xs[i]}, at);
      return self(self, i + 1);
    }
    for (int member = 0; member < group.size(); ++member)
      out.push_back(c.on(member, [&] { return identity(xs[static_cast<std::size_t>(member)]); }));
  };
  behind(behind, 0);
  return out;
}

}  // namespace troupe::collective
