// One step of the recurrent cells, and back, on doubles or on packets of units. A file that
// includes this for packets first defines the functions called here on them.
#pragma once

#include <troupe/devices/device/recurrent_cell.hpp>

namespace troupe::cpu {
namespace {

inline double sigmoid(double x) {
  const double e = __builtin_exp(-__builtin_fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}
inline double tanh(double x) { return __builtin_tanh(x); }
inline double rectified(double x) { return x < 0 ? 0 : x; }  // NaN passes
inline double where_positive(double y, double dy) { return y > 0 ? dy : 0; }

/// `gate`: sums, then the gates' values.
template <class V>
inline void lstm_step(V* gate, V& c, V& h) {
  gate[0] = sigmoid(gate[0]);
  gate[1] = sigmoid(gate[1]);
  gate[2] = tanh(gate[2]);
  gate[3] = sigmoid(gate[3]);
  c = gate[1] * c + gate[0] * gate[2];
  h = gate[3] * tanh(c);
}
/// dc: of the cell after the step, then of that before.
template <class V>
inline void lstm_back(const V* gate, V c, V before, V dh, V& dc, V* d) {
  const V t = tanh(c), of_c = dc + dh * gate[3] * (1.f - t * t);
  d[0] = of_c * gate[2] * gate[0] * (1.f - gate[0]);
  d[1] = of_c * before * gate[1] * (1.f - gate[1]);
  d[2] = of_c * gate[0] * (1.f - gate[2] * gate[2]);
  d[3] = dh * t * gate[3] * (1.f - gate[3]);
  dc = of_c * gate[1];
}

/// `gate`: the projected part, then the gates' values; `q`: h R.
template <class V>
inline void gru_step(V* gate, const V* q, V before, V& h) {
  gate[0] = sigmoid(gate[0] + q[0]);
  gate[1] = sigmoid(gate[1] + q[1]);
  gate[2] = tanh(gate[2] + gate[0] * q[2]);
  h = gate[1] * before + (1.f - gate[1]) * gate[2];
}
/// dq: for h R, whose first two gates are as d; dh: for the state after, then for the state before,
/// without the part through h R.
template <class V>
inline void gru_back(const V* gate, V q, V before, V& dh, V* d, V& dq) {
  d[2] = dh * (1.f - gate[1]) * (1.f - gate[2] * gate[2]);
  d[1] = dh * (before - gate[2]) * gate[1] * (1.f - gate[1]);
  d[0] = d[2] * q * gate[0] * (1.f - gate[0]);
  dq = d[2] * gate[0];
  dh = dh * gate[1];
}

template <class V>
inline V plain_step(RecurrentCell cell, V sum) {
  return cell == RecurrentCell::tanh ? tanh(sum) : rectified(sum);
}
template <class V>
inline V plain_back(RecurrentCell cell, V value, V dh) {
  return cell == RecurrentCell::tanh ? dh * (1.f - value * value) : where_positive(value, dh);
}

}  // namespace
}  // namespace troupe::cpu
