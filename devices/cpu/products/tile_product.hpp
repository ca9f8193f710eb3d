// f32 products by the level's own tiles: rows of a and columns of b are packed, so that a tile
// reads both in a row, by blocks that stay in a cache.
//
// An element is the sum of blocks of k, whose size k alone decides, each added up in order: it is
// the same bits whatever part of a product is computed, beside whatever else, on however many
// threads, with b packed before or not. (K. Goto, R. van de Geijn: Anatomy of High-Performance
// Matrix Multiplication, 2008.)
#pragma once

#include <cstdint>

#include <troupe/devices/cpu/level.hpp>
#include <troupe/devices/device/primitives.hpp>

namespace troupe::detail {
class WorkerPool;
}

namespace troupe::cpu {

/// Are there tiles, and enough rows and columns that packing b (unless it is packed before) and
/// filling whole panels cost less than they gain?
bool suits_tiles(const GemmCall& g, bool packed_before);

/// c = a b on the calling thread; the level has tiles.
void tile_product(const LevelKernels& level, const GemmCall& g);

/// A repeated matrix b: packed once for as long as its elements are the same.
class PackedColumns final : public Repacked {
 public:
  /// c = a b, with tiles of one and the same level; `slot` keeps the packed b, whose elements are
  /// `content`.
  static void run(const LevelKernels& level, WorkerPool* pool, const GemmCall& g,
                  std::uint64_t content, RepackedSlot& slot);

 private:
  struct Key {
    std::uint64_t content;
    const void* b;
    std::int64_t n, k, b_rs, b_cs;
    friend bool operator==(const Key&, const Key&) = default;
  };
  PackedColumns(const LevelKernels& level, const Key& key, const GemmCall& g, WorkerPool* pool);

  Key key_;
  Ref<Buffer> panels_;  // [panels][k][columns of a panel]
};

}  // namespace troupe::cpu
