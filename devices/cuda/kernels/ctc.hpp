// Connectionist temporal classification, under the contract of kernels.hpp.
#pragma once

#include <troupe/devices/cuda/kernels/kernels.hpp>

namespace troupe::cuda {

/// Extents and indices as CtcArgs has them. A length beyond its extent, or a label outside of
/// [1, classes), is recorded; its item gets no loss, and a gradient of zeros.
struct CtcShape {
  std::int64_t batch, time, classes, most;
  const void *labels, *time_lengths, *label_lengths;
  bool are_labels_i64, are_times_i64, are_lengths_i64;
  IndexRecord *label_record, *time_record, *length_record;
};

std::size_t ctc_scratch(const CtcShape& shape, bool has_direction);
/// f32 and f64. `direction` may be null: then loss and gradient, else the gradient's derivative
/// along it in `gradient`. `loss` may be null.
cudaError_t ctc(cudaStream_t, DType, const void* log_probabilities, const void* direction,
                void* loss, void* gradient, const CtcShape& shape, void* scratch);

}  // namespace troupe::cuda
