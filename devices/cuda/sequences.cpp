// Losses of sequences: connectionist temporal classification.
#include <troupe/devices/cuda/primitives.hpp>

#include <troupe/devices/cuda/kernels/ctc.hpp>
#include <troupe/devices/cuda/primitive_call.hpp>
#include <troupe/devices/device/ctc.hpp>

namespace troupe::cuda {

void CudaPrimitives::ctc(Stream& s, const CtcArgs& a) const {
  for (const ConstView* indices : {&a.labels, &a.time_lengths, &a.label_lengths})
    check_index_type_of(*indices);
  if (!has(Primitive::ctc, a.gradient.dtype)) refuse_dtype("a CTC loss", a.gradient.dtype);
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || a.batch == 0) return;
  const Queue::Check labels = call.queue().begin_check(), times = call.queue().begin_check(),
                     lengths = call.queue().begin_check();
  const auto are_i64 = [](const ConstView& v) { return v.dtype == DType::i64; };
  const CtcShape shape{a.batch,
                       a.time,
                       a.classes,
                       a.most,
                       call.data(a.labels),
                       call.data(a.time_lengths),
                       call.data(a.label_lengths),
                       are_i64(a.labels),
                       are_i64(a.time_lengths),
                       are_i64(a.label_lengths),
                       labels.record(),
                       times.record(),
                       lengths.record()};
  const bool has_direction = a.direction.data() != nullptr;
  const cudaError_t error =
      cuda::ctc(call.stream(), a.gradient.dtype, call.data(a.log_probabilities),
                has_direction ? call.data(a.direction) : nullptr, a.loss.data, a.gradient.data,
                shape, call.scratch(ctc_scratch(shape, has_direction)));
  call.queue().end_check(labels, a.classes, call.origin(), 1);
  call.queue().end_check(times, a.time + 1, call.origin());
  call.queue().end_check(lengths, a.most + 1, call.origin());
  call.check(error, "a CTC loss");
}

}  // namespace troupe::cuda
