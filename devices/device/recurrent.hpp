// Recurrent layers over whole sequences. Arguments of the primitives.
//
// The batch is cut into blocks by its extent; a block walks through all of time by itself, so that
// workers do not wait for each other.
#pragma once

#include <troupe/devices/device/primitives.hpp>
#include <troupe/devices/device/recurrent_cell.hpp>

namespace troupe::detail {

constexpr std::int64_t gates_of(RecurrentCell c) {
  return c == RecurrentCell::lstm ? 4 : c == RecurrentCell::gru ? 3 : 1;
}

/// Past an example's length its state stays, and its output and the values kept for the gradient
/// are zero. In reverse time is walked from the end.
struct RecurrentArgs {
  RecurrentCell cell;
  bool reverse;
  std::int64_t time, batch, units;
  ConstView projected;  // [time, batch, gates * units]: the input times its weights
  ConstView recurrent;  // [units, gates * units]
  ConstView bias;       // [gates * units]
  ConstView h0, c0;     // [batch, units]; c0 of an LSTM only
  ConstView lengths;    // [batch] i32 or i64, or absent; below 0: 0, above the time: all of it
  View y;               // [time, batch, units]
  View h, c;            // [batch, units], after the last step; c of an LSTM only
  // for the gradient: the gates' values, of projected's shape; may be its buffer
  View gates;
  // for the gradient, [time, batch, units], f32, f64 for f64: an LSTM's cells, a GRU's q_n; else
  // absent
  View kept;
  RepackedSlot* slot = nullptr;         // `recurrent` may come again: keeps its layout
  std::uint64_t recurrent_content = 0;  // Tensor::content() of `recurrent`
};

/// The gradient, from the inputs, the outputs, and the cotangents of y, h and c.
struct RecurrentGradientArgs {
  RecurrentCell cell;
  bool reverse;
  std::int64_t time, batch, units;
  ConstView recurrent, h0, c0, lengths, y, gates, kept;
  ConstView dy, dh, dc;
  View dprojected;  // may be the buffer of gates
  View drecurrent, dbias, dh0, dc0;
};

}  // namespace troupe::detail
