// Operations: signature, shape inference, gradient, kernel, traits; one op a file in ops/library/.
//
//   TROUPE_DSL(Expr tanh(Operand x))         // declared in <troupe/functions.hpp>, generated
//   Expr tanh(Operand x) { return bind1("Tanh", {x}); }
//
//   TROUPE_OP(Tanh) {
//     op.doc("Hyperbolic tangent of each element.");
//     op.pointwise([](auto x) { using namespace reference_scalar; return tanh(x); });
//     op.gradient([](Gradient& g) { g.set(0, g.dy() * (1.0 - square(g.y()))); });
//   }
//
// Invariants: 1. a name is registered once, before main; 2. a definition never changes afterwards;
// 3. `infer` runs whenever a node is made and throws on a wrong program; 4. a kernel may rely on
// the checks of `infer`, and checks itself only unknown extents and data.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <troupe/devices/device/kernel.hpp>
#include <troupe/ops/graph/expr.hpp>

namespace troupe::detail {

/// The effect of an op on its state. Reads do not order against reads, nor enqueues against
/// dequeues.
enum class Effect : std::uint8_t { none, read, write, enqueue, dequeue };
/// Returns true if the two effects on one state must run in program order.
constexpr bool conflicts(Effect a, Effect b) {
  if (a == Effect::none || b == Effect::none) return false;
  if (a == Effect::read && b == Effect::read) return false;
  return !((a == Effect::enqueue && b == Effect::dequeue) ||
           (a == Effect::dequeue && b == Effect::enqueue));
}

/// The inputs and results of shape inference.
class Inference {
 public:
  Inference(std::span<const ValueSpec> inputs, const Attrs& attrs)
      : inputs_(inputs), attrs_(attrs) {}
  int inputs() const { return static_cast<int>(inputs_.size()); }
  const ValueSpec& input(int i) const { return inputs_[i]; }
  DType dtype(int i) const { return inputs_[i].dtype; }
  const Shape& shape(int i) const { return inputs_[i].shape; }
  const Attrs& attrs() const { return attrs_; }
  void output(DType dtype, const Shape& shape) { outputs_.push_back({dtype, shape}); }
  void output(ValueSpec spec) { outputs_.push_back(std::move(spec)); }
  std::vector<ValueSpec>& outputs() { return outputs_; }

  /// Throws invalid_argument with `message` unless `condition`.
  void require(bool condition, std::string_view message) const {
    if (!condition) throw Error(Code::invalid_argument, std::string(message));
  }
  /// Makes the message, which takes long, only if `condition` is false.
  template <std::invocable Message>
  void require(bool condition, Message message) const {
    if (!condition) throw Error(Code::invalid_argument, message());
  }
  /// Input i has rank `rank` if its rank is known.
  void require_rank(int i, int rank, std::string_view what) const;
  void require_dtype(int i, DType dtype, std::string_view what) const;
  void require_index(int i, std::string_view what) const;
  void require_same_dtype(int i, int j) const;
  void require_floating(int i) const;

 private:
  std::span<const ValueSpec> inputs_;
  const Attrs& attrs_;
  std::vector<ValueSpec> outputs_;
};

class Evaluate;
class Gradient;
class OpBuilder;
struct Node;

struct AttrSpec {
  std::string name;
  std::size_t type = 0;               // index into AttrValue
  std::optional<AttrValue> fallback;  // required if none
};

/// The scalar expression of a pointwise op.
class PointwiseExpression {
 public:
  using Record = std::function<void(Recorder&, const Attrs&)>;
  PointwiseExpression(int arity, Record record) : arity_(arity), record_(std::move(record)) {}
  int arity() const { return arity_; }
  /// The typed program; throws invalid_argument if the dtypes do not fit.
  std::shared_ptr<const ScalarProgram> program(std::span<const DType> inputs,
                                               const Attrs& attrs) const;

 private:
  int arity_;
  Record record_;
};

struct OpDef {
  std::string name;
  std::string doc;
  int min_inputs = 0;
  int max_inputs = 0;  // -1: any number
  std::vector<AttrSpec> attrs;
  std::function<void(Inference&)> infer;
  std::function<void(Gradient&)> gradient;  // empty: none exists
  KernelFactory kernel;
  /// Primitives that the kernel calls and that a device may lack (Primitives::has), on elements of
  /// its first output's dtype.
  std::vector<Primitive> primitives;
  /// The eager kernel of an op whose nodes hold sub-graphs (ops/eager/evaluate.hpp). Lowering
  /// removes such nodes before an executor runs the program.
  std::function<std::vector<Value>(Evaluate&, const Node&, std::vector<Value>)> evaluate;
  std::unique_ptr<PointwiseExpression> pointwise;
  // a pointwise lambda on doubles (parameters at their defaults)
  std::function<double(std::span<const double>)> reference;
  Effect effect = Effect::none;
  bool random = false;         // draws: never folded, never merged
  bool side_effect = false;    // acts on the world: never folded, never merged
  bool commutative = false;    // inputs may be swapped
  bool takes_lists = false;    // else inference refuses them before it calls the op's `infer`
  bool takes_strings = false;  // else inference refuses them, too
  bool differentiable = true;  // false: its gradient is none by definition (Argmax, Shape)
  // inputs of which only the shape (or a list's length) is used: bit i, the last for all from 63 on
  std::uint64_t shape_only = 0;

  bool takes_only_shape(std::size_t i) const { return shape_only >> (i < 63 ? i : 63) & 1; }

  /// May be evaluated early or merged with its equals.
  bool is_pure() const { return effect == Effect::none && !random && !side_effect; }
};

/// Throws not_found, with the nearest name, if there is none.
const OpDef& find_op(std::string_view name);
/// All registered ops, by name.
std::vector<const OpDef*> all_ops();

/// Throws internal if a kernel has returned without one of its outputs.
void require_outputs(KernelContext& context);

/// Fills one definition; the argument of TROUPE_OP's body.
class OpBuilder {
 public:
  explicit OpBuilder(OpDef& def) : def_(def) {}
  void doc(std::string text) { def_.doc = std::move(text); }
  void inputs(int exactly) { def_.min_inputs = def_.max_inputs = exactly; }
  void inputs(int at_least, int at_most) {
    def_.min_inputs = at_least;
    def_.max_inputs = at_most;
  }
  template <class T>
  void attr(std::string name) {
    def_.attrs.push_back({std::move(name), AttrValue(T{}).index(), std::nullopt});
  }
  template <class T>
  void attr(std::string name, T fallback) {
    AttrValue value(std::move(fallback));
    def_.attrs.push_back({std::move(name), value.index(), value});
  }
  void infer(std::function<void(Inference&)> f) { def_.infer = std::move(f); }
  void gradient(std::function<void(Gradient&)> f) { def_.gradient = std::move(f); }
  void not_differentiable() { def_.differentiable = false; }
  void kernel(KernelFactory f) { def_.kernel = std::move(f); }
  /// A kernel that is one function and keeps nothing between firings. It sets each output, or the
  /// run fails.
  void run(void (*f)(KernelContext&)) {
    def_.kernel = [f](const KernelSetup&) {
      return make_kernel([f](KernelContext& c) {
        f(c);
        require_outputs(c);
      });
    };
  }
  /// A kernel that is one function of its context and the node's attributes.
  void run(void (*f)(KernelContext&, const Attrs&)) {
    def_.kernel = [f](const KernelSetup& s) {
      return make_kernel([f, a = s.attrs](KernelContext& c) {
        f(c, a);
        require_outputs(c);
      });
    };
  }
  /// The kernel calls these primitives. On a device that lacks one the kernel runs on the host.
  void calls(std::initializer_list<Primitive> which) { def_.primitives = which; }
  /// A functional op: its nodes hold sub-graphs in the attribute `graphs`, or refer to a function
  /// in the attribute `function`. Never folded, never merged.
  void evaluate(std::function<std::vector<Value>(Evaluate&, const Node&, std::vector<Value>)> f,
                const char* attribute = "graphs") {
    def_.evaluate = std::move(f);
    def_.side_effect = def_.takes_lists = def_.takes_strings = true;
    attr<std::shared_ptr<const AttrObject>>(attribute);
  }
  void effect(Effect e) { def_.effect = e; }
  void random() { def_.random = true; }
  void side_effect() { def_.side_effect = true; }
  void commutative() { def_.commutative = true; }
  /// Only the shapes of these inputs are used; of a list, its length and its elements' shapes.
  void shape_only(std::initializer_list<int> which) {
    for (int i : which) def_.shape_only |= std::uint64_t{1} << i;
  }
  void shape_only_from(int first) { def_.shape_only |= ~std::uint64_t{0} << first; }
  /// Inputs may be lists; `infer` checks which.
  void takes_lists() { def_.takes_lists = true; }
  /// Inputs may be of strings: the op moves elements, or uses shapes.
  void takes_strings() { def_.takes_strings = true; }

  /// A pointwise op: inputs, inference, broadcasting and kernel follow from the scalar expression,
  /// a generic lambda of as many scalars as there are inputs. `parameters` names attributes (with
  /// defaults, declared before by attr<double>) that the lambda takes after them.
  template <class F>
  void pointwise(F f) {
    if constexpr (std::is_invocable_v<F, Symbol>) pointwise_n<1>(f);
    else if constexpr (std::is_invocable_v<F, Symbol, Symbol>) pointwise_n<2>(f);
    else pointwise_n<3>(f);
  }
  template <int Inputs, class F>
  void pointwise(F f, std::vector<std::string> parameters) {
    set_pointwise(Inputs, [f, parameters](Recorder& r, const Attrs& attrs) {
      std::vector<Symbol> p;
      for (const std::string& name : parameters) p.emplace_back(attrs.get<double>(name));
      if constexpr (std::is_invocable_v<F, Symbol, std::vector<Symbol>>) r.finish(f(r.input(0), p));
      else r.finish(f(r.input(0), r.input(1), p));
    });
  }
  /// A pointwise op whose lambda reads the attributes themselves (a cast's dtype).
  void pointwise_recorded(int inputs, PointwiseExpression::Record record) {
    set_pointwise(inputs, std::move(record));
  }

 private:
  template <int N, class F>
  void pointwise_n(F f) {
    set_pointwise(N, [f](Recorder& r, const Attrs&) {
      if constexpr (N == 1) r.finish(f(r.input(0)));
      else if constexpr (N == 2) {
        Symbol a = r.input(0), b = r.input(1);
        r.finish(f(a, b));
      } else {
        Symbol a = r.input(0), b = r.input(1), c = r.input(2);
        r.finish(f(a, b, c));
      }
    });
    def_.reference = [f](std::span<const double> x) -> double {
      if constexpr (N == 1) return f(x[0]);
      else if constexpr (N == 2) return f(x[0], x[1]);
      else return f(x[0], x[1], x[2]);
    };
  }
  void set_pointwise(int inputs, PointwiseExpression::Record record);
  OpDef& def_;
};

struct RegisterOp {
  RegisterOp(const char* name, void (*define)(OpBuilder&));
};

/// Checks inputs and attributes against the signature, fills defaults, infers the outputs.
/// Throws invalid_argument without the op's name or line; the reader adds both.
std::vector<ValueSpec> infer_outputs(const OpDef& op, std::span<const ValueSpec> inputs,
                                     Attrs& attrs);

/// The kernel of a node for its device: the device's own, else the op's.
/// Throws unimplemented if there is neither.
std::unique_ptr<Kernel> make_node_kernel(const OpDef& op, const KernelSetup& setup);

}  // namespace troupe::detail

/// Declares a function of the DSL; the build collects these lines, with the `///` lines above
/// them, into <troupe/functions.hpp>.
#define TROUPE_DSL(...)

/// Defines and registers one op: TROUPE_OP(Tanh) { op.doc(...); ... }
#define TROUPE_OP(Name)                                                                  \
  static void define_op_##Name(::troupe::detail::OpBuilder& op);                         \
  static const ::troupe::detail::RegisterOp register_op_##Name(#Name, define_op_##Name); \
  static void define_op_##Name([[maybe_unused]] ::troupe::detail::OpBuilder& op)
