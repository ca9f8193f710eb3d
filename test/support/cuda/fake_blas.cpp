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
    const auto bytes = static_cast<std::int64_t>(size_of(p.dtype));
    const Shape a = p.transpose_a ? Shape{p.k, p.m} : Shape{p.m, p.k},
                b = p.transpose_b ? Shape{p.n, p.k} : Shape{p.k, p.n};
    for (std::int64_t i = 0; i < p.batch; ++i) {
      const auto at = [&](const void* data, std::int64_t stride) {
        return static_cast<const std::byte*>(data) + i * stride * bytes;
      };
      cpu.matmul(now, {.a = ConstView(at(p.a, p.a_stride), p.dtype, a),
                       .b = ConstView(at(p.b, p.b_stride), p.dtype, b),
                       .out = View(const_cast<std::byte*>(at(p.out, p.out_stride)), p.dtype,
                                   Shape{p.m, p.n}),
                       .transpose_a = p.transpose_a,
                       .transpose_b = p.transpose_b});
    }
  }
};

}  // namespace

std::unique_ptr<Blas> make_blas(bool) { return std::make_unique<HostBlas>(); }

}  // namespace troupe::cuda
