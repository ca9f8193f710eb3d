// Splitting one kernel into blocks that the pool's workers share.
//
// The blocks depend on the shape alone, never on the number of workers, so that a result does not
// either. (A tiled product chooses its tiles by the workers; no tile splits a sum.)
// Work below kSmallWork elements stays on the caller: handing it over costs more.
#pragma once

#include <algorithm>
#include <cstdint>

#include <troupe/devices/threads/worker_pool.hpp>

namespace troupe::cpu {

inline constexpr std::int64_t kSmallWork = 20'000;
inline constexpr std::int64_t kBlock = 32'768;

/// Calls f(0) … f(blocks - 1), on the pool if there is one and more than one block.
template <class F>
void for_blocks(WorkerPool* pool, std::int64_t blocks, F&& f) {
  if (!pool || pool->size() < 2 || blocks < 2) {
    for (std::int64_t b = 0; b < blocks; ++b) f(static_cast<int>(b));
    return;
  }
  pool->parallel_for(static_cast<int>(blocks), f);
}

/// Calls f(begin, end) over [0, n) in blocks of `block`.
template <class F>
void for_ranges(WorkerPool* pool, std::int64_t n, std::int64_t block, F&& f) {
  for_blocks(n <= kSmallWork ? nullptr : pool, (n + block - 1) / block, [&](int b) {
    std::int64_t begin = b * block;
    f(begin, std::min(n, begin + block));
  });
}

/// Rows of `extent` elements worth a block together, where an element takes some time.
inline std::int64_t rows_together(std::int64_t extent) {
  return std::max<std::int64_t>(1, kBlock / 4 / std::max<std::int64_t>(1, extent));
}

/// Calls f(begin, end) over `rows` of them, in blocks.
template <class F>
void for_rows(WorkerPool* pool, std::int64_t rows, std::int64_t extent, F&& f) {
  const std::int64_t group = rows_together(extent);
  for_blocks(rows * extent <= kSmallWork / 4 ? nullptr : pool, (rows + group - 1) / group,
             [&](int b) { f(b * group, std::min(rows, (b + 1) * group)); });
}

}  // namespace troupe::cpu
