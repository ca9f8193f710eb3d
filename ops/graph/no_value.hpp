// Variables without a value: the first one is computed by a trace that has not ended, or its
// computation has failed. Until one is set, all scopes and programs of the host are refused reads.
//
// Threads: any.
#pragma once

#include <thread>

#include <troupe/devices/base/error.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe::detail {

/// Throws failed_precondition if the value of a variable, whose right the caller holds, is none.
inline void require_value(const Tensor& value) {
  if (value.has_value()) return;
  throw Error(
      Code::failed_precondition,
      "the variable has no value, because the computation of its first one has not ended or "
      "has failed; assign one first");
}

/// Takes the value of a variable away, until one is set.
inline void drop_value(VariableState& variable) {
  while (!variable.try_acquire()) std::this_thread::yield();
  variable.value() = Tensor();
  variable.release(true);
}

inline bool has_value(VariableState& variable) {
  while (!variable.try_acquire()) std::this_thread::yield();
  const bool has = variable.value().has_value();
  variable.release(false);
  return has;
}

}  // namespace troupe::detail
