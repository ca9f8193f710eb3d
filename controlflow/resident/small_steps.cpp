#include <troupe/controlflow/resident/small_steps.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <troupe/devices/base/device_name.hpp>
#include <troupe/devices/device/device.hpp>
#include <troupe/devices/device/tiny_product.hpp>
#include <troupe/ops/families/reduction.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/pointwise.hpp>

namespace troupe {

namespace {

bool is_pointwise_here(const Node& node) {
  return (node.op->pointwise || node.op->name == "Fused") && !node.inputs.empty() &&
         !find_device_kernel(kind_of(kHostDevice), node.op->name);
}

std::size_t elements_in(const Shape& shape) { return static_cast<std::size_t>(shape.elements()); }

std::size_t index_of(std::int64_t i) { return static_cast<std::size_t>(i); }

bool are_products_fused() { return cpu_level() >= CpuLevel::v3; }

// By element of `out`: the element of `in`, which is broadcast to it.
std::vector<std::int32_t> broadcast_map(const Shape& in, const Shape& out) {
  std::vector<std::int32_t> map(elements_in(out));
  const int lead = out.rank() - in.rank();
  for (std::size_t e = 0; e < map.size(); ++e) {
    std::int64_t rest = static_cast<std::int64_t>(e), from = 0, step = 1;
    for (int d = out.rank() - 1; d >= 0; --d) {
      const std::int64_t index = rest % out[d];
      rest /= out[d];
      if (d < lead) continue;
      if (in[d - lead] > 1) from += index * step;
      step *= in[d - lead];
    }
    map[e] = static_cast<std::int32_t>(from);
  }
  return map;
}

// Calls f(element of `block`, element of `whole`) where the block begins at `starts`.
template <class F>
void each_of_block(const Shape& block, const Shape& whole, std::span<const std::int64_t> starts,
                   F f) {
  for (std::size_t e = 0; e < elements_in(block); ++e) {
    std::int64_t rest = static_cast<std::int64_t>(e), to = 0, step = 1;
    for (int d = block.rank() - 1; d >= 0; --d) {
      const std::int64_t start = starts[at(d)] < 0 ? starts[at(d)] + whole[d] : starts[at(d)];
      to += (rest % block[d] + start) * step;
      rest /= block[d];
      step *= whole[d];
    }
    f(e, static_cast<std::size_t>(to));
  }
}

}  // namespace

// A sum as the CPU takes it (devices/cpu/elements/reduce.cpp): in double, of rows in 32 lanes that
// are added pairwise, of columns in order; the result is added to 0.
struct SmallSteps::Sum {
  std::int64_t outer = 1, reduced = 1, inner = 1;
  DType type = DType::f32;
  bool is_mean = false;

  static std::optional<Sum> of(const Graph& graph, const Node& node) {
    const std::string& name = node.op->name;
    Sum sum;
    Shape shape;
    std::uint32_t axes = 0;
    if (name == "Sum" || name == "Mean") {
      shape = graph.spec(node.inputs[0]).shape;
      sum.type = graph.spec(node.inputs[0]).dtype;
      sum.is_mean = name == "Mean";
      axes = reduced_axes(node.attrs.get<std::vector<std::int64_t>>("axes"), shape.rank());
    } else if (name == "SumTo") {
      shape = graph.spec(node.inputs[0]).shape;
      sum.type = graph.spec(node.inputs[0]).dtype;
      const Shape& to = node.outputs[0].shape;
      const int lead = shape.rank() - to.rank();
      for (int i = 0; i < shape.rank(); ++i)
        if (i < lead || (to[i - lead] == 1 && shape[i] != 1)) axes |= 1u << i;
    } else if (name == "FusedReduce") {
      const auto kind = static_cast<Reduction>(node.attrs.get<std::int64_t>("reduction"));
      if (kind != Reduction::sum && kind != Reduction::mean) return {};
      sum.is_mean = kind == Reduction::mean;
      shape = shape_of(graph, node);
      sum.type = program_of(node.attrs)
                     .result_type(static_cast<int>(node.attrs.get<std::int64_t>("reduced")));
      axes = reduced_axes(node.attrs.get<std::vector<std::int64_t>>("axes"), shape.rank());
    } else {
      return {};
    }
    if (sum.type != DType::f32 && sum.type != DType::f64) return {};
    if (!sum.find_extents(shape, axes)) return {};
    // eight rows of f32 would be added in float, unless that overflows
    if (sum.type == DType::f32 && sum.inner > 1 && sum.reduced >= 8) return {};
    return sum;
  }
  // The shape of a FusedReduce's program.
  static Shape shape_of(const Graph& graph, const Node& node) {
    Shape shape = graph.spec(node.inputs[0]).shape;
    for (Edge e : node.inputs) shape = broadcast(shape, graph.spec(e).shape);
    return shape;
  }

 private:
  bool find_extents(const Shape& shape, std::uint32_t axes) {
    int phase = 0;  // 0: outer, 1: reduced, 2: inner
    for (int d = 0; d < shape.rank(); ++d) {
      const bool is_reduced = axes >> d & 1;
      if (shape[d] == 1) continue;
      if (is_reduced && phase == 2) return false;
      if (is_reduced) phase = 1;
      else if (phase == 1) phase = 2;
      (phase == 0 ? outer : phase == 1 ? reduced : inner) *= shape[d];
    }
    return outer * reduced * inner > 0 && outer * reduced * inner <= kMostElements;
  }
};

namespace {

// The extents of a product of two matrices.
struct Product {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;

  static std::optional<Product> of(const Graph& graph, const Node& node) {
    const Shape &a = graph.spec(node.inputs[0]).shape, &b = graph.spec(node.inputs[1]).shape;
    const DType type = node.outputs[0].dtype;
    if (a.rank() != 2 || b.rank() != 2 || (type != DType::f32 && type != DType::f64)) return {};
    Product p{};
    p.transpose_a = node.attrs.get<bool>("transpose_a");
    p.transpose_b = node.attrs.get<bool>("transpose_b");
    p.m = node.outputs[0].shape[0];
    p.n = node.outputs[0].shape[1];
    p.k = a[p.transpose_a ? 0 : 1];
    if (!is_tiny_product(p.m, p.n, p.k)) return {};
    return p;
  }
};

bool moves_elements(const std::string& name) {
  static constexpr std::string_view names[] = {
      "Identity",      "StopGradient", "Reshape",   "ReshapeLike", "ExpandDims",
      "Squeeze",       "Transpose",    "Slice",     "SliceLike",   "Concat",
      "SliceGradient", "Split",        "SplitLike", "FillLike",    "BroadcastLike",
  };
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

bool SmallSteps::takes(const Graph& graph, const Node& node) {
  if (node.inputs.empty() || node.op->random || node.op->side_effect) return false;
  for (const ValueSpec& spec : node.outputs)
    if (spec.is_list() || spec.dtype == DType::string || !spec.shape.is_known()) return false;
  for (Edge e : node.inputs)
    if (graph.spec(e).is_list() || !graph.spec(e).shape.is_known()) return false;
  const std::string& name = node.op->name;
  if (is_pointwise_here(node) || moves_elements(name)) return true;
  if (name == "MatMul") return Product::of(graph, node).has_value();
  return Sum::of(graph, node).has_value();
}

double SmallSteps::steps_of(const Graph& graph, const Node& node) {
  const auto of_program = [](const ScalarProgram& program, const Shape& shape) {
    constexpr double kFunction = 24;
    double steps = 0;
    for (const ScalarInstruction& i : program.code) {
      const bool is_function = (i.op >= ScalarOp::exp && i.op <= ScalarOp::sigmoid) ||
                               i.op == ScalarOp::pow || i.op == ScalarOp::atan2;
      if (i.op > ScalarOp::constant) steps += is_function ? kFunction : 1;
    }
    return steps * static_cast<double>(shape.elements());
  };
  if (is_pointwise_here(node)) return of_program(*program_of(graph, node), node.outputs[0].shape);
  if (node.op->name == "MatMul") {
    const Product p = *Product::of(graph, node);
    return static_cast<double>(p.m * p.n * p.k);
  }
  if (node.op->name == "FusedReduce") {
    const Shape shape = Sum::shape_of(graph, node);
    return of_program(program_of(node.attrs), shape) + 2 * static_cast<double>(shape.elements());
  }
  if (Sum::of(graph, node))
    return 2 * static_cast<double>(graph.spec(node.inputs[0]).shape.elements());
  return 0;
}

std::vector<SmallSteps::Registers> SmallSteps::emit(const Graph& graph, const Node& node,
                                                    std::span<const Registers> operands,
                                                    bool is_kept) {
  is_kept_ = is_kept;
  const std::string& name = node.op->name;
  if (is_pointwise_here(node))
    return emit_pointwise(graph, node, *program_of(graph, node), node.outputs[0].shape, operands);
  if (name == "FusedReduce") return emit_fused_reduce(graph, node, operands);
  if (name == "MatMul") return {emit_product(graph, node, operands)};
  if (moves_elements(name)) {
    std::vector<Registers> moved = emit_moved(graph, node, operands);
    for (const Registers& registers : moved) hold(registers);
    return moved;
  }
  if (name == "SumTo" && graph.spec(node.inputs[0]).shape == node.outputs[0].shape) {
    hold(operands[0]);
    return {operands[0]};
  }
  return {emit_sum(*Sum::of(graph, node), operands[0])};
}

// ---- registers

SmallSteps::Register SmallSteps::constant(DType type, double value) {
  const auto key = std::pair(type, std::bit_cast<std::uint64_t>(value));
  const auto [found, is_new] = constants_.try_emplace(key, 0);
  if (is_new) found->second = code_.add_constant(Tensor::scalar_as(type, value));
  return found->second;
}

SmallSteps::Registers SmallSteps::constant(const Tensor& value) {
  const std::size_t bytes = size_of(value.dtype());
  Registers made;
  for (std::size_t e = 0; e < elements_in(value.shape()); ++e) {
    Value element;
    element.set_scalar(value.dtype(), static_cast<const std::byte*>(value.raw()) + e * bytes,
                       bytes);
    made.push_back(code_.add_constant(element.tensor()));
  }
  return made;
}

SmallSteps::Register SmallSteps::take_temporary(DType type) {
  std::vector<Register>& spare = spare_[type];
  Register r;
  if (spare.empty()) {
    r = code_.add_register();
  } else {
    r = spare.back();
    spare.pop_back();
  }
  held_[r] = {type, 1};
  return r;
}

SmallSteps::Register SmallSteps::take(DType type) {
  if (!is_kept_) return take_temporary(type);
  const Register r = code_.add_register();
  held_[r] = {type, 1};
  return r;
}

void SmallSteps::give_back(Register temporary) {
  const auto found = held_.find(temporary);
  if (found == held_.end() || --found->second.holders > 0) return;
  spare_[found->second.type].push_back(temporary);
  held_.erase(found);
}

void SmallSteps::hold(std::span<const Register> registers) {
  for (const Register r : registers)
    if (const auto found = held_.find(r); found != held_.end()) ++found->second.holders;
}

void SmallSteps::release(std::span<const Register> registers) {
  for (const Register r : registers) give_back(r);
}

SmallSteps::Register SmallSteps::apply(ScalarOp op, DType type, Register a, Register b) {
  const Register to = take_temporary(type);
  code_.add(op, type, type, to, a, b);
  return to;
}

SmallSteps::Register SmallSteps::cast(DType to, DType from, Register a) {
  const Register made = take_temporary(to);
  code_.add(ScalarOp::cast, to, from, made, a);
  return made;
}

// ---- pointwise

// Instructions of which no operand differs between elements run once.
std::vector<SmallSteps::Registers> SmallSteps::emit_program(const ScalarProgram& program,
                                                            std::span<const Registers> operands,
                                                            std::span<const Map> maps,
                                                            std::size_t elements) {
  const std::size_t n = program.code.size();
  std::vector<std::size_t> last(n, 0);  // the instruction that reads it last
  std::vector<char> is_read(n, 0), is_result(n, 0), is_one(n, 0);
  for (const std::int16_t r : program.results) is_read[at(r)] = is_result[at(r)] = 1;
  const auto operand_of = [&](std::size_t k, int i) {
    return at(program.code[k].operand[static_cast<std::size_t>(i)]);
  };
  for (std::size_t k = n; k-- > 0;)
    for (int i = 0; is_read[k] && i < arity(program.code[k].op); ++i) {
      is_read[operand_of(k, i)] = 1;
      last[operand_of(k, i)] = std::max(last[operand_of(k, i)], k);
    }
  for (std::size_t k = 0; k < n; ++k) {
    const ScalarInstruction& made = program.code[k];
    is_one[k] = true;
    if (made.op == ScalarOp::input) {
      const Map& map = maps[at(made.operand[0])];
      is_one[k] = std::all_of(map.begin(), map.end(), [&](auto m) { return m == map[0]; });
    }
    for (int i = 0; i < arity(made.op); ++i) is_one[k] = is_one[k] && is_one[operand_of(k, i)];
  }
  std::vector<Registers> results(program.results.size());
  std::vector<Register> made(n, 0);
  const auto is_temporary = [&](std::size_t k) {
    return is_read[k] && !is_result[k] && program.code[k].op > ScalarOp::constant;
  };
  for (std::size_t e = 0; e < elements; ++e) {
    for (std::size_t k = 0; k < n; ++k) {
      const ScalarInstruction& i = program.code[k];
      if (!is_read[k] || (is_one[k] && e > 0)) continue;
      if (i.op == ScalarOp::input) {
        const auto in = at(i.operand[0]);
        made[k] = operands[in][at(maps[in][e])];
        continue;
      }
      if (i.op == ScalarOp::constant) {
        made[k] = constant(i.type, i.constant);
        continue;
      }
      const auto operand = [&](int o) { return o < arity(i.op) ? made[operand_of(k, o)] : 0; };
      made[k] = is_result[k] ? take(i.type) : take_temporary(i.type);
      const std::size_t typed = operand_of(k, i.op == ScalarOp::select ? 1 : 0);
      code_.add(i.op, i.type, program.code[typed].type, made[k], operand(0), operand(1),
                operand(2));
      for (int o = 0; o < arity(i.op); ++o) {
        const std::size_t from = operand_of(k, o);
        bool is_repeated = false;
        for (int other = 0; other < o; ++other) is_repeated |= operand_of(k, other) == from;
        if (!is_repeated && last[from] == k && is_temporary(from) && !is_one[from])
          give_back(made[from]);
      }
    }
    for (std::size_t r = 0; r < results.size(); ++r) {
      const Register result = made[at(program.results[r])];
      // `take` counts one holder; further results, and elements, of one register hold it as well
      const bool is_first =
          program.code[at(program.results[r])].op > ScalarOp::constant &&
          (e == 0 || !is_one[at(program.results[r])]) &&
          std::find(program.results.begin(), program.results.begin() + static_cast<long>(r),
                    program.results[r]) == program.results.begin() + static_cast<long>(r);
      if (!is_first) hold({&result, 1});
      results[r].push_back(result);
    }
  }
  for (std::size_t k = 0; k < n; ++k)
    if (is_temporary(k) && is_one[k]) give_back(made[k]);
  return results;
}

std::vector<SmallSteps::Registers> SmallSteps::emit_pointwise(const Graph& graph, const Node& node,
                                                              const ScalarProgram& program,
                                                              const Shape& shape,
                                                              std::span<const Registers> operands) {
  std::vector<Map> maps;
  for (Edge e : node.inputs) maps.push_back(broadcast_map(graph.spec(e).shape, shape));
  return emit_program(program, operands, maps, elements_in(shape));
}

// ---- sums and products

SmallSteps::Register SmallSteps::finish(const Sum& sum, Register total) {
  const auto replace = [&](Register next) {
    give_back(total);
    total = next;
  };
  replace(apply(ScalarOp::add, DType::f64, constant(DType::f64, 0), total));
  if (sum.is_mean)
    replace(apply(ScalarOp::div, DType::f64, total,
                  constant(DType::f64, static_cast<double>(sum.reduced))));
  const Register result = take(sum.type);
  if (sum.type == DType::f64) code_.copy(result, total);
  else code_.add(ScalarOp::cast, sum.type, DType::f64, result, total);
  give_back(total);
  return result;
}

// Lane l takes elements l, l + 32, ... Zeros that other lanes would add change nothing but the sign
// of 0, which the last addition sets.
SmallSteps::Register SmallSteps::emit_row(Registers row) {
  constexpr std::size_t kLanes = 32;
  const auto add_to = [&](std::size_t l, std::size_t from) {
    const Register total = apply(ScalarOp::add, DType::f64, row[l], row[from]);
    give_back(row[l]);
    give_back(row[from]);
    row[l] = total;
  };
  for (std::size_t i = kLanes; i < row.size(); ++i) add_to(i % kLanes, i);
  row.resize(std::min(row.size(), kLanes));
  for (std::size_t half = kLanes / 2; half > 0; half /= 2)
    for (std::size_t l = 0; l < half && l + half < std::min(row.size(), 2 * half); ++l)
      add_to(l, l + half);
  return row[0];
}

SmallSteps::Register SmallSteps::emit_column(const Registers& column) {
  Register total = column[0];
  for (std::size_t i = 1; i < column.size(); ++i) {
    const Register next = apply(ScalarOp::add, DType::f64, total, column[i]);
    give_back(total);
    give_back(column[i]);
    total = next;
  }
  return total;
}

SmallSteps::Registers SmallSteps::emit_sum(const Sum& sum, const Registers& of) {
  Registers results;
  for (std::int64_t o = 0; o < sum.outer; ++o)
    for (std::int64_t j = 0; j < sum.inner; ++j) {
      Registers terms;
      for (std::int64_t r = 0; r < sum.reduced; ++r) {
        const Register element = of[index_of((o * sum.reduced + r) * sum.inner + j)];
        if (sum.type == DType::f32) {
          terms.push_back(cast(DType::f64, DType::f32, element));
        } else {
          hold({&element, 1});
          terms.push_back(element);
        }
      }
      const Register total = sum.inner == 1 ? emit_row(std::move(terms)) : emit_column(terms);
      results.push_back(finish(sum, total));
    }
  return results;
}

std::vector<SmallSteps::Registers> SmallSteps::emit_fused_reduce(
    const Graph& graph, const Node& node, std::span<const Registers> operands) {
  std::vector<Registers> made =
      emit_pointwise(graph, node, program_of(node.attrs), Sum::shape_of(graph, node), operands);
  const auto which = index_of(node.attrs.get<std::int64_t>("reduced"));
  std::vector<Registers> results{emit_sum(*Sum::of(graph, node), made[which])};
  const bool is_stored = node.attrs.get<bool>("stored");
  if (!is_stored) release(made[which]);
  for (std::size_t r = 0; r < made.size(); ++r)
    if (r != which || is_stored) results.push_back(std::move(made[r]));
  return results;
}

SmallSteps::Registers SmallSteps::emit_product(const Graph& graph, const Node& node,
                                               std::span<const Registers> operands) {
  const Product p = *Product::of(graph, node);
  const DType type = node.outputs[0].dtype;
  const bool is_fused = are_products_fused();
  Registers results;
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j) {
      Register sum = -1;
      for (std::int64_t k = 0; k < p.k; ++k) {
        const Register a = operands[0][index_of(p.transpose_a ? k * p.m + i : i * p.k + k)],
                       b = operands[1][index_of(p.transpose_b ? j * p.k + k : k * p.n + j)];
        const bool is_last = k + 1 == p.k;
        const Register next = is_last ? take(type) : take_temporary(type);
        if (k == 0) {
          code_.add(ScalarOp::mul, type, type, next, a, b);
        } else if (is_fused) {
          code_.multiply_add(type, next, a, b, sum);
        } else {
          const Register product = apply(ScalarOp::mul, type, a, b);
          code_.add(ScalarOp::add, type, type, next, sum, product);
          give_back(product);
        }
        if (k > 0) give_back(sum);
        sum = next;
      }
      results.push_back(sum);
    }
  return results;
}

// ---- movement

std::vector<SmallSteps::Registers> SmallSteps::emit_moved(const Graph& graph, const Node& node,
                                                          std::span<const Registers> operands) {
  const std::string& name = node.op->name;
  const Shape& to = node.outputs[0].shape;
  const Shape& from = graph.spec(node.inputs[0]).shape;
  Registers moved(elements_in(to));
  const auto starts = [&] { return node.attrs.get<std::vector<std::int64_t>>("starts"); };
  if (name == "Transpose") {
    const auto& axes = node.attrs.get<std::vector<std::int64_t>>("permutation");
    std::vector<std::int64_t> steps(axes.size(), 1);
    for (std::size_t d = axes.size(); d-- > 1;) steps[d - 1] = steps[d] * from[static_cast<int>(d)];
    for (std::size_t e = 0; e < moved.size(); ++e) {
      std::int64_t rest = static_cast<std::int64_t>(e), source = 0;
      for (int d = to.rank() - 1; d >= 0; --d) {
        source += rest % to[d] * steps[index_of(axes[at(d)])];
        rest /= to[d];
      }
      moved[e] = operands[0][index_of(source)];
    }
  } else if (name == "Slice" || name == "SliceLike") {
    each_of_block(to, from, starts(),
                  [&](std::size_t e, std::size_t whole) { moved[e] = operands[0][whole]; });
  } else if (name == "SliceGradient") {
    std::fill(moved.begin(), moved.end(), constant(node.outputs[0].dtype, 0));
    each_of_block(from, to, starts(),
                  [&](std::size_t e, std::size_t whole) { moved[whole] = operands[0][e]; });
  } else if (name == "FillLike") {
    std::fill(moved.begin(), moved.end(),
              constant(node.outputs[0].dtype, node.attrs.get<double>("value")));
  } else if (name == "BroadcastLike") {
    const Map map = broadcast_map(from, to);
    for (std::size_t e = 0; e < moved.size(); ++e) moved[e] = operands[0][at(map[e])];
  } else if (name == "Concat") {
    std::vector<std::int64_t> start(at(to.rank()), 0);
    const int axis = normalize_axis(node.attrs.get<std::int64_t>("axis"), to.rank());
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Shape& piece = graph.spec(node.inputs[i]).shape;
      each_of_block(piece, to, start,
                    [&](std::size_t e, std::size_t whole) { moved[whole] = operands[i][e]; });
      start[at(axis)] += piece[axis];
    }
  } else if (name == "Split" || name == "SplitLike") {
    std::vector<std::int64_t> start(at(from.rank()), 0);
    const int axis = normalize_axis(node.attrs.get<std::int64_t>("axis"), from.rank());
    std::vector<Registers> pieces;
    for (const ValueSpec& spec : node.outputs) {
      Registers& piece = pieces.emplace_back(elements_in(spec.shape));
      each_of_block(spec.shape, from, start,
                    [&](std::size_t e, std::size_t whole) { piece[e] = operands[0][whole]; });
      start[at(axis)] += spec.shape[axis];
    }
    return pieces;
  } else {
    moved = operands[0];
  }
  return {moved};
}

}  // namespace troupe
