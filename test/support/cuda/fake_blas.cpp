// Matrix products of the fake runtime: the CPU's.
#include <cstring>

#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cuda/libraries/blas.hpp>
#include <troupe/test/support/cuda/fake_cuda.hpp>
#include <troupe/test/support/cuda/host_work.hpp>

namespace troupe::cuda {
namespace {

class HostBlas final : public Blas {
 public:
  cudaError_t multiply(cudaStream_t stream, const BlasProduct& p, void*) override {
    return fake_cuda::enqueue(
        stream, [p] { run(p); }, "a matrix product");
  }
  std::size_t workspace_bytes() const override { return 256; }

 private:
  static void run(const BlasProduct& p) {
    const cpu::CpuPrimitives cpu(nullptr);
    Now now;
    const Shape a = p.transpose_a ? Shape{p.k, p.m} : Shape{p.m, p.k},
                b = p.transpose_b ? Shape{p.n, p.k} : Shape{p.k, p.n};
    for (std::int64_t i = 0; i < p.batch; ++i) {
      const auto at = [&](const void* data, std::int64_t stride, DType dtype) {
        return static_cast<const std::byte*>(data) +
               i * stride * static_cast<std::int64_t>(size_of(dtype));
      };
      const ConstView x(at(p.a, p.a_stride, p.dtype), p.dtype, a),
          y(at(p.b, p.b_stride, p.dtype), p.dtype, b);
      const View out(const_cast<std::byte*>(at(p.out, p.out_stride, p.out_dtype)), p.out_dtype,
                     Shape{p.m, p.n});
      const bool is_wider = p.out_dtype != p.dtype;
      const Tensor wide_x = is_wider ? widened(x) : Tensor(),
                   wide_y = is_wider ? widened(y) : Tensor();
      cpu.matmul(now, {.a = is_wider ? ConstView(wide_x) : x,
                       .b = is_wider ? ConstView(wide_y) : y,
                       .out = out,
                       .transpose_a = p.transpose_a,
                       .transpose_b = p.transpose_b});
    }
  }
  static Tensor widened(const ConstView& v) {
    Tensor t = Tensor::empty(DType::f32, v.shape);
    auto* const to = t.mutable_data<float>();
    for (std::int64_t i = 0; i < v.elements(); ++i)
      to[i] = v.dtype == DType::f16 ? float(static_cast<const half*>(v.data())[i])
                                    : float(static_cast<const bfloat16*>(v.data())[i]);
    return t;
  }
};

}  // namespace

std::unique_ptr<Blas> make_blas(bool) { return std::make_unique<HostBlas>(); }

}  // namespace troupe::cuda
