#include <troupe/ops/collectives/buckets.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe::collective {
namespace {

std::int64_t bytes_of(const Expr& x) {
  return x.shape().elements() * static_cast<std::int64_t>(size_of(x.dtype()));
}

// When the graph yields the value to the last of its members.
std::int32_t moment_of(const Exprs& value) {
  std::int32_t last = 0;
  for (const Expr& x : value) last = std::max(last, x.edge().node);
  return last;
}

// Values that go together, by index.
using Bucket = std::vector<std::size_t>;

class Buckets {
 public:
  Buckets(const std::vector<Exprs>& xs, std::int64_t bytes) {
    std::vector<std::size_t> order(xs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (dynamic_cast<Graph*>(&xs[0][0].reader()))
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return moment_of(xs[a]) < moment_of(xs[b]);
      });
    for (const std::size_t i : order) {
      const Expr& x = xs[i][0];
      if (!x.shape().is_known() || bytes_of(x) >= bytes) {
        all_.push_back({i});
        continue;
      }
      Open& open = open_of(x.dtype());
      open.values.push_back(i);
      open.bytes += bytes_of(x);
      if (open.bytes >= bytes) close(open);
    }
    for (Open& open : open_) close(open);
  }
  const std::vector<Bucket>& all() const { return all_; }

 private:
  // One a dtype that is being filled.
  struct Open {
    DType dtype;
    Bucket values;
    std::int64_t bytes = 0;
  };
  Open& open_of(DType dtype) {
    for (Open& open : open_)
      if (open.dtype == dtype) return open;
    return open_.emplace_back(Open{dtype, {}});
  }
  void close(Open& open) {
    if (!open.values.empty()) all_.push_back(std::exchange(open.values, {}));
    open.bytes = 0;
  }

  std::vector<Open> open_;
  std::vector<Bucket> all_;
};

// Runs `f` where the member is; eager values stay where they are.
template <class F>
auto on(const Group& group, std::size_t member, const Expr& x, F f) {
  auto* const graph = dynamic_cast<Graph*>(&x.reader());
  if (!graph) return f();
  const auto there = graph->on_device(group.device(static_cast<int>(member)));
  return f();
}

// One all-reduce of several values, member by member joined.
void reduce_together(const Group& group, const std::vector<Exprs>& xs, const Bucket& bucket,
                     Combine how, CollectiveAt at, std::vector<Exprs>& out) {
  const auto members = static_cast<std::size_t>(group.size());
  std::vector<std::int64_t> extents;
  for (const std::size_t i : bucket) extents.push_back(xs[i][0].shape().elements());
  Exprs joined;
  for (std::size_t m = 0; m < members; ++m)
    joined.push_back(on(group, m, xs[bucket[0]][m], [&] {
      Exprs parts;
      for (const std::size_t i : bucket) parts.push_back(reshape(xs[i][m], {kAny}));
      return concat(parts, 0, at);
    }));
  const Exprs sums = all_reduce(group, joined, how, at);
  for (std::size_t m = 0; m < members; ++m)
    on(group, m, sums[m], [&] {
      const Exprs parts = split(sums[m], extents);
      for (std::size_t p = 0; p < bucket.size(); ++p)
        out[bucket[p]].push_back(reshape_like(parts[p], xs[bucket[p]][m]));
      return 0;
    });
}

// Refuses what all_reduce would: a bucket must not hide which value does not fit.
void require_fits(const Group& group, const std::vector<Exprs>& xs, CollectiveAt at) {
  const auto refuse = [&](std::size_t i, const std::string& why) {
    throw Error(Code::invalid_argument, fmt::format("all_reduce over group '{}' ({}): value {} {}",
                                                    group.name(), Site(at).text(), i, why));
  };
  for (std::size_t i = 0; i < xs.size(); ++i) {
    if (static_cast<int>(xs[i].size()) != group.size())
      refuse(i, fmt::format("has {} expressions for {} members; give one of each member",
                            xs[i].size(), group.size()));
    for (std::size_t m = 0; m < xs[i].size(); ++m) {
      if (xs[i][m].is_empty()) refuse(i, fmt::format("of member {} is empty", m));
      if (xs[i][m].spec().is_list()) refuse(i, "is a list; give tensors");
      if (xs[i][m].dtype() != xs[i][0].dtype() || !xs[i][m].shape().is_compatible(xs[i][0].shape()))
        refuse(i, fmt::format("is {} on member {} and {} on member 0", xs[i][m].spec().text(), m,
                              xs[i][0].spec().text()));
    }
  }
}

}  // namespace

std::vector<Exprs> all_reduce(const Group& group, const std::vector<Exprs>& xs, Combine how,
                              const BucketOptions& options, CollectiveAt at) {
  if (options.bytes < 0)
    throw Error(
        Code::invalid_argument,
        fmt::format("all_reduce over group '{}' ({}): a bucket has {} bytes; give 0 or more",
                    group.name(), Site(at).text(), options.bytes));
  require_fits(group, xs, at);
  std::vector<Exprs> out(xs.size());
  if (xs.empty()) return out;
  const Reader::AtSite here(xs[0][0].reader(), at);
  const Buckets buckets(xs, options.bytes);
  for (const Bucket& bucket : buckets.all()) {
    if (bucket.size() == 1) out[bucket[0]] = all_reduce(group, xs[bucket[0]], how, at);
    else reduce_together(group, xs, bucket, how, at, out);
  }
  return out;
}

}  // namespace troupe::collective
