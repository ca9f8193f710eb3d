// Steps of recurrent layers: a tile of rows times a panel of weights stays in registers, and the
// cell is computed there.
//
// An element of a product is the sum over k in order, whatever tile it falls into: a row's numbers
// depend on nothing but the row. Multiply-adds are fused where the level has them, so that v2
// rounds differently from v3 and v4.
#include <troupe/devices/cpu/levels/multiply_add.hpp>

namespace troupe::cpu {
namespace {

inline Floats rectified(Floats x) { return x < 0.f ? Floats{} : x; }
inline Floats where_positive(Floats y, Floats dy) { return y > 0.f ? dy : Floats{}; }

}  // namespace
}  // namespace troupe::cpu

#include <troupe/devices/cpu/levels/recurrent_cell.hpp>

namespace troupe::cpu {
namespace {

constexpr int kAcross = 4;
/// Rows of a tile whose sums are in registers, beside a row of the panel and an element of each
/// row.
constexpr int most_rows(int across) {
  return kRegisters == 32 ? (across == 4 ? 6 : 8) : (across == 4 ? 3 : 4);
}

bool any_active(const bool* active, std::int64_t first, int rows) {
  for (int r = 0; active && r < rows; ++r)
    if (active[first + r]) return true;
  return !active;
}

// Prefetches the tile's data for the step after its product, in lines that lie far apart: without
// it an LSTM's step took a fifth longer.
template <int gates>
TROUPE_INLINE void prefetch(const RecurrentStep<float>& s, std::int64_t row, std::int64_t unit) {
  for (int g = 0; g < gates; ++g)
    __builtin_prefetch(s.projected + (row * gates + g) * s.units + unit, 1);
  if (s.kept) __builtin_prefetch(s.kept + row * s.units + unit, 1);
  __builtin_prefetch(s.y + row * s.units + unit, 1);
}

// Computes the step's results for packet [unit, unit + n) of each row, whose sums are `q[r *
// across]` on; gates stand `units` apart. `s` is passed by value: written data could otherwise
// alias its pointers.
template <int gates, bool whole>
void finish(const RecurrentStep<float> s, const Floats* q, int across, int rows, std::int64_t first,
            std::int64_t unit, std::int64_t n) {
  Floats gate[8][gates];
  // all is read before anything is written: rows may lie a multiple of 4 KiB apart
  for (int r = 0; r < rows; ++r)
    for (int g = 0; g < gates; ++g) {
      const Floats p =
          load_part<whole>(s.projected + ((first + r) * gates + g) * s.units + unit, n) +
          load_part<whole>(s.bias + g * s.units + unit, n);
      gate[r][g] = gates == 3 ? p : p + q[r * across + g];
    }
  for (int r = 0; r < rows; ++r) {
    const std::int64_t row = first + r, at = row * s.units + unit;
    Floats h = {}, kept = {}, next = {};
    if (!s.active || s.active[row]) {
      if constexpr (gates == 4) {
        kept = load_part<whole>(s.c + at, n);
        lstm_step(gate[r], kept, h);
        store_part<whole>(s.c + at, kept, n);
      } else if constexpr (gates == 3) {
        gru_step(gate[r], q + r * across, load_part<whole>(s.h + at, n), h);
        kept = q[r * across + 2];
      } else {
        gate[r][0] = h = plain_step(s.cell, gate[r][0]);
      }
      next = h;
    } else {
      next = load_part<whole>(s.h + at, n);
      for (int g = 0; g < gates; ++g) gate[r][g] = Floats{};
    }
    for (int g = 0; g < gates; ++g)
      store_part<whole>(s.gates + (row * gates + g) * s.units + unit, gate[r][g], n);
    if constexpr (gates > 1) store_part<whole>(s.kept + at, kept, n);
    store_part<whole>(s.next + at, next, n);
    store_part<whole>(s.y + at, h, n);
  }
}

// gates: 4, 3, or 1, of which a panel has kAcross packets of units.
template <int gates, int rows>
void step_tile(const RecurrentStep<float>& s, const float* panel, std::int64_t row,
               std::int64_t unit) {
  constexpr int across = gates == 1 ? kAcross : gates;
  Floats sum[rows][across];
  for (int r = 0; r < rows; ++r) prefetch<gates>(s, row + r, unit);
  multiply(sum, s.h + row * s.units, s.units, 1, panel,
           any_active(s.active, row, rows) ? s.units : 0);
  for (int p = 0; p < (gates == 1 ? across : 1); ++p) {
    const std::int64_t from = unit + p * kPacket, n = s.units - from;
    if (n >= kPacket) finish<gates, true>(s, &sum[0][p], across, rows, row, from, n);
    else if (n > 0) finish<gates, false>(s, &sum[0][p], across, rows, row, from, n);
  }
}

template <int rows>
void add_tile(const AddProduct& s, const float* panel, std::int64_t row, std::int64_t column) {
  Floats sum[rows][kAcross];
  if (!any_active(s.active, row, rows)) return;
  multiply(sum, s.a + row * s.k, s.k, 1, panel, s.k);
  for (int r = 0; r < rows; ++r) {
    if (s.active && !s.active[row + r]) continue;
    for (int p = 0; p < kAcross; ++p) {
      const std::int64_t from = column + p * kPacket, n = s.n - from;
      if (n <= 0) break;
      float* to = s.c + (row + r) * s.n + from;
      if (n >= kPacket) store(to, load_floats(to) + sum[r][p]);
      else store_part<false>(to, load_part<false>(to, n) + sum[r][p], n);
    }
  }
}

template <int gates>
void steps(const RecurrentStep<float>& s) {
  constexpr int across = gates == 1 ? kAcross : gates;
  const std::int64_t units = gates == 1 ? kAcross * kPacket : kPacket;
  const float* panel = s.weights;
  for (std::int64_t unit = 0; unit < s.units; unit += units, panel += s.units * across * kPacket)
    for_tiles<most_rows(across)>(s.rows, [&]<int n>(Count<n>, std::int64_t row) {
      step_tile<gates, n>(s, panel, row, unit);
    });
}

void step(const RecurrentStep<float>& s) {
  switch (s.cell) {
    case RecurrentCell::lstm: return steps<4>(s);
    case RecurrentCell::gru: return steps<3>(s);
    default: return steps<1>(s);
  }
}

void add_product(const AddProduct& s) {
  const float* panel = s.weights;
  for (std::int64_t column = 0; column < s.n;
       column += kAcross * kPacket, panel += s.k * kAcross * kPacket)
    for_tiles<most_rows(kAcross)>(
        s.rows, [&]<int n>(Count<n>, std::int64_t row) { add_tile<n>(s, panel, row, column); });
}

// A packet of units, back; gates `units` apart.
template <int gates, bool whole>
TROUPE_INLINE void back_at(const RecurrentBack<float>& s, std::int64_t row, std::int64_t unit,
                           std::int64_t n) {
  const std::int64_t at = row * s.units + unit, first = gates * row * s.units + unit;
  const bool active = !s.active || s.active[row];
  Floats d[gates] = {}, dq = {}, gate[gates];
  if (active) {
    for (int g = 0; g < gates; ++g) gate[g] = load_part<whole>(s.gates + first + g * s.units, n);
    Floats dh = load_part<whole>(s.dh + at, n) + load_part<whole>(s.dy + at, n);
    if constexpr (gates == 4) {
      Floats dc = load_part<whole>(s.dc + at, n);
      lstm_back(gate, load_part<whole>(s.kept + at, n), load_part<whole>(s.before[row] + unit, n),
                dh, dc, d);
      store_part<whole>(s.dc + at, dc, n);
      dh = Floats{};
    } else if constexpr (gates == 3) {
      gru_back(gate, load_part<whole>(s.kept + at, n), load_part<whole>(s.before[row] + unit, n),
               dh, d, dq);
    } else {
      d[0] = plain_back(s.cell, gate[0], dh);
      dh = Floats{};
    }
    store_part<whole>(s.dh + at, dh, n);
  }
  for (int g = 0; g < gates; ++g) store_part<whole>(s.dprojected + first + g * s.units, d[g], n);
  if constexpr (gates == 3) {
    store_part<whole>(s.dq + first, d[0], n);
    store_part<whole>(s.dq + first + s.units, d[1], n);
    store_part<whole>(s.dq + first + 2 * s.units, dq, n);
  }
}

template <int gates>
void backs(const RecurrentBack<float> s) {
  for (std::int64_t row = 0; row < s.rows; ++row) {
    std::int64_t unit = 0;
    for (; unit + kPacket <= s.units; unit += kPacket) back_at<gates, true>(s, row, unit, kPacket);
    if (unit < s.units) back_at<gates, false>(s, row, unit, s.units - unit);
  }
}

void back(const RecurrentBack<float>& s) {
  switch (s.cell) {
    case RecurrentCell::lstm: return backs<4>(s);
    case RecurrentCell::gru: return backs<3>(s);
    default: return backs<1>(s);
  }
}

}  // namespace

void TROUPE_FILL(recurrent)(LevelKernels& k) {
  k.recurrent_packet = kPacket;
  k.recurrent_packets = kAcross;
  k.recurrent_step_f32 = step;
  k.recurrent_back_f32 = back;
  k.add_product_f32 = add_product;
}

}  // namespace troupe::cpu
