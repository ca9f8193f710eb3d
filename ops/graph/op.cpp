#include <troupe/ops/graph/op.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

#include <fmt/format.h>

#include <troupe/devices/scalar/scalar_eval.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/host_kernel.hpp>
#include <troupe/ops/graph/made_by.hpp>
#include <troupe/ops/graph/pointwise.hpp>
#include <troupe/ops/graph/suggest_name.hpp>

namespace troupe {
namespace {

using Registry = std::unordered_map<std::string_view, std::unique_ptr<OpDef>>;
Registry& registry() {
  static Registry ops;
  return ops;
}

}  // namespace

RegisterOp::RegisterOp(const char* name, void (*define)(OpBuilder&)) {
  auto def = std::make_unique<OpDef>();
  def->name = name;
  OpBuilder builder(*def);
  define(builder);
  std::string_view key = def->name;
  if (!registry().emplace(key, std::move(def)).second) {
    std::fprintf(stderr, "troupe: op '%s' is registered twice\n", name);
    std::abort();  // before main an exception cannot be caught
  }
}

namespace detail {

const OpDef& find_op(std::string_view name) {
  auto it = registry().find(name);
  if (it != registry().end()) return *it->second;
  std::vector<std::string_view> names;
  for (const auto& [other, def] : registry()) names.push_back(other);
  throw Error(Code::not_found,
              fmt::format("there is no op '{}'{}", name, did_you_mean(name, names)));
}

std::vector<const OpDef*> all_ops() {
  std::vector<const OpDef*> ops;
  for (const auto& [name, def] : registry()) ops.push_back(def.get());
  std::sort(ops.begin(), ops.end(),
            [](const OpDef* a, const OpDef* b) { return a->name < b->name; });
  return ops;
}

}  // namespace detail

// ---- inference

void Inference::require_rank(int i, int rank, std::string_view what) const {
  if (shape(i).has_rank() && shape(i).rank() != rank)
    throw Error(Code::invalid_argument,
                fmt::format("{} must have rank {}, not shape {}", what, rank, shape(i).text()));
}

void Inference::require_dtype(int i, DType wanted, std::string_view what) const {
  if (dtype(i) != wanted)
    throw Error(Code::invalid_argument,
                fmt::format("{} must be {}, not {}", what, name_of(wanted), name_of(dtype(i))));
}

void Inference::require_index(int i, std::string_view what) const {
  if (dtype(i) != DType::i32 && dtype(i) != DType::i64)
    throw Error(Code::invalid_argument,
                fmt::format("{} must be i32 or i64, not {}", what, name_of(dtype(i))));
}

void Inference::require_floating(int i) const {
  require(is_floating(dtype(i)),
          [&] { return fmt::format("needs a floating dtype, not {}", name_of(dtype(i))); });
}

void Inference::require_same_dtype(int i, int j) const {
  if (dtype(i) != dtype(j))
    throw Error(Code::invalid_argument,
                fmt::format("inputs {} and {} must have one dtype, not {} and {}", i, j,
                            name_of(dtype(i)), name_of(dtype(j))));
}

static bool is_of_all_ops(std::string_view attribute) {
  return attribute == kWatched || attribute == kMadeBy;
}

namespace detail {

std::vector<ValueSpec> infer_outputs(const OpDef& op, std::span<const ValueSpec> inputs,
                                     Attrs& attrs) {
  int n = static_cast<int>(inputs.size());
  if (n < op.min_inputs || (op.max_inputs >= 0 && n > op.max_inputs))
    throw Error(Code::invalid_argument,
                op.min_inputs == op.max_inputs
                    ? fmt::format("takes {} inputs, not {}", op.min_inputs, n)
                    : fmt::format("takes at least {} inputs, not {}", op.min_inputs, n));
  if (!op.takes_lists)
    for (int i = 0; i < n; ++i)
      if (inputs[static_cast<std::size_t>(i)].is_list())
        throw Error(Code::invalid_argument,
                    fmt::format("input {} is a list; read, stack or concatenate it first", i));
  if (!op.takes_strings)
    for (int i = 0; i < n; ++i)
      if (inputs[static_cast<std::size_t>(i)].dtype == DType::string)
        throw Error(Code::invalid_argument,
                    fmt::format("input {} is of strings, with which it cannot compute", i));
  for (const AttrSpec& spec : op.attrs) {
    const AttrValue* given = attrs.find(spec.name);
    if (!given && spec.fallback) attrs.set(spec.name, *spec.fallback);
    else if (!given)
      throw Error(Code::invalid_argument, fmt::format("needs the attribute '{}'", spec.name));
    else if (given->index() != spec.type)
      throw Error(Code::invalid_argument, fmt::format("attribute '{}' = {} is of the wrong type",
                                                      spec.name, text_of(*given)));
  }
  for (const auto& [name, value] : attrs.entries())
    if (!(is_of_all_ops(name) && std::holds_alternative<std::string>(value)) &&
        std::none_of(op.attrs.begin(), op.attrs.end(),
                     [&, &n2 = name](const AttrSpec& s) { return s.name == n2; }))
      throw Error(Code::invalid_argument, fmt::format("has no attribute '{}'", name));
  Inference inference(inputs, attrs);
  op.infer(inference);
  // checked here, where the user's line is known, not at the allocation
  for (const ValueSpec& s : inference.outputs()) {
    std::int64_t bytes;
    if (!s.is_list() && s.shape.is_known() &&
        __builtin_mul_overflow(s.shape.elements(), static_cast<std::int64_t>(size_of(s.dtype)),
                               &bytes))
      throw Error(Code::invalid_argument,
                  "shape " + s.shape.text() + " has more bytes than 64 bits count");
  }
  return std::move(inference.outputs());
}

}  // namespace detail

namespace {

// Has the strings that a kernel yields keep their bytes themselves.
class KeepsText final : public Kernel {
 public:
  explicit KeepsText(std::unique_ptr<Kernel> inner) : inner_(std::move(inner)) {}
  void run(KernelContext& c) override {
    inner_->run(c);
    // else its Completion does, and the firing may have ended
    if (!c.was_deferred()) own_text(c.all_outputs());
  }

 private:
  std::unique_ptr<Kernel> inner_;
};

bool holds_string(std::span<const DType> types) {
  return std::find(types.begin(), types.end(), DType::string) != types.end();
}

}  // namespace

namespace detail {

void require_outputs(KernelContext& context) {
  if (context.was_deferred()) return;
  const std::span<Value> outputs = context.all_outputs();
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (!outputs[i].has_value())
      throw Error(Code::internal, fmt::format("its kernel has set no output {}", i));
}

std::unique_ptr<Kernel> make_node_kernel(const OpDef& op, const KernelSetup& setup) {
  const bool yields_strings = holds_string(setup.output_types);
  if (!setup.device.is_synchronous() && (yields_strings || holds_string(setup.input_types)) &&
      op.name != "Constant" && op.name != "Identity")
    throw Error(
        Code::unimplemented,
        fmt::format("{} of strings cannot run on {}: strings stay on the host; place it on a cpu",
                    op.name, setup.device.name()));
  if (const KernelFactory* own = find_device_kernel(setup.device.kind(), op.name))
    return (*own)(setup);
  if (!op.kernel)
    throw Error(Code::unimplemented,
                fmt::format("{} has no kernel for {}", op.name, setup.device.name()));
  if (!op.primitives.empty() && runs_on_host(op, setup.device, setup.output_types[0]))
    return make_host_kernel(op, setup);
  return yields_strings ? std::make_unique<KeepsText>(op.kernel(setup)) : op.kernel(setup);
}

}  // namespace detail

// ---- pointwise ops

namespace {

// 0.5 written for an integer, or -1 for an unsigned one, would compute something else.
void check_constants(const ScalarProgram& program) {
  for (const ScalarInstruction& i : program.code)
    if (i.op == ScalarOp::constant && is_integer(i.type) &&
        Tensor::scalar_as(i.type, i.constant).at(0) != i.constant)
      throw Error(Code::invalid_argument,
                  fmt::format("is not defined for {}: its constant {:g} is none", name_of(i.type),
                              i.constant));
}

}  // namespace

std::shared_ptr<const ScalarProgram> PointwiseExpression::program(std::span<const DType> inputs,
                                                                  const Attrs& attrs) const {
  // Without attributes the program depends on the dtypes alone: typed once for each combination.
  struct Cache {
    std::mutex mutex;  // guards programs
    // by expression and dtypes
    std::map<std::pair<const PointwiseExpression*, std::uint32_t>,
             std::shared_ptr<const ScalarProgram>>
        programs;
  };
  static Cache cache;
  // f16 and bf16 compute in f32, where they would meet anything unnoticed.
  for (DType a : inputs)
    for (DType b : inputs)
      if (a != b && a <= DType::bf16 && b != DType::boolean)
        throw Error(Code::invalid_argument,
                    fmt::format("operands of {} and {}: cast one of them", name_of(a), name_of(b)));
  auto make = [&] {
    Recorder recorder(arity_);
    record_(recorder, attrs);
    auto typed = std::make_shared<const ScalarProgram>(recorder.typed(inputs));
    check_constants(*typed);
    return typed;
  };
  if (!attrs.empty()) return make();
  std::lock_guard lock(cache.mutex);
  std::uint32_t dtypes = 1;
  for (DType t : inputs) dtypes = dtypes << 8 | static_cast<std::uint32_t>(t);
  auto& slot = cache.programs[{this, dtypes}];
  if (!slot) slot = make();
  return slot;
}

void OpBuilder::set_pointwise(int arity, PointwiseExpression::Record record) {
  inputs(arity);
  def_.pointwise = std::make_unique<PointwiseExpression>(arity, std::move(record));
  const PointwiseExpression* expression = def_.pointwise.get();
  def_.infer = [expression](Inference& c) {
    DType types[3];
    Shape shape = c.shape(0);
    for (int i = 0; i < c.inputs(); ++i) types[i] = c.dtype(i);
    for (int i = 1; i < c.inputs(); ++i) shape = broadcast(shape, c.shape(i));
    c.output(expression->program({types, std::size_t(c.inputs())}, c.attrs())->result_type(0),
             shape);
  };
  def_.kernel = [expression](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return make_pointwise_kernel(expression->program(s.input_types, s.attrs));
  };
}

}  // namespace troupe
