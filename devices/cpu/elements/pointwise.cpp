#include <troupe/devices/cpu/elements/pointwise.hpp>

#include <algorithm>
#include <complex>

#include <fmt/format.h>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/scratch.hpp>
#include <troupe/devices/scalar/scalar_code.hpp>
#include <troupe/devices/scalar/scalar_eval.hpp>

namespace troupe::cpu {
namespace {

constexpr std::size_t kCacheBytes = 24 << 10;  // a tile's registers, of a 32 KiB L1
// Operands from memory are read a tile of one, then of the next. The processor fetches several
// small tiles ahead (10^7 triads: 26 GB/s, with tiles of 2,048 elements 20).
constexpr std::int64_t kLargestTile = 512, kSmallestTile = 64;
constexpr std::int64_t kLightWeight = 6;
// The next tile is fetched while functions compute, a part with each piece of a function's step: if
// more lines were requested than a core can have in flight, the rest would stall it. For 10^7
// elements tanh(x y + z) took 0.92 ns each without, 0.85 with all lines at once, 0.74 in parts; x y
// sigmoid(x) 0.91 and 0.67.
constexpr std::int64_t kFunctionPiece = 128, kFromMemory = 1 << 20;  // elements, bytes

}  // namespace

void splat(std::byte* to, const void* element, std::size_t bytes, std::int64_t n) {
  switch (bytes) {
    case 1:
      std::memset(to, *static_cast<const unsigned char*>(element), static_cast<std::size_t>(n));
      return;
    case 2: {
      std::uint16_t v;
      std::memcpy(&v, element, 2);
      std::fill_n(reinterpret_cast<std::uint16_t*>(to), n, v);
      return;
    }
    case 4: {
      std::uint32_t v;
      std::memcpy(&v, element, 4);
      std::fill_n(reinterpret_cast<std::uint32_t*>(to), n, v);
      return;
    }
    case 8: {
      std::uint64_t v;
      std::memcpy(&v, element, 8);
      std::fill_n(reinterpret_cast<std::uint64_t*>(to), n, v);
      return;
    }
    default:
      for (std::int64_t i = 0; i < n; ++i) std::memcpy(to + 16 * i, element, 16);
  }
}

// Translates the tape once: registers by liveness, one function pointer an instruction.
class TileProgram::Builder {
 public:
  Builder(const ScalarProgram& program, const LevelKernels& kernels, TileProgram& tiles)
      : program_(program), kernels_(kernels), tiles_(tiles), slot_of_(program.code.size(), -1),
        step_of_(program.code.size(), -1), last_use_(program.code.size(), -1) {}

  void build() {
    find_lifetimes();
    tiles_.inputs_.resize(program_.inputs.size());
    for (std::size_t i = 0; i < program_.inputs.size(); ++i)
      tiles_.inputs_[i].bytes = static_cast<std::int16_t>(size_of(program_.inputs[i]));
    for (std::size_t k = 0; k < program_.code.size(); ++k) translate(static_cast<int>(k));
    for (std::int16_t r : program_.results) add_output(r);
    tiles_.registers_ = registers_;
    tiles_.result_ = program_.result_type(0);
    choose_tile();
    write_constants();
  }

 private:
  static constexpr int kForever = 1 << 20;

  void find_lifetimes() {
    for (std::size_t k = 0; k < program_.code.size(); ++k) {
      const ScalarInstruction& i = program_.code[k];
      for (int n = 0; n < arity(i.op); ++n) last_use_[i.operand[n]] = static_cast<int>(k);
    }
    for (std::int16_t r : program_.results) last_use_[r] = kForever;
  }

  void translate(int k) {
    const ScalarInstruction& i = program_.code[k];
    largest_ = std::max(largest_, size_of(i.type));
    if (i.op == ScalarOp::input) return bind_input(k);
    if (i.op == ScalarOp::constant) {
      slot_of_[k] = registers_++;
      constant_.push_back(k);
      return;
    }
    if (last_use_[k] < 0) return;  // no step reads it
    Step step{};
    DType operand = program_.code[i.operand[i.op == ScalarOp::select ? 1 : 0]].type;
    step.f = i.op == ScalarOp::cast ? kernels_.cast[int(i.type)][int(operand)]
                                    : kernels_.op[int(i.op)][int(operand)];
    if (!step.f)
      throw Error(Code::unimplemented, fmt::format("{} of {} is not implemented on the CPU",
                                                   name_of(i.op), name_of(operand)));
    std::array<Register, 3> from{0, 0, 0};
    for (int n = 0; n < arity(i.op); ++n)
      from[n] = use(i.operand[n], static_cast<int>(tiles_.steps_.size()));
    slot_of_[k] = step.dst = take(k);
    const bool is_function = (i.op >= ScalarOp::exp && i.op <= ScalarOp::sigmoid) ||
                             i.op == ScalarOp::pow || i.op == ScalarOp::atan2;
    tiles_.weight_ += is_function ? 8 : 1;
    if (is_function) step.bytes = static_cast<std::int16_t>(size_of(i.type));
    step.a = from[0];
    step.b = from[1];
    step.c = from[2];
    release_operands(k);
    step_of_[k] = static_cast<int>(tiles_.steps_.size());
    tiles_.steps_.push_back(step);
  }

  void bind_input(int k) {
    Input& in = tiles_.inputs_[program_.code[k].operand[0]];
    if (in.slot < 0) in.slot = registers_++;
    slot_of_[k] = in.slot;
  }

  Register use(int operand, int step) {
    const ScalarInstruction& i = program_.code[operand];
    if (i.op == ScalarOp::input)
      tiles_.inputs_[i.operand[0]].last_use = static_cast<std::int16_t>(step);
    return slot_of_[operand];
  }

  // Returns a free register, or the register of an operand which dies here and has the same element
  // size.
  Register take(int k) {
    if (last_use_[k] == kForever) return registers_++;
    const ScalarInstruction& i = program_.code[k];
    for (int n = 0; n < arity(i.op); ++n) {
      int operand = i.operand[n];
      if (dies(operand, k) && size_of(program_.code[operand].type) == size_of(i.type)) {
        return slot_of_[operand];
      }
    }
    if (free_.empty()) return registers_++;
    Register r = free_.back();
    free_.pop_back();
    return r;
  }

  bool dies(int operand, int k) const { return step_of_[operand] >= 0 && last_use_[operand] == k; }

  void release_operands(int k) {
    const ScalarInstruction& i = program_.code[k];
    for (int n = 0; n < arity(i.op); ++n) {
      int operand = i.operand[n];
      bool repeated = false;
      for (int m = 0; m < n; ++m) repeated |= i.operand[m] == operand;
      if (!repeated && dies(operand, k) && slot_of_[operand] != slot_of_[k])
        free_.push_back(slot_of_[operand]);
    }
  }

  void add_output(std::int16_t r) {
    const ScalarInstruction& i = program_.code[r];
    Output out{slot_of_[r], static_cast<std::int16_t>(size_of(i.type)),
               static_cast<std::int16_t>(step_of_[r])};
    if (i.op == ScalarOp::input) out.input = i.operand[0];
    for (const Output& o : tiles_.outputs_)
      // this value is already an output: copied
      if (o.step >= 0 && o.slot == out.slot) out.step = -1;
    tiles_.outputs_.push_back(out);
  }

  void choose_tile() {
    std::size_t row = std::max<std::size_t>(1, static_cast<std::size_t>(registers_)) * largest_;
    std::int64_t fit = static_cast<std::int64_t>(kCacheBytes / row) / kPad * kPad;
    tiles_.tile_ = std::clamp(fit, kSmallestTile, kLargestTile);
    tiles_.slot_bytes_ = static_cast<std::size_t>(tiles_.tile_) * largest_;
    std::int64_t functions = 0;
    std::size_t arrays = tiles_.inputs_.size();
    for (const Step& s : tiles_.steps_) functions += s.bytes != 0;
    for (const Output& o : tiles_.outputs_) arrays += tiles_.is_written_at_once(o);
    if (functions > 0 && arrays > 1)
      tiles_.ahead_ = (kFunctionPiece / functions + kPad - 1) / kPad * kPad;
  }

  void write_constants() {
    std::size_t bytes = constant_.size() * tiles_.slot_bytes_;
    tiles_.constants_memory_ = std::make_unique<std::byte[]>(bytes + 64);
    auto address = reinterpret_cast<std::uintptr_t>(tiles_.constants_memory_.get());
    tiles_.constants_ = tiles_.constants_memory_.get() + ((address + 63) / 64 * 64 - address);
    for (std::size_t n = 0; n < constant_.size(); ++n) {
      const ScalarInstruction& i = program_.code[constant_[n]];
      Tensor value = Tensor::scalar_as(i.type, i.constant);
      std::size_t offset = n * tiles_.slot_bytes_;
      splat(tiles_.constants_ + offset, value.raw(), size_of(i.type), tiles_.tile_);
      tiles_.constants_at_.push_back({slot_of_[constant_[n]], offset});
    }
  }

  const ScalarProgram& program_;
  const LevelKernels& kernels_;
  TileProgram& tiles_;
  std::vector<Register> slot_of_;
  std::vector<int> step_of_;
  std::vector<int> last_use_;
  std::vector<int> constant_;
  std::vector<Register> free_;
  Register registers_ = 0;
  std::size_t largest_ = 1;
};

TileProgram::TileProgram(const ScalarProgram& program, const LevelKernels& kernels) {
  Builder(program, kernels, *this).build();
  find_direct();
}

void TileProgram::find_direct() {
  if (steps_.size() != 1 || outputs_.size() != 1 || outputs_[0].step != 0 || inputs_.size() > 3)
    return;
  const Step& s = steps_[0];
  const Register operands[3] = {s.a, s.b, s.c};
  for (int o = 0; o < 3; ++o) {
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].slot >= 0 && inputs_[i].slot == operands[o])
        direct_.input[o] = static_cast<std::int8_t>(i);
    for (const Constant& c : constants_at_)
      if (c.slot == operands[o]) direct_.constant[o] = constants_ + c.offset;
  }
  direct_.f = s.f;
  direct_.bytes = outputs_[0].bytes;
  zero_ = Tensor::scalar_as(result_, 0);
}

const TileProgram& TileProgram::prepare(const ScalarProgram& program) {
  auto made = std::make_unique<TileProgram>(program, level_kernels());
  return static_cast<const TileProgram&>(
      *program.prepared.publish(PreparedSlots::kCpu, std::move(made)));
}

// One call: how each input is laid out against the output.
struct TileProgram::Call {
  // copied: dense, but overwritten by an output
  enum class Layout : std::uint8_t { dense, copied, scalar, strided };

  struct Walk {  // a broadcast input: the output's axes, collapsed, and the input's step along each
    int rank = 0;
    std::int64_t extent[Shape::kMaxRank];
    std::int64_t stride[Shape::kMaxRank];
  };
  struct In {
    const std::byte* data;
    Layout layout;
    Walk walk;
  };

  Call(const TileProgram& program, std::span<const ConstView> inputs,
       std::span<const View> outputs);

  // Few operands are the rule: their layouts live here.
  static constexpr std::size_t kFew = 16;
  In few_in[kFew];
  std::byte* few_out[kFew];
  bool few_slots[kFew];
  std::unique_ptr<In[]> many_in;
  std::unique_ptr<std::byte*[]> many_out;
  std::unique_ptr<bool[]> many_slots;
  In* in = few_in;
  std::byte** out = few_out;  // null: not stored
  bool* out_through_slot = few_slots;
  bool from_memory;  // too much for the caches
};

namespace {

// Aligned at the last axis; neighbouring axes along which the input steps evenly become one.
template <class W>
void collapse(const Shape& in, const Shape& out, W& walk) {
  std::int64_t strides[Shape::kMaxRank];
  std::int64_t step = 1;
  int lead = out.rank() - in.rank();
  for (int axis = out.rank() - 1; axis >= 0; --axis) {
    std::int64_t extent = axis < lead ? 1 : in[axis - lead];
    strides[axis] = extent == 1 ? 0 : step;
    step *= extent;
  }
  walk.rank = 0;
  for (int axis = 0; axis < out.rank(); ++axis) {
    if (out[axis] == 1) continue;
    int last = walk.rank - 1;
    if (last >= 0 && walk.stride[last] == strides[axis] * out[axis]) {
      walk.extent[last] *= out[axis];
      walk.stride[last] = strides[axis];
      continue;
    }
    walk.extent[walk.rank] = out[axis];
    walk.stride[walk.rank++] = strides[axis];
  }
}

// Elements [begin, begin + n) of the broadcast input, in the output's order.
template <class W>
void gather_walk(std::byte* to, const std::byte* from, std::size_t bytes, const W& walk,
                 std::int64_t begin, std::int64_t n) {
  std::int64_t at[Shape::kMaxRank];
  std::int64_t rest = begin, offset = 0;
  for (int d = walk.rank - 1; d >= 0; --d) {
    at[d] = rest % walk.extent[d];
    rest /= walk.extent[d];
    offset += at[d] * walk.stride[d];
  }
  int inner = walk.rank - 1;
  std::int64_t step = walk.stride[inner];
  while (n > 0) {
    std::int64_t run = std::min(n, walk.extent[inner] - at[inner]);
    const std::byte* source = from + static_cast<std::size_t>(offset) * bytes;
    if (step == 0) splat(to, source, bytes, run);
    else std::memcpy(to, source, static_cast<std::size_t>(run) * bytes);
    to += static_cast<std::size_t>(run) * bytes;
    n -= run;
    offset -= at[inner] * step;
    at[inner] = 0;
    for (int d = inner - 1; d >= 0; --d) {
      offset += walk.stride[d];
      if (++at[d] < walk.extent[d]) break;
      offset -= walk.extent[d] * walk.stride[d];
      at[d] = 0;
    }
  }
}

}  // namespace

TileProgram::Call::Call(const TileProgram& program, std::span<const ConstView> inputs,
                        std::span<const View> outputs) {
  if (inputs.size() != program.inputs_.size() || outputs.size() != program.outputs_.size())
    throw Error(Code::internal,
                fmt::format("a program of {} inputs and {} outputs was given {} and {}",
                            program.inputs_.size(), program.outputs_.size(), inputs.size(),
                            outputs.size()));
  const Shape& shape = outputs[0].shape;
  const std::int64_t n = shape.elements();
  if (inputs.size() > kFew) in = (many_in = std::make_unique<In[]>(inputs.size())).get();
  if (outputs.size() > kFew) {
    out = (many_out = std::make_unique<std::byte*[]>(outputs.size())).get();
    out_through_slot = (many_slots = std::make_unique<bool[]>(outputs.size())).get();
  }
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    In& c = in[i];
    c.data = static_cast<const std::byte*>(inputs[i].data());
    std::int64_t elements = inputs[i].elements();
    c.layout = elements == n ? Layout::dense : elements == 1 ? Layout::scalar : Layout::strided;
    if (c.layout == Layout::strided) collapse(inputs[i].shape, shape, c.walk);
    bytes += c.layout == Layout::dense ? n * program.inputs_[i].bytes : 0;
  }
  from_memory = bytes > kFromMemory;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    out[o] = static_cast<std::byte*>(outputs[o].data);
    bool through = program.outputs_[o].step < 0;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      through |= in[i].data == out[o] && program.inputs_[i].last_use > program.outputs_[o].step;
    out_through_slot[o] = through;
    // Another output may be a plain copy of an input that this one overwrites.
    for (const Output& other : program.outputs_)
      if (other.input >= 0 && in[other.input].data == out[o] &&
          in[other.input].layout == Layout::dense)
        in[other.input].layout = Layout::copied;
  }
}

void TileProgram::run(WorkerPool* pool, std::span<const ConstView> in,
                      std::span<const View> out) const {
  const Call call(*this, in, out);
  const std::int64_t n = out[0].shape.elements(), each = block();
  if (n == 0) return;
  for_blocks(is_small(n) ? nullptr : pool, (n + each - 1) / each, [&](int b) {
    run_range(call, b * each, std::min(n, (b + 1) * each), thread_scratch(scratch_bytes()));
  });
}

TileProgram::Ranges::Ranges(const TileProgram& program, std::span<const ConstView> in,
                            std::span<const View> results, std::size_t wanted)
    : program_(program), call_(std::make_unique<const Call>(program, in, results)),
      wanted_(wanted) {}
TileProgram::Ranges::~Ranges() = default;

TileProgram::Ranges::Rows TileProgram::Ranges::make(std::int64_t begin, std::int64_t rows,
                                                    std::int64_t width, std::int64_t step) const {
  if (step == width) return {make(begin, 1, rows * width, 0).first, width};
  const auto bytes = static_cast<std::size_t>(program_.outputs_[wanted_].bytes),
             row_bytes = static_cast<std::size_t>(width) * bytes;
  const std::byte* stored = call_->out[wanted_];
  std::byte* memory = thread_scratch(program_.scratch_bytes() +
                                     (stored ? 0 : static_cast<std::size_t>(rows) * row_bytes));
  std::byte* made = memory + program_.scratch_bytes();
  for (std::int64_t r = 0; r < rows; ++r)
    program_.run_range(*call_, begin + r * step, begin + r * step + width, memory,
                       made + static_cast<std::size_t>(r) * row_bytes);
  return stored ? Rows{stored + static_cast<std::size_t>(begin) * bytes, step} : Rows{made, width};
}

// A long chain of functions breaks even at fewer elements than a sum: measured, 12,000 of weight
// 10.
std::int64_t TileProgram::block() const {
  const std::int64_t elements = kBlock * kLightWeight / std::max(kLightWeight, weight_);
  return std::max<std::int64_t>(elements / kPad, 64) * kPad;
}

bool TileProgram::is_small(std::int64_t elements) const {
  return elements * std::max(kLightWeight, weight_) <= kSmallWork * kLightWeight;
}

// The steps on a tile; the one from `next` on is fetched part by part while functions compute.
void TileProgram::run_steps_ahead(std::byte* const* at, std::int64_t n, const Call& call,
                                  std::int64_t next) const {
  const std::int64_t fetched = next + tile_;
  const auto fetch = [&] {
    const std::int64_t to = std::min(next + ahead_, fetched);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].slot < 0 || call.in[i].layout != Call::Layout::dense) continue;
      for (std::int64_t b = next * inputs_[i].bytes; b < to * inputs_[i].bytes; b += 64)
        __builtin_prefetch(call.in[i].data + b);
    }
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      if (!call.out[o] || !is_written_at_once(outputs_[o])) continue;
      for (std::int64_t b = next * outputs_[o].bytes; b < to * outputs_[o].bytes; b += 64)
        __builtin_prefetch(call.out[o] + b, 1);
    }
    next = to;
  };
  for (const Step& s : steps_) {
    if (!s.bytes) s.f(at[s.dst], at[s.a], at[s.b], at[s.c], n);
    else
      for (std::int64_t i = 0; i < n; i += kFunctionPiece) {
        fetch();
        const std::int64_t offset = i * s.bytes;
        s.f(at[s.dst] + offset, at[s.a] + offset, at[s.b] + offset, at[s.c] + offset,
            std::min(kFunctionPiece, n - i));
      }
  }
}

// `memory` holds the registers; results that are not stored go to `made` on.
void TileProgram::run_range(const Call& call, std::int64_t begin, std::int64_t end,
                            std::byte* memory, std::byte* made) const {
  constexpr int kFew = 64;
  std::byte* few[kFew];
  std::unique_ptr<std::byte*[]> many;
  std::byte** at = few;
  if (registers_ > kFew)
    at = (many = std::make_unique<std::byte*[]>(static_cast<std::size_t>(registers_))).get();
  for (int r = 0; r < registers_; ++r) at[r] = memory + static_cast<std::size_t>(r) * slot_bytes_;
  for (const Constant& c : constants_at_) at[c.slot] = constants_ + c.offset;
  auto slot = [&](Register r) { return memory + static_cast<std::size_t>(r) * slot_bytes_; };
  auto place = [&](std::size_t o, std::int64_t i) {
    const auto bytes = static_cast<std::size_t>(outputs_[o].bytes);
    return call.out[o] ? call.out[o] + static_cast<std::size_t>(i) * bytes
                       : made + static_cast<std::size_t>(i - begin) * bytes;
  };
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].slot >= 0 && call.in[i].layout == Call::Layout::scalar)
      splat(slot(inputs_[i].slot), call.in[i].data, static_cast<std::size_t>(inputs_[i].bytes),
            std::min(tile_, (end - begin + kPad - 1) / kPad * kPad));

  for (std::int64_t t = begin; t < end; t += tile_) {
    std::int64_t n = std::min(tile_, end - t);
    bool whole = n % kPad == 0;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const Input& in = inputs_[i];
      if (in.slot < 0) continue;
      const Call::In& from = call.in[i];
      std::size_t bytes = static_cast<std::size_t>(in.bytes);
      if (from.layout == Call::Layout::dense || from.layout == Call::Layout::copied) {
        const std::byte* source = from.data + static_cast<std::size_t>(t) * bytes;
        if (whole && from.layout == Call::Layout::dense) {
          at[in.slot] = const_cast<std::byte*>(source);  // only read
        } else {
          at[in.slot] = slot(in.slot);
          std::memcpy(at[in.slot], source, static_cast<std::size_t>(n) * bytes);
        }
      } else if (from.layout == Call::Layout::strided) {
        gather_walk(slot(in.slot), from.data, bytes, from.walk, t, n);
      }
    }
    for (std::size_t o = 0; o < outputs_.size(); ++o)
      if (outputs_[o].step >= 0)
        at[outputs_[o].slot] =
            whole && !call.out_through_slot[o] ? place(o, t) : slot(outputs_[o].slot);
    if (ahead_ && call.from_memory && t + tile_ < end) run_steps_ahead(at, n, call, t + tile_);
    else
      for (const Step& s : steps_) s.f(at[s.dst], at[s.a], at[s.b], at[s.c], n);
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      std::byte* to = place(o, t);
      if (at[outputs_[o].slot] != to)
        std::memcpy(to, at[outputs_[o].slot],
                    static_cast<std::size_t>(n) * static_cast<std::size_t>(outputs_[o].bytes));
    }
  }
}

namespace {
// bytes of one element: the most a tile function may write; the widest dtype
constexpr std::size_t kSlot = 64, kWidest = 16, kStackSlots = 32;

template <class T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
}  // namespace

[[gnu::always_inline]] inline void TileProgram::run_scalars(std::span<const Value> in,
                                                            Value& out) const {
  if (!direct_.f) return run_scalar_steps(in, out);
  alignas(64) std::byte to[64];
  const auto operand = [&](int o) {
    return direct_.input[o] >= 0 ? in[static_cast<std::size_t>(direct_.input[o])].scalar_bits()
                                 : direct_.constant[o];
  };
  direct_.f(to, operand(0), operand(1), operand(2), 1);
  // Read as wide as it was written, and written as wide as it is copied: a load wider than the
  // store before it waits until that has left the core's buffer, which cost a fifth of a loop over
  // scalars.
  using Word = long long __attribute__((vector_size(16)));
  Word bits{0, 0};
  switch (direct_.bytes) {
    case 1: bits[0] = load<std::uint8_t>(to); break;
    case 2: bits[0] = load<std::uint16_t>(to); break;
    case 4: bits[0] = load<std::uint32_t>(to); break;
    case 8: bits[0] = load<long long>(to); break;
    default: bits = load<Word>(to);
  }
  out.share(zero_);
  std::memcpy(const_cast<void*>(out.scalar_bits()), &bits, sizeof bits);
}

// Apart, for the room on the stack that it takes is not for a program of one step to set up.
[[gnu::noinline]] void TileProgram::run_scalar_steps(std::span<const Value> in, Value& out) const {
  alignas(64) std::byte stack[kStackSlots * kSlot];
  const std::byte* result = run_steps(
      stack, [&](std::size_t i, std::byte* to) { std::memcpy(to, in[i].scalar_bits(), kWidest); });
  out.set_scalar(result_, result, static_cast<std::size_t>(outputs_[0].bytes));
}

// The program on one element; `fetch(i, to)` brings that of input i.
template <class Fetch>
const std::byte* TileProgram::run_steps(std::byte* stack, Fetch fetch) const {
  const auto registers = static_cast<std::size_t>(registers_);
  std::byte* memory = registers > kStackSlots ? thread_scratch(registers * kSlot) : stack;
  auto at = [memory](Register r) { return memory + static_cast<std::size_t>(r) * kSlot; };
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].slot >= 0) fetch(i, at(inputs_[i].slot));
  for (const Constant& c : constants_at_) std::memcpy(at(c.slot), constants_ + c.offset, kWidest);
  for (const Step& s : steps_) s.f(at(s.dst), at(s.a), at(s.b), at(s.c), 1);
  return at(outputs_[0].slot);
}

// Operands are read where they are: given one element, a tile function reads no more than that.
bool TileProgram::run_elements(std::span<Value> in, Value& out) const {
  constexpr std::size_t kFew = 16;
  const std::size_t inputs = in.size();
  if (inputs > kFew || inputs != inputs_.size()) return false;
  const void* element[kFew];
  Tensor* widest = nullptr;
  int rank = -1;
  for (std::size_t i = 0; i < inputs; ++i) {
    if (in[i].is_inline()) {
      element[i] = in[i].scalar_bits();
      continue;
    }
    if (in[i].kind() != Value::Kind::tensor) return false;
    Tensor& t = in[i].tensor();
    const Shape& shape = t.shape();
    if (shape.elements() != 1 || !t.is_on_host()) return false;
    element[i] = t.raw();
    if (shape.rank() > rank) rank = shape.rank(), widest = &t;
  }
  if (!widest) return false;
  alignas(64) std::byte stack[kStackSlots * kSlot];
  const std::byte* result = stack;
  if (direct_.f) {
    const void* operand[3];
    for (int o = 0; o < 3; ++o)
      operand[o] = direct_.input[o] >= 0 ? element[direct_.input[o]] : direct_.constant[o];
    direct_.f(stack, operand[0], operand[1], operand[2], 1);
  } else {
    result = run_steps(stack, [&](std::size_t i, std::byte* to) {
      std::memcpy(to, element[i], static_cast<std::size_t>(inputs_[i].bytes));
    });
  }
  // One element each: the input of the most axes has the result's shape. Its buffer is reused if it
  // has no other holder.
  Tensor made = widest->dtype() == result_ && widest->is_sole_holder()
                    ? std::move(*widest)
                    : Tensor::empty(result_, widest->shape());
  void* to = made.raw_mutable();
  switch (outputs_[0].bytes) {
    case 1: std::memcpy(to, result, 1); break;
    case 2: std::memcpy(to, result, 2); break;
    case 4: std::memcpy(to, result, 4); break;
    case 8: std::memcpy(to, result, 8); break;
    default: std::memcpy(to, result, 16);
  }
  out = std::move(made);
  return true;
}

void CpuPrimitives::pointwise(Stream&, const ScalarProgram& program, std::span<const ConstView> in,
                              std::span<const View> out) const {
  TileProgram::of(program).run(pool_, in, out);
}

}  // namespace troupe::cpu

namespace troupe {

void evaluate_scalars(const ScalarProgram& program, std::span<const Value> inputs, Value& out) {
  cpu::TileProgram::of(program).run_scalars(inputs, out);
}

ScalarFunction detail::scalar_function(ScalarOp op, DType result, DType operand) {
  const cpu::LevelKernels& kernels = cpu::level_kernels();
  return op == ScalarOp::cast ? kernels.cast[int(result)][int(operand)]
                              : kernels.op[int(op)][int(operand)];
}

bool evaluate_elements(const ScalarProgram& program, std::span<Value> inputs, Value& out) {
  return cpu::TileProgram::of(program).run_elements(inputs, out);
}

}  // namespace troupe
