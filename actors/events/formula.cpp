#include <troupe/actors/events/formula.hpp>

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::events {

using FormulaOp = Formula::Op;

struct Formula::Node {
  FormulaOp op;
  std::string name;
  Value constant;
  std::optional<Formula> left, right;
};

namespace {

constexpr const char* kFormulaSigns[] = {
    "", "", "+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "!"};
const char* formula_sign(FormulaOp op) { return kFormulaSigns[static_cast<std::size_t>(op)]; }

bool formula_compares(FormulaOp op) { return op >= FormulaOp::eq && op <= FormulaOp::ge; }
bool formula_is_logic(FormulaOp op) { return op >= FormulaOp::both; }

/// The type of `a op b`; nothing if there is none.
std::optional<Type> formula_type(FormulaOp op, Type a, Type b) {
  const bool has_text = a == Type::text || b == Type::text;
  if (formula_compares(op)) {
    if (has_text && a != b) return std::nullopt;
    return Type::integer;
  }
  if (has_text) return std::nullopt;
  const bool is_integer = a == Type::integer && b == Type::integer;
  if (formula_is_logic(op) || op == FormulaOp::mod)
    return is_integer ? std::optional(Type::integer) : std::nullopt;
  if (op == FormulaOp::div) return Type::real;
  return is_integer ? Type::integer : Type::real;
}

template <class T, class A, class B, class F>
std::vector<T> formula_map(std::size_t n, const A& a, const B& b, F f) {
  std::vector<T> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
  return out;
}

/// A constant, as a column of any length.
template <class T>
struct FormulaConstant {
  const T& value;
  const T& operator[](std::size_t) const { return value; }
};

template <class A, class B>
Column formula_compare(FormulaOp op, std::size_t n, const A& a, const B& b) {
  using I = std::int64_t;
  switch (op) {
    case FormulaOp::eq:
      return formula_map<I>(n, a, b, [](auto& x, auto& y) -> I { return x == y; });
    case FormulaOp::ne:
      return formula_map<I>(n, a, b, [](auto& x, auto& y) -> I { return x != y; });
    case FormulaOp::lt: return formula_map<I>(n, a, b, [](auto& x, auto& y) -> I { return x < y; });
    case FormulaOp::le:
      return formula_map<I>(n, a, b, [](auto& x, auto& y) -> I { return x <= y; });
    case FormulaOp::gt: return formula_map<I>(n, a, b, [](auto& x, auto& y) -> I { return x > y; });
    default: return formula_map<I>(n, a, b, [](auto& x, auto& y) -> I { return x >= y; });
  }
}

template <class A, class B>
Column formula_reals(FormulaOp op, std::size_t n, const A& a, const B& b) {
  using R = double;
  const auto r = [](auto x) { return static_cast<R>(x); };
  switch (op) {
    case FormulaOp::add:
      return formula_map<R>(n, a, b, [r](auto x, auto y) { return r(x) + r(y); });
    case FormulaOp::sub:
      return formula_map<R>(n, a, b, [r](auto x, auto y) { return r(x) - r(y); });
    case FormulaOp::mul:
      return formula_map<R>(n, a, b, [r](auto x, auto y) { return r(x) * r(y); });
    default: return formula_map<R>(n, a, b, [r](auto x, auto y) { return r(x) / r(y); });
  }
}

template <class A, class B>
Column formula_integers(FormulaOp op, std::size_t n, const A& a, const B& b) {
  using I = std::int64_t;
  using U = std::uint64_t;
  const auto u = [](I x) { return static_cast<U>(x); };
  const auto i = [](U x) { return static_cast<I>(x); };
  switch (op) {
    case FormulaOp::add: return formula_map<I>(n, a, b, [=](I x, I y) { return i(u(x) + u(y)); });
    case FormulaOp::sub: return formula_map<I>(n, a, b, [=](I x, I y) { return i(u(x) - u(y)); });
    case FormulaOp::mul: return formula_map<I>(n, a, b, [=](I x, I y) { return i(u(x) * u(y)); });
    case FormulaOp::mod:
      return formula_map<I>(n, a, b, [](I x, I y) -> I { return y == 0 || y == -1 ? 0 : x % y; });
    case FormulaOp::both: return formula_map<I>(n, a, b, [](I x, I y) -> I { return x && y; });
    case FormulaOp::either: return formula_map<I>(n, a, b, [](I x, I y) -> I { return x || y; });
    default: return formula_map<I>(n, a, b, [](I x, I) -> I { return !x; });
  }
}

}  // namespace

Formula::Formula(Value value)
    : node_(std::make_shared<const Node>(Node{FormulaOp::constant, "", std::move(value), {}, {}})) {
}

Formula::Formula(Op op, Formula left, Formula right)
    : node_(std::make_shared<const Node>(Node{op, "", {}, std::move(left), std::move(right)})) {}

Formula Formula::of_field(std::string name) {
  return Formula(std::make_shared<const Node>(Node{FormulaOp::field, std::move(name), {}, {}, {}}));
}

std::string Formula::text() const {
  if (node_->op == FormulaOp::field) return node_->name;
  if (node_->op == FormulaOp::constant) return text_of(node_->constant);
  if (node_->op == FormulaOp::no) return "!" + node_->left->text();
  return fmt::format("({} {} {})", node_->left->text(), formula_sign(node_->op),
                     node_->right->text());
}

std::vector<Formula> Formula::conjuncts() const {
  if (node_->op != FormulaOp::both) return {*this};
  std::vector<Formula> all = node_->left->conjuncts();
  for (Formula& part : node_->right->conjuncts()) all.push_back(std::move(part));
  return all;
}

std::vector<std::string> Formula::fields() const {
  if (node_->op == FormulaOp::field) return {node_->name};
  if (node_->op == FormulaOp::constant) return {};
  std::vector<std::string> all = node_->left->fields();
  for (std::string& name : node_->right->fields())
    if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(std::move(name));
  return all;
}

std::optional<std::pair<std::string, std::string>> Formula::equal_fields() const {
  if (node_->op != FormulaOp::eq || node_->left->node_->op != FormulaOp::field ||
      node_->right->node_->op != FormulaOp::field)
    return std::nullopt;
  return std::pair(node_->left->node_->name, node_->right->node_->name);
}

BoundFormula Formula::bind(const Schema& schema) const {
  BoundFormula bound;
  bound.op_ = node_->op;
  if (node_->op == FormulaOp::field) {
    bound.field_ = schema.index(node_->name);
    bound.type_ = schema[bound.field_].type;
  } else if (node_->op == FormulaOp::constant) {
    bound.constant_ = node_->constant;
    bound.type_ = type_of(node_->constant);
  } else {
    bound.left_ = std::make_shared<const BoundFormula>(node_->left->bind(schema));
    bound.right_ = std::make_shared<const BoundFormula>(node_->right->bind(schema));
    const auto type = formula_type(node_->op, bound.left_->type_, bound.right_->type_);
    if (!type)
      throw Error(Code::invalid_argument,
                  fmt::format("'{}' takes no {} and {} in {}; convert one", formula_sign(node_->op),
                              name_of(bound.left_->type_), name_of(bound.right_->type_), text()));
    bound.type_ = *type;
  }
  return bound;
}

/// Columns are borrowed from the batch where they stand there.
struct BoundFormula::Operand {
  const Column* column = nullptr;
  const Value* constant = nullptr;
  Column own = {};

  /// Calls `f` with something that has values by position.
  template <class F>
  auto visit(F&& f) const {
    if (constant)
      return std::visit(
          [&](const auto& v) { return f(FormulaConstant<std::decay_t<decltype(v)>>{v}); },
          *constant);
    return std::visit([&](const auto& values) { return f(values); }, column ? *column : own);
  }
};

BoundFormula::Operand BoundFormula::operand(const Batch& batch) const {
  if (op_ == FormulaOp::field) return {&batch.columns[field_], nullptr, {}};
  if (op_ == FormulaOp::constant) return {nullptr, &constant_, {}};
  return combine(left_->operand(batch), right_->operand(batch), batch.size());
}

BoundFormula::Operand BoundFormula::combine(const Operand& a, const Operand& b,
                                            std::size_t n) const {
  return a.visit([&](const auto& x) {
    return b.visit([&](const auto& y) -> Operand {
      using X = std::decay_t<decltype(x[0])>;
      using Y = std::decay_t<decltype(y[0])>;
      constexpr bool is_x = std::is_same_v<X, std::string>, is_y = std::is_same_v<Y, std::string>;
      if constexpr (is_x != is_y) {
        return {};  // `bind` refuses it
      } else {
        if (formula_compares(op_)) return {nullptr, nullptr, formula_compare(op_, n, x, y)};
        if constexpr (!is_x) {
          if (type_ == Type::real) return {nullptr, nullptr, formula_reals(op_, n, x, y)};
          if constexpr (std::is_same_v<X, std::int64_t> && std::is_same_v<Y, std::int64_t>)
            return {nullptr, nullptr, formula_integers(op_, n, x, y)};
        }
        return {};
      }
    });
  });
}

Column BoundFormula::evaluate(const Batch& batch) const {
  Operand result = operand(batch);
  if (result.column) return *result.column;
  if (!result.constant) return std::move(result.own);
  return std::visit(
      [&](const auto& value) -> Column {
        return std::vector<std::decay_t<decltype(value)>>(batch.size(), value);
      },
      *result.constant);
}

Value BoundFormula::evaluate(const Lookup& at) const {
  Value own;
  const Value& value = peek(at, own);
  return &value == &own ? std::move(own) : value;
}

/// Returns the value where it stands, else puts it into `own`.
const Value& BoundFormula::peek(const Lookup& at, Value& own) const {
  if (op_ == FormulaOp::field) return at(field_);
  if (op_ == FormulaOp::constant) return constant_;
  Value left, right;
  const Operand a{nullptr, &left_->peek(at, left), {}}, b{nullptr, &right_->peek(at, right), {}};
  return own = value_at(combine(a, b, 1).own, 0);
}

std::vector<std::uint8_t> BoundFormula::marks(const Batch& batch) const {
  std::vector<std::uint8_t> marks(batch.size());
  operand(batch).visit([&](const auto& values) {
    if constexpr (std::is_same_v<std::decay_t<decltype(values[0])>, std::int64_t>)
      for (std::size_t i = 0; i < marks.size(); ++i) marks[i] = values[i] != 0;
  });
  return marks;
}

int BoundFormula::only_field() const {
  return op_ == FormulaOp::field ? static_cast<int>(field_) : -1;
}

}  // namespace troupe::events
