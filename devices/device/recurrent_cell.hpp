// The cells of recurrent layers. Gates stand side by side in the last axis, in the order given; s
// is the logistic function, p the projected input plus bias, q = h R.
//
//   lstm (input, forget, candidate, output):  i, f, g, o = p + q
//                                             c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c')
//   gru (reset, update, candidate):           r, z = s(p + q)
//                                             h' = z h + (1 - z) tanh(p_n + r q_n)
//   tanh, relu (one):                         h' = tanh(p + q), max(p + q, 0)
#pragma once

#include <cstdint>

namespace troupe {

enum class RecurrentCell : std::uint8_t { lstm, gru, tanh, relu };

}  // namespace troupe
