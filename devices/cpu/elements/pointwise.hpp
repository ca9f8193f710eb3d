// The tile evaluator: runs a scalar program over arrays, a tile at a time, so that a fused chain
// of any length reads its inputs once and writes its outputs once.
//
//   const TileProgram& p = TileProgram::of(program);       // prepared on first use, then found
//   p.run(pool, inputs, outputs);
//
// A register is a slot of scratch one tile long. Inputs and outputs that are dense are used where
// they are; broadcast inputs, the last tile's inputs and outputs, and outputs that would overwrite
// an input still to be read go through their slot.
//
// Invariants: 1. an element's bits depend on its operands alone: not on its position, the tile, the
// block, the fusion or the number of workers; 2. nothing outside the given arrays is touched; 3.
// after a thread's first run nothing is allocated.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <troupe/devices/cpu/level.hpp>
#include <troupe/devices/device/primitives.hpp>

namespace troupe::detail {
class WorkerPool;
}

namespace troupe::cpu {

/// n times the element of so many bytes.
void splat(std::byte* to, const void* element, std::size_t bytes, std::int64_t n);

class TileProgram final : public PreparedProgram {
 public:
  TileProgram(const ScalarProgram& program, const LevelKernels& kernels);
  /// The prepared form of `program` for this process's level, kept in the program.
  static const TileProgram& of(const ScalarProgram& program) {
    if (const PreparedProgram* known = program.prepared.get(PreparedSlots::kCpu))
      return static_cast<const TileProgram&>(*known);
    return prepare(program);
  }

  void run(WorkerPool* pool, std::span<const ConstView> in, std::span<const View> out) const;
  /// On slices of wider rows, each output's of its own.
  void run_rows(WorkerPool* pool, std::int64_t rows, std::int64_t columns,
                std::span<const ConstRowsView> in, std::span<const RowsView> out) const;
  /// Returns true if `elements` are too few to be split.
  bool is_small(std::int64_t elements) const;
  void run_scalars(std::span<const Value> in, Value& out) const;
  bool run_elements(std::span<Value> in, Value& out) const;
  class Ranges;

 private:
  using Register = std::int16_t;
  struct Step {
    TileFunction f;
    Register dst, a, b, c;
    // bytes that a function reads and writes for an element, if it takes long; else 0
    std::int16_t bytes;
  };
  struct Input {
    Register slot = -1;  // -1: never read
    std::int16_t bytes = 0;
    std::int16_t last_use = -1;  // step
  };
  struct Output {
    Register slot;
    std::int16_t bytes;
    std::int16_t step;        // the writing step; -1: an input, a constant or an earlier output
    std::int16_t input = -1;  // which input it is, if it is one
  };
  struct Constant {
    Register slot;
    std::size_t offset;  // into constants_
  };
  /// A program of one step, for scalars: where its operands are without any being copied.
  struct Direct {
    TileFunction f = nullptr;
    std::int16_t bytes = 0;               // element size of the result
    std::int8_t input[3] = {-1, -1, -1};  // which input each operand is
    const void* constant[3] = {nullptr, nullptr, nullptr};
  };
  class Builder;
  struct Call;
  void find_direct();

  static const TileProgram& prepare(const ScalarProgram& program);
  void run_range(const Call& call, std::int64_t begin, std::int64_t end, std::byte* memory,
                 std::byte* made = nullptr) const;
  struct RowsCall;
  void run_row_range(const RowsCall& call, std::int64_t begin, std::int64_t end) const;
  std::size_t scratch_bytes() const { return static_cast<std::size_t>(registers_) * slot_bytes_; }
  /// By a step that does little else, and so waits for memory.
  bool is_written_at_once(const Output& o) const {
    return o.step >= 0 && !steps_[static_cast<std::size_t>(o.step)].bytes;
  }
  void run_steps_ahead(std::byte* const* at, std::int64_t n, const Call& call,
                       std::int64_t next) const;
  void run_scalar_steps(std::span<const Value> in, Value& out) const;
  template <class Fetch>
  const std::byte* run_steps(std::byte* stack, Fetch fetch) const;
  /// Elements worth a block of their own.
  std::int64_t block() const;

  std::vector<Step> steps_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<Constant> constants_at_;
  std::unique_ptr<std::byte[]> constants_memory_;
  std::byte* constants_ = nullptr;  // each splatted over a tile
  int registers_ = 0;
  std::int64_t tile_ = 0;  // elements
  std::size_t slot_bytes_ = 0;
  std::int64_t weight_ = 0;  // cost of one element, in additions
  // elements of the next tile that are fetched with a piece of a function's step; 0: none
  std::int64_t ahead_ = 0;
  DType result_ = DType::f32;
  Direct direct_;
  Value zero_;  // zero of the result's dtype
};

/// A program run range by range, by any threads, for one of its results: a caller that reads the
/// result at once need not store it. Each element is computed once. If other results are stored
/// over an input, their elements are of the same computation.
class TileProgram::Ranges {
 public:
  /// The memory that `in` and `results` view must stay valid. `wanted` is the index of the result,
  /// which is stored if it has data.
  Ranges(const TileProgram& program, std::span<const ConstView> in, std::span<const View> results,
         std::size_t wanted);
  ~Ranges();

  struct Rows {
    const std::byte* first;
    std::int64_t step;  // elements from one row to the next
  };
  /// Computes `width` elements from `begin` on, and as many for each further row, `step` elements
  /// apart, of all results. Returns the wanted result's rows: their offset in the output, or in the
  /// thread's scratch.
  Rows make(std::int64_t begin, std::int64_t rows, std::int64_t width, std::int64_t step) const;

 private:
  const TileProgram& program_;
  const std::unique_ptr<const Call> call_;
  const std::size_t wanted_;
};

}  // namespace troupe::cpu
