// Matrix products by cuBLASLt, which is opened for the first product.
#include <map>
#include <mutex>
#include <tuple>

#include <cublasLt.h>
#include <dlfcn.h>

#include <fmt/format.h>

#include <troupe/devices/cuda/libraries/blas.hpp>
#include <troupe/devices/cuda/programs/nvrtc.hpp>

namespace troupe::cuda {
namespace {

// The functions of the library that are used, by their names.
struct Library {
  Library() {
    std::string looked;
    void* const library = open_cuda_library({"libcublasLt.so.13", "libcublasLt.so.12"}, &looked);
    if (!library)
      throw Error(
          Code::failed_precondition,
          fmt::format("matrix products on a GPU need libcublasLt.so.13 (cuBLAS), which is in "
                      "none of: {}; install it, or name its folder in "
                      "TROUPE_CUDA_LIBRARIES",
                      looked));
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (!function)
        throw Error(Code::failed_precondition,
                    fmt::format("libcublasLt has no {}; install cuBLAS 12 or 13", name));
    };
    find(create, "cublasLtCreate");
    find(matmul, "cublasLtMatmul");
    find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(make_operation, "cublasLtMatmulDescCreate");
    find(set_operation, "cublasLtMatmulDescSetAttribute");
    find(end_operation, "cublasLtMatmulDescDestroy");
    find(make_layout, "cublasLtMatrixLayoutCreate");
    find(set_layout, "cublasLtMatrixLayoutSetAttribute");
    find(end_layout, "cublasLtMatrixLayoutDestroy");
    find(make_preference, "cublasLtMatmulPreferenceCreate");
    find(set_preference, "cublasLtMatmulPreferenceSetAttribute");
    find(end_preference, "cublasLtMatmulPreferenceDestroy");
  }
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulDescCreate) make_operation;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation;
  decltype(&cublasLtMatmulDescDestroy) end_operation;
  decltype(&cublasLtMatrixLayoutCreate) make_layout;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout;
  decltype(&cublasLtMatrixLayoutDestroy) end_layout;
  decltype(&cublasLtMatmulPreferenceCreate) make_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) end_preference;
};

void check(cublasStatus_t status, const char* doing) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(Code::internal, fmt::format("{} failed: cuBLASLt answered status {}", doing,
                                            static_cast<int>(status)));
}

struct Types {
  cudaDataType_t data, scale;
  cublasComputeType_t compute;
};

Types types_of(DType dtype, bool tf32) {
  const cublasComputeType_t single = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  switch (dtype) {
    case DType::f16: return {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::bf16: return {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::f32: return {CUDA_R_32F, CUDA_R_32F, single};
    case DType::f64: return {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
    case DType::c64: return {CUDA_C_32F, CUDA_C_32F, single};
    default: return {CUDA_C_64F, CUDA_C_64F, CUBLAS_COMPUTE_64F};
  }
}

// The powers of two, up to 256, that divide the addresses of all matrices of an operand: algorithms
// differ in what they load together.
struct Alignments {
  std::uint32_t a, b, out;
  explicit Alignments(const BlasProduct& p)
      : a(of(p.a, p.a_stride, p.dtype)), b(of(p.b, p.b_stride, p.dtype)),
        out(of(p.out, p.out_stride, p.out_dtype)) {}
  static std::uint32_t of(const void* data, std::int64_t stride, DType dtype) {
    const std::uint64_t bits = reinterpret_cast<std::uintptr_t>(data) |
                               static_cast<std::uint64_t>(stride) * size_of(dtype) | 256;
    return static_cast<std::uint32_t>(bits & -bits);
  }
};

// Descriptors for the shapes of a product, and the algorithm chosen for them.
// A row-major matrix is its transpose to the library, so that out = b a there.
class Plan {
 public:
  Plan(const Library& library, cublasLtHandle_t handle, const BlasProduct& p, bool tf32,
       std::size_t workspace)
      : library_(library) {
    const Types types = types_of(p.dtype, tf32);
    check(library.make_operation(&operation_, types.compute, types.scale), "planning a product");
    const cublasOperation_t first = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(library.set_operation(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first),
          "planning a product");
    check(library.set_operation(operation_, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second),
          "planning a product");
    make_layout(a_, types.data, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.batch,
                p.a_stride);
    make_layout(b_, types.data, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.batch,
                p.b_stride);
    make_layout(out_, types_of(p.out_dtype, tf32).data, p.m, p.n, p.batch, p.out_stride);
    choose(handle, workspace, Alignments(p));
  }
  ~Plan() {
    for (cublasLtMatrixLayout_t layout : {a_, b_, out_})
      if (layout) library_.end_layout(layout);
    if (operation_) library_.end_operation(operation_);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  cublasStatus_t run(cublasLtHandle_t handle, cudaStream_t stream, const BlasProduct& p,
                     void* workspace, std::size_t bytes) const {
    // One and zero, of the scale's type: complex numbers have their real part first.
    alignas(16) const double one64[2] = {1, 0}, zero64[2] = {0, 0};
    alignas(16) const float one32[2] = {1, 0}, zero32[2] = {0, 0};
    const bool is_double = p.dtype == DType::f64 || p.dtype == DType::c128;
    const void* const one = is_double ? static_cast<const void*>(one64) : one32;
    const void* const zero = is_double ? static_cast<const void*>(zero64) : zero32;
    return library_.matmul(handle, operation_, one, p.b, b_, p.a, a_, zero, p.out, out_, p.out,
                           out_, &algorithm_, workspace, bytes, stream);
  }

 private:
  void make_layout(cublasLtMatrixLayout_t& layout, cudaDataType_t type, std::int64_t rows,
                   std::int64_t columns, std::int64_t batch, std::int64_t stride) {
    check(library_.make_layout(&layout, type, static_cast<std::uint64_t>(columns),
                               static_cast<std::uint64_t>(rows), columns),
          "planning a product");
    const auto count = static_cast<std::int32_t>(batch);
    check(library_.set_layout(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
          "planning a product");
    check(library_.set_layout(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                              sizeof stride),
          "planning a product");
  }
  void choose(cublasLtHandle_t handle, std::size_t workspace, const Alignments& alignments) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(library_.make_preference(&preference), "planning a product");
    const std::uint64_t bytes = workspace;
    // No sums over split parts, whose order would not be fixed.
    const std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE;
    library_.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                            sizeof bytes);
    library_.set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                            sizeof schemes);
    for (const auto& [attribute, bytes_of] :
         {std::pair{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments.b},
          {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments.a},
          {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments.out},
          {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments.out}})
      library_.set_preference(preference, attribute, &bytes_of, sizeof bytes_of);
    cublasLtMatmulHeuristicResult_t result = {};
    int found = 0;
    const cublasStatus_t status =
        library_.heuristic(handle, operation_, b_, a_, out_, out_, preference, 1, &result, &found);
    library_.end_preference(preference);
    check(status, "choosing an algorithm for a product");
    if (found == 0) check(CUBLAS_STATUS_NOT_SUPPORTED, "choosing an algorithm for a product");
    algorithm_ = result.algo;
  }

  const Library& library_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, out_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {};
};

class CublasLt final : public Blas {
 public:
  explicit CublasLt(bool tf32) : tf32_(tf32) {
    check(library().create(&handle_), "opening cuBLASLt");
  }

  cudaError_t multiply(cudaStream_t stream, const BlasProduct& p, void* workspace) override {
    const Alignments aligned(p);
    const Key key{p.dtype,      p.out_dtype,   p.m,           p.n,        p.k,
                  p.batch,      p.transpose_a, p.transpose_b, p.a_stride, p.b_stride,
                  p.out_stride, aligned.a,     aligned.b,     aligned.out};
    std::shared_ptr<const Plan> plan;
    {
      const std::lock_guard lock(mutex_);
      std::shared_ptr<const Plan>& known = plans_[key];
      if (!known) known = std::make_shared<Plan>(library(), handle_, p, tf32_, workspace_bytes());
      plan = known;
    }
    const cublasStatus_t status = plan->run(handle_, stream, p, workspace, workspace_bytes());
    if (status == CUBLAS_STATUS_EXECUTION_FAILED) return cudaErrorLaunchFailure;
    check(status, "a matrix product");
    return cudaSuccess;
  }
  std::size_t workspace_bytes() const override { return std::size_t{32} << 20; }

 private:
  using Key = std::tuple<DType, DType, std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool,
                         bool, std::int64_t, std::int64_t, std::int64_t, std::uint32_t,
                         std::uint32_t, std::uint32_t>;
  static const Library& library() {
    static const auto* const library = new Library;
    return *library;
  }

  const bool tf32_;
  cublasLtHandle_t handle_ = nullptr;  // ends with the process
  std::mutex mutex_;                   // guards plans_
  std::map<Key, std::shared_ptr<const Plan>> plans_;
};

}  // namespace

std::unique_ptr<Blas> make_blas(bool tf32) { return std::make_unique<CublasLt>(tf32); }

}  // namespace troupe::cuda
