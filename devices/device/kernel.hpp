// Kernels: how one node computes. A kernel is made once for a node of a plan and run at every
// firing; it allocates its outputs and calls device primitives on the node's stream.
//
//   class Reshape final : public Kernel {
//     void run(KernelContext& c) override { c.set(0, c.input(0).reshaped(shape_)); }
//   };
//
// Threads: one kernel may be run by several workers at once (several runs in flight), so it guards
// its own mutable state. A context belongs to the firing. A kernel ends in one of three ways: it
// returns with its outputs set; it throws Error; or it takes a Completion, which is fulfilled
// later.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include <troupe/devices/device/attr.hpp>
#include <troupe/devices/device/device.hpp>

namespace troupe::detail {

/// Distinguishes one run from the next for kernels.
struct RunInfo {
  std::uint64_t id = 0;    // never reused
  std::uint64_t step = 0;  // keys random draws; saved in checkpoints
  std::uint64_t seed = 0;
  // set once the run was cancelled, timed out or failed; kernels may poll it
  std::atomic<bool> cancelled{false};
};

/// Receives the results of a Completion; implemented by the component that fires nodes.
class CompletionSink {
 public:
  /// `ticket` is the sink's own; called from any thread, exactly once per Completion.
  virtual void complete(void* ticket, Status status, std::span<Value> outputs) = 0;

 protected:
  ~CompletionSink() = default;
};

/// Lets values that are tensors of strings keep their bytes themselves, as for the outputs of every
/// firing.
void own_text(std::span<Value> values);

/// The right, and the duty, to end one firing. Move-only; dropping it unfulfilled fails the firing.
class Completion {
 public:
  Completion() = default;
  Completion(CompletionSink* sink, void* ticket) : sink_(sink), ticket_(ticket) {}
  Completion(Completion&& o) noexcept
      : sink_(std::exchange(o.sink_, nullptr)), ticket_(o.ticket_) {}
  Completion& operator=(Completion&& o) noexcept {
    if (this != &o) {
      drop();
      sink_ = std::exchange(o.sink_, nullptr);
      ticket_ = o.ticket_;
    }
    return *this;
  }
  ~Completion() { drop(); }

  explicit operator bool() const { return sink_ != nullptr; }
  void fulfil(std::span<Value> outputs) {
    own_text(outputs);
    take()->complete(ticket_, Status(), outputs);
  }
  void fulfil(Value output) { fulfil(std::span<Value>(&output, 1)); }
  void fail(Status status) { take()->complete(ticket_, std::move(status), {}); }

 private:
  CompletionSink* take() { return std::exchange(sink_, nullptr); }
  void drop() {
    if (sink_)
      fail(Status(Code::internal, "a kernel dropped its Completion without fulfilling it"));
  }
  CompletionSink* sink_ = nullptr;
  void* ticket_ = nullptr;
};

/// The tag of iteration `n` of frame `key` within `outer`, folded into one word (0: outside
/// frames).
constexpr std::uint64_t fold_tag(std::uint64_t outer, std::uint64_t key, std::uint64_t n) {
  std::uint64_t h = outer ^ (key * 0x9E3779B97F4A7C15ull);
  h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9ull + n + 1;
  h = (h ^ (h >> 27)) * 0x94D049BB133111EBull;
  return h ^ (h >> 31);
}

/// One firing, seen from its kernel.
class KernelContext {
 public:
  KernelContext(std::span<Value> inputs, std::span<Value> outputs, Device& device, Stream& stream,
                const RunInfo& run)
      : inputs_(inputs), outputs_(outputs), device_(&device), stream_(&stream), run_(&run) {}

  int inputs() const { return static_cast<int>(inputs_.size()); }
  int outputs() const { return static_cast<int>(outputs_.size()); }
  const Tensor& input(int i) const { return inputs_[i].tensor(); }
  /// Moves an input out of the firing, so that its buffer may be taken over or handed on.
  Tensor take(int i) { return std::move(inputs_[i].tensor()); }
  void set(int i, Value value) { outputs_[i] = std::move(value); }
  std::span<Value> all_inputs() { return inputs_; }
  std::span<Value> all_outputs() { return outputs_; }

  /// A tensor on this node's device, elements not yet written.
  Tensor allocate(DType dtype, const Shape& shape) { return device_->empty(dtype, shape); }
  /// Input i itself, taken over, if this firing is its sole holder and dtype and shape fit, else a
  /// new tensor. Make the views of the inputs first.
  Tensor allocate_over(int i, DType dtype, const Shape& shape);

  Device& device() const { return *device_; }
  Stream& stream() const { return *stream_; }
  const Primitives& primitives() const { return device_->primitives(); }
  const RunInfo& run() const { return *run_; }
  /// Iteration numbers of the firing's tag, folded into one word; 0 outside loops.
  std::uint64_t tag() const { return tag_; }
  void set_tag(std::uint64_t tag) { tag_ = tag; }

  /// The firing ends when the returned right is used, not when the kernel returns. Inputs that are
  /// needed later must be taken or copied. Once the right is used, the outputs no longer belong to
  /// the firing, and may be gone.
  Completion defer() {
    deferred_ = true;
    return Completion(sink_, ticket_);
  }
  bool was_deferred() const { return deferred_; }
  void set_sink(CompletionSink* sink, void* ticket) {
    sink_ = sink;
    ticket_ = ticket;
  }

 private:
  std::span<Value> inputs_;
  std::span<Value> outputs_;
  Device* device_;
  Stream* stream_;
  const RunInfo* run_;
  std::uint64_t tag_ = 0;
  CompletionSink* sink_ = nullptr;
  void* ticket_ = nullptr;
  bool deferred_ = false;
};

struct ScalarProgram;

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run(KernelContext& context) = 0;
  /// The program that the kernel computes if all inputs are inline scalars and it has no other
  /// effect then: the caller may run the program instead. Null: the kernel has to be run.
  virtual const ScalarProgram* scalar_program() const { return nullptr; }
};

/// State that outlives runs (a variable, a queue), shared by all plans that name it.
class State : public Counted {
 public:
  /// Fails all operations of run `run_id` that wait on this state, with `status`: the run is over.
  virtual void cancel(std::uint64_t run_id, const Status& status) {
    (void)run_id;
    (void)status;
  }
};

/// Everything known when a node's kernel is made.
struct KernelSetup {
  std::string_view op;
  const Attrs& attrs;
  std::span<const DType> input_types;
  std::span<const Shape> input_shapes;  // may have unknown extents
  std::span<const DType> output_types;
  std::span<const Shape> output_shapes;
  Device& device;
  std::uint64_t origin = 0;  // build-time op id, preserved by passes: keys random draws
  Ref<State> state;          // null unless the op is stateful
};
using KernelFactory = std::function<std::unique_ptr<Kernel>(const KernelSetup&)>;

/// A kernel from a function that needs nothing of its own.
template <class F>
std::unique_ptr<Kernel> make_kernel(F f) {
  class Function final : public Kernel {
   public:
    explicit Function(F f) : f_(std::move(f)) {}
    void run(KernelContext& c) override { f_(c); }

   private:
    F f_;
  };
  return std::make_unique<Function>(std::move(f));
}

/// Faster kernels of one device kind for ops that have a general one; a device registers them by
/// op name when it is loaded, before any plan is made.
void register_device_kernel(std::string_view device_kind, std::string_view op,
                            KernelFactory factory);
/// Null if there is none.
const KernelFactory* find_device_kernel(std::string_view device_kind, std::string_view op);

}  // namespace troupe::detail
