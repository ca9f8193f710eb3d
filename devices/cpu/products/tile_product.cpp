#include <troupe/devices/cpu/products/tile_product.hpp>

#include <algorithm>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/scratch.hpp>

namespace troupe::cpu {
namespace {

// A panel of kDepth is half of a first cache of 32 KiB, kRows rows of it a quarter of a second one
// of 512 KiB.
constexpr std::int64_t kDepth = 256, kRows = 144, kColumns = 1024;
// Panels from which on packed rows are worth it: fewer do not read them often enough.
constexpr std::int64_t kFewPanels = 8;

// Elements of b that need no packing: as they lie they stay in a first cache of 32 KiB.
constexpr std::int64_t kReadInPlace = 8 << 10;
// Rows and panels packed at once if a panel is read just after.
constexpr std::int64_t kRowsTogether = 16, kPanelsTogether = 4;
// Bounds of the products that the library wins (RESULTS.md): sums too short for a tile's cost
// before and after; few rows, which read b once; and from 17 to 127 rows of a transposed b, for
// which packing b costs more than the library's own tiles lose.
constexpr std::int64_t kShortest = 32, kFewestRows = 5, kFewRows = 16, kManyRows = 128;

// Multiply-adds worth a piece of their own: ~20 µs, several times the cost of handing it to a
// worker; rows and panels that a piece has at least.
constexpr std::int64_t kPieceWork = 2 << 20, kMostPieces = 8, kPieceRows = 48, kPiecePanels = 4;

bool reads_in_place(const GemmCall& g) { return g.b_cs == 1 && g.k * g.b_rs <= kReadInPlace; }

std::int64_t blocks(std::int64_t n, std::int64_t most) { return (n + most - 1) / most; }
/// The size of blocks of nearly one size, a multiple of `unit`.
std::int64_t block_size(std::int64_t n, std::int64_t most, std::int64_t unit) {
  return blocks(blocks(n, blocks(n, most)), unit) * unit;
}

/// Packs columns [column, end) of rows [row, row + k) of b as panels, a few rows at a time:
/// neighbouring elements are then read together.
void pack_panels(const LevelKernels& level, const GemmCall& g, std::int64_t column,
                 std::int64_t end, std::int64_t row, std::int64_t k, float* to) {
  const std::int64_t wide = level.product_columns, step = g.b_cs == 1 ? kRowsTogether : k;
  for (std::int64_t i = 0; i < k; i += step)
    for (std::int64_t c = column; c < end; c += wide) {
      const float* from = static_cast<const float*>(g.b) + c * g.b_cs + (row + i) * g.b_rs;
      level.pack_columns_f32(from, g.b_rs, g.b_cs, std::min(step, k - i), std::min(wide, end - c),
                             to + (c - column) * k + i * wide);
    }
}

/// c = a b. `panels`: of b's columns, or null: they are packed here.
void multiply(const LevelKernels& level, const GemmCall& g, const float* panels) {
  const std::int64_t wide = level.product_columns;
  const std::int64_t depth = block_size(g.k, kDepth, 8), rows = block_size(g.m, kRows, 12),
                     columns = std::min(kColumns, blocks(g.n, wide) * wide);
  const std::int64_t together = kPanelsTogether * wide;
  const bool packs_rows = g.n > kFewPanels * wide;
  const bool in_place = !panels && reads_in_place(g);  // but for a last panel that reaches past b
  // one block of rows: a panel is read just after it was packed, and never again
  const bool packs_each = !panels && (in_place || g.m <= rows);
  const std::int64_t of_rows = packs_rows ? rows * depth : 0, of_columns = panels ? 0
                                                                           : packs_each
                                                                               ? together * depth
                                                                               : columns * depth;
  float* const strips = reinterpret_cast<float*>(
      thread_scratch(static_cast<std::size_t>(of_rows + of_columns) * sizeof(float)));
  float* const packed = strips + of_rows;
  for (std::int64_t j = 0; j < g.n; j += columns) {
    const std::int64_t end = std::min(g.n, j + columns);
    for (std::int64_t i = 0; i < g.k; i += depth) {
      const std::int64_t k = std::min(depth, g.k - i);
      if (!panels && !packs_each) pack_panels(level, g, j, end, i, k, packed);
      for (std::int64_t r = 0; r < g.m; r += rows) {
        PanelProduct p{};
        p.m = std::min(rows, g.m - r);
        p.k = k;
        p.a = static_cast<const float*>(g.a) + r * g.a_rs + i * g.a_cs;
        p.a_rs = g.a_rs;
        p.a_cs = g.a_cs;
        p.packed = packs_rows;
        p.c_rs = g.c_rs;
        p.adds = i > 0;
        if (packs_rows) {
          level.pack_rows_f32(p.a, g.a_rs, g.a_cs, p.m, k, strips);
          p.a = strips;
        }
        for (std::int64_t c = j; c < end; c += wide) {
          p.n = std::min(wide, g.n - c);
          if (in_place && p.n == wide) {
            p.panel = static_cast<const float*>(g.b) + i * g.b_rs + c;
            p.panel_rs = g.b_rs;
          } else {
            const std::int64_t in = in_place ? 0 : packs_each ? (c - j) % together : c - j;
            if (packs_each && in == 0)
              pack_panels(level, g, c, std::min(end, c + together), i, k, packed);
            p.panel = panels ? panels + c * g.k + i * wide : packed + in * k;
            p.panel_rs = wide;
          }
          p.c = static_cast<float*>(g.c) + r * g.c_rs + c;
          level.multiply_panel_f32(p);
        }
      }
    }
  }
}

}  // namespace

bool suits_tiles(const GemmCall& g, bool packed_before) {
  const LevelKernels& level = level_kernels();
  if (!level.multiply_panel_f32 || g.k < kShortest) return false;
  const std::int64_t padded = blocks(g.n, level.product_columns) * level.product_columns;
  if (4 * g.n < 3 * padded) return false;  // the columns past n are computed too
  return packed_before || reads_in_place(g) || g.m >= kManyRows ||
         (g.m >= kFewestRows && (g.m <= kFewRows || g.b_cs == 1));
}

void tile_product(const LevelKernels& level, const GemmCall& g) { multiply(level, g, nullptr); }

PackedColumns::PackedColumns(const LevelKernels& level, const Key& key, const GemmCall& g,
                             WorkerPool* pool)
    : key_(key) {
  const std::int64_t wide = level.product_columns, count = blocks(g.n, wide);
  panels_ = Buffer::allocate(host_allocator(),
                             static_cast<std::size_t>(count * wide * g.k) * sizeof(float));
  for_blocks(pool, blocks(count, kPiecePanels), [&](int block) {
    const std::int64_t column = block * kPiecePanels * wide;
    pack_panels(level, g, column, std::min(g.n, column + kPiecePanels * wide), 0, g.k,
                static_cast<float*>(panels_->data()) + column * g.k);
  });
}

void PackedColumns::run(const LevelKernels& level, WorkerPool* pool, const GemmCall& g,
                        std::uint64_t content, RepackedSlot& slot) {
  const Key key{content, g.b, g.n, g.k, g.b_rs, g.b_cs};
  auto kept = std::static_pointer_cast<const PackedColumns>(slot.get());
  if (!kept || !(kept->key_ == key)) {
    kept = std::shared_ptr<const PackedColumns>(new PackedColumns(level, key, g, pool));
    slot.set(kept);
  }
  const float* const panels = static_cast<const float*>(kept->panels_->data());
  const std::int64_t pieces =
                         std::clamp<std::int64_t>(g.m * g.n * g.k / kPieceWork, 1, kMostPieces),
                     wide = level.product_columns;
  const bool by_rows = g.m >= pieces * kPieceRows;
  const std::int64_t rows = by_rows ? block_size(g.m, blocks(g.m, pieces), 12) : g.m;
  const std::int64_t columns =
      by_rows ? g.n : std::max(kPiecePanels, blocks(blocks(g.n, wide), pieces)) * wide;
  for_blocks(pool, by_rows ? blocks(g.m, rows) : blocks(g.n, columns), [&](int i) {
    const std::int64_t row = by_rows ? i * rows : 0, column = by_rows ? 0 : i * columns;
    GemmCall part = g;
    part.m = std::min(rows, g.m - row);
    part.n = std::min(columns, g.n - column);
    part.a = static_cast<const float*>(g.a) + row * g.a_rs;
    part.c = static_cast<float*>(g.c) + row * g.c_rs + column;
    multiply(level, part, panels + column * g.k);
  });
}

}  // namespace troupe::cpu
