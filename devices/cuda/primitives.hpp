// The primitives of a GPU, over kernels of its own (kernels/), printed programs (programs/) and
// libraries (libraries/). Operations over others run on the host (Primitives::has).
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include <fmt/format.h>

#include <troupe/devices/cuda/kernels/kernels.hpp>
#include <troupe/devices/cuda/libraries/blas.hpp>
#include <troupe/devices/cuda/libraries/dnn.hpp>
#include <troupe/devices/cuda/programs/compiled.hpp>
#include <troupe/devices/cuda/stream.hpp>
#include <troupe/devices/device/primitives.hpp>

namespace troupe::cuda {

class PrimitiveCall;
struct ProgramLaunch;

class CudaPrimitives final : public Primitives {
 public:
  /// `processors`: how many blocks run at once is a multiple of them. `model`: the GPU's, for plans
  /// of cuDNN.
  CudaPrimitives(Device& device, int index, int processors, const ProgramCacheOptions& programs,
                 bool tf32, const std::string& model)
      : device_(device), index_(index), processors_(processors),
        architecture_(programs.architecture), programs_(programs), tf32_(tf32),
        dnn_({.tf32 = tf32,
              .folder = programs.folder,
              .limit = programs.limit,
              .device = fmt::format("{} sm_{} {}", model, programs.architecture, processors)}) {}

  bool has(Primitive p, DType dtype) const override;
  Dnn& dnn() const { return dnn_; }

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
  void one_hot(Stream&, ConstView indices, const Tensor& on, const Tensor& off,
               View out) const override;
  void range(Stream&, double start, double step, View out) const override;

  void softmax(Stream&, ConstView, View, bool) const override;
  void cross_entropy(Stream&, ConstView, ConstView, View) const override;
  void cross_entropy_gradient(Stream&, ConstView, ConstView, ConstView, View) const override;
  void random(Stream&, Random, const RandomKey&, View) const override;
  void convolve(Stream&, const ConvolveArgs&) const override;
  void pool(Stream&, const PoolArgs&) const override;
  void scan(Stream&, const ScanArgs&) const override;
  void sort(Stream&, const SortArgs&) const override;
  void along(Stream&, const AlongArgs&) const override;
  void search(Stream&, const SearchArgs&) const override;
  void attention(Stream&, const AttentionArgs&) const override;
  void attention_gradient(Stream&, const AttentionGradientArgs&) const override;
  void row_norm(Stream&, const RowNormArgs&) const override;
  void row_norm_gradient(Stream&, const RowNormGradientArgs&) const override;
  void channel_sums(Stream&, const ChannelSumsArgs&) const override;
  void recurrent(Stream&, const RecurrentArgs&) const override;
  void recurrent_gradient(Stream&, const RecurrentGradientArgs&) const override;

  void ctc(Stream&, const CtcArgs&) const override;

  // Missing: `has` returns false.
  void algebra(Stream&, const AlgebraArgs&) const override;

 private:
  void run_program(PrimitiveCall& call, const ScalarProgram& program, ProgramLaunch& launch) const;
  void multiply(PrimitiveCall& call, const BlasProduct& product) const;
  bool convolve_by_library(PrimitiveCall& call, const ConvolveArgs& c) const;
  void convolve_as_product(PrimitiveCall& call, const ConvolveArgs& c) const;
  Blas& blas() const;

  Device& device_;
  const int index_;
  const int processors_;
  const int architecture_;
  mutable ProgramCache programs_;
  const bool tf32_;
  mutable std::once_flag blas_made_;
  mutable std::unique_ptr<Blas> blas_;  // made by the first product
  mutable Dnn dnn_;
};

/// Returns the element of a host scalar.
Element element_of(const Tensor& scalar);

}  // namespace troupe::cuda
