// The CPU's primitives: each runs before the call returns. Defined by subject in the files beside.
#pragma once

#include <troupe/devices/device/primitives.hpp>

#include <troupe/devices/base/internal.hpp>

namespace troupe::detail {
class WorkerPool;
}

namespace troupe::cpu {

class CpuPrimitives final : public Primitives {
 public:
  /// Blocks of large kernels run on `pool`; null: on the caller alone.
  explicit CpuPrimitives(WorkerPool* pool) : pool_(pool) {}

  void copy(Stream&, ConstView in, View out) const override;
  void fill(Stream&, const Tensor& scalar, View out) const override;
  void pointwise(Stream&, const ScalarProgram& program, std::span<const ConstView> in,
                 std::span<const View> out) const override;
  void pointwise_rows(Stream&, const ScalarProgram& program, std::int64_t rows,
                      std::int64_t columns, std::span<const ConstRowsView> in,
                      std::span<const RowsView> out) const override;
  void reduce(Stream&, Reduction, ConstView in, View out, std::uint32_t axes) const override;
  void pointwise_reduce(Stream&, const PointwiseReduceArgs&) const override;
  void matmul(Stream&, const MatmulArgs&) const override;
  void transpose(Stream&, ConstView in, View out,
                 std::span<const std::int64_t> permutation) const override;
  void copy_block(Stream&, ConstView in, const Block& from, View out, const Block& to,
                  const Shape& extents) const override;
  void gather(Stream&, ConstView params, ConstView indices, int axis, View out) const override;
  void scatter(Stream&, Scatter, ConstView indices, ConstView updates, View out) const override;
  void softmax(Stream&, ConstView in, View out, bool log) const override;
  void cross_entropy(Stream&, ConstView logits, ConstView labels, View loss) const override;
  void cross_entropy_gradient(Stream&, ConstView logits, ConstView labels, ConstView scale,
                              View out) const override;
  void one_hot(Stream&, ConstView indices, const Tensor& on, const Tensor& off,
               View out) const override;
  void range(Stream&, double start, double step, View out) const override;
  void random(Stream&, Random, const RandomKey& key, View out) const override;
  void convolve(Stream&, const ConvolveArgs&) const override;
  void pool(Stream&, const PoolArgs&) const override;
  void scan(Stream&, const ScanArgs&) const override;
  void sort(Stream&, const SortArgs&) const override;
  void along(Stream&, const AlongArgs&) const override;
  void search(Stream&, const SearchArgs&) const override;
  void algebra(Stream&, const AlgebraArgs&) const override;
  void attention(Stream&, const AttentionArgs&) const override;
  void attention_gradient(Stream&, const AttentionGradientArgs&) const override;
  void row_norm(Stream&, const RowNormArgs&) const override;
  void row_norm_gradient(Stream&, const RowNormGradientArgs&) const override;
  void channel_sums(Stream&, const ChannelSumsArgs&) const override;
  void ctc(Stream&, const CtcArgs&) const override;
  void recurrent(Stream&, const RecurrentArgs&) const override;
  void recurrent_gradient(Stream&, const RecurrentGradientArgs&) const override;

 private:
  WorkerPool* pool_;
};

}  // namespace troupe::cpu
