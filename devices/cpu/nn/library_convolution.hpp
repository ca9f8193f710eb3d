// Convolutions of f32 by oneDNN, on the calling threads: the batch is cut into pieces by the shape
// alone, and each piece is a call of its own. Tensors stay channels-last; the filter is reordered
// to the library's layout, once a call. The gradient of the filter is one partial sum a piece,
// added in the order of the pieces.
//
// The kernel's slot keeps the primitives and descriptors of a shape.
#pragma once

#include <memory>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/window.hpp>

namespace troupe::detail {
class WorkerPool;
}

namespace troupe::cpu {

class LibraryConvolution final : public Repacked {
 public:
  /// Nothing in `c` is empty.
  static void run(WorkerPool* pool, const ConvolveArgs& c);
  ~LibraryConvolution() override;

 private:
  struct Piece;
  struct Key {
    Convolve what;
    std::int64_t batch, channels, filters, groups;
    Windows windows;
    friend bool operator==(const Key&, const Key&) = default;
  };
  explicit LibraryConvolution(const Key& key);
  void to_each_item(WorkerPool* pool, const ConvolveArgs& c) const;
  void to_the_filter(WorkerPool* pool, const ConvolveArgs& c) const;
  std::int64_t pieces() const { return (key_.batch + batch_ - 1) / batch_; }
  const Piece& piece(std::int64_t i) const;

  Key key_;
  std::int64_t batch_;                  // items a piece
  std::unique_ptr<Piece> most_, last_;  // the last may have fewer items
};

}  // namespace troupe::cpu
