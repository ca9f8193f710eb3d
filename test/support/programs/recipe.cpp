#include <troupe/test/support/programs/recipe.hpp>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/tape.hpp>

namespace troupe::test {

const Rule* find_rule(const std::string& name) {
  static const std::map<std::string, const Rule*> by_name = [] {
    std::map<std::string, const Rule*> all;
    for (const Rule& r : rules()) all[r.name] = &r;
    return all;
  }();
  auto it = by_name.find(name);
  return it == by_name.end() ? nullptr : it->second;
}

// ---- building

static bool has_calls(const Block& b) {
  return std::any_of(b.statements.begin(), b.statements.end(), [](const Statement& s) {
    return s.op == "call" || std::any_of(s.blocks.begin(), s.blocks.end(),
                                         [](const Block& inner) { return has_calls(inner); });
  });
}

Kitchen::Kitchen(const Recipe& recipe, Graph& graph, Devices devices, Slopes slopes)
    : recipe_(recipe), g(graph), graph_(&graph), scope_(nullptr), devices_(devices),
      slopes_(slopes) {
  for (const Recipe::Input& in : recipe.inputs)
    inputs_.push_back(graph.input(fmt::format("x{}", in.name.id), dtype_of_type(in.name.type),
                                  shape_of_type(in.name.type)));
  for (std::size_t k = 0; k < recipe.variables.size(); ++k) {
    const Recipe::Var& v = recipe.variables[k];
    auto scope = on(home_of(v));
    variables_.push_back(g.variable(fmt::format("v{}", k), tensor(v.type, v.initial)));
  }
  make_all();
}

Kitchen::Kitchen(const Recipe& recipe, Eager& scope, Exprs inputs, std::vector<Variable> variables,
                 Devices devices)
    : recipe_(recipe), g(scope), graph_(nullptr), scope_(&scope), devices_(devices), slopes_({}),
      inputs_(std::move(inputs)), variables_(std::move(variables)) {
  make_all();
}

void Kitchen::make_all() {
  const Recipe& recipe = recipe_;
  for (std::size_t k = 0; k < inputs_.size(); ++k) known_[recipe.inputs[k].name.id] = inputs_[k];
  // A gradient through a call of a function that has no body yet is refused.
  const bool has_calls_within =
      std::any_of(recipe.functions.begin(), recipe.functions.end(),
                  [](const Recipe::Function& f) { return has_calls(f.step) || has_calls(f.last); });
  for (const Recipe::Function& f : recipe.functions)
    if (!has_calls_within) make_outer_values(f.step), make_outer_values(f.last);
  make_outer_values(recipe.body);
  make_functions();
  fetches_ = put(recipe.body, {});
}

Expr Kitchen::constant(Type t, const std::vector<double>& numbers) {
  switch (t) {
    case Type::F: return list_empty(g, {real(), Shape{}});
    case Type::V: return list_empty(g, {real(), Shape{3}});
    case Type::FF: return list_empty(g, {real(), Shape{}, 1});
    default: return g.constant(tensor(t, numbers));
  }
}

int Kitchen::variable(Type t, double number) const {
  std::vector<int> fit;
  for (std::size_t k = 0; k < recipe_.variables.size(); ++k)
    if (recipe_.variables[k].type == t) fit.push_back(static_cast<int>(k));
  return fit.empty() ? -1 : fit[static_cast<std::size_t>(number * 1000) % fit.size()];
}

Kitchen::Scope Kitchen::on(const std::string& device) {
  if (devices_ == Devices::none || device.empty()) return nullptr;
  const std::string name =
      devices_ == Devices::cpus && device.rfind("sim", 0) == 0 ? "cpu:3" : device;
  if (graph_) return Scope(new Graph::Scope(graph_->on_device(name)));
  return std::make_shared<Eager::OnDevice>(*scope_, name, detail::Site());
}

static DType dtype_of(const Recipe& recipe, Type t) {
  switch (t) {
    case Type::i: return DType::i32;
    case Type::l: return DType::i64;
    case Type::b: return DType::boolean;
    default: return recipe.real;
  }
}

Tensor tensor_of(const Recipe& recipe, Type t, const std::vector<double>& numbers) {
  Shape shape = Kitchen::shape_of_type(t);
  if (t == Type::d)
    shape = Shape{static_cast<std::int64_t>(std::max<std::size_t>(1, numbers.size()))};
  std::vector<double> v;
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    v.push_back(numbers.empty() ? 0.25 : numbers[static_cast<std::size_t>(i) % numbers.size()]);
  switch (dtype_of(recipe, t)) {
    case DType::f32: return Tensor::of(std::vector<float>(v.begin(), v.end()), shape);
    case DType::f64: return Tensor::of(v, shape);
    case DType::i32: return Tensor::scalar(static_cast<std::int32_t>(v[0]));
    case DType::i64: return Tensor::scalar(static_cast<std::int64_t>(v[0]));
    default: return Tensor::scalar(v[0] >= 0.5);
  }
}

DType Kitchen::dtype_of_type(Type t) const { return dtype_of(recipe_, t); }

Shape Kitchen::shape_of_type(Type t) {
  switch (t) {
    case Type::v: return Shape{3};
    case Type::m: return Shape{2, 3};
    case Type::d: return Shape{kAny};
    default: return Shape{};
  }
}

ValueSpec Kitchen::spec_of_type(Type t) const {
  switch (t) {
    case Type::F: return {real(), Shape{}, 1};
    case Type::V: return {real(), Shape{3}, 1};
    case Type::FF: return {real(), Shape{}, 2};
    default: return {dtype_of_type(t), shape_of_type(t)};
  }
}

// All are declared before any is defined: they may call each other.
void Kitchen::make_functions() {
  for (const Recipe::Function& f : recipe_.functions) {
    std::vector<ValueSpec> parameters, results;
    for (const Named& n : f.arguments) parameters.push_back(spec_of_type(n.type));
    for (const Named& n : f.last.results) results.push_back(spec_of_type(n.type));
    functions_.emplace_back(g.current(), fmt::format("f{}", functions_.size()), parameters,
                            results);
  }
  outside_ = known_;
  for (std::size_t k = 0; k < functions_.size(); ++k)
    functions_[k].define(
        [this, k](const Exprs& v) { return put_function(recipe_.functions[k], v); });
}

// On a scope a function runs within the code that calls it, whose values it does not know.
Exprs Kitchen::put_function(const Recipe::Function& f, const Exprs& v) {
  const std::map<int, Expr> known = std::exchange(known_, outside_);
  const std::optional<Expr> counter = std::exchange(counter_, std::nullopt);
  const bool is_in_function = std::exchange(is_in_function_, true);
  Exprs out = cond(
      v[0] > 0,
      [&] {
        counter_ = v[0];
        Exprs step = put(f.step, v);
        counter_.reset();
        return step;
      },
      [&] { return put(f.last, v); });
  known_ = known;
  counter_ = counter;
  is_in_function_ = is_in_function;
  return out;
}

Exprs Kitchen::make_call(const Statement& s, const Exprs& in) {
  const auto k = static_cast<std::size_t>(s.numbers[0]);
  if (k >= functions_.size() || (is_in_function_ && !counter_)) return {};
  Exprs arguments{counter_ ? *counter_ - 1 : g.constant(static_cast<std::int32_t>(s.numbers[1]))};
  arguments.insert(arguments.end(), in.begin(), in.end());
  return functions_[k](arguments);
}

Expr Kitchen::use(const Named& n) {
  auto it = known_.find(n.id);
  return it != known_.end() ? it->second : constant(n.type);
}

Exprs Kitchen::use_all(const std::vector<Named>& all) {
  Exprs out;
  for (const Named& n : all) out.push_back(use(n));
  return out;
}

// Values defined in a block are removed after it.
Exprs Kitchen::put(const Block& block, const Exprs& arguments) {
  std::map<int, Expr> outside = known_;
  for (std::size_t k = 0; k < block.arguments.size() && k < arguments.size(); ++k)
    define(block.arguments[k], arguments[k]);
  for (const Statement& s : block.statements) put(s);
  Exprs out = use_all(block.results);
  known_ = std::move(outside);
  return out;
}

void Kitchen::put(const Statement& s) {
  Scope device = on(s.device);
  std::vector<Scope> scopes;
  for (int id : s.after)
    if (graph_ && known_.contains(id))
      scopes.emplace_back(new Graph::Scope(graph_->after({known_.at(id)})));
  Exprs out = make(s);
  while (!scopes.empty()) scopes.pop_back();
  for (std::size_t k = 0; k < s.out.size(); ++k) define(s.out[k], out[k]);
}

Exprs Kitchen::make(const Statement& s) {
  if (s.op == "constant") return {constant(s.out[0].type, s.numbers)};
  if (s.op == "same") return use_all(s.in);
  Exprs in = use_all(s.in);
  if (s.op == "cond")
    return cond(
        in[0], [&] { return put(s.blocks[1], {}); }, [&] { return put(s.blocks[0], {}); });
  if (s.op == "switch") {
    std::vector<std::function<Exprs()>> branches;
    for (const Block& b : s.blocks) branches.push_back([this, &b] { return put(b, {}); });
    return switch_case(in[0], branches);
  }
  if (s.op == "slope") return make_slopes(s, in);
  if (s.op == "while") return make_while(s, in);
  if (s.op == "map" || s.op == "scan" || s.op == "fold") return make_scan(s, in);
  Exprs out = s.op == "call" ? make_call(s, in) : find_rule(s.op)->make(*this, in, s.numbers);
  if (out.empty())
    for (const Named& n : s.out) out.push_back(constant(n.type));
  return out;
}

// Each slope has a value of its own, on which nothing depends but the block.
void Kitchen::make_outer_values(const Block& block) {
  for (const Statement& s : block.statements) {
    for (const Block& inner : s.blocks) make_outer_values(inner);
    if (s.op != "slope" || s.out.empty() || s.out[0].id % 3 != 0) continue;
    Expr from;
    for (std::size_t k = 0; k < inputs_.size() && from.is_empty(); ++k)
      if (recipe_.inputs[k].name.type == Type::f) from = inputs_[k];
    outer_[&s] = identity(from.is_empty() ? constant(Type::f, {0.5}) : from);
  }
}

// A path that ends, as at a variable that is written, adds a slope of 0.
Exprs Kitchen::make_slopes(const Statement& s, const Exprs& in) {
  Exprs xs, out;
  for (const Expr& e : in) xs.push_back(identity(e));  // a value of this graph, only an argument
  if (const auto outer = outer_.find(&s); outer != outer_.end() && !xs.empty())
    xs[static_cast<std::size_t>(s.out[0].id / 3) % xs.size()] = outer->second;
  const auto at = [&](const Exprs& arguments) { return put(s.blocks[0], arguments)[0]; };
  if (scope_) {
    GradientTape tape({.watch_variables = false});
    tape.watch(xs);
    const Expr y = at(xs);
    return tape.gradient(y, xs, {.unconnected = Unconnected::zeros});
  }
  if (slopes_.step == 0) return gradients(at(xs), xs, {.unconnected = Unconnected::zeros});
  for (std::size_t k = 0; k < xs.size(); ++k) {
    const auto moved = [&](double steps) {
      Exprs arguments = xs;
      arguments[k] = xs[k] + steps * slopes_.step;
      return at(arguments);
    };
    out.push_back((8.0 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12.0 * slopes_.step));
  }
  return out;
}

Expr Kitchen::condition_of(const Statement& s, const Exprs& v, int made_by) {
  const auto more = [&] {
    const Exprs all = put(s.blocks[0], v);
    return all.empty() ? v[0] >= 0 : all[0];
  };
  const Expr counted = v[0] < s.numbers[0];
  switch (made_by) {
    case 1: return cond(counted, more, [&] { return g.constant(false); });
    case 2: {
      const Expr is_more = more();
      return while_loop([](const Exprs& w) { return w[0] < 1; },
                        [&](const Exprs& w) {
                          return Exprs{w[0] + 1, logical_and(w[1], is_more)};
                        },
                        Exprs{g.constant(std::int32_t{0}), counted})[1];
    }
    default: return s.blocks[0].results.empty() ? counted : logical_and(counted, more());
  }
}

Exprs Kitchen::make_while(const Statement& s, const Exprs& in) {
  const double limit = s.numbers[0];
  const bool is_told = s.numbers.size() > 1 && s.numbers[1] != 0;
  Exprs first{g.constant(std::int32_t{0})};
  first.insert(first.end(), in.begin(), in.end());
  WhileOptions options;
  options.parallel_iterations = s.parallel;
  if (is_told) options.maximum_iterations = static_cast<std::int64_t>(limit);
  for (std::size_t k = 0; k < s.out.size(); ++k)
    options.shape_invariants.push_back(s.out[k].type == Type::d ? std::optional<Shape>(Shape{kAny})
                                                                : std::nullopt);
  const int made_by = is_told || s.numbers.size() < 3 ? 0 : static_cast<int>(s.numbers[2]);
  const bool is_variable = made_by == 3;
  if (is_variable) {
    first.push_back(condition_of(s, first, 0));
    options.shape_invariants.push_back(std::nullopt);
  }
  Exprs last = while_loop(
      [&](const Exprs& v) {
        if (is_variable) return v.back();
        if (!is_told) return condition_of(s, v, made_by);
        Exprs more = put(s.blocks[0], v);
        return more.empty() ? v[0] >= 0 : more[0];
      },
      [&](const Exprs& v) {
        Exprs next{v[0] + 1};
        Exprs made = put(s.blocks[1], v);
        next.insert(next.end(), made.begin(), made.end());
        if (is_variable) next.push_back(condition_of(s, next, 0));
        return next;
      },
      first, options);
  if (is_variable) last.pop_back();
  return last;
}

Exprs Kitchen::make_scan(const Statement& s, const Exprs& in) {
  const auto n = static_cast<std::ptrdiff_t>(s.numbers[0]);
  Exprs elements(in.begin(), in.begin() + n), states(in.begin() + n, in.end());
  ScanOptions options;
  options.parallel_iterations = s.parallel;
  options.reverse = s.reverse;
  auto step = [&](const Exprs& state, const Exprs& element) {
    Exprs all = state;
    all.insert(all.end(), element.begin(), element.end());
    return put(s.blocks[0], all);
  };
  if (s.op == "fold") return fold_left(step, elements, states, options);
  Exprs out = s.op == "scan" ? scan(step, elements, states, options)
                             : map([&](const Exprs& e) { return step({}, e); }, elements, options);
  for (std::size_t k = 0; k < out.size(); ++k)  // how many there are is not in the type of a stack
    if (s.out[k].type != Type::d) out[k] = reshape(out[k], shape_of_type(s.out[k].type));
  return out;
}

// ---- the rules

// Numbers stay tame: what grows is halved or bounded, so that loops do not carry rounding far.
static std::vector<Rule> make_rules() {
  using T = Type;
  using X = const Exprs&;
  using N = const std::vector<double>&;
  using K = Kitchen&;
  std::vector<Rule> all;
  auto add = [&](const char* name, std::vector<T> in, std::vector<T> out, int weight,
                 std::function<Exprs(K, X, N)> make) {
    all.push_back({name, std::move(in), std::move(out), weight, std::move(make)});
  };
  // The name needs storage of its own.
  auto named = [](const char* name, T t) {
    static std::vector<std::unique_ptr<std::string>> kept;
    kept.push_back(std::make_unique<std::string>(fmt::format("{}_{}", name, test::name_of(t))));
    return kept.back()->c_str();
  };
  for (T t : {T::f, T::v, T::m, T::d}) {
    const int w = t == T::f || t == T::v ? 3 : 1;
    add(named("tanh", t), {t}, {t}, w, [](K, X x, N) { return Exprs{tanh(x[0])}; });
    add(named("sigmoid", t), {t}, {t}, w, [](K, X x, N) { return Exprs{sigmoid(x[0])}; });
    add(named("neg", t), {t}, {t}, 1, [](K, X x, N) { return Exprs{-x[0]}; });
    add(named("sin", t), {t}, {t}, 1, [](K, X x, N) { return Exprs{sin(x[0])}; });
    add(named("relu", t), {t}, {t}, 1, [](K, X x, N) { return Exprs{relu(x[0])}; });
    add(named("clip", t), {t}, {t}, 1, [](K, X x, N) { return Exprs{clip(x[0], -1.5, 1.5)}; });
    add(named("affine", t), {t}, {t}, w,
        [](K, X x, N n) { return Exprs{x[0] * (0.9 * n[0]) + n[1]}; });
    add(named("scale", t), {t, T::f}, {t}, w, [](K, X x, N) { return Exprs{x[0] * tanh(x[1])}; });
    if (t == T::d) continue;
    add(named("half_sum", t), {t, t}, {t}, w, [](K, X x, N) { return Exprs{(x[0] + x[1]) * 0.5}; });
    add(named("half_difference", t), {t, t}, {t}, w,
        [](K, X x, N) { return Exprs{(x[0] - x[1]) * 0.5}; });
    add(named("product", t), {t, t}, {t}, w, [](K, X x, N) { return Exprs{tanh(x[0]) * x[1]}; });
    add(named("quotient", t), {t, t}, {t}, 1,
        [](K, X x, N) { return Exprs{x[0] / (1.0 + square(x[1]))}; });
    add(named("maximum", t), {t, t}, {t}, 1, [](K, X x, N) { return Exprs{maximum(x[0], x[1])}; });
    add(named("minimum", t), {t, t}, {t}, 1, [](K, X x, N) { return Exprs{minimum(x[0], x[1])}; });
    add(named("where", t), {T::b, t, t}, {t}, 1,
        [](K, X x, N) { return Exprs{where(x[0], x[1], x[2])}; });
  }
  for (int k = 0; k < kTypes; ++k)
    add(named("identity", static_cast<T>(k)), {static_cast<T>(k)}, {static_cast<T>(k)},
        is_list(static_cast<T>(k)) ? 0 : 1, [](K, X x, N) { return Exprs{identity(x[0])}; });
  // Shapes.
  add("mean_v", {T::v}, {T::f}, 3, [](K, X x, N) { return Exprs{mean(x[0])}; });
  add("max_v", {T::v}, {T::f}, 1, [](K, X x, N) { return Exprs{reduce_max(x[0])}; });
  add("mean_m", {T::m}, {T::f}, 1, [](K, X x, N) { return Exprs{mean(x[0])}; });
  add("columns_m", {T::m}, {T::v}, 2, [](K, X x, N) { return Exprs{sum(x[0], {0}) * 0.5}; });
  add("bounded_sum_d", {T::d}, {T::f}, 3, [](K, X x, N) { return Exprs{tanh(sum(x[0]))}; });
  add("stack_f", {T::f, T::f, T::f}, {T::v}, 3, [](K, X x, N) {
    return Exprs{stack({x[0], x[1], x[2]})};
  });
  add("stack_v", {T::v, T::v}, {T::m}, 2, [](K, X x, N) { return Exprs{stack({x[0], x[1]})}; });
  add("row_m", {T::m}, {T::v}, 1, [](K, X x, N n) {
    return Exprs{reshape(slice(x[0], {n[0] < 0 ? 0 : 1, 0}, {1, 3}), {3})};
  });
  add("add_row", {T::m, T::v}, {T::m}, 1, [](K, X x, N) { return Exprs{(x[0] + x[1]) * 0.5}; });
  add("matmuls", {T::m, T::m, T::m}, {T::m}, 1,
      [](K, X x, N) { return Exprs{matmul(tanh(matmul(x[0], x[1], false, true)), x[2]) * 0.4}; });
  add("turned", {T::m}, {T::m}, 1, [](K, X x, N) {
    return Exprs{reshape(transpose(x[0]), {2, 3})};
  });
  add("flat", {T::m}, {T::d}, 1, [](K, X x, N) { return Exprs{reshape(x[0], {6})}; });
  add("longer", {T::d, T::v}, {T::d}, 2, [](K, X x, N) { return Exprs{concat({x[0], x[1]}, 0)}; });
  add("longer_by_one", {T::d, T::f}, {T::d}, 2, [](K, X x, N) {
    return Exprs{concat({reshape(x[1], {1}), x[0]}, 0)};
  });
  add("pick", {T::v, T::i}, {T::f}, 2, [](K, X x, N) { return Exprs{gather(x[0], mod(x[1], 3))}; });
  add("one_hot", {T::i}, {T::v}, 1,
      [](K k, X x, N) { return Exprs{one_hot(mod(x[0], 3), 3, k.real())}; });
  // Integers.
  for (T t : {T::i, T::l}) {
    add(named("add", t), {t, t}, {t}, 2, [](K, X x, N) { return Exprs{mod(x[0] + x[1], 7)}; });
    add(named("multiply", t), {t, t}, {t}, 1,
        [](K, X x, N) { return Exprs{mod(x[0] * x[1], 11)}; });
    add(named("less", t), {t, t}, {T::b}, 2, [](K, X x, N) { return Exprs{x[0] < x[1]}; });
    add(named("equal", t), {t, t}, {T::b}, 1, [](K, X x, N) { return Exprs{x[0] == x[1]}; });
    add(named("even", t), {t}, {T::b}, 2, [](K, X x, N) { return Exprs{mod(x[0], 2) == 0}; });
    add(named("real", t), {t}, {T::f}, 2,
        [](K k, X x, N) { return Exprs{cast(x[0], k.real()) * 0.1}; });
  }
  add("cast_i", {T::i}, {T::l}, 1, [](K, X x, N) { return Exprs{cast(x[0], DType::i64)}; });
  add("cast_l", {T::l}, {T::i}, 1, [](K, X x, N) { return Exprs{cast(x[0], DType::i32)}; });
  add("count", {T::b, T::i}, {T::i}, 1,
      [](K, X x, N) { return Exprs{mod(x[1] + cast(x[0], DType::i32), 5)}; });
  // Truths.
  add("less_f", {T::f, T::f}, {T::b}, 2, [](K, X x, N) { return Exprs{x[0] < x[1]}; });
  add("above", {T::f}, {T::b}, 3, [](K, X x, N n) { return Exprs{x[0] > 0.7 * n[0]}; });
  add("and", {T::b, T::b}, {T::b}, 1, [](K, X x, N) { return Exprs{logical_and(x[0], x[1])}; });
  add("or", {T::b, T::b}, {T::b}, 1, [](K, X x, N) { return Exprs{logical_or(x[0], x[1])}; });
  add("not", {T::b}, {T::b}, 1, [](K, X x, N) { return Exprs{logical_not(x[0])}; });
  // Lists. An operation that could fail on an empty list uses one that was just extended, or is
  // guarded.
  add("push_f", {T::F, T::f}, {T::F}, 4, [](K, X x, N) { return Exprs{list_push(x[0], x[1])}; });
  add("push_v", {T::V, T::v}, {T::V}, 3, [](K, X x, N) { return Exprs{list_push(x[0], x[1])}; });
  add("push_list", {T::FF, T::F}, {T::FF}, 2,
      [](K, X x, N) { return Exprs{list_push(x[0], x[1])}; });
  add("append_f", {T::F, T::f}, {T::F}, 2,
      [](K, X x, N) { return Exprs{list_write(x[0], list_length(x[0]), x[1], true)}; });
  add("read_f", {T::F, T::f, T::i}, {T::f}, 3, [](K, X x, N) {
    Expr l = list_push(x[0], x[1]);
    return Exprs{list_read(l, mod(cast(x[2], DType::i64), list_length(l)))};
  });
  add("read_v", {T::V, T::v, T::l}, {T::v}, 2, [](K, X x, N) {
    Expr l = list_push(x[0], x[1]);
    return Exprs{list_read(l, mod(x[2], list_length(l)))};
  });
  add("read_list", {T::FF, T::F, T::l}, {T::F}, 2, [](K, X x, N) {
    Expr l = list_push(x[0], x[1]);
    return Exprs{list_read(l, mod(x[2], list_length(l)))};
  });
  add("pop_f", {T::F, T::f}, {T::F, T::f}, 3, [](K, X x, N) {
    return cond(
        list_length(x[0]) > 0,
        [&] {
          Popped p = list_pop(x[0]);
          return Exprs{p.list, p.value};
        },
        [&] { return x; });
  });
  add("pop_v", {T::V, T::v}, {T::V, T::v}, 1, [](K, X x, N) {
    return cond(
        list_length(x[0]) > 0,
        [&] {
          Popped p = list_pop(x[0]);
          return Exprs{p.list, p.value};
        },
        [&] { return x; });
  });
  add("unstack_v", {T::v}, {T::F}, 2, [](K, X x, N) { return Exprs{list_unstack(x[0])}; });
  add("unstack_d", {T::d}, {T::F}, 1, [](K, X x, N) { return Exprs{list_unstack(x[0])}; });
  add("unstack_m", {T::m}, {T::V}, 2, [](K, X x, N) { return Exprs{list_unstack(x[0])}; });
  add("stack_F", {T::F}, {T::d}, 3, [](K, X x, N) { return Exprs{list_stack(x[0])}; });
  add("mean_V", {T::V, T::v}, {T::v}, 2,
      [](K, X x, N) { return Exprs{mean(list_stack(list_push(x[0], x[1])), {0})}; });
  add("concat_V", {T::V}, {T::d}, 1, [](K, X x, N) { return Exprs{list_concat(x[0])}; });
  add("gather_F", {T::F, T::f, T::l}, {T::d}, 1, [](K, X x, N) {
    Expr l = list_push(x[0], x[1]);
    return Exprs{list_gather(l, reshape(mod(x[2], list_length(l)), {1}))};
  });
  add("split_v", {T::v}, {T::d}, 1, [](K k, X x, N) {
    return Exprs{
        list_read(list_split(x[0], k.g.constant(Tensor::of<std::int64_t>({1, 2}, {2}))), 1)};
  });
  add("length_F", {T::F}, {T::l}, 2, [](K, X x, N) { return Exprs{mod(list_length(x[0]), 13)}; });
  add("length_V", {T::V}, {T::l}, 1, [](K, X x, N) { return Exprs{mod(list_length(x[0]), 13)}; });
  add("length_FF", {T::FF}, {T::l}, 1, [](K, X x, N) { return Exprs{mod(list_length(x[0]), 13)}; });
  add("all", {T::f, T::l}, {T::b}, 0, [](K, X x, N) { return Exprs{group(x)}; });
  // From 32 bytes to 1.3 MB; the ops between may be on another node.
  static const auto eighths = [](K k, double number) {
    static constexpr std::int64_t sizes[]{8, 400, 6000, 40000, 160000};
    const std::int64_t n = sizes[static_cast<std::size_t>(std::abs(number) * 4.99)];
    const auto count = static_cast<std::size_t>(n);
    return k.g.constant(k.real() == DType::f32
                            ? Tensor::of(std::vector<float>(count, 0.125F), Shape{n})
                            : Tensor::of(std::vector<double>(count, 0.125), Shape{n}));
  };
  add("large", {T::f}, {T::f}, 0, [](K k, X x, N n) {
    const Expr many = tanh(x[0] + eighths(k, n[0]));
    return Exprs{
        gather(many, k.g.constant(static_cast<std::int32_t>(many.shape().elements() - 1)))};
  });
  add("large_state", {T::f}, {T::d}, 0,
      [](K k, X x, N n) { return Exprs{identity(x[0] + eighths(k, n[0]))}; });
  // Operations that fail for some operands.
  add("try_read", {T::F, T::i}, {T::f}, 6, [](K, X x, N) { return Exprs{list_read(x[0], x[1])}; });
  all.back().may_fail = true;
  add("try_gather", {T::v, T::i}, {T::f}, 6, [](K, X x, N) { return Exprs{gather(x[0], x[1])}; });
  all.back().may_fail = true;
  add("try_pop", {T::F}, {T::F, T::f}, 6, [](K, X x, N) {
    Popped p = list_pop(x[0]);
    return Exprs{p.list, p.value};
  });
  all.back().may_fail = true;
  // Variables.
  auto add_effect = [&](const char* name, T var, std::vector<T> in, int weight, bool is_effect,
                        std::function<Exprs(const Variable&, X)> make) {
    all.push_back({name,
                   std::move(in),
                   {var},
                   weight,
                   [var, make](K k, X x, N n) {
                     const int v = k.variable(var, std::abs(n[0]));
                     if (v < 0) return Exprs{};
                     auto home = k.at_home(v);
                     return make(k.variables()[static_cast<std::size_t>(v)], x);
                   },
                   static_cast<int>(var),
                   is_effect});
  };
  for (T t : {T::f, T::v}) {
    add_effect(named("read_variable", t), t, {}, 5, false,
               [](const Variable& v, X) { return Exprs{v.read()}; });
    add_effect(named("assign", t), t, {t}, 3, true,
               [](const Variable& v, X x) { return Exprs{v.assign(tanh(x[0]))}; });
    add_effect(named("assign_add", t), t, {T::f}, 3, true,
               [](const Variable& v, X x) { return Exprs{v.assign_add(tanh(x[0]) * 0.25)}; });
    add_effect(named("assign_sub", t), t, {t}, 2, true,
               [](const Variable& v, X x) { return Exprs{v.assign_sub(tanh(x[0]) * 0.25)}; });
    add_effect(named("mix", t), t, {t}, 2, true,
               [](const Variable& v, X x) { return Exprs{v.assign(v.read() * 0.5 + tanh(x[0]))}; });
  }
  // Two reads between writes: each is ordered by itself.
  for (T t : {T::f, T::v})
    add_effect(named("mix_twice", t), t, {t}, 2, true, [](const Variable& v, X x) {
      Expr early = v.read() * 0.25;
      return Exprs{v.assign(early + tanh(x[0]) - v.read() * 0.25)};
    });
  add_effect("scatter_update", T::v, {T::i, T::f}, 2, true, [](const Variable& v, X x) {
    return Exprs{v.scatter_update(reshape(mod(x[0], 3), {1}), reshape(tanh(x[1]), {1}))};
  });
  add_effect("scatter_add", T::v, {T::i, T::f}, 1, true, [](const Variable& v, X x) {
    return Exprs{v.scatter_add(reshape(mod(x[0], 3), {1}), reshape(tanh(x[1]), {1}))};
  });
  return all;
}

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = make_rules();
  return all;
}

// ---- printing

namespace {

class Printer {
 public:
  explicit Printer(const Recipe& r) {
    line(0, fmt::format("program of seed {}, {}, {} run{}", r.seed, troupe::name_of(r.real), r.runs,
                        r.runs == 1 ? "" : "s"));
    for (const Recipe::Input& in : r.inputs)
      line(0, fmt::format("{}: {} = input {}", in.name.id, test::name_of(in.name.type),
                          fmt::join(in.values, " then ")));
    for (std::size_t k = 0; k < r.variables.size(); ++k)
      line(0, fmt::format("variable v{}: {} = {}{}", k, test::name_of(r.variables[k].type),
                          r.variables[k].initial,
                          r.variables[k].device.empty() ? "" : " @" + r.variables[k].device));
    for (std::size_t k = 0; k < r.functions.size(); ++k) {
      const Recipe::Function& f = r.functions[k];
      line(0, fmt::format("function {}({}):", k, list(f.arguments, true)));
      line(1, "while it counts:");
      block(2, f.step, "yield");
      line(1, "last:");
      block(2, f.last, "yield");
    }
    block(0, r.body, "fetch");
  }
  std::string text;

 private:
  void line(int depth, const std::string& s) {
    text += std::string(static_cast<std::size_t>(2 * depth), ' ') + s + "\n";
  }
  static std::string list(const std::vector<Named>& all, bool with_types) {
    std::string out;
    for (const Named& n : all) {
      out += out.empty() ? "" : ", ";
      out += n.id < 0 ? fmt::format("{}()", test::name_of(n.type)) : std::to_string(n.id);
      if (with_types) out += std::string(": ") + test::name_of(n.type);
    }
    return out;
  }
  void block(int depth, const Block& b, const char* end) {
    for (const Statement& s : b.statements) statement(depth, s);
    if (!b.results.empty() || depth == 0)
      line(depth, fmt::format("{} {}", end, list(b.results, false)));
  }
  void statement(int depth, const Statement& s) {
    std::string t = fmt::format("{} = {}({})", list(s.out, true), s.op, list(s.in, false));
    if (!s.numbers.empty()) t += fmt::format(" {}", s.numbers);
    if (s.op == "while" || s.op == "map" || s.op == "scan" || s.op == "fold")
      t += fmt::format(" parallel {}", s.parallel);
    if (s.reverse) t += " reverse";
    if (!s.after.empty()) t += fmt::format(" after {}", s.after);
    if (!s.device.empty()) t += " @" + s.device;
    line(depth, t);
    for (std::size_t k = 0; k < s.blocks.size(); ++k) {
      std::string what = s.op == "cond"    ? (k ? "true" : "false")
                         : s.op == "while" ? (k ? "body" : "condition")
                                           : fmt::format("block {}", k);
      line(depth + 1, fmt::format("{}({}):", what, list(s.blocks[k].arguments, true)));
      block(depth + 2, s.blocks[k], "yield");
    }
  }
};

}  // namespace

std::string text_of(const Recipe& r) { return Printer(r).text; }

static bool may_fail(const Block& b) {
  for (const Statement& s : b.statements) {
    if (const Rule* r = find_rule(s.op); r && r->may_fail) return true;
    for (const Block& inner : s.blocks)
      if (may_fail(inner)) return true;
  }
  return false;
}

bool may_fail(const Recipe& r) {
  for (const Recipe::Function& f : r.functions)
    if (may_fail(f.step) || may_fail(f.last)) return true;
  return may_fail(r.body);
}

static bool has_slopes(const Block& b) {
  return std::any_of(b.statements.begin(), b.statements.end(), [](const Statement& s) {
    return s.op == "slope" || std::any_of(s.blocks.begin(), s.blocks.end(),
                                          [](const Block& inner) { return has_slopes(inner); });
  });
}

bool has_slopes(const Recipe& r) {
  return has_slopes(r.body) ||
         std::any_of(r.functions.begin(), r.functions.end(), [](const Recipe::Function& f) {
           return has_slopes(f.step) || has_slopes(f.last);
         });
}

static bool has_effect(const Statement& s) {
  const Rule* r = find_rule(s.op);
  return s.op == "call" || (r && r->is_effect) ||
         std::any_of(s.blocks.begin(), s.blocks.end(), [](const Block& b) {
           return std::any_of(b.statements.begin(), b.statements.end(), has_effect);
         });
}

// A graph has no effect that the slope does not need, as where the path ends at an assignment.
static bool has_effect_in_slope(const Block& b) {
  return std::any_of(b.statements.begin(), b.statements.end(), [](const Statement& s) {
    return s.op == "slope" ? has_effect(s)
                           : std::any_of(s.blocks.begin(), s.blocks.end(), has_effect_in_slope);
  });
}

bool does_all(const Recipe& r) {
  if (r.variables.empty()) return true;
  for (const Recipe::Function& f : r.functions)
    if (has_effect_in_slope(f.step) || has_effect_in_slope(f.last)) return false;
  if (has_effect_in_slope(r.body)) return false;
  std::vector<int> needed;
  for (const Named& n : r.body.results) needed.push_back(n.id);
  const auto is_needed = [&](const Statement& s) {
    return std::any_of(s.out.begin(), s.out.end(), [&](const Named& n) {
      return std::find(needed.begin(), needed.end(), n.id) != needed.end();
    });
  };
  for (const Statement& s : r.body.statements)
    if (s.op == "all" && is_needed(s))
      for (const Named& n : s.in) needed.push_back(n.id);
  return std::all_of(r.body.statements.begin(), r.body.statements.end(),
                     [&](const Statement& s) { return !has_effect(s) || is_needed(s); });
}

static int statements_in(const Block& b) {
  int n = 0;
  for (const Statement& s : b.statements) {
    ++n;
    for (const Block& inner : s.blocks) n += statements_in(inner);
  }
  return n;
}

int statements_in(const Recipe& r) {
  int n = statements_in(r.body);
  for (const Recipe::Function& f : r.functions) n += statements_in(f.step) + statements_in(f.last);
  return n;
}

}  // namespace troupe::test
