// oneDNN's products of bytes are exact where the processor multiplies into 32 bits (VNNI).
// Elsewhere they saturate in 16, so there a loop of ours takes over.
#include <troupe/devices/cpu/products/int8_matmul.hpp>

#include <algorithm>

#include <dnnl.h>
#include <fmt/format.h>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/products/library_call.hpp>

namespace troupe::cpu {
namespace {

// Multiply-adds worth a block of their own: ~50 µs.
constexpr std::int64_t kInt8BlockWork = 16 << 20;

bool multiplies_into_words() {
#if defined(__x86_64__)
  static const bool has =
      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl");
  return has;
#else
  return false;
#endif
}

template <class A>
void plain(const A* a, const std::int8_t* b, std::int32_t* c, std::int64_t rows, std::int64_t k,
           std::int64_t n) {
  for (std::int64_t i = 0; i < rows; ++i) {
    auto* row = reinterpret_cast<std::uint32_t*>(c + i * n);  // sums wrap
    std::fill(row, row + n, 0u);
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int32_t x = a[i * k + j];
      for (std::int64_t l = 0; l < n; ++l) row[l] += static_cast<std::uint32_t>(x * b[j * n + l]);
    }
  }
}

template <class A>
void product(const A* a, const std::int8_t* b, std::int32_t* c, std::int64_t rows, std::int64_t k,
             std::int64_t n) {
  if (k == 0 || !multiplies_into_words()) return plain(a, b, c, rows, k, n);
  LibraryCall call;
  const std::int32_t none = 0;
  dnnl_status_t s;
  if constexpr (std::is_signed_v<A>)
    s = dnnl_gemm_s8s8s32('N', 'N', 'F', rows, n, k, 1.f, a, k, 0, b, n, 0, 0.f, c, n, &none);
  else s = dnnl_gemm_u8s8s32('N', 'N', 'F', rows, n, k, 1.f, a, k, 0, b, n, 0, 0.f, c, n, &none);
  if (s != dnnl_success)
    throw Error(Code::internal,
                fmt::format("dnnl_gemm of bytes {}x{}x{} failed with {}", rows, k, n, int(s)));
}

}  // namespace

void int8_matmul(WorkerPool* pool, const MatmulArgs& m) {
  const std::int64_t rows = m.out.shape[0], n = m.out.shape[1], k = m.b.shape[0];
  const std::int64_t block = std::clamp<std::int64_t>(
      kInt8BlockWork / std::max<std::int64_t>(1, k * n), 1, std::max<std::int64_t>(1, rows));
  for_blocks(pool, (rows + block - 1) / block, [&](int i) {
    const std::int64_t first = i * block, count = std::min(block, rows - first);
    const auto* b = static_cast<const std::int8_t*>(m.b.data());
    auto* c = static_cast<std::int32_t*>(m.out.data) + first * n;
    if (m.a.dtype == DType::i8)
      product(static_cast<const std::int8_t*>(m.a.data()) + first * k, b, c, count, k, n);
    else product(static_cast<const std::uint8_t*>(m.a.data()) + first * k, b, c, count, k, n);
  });
}

}  // namespace troupe::cpu
