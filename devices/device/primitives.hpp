// Device primitives: the kernels that operations are written over. Every device implements this
// interface; an op's kernel computes shapes on the host, allocates, and calls a primitive on the
// node's stream.
//
//   device.primitives().matmul(stream, {view(a), view(b), view(out), false, true});
//
// Contract of every primitive: views are dense and row-major; outputs do not overlap inputs unless
// said; the call may return before the work is done, and the work runs in the stream's order; views
// are copied, so the caller's may go away, but the memory must stay until the stream has passed.
// Shapes were checked by the op; a primitive checks only what depends on data (indices), and
// reports it as Error(out_of_range), thrown at once by a synchronous device, else as the stream's
// status.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include <troupe/devices/base/shape.hpp>
#include <troupe/devices/scalar/scalar_program.hpp>
#include <troupe/devices/tensor/tensor.hpp>

namespace troupe::detail {

class Stream;
struct AlgebraArgs;    // algebra.hpp
struct AlongArgs;      // axis_indexing.hpp
struct AttentionArgs;  // attention.hpp
struct AttentionGradientArgs;
struct ChannelSumsArgs;  // channel_sums.hpp
struct ConvolveArgs;     // window.hpp
struct CtcArgs;
struct PoolArgs;
struct RecurrentArgs;  // recurrent.hpp
struct RecurrentGradientArgs;
struct RowNormArgs;  // row_norm.hpp
struct RowNormGradientArgs;
struct ScanArgs;
struct SearchArgs;
struct SortArgs;

/// Elements to read: device memory, or an inline scalar carried by value.
class ConstView {
 public:
  ConstView() = default;
  ConstView(const Tensor& t)
      : shape(t.shape()), dtype(t.dtype()), inline_(t.is_inline()) {  // NOLINT
    if (inline_) std::memcpy(bits_, t.raw(), sizeof bits_);
    else data_ = t.raw();
  }
  ConstView(const void* data, DType type, const Shape& s) : shape(s), dtype(type), data_(data) {}
  const void* data() const { return inline_ ? bits_ : data_; }
  bool is_inline() const { return inline_; }
  std::int64_t elements() const { return shape.elements(); }
  std::size_t bytes() const { return std::size_t(elements()) * size_of(dtype); }

  Shape shape;
  DType dtype = DType::f32;

 private:
  bool inline_ = false;
  const void* data_ = nullptr;
  alignas(16) unsigned char bits_[16] = {};
};

/// Elements to write.
struct View {
  View() = default;
  /// Throws internal if the tensor is shared.
  explicit View(Tensor& t) : data(t.raw_mutable()), dtype(t.dtype()), shape(t.shape()) {}
  View(void* d, DType type, const Shape& s) : data(d), dtype(type), shape(s) {}
  std::int64_t elements() const { return shape.elements(); }
  std::size_t bytes() const { return std::size_t(elements()) * size_of(dtype); }

  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
};

/// Rows of elements to read: element (r, c) is `of`'s number start + r * step + c. Step 0: one row
/// for all; if `of` has one element, that element for all.
struct ConstRowsView {
  ConstView of;
  std::int64_t start = 0, step = 0;
};
/// A writable RowsView.
struct RowsView {
  View of;
  std::int64_t start = 0, step = 0;
};

enum class Reduction : std::uint8_t {
  sum,
  mean,
  product,
  min,
  max,
  any,
  all,
  argmin,
  argmax,
  logsumexp
};
std::string_view name_of(Reduction r);

enum class Scatter : std::uint8_t { update, add, sub, min, max };

enum class Random : std::uint8_t {
  uniform,           // floating: [0, 1); integers: all bits
  normal,            // mean 0, standard deviation 1 (Box-Muller)
  truncated_normal,  // normal, redrawn outside two standard deviations
};

/// The only values that a draw depends on: Philox4x32-10 of (key, element index).
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t op = 0;    // build-time id of the op, which passes preserve
  std::uint64_t step = 0;  // step of the run
  std::uint64_t tag = 0;   // iteration numbers, folded
};

/// An operand's elements in a layout of the device's own.
class Repacked {
 public:
  virtual ~Repacked() = default;
};

/// Keeps a repeated operand in the device's own layout, from one product to the next. A kernel owns
/// it.
class RepackedSlot {
 public:
  std::shared_ptr<const Repacked> get() const {
    std::lock_guard lock(mutex_);
    return kept_;
  }
  void set(std::shared_ptr<const Repacked> kept) {
    std::lock_guard lock(mutex_);
    kept_.swap(kept);  // the old one is destroyed after the lock
  }

 private:
  mutable std::mutex mutex_;  // guards kept_
  std::shared_ptr<const Repacked> kept_;
};

struct MatmulArgs {
  ConstView a;  // [batch..., m, k], or [batch..., k, m] if transpose_a
  ConstView b;  // [batch..., k, n], or [batch..., n, k] if transpose_b; batch extents broadcast
  View out;     // [batch..., m, n]
  bool transpose_a = false;
  bool transpose_b = false;
  RepackedSlot* kept = nullptr;  // b will come again: its layout may be kept here
  std::uint64_t b_content = 0;   // Tensor::content() of b
};

/// A reduction of a program's result for each element.
struct PointwiseReduceArgs {
  const ScalarProgram* program;  // must outlive the work
  std::span<const ConstView> in;
  // all of one shape; the reduced one has no data if it is not needed otherwise
  std::span<const View> results;
  std::size_t reduced = 0;  // which result
  Reduction how;
  View out;
  std::uint32_t axes;
};

/// A rectangular block: `extents` elements, every `step`-th from `start`, of a row-major tensor.
struct Block {
  Shape start;  // extents as coordinates; rank of the tensor
  Shape step;   // at least 1
  /// From the first element on, every element.
  static Block origin(int rank) {
    Block b;
    for (int i = 0; i < rank; ++i) {
      b.start.push_back(0);
      b.step.push_back(1);
    }
    return b;
  }
};

/// Names the members of `Primitives`.
enum class Primitive : std::uint8_t {
  copy,
  fill,
  pointwise,
  pointwise_rows,
  reduce,
  pointwise_reduce,
  matmul,
  transpose,
  copy_block,
  gather,
  scatter,
  softmax,
  cross_entropy,
  cross_entropy_gradient,
  one_hot,
  range,
  random,
  convolve,
  pool,
  scan,
  sort,
  along,
  search,
  algebra,
  attention,
  attention_gradient,
  row_norm,
  row_norm_gradient,
  channel_sums,
  ctc,
  recurrent,
  recurrent_gradient
};
std::string_view name_of(Primitive p);

class Primitives {
 public:
  virtual ~Primitives() = default;

  /// False if the device cannot run the primitive on elements of this dtype: then an op that
  /// declares the call (OpBuilder::calls) runs on the host. The primitive itself throws
  /// unimplemented.
  virtual bool has(Primitive, DType) const { return true; }

  /// out = in, byte for byte; the same elements.
  virtual void copy(Stream&, ConstView in, View out) const = 0;
  virtual void fill(Stream&, const Tensor& scalar, View out) const = 0;
  /// Each output element = the program on the broadcast inputs. All outputs have one shape. An
  /// output may be the buffer of an input of the same shape and element size. `program` must
  /// outlive the work.
  virtual void pointwise(Stream&, const ScalarProgram& program, std::span<const ConstView> in,
                         std::span<const View> out) const = 0;
  /// The program on `rows` times `columns` elements of operands that are slices of wider rows.
  /// Outputs overlap neither inputs nor each other.
  virtual void pointwise_rows(Stream&, const ScalarProgram& program, std::int64_t rows,
                              std::int64_t columns, std::span<const ConstRowsView> in,
                              std::span<const RowsView> out) const = 0;
  /// Reduces the axes in `axes` (bit i: axis i of in); out has in's shape with those axes gone or
  /// 1. argmin/argmax: one axis, i64 out, the first of equals. min/max/arg of no elements:
  /// out_of_range.
  virtual void reduce(Stream&, Reduction, ConstView in, View out, std::uint32_t axes) const = 0;
  /// As pointwise and then reduce of one of its results, bit for bit, in one go over the elements.
  virtual void pointwise_reduce(Stream&, const PointwiseReduceArgs&) const = 0;
  virtual void matmul(Stream&, const MatmulArgs&) const = 0;
  /// out's axis i is in's axis permutation[i].
  virtual void transpose(Stream&, ConstView in, View out,
                         std::span<const std::int64_t> permutation) const = 0;
  /// Copies `extents` elements from a block of in to a block of out (slice, pad, concat, split,
  /// stack).
  virtual void copy_block(Stream&, ConstView in, const Block& from, View out, const Block& to,
                          const Shape& extents) const = 0;
  /// out[..., i..., ...] = params[..., indices[i...], ...] along `axis`; indices i32 or i64 in [0,
  /// extent).
  virtual void gather(Stream&, ConstView params, ConstView indices, int axis, View out) const = 0;
  /// rows of out (axis 0): out[indices[i]] = / += / -= / min= / max= updates[i]; duplicates in
  /// index order.
  virtual void scatter(Stream&, Scatter, ConstView indices, ConstView updates, View out) const = 0;
  /// Along the last axis; log: the logarithm of it.
  virtual void softmax(Stream&, ConstView in, View out, bool log) const = 0;
  /// loss[i] = -log softmax(logits[i])[labels[i]]; logits [n, classes], labels n of i32/i64 in [0,
  /// classes).
  virtual void cross_entropy(Stream&, ConstView logits, ConstView labels, View loss) const = 0;
  /// out[i, c] = (softmax(logits[i])[c] - (c == labels[i])) * scale[i]: the gradient of
  /// cross_entropy.
  virtual void cross_entropy_gradient(Stream&, ConstView logits, ConstView labels, ConstView scale,
                                      View out) const = 0;
  /// out = 0 but for `on` at out[..., indices[...]]; an index outside [0, depth) gives a row of
  /// zeros.
  virtual void one_hot(Stream&, ConstView indices, const Tensor& on, const Tensor& off,
                       View out) const = 0;
  /// out[i] = start + i * step, computed in f64 and rounded once; in integers for integer dtypes.
  virtual void range(Stream&, double start, double step, View out) const = 0;
  virtual void random(Stream&, Random, const RandomKey& key, View out) const = 0;
  // Families with arguments of their own, documented in their headers.
  virtual void convolve(Stream&, const ConvolveArgs&) const = 0;
  virtual void pool(Stream&, const PoolArgs&) const = 0;
  virtual void scan(Stream&, const ScanArgs&) const = 0;
  virtual void sort(Stream&, const SortArgs&) const = 0;
  virtual void along(Stream&, const AlongArgs&) const = 0;
  virtual void search(Stream&, const SearchArgs&) const = 0;
  virtual void algebra(Stream&, const AlgebraArgs&) const = 0;
  virtual void attention(Stream&, const AttentionArgs&) const = 0;
  virtual void attention_gradient(Stream&, const AttentionGradientArgs&) const = 0;
  virtual void row_norm(Stream&, const RowNormArgs&) const = 0;
  virtual void row_norm_gradient(Stream&, const RowNormGradientArgs&) const = 0;
  virtual void channel_sums(Stream&, const ChannelSumsArgs&) const = 0;
  virtual void ctc(Stream&, const CtcArgs&) const = 0;
  virtual void recurrent(Stream&, const RecurrentArgs&) const = 0;
  virtual void recurrent_gradient(Stream&, const RecurrentGradientArgs&) const = 0;
};

}  // namespace troupe::detail
