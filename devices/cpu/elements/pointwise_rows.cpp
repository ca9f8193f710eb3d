// The tile evaluator on slices of rows: it reads the input of a Split in place, and writes into the
// output of a Concat, without their copies.
#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/elements/pointwise.hpp>
#include <troupe/devices/cpu/scratch.hpp>

namespace troupe::cpu {

// One call: where the first element of each operand is, and how far its next row.
struct TileProgram::RowsCall {
  static constexpr std::size_t kMost = 16;
  struct In {
    const std::byte* data;
    std::int64_t step;  // bytes
    bool is_scalar;
  };
  struct Out {
    std::byte* data;
    std::int64_t step;
  };
  In in[kMost];
  Out out[kMost];
  std::int64_t columns;
};

void TileProgram::run_rows(WorkerPool* pool, std::int64_t rows, std::int64_t columns,
                           std::span<const ConstRowsView> in, std::span<const RowsView> out) const {
  if (in.size() != inputs_.size() || out.size() != outputs_.size() || in.size() > RowsCall::kMost ||
      out.size() > RowsCall::kMost)
    throw Error(Code::internal,
                fmt::format("a program of {} inputs and {} outputs was given rows of {} and {}",
                            inputs_.size(), outputs_.size(), in.size(), out.size()));
  if (rows == 0 || columns == 0) return;
  RowsCall call;
  call.columns = columns;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto bytes = static_cast<std::int64_t>(inputs_[i].bytes);
    call.in[i] = {static_cast<const std::byte*>(in[i].of.data()) + in[i].start * bytes,
                  in[i].step * bytes, in[i].of.elements() == 1};
  }
  for (std::size_t o = 0; o < out.size(); ++o) {
    const auto bytes = static_cast<std::int64_t>(outputs_[o].bytes);
    call.out[o] = {static_cast<std::byte*>(out[o].of.data) + out[o].start * bytes,
                   out[o].step * bytes};
  }
  const std::int64_t n = rows * columns, blocks = (n + block() - 1) / block(),
                     rows_a_block = (rows + blocks - 1) / blocks;
  for_blocks(is_small(n) ? nullptr : pool, (rows + rows_a_block - 1) / rows_a_block, [&](int b) {
    run_row_range(call, b * rows_a_block, std::min(rows, (b + 1) * rows_a_block));
  });
}

void TileProgram::run_row_range(const RowsCall& call, std::int64_t begin, std::int64_t end) const {
  std::byte* memory = thread_scratch(scratch_bytes());
  constexpr int kFew = 128;
  std::byte* few[kFew];
  std::unique_ptr<std::byte*[]> many;
  std::byte** at = few;
  if (registers_ > kFew)
    at = (many = std::make_unique<std::byte*[]>(static_cast<std::size_t>(registers_))).get();
  auto slot = [&](Register r) { return memory + static_cast<std::size_t>(r) * slot_bytes_; };
  for (int r = 0; r < registers_; ++r) at[r] = slot(static_cast<Register>(r));
  for (const Constant& c : constants_at_) at[c.slot] = constants_ + c.offset;
  // Tiles of one length: a short last one would cost as much as a long one.
  const std::int64_t tiles = (call.columns + tile_ - 1) / tile_;
  const std::int64_t tile = ((call.columns + tiles - 1) / tiles + kPad - 1) / kPad * kPad;
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].slot >= 0 && call.in[i].is_scalar)
      splat(slot(inputs_[i].slot), call.in[i].data, static_cast<std::size_t>(inputs_[i].bytes),
            tile);

  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t t = 0; t < call.columns; t += tile) {
      const std::int64_t n = std::min(tile, call.columns - t);
      const bool whole = n % kPad == 0;
      for (std::size_t i = 0; i < inputs_.size(); ++i) {
        const Input& in = inputs_[i];
        if (in.slot < 0 || call.in[i].is_scalar) continue;
        const std::byte* source = call.in[i].data + row * call.in[i].step + t * in.bytes;
        if (whole) {
          at[in.slot] = const_cast<std::byte*>(source);  // only read
        } else {
          at[in.slot] = slot(in.slot);
          std::memcpy(at[in.slot], source,
                      static_cast<std::size_t>(n) * static_cast<std::size_t>(in.bytes));
        }
      }
      auto place = [&](std::size_t o) {
        return call.out[o].data + row * call.out[o].step + t * outputs_[o].bytes;
      };
      for (std::size_t o = 0; o < outputs_.size(); ++o)
        if (outputs_[o].step >= 0) at[outputs_[o].slot] = whole ? place(o) : slot(outputs_[o].slot);
      for (const Step& s : steps_) s.f(at[s.dst], at[s.a], at[s.b], at[s.c], n);
      for (std::size_t o = 0; o < outputs_.size(); ++o)
        if (std::byte* to = place(o); at[outputs_[o].slot] != to)
          std::memcpy(to, at[outputs_[o].slot],
                      static_cast<std::size_t>(n) * static_cast<std::size_t>(outputs_[o].bytes));
    }
  }
}

void CpuPrimitives::pointwise_rows(Stream&, const ScalarProgram& program, std::int64_t rows,
                                   std::int64_t columns, std::span<const ConstRowsView> in,
                                   std::span<const RowsView> out) const {
  TileProgram::of(program).run_rows(pool_, rows, columns, in, out);
}

}  // namespace troupe::cpu
