// Connectionist temporal classification: what the primitive is called with.
#pragma once

#include <troupe/devices/primitives.hpp>

namespace troupe {

/// Connectionist temporal classification (Graves et al., 2006): loss[b] = -log p(labels | log_probabilities), and its gradient
/// with respect to log_probabilities. Class 0 is the blank.
struct CtcArgs {
  ConstView log_probabilities;               // [batch, time, classes]
  ConstView labels;                          // i32 or i64 [batch, most], each in [1, classes)
  ConstView time_lengths, label_lengths;     // i32 or i64 [batch]
  View loss, gradient;                       // [batch]; [batch, time, classes]
  std::int64_t batch, time, classes, most;
};

}  // namespace troupe
