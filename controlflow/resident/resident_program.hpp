// A loop that stays whole, as scalar code and the kernels that it calls.
//
// Threads: a program is shared and never changes.
// Invariants: Note [Resident loops] in RESIDENT.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/kernel.hpp>
#include <troupe/devices/scalar/machine_code.hpp>
#include <troupe/ops/families/slices.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe {

/// The slot of a value: a register, a tensor's, or, of a small tensor, as many registers as it has
/// elements.
struct ResidentPlace {
  bool is_scalar = true;
  std::int32_t index = 0;
  DType type = DType::f32;
  bool is_small = false;  // `index`: into the program's small tensors
  bool has_slot() const { return !is_scalar && !is_small; }
  friend bool operator==(const ResidentPlace&, const ResidentPlace&) = default;
};

/// A tensor whose elements are registers.
struct SmallTensor {
  Shape shape;
  std::vector<ScalarCode::Register> registers;  // in row-major order
};

/// A step that is no scalar operation.
struct ResidentCall {
  /// `pointwise` runs a scalar program on tensors, `rows` on slices of them, and `product`
  /// multiplies small matrices; results go where those of the iteration before were. `push`, `pop`
  /// and `read` are of lists whose elements are in registers; what they are not made for, the
  /// kernel does.
  enum class Kind : std::uint8_t { kernel, move, pointwise, rows, product, push, pop, read };
  struct Input {
    ResidentPlace place;
    bool is_last = false;  // no later step reads it: it is moved
  };
  Kind kind = Kind::kernel;
  Kernel* kernel = nullptr;
  std::int32_t direct = -1;  // into ResidentProgram::direct_
  std::vector<Input> inputs;
  std::vector<ResidentPlace> outputs;
  const Graph* graph = nullptr;  // has the node, for errors
  std::int32_t node = -1;
  std::vector<std::int32_t> loops;   // around it, outermost first
  std::int32_t cursor = -1;          // a register: the push or pop is a step, if there is room
  std::vector<std::int32_t> closes;  // lists that it needs as a whole, by slot
};

/// A loop of the program: the resident one, number 0, or one within.
struct InnerLoop {
  std::string name;  // `train/1`
  std::uint64_t key = 0;
  std::int32_t parent = -1;
  ScalarCode::Register counter = 0;
  ScalarCode::Label first = 0, last = 0;  // steps, the last one excluded
  std::string predicate;                  // the node that decides
  bool is_endless = false;                // which depends on nothing that the loop changes
};

/// A scalar step of the whole loop's condition, and where its operands are after an iteration.
struct ComparedStep {
  std::uint64_t origin = 0;
  const OpDef* op = nullptr;
  std::vector<ResidentPlace> operands;
};

class ResidentRun;

class ResidentProgram {
 public:
  /// `attrs`: of a ResidentLoop node, with its `origin`; `inputs`: what it is given.
  ResidentProgram(const Attrs& attrs, std::uint64_t origin, std::span<const ValueSpec> inputs,
                  Device& device);

  const ScalarCode& code() const { return code_; }
  /// Runs `code`, interpreted or compiled.
  int run(ScalarFrame& frame, std::int64_t budget, ScalarCalls& calls) const {
    return machine_code_ ? machine_code_->run(frame, budget, calls)
                         : code_.run(frame, budget, calls);
  }
  const std::vector<ResidentCall>& calls() const { return calls_; }
  const std::vector<InnerLoop>& loops() const { return loops_; }
  const std::vector<ComparedStep>& compared() const { return compared_; }

 private:
  friend class ResidentRun;
  class Builder;

  std::shared_ptr<const AttrObject> graphs_;  // which calls refer to
  // A step that a primitive of the device does on tensors of fixed shapes, without a kernel.
  struct Direct {
    std::shared_ptr<const ScalarProgram> program;
    std::shared_ptr<const SlicedRows> rows;  // neither: a product
    bool transpose_a = false, transpose_b = false;
    std::vector<ValueSpec> inputs, outputs;
  };
  std::vector<Direct> direct_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  ScalarCode code_;
  std::unique_ptr<const MachineCode> machine_code_;  // null: `code_` is interpreted
  std::vector<ResidentCall> calls_;
  std::vector<InnerLoop> loops_;
  std::vector<ComparedStep> compared_;
  bool is_compared_late_ = false;  // an iteration's comparisons are those of the one before
  std::vector<ResidentPlace> inputs_, outputs_, variables_;  // variables: of the whole loop
  std::vector<std::pair<std::int32_t, Tensor>> constants_;   // tensors, by slot
  std::vector<SmallTensor> small_;
  std::int64_t most_elements_ = 0;  // a small tensor has; 0: there are none
  std::int32_t values_ = 0;
  std::vector<std::int32_t> cursors_;  // by tensor slot: a register, or -1
  std::size_t most_operands_ = 0, most_results_ = 0;
  // nodes that the program has besides its sub-graphs', for errors
  std::vector<std::unique_ptr<Graph>> added_;
};

}  // namespace troupe
