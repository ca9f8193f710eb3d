#include <troupe/devices/cuda/primitives.hpp>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <troupe/devices/cuda/programs/print.hpp>
#include <troupe/devices/cuda/runtime/call.hpp>
#include <troupe/devices/cuda/runtime/memory.hpp>

namespace troupe::cuda {

// One call of a primitive: the stream, and temporary tensors, which go back to the allocator when
// the call ends: memory is reused in the compute stream's order, behind this call's work.
class CudaPrimitives::Call {
 public:
  Call(const CudaPrimitives& all, Stream& stream)
      : on_(all.index_), device_(all.device_), stream_(CudaStream::of(stream)) {}

  bool skips() const { return stream_.skips(); }
  cudaStream_t stream() const { return stream_.queue().stream(); }
  Queue& queue() const { return stream_.queue(); }
  const Origin& origin() const { return stream_.origin(); }
  void check(cudaError_t error, const char* doing) { queue().check(error, doing); }

  Tensor temporary(DType dtype, const Shape& shape) { return device_.empty(dtype, shape); }
  /// Returns the device address of the elements; an inline scalar goes to a temporary.
  const void* data(const ConstView& v) {
    if (!v.is_inline()) return v.data();
    temporaries_.push_back(temporary(v.dtype, Shape{1}));
    void* const there = temporaries_.back().raw_mutable();
    Element value;
    std::memcpy(value.bytes, v.data(), size_of(v.dtype));
    check(cuda::fill(stream(), value, element_bytes(v.dtype), there, 1), "bringing a scalar");
    return there;
  }
  void* scratch(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    temporaries_.push_back(temporary(DType::u8, Shape{static_cast<std::int64_t>(bytes)}));
    return temporaries_.back().raw_mutable();
  }
  static int element_bytes(DType dtype) { return static_cast<int>(size_of(dtype)); }

 private:
  const OnDevice on_;
  Device& device_;
  CudaStream& stream_;
  std::vector<Tensor> temporaries_;
};

namespace {

// Kernels have enumerations of their own, because no header of the engine reaches nvcc.
template <class A, class B>
constexpr bool are_alike(A a, B b) {
  return static_cast<int>(a) == static_cast<int>(b);
}
static_assert(are_alike(ReduceOp::sum, Reduction::sum) &&
              are_alike(ReduceOp::any, Reduction::any) &&
              are_alike(ReduceOp::argmin, Reduction::argmin) &&
              are_alike(ReduceOp::logsumexp, Reduction::logsumexp));
static_assert(are_alike(ScatterOp::update, Scatter::update) &&
              are_alike(ScatterOp::sub, Scatter::sub) && are_alike(ScatterOp::max, Scatter::max));

[[noreturn]] void refuse(Primitive p) {
  throw Error(Code::unimplemented,
              fmt::format("the GPU has no primitive {}; place the operation on a cpu", name_of(p)));
}

void check_index_type_of(const ConstView& indices) {
  if (indices.dtype != DType::i32 && indices.dtype != DType::i64)
    throw Error(Code::invalid_argument,
                fmt::format("indices are i32 or i64, not {}", name_of(indices.dtype)));
}

std::int64_t product_of(const Shape& shape, int begin, int end) {
  std::int64_t n = 1;
  for (int i = begin; i < end; ++i) n *= shape[i];
  return n;
}

// Elements from one coordinate to the next along each axis.
std::vector<std::int64_t> strides_of(const Shape& shape) {
  std::vector<std::int64_t> strides(static_cast<std::size_t>(shape.rank()));
  std::int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<std::size_t>(i)] = stride;
    stride *= shape[i];
  }
  return strides;
}

}  // namespace

Element element_of(const Tensor& scalar) {
  Element value;
  std::memcpy(value.bytes, scalar.raw(), size_of(scalar.dtype()));
  return value;
}

bool CudaPrimitives::has(Primitive p, DType dtype) const {
  switch (p) {
    case Primitive::copy:
    case Primitive::fill:
    case Primitive::pointwise:
    case Primitive::pointwise_rows:
    case Primitive::reduce:
    case Primitive::pointwise_reduce:
    case Primitive::transpose:
    case Primitive::copy_block:
    case Primitive::gather:
    case Primitive::scatter:
    case Primitive::one_hot:
    case Primitive::range: return true;
    case Primitive::matmul: return has_product(dtype);
    default: return false;
  }
}

// ---- moves

void CudaPrimitives::copy(Stream& s, ConstView in, View out) const {
  Call call(*this, s);
  if (call.skips() || out.bytes() == 0) return;
  if (in.is_inline()) {
    Element value;
    std::memcpy(value.bytes, in.data(), size_of(in.dtype));
    call.check(cuda::fill(call.stream(), value, Call::element_bytes(in.dtype), out.data, 1),
               "copying a scalar");
    return;
  }
  call.check(
      cudaMemcpyAsync(out.data, in.data(), out.bytes(), cudaMemcpyDeviceToDevice, call.stream()),
      "a copy");
}

void CudaPrimitives::fill(Stream& s, const Tensor& scalar, View out) const {
  Call call(*this, s);
  if (call.skips() || out.elements() == 0) return;
  call.check(cuda::fill(call.stream(), element_of(scalar), Call::element_bytes(out.dtype), out.data,
                        out.elements()),
             "filling");
}

void CudaPrimitives::transpose(Stream& s, ConstView in, View out,
                               std::span<const std::int64_t> permutation) const {
  Call call(*this, s);
  if (call.skips() || out.elements() == 0) return;
  const std::vector<std::int64_t> strides = strides_of(in.shape);
  // Axes of the output that lie behind one another in the input too are one.
  Box from, to;
  std::int64_t extent[kMaxRank] = {};
  for (std::size_t i = 0; i < permutation.size(); ++i) {
    const auto axis = static_cast<int>(permutation[i]);
    if (in.shape[axis] == 1) continue;
    if (from.rank > 0 &&
        from.stride[from.rank - 1] == strides[static_cast<std::size_t>(axis)] * in.shape[axis]) {
      extent[from.rank - 1] *= in.shape[axis];
      from.stride[from.rank - 1] = strides[static_cast<std::size_t>(axis)];
      continue;
    }
    extent[from.rank] = in.shape[axis];
    from.stride[from.rank++] = strides[static_cast<std::size_t>(axis)];
  }
  to.rank = from.rank;
  std::int64_t stride = 1;
  for (int i = to.rank - 1; i >= 0; --i) {
    to.stride[i] = stride;
    stride *= extent[i];
  }
  const void* const data = call.data(in);
  const int bytes = Call::element_bytes(in.dtype);
  const int r = from.rank;
  const bool swaps_last = r >= 2 && r <= 3 && from.stride[r - 2] == 1 &&
                          from.stride[r - 1] == extent[r - 2] &&
                          (r == 2 || from.stride[0] == extent[1] * extent[2]);
  if (swaps_last)
    call.check(cuda::transpose_tiles(call.stream(), bytes, data, out.data, r == 3 ? extent[0] : 1,
                                     extent[r - 1], extent[r - 2]),
               "a transposition");
  else
    call.check(cuda::copy_box(call.stream(), bytes, data, from, out.data, to, extent),
               "a transposition");
}

void CudaPrimitives::copy_block(Stream& s, ConstView in, const Block& from, View out,
                                const Block& to, const Shape& extents) const {
  Call call(*this, s);
  if (call.skips() || extents.elements() == 0) return;
  const auto box = [&](const Shape& shape, const Block& block) {
    const std::vector<std::int64_t> strides = strides_of(shape);
    Box b;
    b.rank = shape.rank();
    for (int i = 0; i < b.rank; ++i) {
      const std::int64_t stride = strides[static_cast<std::size_t>(i)];
      b.first += block.start[i] * stride;
      b.stride[i] = block.step[i] * stride;
    }
    return b;
  };
  std::int64_t extent[kMaxRank] = {};
  for (int i = 0; i < extents.rank(); ++i) extent[i] = extents[i];
  call.check(cuda::copy_box(call.stream(), Call::element_bytes(in.dtype), call.data(in),
                            box(in.shape, from), out.data, box(out.shape, to), extent),
             "copying a block");
}

void CudaPrimitives::gather(Stream& s, ConstView params, ConstView indices, int axis,
                            View out) const {
  check_index_type_of(indices);
  Call call(*this, s);
  const std::int64_t n = indices.elements();
  if (call.skips() || n == 0) return;
  const std::int64_t outer = product_of(params.shape, 0, axis), extent = params.shape[axis],
                     inner = product_of(params.shape, axis + 1, params.shape.rank());
  // Indices are checked though no element is moved.
  const Queue::Check check = call.queue().begin_check();
  const cudaError_t error = cuda::gather(
      call.stream(), Call::element_bytes(params.dtype), call.data(params), call.data(indices),
      indices.dtype == DType::i64, out.data, outer, extent, inner, n, check.record());
  call.queue().end_check(check, extent, call.origin());
  call.check(error, "a gather");
}

void CudaPrimitives::scatter(Stream& s, Scatter how, ConstView indices, ConstView updates,
                             View out) const {
  check_index_type_of(indices);
  Call call(*this, s);
  const std::int64_t n = indices.elements();
  if (call.skips() || n == 0) return;
  const std::int64_t extent = out.shape[0], inner = product_of(out.shape, 1, out.shape.rank());
  const Queue::Check check = call.queue().begin_check();
  const cudaError_t error = cuda::scatter(
      call.stream(), static_cast<ScatterOp>(how), out.dtype, call.data(indices),
      indices.dtype == DType::i64, call.data(updates), out.data, extent, inner, n, check.record());
  call.queue().end_check(check, extent, call.origin());
  call.check(error, "a scatter");
}

void CudaPrimitives::one_hot(Stream& s, ConstView indices, const Tensor& on, const Tensor& off,
                             View out) const {
  check_index_type_of(indices);
  Call call(*this, s);
  if (call.skips() || out.elements() == 0) return;
  call.check(cuda::one_hot(call.stream(), Call::element_bytes(out.dtype), call.data(indices),
                           indices.dtype == DType::i64, element_of(on), element_of(off), out.data,
                           indices.elements(), out.shape[out.shape.rank() - 1], 1),
             "one_hot");
}

void CudaPrimitives::range(Stream& s, double start, double step, View out) const {
  Call call(*this, s);
  if (call.skips() || out.elements() == 0) return;
  call.check(cuda::range(call.stream(), start, step, out.dtype, out.data, out.elements()),
             "a range");
}

// ---- reductions

void CudaPrimitives::reduce(Stream& s, Reduction how, ConstView in, View out,
                            std::uint32_t axes) const {
  const bool needs_elements = how == Reduction::min || how == Reduction::max ||
                              how == Reduction::argmin || how == Reduction::argmax;
  // Axes of extent 1 aside, neighbours that are reduced, or are not, are one.
  struct Axis {
    std::int64_t extent;
    bool is_reduced;
  };
  std::vector<Axis> seen;
  std::int64_t reduced = 1, kept = 1;
  for (int i = 0; i < in.shape.rank(); ++i) {
    const bool is_reduced = axes >> i & 1;
    (is_reduced ? reduced : kept) *= in.shape[i];
    if (in.shape[i] == 1) continue;
    if (!seen.empty() && seen.back().is_reduced == is_reduced) seen.back().extent *= in.shape[i];
    else seen.push_back({in.shape[i], is_reduced});
  }
  if (needs_elements && reduced == 0 && kept > 0)
    throw Error(Code::out_of_range,
                fmt::format("there is none among no elements: {}", in.shape.text()));
  Call call(*this, s);
  if (call.skips() || out.elements() == 0) return;

  std::int64_t outer = 1, inner = 1;
  Tensor moved;
  ConstView from = in;
  const auto first =
      std::find_if(seen.begin(), seen.end(), [](const Axis& a) { return a.is_reduced; });
  const auto reduced_axes =
      std::count_if(seen.begin(), seen.end(), [](const Axis& a) { return a.is_reduced; });
  if (reduced_axes <= 1 || in.elements() == 0) {
    for (auto it = seen.begin(); it != first; ++it) outer *= it->extent;
    if (first != seen.end())
      for (auto it = first + 1; it != seen.end(); ++it) inner *= it->extent;
    if (in.elements() == 0) outer = kept, inner = 1;
  } else {
    Shape apart;
    std::vector<std::int64_t> order;
    for (const Axis& a : seen) apart.push_back(a.extent);
    for (const bool second : {false, true})
      for (std::size_t i = 0; i < seen.size(); ++i)
        if (seen[i].is_reduced == second) order.push_back(static_cast<std::int64_t>(i));
    moved = call.temporary(in.dtype, Shape{in.elements()});
    Shape permuted;
    for (std::int64_t i : order) permuted.push_back(apart[static_cast<int>(i)]);
    transpose(s, ConstView(in.data(), in.dtype, apart),
              View(moved.raw_mutable(), in.dtype, permuted), order);
    from = ConstView(moved);
    outer = kept;
  }
  const auto op = static_cast<ReduceOp>(how);
  void* const scratch = call.scratch(reduce_scratch(op, in.dtype, outer, reduced, inner));
  call.check(cuda::reduce(call.stream(), op, in.dtype, call.data(from), out.data, outer, reduced,
                          inner, scratch),
             "a reduction");
}

void CudaPrimitives::pointwise_reduce(Stream& s, const PointwiseReduceArgs& a) const {
  std::vector<View> results(a.results.begin(), a.results.end());
  View& of = results[a.reduced];
  Tensor made;
  if (!of.data) {
    made = device_.empty(of.dtype, of.shape);
    of.data = made.raw_mutable();
  }
  pointwise(s, *a.program, a.in, results);
  reduce(s, a.how, ConstView(of.data, of.dtype, of.shape), a.out, a.axes);
}

// ---- pointwise programs

// The operands of one launch, with strides along common axes.
struct CudaPrimitives::ProgramLaunch {
  std::vector<std::int64_t> extents;  // outermost first
  struct Operand {
    const void* data = nullptr;
    const void* value = nullptr;  // one element, passed by value
    DType dtype = DType::f32;
    std::vector<std::int64_t> strides;  // in elements
  };
  std::vector<Operand> inputs, results;

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (std::int64_t e : extents) n *= e;
    return n;
  }
  // Leaves out axes of extent 1, and makes one of neighbours that lie behind one another
  // everywhere.
  void collapse() {
    std::vector<std::int64_t> kept;
    std::vector<std::vector<std::int64_t>> strides(inputs.size() + results.size());
    const auto operand = [&](std::size_t k) -> Operand& {
      return k < inputs.size() ? inputs[k] : results[k - inputs.size()];
    };
    for (std::size_t axis = 0; axis < extents.size(); ++axis) {
      if (extents[axis] == 1) continue;
      bool joins = !kept.empty();
      for (std::size_t k = 0; k < strides.size() && joins; ++k)
        joins = operand(k).value || strides[k].back() == operand(k).strides[axis] * extents[axis];
      if (joins) kept.back() *= extents[axis];
      else kept.push_back(extents[axis]);
      for (std::size_t k = 0; k < strides.size(); ++k) {
        const std::int64_t stride = operand(k).value ? 0 : operand(k).strides[axis];
        if (joins) strides[k].back() = stride;
        else strides[k].push_back(stride);
      }
    }
    if (kept.empty()) {
      kept.push_back(1);
      for (auto& s : strides) s.push_back(0);
    }
    extents = std::move(kept);
    for (std::size_t k = 0; k < strides.size(); ++k) operand(k).strides = std::move(strides[k]);
  }
  bool is_dense(const Operand& o) const {
    return o.value || extents.size() != 1 || o.strides[0] == 1 || extents[0] == 1;
  }
  bool is_flat() const {
    const auto dense = [this](const Operand& o) { return is_dense(o); };
    return extents.size() == 1 && std::all_of(inputs.begin(), inputs.end(), dense) &&
           std::all_of(results.begin(), results.end(), dense);
  }
};

namespace {

// A program as GPUs run it: one entry for each form and architecture.
class PreparedForms final : public PreparedProgram {
 public:
  std::shared_ptr<const CompiledProgram> get(ProgramCache& cache, int architecture,
                                             const ScalarProgram& program,
                                             const ProgramForm& form) const {
    const std::lock_guard lock(mutex_);
    for (const Entry& e : entries_)
      if (e.architecture == architecture && e.form == form) return e.compiled;
    entries_.push_back({architecture, form, compile_program(cache, program, form)});
    return entries_.back().compiled;
  }

  static const PreparedForms& of(const ScalarProgram& program) {
    static const int slot = PreparedSlots::claim();
    const PreparedProgram* known = program.prepared.get(slot);
    if (!known) known = program.prepared.publish(slot, std::make_unique<PreparedForms>());
    return static_cast<const PreparedForms&>(*known);
  }

 private:
  struct Entry {
    int architecture;
    ProgramForm form;
    std::shared_ptr<const CompiledProgram> compiled;
  };
  mutable std::mutex mutex_;  // guards entries_
  mutable std::vector<Entry> entries_;
};

bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

}  // namespace

void CudaPrimitives::run_program(Call& call, const ScalarProgram& program,
                                 ProgramLaunch& launch) const {
  constexpr unsigned kThreads = 256;
  constexpr std::int64_t kNarrow = std::int64_t{1} << 31;
  const std::int64_t n = launch.elements();
  launch.collapse();
  ProgramForm form;
  form.is_flat = launch.is_flat();
  form.axes = form.is_flat ? 1 : static_cast<int>(launch.extents.size());
  form.is_wide = n >= kNarrow;
  form.is_vectorized = form.is_flat && n >= 4;
  for (const auto* operands : {&launch.inputs, &launch.results})
    for (const ProgramLaunch::Operand& o : *operands) {
      std::int64_t reach = 0;
      for (std::size_t i = 0; i < launch.extents.size() && !o.value; ++i)
        reach += std::abs(o.strides[i]) * (launch.extents[i] - 1);
      form.is_wide = form.is_wide || reach >= kNarrow;
      form.is_vectorized = form.is_vectorized && (o.value || is_aligned(o.data));
    }
  for (const ProgramLaunch::Operand& o : launch.inputs) form.by_value.push_back(o.value != nullptr);

  ProgramArguments arguments(form, launch.inputs.size(), launch.results.size());
  arguments.set_elements(n);
  if (!form.is_flat)
    for (std::size_t i = 0; i < launch.extents.size(); ++i)
      arguments.set_extent(static_cast<int>(i), launch.extents[i]);
  for (std::size_t k = 0; k < launch.inputs.size(); ++k) {
    const ProgramLaunch::Operand& o = launch.inputs[k];
    StridedProgramInput input;
    input.data = o.data;
    if (o.value) std::memcpy(input.value, o.value, size_of(o.dtype));
    std::copy(o.strides.begin(), o.strides.end(), input.stride);
    arguments.set_input(k, input);
  }
  for (std::size_t k = 0; k < launch.results.size(); ++k) {
    const ProgramLaunch::Operand& o = launch.results[k];
    StridedProgramResult result;
    result.data = const_cast<void*>(o.data);
    std::copy(o.strides.begin(), o.strides.end(), result.stride);
    arguments.set_result(k, result);
  }
  const auto compiled = PreparedForms::of(program).get(programs_, architecture_, program, form);
  // Enough blocks to fill the GPU, each thread then strides on.
  const std::int64_t wanted =
      (n + elements_a_thread(form) * kThreads - 1) / (elements_a_thread(form) * kThreads);
  const auto blocks =
      static_cast<unsigned>(std::clamp<std::int64_t>(wanted, 1, std::int64_t{processors_} * 16));
  call.check(compiled->launch(call.stream(), blocks, kThreads, arguments), "a pointwise program");
}

void CudaPrimitives::pointwise(Stream& s, const ScalarProgram& program,
                               std::span<const ConstView> in, std::span<const View> out) const {
  Call call(*this, s);
  const Shape& shape = out[0].shape;
  if (call.skips() || shape.elements() == 0) return;
  ProgramLaunch launch;
  for (int i = 0; i < shape.rank(); ++i) launch.extents.push_back(shape[i]);
  const std::vector<std::int64_t> dense = strides_of(shape);
  for (const ConstView& v : in) {
    ProgramLaunch::Operand operand{nullptr, nullptr, v.dtype, {}};
    if (v.is_inline()) {
      operand.value = v.data();
    } else {
      operand.data = v.data();
      const std::vector<std::int64_t> strides = strides_of(v.shape);
      const int missing = shape.rank() - v.shape.rank();
      for (int i = 0; i < shape.rank(); ++i) {
        const bool is_there = i >= missing && v.shape[i - missing] == shape[i];
        operand.strides.push_back(is_there ? strides[static_cast<std::size_t>(i - missing)] : 0);
      }
    }
    launch.inputs.push_back(std::move(operand));
  }
  for (const View& v : out) launch.results.push_back({v.data, nullptr, v.dtype, dense});
  run_program(call, program, launch);
}

void CudaPrimitives::pointwise_rows(Stream& s, const ScalarProgram& program, std::int64_t rows,
                                    std::int64_t columns, std::span<const ConstRowsView> in,
                                    std::span<const RowsView> out) const {
  Call call(*this, s);
  if (call.skips() || rows * columns == 0) return;
  ProgramLaunch launch;
  launch.extents = {rows, columns};
  for (const ConstRowsView& v : in) {
    ProgramLaunch::Operand operand{nullptr, nullptr, v.of.dtype, {v.step, 1}};
    if (v.of.is_inline()) {
      operand.value = v.of.data();
    } else {
      const bool is_for_all = v.of.elements() == 1;
      if (is_for_all) operand.strides = {0, 0};
      operand.data = static_cast<const std::byte*>(v.of.data()) +
                     (is_for_all ? 0 : v.start) * static_cast<std::int64_t>(size_of(v.of.dtype));
    }
    launch.inputs.push_back(std::move(operand));
  }
  for (const RowsView& v : out)
    launch.results.push_back({static_cast<std::byte*>(v.of.data) +
                                  v.start * static_cast<std::int64_t>(size_of(v.of.dtype)),
                              nullptr,
                              v.of.dtype,
                              {v.step, 1}});
  run_program(call, program, launch);
}

// ---- matrix products

bool has_product(DType dtype) { return is_floating(dtype) || is_complex(dtype); }

Blas& CudaPrimitives::blas() const {
  std::call_once(blas_made_, [this] { blas_ = make_blas(tf32_); });
  return *blas_;
}

void CudaPrimitives::matmul(Stream& s, const MatmulArgs& m) const {
  Call call(*this, s);
  if (call.skips() || m.out.elements() == 0) return;
  if (!has_product(m.out.dtype)) refuse(Primitive::matmul);
  const int rank = m.out.shape.rank(), a_rank = m.a.shape.rank();
  BlasProduct p{};
  p.dtype = m.out.dtype;
  p.m = m.out.shape[rank - 2];
  p.n = m.out.shape[rank - 1];
  p.k = m.a.shape[a_rank - (m.transpose_a ? 2 : 1)];
  p.transpose_a = m.transpose_a;
  p.transpose_b = m.transpose_b;
  if (p.k == 0) {
    call.check(cuda::fill(call.stream(), Element{}, Call::element_bytes(p.dtype), m.out.data,
                          m.out.elements()),
               "filling");
    return;
  }
  // The batch axes of both, along the output's: 0 where an operand is the same for all.
  std::vector<std::int64_t> extents, a_strides, b_strides;
  for (int i = 0; i < rank - 2; ++i) {
    const auto stride = [&](const Shape& shape, std::int64_t matrix) {
      const int at = i - (rank - shape.rank());
      if (at < 0 || shape[at] == 1) return std::int64_t{0};
      return product_of(shape, at + 1, shape.rank() - 2) * matrix;
    };
    if (m.out.shape[i] == 1) continue;
    const std::int64_t a = stride(m.a.shape, p.m * p.k), b = stride(m.b.shape, p.k * p.n);
    if (!extents.empty() && a_strides.back() == a * m.out.shape[i] &&
        b_strides.back() == b * m.out.shape[i]) {
      extents.back() *= m.out.shape[i];
      a_strides.back() = a;
      b_strides.back() = b;
      continue;
    }
    extents.push_back(m.out.shape[i]);
    a_strides.push_back(a);
    b_strides.push_back(b);
  }
  if (extents.empty()) extents = {1}, a_strides = {0}, b_strides = {0};
  p.batch = extents.back();
  p.a_stride = a_strides.back();
  p.b_stride = b_strides.back();
  p.out_stride = p.m * p.n;

  const auto bytes = static_cast<std::int64_t>(size_of(p.dtype));
  const auto* const a = static_cast<const std::byte*>(call.data(m.a));
  const auto* const b = static_cast<const std::byte*>(call.data(m.b));
  void* const workspace = call.scratch(blas().workspace_bytes());
  std::int64_t calls = 1;
  for (std::size_t i = 0; i + 1 < extents.size(); ++i) calls *= extents[i];
  for (std::int64_t c = 0; c < calls; ++c) {
    std::int64_t rest = c, a_at = 0, b_at = 0;
    for (std::size_t i = extents.size() - 1; i-- > 0;) {
      const std::int64_t at = rest % extents[i];
      rest /= extents[i];
      a_at += at * a_strides[i];
      b_at += at * b_strides[i];
    }
    p.a = a + a_at * bytes;
    p.b = b + b_at * bytes;
    p.out = static_cast<std::byte*>(m.out.data) + c * p.batch * p.out_stride * bytes;
    call.check(blas().multiply(call.stream(), p, workspace), "a matrix product");
  }
}

// ---- missing primitives

void CudaPrimitives::softmax(Stream&, ConstView, View, bool) const { refuse(Primitive::softmax); }
void CudaPrimitives::cross_entropy(Stream&, ConstView, ConstView, View) const {
  refuse(Primitive::cross_entropy);
}
void CudaPrimitives::cross_entropy_gradient(Stream&, ConstView, ConstView, ConstView, View) const {
  refuse(Primitive::cross_entropy_gradient);
}
void CudaPrimitives::random(Stream&, Random, const RandomKey&, View) const {
  refuse(Primitive::random);
}
void CudaPrimitives::convolve(Stream&, const ConvolveArgs&) const { refuse(Primitive::convolve); }
void CudaPrimitives::pool(Stream&, const PoolArgs&) const { refuse(Primitive::pool); }
void CudaPrimitives::scan(Stream&, const ScanArgs&) const { refuse(Primitive::scan); }
void CudaPrimitives::sort(Stream&, const SortArgs&) const { refuse(Primitive::sort); }
void CudaPrimitives::along(Stream&, const AlongArgs&) const { refuse(Primitive::along); }
void CudaPrimitives::search(Stream&, const SearchArgs&) const { refuse(Primitive::search); }
void CudaPrimitives::algebra(Stream&, const AlgebraArgs&) const { refuse(Primitive::algebra); }
void CudaPrimitives::attention(Stream&, const AttentionArgs&) const {
  refuse(Primitive::attention);
}
void CudaPrimitives::attention_gradient(Stream&, const AttentionGradientArgs&) const {
  refuse(Primitive::attention_gradient);
}
void CudaPrimitives::row_norm(Stream&, const RowNormArgs&) const { refuse(Primitive::row_norm); }
void CudaPrimitives::row_norm_gradient(Stream&, const RowNormGradientArgs&) const {
  refuse(Primitive::row_norm_gradient);
}
void CudaPrimitives::channel_sums(Stream&, const ChannelSumsArgs&) const {
  refuse(Primitive::channel_sums);
}
void CudaPrimitives::ctc(Stream&, const CtcArgs&) const { refuse(Primitive::ctc); }
void CudaPrimitives::recurrent(Stream&, const RecurrentArgs&) const {
  refuse(Primitive::recurrent);
}
void CudaPrimitives::recurrent_gradient(Stream&, const RecurrentGradientArgs&) const {
  refuse(Primitive::recurrent_gradient);
}

}  // namespace troupe::cuda
