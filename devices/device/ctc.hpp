// Connectionist temporal classification: arguments of the primitive.
#pragma once

#include <troupe/devices/device/primitives.hpp>

namespace troupe::detail {

/// Connectionist temporal classification (Graves et al., 2006): loss[b] = -log p(labels |
/// log_probabilities), and its gradient with respect to log_probabilities. If a direction is given:
/// the derivative of that gradient along it. Class 0 is the blank.
struct CtcArgs {
  ConstView log_probabilities;            // [batch, time, classes]
  ConstView labels;                       // i32 or i64 [batch, most], each in [1, classes)
  ConstView time_lengths, label_lengths;  // i32 or i64 [batch]
  // [batch]; [batch, time, classes]: with a direction the gradient's derivative, and no loss
  View loss, gradient;
  std::int64_t batch, time, classes, most;
  ConstView direction{};  // [batch, time, classes]; absent: loss and gradient
};

}  // namespace troupe::detail
