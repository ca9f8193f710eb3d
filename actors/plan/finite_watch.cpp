#include <troupe/actors/plan/finite_watch.hpp>

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include <troupe/devices/scalar/scalar_eval.hpp>
#include <troupe/ops/graph/pointwise.hpp>

namespace troupe {
namespace {

const char* text_of(Finiteness f) { return f == Finiteness::nan ? "nan" : "an infinity"; }

// The element of a tensor that a pointwise program reads for element `i` of its results.
std::optional<Value> element_for(const Tensor& t, const Shape& of, std::int64_t i) {
  if (!t.has_value() || is_complex(t.dtype()) || t.dtype() == DType::string) return {};
  std::int64_t from = 0, stride = 1;
  for (int axis = of.rank() - 1, mine = t.rank() - 1; mine >= 0; --axis, --mine) {
    if (axis < 0) return {};
    const std::int64_t at = i % of[axis];
    i /= of[axis];
    if (t.shape()[mine] != 1) from += at * stride;
    stride *= t.shape()[mine];
  }
  if (from >= t.elements()) return {};
  return Value(Tensor::scalar_as(t.dtype(), t.at(from)));
}

// Runs a program step by step on one element, and finds the step that is worse than its operands.
class Steps {
 public:
  Steps(const ScalarProgram& program, std::vector<std::optional<Value>> inputs)
      : program_(program), inputs_(std::move(inputs)), values_(program.code.size()),
        is_known_(program.code.size(), 0) {}

  /// Returns the first step whose result is worse than its operands; -1: none with known operands.
  std::int64_t first_worse() {
    for (std::size_t i = 0; i < program_.code.size(); ++i) {
      run(i);
      const ScalarInstruction& step = program_.code[i];
      if (!is_known_[i] || step.op <= ScalarOp::constant) continue;
      Finiteness worst = Finiteness::finite;
      for (int k = 0; k < arity(step.op); ++k)
        worst = std::max(worst, finiteness(operand(step, k)));
      if (finiteness(i) > worst) return static_cast<std::int64_t>(i);
    }
    return -1;
  }
  bool is_known(std::size_t i) const { return is_known_[i] != 0; }

 private:
  static std::size_t operand(const ScalarInstruction& i, int k) {
    return static_cast<std::size_t>(i.operand[static_cast<std::size_t>(k)]);
  }
  Finiteness finiteness(std::size_t i) const { return worst_element(values_[i].tensor()).what; }

  // Runs one step as a separate program with the step's operands as inputs.
  void run(std::size_t at) {
    const ScalarInstruction& step = program_.code[at];
    if (step.op == ScalarOp::input) {
      const auto& given = inputs_[static_cast<std::size_t>(step.operand[0])];
      if (!given) return;
      values_[at] = *given;
      is_known_[at] = 1;
      return;
    }
    ScalarProgram one;
    std::vector<Value> operands;
    ScalarInstruction mine = step;
    for (int k = 0; k < arity(step.op); ++k) {
      const std::size_t from = operand(step, k);
      if (!is_known_[from]) return;
      mine.operand[static_cast<std::size_t>(k)] = append_input(one, program_.code[from].type);
      operands.push_back(values_[from]);
    }
    one.code.push_back(mine);
    one.results.push_back(static_cast<std::int16_t>(one.code.size() - 1));
    evaluate_scalars(one, operands, values_[at]);
    is_known_[at] = 1;
  }

  const ScalarProgram& program_;
  std::vector<std::optional<Value>> inputs_;
  std::vector<Value> values_;
  std::vector<char> is_known_;
};

}  // namespace

WatchedKernel::WatchedKernel(std::unique_ptr<Kernel> kernel, const Node& node)
    : kernel_(std::move(kernel)),
      may_be_given_(!node.attrs.get<std::string>(kWatched).starts_with('=')),
      makes_(node.attrs.get<std::string>(kWatched).starts_with('!')), op_(node.op->name) {
  const auto& how = node.attrs.get<std::string>(kWatched);
  if (!how.empty()) subject_ = how.substr(1);
  parts_ = parts_of(node.attrs);
  const bool is_fused =
      op_ == "Fused" || op_ == "FusedReduce" || op_ == "FusedSlices" || op_ == "UpdateVariable";
  if (is_fused)
    program_ = static_cast<const ProgramAttr&>(
                   *node.attrs.get<std::shared_ptr<const AttrObject>>("program"))
                   .program;
  if (op_ == "FusedReduce") {
    reduced_ = node.attrs.get<std::int64_t>("reduced");
    is_stored_ = node.attrs.get<bool>("stored");
  }
}

void WatchedKernel::run(KernelContext& c) {
  if (!c.device().is_synchronous()) return kernel_->run(c);
  const Finiteness operands = may_be_given_ ? worst_of(c.all_inputs()) : Finiteness::finite;
  // A fused node may overwrite its operands, and the search for the operation needs them.
  std::array<Value, kMostHeld> held;
  std::size_t n = 0;
  if ((parts_.size() > 1 || makes_) && c.all_inputs().size() <= kMostHeld)
    for (const Value& v : c.all_inputs()) held[n++] = v;
  kernel_->run(c);
  if (!c.was_deferred()) look(c.all_outputs(), operands, {held.data(), n});
}

void WatchedKernel::look(std::span<const Value> results) const {
  if (!may_be_given_) look(results, Finiteness::finite, {});
}

void WatchedKernel::look(std::span<const Value> results, Finiteness operands, Operands held) const {
  for (std::size_t k = 0; k < results.size(); ++k) {
    if (!results[k].has_value() || results[k].is_list()) continue;
    const Tensor& t = results[k].tensor();
    if (!t.is_on_host() || is_all_finite(t)) continue;
    const WorstElement worst = worst_element(t);
    if (worst.what <= operands) continue;
    bool is_first = true;
    const std::string who = culprit(t, worst.element, k, held, is_first);
    if (is_first) refuse(t, worst, operands, who);
  }
}

void WatchedKernel::refuse(const Tensor& result, const WorstElement& worst, Finiteness operands,
                           const std::string& who) const {
  const std::string where = element_text(result, worst.element);
  if (!subject_.empty())
    throw Error(Code::invalid_argument,
                fmt::format("{} holds {}: {}", subject_, text_of(worst.what), where));
  throw Error(
      Code::invalid_argument,
      fmt::format("{}made {}{}: {}", who.empty() ? "" : who + " ", text_of(worst.what),
                  operands == Finiteness::infinite ? " of an infinity" : " of finite operands",
                  where));
}

// Returns the part of a fused node that made the element, or all parts that may have made it.
std::string WatchedKernel::culprit(const Tensor& result, std::int64_t element, std::size_t which,
                                   Operands held, bool& is_first) const {
  if (!program_ || (parts_.size() < 2 && !makes_)) return {};
  const auto part_of = [&](std::int64_t step) {
    const auto it =
        std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) { return p.last >= step; });
    return it != parts_.end() ? it->text : std::string();
  };
  const auto unknown = [&] {
    std::string all;
    for (const Part& p : parts_) all += (all.empty() ? "one of " : ", ") + p.text;
    return all;
  };
  const bool is_update = op_ == "UpdateVariable";
  if (op_ == "FusedSlices" || held.empty()) {
    is_first = !makes_;  // a mask, probably
    return unknown();
  }
  const auto steps_at = [&](const Shape& shape, std::int64_t i) {
    std::vector<std::optional<Value>> inputs;
    if (is_update) inputs.emplace_back();  // the old value is overwritten
    for (const Value& v : held) inputs.push_back(element_for(v.tensor(), shape, i));
    inputs.resize(program_->inputs.size());
    return Steps(*program_, std::move(inputs));
  };
  if (op_ != "FusedReduce" || which > 0) {
    Steps steps = steps_at(result.shape(), element);
    if (const std::int64_t step = steps.first_worse(); step >= 0) return part_of(step);
    const bool is_all_known =
        std::none_of(program_->results.begin(), program_->results.end(),
                     [&](std::int16_t r) { return !steps.is_known(static_cast<std::size_t>(r)); });
    is_first = !is_all_known || !makes_;
    return unknown();
  }
  Shape shape = held[0].tensor().shape();
  for (const Value& v : held) shape = broadcast(shape, v.tensor().shape());
  constexpr std::int64_t kMostLooked = 1 << 20;  // elements, some microseconds each
  for (std::int64_t i = 0; i < std::min(shape.elements(), kMostLooked); ++i)
    if (const std::int64_t step = steps_at(shape, i).first_worse(); step >= 0) return part_of(step);
  if (makes_) is_first = false;
  const auto it =
      std::find_if(parts_.begin(), parts_.end(), [](const Part& p) { return p.last < 0; });
  return it != parts_.end() ? it->text : unknown();
}

void require_finite_feed(const Tensor& feed, const std::string& name, const std::string& site) {
  if (const WorstElement worst = worst_element(feed); worst.what != Finiteness::finite)
    throw Error(Code::invalid_argument,
                fmt::format("feed '{}' ({}) holds {}: {}", name, site, text_of(worst.what),
                            element_text(feed, worst.element)));
}

}  // namespace troupe
