// Products with a matrix b that comes again and again, where tiles of the level's own
// (tile_product.hpp) do not suit: b is kept in oneDNN's own layout, remade only when its elements
// change. A recurrent cell's weights are packed once a run instead of once a step, and a transposed
// b costs no more than a straight one.
//
// Whether a product goes this way is said by the node (MatmulArgs::kept), never by whether b
// happens to be packed already: the two ways round differently. Pieces of columns are cut by the
// shape alone.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/primitives.hpp>

namespace troupe::detail {
class WorkerPool;
}

namespace troupe::cpu {

struct GemmCall;

class PackedProduct final : public Repacked {
 public:
  /// c = a b for f32 matrices; `slot` keeps the packed b, whose elements are `content`.
  static void run(WorkerPool* pool, const GemmCall& g, std::uint64_t content, RepackedSlot& slot);

  ~PackedProduct() override;

 private:
  struct Piece;
  struct Pieces;
  struct ProductShape {
    std::int64_t m, n, k, a_rs, a_cs, b_rs, b_cs;
    friend bool operator==(const ProductShape&, const ProductShape&) = default;
  };
  /// Identifies the product: everything but a, c and where their rows are.
  struct Key {
    std::uint64_t content;
    const void* b;
    ProductShape shape;
    friend bool operator==(const Key&, const Key&) = default;
  };
  PackedProduct(const Key& key, std::shared_ptr<const Pieces> pieces, const GemmCall& g,
                WorkerPool* pool);
  void multiply(WorkerPool* pool, const GemmCall& g) const;
  void* weights(int piece) const;

  Key key_;
  std::shared_ptr<const Pieces> pieces_;  // shared by every content of one shape
  Ref<Buffer> packed_;                    // the weights of all pieces
};

}  // namespace troupe::cpu
