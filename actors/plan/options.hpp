// Options of execution that plans and partitions share with the engine.
#pragma once

#include <cstdint>

namespace troupe {

/// Selects where a ready operation's kernel runs. It changes speed, never results.
enum class Granularity : std::uint8_t {
  automatic,  // inline; kernels measured as heavy go to other workers when several are ready
  partition,  // always inline in the partition's turn
  op,         // each op's kernel in an actor of its own
};

}  // namespace troupe
