#include <troupe/devices/scalar/scalar_program.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::detail {

int PreparedSlots::claim() {
  static std::atomic<int> next{kCpu + 1};  // publishes nothing but itself
  const int slot = next.fetch_add(1, std::memory_order_relaxed);
  if (slot >= kSlots)
    throw Error(Code::resource_exhausted,
                fmt::format("scalar programs keep what {} kinds of devices prepare, and all are "
                            "taken; load fewer device plug-ins",
                            kSlots));
  return slot;
}

std::string_view name_of(ScalarOp op) {
  constexpr std::string_view names[kScalarOps] = {
      "input",       "constant",   "cast",        "neg",     "abs",       "sign",    "sqrt",
      "rsqrt",       "reciprocal", "square",      "exp",     "expm1",     "log",     "log1p",
      "sin",         "cos",        "tan",         "asin",    "acos",      "atan",    "sinh",
      "cosh",        "tanh",       "asinh",       "acosh",   "atanh",     "erf",     "erfc",
      "gelu",        "gelu_slope", "sigmoid",     "floor",   "ceil",      "round",   "trunc",
      "logical_not", "bit_not",    "is_nan",      "is_inf",  "is_finite", "add",     "sub",
      "mul",         "div",        "floor_div",   "mod",     "pow",       "atan2",   "min",
      "max",         "eq",         "ne",          "lt",      "le",        "gt",      "ge",
      "logical_and", "logical_or", "logical_xor", "bit_and", "bit_or",    "bit_xor", "shift_left",
      "shift_right", "select"};
  return names[static_cast<int>(op)];
}

Symbol Recorder::input(int i) {
  Entry e{ScalarOp::input};
  e.operand[0] = static_cast<std::int16_t>(i);
  code_.push_back(e);
  return {this, static_cast<std::int16_t>(code_.size() - 1)};
}

std::int16_t Recorder::intern(Symbol s) {
  if (s.recorder()) return s.id();
  Entry e{ScalarOp::constant};
  e.constant = s.literal();
  code_.push_back(e);
  return static_cast<std::int16_t>(code_.size() - 1);
}

Symbol Recorder::record(ScalarOp op, std::initializer_list<Symbol> operands) {
  Entry e{op};
  int i = 0;
  for (Symbol s : operands) e.operand[i++] = intern(s);
  code_.push_back(e);
  return {this, static_cast<std::int16_t>(code_.size() - 1)};
}

Symbol Recorder::cast(Symbol x, DType type) {
  if (type == DType::string) throw Error(Code::invalid_argument, "nothing is cast to strings");
  Entry e{ScalarOp::cast};
  e.operand[0] = intern(x);
  e.cast_to = type;
  code_.push_back(e);
  return {this, static_cast<std::int16_t>(code_.size() - 1)};
}

namespace {

constexpr bool is_stored_only(DType t) { return t == DType::f16 || t == DType::bf16; }

bool supports(ScalarOp op, DType t) {
  using enum ScalarOp;
  switch (op) {
    case input:
    case constant:
    case cast:
    case eq:
    case ne: return true;
    case add:
    case sub:
    case mul:
    case div:
    case neg:
    case reciprocal:
    case square: return t != DType::boolean;
    case select: return true;
    case logical_not:
    case logical_and:
    case logical_or:
    case logical_xor: return t == DType::boolean;
    case bit_not:
    case bit_and:
    case bit_or:
    case bit_xor:
    case shift_left:
    case shift_right: return is_integer(t);
    case abs:
    case sign:
    case floor_div:
    case mod:
    case min:
    case max:
    case lt:
    case le:
    case gt:
    case ge:
    case floor:
    case ceil:
    case round:
    case trunc: return is_floating(t) || is_integer(t);
    case pow: return t != DType::boolean;
    case sqrt:
    case rsqrt:
    case exp:
    case log:
    case sin:
    case cos:
    case tan:
    case asin:
    case acos:
    case atan:
    case sinh:
    case cosh:
    case tanh:
    case asinh:
    case acosh:
    case atanh:
    case sigmoid:
    case expm1:
    case log1p: return is_floating(t) || is_complex(t);
    default: return is_floating(t);
  }
}

// Types the tape, one instruction after the other. A constant takes the type of its user, so
// constants are written at their uses. The caller's error names the whole tape, which has a name
// elsewhere: relu is refused, not the max that it is made with.
class Typer {
 public:
  explicit Typer(std::span<const DType> inputs) {
    program_.inputs.assign(inputs.begin(), inputs.end());
  }

  struct Typed {
    std::int16_t id = -1;  // -1: a constant without a slot yet
    DType type = DType::f32;
    double constant = 0;
  };

  Typed input(int i) {
    DType stored = program_.inputs[i];
    Typed t = emit({ScalarOp::input, stored, {static_cast<std::int16_t>(i), 0, 0}});
    return is_stored_only(stored) ? convert(t, DType::f32) : t;
  }
  Typed constant(double value) { return {-1, DType::f32, value}; }
  Typed convert(Typed t, DType to) {
    if (t.id < 0) return place(t, to);
    if (t.type == to) return t;
    return emit({ScalarOp::cast, to, {t.id, 0, 0}});
  }
  Typed place(Typed t, DType type) {
    if (t.id >= 0) return t;
    ScalarInstruction c{ScalarOp::constant, type, {}};
    c.constant = t.constant;
    return emit(c);
  }

  Typed operate(ScalarOp op, std::array<Typed, 3> operands, DType literal_type) {
    int n = arity(op), first = op == ScalarOp::select ? 1 : 0;
    DType type = literal_type;
    bool known = false;
    for (int i = 0; i < n; ++i)
      if (operands[i].id >= 0 && is_stored_only(operands[i].type))
        operands[i] = convert(operands[i], DType::f32);
    for (int i = first; i < n; ++i) {
      if (operands[i].id < 0) continue;
      if (known && operands[i].type != type)
        throw Error(Code::invalid_argument,
                    fmt::format("operands of {} and {}: cast one of them", name_of(as_given(type)),
                                name_of(as_given(operands[i].type))));
      type = operands[i].type;
      known = true;
    }
    if (op == ScalarOp::select) {
      operands[0] = place(operands[0], DType::boolean);
      if (operands[0].type != DType::boolean)
        throw Error(Code::invalid_argument, fmt::format("the condition must be bool, not {}",
                                                        name_of(as_given(operands[0].type))));
    }
    bool logic =
        op == ScalarOp::logical_not || (op >= ScalarOp::logical_and && op <= ScalarOp::logical_xor);
    if (!known && logic) type = DType::boolean;
    if (!supports(op, type))
      throw Error(Code::invalid_argument,
                  fmt::format("is not defined for {}", name_of(as_given(type))));
    ScalarInstruction i{op, yields_bool(op) ? DType::boolean : type, {}};
    for (int k = 0; k < n; ++k)
      i.operand[k] = place(operands[k], k < first ? DType::boolean : type).id;
    return emit(i);
  }

  void finish(Typed t) { program_.results.push_back(t.id); }
  ScalarProgram take() { return std::move(program_); }

 private:
  // Returns the type as the caller sees it: f32 stands for f16 and bf16 if the inputs, which are of
  // one dtype, have that type.
  DType as_given(DType type) const {
    for (DType t : program_.inputs)
      if (type == DType::f32 && is_stored_only(t)) return t;
    return type;
  }
  Typed emit(ScalarInstruction i) {
    program_.code.push_back(i);
    return {static_cast<std::int16_t>(program_.code.size() - 1), i.type, 0};
  }
  ScalarProgram program_;
};

}  // namespace

ScalarProgram Recorder::typed(std::span<const DType> inputs) const {
  if (static_cast<int>(inputs.size()) != inputs_)
    throw Error(Code::internal,
                fmt::format("a tape of {} inputs was typed for {}", inputs_, inputs.size()));
  if (std::find(inputs.begin(), inputs.end(), DType::string) != inputs.end()) refuse_strings();
  // Literals that meet no symbol (f(x) = 1) take the type of the first input that is no bool.
  DType fallback = DType::f32;
  for (DType t : inputs)
    if (t != DType::boolean) {
      fallback = t;
      break;
    }
  DType compute = is_stored_only(fallback) ? DType::f32 : fallback;
  Typer typer(inputs);
  std::vector<Typer::Typed> values;
  for (const Entry& e : code_) {
    switch (e.op) {
      case ScalarOp::input: values.push_back(typer.input(e.operand[0])); break;
      case ScalarOp::constant: values.push_back(typer.constant(e.constant)); break;
      case ScalarOp::cast: {
        Typer::Typed x = values[e.operand[0]];
        values.push_back(typer.convert(x, e.cast_to));
        break;
      }
      default: {
        std::array<Typer::Typed, 3> operands{};
        for (int i = 0; i < arity(e.op); ++i) operands[i] = values[e.operand[i]];
        values.push_back(typer.operate(e.op, operands, compute));
      }
    }
  }
  for (std::int16_t r : results_) {
    Typer::Typed result = typer.place(values[r], compute);
    // Computed in f32 for a stored-only dtype: round to it, unless the tape itself cast elsewhere.
    bool is_cast = code_[r].op == ScalarOp::cast;
    if (result.type == DType::f32 && is_stored_only(fallback) && !is_cast)
      result = typer.convert(result, fallback);
    typer.finish(result);
  }
  return typer.take();
}

namespace {

double rounded_to(DType type, double x) {
  return visit_dtype(type, [&]<class T>(type_tag<T>) -> double {
    if constexpr (std::is_same_v<T, bool>) return x != 0;
    else if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>) return float(T(x));
    else if constexpr (std::is_integral_v<T>)
      return static_cast<double>(static_cast<T>(static_cast<std::int64_t>(x)));
    else return x;
  });
}

double evaluate_op(ScalarOp op, double x, double y, double z) {
  namespace ref = reference_scalar;
  using enum ScalarOp;
  switch (op) {
    case neg: return -x;
    case abs: return ref::abs(x);
    case sign: return ref::sign(x);
    case sqrt: return ref::sqrt(x);
    case rsqrt: return ref::rsqrt(x);
    case reciprocal: return ref::reciprocal(x);
    case square: return ref::square(x);
    case exp: return ref::exp(x);
    case expm1: return ref::expm1(x);
    case log: return ref::log(x);
    case log1p: return ref::log1p(x);
    case sin: return ref::sin(x);
    case cos: return ref::cos(x);
    case tan: return ref::tan(x);
    case asin: return ref::asin(x);
    case acos: return ref::acos(x);
    case atan: return ref::atan(x);
    case sinh: return ref::sinh(x);
    case cosh: return ref::cosh(x);
    case tanh: return ref::tanh(x);
    case asinh: return ref::asinh(x);
    case acosh: return ref::acosh(x);
    case atanh: return ref::atanh(x);
    case erf: return ref::erf(x);
    case erfc: return ref::erfc(x);
    case gelu: return ref::gelu(x);
    case gelu_slope: return ref::gelu_slope(x);
    case sigmoid: return ref::sigmoid(x);
    case floor: return ref::floor(x);
    case ceil: return ref::ceil(x);
    case round: return ref::round(x);
    case trunc: return ref::trunc(x);
    case logical_not: return x == 0;
    case bit_not: return ref::bit_not(x);
    case is_nan: return std::isnan(x);
    case is_inf: return std::isinf(x);
    case is_finite: return std::isfinite(x);
    case add: return x + y;
    case sub: return x - y;
    case mul: return x * y;
    case div: return x / y;
    case floor_div: return ref::floor_div(x, y);
    case mod: return ref::mod(x, y);
    case pow: return ref::pow(x, y);
    case atan2: return ref::atan2(x, y);
    case min: return ref::min(x, y);
    case max: return ref::max(x, y);
    case eq: return x == y;
    case ne: return x != y;
    case lt: return x < y;
    case le: return x <= y;
    case gt: return x > y;
    case ge: return x >= y;
    case logical_and: return x != 0 && y != 0;
    case logical_or: return x != 0 || y != 0;
    case logical_xor: return (x != 0) != (y != 0);
    case bit_and: return ref::bit_and(x, y);
    case bit_or: return ref::bit_or(x, y);
    case bit_xor: return ref::bit_xor(x, y);
    case shift_left: return ref::shift_left(x, y);
    case shift_right: return ref::shift_right(x, y);
    case select: return x != 0 ? y : z;
    case input:
    case constant:
    case cast: break;
  }
  return 0;
}

}  // namespace

std::vector<double> ScalarProgram::evaluate(std::span<const double> arguments) const {
  std::vector<double> values;
  values.reserve(code.size());
  for (const ScalarInstruction& i : code) {
    double v;
    if (i.op == ScalarOp::input) v = arguments[i.operand[0]];
    else if (i.op == ScalarOp::constant) v = i.constant;
    else if (i.op == ScalarOp::cast) v = values[i.operand[0]];
    else {
      int n = arity(i.op);
      v = evaluate_op(i.op, values[i.operand[0]], n > 1 ? values[i.operand[1]] : 0,
                      n > 2 ? values[i.operand[2]] : 0);
      // An integer quotient is cut towards zero, and x / 0 is 0 (devices/NOTES.md).
      if (is_integer(i.type) && !std::isfinite(v)) v = 0;
      if (is_integer(i.type) && i.op == ScalarOp::div) v = std::trunc(v);
    }
    values.push_back(rounded_to(i.type, v));
  }
  std::vector<double> out;
  for (std::int16_t r : results) out.push_back(values[r]);
  return out;
}

std::string ScalarProgram::text() const {
  std::string out;
  for (std::size_t k = 0; k < code.size(); ++k) {
    const ScalarInstruction& i = code[k];
    out += fmt::format("%{}:{} = {}", k, name_of(i.type), name_of(i.op));
    if (i.op == ScalarOp::input) out += fmt::format(" {}", i.operand[0]);
    else if (i.op == ScalarOp::constant) out += fmt::format(" {:g}", i.constant);
    else
      for (int n = 0; n < arity(i.op); ++n) out += fmt::format(" %{}", i.operand[n]);
    out += '\n';
  }
  for (std::int16_t r : results) out += fmt::format("-> %{}\n", r);
  return out;
}

}  // namespace troupe::detail
