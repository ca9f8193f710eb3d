#include <troupe/test/support/programs/oracle.hpp>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>

#include <troupe/ops/graph/function_def.hpp>
#include <troupe/test/ops/tables/pointwise_rows.hpp>
#include <troupe/test/ops/tables/structure_rows.hpp>
#include <troupe/test/support/programs/oracle_cotangents.hpp>

namespace troupe::test {

class Oracle::Walk {
 public:
  explicit Walk(DType round_to) : round_to_(round_to) {}

  std::vector<OracleValue> run(const Graph& graph,
                               const std::vector<std::pair<Expr, OracleValue>>& feeds,
                               const std::vector<Expr>& fetches) {
    std::vector<Edge> inputs, outputs;
    std::vector<OracleValue> arguments;
    for (const auto& [to, value] : feeds) {
      inputs.push_back(to.edge());
      arguments.push_back(value);
    }
    for (const Expr& e : fetches) outputs.push_back(e.edge());
    root_ = &graph;
    fired_ = 0;
    depth_ = 0;
    margin_ = std::numeric_limits<double>::infinity();
    return run_graph(graph, inputs, std::move(arguments), outputs, false);
  }

  const Array& variable(const Graph& graph, std::int32_t state) {
    return state_of(graph.states()[static_cast<std::size_t>(state)]);
  }
  void set_variable(const Graph& graph, std::int32_t state, Array value) {
    variables_[graph.states()[static_cast<std::size_t>(state)].name] = std::move(value);
  }
  double margin() const { return margin_; }
  std::int64_t fired() const { return fired_; }

 private:
  static constexpr std::int64_t kMaxElements = 2'000, kMaxTensor = 400'000;
  static constexpr int kMaxDepth = 100;
  using Values = std::vector<OracleValue>;

  // ---- graphs

  static bool writes(const Node& n) {
    std::set<const FunctionDef*> seen;
    return writes(n, seen);
  }
  static bool writes(const Node& n, std::set<const FunctionDef*>& seen) {
    if (const FunctionDef* f = function_of(n))
      return f->body && seen.insert(f).second && writes(f->body->graph, seen);
    if (n.op->effect == Effect::write || n.op->effect == Effect::enqueue ||
        n.op->effect == Effect::dequeue)
      return true;
    for (const auto& sub : subgraphs_of(n))
      if (writes(sub->graph, seen)) return true;
    return false;
  }
  static bool writes(const Graph& g, std::set<const FunctionDef*>& seen) {
    for (const Node& inner : g.nodes())
      if (writes(inner, seen)) return true;
    return false;
  }

  // Marks the nodes needed for the outputs; in a sub-graph every effect happens too.
  static std::vector<char> needed(const Graph& g, const std::vector<Edge>& outputs, bool is_inner) {
    std::vector<char> need(static_cast<std::size_t>(g.size()), 0);
    for (Edge e : outputs) need[static_cast<std::size_t>(e.node)] = 1;
    for (std::int32_t id = g.size() - 1; id >= 0; --id) {
      const Node& n = g.node(id);
      if (is_inner && writes(n)) need[static_cast<std::size_t>(id)] = 1;
      if (!need[static_cast<std::size_t>(id)]) continue;
      for (Edge e : n.inputs) need[static_cast<std::size_t>(e.node)] = 1;
      for (std::int32_t c : n.controls) need[static_cast<std::size_t>(c)] = 1;
    }
    return need;
  }

  Values run_graph(const Graph& g, const std::vector<Edge>& inputs, Values arguments,
                   const std::vector<Edge>& outputs, bool is_inner) {
    auto [it, is_new] = needed_.try_emplace(std::pair{&g, is_inner});
    if (is_new || !is_inner) it->second = needed(g, outputs, is_inner);
    const std::vector<char>& need = it->second;
    std::vector<Values> values(static_cast<std::size_t>(g.size()));
    for (std::size_t i = 0; i < inputs.size(); ++i)
      values[static_cast<std::size_t>(inputs[i].node)] = {std::move(arguments[i])};
    auto at = [&](Edge e) -> const OracleValue& {
      return values[static_cast<std::size_t>(e.node)][static_cast<std::size_t>(e.output)];
    };
    for (std::int32_t id = 0; id < g.size(); ++id) {
      if (!need[static_cast<std::size_t>(id)] || !values[static_cast<std::size_t>(id)].empty())
        continue;
      const Node& n = g.node(id);
      if (++fired_ > kMostFired) throw OracleRefusal("it takes too long");
      Values in;
      for (Edge e : n.inputs) in.push_back(at(e));
      try {
        values[static_cast<std::size_t>(id)] = fire(n, in);
      } catch (const OracleError& e) {
        if (is_inner && std::string(e.what()).find('\'') != std::string::npos) throw;
        throw OracleError(g.describe(id) + ": " + e.what());
      }
      for (OracleValue& v : values[static_cast<std::size_t>(id)]) settle(v);
    }
    Values out;
    for (Edge e : outputs) out.push_back(at(e));
    return out;
  }

  // Rounds, and refuses what cannot be compared.
  void settle(OracleValue& v) const {
    if (v.is_list) {
      if (v.elements.size() > kMaxElements) throw OracleRefusal("a list grows long");
      return;
    }
    if (v.array.v.size() > kMaxTensor) throw OracleRefusal("a tensor grows large");
    for (double& x : v.array.v) {
      if (is_floating(v.dtype)) {
        if (round_to_ == DType::f32) x = static_cast<double>(static_cast<float>(x));
        if (!(std::abs(x) < 1e15)) throw OracleRefusal("a value grows large");
      } else if (is_integer(v.dtype)) {
        double most = v.dtype == DType::i32 ? 2147483647.0 : 0x1p52;
        if (!(std::abs(x) <= most) || x != std::trunc(x))
          throw OracleRefusal("an integer grows large");
      }
    }
  }

  // ---- nodes

  [[noreturn]] static void fail(const std::string& why) { throw OracleError(why); }

  Values fire(const Node& n, const Values& in) {
    const std::string& op = n.op->name;
    if (op == "Case") return fire_case(n, in);
    if (op == "While") return fire_while(n, in);
    if (op == "Call") return fire_call(n, in);
    if (op == "Constant") return {OracleValue::of(n.attrs.get<Tensor>("value"))};
    if (op == "Group") return {OracleValue::integer(n.outputs[0].dtype, 1)};
    if (n.state >= 0) return fire_state(n, in);
    if (auto made = fire_cotangent(n, in)) return *made;
    if (op.rfind("List", 0) == 0) return fire_list(n, in);
    if (op == "Identity" || op == "StopGradient" || op == "EdgeAsBf16") return {in[0]};
    return fire_tensor(n, in);
  }

  Values fire_case(const Node& n, const Values& in) {
    auto branches = subgraphs_of(n);
    double index = in[0].array.v[0];
    std::size_t which = index >= 0 && index < static_cast<double>(branches.size())
                            ? static_cast<std::size_t>(index)
                            : branches.size() - 1;
    const SubGraph& sub = *branches[which];
    return run_graph(sub.graph, sub.inputs, Values(in.begin() + 1, in.end()), sub.outputs, true);
  }

  Values fire_call(const Node& n, const Values& in) {
    const FunctionDef& f = *function_of(n);
    if (!f.body) fail("the function has no body");
    if (depth_ >= kMaxDepth) throw OracleRefusal("calls nest deep");
    ++depth_;
    Values out = run_graph(f.body->graph, f.body->inputs, in, f.body->outputs, true);
    --depth_;
    return out;
  }

  Values fire_while(const Node& n, const Values& in) {
    const SubGraph &condition = *subgraphs_of(n)[0], &body = *subgraphs_of(n)[1];
    const auto given = static_cast<std::ptrdiff_t>(n.attrs.get<std::int64_t>("variables"));
    Values variables(in.begin(), in.begin() + given);
    const Values captures(in.begin() + given, in.end());
    for (std::size_t k = variables.size(); k < body.outputs.size(); ++k)
      variables.push_back(implicit(n.outputs[k]));
    for (;;) {
      Values arguments = variables;
      arguments.insert(arguments.end(), captures.begin(), captures.end());
      saw_nan_ = false;
      Values more =
          run_graph(condition.graph, condition.inputs, arguments, condition.outputs, true);
      if (more[0].array.v[0] == 0) {
        if (saw_nan_) require_end(condition, arguments);
        return variables;
      }
      variables = run_graph(body.graph, body.inputs, std::move(arguments), body.outputs, true);
    }
  }

  // A loop that goes on where comparisons with NaN are true has ended because of NaN.
  void require_end(const SubGraph& condition, const Values& arguments) {
    const std::map<std::string, Array> before = variables_;
    nan_holds_ = true;
    const Values more =
        run_graph(condition.graph, condition.inputs, arguments, condition.outputs, true);
    nan_holds_ = false;
    variables_ = before;
    if (more[0].array.v[0] != 0) fail("NaN has ended it");
  }

  static OracleValue implicit(const ValueSpec& spec) {
    if (!spec.is_list()) return OracleValue::integer(spec.dtype, 0);
    return {spec.dtype, {}, true, spec.shape, spec.depth, {}};
  }

  Values fire_tensor(const Node& n, const Values& in) {
    const std::string& op = n.op->name;
    std::vector<Array> x;
    for (const OracleValue& v : in) {
      if (v.is_list) fail("a list is no operand");
      x.push_back(v.array);
    }
    static const std::set<std::string> comparisons{"Less",         "LessEqual", "Greater",
                                                   "GreaterEqual", "Equal",     "NotEqual"};
    if (comparisons.contains(op) && is_floating(in[0].dtype)) watch(x[0], x[1]);
    if (op == "Gather") check_indices(x[1], x[0].shape[axis_of(n.attrs, x[0].shape.rank())]);
    std::vector<Array> made;
    if (op == "Cast") made = {cast(x[0], n.attrs.get<DType>("dtype"))};
    else if (op == "Clip") made = {clipped(x[0], n.attrs)};
    else if (auto it = references().find(op); it != references().end())
      made = it->second(x, n.attrs);
    else if (n.op->reference) made = {pointwise(*n.op, x)};
    else throw OracleRefusal("the oracle does not know " + op);
    Values out;
    if (comparisons.contains(op) && op != "Equal" && op != "NotEqual") see_nan(x[0], x[1], made[0]);
    for (std::size_t o = 0; o < made.size(); ++o)
      out.push_back({n.outputs[o].dtype, std::move(made[o]), false, {}, 0, {}});
    return out;
  }

  static void check_indices(const Array& indices, std::int64_t extent) {
    for (double i : indices.v)
      if (i < 0 || i >= static_cast<double>(extent)) fail("an index is outside the axis");
  }

  static Array pointwise(const OpDef& op, const std::vector<Array>& x) {
    bool is_uniform = true;
    for (const Array& a : x) is_uniform = is_uniform && a.shape == x[0].shape;
    double at[3];
    if (is_uniform) {
      Array out{x[0].shape, std::vector<double>(x[0].v.size())};
      for (std::size_t i = 0; i < out.v.size(); ++i) {
        for (std::size_t k = 0; k < x.size(); ++k) at[k] = x[k].v[i];
        out.v[i] = op.reference({at, x.size()});
      }
      return out;
    }
    Shape shape = x[0].shape;
    for (const Array& a : x) shape = broadcast(shape, a.shape);
    return tabulate(shape, [&](const Index& i) {
      for (std::size_t k = 0; k < x.size(); ++k) at[k] = x[k].broadcast_at(i);
      return op.reference({at, x.size()});
    });
  }

  void watch(const Array& a, const Array& b) {
    for_each_index(broadcast(a.shape, b.shape), [&](const Index& i) {
      double p = a.broadcast_at(i), q = b.broadcast_at(i);
      margin_ = std::min(margin_, std::abs(p - q) / std::max({1.0, std::abs(p), std::abs(q)}));
    });
  }

  void see_nan(const Array& a, const Array& b, Array& holds) {
    holds = tabulate(holds.shape, [&](const Index& i) {
      const bool is = std::isnan(a.broadcast_at(i)) || std::isnan(b.broadcast_at(i));
      saw_nan_ = saw_nan_ || is;
      return is && nan_holds_ ? 1.0 : holds.broadcast_at(i);
    });
  }

  static Array cast(Array x, DType to) {
    for (double& e : x.v) {
      if (is_integer(to)) e = std::trunc(e);
      else if (to == DType::boolean) e = e != 0;
    }
    return x;
  }
  static Array clipped(Array x, const Attrs& attrs) {
    for (double& e : x.v)
      e = std::min(std::max(e, attrs.get<double>("low")), attrs.get<double>("high"));
    return x;
  }

  static const std::map<std::string, Reference>& references() {
    static const std::map<std::string, Reference> all = [] {
      std::map<std::string, Reference> by_op;
      for (const Row& r : structure_rows())
        if (r.reference) by_op[r.op] = r.reference;
      return by_op;
    }();
    return all;
  }

  // ---- state

  Array& state_of(const StateSpec& spec) {
    auto [it, is_new] = variables_.try_emplace(spec.name);
    if (is_new)
      it->second =
          Array::of(spec.initial.make(spec.name, spec.values[0].dtype, spec.values[0].shape));
    return it->second;
  }

  Values fire_state(const Node& n, const Values& in) {
    const StateSpec& spec = root_->states()[static_cast<std::size_t>(n.state)];
    const std::string& op = n.op->name;
    if (spec.kind != StateSpec::Kind::variable)
      throw OracleRefusal("the oracle does not know " + op);
    Array& v = state_of(spec);
    if (op == "AssignVariable") {
      if (in[0].array.shape != v.shape) fail("a value of another shape");
      v = in[0].array;
    } else if (op == "AssignAdd" || op == "AssignSub") {
      double sign = op == "AssignAdd" ? 1 : -1;
      v = tabulate(v.shape,
                   [&](const Index& i) { return v[i] + sign * in[0].array.broadcast_at(i); });
    } else if (op == "ScatterVariable") {
      scatter(v, in[0].array, in[1].array, n.attrs.get<std::int64_t>("mode"));
    } else if (op != "ReadVariable") {
      throw OracleRefusal("the oracle does not know " + op);
    }
    OracleValue out{spec.values[0].dtype, v, false, {}, 0, {}};
    settle(out);
    v = out.array;
    return {out};
  }

  static void scatter(Array& v, const Array& indices, const Array& updates, std::int64_t mode) {
    std::size_t row = v.v.size() / static_cast<std::size_t>(std::max<std::int64_t>(1, v.shape[0]));
    for (std::size_t k = 0; k < indices.v.size(); ++k) {
      if (indices.v[k] < 0 || indices.v[k] >= static_cast<double>(v.shape[0]))
        fail("an index is outside the variable");
      for (std::size_t j = 0; j < row; ++j) {
        double& to = v.v[static_cast<std::size_t>(indices.v[k]) * row + j];
        double update = updates.v[k * row + j];
        to = mode == 0 ? update : mode == 1 ? to + update : to - update;
      }
    }
  }

  // ---- lists

  static OracleValue zeros(const OracleValue& list) {
    if (list.depth > 1) return {list.dtype, {}, true, list.element, list.depth - 1, {}};
    if (!list.element.is_known()) fail("an element was never written and its shape is not known");
    return {list.dtype, Array::filled(list.element, 0), false, {}, 0, {}};
  }
  static OracleValue element(const OracleValue& list, double index) {
    if (index < 0 || index >= static_cast<double>(list.elements.size()))
      fail("an index is outside the list");
    const auto& e = list.elements[static_cast<std::size_t>(index)];
    return e ? *e : zeros(list);
  }
  static void write(OracleValue& list, double index, const OracleValue& value, bool grows) {
    if (index < 0) fail("an index is outside the list");
    auto i = static_cast<std::size_t>(index);
    if (i >= list.elements.size()) {
      if (!grows) fail("an index is outside the list");
      list.elements.resize(i + 1);
    }
    if (list.elements[i]) fail("the element was written before");
    list.elements[i] = std::make_shared<const OracleValue>(value);
  }

  // Elements along a new leading axis, or along the leading axis they have.
  static Array joined(const OracleValue& list, const std::vector<double>& which, bool is_stack) {
    Array out;
    Shape rows = list.element;
    std::int64_t n = 0;
    for (double i : which) {
      OracleValue e = element(list, i);
      if (n > 0 || out.v.size() > 0 || rows.is_known()) {
        Shape a = e.array.shape, b = rows;
        if (!is_stack) a = a.without(0), b = b.without(0);
        if (!a.is_compatible(b)) fail("the elements differ in shape");
      }
      rows = e.array.shape;
      n += is_stack ? 1 : rows[0];
      out.v.insert(out.v.end(), e.array.v.begin(), e.array.v.end());
    }
    if (!is_stack && rows.has_rank()) rows = rows.without(0);
    if (!rows.is_known()) fail("the list is empty and its elements' shape is not known");
    out.shape = rows.with_inserted(0, n);
    return out;
  }

  static std::vector<double> all_of(const OracleValue& list) {
    std::vector<double> out;
    for (std::size_t i = 0; i < list.elements.size(); ++i) out.push_back(static_cast<double>(i));
    return out;
  }

  Values fire_list(const Node& n, const Values& in) {
    const std::string& op = n.op->name;
    const DType dtype = n.outputs[0].dtype;
    auto tensor = [&](Array a) -> Values { return {{dtype, std::move(a), false, {}, 0, {}}}; };
    if (op == "ListEmpty" || op == "ListReserve") {
      OracleValue list{dtype,
                       {},
                       true,
                       n.attrs.get<Shape>("shape"),
                       static_cast<int>(n.attrs.get<std::int64_t>("depth")),
                       {}};
      if (op == "ListReserve") {
        if (in[0].array.v[0] < 0) fail("a list of negative length");
        list.elements.resize(static_cast<std::size_t>(in[0].array.v[0]));
      }
      return {list};
    }
    if (op == "ListPush") {
      OracleValue list = in[0];
      list.elements.push_back(std::make_shared<const OracleValue>(in[1]));
      return {list};
    }
    if (op == "ListPop") {
      OracleValue list = in[0];
      if (list.elements.empty()) fail("an empty list has no last element");
      OracleValue last = element(list, static_cast<double>(list.elements.size()) - 1);
      list.elements.pop_back();
      return {list, last};
    }
    if (op == "ListRead") return {element(in[0], in[1].array.v[0])};
    if (op == "ListWrite") {
      OracleValue list = in[0];
      write(list, in[1].array.v[0], in[2], n.attrs.get<bool>("dynamic_size"));
      return {list};
    }
    if (op == "ListLength")
      return {OracleValue::integer(DType::i64, static_cast<double>(in[0].elements.size()))};
    const bool is_all =
        op == "ListStackLike" && in.size() == 1 &&
        n.attrs.get<Shape>("shape")[0] == static_cast<std::int64_t>(in[0].elements.size());
    if (op == "ListStack" || is_all) return tensor(joined(in[0], all_of(in[0]), true));
    if (op == "ListConcat") return tensor(joined(in[0], all_of(in[0]), false));
    if (op == "ListGather") return tensor(joined(in[0], in[1].array.v, true));
    if (op == "ListUnstack" || op == "ListSplit") {
      OracleValue list{dtype, {}, true, n.attrs.get<Shape>("shape"), 1, {}};
      const Array& x = in[0].array;
      std::vector<double> lengths =
          op == "ListSplit" ? in[1].array.v
                            : std::vector<double>(static_cast<std::size_t>(x.shape[0]), 1);
      std::size_t row = x.shape.without(0).elements() > 0
                            ? static_cast<std::size_t>(x.shape.without(0).elements())
                            : 0,
                  from = 0;
      for (double length : lengths) {
        Array piece{x.shape.without(0), {}};
        if (op == "ListSplit")
          piece.shape = piece.shape.with_inserted(0, static_cast<std::int64_t>(length));
        std::size_t to = from + row * static_cast<std::size_t>(length);
        if (length < 0 || to > x.v.size()) fail("the lengths do not fit");
        piece.v.assign(x.v.begin() + static_cast<std::ptrdiff_t>(from),
                       x.v.begin() + static_cast<std::ptrdiff_t>(to));
        list.elements.push_back(std::make_shared<const OracleValue>(
            OracleValue{dtype, std::move(piece), false, {}, 0, {}}));
        from = to;
      }
      if (from != x.v.size()) fail("the lengths do not fit");
      return {list};
    }
    throw OracleRefusal("the oracle does not know " + op);
  }

  const DType round_to_;
  const Graph* root_ = nullptr;
  std::map<std::string, Array> variables_;
  std::map<std::pair<const Graph*, bool>, std::vector<char>> needed_;
  std::int64_t fired_ = 0;
  int depth_ = 0;  // nested calls
  double margin_ = 0;
  bool saw_nan_ = false;    // in a comparison, since the last condition began
  bool nan_holds_ = false;  // result assumed for such a comparison meanwhile
};

Oracle::Oracle(DType round_to) : walk_(std::make_unique<Walk>(round_to)) {}
Oracle::Oracle(Oracle&&) noexcept = default;
Oracle::~Oracle() = default;

std::vector<OracleValue> Oracle::run(const Graph& graph,
                                     const std::vector<std::pair<Expr, OracleValue>>& feeds,
                                     const std::vector<Expr>& fetches) {
  return walk_->run(graph, feeds, fetches);
}
const Array& Oracle::variable(const Graph& graph, std::int32_t state) {
  return walk_->variable(graph, state);
}
void Oracle::set_variable(const Graph& graph, std::int32_t state, Array value) {
  walk_->set_variable(graph, state, std::move(value));
}
double Oracle::margin() const { return walk_->margin(); }
std::int64_t Oracle::fired() const { return walk_->fired(); }

}  // namespace troupe::test
