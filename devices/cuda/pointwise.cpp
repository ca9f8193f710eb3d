// Scalar programs: the operands of a launch, the form of its kernel, and the compiled program.
//
// Each thread keeps the lists of its last launch, so that a launch allocates nothing once a thread
// has made its largest one.
#include <troupe/devices/cuda/primitives.hpp>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include <troupe/devices/cuda/primitive_call.hpp>
#include <troupe/devices/cuda/programs/print.hpp>

namespace troupe::cuda {

// The operands of one launch, with strides along common axes.
struct ProgramLaunch {
  struct Operand {
    const void* data = nullptr;
    const void* value = nullptr;  // one element, passed by value
    DType dtype = DType::f32;
    Strides strides{};  // in elements
  };

  std::size_t axes = 0;
  Strides extents{};  // outermost first
  std::vector<Operand> inputs, results;

  void add_axis(std::int64_t extent) { extents[axes++] = extent; }
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (std::size_t i = 0; i < axes; ++i) n *= extents[i];
    return n;
  }
  // Leaves out axes of extent 1, and makes one of neighbours that lie behind one another
  // everywhere.
  void collapse() {
    std::size_t kept = 0;
    for (std::size_t axis = 0; axis < axes; ++axis) {
      if (extents[axis] == 1) continue;
      bool joins = kept > 0;
      for_each([&](const Operand& o) {
        joins = joins && (o.value || o.strides[kept - 1] == o.strides[axis] * extents[axis]);
      });
      if (joins) extents[kept - 1] *= extents[axis];
      else extents[kept++] = extents[axis];
      for_each([&](Operand& o) { o.strides[kept - 1] = o.value ? 0 : o.strides[axis]; });
    }
    if (kept == 0) {
      extents[kept++] = 1;
      for_each([](Operand& o) { o.strides[0] = 0; });
    }
    axes = kept;
  }
  bool is_flat() {
    bool is = axes == 1;
    for_each(
        [&](const Operand& o) { is = is && (o.value || o.strides[0] == 1 || extents[0] == 1); });
    return is;
  }
  template <class F>
  void for_each(F f) {
    for (Operand& o : inputs) f(o);
    for (Operand& o : results) f(o);
  }

  static ProgramLaunch& of_this_thread() {
    static thread_local ProgramLaunch launch;
    launch.axes = 0;
    launch.inputs.clear();
    launch.results.clear();
    return launch;
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

// A launch as bytes: this head, then those of its arguments.
struct ProgramBytes {
  const CompiledProgram* program;
  std::uint64_t blocks, threads, inputs, is_flat, size;

  static cudaError_t issue(const unsigned char* bytes, cudaStream_t stream) {
    ProgramBytes head;
    std::memcpy(&head, bytes, sizeof head);
    static thread_local ProgramArguments arguments;
    arguments.reset(bytes + sizeof head, head.size, head.inputs, head.is_flat != 0);
    return head.program->launch(stream, static_cast<unsigned>(head.blocks),
                                static_cast<unsigned>(head.threads), arguments);
  }
};
static_assert(std::has_unique_object_representations_v<ProgramBytes>);

bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

}  // namespace

void CudaPrimitives::run_program(PrimitiveCall& call, const ScalarProgram& program,
                                 ProgramLaunch& launch) const {
  constexpr unsigned kThreads = 256;
  constexpr std::int64_t kNarrow = std::int64_t{1} << 31;
  const std::int64_t n = launch.elements();
  launch.collapse();
  static thread_local ProgramForm form;
  form.is_flat = launch.is_flat();
  form.axes = form.is_flat ? 1 : static_cast<int>(launch.axes);
  form.is_wide = n >= kNarrow;
  form.is_vectorized = form.is_flat && n >= 4;
  launch.for_each([&](const ProgramLaunch::Operand& o) {
    std::int64_t reach = 0;
    for (std::size_t i = 0; i < launch.axes && !o.value; ++i)
      reach += std::abs(o.strides[i]) * (launch.extents[i] - 1);
    form.is_wide = form.is_wide || reach >= kNarrow;
    form.is_vectorized = form.is_vectorized && (o.value || is_aligned(o.data));
  });
  form.by_value.clear();
  for (const ProgramLaunch::Operand& o : launch.inputs) form.by_value.push_back(o.value != nullptr);

  static thread_local ProgramArguments arguments;
  arguments.reset(form, launch.inputs.size(), launch.results.size());
  arguments.set_elements(n);
  if (!form.is_flat)
    for (std::size_t i = 0; i < launch.axes; ++i)
      arguments.set_extent(static_cast<int>(i), launch.extents[i]);
  for (std::size_t k = 0; k < launch.inputs.size(); ++k) {
    const ProgramLaunch::Operand& o = launch.inputs[k];
    StridedProgramInput input;
    input.data = o.data;
    if (o.value) std::memcpy(input.value, o.value, size_of(o.dtype));
    std::copy_n(o.strides.begin(), kMaxAxes, input.stride);
    arguments.set_input(k, input);
  }
  for (std::size_t k = 0; k < launch.results.size(); ++k) {
    const ProgramLaunch::Operand& o = launch.results[k];
    StridedProgramResult result;
    result.data = const_cast<void*>(o.data);
    std::copy_n(o.strides.begin(), kMaxAxes, result.stride);
    arguments.set_result(k, result);
  }
  const auto compiled = PreparedForms::of(program).get(programs_, architecture_, program, form);
  // Enough blocks to fill the GPU, each thread then strides on.
  const std::int64_t wanted =
      (n + elements_a_thread(form) * kThreads - 1) / (elements_a_thread(form) * kThreads);
  const auto blocks =
      static_cast<unsigned>(std::clamp<std::int64_t>(wanted, 1, std::int64_t{processors_} * 16));
  if (!call.is_held())
    return call.check(compiled->launch(call.stream(), blocks, kThreads, arguments),
                      "a pointwise program");
  const ProgramBytes head{compiled.get(),       blocks,       kThreads,
                          launch.inputs.size(), form.is_flat, arguments.bytes()};
  static thread_local std::vector<unsigned char> bytes;
  bytes.resize(sizeof head + arguments.bytes());
  std::memcpy(bytes.data(), &head, sizeof head);
  std::memcpy(bytes.data() + sizeof head, arguments.data(), arguments.bytes());
  call.check(
      call.queue().stretches()->take({&ProgramBytes::issue, bytes.data(), bytes.size()}, compiled),
      "a pointwise program");
}

void CudaPrimitives::pointwise(Stream& s, const ScalarProgram& program,
                               std::span<const ConstView> in, std::span<const View> out) const {
  PrimitiveCall call(device_, index_, s);
  const Shape& shape = out[0].shape;
  if (call.skips() || shape.elements() == 0) return;
  ProgramLaunch& launch = ProgramLaunch::of_this_thread();
  for (int i = 0; i < shape.rank(); ++i) launch.add_axis(shape[i]);
  const Strides dense = strides_of(shape);
  for (const ConstView& v : in) {
    ProgramLaunch::Operand operand{nullptr, nullptr, v.dtype, {}};
    if (v.is_inline()) {
      operand.value = v.data();
    } else {
      operand.data = v.data();
      const Strides strides = strides_of(v.shape);
      const int missing = shape.rank() - v.shape.rank();
      for (int i = 0; i < shape.rank(); ++i) {
        const bool is_there = i >= missing && v.shape[i - missing] == shape[i];
        operand.strides[static_cast<std::size_t>(i)] =
            is_there ? strides[static_cast<std::size_t>(i - missing)] : 0;
      }
    }
    launch.inputs.push_back(operand);
  }
  for (const View& v : out) launch.results.push_back({v.data, nullptr, v.dtype, dense});
  run_program(call, program, launch);
}

void CudaPrimitives::pointwise_rows(Stream& s, const ScalarProgram& program, std::int64_t rows,
                                    std::int64_t columns, std::span<const ConstRowsView> in,
                                    std::span<const RowsView> out) const {
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || rows * columns == 0) return;
  ProgramLaunch& launch = ProgramLaunch::of_this_thread();
  launch.add_axis(rows);
  launch.add_axis(columns);
  for (const ConstRowsView& v : in) {
    ProgramLaunch::Operand operand{nullptr, nullptr, v.of.dtype, {v.step, 1}};
    if (v.of.is_inline()) {
      operand.value = v.of.data();
    } else {
      const bool is_for_all = v.of.elements() == 1;
      if (is_for_all) operand.strides = {};
      operand.data = static_cast<const std::byte*>(v.of.data()) +
                     (is_for_all ? 0 : v.start) * static_cast<std::int64_t>(size_of(v.of.dtype));
    }
    launch.inputs.push_back(operand);
  }
  for (const RowsView& v : out)
    launch.results.push_back({static_cast<std::byte*>(v.of.data) +
                                  v.start * static_cast<std::int64_t>(size_of(v.of.dtype)),
                              nullptr,
                              v.of.dtype,
                              {v.step, 1}});
  run_program(call, program, launch);
}

}  // namespace troupe::cuda
