// Recurrent layers (devices/device/recurrent.hpp). A block of rows goes through all of time on one
// worker: no step waits for another block. f32 (and f16, bf16 by way of it) uses the level's steps,
// whose weights are packed once a call, or once for many where they come again; f64 Eigen's
// products.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include <troupe/devices/cpu/as_floats.hpp>
#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/element_types.hpp>
#include <troupe/devices/cpu/elements/move.hpp>
#include <troupe/devices/cpu/level.hpp>
#include <troupe/devices/cpu/levels/recurrent_cell.hpp>
#include <troupe/devices/cpu/products/gemm.hpp>
#include <troupe/devices/cpu/scratch.hpp>
#include <troupe/devices/device/recurrent.hpp>

namespace troupe::cpu {
namespace {

// Rows of a block: enough that the weights, which pass by once a step, cost less than the products
// with them.
constexpr std::int64_t kLeastRows = 16, kMostCellBlocks = 16;

std::int64_t blocks_of(std::int64_t batch) {
  const std::int64_t rows = std::max(kLeastRows, (batch + kMostCellBlocks - 1) / kMostCellBlocks);
  return (batch + rows - 1) / rows;
}

template <class T>
const T* elements(const ConstView& v) {
  return static_cast<const T*>(v.data());
}
template <class T>
T* elements(const View& v) {
  return static_cast<T*>(v.data);
}

// ---- weights

/// Weights [k, n] in the layout of the level's steps, or their transpose.
class Panels {
 public:
  /// Packs the columns of `gates` gates: packets of the same units lie together. With one gate the
  /// packets lie in a row.
  Panels(WorkerPool* pool, const float* weights, std::int64_t units, std::int64_t gates,
         bool transposed)
      : packet_(level_kernels().recurrent_packet),
        across_(gates == 1 || transposed ? level_kernels().recurrent_packets : gates),
        by_gate_(gates > 1 && !transposed), transposed_(transposed), units_(units),
        n_(units * gates), k_(transposed ? n_ : units) {
    const std::int64_t wide = by_gate_ ? packet_ : packet_ * across_,
                       count = (units + wide - 1) / wide, size = k_ * across_ * packet_;
    memory_ =
        Buffer::allocate(host_allocator(), static_cast<std::size_t>(count * size) * sizeof(float));
    auto* to = static_cast<float*>(memory_->data());
    for_blocks(count * size <= kSmallWork ? nullptr : pool, count, [&](int panel) {
      for (std::int64_t p = 0; p < across_; ++p)
        pack(to + panel * size + p * packet_, weights, panel * wide + (by_gate_ ? 0 : p * packet_),
             by_gate_ ? p : 0);
    });
  }
  const float* data() const { return static_cast<const float*>(memory_->data()); }

 private:
  void pack(float* to, const float* weights, std::int64_t unit, std::int64_t gate) const {
    const std::int64_t there = std::clamp<std::int64_t>(units_ - unit, 0, packet_),
                       step = across_ * packet_;
    if (there < packet_)
      for (std::int64_t i = 0; i < k_; ++i)
        std::fill(to + i * step + there, to + i * step + packet_, 0.f);
    if (!transposed_) {
      const float* from = weights + gate * units_ + unit;
      for (std::int64_t i = 0; i < k_; ++i) std::copy_n(from + i * n_, there, to + i * step);
      return;
    }
    constexpr std::int64_t kTogether = 16;  // rows of a panel that stay in the nearest cache
    for (std::int64_t i = 0; i < k_; i += kTogether)
      for (std::int64_t l = 0; l < there; ++l)
        for (std::int64_t j = i; j < std::min(k_, i + kTogether); ++j)
          to[j * step + l] = weights[(unit + l) * n_ + j];
  }

  std::int64_t packet_, across_;
  bool by_gate_, transposed_;
  std::int64_t units_, n_, k_;
  Ref<Buffer> memory_;
};

/// The weights of a step: packed f32, or f64 in place.
template <class T>
class Weights;

template <>
class Weights<float> {
 public:
  Weights(WorkerPool* pool, const RecurrentArgs& a) {
    const Key key{a.recurrent_content, a.recurrent.data(), a.units};
    auto kept =
        a.slot && key.content ? std::static_pointer_cast<const Kept>(a.slot->get()) : nullptr;
    if (!kept || !(kept->key == key)) {
      kept = std::make_shared<const Kept>(
          key, Panels(pool, elements<float>(a.recurrent), a.units, gates_of(a.cell), false));
      if (a.slot && key.content) a.slot->set(kept);
    }
    kept_ = std::move(kept);
  }
  const float* data() const { return kept_->panels.data(); }

 private:
  struct Key {
    std::uint64_t content;
    const void* data;
    std::int64_t units;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Kept final : Repacked {
    Kept(const Key& k, Panels p) : key(k), panels(std::move(p)) {}
    Key key;
    Panels panels;
  };
  std::shared_ptr<const Kept> kept_;
};

template <>
class Weights<double> {
 public:
  Weights(WorkerPool*, const RecurrentArgs& a) : data_(elements<double>(a.recurrent)) {}
  const double* data() const { return data_; }

 private:
  const double* data_;
};

template <class T>
class Transposed;

template <>
class Transposed<float> {
 public:
  Transposed(WorkerPool* pool, const RecurrentGradientArgs& g)
      : panels_(pool, elements<float>(g.recurrent), g.units, gates_of(g.cell), true) {}
  void add_product(const AddProduct& p) const {
    AddProduct all = p;
    all.weights = panels_.data();
    level_kernels().add_product_f32(all);
  }

 private:
  Panels panels_;
};

struct WideAddProduct {
  std::int64_t rows, n, k;
  const bool* active;
  const double *a, *weights;
  double* c;
};

template <>
class Transposed<double> {
 public:
  Transposed(WorkerPool*, const RecurrentGradientArgs& g)
      : weights_(elements<double>(g.recurrent)) {}
  void add_product(const WideAddProduct& p) const {
    const auto product = room<double>(p.rows * p.n);
    gemm(DType::f64, {p.rows, p.n, p.k, p.a, p.k, 1, weights_, 1, p.k, product.get(), p.n});
    for (std::int64_t r = 0; r < p.rows; ++r)
      for (std::int64_t u = 0; (!p.active || p.active[r]) && u < p.n; ++u)
        p.c[r * p.n + u] += product[static_cast<std::size_t>(r * p.n + u)];
  }

 private:
  const double* weights_;
};

// ---- steps

void step(const RecurrentStep<float>& s) { level_kernels().recurrent_step_f32(s); }
void back(const RecurrentBack<float>& s) { level_kernels().recurrent_back_f32(s); }
void add_rows(double* sums, const float* x, std::int64_t rows, std::int64_t n) {
  level_kernels().add_rows_f32(sums, x, rows, n, n);
}
void add_rows(double* sums, const double* x, std::int64_t rows, std::int64_t n) {
  level_kernels().add_rows_f64(sums, x, rows, n, n);
}

// As above in f64, a unit at a time.
void step(const RecurrentStep<double>& s) {
  const std::int64_t gates = gates_of(s.cell), n = gates * s.units;
  const auto product = room<double>(s.rows * n);
  gemm(DType::f64, {s.rows, n, s.units, s.h, s.units, 1, s.weights, n, 1, product.get(), n});
  for (std::int64_t r = 0; r < s.rows; ++r)
    for (std::int64_t u = 0; u < s.units; ++u) {
      const std::int64_t at = r * s.units + u;
      double gate[4] = {}, q[4] = {}, h = 0, kept = 0;
      for (std::int64_t g = 0; g < gates; ++g) {
        q[g] = product[static_cast<std::size_t>(r * n + g * s.units + u)];
        gate[g] = s.projected[r * n + g * s.units + u] + s.bias[g * s.units + u];
        if (s.cell != RecurrentCell::gru) gate[g] += q[g];
      }
      s.next[at] = s.h[at];
      if (s.active && !s.active[r]) {
        std::fill_n(gate, 4, 0.0);
      } else {
        if (s.cell == RecurrentCell::lstm) {
          kept = s.c[at];
          lstm_step(gate, kept, h);
          s.c[at] = kept;
        } else if (s.cell == RecurrentCell::gru) {
          gru_step(gate, q, s.h[at], h);
          kept = q[2];
        } else {
          gate[0] = h = plain_step(s.cell, gate[0]);
        }
        s.next[at] = h;
      }
      for (std::int64_t g = 0; g < gates; ++g) s.gates[r * n + g * s.units + u] = gate[g];
      if (s.kept) s.kept[at] = kept;
      s.y[at] = h;
    }
}

void back(const RecurrentBack<double>& s) {
  const std::int64_t gates = gates_of(s.cell), n = gates * s.units;
  for (std::int64_t r = 0; r < s.rows; ++r)
    for (std::int64_t u = 0; u < s.units; ++u) {
      const std::int64_t at = r * s.units + u;
      double gate[4] = {}, d[4] = {}, dq = 0;
      for (std::int64_t g = 0; g < gates; ++g) gate[g] = s.gates[r * n + g * s.units + u];
      if (!s.active || s.active[r]) {
        double dh = s.dh[at] + s.dy[at];
        if (s.cell == RecurrentCell::lstm)
          lstm_back(gate, s.kept[at], s.before[r][u], dh, s.dc[at], d);
        else if (s.cell == RecurrentCell::gru)
          gru_back(gate, s.kept[at], s.before[r][u], dh, d, dq);
        else d[0] = plain_back(s.cell, gate[0], dh);
        s.dh[at] = s.cell == RecurrentCell::gru ? dh : 0;
      }
      for (std::int64_t g = 0; g < gates; ++g) s.dprojected[r * n + g * s.units + u] = d[g];
      if (s.cell != RecurrentCell::gru) continue;
      for (std::int64_t g = 0; g < 3; ++g) s.dq[r * n + g * s.units + u] = g == 2 ? dq : d[g];
    }
}

// ---- walks through time

/// Lists the rows of a block that are active at a time, and the source of each.
class Walk {
 public:
  template <class Args>
  Walk(const Args& a, std::int64_t block, std::int64_t blocks)
      : first(block * a.batch / blocks), rows((block + 1) * a.batch / blocks - first),
        reverse_(a.reverse), time_(a.time) {
    if (!a.lengths.data()) return;
    active_ = room<bool>(rows);
    for (std::int64_t r = 0; r < rows; ++r)
      lengths_.push_back(std::clamp<std::int64_t>(index_at(a.lengths, first + r), 0, time_));
  }
  /// The time of the i-th step.
  std::int64_t time_of(std::int64_t i) const { return reverse_ ? time_ - 1 - i : i; }
  /// Returns for each row whether time t counts; null: all do.
  const bool* active_at(std::int64_t t) {
    for (std::int64_t r = 0; r < rows && active_; ++r)
      active_[static_cast<std::size_t>(r)] = t < lengths_[static_cast<std::size_t>(r)];
    return active_.get();
  }
  /// The step of row r before the one at time t, which counts; -1: there is none, its state is the
  /// first.
  std::int64_t before(std::int64_t r, std::int64_t t) const {
    if (!reverse_) return t - 1;
    return t + 1 < (active_ ? lengths_[static_cast<std::size_t>(r)] : time_) ? t + 1 : -1;
  }

  const std::int64_t first, rows;

 private:
  bool reverse_;
  std::int64_t time_;
  std::vector<std::int64_t> lengths_;
  Room<bool> active_;
};

template <class T>
T* at(T* all, std::int64_t offset) {
  return all ? all + offset : nullptr;
}

template <class T>
void forward(WorkerPool* pool, const RecurrentArgs& a) {
  const std::int64_t units = a.units, n = units * gates_of(a.cell), blocks = blocks_of(a.batch);
  const Weights<T> weights(pool, a);
  for_blocks(a.batch * a.time * n <= kSmallWork ? nullptr : pool, blocks, [&](int block) {
    Walk walk(a, block, blocks);
    const std::int64_t size = walk.rows * units, from = walk.first * units;
    const auto states = room<T>(2 * size);
    T *h = states.get(), *next = h + size, *c = at(elements<T>(a.c), from);
    std::copy_n(elements<T>(a.h0) + from, size, h);
    if (c) std::copy_n(elements<T>(a.c0) + from, size, c);
    for (std::int64_t i = 0; i < a.time; ++i) {
      const std::int64_t t = walk.time_of(i), row = t * a.batch + walk.first;
      step(RecurrentStep<T>{a.cell, walk.rows, units, walk.active_at(t), weights.data(),
                            elements<T>(a.projected) + row * n, elements<T>(a.bias), h, next,
                            elements<T>(a.y) + row * units, c, elements<T>(a.gates) + row * n,
                            at(elements<T>(a.kept), row * units)});
      std::swap(h, next);
    }
    std::copy_n(h, size, elements<T>(a.h) + from);
  });
}

/// [time, batch, units]: the state before each step, zeros where none was; and, of a GRU, [time,
/// batch, n]: the gradient of h R.
template <class T>
struct Products {
  Room<T> states, of_product;
};

template <class T>
Products<T> backward(WorkerPool* pool, const RecurrentGradientArgs& g) {
  using Product = std::conditional_t<std::is_same_v<T, float>, AddProduct, WideAddProduct>;
  const std::int64_t units = g.units, n = units * gates_of(g.cell), blocks = blocks_of(g.batch);
  const bool is_gru = g.cell == RecurrentCell::gru, is_lstm = g.cell == RecurrentCell::lstm;
  Products<T> out{room<T>(g.time * g.batch * units),
                  is_gru ? room<T>(g.time * g.batch * n) : nullptr};
  std::vector<double> sums(static_cast<std::size_t>(std::max<std::int64_t>(1, blocks) * n));
  const Transposed<T> weights(pool, g);
  for_blocks(g.batch * g.time * n <= kSmallWork ? nullptr : pool, blocks, [&](int block) {
    Walk walk(g, block, blocks);
    const std::int64_t size = walk.rows * units, from = walk.first * units;
    T *dh = elements<T>(g.dh0) + from, *dc = at(elements<T>(g.dc0), from);
    std::copy_n(elements<T>(g.dh) + from, size, dh);
    if (dc) std::copy_n(elements<T>(g.dc) + from, size, dc);
    std::vector<const T*> before(static_cast<std::size_t>(walk.rows));
    for (std::int64_t i = g.time; i-- > 0;) {
      const std::int64_t t = walk.time_of(i), row = t * g.batch + walk.first;
      const bool* active = walk.active_at(t);
      for (std::int64_t r = 0; r < walk.rows; ++r) {
        T* state = out.states.get() + (row + r) * units;
        if (active && !active[r]) {
          std::fill_n(state, units, T(0));
          continue;
        }
        const std::int64_t earlier = walk.before(r, t),
                           there = (earlier * g.batch + walk.first + r) * units,
                           start = from + r * units;
        const T* h = earlier < 0 ? elements<T>(g.h0) + start : elements<T>(g.y) + there;
        std::copy_n(h, units, state);
        before[static_cast<std::size_t>(r)] = !is_lstm      ? h
                                              : earlier < 0 ? elements<T>(g.c0) + start
                                                            : elements<T>(g.kept) + there;
      }
      T *dprojected = elements<T>(g.dprojected) + row * n,
        *of_product = is_gru ? out.of_product.get() + row * n : dprojected;
      back(RecurrentBack<T>{g.cell, walk.rows, units, active, elements<T>(g.gates) + row * n,
                            at(elements<T>(g.kept), row * units), elements<T>(g.dy) + row * units,
                            before.data(), dh, dc, dprojected, is_gru ? of_product : nullptr});
      weights.add_product(Product{walk.rows, units, n, active, of_product, nullptr, dh});
      add_rows(sums.data() + block * n, dprojected, walk.rows, n);
    }
  });
  for (std::int64_t j = 0; j < n; ++j) {  // in the order of the blocks
    double sum = 0;
    for (std::int64_t block = 0; block < blocks; ++block)
      sum += sums[static_cast<std::size_t>(block * n + j)];
    elements<T>(g.dbias)[j] = static_cast<T>(sum);
  }
  return out;
}

}  // namespace

void CpuPrimitives::recurrent(Stream& stream, const RecurrentArgs& a) const {
  if (is_stored_only(a.projected.dtype)) {
    const bool has_c = a.cell == RecurrentCell::lstm;
    const Widened projected(a.projected), weights(a.recurrent), bias(a.bias), h0(a.h0),
        c0(has_c ? a.c0 : a.h0);
    const Narrowed y(a.y), h(a.h), c(has_c ? a.c : a.h), gates(a.gates);
    RecurrentArgs wide = a;
    wide.projected = projected.view, wide.recurrent = weights.view, wide.bias = bias.view,
    wide.h0 = h0.view;
    wide.y = y.view, wide.h = h.view, wide.gates = gates.view, wide.slot = nullptr;
    if (has_c) wide.c0 = c0.view, wide.c = c.view;
    recurrent(stream, wide);
    y.store(), h.store(), gates.store();
    if (has_c) c.store();
    return;
  }
  if (a.batch == 0 || a.units == 0) return;
  visit_wide_float("a recurrent layer", a.projected.dtype,
                   [&]<class T>(type_tag<T>) { forward<T>(pool_, a); });
}

void CpuPrimitives::recurrent_gradient(Stream& stream, const RecurrentGradientArgs& g) const {
  if (is_stored_only(g.recurrent.dtype)) {
    const bool has_c = g.cell == RecurrentCell::lstm;
    const Widened weights(g.recurrent), h0(g.h0), c0(has_c ? g.c0 : g.h0), y(g.y), gates(g.gates),
        dy(g.dy), dh(g.dh), dc(has_c ? g.dc : g.dh);
    const Narrowed dprojected(g.dprojected), drecurrent(g.drecurrent), dbias(g.dbias), dh0(g.dh0),
        dc0(has_c ? g.dc0 : g.dh0);
    RecurrentGradientArgs wide = g;
    wide.recurrent = weights.view, wide.h0 = h0.view, wide.y = y.view, wide.gates = gates.view,
    wide.dy = dy.view, wide.dh = dh.view;
    wide.dprojected = dprojected.view, wide.drecurrent = drecurrent.view, wide.dbias = dbias.view,
    wide.dh0 = dh0.view;
    if (has_c) wide.c0 = c0.view, wide.dc = dc.view, wide.dc0 = dc0.view;
    recurrent_gradient(stream, wide);
    dprojected.store(), drecurrent.store(), dbias.store(), dh0.store();
    if (has_c) dc0.store();
    return;
  }
  if (g.units == 0) return;
  visit_wide_float("a recurrent layer", g.recurrent.dtype, [&]<class T>(type_tag<T>) {
    const Products<T> p = backward<T>(pool_, g);
    const std::int64_t n = g.units * gates_of(g.cell), rows = g.time * g.batch;
    const void* right = p.of_product ? p.of_product.get() : g.dprojected.data;
    matmul(stream, {ConstView(p.states.get(), g.recurrent.dtype, {rows, g.units}),
                    ConstView(right, g.recurrent.dtype, {rows, n}), g.drecurrent, true, false});
  });
}

}  // namespace troupe::cpu
