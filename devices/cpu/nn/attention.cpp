// Attention in blocks: a block of queries meets blocks of keys, one after the other, and keeps for
// each query the largest score so far, the sum of exponentials and the weighted sum of values
// (attention.hpp). Scores live in a block's scratch memory only.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include <troupe/devices/cpu/as_floats.hpp>
#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/element_types.hpp>
#include <troupe/devices/cpu/products/gemm.hpp>
#include <troupe/devices/cpu/scratch.hpp>
#include <troupe/devices/device/attention.hpp>

namespace troupe::cpu {
namespace {

constexpr std::int64_t kQueries = 64, kKeys = 128;  // block extents: 32 KiB of scores

// NaN if any is: scores that are not numbers are not scores of keys that may not be looked at.
template <class T>
T largest(const T* x, std::int64_t n) {
  T found;
  level_kernels().extremum[1][int(dtype_of<T>)](x, n, &found);
  return found;
}
double exponentials(float* x, float shift, std::int64_t n) {
  return level_kernels().exp_sum_f32(x, x, shift, n);
}
double exponentials(double* x, double shift, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - shift);
  return sum;
}

// c = a b, or a b^T, or a^T b, of dense row-major matrices; c is [m, n] and k is summed over.
template <class T>
void product(T* c, const T* a, const T* b, std::int64_t m, std::int64_t n, std::int64_t k,
             bool a_transposed = false, bool b_transposed = false) {
  gemm(std::is_same_v<T, float> ? DType::f32 : DType::f64,
       {m, n, k, a, a_transposed ? 1 : k, a_transposed ? m : 1, b, b_transposed ? 1 : n,
        b_transposed ? k : 1, c, n});
}
void add(float* to, const float* from, std::int64_t n) { level_kernels().add_f32(to, from, n); }
void add(double* to, const double* from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
}
void scale_by(float* x, double factor, std::int64_t n) {
  level_kernels().shift_scale_f32(x, x, 0, static_cast<float>(factor), n);
}
void scale_by(double* x, double factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}
// dp becomes the gradient of the scores, where p is their softmax and its p dp add up to `mean`.
void softmax_back(float* dp, const float* p, double mean, double scale, std::int64_t n) {
  level_kernels().softmax_back_f32(dp, p, static_cast<float>(mean), static_cast<float>(scale), n);
}
void softmax_back(double* dp, const double* p, double mean, double scale, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dp[i] = p[i] * ((dp[i] - mean) * scale);
}

// How far apart a mask's elements lie; 0 where it has one for all.
struct MaskSteps {
  std::int64_t batch = 0, head = 0, query = 0, key = 0;
  explicit MaskSteps(const Shape& mask) {
    const int rank = mask.rank();
    std::int64_t step = 1;
    const auto along = [&](int axis) {
      const std::int64_t own = step;
      step *= mask[axis];
      return mask[axis] == 1 ? 0 : own;
    };
    if (rank < 2) return;  // no mask
    key = along(rank - 1);
    query = along(rank - 2);
    if (rank == 4) head = along(1);
    if (rank >= 3) batch = along(0);
  }
};

// One head of one item of the batch.
template <class T>
struct Head {
  const AttentionArgs& a;
  std::int64_t batch, head, group = head / (a.heads / a.groups);
  const T* q = static_cast<const T*>(a.q.data()) + (batch * a.heads + head) * a.queries * a.depth;
  const T* k = static_cast<const T*>(a.k.data()) + (batch * a.groups + group) * a.keys * a.depth;
  const T* v = static_cast<const T*>(a.v.data()) + (batch * a.groups + group) * a.keys * a.width;
  const MaskSteps steps{a.mask.shape};
  const bool* may_look = mask_of<bool>(a.mask.dtype == DType::boolean);
  const T* bias = mask_of<T>(a.mask.dtype != DType::boolean);

  template <class M>
  const M* mask_of(bool is_its_kind) const {
    return a.mask.data() && is_its_kind
               ? static_cast<const M*>(a.mask.data()) + batch * steps.batch + head * steps.head
               : nullptr;
  }
  std::int64_t row(std::int64_t query) const {
    return (batch * a.heads + head) * a.queries + query;
  }
  /// The first key that query i may not look at for causality.
  std::int64_t end_of(std::int64_t i) const {
    return a.causal ? std::clamp<std::int64_t>(i + a.keys - a.queries + 1, 0, a.keys) : a.keys;
  }

  /// Adds the mask to n of a query's scores, for keys from j on.
  void put_mask(T* line, std::int64_t query, std::int64_t j, std::int64_t n) const {
    const std::int64_t at = query * steps.query + j * steps.key;
    for (std::int64_t c = 0; may_look && c < n; ++c)
      if (!may_look[at + c * steps.key]) line[c] = -std::numeric_limits<T>::infinity();
    if (bias && steps.key) add(line, bias + at, n);
    for (std::int64_t c = 0; bias && !steps.key && c < n; ++c) line[c] += bias[at];
  }

  /// Scores of queries [i, i + rows) and keys [j, j + columns), -inf where a query may not look.
  void scores(T* s, std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t columns) const {
    product(s, q + i * a.depth, k + j * a.depth, rows, columns, a.depth, false, true);
    for (std::int64_t r = 0; r < rows; ++r) {
      T* line = s + r * columns;
      const std::int64_t end = std::clamp<std::int64_t>(end_of(i + r) - j, 0, columns);
      scale_by(line, a.scale, end);
      put_mask(line, i + r, j, end);
      std::fill(line + end, line + columns, -std::numeric_limits<T>::infinity());
    }
  }
};

template <class T>
void attend(const Head<T>& h, std::int64_t first) {
  const AttentionArgs& a = h.a;
  const std::int64_t rows = std::min(kQueries, a.queries - first),
                     keys = h.end_of(first + rows - 1);
  const auto scores = room<T>(rows * kKeys), part = room<T>(rows * a.width);
  std::vector<T> sum(static_cast<std::size_t>(rows * a.width));
  std::vector<T> top(static_cast<std::size_t>(rows), -std::numeric_limits<T>::infinity());
  std::vector<double> total(top.size());
  for (std::int64_t j = 0; j < keys; j += kKeys) {
    const std::int64_t columns = std::min(kKeys, keys - j);
    h.scores(scores.get(), first, rows, j, columns);
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto at = static_cast<std::size_t>(r);
      T* line = scores.get() + r * columns;
      const T best = largest(line, columns), next = best > top[at] || best != best ? best : top[at];
      if (next == -std::numeric_limits<T>::infinity()) {
        std::fill(line, line + columns, T(0));
        continue;
      }
      const double kept = std::exp(double(top[at]) - double(next));
      total[at] = total[at] * kept + exponentials(line, next, columns);
      if (kept != 1) scale_by(sum.data() + r * a.width, kept, a.width);
      top[at] = next;
    }
    product(part.get(), scores.get(), h.v + j * a.width, rows, a.width, columns);
    add(sum.data(), part.get(), rows * a.width);
  }
  T* y = static_cast<T*>(a.y.data) + h.row(first) * a.width;
  T* log_sum = static_cast<T*>(a.log_sum.data) + h.row(first);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto at = static_cast<std::size_t>(r);
    scale_by(sum.data() + r * a.width, total[at] == 0 ? 0 : 1 / total[at], a.width);
    std::copy_n(sum.data() + r * a.width, a.width, y + r * a.width);
    log_sum[r] = total[at] == 0 ? std::numeric_limits<T>::infinity()
                                : static_cast<T>(double(top[at]) + std::log(total[at]));
  }
}

// Per query, for its scores' gradients: the sum of y dy, and the sum of exp(score - log_sum) over
// the keys, which is 1 but for rounding.
struct QueryBack {
  double weighted, total;
};

// Back through a block of scores of one head: the common part of both gradients.
template <class T>
struct HeadBack {
  const AttentionGradientArgs& g;
  const Head<T> h;
  const T* y = static_cast<const T*>(g.y.data()) + h.row(0) * g.of.width;
  const T* dy = static_cast<const T*>(g.dy.data()) + h.row(0) * g.of.width;
  const T* log_sum = static_cast<const T*>(g.log_sum.data()) + h.row(0);

  /// Returns true if a logarithm is so far from 0 that rounding hides the sum of the exponentials.
  /// If all of a query's scores are -1e9, the logarithm is -1e9 too.
  static bool is_rounded(T log) {
    return std::isfinite(log) && std::abs(log) * std::numeric_limits<T>::epsilon() > T(1e-4);
  }

  /// Fills `query` for queries [i, i + rows); `p` is room for scores.
  void look_at(QueryBack* query, std::int64_t i, std::int64_t rows, T* p) const {
    const std::int64_t w = g.of.width, keys = h.end_of(i + rows - 1);
    bool is_any_rounded = false;
    for (std::int64_t r = 0; r < rows; ++r) {
      const bool is = is_rounded(log_sum[i + r]);
      query[r] = {0, is ? 0.0 : 1.0};
      is_any_rounded |= is;
      for (std::int64_t c = 0; c < w; ++c)
        query[r].weighted += double(y[(i + r) * w + c]) * double(dy[(i + r) * w + c]);
    }
    for (std::int64_t j = 0; is_any_rounded && j < keys; j += kKeys) {
      const std::int64_t columns = std::min(kKeys, keys - j);
      h.scores(p, i, rows, j, columns);
      for (std::int64_t r = 0; r < rows; ++r)
        if (is_rounded(log_sum[i + r]))
          query[r].total += exponentials(p + r * columns, log_sum[i + r], columns);
    }
  }
  /// The softmax of queries [i, i + rows) at keys [j, j + columns), and the gradient of their
  /// scores, times `scale`.
  void scores(T* p, T* ds, const QueryBack* query, double scale, std::int64_t i, std::int64_t rows,
              std::int64_t j, std::int64_t columns) const {
    h.scores(p, i, rows, j, columns);
    for (std::int64_t r = 0; r < rows; ++r) {
      exponentials(p + r * columns, log_sum[i + r], columns);
      if (query[r].total != 1) scale_by(p + r * columns, 1 / query[r].total, columns);
    }
    product(ds, dy + i * g.of.width, h.v + j * g.of.width, rows, columns, g.of.width, false, true);
    for (std::int64_t r = 0; r < rows; ++r)
      softmax_back(ds + r * columns, p + r * columns, query[r].weighted, scale, columns);
  }
};

template <class T>
void attend_back(const AttentionGradientArgs& g, std::int64_t batch, std::int64_t group) {
  const AttentionArgs& a = g.of;
  const std::int64_t share = a.heads / a.groups;
  T* dk = static_cast<T*>(g.dk.data) + (batch * a.groups + group) * a.keys * a.depth;
  T* dv = static_cast<T*>(g.dv.data) + (batch * a.groups + group) * a.keys * a.width;
  const auto p = room<T>(kQueries * kKeys), ds = room<T>(kQueries * kKeys),
             part = room<T>(std::max(kQueries, kKeys) * std::max(a.depth, a.width));
  for (std::int64_t n = group * share; n < (group + 1) * share; ++n) {
    const HeadBack<T> back{g, {a, batch, n}};
    const Head<T>& h = back.h;
    T* dq = static_cast<T*>(g.dq.data) + h.row(0) * a.depth;
    for (std::int64_t i = 0; i < a.queries; i += kQueries) {
      const std::int64_t rows = std::min(kQueries, a.queries - i), keys = h.end_of(i + rows - 1),
                         w = a.width;
      QueryBack query[kQueries];
      back.look_at(query, i, rows, p.get());
      for (std::int64_t j = 0; j < keys; j += kKeys) {
        const std::int64_t columns = std::min(kKeys, keys - j);
        back.scores(p.get(), ds.get(), query, a.scale, i, rows, j, columns);
        product(part.get(), p.get(), back.dy + i * w, columns, w, rows, true);
        add(dv + j * w, part.get(), columns * w);
        product(part.get(), ds.get(), h.k + j * a.depth, rows, a.depth, columns);
        add(dq + i * a.depth, part.get(), rows * a.depth);
        product(part.get(), ds.get(), h.q + i * a.depth, columns, a.depth, rows, true);
        add(dk + j * a.depth, part.get(), columns * a.depth);
      }
    }
  }
}

// The parts of a mask's extents, a task each: along an axis of extent 1 there is one task, which
// adds up over the axis.
struct MaskTasks {
  MaskSteps steps;
  std::int64_t heads, rows, columns, all;
  explicit MaskTasks(const AttentionArgs& a)
      : steps(a.mask.shape), heads(steps.head ? a.heads : 1),
        rows(steps.query ? (a.queries + kQueries - 1) / kQueries : 1),
        columns(steps.key ? (a.keys + kKeys - 1) / kKeys : 1),
        all((steps.batch ? a.batch : 1) * heads * rows * columns) {}
};

// Calls f(first, count) for the pieces of [0, extent) that a task sees: its own, or all.
template <class F>
void for_pieces(bool is_own, std::int64_t piece, std::int64_t size, std::int64_t extent, F f) {
  const std::int64_t end = is_own ? std::min(extent, (piece + 1) * size) : extent;
  for (std::int64_t at = is_own ? piece * size : 0; at < end; at += size)
    f(at, std::min(size, end - at));
}

// A block of the gradient of an added mask: the scores' gradients of all that see it, made again,
// added in double in the order of batch, heads, queries.
template <class T>
void mask_back(const AttentionGradientArgs& g, const MaskTasks& tasks, std::int64_t task) {
  const AttentionArgs& a = g.of;
  const MaskSteps& steps = tasks.steps;
  const std::int64_t column = task % tasks.columns, row = task / tasks.columns % tasks.rows,
                     head = task / tasks.columns / tasks.rows % tasks.heads,
                     item = task / tasks.columns / tasks.rows / tasks.heads;
  const auto p = room<T>(kQueries * kKeys), ds = room<T>(kQueries * kKeys);
  std::vector<double> sums(static_cast<std::size_t>(kQueries * kKeys));
  for_pieces(steps.batch != 0, item, 1, a.batch, [&](std::int64_t b, std::int64_t) {
    for_pieces(steps.head != 0, head, 1, a.heads, [&](std::int64_t n, std::int64_t) {
      const HeadBack<T> back{g, {a, b, n}};
      for_pieces(steps.query != 0, row, kQueries, a.queries,
                 [&](std::int64_t i, std::int64_t rows) {
                   QueryBack query[kQueries];
                   back.look_at(query, i, rows, p.get());
                   const std::int64_t end = back.h.end_of(i + rows - 1);
                   for_pieces(steps.key != 0, column, kKeys, a.keys,
                              [&](std::int64_t j, std::int64_t all) {
                                // the products of the forward pass, whose scores these are again
                                const std::int64_t columns = std::min(all, end - j);
                                if (columns <= 0) return;
                                back.scores(p.get(), ds.get(), query, 1, i, rows, j, columns);
                                for (std::int64_t r = 0; r < rows; ++r)
                                  for (std::int64_t c = 0; c < columns; ++c)
                                    sums[static_cast<std::size_t>((steps.query ? r * kKeys : 0) +
                                                                  (steps.key ? c : 0))] +=
                                        double(ds[r * columns + c]);
                              });
                 });
    });
  });
  T* dmask = static_cast<T*>(g.dmask.data) + item * steps.batch + head * steps.head +
             row * kQueries * steps.query + column * kKeys * steps.key;
  const std::int64_t rows = steps.query ? std::min(kQueries, a.queries - row * kQueries) : 1,
                     columns = steps.key ? std::min(kKeys, a.keys - column * kKeys) : 1;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      dmask[r * steps.query + c * steps.key] =
          static_cast<T>(sums[static_cast<std::size_t>(r * kKeys + c)]);
}

bool is_added(const ConstView& mask) { return mask.data() && mask.dtype != DType::boolean; }

}  // namespace

void CpuPrimitives::attention(Stream& stream, const AttentionArgs& a) const {
  if (a.y.elements() == 0 && a.log_sum.elements() == 0) return;
  if (is_stored_only(a.q.dtype)) {
    Widened q(a.q), k(a.k), v(a.v);
    Narrowed y(a.y);
    std::optional<Widened> mask;
    AttentionArgs wide = a;
    wide.q = q.view, wide.k = k.view, wide.v = v.view, wide.y = y.view;
    if (is_added(a.mask)) wide.mask = mask.emplace(a.mask).view;
    attention(stream, wide);
    return y.store();
  }
  const std::int64_t blocks = (a.queries + kQueries - 1) / kQueries;
  visit_wide_float("attention", a.q.dtype, [&]<class T>(type_tag<T>) {
    for_blocks(pool_, a.batch * a.heads * blocks, [&](int i) {
      attend(Head<T>{a, i / blocks / a.heads, i / blocks % a.heads}, i % blocks * kQueries);
    });
  });
}

void CpuPrimitives::attention_gradient(Stream& stream, const AttentionGradientArgs& g) const {
  if (is_stored_only(g.of.q.dtype)) {
    Widened q(g.of.q), k(g.of.k), v(g.of.v), y(g.y), dy(g.dy);
    Narrowed dq(g.dq), dk(g.dk), dv(g.dv);
    std::optional<Widened> mask;
    std::optional<Narrowed> dmask;
    AttentionGradientArgs wide = g;
    if (is_added(g.of.mask)) wide.of.mask = mask.emplace(g.of.mask).view;
    if (g.dmask.data) wide.dmask = dmask.emplace(g.dmask).view;
    wide.of.q = q.view, wide.of.k = k.view, wide.of.v = v.view, wide.y = y.view, wide.dy = dy.view;
    wide.dq = dq.view, wide.dk = dk.view, wide.dv = dv.view;
    attention_gradient(stream, wide);
    if (dmask) dmask->store();
    return dq.store(), dk.store(), dv.store();
  }
  for (const View& v : {g.dq, g.dk, g.dv, g.dmask})
    if (v.data && v.elements()) std::memset(v.data, 0, v.bytes());
  if (g.y.elements() == 0 || g.of.keys == 0) return;
  visit_wide_float("attention", g.of.q.dtype, [&]<class T>(type_tag<T>) {
    for_blocks(pool_, g.of.batch * g.of.groups,
               [&](int i) { attend_back<T>(g, i / g.of.groups, i % g.of.groups); });
    if (!g.dmask.data) return;
    const MaskTasks tasks(g.of);
    for_blocks(pool_, tasks.all, [&](int i) { mask_back<T>(g, tasks, i); });
  });
}

}  // namespace troupe::cpu
