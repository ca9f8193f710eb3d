// A device that has several ways to compute a primitive, and says which it takes: for explain().
//
//   if (const auto* choosing = dynamic_cast<const ChoosingDevice*>(&device))
//     text += choosing->choice(Primitive::convolve);      // `by cuDNN 9.19.0`
//
// A device has it as a second base. Threads: any.
#pragma once

#include <string>

#include <troupe/devices/device/primitives.hpp>

namespace troupe::detail {

class ChoosingDevice {
 public:
  virtual ~ChoosingDevice();
  /// Returns how the primitive is computed, and what is missing for a better way; empty: there is
  /// one way. It may open a library, which takes up to a second.
  virtual std::string choice(Primitive p) const = 0;
};

}  // namespace troupe::detail
